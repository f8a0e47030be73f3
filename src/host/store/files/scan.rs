//! Reading stored asks: one of them, or all at the start, on two threads. A start hands each ask over and keeps none. A damaged record is moved
//! aside and stops nothing; a record of a newer askd stops the start. Meanwhile asks are read and saved as ever.

use super::record::{self, BadRecord, Record};
use super::{Files, Kind, Loading, MAX_RECORD_BYTES, PENDING, SETTLED, StoreError, file_name, io_error};
use crate::host::store::Stored;
use crate::ipc::files::{Dir, Listing, MORE_FILES, ReadError, is_of_the_process};
use crate::ipc::is_json_file;
use crate::sabotage::gate;
use askd_core::{Ask, AskId, Group};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::dispatcher;

/// How many files a thread takes at a time.
const SOME: usize = 64;

/// A file to be changed once the whole scan has met no newer record.
struct Change {
    folder: String,
    name: String,
    path: PathBuf,
    /// Why it is moved aside; without a reason it is litter of a write that was cut off, and is removed.
    damaged: Option<BadRecord>,
}

/// The files that are left to read. Threads share it.
struct Left<'a> {
    files: &'a Files,
    odd: &'a Odd<'a>,
    /// Folders that were not begun: the open asks first, and those of groups that work waits for before all others.
    folders: VecDeque<ToRead>,
    /// Folders that were begun: at most one, and another one that work waits for.
    begun: Vec<(Arc<Folder<'a>>, Listing)>,
}

/// A folder that was not begun.
struct ToRead {
    kind: &'static str,
    group: String,
    /// Work waits for it.
    first: bool,
}

/// The asks of one group, open or kept. When the last file of it was handed over, it is dropped.
struct Folder<'a> {
    kind: &'static str,
    group: String,
    first: bool,
    path: PathBuf,
    asks: Dir,
    odd: &'a Odd<'a>,
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        // Of a scan that was ended, not everything was handed over.
        if self.odd.failed.lock().is_none() && !std::thread::panicking() {
            self.odd.loading.has_read(&self.group);
        }
    }
}

/// What a scan comes upon beside asks.
struct Odd<'a> {
    loading: &'a Loading,
    /// They were handed over before.
    newer: HashSet<AskId>,
    changes: Mutex<Vec<Change>>,
    corrupt: Mutex<Vec<(String, BadRecord)>>,
    failed: Mutex<Option<StoreError>>,
}

impl Odd<'_> {
    /// Whatever is wrong with the file or folder itself stops nothing; what keeps this process from it may keep open questions from people.
    fn unreadable(&self, path: &std::path::Path, error: ReadError) {
        let place = path.display().to_string();
        match error {
            ReadError::Io(source) if keeps_out(&source) => {
                self.failed.lock().get_or_insert(StoreError::KeptOut { place, fix: way_in(&source), source });
            }
            error => self.corrupt.lock().push((place, BadRecord::Unreadable(error.to_string()))),
        }
    }
}

impl<'a> Left<'a> {
    /// Some files of one folder.
    fn next(&mut self) -> Option<(Arc<Folder<'a>>, Vec<String>)> {
        loop {
            let wanted = self.odd.loading.wanted();
            if !wanted.is_empty() {
                let (first, then): (Vec<_>, Vec<_>) =
                    self.folders.drain(..).partition(|folder| folder.first || wanted.contains(&folder.group));
                let first = first.into_iter().map(|folder| ToRead { first: true, ..folder });
                self.folders = first.chain(then).collect();
            }
            let reads_first = self.begun.last().is_some_and(|(folder, _)| folder.first);
            if self.begun.is_empty() || !reads_first && self.folders.front().is_some_and(|folder| folder.first) {
                let folder = self.folders.pop_front()?;
                self.begin(folder);
            }
            let Some((folder, names)) = self.begun.last_mut() else { continue };
            let mut some = Vec::new();
            let part = names.part(SOME, |name| {
                // All names of ours are plain.
                some.extend(name.is_ascii().then(|| name.to_owned()));
                Ok(())
            });
            let folder = Arc::clone(folder);
            let is_over = part.unwrap_or_else(|error| {
                self.odd.unreadable(&folder.path, error.into());
                true
            });
            if is_over {
                self.begun.pop();
            }
            if !some.is_empty() {
                return Some((folder, some));
            }
        }
    }

    fn begin(&mut self, ToRead { kind, group, first }: ToRead) {
        let path = self.files.path.join(kind).join(&group);
        let asks = self.files.root.sub(kind).and_then(|kind| kind.sub(&group));
        // A rename from before a crash is synced before anything acts on it.
        let asks = asks.and_then(|asks| asks.sync().and_then(|()| Ok((asks.list()?, asks))));
        match asks {
            Ok((names, asks)) => {
                let folder = Folder { kind, group, first, path, asks, odd: self.odd };
                self.begun.push((Arc::new(folder), names));
            }
            Err(error) => {
                self.odd.unreadable(&path, error.into());
                self.odd.loading.has_read(&group);
            }
        }
    }
}

/// Whether the file or folder may be whole, and this process may read it once somebody has seen to that.
fn keeps_out(error: &io::Error) -> bool {
    is_of_the_process(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// How somebody sees to that.
fn way_in(error: &io::Error) -> String {
    if is_of_the_process(error) {
        return MORE_FILES.to_owned();
    }
    let me = rustix::process::geteuid().as_raw();
    format!("give the state folder back to the user that askd runs as: chown -R {me}, and chmod -R u+rwX")
}

fn can_be_listed(folder: &Dir) -> bool {
    folder.list().and_then(|mut list| list.part(1, |_| Ok(()))).is_ok()
}

impl Files {
    /// An ask as its record says, where that is, and how many bytes it has.
    pub(super) fn read_record(&self, group: &Group, id: AskId) -> Result<Option<(Ask, Kind, usize)>, StoreError> {
        for kind in [Kind::Pending, Kind::Settled] {
            let place = || self.path.join(kind.name()).join(group.as_str()).join(file_name(id)).display().to_string();
            let damaged = |source| StoreError::Damaged { id, place: place(), source };
            let unread = || io_error(format!("cannot read ask {id}"));
            let folder = self.folder(kind, group).map_err(unread())?;
            match folder.read_own(&file_name(id), MAX_RECORD_BYTES) {
                Ok((bytes, _)) => {
                    let read = record::read(&bytes).map_err(damaged)?;
                    return Ok(Some((read.ask, kind, bytes.len())));
                }
                Err(ReadError::Gone) => {}
                // A file that cannot be read in a folder that can be is as good as a damaged one, and hides no others.
                Err(ReadError::Io(error)) if is_of_the_process(&error) || !can_be_listed(&folder) => {
                    return Err(unread()(error));
                }
                Err(error) => return Err(damaged(BadRecord::Unreadable(error.to_string()))),
            }
        }
        Ok(None)
    }

    /// Reads every ask, open and kept. A file that cannot be read, or that is not the store's, stays where it is.
    pub(super) fn read_all(
        &self,
        loading: &Loading,
        each: &(dyn Fn(Stored) + Sync),
    ) -> Result<Vec<(String, BadRecord)>, StoreError> {
        // What was found in the journal is newer than its files.
        let newer: Vec<Stored> = self.adopted.iter().filter_map(|id| self.unfiled.stored(*id)).collect();
        let newer_ids = newer.iter().map(|stored| stored.ask.id).collect();
        newer.into_iter().for_each(each);
        let mut folders = Vec::new();
        for kind in [PENDING, SETTLED] {
            let at = || io_error(format!("cannot read {}", self.path.join(kind).display()));
            let groups = self.root.sub(kind).and_then(|asks| asks.names()).map_err(at())?;
            folders.extend(groups.into_iter().map(|group| ToRead { kind, group, first: false }));
        }
        loading.begin(self.count(&folders), folders.iter().map(|folder| folder.group.as_str()));
        let odd = Odd {
            loading,
            newer: newer_ids,
            changes: Mutex::default(),
            corrupt: Mutex::default(),
            failed: Mutex::default(),
        };
        let left = Mutex::new(Left { files: self, odd: &odd, folders: folders.into(), begun: Vec::new() });
        let read = || {
            let next = || if odd.failed.lock().is_some() { None } else { left.lock().next() };
            while let Some((folder, names)) = next() {
                gate(&format!("{}/{}", folder.kind, folder.group));
                for name in names {
                    match self.read_one(&folder, name) {
                        Ok(Some(stored)) => each(stored),
                        Ok(None) => {}
                        Err(error) => *odd.failed.lock() = Some(error),
                    }
                    loading.count();
                }
            }
        };
        let log = dispatcher::get_default(Clone::clone);
        std::thread::scope(|threads| {
            threads.spawn(|| dispatcher::with_default(&log, read));
            read();
        });
        drop(left);
        let Odd { changes, corrupt, failed, .. } = odd;
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let mut corrupt = corrupt.into_inner();
        for Change { folder, name, path, damaged } in changes.into_inner() {
            let change = self.root.sub(&folder).and_then(|folder| match &damaged {
                None => folder.remove(&name).map(drop),
                Some(_) => folder.rename(&name, &format!("{name}.corrupt")).and_then(|()| folder.sync()),
            });
            change.map_err(io_error(format!("cannot remove {} or move it aside", path.display())))?;
            corrupt.extend(damaged.map(|why| (path.display().to_string(), why)));
        }
        self.set_groups_aside().map_err(io_error("cannot move a damaged file of a group aside"))?;
        Ok(corrupt)
    }

    /// How many files are in these folders.
    fn count(&self, folders: &[ToRead]) -> usize {
        let of = |ToRead { kind, group, first: _ }: &ToRead| {
            self.root.sub(&format!("{kind}/{group}")).and_then(|folder| count(&folder)).unwrap_or(0)
        };
        let (some, others) = folders.split_at(folders.len() / 2);
        std::thread::scope(|threads| {
            let some = threads.spawn(|| some.iter().map(of).sum::<usize>());
            others.iter().map(of).sum::<usize>() + some.join().unwrap_or(0)
        })
    }

    /// Reads a file, or notes what has to be changed later.
    fn read_one(&self, folder: &Folder<'_>, name: String) -> Result<Option<Stored>, StoreError> {
        let (path, id) = (|| folder.path.join(&name), id_of(&name));
        let damaged = if name.starts_with(".tmp-") {
            let stamp = folder.asks.stat(&name).ok().flatten();
            // A later one belongs to a save that is under way.
            if stamp.is_none_or(|stamp| stamp.modified >= self.began) {
                return Ok(None);
            }
            None
        } else if !is_json_file(&name) {
            return Ok(None);
        } else if let Some(id) = id.filter(|id| folder.odd.newer.contains(id)) {
            // A copy of the folder may have both, here too.
            if folder.kind != PENDING || self.unfiled.lies_in(id) != Some(Kind::Settled) {
                return Ok(None);
            }
            None
        } else if let Some(newer) = id.and_then(|id| self.unfiled.stored(id)) {
            return Ok(Some(newer));
        } else {
            let bytes = match folder.asks.read_own(&name, MAX_RECORD_BYTES) {
                Ok((bytes, _)) => bytes,
                // It was retired or forgotten meanwhile.
                Err(ReadError::Gone) => return Ok(None),
                Err(error) => {
                    folder.odd.unreadable(&path(), error);
                    return Ok(None);
                }
            };
            match record::read(&bytes) {
                Ok(read) if name == file_name(read.ask.id) && read.ask.group.as_str() == folder.group => {
                    let stored = self.stored(read, folder.kind);
                    if !self.is_outlived(&stored, &name) {
                        return Ok(Some(stored));
                    }
                    None
                }
                Ok(_) => Some(BadRecord::Misnamed),
                Err(source @ BadRecord::Newer { .. }) => {
                    return Err(StoreError::Newer { file: path().display().to_string(), source });
                }
                Err(why) => Some(why),
            }
        };
        let path = path();
        let change = Change { folder: format!("{}/{}", folder.kind, folder.group), name, path, damaged };
        folder.odd.changes.lock().push(change);
        Ok(None)
    }

    /// Whether the closed question is there, too: a copy of the folder that is made while askd runs may have both.
    fn is_outlived(&self, stored: &Stored, name: &str) -> bool {
        let settled = || self.root.sub(SETTLED)?.sub(stored.ask.group.as_str())?.stat(name);
        stored.after_loss && !stored.settled && settled().is_ok_and(|found| found.is_some())
    }

    fn stored(&self, Record { ask, boot, .. }: Record, kind: &str) -> Stored {
        let after_loss = !self.boot.vouches_for(boot.as_deref());
        Stored { ask, settled: kind == SETTLED, after_loss }
    }

    /// Looks for an ask in the folder of every group.
    pub(super) fn look_for(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        if let Some(unfiled) = self.unfiled.stored(id) {
            return Ok(Some(unfiled));
        }
        let look = || -> io::Result<Option<Stored>> {
            for kind in [PENDING, SETTLED] {
                let groups = self.root.sub(kind)?;
                for group in groups.names()? {
                    let asks = match groups.sub(&group) {
                        Ok(asks) => asks,
                        Err(error) if keeps_out(&error) => return Err(error),
                        Err(_) => continue,
                    };
                    match asks.read_own(&file_name(id), MAX_RECORD_BYTES) {
                        Ok((bytes, _)) => {
                            let read = record::read(&bytes).map_err(io::Error::other)?;
                            let is_its = read.ask.id == id && read.ask.group.as_str() == group;
                            return Ok(is_its.then(|| self.stored(read, kind)));
                        }
                        Err(ReadError::Gone) => {}
                        Err(error) => return Err(io::Error::other(error)),
                    }
                }
            }
            Ok(None)
        };
        look().map_err(io_error(format!("cannot look for ask {id}")))
    }
}

/// The ask whose file is called so.
fn id_of(name: &str) -> Option<AskId> {
    name.strip_suffix(".json").and_then(|id| id.parse().ok())
}

/// How many names are in a folder.
fn count(folder: &Dir) -> io::Result<usize> {
    let mut count = 0;
    folder.list()?.part(usize::MAX, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}
