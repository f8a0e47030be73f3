//! How the result of a call looks to the model: an answer as JSON, anything else as one sentence marked as an error, both
//! with structured content that fits the declared schema. Section 8 of the specification. The sentences are in
//! `askd_core::wording`.

use crate::ipc::wire::{ResponseFile, ResponseResult, unanswered};
use askd_core::{Rejection, RequestId, wording};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;

/// What a call returns.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// What came of the question, in the shape of a response file even where there is none.
    pub(crate) response: ResponseFile,
    /// What askd did differently from what the call asked for.
    pub(crate) note: Option<String>,
}

/// What this side alone knows of a question that got no response.
pub(crate) fn failed(status: &str, error: impl Display) -> ResponseFile {
    ResponseFile { result: unanswered("", None, status, "system"), error: Some(error.to_string()) }
}

/// The question is open; the call waits no longer.
pub(crate) fn pending() -> ResponseFile {
    ResponseFile { result: unanswered("", None, "pending", "pending"), error: None }
}

/// No daemon claimed the request in time, for the `attempt`th time; the agent may try again so often.
pub(crate) fn not_claimed(attempt: u32, retries: u8) -> ResponseFile {
    let should_retry = attempt <= u32::from(retries);
    let (error, reason) = if should_retry {
        (wording::not_claimed(attempt, retries), wording::not_claimed(attempt, retries))
    } else {
        (wording::MAX_RETRIES.to_owned(), wording::max_retries_reason(retries))
    };
    let mut response = failed("undeliverable", error);
    (response.result.should_retry, response.result.retry_reason) = (should_retry, Some(reason));
    response
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
    #[schemars(description = "open; call ask_user_wait, or do as the text says")]
    still_pending: bool,
    #[schemars(description = "what ask_user_wait and ask_user_cancel take")]
    question_id: Option<&'a str>,
}

/// The result for a question that cannot be asked.
pub(crate) fn rejected(rejection: &Rejection) -> CallToolResult {
    result(&Report { response: failed("rejected", rejection), note: None }, None)
}

/// The result for a question that this process has not asked: the sentence says what to do, so nothing marks it.
pub(crate) fn unknown(why: &str) -> CallToolResult {
    let mut result = result(&Report { response: failed("rejected", why), note: None }, None);
    result.content = vec![ContentBlock::text(why)];
    result
}

/// Whether a result is that one. A folder that hangs names no question either, which is then pending.
pub(crate) fn is_unknown(result: &CallToolResult) -> bool {
    let is_it = |said: &Value| said["question_id"].is_null() && said["status"] == "rejected";
    result.structured_content.as_ref().is_some_and(is_it)
}

/// The result of a call that asks or waits.
pub(crate) fn result(report: &Report, question_id: Option<&RequestId>) -> CallToolResult {
    let written = written(report, question_id.map(RequestId::as_str));
    written.unwrap_or_else(|error| CallToolResult::error(vec![ContentBlock::text(error.to_string())]))
}

fn written(report: &Report, question_id: Option<&str>) -> serde_json::Result<CallToolResult> {
    let mut result = report.response.result.clone();
    if result.request_id.is_empty() {
        question_id.unwrap_or_default().clone_into(&mut result.request_id);
    }
    let pending = result.status == "pending";
    let answered = result.answered && report.response.error.is_none();
    let error = (!pending && !answered).then(|| error(&report.response));
    let text = Text { result: &result, note: report.note.as_deref() };
    let words = match &error {
        Some(error) if result.should_retry => format!("{}. {}", error.trim_end_matches('.'), wording::RETRY_NOW),
        // The text also says in words that it is an error.
        Some(error) if matches!((&*result.status, &*result.reason), ("rejected", _) | ("timeout", "system")) => {
            wording::error_text(error)
        }
        Some(error) => error.clone(),
        None if pending => wording::STILL_PENDING.to_owned(),
        None => serde_json::to_string_pretty(&text)?,
    };
    let structured = Structured { text, error: error.as_deref(), still_pending: pending, question_id };
    let structured = serde_json::to_value(&structured)?;
    let content = vec![ContentBlock::text(words)];
    let mut result = if error.is_some() { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(structured);
    Ok(result)
}

/// The result for a caller of whom nothing says which run of the agent it is: the same call of it would ask again.
#[cfg(feature = "host")]
pub(crate) fn alone(mut result: CallToolResult) -> CallToolResult {
    let pending = |structured: &Value| structured["stillPending"] == true;
    if result.structured_content.as_ref().is_some_and(pending) {
        result.content = vec![ContentBlock::text(wording::STILL_PENDING_ALONE)];
    }
    result
}

/// The result of a call that withdraws. Withdrawn is what the call wanted, so it is not an error.
pub(crate) fn withdrawal(mut result: CallToolResult) -> CallToolResult {
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
