//! Records that were saved soon: each has its new content under its name, not synced, and the last synced one under a
//! second name in `promised/`. A `kill -9` keeps the new content, because the kernel has it; after a loss of power a
//! record that is not whole is replaced by the promised one. `flush` syncs the new content and drops the promised one.
//! What may be saved later waits in memory for the flush, which writes it once, whatever came meanwhile.

use super::record::{self, Read};
use super::{Files, Kind, MAX_RECORD_BYTES, StoreError, file_name, io_error};
use crate::ipc::files::{Access, Dir, ReadError};
use askd_core::{Ask, AskId, Group};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(super) const PROMISED: &str = "promised";
/// Asks share this many locks.
const SHARDS: usize = 64;
/// The most bytes of records that wait in memory for the next flush. Beyond that, what may wait is saved soon.
const MOST_UNWRITTEN: usize = 4 * 1024 * 1024;

/// Asks whose records are newer than what is synced.
#[derive(Debug)]
pub(super) struct Unsynced {
    shards: Vec<Mutex<HashMap<AskId, Unflushed>>>,
    /// Folders in which something was renamed since they were synced.
    folders: Mutex<HashSet<(Kind, Group)>>,
    /// The bytes of the records that wait in memory.
    unwritten: Arc<AtomicUsize>,
    /// The number of the last save, of all asks.
    saves: AtomicU64,
    /// Held by the one flush of all of them.
    flushing: Mutex<()>,
}

/// How a record is newer than what is synced.
#[derive(Debug)]
pub(super) struct Unflushed {
    kind: Kind,
    group: Group,
    /// The number of its last save. No other save ever has it, so a flush notices one that came meanwhile.
    save: u64,
    /// The record that was synced last has its second name.
    linked: bool,
    /// A sync failed: the kernel may treat unwritten data as written, so only writing it again helps.
    failed: bool,
    /// The last run left it. The record may be a promise, and what lies in `promised/` an older one.
    left: bool,
    /// What the flush has to write: the file of the ask is older.
    unwritten: Option<Unwritten>,
}

/// A record that a flush has written or synced, and not named yet.
#[derive(Debug)]
pub(super) struct Staged {
    kind: Kind,
    group: Group,
    save: u64,
    /// It has the temporary name.
    written: bool,
    synced: io::Result<()>,
}

/// An ask that the next flush writes. It counts until it is dropped.
#[derive(Debug)]
struct Unwritten {
    ask: Arc<Ask>,
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Unflushed {
    fn new(kind: Kind, group: Group) -> Self {
        Self { kind, group, save: 0, linked: false, failed: false, left: false, unwritten: None }
    }

    /// The ask, if its file is older.
    pub(super) fn unwritten(&self) -> Option<Arc<Ask>> {
        self.unwritten.as_ref().map(|unwritten| Arc::clone(&unwritten.ask))
    }
}

impl Default for Unsynced {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            shards,
            folders: Mutex::default(),
            unwritten: Arc::default(),
            saves: AtomicU64::default(),
            flushing: Mutex::default(),
        }
    }
}

impl Unsynced {
    /// Names of this ask's files change only while this is held.
    pub(super) fn lock(&self, id: AskId) -> MutexGuard<'_, HashMap<AskId, Unflushed>> {
        let shard = id.to_bits() as usize % SHARDS;
        self.shards[shard].lock()
    }

    fn next_save(&self) -> u64 {
        self.saves.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Puts a new record in its place. What is synced now is not the record that a flush began with.
    pub(super) fn save<E>(&self, id: AskId, put: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut unsynced = self.lock(id);
        put()?;
        if let Some(unflushed) = unsynced.get_mut(&id) {
            unflushed.save = self.next_save();
            unflushed.unwritten = None;
        }
        Ok(())
    }

    /// Something was renamed in this folder.
    pub(super) fn touch(&self, kind: Kind, group: &Group) {
        let mut folders = self.folders.lock();
        if !folders.iter().any(|(known, of)| (known, of) == (&kind, group)) {
            folders.insert((kind, group.clone()));
        }
    }

    /// The folders that a flush has to sync.
    #[cfg(test)]
    pub(super) fn folders(&self) -> Vec<(Kind, Group)> {
        self.folders.lock().iter().cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<AskId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

impl Files {
    /// Keeps in memory what the next flush writes. `false`: too much is kept already, or the last run left a record that a
    /// flush must not replace unseen.
    pub(super) fn leave_to_the_flush(&self, ask: &Arc<Ask>) -> bool {
        let Some((kind, bytes)) = self.cache.lock().record_of(ask.id) else { return false };
        let mut unsynced = self.unsynced.lock(ask.id);
        if unsynced.get(&ask.id).is_some_and(|unflushed| unflushed.left) {
            return false;
        }
        let all = Arc::clone(&self.unsynced.unwritten);
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let unwritten = Unwritten { ask: Arc::clone(ask), bytes, all };
        if before > MOST_UNWRITTEN {
            return false;
        }
        let unflushed = unsynced.entry(ask.id).or_insert_with(|| Unflushed::new(kind, ask.group.clone()));
        unflushed.save = self.unsynced.next_save();
        unflushed.unwritten = Some(unwritten);
        self.cache.lock().put(Arc::clone(ask), kind, bytes);
        true
    }

    /// Gives the new content its name and keeps the promised one under its second name. `Ok(false)`: no second name can
    /// be given here, so the content has to be synced first.
    pub(super) fn replace_soon(&self, kind: Kind, group: &Group, id: AskId, bytes: &[u8]) -> io::Result<bool> {
        let (folder, name, temporary) = (self.folder(kind, group)?, file_name(id), format!(".tmp-{id}"));
        folder.stage_unsynced(&temporary, bytes, Access::PRIVATE)?;
        let mut unsynced = self.unsynced.lock(id);
        if unsynced.get(&id).is_some_and(|unflushed| unflushed.left) {
            return Ok(false);
        }
        if !unsynced.get(&id).is_some_and(|unflushed| unflushed.linked) {
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
        let unflushed = unsynced.entry(id).or_insert_with(|| Unflushed::new(kind, group.clone()));
        unflushed.linked = true;
        folder.rename(&temporary, &name)?;
        unflushed.save = self.unsynced.next_save();
        unflushed.unwritten = None;
        drop(unsynced);
        self.unsynced.touch(kind, group);
        Ok(true)
    }

    /// The record is synced under its name: what was promised before is not needed any more.
    pub(super) fn is_synced(&self, unsynced: &mut HashMap<AskId, Unflushed>, id: AskId) {
        if unsynced.remove(&id).is_some_and(|unflushed| unflushed.linked) {
            // One that stays does no harm: the record is whole, so the next start goes by that.
            let _stays = self.promised.remove(&file_name(id));
        }
    }

    /// Puts the record of an ask on stable storage, if that is newer than what is synced. What has to be written goes to
    /// the temporary name first.
    pub(super) fn flush_ask(&self, id: AskId, temporary: &str) -> io::Result<()> {
        let Some(staged) = self.stage_flush(id, temporary)? else { return Ok(()) };
        let (kind, group, written) = (staged.kind, staged.group.clone(), staged.written);
        let finished = self.finish_flush(id, temporary, staged);
        if finished.is_err() && written {
            // The next flush may be one with another temporary name, or may have nothing to write.
            let _stays = self.folder(kind, &group)?.remove(temporary);
        }
        finished
    }

    /// Writes and syncs it. Saves may come meanwhile.
    pub(super) fn stage_flush(&self, id: AskId, temporary: &str) -> io::Result<Option<Staged>> {
        let (kind, group, save, failed, unwritten) = match self.unsynced.lock(id).get(&id) {
            Some(it) => (it.kind, it.group.clone(), it.save, it.failed, it.unwritten()),
            None => return Ok(None),
        };
        let (folder, name) = (self.folder(kind, &group)?, file_name(id));
        let bytes = match unwritten {
            Some(ask) => Some(record::write(&ask, &self.boot.id)?),
            None if failed => Some(folder.read_own(&name, MAX_RECORD_BYTES).map_err(io::Error::other)?.0),
            None => None,
        };
        let synced = match &bytes {
            Some(bytes) => folder.stage(temporary, bytes, Access::PRIVATE),
            None => folder.sync_file(&name),
        };
        Ok(Some(Staged { kind, group, save, written: bytes.is_some(), synced }))
    }

    /// Gives what was staged its name, unless it is not the last save any more.
    pub(super) fn finish_flush(&self, id: AskId, temporary: &str, staged: Staged) -> io::Result<()> {
        let Staged { kind, group, save, written, synced } = staged;
        let folder = self.folder(kind, &group)?;
        let mut unsynced = self.unsynced.lock(id);
        let Some(now) = unsynced.get_mut(&id).filter(|now| now.save == save) else {
            // Another save came meanwhile, and the next flush is for that one.
            return if written { folder.remove(temporary).map(drop) } else { Ok(()) };
        };
        if let Err(error) = synced {
            now.failed = true;
            return Err(error);
        }
        if written {
            folder.rename(temporary, &file_name(id))?;
            self.unsynced.touch(kind, &group);
        }
        self.is_synced(&mut unsynced, id);
        Ok(())
    }

    /// Puts all that was saved soon or later on stable storage. Goes on after a failure, and returns the first one.
    pub(super) fn flush_all(&self) -> io::Result<()> {
        let _alone = self.unsynced.flushing.lock();
        let flush = |id| self.flush_ask(id, &format!(".tmp-flush-{id}"));
        let mut flushed = self.unsynced.all().into_iter().map(flush).fold(Ok(()), io::Result::and);
        // In the head of the loop the lock would be held until its end, and a folder that fails could not be noted again.
        let touched = std::mem::take(&mut *self.unsynced.folders.lock());
        for (kind, group) in touched {
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
                    self.unsynced.touch(kind, &ask.group);
                    let new = Unflushed::new(kind, ask.group.clone());
                    self.unsynced
                        .lock(ask.id)
                        .insert(ask.id, Unflushed { save: self.unsynced.next_save(), linked: true, left: true, ..new });
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
