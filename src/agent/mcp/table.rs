//! The questions of a process as a table, behind the lock of [`super::calls::Calls`]: each one's stage, what
//! was taken for which call, and what was told. It reads and renames their files, and wakes nobody.

use super::answer::{Outcome, Said};
use crate::agent::{Look, Taken, Waiter};
use crate::clock::Moment;
use askd_core::{Digest, RequestId};
use rmcp::model::RequestId as CallId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How long after the reply an answer is kept for a client that says nothing more.
pub(super) const HANDED_OVER_AFTER: Duration = Duration::from_secs(10);
/// How many outcomes are kept for who asks again by id.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) open: HashMap<RequestId, Open>,
    pub(super) handing: HashMap<RequestId, Handing>,
    pub(super) told: VecDeque<(RequestId, Said)>,
    /// How often the request of these questions was not claimed, until one is.
    pub(super) unclaimed: HashMap<Digest, u32>,
    /// The calls that are not replied to yet.
    pub(super) calls: HashSet<CallId>,
    pub(super) closed: bool,
}

/// A question whose outcome no call has returned yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) waiter: Waiter,
    pub(super) key: Digest,
    pub(super) retries: u8,
    pub(super) note: Option<String>,
    pub(super) stage: Stage,
    pub(super) withdrawn: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Look again at this moment at the latest.
    Waiting(Moment),
    /// The response lies in its file.
    Ready,
    /// It ended without a response.
    Over(Outcome),
}

/// An outcome on its way to the client.
#[derive(Debug)]
pub(super) struct Handing {
    pub(super) open: Open,
    pub(super) taken: Taken,
    /// The calls that return it.
    pub(super) calls: Vec<CallId>,
    /// When a reply with it was written.
    pub(super) sent: Option<Instant>,
}

impl Open {
    pub(super) fn give_up(&self) -> Option<Moment> {
        match self.stage {
            Stage::Waiting(give_up) => Some(give_up),
            Stage::Ready | Stage::Over(_) => None,
        }
    }
}

impl Handing {
    pub(super) fn said(&self) -> Said {
        let outcome = Outcome::Response(Box::new(self.taken.response.clone()));
        Said { outcome, note: self.open.note.clone() }
    }

    pub(super) fn over(&self) -> Option<Instant> {
        self.sent.map(|sent| sent + HANDED_OVER_AFTER)
    }
}

impl Table {
    /// Says that whoever waits here lives.
    pub(super) fn beat(&self) {
        let waiters = self.open.values().chain(self.handing.values().map(|handing| &handing.open));
        if let Some(open) = waiters.into_iter().next() {
            open.waiter.beat();
        }
    }

    /// Looks at one question; `true` if something has come of it.
    pub(super) fn look(&mut self, id: &RequestId) -> bool {
        let Some(open) = self.open.get_mut(id) else { return false };
        if !matches!(open.stage, Stage::Waiting(_)) {
            return false;
        }
        let look = open.waiter.look();
        if open.waiter.is_claimed() {
            self.unclaimed.remove(&open.key);
        }
        open.stage = match look {
            Ok(Look::Waiting(give_up)) => Stage::Waiting(give_up),
            Ok(Look::Ready) => Stage::Ready,
            Ok(Look::NotClaimed) => {
                let attempt = self.unclaimed.entry(open.key).or_default();
                *attempt += 1;
                Stage::Over(Outcome::NotClaimed { attempt: *attempt, retries: open.retries })
            }
            Ok(Look::HostSilent) => Stage::Over(Outcome::HostSilent),
            Err(error) => {
                tracing::warn!(request_id = %id, %error, "a question is waited for no more");
                Stage::Over(Outcome::Broken(error.to_string()))
            }
        };
        !matches!(open.stage, Stage::Waiting(_))
    }

    /// Takes what came of a question for a call.
    pub(super) fn take(&mut self, id: &RequestId, call: &CallId) -> Option<Said> {
        let open = self.open.get_mut(id)?;
        let taken = match &open.stage {
            Stage::Waiting(_) => return None,
            Stage::Ready => open.waiter.take(),
            Stage::Over(outcome) => {
                let said = Said { outcome: outcome.clone(), note: open.note.clone() };
                self.open.remove(id);
                self.remember(id.clone(), said.clone());
                return Some(said);
            }
        };
        match taken {
            Ok(Some(taken)) => {
                let open = self.open.remove(id)?;
                let handing = Handing { open, taken, calls: vec![call.clone()], sent: None };
                let said = handing.said();
                self.handing.insert(id.clone(), handing);
                Some(said)
            }
            // Withdrawn by the daemon in this very moment.
            Ok(None) => {
                open.stage = Stage::Waiting(open.waiter.moment());
                None
            }
            Err(error) => {
                open.stage = Stage::Over(Outcome::Broken(error.to_string()));
                self.take(id, call)
            }
        }
    }

    /// What was withdrawn ends without anybody waiting for it; an answer that came first stays.
    pub(super) fn finish_withdrawn(&mut self, id: &RequestId) {
        let Some(open) = self.open.get_mut(id).filter(|open| open.withdrawn) else { return };
        let Stage::Ready = open.stage else { return };
        let Ok(Some(taken)) = open.waiter.take() else { return };
        open.withdrawn = false;
        if taken.response.result.status == "cancelled" {
            let outcome = Outcome::Response(Box::new(taken.response.clone()));
            let note = open.note.take();
            self.open.remove(id);
            self.remember(id.clone(), Said { outcome, note });
            tidy_up(id, taken);
        } else if let Err(error) = taken.put_back() {
            tracing::warn!(request_id = %id, %error, "a response could not be put back");
        }
    }

    /// What was replied long enough ago has arrived.
    pub(super) fn hand_over(&mut self, arrived: impl Fn(Instant) -> bool) {
        let ids: Vec<RequestId> = self
            .handing
            .iter()
            .filter(|(_, handing)| handing.sent.is_some_and(&arrived))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            if let Some(handing) = self.handing.remove(&id) {
                let said = handing.said();
                tidy_up(&id, handing.taken);
                self.remember(id, said);
            }
        }
    }

    /// This call's reply was lost. If it was the only one, the response waits again.
    pub(super) fn unsent(&mut self, call: &CallId) {
        let lost: Vec<RequestId> = self
            .handing
            .iter_mut()
            .filter_map(|(id, handing)| {
                let before = handing.calls.len();
                handing.calls.retain(|known| known != call);
                (before > 0 && handing.calls.is_empty()).then(|| id.clone())
            })
            .collect();
        for id in lost {
            if let Some(handing) = self.handing.remove(&id) {
                self.put_back(id, handing);
            }
        }
    }

    pub(super) fn put_back(&mut self, id: RequestId, handing: Handing) {
        let Handing { mut open, taken, .. } = handing;
        if let Err(error) = taken.put_back() {
            tracing::warn!(request_id = %id, %error, "a response could not be put back");
        }
        open.stage = Stage::Ready;
        self.open.insert(id, open);
    }

    pub(super) fn remember(&mut self, id: RequestId, said: Said) {
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((id, said));
    }
}

/// It was handed over; nothing is left behind.
fn tidy_up(id: &RequestId, taken: Taken) {
    if let Err(error) = taken.done() {
        tracing::warn!(request_id = %id, %error, "a response that was handed over could not be deleted");
    }
}
