//! Who does what concerns the folder of a group, where several daemons share the records: the host that serves the folder, and nobody
//! in its place. It reads and answers requests, writes statuses and briefings, looks for signs of life, and starts and stops the agent.
//! While it is away, all this waits. Everything else of the group's asks goes on.

use super::errands::Errand;
use super::{Broker, Failure, RETRY};
use crate::host::delivery;
use crate::host::store::{LeftTo, Pin, Pins, Silent, StoreError, Tenure};
use crate::sabotage::on;
use askd_core::{
    AfterTimeout, Ask, DeliveryEffect, DeliveryState, Effect, Event, Fact, FollowUpEvent, Group, RequestId, Taker,
    Time, WaiterEvent,
};
use std::collections::HashSet;
use std::time::Duration;

/// Whose an effect is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Whoever takes the step does it: it changes the record, and nothing else.
    Anybody,
    /// The holder's of the ask's group, or the leader's.
    Holder,
    /// The host's that serves the folder of the ask's group.
    Host,
}

impl Whose {
    /// `pinned`: a host serves the folder of the ask's group.
    fn of(ask: &Ask, effect: &Effect, pinned: bool) -> Self {
        let is_file = |id: &RequestId| ask.waiter(id).is_some_and(|waiter| waiter.carrier.is_file());
        let folder = match effect {
            Effect::Delivery { to: Taker::Waiter(id), effect: DeliveryEffect::Write | DeliveryEffect::Publish }
                if !is_file(id) =>
            {
                return Self::Anybody;
            }
            Effect::Delivery { to: Taker::Waiter(id), .. } => is_file(id),
            Effect::Delivery { to: Taker::Briefing, .. }
            | Effect::FollowUp(_)
            | Effect::Status
            | Effect::Identify(_) => true,
            Effect::Retire => return Self::Anybody,
            Effect::Widget { .. } | Effect::Note(_) | Effect::Forget => false,
        };
        if folder && pinned && !on("anyhost") { Self::Host } else { Self::Holder }
    }
}

/// Who does what of a step's effects. That is found out once, for the save: if the group comes or goes before they are done, nothing is
/// done twice, and nothing by nobody.
#[derive(Debug, Clone)]
pub(super) struct Shares {
    /// What this daemon does.
    pub(super) own: Vec<Effect>,
    pub(super) left: LeftTo,
    /// This daemon takes itself for the holder of the ask's group: the step is saved only if that is so.
    pub(super) of_holder: bool,
}

impl Shares {
    /// The same with what this daemon had to do before.
    pub(super) fn after(self, before: Self) -> Self {
        Self { own: [before.own, self.own].concat(), ..self }
    }
}

impl Broker {
    fn pin(&self, group: &Group) -> Option<Pin> {
        self.0.store.shared()?.pinned(group)
    }

    /// The group of a folder of this host. What the settings do not name is another group on each host, unless it came with the records.
    pub(in crate::host) fn group_of(&self, folder: &Group) -> Group {
        let Some(shared) = self.0.store.shared() else { return folder.clone() };
        let known =
            self.settings().has_section(folder) || shared.pinned(folder).is_some_and(|pin| pin.host == shared.host());
        let own = if known { None } else { folder.at(shared.host()) };
        own.unwrap_or_else(|| folder.clone())
    }

    /// The other host that serves the group's folder, if one does.
    pub(in crate::host) fn served_elsewhere(&self, group: &Group) -> Option<String> {
        let shared = self.0.store.shared()?;
        shared.pinned(group).filter(|pin| pin.host != shared.host()).map(|pin| pin.host)
    }

    /// Whether a briefing is its ask's record, because no host serves a folder of the group.
    pub(in crate::host) fn keeps_briefings(&self, group: &Group) -> bool {
        self.is_shared() && self.folder_is_of_holder(group)
    }

    /// Whether what concerns a folder of the group is its holder's, because no host serves one.
    pub(super) fn folder_is_of_holder(&self, group: &Group) -> bool {
        self.pin(group).is_none()
    }

    /// Whether this daemon does what concerns the group's folder.
    pub(super) fn does_folder_work(&self, group: &Group) -> bool {
        match (self.pin(group), self.served_elsewhere(group)) {
            (Some(_), elsewhere) => elsewhere.is_none(),
            (None, _) => self.holds(group),
        }
    }

    /// Whether nobody knows what lies in the group's folder: a file that is not there proves nothing.
    pub(super) fn is_strange(&self, group: &Group) -> bool {
        self.pin(group).is_some_and(|pin| pin.strange.is_some())
    }

    /// Has this host serve the group's folder, in which a request came, unless another one does. Returns the other one.
    pub(super) async fn pin_here(&self, group: &Group) -> Result<Option<String>, StoreError> {
        if self.settings().group(group).is_some() && !on("anyfolder") {
            let group = group.clone();
            self.in_store(move |shared| shared.pin(&group, shared.host()).map(Some)).await?;
        }
        Ok(self.served_elsewhere(group).filter(|_| !on("anyfolder")))
    }

    fn whose(&self, ask: &Ask, effect: &Effect) -> Whose {
        Whose::of(ask, effect, self.pin(&ask.group).is_some())
    }

    /// Whether this daemon does what a step asks for.
    pub(super) fn does(&self, ask: &Ask, effect: &Effect) -> bool {
        match self.whose(ask, effect) {
            Whose::Anybody => true,
            Whose::Holder => self.serves(ask),
            Whose::Host => self.served_elsewhere(&ask.group).is_none(),
        }
    }

    /// Who does what of a step's effects; `None` where no other daemon shares the records.
    pub(super) fn shares(&self, ask: &Ask, effects: &[Effect]) -> Option<Shares> {
        let host = self.0.store.shared()?.host();
        let pin = self.pin(&ask.group);
        let elsewhere = pin.as_ref().is_some_and(|pin| pin.host != host);
        let (of_leader, holds) = (self.is_of_leader(ask), self.holds(&ask.group));
        let is_server = if of_leader { self.leads() } else { holds };
        // Once the daemon stops, whatever it begins is cut off, and whoever follows does it.
        let serves = is_server && !self.0.ctx.is_cut();
        let left = LeftTo { unpinned: pin.is_none(), ..LeftTo::default() };
        let mut shares = Shares { own: Vec::new(), left, of_holder: holds && !of_leader };
        for effect in effects {
            let whose = Whose::of(ask, effect, pin.is_some());
            let own = match whose {
                Whose::Anybody => true,
                Whose::Holder => serves,
                Whose::Host => !elsewhere,
            };
            if own {
                shares.own.push(effect.clone());
            }
            match effect {
                // They decide what else is done.
                Effect::Note(Fact::Settled | Fact::LateAnswer | Fact::AllowedAgain { .. }) => {}
                // The last one is part of the save.
                Effect::Note(_) | Effect::Forget | Effect::Retire => continue,
                Effect::Status if delivery::readers_of_status(ask).next().is_none() => continue,
                _ => {}
            }
            match whose {
                Whose::Host if elsewhere => shares.left.host.push(effect.clone()),
                // Also what this daemon does itself: it may die before it has.
                Whose::Anybody | Whose::Holder if serves => {}
                Whose::Anybody | Whose::Holder if of_leader => shares.left.leader.push(effect.clone()),
                Whose::Anybody | Whose::Holder => shares.left.holder.push(effect.clone()),
                Whose::Host => {}
            }
        }
        Some(shares)
    }

    /// What of these effects the host does that serves the folder of the ask's group, if that is not this one.
    pub(super) fn of_another_host(&self, ask: &Ask, effects: &[Effect]) -> Vec<Effect> {
        if self.served_elsewhere(&ask.group).is_none() {
            return Vec::new();
        }
        effects.iter().filter(|effect| self.whose(ask, effect) == Whose::Host).cloned().collect()
    }

    /// What of a step's effects this daemon does itself.
    pub(super) fn own_of(&self, ask: &Ask, mut effects: Vec<Effect>) -> Vec<Effect> {
        effects.retain(|effect| self.does(ask, effect));
        effects
    }

    /// Whether an event is what a host found in a folder that another one serves by now: the two folders are not the same.
    pub(super) fn is_of_another_folder(&self, ask: &Ask, event: &Event) -> bool {
        let is_file = |id: &RequestId| ask.waiter(id).is_some_and(|waiter| waiter.carrier.is_file());
        let folder = match event {
            Event::Delivery { to: Taker::Briefing, .. }
            | Event::FollowUp(
                FollowUpEvent::Briefed { .. } | FollowUpEvent::Tried { .. } | FollowUpEvent::Stopped(_),
            ) => true,
            Event::Delivery { to: Taker::Waiter(id), .. } => is_file(id),
            Event::Waiter { request_id, event } => match event {
                WaiterEvent::Died | WaiterEvent::Resumed | WaiterEvent::Identified { .. } => is_file(request_id),
                WaiterEvent::Withdrawn | WaiterEvent::Collected { .. } => false,
            },
            Event::FollowUp(FollowUpEvent::Lifted { .. } | FollowUpEvent::HostAway(_))
            | Event::Tick
            | Event::Interrupted
            | Event::PowerLost
            | Event::Crowded
            | Event::Requested(_)
            | Event::Viewed
            | Event::Typing
            | Event::Replied { .. }
            | Event::Allow { .. }
            | Event::Cancel(_)
            | Event::Widget { .. } => false,
        };
        folder && self.served_elsewhere(&ask.group).is_some() && !on("anyhost")
    }

    /// Waits until this daemon surely is the one that starts and stops the group's agent; `false` if it stops before, or if
    /// another host serves the folder by then.
    pub(super) async fn until_its(&self, ask: &Ask) -> bool {
        let group = &ask.group;
        if self.folder_is_of_holder(group) {
            return self.0.ctx.until_calls_may_begin().await && self.serves(ask);
        }
        // Since the last look the group may have moved.
        while self.is_blind() {
            if !self.0.ctx.pause(RETRY.0).await {
                return false;
            }
        }
        self.does_folder_work(group)
    }

    /// Keeps what concerns the folder of the ask's group with this daemon until that is dropped. A host keeps it anyway.
    pub(super) fn folder_tenure(&self, ask: &Ask) -> Option<Tenure> {
        if self.folder_is_of_holder(&ask.group) { self.tenure(ask) } else { Some(Tenure::default()) }
    }

    /// Finds out what has to be told anew in folders of which this host does not know what lies there.
    pub(super) fn settle_in(&self) {
        let strange = self.0.store.shared().map(Pins::strange).unwrap_or_default();
        for (group, since) in strange {
            if !self.is_loaded() {
                return;
            }
            let Some(alone) = self.0.beside.settling.try_lock(group.clone()) else { continue };
            let broker = self.clone();
            self.0.ctx.spawn(async move {
                match broker.tell_anew(&group, since).await {
                    Ok(()) => tracing::info!(group = %group, "this host knows what lies in the group's folder"),
                    Err(error) => tracing::warn!(group = %group, %error, "cannot find out what lies in a group's folder; trying again"),
                }
                drop(alone);
            });
        }
    }

    async fn tell_anew(&self, group: &Group, since: Time) -> Result<(), StoreError> {
        for id in self.reaching(group) {
            if !self.get(id).await?.is_some_and(|ask| may_be_missing(&ask, since)) {
                continue;
            }
            self.lanes().owe(id, true);
            let mut pause = RETRY.0;
            while let Err(Failure::NotStored | Failure::InDoubt) = self.apply(id, Event::Tick).await {
                if !self.pause(&mut pause).await {
                    return Ok(());
                }
            }
        }
        let group = group.clone();
        self.in_store(move |shared| shared.settled_in(&group)).await
    }

    /// Has closed cards say that the agent's host does not answer, and say so no longer once it does. The leader does.
    pub(super) async fn tell_of_silence(&self) {
        let Some(shared) = self.0.store.shared() else { return };
        if !self.leads() || !self.is_loaded() || on("nosilence") {
            *self.0.beside.silent.lock() = None;
            return;
        }
        let silent: HashSet<Group> = shared.silent().into_iter().flat_map(|silent| silent.groups).collect();
        // A leader before this one may have said so of any.
        let told = self.0.beside.silent.lock().replace(silent.clone());
        let told = told.unwrap_or_else(|| shared.pinned_groups().into_iter().collect());
        let ids = self.index().unfinished_outcomes_of(&told.union(&silent).collect());
        for id in ids {
            let ask = match self.get(id).await {
                Ok(Some(ask)) => ask,
                Ok(None) | Err(StoreError::Damaged { .. }) => continue,
                Err(_) => {
                    // The others are looked at again, with all of them.
                    *self.0.beside.silent.lock() = None;
                    return;
                }
            };
            let away = silent.contains(&ask.group);
            if ask.follow_up().host_away != away {
                self.apply_later(id, Event::FollowUp(FollowUpEvent::HostAway(away)));
            }
        }
    }

    /// The hosts that serve folders and were last heard of that long ago, or longer.
    pub(in crate::host) fn silent_hosts(&self, since: Duration) -> Vec<Silent> {
        let mut silent = self.0.store.shared().map(Pins::silent).unwrap_or_default();
        silent.retain(|silent| silent.heard + since <= self.clock().now());
        silent
    }

    /// Drops errands in a folder that another host serves.
    pub(super) fn own_errands(&self, ask: &Ask, errands: Vec<Errand>) -> Vec<Errand> {
        if self.does_folder_work(&ask.group) { errands } else { Vec::new() }
    }
}

/// Whether something that was told in a folder before then is not known to be taken, or something is under way there.
fn may_be_missing(ask: &Ask, since: Time) -> bool {
    let missing = |state: DeliveryState| match state {
        DeliveryState::Owed | DeliveryState::Ready | DeliveryState::TakingBack => true,
        DeliveryState::Published { at } => at < since,
        DeliveryState::Undecided | DeliveryState::TakenBack { .. } | DeliveryState::Taken => false,
    };
    missing(ask.follow_up().briefing.state())
        || ask.follow_up().after_timeout == AfterTimeout::Stopping
        || ask.waiters.iter().any(|waiter| waiter.carrier.is_file() && missing(waiter.response.state()))
}
