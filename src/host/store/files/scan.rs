//! Reading every stored ask at the start, on two threads. Each ask is handed over and not kept. A damaged record is moved aside and stops nothing; a record of a newer askd
//! stops the start before any file is changed.

use super::record::{self, BadRecord, Read};
use super::{Files, MAX_RECORD_BYTES, PENDING, SETTLED, StoreError, file_name, io_error};
use crate::host::store::Stored;
use crate::ipc::files::Dir;
use crate::ipc::is_json_file;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::dispatcher;

/// How many files a thread takes at a time.
const SOME: usize = 64;

/// How far a start is with reading the stored asks.
#[derive(Debug, Default)]
pub struct Loading {
    done: AtomicUsize,
    of: AtomicUsize,
}

impl Loading {
    /// How many files were read, and of how many; 0 of 0 before it begins.
    pub fn so_far(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }
}

/// A file to be changed once the whole scan has met no newer record.
struct Change {
    folder: String,
    name: String,
    path: PathBuf,
    /// Why it is moved aside; without a reason it is litter of a write that was cut off, and is removed.
    damaged: Option<BadRecord>,
}

/// The files that are left to read, the open asks first. Threads share it.
struct Left<'a> {
    files: &'a Files,
    folders: std::vec::IntoIter<(&'static str, String)>,
    /// The folder that is being read, and its names.
    current: Option<(Arc<Folder>, std::vec::IntoIter<String>)>,
}

/// The asks of one group, open or kept.
struct Folder {
    kind: &'static str,
    group: String,
    path: PathBuf,
    asks: Dir,
}

/// What a scan came upon beside asks.
#[derive(Default)]
struct Odd {
    changes: Vec<Change>,
    corrupt: Vec<(String, BadRecord)>,
}

impl Left<'_> {
    /// Some files of one folder.
    fn next(&mut self, odd: &Mutex<Odd>) -> Option<(Arc<Folder>, Vec<String>)> {
        loop {
            if let Some((folder, names)) = &mut self.current {
                let some: Vec<String> = names.take(SOME).collect();
                if !some.is_empty() {
                    return Some((Arc::clone(folder), some));
                }
            }
            let (kind, group) = self.folders.next()?;
            let path = self.files.path.join(kind).join(&group);
            let asks = self.files.root.sub(kind).and_then(|kind| kind.sub(&group));
            // A rename from before a crash is synced before anything acts on it.
            match asks.and_then(|asks| asks.sync().and_then(|()| Ok((asks.names()?, asks)))) {
                Ok((names, asks)) => {
                    self.current = Some((Arc::new(Folder { kind, group, path, asks }), names.into_iter()));
                }
                Err(error) => {
                    let unreadable = BadRecord::Unreadable(error.to_string());
                    odd.lock().corrupt.push((path.display().to_string(), unreadable));
                }
            }
        }
    }
}

impl Files {
    /// Reads every ask, open and kept. A file that cannot be read, or that is not the store's, stays where it is.
    pub(super) fn read_all(
        &self,
        loading: &Loading,
        each: &(dyn Fn(Stored) + Sync),
    ) -> Result<Vec<(String, BadRecord)>, StoreError> {
        loading.of.store(self.count(), Ordering::Relaxed);
        let mut folders = Vec::new();
        for kind in [PENDING, SETTLED] {
            let groups = self.root.sub(kind).and_then(|folder| folder.names());
            let groups = groups.map_err(io_error(format!("cannot read {}", self.path.join(kind).display())))?;
            folders.extend(groups.into_iter().map(|group| (kind, group)));
        }
        let left = Mutex::new(Left { files: self, folders: folders.into_iter(), current: None });
        let (odd, failed) = (Mutex::new(Odd::default()), Mutex::new(None));
        let read = || {
            let next = || if failed.lock().is_some() { None } else { left.lock().next(&odd) };
            while let Some((folder, names)) = next() {
                for name in names {
                    match self.read_one(&folder, name, &odd) {
                        Ok(Some(stored)) => each(stored),
                        Ok(None) => {}
                        Err(error) => *failed.lock() = Some(error),
                    }
                    loading.done.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let log = dispatcher::get_default(Clone::clone);
        std::thread::scope(|threads| {
            threads.spawn(|| dispatcher::with_default(&log, read));
            read();
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let Odd { changes, mut corrupt } = odd.into_inner();
        for Change { folder, name, path, damaged } in changes {
            let change = self.root.sub(&folder).and_then(|folder| match &damaged {
                None => folder.remove(&name).map(drop),
                Some(_) => folder.rename(&name, &format!("{name}.corrupt")).and_then(|()| folder.sync()),
            });
            change.map_err(io_error(format!("cannot remove {} or move it aside", path.display())))?;
            corrupt.extend(damaged.map(|why| (path.display().to_string(), why)));
        }
        Ok(corrupt)
    }

    /// Reads a file, or notes what has to be changed later.
    fn read_one(&self, folder: &Folder, name: String, odd: &Mutex<Odd>) -> Result<Option<Stored>, StoreError> {
        let path = folder.path.join(&name);
        let damaged = if name.starts_with(".tmp-") {
            None
        } else if !is_json_file(&name) {
            return Ok(None);
        } else {
            let bytes = match folder.asks.read_own(&name, MAX_RECORD_BYTES) {
                Ok((bytes, _)) => bytes,
                Err(error) => {
                    let unreadable = BadRecord::Unreadable(error.to_string());
                    odd.lock().corrupt.push((path.display().to_string(), unreadable));
                    return Ok(None);
                }
            };
            match record::read(&bytes) {
                Ok(Read { ask, boot }) if name == file_name(ask.id) && ask.group.as_str() == folder.group => {
                    let after_loss = !self.boot.vouches_for(boot.as_deref());
                    return Ok(Some(Stored { ask, settled: folder.kind == SETTLED, after_loss }));
                }
                Ok(_) => Some(BadRecord::Misnamed),
                Err(source @ BadRecord::Newer { .. }) => {
                    return Err(StoreError::Newer { file: path.display().to_string(), source });
                }
                Err(why) => Some(why),
            }
        };
        let folder = format!("{}/{}", folder.kind, folder.group);
        odd.lock().changes.push(Change { folder, name, path, damaged });
        Ok(None)
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
}
