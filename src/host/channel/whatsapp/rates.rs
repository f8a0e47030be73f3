//! How fast people may be written to, so that Meta never has to refuse a message: one message every 6 seconds to one
//! person, some more at once on credit that is paid back in full, and a number of messages a second in all.
//!
//! Pure: times are milliseconds of any clock that only goes forward. Meta counts when a message arrives, which askd does
//! not see. So credit is used for less than the 6 seconds that Meta gives, and the debt counts from the end of the first
//! call.

use std::collections::{HashMap, VecDeque};

/// Milliseconds that one message to a person costs (Cloud API, pair rate limit).
const EVERY: u64 = 6_000;
/// How long after the first message more may follow on credit: less than the 6 s that Meta gives.
const CREDIT: u64 = 3_500;
/// How many messages may go at once. Meta gives 45; so large a debt would keep a person waiting for minutes.
const BURST: u64 = 20;
/// How many messages may go in all within [`SPAN`]: Meta takes 80 a second.
const AT_ONCE: usize = 60;
const SPAN: u64 = 1_100;
/// Messages a second that Meta takes.
const PER_SECOND: usize = 80;
/// A slot that was granted and not used within this time is free again.
const UNUSED: u64 = 30_000;
/// A call is over after this time for certain.
const LONGEST_CALL: u64 = 10_000;

/// What was sent lately, to each person and in all.
#[derive(Debug)]
pub(super) struct Rates {
    pairs: HashMap<String, Pair>,
    throughput: Throughput,
}

impl Rates {
    /// The rates after a restart: each person was sent so many messages since that time.
    pub(super) fn resumed(now: u64, bursts: impl Iterator<Item = (String, u64, u64)>) -> Self {
        let pairs = bursts.map(|(person, began, sent)| {
            (person, Pair { began: Some((began, now.min(began + LONGEST_CALL))), sent, ..Pair::default() })
        });
        Self { pairs: pairs.collect(), throughput: Throughput::after_restart(now) }
    }

    /// Grants a slot for a message to that person, or says when to ask again.
    pub(super) fn grant(&mut self, person: &str, now: u64) -> Result<(), u64> {
        self.pairs.entry(person.to_owned()).or_default().grant(now)
    }

    /// The number in its burst that a message to that person would have now; or when it may begin.
    pub(super) fn next(&self, person: &str, now: u64) -> Result<u64, u64> {
        let mut pair = self.pairs.get(person).cloned().unwrap_or_default();
        pair.begin(now).map(|()| pair.sent)
    }

    /// Begins a message to that person, or says when it may begin.
    pub(super) fn begin(&mut self, person: &str, now: u64) -> Result<(), u64> {
        let pair = self.pairs.entry(person.to_owned()).or_default();
        let mut begun = pair.clone();
        begun.begin(now)?;
        self.throughput.begin(now)?;
        *pair = begun;
        Ok(())
    }

    /// The call that began at `began` is over.
    pub(super) fn over(&mut self, person: &str, began: u64, now: u64) {
        if let Some(pair) = self.pairs.get_mut(person) {
            pair.over(began, now);
        }
        self.pairs.retain(|_, pair| !pair.is_idle(now));
    }
}

/// What one person was sent lately.
#[derive(Debug, Clone, Default)]
struct Pair {
    /// When the first message of the burst went out, and when its call was over.
    began: Option<(u64, u64)>,
    /// How many messages the burst has.
    sent: u64,
    /// When slots were granted that are not used yet.
    granted: VecDeque<u64>,
}

impl Pair {
    /// When the burst is paid back.
    fn paid(&self) -> Option<u64> {
        self.began.map(|(_, over)| over + self.sent * EVERY)
    }

    /// When the next message may go: now, or later.
    fn free_at(&self, now: u64) -> u64 {
        let (Some((began, _)), Some(paid)) = (self.began, self.paid()) else { return now };
        if now >= paid || (now < began + CREDIT && self.sent < BURST) { now } else { paid }
    }

    fn grant(&mut self, now: u64) -> Result<(), u64> {
        self.granted.retain(|granted| now < granted + UNUSED);
        // Slots that were granted will be used: they count as sent.
        let mut then = self.clone();
        for _ in 0..self.granted.len() {
            then.count(now);
        }
        let free = then.free_at(now);
        if free > now {
            return Err(free);
        }
        self.granted.push_back(now);
        Ok(())
    }

    /// Begins a message. It uses up a slot that was granted.
    fn begin(&mut self, now: u64) -> Result<(), u64> {
        let free = self.free_at(now);
        if free > now {
            return Err(free);
        }
        self.granted.pop_front();
        self.count(now);
        Ok(())
    }

    fn count(&mut self, now: u64) {
        if self.paid().is_none_or(|paid| now >= paid) {
            (self.began, self.sent) = (Some((now, now)), 0);
        }
        self.sent += 1;
    }

    /// The call is over: the debt counts from here, if the call was the first of the burst.
    fn over(&mut self, call: u64, now: u64) {
        if let Some((began, over)) = &mut self.began
            && *began == call
        {
            *over = now.max(*over);
        }
    }

    /// Whether nothing is owed any more, so that it can be forgotten.
    fn is_idle(&self, now: u64) -> bool {
        self.granted.iter().all(|granted| now >= granted + UNUSED) && self.paid().is_none_or(|paid| now >= paid)
    }
}

/// When messages were sent lately, to all people.
#[derive(Debug, Default)]
struct Throughput(VecDeque<u64>);

impl Throughput {
    /// What was sent just before a restart is not known: there is room for what Meta would take besides.
    fn after_restart(now: u64) -> Self {
        Self(std::iter::repeat_n(now, 2 * AT_ONCE - PER_SECOND).collect())
    }

    fn begin(&mut self, now: u64) -> Result<(), u64> {
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
        let resumed = || Rates::resumed(1_200, std::iter::once(("1".to_owned(), 1_000, 3)));
        let mut rates = resumed();
        assert_eq!(rates.next("1", 4_000), Ok(4), "still on credit");
        assert!(rates.begin("1", 4_000).is_ok());
        assert_eq!((rates.next("1", 5_000), rates.begin("1", 5_000)), (Err(25_200), Err(25_200)));
        assert!(resumed().pairs["1"].is_idle(19_200));
        let mut all = Throughput::after_restart(5);
        assert_eq!((0..100).filter(|_| all.begin(5).is_ok()).count(), 20);
    }

    #[test]
    fn slots_count_before_they_are_used() {
        let mut pair = Pair::default();
        assert!((0..20).all(|_| pair.grant(0).is_ok()));
        assert!(pair.grant(0).is_err());
        assert!((0..20).all(|_| pair.begin(50).is_ok()));
        assert!(pair.grant(130_000).is_ok(), "the debt is paid");
    }
}
