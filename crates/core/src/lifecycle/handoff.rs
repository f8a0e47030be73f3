//! The steps after a timeout, and with an outcome that no call took. The states are in [`super::follow_up`].

use super::follow_up::START_AGAIN;
use super::{
    AfterTimeout, AgentStart, Carrier, Context, Delivery, DeliveryEffect, DeliveryEvent, DeliveryState, Effect, Fact,
    FollowUp, FollowUpEffect, Outcome, Stage, Taker, Told, Waiter,
};
use crate::{Answers, AskState, Person, RequestId, Time, TimeoutPolicy};
use std::time::Duration;

/// How long a response may lie there before people are told so.
const OVERDUE: Duration = Duration::from_secs(600);
/// How long what was taken back for a repeated call waits for that call.
const RECLAIMED: Duration = Duration::from_secs(30);
/// How long a stop waits for the cards to be closed.
const STOP_WAITS: Duration = Duration::from_secs(30);

impl AskState {
    /// What follows from this outcome.
    pub(super) fn after_timeout(&self, outcome: &Outcome, now: Time) -> AfterTimeout {
        if *outcome != Outcome::TimedOut {
            return AfterTimeout::Nothing;
        }
        let aborts = |waiter: &Waiter| waiter.waits() && waiter.on_timeout == TimeoutPolicy::AbortTask;
        let rules = &self.rules.session;
        if self.waiters.iter().any(aborts) {
            if rules.stop { AfterTimeout::StopOwed } else { AfterTimeout::Nothing }
        } else if rules.start && !rules.late_answers.is_zero() {
            AfterTimeout::Answerable { until: now + rules.late_answers }
        } else {
            AfterTimeout::Nothing
        }
    }

    /// When something after the decision is due.
    pub(super) fn after_deadline(&self) -> Option<Time> {
        let Stage::Settled { at, follow_up, .. } = &self.stage else { return None };
        let waiters = self.waiters.iter().filter_map(|waiter| self.waiter_deadline(waiter));
        let reclaimed = self.reclaimed_until();
        let start = if let AgentStart::Starting { next, .. } = follow_up.start { Some(next) } else { None };
        let timeout = match follow_up.after_timeout {
            AfterTimeout::Answerable { until } => Some(until),
            AfterTimeout::StopOwed if self.has_responded() => Some(*at + STOP_WAITS),
            _ => None,
        };
        waiters.chain(reclaimed).chain(start).chain(timeout).min()
    }

    /// When a response that lies there is looked at again.
    fn waiter_deadline(&self, waiter: &Waiter) -> Option<Time> {
        let at = waiter.response.published_at()?;
        let overdue = (!self.follow_up().overdue && self.is_worth_a_start()).then_some(at + OVERDUE);
        Some(self.dead_at(waiter, at).min(overdue.unwrap_or(Time::MAX)))
    }

    /// When a waiter counts as dead although nothing has shown that it is.
    fn dead_at(&self, waiter: &Waiter, at: Time) -> Time {
        let rules = &self.rules.session;
        let unknown = waiter.carrier.is_file() && waiter.process.is_none() && !rules.probe;
        let patience = if unknown && rules.start && self.is_worth_a_start() {
            rules.pickup_timeout.min(rules.answer_retention)
        } else {
            rules.answer_retention
        };
        at + patience
    }

    /// Lets time pass for a settled ask; `true` if something was due.
    pub(super) fn tick_after(&mut self, cx: &mut Context) -> bool {
        let mut changed = false;
        for index in 0..self.waiters.len() {
            let waiter = &self.waiters[index];
            let Some(at) = waiter.response.published_at() else { continue };
            if self.dead_at(waiter, at) <= cx.now {
                self.take_back(index, cx);
                changed = true;
            } else if !self.follow_up().overdue && self.is_worth_a_start() && at + OVERDUE <= cx.now {
                self.change(|follow_up| follow_up.overdue = true);
                changed = true;
            }
        }
        if let Some(FollowUp { start: AgentStart::Starting { next, .. }, .. }) = self.follow_up_mut()
            && *next <= cx.now
        {
            // Until it is known what came of it, the next try waits.
            *next = cx.now + START_AGAIN.1;
            cx.act(Effect::FollowUp(FollowUpEffect::Start));
            changed = true;
        }
        if self.reclaimed_until().is_some_and(|until| until <= cx.now) {
            self.unbrief();
            if !self.brief_next(cx) {
                self.tidy(cx);
            }
            changed = true;
        }
        if matches!(self.follow_up().after_timeout, AfterTimeout::Answerable { until } if until <= cx.now) {
            self.change(|follow_up| follow_up.after_timeout = AfterTimeout::Nothing);
            changed = true;
        }
        changed
    }

    /// What is still to be done after a restart.
    pub(super) fn resume_after(&self, effects: &mut Vec<Effect>) {
        effects.extend(self.follow_up().briefing.resume().map(|effect| effect.to(Taker::Briefing)));
        if matches!(self.follow_up().start, AgentStart::Starting { .. }) {
            effects.push(Effect::FollowUp(FollowUpEffect::Start));
        }
        if self.follow_up().after_timeout == AfterTimeout::Stopping {
            effects.push(Effect::FollowUp(FollowUpEffect::Stop));
        }
    }

    /// Until when a briefing that was taken back for a call waits for that call.
    fn reclaimed_until(&self) -> Option<Time> {
        let DeliveryState::TakenBack { at } = self.follow_up().briefing.state() else { return None };
        Some(at + RECLAIMED)
    }

    fn take_back(&mut self, index: usize, cx: &mut Context) {
        let waiter = &mut self.waiters[index];
        cx.effects.extend(waiter.response.take_back().map(|effect| effect.of(waiter.request_id.clone())));
    }

    pub(super) fn index_of(&self, request_id: &RequestId) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.request_id == *request_id)
    }

    /// Something happened to the response to a waiter.
    pub(super) fn step_response(&mut self, request_id: &RequestId, event: DeliveryEvent, cx: &mut Context) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        if !self.waiters[index].response.step(event, cx.now) {
            return false;
        }
        match event {
            DeliveryEvent::Written => cx.act(DeliveryEffect::Publish.of(request_id.clone())),
            DeliveryEvent::Lost { .. } => cx.act(DeliveryEffect::Write.of(request_id.clone())),
            // It tells no outcome.
            DeliveryEvent::Published | DeliveryEvent::Taken { .. } | DeliveryEvent::TakenBack { taken: true }
                if self.waiters[index].told == Told::Elsewhere => {}
            DeliveryEvent::Published => {
                cx.note(Fact::Delivered(request_id.clone()));
            }
            DeliveryEvent::Taken { .. } | DeliveryEvent::TakenBack { taken: true } => {
                cx.note(Fact::Taken(request_id.clone()));
                self.was_taken(index, cx);
            }
            DeliveryEvent::TakenBack { taken: false } => self.taken_back(request_id, cx),
        }
        true
    }

    /// A call over HTTP has its outcome. A second taker changes nothing.
    pub(super) fn collected(&mut self, request_id: &RequestId, by: String, cx: &mut Context) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        let waiter = &mut self.waiters[index];
        let Carrier::Http { taken_by } = &mut waiter.carrier else { return false };
        if !waiter.response.is_published() {
            return false;
        }
        waiter.response.take();
        *taken_by = Some(by);
        if waiter.told != Told::Elsewhere {
            cx.note(Fact::Taken(request_id.clone()));
        }
        self.was_taken(index, cx);
        true
    }

    fn was_taken(&mut self, index: usize, cx: &mut Context) {
        self.change(|follow_up| follow_up.overdue = false);
        // The briefing was written because the process looked dead; the response was taken after all.
        self.drop_briefing(index, cx);
    }

    /// The response to this waiter tells its session, so no briefing has to.
    fn drop_briefing(&mut self, index: usize, cx: &mut Context) {
        let tells = self.is_told_all(&self.waiters[index]) && self.briefs(&self.waiters[index]);
        if self.follow_up().briefing.is_taken() || !tells {
            return;
        }
        let Some(follow_up) = self.follow_up_mut() else { return };
        cx.effects.extend(follow_up.briefing.withdraw().map(|effect| effect.to(Taker::Briefing)));
        follow_up.start = AgentStart::NotTried;
        self.unbrief();
        self.tidy(cx);
    }

    /// The process of the waiter is gone. A later call replaces it; else only a response that still lies there matters.
    pub(super) fn died(&mut self, request_id: &RequestId, cx: &mut Context) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        let waiter = &self.waiters[index];
        if self.outcome().is_none() && waiter.waits() && self.waiters[index + 1..].iter().any(Waiter::waits) {
            self.waiters[index].replaced = true;
            cx.note(Fact::Replaced(request_id.clone()));
            return true;
        }
        if !waiter.response.is_published() || !self.minds_death_of(waiter) {
            return false;
        }
        if self.is_worth_a_start() || waiter.is_withdrawn() || self.block().is_some() {
            self.take_back(index, cx);
        } else {
            // askd starts no agent for this: response and briefing stay for the next one.
            self.brief(index, cx);
        }
        true
    }

    /// A response is out of its waiter's reach.
    fn taken_back(&mut self, request_id: &RequestId, cx: &mut Context) {
        cx.note(Fact::TakenBack(request_id.clone()));
        // A later start of the agent has no use for a block: asking again tells the same.
        if !self.brief_next(cx) {
            self.tidy(cx);
        }
    }

    /// That briefing is there. It was written and published in one rename.
    pub(super) fn briefed(&mut self, nth: u32, cx: &mut Context) -> bool {
        let Some(FollowUp { briefing, briefings, .. }) = self.follow_up_mut() else { return false };
        if nth != *briefings || !briefing.step(DeliveryEvent::Written, cx.now) {
            return false;
        }
        briefing.step(DeliveryEvent::Published, cx.now);
        cx.note(Fact::Briefed);
        if self.follow_up().start != AgentStart::Started && self.is_worth_a_start() && self.rules.session.start {
            cx.act(Effect::FollowUp(FollowUpEffect::Start));
            let next = cx.now + START_AGAIN.1;
            let start = AgentStart::Starting { since: cx.now, tries: 0, next, running: false };
            self.change(|follow_up| follow_up.start = start);
        }
        self.tidy(cx);
        true
    }

    /// Something happened to the briefing.
    pub(super) fn step_briefing(&mut self, event: DeliveryEvent, cx: &mut Context) -> bool {
        let Some(FollowUp { briefing, .. }) = self.follow_up_mut() else { return false };
        let is_written = matches!(event, DeliveryEvent::Written | DeliveryEvent::Published);
        if is_written || !briefing.step(event, cx.now) {
            return false;
        }
        match event {
            DeliveryEvent::Written | DeliveryEvent::Published => {}
            DeliveryEvent::Lost { .. } => cx.act(DeliveryEffect::Write.to(Taker::Briefing)),
            DeliveryEvent::Taken { .. } => {
                cx.note(Fact::BriefingRead);
                self.change(|follow_up| {
                    follow_up.overdue = false;
                    if follow_up.start != AgentStart::Started {
                        follow_up.start = AgentStart::NotTried;
                    }
                });
            }
            DeliveryEvent::TakenBack { taken } => {
                self.change(|follow_up| follow_up.overdue &= !taken);
                self.tidy(cx);
            }
        }
        true
    }

    /// Once it is recorded what becomes of an outcome, what was put out of reach is not needed any more.
    pub(super) fn tidy(&self, cx: &mut Context) {
        let moved = || self.waiters.iter().any(|waiter| waiter.response.is_taken_back());
        if !self.follow_up().is_under_way() && (self.follow_up().briefings > 0 || moved()) {
            cx.act(Effect::FollowUp(FollowUpEffect::Tidy));
        }
    }

    /// A call asks the same again: what lies there for no living process is taken back for it.
    pub(super) fn reclaim(&mut self, whose: &[RequestId], cx: &mut Context) -> bool {
        if !self.is_kept(cx.now) {
            return false;
        }
        let mut reclaimed = Vec::new();
        for index in 0..self.waiters.len() {
            let waiter = &self.waiters[index];
            if waiter.response.is_published() && whose.contains(&waiter.request_id) {
                self.take_back(index, cx);
                reclaimed.push(index);
            }
        }
        let is_back = |response: Delivery| response.is_taken_back() || response.state() == DeliveryState::TakingBack;
        let waits = |waiter: &Waiter| self.is_told_all(waiter) && !is_back(waiter.response);
        let nobody_waits = reclaimed.iter().any(|index| !self.any_of_session(&self.waiters[*index], waits));
        let mut changed = !reclaimed.is_empty();
        let Some(FollowUp { briefing, briefings, start, .. }) = self.follow_up_mut() else { return false };
        if let Some(effect) = briefing.take_back() {
            cx.act(effect.to(Taker::Briefing));
            *start = AgentStart::NotTried;
            changed = true;
        } else if briefing.state() == DeliveryState::Owed {
            // If it is not there yet, that does not mean that an agent has read it.
            briefing.set_aside(cx.now);
            cx.act(DeliveryEffect::TakeBack { since: None }.to(Taker::Briefing));
            changed = true;
        } else if *briefing == Delivery::default() && nobody_waits {
            briefing.set_aside(cx.now);
            let nth = *briefings;
            for index in reclaimed {
                self.brief_session_of(index, nth);
            }
        }
        changed
    }

    /// The same request was made again: its outcome is written again. If its process was thought gone, it waits again.
    pub(super) fn replay(&mut self, request_id: &RequestId, claim: Option<String>, cx: &mut Context) -> bool {
        let settled = self.outcome().is_some();
        let Some(index) = self.index_of(request_id) else { return false };
        if std::mem::take(&mut self.waiters[index].replaced) && !settled {
            self.waiters[index].note_claim(claim);
            cx.note(Fact::Joined(request_id.clone()));
            return true;
        }
        let told = self.waiters[index].response.has_been_published();
        if !(settled || self.waiters[index].is_withdrawn()) || !told {
            return false;
        }
        if !self.waiters[index].is_withdrawn() {
            self.waiters[index].told = self.told_now();
        }
        self.waiters[index].note_claim(claim);
        self.drop_briefing(index, cx);
        self.change(|follow_up| follow_up.overdue = false);
        self.owe_response(request_id.clone(), cx);
        true
    }

    /// What a call is told that asks now.
    pub(super) fn told_now(&self) -> Told {
        if self.answered_late_by().is_some() { Told::LateAnswer } else { Told::Outcome }
    }

    /// The agent has asked the same again, so that a late answer would go to a question of the past.
    pub(super) fn supersede(&mut self) -> bool {
        if !self.is_late_open() {
            return false;
        }
        self.change(|follow_up| follow_up.after_timeout = AfterTimeout::AskedAgain);
        true
    }

    /// Takes the one answer after the timeout.
    pub(super) fn answer_late(&mut self, answers: Answers, by: Person, cx: &mut Context) {
        self.change(|follow_up| follow_up.after_timeout = AfterTimeout::Answered { answers, by, at: cx.now });
        cx.note(Fact::LateAnswer);
        // Whatever was briefed so far did not say it.
        self.unbrief();
        self.waiters.iter_mut().for_each(|waiter| waiter.briefed = None);
        self.brief_next(cx);
    }

    /// Stops the session, once its response is there and its cards are closed. A channel that is away must not keep a
    /// session running that nobody will answer.
    pub(super) fn stop_if_due(&mut self, cx: &mut Context) -> bool {
        let closed = self.has_closed() || self.settled_at().is_some_and(|at| at + STOP_WAITS <= cx.now);
        let due = self.follow_up().after_timeout == AfterTimeout::StopOwed && self.has_responded() && closed;
        if due {
            self.change(|follow_up| follow_up.after_timeout = AfterTimeout::Stopping);
            cx.act(Effect::FollowUp(FollowUpEffect::Stop));
        }
        due
    }
}
