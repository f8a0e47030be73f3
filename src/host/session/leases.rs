//! Which calls over HTTP still wait. Each is a lease: it holds while the call is in flight, and for a minute after the last
//! one. A model may work for minutes before its next call of MCP: such a lease holds longer, each call of its session renews
//! it, and nothing shortens it. A start of the daemon gives each lease its whole time anew. This module decides nothing
//! about asks.

use crate::clock::{Clock, Moment};
use crate::host::store::Wait;
use askd_core::{Group, RequestId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a lease holds after the last call.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// How the request of an MCP call begins, so that a start of the daemon knows how long its lease holds.
pub(crate) const OF_MCP: &str = "mcp-";

type Key = (Group, RequestId);

/// The leases of all calls over HTTP. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Leases {
    clock: Clock,
    started: Moment,
    /// How long the lease of an MCP call holds.
    of_mcp: Duration,
    known: Arc<Mutex<Known>>,
    /// A call has come that other daemons do not know of.
    begun: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    leases: HashMap<Key, Lease>,
    /// How many there may be before those that are over are dropped.
    sweep_at: usize,
}

#[derive(Debug)]
struct Lease {
    in_flight: usize,
    until: Moment,
    /// Whose calls renew it.
    session: Option<String>,
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    leases: Leases,
    of: Key,
    /// How long the lease holds after it.
    after: Duration,
}

impl Leases {
    pub(super) fn new(clock: Clock, of_mcp: Duration) -> Self {
        Self { started: clock.monotonic(), clock, of_mcp, known: Arc::default(), begun: Arc::default() }
    }

    /// Whether a call of this request still waits.
    pub(crate) fn holds(&self, group: &Group, request_id: &RequestId) -> bool {
        let now = self.clock.monotonic();
        let known = self.known.lock();
        if let Some(lease) = known.leases.get(&(group.clone(), request_id.clone())) {
            return lease.in_flight > 0 || now < lease.until;
        }
        // It may be one of the last run.
        let whole = if request_id.as_str().starts_with(OF_MCP) { self.of_mcp } else { LEASE };
        now < self.started + whole
    }

    /// Holds the lease of this request as long as the call is in flight, and [`LEASE`] after that.
    pub(crate) fn begin(&self, group: &Group, request_id: &RequestId) -> InFlight {
        self.begin_in(group, request_id, None)
    }

    /// The same for a call of a session, which can come back to it.
    pub(crate) fn begin_in(&self, group: &Group, request_id: &RequestId, session: Option<&str>) -> InFlight {
        let of = (group.clone(), request_id.clone());
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.leases.len() >= known.sweep_at && now >= self.started + LEASE.max(self.of_mcp) {
            known.leases.retain(|_, lease| lease.in_flight > 0 || now < lease.until);
            known.sweep_at = known.leases.len() * 2 + 64;
        }
        if !known.leases.contains_key(&of) {
            self.begun.notify_one();
        }
        let lease = known.leases.entry(of.clone()).or_insert(Lease { in_flight: 0, until: now, session: None });
        lease.in_flight += 1;
        lease.session = session.map(str::to_owned);
        drop(known);
        InFlight { leases: self.clone(), of, after: if session.is_some() { self.of_mcp } else { LEASE } }
    }

    /// A call of this session has come: its questions are still waited for.
    pub(crate) fn renew(&self, group: &Group, session: &str) {
        let until = self.clock.monotonic() + self.of_mcp;
        self.each_of(group, session, |lease| lease.until = lease.until.max(until));
    }

    /// This session is over: nobody waits for its questions any more.
    pub(crate) fn end(&self, group: &Group, session: &str) {
        let now = self.clock.monotonic();
        self.each_of(group, session, |lease| lease.until = now);
    }

    /// Waits until a call has come that other daemons do not know of.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// All leases that hold, and for how long they do at least.
    pub(crate) fn all(&self) -> Vec<Wait> {
        let (now, known) = (self.clock.monotonic(), self.known.lock());
        let wait = |((group, request_id), lease): (&Key, &Lease)| {
            let left = if lease.in_flight > 0 { lease.until.max(now + LEASE) } else { lease.until }.since(now);
            (!left.is_zero()).then(|| Wait { group: group.clone(), request_id: request_id.clone(), left })
        };
        known.leases.iter().filter_map(wait).collect()
    }

    fn each_of(&self, group: &Group, session: &str, change: impl Fn(&mut Lease)) {
        let mut known = self.known.lock();
        let its =
            known.leases.iter_mut().filter(|((of, _), lease)| of == group && lease.session.as_deref() == Some(session));
        its.for_each(|(_, lease)| change(lease));
    }
}

impl InFlight {
    /// The call is told that it can come back to the question.
    pub(crate) fn comes_back(&mut self) {
        self.after = self.leases.of_mcp;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let until = self.leases.clock.monotonic() + self.after;
        if let Some(lease) = self.leases.known.lock().leases.get_mut(&self.of) {
            lease.in_flight -= 1;
            lease.until = lease.until.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::Time;

    #[test]
    fn a_lease_holds_while_a_call_is_in_flight_and_a_minute_after() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let leases = Leases::new(clock, LEASE * 15);
        let (group, id): (Group, RequestId) = ("g".parse().unwrap(), "r".parse().unwrap());
        assert!(leases.holds(&group, &id), "the last run may have known it");
        hand.advance(LEASE);
        assert!(!leases.holds(&group, &id));
        let (one, other) = (leases.begin(&group, &id), leases.begin(&group, &id));
        drop(one);
        hand.advance(LEASE * 3);
        assert!(leases.holds(&group, &id));
        drop(other);
        hand.advance(LEASE.saturating_sub(Duration::from_secs(1)));
        assert!(leases.holds(&group, &id));
        hand.advance(Duration::from_secs(1));
        assert!(!leases.holds(&group, &id));
    }

    #[test]
    fn the_lease_of_an_mcp_call_holds_longer_is_renewed_by_its_session_and_shortened_by_nothing() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let leases = Leases::new(clock, LEASE * 15);
        let group: Group = "g".parse().unwrap();
        let (one, other): (RequestId, RequestId) = ("mcp-1".parse().unwrap(), "mcp-2".parse().unwrap());
        let hold = || (leases.holds(&group, &one), leases.holds(&group, &other));
        hand.advance(LEASE * 14);
        assert_eq!(hold(), (true, true), "the last run may have known them");
        hand.advance(LEASE);
        assert_eq!(hold(), (false, false));
        drop(leases.begin_in(&group, &one, Some("s")));
        leases.begin(&group, &other).comes_back();
        hand.advance(LEASE * 14);
        // A call that is cut.
        drop(leases.begin(&group, &other));
        leases.renew(&group, "s");
        assert_eq!(hold(), (true, true));
        hand.advance(LEASE);
        assert_eq!(hold(), (true, false), "it has no session");
        leases.end(&group, "s");
        assert_eq!(hold(), (false, false));
    }
}
