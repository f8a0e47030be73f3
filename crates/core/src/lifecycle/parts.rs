//! What chats need that have no forms and no history: one question after the other, messages whose
//! fate is told later, people who have to write first; and the next route when nobody answers.

use super::settling::so_far_route;
use super::{Effect, Fact, Fate, Phase, Posted, Remark, Source, Widget};
use crate::{Ask, Channel, Person, Time, Trouble};

impl Widget {
    /// Keeps the channel's id of a message, and which question it asked.
    pub(super) fn remember(&mut self, message: String, part: usize) -> bool {
        if self.messages.contains(&message) {
            return false;
        }
        self.parts.of.resize(self.messages.len(), 0);
        self.parts.of.push(part);
        self.messages.push(message);
        true
    }

    /// Which question the message of that id asked.
    #[must_use]
    pub fn question_of(&self, message: &str) -> Option<usize> {
        let at = self.messages.iter().position(|known| known == message)?;
        Some(self.parts.of.get(at).copied().unwrap_or(0))
    }

    /// Which try of the question that is on its way this is, from 1.
    pub(super) fn tries(&self) -> u8 {
        self.attempt.saturating_sub(self.parts.first_attempt.max(1)).saturating_add(1)
    }

    /// Another question, or the same one on another footing: lines up anew.
    fn line_up(&mut self, until: Time, now: Time) {
        self.attempt = self.attempt.saturating_add(1);
        self.parts.first_attempt = self.attempt;
        self.parts.repeated = false;
        self.phase = Phase::Queued { not_before: now, until };
    }

    /// Nothing of it is up that people would have to be told about.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Closed;
        self.said = Some(Remark::default());
    }

    /// Nothing is up at the moment, but people know of it: they are told how it ended.
    pub(super) fn close_too(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) {
        self.phase = Phase::Up { at: now, proven: true, fall_back_at: None };
        effects.push(Effect::Close { route });
    }
}

impl Ask {
    /// The question a person deals with next on a route; `None`: all are dealt with.
    #[must_use]
    pub fn next_question(&self, route: usize, person: &str) -> Option<usize> {
        match self.so_far.iter().find(|so_far| so_far.route == route && so_far.person.id == person) {
            Some(so_far) => so_far.given.iter().position(Option::is_none),
            None => Some(0),
        }
    }

    /// Whether a message has changed it before.
    #[must_use]
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
        widget.parts.seen = true;
        let asked = widget.parts.to.clone().unwrap_or_else(|| chat.clone());
        widget.parts.waiting.retain(|waiting| *waiting != person.id);
        if asked != person.id {
            match widget.phase {
                // One question at a time is on its way: the others would be lost.
                Phase::Queued { .. } | Phase::Sent { .. } | Phase::Unknown { .. } => {
                    widget.parts.waiting.push(person.id.clone());
                    return;
                }
                // That one has to write first, this one has written.
                Phase::Held { .. } => widget.parts.waiting.push(asked),
                Phase::Up { .. } | Phase::Failed { .. } | Phase::Closed => {}
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
        widget.parts.lapsed = false;
        widget.parts.index = index;
        widget.parts.to = elsewhere.then(|| person.to_owned());
        widget.line_up(until, now);
        effects.push(Effect::Queue { route, not_before: now });
        true
    }

    /// Goes on with those whose next question had to wait for another one's; `true` if somebody had to.
    pub(super) fn next_in_line(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        if self.outcome().is_some() {
            return false;
        }
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let widget = &mut self.widgets[route];
            if matches!(widget.phase, Phase::Up { .. } | Phase::Failed { .. }) && !widget.parts.waiting.is_empty() {
                let next = widget.parts.waiting.remove(0);
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
        let before = attempt < widget.parts.first_attempt;
        let part = widget.parts.index.saturating_sub(usize::from(before));
        let mut changed = false;
        for message in messages {
            changed |= widget.remember(message.clone(), part);
        }
        changed
    }

    /// When that was, as the channel says. For a question in several messages, only the last one counts.
    pub(super) fn when(&mut self, route: usize, attempt: u8, message: &str, fate: Fate, at: Option<Time>) -> bool {
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        match fate {
            Fate::Known => false,
            Fate::Taken => widget.told(attempt, message, false, at),
            Fate::Displayed => widget.told(attempt, message, true, at),
            Fate::Failed { .. } => widget.told_failed(attempt),
        }
    }

    /// The channel tells what became of a message.
    pub(super) fn fate(
        &mut self,
        route: usize,
        attempt: u8,
        (part, message): (usize, String),
        fate: Fate,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let settled = self.is_over();
        let render_timeout = self.rules.render_timeout;
        let posts = self.rules.routes.get(route).is_some_and(|route| route.channel != Channel::Web);
        let Some(widget) = self.widgets.get_mut(route).filter(|_| posts) else { return false };
        let mut changed = widget.remember(message, part);
        let this_part = attempt >= widget.parts.first_attempt && attempt <= widget.attempt;
        match fate {
            Fate::Taken | Fate::Displayed if this_part => {
                let since = match widget.phase {
                    Phase::Sent { at, .. } | Phase::Unknown { at, .. } => Some(at),
                    // An earlier try, or this one before a restart, was up after all, so no other is needed.
                    Phase::Queued { .. } if attempt < widget.attempt || widget.parts.repeated => Some(now),
                    // It was given up too early: people see it, and have to be told how it ends.
                    Phase::Failed { .. } => Some(now),
                    _ => None,
                };
                if let Some(at) = since {
                    let given_up = matches!(widget.phase, Phase::Failed { .. });
                    let fall_back_at = (!given_up).then(|| at + render_timeout);
                    widget.phase = Phase::Up { at, proven: false, fall_back_at };
                    widget.trouble = None;
                    effects.push(Effect::Note(Fact::Posted { route, attempt }));
                    changed = true;
                    if settled {
                        effects.push(Effect::Close { route });
                    }
                }
                if fate == Fate::Displayed {
                    changed = self.prove(route, now, effects) || changed;
                }
            }
            Fate::Failed { window, trouble } if attempt == widget.attempt && !settled => {
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
        if !matches!(widget.phase, Phase::Up { .. } | Phase::Sent { .. } | Phase::Unknown { .. } | Phase::Held { .. }) {
            return false;
        }
        if window && !widget.parts.lapsed {
            widget.parts.lapsed = true;
            effects.push(Effect::Note(Fact::NotShown { route, attempt: widget.attempt }));
            widget.line_up(until, now);
            effects.push(Effect::Queue { route, not_before: now });
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
        let part = widget.parts.index;
        widget.remember(message, part);
        effects.push(Effect::Note(Fact::Posted { route, attempt: widget.attempt }));
        if settled {
            widget.close_too(route, now, effects);
        } else {
            widget.phase = Phase::Held { at: now, until, fall_back_at: Some(fall_back) };
            effects.push(Effect::Await { route, until });
        }
    }

    /// The person has written: the question itself can follow.
    pub(super) fn opened(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) -> bool {
        let until = now + self.rules.timeout;
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        if !matches!(widget.phase, Phase::Held { .. }) {
            return false;
        }
        widget.line_up(until, now);
        effects.push(Effect::Queue { route, not_before: now });
        true
    }

    /// Nobody knows whether it is up, nor ever will: it is sent once more, marked as a repetition.
    pub(super) fn lost(&mut self, route: usize, interrupted: bool, now: Time, effects: &mut Vec<Effect>) {
        // Where there is a history, a second card was looked for too.
        let no_history = self.rules.routes[route].channel == Channel::Whatsapp;
        if interrupted {
            self.widgets[route].parts.repeated = true;
            self.post_again(route, now, effects);
        } else if std::mem::replace(&mut self.widgets[route].parts.repeated, true) && no_history {
            self.give_up(route, Trouble::Unknown, false, now, effects);
        } else {
            self.try_again(route, None, Trouble::Unknown, now, effects);
        }
    }

    /// Settled, and nothing more of this route comes up.
    pub(super) fn over(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) {
        let widget = &mut self.widgets[route];
        if widget.parts.seen {
            widget.close_too(route, now, effects);
        } else {
            widget.phase = Phase::Failed { for_good: false };
            self.retire_if_done(effects);
        }
    }
}
