//! A file of the daemon's own that is written in place, as a journal is. Nobody else can write in its folder.

use super::{Dir, open, plain};
use crate::ipc::calls;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io;

/// See the module. Writes go where the caller says, from any thread.
#[derive(Debug)]
pub struct InPlace(File);

impl Dir {
    /// Opens a file that is there to write in it.
    pub fn open_in_place(&self, name: &str) -> io::Result<InPlace> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        open(&self.0, plain(name)?, flags, Mode::empty(), ResolveFlags::NO_XDEV).map(|fd| InPlace(File::from(fd)))
    }
}

impl InPlace {
    /// Writes bytes at a place in the file, which grows if need be.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        calls::write_at(&self.0, bytes, at)
    }

    /// Puts its content on stable storage.
    pub fn sync(&self) -> io::Result<()> {
        Ok(calls::fdatasync("journal", &self.0)?)
    }

    /// Makes it as long as this.
    pub fn cut(&self, to: u64) -> io::Result<()> {
        self.0.set_len(to)
    }
}
