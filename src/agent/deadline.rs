//! The deadline of a waiting call, as the daemon's `.status` file says it, on a clock of our own that cannot be set.
//! Only `waiter` uses it.

use super::Folder;
use crate::clock::{Clock, Moment};
use crate::ipc::files::Stamp;
use crate::ipc::status_name;
use crate::ipc::wire::StatusFile;
use askd_core::{RequestId, Time};
use std::time::Duration;

/// The largest status file that is read.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// What `.status` has said so far.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    /// What it said last, and the state of the file then.
    status: Option<(Stamp, Option<Stated>)>,
    /// The deadline by the daemon's clock, and by ours.
    passes: Option<(Time, Moment)>,
}

/// A deadline by the daemon's own clock.
#[derive(Debug, Clone, Copy)]
struct Stated {
    at: Time,
    /// How long a person has in all, if the daemon has said so.
    whole: Option<Duration>,
}

impl Stated {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let status: StatusFile = serde_json::from_slice(bytes).ok()?;
        let at = status.answer_by?;
        Some(Self { at, whole: status.shown_at.map(|shown| at.since(shown)) })
    }
}

impl Deadline {
    /// Whether it ever said where the question is.
    pub(super) fn was_told(&self) -> bool {
        self.status.is_some()
    }

    /// When it passes. The call counts what is left when it first reads a deadline; the daemon rewrites the deadline
    /// when the time of day was set. If a new deadline has already passed, or leaves more than the whole time, the two
    /// clocks differ, and the whole time counts from here. `timeout` stands in for a whole time that is not known.
    pub(super) fn passes(
        &mut self,
        folder: &Folder,
        id: &RequestId,
        timeout: Duration,
        clock: &Clock,
    ) -> Option<Moment> {
        let Stated { at, whole } = self.stated(folder, id)?;
        if let Some((known, passes)) = self.passes
            && known == at
        {
            return Some(passes);
        }
        let (left, whole) = (at.since(clock.now()), whole.unwrap_or(timeout));
        let left = if left.is_zero() || left > whole { whole } else { left };
        let passes = clock.monotonic() + left;
        self.passes = Some((at, passes));
        Some(passes)
    }

    /// Opens the file only if it has changed: the daemon's watch hears of each file that is opened.
    fn stated(&mut self, folder: &Folder, request_id: &RequestId) -> Option<Stated> {
        let name = status_name(request_id);
        let stamp = folder.responses.stat(&name).ok()??;
        if let Some((known, stated)) = self.status
            && known == stamp
        {
            return stated;
        }
        let (bytes, stamp) = folder.responses.read_trusted(&name, MAX_STATUS_BYTES).ok()?;
        let stated = Stated::parse(&bytes);
        self.status = Some((stamp, stated));
        stated
    }
}
