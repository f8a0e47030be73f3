//! What a file looked like at a moment, and the names in a folder.

use crate::ipc::names;
use rustix::fs::{self as sys, FileType, Stat};
use std::io;
use std::path::Path;

/// Which file it is and how it was left: if two stamps are equal, nothing was written in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Whether it is a plain file: no folder, link, FIFO or device.
    pub plain: bool,
    /// The device it lies on.
    pub device: u64,
    inode: u64,
    /// Its size.
    pub bytes: u64,
    /// When its content last changed: seconds and nanoseconds since the Unix epoch.
    pub modified: (i64, u64),
    /// When its content, name or mode last changed, as a pair of the same kind.
    pub changed: (i64, u64),
}

impl Stamp {
    #[expect(clippy::cast_sign_loss, reason = "a size is never negative")]
    #[expect(clippy::useless_conversion, reason = "the width of these fields differs between platforms")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            plain: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size as u64,
            modified: (stat.st_mtime.into(), stat.st_mtime_nsec.into()),
            changed: (stat.st_ctime.into(), stat.st_ctime_nsec.into()),
        }
    }

    /// Of a folder of our own by its path; links in it are followed. Nothing is opened, so a watch of the folder reports
    /// nothing.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&sys::stat(path)?))
    }

    /// The same of what is at that path itself, a link too.
    pub fn of_place(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&sys::lstat(path)?))
    }

    /// Whether both are one file with the same content, whatever its name.
    pub fn same_content(&self, other: &Self) -> bool {
        self.same_file(other) && self.plain && (self.bytes, self.modified) == (other.bytes, other.modified)
    }

    /// Whether both are one file, whatever was written to it.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A folder that is listed in parts, each from where the one before it stopped. A name that is there all the time is
/// met once; a name that comes or goes meanwhile may be met or not.
#[derive(Debug)]
pub struct Listing {
    entries: sys::Dir,
    of: Stamp,
}

impl Listing {
    pub(super) fn new(entries: sys::Dir, of: Stamp) -> Self {
        Self { entries, of }
    }

    /// Whether this is a listing of that folder.
    pub fn is_of(&self, folder: &Stamp) -> bool {
        self.of.same_file(folder)
    }

    /// Hands over the next names, of at most this many entries, without `.` and `..`. `true` at the end of the folder.
    pub fn part(&mut self, most: usize, mut each: impl FnMut(&str) -> io::Result<()>) -> io::Result<bool> {
        for _ in 0..most {
            let Some(entry) = self.entries.read() else { return Ok(true) };
            match names::text(entry?.file_name().to_bytes()).as_ref() {
                "." | ".." => {}
                name => each(name)?,
            }
        }
        Ok(false)
    }
}
