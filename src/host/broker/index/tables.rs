//! Two compact tables of asks, by their slots: by the hash of a name, and in an order. Both hold few bytes an ask, so
//! that 100,000 open asks fit into 32 MB.

use super::Slot;

/// The most slots of a chunk: a change moves at most that many.
const CHUNK: usize = 512;
/// About how many entries one search of a long table looks at.
const SOUGHT: usize = 16;

/// A name and who has it; or nobody, which comes after all of them.
type Cell = ([u32; 2], Slot);
const NOBODY: Cell = ([u32::MAX; 2], Slot::MAX);

/// Asks by the hash of a name. Several may have the same. Hashes can collide, so that a caller who acts on an ask has to
/// check its record.
///
/// The cells are in the order of the hashes, and each is at the place that its hash is due, or as little behind it as
/// those before it allow. So a table may have any size: one that doubles is half empty after that.
#[derive(Debug, Default)]
pub(super) struct Names {
    cells: Vec<Cell>,
    /// How many places hashes are spread over. The last ones may need some cells more.
    places: usize,
    len: usize,
}

/// Two halves, so that a cell is 12 bytes long.
#[expect(clippy::cast_possible_truncation, reason = "it is cut in two")]
const fn halves(hash: u64) -> [u32; 2] {
    [hash as u32, (hash >> 32) as u32]
}

const fn whole([low, high]: [u32; 2]) -> u64 {
    (low as u64) | ((high as u64) << 32)
}

impl Names {
    /// The place that a hash is due.
    #[expect(clippy::cast_possible_truncation, reason = "it is below the number of places")]
    fn place(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.places as u128) >> 64) as usize
    }

    /// The first cell that does not come before this one.
    fn seek(&self, hash: u64, slot: Slot) -> usize {
        let from = self.place(hash);
        let ahead = self.cells.iter().skip(from);
        from + ahead.take_while(|(known, of)| (whole(*known), *of) < (hash, slot)).count()
    }

    /// Makes room for the names of so many asks at once.
    pub(super) fn reserve(&mut self, asks: usize) {
        if self.places < asks {
            self.spread(asks);
        }
    }

    /// Takes no more room than its names need.
    pub(super) fn fit(&mut self) {
        self.spread(self.len);
    }

    fn spread(&mut self, asks: usize) {
        let before = std::mem::take(&mut self.cells);
        self.places = asks + asks / 7 + 1;
        self.cells.reserve_exact(self.places + 32);
        for cell in before.into_iter().filter(|cell| *cell != NOBODY) {
            let place = self.place(whole(cell.0)).max(self.cells.len());
            self.cells.resize(place, NOBODY);
            self.add(cell);
        }
        self.cells.resize(self.places.max(self.cells.len()), NOBODY);
    }

    /// Adds a cell at the end, where few are needed.
    fn add(&mut self, cell: Cell) {
        if self.cells.len() == self.cells.capacity() {
            self.cells.reserve_exact(32);
        }
        self.cells.push(cell);
    }

    /// Gives an ask a name; once, however often it is called.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot) {
        let cell = (halves(hash), slot);
        if self.cells.get(self.seek(hash, slot)) == Some(&cell) {
            return;
        }
        if self.len >= self.places * 9 / 10 {
            self.spread(self.len + self.len / 4 + 8);
        }
        let at = self.seek(hash, slot);
        let end = at + self.cells.iter().skip(at).take_while(|cell| **cell != NOBODY).count();
        if end == self.cells.len() {
            self.add(NOBODY);
        }
        self.cells.copy_within(at..end, at + 1);
        self.cells[at] = cell;
        self.len += 1;
    }

    /// Takes a name from an ask.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot) {
        let at = self.seek(hash, slot);
        if self.cells.get(at) != Some(&(halves(hash), slot)) {
            return;
        }
        // Those behind it that are not at their places come nearer.
        let ahead = self.cells.iter().enumerate().skip(at + 1);
        let nearer = ahead.take_while(|(is_at, cell)| **cell != NOBODY && self.place(whole(cell.0)) < *is_at).count();
        self.cells.copy_within(at + 1..=at + nearer, at);
        self.cells[at + nearer] = NOBODY;
        self.len -= 1;
        if self.len < self.places / 8 {
            self.fit();
        }
    }

    #[cfg(test)]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }

    /// The asks with that name.
    pub(super) fn of(&self, hash: u64) -> impl Iterator<Item = Slot> {
        let named = self.cells.iter().skip(self.seek(hash, 0)).take_while(move |cell| whole(cell.0) == hash);
        named.filter(|cell| **cell != NOBODY).map(|(_, slot)| *slot)
    }
}

/// Asks in the order of a key that their entries tell. No two asks have the same key, and an ask leaves the table before
/// its key changes.
#[derive(Debug, Default)]
pub(super) struct Ordered(Vec<Vec<Slot>>);

impl Ordered {
    /// Where the first ask is whose key is not below this one: its chunk, and its place there.
    fn seek<K: Ord>(&self, key: &K, of: impl Fn(Slot) -> K) -> (usize, usize) {
        let chunk = self.0.partition_point(|chunk| chunk.last().is_some_and(|last| of(*last) < *key));
        let at = self.0.get(chunk).map_or(0, |chunk| chunk.partition_point(|slot| of(*slot) < *key));
        (chunk, at)
    }

    /// Puts an ask in its place, unless it is there.
    pub(super) fn insert<K: Ord>(&mut self, slot: Slot, of: impl Fn(Slot) -> K + Copy) {
        let key = of(slot);
        let (chunk, at) = match self.0.last().and_then(|chunk| Some((chunk.len(), chunk.last()?))) {
            // Most asks come in the order of time.
            Some((len, last)) if of(*last) < key => (self.0.len() - 1, len),
            _ => self.seek(&key, of),
        };
        let Some(slots) = self.0.get_mut(chunk) else { return self.0.push(vec![slot]) };
        if slots.get(at) == Some(&slot) {
            return;
        }
        if slots.len() < CHUNK {
            // It does not double: half of it would be empty.
            if slots.len() == slots.capacity() {
                slots.reserve_exact(slots.len() / 8 + 1);
            }
            return slots.insert(at, slot);
        }
        // At either end a chunk stays full.
        let cut = if at == 0 || at == CHUNK { at } else { CHUNK / 2 };
        let mut rest = slots.split_off(cut);
        slots.shrink_to_fit();
        if at < cut || at == 0 {
            slots.insert(at, slot);
        } else {
            rest.insert(at - cut, slot);
        }
        self.0.insert(chunk + 1, rest);
    }

    /// Puts many asks in their places. If they are many beside those that are there, it goes through these once, and does not look for
    /// the place of each.
    pub(super) fn insert_all<K: Ord>(&mut self, mut slots: Vec<Slot>, of: impl Fn(Slot) -> K + Copy) {
        // Without memory of its own: the allocator keeps for long what was needed once.
        slots.sort_unstable_by_key(|slot| of(*slot));
        slots.dedup();
        if slots.len() * SOUGHT < self.len() {
            return slots.into_iter().for_each(|slot| self.insert(slot, of));
        }
        let mut known = std::mem::take(&mut self.0).into_iter().flatten().peekable();
        let mut new = slots.into_iter().peekable();
        let mut merged = std::iter::from_fn(|| match (known.peek(), new.peek()) {
            (Some(one), Some(other)) if of(*one) > of(*other) => new.next(),
            (Some(one), _) => {
                new.next_if_eq(one);
                known.next()
            }
            (None, _) => new.next(),
        });
        loop {
            let chunk: Vec<Slot> = merged.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return;
            }
            self.0.push(chunk);
        }
    }

    /// Takes an ask out, if it is there.
    pub(super) fn remove<K: Ord>(&mut self, slot: Slot, of: impl Fn(Slot) -> K) {
        let (chunk, at) = self.seek(&of(slot), of);
        let Some(slots) = self.0.get_mut(chunk).filter(|slots| slots.get(at) == Some(&slot)) else { return };
        slots.remove(at);
        if slots.is_empty() {
            self.0.remove(chunk);
        }
    }

    /// Whether an ask is in it.
    pub(super) fn contains<K: Ord>(&self, slot: Slot, of: impl Fn(Slot) -> K) -> bool {
        let (chunk, at) = self.seek(&of(slot), of);
        self.0.get(chunk).is_some_and(|slots| slots.get(at) == Some(&slot))
    }

    /// The first ask.
    pub(super) fn first(&self) -> Option<Slot> {
        self.0.first()?.first().copied()
    }

    /// How many asks are in it.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// The asks from that key on, in their order.
    pub(super) fn from<K: Ord + Copy>(&self, key: K, of: impl Fn(Slot) -> K) -> impl Iterator<Item = Slot> {
        let (chunk, at) = self.seek(&key, of);
        self.0.iter().skip(chunk).flatten().skip(at).copied()
    }

    /// All asks, in their order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Slot> {
        self.0.iter().flatten().copied()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|chunk| size_of_val(chunk) + chunk.capacity() * size_of::<Slot>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// It does what a set of pairs does, whether hashes are spread or crowded.
        #[test]
        fn it_is_a_set_of_names(steps in proptest::collection::vec((0_u64..400, 0_u32..3, 0_u8..9), 0..3_000), apart: bool) {
            let (mut names, mut set) = (Names::default(), BTreeSet::new());
            for (number, slot, what) in steps {
                let hash = if apart { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { u64::MAX - number };
                match what {
                    0..3 => {
                        names.remove(hash, slot);
                        set.remove(&(hash, slot));
                    }
                    3 => names.fit(),
                    4 => names.reserve(usize::from(what) * 100),
                    _ => {
                        names.insert(hash, slot);
                        set.insert((hash, slot));
                    }
                }
                let has = set.range((hash, 0)..=(hash, Slot::MAX)).map(|(_, slot)| *slot);
                prop_assert_eq!(names.of(hash).collect::<Vec<_>>(), has.collect::<Vec<_>>());
                prop_assert_eq!(names.len, set.len());
            }
            let all = names.cells.iter().filter(|cell| **cell != NOBODY).map(|(hash, slot)| (whole(*hash), *slot));
            prop_assert!(all.eq(set.iter().copied()));
            prop_assert!(names.cells.iter().enumerate().all(|(at, cell)| *cell == NOBODY || names.place(whole(cell.0)) <= at));
        }

        /// It does what a set does, in whatever order the asks come and go.
        #[test]
        fn it_is_a_set_in_order(steps in proptest::collection::vec((0_u32..6_000, 0_u8..4), 0..6_000), reversed: bool) {
            let (mut ordered, mut set) = (Ordered::default(), BTreeSet::new());
            let key = |slot: Slot| if reversed { u32::MAX - slot } else { slot };
            for (slot, what) in steps {
                match what {
                    0 => {
                        ordered.remove(slot, key);
                        set.remove(&key(slot));
                    }
                    1 => {
                        let some = || (slot..slot + 40).step_by(3).chain([slot, slot]);
                        ordered.insert_all(some().collect(), key);
                        set.extend(some().map(key));
                    }
                    _ => {
                        ordered.insert(slot, key);
                        set.insert(key(slot));
                    }
                }
                prop_assert_eq!(ordered.contains(slot, key), what > 0);
            }
            let slots = |set: &mut dyn Iterator<Item = &u32>| set.map(|one| key(*one)).collect::<Vec<_>>();
            prop_assert_eq!(ordered.iter().collect::<Vec<_>>(), slots(&mut set.iter()));
            prop_assert_eq!(ordered.first().map(key), set.first().copied());
            prop_assert_eq!(ordered.from(3_000, key).collect::<Vec<_>>(), slots(&mut set.range(3_000..)));
            prop_assert!(ordered.0.iter().all(|chunk| (1..=CHUNK).contains(&chunk.len())));
        }
    }
}
