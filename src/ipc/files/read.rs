//! Reading a file in a folder that a hostile container can write too: it is pinned, checked, and only then opened.

use super::{Dir, Stamp, open, plain};
use rustix::fs::{self as sys, FileType, Mode, OFlags, ResolveFlags, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
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

impl Dir {
    /// Reads a plain file of at most `limit` bytes, in a folder that a container can write too.
    pub fn read(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
        self.read_with(name, limit, Names::One)
    }

    /// The same in a folder of our own, where a second name is only a backup's.
    pub fn read_own(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Stamp), ReadError> {
        self.read_with(name, limit, Names::Any)
    }

    fn read_with(&self, name: &str, limit: usize, names: Names) -> Result<(Vec<u8>, Stamp), ReadError> {
        let pin =
            match open(&self.0, plain(name)?, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_XDEV) {
                Ok(pin) => pin,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ReadError::Gone),
                // What a link answers to "no links".
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    return Err(ReadError::NotPlain("a link"));
                }
                Err(error) => return Err(error.into()),
            };
        let stamp = check(&pin, limit, names)?;
        // The pinned file itself is opened again, so that nothing can be put in its place.
        let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(sys::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.bytes()).unwrap_or(limit));
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(ReadError::TooLarge { bytes: bytes.len() as u64, limit });
        }
        Ok((bytes, stamp))
    }
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
    if stamp.bytes() > limit as u64 {
        return Err(ReadError::TooLarge { bytes: stamp.bytes(), limit });
    }
    Ok(stamp)
}
