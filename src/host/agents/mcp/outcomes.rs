//! The outcomes that are on their way to clients: which of them have reached theirs, and which are still owed. Where several
//! daemons share the records, a client's next message may come to another one, so that each tells the others.

use super::sessions::{Message, Sent};
use super::{Call, Caller, Mcp, Refused, Said, tools};
use crate::clock::Moment;
use crate::host::agents::Agents;
use crate::host::agents::problems::away;
use crate::host::store::McpMessage;
use crate::sabotage::on;
use askd_core::{Group, RequestId, Waiter, WaiterEvent};
use std::sync::Arc;
use std::time::Duration;

/// How soon it is tried again to note that an outcome was taken.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after its last event an outcome counts as taken by a client that says nothing more.
const REACHED_AFTER: Duration = Duration::from_secs(10);

impl Mcp {
    /// A message of a session has come: its client has what it shows that it has read, unless it drops that very call. An error: it is not
    /// known what it has, so that the message must not be dealt with.
    pub(super) async fn heard(&self, caller: &Caller, said: &Said, message: Message<'_>) -> Result<(), Refused> {
        let (of, broker) = (caller.key(), &self.agents.broker);
        let cancelled = message.cancelled.as_ref().filter(|_| !on("cancelledtaken"));
        let mut is_known = false;
        if let Some(call) = cancelled {
            is_known = self.sessions.cancel(&caller.call(&message.client, call));
            for sent in self.sessions.sent(&of).into_iter().filter(|sent| sent.was_dropped_by(&message)) {
                is_known = true;
                self.sent_in_vain(caller, &sent);
            }
        }
        let shown = broker.shown_by(McpMessage {
            group: of.0.clone(),
            taker: of.1.clone(),
            client: message.client.clone(),
            shows: !message.introduces(),
            begins: message.begins.clone(),
            cancels: cancelled.filter(|_| !is_known).cloned(),
            own: said.own.clone(),
            back: said.session.clone().filter(|session| said.own.as_ref() != Some(session)),
        });
        let shown = shown.await.or_else(|error| away(&error))?;
        if shown.is_over {
            return Err(Refused::Over);
        }
        for request_id in shown.dropped {
            self.lost(caller, request_id, None);
        }
        for sent in self.sessions.sent(&of).into_iter().filter(|sent| sent.was_read_before(&message)) {
            // What another daemon has heard of already is not there any more.
            if sent.number.is_none_or(|number| shown.sent.iter().any(|there| there.number == number)) {
                self.reached(caller, &sent.request_id).await?;
            }
            if self.sessions.has_come(&of, &sent)
                && let Some(number) = sent.number
            {
                broker.has_come(number).await;
            }
        }
        for sent in shown.sent.into_iter().filter(|sent| !sent.is_own && !on("forgetsent")) {
            self.reached(caller, &sent.request_id).await?;
            broker.has_come(sent.number).await;
        }
        Ok(())
    }

    /// A message of this session has come: it still waits for what it asked in an earlier run, or at another daemon. Returns all of that.
    pub(super) async fn adopt(&self, group: &Group, session: &str) -> Vec<RequestId> {
        let broker = &self.agents.broker;
        broker.loaded_of(group).await;
        let mut adopted = Vec::new();
        for id in broker.reaching(group) {
            let Ok(Some(ask)) = broker.get(id).await else { continue };
            let its = |waiter: &&Waiter| tools::waits(waiter) && ask.session_of(waiter) == Some(session);
            for waiter in ask.waiters.iter().filter(its) {
                broker.leases().adopt(group, &waiter.request_id, session);
                adopted.push(waiter.request_id.clone());
            }
        }
        adopted
    }

    /// A call is about to be sent its outcome; `false`: it must not be, because its client has cancelled it at another daemon, or may have.
    pub(super) async fn is_sent(&self, call: &Call, request_id: RequestId) -> bool {
        let (Agents { broker, ctx, .. }, caller) = (&self.agents, &call.caller);
        if ctx.is_cut() {
            return false;
        }
        let mut number = None;
        if broker.is_shared() && call.session.is_some() {
            let (broker, its, outcome, gone) =
                (broker.clone(), call.its.clone(), request_id.clone(), call.gone.clone());
            // Whoever drops this call while it is being noted has found nothing to take back.
            let noted = ctx.finish(async move {
                let noted = broker.call_sent(&its, &outcome).await;
                if let (Ok(Some(number)), true) = (&noted, gone.is_cancelled()) {
                    broker.has_come(*number).await;
                }
                noted
            });
            match noted.await {
                Ok(Ok(Some(noted))) => number = Some(noted),
                Ok(Ok(None)) => return false,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "an outcome is not sent: other daemons could not be told, and its call has to come again");
                    return false;
                }
                Err(_panic) => return false,
            }
        }
        call.line.carries_outcome();
        let of = caller.key();
        let sent = Sent { request_id, call: call.its.clone(), line: call.line.clone(), number };
        let sent = self.sessions.note(of, sent);
        let (mcp, caller, until) = (self.clone(), caller.clone(), self.clock().monotonic() + REACHED_AFTER);
        drop(ctx.finish(async move { mcp.follow(&caller, &sent, until).await }));
        true
    }

    /// Waits until an outcome counts as taken, or is known to be lost. A stop ends the wait once nothing is being sent any more: the next
    /// run would not know of it, and give it to the same call again.
    async fn follow(&self, caller: &Caller, sent: &Arc<Sent>, until: Moment) {
        let ctx = &self.agents.ctx;
        tokio::select! {
            _cut = ctx.unless_cut(self.clock().sleep_to(until)) => {}
            () = sent.line.reset() => {}
        }
        // What a stop has cut short may not have been sent.
        if ctx.was_cut_short() || ctx.is_cut() && on("forgetsent") {
            return;
        }
        let of = caller.key();
        while self.sessions.sent(&of).iter().any(|known| Arc::ptr_eq(known, sent)) {
            if sent.line.was_reset() && !on("resettaken") {
                return self.sent_in_vain(caller, sent);
            }
            let still = match sent.number {
                Some(number) => self.agents.broker.is_on_its_way(number).await.ok(),
                None => Some(true),
            };
            let is_known = match still {
                Some(true) => self.reached(caller, &sent.request_id).await.is_ok(),
                Some(false) => true,
                None => false,
            };
            if is_known {
                self.sessions.has_come(&of, sent);
                if let Some(number) = sent.number {
                    self.agents.broker.has_come(number).await;
                }
                return;
            }
            if !ctx.pause(AGAIN).await {
                return;
            }
        }
    }

    /// A call with an outcome that nobody waits for any more.
    pub(super) fn give_back(&self, call: &Call) {
        let outcome = call.outcome.lock().take();
        if let Some(request_id) = outcome {
            self.lost(&call.caller, request_id, None);
        }
    }

    /// An outcome has reached its client.
    async fn reached(&self, caller: &Caller, request_id: &RequestId) -> Result<(), Refused> {
        let (broker, group) = (&self.agents.broker, &caller.holder.group);
        let found = broker.find_anywhere(|broker| broker.of_request(group, request_id)).await;
        // What was forgotten nobody has to take.
        let Some(id) = found.or_else(|error| away(&error))? else { return Ok(()) };
        let event = WaiterEvent::Collected { by: caller.taker.clone() }.of(request_id.clone());
        match self.agents.apply(id, event).await {
            Err(problem) if problem.is_for_now() => Err(problem.into()),
            _ => Ok(()),
        }
    }

    /// What was sent has not reached its client.
    fn sent_in_vain(&self, caller: &Caller, sent: &Arc<Sent>) {
        if self.sessions.has_come(&caller.key(), sent) {
            self.lost(caller, sent.request_id.clone(), sent.number);
        }
    }

    /// It is still owed, to whoever asks next. `number`: its entry at all daemons.
    fn lost(&self, caller: &Caller, request_id: RequestId, number: Option<i64>) {
        let Agents { broker, holds, ctx, .. } = &self.agents;
        let released = broker.release(holds, &caller.taker, &(caller.holder.group.clone(), request_id));
        let broker = broker.clone();
        ctx.finish(async move {
            if let Some(number) = number {
                broker.has_come(number).await;
            }
            released.await;
        });
    }
}
