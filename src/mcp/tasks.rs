//! Tasks, an extension of the revision 2026-07-28: a client that declares them on a call gets a task at once and asks from time
//! to time what has become of it. A task is a question: its id names that and when it began, so nothing is kept for it.

use super::answer;
use askd_core::{RequestId, Time, wording};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus};
use serde_json::Value;

/// How often a client asks, in milliseconds.
const POLL_EVERY: u64 = 3000;

/// The task of a question that is asked now.
pub(super) fn begun(question_id: &str, now: Time) -> CreateTaskResult {
    CreateTaskResult::new(task(format!("{question_id}.{}", now.as_millis()), now))
}

fn task(id: String, begun: Time) -> Task {
    let begun = begun.to_string();
    Task::new(id, TaskStatus::Working, begun.clone(), begun).with_poll_interval_ms(POLL_EVERY)
}

/// No task of this id is known here.
pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params("Task not found", None)
}

/// Why a task could not be cancelled, by the result of the withdrawal.
pub(crate) fn not_cancelled(refused: &CallToolResult) -> ErrorData {
    if answer::is_unknown(refused) {
        return unknown();
    }
    let why = refused.structured_content.as_ref().and_then(|said| said["error"].as_str());
    ErrorData::internal_error(why.unwrap_or_default().to_owned(), None)
}

/// The question of a task.
pub(crate) fn question(task_id: &str) -> Result<RequestId, ErrorData> {
    read(task_id).map(|(question_id, _)| question_id)
}

fn read(task_id: &str) -> Result<(RequestId, Time), ErrorData> {
    let (question_id, begun) = task_id.split_once('.').ok_or_else(unknown)?;
    let begun = begun.parse().map_err(|_| unknown())?;
    Ok((question_id.parse().map_err(|_| unknown())?, Time::from_millis(begun)))
}

/// What has become of a task, by what a call that does not wait returns for its question.
pub(crate) fn state(task_id: String, result: CallToolResult) -> Result<GetTaskResult, ErrorData> {
    let (_, begun) = read(&task_id)?;
    let task = task(task_id, begun);
    let structured = result.structured_content.as_ref();
    let says = |field: &str| structured.map_or(&Value::Null, |result| &result[field]);
    if says("stillPending") == true {
        return Ok(GetTaskResult::new(DetailedTask::new(
            task.with_status_message(wording::PROGRESS),
            TaskPayload::Working,
        )));
    }
    let payload = if says("status") == "cancelled" && says("reason") == "system" {
        TaskPayload::Cancelled
    } else {
        let result =
            serde_json::to_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        TaskPayload::Completed { result: result.as_object().cloned().unwrap_or_default() }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}
