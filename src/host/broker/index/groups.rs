//! The groups, by their numbers: how many asks of each are open, how many came lately, and which outcomes are kept.

use super::entries::{Entries, Entry};
use super::tables::Ordered;
use super::{Slot, in_time};
use askd_core::{Ask, AskId, Group, Time};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How many outcomes of a group are kept at most, beside answers that its agent has not read yet.
const MOST_KEPT: usize = 5_000;
/// New asks are counted over this long.
const HOUR: Duration = Duration::from_secs(3600);
/// What lies further ahead of now was asked before the clock was set back: the clocks of several daemons differ by less.
const AHEAD: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Groups {
    counts: Vec<Counts>,
    numbers: HashMap<Group, u32>,
}

#[derive(Debug)]
struct Counts {
    name: Arc<Group>,
    open: u32,
    /// How many asks were accepted in each second of the last hour.
    asked: BTreeMap<Time, u32>,
    /// Asks of which nothing is left but an outcome that is kept, by the time at which they were settled. Answers that the
    /// agent has not read yet are not among them: they stay for the time of their rules.
    kept: Ordered,
}

/// The second in which an ask was asked.
fn second(ask: &Ask) -> Time {
    Time::from_millis(ask.created_at.as_millis().div_euclid(1000) * 1000)
}

impl Groups {
    /// The number of a group, which has one from now on.
    pub(super) fn number(&mut self, group: &Group) -> u32 {
        if let Some(number) = self.known(group) {
            return number;
        }
        let number = u32::try_from(self.counts.len()).unwrap_or(u32::MAX);
        let name = Arc::new(group.clone());
        self.counts.push(Counts { name, open: 0, asked: BTreeMap::new(), kept: Ordered::default() });
        self.numbers.insert(group.clone(), number);
        number
    }

    /// The number of a group that has one.
    pub(super) fn known(&self, group: &Group) -> Option<u32> {
        self.numbers.get(group).copied()
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Group> {
        self.counts.iter().map(|counts| &*counts.name)
    }

    fn counts(&mut self, entry: &Entry) -> &mut Counts {
        &mut self.counts[entry.group() as usize]
    }

    /// The group of an ask.
    pub(super) fn name(&self, entry: &Entry) -> Arc<Group> {
        Arc::clone(&self.counts[entry.group() as usize].name)
    }

    /// Counts an ask.
    pub(super) fn add(&mut self, ask: &Ask, entry: &Entry) {
        let counts = self.counts(entry);
        counts.open += u32::from(!entry.is_settled());
        // What is loaded at a start is in no order.
        let newest = counts.asked.last_key_value().map(|(newest, _)| *newest);
        if ask.block().is_none() && newest.is_none_or(|newest| ask.created_at + HOUR > newest) {
            *counts.asked.entry(second(ask)).or_default() += 1;
        }
    }

    /// An ask is not open any more.
    pub(super) fn end(&mut self, entry: &Entry) {
        let counts = self.counts(entry);
        counts.open = counts.open.saturating_sub(1);
    }

    /// An ask was never asked.
    pub(super) fn take_back(&mut self, ask: &Ask) {
        let number = self.number(&ask.group);
        let asked = &mut self.counts[number as usize].asked;
        if ask.block().is_none()
            && let Some(count) = asked.get_mut(&second(ask))
        {
            *count = count.saturating_sub(1);
        }
    }

    /// Only an outcome is left of an ask.
    pub(super) fn keep(&mut self, slot: Slot, entries: &Entries) {
        self.counts(&entries[slot]).kept.insert(slot, in_time(entries));
    }

    /// Its outcome is not kept any more, or not at this place.
    pub(super) fn drop(&mut self, slot: Slot, entries: &Entries) {
        self.counts(&entries[slot]).kept.remove(slot, in_time(entries));
    }

    /// How many asks of a group are open, and how many came within the last hour.
    pub(super) fn load(&mut self, group: &Group, now: Time) -> (u32, u32) {
        let number = self.number(group);
        let counts = &mut self.counts[number as usize];
        let an_hour_ago = now - HOUR;
        counts.asked.retain(|asked, _| *asked > an_hour_ago && *asked < now + AHEAD);
        (counts.open, counts.asked.values().sum())
    }

    /// The oldest kept outcomes of a group, as many as there are too many. Unread answers are not among them.
    pub(super) fn crowded(&self, group: &Group, entries: &Entries) -> Vec<AskId> {
        let Some(number) = self.known(group) else { return Vec::new() };
        let kept = &self.counts[number as usize].kept;
        let too_many = kept.len().saturating_sub(MOST_KEPT);
        kept.iter().take(too_many).map(|slot| entries[slot].id()).collect()
    }

    /// The same of all groups.
    pub(super) fn all_crowded(&self, entries: &Entries) -> Vec<AskId> {
        self.numbers.keys().flat_map(|group| self.crowded(group, entries)).collect()
    }

    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.counts.iter().all(|group| group.open == 0 && group.kept.is_empty())
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.counts.iter().map(|group| group.kept.bytes()).sum()
    }
}
