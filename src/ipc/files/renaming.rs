//! Renaming within a folder, also on file systems that do not know how to do so only if nothing has the new name.

use super::{Dir, plain};
use crate::ipc::calls;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::io;

impl Dir {
    /// Gives a synced file its name. Whatever has that name is replaced: links are not followed. `Ok(true)` if something
    /// was.
    pub fn publish(&self, from: &str, to: &str) -> io::Result<bool> {
        match calls::rename_unless_there(&self.0, plain(from)?, &self.0, plain(to)?) {
            Ok(()) => Ok(false),
            Err(Errno::EXIST) => Ok(calls::rename(&self.0, from, &self.0, to).map(|()| true)?),
            // Not every file system knows NOREPLACE (NFS).
            Err(Errno::INVAL) => Ok(calls::rename(&self.0, from, &self.0, to).map(|()| false)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames within the folder unless there is something of that name: `Ok(false)` then.
    pub fn rename_unless_there(&self, from: &str, to: &str) -> io::Result<bool> {
        match calls::rename_unless_there(&self.0, plain(from)?, &self.0, plain(to)?) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // Not every file system knows NOREPLACE (NFS).
            Err(Errno::INVAL) => match calls::link(&self.0, from, &self.0, to) {
                Ok(()) => Ok(calls::unlinkat(&self.0, from, AtFlags::empty()).map(|()| true)?),
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Renames within the folder, without a sync: for what may as well not have happened.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(calls::rename(&self.0, plain(from)?, &self.0, plain(to)?)?)
    }
}
