//! Whether a part of the daemon can do its work: if not, since when, why, and what the operator can do about it. The parts
//! note it, the status tells it. Decides nothing.

use askd_core::Time;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

/// What keeps a part of the daemon from its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Since when.
    pub since: Time,
    /// What is wrong, without the name of the part.
    pub why: String,
    /// What the operator can do.
    pub fix: String,
}

/// How a part stands.
#[derive(Debug, Default)]
pub struct Standing {
    problem: Mutex<Option<Problem>>,
    /// Told when it could not do its work.
    failed: Notify,
}

impl Standing {
    /// It has done its work.
    pub fn works(&self) {
        *self.problem.lock() = None;
    }

    /// It could not do its work. What lasts keeps its beginning.
    pub fn fails(&self, now: Time, why: impl Into<String>, fix: impl Into<String>) {
        let mut problem = self.problem.lock();
        let since = problem.as_ref().map_or(now, |before| before.since);
        *problem = Some(Problem { since, why: why.into(), fix: fix.into() });
        self.failed.notify_one();
    }

    /// Waits until it could not do its work.
    pub async fn failed(&self) {
        self.failed.notified().await;
    }

    /// What keeps it from its work, if anything does.
    pub fn problem(&self) -> Option<Problem> {
        self.problem.lock().clone()
    }
}
