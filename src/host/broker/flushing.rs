//! Puts on stable storage, every few seconds, what was saved and promises nothing.

use super::Broker;
use crate::clock::Clock;
use crate::host::store::StoreError;
use futures_util::FutureExt as _;
use std::time::Duration;
use tokio::sync::Notify;

/// How long after a save that promises nothing it is put on stable storage, unless a look comes before.
const FLUSH_AFTER: Duration = Duration::from_millis(4_700);
/// How long after a look what was saved is flushed: what the look has found out is written with it, and not once more.
const FLUSHED_AFTER: Duration = Duration::from_millis(300);

impl Broker {
    /// Flushes as long as the daemon runs.
    pub(super) async fn keep_flushing(&self) {
        // What the last run has left in its journal is filed, too.
        self.0.saved.notify_one();
        let flush = || async {
            match self.flush().await {
                Err(error) => {
                    tracing::error!(%error, "what was saved lately is not on stable storage; trying again");
                    Flushed::Not
                }
                Ok(()) if self.0.store.has_more_to_flush() => Flushed::InPart,
                Ok(()) => Flushed::Whole,
            }
        };
        let until_idle = || self.0.saves.until_idle();
        whenever_saved(&self.0.saved, &self.0.looked, self.clock(), until_idle, flush).await;
    }

    /// Puts everything that was saved on stable storage.
    pub(in crate::host) async fn flush(&self) -> Result<(), StoreError> {
        self.blocking(|broker| broker.0.store.flush()).await
    }

    /// The same at the end: nothing is saved any more.
    pub(in crate::host) async fn close_store(&self) -> Result<(), StoreError> {
        self.blocking(|broker| broker.0.store.close()).await
    }
}

/// What came of a flush.
enum Flushed {
    /// All of it has to be done again.
    Not,
    /// All that was saved is on stable storage; what is left to do nobody waits for.
    InPart,
    Whole,
}

/// Flushes some seconds after something was saved, and again if that fails. What a flush leaves to do is done after a later look,
/// with what that finds out. After a look, work that agents and people wait for goes first, as long as the 5 s allow.
async fn whenever_saved<I: Future<Output = ()>, F: Future<Output = Flushed>>(
    saved: &Notify,
    looked: &Notify,
    clock: &Clock,
    until_idle: impl Fn() -> I,
    flush: impl Fn() -> F,
) {
    let mut is_left = false;
    let until_idle_after_a_look = || async {
        looked.notified().await;
        clock.sleep(FLUSHED_AFTER).await;
        until_idle().await;
    };
    loop {
        let until_saved = async {
            saved.notified().await;
            tokio::select! {
                () = clock.sleep(FLUSH_AFTER) => {}
                () = until_idle_after_a_look() => {}
            }
        };
        tokio::select! {
            () = until_saved => {}
            () = until_idle_after_a_look(), if is_left => {}
        }
        // What was saved by now is in this flush. Else the next one would come so long after this one, and not after what is
        // saved next: in the middle of a life, which would be filed twice.
        let _saved = saved.notified().now_or_never();
        let flushed = flush().await;
        is_left = matches!(flushed, Flushed::InPart);
        if matches!(flushed, Flushed::Not) {
            saved.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[tokio::test(start_paused = true)]
    async fn what_was_saved_before_a_flush_begins_no_other_and_work_goes_first() {
        let (saved, looked, clock) = (Notify::new(), Notify::new(), Clock::of_tokio());
        let (flushes, begun) = (Mutex::new(Vec::new()), clock.monotonic());
        let flush = || async {
            let mut flushes = flushes.lock();
            flushes.push(clock.monotonic().since(begun).as_millis());
            let many = flushes.len();
            drop(flushes);
            match many {
                2 | 4 => Flushed::InPart,
                3 => Flushed::Not,
                _ => Flushed::Whole,
            }
        };
        let at = |millis| clock.sleep_to(begun + Duration::from_millis(millis));
        let until_idle = || async {
            match clock.monotonic().since(begun).as_millis() {
                47_000..48_000 => at(48_200).await,
                60_000.. => at(70_000).await,
                _ => {}
            }
        };
        let story = async {
            for millis in [0, 1_000, 6_000] {
                at(millis).await;
                saved.notify_one();
            }
            at(7_000).await;
            looked.notify_waiters();
            at(20_000).await;
            saved.notify_one();
            for millis in [35_000, 40_000, 45_000] {
                at(millis).await;
                looked.notify_waiters();
            }
            for millis in [47_000, 60_000] {
                at(millis).await;
                saved.notify_one();
                at(millis + 100).await;
                looked.notify_waiters();
            }
            at(80_000).await;
        };
        tokio::select! {
            () = whenever_saved(&saved, &looked, &clock, until_idle, flush) => {}
            () = story => {}
        }
        // The second and the fourth leave something to do, and the third fails. Those after a look make way for work, the last one not for
        // longer than what was saved may wait.
        assert_eq!(*flushes.lock(), [4_700, 7_300, 24_700, 29_400, 35_300, 48_200, 64_700]);
    }
}
