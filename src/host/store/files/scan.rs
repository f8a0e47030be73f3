//! Reading every stored ask at the start. A damaged record is moved aside and stops nothing; a record of a newer askd
//! stops the start before any file is changed.

use super::record::{self, BadRecord, Read};
use super::{Files, MAX_RECORD_BYTES, PENDING, SETTLED, StoreError, file_name, io_error};
use crate::ipc::files::Dir;
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The stored asks.
#[derive(Debug, Default)]
pub struct Scan {
    /// Not finished.
    pub pending: Vec<Ask>,
    /// Kept outcomes.
    pub settled: Vec<Ask>,
    /// Those of both whose record may be older than what was done: the computer lost its power since.
    pub after_loss: HashSet<AskId>,
    /// Files that are no record. Those that could be read were renamed to end in `.corrupt`.
    pub corrupt: Vec<(String, BadRecord)>,
}

/// A file to be changed once the whole scan has met no newer record.
struct Change {
    folder: String,
    name: String,
    path: PathBuf,
    /// Why it is moved aside; without a reason it is litter of a write that was cut off, and is removed.
    damaged: Option<BadRecord>,
}

impl Files {
    /// Reads every ask, open and kept. A file that cannot be read, or that is not the store's, stays where it is.
    pub(super) fn read_all(&self, loading: &Loading) -> Result<Scan, StoreError> {
        let mut scan = Scan::default();
        loading.of.store(self.count(), Ordering::Relaxed);
        let mut changes = Vec::new();
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
                            changes.extend(found.read(self, &asks, &mut scan)?);
                            loading.done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Err(error) => {
                        scan.corrupt.push((path.display().to_string(), BadRecord::Unreadable(error.to_string())));
                    }
                }
            }
        }
        for Change { folder, name, path, damaged } in changes {
            let change = self.root.sub(&folder).and_then(|folder| match &damaged {
                None => folder.remove(&name).map(drop),
                Some(_) => folder.rename(&name, &format!("{name}.corrupt")).and_then(|()| folder.sync()),
            });
            change.map_err(io_error(format!("cannot remove {} or move it aside", path.display())))?;
            scan.corrupt.extend(damaged.map(|why| (path.display().to_string(), why)));
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
}

/// A file that a scan finds.
struct Found<'a> {
    kind: &'static str,
    group: &'a str,
    path: PathBuf,
    name: String,
}

impl Found<'_> {
    /// Reads it, and says what has to be changed later.
    fn read(self, store: &Files, asks: &Dir, scan: &mut Scan) -> Result<Option<Change>, StoreError> {
        let damaged = if self.name.starts_with(".tmp-") {
            None
        } else if !is_json_file(&self.name) {
            return Ok(None);
        } else {
            let bytes = match asks.read_own(&self.name, MAX_RECORD_BYTES) {
                Ok((bytes, _)) => bytes,
                Err(error) => {
                    scan.corrupt.push((self.path.display().to_string(), BadRecord::Unreadable(error.to_string())));
                    return Ok(None);
                }
            };
            match record::read(&bytes) {
                Ok(Read { ask, boot }) if self.name == file_name(ask.id) && ask.group.as_str() == self.group => {
                    if !store.boot.vouches_for(boot.as_deref()) {
                        scan.after_loss.insert(ask.id);
                    }
                    if self.kind == SETTLED { &mut scan.settled } else { &mut scan.pending }.push(ask);
                    return Ok(None);
                }
                Ok(_) => Some(BadRecord::Misnamed),
                Err(source @ BadRecord::Newer { .. }) => {
                    return Err(StoreError::Newer { file: self.path.display().to_string(), source });
                }
                Err(why) => Some(why),
            }
        };
        let folder = format!("{}/{}", self.kind, self.group);
        Ok(Some(Change { folder, name: self.name, path: self.path, damaged }))
    }
}
