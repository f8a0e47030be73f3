//! The life of an ask as a state machine: `step(event, now) -> (ask, effects)`.
//!
//! It decides and remembers; it does nothing. The broker saves the new ask and only then acts on
//! the effects, which are idempotent and come back as events. After a crash [`AskState::resume`] says
//! what is still owed. Only the broker calls it.

mod blocking;
mod clock;
mod delivery;
mod effect;
mod event;
mod face;
mod fact;
mod follow_up;
mod handoff;
mod loss;
mod nudging;
mod one_by_one;
mod sending;
mod sessions;
mod settling;
mod showing;
mod waiter;
mod widget;

#[cfg(test)]
mod blocking_properties;
#[cfg(test)]
mod handoff_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod viewing_tests;

pub use blocking::{Block, Lifted};
pub use delivery::{Carrier, Delivery, DeliveryState};
pub use effect::{DeliveryEffect, Effect, FollowUpEffect, WidgetEffect};
pub use event::{
    DeliveryEvent, Event, FollowUpEvent, Found, MessageStatus, Posted, Relation, Taker, Undelivered, WaiterEvent,
    WidgetEvent,
};
pub use face::{Card, Face, Remark};
pub use fact::Fact;
pub use follow_up::{AfterTimeout, AgentStart, FollowUp, SessionRules, Tried};
pub use sending::{Left, Sending};
pub use settling::{MAX_WAITERS, SoFar};
pub use waiter::{Told, Waiter};
pub use widget::{OneByOne, Post, Widget, WidgetState};

use super::{
    Answers, Ask, AskId, AskState, Cause, ChannelName, Content, Digest, Group, Person, Refusal, Route, Rules, ShortId,
    Source, Time,
};
use serde::{Deserialize, Serialize};

/// Where an ask is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Stage {
    /// Stored and being shown; nothing says yet that a person can see it, and no clock runs.
    Posting,
    /// Shown, and answerable until `answer_by`.
    Open {
        /// When the clock started.
        shown_at: Time,
        /// When it ends.
        answer_by: Time,
        /// How often it was brought to mind since it was shown.
        reminders: u8,
        /// How often it was shown on a further route because nobody answered.
        escalations: u8,
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
    Withdrawn {
        /// The operator. Versions before did not say who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Person>,
    },
    /// Shown, and nobody answered in time.
    TimedOut,
    /// It could not be shown.
    Undelivered {
        /// Why not.
        cause: Cause,
    },
    /// Its questions were asked too often, so no person was asked. [`Block`] says what became of that.
    Blocked {
        /// How often a question may be asked without an answer.
        limit: u8,
    },
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
    /// How long it waits, how often it is posted.
    pub rules: Rules,
    /// Where it is asked first, and then next; never empty.
    pub routes: Vec<Route>,
    /// What it is joined by.
    pub key: Option<Digest>,
    /// Which run of the agent asks.
    pub session: Option<String>,
    /// The call that waits.
    pub waiter: Waiter,
}

/// The ask after an event, and what to do about it.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// To be saved before anything is done.
    pub ask: Ask,
    /// To be done after it was saved.
    pub effects: Vec<Effect>,
}

/// What a step is taken with: the time, and what has to be done once the ask is saved.
struct Context {
    now: Time,
    effects: Vec<Effect>,
}

impl Context {
    fn act(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn note(&mut self, fact: Fact) {
        self.effects.push(Effect::Note(fact));
    }
}

impl Ask {
    /// A new ask, on its way to its first route.
    pub fn accept(new: Accepted, now: Time) -> Step {
        let mut ask = AskState::new(new, now);
        let mut cx = Context { now, effects: vec![Effect::Note(Fact::Asked)] };
        ask.identify(0, &mut cx);
        ask.show_next(&mut cx);
        cx.act(Effect::Status);
        Step { ask: Self(ask), effects: cx.effects }
    }

    /// The same ask, whose group is called so from now on.
    #[must_use]
    pub fn called(mut self, group: Group) -> Self {
        self.0.group = group;
        self
    }

    /// What `event` makes of the ask: `None` if it changes nothing.
    pub fn step(mut self, event: Event, now: Time) -> Result<Option<Step>, Refusal> {
        let ask = &mut self.0;
        let cx = &mut Context { now, effects: Vec::new() };
        let mut changed = match event {
            Event::Tick => ask.tick(cx),
            Event::Interrupted => ask.interrupted(cx),
            Event::PowerLost => ask.power_lost(cx),
            Event::Crowded => ask.crowded(cx),
            Event::Requested(relation) => ask.requested(relation, cx),
            Event::Viewed => ask.view(cx),
            Event::Typing => ask.give_time(cx)?,
            Event::Replied { source, person, reply } => ask.replied(source, person, reply, cx)?,
            Event::Allow { source, person, heard } => ask.allow(source, person, heard, cx)?,
            Event::Cancel(person) => {
                ask.still_open()?;
                ask.settle(Outcome::Withdrawn { by: Some(person) }, cx);
                true
            }
            Event::Widget { route, event } => ask.step_widget(route, event, cx),
            Event::Delivery { to, event } => match to {
                Taker::Waiter(request_id) => ask.step_response(&request_id, event, cx),
                Taker::Briefing => ask.step_briefing(event, cx),
            },
            Event::Waiter { request_id, event } => match event {
                // Who withdraws lives.
                WaiterEvent::Withdrawn => ask.withdraw(&request_id, cx) || ask.resumed(&request_id, cx),
                WaiterEvent::Resumed => ask.resumed(&request_id, cx),
                WaiterEvent::Identified { run } => ask.identified(&request_id, run),
                WaiterEvent::Died => ask.died(&request_id, cx),
                WaiterEvent::Collected { by } => ask.collected(&request_id, by, cx),
            },
            Event::FollowUp(event) => match event {
                FollowUpEvent::Lifted { by } => ask.lift(by, cx),
                FollowUpEvent::Briefed { nth } => ask.briefed(nth, cx),
                event @ (FollowUpEvent::Tried { .. } | FollowUpEvent::Stopped(_) | FollowUpEvent::HostAway(_)) => {
                    let changed = ask.follow_up_mut().is_some_and(|follow_up| follow_up.step(event, cx));
                    ask.tidy(cx);
                    changed
                }
            },
        };
        changed |= ask.next_in_line(cx) | ask.brief_next(cx);
        ask.update_cards(cx);
        changed |= ask.stop_if_due(cx);
        // Word that comes after the end is kept where the outcome is kept.
        if changed && ask.owes_nothing() && !cx.effects.contains(&Effect::Forget) {
            cx.act(Effect::Retire);
        }
        Ok(changed.then_some(Step { ask: self, effects: std::mem::take(&mut cx.effects) }))
    }
}

impl AskState {
    fn requested(&mut self, relation: Relation, cx: &mut Context) -> bool {
        match relation {
            Relation::Joins(waiter) => self.join(*waiter, cx),
            Relation::JoinsBlocked(waiter) => self.repeated(*waiter, cx),
            Relation::JoinsSettled(waiter) => self.join_settled(*waiter, cx),
            Relation::Shares(waiter) => self.share(*waiter, cx),
            Relation::Reclaims(whose) => self.reclaim(&whose, cx),
            Relation::Replays(request_id, claim) => self.replay(&request_id, claim, cx),
            Relation::Supersedes => self.supersede(),
        }
    }

    fn step_widget(&mut self, route: usize, event: WidgetEvent, cx: &mut Context) -> bool {
        match event {
            WidgetEvent::SlotGranted => self.slot_granted(route, cx),
            WidgetEvent::Posted { attempt, posted } => self.posted(route, attempt, posted, cx),
            WidgetEvent::Progress { attempt } => self.progress(route, attempt, cx.now),
            WidgetEvent::Looked(found) => self.looked(route, found, cx),
            WidgetEvent::Proof => self.prove(route, cx),
            WidgetEvent::Status { attempt, question, message, status, at } => {
                self.status(route, attempt, (question, message), (status, at), cx)
            }
            WidgetEvent::Opened => self.opened(route, cx),
            WidgetEvent::Spotted(message) => self.spotted(route, message, cx),
            WidgetEvent::Gone(message) => self.gone(route, &message, cx),
            WidgetEvent::Reminded { sent } => self.was_reminded(route, sent, cx),
            WidgetEvent::Updated(face) => self.updated(route, face, cx),
        }
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
            waiters: vec![Waiter { other_session: None, ..new.waiter }],
            widgets: Vec::new(),
            next_routes: new.routes,
            so_far: Vec::new(),
            heard: Vec::new(),
            confirmed: false,
            viewed: false,
            extended: false,
            stage: Stage::Posting,
            created_at: now,
        }
    }

    /// When [`Event::Tick`] must next arrive.
    pub fn deadline(&self) -> Time {
        match &self.stage {
            // What is owed is tried until it is done, however long that takes.
            Stage::Settled { .. } => {
                let due = self.widget_deadline().into_iter().chain(self.after_deadline()).chain(self.forgotten_at());
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
        let mut effects = Vec::new();
        for (route, widget) in self.widgets.iter().enumerate() {
            if matches!(widget.state.card(), Some(Card::Changing { .. })) {
                effects.push(WidgetEffect::Update.on(route));
            }
            match widget.state {
                WidgetState::Queued { not_before, .. } => effects.push(WidgetEffect::Queue { not_before }.on(route)),
                WidgetState::Unknown { .. } => effects.push(WidgetEffect::Look.on(route)),
                WidgetState::Held { until, .. } => effects.push(WidgetEffect::Await { until }.on(route)),
                // `Event::Interrupted` deals with what was being sent.
                WidgetState::Sent { .. }
                | WidgetState::Up { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => {}
            }
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

    /// The route of this number, if the ask was shown by it.
    pub fn route(&self, route: usize) -> Option<&Route> {
        self.widgets.get(route).map(|widget| &widget.route)
    }

    /// The number of the route to this channel, if the ask was shown by it.
    pub fn shown_on(&self, channel: ChannelName) -> Option<usize> {
        self.widgets.iter().position(|widget| widget.route.channel == channel)
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
}
