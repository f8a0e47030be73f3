//! What an agent over HTTP is told when a call did not do what it asked for.

use super::briefings;
use crate::host::broker::Failure;
use crate::host::channel::web::Problem;
use crate::host::store::StoreError;
use askd_core::{DeliveryState, RequestId, wording};
use axum::http::StatusCode;
use std::time::Duration;

pub(super) const TAKEN: &str = "Another taker has it. If you still need an answer, ask again.";

pub(super) fn problem<T>(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::new(status, title, detail))
}

pub(super) fn unavailable<T>(detail: &str) -> Result<T, Problem> {
    problem(StatusCode::SERVICE_UNAVAILABLE, "Not now", detail)
}

pub(super) fn away<T>(error: &StoreError) -> Result<T, Problem> {
    tracing::warn!(%error, "what an agent calls for is not known, or cannot be held for it");
    unavailable("The database cannot be reached. Try again.")
}

/// What a caller is told whose change did not happen.
pub(super) fn unstored(failure: &Failure) -> &'static str {
    match failure {
        Failure::InDoubt => "It may have been stored; look again. If it was not, askd keeps trying.",
        Failure::Broken => wording::SET_ASIDE,
        _ => "It could not be stored. Try again.",
    }
}

/// What a caller is told of a question that may have been asked.
pub(super) fn in_doubt(request_id: &RequestId) -> String {
    format!(
        "It may have been asked, or not; askd stores it again until that is clear. Ask with the request_id \
         \"{request_id}\" again, which asks nothing twice; with another id it could be asked twice."
    )
}

pub(super) fn not_done<T>(failure: &Failure) -> Result<T, Problem> {
    match failure {
        Failure::Broken => problem(StatusCode::INTERNAL_SERVER_ERROR, "Set aside", unstored(failure)),
        _ => unavailable(unstored(failure)),
    }
}

pub(super) fn to_another(detail: &str, left: Duration) -> Result<(), Problem> {
    Err(Problem::new(StatusCode::CONFLICT, "Held for another", detail).retry_after(left))
}

/// Why a call cannot take its outcome now. After a crash of the computer or the database an outcome is put there once more.
pub(super) fn why_not_taken(state: DeliveryState) -> Problem {
    match state {
        DeliveryState::Taken => Problem::new(StatusCode::GONE, "Not yours", TAKEN),
        DeliveryState::TakingBack | DeliveryState::TakenBack { .. } => {
            let detail = "It became a briefing meanwhile. GET it again: it comes back unless the briefing was read.";
            Problem::new(StatusCode::GONE, "A briefing now", detail)
        }
        DeliveryState::Owed | DeliveryState::Ready | DeliveryState::Published { .. } => {
            let detail = "The outcome cannot be taken yet. Say it again in a moment.";
            Problem::new(StatusCode::CONFLICT, "Not yet", detail).retry_after(briefings::SOON)
        }
        DeliveryState::Undecided => Problem::new(StatusCode::CONFLICT, "No outcome", "There is no outcome yet."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its agent has printed it already, and must not take this for a failure.
    #[test]
    fn what_a_crash_puts_there_once_more_can_be_taken_a_moment_later() {
        let is_for_now = |state| why_not_taken(state).is_for_now();
        assert!(is_for_now(DeliveryState::Owed) && is_for_now(DeliveryState::Ready));
        assert!(!is_for_now(DeliveryState::Undecided) && !is_for_now(DeliveryState::Taken));
    }
}
