//! Looks every few seconds at each outcome that lies in a group's folder: was it taken, is its waiter gone, was the
//! briefing read? Section 7 of the specification.
//!
//! Very many may lie there. A look holds their ids, knows more of a few hundred at a time, and notes a bounded number of them:
//! the next look finds the rest.

use super::Broker;
use super::lying::{Lying, LyingOutcome, Outcomes};
use super::saves::Rank;
use crate::host::delivery::{Lies, Look};
use crate::host::keyed_lock::KeyGuard;
use crate::host::session::Liveness;
use crate::ipc::{BRIEFINGS, RESPONSES};
use crate::sabotage::on;
use askd_core::{AskId, DeliveryEvent, Event, Group, RequestId, Taker, Time, WaiterEvent};
use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::vec::IntoIter;

/// Of how many asks a look knows at a time what lies there.
const IN_HAND: usize = 256;
/// How much a look finds out of a group at most.
const MOST_NEWS: usize = 10_000;
/// How many outcomes that were taken one thread notes before others have their turn.
const AT_A_TIME: usize = 16;

/// What a look has found out of an ask. Small: very many may wait to be noted.
enum News {
    /// An outcome does not lie there any more.
    Gone(Taker, DeliveryEvent),
    /// The process of this call lives.
    Resumed(RequestId),
}

impl News {
    fn event(self) -> Event {
        match self {
            Self::Gone(to, event) => event.to(to),
            Self::Resumed(call) => WaiterEvent::Resumed.of(call),
        }
    }
}

impl Broker {
    /// The asks of which something lies in the folders of each group that has any.
    pub(in crate::host) fn outcomes(&self) -> HashMap<Arc<Group>, Outcomes> {
        self.index().lying(self.clock().now())
    }

    /// The asks of a group of which something is not over, or of which something lies in its folder.
    pub(in crate::host) fn reaching(&self, group: &Group) -> Vec<AskId> {
        self.index().reaching(group)
    }

    /// Lets a burst of promises go first, a second at most: a look at very many folders takes the processors from it. Blocks.
    pub(in crate::host) fn make_way(&self) {
        let _late = self.0.saves.promises.make_way_for_burst();
    }

    /// Notes that all groups were looked at.
    pub(in crate::host) fn has_looked(&self) {
        self.0.looked.notify_waiters();
    }

    /// Looks what agents have collected, and whether those that have not are gone. Blocks on the disk.
    pub(in crate::host) fn look_after(&self, group: &Group, outcomes: &Outcomes) {
        if outcomes.is_empty() || on("nocollect") {
            return;
        }
        let look = |name| self.0.folders.get(group, name).map(Look::at);
        let here = self.does_folder_work(group) && !self.is_strange(group);
        // While what an earlier look found is still being noted, or judged, nothing more is: a later look finds it out anew.
        let (noting, judging) = (self.0.noting.try_lock(group.clone()), self.0.looking.try_lock(group.clone()));
        let most = |alone: &Option<KeyGuard>| if alone.is_some() { MOST_NEWS } else { 0 };
        let (mut news, mut judged) = (Vec::new(), Vec::new());
        let now = self.clock().now();
        let is_alive = |process: &str| self.heartbeats().of(group, process, now) == Liveness::Alive;
        for ids in outcomes.chunks(IN_HAND) {
            let in_hand = self.index().lying_of(ids);
            // Listed after that: what was put there later than a listing would pass for collected.
            let (responses, briefings) = (LazyCell::new(|| look(RESPONSES)), LazyCell::new(|| look(BRIEFINGS)));
            // A file that askd could not look at proves nothing.
            let lies = |id: AskId, outcome: &LyingOutcome| match &outcome.to {
                // The call itself says when it has it.
                Taker::Waiter(_) if !outcome.file => self.holds(group).then_some(Lies::There),
                _ if !here => None,
                Taker::Waiter(request_id) => responses.as_ref().ok()?.finds(request_id).ok(),
                Taker::Briefing if self.keeps_briefings(group) => Some(Lies::There),
                Taker::Briefing => briefings.as_ref().ok()?.finds(&id).ok(),
            };
            for (id, lying) in in_hand {
                let looks = here && lying.is_sought(now);
                let Lying { outcomes, probe, gone, .. } = lying;
                let back = gone.into_iter().filter(|call| looks && is_alive(&call.process));
                let (from_briefing, others): (Vec<_>, Vec<_>) = back.partition(|call| call.from_briefing);
                news.extend(others.into_iter().map(|call| (id, News::Resumed(call.request_id))));
                for outcome in outcomes {
                    match (lies(id, &outcome), &outcome.to) {
                        (Some(Lies::Gone), to) => {
                            news.push((id, News::Gone(to.clone(), self.gone(group, to, outcome.since))));
                        }
                        (Some(Lies::There), Taker::Briefing) if !from_briefing.is_empty() => self.give_back(group, id),
                        (Some(Lies::There | Lies::BeingTaken), Taker::Waiter(request_id))
                            if outcome.judged && self.may_be_dead(group, request_id, &outcome, probe) =>
                        {
                            judged.push((id, request_id.clone()));
                        }
                        _ => {}
                    }
                }
            }
            news.truncate(most(&noting));
            judged.truncate(most(&judging));
        }
        if let Some(alone) = noting.filter(|_| !news.is_empty()) {
            self.note_all(news.into_iter(), alone);
        }
        if let Some(alone) = judging.filter(|_| !judged.is_empty()) {
            self.judge(judged, alone);
        }
    }

    /// Lets these events happen. Nobody waits for them, so one thread does some of them at a time: to hand each over would cost
    /// more than it does to note it. In a database events that come at once share a transaction.
    fn note_all(&self, mut news: IntoIter<(AskId, News)>, alone: KeyGuard) {
        let broker = self.clone();
        if self.is_shared() {
            return self.0.ctx.spawn(async move {
                broker.in_turn(news.map(|(id, news)| (id, news.event()))).await;
                drop(alone);
            });
        }
        self.0.saves.run(&self.0.ctx, Rank::Note, move || {
            for (id, news) in news.by_ref().take(AT_A_TIME) {
                broker.hand_over(broker.apply_here(id, news.event()));
            }
            // The next look finds what a stop leaves out.
            if news.len() > 0 && !broker.0.ctx.is_stopping() {
                broker.note_all(news, alone);
            }
        });
    }

    /// What has become of an outcome that does not lie in its folder any more.
    pub(super) fn gone(&self, group: &Group, to: &Taker, since: Time) -> DeliveryEvent {
        let lost = self.went_with_folder(group, to, since);
        if lost { DeliveryEvent::Lost { since } } else { DeliveryEvent::Taken { since } }
    }

    /// Whether an outcome that does not lie in its folder any more went with the folder, so that nobody took it.
    pub(super) fn went_with_folder(&self, group: &Group, to: &Taker, since: Time) -> bool {
        let folder = match to {
            Taker::Waiter(_) => RESPONSES,
            Taker::Briefing => BRIEFINGS,
        };
        let lost = self.0.folders.has_lost(group, folder, since) && !on("renewed");
        if lost {
            tracing::warn!(%group, "another folder has taken the place of the group's {folder}; askd delivers again what lay in the old one");
        }
        lost
    }

    /// Asks more closely, which may take long: only once at a time in a group.
    fn judge(&self, judged: Vec<(AskId, RequestId)>, alone: KeyGuard) {
        let broker = self.clone();
        self.0.ctx.spawn(async move {
            for (id, request_id) in judged {
                if broker.is_dead(id, &request_id).await == Some(true) {
                    broker.in_turn([(id, WaiterEvent::Died.of(request_id))]).await;
                }
            }
            drop(alone);
        });
    }

    /// Whether it is worth asking more closely.
    fn may_be_dead(&self, group: &Group, request_id: &RequestId, outcome: &LyingOutcome, probe: bool) -> bool {
        if !outcome.file {
            return !self.leases().holds(group, request_id);
        }
        let now = self.clock().now();
        outcome
            .process
            .as_deref()
            .map_or(probe, |process| self.0.sessions.heartbeats.of(group, process, now) == Liveness::Dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_look_has_found_is_small() {
        assert!(size_of::<(AskId, News)>() <= 64, "{}", size_of::<(AskId, News)>());
    }
}
