//! Records that were saved soon: each has its new content under its name, not synced, and the last synced one under a
//! second name in `promised/`. A `kill -9` keeps the new content, because the kernel has it; after a loss of power a
//! record that is not whole is replaced by the promised one. `flush` syncs the new content and drops the promised one.

use super::record::{self, Read};
use super::{Files, Kind, MAX_RECORD_BYTES, StoreError, file_name, io_error};
use crate::ipc::files::{Access, Dir, ReadError};
use askd_core::{AskId, Group};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

pub(super) const PROMISED: &str = "promised";
/// Asks share this many locks.
const SHARDS: usize = 64;

/// Asks whose records are newer than what is synced.
#[derive(Debug)]
pub(super) struct Unsynced {
    shards: Vec<Mutex<HashMap<AskId, Unflushed>>>,
    /// Folders in which something was renamed since they were synced.
    folders: Mutex<HashSet<(Kind, Group)>>,
}

/// How a record is newer than what is synced.
#[derive(Debug, Clone)]
pub(super) struct Unflushed {
    kind: Kind,
    group: Group,
    /// Goes up with each save, so that a flush notices one that came meanwhile.
    saves: u64,
    /// A sync failed: the kernel may treat unwritten data as written, so only writing it again helps.
    failed: bool,
}

impl Default for Unsynced {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), folders: Mutex::default() }
    }
}

impl Unsynced {
    /// Names of this ask's files change only while this is held.
    pub(super) fn lock(&self, id: AskId) -> MutexGuard<'_, HashMap<AskId, Unflushed>> {
        let shard = id.to_string().bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        self.shards[shard % SHARDS].lock()
    }

    /// Puts a new record in its place. What is synced now is not the record that a flush began with.
    pub(super) fn save<T>(&self, id: AskId, put: impl FnOnce() -> T) -> T {
        let mut unsynced = self.lock(id);
        if let Some(unflushed) = unsynced.get_mut(&id) {
            unflushed.saves += 1;
        }
        put()
    }

    /// Something was renamed in this folder.
    pub(super) fn touch(&self, kind: Kind, group: &Group) {
        self.folders.lock().insert((kind, group.clone()));
    }

    fn all(&self) -> Vec<AskId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

impl Files {
    /// Gives the new content its name and keeps the promised one under its second name. `Ok(false)`: no second name can
    /// be given here, so the content has to be synced first.
    pub(super) fn replace_soon(&self, kind: Kind, group: &Group, id: AskId, bytes: &[u8]) -> io::Result<bool> {
        let (folder, name, temporary) = (self.folder(kind, group)?, file_name(id), format!(".tmp-{id}"));
        folder.stage_unsynced(&temporary, bytes, Access::PRIVATE)?;
        let mut unsynced = self.unsynced.lock(id);
        if !unsynced.contains_key(&id) && folder.link(&name, &self.promised, &name).is_err() {
            return Ok(false);
        }
        folder.rename(&temporary, &name)?;
        let unflushed =
            unsynced.entry(id).or_insert_with(|| Unflushed { kind, group: group.clone(), saves: 0, failed: false });
        unflushed.saves += 1;
        drop(unsynced);
        self.unsynced.touch(kind, group);
        Ok(true)
    }

    /// The record is synced under its name: what was promised before is not needed any more.
    pub(super) fn is_synced(&self, id: AskId) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock(id);
        if unsynced.remove(&id).is_some() {
            self.promised.remove(&file_name(id))?;
        }
        Ok(())
    }

    /// Syncs the record of an ask, if it is newer than what is synced.
    pub(super) fn flush_ask(&self, id: AskId) -> io::Result<()> {
        let Some(Unflushed { kind, group, saves, failed }) = self.unsynced.lock(id).get(&id).cloned() else {
            return Ok(());
        };
        let (folder, name, temporary) = (self.folder(kind, &group)?, file_name(id), format!(".tmp-flush-{id}"));
        let synced = if failed {
            let (bytes, _) = folder.read_own(&name, MAX_RECORD_BYTES).map_err(io::Error::other)?;
            folder.stage(&temporary, &bytes, Access::PRIVATE)
        } else {
            folder.sync_file(&name)
        };
        let mut unsynced = self.unsynced.lock(id);
        let Some(now) = unsynced.get_mut(&id).filter(|now| now.saves == saves) else {
            // Another save came meanwhile, and the next flush is for that one.
            return folder.remove(&temporary).map(drop);
        };
        if let Err(error) = synced {
            now.failed = true;
            return Err(error);
        }
        if failed {
            folder.rename(&temporary, &name)?;
        }
        unsynced.remove(&id);
        self.promised.remove(&name).map(drop)
    }

    /// Syncs all that was saved soon. Goes on after a failure, and returns the first one.
    pub(super) fn flush_all(&self) -> io::Result<()> {
        let mut flushed = self.unsynced.all().into_iter().map(|id| self.flush_ask(id)).fold(Ok(()), io::Result::and);
        for (kind, group) in std::mem::take(&mut *self.unsynced.folders.lock()) {
            if let Err(error) = self.folder(kind, &group).and_then(|folder| folder.sync()) {
                self.unsynced.touch(kind, &group);
                flushed = flushed.and(Err(error));
            }
        }
        flushed
    }

    /// Finds out what became of records that the end of the last run left unsynced: a whole one is newer than the
    /// promised one, and is synced; another one is replaced by it. Comes before any record is read.
    pub(super) fn recover(&self) -> Result<(), StoreError> {
        let at = |name: &str| io_error(format!("cannot recover {}", self.path.join(PROMISED).join(name).display()));
        for name in self.promised.names().map_err(at(""))? {
            self.recover_one(&name).map_err(at(&name))?;
        }
        Ok(())
    }

    fn recover_one(&self, name: &str) -> io::Result<()> {
        let promised = match self.promised.read_own(name, MAX_RECORD_BYTES) {
            Ok((bytes, _)) => record::read(&bytes),
            Err(error) => return Err(io::Error::other(error)),
        };
        // What is promised was synced: it is whole, or another askd's, which the scan will find.
        let Ok(Read { ask: promised, .. }) = promised else { return Ok(()) };
        let find = |kind| -> io::Result<Option<(Arc<Dir>, bool)>> {
            let folder = self.folder(kind, &promised.group)?;
            match folder.read_own(name, MAX_RECORD_BYTES) {
                Ok((bytes, _)) => Ok(Some((folder, record::read(&bytes).is_ok()))),
                Err(ReadError::Gone) => Ok(None),
                Err(error) => Err(io::Error::other(error)),
            }
        };
        let found = match find(Kind::Pending)? {
            Some(found) => Some(found),
            None => find(Kind::Settled)?,
        };
        match found {
            Some((folder, true)) => folder.sync_file(name)?,
            Some((folder, false)) => {
                self.promised.link(name, &folder, ".tmp-promised")?;
                folder.rename(".tmp-promised", name)?;
                folder.sync()?;
            }
            // It was forgotten.
            None => {}
        }
        self.promised.remove(name).map(drop)
    }
}
