//! Requests that become no question: malformed ones, and those on which askd panicked. Their agents are told, and their files kept.

use super::group_scanner::GroupScanner;
use super::taking::Taken;
use crate::host::delivery;
use crate::ipc::wire::{self, Kinds, Peek};
use crate::ipc::{MAX_REQUEST_BYTES, TASKS};
use crate::random;
use askd_core::{Rejection, RequestId, wording};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl GroupScanner {
    /// Tells the agent, if it can be told, keeps what was malformed, and says so in the log.
    pub(super) async fn reject(
        self: &Arc<Self>,
        request_id: Option<RequestId>,
        op_code: Option<String>,
        rejection: Rejection,
        keep: Option<(&str, Vec<u8>)>,
    ) -> Taken {
        let file = keep.as_ref().map(|(name, _)| (*name).to_owned());
        let reason = wording::for_log(&rejection);
        if self.warnings.is_first(Some(&self.group), &format!("Request rejected: {reason}")) {
            let request_id = request_id.as_ref().map(tracing::field::display);
            tracing::warn!(group = %self.group, request_id, file, reason, "Request rejected");
        }
        let bytes = keep.map(|(_, bytes)| bytes);
        let tell = move |scanner: &Arc<Self>| -> io::Result<()> {
            // First what may fail and be tried again, so that one mistake is kept once.
            if let Some(request_id) = &request_id {
                let response = wire::refused(request_id, op_code, &rejection);
                delivery::write_at_once(&scanner.folders, &scanner.group, &response)?;
            }
            bytes.map_or(Ok(()), |bytes| scanner.keep(&bytes).map(drop))
        };
        match self.on_disk(tell).await {
            Ok(()) => Taken::Done,
            Err(error) => {
                tracing::error!(group = %self.group, %error, "a rejection could not be written; trying again");
                Taken::Later
            }
        }
    }

    /// The request whose agent is told that this one is refused. Not the one that a cancel names: that waits, or is asked already.
    pub(super) fn to_be_told(&self, refused: &Peek) -> Option<RequestId> {
        let is_cancel = refused.kind.as_deref() == Some(Kinds::CANCEL);
        let known = |id: &RequestId| self.broker.of_request(&self.group, id).is_some();
        let waits = |id: &RequestId| is_cancel && self.survey.lock().known.waiting(id).is_some();
        refused.request_id.clone().filter(|id| !known(id) && !waits(id))
    }

    /// Keeps a request that is not asked. Returns the name of the file.
    fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        let name = format!("{:013}-{}.json", self.ctx.clock().now().as_millis(), random::unique());
        self.broker.keep_rejected(&self.group, &name, bytes).map_err(io::Error::other)?;
        Ok(name)
    }

    /// Keeps a request on which askd panicked for a bug report, so that it cannot cause another panic, and tells its agent. Those that come after it
    /// go on. Blocks on the disk.
    pub(super) fn set_aside(self: &Arc<Self>, name: &str, claimed: &str) {
        let set_aside = || {
            let tasks = self.folders.get(&self.group, TASKS)?;
            let (bytes, _) = tasks.read(claimed, MAX_REQUEST_BYTES).map_err(io::Error::other)?;
            let peek = wire::peek(&bytes);
            // If it cannot be kept, it is still told and deleted: it must not be asked later.
            let kept = self.keep(&bytes).unwrap_or_else(|error| format!("none: {error}"));
            // It may have become a question before.
            if let Some(id) = self.to_be_told(&peek) {
                let response = wire::refused(&id, peek.op_code, &Rejection::SetAside);
                delivery::write_at_once(&self.folders, &self.group, &response)?;
            }
            tasks.remove_for_good(claimed)?;
            Ok::<_, io::Error>(kept)
        };
        match catch_unwind(AssertUnwindSafe(set_aside)) {
            Ok(Ok(kept)) => {
                tracing::error!(
                    group = %self.group, file = kept,
                    "askd panicked on a request and has set it aside: its agent is told. Please report the panic with this file"
                );
                self.taken(name, Taken::Done);
            }
            Ok(Err(error)) => {
                tracing::error!(group = %self.group, file = name, %error, "askd panicked on a request, and it cannot be set aside; trying again");
                self.conclude(name, claimed, Taken::Later);
            }
            Err(_reported) => {
                tracing::error!(group = %self.group, file = claimed, "askd panicked on a request, and again when it set it aside");
                self.hold(claimed);
            }
        }
    }
}
