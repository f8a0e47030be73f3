//! Decides an ask, exactly once, and then tells agents and people: by responses and closed widgets.
//! Section 6, items 4 and 5 of the specification.

use super::{
    Card, Carrier, Context, Delivery, DeliveryEffect, Effect, Fact, FollowUp, Outcome, Source, Stage, Told, Waiter,
    Widget, WidgetState,
};
use crate::{AskState, Given, Person, Refusal, Reply, RequestId, Time, Via, wording};
use serde::{Deserialize, Serialize};

/// How many calls may wait for one question: each of them is kept in its record.
pub const MAX_WAITERS: usize = 100;

/// What one person has answered so far on one widget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoFar {
    /// The route of the widget.
    pub route: usize,
    /// Who.
    pub person: Person,
    /// One entry per question; `None`: not dealt with yet.
    pub given: Vec<Option<Given>>,
}

impl AskState {
    /// Lets time pass.
    pub(super) fn tick(&mut self, cx: &mut Context) -> bool {
        let due = match &self.stage {
            Stage::Open { .. } => self.is_overdue(cx.now),
            Stage::Settled { at, .. } if self.is_done_with() && self.kept_until(*at) <= cx.now => {
                return self.make_room(cx);
            }
            Stage::Settled { .. } => {
                let after = self.tick_after(cx);
                return self.tick_widgets(cx) || after;
            }
            Stage::Posting => false,
        };
        if due {
            self.settle(Outcome::TimedOut, cx);
            return true;
        }
        let nudged = self.nudge(cx);
        self.tick_widgets(cx) || nudged
    }

    /// Whether its deadline has passed, although no tick has let it time out yet.
    pub fn is_overdue(&self, now: Time) -> bool {
        matches!(self.stage, Stage::Open { answer_by, .. } if answer_by <= now)
    }

    /// Whether nothing is left of it but an outcome that is kept.
    pub fn is_done_with(&self) -> bool {
        self.outcome().is_some() && self.owes_nothing() && !self.is_pending()
    }

    /// When it is forgotten, if nothing is left of it but an outcome that is kept.
    pub fn forgotten_at(&self) -> Option<Time> {
        let Stage::Settled { at, .. } = &self.stage else { return None };
        self.is_done_with().then(|| self.kept_until(*at))
    }

    /// Has the outcome forgotten, unless something is not over.
    pub(super) fn make_room(&mut self, cx: &mut Context) -> bool {
        let forgotten = self.is_done_with();
        if forgotten {
            cx.act(Effect::Forget);
        }
        forgotten
    }

    /// Makes room for newer outcomes. Words of a person that the agent has not read yet stay, however many outcomes there are.
    pub(super) fn crowded(&mut self, cx: &mut Context) -> bool {
        !self.has_unread_words() && self.make_room(cx)
    }

    /// Whether no further call may wait for it.
    pub fn is_full(&self) -> bool {
        self.waiters.len() >= MAX_WAITERS && self.first_other(Waiter::may_go).is_none()
    }

    /// The first of these calls that can make room for another one. The one that names the record stays.
    pub(super) fn first_other(&self, of: impl Fn(&Waiter) -> bool) -> Option<usize> {
        (1..self.waiters.len()).find(|index| of(&self.waiters[*index]))
    }

    /// One more call waits, in the place of one that may go if there are as many as there may be. `false`: there is no place.
    pub(super) fn seat(&mut self, waiter: Waiter, cx: &mut Context) -> bool {
        if self.waiters.len() >= MAX_WAITERS {
            let Some(gone) = self.first_other(Waiter::may_go) else { return false };
            let gone = self.waiters.remove(gone);
            if gone.response.is_taken_back() {
                // Its file is still there: the record does not know it any more.
                cx.act(DeliveryEffect::TakeBack { since: None }.of(gone.request_id));
            }
        }
        let waiter = self.of_other_session(waiter);
        self.waiters.push(waiter);
        self.identify(self.waiters.len() - 1, cx);
        true
    }

    /// Another call waits for the same outcome.
    pub(super) fn join(&mut self, waiter: Waiter, cx: &mut Context) -> bool {
        let request_id = waiter.request_id.clone();
        if self.outcome().is_some() || self.waiter(&request_id).is_some() || !self.seat(waiter, cx) {
            return false;
        }
        cx.note(Fact::Joined(request_id));
        cx.act(Effect::Status);
        true
    }

    /// Asks a probe which run of the session made a request, so that it can tell later whether it is the same.
    pub(super) fn identify(&self, index: usize, cx: &mut Context) {
        if self.rules.session.probe {
            cx.act(Effect::Identify(self.waiters[index].request_id.clone()));
        }
    }

    pub(super) fn identified(&mut self, request_id: &RequestId, run: String) -> bool {
        let unknown = |waiter: &&mut Waiter| waiter.request_id == *request_id && waiter.run.is_none();
        let Some(waiter) = self.waiters.iter_mut().find(unknown) else { return false };
        waiter.run = Some(run);
        true
    }

    /// One waiting call is withdrawn; the ask is, when none is left.
    pub(super) fn withdraw(&mut self, request_id: &RequestId, cx: &mut Context) -> bool {
        let waiting = |w: &&mut Waiter| w.request_id == *request_id && w.response == Delivery::default();
        let Some(waiter) = self.waiters.iter_mut().find(waiting) else { return false };
        waiter.told = Told::Withdrawal;
        if self.waiters.iter().any(Waiter::waits) {
            cx.note(Fact::WaiterWithdrawn(request_id.clone()));
            self.owe_response(request_id.clone(), cx);
        } else {
            self.settle(Outcome::Withdrawn { by: None }, cx);
        }
        true
    }

    /// The process of a waiter was thought gone, and lives. What another call has it gets, too. What the agent was told at its next
    /// start it is not told a second time. As long as a briefing can be taken back, the broker does that first.
    pub(super) fn resumed(&mut self, request_id: &RequestId, cx: &mut Context) -> bool {
        let Some(index) = self.index_of(request_id).filter(|index| self.waiters[*index].may_come_back()) else {
            return false;
        };
        if self.is_not_briefed(&self.waiters[index]) {
            return self.replay(request_id, None, cx);
        }
        let elsewhere = self.is_told_elsewhere(&self.waiters[index]);
        if elsewhere {
            self.waiters[index].told = Told::Elsewhere;
            self.owe_response(request_id.clone(), cx);
        }
        elsewhere
    }

    pub(super) fn owe_response(&mut self, request_id: RequestId, cx: &mut Context) {
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.request_id == request_id) {
            if let Carrier::Http { taken_by } = &mut waiter.carrier {
                *taken_by = None;
            }
            cx.act(waiter.response.owe().of(request_id));
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
        cx: &mut Context,
    ) -> Result<bool, Refusal> {
        self.may_answer(source, &person)?;
        if self.is_overdue(cx.now) {
            // No reply is in time any more, whether or not a tick has come.
            self.settle(Outcome::TimedOut, cx);
        }
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
        let changed = self.reply(source, person, reply, cx)?;
        self.heard.extend(heard.filter(|_| changed));
        Ok(changed)
    }

    /// The same, after a check that the reply can be about this ask and is not a copy.
    fn reply(&mut self, source: Source, person: Person, reply: Reply, cx: &mut Context) -> Result<bool, Refusal> {
        if self.is_late_open() {
            let reply = reply.readable(&self.content.questions)?;
            return self.replied_late(source, person, reply, cx);
        }
        self.still_open().map_err(|refusal| with_words(refusal, &reply))?;
        let outcome = match reply.readable(&self.content.questions)? {
            Reply::Dismiss | Reply::ToldDismiss(_) => Some(Outcome::Dismissed { by: person.clone() }),
            Reply::Whole(given) => {
                let answers = self.content.questions.answer(&given)?;
                Some(Outcome::Answered { answers, by: person.clone() })
            }
            Reply::Told { index, .. } if self.dealt_with(source, &person, index) => return Ok(false),
            Reply::Told { index, given, .. } => self.add_part(source, &person, index, given)?,
        };
        // Whoever replies has seen it, whatever the channel knows of that.
        self.confirmed = true;
        if let Source::Route(route) = source {
            self.widgets[route].one_by_one.seen = true;
        }
        match (outcome, source) {
            (Some(outcome), _) => self.settle(outcome, cx),
            (None, Source::Route(route)) => {
                let widget = &self.widgets[route];
                // The reply proves nothing of a question that is on its way to another person.
                if widget.one_by_one.index == 0 || widget.asked() == person.id {
                    self.prove(route, cx);
                }
                self.next_part(route, &person, cx);
            }
            (None, Source::Token) => {}
        }
        Ok(true)
    }

    /// A reply after the timeout, while one is still taken: all of it at once. The outcome stays what it is.
    fn replied_late(&mut self, source: Source, by: Person, reply: Reply, cx: &mut Context) -> Result<bool, Refusal> {
        let told = reply.heard().is_some();
        let given = match reply {
            Reply::Whole(given) => given,
            Reply::Told { index, given, .. } if self.content.questions.len() == 1 => vec![(index, given)],
            Reply::Told { .. } | Reply::Dismiss | Reply::ToldDismiss(_) => {
                self.still_open().map_err(|refusal| with_words(refusal, &reply))?;
                return Ok(false);
            }
        };
        let answers = self.content.questions.answer(&given)?;
        if told {
            let given = given.into_iter().map(|(_, given)| Some(given)).collect();
            self.so_far.push(SoFar { route: so_far_route(source), person: by.clone(), given });
        }
        self.answer_late(answers, by, cx);
        Ok(true)
    }

    pub(super) fn may_answer(&self, source: Source, person: &Person) -> Result<(), Refusal> {
        let allowed = match source {
            Source::Token => person.via.is_operator(),
            Source::Route(route) => self.widgets.get(route).is_some_and(|Widget { route, .. }| {
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
        let given = self.so_far[position].given.iter().cloned().enumerate();
        let given: Option<Vec<(usize, Given)>> = given.map(|(index, given)| Some((index, given?))).collect();
        let answers = given.map(|given| self.content.questions.answer(&given)).transpose()?;
        Ok(answers.map(|answers| Outcome::Answered { answers, by: person.clone() }))
    }

    /// The one way an ask ends.
    pub(super) fn settle(&mut self, outcome: Outcome, cx: &mut Context) {
        let shown_at = self.shown_at();
        let after_timeout = self.after_timeout(&outcome, cx.now);
        let follow_up = Box::new(FollowUp { after_timeout, ..FollowUp::default() });
        self.stage = Stage::Settled { outcome, at: cx.now, shown_at, follow_up };
        cx.note(Fact::Settled);
        let undecided = self.waiters.iter().filter(|waiter| waiter.response == Delivery::default());
        for request_id in undecided.map(|waiter| waiter.request_id.clone()).collect::<Vec<_>>() {
            self.owe_response(request_id, cx);
        }
        self.close_widgets(cx.now);
    }

    /// Nothing more is posted. What is on its way is dealt with when its fate is known.
    pub(super) fn close_widgets(&mut self, now: Time) {
        for widget in &mut self.widgets {
            match widget.state {
                WidgetState::Queued { .. } | WidgetState::Failed { .. } if widget.may_stand() => {
                    widget.came_up(now);
                }
                WidgetState::Held { .. } => widget.came_up(now),
                WidgetState::Queued { .. } => widget.state = WidgetState::Closed { card: None },
                WidgetState::Up { .. }
                | WidgetState::Sent { .. }
                | WidgetState::Unknown { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => {}
            }
        }
    }

    pub(super) fn has_responded(&self) -> bool {
        self.waiters.iter().all(|waiter| waiter.response.has_been_published())
    }

    pub(super) fn has_closed(&self) -> bool {
        let closed = |w: &Widget| matches!(w.state, WidgetState::Failed { .. } | WidgetState::Closed { .. });
        self.widgets.iter().all(closed)
    }

    /// Decided, every waiter told, every widget closed.
    pub(super) fn owes_nothing(&self) -> bool {
        let changing = |widget: &Widget| matches!(widget.state.card(), Some(Card::Changing { .. }));
        self.is_over() && self.has_responded() && self.has_closed() && !self.widgets.iter().any(changing)
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
        Reply::Told { index, given, .. } => vec![(*index, given.clone())],
        Reply::Dismiss | Reply::ToldDismiss(_) => Vec::new(),
    };
    let said = Some(wording::said(&questions, &given)).filter(|said| !said.is_empty());
    Refusal::Settled { outcome, at, questions, said }
}
