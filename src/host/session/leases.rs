//! Which calls over HTTP still wait. Each is a lease: it holds while the call is in flight, and for a minute after the last
//! one. A model may work for minutes before its next call of MCP: such a lease holds longer, each call of its session renews
//! it, and nothing shortens it. A start of the daemon gives each lease its whole time anew. Which requests of an earlier run a
//! session has, its caller knows by the asks. This module decides nothing about them.

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
    /// When the asks were last looked through for questions of a session.
    looked: HashMap<(Group, String), Moment>,
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
        now < self.of_last_run(request_id)
    }

    /// Until when the lease of a request holds that may be one of the last run.
    fn of_last_run(&self, request_id: &RequestId) -> Moment {
        let whole = if request_id.as_str().starts_with(OF_MCP) { self.of_mcp } else { LEASE };
        self.started + whole
    }

    /// Holds the lease of this request as long as the call is in flight, and [`LEASE`] after that.
    pub(crate) fn begin(&self, group: &Group, request_id: &RequestId) -> InFlight {
        self.begin_in(group, request_id, None)
    }

    /// The same for a call of a session, which can come back to it.
    pub(crate) fn begin_in(&self, group: &Group, request_id: &RequestId, session: Option<&str>) -> InFlight {
        self.fly((group.clone(), request_id.clone()), session, self.of_last_run(request_id))
    }

    /// The same for a request that no earlier run can know.
    pub(crate) fn begin_new(&self, group: &Group, request_id: &RequestId, session: Option<&str>) -> InFlight {
        self.fly((group.clone(), request_id.clone()), session, self.started)
    }

    /// `until`: how long the lease holds if it is not known yet.
    fn fly(&self, of: Key, session: Option<&str>, until: Moment) -> InFlight {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.leases.len() >= known.sweep_at && now >= self.started + LEASE.max(self.of_mcp) {
            known.leases.retain(|_, lease| lease.in_flight > 0 || now < lease.until);
            known.sweep_at = known.leases.len() * 2 + 64;
        }
        if !known.leases.contains_key(&of) {
            self.begun.notify_one();
        }
        let lease = known.leases.entry(of.clone()).or_insert(Lease { in_flight: 0, until, session: None });
        lease.in_flight += 1;
        lease.session = session.map(str::to_owned);
        drop(known);
        InFlight { leases: self.clone(), of, after: if session.is_some() { self.of_mcp } else { LEASE } }
    }

    /// A call of this session has come: its questions are still waited for. `true`: it may have some whose leases are not
    /// known here, of an earlier run or of other daemons, which [`Self::adopt`] takes. That is said once a minute.
    pub(crate) fn renew(&self, group: &Group, session: &str) -> bool {
        let now = self.clock.monotonic();
        self.each_of(group, session, |lease| lease.until = lease.until.max(now + self.of_mcp));
        let mut known = self.known.lock();
        let looked_lately = |at: &Moment| now < *at + LEASE;
        let of = (group.clone(), session.to_owned());
        if known.looked.get(&of).is_some_and(looked_lately) {
            return false;
        }
        if known.looked.len().is_power_of_two() {
            known.looked.retain(|_, at| looked_lately(at));
        }
        known.looked.insert(of, now);
        true
    }

    /// This request is one of a session of which a call has just come.
    pub(crate) fn adopt(&self, group: &Group, request_id: &RequestId, session: &str) {
        let until = self.clock.monotonic() + self.of_mcp;
        let mut known = self.known.lock();
        let new = Lease { in_flight: 0, until, session: None };
        let lease = known.leases.entry((group.clone(), request_id.clone())).or_insert(new);
        lease.until = lease.until.max(until);
        lease.session.get_or_insert_with(|| session.to_owned());
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

    #[test]
    fn a_call_after_a_start_shortens_no_lease_of_the_last_run_and_a_session_is_looked_for_once_a_minute() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let leases = Leases::new(clock, LEASE * 15);
        let group: Group = "g".parse().unwrap();
        let ids = ["mcp-1", "mcp-2", "mcp-3"].map(|id| id.parse::<RequestId>().unwrap());
        // Both calls are cut. Only the first one asks for what an earlier run may have known.
        drop(leases.begin_in(&group, &ids[0], None));
        drop(leases.begin_new(&group, &ids[1], None));
        assert_eq!(
            (leases.renew(&group, "s"), leases.renew(&group, "s"), leases.renew(&group, "t")),
            (true, false, true)
        );
        leases.adopt(&group, &ids[2], "s");
        hand.advance(LEASE * 14);
        assert_eq!(ids.each_ref().map(|id| leases.holds(&group, id)), [true, false, true]);
        assert!(leases.renew(&group, "s"));
        hand.advance(LEASE);
        assert_eq!(ids.each_ref().map(|id| leases.holds(&group, id)), [false, false, true]);
    }
}
