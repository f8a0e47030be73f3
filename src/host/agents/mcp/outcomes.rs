//! The outcomes that are on their way to clients: which of them have reached theirs, and which are still owed. Where several
//! daemons share the records, a client's next message may come to another one, so that each tells the others.

use super::sessions::{Message, Sent};
use super::{Call, Caller, Mcp, Refused, Said, tools};
use crate::host::agents::Agents;
use crate::host::store::{McpCall, McpMessage};
use crate::sabotage::on;
use askd_core::{Group, RequestId, Waiter, WaiterEvent};
use std::time::Duration;

/// How long after its last event an outcome counts as taken by a client that says nothing more.
const REACHED_AFTER: Duration = Duration::from_secs(10);

impl Mcp {
    /// A message of a session has come: its client has what it shows that it has read, unless it drops that very call.
    pub(super) async fn heard(&self, caller: &Caller, said: &Said, message: Message<'_>) -> Result<(), Refused> {
        let of = caller.key();
        let cancelled = message.cancelled.as_ref().filter(|_| !on("cancelledtaken"));
        let mut is_known = false;
        if let Some(call) = cancelled {
            is_known = self.sessions.cancel(&caller.call(&message.client, call));
            for sent in self.sessions.over(&of, |sent| sent.was_dropped_by(&message)) {
                is_known = true;
                self.lost(caller, sent.request_id, Some(sent.call));
            }
        }
        let broker = &self.agents.broker;
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
        let shown = shown.await.map_err(|error| Refused::away(&error))?;
        if shown.is_over {
            return Err(Refused::Over);
        }
        if let Some(request_id) = shown.dropped {
            self.lost(caller, request_id, None);
        }
        let read = self.sessions.over(&of, |sent| sent.was_read_before(&message));
        for request_id in read.into_iter().map(|sent| sent.request_id).chain(shown.read) {
            self.reached(caller, request_id).await;
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

    /// A call is about to be sent its outcome; `false`: its client has cancelled it at another daemon.
    pub(super) async fn is_sent(&self, call: &Call, request_id: RequestId) -> bool {
        let (Agents { broker, ctx, .. }, caller, its) = (&self.agents, &call.caller, &call.its);
        if call.session.is_some() {
            let (broker, its, request_id, gone) = (broker.clone(), its.clone(), request_id.clone(), call.gone.clone());
            // Whoever drops this call while it is being noted has found nothing to take back.
            let noted = ctx.finish(async move {
                let is_cancelled = broker.call_sent(&its, &request_id).await;
                if gone.is_cancelled() {
                    broker.is_dealt_with(&its).await;
                }
                is_cancelled
            });
            if noted.await.unwrap_or_default() {
                return false;
            }
        }
        let (of, at) = (caller.key(), self.clock().monotonic());
        let sent = Sent { request_id, call: its.clone(), line: call.line.clone(), at };
        self.sessions.note(of.clone(), sent);
        let (mcp, caller, line) = (self.clone(), caller.clone(), call.line.clone());
        ctx.spawn(async move {
            tokio::select! {
                () = mcp.clock().sleep_to(at + REACHED_AFTER) => {}
                () = line.reset() => {}
            }
            let now = mcp.clock().monotonic();
            for sent in mcp.sessions.over(&of, |sent| sent.line.was_reset() || sent.at + REACHED_AFTER <= now) {
                if sent.line.was_reset() && !on("resettaken") {
                    mcp.lost(&caller, sent.request_id, Some(sent.call));
                } else if !mcp.agents.broker.is_shared() || !mcp.agents.broker.is_dealt_with(&sent.call).await {
                    mcp.reached(&caller, sent.request_id).await;
                }
            }
        });
        true
    }

    /// A call with an outcome that nobody waits for any more.
    pub(super) fn give_back(&self, call: &Call) {
        let outcome = call.outcome.lock().take();
        if let Some(request_id) = outcome {
            self.lost(&call.caller, request_id, call.session.as_ref().map(|_| call.its.clone()));
        }
    }

    /// An outcome has reached its client.
    async fn reached(&self, caller: &Caller, request_id: RequestId) {
        let (broker, group) = (&self.agents.broker, &caller.holder.group);
        let found = broker.find_anywhere(|broker| broker.of_request(group, &request_id)).await;
        let Ok(Some(id)) = found else { return };
        let event = WaiterEvent::Collected { by: caller.taker.clone() }.of(request_id);
        if let Err(problem) = self.agents.apply(id, event).await {
            tracing::warn!(ask = %id, why = problem.into_detail(), "an outcome that an MCP client has is still owed");
        }
    }

    /// It has not: it is still owed, to whoever asks next. `call`: the one that it was sent by this daemon.
    fn lost(&self, caller: &Caller, request_id: RequestId, call: Option<McpCall>) {
        let Agents { broker, holds, ctx, .. } = &self.agents;
        let released = broker.release(holds, &caller.taker, &(caller.holder.group.clone(), request_id));
        let broker = broker.clone();
        ctx.finish(async move {
            if let Some(call) = call {
                broker.is_dealt_with(&call).await;
            }
            released.await;
        });
    }
}
