//! Which groups this daemon holds, where several share the records: it does what the steps of their asks ask for, lets time pass for them,
//! and takes up what an earlier holder has left. What is written to people in chats is the leader's, whoever holds the group: it
//! knows the people. With a store of its own a daemon holds all groups, always.

use super::Broker;
use super::index::is_chat;
use crate::host::store::{Holdings, StoreError, Stored, Surplus, Tended, Tenure};
use crate::sabotage::on;
use askd_core::{Ask, AskId, Event, FollowUpEvent, Group, Posted, Time, WidgetEvent};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The clocks of two daemons differ by less.
const APART: Duration = Duration::from_secs(10);
/// How long a group's first question waits until what this daemon begins with just then is begun with.
const PATIENCE: Duration = Duration::from_secs(1);

/// Since when this daemon has begun with groups, where others share the records.
pub(super) type Since = HashMap<Group, Time>;

/// Whether a part of an ask is, or may be, in a chat.
pub(super) fn is_in_chat(ask: &Ask) -> bool {
    ask.widgets.iter().map(|widget| &widget.route).chain(&ask.next_routes).any(is_chat)
}

impl Broker {
    /// Whether this daemon holds the group.
    pub(super) fn holds(&self, group: &Group) -> bool {
        self.0.store.shared().is_none_or(|shared| shared.holds(group))
    }

    /// Whether the leader does what the ask needs, whoever holds its group.
    pub(super) fn is_of_leader(&self, ask: &Ask) -> bool {
        self.is_shared() && is_in_chat(ask)
    }

    /// Whether this daemon does what the ask needs, unless that concerns a folder.
    pub(super) fn serves(&self, ask: &Ask) -> bool {
        if self.is_of_leader(ask) { self.leads() } else { self.holds(&ask.group) }
    }

    /// Keeps it so until that is dropped; `None`: another daemon does it, or will.
    pub(super) fn tenure(&self, ask: &Ask) -> Option<Tenure> {
        self.tenure_of(is_in_chat(ask), &ask.group)
    }

    /// The same of an ask that is not at hand.
    pub(super) fn tenure_of(&self, in_chat: bool, group: &Group) -> Option<Tenure> {
        match self.0.store.shared() {
            None => Some(Tenure::default()),
            Some(_) if in_chat => self.leads().then(Tenure::default),
            Some(shared) => shared.tenure(group),
        }
    }

    /// Whether what has happened is that something was done for the ask that another daemon does by now: that one finds out itself.
    pub(super) fn is_of_another_holder(&self, ask: &Ask, event: &Event) -> bool {
        let done = match event {
            Event::Widget { event, .. } => match event {
                WidgetEvent::Proof
                | WidgetEvent::Status { .. }
                | WidgetEvent::Spotted(_)
                | WidgetEvent::Gone(_)
                // A status may say it, to any daemon.
                | WidgetEvent::Posted { posted: Posted::Held(_), .. } => false,
                WidgetEvent::SlotGranted
                | WidgetEvent::Posted { .. }
                | WidgetEvent::Progress { .. }
                | WidgetEvent::Looked(_)
                | WidgetEvent::Opened
                | WidgetEvent::Reminded { .. }
                | WidgetEvent::Updated(_) => true,
            },
            Event::FollowUp(FollowUpEvent::Tried { .. } | FollowUpEvent::Stopped(_)) => {
                self.folder_is_of_holder(&ask.group)
            }
            _ => false,
        };
        done && !self.serves(ask)
    }

    /// Whether no other daemon, and no run before this one, can have begun to post the ask.
    pub(in crate::host) fn is_first_to_post(&self, ask: &Ask) -> bool {
        if !self.is_shared() {
            let earlier = Time::from_millis(self.0.earlier.load(Ordering::Relaxed));
            // The clock may have been set since, and the times of an ask follow it when it is stepped next.
            let set = earlier.moved(self.clock().reading().set_by - self.0.set_by);
            return ask.created_at > earlier.max(set);
        }
        self.holds(&ask.group) && ask.created_at >= self.since(&ask.group) + APART
    }

    /// When this daemon has begun with the group last.
    fn since(&self, group: &Group) -> Time {
        self.0.beside.since.lock().get(group).copied().unwrap_or(self.0.started)
    }

    /// Learns which groups it holds, takes up what it holds from now on, and hands over what another daemon is to have.
    pub(super) async fn tend(&self) -> Result<(), StoreError> {
        let _alone = self.0.beside.beginning.lock().await;
        let surplus = loop {
            if self.0.ctx.is_stopping() {
                return Ok(());
            }
            // Until then what it is given would wait.
            let takes = self.is_loaded();
            let Tended { new, more, surplus } = self.in_store(move |shared| shared.tend(takes)).await?;
            self.take_up(new).await?;
            if !more {
                break surplus;
            }
        };
        if let Some(Surplus { to, most }) = surplus {
            let going = self.end_with(most);
            if !going.is_empty() {
                // If it fails, the next look finds out who holds them.
                self.in_store(move |shared| shared.hand_over(&to, &going).map(drop)).await?;
            }
        }
        Ok(())
    }

    /// Others hand over no group to this daemon any more. A look that is under way may say the opposite, so this waits for it; a later one
    /// sees that the daemon stops.
    pub(super) async fn rest(&self) -> Result<(), StoreError> {
        let _alone = self.0.beside.beginning.lock().await;
        self.in_store(Holdings::rest).await
    }

    /// Others take the groups of this daemon at once, and the lead: it ends without having read all that is stored.
    pub(in crate::host) async fn let_go(&self) {
        if let Err(error) = self.in_store(Holdings::let_go).await {
            tracing::warn!(%error, "other daemons take the groups of this one only in some seconds");
        }
    }

    /// The leader holds a group from its first question on, as a rule.
    pub(super) async fn hold_first(&self, group: &Group) -> Result<(), StoreError> {
        if !self.is_shared() || !self.leads() || self.holds(group) || self.index().knows(group) {
            return Ok(());
        }
        // Questions that came before the group was held would be overtaken by those that come after. But while it begins with very many
        // groups, the request does not wait for them: the next look finds this one, too.
        let beginning = self.0.beside.clock.timeout(PATIENCE, self.0.beside.beginning.lock()).await;
        let Some(_alone) = beginning else { return Ok(()) };
        self.take_those(vec![group.clone()]).await
    }

    /// Holds those of these groups that nobody holds.
    pub(super) async fn take_free(&self, groups: Vec<Group>) -> Result<(), StoreError> {
        let _alone = self.0.beside.beginning.lock().await;
        self.take_those(groups).await
    }

    async fn take_those(&self, mut groups: Vec<Group>) -> Result<(), StoreError> {
        groups.retain(|group| !self.holds(group));
        let new = self.in_store(move |shared| shared.take(&groups)).await?;
        self.take_up(new).await
    }

    /// Begins with groups: does what an earlier holder has left undone.
    async fn take_up(&self, groups: Vec<Group>) -> Result<(), StoreError> {
        if groups.is_empty() {
            return Ok(());
        }
        // Nobody else saves for them any more what a holder does: this shows all that was saved.
        self.catch_up().await?;
        let (mut ids, of) = (self.index().reaching_of(&groups.iter().collect()), groups.clone());
        let found = self.in_store(move |shared| {
            // What was asked for of them is dropped, so also those that only have to be kept from now on.
            ids.extend(shared.to_take_up(&of)?);
            ids.sort_unstable();
            ids.dedup();
            shared.reread(&ids)
        });
        let found = found.await?;
        for stored in &found {
            // It also says what a crash of the database may have taken.
            self.learn(stored);
        }
        let ids = self.begin_with(&groups, &found);
        for stored in &found {
            self.look_in_its_place(&stored.ask);
        }
        for group in &groups {
            // Whoever held it may have been about to.
            self.end_blocks(group);
        }
        let broker = self.clone();
        self.0.ctx.spawn(async move { broker.take_up_asks(ids).await });
        Ok(())
    }

    /// From now on it holds these groups, of which it has `found` these asks. Whatever happens to one of their asks that are not over, what is
    /// undone for it comes first. Returns those asks. Those of the leader are left alone: it is busy with them, whoever holds the group.
    fn begin_with(&self, groups: &[Group], found: &[Stored]) -> Vec<AskId> {
        let Some(shared) = self.0.store.shared() else { return Vec::new() };
        // As one step: an ask is either among these, or is made by a daemon that knows that it holds the group.
        self.enter(|index| {
            if self.0.ctx.is_cut() {
                // Whoever follows in this process, with the lead, begins with them.
                return Vec::new();
            }
            // No job may see that the group is held, and not what the ask owes.
            let mut lanes = self.lanes();
            let new: HashSet<&Group> = groups.iter().filter(|group| shared.begin(group)).collect();
            let now = self.clock().now();
            // A daemon that stops may leave a card behind that it was posting.
            let posting: HashSet<_> =
                found.iter().filter(|stored| stored.ask.was_interrupted()).map(|stored| &stored.ask.group).collect();
            let is_first = |group: &Group| shared.is_first(group) && !posting.contains(group);
            // Nobody posts anything there. But what is older may be from before a copy, or from the time of an earlier version's leader.
            let since = |group: &Group| if is_first(group) { now - 2 * APART } else { now };
            self.0.beside.since.lock().extend(new.iter().map(|group| (Group::clone(group), since(group))));
            let mut ids: HashSet<AskId> = index.reaching_of(&new).into_iter().collect();
            let unsettled = found.iter().filter(|stored| !stored.settled && new.contains(&stored.ask.group));
            ids.extend(unsettled.map(|stored| stored.ask.id));
            for Stored { ask, .. } in found {
                if self.is_of_leader(ask) && lanes.owes(ask.id) != Some(true) {
                    ids.remove(&ask.id);
                }
            }
            index.wake(|group| new.contains(group));
            if on("nohandover") || on("noresume") {
                return Vec::new();
            }
            for id in &ids {
                let lost = lanes.owes(*id) == Some(true);
                lanes.owe(*id, lost);
            }
            ids.into_iter().collect()
        })
    }

    async fn take_up_asks(&self, ids: Vec<AskId>) {
        let now = self.clock().now();
        for id in &ids {
            if let Ok(Some(ask)) = self.get(*id).await {
                self.replace_dead_of(&ask, Some(now));
            }
        }
        if !on("untimed") {
            self.in_turn(ids.into_iter().map(|id| (id, Event::Tick))).await;
        }
    }

    /// Ends with some groups of which nothing is in hand: what their steps ask for from now on is left to the next holder.
    fn end_with(&self, most: usize) -> Vec<Group> {
        let Some(shared) = self.0.store.shared() else { return Vec::new() };
        // As one step: nothing can begin meanwhile.
        let index = self.index();
        let lanes = self.lanes();
        let busy: HashSet<_> = lanes.busy().into_iter().filter_map(|id| index.group(id)).collect();
        let idle = shared.held().into_iter().filter(|group| !busy.contains(group) && shared.end(group));
        idle.take(most).collect()
    }

    /// What is due in the groups that this daemon holds. The rest comes when it holds its group.
    pub(super) fn take_due(&self, now: Time) -> Vec<AskId> {
        let mut due = self.index().take_due(now, |group| self.holds(group));
        if on("untimed") {
            // As if what it has read or taken up had no deadline.
            due.retain(|id| self.0.store.cached(*id).is_some_and(|ask| ask.created_at >= self.since(&ask.group)));
        }
        due
    }

    /// The asks of its groups that have to follow a clock that was set.
    pub(super) fn counting_time(&self) -> Vec<AskId> {
        let index = self.index();
        let mut counting = index.counting_time();
        counting.retain(|id| index.group(*id).is_some_and(|group| self.holds(&group)));
        counting
    }
}
