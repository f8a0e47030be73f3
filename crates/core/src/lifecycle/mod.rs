//! The life of an ask as a state machine: `step(event, now) -> (ask, effects)`.
//!
//! It decides and remembers; it does nothing. The broker saves the new ask and only then acts on
//! the effects, which are idempotent and come back as events. After a crash [`Ask::resume`] says
//! what is still owed. Only the broker calls it.

mod blocking;
mod clock;
mod delivery;
mod event;
mod fact;
mod follow_up;
mod handoff;
mod loss;
mod nudging;
mod one_by_one;
mod sending;
mod settling;
mod showing;

#[cfg(test)]
mod blocking_properties;
#[cfg(test)]
mod handoff_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod viewing_tests;

pub use blocking::{Block, Lifted};
pub use delivery::{Delivery, DeliveryState};
pub use event::{
    DeliveryEffect, DeliveryEvent, Effect, Event, FollowUpEffect, FollowUpEvent, Found, MessageStatus, Posted,
    Relation, Source, Taker, WaiterEvent, WidgetEffect, WidgetEvent,
};
pub use fact::Fact;
pub use follow_up::{AgentStart, FollowUp, Late, Remark, SessionRules, Stop, Tried};
pub use sending::{Left, Sending};

use super::{
    Answers, Ask, AskId, Cause, Content, Digest, Given, Group, Person, Refusal, RequestId, Rules, ShortId, Time,
    TimeoutPolicy, Trouble,
};
use serde::{Deserialize, Serialize};

/// Where an ask is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Stage {
    /// Stored and being shown; nothing says yet that a person can see it, and no clock runs.
    Posting,
    /// Shown, and answerable until `answer_by`.
    Open {
        /// When the clock started.
        shown_at: Time,
        /// When it ends.
        answer_by: Time,
    },
    /// Decided, once and for ever.
    Settled {
        /// How it ended.
        outcome: Outcome,
        /// When.
        at: Time,
        /// When the clock had started, if it had.
        shown_at: Option<Time>,
        /// What follows.
        follow_up: Box<FollowUp>,
    },
}

/// How an ask ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Outcome {
    /// An allowed person gave a complete, valid answer.
    Answered {
        /// What.
        answers: Answers,
        /// Who.
        by: Person,
    },
    /// A person dismissed it.
    Dismissed {
        /// Who.
        by: Person,
    },
    /// The agent or an operator withdrew it.
    Withdrawn,
    /// Shown, and nobody answered in time.
    TimedOut,
    /// It could not be shown.
    Undelivered {
        /// Why not.
        cause: Cause,
    },
    /// Its questions were asked too often, so no person was asked. [`Ask::block`] says what became of that.
    Blocked {
        /// How often a question may be asked without an answer.
        limit: u8,
    },
}

/// One blocked call that waits for the outcome, by the request that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Names its response file.
    pub request_id: RequestId,
    /// The content of its request: the same id with other content is a mistake of the agent.
    pub digest: Digest,
    /// Echoed in its response.
    pub op_code: Option<String>,
    /// What it wants done at a timeout.
    #[serde(rename = "timeout_policy")]
    pub on_timeout: TimeoutPolicy,
    /// The random id of the process that holds the call.
    pub process: Option<String>,
    /// When its request was accepted.
    pub asked_at: Time,
    /// Which run of the session's container made it, as far as a probe could tell.
    pub run: Option<String>,
    /// It asked when a late answer was there already: it is told that one.
    pub late: bool,
    /// It was withdrawn by itself: it is told so, whatever comes of the ask.
    pub withdrawn: bool,
    /// How far its response is.
    pub response: Delivery,
}

/// What was posted for one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widget {
    /// Which try this is, from 1.
    pub attempt: u8,
    /// How far it is.
    pub state: WidgetState,
    /// The channel's ids of what was posted; the last one is the card people use.
    pub messages: Vec<String>,
    /// Where several questions are asked one after the other: how far that is.
    pub one_by_one: OneByOne,
    /// When its questions were sent, to whom, and what came of that.
    pub sendings: Vec<Sending>,
    /// Closed: what it says beside the outcome; `None` while it is being changed.
    pub said: Option<Remark>,
    /// Why the last try was not shown, as long as no card is up.
    pub trouble: Option<Trouble>,
}

/// How far a widget is that asks one question after the other, and what it went through.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OneByOne {
    /// Which question is shown now, or is on its way.
    pub index: usize,
    /// The try with which it began; earlier ones belong to the questions before it.
    pub first_attempt: u8,
    /// Who is asked, if not the chat of the route: another person is answering.
    pub to: Option<String>,
    /// Which question each of the widget's messages asked; `0` for those it does not say.
    pub of: Vec<usize>,
    /// Sent a second time because askd did not know what came of the first.
    pub repeated: bool,
    /// Failed late because the chat was closed for us; happens to a question once.
    pub lapsed: bool,
    /// Something of it was displayed.
    pub seen: bool,
    /// Who is asked their next question once the one that is on its way is there.
    pub waiting: Vec<String>,
}

/// How far a widget is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum WidgetState {
    /// Waits in our own queue: not sooner than `not_before`, not later than `until`.
    Queued {
        /// The backoff of a retry.
        not_before: Time,
        /// When waiting is given up.
        until: Time,
    },
    /// Sent; the channel has not said anything.
    Sent {
        /// When.
        at: Time,
        /// How long we wait for a word.
        render_by: Time,
    },
    /// The channel's word was lost: it may be up or not.
    Unknown {
        /// When it was sent.
        at: Time,
        /// 0: the first look into the history is under way; 1: it found nothing; 2: the second one is
        /// under way.
        looks: u8,
        /// When the second look is due, or the one under way is given up.
        look_at: Time,
        /// The daemon ended while posting it: if it is not there, that does not count as a try.
        interrupted: bool,
    },
    /// The channel has it.
    Up {
        /// When it was listed or accepted.
        at: Time,
        /// Whether there is proof that it was displayed.
        proven: bool,
        /// When, without proof, the next route is shown too; `None` once that is done.
        fall_back_at: Option<Time>,
    },
    /// The person has to write first; was asked to.
    Held {
        /// Since when.
        at: Time,
        /// When waiting is given up.
        until: Time,
        /// When the next route is shown too; `None` once that is done.
        fall_back_at: Option<Time>,
    },
    /// Could not be posted; nothing is up.
    Failed {
        /// No retry can help; otherwise the retries are used up.
        for_good: bool,
    },
    /// Says how it ended; nothing is left to do.
    Closed,
}

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

/// All that makes an ask.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Minted by the host.
    pub id: AskId,
    /// Minted by the host.
    pub short_id: ShortId,
    /// The folder it came from.
    pub group: Group,
    /// What is asked.
    pub content: Content,
    /// Who may answer, how long, how often.
    pub rules: Rules,
    /// What it is joined by.
    pub key: Option<Digest>,
    /// Which run of the agent asks.
    pub session: Option<String>,
    /// The call that waits.
    pub waiter: Waiter,
}

/// The ask after an event, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// To be saved before anything is done.
    pub ask: Ask,
    /// To be done after it was saved.
    pub effects: Vec<Effect>,
}

impl Ask {
    /// A new ask, on its way to its first route.
    pub fn accept(new: Accepted, now: Time) -> Step {
        let mut ask = Self::new(new, now);
        let mut effects = vec![Effect::Note(Fact::Asked)];
        ask.identify(0, &mut effects);
        ask.show_next(now, &mut effects);
        effects.push(Effect::Status);
        Step { ask, effects }
    }

    fn new(new: Accepted, now: Time) -> Self {
        Self {
            id: new.id,
            short_id: new.short_id,
            group: new.group,
            content: new.content,
            rules: new.rules,
            key: new.key,
            session: new.session,
            waiters: vec![new.waiter],
            widgets: Vec::new(),
            so_far: Vec::new(),
            heard: Vec::new(),
            confirmed: false,
            viewed: false,
            reminders: 0,
            escalations: 0,
            stage: Stage::Posting,
            block: None,
            created_at: now,
        }
    }

    /// What `event` makes of the ask: `None` if it changes nothing.
    pub fn step(mut self, event: Event, now: Time) -> Result<Option<Step>, Refusal> {
        let mut effects = Vec::new();
        let mut changed = match event {
            Event::Tick => self.tick(now, &mut effects),
            Event::Interrupted => self.interrupted(now, &mut effects),
            Event::PowerLost => self.power_lost(now, &mut effects),
            Event::Requested(relation) => self.step_request(relation, now, &mut effects),
            Event::Viewed => self.view(now, &mut effects),
            Event::Replied { source, person, reply } => self.replied(source, person, reply, now, &mut effects)?,
            Event::Allow { source, person } => self.allow(source, person, now, &mut effects)?,
            Event::Cancel => {
                self.still_open()?;
                self.settle(Outcome::Withdrawn, now, &mut effects);
                true
            }
            Event::Widget { route, event } => self.step_widget(route, event, now, &mut effects),
            Event::Delivery { to, event } => self.step_delivery(&to, event, now, &mut effects),
            Event::Waiter { request_id, event } => self.step_waiter(&request_id, event, now, &mut effects),
            Event::FollowUp(event) => self.step_follow_up(event, now, &mut effects),
        };
        changed |= self.next_in_line(now, &mut effects);
        changed |= self.keep_count(&mut effects);
        // Word that comes after the end is kept where the outcome is kept.
        if changed && self.owes_nothing() && !effects.iter().any(|e| matches!(e, Effect::Retire | Effect::Forget)) {
            effects.push(Effect::Retire);
        }
        Ok(changed.then_some(Step { ask: self, effects }))
    }

    fn step_request(&mut self, relation: Relation, now: Time, effects: &mut Vec<Effect>) -> bool {
        match relation {
            Relation::Joins(waiter) => self.join(*waiter, effects),
            Relation::JoinsBlocked(waiter) => self.repeated(*waiter, effects),
            Relation::JoinsSettled(waiter) => self.join_settled(*waiter, now, effects),
            Relation::Reclaims(whose) => self.reclaim(&whose, now, effects),
            Relation::Replays(request_id) => self.replay(&request_id, effects),
            Relation::Supersedes => self.supersede(effects),
        }
    }

    fn step_widget(&mut self, route: usize, event: WidgetEvent, now: Time, effects: &mut Vec<Effect>) -> bool {
        match event {
            WidgetEvent::SlotGranted => self.slot_granted(route, now, effects),
            WidgetEvent::Posted { attempt, posted } => self.posted(route, attempt, posted, now, effects),
            WidgetEvent::Progress { attempt } => self.progress(route, attempt, now),
            WidgetEvent::Looked(found) => self.looked(route, found, now, effects),
            WidgetEvent::Proof => self.prove(route, now, effects),
            WidgetEvent::Status { attempt, question, message, status, at } => {
                self.note_time(route, attempt, &message, status, at)
                    | self.status(route, attempt, (question, message), status, now, effects)
            }
            WidgetEvent::Opened => self.opened(route, now, effects),
            WidgetEvent::Spotted(message) => self.spotted(route, message, now, effects),
            WidgetEvent::Closed(remark) => self.widget_closed(route, remark, effects),
        }
    }

    fn step_delivery(&mut self, to: &Taker, event: DeliveryEvent, now: Time, effects: &mut Vec<Effect>) -> bool {
        match to {
            Taker::Waiter(request_id) => self.step_response(request_id, event, now, effects),
            Taker::Briefing => self.step_briefing(event, now, effects),
        }
    }

    fn step_waiter(
        &mut self,
        request_id: &RequestId,
        event: WaiterEvent,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> bool {
        match event {
            WaiterEvent::Withdrawn => self.withdraw(request_id, now, effects),
            WaiterEvent::Identified { run } => self.identified(request_id, run),
            WaiterEvent::Died => self.died(request_id, effects),
        }
    }

    fn step_follow_up(&mut self, event: FollowUpEvent, now: Time, effects: &mut Vec<Effect>) -> bool {
        match event {
            FollowUpEvent::Tried(tried) => self.tried(tried, now, effects),
            FollowUpEvent::Stopped => self.stopped(effects),
            FollowUpEvent::Lifted { by } => self.lift(by, now, effects),
            FollowUpEvent::Recounted { times } => self.recounted(times, effects),
        }
    }

    /// When [`Event::Tick`] must next arrive.
    pub fn deadline(&self) -> Time {
        match &self.stage {
            // What is owed is tried until it is done, however long that takes.
            Stage::Settled { at, .. } => {
                let forget = (self.owes_nothing() && !self.is_pending()).then(|| self.kept_until(*at));
                let due = self.widget_deadline().into_iter().chain(self.after_deadline()).chain(forget);
                due.min().unwrap_or(Time::MAX)
            }
            Stage::Posting => self.widget_deadline().unwrap_or(Time::MAX),
            Stage::Open { answer_by, .. } => {
                let nudge = self.nudge_at().unwrap_or(Time::MAX);
                self.widget_deadline().unwrap_or(Time::MAX).min(nudge).min(*answer_by)
            }
        }
    }

    /// What is still owed after a restart. Everything in it may have been done before.
    pub fn resume(&self) -> Vec<Effect> {
        let settled = matches!(self.stage, Stage::Settled { .. });
        let over = self.is_over();
        let mut effects = Vec::new();
        for (route, widget) in self.widgets.iter().enumerate() {
            match widget.state {
                WidgetState::Queued { not_before, .. } => effects.push(WidgetEffect::Queue { not_before }.on(route)),
                WidgetState::Unknown { .. } => effects.push(WidgetEffect::Look.on(route)),
                WidgetState::Held { until, .. } => effects.push(WidgetEffect::Await { until }.on(route)),
                WidgetState::Up { .. } if over => effects.push(WidgetEffect::Close.on(route)),
                // `Event::Interrupted` deals with what was being sent.
                WidgetState::Sent { .. }
                | WidgetState::Up { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed => {}
            }
        }
        if self.is_blocked() && self.block.as_ref().is_some_and(|block| block.telling) {
            effects.push(Effect::FollowUp(FollowUpEffect::Recount));
        }
        for waiter in &self.waiters {
            effects.extend(waiter.response.resume().map(|effect| effect.of(waiter.request_id.clone())));
        }
        self.resume_after(&mut effects);
        if !settled {
            effects.push(Effect::Status);
        } else if self.owes_nothing() {
            effects.push(Effect::Retire);
        } else {
            effects.insert(0, Effect::Note(Fact::Settled));
        }
        effects
    }

    /// How it ended, if it did.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.stage {
            Stage::Settled { outcome, .. } => Some(outcome),
            Stage::Posting | Stage::Open { .. } => None,
        }
    }

    /// When its clock started, if it did.
    pub fn shown_at(&self) -> Option<Time> {
        match &self.stage {
            Stage::Posting => None,
            Stage::Open { shown_at, .. } => Some(*shown_at),
            Stage::Settled { shown_at, .. } => *shown_at,
        }
    }

    /// When it was settled, if it was.
    pub fn settled_at(&self) -> Option<Time> {
        if let Stage::Settled { at, .. } = self.stage { Some(at) } else { None }
    }

    /// The outcome on its way to that taker.
    pub fn delivery(&self, to: &Taker) -> Option<Delivery> {
        match to {
            Taker::Waiter(request_id) => self.waiter(request_id).map(|waiter| waiter.response),
            Taker::Briefing => Some(self.follow_up().briefing),
        }
    }

    /// The waiter of that request.
    pub fn waiter(&self, request_id: &RequestId) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.request_id == *request_id)
    }
}
