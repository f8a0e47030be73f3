//! When something may be sent: one post per `pace` and chat, one call at a time for each method and
//! chat, and nothing before a `Retry-After` has passed.
//!
//! Counts by the monotonic clock, because it keeps to Slack's limits. In memory only: a restart takes longer than a
//! pace, and Slack repeats a limit that was forgotten.

use crate::clock::{Clock, Moment};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedMutexGuard};

/// What posts are limited by.
pub(super) const POST: &str = "chat.postMessage";
/// How long whoever had a turn has to begin; then it is the next one's.
const LEASE: Duration = Duration::from_millis(250);
/// How long a call waits for another one of its kind. Less than the shortest `render_timeout`, so that
/// a post that is looked for has been sent.
const IN_LINE: Duration = Duration::from_secs(5);

/// A method, and a chat.
type Kind = (String, String);
/// Where calls of a kind wait for each other.
type Line = Arc<tokio::sync::Mutex<()>>;

/// When something may be sent.
#[derive(Debug)]
pub(super) struct Pace {
    clock: Clock,
    every: Duration,
    chats: Mutex<HashMap<String, Arc<Chat>>>,
    calls: Mutex<HashMap<Kind, Line>>,
    limits: Mutex<HashMap<Kind, Moment>>,
}

#[derive(Debug)]
struct Chat {
    /// Who waits for this chat waits here, in order.
    queue: tokio::sync::Mutex<()>,
    /// When the next post may go out: a pace after the last one.
    next: Mutex<Moment>,
    /// Until when a post is taken to be on its way.
    busy: Mutex<Moment>,
    idle: Notify,
}

/// The right to make a call, to be kept until its answer is there.
pub(super) struct Call {
    _alone: OwnedMutexGuard<()>,
}

/// What a limit counts for: posts and private notes one by one for each chat, everything else as a whole.
fn limited(method: &str, chat: &str) -> Kind {
    let own = matches!(method, POST | "chat.postEphemeral");
    (method.to_owned(), if own { chat.to_owned() } else { String::new() })
}

impl Pace {
    pub(super) fn new(every: Duration, clock: Clock) -> Self {
        Self { clock, every, chats: Mutex::default(), calls: Mutex::default(), limits: Mutex::default() }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn chat(&self, name: &str) -> Arc<Chat> {
        let mut chats = self.chats.lock();
        let chat = chats.entry(name.to_owned()).or_insert_with(|| {
            let now = self.clock.monotonic();
            let (next, busy) = (Mutex::new(now), Mutex::new(now));
            Arc::new(Chat { queue: tokio::sync::Mutex::default(), next, busy, idle: Notify::new() })
        });
        Arc::clone(chat)
    }

    /// Waits for a turn to post to this chat; who comes first goes first.
    pub(super) async fn turn(&self, name: &str) {
        let chat = self.chat(name);
        let _first = chat.queue.lock().await;
        loop {
            let now = self.clock.monotonic();
            let busy = *chat.busy.lock();
            let free = (*chat.next.lock()).max(self.free_at(POST, name).unwrap_or(now));
            if busy > now {
                tokio::select! {
                    () = chat.idle.notified() => {}
                    () = self.clock.sleep_to(busy) => {}
                }
            } else if free > now {
                self.clock.sleep_to(free).await;
            } else {
                *chat.busy.lock() = now + LEASE;
                return;
            }
        }
    }

    /// A post is on its way; it takes no longer than this.
    pub(super) fn posting(&self, name: &str, at_most: Duration) {
        *self.chat(name).busy.lock() = self.clock.monotonic() + at_most;
    }

    /// A post has come back: the next one goes out a pace after it, so that Slack sees them a pace apart
    /// however long each took.
    pub(super) fn posted(&self, name: &str) {
        let chat = self.chat(name);
        let now = self.clock.monotonic();
        *chat.next.lock() = now + self.every;
        *chat.busy.lock() = now;
        chat.idle.notify_one();
    }

    /// Waits until the same sender may post again, and keeps the others waiting; an error if that is
    /// not before `until`.
    pub(super) async fn after(&self, name: &str, until: Moment) -> Result<(), ()> {
        let chat = self.chat(name);
        let next = *chat.next.lock();
        let free = next.max(self.free_at(POST, name).unwrap_or(next));
        if free > until {
            return Err(());
        }
        *chat.busy.lock() = free + LEASE;
        self.clock.sleep_to(free).await;
        Ok(())
    }

    /// The right to call now. Calls of one method for one chat go one after the other: a second one
    /// that was under way could not heed the first one's `Retry-After`.
    pub(super) async fn call(&self, method: &str, chat: &str) -> Result<Call, Duration> {
        let line = {
            let mut calls = self.calls.lock();
            Arc::clone(calls.entry((method.to_owned(), chat.to_owned())).or_default())
        };
        let alone = self.clock.timeout(IN_LINE, line.lock_owned()).await.ok_or(Duration::from_secs(1))?;
        match self.left(method, chat) {
            Some(left) => Err(left),
            None => Ok(Call { _alone: alone }),
        }
    }

    /// How long such a call has to wait for Slack's sake.
    pub(super) fn left(&self, method: &str, chat: &str) -> Option<Duration> {
        let left = self.free_at(method, chat)?.since(self.clock.monotonic());
        (!left.is_zero()).then_some(left)
    }

    fn free_at(&self, method: &str, chat: &str) -> Option<Moment> {
        self.limits.lock().get(&limited(method, chat)).copied()
    }

    /// Slack wants no such call before that time has passed.
    pub(super) fn limit(&self, method: &str, chat: &str, wait: Duration) {
        let until = self.clock.monotonic() + wait;
        let mut limits = self.limits.lock();
        let limit = limits.entry(limited(method, chat)).or_insert(until);
        *limit = until.max(*limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn posts_to_one_chat_are_a_pace_apart_and_chats_do_not_wait_for_each_other() {
        let pace = Pace::new(Duration::from_secs(1), Clock::of_tokio());
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        pace.turn("C2").await;
        assert_eq!(pace.clock.monotonic().since(start).as_millis(), 0);
        pace.posting("C1", Duration::from_secs(10));
        pace.clock.sleep(Duration::from_millis(400)).await;
        pace.posted("C1");
        pace.turn("C1").await;
        assert!(
            (1400..1410).contains(&pace.clock.monotonic().since(start).as_millis()),
            "{:?}",
            pace.clock.monotonic().since(start)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_nobody_took_is_the_next_one_s() {
        let pace = Pace::new(Duration::ZERO, Clock::of_tokio());
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        pace.turn("C1").await;
        assert!(
            (250..260).contains(&pace.clock.monotonic().since(start).as_millis()),
            "{:?}",
            pace.clock.monotonic().since(start)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_holds_for_its_method_and_chat() {
        let pace = Pace::new(Duration::ZERO, Clock::of_tokio());
        pace.limit(POST, "C1", Duration::from_secs(7));
        assert!(pace.call(POST, "C1").await.is_err());
        assert!(pace.call(POST, "C2").await.is_ok() && pace.call("chat.update", "C1").await.is_ok());
        pace.limit("chat.update", "C1", Duration::from_secs(3));
        assert!(pace.call("chat.update", "C2").await.is_err(), "edits are limited as a whole");
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        assert!(pace.clock.monotonic().since(start) >= Duration::from_secs(7));
        assert!(pace.call(POST, "C1").await.is_ok());
    }
}
