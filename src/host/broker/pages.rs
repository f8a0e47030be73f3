//! The order of the list of asks, and how far a reader has come in it.
//!
//! Open asks come first, the oldest at the top. Settled asks that still need attention follow (late answers, blocks,
//! outcomes that no agent has collected), then all other settled ones, both with the newest at the top. A reader goes
//! from the top to the end in pages. Meanwhile asks move only towards the end, with one exception: a settled ask may
//! need attention again. So each such ask also keeps its place among the others, and a reader who began earlier finds
//! it there. A page may therefore repeat an ask, but it never skips one.
//!
//! This module loads nothing and knows no filters. The index calls it.

use askd_core::{Ask, AskId, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

/// What decides an ask's place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// When it was settled or, while it is open, when it was asked.
    pub(super) at: Time,
    pub(super) settled: bool,
    /// It is settled, and it can still be answered, is blocked, or has an outcome that no agent has collected.
    pub(super) wanting: bool,
}

impl Place {
    pub(super) fn of(ask: &Ask) -> Self {
        match ask.settled_at() {
            None => Self { at: ask.created_at, settled: false, wanting: false },
            Some(at) => {
                let wanting = ask.is_late_open() || ask.is_blocked() || ask.is_untaken();
                Self { at, settled: true, wanting }
            }
        }
    }

    fn position(self, part: Part, id: AskId) -> Position {
        let at = self.at.as_millis();
        Position { part, order: if self.settled { -at } else { at }, id }
    }
}

/// The parts of the list, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Open,
    Wanting,
    Settled,
}

/// A position in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    part: Part,
    order: i64,
    pub(super) id: AskId,
}

/// How far a reader has come. Clients hand it back as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub(super) began: Began,
    pub(super) last: Position,
}

/// What was true when a reader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Began {
    /// The run of the daemon that counted.
    life: u64,
    /// How often any ask had begun to need attention.
    count: u64,
    /// How many asks fitted.
    pub(super) total: usize,
}

/// Every ask, in the order of the list.
#[derive(Debug)]
pub(super) struct Pages {
    /// For an ask that needs attention, the count at which that began; `u64::MAX` for any other.
    places: BTreeMap<Position, u64>,
    count: u64,
    life: u64,
}

impl Pages {
    /// An empty list. `life` tells this run of the daemon from others.
    pub(super) fn new(life: u64) -> Self {
        Self { places: BTreeMap::new(), count: 0, life }
    }

    /// Moves an ask to its place.
    pub(super) fn put(&mut self, id: AskId, before: Option<Place>, place: Place) {
        if before == Some(place) {
            return;
        }
        if let Some(before) = before {
            self.drop(id, before);
        }
        let part = if place.settled { Part::Settled } else { Part::Open };
        let mut since = u64::MAX;
        if place.wanting {
            self.count += 1;
            since = self.count;
            self.places.insert(place.position(Part::Wanting, id), since);
        }
        self.places.insert(place.position(part, id), since);
    }

    /// Takes an ask out.
    pub(super) fn drop(&mut self, id: AskId, place: Place) {
        for part in [Part::Open, Part::Wanting, Part::Settled] {
            self.places.remove(&place.position(part, id));
        }
    }

    /// What is true for a reader who begins now.
    pub(super) fn begin(&self, total: usize) -> Began {
        Began { life: self.life, count: self.count, total }
    }

    /// All positions after `last` for a reader who `began` then.
    pub(super) fn after(&self, began: Began, last: Option<Position>) -> impl Iterator<Item = Position> {
        // The count of another run of the daemon means nothing here, so all asks that need attention are repeated.
        let count = if began.life == self.life { began.count } else { 0 };
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let ahead = self.places.range((from, Bound::Unbounded));
        ahead.filter(move |(at, since)| at.part != Part::Settled || **since > count).map(|(at, _)| *at)
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
    use proptest::prelude::*;
    use std::collections::{BTreeSet, HashMap};

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

    struct World {
        pages: Pages,
        places: HashMap<AskId, Place>,
        now: i64,
    }

    impl World {
        fn put(&mut self, id: AskId, place: Place) {
            self.pages.put(id, self.places.insert(id, place), place);
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
                    if let Some(place) = self.places.remove(&id(n)) {
                        self.pages.drop(id(n), place);
                    }
                }
                Change::Restart => {
                    self.pages = Pages::new(self.pages.life + 1);
                    for (id, place) in &self.places {
                        self.pages.put(*id, None, *place);
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
            let mut world = World { pages: Pages::new(1), places: HashMap::new(), now: 0 };
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
                    .pages
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
            let mut world = World { pages: Pages::new(1), places: HashMap::new(), now: 0 };
            for change in &before {
                world.happen(change);
            }
            let began = world.pages.begin(0);
            let (mut seen, mut last) = (Vec::new(), None);
            loop {
                let page: Vec<Position> = world.pages.after(began, last).take(limit).collect();
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
