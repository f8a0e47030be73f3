//! Who waits for the outcome: each call by itself, and what it is told.

use super::{Carrier, Delivery};
use crate::{AskState, Digest, RequestId, Time, TimeoutPolicy};
use serde::{Deserialize, Serialize};

/// One blocked call that waits for the outcome, by the request that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Names its response file.
    pub request_id: RequestId,
    /// The content of its request: the same id with other content is a mistake of the agent.
    pub digest: Digest,
    /// Echoed in its response.
    pub op_code: Option<String>,
    /// What it wants done at a timeout.
    #[serde(rename = "timeout_policy")]
    pub on_timeout: TimeoutPolicy,
    /// The random id of the process that holds the call.
    pub process: Option<String>,
    /// Which run of the agent made it, if that is another one than made the ask; empty if it did not say.
    #[serde(rename = "session_id", default, skip_serializing_if = "Option::is_none")]
    pub other_session: Option<String>,
    /// When its request arrived, as far as askd knows.
    pub asked_at: Time,
    /// Which run of the session's container made it, as far as a probe could tell.
    pub run: Option<String>,
    /// What its response says.
    pub told: Told,
    /// How far its response is.
    pub response: Delivery,
    /// How it reaches askd.
    #[serde(default, skip_serializing_if = "Carrier::is_file")]
    pub carrier: Carrier,
    /// Its process was gone while a later call waited. It is told the outcome all the same, and waits again once it is heard of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
    /// What its request was called once askd had claimed it. A request of that name is this one: a crash has left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Which of the ask's briefings was for its session; set only if calls of several sessions wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub briefed: Option<u32>,
}

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// How the ask ended.
    #[default]
    Outcome,
    /// The late answer, which was there already when it asked.
    LateAnswer,
    /// That it was withdrawn by itself, whatever comes of the ask.
    Withdrawal,
    /// That the outcome went to the agent's next start while its process was thought gone.
    Elsewhere,
}

impl Waiter {
    /// Whether it was withdrawn by itself.
    pub fn is_withdrawn(&self) -> bool {
        self.told == Told::Withdrawal
    }

    /// Takes note of what its newest request was called once askd had claimed it. A call over HTTP has no name.
    pub(super) fn note_claim(&mut self, claim: Option<String>) {
        self.claim = claim.or(self.claim.take());
    }

    /// Whether it is a call that still waits, as far as askd knows: it was neither withdrawn nor replaced.
    pub fn waits(&self) -> bool {
        !self.is_withdrawn() && !self.replaced
    }

    /// Whether this is a call of a process that was thought gone, and that looks for a file.
    pub fn may_come_back(&self) -> bool {
        self.response.is_taken_back() && self.carrier.is_file() && !self.is_withdrawn() && self.process.is_some()
    }

    /// Whether nothing is owed to it, so that it can make room for another call.
    pub(super) fn may_go(&self) -> bool {
        let unreached = self.replaced && self.response == Delivery::default();
        unreached || self.response.is_taken() || self.response.is_taken_back()
    }
}

impl AskState {
    /// The waiter of that request.
    pub fn waiter(&self, request_id: &RequestId) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.request_id == *request_id)
    }
}
