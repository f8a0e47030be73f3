//! A lock for each key. Callers wait in line for a key, or go without. Locks that nobody holds or waits for are dropped when
//! there is no room for another one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A lock for each key.
#[derive(Debug)]
pub(super) struct KeyedLock<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

/// Holds the lock of one key until it is dropped.
pub(super) type KeyGuard = OwnedMutexGuard<()>;

impl<K> Default for KeyedLock<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedLock<K> {
    fn of(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        // Looked through only when it is full: callers come often.
        if locks.len() == locks.capacity() {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(locks.entry(key).or_default())
    }

    /// Locks the key, unless another task holds it.
    pub(super) fn try_lock(&self, key: K) -> Option<KeyGuard> {
        self.of(key).try_lock_owned().ok()
    }

    /// Locks the key when it is the caller's turn: first come, first served.
    pub(super) async fn lock(&self, key: K) -> KeyGuard {
        self.of(key).lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_in_order_and_nothing_is_kept() {
        let locks = KeyedLock::default();
        let first = locks.lock(1).await;
        assert!(locks.try_lock(1).is_none() && locks.try_lock(2).is_some());
        let order = Mutex::new(Vec::new());
        let next = |n| {
            let (locks, order) = (&locks, &order);
            async move {
                let _guard = locks.lock(1).await;
                order.lock().push(n);
            }
        };
        tokio::join!(next(2), next(3), async { drop(first) });
        assert_eq!(order.into_inner(), [2, 3]);
        assert!(locks.try_lock(1).is_some());
        for key in 4..1_000 {
            assert!(locks.try_lock(key).is_some());
        }
        assert!(locks.0.lock().capacity() < 8);
    }
}
