//! Waiting on without a turn of the model. A client of the revision 2026-07-28 makes a call again by itself when its result
//! is `input_required`, and repeats the `requestState` that came with it. That names the question, so that the call goes on
//! waiting for it, with or without a session. It is signed for its holder and its call: no call goes on with the question
//! of another one. It is no promise: a client that does not come back has a question that is open, as after `pending`.

use super::tasks;
use askd_core::{RequestId, Time};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, InputRequiredResult, RequestStateCodec, SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often a client is asked to call again. The official clients make ten calls at most; the last one returns `pending`.
const MOST: u8 = 9;

/// The rounds of one call.
pub(crate) struct Rounds {
    /// `None` for a client that knows of no rounds.
    codec: Option<RequestStateCodec>,
    /// Its client takes a task in place of them.
    takes_tasks: bool,
    /// What the signature is bound to: the tool and its arguments.
    call: Vec<u8>,
    before: Option<Round>,
}

/// What `requestState` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Round {
    question_id: RequestId,
    number: u8,
}

impl Rounds {
    /// Those of this call, signed for the holder of a key.
    pub(crate) fn of(
        key: &[u8],
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let is_new = context.protocol_version().is_some_and(|version| !version.has_initialize());
        let takes_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        Ok(Self { takes_tasks, ..Self::read(key, request, is_new)? })
    }

    fn read(key: &[u8], request: &CallToolRequestParams, is_new: bool) -> Result<Self, ErrorData> {
        let broken = |error: &dyn std::error::Error| ErrorData::internal_error(error.to_string(), None);
        // A model that says itself how long it waits has `pending` then.
        let arguments = request.arguments.as_ref();
        let says = ["waitMs", "wait_ms"].iter().filter_map(|field| arguments?.get(*field)).any(|wait| !wait.is_null());
        let codec =
            (is_new && !says).then(|| RequestStateCodec::try_new(key)).transpose().map_err(|error| broken(&error))?;
        let call = serde_json::to_vec(&(&request.name, &request.arguments)).map_err(|error| broken(&error))?;
        let before = match (&codec, &request.request_state) {
            (Some(codec), Some(state)) => Some(codec.open_json_with(state, &call).map_err(|error| {
                ErrorData::invalid_params(format!("requestState is not of this call: {error}"), None)
            })?),
            _ => None,
        };
        Ok(Self { codec, takes_tasks: false, call, before })
    }

    /// The question that an earlier round waited for.
    pub(crate) fn question(&self) -> Option<&RequestId> {
        self.before.as_ref().map(|round| &round.question_id)
    }

    /// The same, read from a whole message.
    #[cfg(feature = "host")]
    pub(crate) fn question_in(key: &[u8], message: &[u8]) -> Option<RequestId> {
        #[derive(Deserialize)]
        struct Message {
            params: CallToolRequestParams,
        }
        let Message { params } = serde_json::from_slice(message).ok()?;
        Self::read(key, &params, true).ok()?.before.map(|round| round.question_id)
    }

    /// How long a call waits that may wait so long: a task begins at once.
    pub(crate) fn wait(&self, wait: Option<Duration>) -> Option<Duration> {
        if self.takes_tasks && self.codec.is_some() { Some(Duration::ZERO) } else { wait }
    }

    /// What a call returns that has waited as long as it may: instead of `pending`, that its client is to call again, or a task.
    pub(crate) fn go_on(&self, pending: CallToolResult, now: Time) -> CallToolResponse {
        let Some(question_id) = self.question_of(&pending) else { return pending.into() };
        if self.takes_tasks {
            return CallToolResponse::Task(tasks::begun(question_id.as_str(), now));
        }
        self.next(question_id).map_or_else(|| pending.into(), Into::into)
    }

    /// The question that a call waits for on behalf of a client that can go on by itself.
    fn question_of(&self, pending: &CallToolResult) -> Option<RequestId> {
        let structured = pending.structured_content.as_ref().filter(|result| result["stillPending"] == true)?;
        structured["question_id"].as_str().filter(|_| self.codec.is_some())?.parse().ok()
    }

    fn next(&self, question_id: RequestId) -> Option<InputRequiredResult> {
        let number = self.before.as_ref().map_or(1, |round| round.number.saturating_add(1));
        let options = SealOptions::new().associated_data(&self.call);
        let codec = self.codec.as_ref().filter(|_| number <= MOST)?;
        let state = codec.seal_json_with(&Round { question_id, number }, &options).ok()?;
        Some(InputRequiredResult::from_request_state(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::answer::{self, Report};
    use serde_json::json;

    const KEY: &[u8] = &[7; 32];

    fn call(question: &str, state: Option<String>) -> CallToolRequestParams {
        let mut call = CallToolRequestParams::new("ask_user");
        call.arguments = json!({"questions": [{"question": question}]}).as_object().cloned();
        call.request_state = state;
        call
    }

    fn pending() -> CallToolResult {
        answer::result(&Report { response: answer::pending(), note: None }, Some(&"r1".parse().unwrap()))
    }

    fn state(rounds: &Rounds) -> Option<String> {
        rounds.next(rounds.question_of(&pending())?)?.request_state
    }

    #[test]
    fn a_client_of_the_new_revision_calls_again_until_its_patience_ends() {
        let mut rounds = Rounds::read(KEY, &call("Go?", None), true).unwrap();
        assert!(rounds.question().is_none());
        for _ in 0..MOST {
            let repeated = call("Go?", Some(state(&rounds).unwrap()));
            rounds = Rounds::read(KEY, &repeated, true).unwrap();
            assert_eq!(rounds.question().unwrap().as_str(), "r1");
        }
        assert_eq!(state(&rounds), None, "the tenth call says that it is pending");
        assert_eq!(state(&Rounds::read(KEY, &call("Go?", None), false).unwrap()), None, "an earlier revision");
        let mut own = call("Go?", None);
        own.arguments.as_mut().unwrap().insert("waitMs".to_owned(), json!(1000));
        assert_eq!(state(&Rounds::read(KEY, &own, true).unwrap()), None, "the model chose how long it waits");
    }

    #[test]
    fn what_was_signed_for_another_call_or_holder_is_refused() {
        let signed = state(&Rounds::read(KEY, &call("Go?", None), true).unwrap()).unwrap();
        for (key, question, state) in
            [(KEY, "Stop?", signed.clone()), (&[8; 32][..], "Go?", signed.clone()), (KEY, "Go?", format!("{signed}x"))]
        {
            let refused = Rounds::read(key, &call(question, Some(state)), true).map(|_| ()).unwrap_err();
            assert!(refused.message.starts_with("requestState is not of this call"), "{refused:?}");
        }
    }
}
