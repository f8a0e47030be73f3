//! Asks that were used lately, by the bytes of their records: at most 8 MiB in all and half of that of one group, so that
//! one group's flood does not push out everybody else's.

use askd_core::{Ask, AskId, Group};
use lru::LruCache;
use std::collections::HashMap;
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
    asks: LruCache<AskId, Cached<T>>,
    /// The bytes of each group that has any.
    groups: HashMap<Group, usize>,
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { asks: LruCache::unbounded(), groups: HashMap::new(), bytes: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Cached<T> {
    pub(super) ask: Arc<Ask>,
    pub(super) kind: T,
    bytes: usize,
}

impl<T: Copy> Cache<T> {
    pub(super) fn get(&mut self, id: AskId) -> Option<(Arc<Ask>, T)> {
        self.asks.get(&id).map(|cached| (Arc::clone(&cached.ask), cached.kind))
    }

    /// Where the record of an ask is, and how long it was when it was last written or read.
    pub(super) fn record_of(&self, id: AskId) -> Option<(T, usize)> {
        self.asks.peek(&id).map(|cached| (cached.kind, cached.bytes))
    }

    /// Takes in an ask as it is now. What was used least has to make room.
    pub(super) fn put(&mut self, ask: Arc<Ask>, kind: T, bytes: usize) {
        self.remove(ask.id);
        let (id, group) = (ask.id, ask.group.clone());
        *self.groups.entry(group.clone()).or_default() += bytes;
        self.bytes += bytes;
        self.asks.put(id, Cached { ask, kind, bytes });
        while self.groups.get(&group).is_some_and(|bytes| *bytes > ONE_GROUP)
            && let Some((&oldest, _)) = self.asks.iter().rev().find(|(_, cached)| cached.ask.group == group)
        {
            self.remove(oldest);
        }
        while self.bytes > ALL
            && let Some((&oldest, _)) = self.asks.peek_lru()
        {
            self.remove(oldest);
        }
    }

    /// Its record is elsewhere now.
    pub(super) fn moved(&mut self, id: AskId, to: T) {
        if let Some(cached) = self.asks.peek_mut(&id) {
            cached.kind = to;
        }
    }

    pub(super) fn remove(&mut self, id: AskId) -> Option<Cached<T>> {
        let cached = self.asks.pop(&id)?;
        self.bytes -= cached.bytes;
        if let Some(bytes) = self.groups.get_mut(&cached.ask.group) {
            *bytes -= cached.bytes;
            if *bytes == 0 {
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
        assert_eq!((cache.bytes, cache.asks.len(), cache.groups.len()), (0, 0, 0));
    }
}
