//! Open asks and kept outcomes, durably. `Ok` always means: on stable storage.
//!
//! The store is a folder of files below `state/`. It decides nothing about an ask, and no path of a file leaves it. The
//! broker's lanes write one ask at a time and different asks side by side. Every call blocks on the disk.

mod groups;
mod record;
mod scan;
mod v1;

pub use groups::Allowed;
pub use scan::{Loading, Scan};

use crate::ipc::files::{Access, Dir, NotStored, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId, Group};
use parking_lot::Mutex;
use record::{BadRecord, Version};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const PENDING: &str = "pending_questions";
const SETTLED: &str = "settled";
const REJECTED: &str = "rejected";
/// Where channels keep what they have to remember, and the newest format of those files.
pub const CHANNELS: &str = "channels";
/// See [`CHANNELS`].
pub const CHANNELS_FORMAT: u32 = 1;
/// No file beside the asks comes near this, in bytes.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// The most rejected files kept for one group, and their bytes in all.
const REJECTED_FILES: usize = 100;
const REJECTED_BYTES: u64 = 1024 * 1024;
/// How many bytes a probe writes. A smaller file might still fit on a disk that has no room left for a record.
const PROBE_BYTES: usize = 64 * 1024;
/// The most bytes of a record that are read. An ask at its limits has far fewer.
const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon holds the folder.
    #[error("another askd holds {0}; stop it first, or use another data_dir")]
    Held(PathBuf),
    /// A newer askd wrote a file.
    #[error("{file}: {source}. Nothing was changed; start that version again, or move the file away")]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format and ours.
        source: BadRecord,
    },
    /// The file of an ask cannot be used.
    #[error("the record of {id} is damaged: {source}")]
    Damaged {
        /// The ask.
        id: AskId,
        /// What is wrong with the file.
        source: BadRecord,
    },
    /// The disk failed after the write: a loss of power may keep the change or undo it.
    #[error("{what}: {source} (it is written, and not known to be on stable storage)")]
    InDoubt {
        /// What was tried.
        what: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed, and nothing was changed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The disk's error.
        source: io::Error,
    },
}

impl StoreError {
    /// The same error after another part of the same change was stored.
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Io { what, source } => Self::InDoubt { what, source },
            other => other,
        }
    }
}

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

/// Open asks and kept outcomes.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    root: Dir,
    /// Held by the one call that changes the file of a group.
    groups: Mutex<()>,
    last_save_failed: AtomicBool,
    /// Held as long as the store is.
    _lock: File,
}

/// Says which user could not make the data folder, and how to fix it.
fn cannot_create(data_dir: &Path, error: &io::Error) -> String {
    let folder = data_dir.display();
    if error.kind() != io::ErrorKind::PermissionDenied {
        return format!("cannot create {folder}");
    }
    let uid = rustix::process::geteuid().as_raw();
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    let user = user.map_or_else(|| format!("user id {uid}"), |user| format!("user {user} ({uid})"));
    format!(
        "cannot create {folder} as {user}; make it with: sudo install -d -o {uid} {folder}, or leave data_dir out of the \
         settings to use ~/.local/state/askd"
    )
}

impl Store {
    /// Opens `state/`, and makes it if it is missing. Only one process can hold it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let at = |what: &str| io_error(format!("{what} {}", path.display()));
        let parent = path.parent().unwrap_or(path);
        std::fs::create_dir_all(parent).map_err(|error| io_error(cannot_create(parent, &error))(error))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("state");
        let parent = Dir::open(parent).map_err(at("cannot open the parent of"))?;
        let root = parent.ensure(name, Access::PRIVATE).map_err(at("cannot use"))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(at("cannot lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Held(path.to_owned())),
            Err(error) => return Err(at("cannot lock")(error.into())),
        }
        for name in [PENDING, SETTLED, REJECTED, groups::GROUPS] {
            root.ensure(name, Access::PRIVATE).map_err(at("cannot use"))?;
        }
        let store = Self {
            path: path.to_owned(),
            root,
            groups: Mutex::default(),
            last_save_failed: AtomicBool::new(false),
            _lock: lock,
        };
        store.refuse_newer(groups::GROUPS, groups::VERSION)?;
        store.refuse_newer(CHANNELS, CHANNELS_FORMAT)?;
        Ok(store)
    }

    /// Stops a start, before it changes anything, if a newer askd wrote one of these files beside the asks.
    fn refuse_newer(&self, folder: &str, known: u32) -> Result<(), StoreError> {
        let path = self.path.join(folder);
        let at = || io_error(format!("cannot read {}", path.display()));
        let folder = match self.root.sub(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder.map_err(at())?,
        };
        for name in folder.names().map_err(at())?.into_iter().filter(|name| is_json_file(name)) {
            // A file that cannot be read is its reader's to judge.
            let Ok((bytes, _)) = folder.read_own(&name, MAX_FILE_BYTES) else { continue };
            if let Err(source @ BadRecord::Newer { .. }) = Version::at_most(known, &bytes) {
                return Err(StoreError::Newer { file: path.join(name), source });
            }
        }
        Ok(())
    }

    /// Whether the state folder can be written: creates, syncs and removes a file of 64 KiB.
    pub fn probe(&self) -> Result<(), StoreError> {
        let name = format!(".tmp-probe-{}", crate::random::unique());
        let write = self.root.create(&name, &vec![b' '; PROBE_BYTES], Access::PRIVATE);
        let write = write.and_then(|()| self.root.remove(&name).map(drop));
        write.map_err(io_error(format!("cannot write in {}", self.path.display())))
    }

    /// Whether the last save of an ask failed or is in doubt.
    pub fn last_save_failed(&self) -> bool {
        self.last_save_failed.load(Ordering::Relaxed)
    }

    fn folder(&self, kind: &str, group: &Group) -> io::Result<Dir> {
        let kind = self.root.sub(kind)?;
        kind.ensure(group.as_str(), Access::PRIVATE)
    }

    /// Saves an ask, new or changed. An outcome that was retired is saved where it is: it may still change.
    pub fn save(&self, ask: &Ask) -> Result<(), StoreError> {
        let write = || {
            let bytes = record::write(ask).map_err(io::Error::from)?;
            let kept = if ask.outcome().is_some() { Some(self.folder(SETTLED, &ask.group)?) } else { None };
            let folder = match kept {
                Some(kept) if kept.stat(&file_name(ask.id))?.is_some() => kept,
                _ => self.folder(PENDING, &ask.group)?,
            };
            folder.store(&format!(".tmp-{}", ask.id), &file_name(ask.id), &bytes, Access::PRIVATE)
        };
        let saved = write().map_err(not_stored(format!("cannot store ask {}", ask.id)));
        self.last_save_failed.store(saved.is_err(), Ordering::Relaxed);
        saved
    }

    /// Reads an ask, open or settled; `None` if there is none.
    pub fn load(&self, group: &Group, id: AskId) -> Result<Option<Ask>, StoreError> {
        for kind in [PENDING, SETTLED] {
            let read = self.root.sub(kind).and_then(|kind| kind.sub(group.as_str())).map_err(ReadError::from);
            match read.and_then(|folder| folder.read_own(&file_name(id), MAX_RECORD_BYTES)) {
                Ok((bytes, _)) => {
                    return record::read(&bytes).map(Some).map_err(|source| StoreError::Damaged { id, source });
                }
                Err(ReadError::Gone) => {}
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(format!("cannot read ask {id}"))(io::Error::other(error))),
            }
        }
        Ok(None)
    }

    /// Moves a finished ask to the kept outcomes.
    pub fn retire(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        let name = file_name(id);
        let rename = || {
            let pending = self.folder(PENDING, group)?;
            if pending.stat(&name)?.is_none() {
                return Ok(());
            }
            pending.move_to(&name, &self.folder(SETTLED, group)?, &name)
        };
        rename().map_err(io_error(format!("cannot keep the outcome of ask {id}")))
    }

    /// Moves the record of an ask aside for a person to look at. Returns where it is now.
    pub fn set_aside(&self, group: &Group, id: AskId) -> Result<PathBuf, StoreError> {
        let name = file_name(id);
        let aside = format!("{name}.set-aside");
        let rename = || {
            let kept = self.folder(SETTLED, group)?.stat(&name)?.is_some();
            let kind = if kept { SETTLED } else { PENDING };
            let folder = self.folder(kind, group)?;
            folder.rename(&name, &aside)?;
            folder.sync()?;
            Ok(self.path.join(kind).join(group.as_str()).join(&aside))
        };
        rename().map_err(io_error(format!("cannot set ask {id} aside")))
    }

    /// Drops an outcome that was kept long enough.
    pub fn forget(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        let remove = || {
            for kind in [PENDING, SETTLED] {
                self.folder(kind, group)?.remove(&file_name(id))?;
            }
            Ok(())
        };
        remove().map_err(io_error(format!("cannot drop ask {id}")))
    }

    /// Keeps a copy of a request that could not be asked, and removes the oldest copies over the bounds.
    pub fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let keep = || {
            let folder = self.folder(REJECTED, group)?;
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
}

fn file_name(id: AskId) -> String {
    format!("{id}.json")
}

#[cfg(test)]
mod tests;
