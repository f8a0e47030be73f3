//! The store as a folder of files below `state/`: one JSON file for each ask. `Ok` always means: on stable storage.

mod adopting;
mod boot;
mod flush;
mod forgetting;
mod groups;
mod journal;
mod opening;
mod scan;
mod unfiled;

#[cfg(feature = "postgres")]
pub(super) use boot::boot_id;
pub use boot::{BOOT_ID_FIX, no_boot_id};
pub use opening::{hold, note_settings, noted_settings};

use super::cache::{Cache, Kind};
use super::documents::CHANNELS;
use super::{Allowed, BadRecord, Erased, Loading, Save, Store, StoreError, Stored, Whom, record};
use crate::host::folders::most_held;
use crate::ipc::files::{Access, Dir, NotStored};
use crate::sabotage::on;
use askd_core::record::EntryId;
use askd_core::{Ask, AskId, Group, Time};
use boot::Boot;
use journal::{Journal, Place};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unfiled::{AllUnfiled, Saved, Unfiled};

/// The folder of the open questions.
pub const PENDING: &str = "pending_questions";
const SETTLED: &str = "settled";
const REJECTED: &str = "rejected";
const JOURNAL: &str = "journal";
/// The newest format of the files of channels.
pub const CHANNELS_FORMAT: u32 = 2;
/// The most rejected files kept for one group, and their bytes in all.
const REJECTED_FILES: usize = 100;
const REJECTED_BYTES: u64 = 1024 * 1024;
/// How many bytes a probe writes. A smaller file might still fit on a disk that has no room left for a record.
const PROBE_BYTES: usize = 64 * 1024;
/// The most bytes of a record that are read. An ask at its limits has far fewer.
const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

fn not_stored(what: impl Into<String>) -> impl FnOnce(NotStored) -> StoreError {
    let what = what.into();
    move |error| match error {
        NotStored::Unchanged(source) => StoreError::Io { what, source },
        NotStored::InDoubt(source) => StoreError::InDoubt { what, source },
    }
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    let what = what.into();
    move |source| StoreError::Io { what, source }
}

impl Kind {
    /// Its folder.
    const fn name(self) -> &'static str {
        match self {
            Self::Pending => PENDING,
            Self::Settled => SETTLED,
        }
    }
}

/// Asks in files.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    root: Dir,
    boot: Boot,
    /// When this run began, by the clock of that file system.
    began: (i64, u64),
    /// Read-locked by a save; `false` once everything is on stable storage and has to stay so.
    writable: RwLock<bool>,
    /// Folders of groups that were used lately, of each kind.
    folders: [Mutex<HashMap<Group, Arc<Dir>>>; 2],
    journal: Journal,
    /// The format of the folder says that there is a journal.
    marked: Mutex<bool>,
    unfiled: AllUnfiled,
    /// One sync of the file system does for the files of many asks.
    syncs_as_one: AtomicBool,
    /// The asks that were found in the journal at the start.
    adopted: HashSet<AskId>,
    cache: Mutex<Cache<Kind>>,
    /// Held by the one call that changes the file of a group. The names of damaged ones, until they are moved aside.
    groups: Mutex<Vec<String>>,
    last_save_failed: AtomicBool,
    last_flush_failed: AtomicBool,
    /// Held as long as the store is.
    _lock: File,
}

impl Files {
    /// The folder of a group's asks, made if need be. Nobody else changes what lies here, so it is held open.
    fn folder(&self, kind: Kind, group: &Group) -> io::Result<Arc<Dir>> {
        let known = &self.folders[kind as usize];
        if let Some(folder) = known.lock().get(group) {
            return Ok(Arc::clone(folder));
        }
        let folder = match self.root.sub(&format!("{}/{group}", kind.name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.root.sub(kind.name())?.ensure(group.as_str(), Access::PRIVATE)?
            }
            other => other?,
        };
        let folder = Arc::new(folder);
        let mut known = known.lock();
        if known.len() >= most_held().get() {
            known.clear();
        }
        known.insert(group.clone(), Arc::clone(&folder));
        Ok(folder)
    }

    /// Where the record of an ask is, if there is one.
    fn kind(&self, group: &Group, id: AskId) -> io::Result<Option<Kind>> {
        let cached = self.cache.lock().get(id);
        if let Some((_, kind)) = cached.or_else(|| self.unfiled.get(id)) {
            return Ok(Some(kind));
        }
        for kind in [Kind::Pending, Kind::Settled] {
            if self.folder(kind, group)?.stat(&file_name(id))?.is_some() {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// Keeps the end of the store away for as long as something is being saved. An error if that has come.
    fn saving(&self) -> io::Result<RwLockReadGuard<'_, bool>> {
        let writable = self.writable.read();
        if *writable { Ok(writable) } else { Err(io::Error::other("askd has stopped")) }
    }

    /// `Ok(false)`: it waits in memory, which says nothing about the disk.
    fn write(&self, ask: &Arc<Ask>, save: Save) -> Result<bool, NotStored> {
        let _saving = self.saving()?;
        let id = ask.id;
        if save == Save::Later && self.leave_to_the_flush(ask) {
            return Ok(false);
        }
        // A new ask has no record yet.
        let is_open = ask.outcome().is_none();
        let kind = if is_open { Kind::Pending } else { self.kind(&ask.group, id)?.unwrap_or(Kind::Pending) };
        let bytes = record::entry(ask, None).map_err(io::Error::from)?;
        let place = self.append(Some(kind), &bytes)?;
        if save == Save::Now {
            self.journal.sync(&place).map_err(NotStored::InDoubt)?;
        }
        let is_at_hand = self.cache.lock().record_of(id).is_some();
        let is_new = save == Save::Now && is_open && !is_at_hand && self.unfiled.get(id).is_none();
        // While its card is being posted, another save follows soon.
        let entry = place.entry;
        let saved = if is_new && ask.was_interrupted() {
            Saved::WithoutFile(entry.clone())
        } else if is_new && self.place(ask, &entry).unwrap_or(false) {
            Saved::Placed(entry.clone())
        } else {
            Saved::InJournal(entry.clone())
        };
        if on("noseen") {
            // What is at hand would know what the record forgets.
            let forgetful = record::read(&bytes).map_or_else(|_| Arc::clone(ask), |read| Arc::new(read.ask));
            self.unfiled.note(&forgetful, kind, bytes.len(), saved);
            self.cache.lock().remove(id);
        } else {
            let place = || self.place(ask, &entry);
            if !(is_open && self.unfiled.note_first(ask, bytes.len(), &entry, place)) {
                self.unfiled.note(ask, kind, bytes.len(), saved);
            }
            self.cache.lock().put(Arc::clone(ask), kind, bytes.len());
        }
        if self.unfiled.are_too_many() {
            // The record is in the journal, so a file that cannot be written now can wait for the flush.
            let _later = self.flush_ask(id, &format!(".tmp-{id}"));
        }
        Ok(true)
    }

    /// Makes the first file of an ask at once, for people and tools that look for it. The journal has the promise, so nothing is
    /// synced, and a file that is there already is not replaced.
    fn place(&self, ask: &Ask, entry: &EntryId) -> io::Result<bool> {
        let (folder, temporary) = (self.folder(Kind::Pending, &ask.group)?, format!(".tmp-{}", ask.id));
        let bytes = record::write(ask, &self.boot.id, Some(entry))?;
        folder.stage_unsynced(&temporary, &bytes, Access::PRIVATE)?;
        let placed = folder.rename_unless_there(&temporary, &file_name(ask.id));
        if !matches!(placed, Ok(true)) {
            folder.remove(&temporary)?;
        }
        placed
    }

    /// Removes the record of an ask from the store; it may get another name. Returns where it was, and where the journal says so.
    fn take_out(&self, group: &Group, id: AskId, rename: Option<&str>) -> io::Result<(Kind, Option<Place>)> {
        let _saving = self.saving()?;
        if rename.is_some() {
            // What is in the file then is the last that is known.
            self.flush_ask(id, &format!(".tmp-{id}"))?;
        }
        let kind = self.kind(group, id)?.unwrap_or(Kind::Pending);
        let mut unfiled = self.unfiled.lock(id);
        let is_in = unfiled.get(&id).map_or(kind, Unfiled::is_in);
        let (folder, name) = (self.folder(is_in, group)?, file_name(id));
        match rename {
            Some(aside) => folder.rename(&name, aside)?,
            None => folder.remove(&name).map(drop)?,
        }
        self.unfiled.touch(is_in, group);
        unfiled.remove(&id);
        self.cache.lock().remove(id);
        Ok((is_in, self.note_gone(id)?))
    }
}

impl Store for Files {
    fn ended_well(&self) -> bool {
        self.boot.ended_well()
    }

    /// Creates, syncs and removes a file of 64 KiB.
    fn probe(&self) -> Result<(), StoreError> {
        let name = format!(".tmp-probe-{}", crate::random::unique());
        let write = self.root.create(&name, &vec![b' '; PROBE_BYTES], Access::PRIVATE);
        let write = write.and_then(|()| self.root.remove(&name).map(drop));
        write.map_err(io_error(format!("cannot write in {}", self.path.display())))
    }

    fn last_save_failed(&self) -> bool {
        self.last_save_failed.load(Ordering::Relaxed) || self.last_flush_failed.load(Ordering::Relaxed)
    }

    fn save(&self, ask: &Arc<Ask>, save: Save) -> Result<(), StoreError> {
        let saved = self.write(ask, save).map_err(not_stored(format!("cannot store ask {}", ask.id)));
        if !matches!(saved, Ok(false)) {
            self.last_save_failed.store(saved.is_err(), Ordering::Relaxed);
        }
        saved.map(drop)
    }

    fn cached(&self, id: AskId) -> Option<Arc<Ask>> {
        self.cache.lock().get(id).map(|(ask, _)| ask)
    }

    fn load(&self, group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.cached(id) {
            return Ok(Some(ask));
        }
        // No save can come in between, so the cache gets what the record says now.
        let unchanged = self.unfiled.lock(id);
        if let Some(unfiled) = unchanged.get(&id) {
            return Ok(Some(Arc::clone(&unfiled.ask)));
        }
        let Some((ask, kind, bytes)) = self.read_record(group, id)? else { return Ok(None) };
        let ask = Arc::new(ask);
        self.cache.lock().put(Arc::clone(&ask), kind, bytes);
        Ok(Some(ask))
    }

    fn read(&self, group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.cached(id) {
            return Ok(Some(ask));
        }
        let unchanged = self.unfiled.lock(id);
        match unchanged.get(&id) {
            Some(unfiled) => Ok(Some(Arc::clone(&unfiled.ask))),
            None => Ok(self.read_record(group, id)?.map(|(ask, ..)| Arc::new(ask))),
        }
    }

    fn find(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        self.look_for(id)
    }

    fn retire(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        let moves = || {
            if self.kind(group, id)? == Some(Kind::Pending)
                && let Some(ask) = self.load(group, id).map_err(io::Error::other)?
            {
                self.move_to_settled(&ask)?;
            }
            Ok(())
        };
        moves().map_err(io_error(format!("cannot keep the outcome of ask {id}")))
    }

    fn set_aside(&self, group: &Group, id: AskId) -> Result<String, StoreError> {
        let aside = format!("{}.set-aside", file_name(id));
        let rename = || {
            let (kind, gone) = self.take_out(group, id, Some(&aside))?;
            self.folder(kind, group)?.sync()?;
            gone.map_or(Ok(()), |gone| self.journal.sync(&gone))?;
            Ok(self.path.join(kind.name()).join(group.as_str()).join(&aside).display().to_string())
        };
        rename().map_err(io_error(format!("cannot set ask {id} aside")))
    }

    fn forget(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        self.take_out(group, id, None).map(drop).map_err(io_error(format!("cannot drop ask {id}")))
    }

    fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.flush_all(false).map_err(io_error("cannot sync what was saved"));
        self.last_flush_failed.store(flushed.is_err(), Ordering::Relaxed);
        flushed
    }

    fn flush_whole(&self) -> Result<(), StoreError> {
        self.flush_all(true).map_err(io_error("cannot file what was saved"))
    }

    fn has_more_to_flush(&self) -> bool {
        !self.journal.is_empty()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.flush_and_close().map_err(io_error("cannot sync what was saved"))?;
        opening::mark_format(&self.path, &self.root, record::VERSION)?;
        self.boot.end(&self.root).map_err(io_error("cannot note that everything is stored"))
    }

    fn learn(&self, whom: &mut Whom) -> Result<(), StoreError> {
        // What the last run left in the journal goes into files, too.
        self.flush_whole()?;
        self.learn_all(whom).map_err(io_error("cannot forget"))
    }

    fn erase(&self, whom: &Whom, first: &mut dyn FnMut(&Ask) -> io::Result<()>) -> Result<Erased, StoreError> {
        // The journal holds no copies of records after this.
        self.flush_whole()?;
        self.journal.wipe().map_err(io_error("cannot wipe the journal"))?;
        let mut erased = Erased::default();
        self.erase_all(whom, &mut erased, first).map_err(io_error("cannot forget"))?;
        Ok(erased)
    }

    fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let keep = || {
            let folder = self.root.sub(REJECTED)?.ensure(group.as_str(), Access::PRIVATE)?;
            folder.replace(".tmp-rejected", name, bytes, Access::PRIVATE)?;
            let mut kept = Vec::new();
            for name in folder.names()? {
                kept.extend(folder.stat(&name)?.map(|stamp| (stamp.modified, name, stamp.bytes)));
            }
            kept.sort();
            let mut total: u64 = kept.iter().map(|(_, _, bytes)| bytes).sum();
            let mut files = kept.len();
            for (_, oldest, bytes) in kept {
                if files <= REJECTED_FILES && total <= REJECTED_BYTES || oldest == name {
                    break;
                }
                folder.remove(&oldest)?;
                files -= 1;
                total -= bytes;
            }
            Ok(())
        };
        keep().map_err(io_error(format!("cannot keep a rejected request of {group}")))
    }

    fn scan(&self, loading: &Loading, each: &(dyn Fn(Stored) + Sync)) -> Result<Vec<(String, BadRecord)>, StoreError> {
        self.read_all(loading, each)
    }

    fn allow(&self, group: &Group, allowed: &[Allowed], oldest: Time) -> Result<(), StoreError> {
        self.keep_allowed(group, allowed, oldest)
    }

    fn allowed(&self) -> Result<Vec<(Group, Vec<Allowed>)>, StoreError> {
        self.read_allowed()
    }
}

fn file_name(id: AskId) -> String {
    format!("{id}.json")
}

#[cfg(test)]
mod tests;
