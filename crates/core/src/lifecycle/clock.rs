//! When the time of day is set, forward or back, while the daemon runs, the time left until each deadline stays the
//! same. The times that an open ask counts from move with the clock, so that its age stays true too. Of a settled ask
//! only what still runs moves: people have been told when it was decided.
//!
//! The other reason for a deadline to move is a person who is typing.

use super::{AfterTimeout, AgentStart, Context, Effect, Stage, Step, WidgetEffect, WidgetState};
use crate::{Ask, AskState, Refusal, Time};
use std::time::Duration;

/// How much time a person who is typing is given, once for each ask.
pub(super) const TO_FINISH: Duration = Duration::from_secs(120);

impl Ask {
    /// Moves the ask along with a clock that was set by this many milliseconds; `None` if nothing in it counts time.
    pub fn clock_set(mut self, by: i64) -> Option<Step> {
        let ask = &mut self.0;
        let before = ask.clone();
        let open = ask.outcome().is_none();
        ask.move_widgets(by);
        match &mut ask.stage {
            Stage::Open { shown_at, answer_by, .. } => {
                *shown_at = shown_at.moved(by);
                *answer_by = answer_by.moved(by);
            }
            // The stop counts from the decision, and nobody has been told yet when that was.
            Stage::Settled { at, follow_up, .. } if follow_up.after_timeout == AfterTimeout::StopOwed => {
                *at = at.moved(by);
            }
            Stage::Posting | Stage::Settled { .. } => {}
        }
        if open {
            ask.created_at = ask.created_at.moved(by);
        }
        ask.move_after(by);
        if *ask == before {
            return None;
        }
        let mut effects = Vec::new();
        if open {
            effects.push(Effect::Status);
        }
        if matches!(ask.stage, Stage::Open { .. }) {
            ask.tell_deadline(&mut effects);
        }
        Some(Step { ask: self, effects })
    }
}

impl AskState {
    /// A person is typing: the clock that runs gives them more time, and everybody who waits is told.
    pub(super) fn give_time(&mut self, cx: &mut Context) -> Result<bool, Refusal> {
        self.still_open()?;
        let Stage::Open { answer_by, .. } = &mut self.stage else { return Ok(false) };
        if self.extended {
            return Ok(false);
        }
        *answer_by = *answer_by + TO_FINISH;
        self.extended = true;
        self.tell_deadline(&mut cx.effects);
        cx.act(Effect::Status);
        Ok(true)
    }

    /// Cards that say until when they can be answered say it again.
    fn tell_deadline(&mut self, effects: &mut Vec<Effect>) {
        for route in 0..self.widgets.len() {
            self.tell_deadline_on(route, effects);
        }
    }

    /// The same on the card of one route.
    pub(super) fn tell_deadline_on(&mut self, route: usize, effects: &mut Vec<Effect>) {
        let widget = &mut self.widgets[route];
        let edits = widget.route.capabilities.edits;
        if widget.state.card_mut().is_some_and(|card| edits && card.change()) {
            effects.push(WidgetEffect::Update.on(route));
        }
    }

    fn move_widgets(&mut self, by: i64) {
        let moves = |time: &mut Time| *time = time.moved(by);
        for widget in &mut self.widgets {
            match &mut widget.state {
                WidgetState::Queued { not_before, until } => [not_before, until].into_iter().for_each(moves),
                WidgetState::Sent { at, render_by } => [at, render_by].into_iter().for_each(moves),
                WidgetState::Unknown { at, look_at, .. } => [at, look_at].into_iter().for_each(moves),
                WidgetState::Up { at, fall_back_at, .. } => std::iter::once(at).chain(fall_back_at).for_each(moves),
                WidgetState::Held { at, until, fall_back_at } => {
                    [at, until].into_iter().chain(fall_back_at).for_each(moves);
                }
                WidgetState::Failed { .. } | WidgetState::Closed { .. } => {}
            }
        }
    }

    fn move_after(&mut self, by: i64) {
        for waiter in &mut self.waiters {
            if waiter.response.is_published() {
                waiter.response.move_by(by);
            }
        }
        let Some(follow_up) = self.follow_up_mut() else { return };
        follow_up.briefing.move_by(by);
        if let AgentStart::Starting { since, next, .. } = &mut follow_up.start {
            *since = since.moved(by);
            *next = next.moved(by);
        }
        if let AfterTimeout::Answerable { until } = &mut follow_up.after_timeout {
            *until = until.moved(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties::{START, accepted, channel, event};
    use super::*;
    use crate::{Card, ChannelName, Event, WidgetEvent};
    use proptest::prelude::*;
    use std::time::Duration;

    /// Everything that is due for an ask, in order, as milliseconds from `now`.
    fn due(mut ask: Ask, now: Time) -> Vec<i64> {
        let mut due = Vec::new();
        for _ in 0..20 {
            let next = ask.deadline();
            // An outcome is kept for days, so that time does not move.
            if next == Time::MAX || ask.outcome().is_some() {
                break;
            }
            due.push(next.as_millis() - now.as_millis());
            match ask.clone().step(Event::Tick, next.max(now)) {
                Ok(Some(step)) => ask = step.ask,
                _ => break,
            }
        }
        due
    }

    /// The same with every card up to date.
    fn updated(mut ask: Ask) -> Ask {
        while let Some(route) = ask.widgets.iter().position(|w| matches!(w.state.card(), Some(Card::Changing { .. }))) {
            let face = ask.face();
            ask = ask.step(WidgetEvent::Updated(face).on(route), START).unwrap().unwrap().ask;
        }
        ask
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// However the clock is set, everything that is due for an open ask is due after the same wait as before.
        #[test]
        fn what_is_left_stays_as_it_was(
            channels in proptest::collection::vec(channel(), 1..4),
            events in proptest::collection::vec(event(), 0..20),
            by in -90_000_000_i64..90_000_000,
        ) {
            let mut ask = Ask::accept(accepted(&channels, 2, 2), START).ask;
            let mut now = START;
            for (event, seconds) in events {
                now = now + Duration::from_secs(seconds);
                if let Ok(Some(step)) = ask.clone().step(event.unwrap_or(Event::Tick), now) {
                    ask = step.ask;
                }
            }
            let outcome = ask.outcome().cloned();
            let before = due(ask.clone(), now);
            if let Some(step) = ask.clone().clock_set(by) {
                prop_assert_eq!(step.ask.outcome().cloned(), outcome, "nothing is decided by it");
                prop_assert_eq!(due(step.ask.clone(), now.moved(by)), before);
                let back = step.ask.clock_set(-by).map(|step| step.ask);
                prop_assert_eq!(back.map(updated), Some(updated(ask)), "set back again, it is as it was");
            } else {
                prop_assert!(outcome.is_some() || by == 0);
            }
        }
    }

    #[test]
    fn an_open_card_and_those_who_wait_are_told() {
        let ask = Ask::accept(accepted(&[ChannelName::SLACK], 1, 2), START).ask;
        let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
        let posted = WidgetEvent::Posted { attempt: 1, posted: super::super::Posted::Shown("m".to_owned()) }.on(0);
        let ask = ask.step(posted, START).unwrap().unwrap().ask;
        let step = ask.clock_set(7_200_000).unwrap();
        assert_eq!(step.effects, [Effect::Status, WidgetEffect::Update.on(0)]);
        let shown_at = START + Duration::from_secs(7_200);
        let answer_by = shown_at + Duration::from_secs(600);
        assert_eq!(step.ask.stage, Stage::Open { shown_at, answer_by, reminders: 0, escalations: 0 });
    }
}
