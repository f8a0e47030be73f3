//! A start: reads what the store holds into the index, keeps of it only the asks that owe something, and does what they owe.

use super::index::Index;
use super::saves::{Gate, Saves};
use super::{Broker, CHANGES, Inner, errands};
use crate::host::audit::{Audit, Lines};
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::keyed_lock::KeyedLock;
use crate::host::port::Channels;
use crate::host::session::Sessions;
use crate::host::settings::Settings;
use crate::host::store::{Loading, Store, StoreError, Stored};
use crate::sabotage::on;
use askd_core::{Ask, AskId, Effect, Event, Fact, Group, Relation, Time};
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use tokio::sync::{Notify, broadcast};

/// How many groups' waiters are told their deadlines at a time.
const AT_A_TIME: usize = 8;

/// What the stored asks still owe.
#[derive(Debug, Default)]
pub struct Owed {
    /// Asks that owe more than what follows.
    asks: Vec<(Ask, Vec<Effect>)>,
    /// Open asks whose waiters may not know the deadline. There can be very many, so only their ids are kept.
    statuses: HashMap<Group, Vec<AskId>>,
    /// Finished asks that are not among the kept outcomes yet.
    retire: Vec<AskId>,
    /// Asks that a loss of power may have set back.
    after_loss: Vec<AskId>,
    /// Asks that can still be answered late, by the hash of their group and key.
    late: Vec<(AskId, u64, Time)>,
    /// When the newest ask was asked, by the same.
    newest: HashMap<u64, Time>,
    hash: RandomState,
}

impl Owed {
    /// Notes what an ask owes. It keeps no ask that owes nothing.
    fn note(&mut self, Stored { ask, settled, after_loss }: Stored, mut effects: Vec<Effect>) {
        if let Some(key) = ask.key.map(|key| self.hash.hash_one((&ask.group, key))) {
            let newest = self.newest.entry(key).or_insert(ask.created_at);
            *newest = ask.created_at.max(*newest);
            if ask.is_late_open() {
                self.late.push((ask.id, key, ask.created_at));
            }
        }
        let redone = after_loss && ask.is_changed_by_loss();
        if redone {
            // The loss says what is owed.
            self.after_loss.push(ask.id);
        }
        if !settled && on("noresume") {
            return;
        }
        if effects.contains(&Effect::Retire) {
            effects.retain(|effect| *effect != Effect::Retire);
            if !settled {
                self.retire.push(ask.id);
            }
        }
        if redone {
            return;
        }
        if effects == [Effect::Status] && !ask.was_interrupted() {
            self.statuses.entry(ask.group.clone()).or_default().push(ask.id);
        } else if !effects.is_empty() || (!settled && ask.was_interrupted()) {
            self.asks.push((ask, effects));
        }
    }
}

impl Broker {
    /// Reads what the store holds. Returns when every ask is known; nothing goes on yet.
    pub fn open(
        store: Box<dyn Store>,
        folders: Folders,
        audit: Audit,
        channels: Channels,
        ctx: Ctx,
        settings: Arc<Settings>,
        loading: &Loading,
    ) -> Result<(Self, Owed), StoreError> {
        let (set_by, now) = (ctx.clock().reading().set_by, ctx.clock().now());
        let sessions = Sessions::new(settings.docker_host.as_deref(), ctx.clone());
        let found = Mutex::new((Index::default(), Owed::default(), Lines::default()));
        found.lock().0.attempts_mut().begin_loading();
        let corrupt = store.scan(loading, &|stored| {
            let effects = stored.ask.resume();
            let (index, owed, known) = &mut *found.lock();
            index.insert(&stored.ask, set_by);
            if !stored.settled {
                for process in stored.ask.waiters.iter().filter_map(|waiter| waiter.process.as_deref()) {
                    // From now on each look looks for its sign of life.
                    sessions.heartbeats.of(&stored.ask.group, process, now);
                }
                note(&audit, known, &stored.ask, &effects, now);
            }
            owed.note(stored, effects);
        })?;
        let (mut index, owed, _) = found.into_inner();
        index.attempts_mut().end_loading();
        for (file, why) in corrupt {
            tracing::error!(file, %why, "not the record of an ask; it stops nothing (a damaged one was renamed to end in .corrupt)");
        }
        for (group, allowed) in store.allowed()? {
            index.attempts_mut().allow(&group, allowed);
        }
        let (open, settled) = index.count();
        tracing::info!(open, settled, "Stored asks loaded");
        let broker = Self(Arc::new(Inner {
            store,
            saves: Saves::new().map_err(|source| StoreError::Io { what: "cannot start".to_owned(), source })?,
            errands: Gate::new(errands::AT_A_TIME),
            folders,
            audit,
            channels,
            sessions,
            ctx,
            settings: RwLock::new(settings),
            looking: KeyedLock::default(),
            moving: KeyedLock::default(),
            starting: KeyedLock::default(),
            index: Mutex::new(index),
            changes: broadcast::Sender::new(CHANGES),
            moved: Notify::new(),
            saved: Notify::new(),
        }));
        Ok((broker, owed))
    }

    /// Does what the stored asks still owe, in the background, and lets time pass for them.
    pub fn go_on(&self, owed: Owed) {
        let Owed { asks, statuses, retire, after_loss, late, newest, .. } = owed;
        // Late answers are not taken any more where the agent has asked the same again. The mark on the ask may be lost.
        for (id, key, at) in late {
            if newest.get(&key).is_some_and(|newest| *newest > at) {
                self.apply_later(id, Event::Requested(Relation::Supersedes));
            }
        }
        for id in after_loss {
            self.apply_later(id, Event::PowerLost);
        }
        for id in retire {
            self.retire_later(id);
        }
        for (ask, effects) in asks {
            // What has to be in its lane goes through it.
            if ask.was_interrupted() {
                self.apply_later(ask.id, Event::Interrupted);
            }
            self.act_on(&Arc::new(ask), effects);
        }
        let teller = self.clone();
        self.0.ctx.spawn(async move { teller.tell_deadlines(statuses).await });
        self.end_all_blocks();
        let timer = self.clone();
        self.0.ctx.spawn(async move { timer.keep_time().await });
        // The last run may have left something unsynced.
        self.0.saved.notify_one();
        let flusher = self.clone();
        self.0.ctx.spawn(async move { flusher.keep_flushing().await });
    }

    /// Tells waiters the deadlines of their open asks, one ask of a group after the other: it is a hint.
    async fn tell_deadlines(&self, asks: HashMap<Group, Vec<AskId>>) {
        let of_group = |asks: Vec<AskId>| async move {
            for id in asks {
                if let Ok(Some(ask)) = self.get(id).await
                    && ask.outcome().is_none()
                {
                    let broker = self.clone();
                    let _stopped = tokio::task::spawn_blocking(move || broker.write_status(&ask)).await;
                }
            }
        };
        stream::iter(asks.into_values()).for_each_concurrent(AT_A_TIME, of_group).await;
    }
}

/// Notes of an ask that is not finished what a crash may have kept from being noted.
fn note(audit: &Audit, known: &mut Lines, ask: &Ask, effects: &[Effect], now: Time) {
    audit.fact_once(known, ask, &Fact::Asked, now);
    for effect in effects {
        if let Effect::Note(fact) = effect {
            audit.fact_once(known, ask, fact, now);
        }
    }
}
