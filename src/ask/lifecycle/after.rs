//! After the decision: whether the outcome was taken, and what is done when it was not. It is briefed for
//! the agent's next start and the agent is started with it; a late answer goes the same way; a session is
//! stopped after a timeout. Sections 6 (items 6 and 7) and 7 of the specification.
//!
//! What life a waiting process has, and what lies in its folders, is looked at elsewhere and comes in as events.

use super::{Effect, Fact, Outcome, Phase, Response, Stage, Waiter};
use crate::ask::{Answers, Ask, Channel, Person, RequestId, Time, TimeoutPolicy};
use std::time::Duration;

/// How long a response may lie there before people are told so.
const OVERDUE: Duration = Duration::from_secs(600);
/// How long what was taken back for a repeated call waits for that call.
const RECLAIMED: Duration = Duration::from_secs(30);
/// First and longest pause between two tries to start the agent.
const START_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));
/// How long starting is tried.
const START_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long a stop waits for the cards to be closed.
const STOP_WAITS: Duration = Duration::from_secs(30);

/// By which rules an outcome that nobody takes is handled. Which container or command that means is looked up
/// in the settings when it is done; only what decides is fixed with the ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRules {
    /// How long a waiter of which nothing is known has to take its response, where the agent can be started.
    pub pickup_timeout: Duration,
    /// How long any response stays.
    pub answer_retention: Duration,
    /// How long an answer is still taken after a timeout; zero: not at all.
    pub late_answers: Duration,
    /// Something other than a sign of life tells whether the session lives.
    pub probe: bool,
    /// The agent can be started.
    pub start: bool,
    /// The session can be stopped.
    pub stop: bool,
}

impl Default for SessionRules {
    /// Of a group whose agent can be neither probed nor started nor stopped.
    fn default() -> Self {
        Self {
            pickup_timeout: Duration::from_secs(60),
            answer_retention: Duration::from_secs(24 * 3600),
            late_answers: Duration::ZERO,
            probe: false,
            start: false,
            stop: false,
        }
    }
}

/// What happens after the decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct After {
    /// What becomes of an outcome that nobody has taken.
    pub wake: Wake,
    /// Whether it can still be answered after the timeout, or was.
    pub late: Late,
    /// What a timeout does to the session.
    pub stop: Stop,
    /// The response lay there for so long that people were told.
    pub overdue: bool,
    /// How often a briefing was written: what is seen of an earlier one says nothing of this one.
    pub briefings: u32,
}

/// What becomes of an outcome that nobody has taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wake {
    /// Nothing: somebody has taken it, or still may.
    #[default]
    Idle,
    /// The briefing is to be written.
    Briefing,
    /// It is there, and the agent is to be started.
    Starting {
        /// Since when.
        since: Time,
        /// How often it was tried.
        tries: u32,
        /// When it is tried next.
        next: Time,
        /// The agent runs, but does not wait for this any more.
        running: bool,
    },
    /// The agent was started with it.
    Started {
        /// By a command that took the briefing itself; else it lies there until it is read.
        accepted: bool,
        /// It was started by somebody else, before the briefing was there.
        before: bool,
    },
    /// The briefing lies there for the agent's next start.
    Kept,
    /// Starting was given up; the briefing lies there.
    GivenUp {
        /// What came of the last try.
        why: String,
    },
    /// The briefing is to be taken back for a call that asks the same again.
    Reclaiming,
    /// It was; that call has until then.
    Reclaimed {
        /// After this it is briefed again.
        until: Time,
    },
    /// The agent has read the briefing.
    Read,
}

/// Whether an ask can be answered after its timeout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Late {
    /// No, or not any more.
    #[default]
    No,
    /// Until then: the agent is started with it.
    Open {
        /// When the cards close.
        until: Time,
    },
    /// The agent has asked the same again.
    AskedAgain,
    /// It was.
    Answered {
        /// What.
        answers: Answers,
        /// Who.
        by: Person,
        /// When.
        at: Time,
    },
}

/// What a timeout does to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// Nothing.
    #[default]
    No,
    /// It is to be stopped, once its response is there and its cards are closed.
    Owed,
    /// It is being stopped.
    Stopping,
    /// It was stopped.
    Done,
}

/// What came of starting an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// It was started.
    Started {
        /// It has the briefing: nothing else will read it.
        accepted: bool,
    },
    /// It was started by somebody else, later than it asked.
    StartedBefore,
    /// It runs as it did when it asked: it cannot be started before it stops.
    Running,
    /// There is nothing to start it with.
    Nothing,
    /// The briefing is gone: the agent has read it.
    Read,
    /// Not now; in words.
    Failed(String),
}

/// What a closed card says beside how the ask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Remark {
    /// Nothing.
    #[default]
    Plain,
    /// It can still be answered.
    Late,
    /// The agent has asked the same again.
    AskedAgain,
    /// The agent has not collected the answer.
    Overdue,
    /// The agent runs, but does not wait for it any more.
    Running,
    /// The agent was started with the answer.
    Started,
    /// The agent was started since it asked; the answer lies there.
    StartedBefore,
    /// The answer is kept for the agent's next start.
    Kept,
    /// The agent could not be started.
    NotStarted,
    /// The session was stopped.
    Stopped,
}

impl Ask {
    /// What a closed card says beside how it ended.
    #[must_use]
    pub fn remark(&self) -> Remark {
        if self.after.stop == Stop::Done {
            return Remark::Stopped;
        }
        match self.after.late {
            Late::Open { .. } => return Remark::Late,
            Late::AskedAgain => return Remark::AskedAgain,
            Late::No | Late::Answered { .. } => {}
        }
        match self.after.wake {
            Wake::Starting { running: true, .. } => Remark::Running,
            Wake::Started { before: true, .. } => Remark::StartedBefore,
            Wake::Started { .. } => Remark::Started,
            Wake::Kept if self.is_worth_a_start() => Remark::Kept,
            Wake::GivenUp { .. } => Remark::NotStarted,
            Wake::Read => Remark::Plain,
            _ if self.after.overdue => Remark::Overdue,
            _ => Remark::Plain,
        }
    }

    /// Whether a person said something: only that is worth starting an agent for.
    #[must_use]
    pub fn is_worth_a_start(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Answered { .. } | Outcome::Dismissed { .. }))
            || matches!(self.after.late, Late::Answered { .. })
    }

    /// The answer that came after the timeout, as an outcome, and when it came.
    #[must_use]
    pub fn late_outcome(&self) -> Option<(Outcome, Time)> {
        let Late::Answered { answers, by, at } = &self.after.late else { return None };
        Some((Outcome::Answered { answers: answers.clone(), by: by.clone() }, *at))
    }

    /// Whether it can still be answered, after its timeout.
    #[must_use]
    pub fn is_late_open(&self) -> bool {
        matches!(self.after.late, Late::Open { .. })
    }

    /// Whether nobody has taken the outcome, so that a call that asks the same again is given it.
    #[must_use]
    pub fn keeps_outcome(&self, now: Time) -> bool {
        let Stage::Settled { at, .. } = &self.stage else { return false };
        let at = if let Late::Answered { at, .. } = self.after.late { at } else { *at };
        now < at + self.rules.session.answer_retention && self.is_untaken()
    }

    /// The same, however long ago it was.
    #[must_use]
    pub fn is_untaken(&self) -> bool {
        let Some(outcome) = self.outcome() else { return false };
        let taken = |waiter: &Waiter| waiter.response == Response::Taken;
        !matches!(outcome, Outcome::Withdrawn)
            && !matches!(self.after.wake, Wake::Read | Wake::Started { accepted: true, .. })
            && (!self.waiters.iter().any(taken) || matches!(self.after.late, Late::Answered { .. }))
    }

    /// Whether a call that asks the same may be given the outcome as things are.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let lies = |waiter: &Waiter| {
            matches!(waiter.response, Response::Published { .. } | Response::TakenBack | Response::Taken)
        };
        matches!(self.after.wake, Wake::Idle | Wake::Reclaimed { .. }) && self.waiters.iter().all(lies)
    }

    /// Whether something of it lies in the group's folders that may be taken.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.waiters.iter().any(|waiter| matches!(waiter.response, Response::Published { .. })) || self.has_briefing()
    }

    /// Whether something about it is not over, so that it cannot be forgotten.
    pub(super) fn is_pending(&self) -> bool {
        let lies = |waiter: &Waiter| matches!(waiter.response, Response::Published { .. } | Response::TakingBack);
        let wakes = matches!(
            self.after.wake,
            Wake::Briefing | Wake::Starting { .. } | Wake::Reclaiming | Wake::Reclaimed { .. }
        );
        self.waiters.iter().any(lies)
            || wakes
            || self.is_late_open()
            || matches!(self.after.stop, Stop::Owed | Stop::Stopping)
    }

    /// Whether its briefing lies there.
    #[must_use]
    pub fn has_briefing(&self) -> bool {
        match self.after.wake {
            Wake::Starting { .. } | Wake::Kept | Wake::GivenUp { .. } => true,
            Wake::Started { accepted, .. } => !accepted,
            Wake::Idle | Wake::Briefing | Wake::Reclaiming | Wake::Reclaimed { .. } | Wake::Read => false,
        }
    }

    /// The decision was made: what it means for the session.
    pub(super) fn begin_after(&mut self, now: Time) {
        if self.outcome() != Some(&Outcome::TimedOut) {
            return;
        }
        let aborts = |waiter: &Waiter| !waiter.withdrawn && waiter.on_timeout == TimeoutPolicy::AbortTask;
        let rules = &self.rules.session;
        if self.waiters.iter().any(aborts) {
            self.after.stop = if rules.stop { Stop::Owed } else { Stop::No };
        } else if rules.start && !rules.late_answers.is_zero() {
            self.after.late = Late::Open { until: now + rules.late_answers };
        }
    }

    /// When something after the decision is due.
    pub(super) fn after_deadline(&self) -> Option<Time> {
        let Stage::Settled { at, .. } = self.stage else { return None };
        let waiters = self.waiters.iter().filter_map(|waiter| self.waiter_deadline(waiter));
        let wake = match self.after.wake {
            Wake::Starting { next, .. } => Some(next),
            Wake::Reclaimed { until } => Some(until),
            _ => None,
        };
        let late = if let Late::Open { until } = self.after.late { Some(until) } else { None };
        let stop = (self.after.stop == Stop::Owed && self.has_responded()).then_some(at + STOP_WAITS);
        waiters.chain(wake).chain(late).chain(stop).min()
    }

    /// When a response that lies there is looked at again.
    fn waiter_deadline(&self, waiter: &Waiter) -> Option<Time> {
        let Response::Published { at } = waiter.response else { return None };
        let overdue = (!self.after.overdue && self.is_worth_a_start()).then_some(at + OVERDUE);
        Some(self.dead_at(waiter, at).min(overdue.unwrap_or(Time::MAX)))
    }

    /// When a waiter counts as dead though nothing tells that it is.
    fn dead_at(&self, waiter: &Waiter, at: Time) -> Time {
        let rules = &self.rules.session;
        let unknown = waiter.process.is_none() && !rules.probe;
        let patience = if unknown && rules.start && self.is_worth_a_start() {
            rules.pickup_timeout.min(rules.answer_retention)
        } else {
            rules.answer_retention
        };
        at + patience
    }

    /// Lets time pass for a settled ask; `true` if something was due.
    pub(super) fn tick_after(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let mut changed = false;
        for index in 0..self.waiters.len() {
            let waiter = &self.waiters[index];
            let Response::Published { at } = waiter.response else { continue };
            if self.dead_at(waiter, at) <= now {
                self.take_back(index, effects);
                changed = true;
            } else if !self.after.overdue && self.is_worth_a_start() && at + OVERDUE <= now {
                self.after.overdue = true;
                changed = true;
            }
        }
        match self.after.wake {
            Wake::Starting { next, since, tries, running } if next <= now => {
                // Until it is known what came of it, the next try waits.
                let next = now + START_AGAIN.1;
                self.after.wake = Wake::Starting { since, tries, next, running };
                effects.push(Effect::Start);
                changed = true;
            }
            Wake::Reclaimed { until } if until <= now => {
                self.brief(effects);
                changed = true;
            }
            _ => {}
        }
        if matches!(self.after.late, Late::Open { until } if until <= now) {
            self.after.late = Late::No;
            changed = true;
        }
        if let Stage::Settled { at, .. } = self.stage
            && self.after.stop == Stop::Owed
            && at + STOP_WAITS <= now
            && self.has_responded()
        {
            // A channel that is away must not keep a session running that nobody will answer.
            self.after.stop = Stop::Stopping;
            effects.push(Effect::Stop);
            changed = true;
        }
        if changed {
            self.refresh(effects);
        }
        changed
    }

    /// What is still to be done after a restart.
    pub(super) fn resume_after(&self, effects: &mut Vec<Effect>) {
        for waiter in &self.waiters {
            if waiter.response == Response::TakingBack {
                effects.push(Effect::TakeBack(waiter.request_id.clone()));
            }
        }
        match self.after.wake {
            Wake::Briefing => effects.push(Effect::Brief),
            Wake::Reclaiming => effects.push(Effect::Unbrief),
            Wake::Starting { .. } => effects.push(Effect::Start),
            _ => {}
        }
        if self.after.stop == Stop::Stopping {
            effects.push(Effect::Stop);
        }
        for route in 0..self.widgets.len() {
            if self.widgets[route].phase == Phase::Closed && self.owes_remark(route) {
                effects.push(Effect::Close { route });
            }
        }
    }

    fn take_back(&mut self, index: usize, effects: &mut Vec<Effect>) {
        self.waiters[index].response = Response::TakingBack;
        effects.push(Effect::TakeBack(self.waiters[index].request_id.clone()));
    }

    fn index_of(&self, request_id: &RequestId) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.request_id == *request_id)
    }

    /// The waiter has taken its response.
    pub(super) fn collected(&mut self, request_id: &RequestId, since: Time, effects: &mut Vec<Effect>) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        if self.waiters[index].response != (Response::Published { at: since }) {
            return false;
        }
        self.was_taken(index, effects);
        true
    }

    fn was_taken(&mut self, index: usize, effects: &mut Vec<Effect>) {
        self.waiters[index].response = Response::Taken;
        self.after.overdue = false;
        // It was briefed only because its process seemed dead, and lay there all the same.
        if self.has_briefing() && !matches!(self.after.late, Late::Answered { .. }) {
            self.after.wake = Wake::Idle;
            effects.push(Effect::Unbrief);
        }
        self.refresh(effects);
    }

    /// The process of the waiter is gone, and its response still lies there.
    pub(super) fn died(&mut self, request_id: &RequestId, effects: &mut Vec<Effect>) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        if !matches!(self.waiters[index].response, Response::Published { .. }) {
            return false;
        }
        if self.is_worth_a_start() || self.waiters[index].withdrawn {
            self.take_back(index, effects);
            return true;
        }
        // Nobody is started for this: response and briefing stay for whoever comes.
        if self.after.wake != Wake::Idle || self.is_late_open() {
            return false;
        }
        self.brief(effects);
        true
    }

    /// A response is out of its waiter's reach, or was taken in that very moment.
    pub(super) fn taken_back(&mut self, request_id: &RequestId, gone: bool, effects: &mut Vec<Effect>) -> bool {
        let Some(index) = self.index_of(request_id) else { return false };
        if self.waiters[index].response != Response::TakingBack {
            return false;
        }
        if gone {
            self.was_taken(index, effects);
            return true;
        }
        self.waiters[index].response = Response::TakenBack;
        effects.push(Effect::Note(Fact::TakenBack(request_id.clone())));
        let all = self.waiters.iter().all(|waiter| waiter.withdrawn || waiter.response == Response::TakenBack);
        if all && self.outcome() != Some(&Outcome::Withdrawn) && self.after.wake == Wake::Idle {
            self.brief(effects);
        }
        self.refresh(effects);
        true
    }

    /// Writes down what the agent is to read at its next start.
    fn brief(&mut self, effects: &mut Vec<Effect>) {
        self.after.wake = Wake::Briefing;
        self.after.briefings = self.after.briefings.saturating_add(1);
        effects.push(Effect::Brief);
    }

    pub(super) fn briefed(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        if self.after.wake != Wake::Briefing {
            return false;
        }
        effects.push(Effect::Note(Fact::Briefed));
        self.after.wake = if self.is_worth_a_start() && self.rules.session.start {
            effects.push(Effect::Start);
            Wake::Starting { since: now, tries: 0, next: now + START_AGAIN.1, running: false }
        } else {
            Wake::Kept
        };
        self.tidy(effects);
        self.refresh(effects);
        true
    }

    /// Once it is recorded what becomes of an outcome, what was put out of reach is not needed any more.
    fn tidy(&self, effects: &mut Vec<Effect>) {
        let open = matches!(
            self.after.wake,
            Wake::Briefing | Wake::Starting { .. } | Wake::Reclaiming | Wake::Reclaimed { .. }
        );
        if !open && self.waiters.iter().any(|waiter| waiter.response == Response::TakenBack) {
            effects.push(Effect::Tidy);
        }
    }

    /// The agent has read its briefing.
    pub(super) fn briefing_read(&mut self, nth: u32, effects: &mut Vec<Effect>) -> bool {
        if !self.has_briefing() || nth != self.after.briefings {
            return false;
        }
        // A card that says that it was started stays true.
        if !matches!(self.after.wake, Wake::Started { .. }) {
            self.after.overdue = false;
        }
        effects.push(Effect::Note(Fact::BriefingRead));
        self.after.wake = match self.after.wake {
            Wake::Started { before: false, .. } => Wake::Started { accepted: true, before: false },
            _ => Wake::Read,
        };
        self.refresh(effects);
        true
    }

    /// What came of starting the agent.
    pub(super) fn tried(&mut self, what: Tried, now: Time, effects: &mut Vec<Effect>) -> bool {
        let Wake::Starting { since, tries, .. } = self.after.wake else { return false };
        let tries = tries.saturating_add(1);
        let pause = START_AGAIN.0.saturating_mul(2_u32.saturating_pow(tries.min(16))).min(START_AGAIN.1);
        let again = |running| Wake::Starting { since, tries, next: now + pause, running };
        self.after.wake = match what {
            Tried::Started { accepted } => {
                effects.push(Effect::Note(Fact::Started));
                Wake::Started { accepted, before: false }
            }
            Tried::StartedBefore => Wake::Started { accepted: false, before: true },
            Tried::Read => {
                effects.push(Effect::Note(Fact::BriefingRead));
                Wake::Read
            }
            Tried::Running if now < since + START_FOR => again(true),
            Tried::Nothing | Tried::Running => Wake::Kept,
            Tried::Failed(why) if now < since + START_FOR => {
                effects.push(Effect::Note(Fact::StartFailed { why, last: false }));
                again(false)
            }
            Tried::Failed(why) => {
                effects.push(Effect::Note(Fact::StartFailed { why: why.clone(), last: true }));
                Wake::GivenUp { why }
            }
        };
        self.tidy(effects);
        self.refresh(effects);
        true
    }

    /// A call asks the same again: what lies there is taken back for it.
    pub(super) fn reclaim(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        if !self.keeps_outcome(now) {
            return false;
        }
        let mut changed = false;
        for index in 0..self.waiters.len() {
            if matches!(self.waiters[index].response, Response::Published { .. }) {
                self.take_back(index, effects);
                changed = true;
            }
        }
        if self.has_briefing() || self.after.wake == Wake::Briefing {
            self.after.wake = Wake::Reclaiming;
            effects.push(Effect::Unbrief);
            changed = true;
        } else if changed && self.after.wake == Wake::Idle {
            self.after.wake = Wake::Reclaimed { until: now + RECLAIMED };
        }
        changed
    }

    /// The briefing is taken back, or was read in that very moment.
    pub(super) fn unbriefed(&mut self, gone: bool, now: Time, effects: &mut Vec<Effect>) -> bool {
        if self.after.wake != Wake::Reclaiming {
            return false;
        }
        self.after.wake = if gone { Wake::Read } else { Wake::Reclaimed { until: now + RECLAIMED } };
        self.tidy(effects);
        self.refresh(effects);
        true
    }

    /// One more call is given the outcome that nobody took.
    pub(super) fn join_kept(&mut self, mut waiter: Waiter, now: Time, effects: &mut Vec<Effect>) -> bool {
        if !self.keeps_outcome(now) || !self.is_free() || self.waiter(&waiter.request_id).is_some() {
            return false;
        }
        let request_id = waiter.request_id.clone();
        waiter.late = matches!(self.after.late, Late::Answered { .. });
        waiter.response = Response::Undecided;
        effects.push(Effect::Note(Fact::Joined(request_id.clone())));
        self.after.wake = Wake::Idle;
        self.after.overdue = false;
        self.waiters.push(waiter);
        self.identify(self.waiters.len() - 1, effects);
        self.owe_response(request_id, effects);
        self.tidy(effects);
        self.refresh(effects);
        true
    }

    /// The same request was made again: its outcome is written again.
    pub(super) fn ask_again(&mut self, request_id: &RequestId, effects: &mut Vec<Effect>) -> bool {
        let settled = self.outcome().is_some();
        let Some(index) = self.index_of(request_id) else { return false };
        let told = matches!(
            self.waiters[index].response,
            Response::Published { .. } | Response::Taken | Response::TakenBack | Response::TakingBack
        );
        if !(settled || self.waiters[index].withdrawn) || !told {
            return false;
        }
        if self.has_briefing() {
            self.after.wake = Wake::Idle;
            effects.push(Effect::Unbrief);
        }
        self.after.overdue = false;
        self.owe_response(request_id.clone(), effects);
        self.refresh(effects);
        true
    }

    /// The agent has asked the same again, so that a late answer would go to a question of the past.
    pub(super) fn asked_again(&mut self, effects: &mut Vec<Effect>) -> bool {
        if !self.is_late_open() {
            return false;
        }
        self.after.late = Late::AskedAgain;
        self.refresh(effects);
        true
    }

    /// Takes the one answer after the timeout.
    pub(super) fn answer_late(&mut self, answers: Answers, by: Person, now: Time, effects: &mut Vec<Effect>) {
        self.after.late = Late::Answered { answers, by, at: now };
        effects.push(Effect::Note(Fact::LateAnswer));
        self.brief(effects);
        self.refresh(effects);
    }

    pub(super) fn stopped(&mut self, effects: &mut Vec<Effect>) -> bool {
        if self.after.stop != Stop::Stopping {
            return false;
        }
        self.after.stop = Stop::Done;
        effects.push(Effect::Note(Fact::Stopped));
        self.refresh(effects);
        true
    }

    /// Stops the session, once its response is there and its cards are closed.
    pub(super) fn stop_if_done(&mut self, effects: &mut Vec<Effect>) {
        if self.after.stop == Stop::Owed && self.has_responded() && self.has_closed() {
            self.after.stop = Stop::Stopping;
            effects.push(Effect::Stop);
        }
    }

    pub(super) fn has_responded(&self) -> bool {
        let written =
            |waiter: &Waiter| !matches!(waiter.response, Response::Undecided | Response::Owed | Response::Ready);
        self.waiters.iter().all(written)
    }

    pub(super) fn has_closed(&self) -> bool {
        self.widgets.iter().all(|widget| matches!(widget.phase, Phase::Failed { .. } | Phase::Closed))
    }

    /// Whether the closed card of a route does not say what it should.
    pub(super) fn owes_remark(&self, route: usize) -> bool {
        let widget = &self.widgets[route];
        let is_card = self.rules.routes[route].channel != Channel::Web && !widget.messages.is_empty();
        is_card && widget.phase == Phase::Closed && widget.said != Some(self.remark())
    }

    /// Brings every closed card up to date. One that is being changed is looked at again when that is done.
    pub(super) fn refresh(&mut self, effects: &mut Vec<Effect>) {
        for route in 0..self.widgets.len() {
            if self.widgets[route].said.is_some() && self.owes_remark(route) {
                self.widgets[route].said = None;
                effects.push(Effect::Close { route });
            }
        }
    }
}
