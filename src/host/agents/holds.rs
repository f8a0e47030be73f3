//! Which taker has been sent an outcome and has not said yet that it has it: for a minute another one does not get it.

use crate::clock::Moment;
use askd_core::{Group, RequestId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long an outcome is held for the taker that it was sent to.
const HELD: Duration = Duration::from_secs(60);

type Key = (Group, RequestId);

/// All holds. A start of the daemon forgets them: the record says who has taken what.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<HashMap<Key, (String, Moment)>>);

impl Holds {
    /// Holds an outcome for this taker, or says how long another one has it.
    pub(super) fn hold(&self, of: &Key, taker: &str, now: Moment) -> Result<(), Duration> {
        let mut holds = self.0.lock();
        if let Some(left) = left(&holds, of, taker, now) {
            return Err(left);
        }
        // Only outcomes of the last minute are in it.
        if holds.len().is_power_of_two() {
            holds.retain(|_, (_, until)| now < *until);
        }
        holds.insert(of.clone(), (taker.to_owned(), now + HELD));
        Ok(())
    }

    /// Whether another taker has it now.
    pub(super) fn is_anothers(&self, of: &Key, taker: &str, now: Moment) -> bool {
        left(&self.0.lock(), of, taker, now).is_some()
    }
}

fn left(holds: &HashMap<Key, (String, Moment)>, of: &Key, taker: &str, now: Moment) -> Option<Duration> {
    let (holder, until) = holds.get(of)?;
    let left = until.since(now);
    (holder != taker && !left.is_zero()).then_some(left)
}
