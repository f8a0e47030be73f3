//! Resolve, step, save, act: the only room that changes an ask.
//!
//! Every ask has a lane while something happens to it: its events keep their order, and events of different asks run side by
//! side, so that one slow disk write holds up no other ask. An event is resolved to an ask (read from the store), stepped
//! through the pure core, saved, and only then answered and acted on. Memory is no truth: a start builds the index anew.

mod act;
mod admission;
mod agents;
mod aside;
mod attempts;
mod briefings;
mod calls;
mod carried;
mod collect;
mod errands;
mod flushing;
mod folder_work;
mod holding;
mod hosts;
mod index;
mod kept;
mod lane;
mod lanes;
mod learning;
mod listing;
mod looks;
mod lying;
mod overview;
mod owed;
mod promise;
mod repeats;
mod replacing;
mod saves;
mod sharing;
mod start;
mod step;
mod submit;
mod unreadable;
mod updates;

pub use carried::Known;
pub use index::Cursor;
pub use listing::{Filter, Named, Page};
pub(in crate::host) use lying::Outcomes;
pub use overview::{Overview, Stuck, StuckCard, Tally};
pub use submit::Submitted;
pub use unreadable::Unreadable;

use crate::clock::{Clock, Reading};
use crate::host::audit::{Audit, Lines};
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::holds::Holds;
use crate::host::keyed_lock::KeyedLock;
use crate::host::metrics::Metrics;
use crate::host::port::Channels;
use crate::host::session::{Heartbeats, Leases, Sessions};
use crate::host::settings::Settings;
use crate::host::store::{Loading, Store, StoreError};
use crate::host::traces::Traces;
use crate::sabotage::on;
use askd_core::{Ask, AskId, Digest, Event, Group, Refusal, RequestId, ShortId, Time};
use folder_work::FolderWork;
use index::{Index, Naming};
use lanes::Lanes;
use parking_lot::{Mutex, MutexGuard};
use repeats::{Asking, Repeats};
use saves::Saves;
use sharing::{Beside, panicked};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, broadcast, watch};
use updates::Updates;

/// How many changes a slow reader may be behind before it has to read everything anew.
const CHANGES: usize = 256;
/// To how many asks events happen at a time that nobody waits for and that may be very many.
const PLACES: usize = 64;
/// First and longest pause before something that failed on the disk is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The only room that changes an ask. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Broker(Arc<Inner>);

/// The same, for parts that the broker itself holds.
#[derive(Debug, Clone)]
pub struct WeakBroker(Weak<Inner>);

impl WeakBroker {
    /// The broker, if it is still there.
    pub fn upgrade(&self) -> Option<Broker> {
        self.0.upgrade().map(Broker)
    }
}

#[derive(Debug)]
struct Inner {
    store: Box<dyn Store>,
    saves: Saves,
    folder_work: FolderWork,
    /// The cards that have to be brought up to date.
    updates: Updates,
    folders: Folders,
    audit: Audit,
    metrics: Metrics,
    traces: Traces,
    channels: Channels,
    ctx: Ctx,
    sessions: Sessions,
    settings: watch::Sender<Arc<Settings>>,
    /// By how far the time of day was set when stored asks were written, as far as this run knows.
    set_by: i64,
    /// When this run began.
    started: Time,
    /// What was made before was not made by this run, in milliseconds: when it began, or the newest open ask that it found was made. The
    /// clock may be behind since.
    earlier: AtomicI64,
    loading: Arc<Loading>,
    /// What the audit log says of stored asks, while they are read.
    noted: Mutex<Lines>,
    /// Places for events that may be very many.
    places: Arc<Semaphore>,
    /// The groups whose waiting processes a task judges now.
    looking: KeyedLock<Group>,
    /// The groups of which it is being noted what agents have taken.
    noting: KeyedLock<Group>,
    /// Something is moved in the folders for these asks.
    moving: KeyedLock<AskId>,
    /// The agents of these asks are being started.
    starting: KeyedLock<AskId>,
    /// Briefings that callers over HTTP were sent lately.
    briefed: Holds<AskId>,
    /// The asks of which a task finds out whose processes are gone.
    replacing: KeyedLock<AskId>,
    /// What this daemon knows of others.
    beside: Beside,
    /// One call of each request id, and of each key, is taken in at a time.
    asking: Asking,
    repeats: Repeats,
    naming: Naming,
    index: Mutex<Index>,
    /// Is taken while the index is held, never the other way round.
    lanes: Mutex<Lanes>,
    /// Held by each word of a person that is being stored.
    words: Arc<()>,
    /// These asks were in doubt when they were accepted: their requests are still there, and will be read again.
    doubted: Mutex<HashSet<AskId>>,
    /// The last cards that cannot be closed.
    given_up: Mutex<VecDeque<StuckCard>>,
    unreadable: Mutex<BTreeMap<AskId, Unreadable>>,
    changes: broadcast::Sender<AskId>,
    /// The next deadline may have moved.
    moved: Notify,
    /// Something was saved that is not on stable storage yet.
    saved: Notify,
    /// All groups were looked at.
    looked: Notify,
}

/// Why an event was not taken.
#[derive(Debug)]
pub enum Failure {
    /// There is no such ask.
    Unknown,
    /// It does not fit; nothing was changed. With the ask as it is.
    Refused(Box<Refusal>, Arc<Ask>),
    /// It could not be stored; nothing was changed.
    NotStored,
    /// askd does not know whether it is stored, and writes it again until it is. It takes effect then.
    InDoubt,
    /// askd made a mistake with this ask, and has set it aside.
    Broken,
}

impl Broker {
    /// Waits before another try; `false` if the daemon is stopping.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let wait = *pause;
        *pause = wait.saturating_mul(2).min(RETRY.1);
        self.0.ctx.pause(wait).await
    }

    /// Lets time pass for every ask whose deadline has come.
    async fn keep_time(&self) {
        let mut followed = self.clock().reading().set_by;
        loop {
            let next = self.index().next_deadline();
            tokio::select! {
                () = self.clock().sleep_until(next) => {}
                () = self.0.moved.notified() => {}
            }
            let Reading { now, set_by } = self.clock().reading();
            if set_by != followed {
                followed = set_by;
                // An ask follows the clock when an event happens to it; an early tick does no more than that.
                let counting = self.counting_time();
                self.in_turn(counting.into_iter().map(|id| (id, Event::Tick))).await;
            }
            let due = self.take_due(now);
            if !on("notick") {
                self.in_turn(due.into_iter().map(|id| (id, Event::Tick))).await;
            }
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // A panic elsewhere does not make the index wrong: it is changed in whole steps.
        self.0.index.lock()
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.0.lanes.lock()
    }

    /// Drops an ask that is gone.
    fn drop_ask(&self, ask: &Ask) {
        self.index().remove(ask);
        self.lanes().forget(ask.id);
    }

    /// Changes the index, and wakes who waits for the next deadline if it is sooner now.
    fn enter<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut index = self.index();
        let before = index.next_deadline();
        let changed = change(&mut index);
        if index.next_deadline() < before {
            self.0.moved.notify_one();
        }
        changed
    }

    fn clock(&self) -> &Clock {
        self.0.ctx.clock()
    }

    /// Signs of life, for the scanners that list the folders they lie in.
    pub(super) fn heartbeats(&self) -> &Heartbeats {
        &self.0.sessions.heartbeats
    }

    /// Which calls over HTTP still wait.
    pub(in crate::host) fn leases(&self) -> &Leases {
        &self.0.sessions.leases
    }

    /// The ask that a group's request became.
    pub(in crate::host) fn of_request(&self, group: &Group, request_id: &RequestId) -> Option<AskId> {
        self.index().by_request(group, request_id)
    }

    /// The ask that may have that key, and is open or has an outcome that no call took.
    pub(in crate::host) fn of_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        let index = self.index();
        index.by_key(group, key).or_else(|| index.kept_by_key(group, key))
    }

    /// A handle for parts that the broker itself holds.
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker(Arc::downgrade(&self.0))
    }

    /// The open asks that the person with one of these ids may answer in words.
    pub fn asked_of(&self, ids: &[String]) -> Vec<AskId> {
        self.index().asked_of(ids)
    }

    /// Asks that were settled then or later, and that the person with one of these ids could answer in words.
    pub fn ended_since(&self, ids: &[String], since: Time) -> Vec<AskId> {
        self.index().ended_since(ids, since)
    }

    /// Such asks with that code: first those that can still be answered, then the newest.
    pub fn ended_with(&self, ids: &[String], code: &ShortId) -> Vec<AskId> {
        self.index().ended_with(ids, code)
    }

    /// Whether anybody can answer an open ask in words.
    pub fn asks_in_chats(&self) -> bool {
        self.index().asks_in_chats()
    }

    /// The ask that may have been changed by that message of a person.
    pub fn heard(&self, message: &str) -> Option<AskId> {
        self.index().heard(message)
    }

    /// Looks at the clock again: it may have jumped, or the computer may have slept.
    pub fn nudge(&self) {
        self.0.moved.notify_one();
    }

    /// The ask that a message of a chat belongs to, if it is one that was posted. Where people answer in words its id is unique
    /// without the chat, and none is given.
    pub fn by_message(&self, chat: &str, message: &str) -> Option<AskId> {
        self.index().by_message(chat, message)
    }

    /// Keeps a copy of a request that could not be asked. Blocks on the disk.
    pub fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.store.keep_rejected(group, name, bytes)
    }

    /// Whether the store can be written.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.blocking(|broker| broker.0.store.probe()).await
    }

    /// Whether the last save of an ask failed or is in doubt.
    pub fn last_save_failed(&self) -> bool {
        self.0.store.last_save_failed()
    }

    /// What holds now.
    pub fn settings(&self) -> Arc<Settings> {
        self.0.settings.borrow().clone()
    }

    /// Lets other settings hold for asks that come from now on.
    pub fn reload(&self, settings: Arc<Settings>) {
        self.0.settings.send_replace(settings);
        self.end_all_blocks();
    }

    /// Who wants to know when other settings hold.
    pub fn settings_changes(&self) -> watch::Receiver<Arc<Settings>> {
        self.0.settings.subscribe()
    }

    /// Whether every stored ask is known.
    pub fn is_loaded(&self) -> bool {
        self.0.loading.is_over()
    }

    /// Waits until every stored ask is known.
    pub async fn loaded(&self) {
        self.0.loading.wait_for_all().await;
    }

    /// Whether every stored ask of this group is known.
    pub fn has_loaded(&self, group: &Group) -> bool {
        self.0.loading.has(group)
    }

    /// Removes what an earlier run may have left half written in a group's folders.
    pub fn tidy_folders(&self, group: &Group) -> std::io::Result<()> {
        if self.0.store.ended_well() { Ok(()) } else { self.0.folders.tidy(group) }
    }

    /// Waits until every stored ask of this group is known, and has them read first.
    pub async fn loaded_of(&self, group: &Group) {
        self.0.loading.wait_for(group).await;
    }

    /// Who wants to know when an ask changes.
    pub fn changes(&self) -> broadcast::Receiver<AskId> {
        self.0.changes.subscribe()
    }

    /// One ask as it is stored.
    pub async fn get(&self, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.0.store.cached(id) {
            return Ok(Some(ask));
        }
        if self.0.loading.is_over() && self.index().group(id).is_none() && !self.is_shared() {
            return Ok(None);
        }
        self.blocking(move |broker| broker.load(id).map_err(|error| broker.if_it_lasts(error))).await
    }

    /// Work that blocks on the disk, or on the database, on a thread for that.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let broker = self.clone();
        tokio::task::spawn_blocking(move || work(&broker)).await.unwrap_or_else(|panic| Err(panicked(panic)))
    }
}
