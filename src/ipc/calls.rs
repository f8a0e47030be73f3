//! The system calls that change files, in one place, so that a test can make any one of them fail or take long
//! ([`crate::sabotage::call`]). `files` is its only caller; it decides nothing.

use super::names::name as raw;
use crate::sabotage;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

type Done<T = ()> = Result<T, Errno>;

pub(super) fn openat2(dir: &OwnedFd, name: &str, flags: OFlags, mode: Mode, how: ResolveFlags) -> Done<OwnedFd> {
    sabotage::call("openat2", name)?;
    sys::openat2(dir, &*raw(name), flags, mode, how)
}

pub(super) fn mkdirat(dir: &OwnedFd, name: &str, mode: Mode) -> Done {
    sabotage::call("mkdirat", name)?;
    sys::mkdirat(dir, name, mode)
}

pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    sabotage::call("write", "")?;
    file.write_all(bytes)
}

fn sync(what: &str, sync: impl FnOnce() -> Done) -> Done {
    sabotage::call("fsync", what)?;
    if sabotage::on("nofsync") { Ok(()) } else { sync() }
}

pub(super) fn fsync(what: &str, file: impl AsFd) -> Done {
    sync(what, || sys::fsync(file))
}

/// All that was written on a file system before.
#[cfg(feature = "host")]
pub(super) fn syncfs(dir: &OwnedFd) -> Done {
    sync("file system", || sys::syncfs(dir))
}

pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    sabotage::call("write", "journal")?;
    file.write_all_at(bytes, at)
}

pub(super) fn fdatasync(what: &str, file: impl AsFd) -> Done {
    sync(what, || sys::fdatasync(file))
}

/// Replaces the file that has the new name.
pub(super) fn rename(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str) -> Done {
    sabotage::call("renameat2", new)?;
    sys::renameat(from, &*raw(name), to, &*raw(new))
}

/// Fails if a file has the new name.
pub(super) fn rename_unless_there(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str) -> Done {
    sabotage::call("renameat2", new)?;
    sys::renameat_with(from, &*raw(name), to, &*raw(new), RenameFlags::NOREPLACE)
}

pub(super) fn link(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str) -> Done {
    sabotage::call("linkat", new)?;
    sys::linkat(from, &*raw(name), to, &*raw(new), AtFlags::empty())
}

pub(super) fn unlinkat(dir: &OwnedFd, name: &str, flags: AtFlags) -> Done {
    sabotage::call("unlinkat", name)?;
    sys::unlinkat(dir, &*raw(name), flags)
}
