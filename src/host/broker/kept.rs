//! A request that asks what has an outcome already, which no call took: it gets that outcome, once it is clear that nobody else
//! will. So does a process that was thought gone, and lives.

use super::submit::Submitted;
use super::{Broker, Failure};
use crate::host::delivery::{Lies, lies_in};
use crate::host::holds::Holds;
use crate::host::session::{DEAD_AFTER, Liveness};
use crate::host::store::Pins;
use crate::ipc::RESPONSES;
use crate::ipc::wire::Request;
use askd_core::{AgentStart, Ask, AskId, DeliveryState, Event, Group, Relation, RequestId, Taker, Time, Waiter};
use std::io;
use tokio::sync::broadcast::error::RecvError;

impl Broker {
    /// Who holds a briefing that comes back to the calls that waited: each daemon for itself, so that none lets go of another one's.
    fn back(&self) -> String {
        format!("back/{}", self.0.store.shared().map_or("", Pins::host))
    }

    /// Whether a response lies where its waiter looks for it.
    pub(super) async fn lies(&self, group: &Group, request_id: &RequestId) -> io::Result<Lies> {
        let (folders, of, request_id) = (self.0.folders.clone(), group.clone(), request_id.clone());
        self.done_in_folder(group, move || lies_in(&*folders.ensure(&of, RESPONSES)?, &request_id)).await
    }

    /// Whether waiting longer would not show if the waiter still wants the response that lies there since then.
    fn cannot_be_judged(&self, ask: &Ask, waiter: &Waiter, since: Time) -> bool {
        let now = self.clock().now();
        // The host that serves the folder finds that out.
        if !self.does_folder_work(&ask.group) && (ask.rules.session.probe || waiter.process.is_some()) {
            return false;
        }
        let silent = |process: &str| self.heartbeats().of(&ask.group, process, now) == Liveness::Dead;
        // A probe may fail for long, and a client that gives no signs of life looks now and then: askd waits for either no longer
        // than for a sign of life.
        let awaited = (ask.rules.session.probe || waiter.process.is_none()) && now.since(since) < DEAD_AFTER;
        waiter.process.as_deref().is_none_or(silent) && !awaited
    }

    /// The processes of these calls were thought gone, and live: the outcome comes back to them, unless its briefing was read, or
    /// the agent was started with it.
    pub(super) fn give_back(&self, group: &Group, id: AskId) {
        // No agent is started with it meanwhile, and nobody is sent the briefing over HTTP.
        let Some(mut alone) = self.hold_start_here(id) else { return };
        let (broker, of) = (self.clone(), (group.clone(), id));
        self.0.ctx.spawn(async move {
            let back = broker.back();
            let held = broker.hold_for(&broker.0.briefed, &back, std::slice::from_ref(&of)).await;
            if !matches!(held, Ok(None)) {
                return;
            }
            let mut changes = broker.changes();
            // Else another daemon gives it to a call.
            let mut reclaims = alone.extend().await.then(|| Event::Requested(Relation::Reclaims(Vec::new())));
            while let Ok(Some(ask)) = broker.get(id).await {
                match ask.follow_up().briefing.state() {
                    DeliveryState::Published { .. } if ask.follow_up().start != AgentStart::Started => {
                        let Some(event) = reclaims.take() else { break };
                        if broker.apply(id, event).await.is_err() {
                            break;
                        }
                        continue;
                    }
                    DeliveryState::TakingBack => {}
                    DeliveryState::TakenBack { .. } => {
                        // Those that are dead are found out again.
                        let returns = |waiter: &&Waiter| waiter.may_come_back() && ask.briefs(waiter);
                        for call in ask.waiters.iter().filter(returns) {
                            broker.apply_later(id, Event::Requested(Relation::Replays(call.request_id.clone(), None)));
                        }
                        break;
                    }
                    DeliveryState::Undecided
                    | DeliveryState::Owed
                    | DeliveryState::Ready
                    | DeliveryState::Published { .. }
                    | DeliveryState::Taken => break,
                }
                if matches!(changes.recv().await, Err(RecvError::Closed)) {
                    break;
                }
            }
            broker.release(&broker.0.briefed, &back, &of).await;
            drop(alone);
        });
    }

    /// Which briefings callers over HTTP were sent lately.
    pub(in crate::host) fn briefed(&self) -> &Holds<AskId> {
        &self.0.briefed
    }

    /// The outcome of the same question that no call took; `None` if there is none, so that it is a new ask.
    pub(super) async fn give_kept(&self, id: AskId, request: &Request) -> Option<Submitted> {
        let ask = match self.get(id).await {
            Ok(ask) => ask?,
            // The ask may be open already: asking it again would show it twice.
            Err(error) => return Some(Self::unreadable(id, &error)),
        };
        if ask.key != request.key || !ask.content.same_as(&request.content) {
            return None;
        }
        let now = self.clock().now();
        let session = request.session.as_deref();
        if !ask.keeps_outcome(now, session) {
            return None;
        }
        self.note_repeat(&ask, request);
        let mut reclaim = Vec::new();
        for old in ask.waiters.iter().filter(|old| ask.makes_way_for(old, session)) {
            let Some(at) = old.response.published_at() else { continue };
            let looks = old.carrier.is_file() && self.served_elsewhere(&ask.group).is_none();
            let lies = if looks { self.lies(&ask.group, &old.request_id).await } else { Ok(Lies::There) };
            let dead = self.is_dead(id, &old.request_id).await;
            match (lies, dead) {
                (Ok(Lies::Gone), _) => {
                    let to = Taker::Waiter(old.request_id.clone());
                    let gone = self.gone(&ask.group, &to, at).to(to);
                    if matches!(self.apply(id, gone).await, Err(Failure::NotStored | Failure::InDoubt)) {
                        return Some(Submitted::NotStored);
                    }
                    return Some(Submitted::NotYet);
                }
                (Ok(Lies::There), Some(false)) => {}
                (Ok(Lies::There | Lies::BeingTaken), Some(true)) => reclaim.push(old.request_id.clone()),
                (Ok(Lies::There), None) if self.cannot_be_judged(&ask, old, at) => reclaim.push(old.request_id.clone()),
                // A waiter is taking it, or askd cannot tell yet whether one will.
                _ => return Some(Submitted::NotYet),
            }
        }
        if ask.follow_up().briefing.is_published() {
            let of = [(ask.group.clone(), id)];
            let held = self.hold_for(&self.0.briefed, request.request_id.as_str(), &of).await;
            if !matches!(held, Ok(None)) {
                // It was just sent to somebody over HTTP, or that is not known.
                return Some(Submitted::NotYet);
            }
        }
        if !reclaim.is_empty() || !ask.is_free() {
            // Else two agents would act on one outcome.
            let Some(_alone) = self.hold_start(id).await else { return Some(Submitted::NotYet) };
            return match self.apply(id, Event::Requested(Relation::Reclaims(reclaim))).await {
                Err(Failure::NotStored | Failure::InDoubt) => Some(Submitted::NotStored),
                _ => Some(Submitted::NotYet),
            };
        }
        let given = self.give_outcome(&ask, request, |waiter| Relation::JoinsSettled(Box::new(waiter))).await;
        if matches!(given, Some(Submitted::Joined(_))) {
            self.0.repeats.let_share(id);
        }
        given
    }
}
