//! Calls that ask the same. Only one of them is taken in at a time. Those that repeat a question wait until it is clear who gets
//! its outcome, and if another call is given it meanwhile, so are they: asked anew, the question would be put to people a second
//! time, perhaps for a call that is long dead.

use super::admission::waiter;
use super::submit::Submitted;
use super::{Broker, Failure};
use crate::clock::Moment;
use crate::host::keyed_lock::{KeyGuard, KeyedLock};
use crate::ipc::wire::Request;
use crate::sabotage::on;
use askd_core::{Ask, AskId, Digest, Event, Group, MAX_WAITERS, Rejection, Relation, RequestId, Waiter};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// For how long a call counts as waiting that has not come again. Both ways to askd try again much sooner.
const WAITS_FOR: Duration = Duration::from_secs(60);

/// What such calls wait for. A start of the daemon forgets it.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<(Group, RequestId), Repeat>>);

#[derive(Debug, Clone, Copy)]
struct Repeat {
    of: AskId,
    /// Another call was given the outcome while this one waited. Who comes later asks something new once an agent has taken it.
    shares: bool,
    until: Moment,
}

impl Repeats {
    fn find(&self, group: &Group, request_id: &RequestId, now: Moment) -> Option<Repeat> {
        let repeats = self.0.lock();
        // Each request looks, and hardly any waits.
        if repeats.is_empty() || on("askedanew") {
            return None;
        }
        repeats.get(&(group.clone(), request_id.clone())).copied().filter(|repeat| now < repeat.until)
    }

    /// Notes that a call waits for the outcome of this ask.
    fn note(&self, ask: &Ask, request_id: &RequestId, now: Moment) {
        let mut repeats = self.0.lock();
        // Only what came within the last minute is in it.
        if repeats.len().is_power_of_two() {
            repeats.retain(|_, repeat| now < repeat.until);
        }
        let new = Repeat { of: ask.id, shares: false, until: now + WAITS_FOR };
        let repeat = repeats.entry((ask.group.clone(), request_id.clone())).or_insert(new);
        let goes_on = repeat.of == ask.id && now < repeat.until;
        *repeat = Repeat { shares: goes_on && repeat.shares, ..new };
    }

    /// A call was given the outcome of this ask that no call had taken: all that wait for it now are given it, too.
    pub(super) fn let_share(&self, of: AskId) {
        self.0.lock().values_mut().filter(|repeat| repeat.of == of).for_each(|repeat| repeat.shares = true);
    }
}

/// Calls that ask the same, by what they have in common. One call holds its request id before its key, so that no two wait
/// for each other.
#[derive(Debug, Default)]
pub(super) struct Asking(KeyedLock<(Group, Common)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Common {
    Request(RequestId),
    Key(Digest),
}

/// While it is held, no other call asks the same.
type Alone = (KeyGuard, Option<KeyGuard>);

impl Asking {
    pub(super) async fn alone(&self, group: &Group, request: &Request) -> Alone {
        let first = self.0.lock((group.clone(), Common::Request(request.request_id.clone()))).await;
        let Some(key) = request.key else { return (first, None) };
        (first, Some(self.0.lock((group.clone(), Common::Key(key))).await))
    }

    pub(super) fn try_alone(&self, group: &Group, request: &Request) -> Option<Alone> {
        let first = self.0.try_lock((group.clone(), Common::Request(request.request_id.clone())))?;
        let second = request.key.map(|key| self.0.try_lock((group.clone(), Common::Key(key))).ok_or(()));
        Some((first, second.transpose().ok()?))
    }
}

impl Broker {
    /// Notes that a call waits for the outcome of this ask.
    pub(super) fn note_repeat(&self, ask: &Ask, request: &Request) {
        self.0.repeats.note(ask, &request.request_id, self.clock().monotonic());
    }

    /// A call that waited was withdrawn.
    pub(in crate::host) fn forget_repeat(&self, group: &Group, request_id: &RequestId) {
        self.0.repeats.0.lock().remove(&(group.clone(), request_id.clone()));
    }

    fn repeat(&self, group: &Group, request_id: &RequestId) -> Option<Repeat> {
        self.0.repeats.find(group, request_id, self.clock().monotonic())
    }

    /// Whether this call waits for an outcome.
    pub(super) fn waits_for_outcome(&self, group: &Group, request_id: &RequestId) -> bool {
        self.repeat(group, request_id).is_some()
    }

    /// The outcome that this call waited for, if another call was given it meanwhile.
    pub(super) async fn share(&self, group: &Group, request: &Request) -> Option<Submitted> {
        let Repeat { of, .. } = self.repeat(group, &request.request_id).filter(|repeat| repeat.shares)?;
        let ask = match self.get(of).await {
            Ok(ask) => ask?,
            Err(error) => return Some(Self::unreadable(of, &error)),
        };
        let is_same = ask.key == request.key && ask.content.same_as(&request.content);
        if !is_same || !ask.shares_outcome(self.clock().now()) {
            return None;
        }
        if !ask.is_free() {
            // Something of it is just being written, or taken back.
            return Some(Submitted::NotYet);
        }
        self.give_outcome(&ask, request, |waiter| Relation::Shares(Box::new(waiter))).await
    }

    /// Gives this call the outcome of a settled ask.
    pub(super) async fn give_outcome(
        &self,
        ask: &Ask,
        request: &Request,
        relation: impl FnOnce(Waiter) -> Relation,
    ) -> Option<Submitted> {
        let settings = self.settings();
        let waiter = match waiter(request, settings.group(&ask.group)?, self.clock().now()) {
            Ok(waiter) => waiter,
            Err(rejection) => return Some(Submitted::Rejected(rejection)),
        };
        match self.apply(ask.id, Event::Requested(relation(waiter))).await {
            Ok(ask) if ask.waiter(&request.request_id).is_some() => Some(Submitted::Joined(ask.id)),
            Ok(ask) if ask.is_full() => Some(Submitted::Rejected(Rejection::TooManyWait { limit: MAX_WAITERS })),
            Ok(_) | Err(Failure::Unknown | Failure::Refused(..) | Failure::Broken) => Some(Submitted::NotYet),
            Err(failure @ (Failure::NotStored | Failure::InDoubt)) => Some(Submitted::failed(&failure)),
        }
    }
}
