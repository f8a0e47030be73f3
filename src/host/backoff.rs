//! Growing pauses between the tries of something that fails.

use std::time::Duration;

/// The pause before the next try: each is twice as long as the one before, up to the longest.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The pause before the next try.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Starts again with the first pause, after a try that went well.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}
