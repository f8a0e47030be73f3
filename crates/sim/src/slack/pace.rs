//! Rate limits: so many calls at once, then one per interval, for each key (a channel, a method).
//!
//! A bucket that refills steadily; `Retry-After` is the time to the next token, in whole seconds, rounded up. Called by the Web API.

use std::collections::HashMap;
use std::time::Duration;

/// Buckets by key.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When each bucket would be full again.
    full_at: HashMap<String, Duration>,
}

impl Pace {
    /// Takes a token, or says how many seconds to wait. A refused call takes none.
    pub(super) fn take(&mut self, key: &str, every: Duration, burst: u32, now: Duration) -> Result<(), u64> {
        if every.is_zero() {
            return Ok(());
        }
        let full_at = self.full_at.get(key).copied().unwrap_or_default().max(now);
        let allowed_ahead = every * burst.max(1).saturating_sub(1);
        let ahead = full_at.saturating_sub(now);
        if ahead > allowed_ahead {
            let wait = ahead.saturating_sub(allowed_ahead);
            return Err(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        }
        self.full_at.insert(key.to_owned(), full_at + every);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_second_and_channel_after_the_burst() {
        let (mut pace, second) = (Pace::default(), Duration::from_secs(1));
        let at = Duration::from_millis;
        assert_eq!(pace.take("C1", second, 2, at(0)), Ok(()));
        assert_eq!(pace.take("C1", second, 2, at(0)), Ok(()));
        assert_eq!(pace.take("C1", second, 2, at(10)), Err(1));
        assert_eq!(pace.take("C2", second, 2, at(10)), Ok(()));
        assert_eq!(pace.take("C1", second, 2, at(1000)), Ok(()));
        assert_eq!(pace.take("C1", second, 2, at(1001)), Err(1));
    }

    #[test]
    fn no_pace_is_no_limit() {
        let mut pace = Pace::default();
        assert!((0..100).all(|_| pace.take("C1", Duration::ZERO, 1, Duration::ZERO).is_ok()));
    }
}
