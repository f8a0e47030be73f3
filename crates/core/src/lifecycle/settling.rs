//! Decides an ask, exactly once, and then tells agents and people: by responses and closed widgets.
//! Section 6, items 4 and 5 of the specification.

use super::{Delivery, Effect, Fact, Outcome, Remark, SoFar, Source, Stage, Waiter, WidgetEffect, WidgetState};
use crate::{Ask, Given, Person, Refusal, Reply, RequestId, Time, Via, wording};

impl Ask {
    /// Lets time pass.
    pub(super) fn tick(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let due = match &self.stage {
            Stage::Open { answer_by, .. } => *answer_by <= now,
            Stage::Settled { at, .. } if self.owes_nothing() && !self.is_pending() && self.kept_until(*at) <= now => {
                effects.push(Effect::Forget);
                return true;
            }
            Stage::Settled { .. } => {
                let after = self.tick_after(now, effects);
                return self.tick_widgets(now, effects) || after;
            }
            Stage::Posting => false,
        };
        if due {
            self.settle(Outcome::TimedOut, now, effects);
            return true;
        }
        let nudged = self.nudge(now, effects);
        self.tick_widgets(now, effects) || nudged
    }

    /// Another call waits for the same outcome.
    pub(super) fn join(&mut self, waiter: Waiter, effects: &mut Vec<Effect>) -> bool {
        if self.outcome().is_some() || self.waiter(&waiter.request_id).is_some() {
            return false;
        }
        effects.push(Effect::Note(Fact::Joined(waiter.request_id.clone())));
        effects.push(Effect::Status);
        self.waiters.push(waiter);
        self.identify(self.waiters.len() - 1, effects);
        true
    }

    /// Asks a probe which run of the session made a request, so that it can tell later whether it is the same.
    pub(super) fn identify(&self, index: usize, effects: &mut Vec<Effect>) {
        if self.rules.session.probe {
            effects.push(Effect::Identify(self.waiters[index].request_id.clone()));
        }
    }

    pub(super) fn identified(&mut self, request_id: &RequestId, run: String) -> bool {
        let unknown = |waiter: &&mut Waiter| waiter.request_id == *request_id && waiter.run.is_none();
        let Some(waiter) = self.waiters.iter_mut().find(unknown) else { return false };
        waiter.run = Some(run);
        true
    }

    /// One waiting call is withdrawn; the ask is, when none is left.
    pub(super) fn withdraw(&mut self, request_id: &RequestId, now: Time, effects: &mut Vec<Effect>) -> bool {
        let waiting = |w: &&mut Waiter| w.request_id == *request_id && w.response == Delivery::default();
        let Some(waiter) = self.waiters.iter_mut().find(waiting) else { return false };
        waiter.withdrawn = true;
        if self.waiters.iter().all(|waiter| waiter.withdrawn) {
            self.settle(Outcome::Withdrawn, now, effects);
        } else {
            effects.push(Effect::Note(Fact::WaiterWithdrawn(request_id.clone())));
            self.owe_response(request_id.clone(), effects);
        }
        true
    }

    pub(super) fn owe_response(&mut self, request_id: RequestId, effects: &mut Vec<Effect>) {
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.request_id == request_id) {
            effects.push(waiter.response.owe().of(request_id));
        }
    }

    /// Refuses whatever comes after the decision, saying what it was.
    pub(super) fn still_open(&self) -> Result<(), Refusal> {
        match &self.stage {
            Stage::Posting | Stage::Open { .. } => Ok(()),
            Stage::Settled { outcome, at, .. } => {
                // After a timeout, a person who comes later has to know the late answer.
                let (outcome, at) = self.late_outcome().unwrap_or((outcome.clone(), *at));
                let questions = self.content.questions.clone();
                Err(Refusal::Settled { outcome: Box::new(outcome), at, questions, said: None })
            }
        }
    }

    /// A person replied: on a widget, or with the token.
    pub(super) fn replied(
        &mut self,
        source: Source,
        person: Person,
        reply: Reply,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        self.may_answer(source, &person)?;
        if let Some(heard) = reply.heard() {
            if self.was_told(&heard.message) {
                return Ok(false);
            }
            let question = match (&reply, source) {
                (Reply::Told { index, .. }, _) => *index,
                (_, Source::Route(route)) => self.next_question(route, &person.id).unwrap_or(0),
                (_, Source::Token) => 0,
            };
            if self.outcome().is_none() || self.is_late_open() {
                self.was_asked_before(source, &person, question, heard)?;
            }
        }
        let heard = reply.heard().map(|heard| heard.message.clone());
        let changed = self.reply(source, person, reply, now, effects)?;
        self.heard.extend(heard.filter(|_| changed));
        Ok(changed)
    }

    /// The same, after a check that the reply can be about this ask and is not a copy.
    fn reply(
        &mut self,
        source: Source,
        person: Person,
        reply: Reply,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        if self.is_late_open() {
            let reply = reply.readable(&self.content.questions)?;
            return self.replied_late(source, person, reply, now, effects);
        }
        self.still_open().map_err(|refusal| with_words(refusal, &reply))?;
        let outcome = match reply.readable(&self.content.questions)? {
            Reply::Dismiss | Reply::ToldDismiss(_) => Some(Outcome::Dismissed { by: person }),
            Reply::Whole(given) => {
                let answers = self.content.questions.answer(&given)?;
                Some(Outcome::Answered { answers, by: person })
            }
            Reply::Part(index, given) => self.add_part(source, &person, index, given)?,
            Reply::Told { index, given, .. } => {
                if self.dealt_with(source, &person, index) {
                    return Ok(false);
                }
                let outcome = self.add_part(source, &person, index, given)?;
                if let (None, Source::Route(route)) = (&outcome, source) {
                    self.confirmed = true;
                    self.prove(route, now, effects);
                    self.next_part(route, &person, now, effects);
                    return Ok(true);
                }
                outcome
            }
        };
        // Whoever replies has seen it, whatever the channel knows of that.
        self.confirmed = true;
        if let Some(outcome) = outcome {
            if let Source::Route(route) = source {
                self.widgets[route].one_by_one.seen = true;
            }
            self.settle(outcome, now, effects);
        } else if let Source::Route(route) = source {
            self.prove(route, now, effects);
        }
        Ok(true)
    }

    /// A reply after the timeout, while one is still taken: all of it at once. The outcome stays what it is.
    fn replied_late(
        &mut self,
        source: Source,
        person: Person,
        reply: Reply,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        let given = match reply {
            Reply::Whole(given) => given,
            Reply::Part(index, given) if self.content.questions.len() == 1 => vec![(index, given)],
            Reply::Told { index, given, .. } if self.content.questions.len() == 1 => {
                self.content.questions.fits(index, &given)?;
                let given = vec![(index, given)];
                let answers = self.content.questions.answer(&given)?;
                let route = so_far_route(source);
                let told = given.into_iter().map(|(_, given)| Some(given)).collect();
                self.so_far.push(SoFar { route, person: person.clone(), given: told });
                self.answer_late(answers, person, now, effects);
                return Ok(true);
            }
            Reply::Part(..) | Reply::Told { .. } | Reply::Dismiss | Reply::ToldDismiss(_) => {
                self.still_open().map_err(|refusal| with_words(refusal, &reply))?;
                return Ok(false);
            }
        };
        let answers = self.content.questions.answer(&given)?;
        self.answer_late(answers, person, now, effects);
        Ok(true)
    }

    pub(super) fn may_answer(&self, source: Source, person: &Person) -> Result<(), Refusal> {
        let allowed = match source {
            Source::Token => person.via.is_operator(),
            Source::Route(route) => self.widgets.get(route).is_some_and(|_| {
                let route = &self.rules.routes[route];
                person.via == Via::Channel(route.channel) && route.responders.includes(&person.id)
            }),
        };
        if allowed { Ok(()) } else { Err(Refusal::NotResponder { id: person.id.clone() }) }
    }

    /// Answers so far belong to one person and one widget; the outcome, once they are complete.
    fn add_part(
        &mut self,
        source: Source,
        person: &Person,
        index: usize,
        given: Given,
    ) -> Result<Option<Outcome>, Refusal> {
        self.content.questions.fits(index, &given)?;
        let route = so_far_route(source);
        let mine = |so_far: &SoFar| so_far.route == route && so_far.person.id == person.id;
        let position = self.so_far.iter().position(mine).unwrap_or_else(|| {
            let given = vec![None; self.content.questions.len()];
            self.so_far.push(SoFar { route, person: person.clone(), given });
            self.so_far.len() - 1
        });
        self.so_far[position].given[index] = Some(given);
        let whole: Option<Vec<(usize, Given)>> =
            self.so_far[position].given.iter().cloned().enumerate().map(|(i, g)| g.map(|g| (i, g))).collect();
        whole
            .map(|given| Ok(Outcome::Answered { answers: self.content.questions.answer(&given)?, by: person.clone() }))
            .transpose()
    }

    /// The one way an ask ends.
    pub(super) fn settle(&mut self, outcome: Outcome, now: Time, effects: &mut Vec<Effect>) {
        let shown_at = self.shown_at();
        self.stage = Stage::Settled { outcome, at: now, shown_at, follow_up: Box::default() };
        self.begin_after(now);
        effects.push(Effect::Note(Fact::Settled));
        let undecided = self.waiters.iter().filter(|waiter| waiter.response == Delivery::default());
        for request_id in undecided.map(|waiter| waiter.request_id.clone()).collect::<Vec<_>>() {
            self.owe_response(request_id, effects);
        }
        self.close_widgets(now, effects);
    }

    /// Makes every widget say how it ended.
    pub(super) fn close_widgets(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for (route, widget) in self.widgets.iter_mut().enumerate() {
            match widget.state {
                // The inbox shows the stored ask itself: it is closed by being settled.
                WidgetState::Up { .. } if !self.rules.routes[route].posts() => widget.end(),
                WidgetState::Up { .. } => effects.push(WidgetEffect::Close.on(route)),
                // People know of it: a question that went before, or a message that asked them to write.
                WidgetState::Queued { .. } | WidgetState::Failed { .. } if widget.one_by_one.seen => {
                    widget.close_too(route, now, effects);
                }
                WidgetState::Held { .. } => widget.close_too(route, now, effects),
                WidgetState::Queued { .. } => widget.end(),
                // What is on its way is closed when its fate is known.
                WidgetState::Sent { .. }
                | WidgetState::Unknown { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed => {}
            }
        }
    }

    pub(super) fn widget_closed(&mut self, route: usize, remark: Remark, effects: &mut Vec<Effect>) -> bool {
        let over = self.is_over();
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        match widget.state {
            WidgetState::Up { .. } if over => effects.push(Effect::Note(Fact::Closed { route })),
            WidgetState::Closed if widget.said.is_none() => {}
            _ => return false,
        }
        widget.state = WidgetState::Closed;
        widget.said = Some(remark);
        self.refresh(effects);
        self.stop_if_done(effects);
        self.retire_if_done(effects);
        true
    }

    pub(super) fn retire_if_done(&self, effects: &mut Vec<Effect>) {
        if self.owes_nothing() {
            effects.push(Effect::Retire);
        }
    }

    /// Decided, every waiter told, every widget closed.
    pub(super) fn owes_nothing(&self) -> bool {
        self.is_over()
            && self.has_responded()
            && self.has_closed()
            && (0..self.widgets.len()).all(|route| !self.owes_remark(route))
    }
}

/// Where answers so far are kept: the inbox sends whole forms, and a part of a single question is the whole of it.
pub(super) fn so_far_route(source: Source) -> usize {
    match source {
        Source::Route(route) => route,
        Source::Token => usize::MAX,
    }
}

/// A refusal that gives back what was replied, so that it is not lost to the person who typed it.
fn with_words(refusal: Refusal, reply: &Reply) -> Refusal {
    let Refusal::Settled { outcome, at, questions, .. } = refusal else { return refusal };
    let given = match reply {
        Reply::Whole(given) => given.clone(),
        Reply::Part(index, given) | Reply::Told { index, given, .. } => vec![(*index, given.clone())],
        Reply::Dismiss | Reply::ToldDismiss(_) => Vec::new(),
    };
    let said = Some(wording::said(&questions, &given)).filter(|said| !said.is_empty());
    Refusal::Settled { outcome, at, questions, said }
}
