//! A page in view displays an ask of another route: people can answer there, and the route goes on as if nobody had
//! looked.

use super::properties::{START, begin};
use super::*;
use crate::{ChannelName, Trouble};
use std::time::Duration;

fn step(ask: Ask, event: Event, now: Time) -> Step {
    ask.step(event, now).unwrap().unwrap()
}

/// Makes the next try of a route fail when it is due; returns that moment.
fn fail(ask: Ask, route: usize, mut now: Time) -> (Ask, Time) {
    if let WidgetState::Queued { not_before, .. } = ask.widgets[route].state {
        now = now.max(not_before);
    }
    let ask = step(ask, WidgetEvent::SlotGranted.on(route), now).ask;
    let posted = Posted::NotPosted { retry_after_millis: None, trouble: Trouble::NoConnection };
    let attempt = ask.widgets[route].attempt;
    (step(ask, WidgetEvent::Posted { attempt, posted }.on(route), now).ask, now)
}

#[test]
fn a_viewed_ask_goes_on_and_its_route_is_tried_once_a_minute_without_counting() {
    let after = |seconds| START + Duration::from_secs(seconds);
    let ask = step(begin(&[ChannelName::SLACK], 1, 1).ask, Event::Viewed, after(2)).ask;
    assert_eq!((ask.shown_at(), ask.confirmed), (Some(after(2)), false), "the clock runs, and nothing is proven");
    assert_eq!(ask.clone().step(Event::Viewed, after(3)).unwrap(), None, "once is enough");
    let (ask, _) = fail(ask, 0, after(2));
    let (mut ask, mut now) = fail(ask, 0, after(2));
    for _ in 0..3 {
        assert!(!ask.counts(0) && ask.outcome().is_none());
        let before = now;
        (ask, now) = fail(ask, 0, now);
        assert_eq!((now.since(before).as_secs(), ask.widgets[0].attempt), (60, 3));
    }
    let posted = WidgetEvent::Posted { attempt: 3, posted: Posted::Shown("m".to_owned()) }.on(0);
    let sent = step(ask.clone(), WidgetEvent::SlotGranted.on(0), now + Duration::from_secs(60)).ask;
    let up = step(sent, posted, now + Duration::from_secs(60)).ask;
    assert!(up.confirmed && up.trouble().is_none() && up.shown_at() == Some(after(2)));
    let over = step(ask, Event::Tick, after(602)).ask;
    assert_eq!(over.outcome(), Some(&Outcome::TimedOut), "shown, and nobody answered");
}

#[test]
fn what_no_retry_mends_does_not_end_a_viewed_ask() {
    let ask = step(begin(&[ChannelName::SLACK], 1, 3).ask, Event::Viewed, START).ask;
    let ask = step(ask, WidgetEvent::SlotGranted.on(0), START).ask;
    let posted = Posted::Never { trouble: Trouble::ChatNotFound, why: "is_archived: unarchive it".to_owned() };
    let ask = step(ask, WidgetEvent::Posted { attempt: 1, posted }.on(0), START).ask;
    assert_eq!(ask.outcome(), None);
    assert_eq!(ask.trouble().map(|reason| reason.to_string()).as_deref(), Some("slack: chat not found"));
    assert_eq!(ask.widgets[0].state, WidgetState::Failed { for_good: true }, "nothing is tried again");
}

#[test]
fn a_view_is_no_reason_not_to_show_the_next_route() {
    let ask = step(begin(&[ChannelName::SLACK, ChannelName::WHATSAPP], 1, 0).ask, Event::Viewed, START).ask;
    let (ask, now) = fail(ask, 0, START);
    assert_eq!(ask.widgets.len(), 2, "the next route is shown too");
    let (ask, now) = fail(ask, 1, now);
    let (ask, _) = fail(ask, 0, now);
    assert_eq!((ask.widgets.len(), ask.outcome()), (2, None));
}

#[test]
fn a_channel_that_wants_a_longer_pause_than_people_have_is_given_up() {
    let ask = begin(&[ChannelName::SLACK, ChannelName::WHATSAPP], 1, 3).ask;
    let ask = step(ask, WidgetEvent::SlotGranted.on(0), START).ask;
    let refused = |millis| Posted::NotPosted { retry_after_millis: Some(millis), trouble: Trouble::RateLimited };
    let within = WidgetEvent::Posted { attempt: 1, posted: refused(600_000) }.on(0);
    let waiting = step(ask.clone(), within, START).ask;
    assert_eq!(waiting.widgets.len(), 1, "it comes in time");
    let at = START + Duration::from_secs(600);
    let line = waiting.clone().step(Event::Tick, at + Duration::from_secs(599)).unwrap();
    assert!(line.is_none(), "and may stand in line as long as at first");
    assert_eq!(step(waiting, Event::Tick, at + Duration::from_secs(600)).ask.widgets.len(), 2);
    let ask = step(ask, WidgetEvent::Posted { attempt: 1, posted: refused(3_600_000) }.on(0), START).ask;
    assert_eq!(ask.widgets.len(), 2, "the next route is tried at once");
    assert_eq!(ask.trouble().map(|reason| reason.to_string()).as_deref(), Some("slack: rate limited"));
}
