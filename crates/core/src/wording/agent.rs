//! The sentences that an agent reads while it waits, through MCP and in the terminal. Texts marked *exact* are part of
//! the contract.

/// What the agent's side says when no daemon takes its request. *Exact* but for the counts.
pub fn not_claimed(attempt: u32, retries: u8) -> String {
    format!("UI failed to render question within timeout (attempt {attempt}/{retries})")
}

/// What the agent's side says when the host goes silent after the deadline. *Exact.*
pub const HOST_SILENT: &str = "Request timed out waiting for host response";

/// What ends the text of a result that says that the same call is to be made again. *Exact.*
pub const RETRY_NOW: &str = "Retry this exact call now, in this session, with the same parameters.";

/// When no daemon has taken the request as often as it may be retried. *Exact.*
pub const MAX_RETRIES: &str = "Max retries exceeded";

/// `retryReason` beside [`MAX_RETRIES`]. *Exact* but for the count.
pub fn max_retries_reason(retries: u8) -> String {
    format!("Max retries ({retries}) exceeded")
}

/// What a call returns that waits no longer while the question stays open. *Exact.*
pub const STILL_PENDING: &str = "⏳ Waiting for user confirmation... The question is still open. Retry this exact call, \
                                 or call ask_user_wait with this question_id; if the user already answered, it \
                                 returns at once.";

/// The same where nothing says which run of the agent calls, so that the same call would ask again.
pub const STILL_PENDING_ALONE: &str = "⏳ Waiting for user confirmation... The question is still open. Call ask_user_wait with \
                                       this question_id; if the user already answered, it returns at once. Do not repeat \
                                       the ask_user call: without a session it would ask again.";

/// What a call is told that waits for a question that this process has not asked. *Exact.*
pub const UNKNOWN_HERE: &str = "Unknown here: repeat the ask_user call with the same arguments; if it was answered it \
                                returns at once.";

/// The same where nothing says which run of the agent calls.
pub const UNKNOWN_ALONE: &str = "Unknown here: no question of this token has this question_id any more. Use the question_id of a \
                                 pending result; ask again only if the answer is still needed.";

/// The same for a call that withdraws one.
pub const UNKNOWN_NOT_WITHDRAWN: &str = "Unknown here: this process has not asked a question with this question_id, \
                                         so nothing was withdrawn. Use the question_id of a pending result.";

/// When a folder hangs while a question is withdrawn.
pub const FOLDER_SILENT: &str = "the folder does not respond. The question is withdrawn once it does.";

/// When the daemon has not said in time that it has heard of a withdrawal.
pub const WITHDRAWAL_UNHEARD: &str = "askd has not confirmed the withdrawal, so the question may still be open. This process tells it \
                                      again as long as it runs; call ask_user_cancel again to find out.";

/// When askd does not know whether it has stored a question. The result names it.
pub const MAY_BE_ASKED: &str = "askd does not know whether the question was asked: it may have been stored, or not. Call \
                                ask_user_wait with this question_id to find out; asking again could ask twice.";

/// When the same question was asked before, and askd does not know yet whether its answer reaches who asked it.
pub const NOT_CLEAR_YET: &str = "The same question was asked before, and askd does not know yet which call gets its answer. \
                                 Nothing new was asked. Repeat the call with the same arguments.";

/// When the client goes away while it calls.
pub const CLIENT_GONE: &str = "the client has closed its end; nothing was asked.";

/// What a call is told that was thought gone while its agent got the outcome at its next start.
pub const TOLD_ELSEWHERE: &str = "The outcome became a briefing, which was read, or with which the agent was started.";

/// What a client may show while a person thinks.
pub const PROGRESS: &str = "waiting for a person to answer";

/// That a person gets more time than the agent meant to give.
pub fn timeout_raised(asked: u64, least: u64) -> String {
    format!(
        "timeoutMs {asked} was raised to {least}: a person needs time to see a question. To return sooner and leave it \
         open, use waitMs."
    )
}
