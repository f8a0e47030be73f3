//! A start: reads what the store holds into the index, in the background, and does what the last run left undone. Each ask
//! is known as soon as it is read, or as soon as somebody names it. What is undone for it comes before anything else
//! that happens to it (`lane`).

use super::carried::Known;
use super::folder_work::FolderWork;
use super::index::Naming;
use super::saves::Saves;
use super::sharing::Beside;
use super::updates::Updates;
use super::{Broker, CHANGES, Failure, Inner, PLACES, RETRY};
use crate::clock::Clock;
use crate::host::audit::{Audit, Lines};
use crate::host::ctx::Ctx;
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::host::holds::Holds;
use crate::host::keyed_lock::KeyedLock;
use crate::host::metrics::Metrics;
use crate::host::port::Channels;
use crate::host::session::Sessions;
use crate::host::settings::Settings;
use crate::host::store::{Loading, Store, StoreError, Stored};
use crate::host::traces::Traces;
use crate::sabotage::{gate, on};
use askd_core::{Ask, AskId, Effect, Event, Fact, Group, Relation, Time};
use parking_lot::Mutex;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, broadcast, watch};

/// When the allocator is made to give back what loading needed: it keeps what was freed less than a second ago.
const GIVES_BACK_AFTER: Duration = Duration::from_millis(1_100);
/// How many places of the index are looked through at a time for waiters to be told deadlines.
const TOLD_AT_A_TIME: usize = 1_024;
/// It looks for what it can give back when a piece of this size is freed.
const LARGE: usize = 4 * 1024 * 1024;

/// Late answers that are not taken any more because the agent has asked the same again. The mark on the ask may be lost.
#[derive(Debug)]
struct Late {
    /// Asks that can still be answered late, by the names of their keys.
    open: Vec<(AskId, u64, Time)>,
    /// When the newest ask was asked, by the same.
    newest: HashMap<u64, Time>,
    naming: Naming,
}

impl Late {
    fn new(naming: Naming) -> Self {
        Self { open: Vec::new(), newest: HashMap::new(), naming }
    }

    fn note(&mut self, ask: &Ask) {
        let Some(key) = self.naming.key(ask) else { return };
        let newest = self.newest.entry(key).or_insert(ask.created_at);
        *newest = ask.created_at.max(*newest);
        if ask.is_late_open() {
            self.open.push((ask.id, key, ask.created_at));
        }
    }

    /// `has_newer`: whether there is a newer ask with that key among those that were not read.
    fn superseded(&self, has_newer: impl Fn(u64, Time) -> bool) -> impl Iterator<Item = AskId> {
        let superseded = move |(_, key, at): &&(AskId, u64, Time)| {
            self.newest.get(key).is_some_and(|newest| newest > at) || has_newer(*key, *at)
        };
        self.open.iter().filter(superseded).map(|(id, ..)| *id)
    }
}

impl Broker {
    /// A broker that knows no ask yet, or what the run before it knew: [`Self::read_all`] reads the rest.
    pub fn new(
        store: Box<dyn Store>,
        folders: Folders,
        audit: Audit,
        channels: Channels,
        ctx: Ctx,
        settings: Arc<Settings>,
        (loading, known): (Arc<Loading>, Option<Known>),
    ) -> io::Result<Self> {
        let saves = Saves::new(&ctx, store.shared().is_some(), Clock::system())?;
        let index = known.and_then(|known| known.go_on(&*store)).unwrap_or_default();
        let broker = Self(Arc::new(Inner {
            store,
            folder_work: FolderWork::new(&saves.promises),
            updates: Updates::default(),
            saves,
            folders,
            audit,
            metrics: Metrics::default(),
            traces: Traces::open(settings.traces.endpoint.as_deref(), &ctx)?,
            channels,
            sessions: Sessions::new(settings.docker_host.as_deref(), settings.agents.pending_lease, ctx.clone()),
            set_by: ctx.clock().reading().set_by,
            started: ctx.clock().now(),
            earlier: AtomicI64::new(ctx.clock().now().as_millis()),
            ctx,
            settings: watch::Sender::new(settings),
            loading,
            noted: Mutex::default(),
            given_up: Mutex::default(),
            unreadable: Mutex::default(),
            places: Arc::new(Semaphore::new(PLACES)),
            looking: KeyedLock::default(),
            noting: KeyedLock::default(),
            moving: KeyedLock::default(),
            starting: KeyedLock::default(),
            briefed: Holds::default(),
            replacing: KeyedLock::default(),
            beside: Beside::default(),
            asking: super::Asking::default(),
            repeats: super::Repeats::default(),
            naming: index.naming.clone(),
            index: Mutex::new(index),
            lanes: Mutex::default(),
            words: Arc::default(),
            doubted: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES),
            moved: Notify::new(),
            saved: Notify::new(),
            looked: Notify::new(),
        }));
        if broker.is_shared() {
            let own = broker.downgrade();
            broker.0.ctx.limit_calls(move || own.upgrade().map_or(Duration::ZERO, |own| own.0.store.calls_for()));
        }
        Ok(broker)
    }

    /// Reads what the store holds, and then does what the asks still owe, in the background. Returns when every ask is
    /// known. Blocks on the disk.
    pub fn read_all(&self) -> Result<(), StoreError> {
        for (group, allowed) in self.0.store.allowed()? {
            self.index().attempts.allow(&group, allowed);
        }
        let late = Mutex::new(Late::new(self.0.naming.clone()));
        self.index().begin_loading();
        let (sized, open_ones) = (Once::new(), Once::new());
        let corrupt = self.0.store.scan(&self.0.loading, &|stored| {
            sized.call_once(|| {
                let mut index = self.index();
                if !index.is_carried() {
                    index.reserve(self.0.loading.so_far().1);
                }
            });
            late.lock().note(&stored.ask);
            self.take_in(&stored);
            if stored.settled && self.is_shared() {
                // People wait for what the open ones owe, and nobody for what is kept, which may be very much.
                open_ones.call_once(|| {
                    let broker = self.clone();
                    self.0.ctx.spawn(async move { broker.do_what_is_owed().await });
                });
                gate("start.kept");
            }
        })?;
        for (file, why) in corrupt {
            tracing::error!(file, %why, "not the record of an ask; it stops nothing (a damaged one was renamed to end in .corrupt)");
        }
        let (open, settled) = self.enter(|index| {
            index.end_loading();
            index.count()
        });
        *self.0.noted.lock() = Lines::default();
        if self.is_shared() && self.leads() {
            self.hold_what_was_copied();
        }
        self.0.loading.end();
        tracing::info!(open, closed = settled, read = self.0.loading.so_far().0, "Stored questions loaded");
        self.go_on(&late.into_inner());
        Ok(())
    }

    /// What was copied has no count, so only who has read it knows of its groups. Once they are held, they have one.
    fn hold_what_was_copied(&self) {
        let (mut unheld, runtime, mut pause) = (self.index().every_group(), Handle::current(), RETRY.0);
        unheld.retain(|group| !self.holds(group));
        while !unheld.is_empty()
            && let Err(error) = runtime.block_on(self.take_free(unheld.clone()))
        {
            tracing::warn!(%error, "some groups are not served yet; trying again");
            if !runtime.block_on(self.pause(&mut pause)) {
                return;
            }
        }
    }

    /// Takes in an ask that the last run left. What is known of it already is at least as new.
    pub(super) fn take_in(&self, Stored { ask, settled, after_loss }: &Stored) {
        let effects = ask.resume();
        let lost = *after_loss && ask.is_changed_by_loss();
        let over = if *settled { Effect::Retire } else { Effect::Status };
        let serves = self.serves(ask);
        let undone = || effects.iter().any(|effect| *effect != over && self.does(ask, effect));
        let owes = undone() || (!settled && serves && ask.was_interrupted());
        let named = self.0.naming.of(ask);
        let is_known = self.enter(|index| {
            if index.has_read(ask.id) {
                return true;
            }
            if !index.take_in(ask, named, self.0.set_by) {
                // It was known to the run before, and its times may have followed the clock since.
                index.has_followed(ask.id, self.0.set_by);
            }
            // It holds the group since: then the rest of it has been taken up already.
            let came = !serves && self.serves(ask) && (!settled || undone());
            if came || lost && serves || (owes && (*settled || !on("noresume"))) {
                self.lanes().owe(ask.id, lost && (serves || came));
            }
            false
        });
        if is_known {
            return;
        }
        self.look_in_its_place(ask);
        if *settled {
            return;
        }
        self.0.earlier.fetch_max(ask.created_at.as_millis(), Ordering::Relaxed);
        self.note_unheard(ask);
        let now = LazyCell::new(|| self.clock().now());
        if self.does_folder_work(&ask.group) {
            for process in ask.waiters.iter().filter_map(|waiter| waiter.process.as_deref()) {
                // From now on each look looks for its sign of life.
                self.0.sessions.heartbeats.of(&ask.group, process, *now);
            }
        }
        if ask.waiters.len() > 1 {
            self.replace_dead_of(ask, Some(*now));
        }
        if !self.leads() || self.0.store.ended_well() {
            return;
        }
        // A crash may have kept from being noted what follows.
        self.0.audit.fact_once(&self.0.noted, ask, &Fact::Asked, *now);
        for effect in &effects {
            if let Effect::Note(fact) = effect {
                self.0.audit.fact_once(&self.0.noted, ask, fact, *now);
            }
        }
    }

    /// Looks for an ask that was not read yet. Blocks on the disk.
    pub(super) fn find(&self, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        self.refresh(id)?;
        let group = self.index().group(id);
        group.map_or(Ok(None), |group| self.0.store.load(&group, id))
    }

    /// Does what is undone for the asks that are known by now. Whatever happens to one of them, that comes first.
    async fn do_what_is_owed(&self) {
        let owing = self.lanes().owing();
        self.in_turn(owing.into_iter().map(|id| (id, Event::Tick))).await;
    }

    /// Does what the stored asks still owe, in the background.
    fn go_on(&self, late: &Late) {
        let leads = self.leads();
        let superseded: Vec<_> = if leads {
            let index = self.index();
            late.superseded(|key, at| index.has_newer(key, at)).collect()
        } else {
            Vec::new()
        };
        for id in superseded {
            self.apply_later(id, Event::Requested(Relation::Supersedes));
        }
        let crowded = if leads { self.index().all_crowded() } else { Vec::new() };
        let broker = self.clone();
        self.0.ctx.spawn(async move { broker.give_memory_back().await });
        let broker = self.clone();
        self.0.ctx.spawn(async move {
            broker.do_what_is_owed().await;
            broker.tell_deadlines().await;
            broker.in_turn(crowded.into_iter().map(|id| (id, Event::Crowded))).await;
            broker.give_memory_back().await;
        });
        // What held up those of a group that began meanwhile.
        self.end_all_blocks();
        if !leads {
            return;
        }
        self.0.moved.notify_one();
        // The last run may have left something unsynced.
        self.0.saved.notify_one();
    }

    /// Begins what goes on as long as the daemon does.
    pub fn begin(&self) {
        let (timer, flusher) = (self.clone(), self.clone());
        self.0.ctx.spawn(async move { timer.keep_time().await });
        self.0.ctx.spawn(async move { flusher.keep_flushing().await });
        if self.is_shared() {
            let (broker, stopping) = (self.clone(), self.clone());
            self.0.ctx.spawn(async move { broker.keep_up().await });
            self.0.ctx.finish(async move {
                stopping.0.ctx.stopping().await;
                if let Err(error) = stopping.rest().await {
                    tracing::debug!(%error, "others may still hand over groups to this daemon");
                }
            });
        }
    }

    /// Lets events of our own happen to asks, to some at a time: there may be very many.
    pub(super) async fn in_turn(&self, events: impl IntoIterator<Item = (AskId, Event)>) {
        for (id, event) in events {
            // It is never closed.
            let Ok(place) = Arc::clone(&self.0.places).acquire_owned().await else { return };
            let broker = self.clone();
            self.0.ctx.finish(async move {
                if let Err(Failure::NotStored) = broker.apply(id, event.clone()).await {
                    broker.apply_later(id, event);
                }
                drop(place);
            });
        }
    }

    /// Has the allocator give back what is not needed any more.
    async fn give_memory_back(&self) {
        self.clock().sleep(GIVES_BACK_AFTER).await;
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
    }

    /// Tells waiters the deadlines of their open asks: it is a hint. Folders of the root get a thread between them, and each folder that
    /// is mounted gets one, because many asks may be open, and responses go into these folders, too.
    async fn tell_deadlines(&self) {
        let broker = self.clone();
        let tell = move || {
            let (mut from, mut mounted) = (0, HashMap::<Arc<Group>, Vec<AskId>>::new());
            loop {
                let Some(some) = broker.index().open_within(from, TOLD_AT_A_TIME) else { break };
                from += TOLD_AT_A_TIME;
                for (group, ids) in some.into_iter().filter(|(group, _)| broker.does_folder_work(group)) {
                    if broker.0.folders.is_home(&group) {
                        broker.tell_those(&group, &ids, Saves::make_way);
                    } else {
                        mounted.entry(group).or_default().extend(ids);
                    }
                }
            }
            for (group, ids) in mounted {
                let (teller, of) = (broker.clone(), Arc::clone(&group));
                // Each has a thread of its own, which must not wait for long.
                broker.in_folder(&group, move || {
                    teller.tell_those(&of, &ids, |saves| {
                        let _late = saves.promises.make_way(1);
                    });
                });
            }
        };
        let _stopped = tokio::task::spawn_blocking(tell).await;
    }

    /// The same of one group; each makes way before. Blocks on the disk.
    fn tell_those(&self, group: &Group, asks: &[AskId], make_way: fn(&Saves)) {
        for id in asks.iter().take_while(|_| !self.0.ctx.is_stopping()) {
            make_way(&self.0.saves);
            // Most of them were told by the last run.
            if let Ok(Some(ask)) = self.0.store.read(group, *id)
                && !delivery::has_told_status(&self.0.folders, &ask).unwrap_or(false)
            {
                self.write_status_of(ask);
            }
        }
    }
}
