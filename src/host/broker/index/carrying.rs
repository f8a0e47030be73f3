//! An index that a run was handed by the run before it in the same process. While the new run reads the stored asks, each of them counts as
//! not read until it has read that one itself; those that it need not read are known without.

use super::{By, Index, due};
use askd_core::{AskId, Group, Time};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Deadlines this far ahead were not taken out by the run before, however the clock has been set.
const AHEAD: Duration = Duration::from_secs(3600);

impl Index {
    /// Whether whoever follows can go on with it: an ask that is being stored may never be.
    pub(in crate::host::broker) fn is_whole(&self) -> bool {
        self.unstored.is_empty()
    }

    /// The same for the run that follows, which has read nothing yet. What was due comes back: nobody knows whether anything was done about it.
    pub(in crate::host::broker) fn carried(mut self, now: Time) -> Self {
        let passed = std::mem::take(&mut self.passed);
        let due_by_now = self.entries.slots().filter(|slot| self.entries[*slot].deadline() <= now + AHEAD);
        for slot in passed.into_iter().chain(due_by_now).collect::<Vec<_>>() {
            self.deadlines.insert(slot, due(&self.entries));
        }
        self.read = Some(HashSet::new());
        self
    }

    /// Whether it is carried, and not all that has to be read was.
    pub(in crate::host::broker) const fn is_carried(&self) -> bool {
        self.read.is_some()
    }

    /// Whether an ask is known that has not to be read any more.
    pub(in crate::host::broker) fn has_read(&self, id: AskId) -> bool {
        self.entries.slot(id).is_some() && self.read.as_ref().is_none_or(|read| read.contains(&id))
    }

    /// The group of such an ask.
    pub(in crate::host::broker) fn group_of_read(&self, id: AskId) -> Option<Arc<Group>> {
        self.group(id).filter(|_| self.has_read(id))
    }

    /// Whether it knows an ask with this key, by its name, that is newer. It finds one that is over only if one with the same key could still be
    /// answered late when that one was entered: no other call is given the outcome of either.
    pub(in crate::host::broker) fn has_newer(&self, key: u64, than: Time) -> bool {
        self.names[By::Key as usize].of(key).any(|slot| self.entries[slot].created() > than)
    }
}
