//! Which taker has been sent an outcome or a briefing and has not said yet that it has it: for a while another one does not get it.
//! Where several daemons share the records, these holds are rows (`Broker::hold_for`), and nothing is kept here.

use crate::clock::Moment;
use askd_core::{AskId, Group, RequestId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

/// How long an outcome is held for the taker that it was sent to.
const HELD: Duration = Duration::from_secs(60);
/// How long a briefing is: it only has to be printed. Another `askd briefing` waits that long.
const BRIEFING_HELD: Duration = Duration::from_secs(15);

/// All holds. A start of the daemon forgets them: the record says who has taken what.
#[derive(Debug)]
pub struct Holds<Id = RequestId> {
    /// What they hold.
    kind: &'static str,
    held: Duration,
    takers: Mutex<Takers<Id>>,
}

type Takers<Id> = HashMap<(Group, Id), (String, Moment)>;

impl Default for Holds {
    fn default() -> Self {
        Self { kind: "outcome", held: HELD, takers: Mutex::default() }
    }
}

impl Default for Holds<AskId> {
    fn default() -> Self {
        Self { kind: "briefing", held: BRIEFING_HELD, takers: Mutex::default() }
    }
}

impl<Id: Clone + Eq + Hash + Display> Holds<Id> {
    /// How long they hold.
    pub const fn time(&self) -> Duration {
        self.held
    }

    /// What one of them is called where all daemons see it.
    pub fn name(&self, (group, id): &(Group, Id)) -> String {
        format!("{} {group} {id}", self.kind)
    }

    /// Holds these for this taker, or says how long another one has one of them, and then holds none.
    pub fn hold(&self, all: &[(Group, Id)], taker: &str, now: Moment) -> Result<(), Duration> {
        let mut holds = self.takers.lock();
        if let Some(left) = all.iter().find_map(|of| left(&holds, of, taker, now)) {
            return Err(left);
        }
        // Only what was sent within the last minute is in it.
        if holds.len().is_power_of_two() {
            holds.retain(|_, (_, until)| now < *until);
        }
        holds.extend(all.iter().map(|of| (of.clone(), (taker.to_owned(), now + self.held))));
        Ok(())
    }

    /// It did not reach this taker: another one may have it at once.
    pub fn release(&self, of: &(Group, Id), taker: &str) {
        let mut holds = self.takers.lock();
        if holds.get(of).is_some_and(|(holder, _)| holder == taker) {
            holds.remove(of);
        }
    }
}

fn left<Id: Eq + Hash>(holds: &Takers<Id>, of: &(Group, Id), taker: &str, now: Moment) -> Option<Duration> {
    let (holder, until) = holds.get(of)?;
    let left = until.since(now);
    (holder != taker && !left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use askd_core::Time;

    #[test]
    fn each_call_of_the_holder_begins_its_minute_anew_and_then_another_taker_has_its_turn() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let (holds, of) = (Holds::<RequestId>::default(), ("g".parse().unwrap(), "r".parse().unwrap()));
        let hold = |taker| holds.hold(std::slice::from_ref(&of), taker, clock.monotonic());
        assert_eq!(hold("one"), Ok(()));
        hand.advance(HELD / 2);
        assert_eq!((hold("one"), hold("other")), (Ok(()), Err(HELD)));
        hand.advance(HELD * 3 / 4);
        assert_eq!(hold("other"), Err(HELD / 4));
        let both = [("g".parse().unwrap(), "s".parse().unwrap()), of.clone()];
        assert_eq!(holds.hold(&both, "other", clock.monotonic()), Err(HELD / 4));
        assert_eq!(holds.hold(&both[..1], "one", clock.monotonic()), Ok(()), "all or none");
        hand.advance(HELD / 4);
        assert_eq!((hold("other"), hold("one")), (Ok(()), Err(HELD)));
        holds.release(&of, "one");
        assert_eq!(hold("one"), Err(HELD), "it is not its own");
        holds.release(&of, "other");
        assert_eq!(hold("one"), Ok(()));
    }
}
