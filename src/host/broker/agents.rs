//! Does what the core asks for with the agent of an ask: tells its runs apart, starts it again, stops its session.

use super::briefings::left_over;
use super::collect::MAX_BRIEFING;
use super::{Broker, Failure, RETRY};
use crate::host::keyed_lock::KeyGuard;
use crate::host::store::{Sharing, StoreError};
use crate::ipc::files::ReadError;
use crate::ipc::wire::file_bytes;
use crate::ipc::{BRIEFINGS, response_name};
use crate::sabotage::{crash_point, task_gate};
use askd_core::{
    AgentStart, Ask, AskId, DeliveryEvent, Event, FollowUpEvent, Group, RequestId, Taker, Tried, WaiterEvent,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a start holds its ask at most, if its daemon lives and never says what came of it.
const STARTING: Duration = Duration::from_secs(90);

/// Keeps the agent from being started with the outcome of this ask until it is dropped, and a call from getting it.
pub(in crate::host) struct StartHold {
    broker: Broker,
    id: AskId,
    /// Here; and at the other daemons, too.
    here: Option<KeyGuard>,
    everywhere: bool,
}

impl StartHold {
    fn of(broker: &Broker, id: AskId, here: KeyGuard) -> Self {
        Self { broker: broker.clone(), id, here: Some(here), everywhere: false }
    }

    fn what(&self) -> String {
        format!("start {}", self.id)
    }

    /// Has it count at the other daemons, too; `false` if one of them has it, or that is not known.
    pub(super) async fn extend(&mut self) -> bool {
        if !self.broker.is_shared() {
            return true;
        }
        let what = self.what();
        let held = self.broker.in_store(move |shared| shared.hold(&what, STARTING)).await;
        if let Err(error) = &held {
            tracing::warn!(ask = %self.id, %error, "cannot find out whether another daemon starts an agent");
        }
        self.everywhere = matches!(held, Ok(true));
        self.everywhere
    }

    /// Lets go of it; once this returns, the next start can hold it.
    async fn release(mut self) {
        if self.everywhere {
            let what = self.what();
            let released = self.broker.in_store(move |shared| shared.release(&what, None)).await;
            self.everywhere = false;
            not_released(released);
        }
    }
}

impl Drop for StartHold {
    fn drop(&mut self) {
        if !self.everywhere {
            return;
        }
        let (broker, what, here) = (self.broker.clone(), self.what(), self.here.take());
        self.broker.0.ctx.finish_blocking(move || {
            not_released(broker.0.store.shared().map_or(Ok(()), |shared| Sharing::release(shared, &what, None)));
            drop(here);
        });
    }
}

fn not_released(released: Result<(), StoreError>) {
    if let Err(error) = released {
        tracing::debug!(%error, "another daemon has to wait");
    }
}

/// Which try to start the agent comes next, and with which of its briefings.
fn nth_try(ask: &Ask) -> Option<(u32, u32)> {
    let follow_up = ask.follow_up();
    let AgentStart::Starting { tries, .. } = follow_up.start else { return None };
    Some((follow_up.briefings, tries))
}

impl Broker {
    /// Which run of its container the agent is now, for later.
    pub(super) fn identify(&self, ask: &Arc<Ask>, request_id: RequestId) {
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.spawn(async move {
            let settings = broker.settings();
            let Some(group) = settings.group(&ask.group) else { return };
            let Some(asked_at) = ask.waiter(&request_id).map(|waiter| waiter.asked_at) else { return };
            if let Some(run) = broker.0.sessions.run_of(group, asked_at).await {
                broker.apply_later(ask.id, WaiterEvent::Identified { run }.of(request_id));
            }
        });
    }

    /// Keeps the agent from being started with the outcome of this ask until it is dropped; `None` while it is being started.
    pub(in crate::host) async fn hold_start(&self, id: AskId) -> Option<StartHold> {
        let mut hold = self.hold_start_here(id)?;
        hold.extend().await.then_some(hold)
    }

    /// The same at this daemon alone.
    pub(super) fn hold_start_here(&self, id: AskId) -> Option<StartHold> {
        Some(StartHold::of(self, id, self.0.starting.try_lock(id)?))
    }

    pub(super) fn start_agent(&self, ask: &Arc<Ask>) {
        let Some(tenure) = self.folder_tenure(ask) else { return };
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.finish(async move {
            if !broker.until_its(&ask).await {
                return;
            }
            let Some((alone, ask)) = broker.until_held(ask).await else { return };
            // An agent that is not known to have started is started again: at least once.
            let Some(tried) = broker.0.ctx.unless_cut(Box::pin(broker.try_start(&ask))).await else { return };
            crash_point("wake.started");
            let (nth, since) = (ask.follow_up().briefings, ask.follow_up().briefing.published_at());
            let is_gone = matches!(tried, Tried::Read);
            if is_gone {
                task_gate("wake.read").await;
            }
            let lost = since.filter(|since| {
                is_gone
                    && !broker.keeps_briefings(&ask.group)
                    && broker.went_with_folder(&ask.group, &Taker::Briefing, *since)
            });
            let event = match lost {
                Some(since) => DeliveryEvent::Lost { since }.to(Taker::Briefing),
                None => Event::FollowUp(FollowUpEvent::Tried { nth, what: tried }),
            };
            let mut pause = RETRY.0;
            while let Err(Failure::NotStored) = broker.apply(ask.id, event.clone()).await {
                if !broker.pause(&mut pause).await {
                    return;
                }
            }
            alone.release().await;
            drop(tenure);
        });
    }

    /// Waits until nobody gives the outcome to a call, and no other start goes on; returns the ask as it is then. `None` if nobody is to be
    /// started any more, or somebody has tried meanwhile: after a restart what is owed and what is due can be the same start.
    async fn until_held(&self, ask: Arc<Ask>) -> Option<(StartHold, Arc<Ask>)> {
        let nth = nth_try(&ask)?;
        let mut hold = StartHold::of(self, ask.id, self.0.ctx.unless_cut(self.0.starting.lock(ask.id)).await?);
        let mut pause = RETRY.0;
        loop {
            if hold.extend().await
                && let Ok(now) = self.get_fitting(ask.id, |_| false).await
            {
                return now.filter(|now| nth_try(now) == Some(nth)).map(|now| (hold, now));
            }
            if !self.pause(&mut pause).await {
                return None;
            }
        }
    }

    /// Tries to start an agent with the briefing, unless somebody has just been sent that.
    async fn try_start(&self, ask: &Arc<Ask>) -> Tried {
        let (taker, of) = (format!("start/{}", ask.id), (Group::clone(&ask.group), ask.id));
        match self.hold_for(&self.0.briefed, &taker, std::slice::from_ref(&of)).await {
            Ok(None) => {}
            Ok(Some(_left)) => return Tried::Failed("its briefing is being read".to_owned()),
            Err(error) => return Tried::Failed(error.to_string()),
        }
        let tried = self.start_with_briefing(ask).await;
        self.release(&self.0.briefed, &taker, &of).await;
        tried
    }

    async fn start_with_briefing(&self, ask: &Arc<Ask>) -> Tried {
        let settings = self.settings();
        let Some(group) = settings.group(&ask.group) else { return Tried::Nothing };
        if self.keeps_briefings(&ask.group) {
            return match self.briefing_kept(&ask.group, ask.id).await {
                Some((_, briefing)) => match file_bytes(&briefing) {
                    Ok(bytes) => self.0.sessions.start(ask, &bytes, group).await,
                    Err(error) => Tried::Failed(format!("its briefing cannot be written: {error}")),
                },
                None => Tried::Read,
            };
        }
        let (broker, of) = (self.clone(), Arc::clone(ask));
        let read = move || {
            let briefings = broker.0.folders.ensure(&of.group, BRIEFINGS)?;
            match briefings.read(&response_name(&of.id), MAX_BRIEFING) {
                Ok((bytes, _)) => Ok(Some(bytes)),
                Err(ReadError::Gone) => match left_over(&briefings, of.id)? {
                    Some(name) => {
                        briefings.read(&name, MAX_BRIEFING).map(|(bytes, _)| Some(bytes)).map_err(io::Error::other)
                    }
                    None => Ok(None),
                },
                Err(error) => Err(io::Error::other(error)),
            }
        };
        match self.done_in_folder(&ask.group, read).await {
            Ok(Some(briefing)) => self.0.sessions.start(ask, &briefing, group).await,
            Ok(None) => Tried::Read,
            Err(error) => Tried::Failed(format!("its briefing cannot be read: {error}")),
        }
    }

    /// Tries until the session is stopped.
    pub(super) fn stop_session(&self, ask: &Arc<Ask>) {
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.spawn(async move {
            let mut pause = RETRY.0;
            let (stopped, _tenure) = loop {
                if !broker.until_its(&ask).await {
                    return;
                }
                let Some(tenure) = broker.folder_tenure(&ask) else { return };
                let settings = broker.settings();
                let Some(group) = settings.group(&ask.group) else { break (false, tenure) };
                match broker.0.sessions.stop(&ask, group).await {
                    Ok(stopped) => break (stopped, tenure),
                    Err(why) => tracing::error!(
                        ask = %ask.id, group = %ask.group, why,
                        "a session could not be stopped after its timeout; trying again until it is"
                    ),
                }
                if !broker.pause(&mut pause).await {
                    return;
                }
            };
            if !stopped {
                tracing::error!(
                    ask = %ask.id, group = %ask.group,
                    "a session goes on after its timeout: the settings no longer say how to stop it"
                );
            }
            broker.apply_later(ask.id, Event::FollowUp(FollowUpEvent::Stopped(stopped)));
        });
    }
}
