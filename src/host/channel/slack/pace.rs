//! When something may be sent: one post per `pace` and chat, one call at a time for each method and chat, and no call
//! before a `Retry-After` has passed.
//!
//! In memory: a restart takes longer than a pace, and Slack repeats a limit that was forgotten. Daemons that share a database
//! have one Slack app, so each turn and limit is also asked for there. If the database is away, the own memory counts.

use crate::clock::{Clock, Moment};
use crate::host::keyed_lock::{KeyGuard, KeyedLock};
use crate::host::store::Rates;
use crate::sabotage::on;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The method that posts.
pub(super) const POST: &str = "chat.postMessage";
/// How long the holder of a turn has to begin its post or to give the turn back; then the next in line has it. A disk or a
/// database may take long to save that the post begins, and the next post must not overtake it.
const LEASE: Duration = Duration::from_secs(5);
/// How long a call waits for another call of its method and chat. Less than the shortest `render_timeout`, so that a
/// post has been sent before askd looks for it.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A method, and a chat or nothing.
type MethodAndChat = (String, String);

/// When something may be sent.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) clock: Clock,
    every: Duration,
    chats: Mutex<HashMap<String, Arc<Chat>>>,
    calls: KeyedLock<MethodAndChat>,
    /// Until when Slack wants no such call.
    limits: Mutex<HashMap<MethodAndChat, Moment>>,
    /// What all daemons keep together, if there are several.
    pub(super) rates: Option<Arc<dyn Rates>>,
}

#[derive(Debug)]
struct Chat {
    /// Posts wait for their turn here, in order.
    queue: tokio::sync::Mutex<()>,
    times: Mutex<Times>,
    idle: Notify,
}

#[derive(Debug)]
struct Times {
    /// When the next post may go out: a pace after the last one.
    next: Moment,
    /// Until when askd takes a post to be under way.
    busy: Moment,
}

/// What a limit counts for: posts and ephemeral messages in each chat, other methods as a whole. A limit without a chat
/// counts for every chat.
fn limited(method: &str, chat: &str) -> MethodAndChat {
    let by_chat = matches!(method, POST | "chat.postEphemeral");
    (method.to_owned(), if by_chat { chat.to_owned() } else { String::new() })
}

/// What daemons call it among each other.
fn name((method, chat): &MethodAndChat) -> String {
    format!("slack {method} {chat}")
}

impl Pace {
    pub(super) fn new(every: Duration, clock: Clock, rates: Option<Arc<dyn Rates>>) -> Self {
        let rates = rates.filter(|_| !on("ownrates"));
        Self { clock, every, chats: Mutex::default(), calls: KeyedLock::default(), limits: Mutex::default(), rates }
    }

    fn chat(&self, name: &str) -> Arc<Chat> {
        let mut chats = self.chats.lock();
        let chat = chats.entry(name.to_owned()).or_insert_with(|| {
            let now = self.clock.monotonic();
            let times = Mutex::new(Times { next: now, busy: now });
            Arc::new(Chat { queue: tokio::sync::Mutex::default(), times, idle: Notify::new() })
        });
        Arc::clone(chat)
    }

    /// Waits for a turn to post to this chat: first come, first served.
    pub(super) async fn turn(&self, name: &str) {
        let chat = self.chat(name);
        let _first = chat.queue.lock().await;
        loop {
            let now = self.clock.monotonic();
            let Err((busy, free)) = self.try_turn(&chat, name, now) else { break };
            if busy > now {
                tokio::select! {
                    () = chat.idle.notified() => {}
                    () = self.clock.sleep_to(busy) => {}
                }
            } else {
                self.clock.sleep_to(free).await;
            }
        }
        let left = self.shared_turn(limited(POST, name), self.every).await;
        if !left.is_zero() {
            let free = self.clock.monotonic() + left;
            chat.times.lock().busy = free + LEASE;
            self.clock.sleep_to(free).await;
        }
    }

    /// Takes the turn if it is free now and nobody waits for it. Whether another daemon has it takes a look.
    pub(super) fn takes_turn(&self, name: &str) -> bool {
        let chat = self.chat(name);
        let first = chat.queue.try_lock();
        self.rates.is_none() && first.is_ok() && self.try_turn(&chat, name, self.clock.monotonic()).is_ok()
    }

    /// Takes the turn, or says when the post that is under way has ended at the latest, and when the next may go out.
    fn try_turn(&self, chat: &Chat, name: &str, now: Moment) -> Result<(), (Moment, Moment)> {
        let mut times = chat.times.lock();
        let free = times.next.max(self.limited_until(POST, name).unwrap_or(now));
        if times.busy > now || free > now {
            return Err((times.busy, free));
        }
        times.busy = now + LEASE;
        Ok(())
    }

    /// The holder of a turn does not need it: the next in line has it now.
    pub(super) fn give_back(&self, name: &str) {
        let chat = self.chat(name);
        chat.times.lock().busy = self.clock.monotonic();
        chat.idle.notify_one();
    }

    /// A post is under way; it takes no longer than this.
    pub(super) fn posting(&self, name: &str, at_most: Duration) {
        self.chat(name).times.lock().busy = self.clock.monotonic() + at_most;
    }

    /// A post has its answer. The next one goes out a pace later, so that Slack sees them a pace apart however long
    /// each took.
    pub(super) async fn posted(&self, name: &str) {
        let chat = self.chat(name);
        let now = self.clock.monotonic();
        *chat.times.lock() = Times { next: now + self.every, busy: now };
        chat.idle.notify_one();
        self.hold(limited(POST, name), self.every).await;
    }

    /// Keeps the turn and waits until its holder may post again; `false` if that is not before `until`.
    pub(super) async fn another(&self, name: &str, until: Moment) -> bool {
        let chat = self.chat(name);
        let free = {
            let mut times = chat.times.lock();
            let free = self.limited_until(POST, name).map_or(times.next, |limit| limit.max(times.next));
            if free > until {
                return false;
            }
            times.busy = free + LEASE;
            free
        };
        self.clock.sleep_to(free).await;
        let free = self.clock.monotonic() + self.shared_turn(limited(POST, name), self.every).await;
        if free > until {
            return false;
        }
        chat.times.lock().busy = free + LEASE;
        self.clock.sleep_to(free).await;
        true
    }

    /// Waits for the right to make a call, which the caller holds until the answer is there; else says how long a limit
    /// still holds. A second call beside the first could not obey the `Retry-After` of the first.
    pub(super) async fn call(&self, method: &str, chat: &str) -> Result<KeyGuard, Duration> {
        let lock = self.calls.lock((method.to_owned(), chat.to_owned()));
        let guard = self.clock.timeout(CALL_WAIT, lock).await.ok_or(Duration::from_secs(1))?;
        let limit = self.limited_until(method, chat).map(|until| until.since(self.clock.monotonic()));
        let limit = match limit {
            // A post has had its turn.
            None if method != POST => Some(self.shared_turn(limited(method, chat), Duration::ZERO).await),
            limit => limit,
        };
        limit.filter(|left| !left.is_zero()).map_or(Ok(guard), Err)
    }

    /// How long to wait for a turn among all daemons.
    async fn shared_turn(&self, what: MethodAndChat, every: Duration) -> Duration {
        let Some(rates) = self.rates.clone() else { return Duration::ZERO };
        let turn = tokio::task::spawn_blocking(move || rates.turn(&name(&what), every)).await;
        turn.map_err(io::Error::other).flatten().unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot ask for a turn among all daemons");
            Duration::ZERO
        })
    }

    /// Has the other daemons wait, too. They know it when this returns: a daemon that stops leaves no call of its own out.
    async fn hold(&self, what: MethodAndChat, time: Duration) {
        let Some(rates) = self.rates.clone().filter(|_| !time.is_zero()) else { return };
        let held = tokio::task::spawn_blocking(move || rates.hold(&name(&what), time)).await;
        if let Err(error) = held.map_err(io::Error::other).flatten() {
            tracing::debug!(%error, "cannot tell the other daemons to wait");
        }
    }

    fn limited_until(&self, method: &str, chat: &str) -> Option<Moment> {
        let limits = self.limits.lock();
        [chat, ""].iter().filter_map(|chat| limits.get(&limited(method, chat))).max().copied()
    }

    /// Slack wants no such call for this long.
    pub(super) async fn limit(&self, method: &str, chat: &str, wait: Duration) {
        self.note_limit(method, chat, wait);
        self.hold(limited(method, chat), wait).await;
    }

    fn note_limit(&self, method: &str, chat: &str, wait: Duration) {
        let now = self.clock.monotonic();
        let until = now + wait;
        let mut limits = self.limits.lock();
        // Slack also limits the posts to a workspace. It does not say which limit it was, but two chats met one.
        let elsewhere =
            |((other, at), until): &(&MethodAndChat, &Moment)| other == method && at != chat && **until > now;
        // The shorter wait holds for all: the longer one may be a chat's own.
        let of_all = limits.iter().filter(elsewhere).map(|(_, other)| until.min(*other)).max();
        for (chat, until) in [(chat, Some(until)), ("", of_all)] {
            let Some(until) = until else { continue };
            let limit = limits.entry(limited(method, chat)).or_insert(until);
            *limit = until.max(*limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn posts_to_one_chat_are_a_pace_apart_and_chats_do_not_wait_for_each_other() {
        let pace = Pace::new(Duration::from_secs(1), Clock::of_tokio(), None);
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        pace.turn("C2").await;
        assert_eq!(pace.clock.monotonic().since(start).as_millis(), 0);
        assert!(pace.takes_turn("C3") && !pace.takes_turn("C3") && !pace.takes_turn("C1"));
        pace.posting("C1", Duration::from_secs(10));
        pace.clock.sleep(Duration::from_millis(400)).await;
        pace.posted("C1").await;
        pace.turn("C1").await;
        assert!(
            (1400..1410).contains(&pace.clock.monotonic().since(start).as_millis()),
            "{:?}",
            pace.clock.monotonic().since(start)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_nobody_took_is_the_next_one_s() {
        let pace = Pace::new(Duration::ZERO, Clock::of_tokio(), None);
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        pace.give_back("C1");
        pace.turn("C1").await;
        assert_eq!(pace.clock.monotonic().since(start).as_millis(), 0);
        pace.turn("C1").await;
        assert_eq!(pace.clock.monotonic().since(start).as_secs(), 5, "its holder has gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_holds_for_its_method_and_chat() {
        let pace = Pace::new(Duration::ZERO, Clock::of_tokio(), None);
        pace.limit(POST, "C1", Duration::from_secs(7)).await;
        assert!(pace.call(POST, "C1").await.is_err());
        assert!(pace.call(POST, "C2").await.is_ok() && pace.call("chat.update", "C1").await.is_ok());
        pace.limit("chat.update", "C1", Duration::from_secs(3)).await;
        assert!(pace.call("chat.update", "C2").await.is_err(), "edits are limited as a whole");
        let start = pace.clock.monotonic();
        pace.turn("C1").await;
        assert!(pace.clock.monotonic().since(start) >= Duration::from_secs(7));
        assert!(pace.call(POST, "C1").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_two_chats_meet_at_once_holds_for_every_chat() {
        let pace = Pace::new(Duration::ZERO, Clock::of_tokio(), None);
        let is_free = async |chat: &str| pace.call(POST, chat).await.is_ok();
        pace.limit(POST, "C1", Duration::from_secs(3)).await;
        pace.limit(POST, "C1", Duration::from_secs(7)).await;
        assert!(is_free("C2").await, "one chat alone");
        pace.clock.sleep(Duration::from_secs(7)).await;
        pace.limit(POST, "C2", Duration::from_secs(3)).await;
        assert!(is_free("C1").await && is_free("C3").await, "the first limit is over");
        pace.limit(POST, "C1", Duration::from_secs(9)).await;
        pace.clock.sleep(Duration::from_secs(2)).await;
        assert!(!is_free("C2").await && !is_free("C3").await);
        assert!(pace.call("chat.postEphemeral", "C3").await.is_ok(), "of another method");
        pace.clock.sleep(Duration::from_secs(1)).await;
        assert!(is_free("C2").await && is_free("C3").await && !is_free("C1").await, "the longer one may be its own");
        pace.clock.sleep(Duration::from_secs(6)).await;
        assert!(is_free("C1").await);
    }

    /// Rates of daemons in one process.
    #[derive(Debug)]
    struct InMemory(Clock, Mutex<HashMap<String, Moment>>);

    impl Rates for InMemory {
        fn turn(&self, what: &str, every: Duration) -> io::Result<Duration> {
            let (mut next, now) = (self.1.lock(), self.0.monotonic());
            let next = next.entry(what.to_owned()).or_insert(now);
            let turn = now.max(*next);
            *next = turn + every;
            Ok(turn.since(now))
        }

        fn seat(&self, _what: &str, _seats: i32) -> io::Result<bool> {
            Ok(true)
        }

        fn hold(&self, what: &str, time: Duration) -> io::Result<()> {
            let (mut next, until) = (self.1.lock(), self.0.monotonic() + time);
            let next = next.entry(what.to_owned()).or_insert(until);
            *next = until.max(*next);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn daemons_with_one_app_keep_its_pace_and_its_limits_together() {
        let clock = Clock::of_tokio();
        let rates = Arc::new(InMemory(clock.clone(), Mutex::default()));
        let daemon = || Pace::new(Duration::from_secs(1), clock.clone(), Some(Arc::clone(&rates) as Arc<dyn Rates>));
        let (one, other) = (daemon(), daemon());
        let start = clock.monotonic();
        one.turn("C1").await;
        other.turn("C1").await;
        assert_eq!(clock.monotonic().since(start).as_millis(), 1000);
        assert!(!one.takes_turn("C1"), "it has to ask");
        one.limit("chat.update", "C1", Duration::from_secs(7)).await;
        while other.call("chat.update", "C2").await.is_ok() {
            clock.sleep(Duration::from_millis(1)).await;
        }
        assert!(other.call("chat.delete", "C2").await.is_ok());
    }
}
