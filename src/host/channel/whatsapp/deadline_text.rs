//! Until when a question can be answered, as people read it. Pure.
//!
//! WhatsApp shows a text as it was sent, and the person's time zone is unknown: hence UTC, and about how long is left. The
//! clock starts when the question is displayed, which is after this text was written: the text promises the earliest
//! possible end, never a later one.

use askd_core::{Ask, Stage, Time, WidgetState, wording};
use std::time::Duration;

/// Below this the seconds matter.
const SHORT: Duration = Duration::from_secs(180);

/// The line under a question.
pub(super) fn line(ask: &Ask, now: Time) -> String {
    let until = promised(ask, now);
    let left = until.since(now);
    wording::answer_until(&moment(until, now, left < SHORT), left)
}

/// A time of day.
pub(super) fn time_of_day(time: Time, now: Time) -> String {
    moment(time, now, false)
}

/// The earliest moment at which the time of an open ask can be over.
fn promised(ask: &Ask, now: Time) -> Time {
    match ask.stage {
        Stage::Open { answer_by, .. } => answer_by,
        Stage::Settled { at, .. } => at,
        // Without a proof of display the clock runs from the first message that was accepted.
        Stage::Posting => {
            let sent = ask.widgets.iter().filter_map(|widget| match widget.state {
                WidgetState::Up { at, .. } | WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } => Some(at),
                WidgetState::Queued { .. }
                | WidgetState::Held { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => None,
            });
            sent.min().unwrap_or(now) + ask.rules.timeout
        }
    }
}

/// The time of day, with the date if it is not today; cut, not rounded.
fn moment(time: Time, now: Time, seconds: bool) -> String {
    let stamp = |time: Time| {
        jiff::Timestamp::from_millisecond(time.as_millis())
            .unwrap_or(jiff::Timestamp::MAX)
            .to_zoned(jiff::tz::TimeZone::UTC)
    };
    let (time, now) = (stamp(time), stamp(now));
    let day = if time.date() == now.date() { "" } else { "%a %-d %b, " };
    let clock = if seconds { "%H:%M:%S UTC" } else { "%H:%M UTC" };
    time.strftime(&format!("{day}{clock}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_later_than_it_is() {
        let at = |text: &str| Time::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let now = at("2026-11-20T14:02:10Z");
        for (time, seconds, expected) in [
            ("2026-11-20T14:32:59.999Z", false, "14:32 UTC"),
            ("2026-11-20T14:02:20.999Z", true, "14:02:20 UTC"),
            ("2026-11-21T00:10:00Z", false, "Sat 21 Nov, 00:10 UTC"),
            ("2026-12-01T09:05:00Z", false, "Tue 1 Dec, 09:05 UTC"),
        ] {
            assert_eq!(moment(at(time), now, seconds), expected);
        }
    }
}
