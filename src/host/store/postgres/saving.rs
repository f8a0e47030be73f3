//! A save, until it is certain what became of it: what is stored again after a crash of the server, and what is looked up after the
//! reply to a commit was lost.

use super::asks::{Version, Write};
use super::database::{Durable, Failed};
use super::{InPostgres, failed};
use crate::host::store::{Save, StoreError, record};
use crate::random;
use askd_core::{Ask, Effect};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// A save of which nobody knows what became.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    pub(super) ask: Arc<Ask>,
    write: Write,
    operation: Uuid,
}

/// A save that did not wait for the disk.
#[derive(Debug, Clone)]
pub(super) struct Unflushed {
    pub(super) ask: Arc<Ask>,
    pub(super) version: Version,
    /// What the row may be if the server has lost it: what it was stored over since the last flush.
    pub(super) over: Vec<Uuid>,
}

/// The version that a write makes; its revision may not be known yet.
fn version(write: &Write, revision: Option<i64>, operation: Uuid) -> Version {
    let expected = match write {
        Write::New(_) | Write::Any => 1,
        Write::Over(version) => version.revision + 1,
        Write::Again(revision, _) => *revision,
    };
    Version { revision: revision.unwrap_or(expected), operation }
}

impl InPostgres {
    /// Writes a row, and notes what this daemon then knows of it; `false`: the row is another than `write` says.
    pub(super) fn write_tracked(
        &self,
        ask: &Arc<Ask>,
        write: &Write,
        owed: &[Effect],
        save: Save,
    ) -> Result<bool, StoreError> {
        let what = || format!("cannot store ask {}", ask.id);
        let doubt = self.doubts.lock().get(&ask.id).filter(|doubt| Arc::ptr_eq(&doubt.ask, ask)).cloned();
        let (mut write, operation) = match doubt {
            Some(Doubt { write, operation, .. }) => {
                if self.is_stored(ask.id, operation).map_err(failed(what()))? == Some(true) {
                    self.wrote(ask, version(&write, None, operation), record::USUAL_BYTES);
                    return Ok(true);
                }
                (write, operation)
            }
            None => (write.clone(), Uuid::parse_str(&random::unique()).unwrap_or_default()),
        };
        let durable = if save == Save::Now { Durable::Yes } else { Durable::No };
        let before = self.unflushed.lock().get(&ask.id).cloned();
        if durable == Durable::No {
            // Before it is written: a flush that finds another era has to know of it.
            let over = match (&before, &write) {
                (Some(before), _) => [&before.over[..], &[before.version.operation]].concat(),
                (None, Write::Over(version)) => vec![version.operation],
                (None, _) => Vec::new(),
            };
            let unflushed = Unflushed { ask: Arc::clone(ask), version: version(&write, None, operation), over };
            self.unflushed.lock().insert(ask.id, unflushed);
        }
        let mut written = self.write_or_look(ask, &write, operation, owed, durable);
        if let (Ok(None), Some(lost), Write::Over(_)) = (&written, &before, &write)
            && self.again(lost).unwrap_or(false)
        {
            // The server had lost the one before; now this one can follow.
            write = Write::Over(lost.version);
            written = self.write_or_look(ask, &write, operation, owed, durable);
        }
        if let Err(Failed::Unknown(_)) = &written {
            let doubt = Doubt { ask: Arc::clone(ask), write: write.clone(), operation };
            self.doubts.lock().insert(ask.id, doubt);
        }
        let written = written.map_err(failed(what()));
        self.last_save_failed.store(written.is_err(), Ordering::Relaxed);
        let mut unflushed = self.unflushed.lock();
        match (&written, before) {
            (Err(StoreError::Io { .. }), Some(before)) => drop(unflushed.insert(ask.id, before)),
            // Another daemon has gone on, or all of it is on stable storage now.
            (Err(StoreError::Io { .. }), None) | (Ok(None), _) => drop(unflushed.remove(&ask.id)),
            (Ok(Some(_)), _) if durable == Durable::Yes => drop(unflushed.remove(&ask.id)),
            (Ok(Some((revision, _))), _) => {
                if let Some(saved) = unflushed.get_mut(&ask.id).filter(|saved| Arc::ptr_eq(&saved.ask, ask)) {
                    saved.version.revision = *revision;
                }
            }
            (Err(_), _) => {}
        }
        drop(unflushed);
        let Some((revision, bytes)) = written? else {
            self.doubts.lock().remove(&ask.id);
            self.cache.lock().remove(ask.id);
            return Ok(false);
        };
        self.wrote(ask, version(&write, Some(revision), operation), bytes);
        self.hints.tell();
        Ok(true)
    }

    /// Writes a row, and looks it up if the reply to the commit was lost.
    fn write_or_look(
        &self,
        ask: &Ask,
        write: &Write,
        operation: Uuid,
        owed: &[Effect],
        durable: Durable,
    ) -> Result<Option<(i64, usize)>, Failed> {
        let stored = || Ok(Some((version(write, None, operation).revision, record::USUAL_BYTES)));
        match (self.write(ask, write, operation, owed, durable), write) {
            (Err(Failed::Unknown(why)), _) => match self.is_stored(ask.id, operation) {
                Ok(Some(true)) => stored(),
                // A row that is not there yet cannot be waited for.
                Ok(None) | Err(_) => Err(Failed::Unknown(why)),
                Ok(Some(false)) => Err(Failed::Unchanged(why)),
            },
            // An earlier try may have come through while this one waited for it.
            (Ok(None), Write::New(_)) if self.is_stored(ask.id, operation)? == Some(true) => stored(),
            (written, _) => written,
        }
    }

    fn wrote(&self, ask: &Arc<Ask>, version: Version, bytes: usize) {
        self.doubts.lock().remove(&ask.id);
        self.cache.lock().put(Arc::clone(ask), version, bytes);
    }
}
