//! The sessions of MCP clients over HTTP: an id that outlives a restart, the calls that are in flight in each, and the
//! outcomes that are on their way to it. It decides nothing about asks; [`super::mcp`] is its only caller.

use crate::host::line::Line;
use crate::host::store::McpCall;
use crate::random;
use askd_core::{Group, RequestId};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How many sessions that have ended are remembered.
const REMEMBERED: usize = 1000;
/// The longest name and version of a client that its session's id repeats, in characters.
const LONGEST_NAME: usize = 64;

/// What a client says it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) name: String,
    #[serde(default)]
    pub(super) version: String,
}

impl Client {
    /// The id of a new session of this client: nobody can guess it, and it says itself who the client is, so that nothing is
    /// kept for it.
    pub(super) fn new_session(&self) -> String {
        let short = |text: &str| text.chars().take(LONGEST_NAME).collect();
        let client = Self { name: short(&self.name), version: short(&self.version) };
        let client = serde_json::to_vec(&client).unwrap_or_default();
        format!("{}.{}", random::unique(), BASE64.encode(client))
    }

    /// The session and the client of such an id.
    pub(super) fn of_session(id: &str) -> Option<(String, Self)> {
        let (session, client) = id.split_once('.')?;
        let is_ours = session.len() == 32 && session.bytes().all(|byte| byte.is_ascii_hexdigit());
        let client = serde_json::from_slice(&BASE64.decode(client).ok()?).ok()?;
        is_ours.then(|| (session.to_owned(), client))
    }
}

/// Whose call it is: a group, and a taker in it.
type Of = (Group, String);

/// All that is under way.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    calls: Mutex<HashMap<McpCall, Arc<CancellationToken>>>,
    sent: Mutex<HashMap<Of, Vec<Arc<Sent>>>>,
    /// The last sessions that their clients have ended. A start of the daemon forgets them.
    ended: Mutex<VecDeque<String>>,
}

/// An outcome whose last event was written.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) request_id: RequestId,
    pub(super) call: McpCall,
    pub(super) line: Line,
    /// Its entry where all daemons see it.
    pub(super) number: Option<i64>,
}

impl Sent {
    /// Whether a message of the same session shows that its client has read this outcome. A client that introduces itself, or
    /// goes by another id, may be a new run of an agent that died; one whose connection was reset may have got nothing.
    pub(super) fn was_read_before(&self, message: &Message) -> bool {
        !message.introduces() && self.call.client == message.client && !self.line.was_reset()
    }

    /// Whether a message of the same session drops this outcome.
    pub(super) fn was_dropped_by(&self, message: &Message) -> bool {
        self.call.client == message.client && message.cancelled.as_ref() == Some(&self.call.number)
    }
}

/// What a message says about the outcomes that were sent before it.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub(super) method: Option<&'a str>,
    /// The id that its client got when it introduced itself; empty without one.
    pub(super) client: String,
    /// The call that it begins, and the one that it drops.
    pub(super) begins: Option<String>,
    pub(super) cancelled: Option<String>,
}

impl Message<'_> {
    /// Whether its client introduces itself. What it was sent before, another run of the agent may have been.
    pub(super) fn introduces(&self) -> bool {
        matches!(self.method, Some("initialize" | "server/discover"))
    }
}

/// A call in flight, which its client can cancel.
#[derive(Debug)]
pub(super) struct Registered {
    sessions: Arc<Sessions>,
    of: McpCall,
    gone: Arc<CancellationToken>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut calls = self.sessions.calls.lock();
        // A client that has come back may have given another call the same number.
        if calls.get(&self.of).is_some_and(|gone| Arc::ptr_eq(gone, &self.gone)) {
            calls.remove(&self.of);
        }
    }
}

impl Sessions {
    /// `gone` is cancelled if the client cancels this call.
    pub(super) fn register(self: &Arc<Self>, of: McpCall, gone: CancellationToken) -> Registered {
        let gone = Arc::new(gone);
        self.calls.lock().insert(of.clone(), Arc::clone(&gone));
        Registered { sessions: Arc::clone(self), of, gone }
    }

    /// The client does not wait for this call any more; `false`: it is not in flight here.
    pub(super) fn cancel(&self, of: &McpCall) -> bool {
        let calls = self.calls.lock();
        let gone = calls.get(of);
        gone.inspect(|gone| gone.cancel()).is_some()
    }

    /// Its client has ended this session.
    pub(super) fn end(&self, session: String) {
        let mut ended = self.ended.lock();
        ended.push_front(session);
        ended.truncate(REMEMBERED);
    }

    /// Whether its client has ended it.
    pub(super) fn has_ended(&self, session: &str) -> bool {
        self.ended.lock().iter().any(|ended| ended == session)
    }

    /// An outcome is on its way.
    pub(super) fn note(&self, of: Of, sent: Sent) -> Arc<Sent> {
        let sent = Arc::new(sent);
        self.sent.lock().entry(of).or_default().push(Arc::clone(&sent));
        sent
    }

    /// Those on their way.
    pub(super) fn sent(&self, of: &Of) -> Vec<Arc<Sent>> {
        self.sent.lock().get(of).cloned().unwrap_or_default()
    }

    /// It is no more; `false`: that is known already.
    pub(super) fn has_come(&self, of: &Of, sent: &Arc<Sent>) -> bool {
        let mut all = self.sent.lock();
        let Some(of_its) = all.get_mut(of) else { return false };
        let before = of_its.len();
        of_its.retain(|known| !Arc::ptr_eq(known, sent));
        let was_there = of_its.len() < before;
        if of_its.is_empty() {
            all.remove(of);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_call_is_not_that_of_another_one_with_its_number() {
        let sessions = Arc::new(Sessions::default());
        let call = || McpCall {
            group: "g".parse().unwrap(),
            taker: "t".to_owned(),
            client: String::new(),
            number: "1".to_owned(),
        };
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let before = sessions.register(call(), first.clone());
        let _after = sessions.register(call(), second.clone());
        drop(before);
        assert!(sessions.cancel(&call()) && second.is_cancelled() && !first.is_cancelled());
    }

    #[test]
    fn the_id_of_a_session_says_who_its_client_is_and_nothing_else_is_one() {
        let client = Client { name: "x".repeat(500), version: "1.2".to_owned() };
        let id = client.new_session();
        let (session, read) = Client::of_session(&id).unwrap();
        assert_eq!((session.len(), read.name.len(), &*read.version), (32, 64, "1.2"));
        assert_ne!(session, Client::of_session(&client.new_session()).unwrap().0);
        let (_, rest) = id.split_once('.').unwrap();
        for other in ["", ".", "a.b", &session, &format!("short.{rest}"), &format!("{session}.{rest}!")] {
            assert!(Client::of_session(other).is_none(), "{other}");
        }
    }
}
