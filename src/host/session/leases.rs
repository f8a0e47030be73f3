//! Which calls over HTTP still wait. Each is a lease: it holds while the call is in flight, and for a minute after the last
//! one. A start of the daemon gives each lease its whole time anew. This module decides nothing about asks.

use crate::clock::{Clock, Moment};
use askd_core::{Group, RequestId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a lease holds after the last call.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

type Key = (Group, RequestId);

/// The leases of all calls over HTTP. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Leases {
    clock: Clock,
    /// A lease that is not known holds until then: it may be one of the last run.
    unknown_until: Moment,
    known: Arc<Mutex<Known>>,
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
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    leases: Leases,
    of: Key,
}

impl Leases {
    pub(super) fn new(clock: Clock) -> Self {
        Self { unknown_until: clock.monotonic() + LEASE, clock, known: Arc::default() }
    }

    /// Whether a call of this request still waits.
    pub(crate) fn holds(&self, group: &Group, request_id: &RequestId) -> bool {
        let now = self.clock.monotonic();
        let known = self.known.lock();
        match known.leases.get(&(group.clone(), request_id.clone())) {
            Some(lease) => lease.in_flight > 0 || now < lease.until,
            None => now < self.unknown_until,
        }
    }

    /// Holds the lease of this request as long as the call is in flight, and [`LEASE`] after that.
    pub(crate) fn begin(&self, group: &Group, request_id: &RequestId) -> InFlight {
        let of = (group.clone(), request_id.clone());
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.leases.len() >= known.sweep_at && now >= self.unknown_until {
            known.leases.retain(|_, lease| lease.in_flight > 0 || now < lease.until);
            known.sweep_at = known.leases.len() * 2 + 64;
        }
        let lease = known.leases.entry(of.clone()).or_insert(Lease { in_flight: 0, until: now });
        lease.in_flight += 1;
        drop(known);
        InFlight { leases: self.clone(), of }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let until = self.leases.clock.monotonic() + LEASE;
        if let Some(lease) = self.leases.known.lock().leases.get_mut(&self.of) {
            lease.in_flight -= 1;
            lease.until = until;
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
        let leases = Leases::new(clock);
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
}
