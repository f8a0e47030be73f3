//! Open asks and kept outcomes, durably. `Ok` always means: on stable storage.
//!
//! Files today, below `state/`; no path of one leaves this room, and no policy comes in: what an
//! ask is to become is decided elsewhere. One writer at a time for each ask (the broker's lanes);
//! different asks are written side by side. Every call blocks on the disk.

mod after;
mod blocks;
mod groups;
mod outcome;
mod person;
mod phase;
mod record;
mod widgets;

pub use groups::Allowed;

use crate::ipc::files::{Access, Dir, NotStored, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId, Group};
use parking_lot::Mutex;
use record::BadRecord;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PENDING: &str = "pending_questions";
const SETTLED: &str = "settled";
const REJECTED: &str = "rejected";
/// The most rejected files kept for one group, and their bytes in all.
const REJECTED_FILES: usize = 100;
const REJECTED_BYTES: u64 = 1024 * 1024;
/// How many bytes a probe writes. On a disk that is full but for one block, less would still fit while records do not.
const PROBE_BYTES: usize = 64 * 1024;
/// No ask at its limits comes near this.
const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon has it.
    #[error("another askd holds {0}; stop it first, or use another data_dir")]
    Held(PathBuf),
    /// Something in it is from a newer askd.
    #[error("{file}: {why}. Nothing was changed; start that version again, or move the file away")]
    Newer {
        /// Which file.
        file: PathBuf,
        /// Which format.
        why: BadRecord,
    },
    /// The file of an ask is not one.
    #[error("the record of {id} is damaged: {why}")]
    Damaged {
        /// Whose.
        id: AskId,
        /// How.
        why: BadRecord,
    },
    /// The disk failed after the write: the change may or may not be there after a loss of power.
    #[error("{what}: {error} (it is written, and not known to be on stable storage)")]
    InDoubt {
        /// What was tried.
        what: String,
        /// What came of it.
        error: io::Error,
    },
    /// The disk failed, and nothing was changed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What came of it.
        error: io::Error,
    },
}

impl StoreError {
    /// The same error when another part of the same change is stored already.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Io { what, error } => Self::InDoubt { what, error },
            other => other,
        }
    }
}

fn not_stored(what: impl Into<String>) -> impl FnOnce(NotStored) -> StoreError {
    let what = what.into();
    move |error| match error {
        NotStored::Unchanged(error) => StoreError::Io { what, error },
        NotStored::InDoubt(error) => StoreError::InDoubt { what, error },
    }
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    let what = what.into();
    move |error| StoreError::Io { what, error }
}

/// Open asks and kept outcomes.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    root: Dir,
    /// Whoever changes what is kept of a group.
    groups: Mutex<()>,
    last_save_failed: AtomicBool,
    /// Held as long as the store is.
    _lock: File,
}

/// How far a start is with reading the stored asks.
#[derive(Debug, Default)]
pub struct Loading {
    done: AtomicUsize,
    of: AtomicUsize,
}

impl Loading {
    /// How many files were read, and of how many; 0 of 0 before it begins.
    #[must_use]
    pub fn so_far(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }
}

/// What a start finds.
#[derive(Debug, Default)]
pub struct Scan {
    /// Not finished.
    pub pending: Vec<Ask>,
    /// Kept outcomes.
    pub settled: Vec<Ask>,
    /// What is not an ask. Damaged records were renamed to end in `.corrupt`.
    pub corrupt: Vec<(PathBuf, BadRecord)>,
}

/// Says that there is no data folder, for whom, and how to fix it.
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
    /// Opens `state/`, made if need be; only one process can have it.
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
        Ok(Self {
            path: path.to_owned(),
            root,
            groups: Mutex::default(),
            last_save_failed: AtomicBool::new(false),
            _lock: lock,
        })
    }

    /// Where it is: for other rooms' own files beside the asks.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the state folder can be written: creates, syncs and removes a file of 64 KiB.
    pub fn probe(&self) -> Result<(), StoreError> {
        let name = format!(".tmp-probe-{}", crate::random::unique());
        let write = self.root.create(&name, &vec![b' '; PROBE_BYTES], Access::PRIVATE);
        let write = write.and_then(|()| self.root.remove(&name).map(drop));
        write.map_err(io_error(format!("cannot write in {}", self.path.display())))
    }

    /// Whether the last save of an ask failed or is in doubt.
    #[must_use]
    pub fn last_save_failed(&self) -> bool {
        self.last_save_failed.load(Ordering::Relaxed)
    }

    fn folder(&self, kind: &str, group: &Group) -> io::Result<Dir> {
        let kind = self.root.sub(kind)?;
        kind.ensure(group.as_str(), Access::PRIVATE)
    }

    /// Saves an ask, new or changed, where it lies: a finished one may still change.
    pub fn save(&self, ask: &Ask) -> Result<(), StoreError> {
        let write = || {
            let bytes = record::write(ask).map_err(io::Error::from)?;
            let kept = if ask.outcome().is_some() { Some(self.folder(SETTLED, &ask.group)?) } else { None };
            let folder = match kept {
                Some(kept) if kept.look(&file_name(ask.id))?.is_some() => kept,
                _ => self.folder(PENDING, &ask.group)?,
            };
            folder.store(&format!(".tmp-{}", ask.id), &file_name(ask.id), &bytes, Access::PRIVATE)
        };
        let saved = write().map_err(not_stored(format!("cannot store ask {}", ask.id)));
        self.last_save_failed.store(saved.is_err(), Ordering::Relaxed);
        saved
    }

    /// Reads an ask, open or kept; `None` if there is none.
    pub fn load(&self, group: &Group, id: AskId) -> Result<Option<Ask>, StoreError> {
        for kind in [PENDING, SETTLED] {
            let read = self.root.sub(kind).and_then(|kind| kind.sub(group.as_str())).map_err(ReadError::from);
            match read.and_then(|folder| folder.read_own(&file_name(id), MAX_RECORD_BYTES)) {
                Ok((bytes, _)) => {
                    return record::read(&bytes).map(Some).map_err(|why| StoreError::Damaged { id, why });
                }
                Err(ReadError::Gone) => {}
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(format!("cannot read ask {id}"))(io::Error::other(error))),
            }
        }
        Ok(None)
    }

    /// Keeps a finished ask as an outcome only.
    pub fn retire(&self, group: &Group, id: AskId) -> Result<(), StoreError> {
        let name = file_name(id);
        let rename = || {
            let pending = self.folder(PENDING, group)?;
            if pending.look(&name)?.is_none() {
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
            let kept = self.folder(SETTLED, group)?.look(&name)?.is_some();
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

    /// Reads everything: for the start. What is damaged is moved aside, what cannot be read or is
    /// somebody else's is left where it is, and neither stops the rest; what is from a newer version
    /// stops the start before anything is touched.
    pub fn scan(&self, loading: &Loading) -> Result<Scan, StoreError> {
        let mut scan = Scan::default();
        loading.of.store(self.count(), Ordering::Relaxed);
        let mut damaged = Vec::new();
        for kind in [PENDING, SETTLED] {
            let at = || io_error(format!("cannot read {}", self.path.join(kind).display()));
            let folder = self.root.sub(kind).map_err(at())?;
            for group in folder.names().map_err(at())? {
                let path = self.path.join(kind).join(&group);
                // A rename from before a crash is synced before anything acts on it.
                match folder.sub(&group).and_then(|asks| asks.sync().and_then(|()| Ok((asks.names()?, asks)))) {
                    Ok((names, asks)) => {
                        for name in names {
                            let found = Found { kind, group: &group, path: path.join(&name), name };
                            found.take_up(&asks, &mut scan, &mut damaged)?;
                            loading.done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Err(error) => scan.corrupt.push((path, BadRecord::Unreadable(error.to_string()))),
                }
            }
        }
        for (folder, name, path, why) in damaged {
            let moved = self.root.sub(&folder).and_then(|folder| {
                folder.rename(&name, &format!("{name}.corrupt"))?;
                folder.sync()
            });
            moved.map_err(io_error(format!("cannot move {} aside", path.display())))?;
            scan.corrupt.push((path, why));
        }
        Ok(scan)
    }

    /// How many files a scan will look at, as far as that is known.
    fn count(&self) -> usize {
        let folders = |kind: &Dir| {
            kind.names().unwrap_or_default().into_iter().filter_map(|group| kind.sub(&group).ok()).collect()
        };
        let kinds = [PENDING, SETTLED].into_iter().filter_map(|kind| self.root.sub(kind).ok());
        let folders = kinds.flat_map(|kind| -> Vec<Dir> { folders(&kind) });
        folders.filter_map(|folder| folder.names().ok()).map(|names| names.len()).sum()
    }

    /// Keeps a copy of a request that could not be asked, within bounds: the oldest go first.
    pub fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let keep = || {
            let folder = self.folder(REJECTED, group)?;
            folder.replace(".tmp-rejected", name, bytes, Access::PRIVATE)?;
            let mut kept = Vec::new();
            for name in folder.names()? {
                if let Some(stamp) = folder.look(&name)? {
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

/// A file that a start finds.
struct Found<'a> {
    kind: &'static str,
    group: &'a str,
    path: PathBuf,
    name: String,
}

impl Found<'_> {
    fn take_up(
        self,
        asks: &Dir,
        scan: &mut Scan,
        damaged: &mut Vec<(String, String, PathBuf, BadRecord)>,
    ) -> Result<(), StoreError> {
        if self.name.starts_with(".tmp-") {
            asks.remove(&self.name).map_err(io_error(format!("cannot remove {}", self.path.display())))?;
        }
        if !is_json_file(&self.name) {
            return Ok(());
        }
        let bytes = match asks.read_own(&self.name, MAX_RECORD_BYTES) {
            Ok((bytes, _)) => bytes,
            Err(error) => {
                scan.corrupt.push((self.path, BadRecord::Unreadable(error.to_string())));
                return Ok(());
            }
        };
        let why = match record::read(&bytes) {
            Ok(ask) if self.name == file_name(ask.id) && ask.group.as_str() == self.group => {
                if self.kind == SETTLED { &mut scan.settled } else { &mut scan.pending }.push(ask);
                return Ok(());
            }
            Ok(_) => BadRecord::Field("the file's name"),
            Err(why @ BadRecord::Newer(_)) => return Err(StoreError::Newer { file: self.path, why }),
            Err(why) => why,
        };
        damaged.push((format!("{}/{}", self.kind, self.group), self.name, self.path, why));
        Ok(())
    }
}

fn file_name(id: AskId) -> String {
    format!("{id}.json")
}

#[cfg(test)]
mod tests;
