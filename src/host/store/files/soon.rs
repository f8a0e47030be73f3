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
    /// The last run left it. The record may be a promise, and what lies in `promised/` an older one.
    left: bool,
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
        if unsynced.get(&id).is_some_and(|unflushed| unflushed.left) {
            return Ok(false);
        }
        if !unsynced.contains_key(&id) {
            let linked = match folder.link(&name, &self.promised, &name) {
                // An old one, which could not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.promised.remove(&name)?;
                    folder.link(&name, &self.promised, &name)
                }
                linked => linked,
            };
            if linked.is_err() {
                return Ok(false);
            }
        }
        folder.rename(&temporary, &name)?;
        let new = || Unflushed { kind, group: group.clone(), saves: 0, failed: false, left: false };
        let unflushed = unsynced.entry(id).or_insert_with(new);
        unflushed.saves += 1;
        drop(unsynced);
        self.unsynced.touch(kind, group);
        Ok(true)
    }

    /// The record is synced under its name: what was promised before is not needed any more.
    pub(super) fn is_synced(&self, unsynced: &mut HashMap<AskId, Unflushed>, id: AskId) {
        if unsynced.remove(&id).is_some() {
            // One that stays does no harm: the record is whole, so the next start goes by that.
            let _stays = self.promised.remove(&file_name(id));
        }
    }

    /// Syncs the record of an ask, if it is newer than what is synced.
    pub(super) fn flush_ask(&self, id: AskId) -> io::Result<()> {
        let Some(Unflushed { kind, group, saves, failed, .. }) = self.unsynced.lock(id).get(&id).cloned() else {
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
        self.is_synced(&mut unsynced, id);
        Ok(())
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
    /// promised one, and is synced with the next flush; another one is replaced by it. Comes before any record is read.
    pub(super) fn recover(&self) -> Result<(), StoreError> {
        let at = |name: &str| io_error(format!("cannot recover {}", self.path.join(PROMISED).join(name).display()));
        for name in self.promised.names().map_err(at(""))? {
            self.recover_one(&name).map_err(at(&name))?;
        }
        Ok(())
    }

    fn recover_one(&self, name: &str) -> io::Result<()> {
        let read = |folder: &Dir| match folder.read_own(name, MAX_RECORD_BYTES) {
            Ok((bytes, _)) => Ok(Some(record::read(&bytes))),
            Err(ReadError::Gone) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        };
        // What is promised was synced: it is whole, or another askd's, which the scan will find.
        let Some(Ok(Read { ask: promised, .. })) = read(&self.promised)? else { return Ok(()) };
        for kind in [Kind::Pending, Kind::Settled] {
            let folder = self.folder(kind, &promised.group)?;
            match read(&folder)? {
                Some(Ok(Read { ask, .. })) => {
                    let unflushed = Unflushed { kind, group: ask.group.clone(), saves: 1, failed: false, left: true };
                    self.unsynced.touch(kind, &unflushed.group);
                    self.unsynced.lock(ask.id).insert(ask.id, unflushed);
                    return Ok(());
                }
                Some(Err(_)) => {
                    self.promised.link(name, &folder, ".tmp-promised")?;
                    folder.rename(".tmp-promised", name)?;
                    folder.sync()?;
                    break;
                }
                None => {}
            }
        }
        // It is in its place again, or was forgotten.
        self.promised.remove(name).map(drop)
    }
}
