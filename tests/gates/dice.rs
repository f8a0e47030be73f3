//! Seeded random choices, so that a run can be repeated. The seed does not cover the timing of other processes.

use std::time::Duration;

/// A generator of numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `sides - 1`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() % sides.max(1) as u64).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    /// A time between these, in milliseconds.
    pub(crate) fn millis(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis((from + self.roll(to - from)) as u64)
    }

    /// Separate dice for another task.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }
}
