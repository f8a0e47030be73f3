//! What chats need that have no forms and no history: one question after the other, messages whose
//! fate is told later, people who have to write first; and the next route when nobody answers.

use super::settling::so_far_route;
use super::{Context, Fact, MessageStatus, Posted, Source, Undelivered, WidgetEffect, WidgetState};
use crate::{AskState, Given, Person, Time, Trouble};

impl AskState {
    /// The question a person deals with next on a route; `None`: all are dealt with.
    pub fn next_question(&self, route: usize, person: &str) -> Option<usize> {
        self.given_by(route, person).map_or(Some(0), |given| given.iter().position(Option::is_none))
    }

    /// Whether a message has changed it before.
    pub fn was_told(&self, message: &str) -> bool {
        self.heard.iter().any(|known| known == message)
    }

    pub(super) fn dealt_with(&self, source: Source, person: &Person, index: usize) -> bool {
        let given = self.given_by(so_far_route(source), &person.id).and_then(|given| given.get(index));
        given.is_some_and(Option::is_some)
    }

    fn given_by(&self, route: usize, person: &str) -> Option<&[Option<Given>]> {
        let so_far = self.so_far.iter().find(|so_far| so_far.route == route && so_far.person.id == person);
        so_far.map(|so_far| &*so_far.given)
    }

    /// One question is answered: the person is asked the next one.
    pub(super) fn next_part(&mut self, route: usize, person: &Person, cx: &mut Context) {
        self.open(cx.now, cx);
        let widget = &mut self.widgets[route];
        widget.one_by_one.seen = true;
        let asked = widget.asked().to_owned();
        widget.one_by_one.waiting.retain(|waiting| *waiting != person.id);
        if asked != person.id {
            match widget.state {
                // One question at a time is on its way: the others would be lost.
                WidgetState::Queued { .. } | WidgetState::Sent { .. } | WidgetState::Unknown { .. } => {
                    widget.one_by_one.waiting.push(person.id.clone());
                    return;
                }
                // That one has to write first, this one has written.
                WidgetState::Held { .. } => widget.one_by_one.waiting.push(asked),
                WidgetState::Up { .. } | WidgetState::Failed { .. } | WidgetState::Closed { .. } => {}
            }
        }
        self.ask_next(route, &person.id, cx);
    }

    /// Lines the next question of a person up.
    fn ask_next(&mut self, route: usize, person: &str, cx: &mut Context) -> bool {
        let Some(index) = self.next_question(route, person) else { return false };
        let until = cx.now + self.rules.timeout;
        let widget = &mut self.widgets[route];
        widget.one_by_one.lapsed = false;
        widget.one_by_one.index = index;
        widget.one_by_one.to = Some(person.to_owned()).filter(|person| *person != widget.route.chat);
        widget.line_up(route, until, cx);
        true
    }

    /// Goes on with the people whose next question had to wait for another person's; `true` if there were any.
    pub(super) fn next_in_line(&mut self, cx: &mut Context) -> bool {
        if self.outcome().is_some() {
            return false;
        }
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let widget = &mut self.widgets[route];
            if matches!(widget.state, WidgetState::Up { .. } | WidgetState::Failed { .. })
                && !widget.one_by_one.waiting.is_empty()
            {
                let next = widget.one_by_one.waiting.remove(0);
                self.ask_next(route, &next, cx);
                changed = true;
            }
        }
        changed
    }

    /// The people of a route besides the one who was asked last who have their next question, with its number, where the channel
    /// asks one question after the other.
    pub fn others_asked(&self, route: usize) -> impl Iterator<Item = (&str, usize)> {
        let widget = self.widgets.get(route).filter(|widget| widget.route.reports_statuses());
        widget.into_iter().flat_map(move |widget| {
            widget.sendings.iter().filter_map(move |sending| {
                let person = widget.recipient(sending);
                let is_next = self.next_question(route, person) == Some(sending.question);
                let has_it = person != widget.asked() && is_next && sending.message.is_some() && !sending.failed;
                has_it.then_some((person, sending.question))
            })
        })
    }

    /// Whether people of a route can answer it although what went to the one who was asked last has failed.
    pub(super) fn is_with_others(&self, route: usize) -> bool {
        self.others_asked(route).next().is_some() || !self.widgets[route].one_by_one.waiting.is_empty()
    }

    /// Word of a try that is not the last one: its messages are ours all the same.
    pub(super) fn posted_late(&mut self, route: usize, attempt: u8, posted: &Posted) -> bool {
        let Posted::Accepted(messages, _) = posted else { return false };
        let widget = &mut self.widgets[route];
        let sent = widget.sendings.iter().find(|sending| sending.attempt == attempt);
        let before = usize::from(attempt < widget.one_by_one.first_attempt);
        // Another person may have been asked since, so only the sending knows for certain.
        let part = sent.map_or(widget.one_by_one.index.saturating_sub(before), |sending| sending.question);
        let mut changed = false;
        for message in messages {
            changed |= widget.remember(message.clone(), part);
        }
        changed
    }

    /// The channel tells what became of a message.
    pub(super) fn status(
        &mut self,
        route: usize,
        attempt: u8,
        (question, message): (usize, String),
        (status, at): (MessageStatus, Option<Time>),
        cx: &mut Context,
    ) -> bool {
        let settled = self.is_over();
        let first_face = self.first_face();
        let Some(widget) = self.widgets.get_mut(route).filter(|widget| widget.route.reports_statuses()) else {
            return false;
        };
        if matches!(status, MessageStatus::Failed { .. }) && widget.was_displayed(attempt, &message) {
            // What was displayed has not failed, in whatever order that is said.
            return widget.remember(message, question);
        }
        let mut changed = widget.told(attempt, &message, status, at) | widget.remember(message, question);
        let this_part = attempt >= widget.one_by_one.first_attempt && attempt <= widget.attempt;
        // That it was sent is told late: it has failed since.
        let failed = widget.sendings.iter().any(|sending| sending.attempt == attempt && sending.failed);
        match status {
            MessageStatus::Taken if failed => {}
            MessageStatus::Taken | MessageStatus::Displayed if this_part => {
                let since = match widget.state {
                    WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } => Some(at),
                    // An earlier try, or this one before a restart, was up after all, so no other is needed.
                    WidgetState::Queued { .. } if attempt < widget.attempt || widget.one_by_one.repeated => {
                        Some(cx.now)
                    }
                    // It was given up too early: people see it, and have to be told how it ends.
                    WidgetState::Failed { .. } => Some(cx.now),
                    WidgetState::Queued { .. }
                    | WidgetState::Up { .. }
                    | WidgetState::Held { .. }
                    | WidgetState::Closed { .. } => None,
                };
                if let Some(at) = since {
                    let given_up = matches!(widget.state, WidgetState::Failed { .. });
                    let fall_back_at = (!given_up).then(|| at + self.rules.render_timeout);
                    widget.up(at, fall_back_at, first_face);
                    cx.note(Fact::Posted { route, attempt });
                    changed = true;
                }
                if status == MessageStatus::Displayed {
                    changed = self.prove(route, cx) || changed;
                }
            }
            MessageStatus::Failed { why, trouble } if attempt == widget.attempt && !settled => {
                changed = self.undone(route, why, trouble, cx) || changed;
            }
            // The last one who could answer there cannot any more.
            MessageStatus::Failed { .. } if changed && matches!(widget.state, WidgetState::Failed { .. }) => {
                self.start_clock_or_end(cx);
            }
            MessageStatus::Known | MessageStatus::Taken | MessageStatus::Displayed | MessageStatus::Failed { .. } => {}
        }
        changed
    }

    /// What was taken will not be displayed.
    fn undone(&mut self, route: usize, why: Undelivered, trouble: Trouble, cx: &mut Context) -> bool {
        let until = cx.now + self.rules.timeout;
        let widget = &mut self.widgets[route];
        if !matches!(
            widget.state,
            WidgetState::Up { .. } | WidgetState::Sent { .. } | WidgetState::Unknown { .. } | WidgetState::Held { .. }
        ) {
            return false;
        }
        match why {
            Undelivered::WindowClosed if !widget.one_by_one.lapsed => {
                widget.one_by_one.lapsed = true;
                cx.note(Fact::NotShown { route, attempt: widget.attempt });
                widget.line_up(route, until, cx);
            }
            Undelivered::ForNow(pause) => self.try_again(route, pause, trouble, cx),
            Undelivered::WindowClosed | Undelivered::ForGood => self.give_up(route, trouble, true, cx),
        }
        true
    }

    /// The message that people use as the card is not there any more. The channel's history knows whether another one is; if
    /// not, it is posted again.
    pub(super) fn gone(&mut self, route: usize, message: &str, cx: &mut Context) -> bool {
        let over = self.is_over();
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let WidgetState::Up { at, .. } = widget.state else { return false };
        if over || !widget.route.capabilities.history || widget.messages().next_back() != Some(message) {
            return false;
        }
        // A copy of the card that was known before is the one that people use now.
        widget.posts.rotate_right(1);
        self.unknown(route, at, cx);
        true
    }

    /// The person was asked to write, and has to.
    pub(super) fn hold(&mut self, route: usize, message: String, cx: &mut Context) {
        let (until, fall_back) = (cx.now + self.rules.timeout, cx.now + self.rules.render_timeout);
        let settled = self.is_over();
        let widget = &mut self.widgets[route];
        widget.invited(message);
        // They are told how it ends, whatever becomes of the question.
        widget.one_by_one.seen = true;
        cx.note(Fact::Posted { route, attempt: widget.attempt });
        if settled {
            widget.came_up(cx.now);
        } else {
            widget.state = WidgetState::Held { at: cx.now, until, fall_back_at: Some(fall_back) };
            cx.act(WidgetEffect::Await { until }.on(route));
        }
    }

    /// The person has written: the question itself can follow.
    pub(super) fn opened(&mut self, route: usize, cx: &mut Context) -> bool {
        let until = cx.now + self.rules.timeout;
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        if !matches!(widget.state, WidgetState::Held { .. }) {
            return false;
        }
        widget.line_up(route, until, cx);
        true
    }

    /// Nobody knows whether it is up, nor ever will: it is sent once more, marked as a repetition.
    pub(super) fn lost(&mut self, route: usize, interrupted: bool, cx: &mut Context) {
        // Where there is a history, a second card was looked for too.
        let widget = &mut self.widgets[route];
        let repeated = std::mem::replace(&mut widget.one_by_one.repeated, true);
        if interrupted {
            self.post_again(route, cx);
        } else if repeated && !widget.route.capabilities.history {
            self.give_up(route, Trouble::Unknown, false, cx);
        } else {
            self.try_again(route, None, Trouble::Unknown, cx);
        }
    }

    /// Settled, and nothing more of this route comes up.
    pub(super) fn over(&mut self, route: usize, now: Time) {
        let widget = &mut self.widgets[route];
        if widget.may_stand() {
            widget.came_up(now);
        } else {
            widget.state = WidgetState::Failed { for_good: false };
        }
    }
}
