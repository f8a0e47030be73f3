//! The store as a folder of files below `state/`: one JSON file for each ask. `Ok` always means: on stable storage.

mod boot;
mod folder;
mod forgetting;
mod groups;
mod opening;
mod scan;
mod soon;

#[cfg(feature = "postgres")]
pub(super) use boot::boot_id;
pub use forgetting::{Erased, Whom};
pub use opening::hold;

use super::cache::{Cache, Kind};
use super::documents::CHANNELS;
use super::{Allowed, BadRecord, Loading, Save, Store, StoreError, Stored, record};
use crate::ipc::files::{Access, Dir, NotStored, ReadError};
use crate::sabotage::on;
use askd_core::{Ask, AskId, Group, Time};
use boot::Boot;
use folder::Folder;
use parking_lot::{Mutex, RwLock};
use soon::{Unflushed, Unsynced};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PENDING: &str = "pending_questions";
const SETTLED: &str = "settled";
const REJECTED: &str = "rejected";
/// The newest format of the files of channels.
pub const CHANNELS_FORMAT: u32 = 1;
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

/// The most folders of each kind that are held open.
const OPEN_FOLDERS: usize = 128;

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
    promised: Dir,
    /// Folders of groups that were used lately, of each kind.
    folders: [Mutex<HashMap<Group, Arc<Folder>>>; 2],
    unsynced: Unsynced,
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
    fn folder(&self, kind: Kind, group: &Group) -> io::Result<Arc<Folder>> {
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
        let folder = Arc::new(Folder::from(folder));
        let mut known = known.lock();
        if known.len() >= OPEN_FOLDERS {
            known.clear();
        }
        known.insert(group.clone(), Arc::clone(&folder));
        Ok(folder)
    }

    /// Where the record of an ask is, if there is one.
    fn kind(&self, group: &Group, id: AskId) -> io::Result<Option<Kind>> {
        let cached = self.cache.lock().get(id);
        if let Some((_, kind)) = cached {
            return Ok(Some(kind));
        }
        for kind in [Kind::Pending, Kind::Settled] {
            if self.folder(kind, group)?.stat(&file_name(id))?.is_some() {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// `Ok(false)`: it waits in memory, which says nothing about the disk.
    fn write(&self, ask: &Arc<Ask>, save: Save) -> Result<bool, NotStored> {
        let writable = self.writable.read();
        if !*writable {
            return Err(io::Error::other("askd has stopped").into());
        }
        if save == Save::Later && self.leave_to_the_flush(ask) {
            return Ok(false);
        }
        let bytes = record::write(ask, &self.boot.id).map_err(io::Error::from)?;
        // A new ask has no record yet.
        let kind = match ask.outcome() {
            Some(_) => self.kind(&ask.group, ask.id)?.unwrap_or(Kind::Pending),
            None => Kind::Pending,
        };
        let (id, group) = (ask.id, &ask.group);
        if save == Save::Now || !self.replace_soon(kind, group, id, &bytes)? {
            let folder = self.folder(kind, group)?;
            let (temporary, name) = (format!(".tmp-{id}"), file_name(id));
            folder.stage(&temporary, &bytes, Access::PRIVATE)?;
            self.unsynced.save(id, || folder.put_in_place(&temporary, &name))?;
            if !on("nofoldersync") {
                folder.sync_together().map_err(NotStored::InDoubt)?;
            }
            self.is_synced(&mut self.unsynced.lock(id), id);
        }
        if on("noseen") {
            // What is at hand would know what the record forgets.
            self.cache.lock().remove(id);
        } else {
            self.cache.lock().put(Arc::clone(ask), kind, bytes.len());
        }
        Ok(true)
    }

    /// An ask as its record says, where that is, and how many bytes it has.
    fn read_record(&self, group: &Group, id: AskId) -> Result<Option<(Ask, Kind, usize)>, StoreError> {
        for kind in [Kind::Pending, Kind::Settled] {
            let read = self.folder(kind, group).map_err(ReadError::from);
            match read.and_then(|folder| folder.read_own(&file_name(id), MAX_RECORD_BYTES)) {
                Ok((bytes, _)) => {
                    let read = record::read(&bytes).map_err(|source| StoreError::Damaged { id, source })?;
                    return Ok(Some((read.ask, kind, bytes.len())));
                }
                Err(ReadError::Gone) => {}
                Err(error) => return Err(io_error(format!("cannot read ask {id}"))(io::Error::other(error))),
            }
        }
        Ok(None)
    }

    /// Removes the record of an ask from the store; it may get another name.
    fn take_out(&self, group: &Group, id: AskId, rename: Option<&str>) -> io::Result<Kind> {
        let kind = self.kind(group, id)?.unwrap_or(Kind::Pending);
        let (folder, name) = (self.folder(kind, group)?, file_name(id));
        let mut unsynced = self.unsynced.lock(id);
        match rename {
            Some(aside) => folder.rename(&name, aside)?,
            None => folder.remove(&name).map(drop)?,
        }
        self.unsynced.touch(kind, group);
        self.is_synced(&mut unsynced, id);
        self.cache.lock().remove(id);
        Ok(kind)
    }
}

impl Store for Files {
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
        let unchanged = self.unsynced.lock(id);
        if let Some(ask) = unchanged.get(&id).and_then(Unflushed::unwritten) {
            return Ok(Some(ask));
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
        let unchanged = self.unsynced.lock(id);
        match unchanged.get(&id).and_then(Unflushed::unwritten) {
            Some(ask) => Ok(Some(ask)),
            None => Ok(self.read_record(group, id)?.map(|(ask, ..)| Arc::new(ask))),
        }
    }

    fn find(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        self.look_for(id)
    }

    fn retire(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        let rename = || {
            if self.kind(group, id)? != Some(Kind::Pending) {
                return Ok(());
            }
            // After a kill nobody looks again at what is filed, so the file says first what has waited in memory.
            self.flush_ask(id, &format!(".tmp-{id}"))?;
            let (pending, settled) = (self.folder(Kind::Pending, group)?, self.folder(Kind::Settled, group)?);
            pending.rename_to(&file_name(id), &settled)?;
            self.cache.lock().moved(id, Kind::Settled);
            self.unsynced.touch(Kind::Settled, group);
            self.unsynced.touch(Kind::Pending, group);
            Ok(())
        };
        rename().map_err(io_error(format!("cannot keep the outcome of ask {id}")))
    }

    fn set_aside(&self, group: &Group, id: AskId) -> Result<String, StoreError> {
        let aside = format!("{}.set-aside", file_name(id));
        let rename = || {
            let kind = self.take_out(group, id, Some(&aside))?;
            self.folder(kind, group)?.sync()?;
            Ok(self.path.join(kind.name()).join(group.as_str()).join(&aside).display().to_string())
        };
        rename().map_err(io_error(format!("cannot set ask {id} aside")))
    }

    fn forget(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        self.take_out(group, id, None).map(drop).map_err(io_error(format!("cannot drop ask {id}")))
    }

    fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.flush_all().map_err(io_error("cannot sync what was saved"));
        self.last_flush_failed.store(flushed.is_err(), Ordering::Relaxed);
        flushed
    }

    fn close(&self) -> Result<(), StoreError> {
        let mut writable = self.writable.write();
        self.flush()?;
        *writable = false;
        self.boot.end(&self.root).map_err(io_error("cannot note that everything is stored"))
    }

    fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let keep = || {
            let folder = self.root.sub(REJECTED)?.ensure(group.as_str(), Access::PRIVATE)?;
            folder.replace(".tmp-rejected", name, bytes, Access::PRIVATE)?;
            let mut kept = Vec::new();
            for name in folder.names()? {
                if let Some(stamp) = folder.stat(&name)? {
                    kept.push((stamp.modified(), name, stamp.bytes()));
                }
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
