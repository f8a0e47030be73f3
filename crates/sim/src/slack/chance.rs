//! The stand-in's own clock and its own seeded chance.
//!
//! Slack is another machine: its clock is not the daemon's, and a test may set it apart on purpose. Nothing here is fit for secrets. Used by everything in the
//! stand-in that needs a time, an id or a die.

use parking_lot::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A wall clock and a monotonic one; a test can let time pass on both.
#[derive(Debug)]
pub(super) struct Clock {
    epoch: Duration,
    started: Instant,
    ahead: Mutex<Duration>,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the stand-in is another machine, with a clock of its own")]
    pub(super) fn new() -> Self {
        Self {
            epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            started: Instant::now(),
            ahead: Mutex::default(),
        }
    }

    /// Since 1970, as this machine believes.
    pub(super) fn now(&self) -> Duration {
        self.epoch + self.monotonic()
    }

    /// Since the stand-in started.
    pub(super) fn monotonic(&self) -> Duration {
        self.started.elapsed() + *self.ahead.lock()
    }

    /// Lets time pass at once.
    pub(super) fn advance(&self, by: Duration) {
        *self.ahead.lock() += by;
    }
}

/// A small generator of numbers (splitmix64), the same for the same seed.
#[derive(Debug)]
pub(super) struct Chance(Mutex<u64>);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in `percent` of 100 cases.
    pub(super) fn percent(&self, percent: u8) -> bool {
        self.next() % 100 < u64::from(percent)
    }

    /// A word of `len` letters and digits, as Slack's ids have them.
    pub(super) fn word(&self, len: usize) -> String {
        const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut word = String::with_capacity(len);
        for _ in 0..len {
            let at = usize::try_from(self.next() % 36).unwrap_or(0);
            word.push(char::from(LETTERS[at]));
        }
        word
    }
}
