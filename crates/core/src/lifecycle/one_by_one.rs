//! What chats need that have no forms and no history: one question after the other, messages whose
//! fate is told later, people who have to write first; and the next route when nobody answers.

use super::settling::so_far_route;
use super::{Effect, Fact, MessageStatus, Posted, Remark, Source, Widget, WidgetEffect, WidgetState};
use crate::{Ask, Person, Route, Time, Trouble};

impl Widget {
    /// Keeps the channel's id of a message, and which question it asked.
    pub(super) fn remember(&mut self, message: String, part: usize) -> bool {
        if self.messages.contains(&message) {
            return false;
        }
        self.one_by_one.of.resize(self.messages.len(), 0);
        self.one_by_one.of.push(part);
        self.messages.push(message);
        true
    }

    /// Which question the message of that id asked.
    pub fn question_of(&self, message: &str) -> Option<usize> {
        let at = self.messages.iter().position(|known| known == message)?;
        Some(self.one_by_one.of.get(at).copied().unwrap_or(0))
    }

    /// Which try of the question that is on its way this is, from 1.
    pub(super) fn tries(&self) -> u8 {
        self.attempt.saturating_sub(self.one_by_one.first_attempt.max(1)).saturating_add(1)
    }

    /// Another question, or the same one on another footing: lines up anew.
    fn line_up(&mut self, until: Time, now: Time) {
        self.attempt = self.attempt.saturating_add(1);
        self.one_by_one.first_attempt = self.attempt;
        self.one_by_one.repeated = false;
        self.state = WidgetState::Queued { not_before: now, until };
    }

    /// Nothing of it is up that people would have to be told about.
    pub(super) fn end(&mut self) {
        self.state = WidgetState::Closed;
        self.said = Some(Remark::default());
    }

    /// Nothing is up at the moment, but people know of it: they are told how it ended.
    pub(super) fn close_too(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) {
        self.state = WidgetState::Up { at: now, proven: true, fall_back_at: None };
        effects.push(WidgetEffect::Close.on(route));
    }
}

impl Ask {
    /// The question a person deals with next on a route; `None`: all are dealt with.
    pub fn next_question(&self, route: usize, person: &str) -> Option<usize> {
        match self.so_far.iter().find(|so_far| so_far.route == route && so_far.person.id == person) {
            Some(so_far) => so_far.given.iter().position(Option::is_none),
            None => Some(0),
        }
    }

    /// Whether a message has changed it before.
    pub fn was_told(&self, message: &str) -> bool {
        self.heard.iter().any(|known| known == message)
    }

    pub(super) fn dealt_with(&self, source: Source, person: &Person, index: usize) -> bool {
        let route = so_far_route(source);
        let so_far = self.so_far.iter().find(|so_far| so_far.route == route && so_far.person.id == person.id);
        so_far.is_some_and(|so_far| so_far.given.get(index).is_some_and(Option::is_some))
    }

    /// One question is answered: the person is asked the next one.
    pub(super) fn next_part(&mut self, route: usize, person: &Person, now: Time, effects: &mut Vec<Effect>) {
        self.open(now, now, effects);
        let chat = self.rules.routes[route].chat.clone();
        let widget = &mut self.widgets[route];
        widget.one_by_one.seen = true;
        let asked = widget.one_by_one.to.clone().unwrap_or_else(|| chat.clone());
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
                WidgetState::Up { .. } | WidgetState::Failed { .. } | WidgetState::Closed => {}
            }
        }
        self.ask_next(route, &person.id, now, effects);
    }

    /// Lines the next question of a person up.
    fn ask_next(&mut self, route: usize, person: &str, now: Time, effects: &mut Vec<Effect>) -> bool {
        let Some(index) = self.next_question(route, person) else { return false };
        let until = now + self.rules.timeout;
        let elsewhere = self.rules.routes[route].chat != person;
        let widget = &mut self.widgets[route];
        widget.one_by_one.lapsed = false;
        widget.one_by_one.index = index;
        widget.one_by_one.to = elsewhere.then(|| person.to_owned());
        widget.line_up(until, now);
        effects.push(WidgetEffect::Queue { not_before: now }.on(route));
        true
    }

    /// Goes on with the people whose next question had to wait for another person's; `true` if there were any.
    pub(super) fn next_in_line(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
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
                self.ask_next(route, &next, now, effects);
                changed = true;
            }
        }
        changed
    }

    /// Word of a try that is not the last one: its messages are ours all the same.
    pub(super) fn posted_late(&mut self, route: usize, attempt: u8, posted: &Posted) -> bool {
        let Posted::Accepted(messages, _) = posted else { return false };
        let widget = &mut self.widgets[route];
        let before = attempt < widget.one_by_one.first_attempt;
        let part = widget.one_by_one.index.saturating_sub(usize::from(before));
        let mut changed = false;
        for message in messages {
            changed |= widget.remember(message.clone(), part);
        }
        changed
    }

    /// When that was, as the channel says. For a question in several messages, only the last one counts.
    pub(super) fn note_time(
        &mut self,
        route: usize,
        attempt: u8,
        message: &str,
        status: MessageStatus,
        at: Option<Time>,
    ) -> bool {
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        match status {
            MessageStatus::Known => false,
            MessageStatus::Taken => widget.told(attempt, message, false, at),
            MessageStatus::Displayed => widget.told(attempt, message, true, at),
            MessageStatus::Failed { .. } => widget.told_failed(attempt),
        }
    }

    /// The channel tells what became of a message.
    pub(super) fn status(
        &mut self,
        route: usize,
        attempt: u8,
        (part, message): (usize, String),
        status: MessageStatus,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let settled = self.is_over();
        let render_timeout = self.rules.render_timeout;
        let posts = self.rules.routes.get(route).is_some_and(Route::posts);
        let Some(widget) = self.widgets.get_mut(route).filter(|_| posts) else { return false };
        let mut changed = widget.remember(message, part);
        let this_part = attempt >= widget.one_by_one.first_attempt && attempt <= widget.attempt;
        match status {
            MessageStatus::Taken | MessageStatus::Displayed if this_part => {
                let since = match widget.state {
                    WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } => Some(at),
                    // An earlier try, or this one before a restart, was up after all, so no other is needed.
                    WidgetState::Queued { .. } if attempt < widget.attempt || widget.one_by_one.repeated => Some(now),
                    // It was given up too early: people see it, and have to be told how it ends.
                    WidgetState::Failed { .. } => Some(now),
                    _ => None,
                };
                if let Some(at) = since {
                    let given_up = matches!(widget.state, WidgetState::Failed { .. });
                    let fall_back_at = (!given_up).then(|| at + render_timeout);
                    widget.state = WidgetState::Up { at, proven: false, fall_back_at };
                    widget.trouble = None;
                    effects.push(Effect::Note(Fact::Posted { route, attempt }));
                    changed = true;
                    if settled {
                        effects.push(WidgetEffect::Close.on(route));
                    }
                }
                if status == MessageStatus::Displayed {
                    changed = self.prove(route, now, effects) || changed;
                }
            }
            MessageStatus::Failed { window, trouble } if attempt == widget.attempt && !settled => {
                changed = self.undone(route, window, trouble, now, effects) || changed;
            }
            _ => {}
        }
        changed
    }

    /// What was taken will not be displayed.
    fn undone(&mut self, route: usize, window: bool, trouble: Trouble, now: Time, effects: &mut Vec<Effect>) -> bool {
        let until = now + self.rules.timeout;
        let widget = &mut self.widgets[route];
        if !matches!(
            widget.state,
            WidgetState::Up { .. } | WidgetState::Sent { .. } | WidgetState::Unknown { .. } | WidgetState::Held { .. }
        ) {
            return false;
        }
        if window && !widget.one_by_one.lapsed {
            widget.one_by_one.lapsed = true;
            effects.push(Effect::Note(Fact::NotShown { route, attempt: widget.attempt }));
            widget.line_up(until, now);
            effects.push(WidgetEffect::Queue { not_before: now }.on(route));
        } else {
            self.give_up(route, trouble, true, now, effects);
        }
        true
    }

    /// The person was asked to write, and has to.
    pub(super) fn hold(&mut self, route: usize, message: String, now: Time, effects: &mut Vec<Effect>) {
        let (until, fall_back) = (now + self.rules.timeout, now + self.rules.render_timeout);
        let settled = self.is_over();
        let widget = &mut self.widgets[route];
        let part = widget.one_by_one.index;
        widget.remember(message, part);
        effects.push(Effect::Note(Fact::Posted { route, attempt: widget.attempt }));
        if settled {
            widget.close_too(route, now, effects);
        } else {
            widget.state = WidgetState::Held { at: now, until, fall_back_at: Some(fall_back) };
            effects.push(WidgetEffect::Await { until }.on(route));
        }
    }

    /// The person has written: the question itself can follow.
    pub(super) fn opened(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) -> bool {
        let until = now + self.rules.timeout;
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        if !matches!(widget.state, WidgetState::Held { .. }) {
            return false;
        }
        widget.line_up(until, now);
        effects.push(WidgetEffect::Queue { not_before: now }.on(route));
        true
    }

    /// Nobody knows whether it is up, nor ever will: it is sent once more, marked as a repetition.
    pub(super) fn lost(&mut self, route: usize, interrupted: bool, now: Time, effects: &mut Vec<Effect>) {
        // Where there is a history, a second card was looked for too.
        let no_history = !self.rules.routes[route].capabilities.history;
        if interrupted {
            self.widgets[route].one_by_one.repeated = true;
            self.post_again(route, now, effects);
        } else if std::mem::replace(&mut self.widgets[route].one_by_one.repeated, true) && no_history {
            self.give_up(route, Trouble::Unknown, false, now, effects);
        } else {
            self.try_again(route, None, Trouble::Unknown, now, effects);
        }
    }

    /// Settled, and nothing more of this route comes up.
    pub(super) fn over(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) {
        let widget = &mut self.widgets[route];
        if widget.one_by_one.seen {
            widget.close_too(route, now, effects);
        } else {
            widget.state = WidgetState::Failed { for_good: false };
            self.retire_if_done(effects);
        }
    }
}
