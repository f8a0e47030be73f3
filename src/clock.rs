//! The one place where the clock is read. Everything else is handed a [`Clock`], so that tests move
//! time by hand instead of waiting for it.

use crate::ask::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Tells the time and waits for it.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Hand(watch::Receiver<Time>),
}

/// Moves a clock that only moves by hand.
#[derive(Debug)]
pub struct Hand(watch::Sender<Time>);

impl Hand {
    /// Lets time pass at once.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|now| *now = *now + by);
    }

    /// Sets the clock, as people and networks do: also back.
    pub fn set(&self, now: Time) {
        self.0.send_replace(now);
    }
}

impl Clock {
    /// The computer's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until its hand is moved.
    #[must_use]
    pub fn by_hand(start: Time) -> (Self, Hand) {
        let (sender, receiver) = watch::channel(start);
        (Self(Source::Hand(receiver)), Hand(sender))
    }

    /// The time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
    pub fn now(&self) -> Time {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Time::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Hand(time) => *time.borrow(),
        }
    }

    /// Waits until `time` has come.
    pub async fn sleep_until(&self, time: Time) {
        match &self.0 {
            Source::System => tokio::time::sleep(time.since(self.now())).await,
            Source::Hand(clock) => {
                let mut clock = clock.clone();
                if clock.wait_for(|now| *now >= time).await.is_err() {
                    // The hand is gone: this clock never moves again.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }
}
