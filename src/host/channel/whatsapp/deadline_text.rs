//! Until when a question can be answered, as people read it. Pure.
//!
//! WhatsApp prints the hour beside each message, so below a day only what is left is said; above, the day and the hour in
//! the route's time zone. The clock starts when the question is displayed, which is after this text was written: the text
//! promises the earliest possible end, never a later one.

use askd_core::{Ask, Stage, Time, WidgetState, wording};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// The line under a question.
pub(super) fn line(ask: &Ask, now: &Zoned) -> String {
    let at = Time::from_millis(now.timestamp().as_millisecond());
    let until = promised(ask, at);
    let left = until.since(at);
    if left < DAY { wording::time_left(left) } else { wording::answer_by(&moment(until, now)) }
}

/// A time of day, with the date if it is not today; cut, not rounded.
pub(super) fn moment(time: Time, now: &Zoned) -> String {
    let time = zoned(time, now.time_zone().clone());
    let day = if time.date() == now.date() { "" } else { "%a %-d %b, " };
    time.strftime(&format!("{day}%H:%M")).to_string()
}

/// A time by the clock of that zone.
pub(super) fn zoned(time: Time, zone: TimeZone) -> Zoned {
    Timestamp::from_millisecond(time.as_millis()).unwrap_or(Timestamp::MAX).to_zoned(zone)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_later_than_it_is_and_in_the_zone_of_the_route() {
        let at = |text: &str| Time::from_millis(text.parse::<Timestamp>().unwrap().as_millisecond());
        for (zone, time, expected) in [
            ("UTC", "2026-11-20T14:32:59.999Z", "14:32"),
            ("UTC", "2026-11-21T00:10:00Z", "Sat 21 Nov, 00:10"),
            ("UTC", "2026-12-01T09:05:00Z", "Tue 1 Dec, 09:05"),
            ("Europe/Berlin", "2026-12-01T09:05:00Z", "Tue 1 Dec, 10:05"),
            ("Europe/Berlin", "2026-11-20T23:30:00Z", "Sat 21 Nov, 00:30"),
        ] {
            let now = zoned(at("2026-11-20T14:02:10Z"), TimeZone::get(zone).unwrap());
            assert_eq!(moment(at(time), &now), expected, "{zone}");
        }
    }
}
