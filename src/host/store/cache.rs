//! Asks that were used lately, by the bytes of their records: at most 8 MiB in all and half of that of one group, so that
//! one group's flood does not push out everybody else's.

use askd_core::{Ask, AskId, Group};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The most bytes of all records, and of one group's.
const ALL: usize = 8 * 1024 * 1024;
const ONE_GROUP: usize = ALL / 2;

/// Which of an ask's two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Pending,
    Settled,
}

/// Of each ask it also keeps `T`: where its record is, or which revision.
#[derive(Debug)]
pub(super) struct Cache<T> {
    asks: HashMap<AskId, Cached<T>>,
    /// By when they were used last: the oldest first.
    order: BTreeMap<u64, AskId>,
    groups: HashMap<Group, Held>,
    bytes: usize,
    uses: u64,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { asks: HashMap::new(), order: BTreeMap::new(), groups: HashMap::new(), bytes: 0, uses: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Cached<T> {
    pub(super) ask: Arc<Ask>,
    pub(super) kind: T,
    bytes: usize,
    used: u64,
}

/// What the cache holds of one group.
#[derive(Debug, Default)]
struct Held {
    order: BTreeSet<u64>,
    bytes: usize,
}

impl<T: Copy> Cache<T> {
    pub(super) fn get(&mut self, id: AskId) -> Option<(Arc<Ask>, T)> {
        let cached = self.asks.get_mut(&id)?;
        self.uses += 1;
        let before = std::mem::replace(&mut cached.used, self.uses);
        self.order.remove(&before);
        self.order.insert(self.uses, id);
        if let Some(held) = self.groups.get_mut(&cached.ask.group) {
            held.order.remove(&before);
            held.order.insert(self.uses);
        }
        Some((Arc::clone(&cached.ask), cached.kind))
    }

    /// Where the record of an ask is, and how long it was when it was last written or read.
    pub(super) fn record_of(&self, id: AskId) -> Option<(T, usize)> {
        self.asks.get(&id).map(|cached| (cached.kind, cached.bytes))
    }

    /// Takes in an ask as it is now. What was used least has to make room.
    pub(super) fn put(&mut self, ask: Arc<Ask>, kind: T, bytes: usize) {
        self.remove(ask.id);
        self.uses += 1;
        let (id, used, group) = (ask.id, self.uses, ask.group.clone());
        let held = self.groups.entry(group.clone()).or_default();
        held.order.insert(used);
        held.bytes += bytes;
        self.bytes += bytes;
        self.order.insert(used, id);
        self.asks.insert(id, Cached { ask, kind, bytes, used });
        while let Some(held) = self.groups.get(&group)
            && held.bytes > ONE_GROUP
            && let Some(oldest) = held.order.first().and_then(|used| self.order.get(used)).copied()
        {
            self.remove(oldest);
        }
        while self.bytes > ALL
            && let Some((_, &oldest)) = self.order.first_key_value()
        {
            self.remove(oldest);
        }
    }

    /// Its record is elsewhere now.
    pub(super) fn moved(&mut self, id: AskId, to: T) {
        if let Some(cached) = self.asks.get_mut(&id) {
            cached.kind = to;
        }
    }

    pub(super) fn remove(&mut self, id: AskId) -> Option<Cached<T>> {
        let cached = self.asks.remove(&id)?;
        self.order.remove(&cached.used);
        self.bytes -= cached.bytes;
        if let Some(held) = self.groups.get_mut(&cached.ask.group) {
            held.order.remove(&cached.used);
            held.bytes -= cached.bytes;
            if held.order.is_empty() {
                self.groups.remove(&cached.ask.group);
            }
        }
        Some(cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::conformance::ask;

    #[test]
    fn it_keeps_what_was_used_last_and_half_of_it_at_most_is_one_groups() {
        let mut cache = Cache::default();
        let put =
            |cache: &mut Cache<Kind>, number, group| cache.put(Arc::new(ask(number, group)), Kind::Pending, ALL / 8);
        for number in 0..20 {
            put(&mut cache, number, "noisy");
            assert!(cache.get(AskId::from_bits(0)).is_some(), "it is used all the time");
        }
        assert_eq!((cache.asks.len(), cache.bytes), (4, ONE_GROUP));
        for number in 100..104 {
            put(&mut cache, number, "honest");
        }
        put(&mut cache, 200, "third");
        assert_eq!((cache.asks.len(), cache.bytes), (8, ALL));
        assert!(cache.get(AskId::from_bits(19)).is_some() && cache.get(AskId::from_bits(103)).is_some());
        for number in [0, 17, 18, 19, 100, 101, 102, 103, 200] {
            cache.remove(AskId::from_bits(number));
        }
        assert_eq!((cache.bytes, cache.order.len(), cache.groups.len()), (0, 0, 0));
    }
}
