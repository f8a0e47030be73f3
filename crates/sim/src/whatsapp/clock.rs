//! The stand-in's clock: the machine's time plus an offset that a test moves forward; held, it stands
//! still but for that offset.
//!
//! It never goes backwards and does not speed up the timers of the status ladder or of webhook
//! retries (those are real delays, set in milliseconds). Read by everything that dates a message,
//! judges the 24-hour window or counts against a rate.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Milliseconds since the Unix epoch, as the stand-in sees them.
pub(super) type UnixMs = i64;

pub(super) struct Clock {
    started: Instant,
    started_unix_ms: UnixMs,
    offset_ms: AtomicI64,
    held: bool,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the stand-in's one look at the machine's clock; the daemon's is not to be shared"
    )]
    pub(super) fn start(held: bool) -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_unix_ms: millis(since_epoch), offset_ms: AtomicI64::new(0), held }
    }

    /// Real time since the start, untouched by `advance`.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn now(&self) -> UnixMs {
        let passed = if self.held { 0 } else { millis(self.uptime()) };
        self.started_unix_ms + passed + self.offset_ms.load(Ordering::SeqCst)
    }

    pub(super) fn advance(&self, by: Duration) {
        self.offset_ms.fetch_add(millis(by), Ordering::SeqCst);
    }
}

/// A duration in whole milliseconds; absurdly long ones are cut off.
pub(super) fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX / 4)
}
