//! The life of an ask as a state machine: `step(event, now) -> (ask, effects)`.
//!
//! It decides and remembers; it does nothing. The broker saves the new ask and only then acts on
//! the effects, which are idempotent and come back as events. After a crash [`Ask::resume`] says
//! what is still owed. Who calls it: the broker, and nobody else.

mod after;
mod blocking;
mod fact;
mod nudging;
mod parts;
mod settling;
mod showing;

#[cfg(test)]
mod blocking_properties;
#[cfg(test)]
mod properties;

pub use after::{After, Late, Remark, SessionRules, Stop, Tried, Wake};
pub use blocking::{Block, Lifted};
pub use fact::Fact;

use super::{
    Answers, Ask, AskId, Content, Digest, Given, Group, Person, Refusal, Reply, RequestId, Rules, ShortId, Time,
    TimeoutPolicy,
};

/// Where an ask is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    },
}

/// How an ask ended.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Its questions were asked too often, so nobody was asked. [`Ask::block`] says what became of that.
    Blocked {
        /// How often a question may be asked without an answer.
        limit: u8,
    },
}

/// Why an ask could not be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Posted again as often as allowed: this many times.
    RetriesUsedUp(u8),
    /// What no retry can mend, in words.
    Never(String),
}

/// One blocked call that waits for the outcome, by the request that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Names its response file.
    pub request_id: RequestId,
    /// The content of its request: the same id with other content is a mistake of the agent.
    pub digest: Digest,
    /// Echoed in its response.
    pub op_code: Option<String>,
    /// What it wants done at a timeout.
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
    pub response: Response,
}

/// How far a waiter's response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// There is nothing to say yet.
    Undecided,
    /// To be written and synced under a name of our own.
    Owed,
    /// Written and synced; only the rename is left. After a crash, a missing file means that it
    /// was published.
    Ready,
    /// It is there for the waiter to take.
    Published {
        /// Since when.
        at: Time,
    },
    /// To be put out of the waiter's reach, by one rename.
    TakingBack,
    /// It was not taken, and cannot be any more.
    TakenBack,
    /// The waiter has it.
    Taken,
}

/// What was posted for one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widget {
    /// Which try this is, from 1.
    pub attempt: u8,
    /// How far it is.
    pub phase: Phase,
    /// The channel's ids of what was posted; the last one is the card people use.
    pub messages: Vec<String>,
    /// Where several questions are asked one after the other: how far that is.
    pub parts: Parts,
    /// Closed: what it says beside the outcome; `None` while it is being changed.
    pub said: Option<Remark>,
}

/// How far a widget is that asks one question after the other, and what it went through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    /// Which question is shown now, or is on its way.
    pub index: usize,
    /// The try with which it began; earlier ones belong to the questions before it.
    pub first_attempt: u8,
    /// Who is asked, if not the chat of the route: somebody else is answering.
    pub to: Option<String>,
    /// Which question each of the widget's messages asked; `0` for those it does not say.
    pub of: Vec<usize>,
    /// Sent a second time because nobody knew what came of the first.
    pub repeated: bool,
    /// Failed late because the chat was closed for us; happens to a question once.
    pub lapsed: bool,
    /// Something of it was displayed.
    pub seen: bool,
}

/// How far a widget is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
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
        /// Why, if no retry can mend it; `None`: retries used up.
        never: Option<String>,
    },
    /// Says how it ended; nothing is left to do.
    Closed,
}

/// What one person has answered so far on one widget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoFar {
    /// The route of the widget.
    pub route: usize,
    /// Who.
    pub person: Person,
    /// One entry per question; `None`: not dealt with yet.
    pub given: Vec<Option<Given>>,
    /// The channel's ids of the messages that said so.
    pub messages: Vec<String>,
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

/// Where a reply came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The widget of this route.
    Route(usize),
    /// Somebody who holds the inbox token: the operator.
    Token,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// Another call waits for the same ask.
    Join(Box<Waiter>),
    /// Another call asked what is blocked.
    Repeated(Box<Waiter>),
    /// A person lets the questions be asked again.
    Allow {
        /// On which card, or with the token.
        source: Source,
        /// Who.
        person: Person,
    },
    /// The block has ended, and this is whoever allowed it.
    Lift {
        /// Nobody, where it was answered elsewhere or forgotten.
        by: Option<Person>,
    },
    /// The cards of a block show how often it was asked.
    Recounted {
        /// That often.
        times: u32,
    },
    /// A waiting call was withdrawn by the agent.
    Withdraw(RequestId),
    /// An operator withdrew the whole ask.
    Cancel,
    /// The queue of the route's channel has reached this widget.
    Turn {
        /// The route.
        route: usize,
    },
    /// What came of sending it.
    Posted {
        /// The route.
        route: usize,
        /// The try it belongs to.
        attempt: u8,
        /// What the channel said.
        posted: Posted,
    },
    /// What a look into the channel's history found.
    Looked {
        /// The route.
        route: usize,
        /// What it found.
        found: Found,
    },
    /// Something shows that a person could see it.
    Proof {
        /// The route.
        route: usize,
    },
    /// The channel tells later what became of a message it had taken.
    Fate {
        /// The route.
        route: usize,
        /// The try the message belongs to.
        attempt: u8,
        /// The question it asks.
        part: usize,
        /// The channel's id of it.
        message: String,
        /// What became of it.
        fate: Fate,
    },
    /// The person has written: what was held can be posted.
    Opened {
        /// The route.
        route: usize,
    },
    /// A message of ours turned up, whatever was known of it before: somebody used it.
    Spotted {
        /// The route.
        route: usize,
        /// The channel's id of the message.
        message: String,
    },
    /// A person replied.
    Replied {
        /// On which widget, or with the token.
        source: Source,
        /// Who.
        person: Person,
        /// What.
        reply: Reply,
    },
    /// A response is synced under our own name.
    ResponseReady(RequestId),
    /// A response is where its waiter looks for it.
    ResponsePublished(RequestId),
    /// A widget says how the ask ended.
    WidgetClosed {
        /// The route.
        route: usize,
        /// And this.
        remark: Remark,
    },
    /// A probe has told which run of the session made a request.
    Identified {
        /// Which request.
        request_id: RequestId,
        /// The run.
        run: String,
    },
    /// A response was taken by its waiter.
    Collected {
        /// Whose.
        request_id: RequestId,
        /// Since when it had lain there.
        since: Time,
    },
    /// A response lies there, and the process that waits for it is gone.
    Died(RequestId),
    /// A response was put out of its waiter's reach.
    TakenBack {
        /// Whose.
        request_id: RequestId,
        /// It was not there any more: its waiter has it.
        gone: bool,
    },
    /// The briefing is there.
    Briefed,
    /// The briefing was read by the agent.
    BriefingRead {
        /// Which one, from 1.
        nth: u32,
    },
    /// The briefing was taken away.
    Unbriefed {
        /// It was not there any more: the agent has read it.
        gone: bool,
    },
    /// What came of starting the agent.
    Tried(Tried),
    /// A call asks the same: what nobody took is to be taken back for it.
    Reclaim,
    /// That call is given what nobody took.
    JoinKept(Box<Waiter>),
    /// The same request came once more.
    AskAgain(RequestId),
    /// A new ask has the same key.
    AskedAgain,
    /// The session was stopped.
    Stopped,
}

/// What came of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// Up, and that is proof enough that people can see it; the channel's id of the message.
    Shown(String),
    /// Taken by the channel, not proven to be displayed; the channel's ids of the messages.
    Accepted(Vec<String>),
    /// Cannot be posted before the person writes, who was asked to; the channel's id of that message.
    Held(String),
    /// Certainly not posted; worth another try, not sooner than after this many milliseconds.
    NotPosted {
        /// What the channel asked for (`Retry-After`).
        retry_after_millis: Option<u64>,
    },
    /// Nobody knows.
    Unknown,
    /// Certainly not posted, and no retry will mend it.
    Never(String),
}

/// What became of a message that a channel had taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is the channel's; where a question needs several messages, all but the last say only this.
    Known,
    /// The channel has it, and with it the whole question.
    Taken,
    /// It is on the person's screen.
    Displayed,
    /// It never will be.
    Failed {
        /// Because the person has to write first.
        window: bool,
        /// In words.
        why: String,
    },
}

/// What a look into a channel's history found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Our message; the channel's id of it.
    Widget(String),
    /// Nothing of ours.
    Absent,
    /// The channel cannot be asked.
    CannotKnow,
}

/// Something that has to be done now that the ask is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Line up for the route's channel; comes back as [`Event::Turn`].
    Queue {
        /// The route.
        route: usize,
        /// Not sooner than this.
        not_before: Time,
    },
    /// Post it now; comes back as [`Event::Posted`].
    Send {
        /// The route.
        route: usize,
        /// The try.
        attempt: u8,
    },
    /// Look whether it was posted; comes back as [`Event::Looked`].
    Look {
        /// The route.
        route: usize,
    },
    /// Wait until the person has written; comes back as [`Event::Opened`].
    Await {
        /// The route.
        route: usize,
        /// Not longer than this.
        until: Time,
    },
    /// Make the widget say how the ask ended; comes back as [`Event::WidgetClosed`].
    Close {
        /// The route.
        route: usize,
    },
    /// Make every card say how often it was asked; comes back as [`Event::Recounted`].
    Recount,
    /// Bring the open widget to people's minds. Not owed after a crash: the next one comes.
    Remind {
        /// The route.
        route: usize,
    },
    /// Tell every waiter where the ask is (`.status`).
    Status,
    /// Write and sync a waiter's response; comes back as [`Event::ResponseReady`].
    Respond(RequestId),
    /// Publish it; comes back as [`Event::ResponsePublished`].
    Publish(RequestId),
    /// Find out which run of the session made a request; may come back as [`Event::Identified`].
    Identify(RequestId),
    /// Put a response out of its waiter's reach; comes back as [`Event::TakenBack`].
    TakeBack(RequestId),
    /// Write the briefing for the agent's next start; comes back as [`Event::Briefed`].
    Brief,
    /// Take the briefing away; comes back as [`Event::Unbriefed`].
    Unbrief,
    /// Remove what was put out of its waiters' reach: it is recorded what became of it.
    Tidy,
    /// Start the agent; comes back as [`Event::Tried`].
    Start,
    /// Stop the session; comes back as [`Event::Stopped`].
    Stop,
    /// For the audit log, the log and the metrics.
    Note(Fact),
    /// Nothing is owed any more: keep it as an outcome only.
    Retire,
    /// The outcome has been kept long enough.
    Forget,
}

/// The ask after an event, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// To be saved before anything is done.
    pub ask: Ask,
    /// To be done after it was saved.
    pub effects: Vec<Effect>,
}

impl Ask {
    /// A new ask, on its way to its first route.
    #[must_use]
    pub fn accept(new: Accepted, now: Time) -> Step {
        let mut ask = Self::new(new, now);
        let mut effects = vec![Effect::Note(Fact::Asked)];
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
            confirmed: false,
            reminders: 0,
            escalations: 0,
            stage: Stage::Posting,
            after: After::default(),
            block: None,
            created_at: now,
        }
    }

    /// What `event` makes of the ask: `None` if it changes nothing.
    pub fn step(mut self, event: Event, now: Time) -> Result<Option<Step>, Refusal> {
        let mut effects = Vec::new();
        let mut changed = match event {
            Event::Tick => self.tick(now, &mut effects),
            Event::Join(waiter) => self.join(*waiter, &mut effects),
            Event::Repeated(waiter) => self.repeated(*waiter, &mut effects),
            Event::Allow { source, person } => self.allow(source, person, now, &mut effects)?,
            Event::Lift { by } => self.lift(by, now, &mut effects),
            Event::Recounted { times } => self.recounted(times, &mut effects),
            Event::Withdraw(request_id) => self.withdraw(&request_id, now, &mut effects),
            Event::Cancel => {
                self.still_open()?;
                self.settle(Outcome::Withdrawn, now, &mut effects);
                true
            }
            Event::Turn { route } => self.turn(route, now, &mut effects),
            Event::Posted { route, attempt, posted } => self.posted(route, attempt, posted, now, &mut effects),
            Event::Looked { route, found } => self.looked(route, found, now, &mut effects),
            Event::Proof { route } => self.prove(route, now, &mut effects),
            Event::Spotted { route, message } => self.spotted(route, message, now, &mut effects),
            Event::Fate { route, attempt, part, message, fate } => {
                self.fate(route, attempt, (part, message), fate, now, &mut effects)
            }
            Event::Opened { route } => self.opened(route, now, &mut effects),
            Event::Replied { source, person, reply } => self.replied(source, person, reply, now, &mut effects)?,
            Event::ResponseReady(request_id) => self.response_ready(&request_id, &mut effects),
            Event::ResponsePublished(request_id) => self.response_published(&request_id, now, &mut effects),
            Event::WidgetClosed { route, remark } => self.widget_closed(route, remark, &mut effects),
            event => self.step_after(event, now, &mut effects),
        };
        changed |= self.keep_count(&mut effects);
        Ok(changed.then_some(Step { ask: self, effects }))
    }

    /// The events that belong to what comes after the decision, or to the session.
    fn step_after(&mut self, event: Event, now: Time, effects: &mut Vec<Effect>) -> bool {
        match event {
            Event::Identified { request_id, run } => self.identified(&request_id, run),
            Event::Collected { request_id, since } => self.collected(&request_id, since, effects),
            Event::Died(request_id) => self.died(&request_id, effects),
            Event::TakenBack { request_id, gone } => self.taken_back(&request_id, gone, effects),
            Event::Briefed => self.briefed(now, effects),
            Event::BriefingRead { nth } => self.briefing_read(nth, effects),
            Event::Unbriefed { gone } => self.unbriefed(gone, now, effects),
            Event::Tried(tried) => self.tried(tried, now, effects),
            Event::Reclaim => self.reclaim(now, effects),
            Event::JoinKept(waiter) => self.join_kept(*waiter, now, effects),
            Event::AskAgain(request_id) => self.ask_again(&request_id, effects),
            Event::AskedAgain => self.asked_again(effects),
            Event::Stopped => self.stopped(effects),
            _ => false,
        }
    }

    /// When [`Event::Tick`] must next arrive.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match &self.stage {
            // What is owed is tried until it is done, however long that takes.
            Stage::Settled { at, .. } => {
                let forget = (self.owes_nothing() && !self.is_pending()).then_some(*at + self.rules.keep);
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
    #[must_use]
    pub fn resume(&self) -> Vec<Effect> {
        let settled = matches!(self.stage, Stage::Settled { .. });
        let over = self.is_over();
        let mut effects = Vec::new();
        for (route, widget) in self.widgets.iter().enumerate() {
            match widget.phase {
                Phase::Queued { not_before, .. } => effects.push(Effect::Queue { route, not_before }),
                Phase::Sent { .. } | Phase::Unknown { .. } => effects.push(Effect::Look { route }),
                Phase::Held { until, .. } => effects.push(Effect::Await { route, until }),
                Phase::Up { .. } if over => effects.push(Effect::Close { route }),
                Phase::Up { .. } | Phase::Failed { .. } | Phase::Closed => {}
            }
        }
        if self.is_blocked() && self.block.as_ref().is_some_and(|block| block.telling) {
            effects.push(Effect::Recount);
        }
        for waiter in &self.waiters {
            match waiter.response {
                Response::Owed => effects.push(Effect::Respond(waiter.request_id.clone())),
                Response::Ready => effects.push(Effect::Publish(waiter.request_id.clone())),
                _ => {}
            }
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
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.stage {
            Stage::Settled { outcome, .. } => Some(outcome),
            Stage::Posting | Stage::Open { .. } => None,
        }
    }

    /// When its clock started, if it did.
    #[must_use]
    pub fn shown_at(&self) -> Option<Time> {
        match &self.stage {
            Stage::Posting => None,
            Stage::Open { shown_at, .. } => Some(*shown_at),
            Stage::Settled { shown_at, .. } => *shown_at,
        }
    }

    /// The waiter of that request.
    #[must_use]
    pub fn waiter(&self, request_id: &RequestId) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.request_id == *request_id)
    }
}
