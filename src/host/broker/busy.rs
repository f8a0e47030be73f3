//! Lets one task at a time do the same work; the others wait in line or go without. Decides nothing and stores
//! nothing.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A lock for each key.
#[derive(Debug)]
pub(super) struct Busy<T>(Mutex<HashMap<T, Arc<tokio::sync::Mutex<()>>>>);

/// Until this is dropped, nobody else does it.
pub(super) type Alone = OwnedMutexGuard<()>;

impl<T> Default for Busy<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Eq + Hash> Busy<T> {
    fn lock(&self, key: T) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        // Drops the locks that nobody holds or waits for.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }

    /// Begins, unless another task is doing the same work.
    pub(super) fn begin(&self, key: T) -> Option<Alone> {
        self.lock(key).try_lock_owned().ok()
    }

    /// Begins when it is the caller's turn, first come, first served.
    pub(super) async fn turn(&self, key: T) -> Alone {
        self.lock(key).lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_in_order_and_nothing_is_kept() {
        let busy = Busy::default();
        let first = busy.turn(1).await;
        assert!(busy.begin(1).is_none() && busy.begin(2).is_some());
        let order = Mutex::new(Vec::new());
        let next = |n| {
            let (busy, order) = (&busy, &order);
            async move {
                let _alone = busy.turn(1).await;
                order.lock().push(n);
            }
        };
        tokio::join!(next(2), next(3), async { drop(first) });
        assert_eq!(order.into_inner(), [2, 3]);
        assert!(busy.begin(1).is_some());
        let _other = busy.begin(4);
        assert_eq!(busy.0.lock().len(), 1);
    }
}
