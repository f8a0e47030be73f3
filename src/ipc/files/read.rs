//! Reading a file in a folder that a hostile container can write too: it is pinned, checked, and only then opened.

use super::{Dir, Stamp, open, plain};
use rustix::buffer::spare_capacity;
use rustix::fs::{self as sys, FileType, Mode, OFlags, ResolveFlags, fstat};
use rustix::io::{Errno, read as sys_read, retry_on_intr};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none of that name.
    #[error("it is gone")]
    Gone,
    /// A link, FIFO, device, folder, or a file with a second name.
    #[error("it is not a plain file with one name ({0})")]
    NotPlain(&'static str),
    /// Larger than may be read.
    #[error("it has {bytes} bytes; at most {limit} are read")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most that is read.
        limit: usize,
    },
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How to mend what [`is_of_the_process`].
pub const MORE_FILES: &str =
    "let askd open more files: LimitNOFILE= of its unit, or ulimit -n; and see that memory is free";

/// Whether the process has too much open, or too little memory, to read anything: that says nothing about the file.
pub fn is_of_the_process(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR].contains(&code))
}

impl Dir {
    /// Reads a plain file of at most `limit` bytes, in a folder that a container can write too.
    pub fn read(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
        let pin = self.open_to_read(name, OFlags::PATH | OFlags::NOFOLLOW)?;
        let stamp = check(&pin, limit, Names::One)?;
        // The pinned file itself is opened again, so that nothing can be put in its place.
        let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
        let file = sys::open(path, READING, Mode::empty()).map_err(io::Error::from)?;
        read(&file, stamp, limit)
    }

    /// The same in a folder of our own, where nobody puts another file in its place, and a second name is only a backup's.
    pub fn read_own(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
        self.read_opened(name, limit, Names::Any)
    }

    /// The same for an agent, which has nothing to fear from what lies in its own folder: a device there would be opened.
    pub fn read_trusted(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
        self.read_opened(name, limit, Names::One)
    }

    fn read_opened(&self, name: &str, limit: usize, names: Names) -> Result<(Vec<u8>, Stamp), ReadError> {
        let file = self.open_to_read(name, READING | OFlags::NOFOLLOW)?;
        let stamp = check(&file, limit, names)?;
        read(&file, stamp, limit)
    }

    fn open_to_read(&self, name: &str, flags: OFlags) -> Result<OwnedFd, ReadError> {
        let opened = if crate::sabotage::on("followlinks") {
            sys::openat(&self.0, name, READING, Mode::empty()).map_err(io::Error::from)
        } else {
            open(&self.0, plain(name)?, flags, Mode::empty(), ResolveFlags::NO_XDEV)
        };
        opened.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                ReadError::Gone
            } else if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
                // What a link answers to "no links".
                ReadError::NotPlain("a link")
            } else {
                error.into()
            }
        })
    }
}

/// How a file is opened that may turn out to be a FIFO.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

fn read(file: &OwnedFd, stamp: Stamp, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
    let size = usize::try_from(stamp.bytes).unwrap_or(limit).min(limit);
    let mut bytes = Vec::with_capacity(size + 1);
    let some = |bytes: &mut Vec<u8>| retry_on_intr(|| sys_read(file, spare_capacity(bytes))).map_err(io::Error::from);
    // Most often that is one read: there is room for one byte more than there should be.
    while some(&mut bytes)? > 0 && bytes.len() != size {
        if bytes.len() > limit {
            return Err(ReadError::TooLarge { bytes: bytes.len() as u64, limit });
        }
        bytes.reserve(1);
    }
    Ok((bytes, stamp))
}

/// How many names a file may have: a second one may be that of a secret elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    One,
    Any,
}

fn check(pin: &OwnedFd, limit: usize, names: Names) -> Result<Stamp, ReadError> {
    let stat = fstat(pin).map_err(io::Error::from)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(ReadError::NotPlain("a link")),
        FileType::Directory => return Err(ReadError::NotPlain("a folder")),
        FileType::Fifo => return Err(ReadError::NotPlain("a FIFO")),
        _ => return Err(ReadError::NotPlain("a device or socket")),
    }
    if names == Names::One && stat.st_nlink != 1 {
        return Err(ReadError::NotPlain("it has a second name, or none any more"));
    }
    let stamp = Stamp::of(&stat);
    if stamp.bytes > limit as u64 {
        return Err(ReadError::TooLarge { bytes: stamp.bytes, limit });
    }
    Ok(stamp)
}
