//! The asks of some groups, and those that are due.

use super::entries::Entry;
use super::{Index, due};
use crate::host::broker::lying::Lying;
use askd_core::{AskId, Group, Time};
use std::collections::HashSet;

impl Index {
    /// Whether it has ever known an ask of this group.
    pub(in crate::host::broker) fn knows(&self, group: &Group) -> bool {
        self.groups.known(group).is_some()
    }

    /// All groups of which it has ever known an ask.
    pub(in crate::host::broker) fn every_group(&self) -> Vec<Group> {
        self.groups.all().cloned().collect()
    }

    /// The asks of a group of which something is not over, or of which something lies in its folder.
    pub(in crate::host::broker) fn reaching(&self, group: &Group) -> Vec<AskId> {
        self.reaching_of(&HashSet::from([group]))
    }

    /// The same of several groups.
    pub(in crate::host::broker) fn reaching_of(&self, groups: &HashSet<&Group>) -> Vec<AskId> {
        let reaches = |entry: &Entry| !entry.is_done() || self.lying.get(&entry.id()).is_some_and(Lying::lies);
        self.of_groups(groups, reaches)
    }

    /// The settled asks of these groups of which something is not over.
    pub(in crate::host::broker) fn unfinished_outcomes_of(&self, groups: &HashSet<&Group>) -> Vec<AskId> {
        self.of_groups(groups, |entry| entry.is_settled() && !entry.is_done())
    }

    fn of_groups(&self, groups: &HashSet<&Group>, wanted: impl Fn(&Entry) -> bool) -> Vec<AskId> {
        let numbers: HashSet<_> = groups.iter().filter_map(|group| self.groups.known(group)).collect();
        if numbers.is_empty() {
            return Vec::new();
        }
        let of_groups = self.entries.iter().filter(|entry| numbers.contains(&entry.group()));
        of_groups.filter(|entry| wanted(entry)).map(Entry::id).collect()
    }

    /// When something is due next.
    pub(in crate::host::broker) fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::MAX, |slot| self.entries[slot].deadline())
    }

    /// What is due. It comes back with the deadline of the step it leads to; or, in a group that this daemon does not hold, once it does.
    pub(in crate::host::broker) fn take_due(&mut self, now: Time, holds: impl Fn(&Group) -> bool) -> Vec<AskId> {
        let mut found = Vec::new();
        while let Some(slot) = self.deadlines.first().filter(|slot| self.entries[*slot].deadline() <= now) {
            self.deadlines.remove(slot, due(&self.entries));
            let entry = &self.entries[slot];
            if holds(&self.group_of(entry)) {
                found.push(entry.id());
            } else {
                self.passed.insert(slot);
            }
        }
        found
    }

    /// Has come back what was due in groups that this daemon holds from now on.
    pub(in crate::host::broker) fn wake(&mut self, holds: impl Fn(&Group) -> bool) {
        let passed = std::mem::take(&mut self.passed);
        for slot in passed {
            if holds(&self.group_of(&self.entries[slot])) {
                self.deadlines.insert(slot, due(&self.entries));
            } else {
                self.passed.insert(slot);
            }
        }
    }
}
