//! How the result of a call looks to the model: an answer as JSON, anything else as one sentence marked as an error, both
//! with structured content that fits the declared schema. Section 8 of the specification. The sentences are in
//! `askd_core::wording`.

use crate::ipc::wire::{ResponseFile, ResponseResult, unanswered};
use askd_core::wording;
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;

/// What came of a call.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The daemon's response.
    Response(Box<ResponseFile>),
    /// The question is open; the call waits no longer.
    Pending,
    /// The daemon did not claim the request in time; it was taken back.
    NotClaimed {
        /// How often that happened to these questions.
        attempt: u32,
        /// How often the agent may try again.
        retries: u8,
    },
    /// The daemon is silent long after the deadline.
    HostSilent,
    /// The folder cannot be used.
    Broken(String),
    /// It cannot be asked.
    Rejected(String),
    /// This process does not wait for such a question.
    Unknown(String),
    /// The agent took its request back.
    Withdrawn,
}

/// An outcome, and what else the agent should know.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// What came of it.
    pub(super) outcome: Outcome,
    /// What askd did differently from what the call asked for.
    pub(super) note: Option<String>,
}

/// `result` with what is added to it on this side.
#[derive(Serialize, JsonSchema)]
#[schemars(description = "")]
struct Text<'a> {
    #[serde(flatten)]
    result: &'a ResponseResult,
    /// what was done otherwise than asked for
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    note: Option<&'a str>,
}

/// The same with what only structured content has.
#[derive(Serialize, JsonSchema)]
#[schemars(description = "")]
pub(super) struct Structured<'a> {
    #[serde(flatten)]
    text: Text<'a>,
    /// whatever is not an answer, in one sentence
    error: Option<&'a str>,
    #[serde(rename = "stillPending")]
    #[schemars(description = "open; repeat the call, or use ask_user_wait")]
    still_pending: bool,
    #[schemars(description = "what ask_user_wait and ask_user_cancel take")]
    question_id: Option<&'a str>,
}

impl Outcome {
    /// As a response file would have it.
    fn response(&self, question_id: &str) -> ResponseFile {
        let without = |status: &str, reason: &str, error: String| ResponseFile {
            result: unanswered(question_id, None, status, reason),
            error: Some(error),
        };
        match self {
            Self::Response(response) => response.as_ref().clone(),
            Self::Pending => ResponseFile { result: unanswered(question_id, None, "pending", "pending"), error: None },
            Self::NotClaimed { attempt, retries } if *attempt > u32::from(*retries) => {
                let mut response = without("undeliverable", "system", wording::MAX_RETRIES.to_owned());
                response.result.retry_reason = Some(wording::max_retries_reason(*retries));
                response
            }
            Self::NotClaimed { attempt, retries } => {
                let reason = wording::not_claimed(*attempt, *retries);
                let mut response = without("undeliverable", "system", reason.clone());
                response.result.should_retry = true;
                response.result.retry_reason = Some(reason);
                response
            }
            Self::HostSilent => without("timeout", "system", wording::HOST_SILENT.to_owned()),
            Self::Broken(why) => without("undeliverable", "system", why.clone()),
            Self::Rejected(why) | Self::Unknown(why) => without("rejected", "system", why.clone()),
            Self::Withdrawn => without("cancelled", "system", wording::WITHDRAWN.to_owned()),
        }
    }
}

/// The result of a call that asks or waits.
pub(super) fn result(report: &Report, question_id: Option<&str>) -> CallToolResult {
    let written = written(report, question_id);
    written.unwrap_or_else(|error| CallToolResult::error(vec![ContentBlock::text(error.to_string())]))
}

fn written(report: &Report, question_id: Option<&str>) -> serde_json::Result<CallToolResult> {
    let response = report.outcome.response(question_id.unwrap_or_default());
    let pending = matches!(report.outcome, Outcome::Pending);
    let answered = response.result.answered && response.error.is_none();
    let error = (!pending && !answered).then(|| error(&response));
    let text = Text { result: &response.result, note: report.note.as_deref() };
    let words = match &error {
        Some(error) if response.result.should_retry => {
            format!("{}. {}", error.trim_end_matches('.'), wording::RETRY_NOW)
        }
        Some(error) if says_error(&report.outcome, &response) => wording::error_text(error),
        Some(error) => error.clone(),
        None if pending => wording::STILL_PENDING.to_owned(),
        None => serde_json::to_string_pretty(&text)?,
    };
    let structured = Structured { text, error: error.as_deref(), still_pending: pending, question_id };
    let content = vec![ContentBlock::text(words)];
    let mut result = if error.is_some() { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(serde_json::to_value(&structured)?);
    Ok(result)
}

/// Whether the text also says in words that it is an error.
fn says_error(outcome: &Outcome, response: &ResponseFile) -> bool {
    match outcome {
        Outcome::HostSilent => true,
        Outcome::Unknown(_) => false,
        _ => response.result.status == "rejected",
    }
}

/// The result of a call that withdraws. Withdrawn is what the call wanted, so it is not an error.
pub(super) fn withdrawal(report: &Report, question_id: &str) -> CallToolResult {
    let mut result = result(report, Some(question_id));
    let status = result.structured_content.as_ref().and_then(|structured| structured["status"].as_str());
    if status == Some("cancelled") {
        result.is_error = Some(false);
    }
    result
}

/// Every result but an answer has a sentence, even from a host that sent none.
fn error(response: &ResponseFile) -> String {
    let sent = response.error.clone().filter(|error| !error.trim().is_empty());
    sent.unwrap_or_else(|| format!("ask_user {}: no answer.", response.result.status))
}
