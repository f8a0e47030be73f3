//! What memory holds of each ask: 56 bytes, in a slot that another ask takes when it is forgotten.

use super::Slot;
use crate::ipc::wire::{self, STATUSES};
use askd_core::{Ask, AskId, Outcome, Stage, Time};
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU8;

/// What is known of an ask without its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else, and any of them go together")]
pub(super) struct Entry {
    /// Two halves of its id: an id alone would be aligned to 16 bytes.
    id: [u64; 2],
    pub(super) created: Time,
    /// When it was settled or, while it is open, when it was asked.
    pub(super) at: Time,
    pub(super) deadline: Time,
    /// Its group, and how far the clock had been set when its times were written, by their numbers in the index.
    pub(super) group: u32,
    pub(super) clock: u32,
    /// How it ended, if it has.
    status: Option<Ended>,
    /// No call took its outcome.
    pub(super) untaken: bool,
    /// It can still be answered after the timeout.
    pub(super) late: bool,
    /// A block that stands.
    pub(super) blocked: bool,
    /// It has to follow a clock that is set.
    pub(super) counts_time: bool,
    /// It counts as an attempt, unless its question was answered or allowed again since.
    pub(super) counts: bool,
    /// A person answered it, in time or late.
    pub(super) answered: bool,
    /// What is left of it.
    pub(super) left: Left,
}

/// What is left of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Something is not over.
    Work,
    /// Words of a person that its agent has not read yet.
    Unread,
    /// An outcome that is kept.
    Outcome,
}

/// A position in [`STATUSES`], from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ended(NonZeroU8);

impl Entry {
    /// What is known of this ask.
    pub(super) fn of(ask: &Ask, group: u32, clock: u32) -> Self {
        let status = ask.outcome().and_then(|outcome| {
            let at = STATUSES.iter().position(|status| *status == wire::status(outcome).0)?;
            Some(Ended(NonZeroU8::new(u8::try_from(at + 1).ok()?)?))
        });
        let id = ask.id.to_bits();
        #[expect(clippy::cast_possible_truncation, reason = "it is cut in two")]
        let id = [(id >> 64) as u64, id as u64];
        Self {
            id,
            created: ask.created_at,
            at: ask.settled_at().unwrap_or(ask.created_at),
            deadline: ask.deadline(),
            group,
            clock,
            status,
            untaken: ask.is_untaken(),
            late: ask.is_late_open(),
            blocked: ask.is_blocked(),
            counts_time: ask.counts_time(),
            counts: matches!(ask.outcome(), None | Some(Outcome::TimedOut | Outcome::Dismissed { .. })),
            answered: answered_at(ask).is_some(),
            left: match (ask.is_done_with(), ask.has_unread_words()) {
                (false, _) => Left::Work,
                (true, true) => Left::Unread,
                (true, false) => Left::Outcome,
            },
        }
    }

    pub(super) fn id(&self) -> AskId {
        AskId::from_bits(u128::from(self.id[0]) << 64 | u128::from(self.id[1]))
    }

    /// Whether nothing is left of it but what is kept.
    pub(super) fn is_done(&self) -> bool {
        self.left != Left::Work
    }

    pub(super) const fn is_settled(&self) -> bool {
        self.status.is_some()
    }

    /// How it ended, as a response says it.
    pub(super) fn status(&self) -> Option<&'static str> {
        self.status.and_then(|Ended(at)| STATUSES.get(usize::from(at.get()) - 1)).copied()
    }

    /// A call that asks the same again is given its outcome.
    pub(super) const fn is_kept(&self) -> bool {
        self.untaken || self.late
    }

    /// A person said something that no agent has collected. What was withdrawn is not there to be collected.
    pub(super) fn is_uncollected(&self) -> bool {
        self.untaken && (self.answered || self.status() == Some("cancelled"))
    }

    /// It is settled, and it can still be answered, is blocked, or has an outcome that no agent has collected.
    pub(super) const fn is_wanting(&self) -> bool {
        self.is_kept() || self.blocked
    }
}

/// When a person answered an ask, in time or late.
pub(super) fn answered_at(ask: &Ask) -> Option<Time> {
    match &ask.stage {
        Stage::Settled { outcome: Outcome::Answered { .. }, at, .. } => Some(*at),
        _ => ask.late_outcome().map(|(_, at)| at),
    }
}

/// All asks.
#[derive(Debug, Default)]
pub(super) struct Entries {
    slots: Vec<Option<Entry>>,
    free: Vec<Slot>,
    ids: HashTable<Slot>,
    hash: RandomState,
}

impl std::ops::Index<Slot> for Entries {
    type Output = Entry;
    /// The entry of a slot that some table names.
    ///
    /// # Panics
    ///
    /// If no ask is there: every table forgets an ask before its slot is free.
    #[expect(clippy::expect_used, reason = "every table forgets an ask before its slot is free")]
    fn index(&self, slot: Slot) -> &Entry {
        self.slots[slot as usize].as_ref().expect("an ask in a slot that a table names")
    }
}

impl Entries {
    /// Makes room for so many asks at once.
    pub(super) fn reserve(&mut self, asks: usize) {
        let Self { slots, ids, hash, .. } = self;
        slots.reserve(asks);
        ids.reserve(asks, |slot| slots[*slot as usize].map_or(0, |entry| hash.hash_one(entry.id())));
    }

    /// Where an ask is.
    pub(super) fn slot(&self, id: AskId) -> Option<Slot> {
        self.ids.find(self.hash.hash_one(id), |slot| self[*slot].id() == id).copied()
    }

    pub(super) fn get(&self, id: AskId) -> Option<&Entry> {
        self.slot(id).map(|slot| &self[slot])
    }

    /// The entry of a slot, if an ask is there.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Takes in an ask that is not there.
    pub(super) fn add(&mut self, entry: Entry) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
        });
        self.slots[slot as usize] = Some(entry);
        let Self { slots, ids, hash, .. } = self;
        let of = |slot: &Slot| slots[*slot as usize].map_or(0, |entry| hash.hash_one(entry.id()));
        ids.insert_unique(of(&slot), slot, of);
        slot
    }

    /// Changes what is known of an ask; its id stays.
    pub(super) fn set(&mut self, slot: Slot, entry: Entry) {
        self.slots[slot as usize] = Some(entry);
    }

    /// Drops an ask, which no table names any more.
    pub(super) fn drop(&mut self, slot: Slot) {
        let id = self[slot].id();
        if let Ok(known) = self.ids.find_entry(self.hash.hash_one(id), |known| *known == slot) {
            known.remove();
        }
        self.slots[slot as usize] = None;
        self.free.push(slot);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.slots.as_slice()) + self.ids.allocation_size()
    }
}

#[cfg(test)]
impl Entry {
    /// An ask of which only its place in the list matters.
    pub(super) const fn at(id: AskId, at: Time, settled: bool, wanting: bool) -> Self {
        let id = id.to_bits();
        #[expect(clippy::cast_possible_truncation, reason = "it is cut in two")]
        let id = [(id >> 64) as u64, id as u64];
        let status = if settled { Some(Ended(NonZeroU8::MIN)) } else { None };
        let (untaken, late, blocked, counts_time, counts, answered) = (wanting, false, false, false, false, false);
        let (created, deadline, group, clock) = (at, at, 0, 0);
        let left = if settled { Left::Outcome } else { Left::Work };
        Self {
            id,
            created,
            at,
            deadline,
            group,
            clock,
            status,
            untaken,
            late,
            blocked,
            counts_time,
            counts,
            answered,
            left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Option<Entry>>(), 56);
    }
}
