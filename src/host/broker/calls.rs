//! What daemons that share the records tell each other of the calls of agents over HTTP: which of them wait, and what clients of MCP
//! show and say. A client's next message may come to any daemon.

use super::Broker;
use crate::host::store::{McpCall, McpCalls, McpMessage, Shown, StoreError};
use crate::sabotage::on;
use askd_core::{Group, RequestId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How soon something is tried again for which the database did not answer.
const AGAIN: Duration = Duration::from_millis(500);

impl Broker {
    /// Tells the other daemons which calls wait here, once those are over whose sessions have ended at any daemon.
    pub(super) async fn tell_waits(&self) -> Result<(), StoreError> {
        if self.leases().all().is_empty() && !self.0.beside.has_told.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (group, session) in self.in_store(McpCalls::ended_sessions).await? {
            self.leases().end(&group, &session);
        }
        let waits = self.leases().all();
        let some = !waits.is_empty();
        self.in_store(move |shared| shared.tell_waits(&waits)).await?;
        self.0.beside.has_told.store(some, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a call of this request waits at any daemon; an error if that is not known.
    pub(super) async fn waits_anywhere(&self, group: &Group, request_id: &RequestId) -> Result<bool, StoreError> {
        let holds = self.leases().holds(group, request_id);
        if holds || !self.is_shared() {
            return Ok(holds);
        }
        let (group, request_id) = (group.clone(), request_id.clone());
        self.in_store(move |shared| shared.waits_for(&group, &request_id)).await
    }

    /// A message of a client of MCP has come. Returns what it shows of other daemons' calls.
    pub(in crate::host) async fn shown_by(&self, message: McpMessage) -> Result<Shown, StoreError> {
        if on("deafdaemons") {
            return Ok(Shown::default());
        }
        self.in_store(move |shared| shared.heard(&message)).await
    }

    /// A call is about to be sent its outcome. Returns its entry at all daemons; inside, `None`: its client has cancelled it.
    pub(in crate::host) async fn call_sent(
        &self,
        call: &McpCall,
        outcome: &RequestId,
    ) -> Result<Option<i64>, StoreError> {
        let (call, outcome) = (call.clone(), outcome.clone());
        self.in_store(move |shared| shared.sent(&call, &outcome)).await
    }

    /// Whether what was sent still is on its way.
    pub(in crate::host) async fn is_on_its_way(&self, number: i64) -> Result<bool, StoreError> {
        self.in_store(move |shared| shared.is_on_its_way(number)).await
    }

    /// It is no more. Tries until that is noted: whoever finds it there takes the client to have it.
    pub(in crate::host) async fn has_come(&self, number: i64) {
        while let Err(error) = self.in_store(move |shared| shared.has_come(number)).await {
            tracing::warn!(%error, "other daemons may take a sent outcome for one that is on its way; trying again");
            if self.0.ctx.unless_cut(self.clock().sleep(AGAIN)).await.is_none() {
                return;
            }
        }
    }

    /// A session of MCP is over at all daemons, and nobody waits for the outcomes of these requests.
    pub(in crate::host) async fn end_session(
        &self,
        group: &Group,
        session: &str,
        requests: Vec<RequestId>,
    ) -> Result<(), StoreError> {
        let (group, session) = (group.clone(), session.to_owned());
        self.in_store(move |shared| shared.end_session(&group, &session, &requests)).await
    }
}
