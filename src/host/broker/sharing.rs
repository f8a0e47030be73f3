//! Beside other daemons that share the records: learns what they have stored, and does what their steps ask this one for. With a
//! store of its own none of this happens.

use super::holding::Since;
use super::saves::Promise;
use super::{Broker, KeyedLock};
use crate::clock::{Clock, Moment};
use crate::host::holds::Holds;
use crate::host::store::{Sharing, StoreError, Webhook};
use crate::sabotage::on;
use askd_core::{Ask, AskId, Effect, Group};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;

/// How often a daemon looks what others have stored, unless it is told that there is something.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest time between two looks, and how many times as long as the last one took: one look finds what many notices tell of.
const PAUSE: Duration = Duration::from_millis(200);
const TIMES: u32 = 5;
/// How long a daemon relies on its last look.
const BLIND: Duration = Duration::from_secs(5);
/// How often it says which calls wait here.
const TELL: Duration = Duration::from_secs(20);
/// How many names of documents a slow reader may be behind.
const DOCUMENTS: usize = 64;

/// What a daemon knows of others.
#[derive(Debug)]
pub(super) struct Beside {
    /// One request of each group is judged at a time.
    pub(super) asking: KeyedLock<Group>,
    /// What lies in the folders of these groups is being found out.
    pub(super) settling: KeyedLock<Group>,
    /// This daemon finds out which groups it holds, and begins with them.
    pub(super) beginning: tokio::sync::Mutex<()>,
    pub(super) since: Mutex<Since>,
    /// The groups of which closed cards may say that the agent's host does not answer; `None`: of any.
    pub(super) silent: Mutex<Option<HashSet<Group>>>,
    /// One look at a time, and when the last one began that succeeded.
    pub(super) looked: tokio::sync::Mutex<Looked>,
    pub(super) seen: Mutex<Option<Moment>>,
    /// There is more than the last one has read.
    pub(super) is_behind: AtomicBool,
    /// How many runs had a lease then.
    pub(super) runs: AtomicUsize,
    /// What is under way for others, and is still noted as owed. After a crash of the database other work may have its number.
    pub(super) paying: Mutex<HashMap<i64, (AskId, Vec<Effect>)>>,
    /// While others save a burst of promises, what follows makes way here as it does there.
    pub(super) burst: Mutex<Vec<Promise>>,
    /// Other daemons may believe that calls wait here.
    pub(super) has_told: AtomicBool,
    pub(super) documents: broadcast::Sender<String>,
    /// The computer's, whatever clock the daemon runs by: it is the database's time that passes.
    pub(super) clock: Clock,
}

/// What came of looks.
#[derive(Debug)]
pub(super) struct Looked {
    /// All was learned that they have found.
    pub(super) all_learned: bool,
    /// When and why the last one failed that did.
    pub(super) failed: Option<(Moment, String)>,
}

impl Default for Beside {
    fn default() -> Self {
        Self {
            asking: KeyedLock::default(),
            settling: KeyedLock::default(),
            beginning: tokio::sync::Mutex::default(),
            since: Mutex::default(),
            silent: Mutex::default(),
            looked: tokio::sync::Mutex::new(Looked { all_learned: true, failed: None }),
            seen: Mutex::default(),
            is_behind: AtomicBool::default(),
            runs: AtomicUsize::default(),
            paying: Mutex::default(),
            burst: Mutex::default(),
            has_told: AtomicBool::default(),
            documents: broadcast::Sender::new(DOCUMENTS),
            clock: Clock::system(),
        }
    }
}

/// Logs when it begins to fail, and when it works again.
fn log_change(kept_up: &Result<(), StoreError>, failing: &mut bool) {
    match (kept_up, std::mem::replace(failing, kept_up.is_err())) {
        (Err(error), false) => {
            tracing::warn!(%error, "cannot keep up with the other daemons; trying again");
        }
        (Ok(()), true) => tracing::info!("keeping up with the other daemons again"),
        (Ok(()), false) | (Err(_), true) => {}
    }
}

impl Broker {
    /// Whether this daemon does what is done in one place: the only one, or the leader.
    pub(in crate::host) fn leads(&self) -> bool {
        self.0.store.shared().is_none_or(Sharing::leads)
    }

    /// Whether other daemons change the same records.
    pub(in crate::host) fn is_shared(&self) -> bool {
        self.0.store.shared().is_some()
    }

    /// Learns what others have stored, and does what they ask for, as long as the daemon runs.
    pub(super) async fn keep_up(&self) {
        let Some(shared) = self.0.store.shared() else { return };
        let clock = &self.0.beside.clock;
        let (mut hint, mut told, mut failing) = (shared.hint(), None, false);
        let (mut next, telling) = (clock.monotonic(), Arc::new(tokio::sync::Mutex::new(())));
        let mut tended: Option<(Moment, usize)> = None;
        // It holds nothing before it has looked.
        self.0.beside.is_behind.store(true, Ordering::Relaxed);
        // What is known was read before; one that is cut off before its first look is as blind as later.
        self.0.beside.seen.lock().get_or_insert(next);
        loop {
            let told_of_news = async {
                let heard = hint.changed().await;
                clock.sleep_to(next).await;
                // What it would find follows from what was promised there, and can make way here for what is promised now.
                self.0.saves.until_no_burst().await;
                heard
            };
            let look = if self.0.beside.is_behind.swap(false, Ordering::Relaxed) { Duration::ZERO } else { LOOK };
            tokio::select! {
                () = clock.sleep(look), if !on("nopoll") => {}
                Ok(()) = told_of_news => {}
                () = self.leases().begun() => told = None,
            }
            let now = clock.monotonic();
            // On a notice only if that may be of a run that has left its groups.
            let is_due = tended.is_none_or(|(last, _)| now.since(last) >= LOOK);
            // Before the look, which then shows the steps that ask for it.
            let owed = if is_due { None } else { Some(self.owed().await) };
            let mut kept_up = self.catch_up().await;
            let (looked, runs) = (kept_up.is_ok(), self.0.beside.runs.load(Ordering::Relaxed));
            let tends = looked && (is_due || tended.is_some_and(|(_, before)| before != runs));
            if tends {
                kept_up = self.tend().await;
                tended = Some((now, runs));
            }
            let (owed, seen) = match owed {
                Some(owed) if !tends => (owed, looked),
                // It may hold more groups now.
                _ => (self.owed().await, false),
            };
            kept_up = match owed {
                Ok(owed) => self.pay(owed, seen).await.and(kept_up),
                Err(error) => Err(error),
            };
            next = now + (clock.monotonic().since(now) * TIMES).clamp(PAUSE, LOOK);
            self.settle_in();
            self.tell_of_silence_beside(&telling);
            if told.is_none_or(|last: Moment| now.since(last) >= TELL) {
                let waits = self.tell_waits().await;
                // If it failed, the next look tells: whoever waits here must not count as gone at the holder.
                told = waits.is_ok().then_some(now);
                kept_up = kept_up.and(waits);
            }
            log_change(&kept_up, &mut failing);
        }
    }

    /// Beside the looks: the first time it may read very many outcomes.
    fn tell_of_silence_beside(&self, telling: &Arc<tokio::sync::Mutex<()>>) {
        if let Ok(alone) = Arc::clone(telling).try_lock_owned() {
            let broker = self.clone();
            self.0.ctx.spawn(async move {
                broker.tell_of_silence().await;
                drop(alone);
            });
        }
    }

    /// Learns what others have stored by now.
    pub(in crate::host) async fn catch_up(&self) -> Result<(), StoreError> {
        self.catch_up_since(self.0.beside.clock.monotonic()).await
    }

    /// Learns what others had stored by then. Of many that wait for the same, one looks; and if the database does not answer it, all are told.
    pub(super) async fn catch_up_since(&self, then: Moment) -> Result<(), StoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        // A task of its own: what a look has found is learned, even if whoever asked for it has gone.
        let broker = self.clone();
        let caught_up = self.0.ctx.finish(async move { broker.look_and_learn(then).await });
        caught_up.await.unwrap_or_else(|panic| Err(panicked(panic)))
    }

    /// Finds what another daemon may have stored just now. An error: that is not known.
    pub(in crate::host) async fn find_anywhere<T>(
        &self,
        find: impl Fn(&Self) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        match find(self) {
            None if self.is_shared() => {
                self.catch_up().await?;
                Ok(find(self))
            }
            found => Ok(found),
        }
    }

    /// One ask, read anew if what is known of it does not fit: another daemon may have changed it since.
    pub(in crate::host) async fn get_fitting(
        &self,
        id: AskId,
        fits: impl Fn(&Ask) -> bool,
    ) -> Result<Option<Arc<Ask>>, StoreError> {
        let known = self.get(id).await?;
        if !self.is_shared() || known.as_deref().is_none_or(fits) {
            return Ok(known);
        }
        self.blocking(move |broker| broker.find(id)).await
    }

    /// Waits until others may have stored something; `false` if there are no others.
    pub(in crate::host) async fn news(&self) -> bool {
        let Some(shared) = self.0.store.shared() else { return false };
        // It changes only if somebody listens.
        self.0.beside.clock.timeout(LOOK, shared.hint().changed()).await;
        true
    }

    /// Whether it has been too long since the last look: another daemon may have revoked or changed anything.
    pub(in crate::host) fn is_blind(&self) -> bool {
        let since = |seen: Moment| self.0.beside.clock.monotonic().since(seen) > BLIND;
        self.is_shared() && self.0.beside.seen.lock().is_some_and(since)
    }

    /// Who wants to know which documents others have written.
    pub(in crate::host) fn documents_changes(&self) -> broadcast::Receiver<String> {
        self.0.beside.documents.subscribe()
    }

    /// Holds these for a taker, all or none; else returns for how long another one has one of them. Where daemons share the records it
    /// is one transaction there, so that of two takers at two daemons one is refused.
    pub(in crate::host) async fn hold_for<Id: Clone + Eq + Hash + Display>(
        &self,
        holds: &Holds<Id>,
        taker: &str,
        all: &[(Group, Id)],
    ) -> Result<Option<Duration>, StoreError> {
        if !self.is_shared() || on("ownholds") {
            return Ok(holds.hold(all, taker, self.clock().monotonic()).err());
        }
        let (taker, what) = (taker.to_owned(), all.iter().map(|of| holds.name(of)).collect::<Vec<_>>());
        let now = self.clock().now();
        let between = [now, now + holds.time()];
        let anothers = self.in_store(move |shared| shared.hold_for(&taker, &what, between)).await?;
        Ok(anothers.map(|until| until.since(now)))
    }

    /// It did not reach this taker: another one may have it at once. Done when the future is, at the latest.
    pub(in crate::host) fn release<Id: Clone + Eq + Hash + Display>(
        &self,
        holds: &Holds<Id>,
        taker: &str,
        of: &(Group, Id),
    ) -> impl Future<Output = ()> + Send + use<Id> {
        holds.release(of, taker);
        let (broker, taker, what) = (self.clone(), taker.to_owned(), holds.name(of));
        async move {
            if !broker.is_shared() {
                return;
            }
            let released = broker.in_store(move |shared| Sharing::release(shared, &what, Some(&taker))).await;
            if let Err(error) = released {
                tracing::debug!(%error, "another taker has to wait");
            }
        }
    }

    /// Keeps a verified webhook of a channel for the leader. It is on stable storage then.
    pub(in crate::host) async fn keep_webhook(&self, channel: &'static str, body: Vec<u8>) -> Result<(), StoreError> {
        self.in_store(move |shared| shared.keep_webhook(channel, &body)).await
    }

    /// Some verified webhooks of a channel that other daemons have kept after the one with that number, the oldest first.
    pub(in crate::host) async fn kept_webhooks(
        &self,
        channel: &'static str,
        after: i64,
    ) -> Result<Vec<Webhook>, StoreError> {
        self.in_store(move |shared| shared.webhooks(channel, after)).await
    }

    /// A kept webhook was dealt with.
    pub(in crate::host) async fn drop_webhook(&self, number: i64) -> Result<(), StoreError> {
        self.in_store(move |shared| shared.drop_webhook(number)).await
    }

    /// A call to the store, which blocks on the database.
    pub(super) async fn in_store<T: Default + Send + 'static>(
        &self,
        call: impl FnOnce(&(dyn Sharing + 'static)) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if !self.is_shared() {
            return Ok(T::default());
        }
        self.blocking(|broker| broker.0.store.shared().map_or(Ok(T::default()), call)).await
    }
}

pub(super) fn panicked(panic: tokio::task::JoinError) -> StoreError {
    StoreError::Io { what: "it panicked".to_owned(), source: io::Error::other(panic) }
}
