//! What memory holds of each ask: 48 bytes, in a slot that another ask takes when it is forgotten.

use super::Slot;
use crate::ipc::wire::{self, STATUSES};
use askd_core::{Ask, AskId, Outcome, ShortId, Stage, Time};
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};
use std::num::{NonZeroU8, NonZeroU16};

/// What is known of an ask without its record. Numbers are bytes, so that nothing lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    id: [u8; 16],
    code: Small,
    created: Small,
    at: Small,
    deadline: Small,
    group: [u8; 4],
    /// How far the clock had been set when its times were written, by its number in the index.
    pub(super) clock: NonZeroU16,
    /// How it ended, if it has.
    status: Option<Ended>,
    marks: u8,
}

/// A number below 2^48.
type Small = [u8; 6];

/// No call took its outcome.
const UNTAKEN: u8 = 1;
/// It can still be answered after the timeout.
const LATE: u8 = 1 << 1;
/// A block that stands.
const BLOCKED: u8 = 1 << 2;
/// It has to follow a clock that is set.
const COUNTS_TIME: u8 = 1 << 3;
/// It counts as an attempt, unless its question was answered or allowed again since.
const COUNTS: u8 = 1 << 4;
/// A person answered it, in time or late.
const ANSWERED: u8 = 1 << 5;
/// Something is not over.
const WORK: u8 = 1 << 6;
/// Words of a person that its agent has not read yet.
const UNREAD: u8 = 1 << 7;

/// A position in [`STATUSES`], from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ended(NonZeroU8);

/// How many milliseconds before 1970 the first time is that is kept whole: some 550 years. The last is after the year 9999.
const BEFORE: i64 = 1 << 44;
const LAST: i64 = (1 << 48) - 1 - BEFORE;

const fn small(number: u64) -> Small {
    let [_, _, small @ ..] = number.to_be_bytes();
    small
}

const fn number(small: Small) -> u64 {
    let mut bytes = [0; 8];
    bytes.split_at_mut(2).1.copy_from_slice(&small);
    u64::from_be_bytes(bytes)
}

fn packed(time: Time) -> Small {
    small((time.as_millis().clamp(-BEFORE, LAST) + BEFORE).cast_unsigned())
}

const fn time(packed: Small) -> Time {
    match number(packed).cast_signed() - BEFORE {
        LAST => Time::MAX,
        millis => Time::from_millis(millis),
    }
}

/// A code as a number, each another one: it has at most 8 letters and digits.
pub(super) fn code_number(code: &ShortId) -> u64 {
    code.as_str()
        .bytes()
        .filter_map(|sign| char::from(sign).to_digit(36))
        .fold(0, |n, digit| n * 37 + u64::from(digit) + 1)
}

impl Entry {
    /// What is known of this ask.
    pub(super) fn of(ask: &Ask, group: u32, clock: NonZeroU16) -> Self {
        let status = ask.outcome().and_then(|outcome| {
            let at = STATUSES.iter().position(|status| *status == wire::status(outcome).0)?;
            Some(Ended(NonZeroU8::new(u8::try_from(at + 1).ok()?)?))
        });
        let counts = matches!(ask.outcome(), None | Some(Outcome::TimedOut | Outcome::Dismissed { .. }));
        let marks = [
            (UNTAKEN, ask.is_untaken()),
            (LATE, ask.is_late_open()),
            (BLOCKED, ask.is_blocked()),
            (COUNTS_TIME, ask.counts_time()),
            (COUNTS, counts),
            (ANSWERED, answered_at(ask).is_some()),
            (WORK, !ask.is_done_with()),
            (UNREAD, ask.has_unread_words()),
        ];
        Self {
            id: ask.id.to_bits().to_be_bytes(),
            code: small(code_number(&ask.short_id)),
            created: packed(ask.created_at),
            at: packed(ask.settled_at().unwrap_or(ask.created_at)),
            deadline: packed(ask.deadline()),
            group: group.to_be_bytes(),
            clock,
            status,
            marks: marks.iter().filter(|(_, is_so)| *is_so).fold(0, |marks, (mark, _)| marks | mark),
        }
    }

    pub(super) const fn id(&self) -> AskId {
        AskId::from_bits(u128::from_be_bytes(self.id))
    }

    /// Its code, as a number.
    pub(super) const fn code(&self) -> u64 {
        number(self.code)
    }

    pub(super) const fn created(&self) -> Time {
        time(self.created)
    }

    /// When it was settled or, while it is open, when it was asked.
    pub(super) const fn at(&self) -> Time {
        time(self.at)
    }

    pub(super) const fn deadline(&self) -> Time {
        time(self.deadline)
    }

    /// Its group, by its number in the index.
    pub(super) const fn group(&self) -> u32 {
        u32::from_be_bytes(self.group)
    }

    const fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// It can still be answered after the timeout.
    pub(super) const fn is_late(&self) -> bool {
        self.has(LATE)
    }

    /// A block that stands.
    pub(super) const fn is_blocked(&self) -> bool {
        self.has(BLOCKED)
    }

    /// It has to follow a clock that is set.
    pub(super) const fn counts_time(&self) -> bool {
        self.has(COUNTS_TIME)
    }

    /// It counts as an attempt, unless its question was answered or allowed again since.
    pub(super) const fn counts(&self) -> bool {
        self.has(COUNTS)
    }

    /// A person answered it, in time or late.
    pub(super) const fn is_answered(&self) -> bool {
        self.has(ANSWERED)
    }

    /// Whether nothing is left of it but what is kept.
    pub(super) const fn is_done(&self) -> bool {
        !self.has(WORK)
    }

    /// Whether nothing is left of it but an outcome that is kept, and no words of a person that its agent has not read yet.
    pub(super) const fn is_outcome(&self) -> bool {
        !self.has(WORK) && !self.has(UNREAD)
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
        self.has(UNTAKEN) || self.has(LATE)
    }

    /// A person said something that no agent has collected. What was withdrawn is not there to be collected.
    pub(super) fn is_uncollected(&self) -> bool {
        self.has(UNTAKEN) && (self.has(ANSWERED) || self.status() == Some("cancelled"))
    }

    /// It is settled, and it can still be answered, is blocked, or has an outcome that no agent has collected.
    pub(super) const fn is_wanting(&self) -> bool {
        self.is_kept() || self.has(BLOCKED)
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

    /// The entries of so many slots from that one on; `None`: there are no further ones.
    pub(super) fn within(&self, from: usize, slots: usize) -> Option<impl Iterator<Item = &Entry>> {
        let rest = self.slots.get(from..).filter(|rest| !rest.is_empty())?;
        Some(rest.iter().take(slots).flatten())
    }

    /// Where asks are.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..).zip(&self.slots).filter_map(|(slot, entry)| entry.map(|_| slot))
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
    pub(super) fn placed(id: AskId, at: Time, settled: bool, wanting: bool) -> Self {
        let (code, group, clock, at) = (small(0), [0; 4], NonZeroU16::MIN, packed(at));
        let status = settled.then_some(Ended(NonZeroU8::MIN));
        let marks = if wanting { UNTAKEN } else { 0 } | if settled { 0 } else { WORK };
        Self { id: id.to_bits().to_be_bytes(), code, created: at, at, deadline: at, group, clock, status, marks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Option<Entry>>(), 48);
    }

    #[test]
    fn times_and_codes_are_kept_whole() {
        for millis in [-17_000_000_000_000, -1, 0, 1, 1_790_000_000_123, 253_402_300_799_999, i64::MAX] {
            assert_eq!(time(packed(Time::from_millis(millis))).as_millis(), millis);
        }
        assert!(packed(Time::from_millis(-1)) < packed(Time::from_millis(0)));
        let codes = ["aa", "a0", "b0", "a00", "0a", "z9", "a0000000", "zzzzzzzz", "zzzzzzz"];
        let codes: Vec<ShortId> = codes.iter().filter_map(|code| code.parse().ok()).collect();
        let numbers: BTreeSet<u64> = codes.iter().map(code_number).collect();
        assert_eq!(numbers.len(), codes.len(), "each is another number");
        assert!(numbers.iter().all(|one| number(small(*one)) == *one));
    }
}
