//! A moment, as milliseconds since the Unix epoch. Reading the clock is not done here.

use crate::record::as_text;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

/// A moment in UTC, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// The latest moment there is: for what has no deadline.
    pub const MAX: Self = Self(i64::MAX);

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The same moment as a clock calls it that was set by this many milliseconds.
    pub fn moved(self, by: i64) -> Self {
        if self == Self::MAX { self } else { Self(self.0.saturating_add(by)) }
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339, in UTC and with milliseconds; what lies beyond the calendar is its last moment.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(last))
    }
}

impl FromStr for Time {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        if let Some(time) = as_written(text.as_bytes()) {
            return Ok(time);
        }
        text.parse::<jiff::Timestamp>().map(|stamp| Self(stamp.as_millisecond()))
    }
}

/// The moment, if it is written as askd writes it: `2026-11-22T10:29:54.209Z`. A start reads several in each record.
fn as_written(text: &[u8]) -> Option<Time> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1, b'.', f0, f1, f2, b'Z'] =
        *text
    else {
        return None;
    };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    let two = |tens: u8, ones: u8| Some(digit(tens)? * 10 + digit(ones)?);
    let (year, month, day) = (two(y0, y1)? * 100 + two(y2, y3)?, two(m0, m1)?, two(d0, d1)?);
    let (hour, minute, second) = (two(h0, h1)?, two(n0, n1)?, two(s0, s1)?);
    // What is not in every month, hour or calendar is for the calendar itself to judge.
    if !(1..=12).contains(&month) || !(1..=28).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years that begin in March, so that the day of a leap year is the last one.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) + (153 * months + 2) / 5;
    let seconds = ((days + day - 1 - EPOCH_DAY) * 24 + hour) * 3600 + minute * 60 + second;
    Some(Time(seconds * 1000 + digit(f0)? * 100 + two(f1, f2)?))
}

/// The days from the first of March of the year 0 to the Unix epoch.
const EPOCH_DAY: i64 = 719_468;

as_text!(Time);

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_the_calendar(text: &str) -> Option<Time> {
        text.parse::<jiff::Timestamp>().ok().map(|stamp| Time(stamp.as_millisecond()))
    }

    proptest! {
        /// A moment as askd writes it is read as the calendar reads it, on every day of every year and at its edges.
        #[test]
        fn its_own_way_of_writing_is_read_as_the_calendar_reads_it(
            (year, month, day) in (0_u32..=9999, 0_u32..=13, 0_u32..=32),
            (hour, minute, second) in (0_u32..=24, 0_u32..=60, 0_u32..=61),
            millis in 0_u32..=999,
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z");
            prop_assert_eq!(text.parse().ok(), by_the_calendar(&text), "{}", text);
        }

        #[test]
        fn every_moment_is_read_as_it_was_written(millis in -62_167_219_200_000_i64..253_402_300_799_000) {
            let time = Time::from_millis(millis);
            prop_assert_eq!(time.to_string().parse().ok(), Some(time));
        }
    }

    #[test]
    fn other_ways_of_writing_are_the_calendars() {
        for text in [
            "2026-11-22T10:29:54Z",
            "2026-11-22T10:29:54.2091Z",
            "2026-11-22 10:29:54.209Z",
            "2026-11-2 10:29:54.209+Z",
        ] {
            assert_eq!(text.parse().ok(), by_the_calendar(text), "{text}");
        }
    }
}
