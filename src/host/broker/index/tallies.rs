//! What an operator wants to know of all asks at once, counted anew for each reader.

use super::Index;
use crate::host::broker::overview::Tally;
use askd_core::{AskId, Group, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is counted, and asks that need attention with the time at which they were settled.
#[derive(Debug, Default)]
pub(in crate::host::broker) struct Tallies {
    /// Of each group that has asked.
    pub(in crate::host::broker) groups: BTreeMap<Arc<Group>, Tally>,
    /// Asks that a person answered or dismissed, which no agent has collected.
    pub(in crate::host::broker) uncollected: Vec<(Time, AskId)>,
    /// Asks that are not done with.
    pub(in crate::host::broker) unfinished: Vec<(Time, AskId)>,
}

impl Index {
    /// How many asks are open, and how many are settled.
    pub(in crate::host::broker) fn count(&self) -> (usize, usize) {
        let settled = self.entries.iter().filter(|entry| entry.is_settled()).count();
        (self.entries.iter().count() - settled, settled)
    }

    /// Counts all asks.
    pub(in crate::host::broker) fn tallies(&self) -> Tallies {
        let mut found = Tallies::default();
        for entry in self.entries.iter() {
            let tally = found.groups.entry(self.groups.name(entry)).or_default();
            tally.asked = tally.asked.max(Some(entry.created()));
            if !entry.is_settled() {
                tally.open += 1;
                continue;
            }
            if entry.is_uncollected() {
                tally.uncollected += 1;
                found.uncollected.push((entry.at(), entry.id()));
            }
            if !entry.is_done() {
                found.unfinished.push((entry.at(), entry.id()));
            }
        }
        found
    }
}
