//! What a daemon knows of the stored asks when it takes the lead: it is opened anew, and need not read again what it has followed so far. So how
//! long that takes does not depend on how many outcomes are kept.

use super::Broker;
use super::index::Index;
use crate::host::store::{Reached, Store};
use std::time::Duration;

/// Asks that are gone are told of for 10 minutes. Who has not looked for about as long may have missed one.
const TOLD: Duration = Duration::from_secs(300);

/// What a run knows of the stored asks.
#[derive(Debug)]
pub struct Known {
    index: Index,
    reached: Reached,
}

impl Known {
    /// The index to begin with, if this store can go on from there.
    pub(super) fn go_on(self, store: &dyn Store) -> Option<Index> {
        let goes_on = store.shared().is_some_and(|shared| shared.go_on_from(&self.reached));
        goes_on.then_some(self.index)
    }
}

impl Broker {
    /// What this run knows, for the one that follows it in this process; `None`: that has to read everything. This run has ended, and knows
    /// nothing from then on.
    pub(in crate::host) fn pass_on(&self) -> Option<Known> {
        let (shared, beside) = (self.0.store.shared()?, &self.0.beside);
        let all_learned = beside.looked.try_lock().is_ok_and(|looked| looked.all_learned);
        let is_recent = beside.seen.lock().is_some_and(|seen| beside.clock.monotonic().since(seen) < TOLD);
        let mut index = self.index();
        if !(self.is_loaded() && all_learned && is_recent && index.is_whole()) {
            return None;
        }
        // What a step has stored that did not end in time, and whose ask this does not know yet, is in the table of what is under way.
        let index = std::mem::take(&mut *index).carried(self.clock().now());
        Some(Known { index, reached: shared.reached() })
    }
}
