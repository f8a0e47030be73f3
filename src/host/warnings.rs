//! Warnings that others can cause as often as they like. The first is logged at once and in full; the rest are counted
//! and logged in one line a minute. The caller logs the first; [`Warnings::tell`] is called every few seconds.

use crate::clock::{Clock, Moment};
use askd_core::Group;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// How many causes are counted separately. Beyond that, the causes of a group are counted together.
const MOST_CAUSES: usize = 1_000;
/// The cause to count under when there are too many causes.
const OTHERS: &str = "other warnings";

/// Counts warnings. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Warnings {
    clock: Clock,
    counts: Arc<Mutex<HashMap<Cause, Count>>>,
}

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Cause {
    group: Option<Group>,
    what: String,
}

#[derive(Debug)]
struct Count {
    since: Moment,
    times: u64,
}

impl Warnings {
    /// None so far.
    pub fn new(clock: Clock) -> Self {
        Self { clock, counts: Arc::default() }
    }

    /// Counts a warning. `true` if the caller has to log it now, because it is the first of its cause for a minute.
    #[must_use]
    pub fn is_first(&self, group: Option<&Group>, what: &str) -> bool {
        let mut counts = self.counts.lock();
        let mut cause = Cause { group: group.cloned(), what: what.to_owned() };
        if counts.len() >= MOST_CAUSES && !counts.contains_key(&cause) {
            OTHERS.clone_into(&mut cause.what);
        }
        let mut first = false;
        let now = self.clock.monotonic();
        let count = counts.entry(cause).or_insert_with(|| {
            first = true;
            Count { since: now, times: 0 }
        });
        count.times += 1;
        first
    }

    /// Logs the counts of the minutes that are over.
    pub fn tell(&self) {
        for (Cause { group, what }, times) in self.over() {
            let group = group.as_ref().map(tracing::field::display);
            tracing::warn!(group, "{what} ({} times in the last minute)", with_commas(times));
        }
    }

    /// The counts of the minutes that are over, if there was more than the one warning that was logged.
    fn over(&self) -> Vec<(Cause, u64)> {
        let now = self.clock.monotonic();
        let mut over = Vec::new();
        let mut counts = self.counts.lock();
        counts.retain(|cause, count| {
            if now.since(count.since) < MINUTE {
                return true;
            }
            if count.times > 1 {
                over.push((cause.clone(), count.times));
            }
            false
        });
        over
    }
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::Time;

    #[test]
    fn one_is_logged_at_once_and_the_rest_once_a_minute() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let (warnings, group): (_, Group) = (Warnings::new(clock), "g".parse().unwrap());
        assert!(warnings.is_first(None, "unsigned") && warnings.is_first(Some(&group), "unsigned"));
        for _ in 1..23_600 {
            assert!(!warnings.is_first(None, "unsigned"));
        }
        hand.advance(Duration::from_secs(59));
        assert!(warnings.over().is_empty());
        hand.advance(Duration::from_secs(1));
        let over = warnings.over();
        assert_eq!(over.len(), 1, "what came once was logged: {over:?}");
        assert_eq!((over[0].0.group.as_ref(), over[0].1), (None, 23_600));
        assert!(warnings.is_first(None, "unsigned"), "a new minute");
    }

    #[test]
    fn made_up_causes_have_an_end() {
        let (clock, _hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let warnings = Warnings::new(clock);
        let logged = (0..5_000).filter(|number| warnings.is_first(None, &number.to_string())).count();
        assert_eq!(logged, MOST_CAUSES + 1);
    }

    #[test]
    fn large_numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (23_600, "23,600"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }
}
