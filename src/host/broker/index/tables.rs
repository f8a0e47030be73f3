//! Two compact tables of asks, by their slots: by the hash of a name, and in an order. Both hold few bytes an ask, so
//! that 100,000 open asks fit into 32 MB.

use super::Slot;
use hashbrown::HashTable;

/// The most slots of a chunk: a change moves at most that many.
const CHUNK: usize = 512;

/// Asks by the hash of a name. Several may have the same. Hashes can collide, so that a caller who acts on an ask has to
/// check its record.
#[derive(Debug, Default)]
pub(super) struct Names(HashTable<([u32; 2], Slot)>);

/// Two halves, so that an entry is 12 bytes long.
#[expect(clippy::cast_possible_truncation, reason = "it is cut in two")]
const fn halves(hash: u64) -> [u32; 2] {
    [hash as u32, (hash >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Names {
    /// Makes room for the names of so many asks at once.
    pub(super) fn reserve(&mut self, asks: usize) {
        self.0.reserve(asks, |(hash, _)| whole(*hash));
    }

    /// Gives an ask a name; once, however often it is called.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot) {
        let entry = (halves(hash), slot);
        if self.0.find(hash, |known| *known == entry).is_none() {
            self.0.insert_unique(hash, entry, |(hash, _)| whole(*hash));
        }
    }

    /// Takes a name from an ask.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot) {
        if let Ok(entry) = self.0.find_entry(hash, |known| *known == (halves(hash), slot)) {
            entry.remove();
        }
        if self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to_fit(|(hash, _)| whole(*hash));
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.allocation_size()
    }

    /// The asks with that name.
    pub(super) fn of(&self, hash: u64) -> impl Iterator<Item = Slot> {
        self.0.iter_hash(hash).filter(move |(known, _)| *known == halves(hash)).map(|(_, slot)| *slot)
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
        let (mut chunk, mut at) = self.seek(&of(slot), of);
        if let Some(last) = self.0.len().checked_sub(1).filter(|last| chunk > *last) {
            (chunk, at) = (last, self.0[last].len());
        }
        let Some(slots) = self.0.get_mut(chunk) else { return self.0.push(vec![slot]) };
        if slots.get(at) == Some(&slot) {
            return;
        }
        if slots.len() < CHUNK {
            return slots.insert(at, slot);
        }
        // At either end a chunk stays full: most asks come in the order of time.
        let cut = if at == 0 || at == CHUNK { at } else { CHUNK / 2 };
        let mut rest = slots.split_off(cut);
        if at < cut || at == 0 {
            slots.insert(at, slot);
        } else {
            rest.insert(at - cut, slot);
        }
        self.0.insert(chunk + 1, rest);
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
        /// It does what a set does, in whatever order the asks come and go.
        #[test]
        fn it_is_a_set_in_order(steps in proptest::collection::vec((0_u32..6_000, 0_u8..4), 0..6_000), reversed: bool) {
            let (mut ordered, mut set) = (Ordered::default(), BTreeSet::new());
            let key = |slot: Slot| if reversed { u32::MAX - slot } else { slot };
            for (slot, what) in steps {
                if what == 0 {
                    ordered.remove(slot, key);
                    set.remove(&key(slot));
                } else {
                    ordered.insert(slot, key);
                    set.insert(key(slot));
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
