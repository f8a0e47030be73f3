//! How fast people may be written to, so that Meta never has to say so: one message every 6 seconds to
//! one person, with some at once on credit that is paid back in full; and so many a second in all.
//!
//! Pure: times are milliseconds of any clock that only goes forward. Meta counts when a message
//! arrives, which we do not see: credit is used for less than the 6 seconds it is given, and the debt is
//! counted from when the first call was over.

use std::collections::VecDeque;

/// Milliseconds that one message to a person costs (Cloud API, pair rate limit).
const EVERY: u64 = 6_000;
/// How long after the first message more may follow on credit: less than the 6 s that Meta gives.
const CREDIT: u64 = 3_500;
/// How many at once. Meta gives 45; the debt of so many would keep a person waiting for minutes.
const BURST: u64 = 20;
/// How many messages in all within [`SPAN`]: Meta gives 80 a second.
const AT_ONCE: usize = 60;
const SPAN: u64 = 1_100;
/// Messages a second that Meta takes.
const PER_SECOND: usize = 80;
/// A turn that was given and not used within this is free again.
const UNUSED: u64 = 30_000;

/// What one person was sent lately.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    /// When the first message of the burst went out, and when its call was over.
    began: Option<(u64, u64)>,
    sent: u64,
    /// Turns given and not used yet.
    turns: VecDeque<u64>,
}

impl Pair {
    /// As it was before a restart: so many were sent since `began`, and the first call was over by `over`.
    pub(super) fn resumed(began: u64, over: u64, sent: u64) -> Self {
        Self { began: Some((began, over)), sent, turns: VecDeque::new() }
    }

    /// How many messages are not paid for.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// When the next message may go: now, or then.
    fn free_at(&self, now: u64) -> u64 {
        let Some((sent_at, over_at)) = self.began else { return now };
        let taken = self.sent;
        let paid = over_at + taken * EVERY;
        if now >= paid || (now < sent_at + CREDIT && taken < BURST) { now } else { paid }
    }

    /// Gives a turn, or says when to ask again.
    pub(super) fn turn(&mut self, now: u64) -> Result<(), u64> {
        self.turns.retain(|given| now < given + UNUSED);
        // Turns that were given will be used: they count as sent.
        let mut then = self.clone();
        for _ in 0..self.turns.len() {
            then.count(now);
        }
        let free = then.free_at(now);
        if free > now {
            return Err(free);
        }
        self.turns.push_back(now);
        Ok(())
    }

    /// Begins a message, or says when it may begin. A turn that was given is used up by the first.
    pub(super) fn begin(&mut self, now: u64) -> Result<(), u64> {
        let free = self.free_at(now);
        if free > now {
            return Err(free);
        }
        self.turns.pop_front();
        self.count(now);
        Ok(())
    }

    fn count(&mut self, now: u64) {
        let fresh = self.began.is_none_or(|(_, over_at)| now >= over_at + self.sent * EVERY);
        if fresh {
            (self.began, self.sent) = (Some((now, now)), 0);
        }
        self.sent += 1;
    }

    /// The call is over: the debt is counted from here, if it was the first.
    pub(super) fn over(&mut self, began: u64, now: u64) {
        if let Some((sent_at, over_at)) = &mut self.began
            && *sent_at == began
        {
            *over_at = now.max(*over_at);
        }
    }

    /// Whether nothing is owed any more, so that it need not be remembered.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        self.turns.is_empty() && self.began.is_none_or(|(_, over_at)| now >= over_at + self.sent * EVERY)
    }
}

/// What was sent lately in all.
#[derive(Debug, Default)]
pub(super) struct Throughput(VecDeque<u64>);

impl Throughput {
    /// What was sent just before a restart is not known: there is room for what Meta would take besides.
    pub(super) fn after_restart(now: u64) -> Self {
        Self(std::iter::repeat_n(now, 2 * AT_ONCE - PER_SECOND).collect())
    }

    /// Begins a message, or says when it may begin.
    pub(super) fn begin(&mut self, now: u64) -> Result<(), u64> {
        while self.0.front().is_some_and(|at| now >= at + SPAN) {
            self.0.pop_front();
        }
        match self.0.front() {
            Some(oldest) if self.0.len() >= AT_ONCE => Err(oldest + SPAN),
            _ => {
                self.0.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Meta's side, as the stand-in has it: the whole debt is paid before the next message.
    #[derive(Default)]
    struct Meta {
        began: u64,
        sent: u64,
    }

    impl Meta {
        fn take(&mut self, now: u64) -> bool {
            if self.sent == 0 || now >= self.began + self.sent * 6_000 {
                (self.began, self.sent) = (now, 1);
                return true;
            }
            let credit = now < self.began + 6_000 && self.sent < 45;
            self.sent += u64::from(credit);
            credit
        }
    }

    proptest! {
        #[test]
        fn the_pair_limit_is_never_broken(wants in proptest::collection::vec((0..9_000_u64, 0..900_u64, 0..900_u64), 1..80)) {
            let (mut pair, mut meta, mut now) = (Pair::default(), Meta::default(), 1_000_000);
            for (pause, there, back) in wants {
                now += pause;
                while let Err(then) = pair.begin(now) {
                    prop_assert!(then > now);
                    now = then;
                }
                let began = now;
                prop_assert!(meta.take(now + there), "too early");
                now += there + back;
                pair.over(began, now);
            }
        }
    }

    #[test]
    fn a_conversation_flows_and_a_flood_waits() {
        let mut pair = Pair::default();
        assert!((0..20).all(|n| pair.begin(n * 100).is_ok()));
        assert_eq!(pair.begin(2_000), Err(120_000));
        assert!(pair.begin(120_000).is_ok());
        let mut all = Throughput::default();
        assert_eq!((0..100).filter(|_| all.begin(5).is_ok()).count(), 60);
        assert!(all.begin(1_105).is_ok());
    }

    #[test]
    fn a_restart_pays_the_debt_of_before() {
        let mut pair = Pair::resumed(1_000, 1_200, 3);
        assert!(pair.begin(4_000).is_ok(), "still on credit");
        assert_eq!((pair.sent(), pair.begin(5_000)), (4, Err(25_200)));
        assert!(Pair::resumed(1_000, 1_200, 3).is_idle(19_200));
        let mut all = Throughput::after_restart(5);
        assert_eq!((0..100).filter(|_| all.begin(5).is_ok()).count(), 20);
    }

    #[test]
    fn turns_count_before_they_are_used() {
        let mut pair = Pair::default();
        assert!((0..20).all(|_| pair.turn(0).is_ok()));
        assert!(pair.turn(0).is_err());
        assert!((0..20).all(|_| pair.begin(50).is_ok()));
        assert!(pair.turn(130_000).is_ok(), "the debt is paid");
    }
}
