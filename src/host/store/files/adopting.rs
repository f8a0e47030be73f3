//! What the last run left in the journal: a start takes it in, and finds out of which asks the files are newer.

use super::journal::{Entry, Place};
use super::record::{self, BadRecord, Record};
use super::{Files, JOURNAL, Kind, MAX_RECORD_BYTES, StoreError, file_name, io_error};
use crate::ipc::files::ReadError;
use askd_core::AskId;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// What the journal keeps of an ask that is not in the store any more.
#[derive(Serialize, Deserialize)]
struct Gone {
    id: AskId,
}

impl Files {
    /// Notes that an ask is not in the store any more, if the journal may have a record of it; where.
    pub(super) fn note_gone(&self, id: AskId) -> io::Result<Option<Place>> {
        if self.journal.is_empty() {
            return Ok(None);
        }
        self.append(None, &serde_json::to_vec(&Gone { id })?).map(Some)
    }

    /// Takes in what the last run left in the journal: a flush files it. Comes before any record is read.
    pub(super) fn adopt(&mut self, entries: Vec<Entry>) -> Result<(), StoreError> {
        for entry in entries {
            let at = format!("entry {} of {}", entry.id, self.path.join(JOURNAL).display());
            let Some(kind) = entry.kind else {
                let gone: Gone = serde_json::from_slice(&entry.bytes).map_err(|error| io_error(at)(error.into()))?;
                self.unfiled.lock(gone.id).remove(&gone.id);
                continue;
            };
            match record::read(&entry.bytes) {
                Ok(Record { ask, boot, .. }) => {
                    let boot = boot.filter(|boot| !boot.is_empty()).unwrap_or(entry.boot);
                    let in_doubt = self.boot.doubts(Some(boot));
                    self.unfiled.note_left(&Arc::new(ask), kind, entry.bytes.len(), entry.id, in_doubt);
                }
                Err(source @ BadRecord::Newer { .. }) => return Err(StoreError::Newer { file: at, source }),
                // Its checksum is right, so askd wrote it like that.
                Err(error) => {
                    tracing::error!(at, %error, "askd cannot read what it noted of an ask, and goes by its file");
                }
            }
        }
        for id in self.unfiled.all() {
            self.compare_with_file(id);
        }
        self.adopted = self.unfiled.all().into_iter().collect();
        Ok(())
    }

    /// Finds out whether the file of an ask is newer than its last entry, and where it is. A file that cannot be read counts
    /// for less than the entry.
    fn compare_with_file(&self, id: AskId) {
        let mut unfiled = self.unfiled.lock(id);
        let Some(it) = unfiled.get_mut(&id) else { return };
        for kind in [Kind::Settled, Kind::Pending] {
            // A folder that is not there is not made: a start needs no room on the disk.
            let folder = match self.root.sub(&format!("{}/{}", kind.name(), it.ask.group)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                folder => folder.map_err(ReadError::from),
            };
            let filed = match folder.and_then(|folder| folder.read_own(&file_name(id), MAX_RECORD_BYTES)) {
                Ok((bytes, _)) => record::read(&bytes).ok(),
                Err(ReadError::Gone) => continue,
                Err(error) => {
                    let file = self.path.join(kind.name()).join(it.ask.group.as_str()).join(file_name(id));
                    tracing::error!(file = %file.display(), %error, "the record of an ask cannot be read; askd goes by what it noted of the ask");
                    None
                }
            };
            let filed = filed.and_then(|Record { ask, boot, entry, .. }| Some((ask, entry?, self.boot.doubts(boot))));
            it.is_filed(kind, filed);
            return;
        }
    }
}
