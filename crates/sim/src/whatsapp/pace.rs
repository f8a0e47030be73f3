//! The two rates a sender can break: per number (throughput) and per number and person (pair).
//!
//! Source: Meta's Cloud API overview, "Throughput" (80 messages a second by default, 130429) and "Pair
//! rate limits" (one message every 6 seconds to one person, up to 45 at once borrowed against the
//! time to come, 131056). How Meta accounts for the debt is not published beyond its example (20 at
//! once: wait 2 minutes); here the whole debt is paid before the next message. Refused calls cost
//! nothing. Counted on the stand-in's clock. Called by `state` when a message would be accepted.

use std::collections::VecDeque;

use super::clock::UnixMs;

/// What one person was sent lately.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    began: UnixMs,
    sent: i64,
}

impl Pair {
    /// Counts a message, or says that it comes too early. `every_ms` 0 switches the limit off.
    pub(super) fn take(&mut self, now: UnixMs, every_ms: i64, burst: i64) -> bool {
        if every_ms == 0 || self.sent == 0 || now >= self.began + self.sent * every_ms {
            (self.began, self.sent) = (now, 1);
            return true;
        }
        let in_burst = now < self.began + every_ms && self.sent < burst;
        if in_burst {
            self.sent += 1;
        }
        in_burst
    }
}

/// Messages of the last second of one business number.
#[derive(Debug, Clone, Default)]
pub(super) struct Throughput(VecDeque<UnixMs>);

impl Throughput {
    /// Counts a message, or refuses it. `per_second` 0 switches the limit off.
    pub(super) fn take(&mut self, now: UnixMs, per_second: usize) -> bool {
        while self.0.front().is_some_and(|t| now - t >= 1000) {
            self.0.pop_front();
        }
        let free = per_second == 0 || self.0.len() < per_second;
        if free && per_second != 0 {
            self.0.push_back(now);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_six_seconds_for_ever() {
        let mut pair = Pair::default();
        assert!((0..100).all(|i| pair.take(i * 6000, 6000, 45)));
    }

    #[test]
    fn a_burst_is_borrowed_and_paid_back_in_full() {
        let mut pair = Pair::default();
        assert_eq!((0..60).filter(|i| pair.take(i * 10, 6000, 45)).count(), 45);
        assert!(!pair.take(6001, 6000, 45) && !pair.take(45 * 6000 - 1, 6000, 45));
        assert!(pair.take(45 * 6000, 6000, 45));
    }

    #[test]
    fn two_at_once_cost_twelve_seconds() {
        let mut pair = Pair::default();
        assert!(pair.take(0, 6000, 45) && pair.take(5999, 6000, 45));
        assert!(!pair.take(11_999, 6000, 45) && pair.take(12_000, 6000, 45));
    }

    #[test]
    fn eighty_a_second() {
        let mut all = Throughput::default();
        assert_eq!((0..200).filter(|_| all.take(0, 80)).count(), 80);
        assert!(!all.take(999, 80) && all.take(1000, 80));
    }
}
