//! Does what the core asks for with outcomes that nobody takes: puts a response out of reach, and briefs. [`super::looks`] finds
//! out what became of them. Section 7 of the specification.

use super::briefings::{briefing_of, is_being_read};
use super::errands::Errand;
use super::{Broker, RETRY};
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::host::session::Liveness;
use crate::ipc::wire::file_bytes;
use crate::ipc::{BRIEFINGS, RESPONSES, response_name, taken_name, withdrawn_name};
use crate::sabotage::{crash_point, on};
use askd_core::{
    Ask, AskId, Delivery, DeliveryEffect, DeliveryEvent, DeliveryState, Event, FollowUpEvent, RequestId, Taker, Time,
};
use std::io;
use std::sync::Arc;

/// No briefing of an ask at its limits comes near this.
pub(super) const MAX_BRIEFING: usize = 4 * 1024 * 1024;

impl Broker {
    /// Whether the process of a waiter is gone; `None`: askd cannot tell. Only the host of a folder sees the signs of life there.
    pub(super) async fn is_dead(&self, id: AskId, request_id: &RequestId) -> Option<bool> {
        let ask = self.get(id).await.ok()??;
        if ask.waiter(request_id)?.carrier.is_file() {
            if !self.does_folder_work(&ask.group) {
                return None;
            }
            let settings = self.settings();
            let group = settings.group(&ask.group)?;
            // A hanging probe must not delay a stop: then it cannot tell whether the agent lives.
            let judging = self.0.sessions.is_dead(&ask, ask.waiter(request_id)?, group, self.clock().now());
            return self.0.ctx.unless_cut(Box::pin(judging)).await?;
        }
        self.waits_anywhere(&ask.group, request_id).await.ok().map(|waits| !waits)
    }

    /// Has something done for an outcome on its way. `first`: nothing was told before.
    pub(super) fn act_on_delivery(
        &self,
        ask: &Arc<Ask>,
        to: Taker,
        effect: DeliveryEffect,
        first: bool,
    ) -> Option<Errand> {
        match (to, effect) {
            (Taker::Waiter(id), DeliveryEffect::Write) => {
                let write = if first { delivery::write } else { delivery::rewrite };
                return Some(Errand::deliver(ask, id, DeliveryEvent::Written, write));
            }
            (Taker::Waiter(id), DeliveryEffect::Publish) => {
                return Some(Errand::deliver(ask, id, DeliveryEvent::Published, delivery::publish));
            }
            // A briefing is there as soon as it is written.
            (Taker::Briefing, DeliveryEffect::Write | DeliveryEffect::Publish) => {
                let work = |broker: &Self, ask: &Ask| match ask.follow_up() {
                    owed if owed.briefing.state() == DeliveryState::Owed => {
                        broker.write_briefing(ask).map(|()| Some(owed.briefings))
                    }
                    _ => Ok(None),
                };
                self.work(ask, work, |nth| Event::FollowUp(FollowUpEvent::Briefed { nth }));
            }
            (to, DeliveryEffect::TakeBack { since }) => {
                let taker = to.clone();
                let work = move |broker: &Self, ask: &Ask| match ask.delivery(&taker).map(Delivery::state) {
                    Some(DeliveryState::TakingBack) => {
                        // After a restart, askd knows only that it was not there before the ask had an outcome.
                        let since = since.or(ask.settled_at());
                        let lost = || since.is_some_and(|since| broker.went_with_folder(&ask.group, &taker, since));
                        broker.take_back(ask, &taker).map(|gone| Some(gone && !lost()))
                    }
                    // A response that was published again meanwhile must stay; an old briefing must not.
                    Some(DeliveryState::Undecided | DeliveryState::TakenBack { .. } | DeliveryState::Taken)
                        if taker == Taker::Briefing =>
                    {
                        // Nothing is recorded of it any more, so it is deleted at once.
                        let gone = broker.take_back(ask, &taker)?;
                        broker.remove_withdrawn(ask, &taker).map(|()| Some(gone))
                    }
                    // The call has made room for another one.
                    None => broker.remove_withdrawn(ask, &taker).map(|()| None),
                    Some(_) => Ok(None),
                };
                self.work(ask, work, move |taken| DeliveryEvent::TakenBack { taken }.to(to.clone()));
            }
        }
        None
    }

    /// Removes what was put out of a taker's reach.
    fn remove_withdrawn(&self, ask: &Ask, to: &Taker) -> io::Result<()> {
        let (folder, name) = match to {
            Taker::Waiter(request_id) => (RESPONSES, withdrawn_name(request_id)),
            Taker::Briefing => (BRIEFINGS, withdrawn_name(&ask.id)),
        };
        match self.0.folders.get(&ask.group, folder).and_then(|folder| folder.remove(&name).map(drop)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes what was put away.
    pub(super) fn tidy(&self, ask: &Arc<Ask>) {
        self.remove(ask, false);
    }

    /// The same of an ask that is forgotten, and its briefing, too.
    pub(super) fn tidy_all(&self, ask: &Arc<Ask>) {
        if self.does_folder_work(&ask.group) {
            self.remove(ask, true);
        }
    }

    fn remove(&self, ask: &Arc<Ask>, all: bool) {
        let (folders, of, now) = (self.0.folders.clone(), Arc::clone(ask), self.clock().now());
        self.in_folder(&ask.group, move || remove(&folders, &of, all, now));
    }

    /// Tries until the work is done, then reports the result. One thing at a time for an ask, judged by the ask as
    /// it is then: work that waited long may not be wanted any more (`None`), and would undo what came after it.
    fn work<T: Send + 'static>(
        &self,
        ask: &Arc<Ask>,
        work: impl Fn(&Self, &Ask) -> io::Result<Option<T>> + Send + Sync + 'static,
        event: impl Fn(T) -> Event + Send + Sync + 'static,
    ) {
        // Very many may wait for their turn, so none of them holds its ask.
        let (broker, id, group, work) = (self.clone(), ask.id, ask.group.clone(), Arc::new(work));
        self.0.ctx.finish(async move {
            let mut pause = RETRY.0;
            loop {
                let Some(alone) = broker.0.ctx.unless_cut(broker.0.moving.lock(id)).await else { return };
                let (worker, of, task) = (broker.clone(), group.clone(), Arc::clone(&work));
                let done = broker.done_in_folder(&group, move || {
                    let _alone = alone;
                    match worker.0.store.load(&of, id).map_err(io::Error::other)? {
                        Some(ask) => task(&worker, &ask),
                        None => Ok(None),
                    }
                });
                match done.await {
                    Ok(Some(done)) => return broker.apply_later(id, event(done)),
                    Ok(None) => return,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        tracing::error!(
                            ask = %id, %group, %error,
                            "a response or briefing could not be moved; trying again until it can"
                        );
                    }
                }
                if !broker.pause(&mut pause).await {
                    return;
                }
            }
        });
    }

    /// Puts a response or briefing out of its taker's reach, by one rename; `true` if it was not there any more.
    fn take_back(&self, ask: &Ask, to: &Taker) -> io::Result<bool> {
        let (folder, id) = match to {
            Taker::Waiter(request_id) if ask.waiter(request_id).is_some_and(|waiter| !waiter.carrier.is_file()) => {
                return Ok(false);
            }
            Taker::Briefing if self.keeps_briefings(&ask.group) => return Ok(false),
            Taker::Waiter(request_id) => (RESPONSES, request_id.to_string()),
            Taker::Briefing => (BRIEFINGS, ask.id.to_string()),
        };
        let folder = self.0.folders.ensure(&ask.group, folder)?;
        let withdrawn = withdrawn_name(&id);
        let renamed = |from: &str| match folder.rename(from, &withdrawn) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let mut moved = renamed(&response_name(&id))?;
        let taken = taken_name(&id);
        if !moved && folder.stat(&taken)?.is_some() {
            // A taker has renamed it. It is ours again only if that taker is gone.
            let is_being_taken = match to {
                Taker::Waiter(request_id) => {
                    let process = ask.waiter(request_id).and_then(|waiter| waiter.process.as_deref());
                    let now = self.clock().now();
                    let life = process.map(|process| self.0.sessions.heartbeats.of(&ask.group, process, now));
                    matches!(life, Some(Liveness::Alive | Liveness::TooEarly))
                }
                Taker::Briefing => is_being_read(&folder),
            };
            if is_being_taken {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            moved = renamed(&taken)?;
        }
        // It may have been put back in the meantime.
        moved = moved || renamed(&response_name(&id))?;
        // A crash may have come between the rename and its record.
        let moved = moved || (!on("forgetrename") && folder.stat(&withdrawn)?.is_some());
        folder.sync()?;
        crash_point("wake.withdrawn");
        Ok(!moved && !self.is_strange(&ask.group))
    }

    fn write_briefing(&self, ask: &Ask) -> io::Result<()> {
        let Some(briefing) = briefing_of(ask)? else { return Ok(()) };
        if self.keeps_briefings(&ask.group) {
            return Ok(());
        }
        let briefings = self.0.folders.ensure(&ask.group, BRIEFINGS)?;
        let temporary = self.0.folders.temporary();
        briefings.stage(&temporary, &file_bytes(&briefing)?, self.0.folders.access())?;
        briefings.put_in_place(&temporary, &response_name(&ask.id))?;
        briefings.remove(&withdrawn_name(&ask.id))?;
        crash_point("wake.briefed");
        Ok(())
    }
}

/// Removes what was put away, and with `all` the briefing too. A failure leaves litter and does no other harm.
fn remove(folders: &Folders, ask: &Ask, all: bool, now: Time) {
    let remove = |folder: &str, names: Vec<String>| -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let folder = folders.get(&ask.group, folder)?;
        names.iter().try_for_each(|name| folder.remove(name).map(drop))
    };
    let back = ask.waiters.iter().filter(|waiter| waiter.response.is_taken_back() && waiter.carrier.is_file());
    let mut briefings = vec![withdrawn_name(&ask.id)];
    if all {
        briefings.push(response_name(&ask.id));
    }
    // A process may still come for one of them, as long as responses are kept.
    let forgotten = || match ask.block().and_then(|_| folders.get(&ask.group, RESPONSES).ok()) {
        Some(folder) => delivery::forgotten(&folder, ask, Some(now - ask.rules.session.answer_retention)),
        None => Ok(Vec::new()),
    };
    let removed = remove(RESPONSES, back.map(|waiter| withdrawn_name(&waiter.request_id)).collect())
        .and_then(|()| remove(RESPONSES, forgotten()?))
        .and_then(|()| remove(BRIEFINGS, briefings));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(ask = %ask.id, group = %ask.group, %error, "obsolete files cannot be removed");
    }
}
