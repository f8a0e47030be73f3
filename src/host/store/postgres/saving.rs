//! A save, until it is certain what became of it: what is stored again after a crash of the server, and what is looked up after the
//! reply to a commit was lost.

use super::asks::{Carried, Steps, Version, Write};
use super::database::{Durable, Failed};
use super::{Cache, InPostgres, failed};
use crate::host::store::{Along, Save, StoreError, record};
use crate::random;
use askd_core::{Ask, AskId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// A save: of this state of an ask, made by this operation.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) ask: Arc<Ask>,
    pub(super) write: Write,
    pub(super) operation: Uuid,
    /// The server's era: in another one it changes nothing.
    pub(super) era: String,
    /// What the ask was stepped from.
    pub(super) before: Option<Arc<Ask>>,
}

/// A save that did not wait for the disk.
#[derive(Debug, Clone)]
pub(super) struct Unflushed {
    pub(super) ask: Arc<Ask>,
    pub(super) version: Version,
    /// This version and those before it since the last flush: the server may have lost some of them, with what went along.
    pub(super) steps: Steps,
    /// Its transaction has ended, so a flush that begins now covers it.
    pub(super) ended: bool,
    /// The server has crashed since.
    pub(super) lost: bool,
}

impl Unflushed {
    /// Nothing is known yet of what became of it.
    pub(super) fn is_under_way(&self) -> bool {
        !self.ended && !self.lost
    }

    /// A save that is about to be written. `before`: what was not flushed of the same ask.
    fn begun(attempt: &Attempt, along: &Carried, before: Option<&Self>) -> Self {
        let steps = match (before, &attempt.write) {
            (Some(before), _) => before.steps.clone(),
            (None, Write::Over(version)) => Steps::after(Some(version.operation)),
            (None, _) => Steps::default(),
        };
        let steps = steps.and(attempt.operation, along.clone());
        let version = Version { revision: attempt.revision(), operation: attempt.operation, vouched: true };
        Self { ask: Arc::clone(&attempt.ask), version, steps, ended: false, lost: false }
    }
}

impl Attempt {
    pub(super) fn new(ask: &Arc<Ask>, write: Write, era: String, before: Option<&Arc<Ask>>) -> Self {
        let operation = Uuid::parse_str(&random::unique()).unwrap_or_default();
        Self { ask: Arc::clone(ask), write, operation, era, before: before.cloned() }
    }

    /// The same once more in this era; `None`: a crash of the server may have taken something from what it was stepped from.
    fn once_more(self, era: String) -> Option<Self> {
        let is_whole = self.era == era || !self.before.as_ref().is_some_and(|before| before.is_changed_by_loss());
        is_whole.then_some(Self { era, ..self })
    }

    /// The revision that it makes, as far as that is known before it is written.
    fn revision(&self) -> i64 {
        match &self.write {
            Write::New(_) | Write::Any => 1,
            Write::Over(version) => version.revision + 1,
            Write::Again(revision, _) => *revision,
        }
    }
}

impl InPostgres {
    /// The server's era now, as far as this daemon knows.
    pub(super) fn era(&self) -> String {
        self.era.lock().clone()
    }

    /// Writes a row, and notes what this daemon then knows of it; `false`: the row is another than the attempt says.
    pub(super) fn write_tracked(&self, attempt: Attempt, along: Along<'_>, save: Save) -> Result<bool, StoreError> {
        let ask = Arc::clone(&attempt.ask);
        let what = || format!("cannot store ask {}", ask.id);
        let doubt = self.doubts.lock().get(&ask.id).filter(|doubt| Arc::ptr_eq(&doubt.ask, &ask)).cloned();
        let attempt = match doubt {
            None => Some(attempt),
            Some(doubt) if self.is_stored(ask.id, doubt.operation).map_err(failed(what()))? == Some(true) => {
                // Finding it out has waited for the disk.
                self.unflushed.lock().remove(&ask.id);
                self.wrote(&doubt, doubt.revision(), record::USUAL_BYTES);
                return Ok(true);
            }
            Some(doubt) => doubt.once_more(attempt.era),
        };
        let Some(attempt) = attempt else {
            self.forget_at_hand(ask.id);
            return Ok(false);
        };
        let durable = if save == Save::Now { Durable::Yes } else { Durable::No };
        let along = Carried::of(along, &ask.group).map_err(failed(what()))?;
        let before = self.unflushed.lock().get(&ask.id).cloned();
        if durable == Durable::No {
            // Before it is written: a flush that finds another era has to know of it.
            self.unflushed.lock().insert(ask.id, Unflushed::begun(&attempt, &along, before.as_ref()));
        }
        let written = self.write_or_look(&attempt, &along, durable);
        if let Err(Failed::Unknown(_)) = &written {
            self.doubts.lock().insert(ask.id, attempt.clone());
        }
        let is_crashed = matches!(written, Err(Failed::Crashed));
        let written = written.map_err(failed(what()));
        self.last_save_failed.store(written.is_err() && !is_crashed, Ordering::Relaxed);
        self.note_unflushed(&ask, &written, before, durable);
        if is_crashed {
            self.flush_all().map_err(failed(what()))?;
        } else if let Some((revision, bytes)) = written? {
            self.wrote(&attempt, revision, bytes);
            self.hints.tell();
            return Ok(true);
        }
        if durable == Durable::No || is_crashed {
            // A flush may have stored it again, as a save that was in doubt: that is over now.
            drop(self.flushing.lock());
            if self.is_stored(ask.id, attempt.operation).map_err(failed(what()))? == Some(true) {
                self.wrote(&attempt, attempt.revision(), record::USUAL_BYTES);
                return Ok(true);
            }
        }
        self.forget_at_hand(ask.id);
        Ok(false)
    }

    /// Notes what of the ask is to be flushed after a write. `before`: what was.
    fn note_unflushed(
        &self,
        ask: &Arc<Ask>,
        written: &Result<Option<(i64, usize)>, StoreError>,
        before: Option<Unflushed>,
        durable: Durable,
    ) {
        let mut unflushed = self.unflushed.lock();
        let lost = unflushed.get(&ask.id).is_some_and(|saved| saved.lost);
        match (written, before) {
            (Err(StoreError::Io { .. }), Some(before)) => {
                unflushed.insert(ask.id, Unflushed { lost: lost || before.lost, ..before });
            }
            // It is stored again before anything else happens to the ask.
            (Ok(None), Some(before)) if before.lost => drop(unflushed.insert(ask.id, before)),
            // Another daemon has gone on, or all of it is on stable storage now.
            (Err(StoreError::Io { .. }), None) | (Ok(None), _) => drop(unflushed.remove(&ask.id)),
            (Ok(Some(_)), _) if durable == Durable::Yes => drop(unflushed.remove(&ask.id)),
            (Ok(Some((revision, _))), _) => {
                if let Some(saved) = unflushed.get_mut(&ask.id).filter(|saved| Arc::ptr_eq(&saved.ask, ask)) {
                    (saved.version.revision, saved.ended) = (*revision, true);
                }
            }
            (Err(_), _) => {}
        }
    }

    /// Writes a row, and looks it up if the reply to the commit was lost.
    fn write_or_look(
        &self,
        attempt: &Attempt,
        along: &Carried,
        durable: Durable,
    ) -> Result<Option<(i64, usize)>, Failed> {
        let stored = || Ok(Some((attempt.revision(), record::USUAL_BYTES)));
        let is_stored = || self.is_stored(attempt.ask.id, attempt.operation);
        match (self.write(attempt, along, durable), &attempt.write) {
            (Err(Failed::Unknown(why)), _) => match is_stored() {
                Ok(Some(true)) => stored(),
                // A row that is not there yet cannot be waited for.
                Ok(None) | Err(_) => Err(Failed::Unknown(why)),
                Ok(Some(false)) => Err(Failed::Unchanged(why)),
            },
            // An earlier try may have come through while this one waited for it.
            (Ok(None), Write::New(_)) if is_stored()? == Some(true) => stored(),
            (written, _) => written,
        }
    }

    /// Another daemon has gone on, or something may be lost.
    fn forget_at_hand(&self, id: AskId) {
        self.doubts.lock().remove(&id);
        self.cache.lock().remove(id);
    }

    fn wrote(&self, attempt: &Attempt, revision: i64, bytes: usize) {
        self.doubts.lock().remove(&attempt.ask.id);
        // Until it is at hand: a new era takes away all that is.
        let era = self.era.lock();
        let version = Version { revision, operation: attempt.operation, vouched: attempt.era == *era };
        let mut cache = self.cache.lock();
        // A look may have found what another daemon has stored over it.
        if cache.record_of(attempt.ask.id).is_none_or(|(known, _)| known.revision <= revision) {
            cache.put(Arc::clone(&attempt.ask), version, bytes);
        }
    }

    /// Waits until what was saved is on stable storage. In a new era of the server it stores again what the server has lost.
    pub(super) fn flush_all(&self) -> Result<(), Failed> {
        // Who finds a new era has to be done with it before anybody takes it for the known one.
        let _alone = self.flushing.lock();
        let ended: HashSet<Uuid> =
            self.unflushed().into_iter().filter(|saved| saved.ended).map(|saved| saved.version.operation).collect();
        let (era, transaction) = self.sync()?;
        self.adopt(era);
        *self.flushed.lock() = transaction;
        for saved in self.unflushed() {
            if saved.lost {
                self.again(&saved)?;
            } else if !ended.contains(&saved.version.operation) {
                continue;
            }
            // In the same era, everything that was committed before is on stable storage now.
            let mut unflushed = self.unflushed.lock();
            if unflushed.get(&saved.ask.id).is_some_and(|newest| Arc::ptr_eq(&newest.ask, &saved.ask)) {
                unflushed.remove(&saved.ask.id);
            }
        }
        Ok(())
    }

    /// Goes on in the server's era. In a new one, whatever is at hand may be lost.
    fn adopt(&self, era: String) {
        let mut known = self.era.lock();
        if *known != era {
            self.unflushed.lock().values_mut().for_each(|saved| saved.lost = true);
            *self.cache.lock() = Cache::default();
            // So is what was seen of others.
            let mut mark = self.mark.lock();
            *mark = std::mem::take(&mut *mark).after_crash(*self.flushed.lock());
            drop(mark);
            *known = era;
        }
    }

    /// Stores again what the server has lost. Nothing happens if it has not, or another daemon has gone on without it.
    fn again(&self, Unflushed { ask, version, steps, .. }: &Unflushed) -> Result<(), Failed> {
        let attempt = Attempt::new(ask, Write::Again(version.revision, steps.clone()), self.era(), None);
        let attempt = Attempt { operation: version.operation, ..attempt };
        self.write(&attempt, &Carried::default(), Durable::Yes).map(drop)
    }

    fn unflushed(&self) -> Vec<Unflushed> {
        self.unflushed.lock().values().cloned().collect()
    }
}
