//! The order of the list of asks, and how far a reader has come in it.
//!
//! Open asks come first, the oldest at the top. Settled asks that still need attention follow (late answers, blocks,
//! outcomes that no agent has collected), then all other settled ones, both with the newest at the top. A reader goes
//! from the top to the end in pages. Meanwhile asks move only towards the end, with one exception: a settled ask may
//! need attention again. So each such ask also keeps its place among the others, and a reader who began earlier finds
//! it there. A page may therefore repeat an ask, but it never skips one.
//!
//! This module loads nothing and knows no filters. The index calls it.

use super::Slot;
use super::entries::{Entries, Entry};
use super::tables::Ordered;
use askd_core::AskId;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The parts of the list, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Open,
    Wanting,
    Settled,
}

/// A position in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::host::broker) struct Position {
    part: Part,
    order: i64,
    pub(in crate::host::broker) id: AskId,
}

/// How far a reader has come. Clients hand it back as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub(in crate::host::broker) began: Began,
    pub(in crate::host::broker) last: Position,
}

/// What was true when a reader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host::broker) struct Began {
    /// The run of the daemon that counted.
    life: u64,
    /// How often any ask had begun to need attention.
    count: u64,
    /// How many asks fitted.
    pub(in crate::host::broker) total: usize,
}

/// Every ask, in the order of the list.
#[derive(Debug)]
pub(super) struct Pages {
    open: Ordered,
    wanting: Ordered,
    settled: Ordered,
    /// For an ask that needs attention, the count at which that began.
    since: HashMap<Slot, u64>,
    count: u64,
    life: u64,
}

/// Where an ask stands in this part of the list.
fn position(entry: &Entry, part: Part) -> Position {
    let at = entry.at().as_millis();
    Position { part, order: if entry.is_settled() { -at } else { at }, id: entry.id() }
}

/// The same, for the asks of a table.
fn positions(entries: &Entries, part: Part) -> impl Fn(Slot) -> Position + Copy {
    move |slot| position(&entries[slot], part)
}

impl Pages {
    /// An empty list. `life` tells this run of the daemon from others.
    pub(super) fn new(life: u64) -> Self {
        let (open, wanting, settled) = Default::default();
        Self { open, wanting, settled, since: HashMap::new(), count: 0, life }
    }

    /// Whether an ask stays where it is with this change.
    pub(super) fn stays(before: &Entry, after: &Entry) -> bool {
        let place = |entry: &Entry| (entry.at(), entry.is_settled(), entry.is_wanting());
        place(before) == place(after)
    }

    /// Puts an ask in its place.
    pub(super) fn put(&mut self, slot: Slot, entries: &Entries) {
        if entries[slot].is_wanting() {
            self.begins_to_want(slot);
            self.wanting.insert(slot, positions(entries, Part::Wanting));
        }
        if entries[slot].is_settled() {
            self.settled.insert(slot, positions(entries, Part::Settled));
        } else {
            self.open.insert(slot, positions(entries, Part::Open));
        }
    }

    fn begins_to_want(&mut self, slot: Slot) {
        self.count += 1;
        self.since.insert(slot, self.count);
    }

    /// The same for many.
    pub(super) fn put_all(&mut self, slots: &[Slot], entries: &Entries) {
        let (settled, open): (Vec<_>, Vec<_>) = slots.iter().partition(|slot| entries[**slot].is_settled());
        let wanting: Vec<_> = settled.iter().copied().filter(|slot| entries[*slot].is_wanting()).collect();
        for slot in &wanting {
            self.begins_to_want(*slot);
        }
        self.open.insert_all(open, positions(entries, Part::Open));
        self.wanting.insert_all(wanting, positions(entries, Part::Wanting));
        self.settled.insert_all(settled, positions(entries, Part::Settled));
    }

    /// Takes an ask out, before anything of it changes.
    pub(super) fn drop(&mut self, slot: Slot, entries: &Entries) {
        self.since.remove(&slot);
        self.open.remove(slot, positions(entries, Part::Open));
        self.wanting.remove(slot, positions(entries, Part::Wanting));
        self.settled.remove(slot, positions(entries, Part::Settled));
    }

    /// How many asks are open.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        [&self.open, &self.wanting, &self.settled].map(Ordered::bytes).iter().sum()
    }

    /// What is true for a reader who begins now.
    pub(super) const fn begin(&self, total: usize) -> Began {
        Began { life: self.life, count: self.count, total }
    }

    /// All positions after `last` for a reader who `began` then, and what is known of the asks there.
    pub(super) fn after<'a>(
        &'a self,
        entries: &'a Entries,
        began: Began,
        last: Option<Position>,
    ) -> impl Iterator<Item = (&'a Entry, Position)> {
        // The count of another run of the daemon means nothing here, so all asks that need attention are repeated.
        let count = if began.life == self.life { began.count } else { 0 };
        let from = last.unwrap_or(Position { part: Part::Open, order: i64::MIN, id: AskId::from_bits(0) });
        let parts = [(&self.open, Part::Open), (&self.wanting, Part::Wanting), (&self.settled, Part::Settled)];
        let ahead = parts.into_iter().flat_map(move |(asks, part)| {
            let ahead = asks.from(from, positions(entries, part));
            ahead.map(move |slot| (slot, position(&entries[slot], part)))
        });
        let fresh = move |slot: &Slot| self.since.get(slot).is_none_or(|since| *since > count);
        let ahead = ahead.filter(move |(slot, at)| Some(*at) != last && (at.part != Part::Settled || fresh(slot)));
        ahead.map(|(slot, at)| (&entries[slot], at))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began: Began { life, count, total }, last } = self;
        let part = match last.part {
            Part::Open => 'o',
            Part::Wanting => 'w',
            Part::Settled => 's',
        };
        write!(f, "{life:x}.{count:x}.{total:x}.{part}.{}.{}", last.order, last.id)
    }
}

/// A cursor that no page gave out.
#[derive(Debug, PartialEq, Eq)]
pub struct BadCursor;

impl FromStr for Cursor {
    type Err = BadCursor;
    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let parts: Vec<&str> = text.split('.').collect();
        let [life, count, total, part, order, id] = parts[..] else { return Err(BadCursor) };
        let hex = |text| u64::from_str_radix(text, 16).map_err(|_| BadCursor);
        let total = usize::try_from(hex(total)?).map_err(|_| BadCursor)?;
        let part = match part {
            "o" => Part::Open,
            "w" => Part::Wanting,
            "s" => Part::Settled,
            _ => return Err(BadCursor),
        };
        let order = order.parse().map_err(|_| BadCursor)?;
        let id = id.parse().map_err(|_| BadCursor)?;
        let began = Began { life: hex(life)?, count: hex(count)?, total };
        Ok(Self { began, last: Position { part, order, id } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::Time;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn id(number: u8) -> AskId {
        AskId::from_bits(u128::from(number))
    }

    /// What may happen to an ask between two pages: it settles, begins or stops to need attention, or is forgotten.
    #[derive(Debug, Clone)]
    enum Change {
        New(u8),
        Settle(u8, bool),
        Want(u8, bool),
        Forget(u8),
        Restart,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            any::<u8>().prop_map(|n| Change::New(n % 40)),
            (any::<u8>(), any::<bool>()).prop_map(|(n, wanting)| Change::Settle(n % 40, wanting)),
            (any::<u8>(), any::<bool>()).prop_map(|(n, wanting)| Change::Want(n % 40, wanting)),
            any::<u8>().prop_map(|n| Change::Forget(n % 40)),
            Just(Change::Restart),
        ]
    }

    /// What decides an ask's place in the list.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Place {
        at: Time,
        settled: bool,
        wanting: bool,
    }

    struct World {
        pages: Pages,
        entries: Entries,
        places: HashMap<AskId, Place>,
        now: i64,
    }

    impl World {
        fn new() -> Self {
            Self { pages: Pages::new(1), entries: Entries::default(), places: HashMap::new(), now: 0 }
        }

        fn put(&mut self, id: AskId, place: Place) {
            let entry = Entry::placed(id, place.at, place.settled, place.wanting);
            self.places.insert(id, place);
            match self.entries.slot(id) {
                None => {
                    let slot = self.entries.add(entry);
                    self.pages.put(slot, &self.entries);
                }
                Some(slot) if Pages::stays(&self.entries[slot], &entry) => {}
                Some(slot) => {
                    self.pages.drop(slot, &self.entries);
                    self.entries.set(slot, entry);
                    self.pages.put(slot, &self.entries);
                }
            }
        }

        fn after(&self, began: Began, last: Option<Position>) -> impl Iterator<Item = Position> {
            self.pages.after(&self.entries, began, last).map(|(_, at)| at)
        }

        fn happen(&mut self, change: &Change) {
            self.now += 1;
            let at = Time::from_millis(self.now);
            match *change {
                Change::New(n) if !self.places.contains_key(&id(n)) => {
                    self.put(id(n), Place { at, settled: false, wanting: false });
                }
                Change::Settle(n, wanting) if self.places.get(&id(n)).is_some_and(|place| !place.settled) => {
                    self.put(id(n), Place { at, settled: true, wanting });
                }
                Change::Want(n, wanting) => {
                    if let Some(place) = self.places.get(&id(n)).copied().filter(|place| place.settled) {
                        self.put(id(n), Place { wanting, ..place });
                    }
                }
                Change::Forget(n) => {
                    if self.places.remove(&id(n)).is_some() {
                        let slot = self.entries.slot(id(n)).unwrap();
                        self.pages.drop(slot, &self.entries);
                        self.entries.drop(slot);
                    }
                }
                Change::Restart => {
                    (self.pages, self.entries) = (Pages::new(self.pages.life + 1), Entries::default());
                    for (id, place) in self.places.clone() {
                        self.put(id, place);
                    }
                }
                Change::New(_) | Change::Settle(..) => {}
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// A reader who follows the pages to the end has seen every ask that was there all the time.
        #[test]
        fn pages_never_skip_an_ask(
            before in proptest::collection::vec(change(), 0..120),
            meanwhile in proptest::collection::vec(proptest::collection::vec(change(), 0..12), 0..12),
            limit in 1_usize..6,
            settled_only in any::<bool>(),
        ) {
            let mut world = World::new();
            for change in &before {
                world.happen(change);
            }
            let fits = |world: &World, id: &AskId| !settled_only || world.places[id].settled;
            let mut always: BTreeSet<AskId> = world.places.keys().copied().filter(|id| fits(&world, id)).collect();
            let mut seen = Vec::new();
            let mut began = world.pages.begin(0);
            let mut last = None;
            let mut meanwhile = meanwhile.iter();
            loop {
                let page: Vec<Position> = world
                    .after(began, last)
                    .filter(|at| !settled_only || at.part != Part::Open)
                    .take(limit)
                    .collect();
                let Some(end) = page.last() else { break };
                seen.extend(page.iter().map(|at| at.id));
                let cursor = Cursor { began, last: *end };
                let cursor: Cursor = cursor.to_string().parse().map_err(|_| TestCaseError::fail("cursor"))?;
                (began, last) = (cursor.began, Some(cursor.last));
                for change in meanwhile.next().into_iter().flatten() {
                    world.happen(change);
                    always.retain(|id| world.places.contains_key(id));
                }
            }
            let found: BTreeSet<AskId> = seen.iter().copied().collect();
            prop_assert!(always.is_subset(&found), "skipped {:?}", always.difference(&found));
        }

        /// If nothing changes, no page repeats an ask.
        #[test]
        fn pages_of_a_quiet_list_name_each_ask_once(
            before in proptest::collection::vec(change(), 0..120), limit in 1_usize..6,
        ) {
            let mut world = World::new();
            for change in &before {
                world.happen(change);
            }
            let began = world.pages.begin(0);
            let (mut seen, mut last) = (Vec::new(), None);
            loop {
                let page: Vec<Position> = world.after(began, last).take(limit).collect();
                let Some(end) = page.last() else { break };
                last = Some(*end);
                seen.extend(page.iter().map(|at| at.id));
            }
            prop_assert_eq!(seen.len(), world.places.len());
            prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), world.places.len());
        }
    }

    #[test]
    fn a_made_up_cursor_is_refused() {
        for text in ["", "x", "1.2.3", "1.2.3.q.5.00000000000000000000000000000001", "1.2.3.o.5.zz", "....."] {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor), "{text}");
        }
    }
}
