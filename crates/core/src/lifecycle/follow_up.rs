//! After the decision: whether the outcome was taken, and what is done when it was not. It is briefed for
//! the agent's next start and the agent is started with it; a late answer goes the same way; a session is
//! stopped after a timeout. Sections 6 (items 6 and 7) and 7 of the specification.
//!
//! This file has the states; [`super::handoff`] leads from one to the next. The daemon looks whether a waiting process
//! lives and what lies in its folders, and reports both as events.

use super::{Block, Context, Delivery, DeliveryState, Fact, FollowUpEvent, Lifted, Outcome, Stage, Told, Waiter};
use crate::{Answers, AskState, Person, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First and longest pause between two tries to start the agent.
pub(super) const START_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));
/// How long starting is tried.
const START_FOR: Duration = Duration::from_secs(24 * 3600);

/// The rules for an outcome that no call takes. The settings of that moment say which container or command they
/// mean; only what decides is fixed with the ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRules {
    /// How long a waiter of which nothing is known has to take its response, where the agent can be started.
    #[serde(rename = "pickup_timeout_ms", with = "crate::record::millis")]
    pub pickup_timeout: Duration,
    /// How long any response stays.
    #[serde(rename = "answer_retention_ms", with = "crate::record::millis")]
    pub answer_retention: Duration,
    /// How long an answer is still taken after a timeout; zero: not at all.
    #[serde(rename = "late_answers_ms", with = "crate::record::millis")]
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FollowUp {
    /// The briefing, for an outcome that no waiter has taken.
    pub briefing: Delivery,
    /// How many briefings there have been: one that is taken back for a repeated call can be followed by another.
    #[serde(default)]
    pub briefings: u32,
    /// What came of starting the agent with it.
    pub start: AgentStart,
    /// What a timeout leads to.
    pub after_timeout: AfterTimeout,
    /// What became of an ask that was asked too often to be asked.
    pub block: Option<Block>,
    /// The response lay there for so long that people were told.
    pub overdue: bool,
    /// The outcome is told once more after a loss of power: an agent may know it already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retold: bool,
    /// The host that serves the group's folder does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_away: bool,
}

impl FollowUp {
    /// Nothing has followed yet.
    const NOTHING: Self = Self {
        briefing: Delivery::UNDECIDED,
        briefings: 0,
        start: AgentStart::NotTried,
        after_timeout: AfterTimeout::Nothing,
        block: None,
        overdue: false,
        retold: false,
        host_away: false,
    };

    /// Follows `event`; `false` if that changes nothing.
    pub(super) fn step(&mut self, event: FollowUpEvent, cx: &mut Context) -> bool {
        match (event, &self.after_timeout, &mut self.block) {
            (FollowUpEvent::Tried { nth, what }, ..) => return nth == self.briefings && self.tried(what, cx),
            (FollowUpEvent::Stopped(false), AfterTimeout::Stopping, _) => self.after_timeout = AfterTimeout::Nothing,
            (FollowUpEvent::Stopped(true), AfterTimeout::Stopping, _) => {
                self.after_timeout = AfterTimeout::Stopped;
                cx.note(Fact::Stopped);
            }
            (FollowUpEvent::Lifted { by }, _, Some(Block { lifted: lifted @ None, .. })) => {
                *lifted = Some(Lifted { by, at: cx.now });
                cx.note(Fact::Unblocked);
            }
            (FollowUpEvent::HostAway(away), ..) if self.host_away != away => self.host_away = away,
            (
                FollowUpEvent::Briefed { .. }
                | FollowUpEvent::Stopped(_)
                | FollowUpEvent::Lifted { .. }
                | FollowUpEvent::HostAway(_),
                ..,
            ) => return false,
        }
        true
    }

    /// What came of starting the agent.
    fn tried(&mut self, what: Tried, cx: &mut Context) -> bool {
        let AgentStart::Starting { since, tries, .. } = self.start else {
            // The agent was so quick to read its briefing that this comes after it.
            let read = matches!(what, Tried::Started { .. }) && self.briefing.is_taken();
            if read && self.start == AgentStart::NotTried {
                self.start = AgentStart::Started;
                cx.note(Fact::Started);
                return true;
            }
            return false;
        };
        let tries = tries.saturating_add(1);
        let pause = START_AGAIN.0.saturating_mul(2_u32.saturating_pow(tries.min(16))).min(START_AGAIN.1);
        let again = |running| AgentStart::Starting { since, tries, next: cx.now + pause, running };
        let goes_on = cx.now < since + START_FOR;
        self.start = match what {
            Tried::Started { accepted } => {
                cx.note(Fact::Started);
                if accepted {
                    self.briefing.take();
                }
                AgentStart::Started
            }
            Tried::StartedBefore => AgentStart::StartedBefore,
            Tried::Read => {
                cx.note(Fact::BriefingRead);
                self.overdue = false;
                self.briefing.take();
                AgentStart::NotTried
            }
            Tried::Running if goes_on => again(true),
            Tried::Nothing => AgentStart::NotTried,
            Tried::Running => {
                let why = "it was running the whole time, so askd could not start it".to_owned();
                cx.note(Fact::StartFailed { why: why.clone(), last: true });
                AgentStart::GivenUp { why }
            }
            Tried::Failed(why) => {
                let start = if goes_on { again(false) } else { AgentStart::GivenUp { why: why.clone() } };
                cx.note(Fact::StartFailed { why, last: !goes_on });
                start
            }
        };
        true
    }

    /// Whether it is not decided yet what becomes of the outcome.
    pub(super) fn is_under_way(&self) -> bool {
        match self.briefing.state() {
            DeliveryState::Owed
            | DeliveryState::Ready
            | DeliveryState::TakingBack
            | DeliveryState::TakenBack { .. } => true,
            DeliveryState::Undecided | DeliveryState::Published { .. } | DeliveryState::Taken => {
                matches!(self.start, AgentStart::Starting { .. })
            }
        }
    }
}

/// What came of starting the agent. Only a briefing that is there, or was read, has been a reason for a start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum AgentStart {
    /// Nothing was tried: the briefing is kept for the agent's next start.
    #[default]
    NotTried,
    /// askd has to start the agent.
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
    Started,
    /// Something other than askd started the agent before the briefing was there.
    StartedBefore,
    /// Starting was given up.
    GivenUp {
        /// What came of the last try.
        why: String,
    },
}

/// What a timeout leads to: the ask can still be answered, or the session is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum AfterTimeout {
    /// Nothing, or nothing any more.
    #[default]
    Nothing,
    /// It can be answered until then: the agent is started with the answer.
    Answerable {
        /// When the cards close.
        until: Time,
    },
    /// The agent has asked the same again, so that it cannot be answered any more.
    AskedAgain,
    /// It was answered.
    Answered {
        /// What.
        answers: Answers,
        /// Who.
        by: Person,
        /// When.
        at: Time,
    },
    /// askd has to stop the session, once its response is there and its cards are closed.
    StopOwed,
    /// The session is being stopped.
    Stopping,
    /// The session was stopped.
    Stopped,
}

/// What came of starting an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// It was started.
    Started {
        /// It has the briefing: nothing else will read it.
        accepted: bool,
    },
    /// Something other than askd started it, later than it asked.
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

impl AskState {
    /// What follows the decision; before it, nothing.
    pub fn follow_up(&self) -> &FollowUp {
        if let Stage::Settled { follow_up, .. } = &self.stage { follow_up } else { &FollowUp::NOTHING }
    }

    pub(super) fn follow_up_mut(&mut self) -> Option<&mut FollowUp> {
        if let Stage::Settled { follow_up, .. } = &mut self.stage { Some(follow_up) } else { None }
    }

    /// Changes what follows the decision, if there is one.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut FollowUp)) {
        if let Some(follow_up) = self.follow_up_mut() {
            change(follow_up);
        }
    }

    /// Whether a person said something: only that is worth starting an agent for.
    pub fn is_worth_a_start(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Answered { .. } | Outcome::Dismissed { .. }))
            || self.answered_late_by().is_some()
    }

    /// The answer that came after the timeout, as an outcome, and when it came.
    pub fn late_outcome(&self) -> Option<(Outcome, Time)> {
        let AfterTimeout::Answered { answers, by, at } = &self.follow_up().after_timeout else { return None };
        Some((Outcome::Answered { answers: answers.clone(), by: by.clone() }, *at))
    }

    /// How it ended in the end: by the answer after its timeout, if one came.
    pub fn last_outcome(&self) -> Option<Outcome> {
        self.late_outcome().map(|(late, _)| late).or_else(|| self.outcome().cloned())
    }

    /// Who answered after the timeout.
    pub fn answered_late_by(&self) -> Option<&Person> {
        if let AfterTimeout::Answered { by, .. } = &self.follow_up().after_timeout { Some(by) } else { None }
    }

    /// Whether it can still be answered, after its timeout.
    pub fn is_late_open(&self) -> bool {
        matches!(self.follow_up().after_timeout, AfterTimeout::Answerable { .. })
    }

    /// Since when people can say nothing more about it: the late answer, the end of the time for one, or the end of a block, else the outcome.
    /// `None`: they still can.
    pub fn last_word_at(&self) -> Option<Time> {
        let at = self.settled_at()?;
        if let Some(block) = self.block() {
            return block.lifted.as_ref().map(|lifted| lifted.at);
        }
        let session = &self.rules.session;
        match &self.follow_up().after_timeout {
            AfterTimeout::Answerable { .. } => None,
            // It may have been possible until then.
            AfterTimeout::Nothing if session.start && self.outcome() == Some(&Outcome::TimedOut) => {
                Some(at + session.late_answers)
            }
            _ => Some(self.said_at(at)),
        }
    }

    /// When the last word was said: the late answer, else the outcome of `at`.
    pub(super) fn said_at(&self, at: Time) -> Time {
        if let AfterTimeout::Answered { at, .. } = self.follow_up().after_timeout { at } else { at }
    }

    /// Whether the agent gets the outcome once the host that serves its folder is back.
    pub(super) fn waits_for_host(&self) -> bool {
        self.follow_up().host_away
            && self.is_untaken()
            && (self.waiters.iter().any(|waiter| waiter.carrier.is_file()) || !self.has_no_briefing())
    }

    /// Whether a waiter's response says what came of it in the end: who withdrew is told that alone, and who was told
    /// of a timeout does not know the answer that came later.
    pub(super) fn is_told_all(&self, waiter: &Waiter) -> bool {
        match waiter.told {
            Told::Outcome => self.answered_late_by().is_none(),
            Told::LateAnswer => true,
            Told::Withdrawal | Told::Elsewhere => false,
        }
    }

    /// Whether askd has to act if the process of a waiter is gone while its response lies there.
    pub fn minds_death_of(&self, waiter: &Waiter) -> bool {
        let briefs = self.has_no_briefing() && !self.is_late_open();
        self.is_worth_a_start() || waiter.is_withdrawn() || self.block().is_some() || briefs
    }

    /// Whether the agent has not read yet what a person said: it lies there as a briefing.
    pub fn has_unread_words(&self) -> bool {
        self.has_briefing() && self.is_worth_a_start()
    }

    /// How long it is kept. Words of a person whose briefing still lies there are kept until askd gives up starting the
    /// agent with them, and then as long as any other ask.
    pub(super) fn kept_until(&self, at: Time) -> Time {
        if !self.has_unread_words() {
            return at + self.rules.keep;
        }
        self.said_at(at) + self.rules.session.answer_retention + START_FOR + self.rules.keep
    }

    /// Whether a call that asks the same may be given the outcome as things are.
    pub fn is_free(&self) -> bool {
        let is_over = |response: Delivery| response.is_published() || response.is_taken_back() || response.is_taken();
        (self.is_briefing_over() || self.follow_up().briefing.is_taken_back())
            && self.waiters.iter().all(|waiter| is_over(waiter.response))
    }

    /// Whether something of it lies in the group's folders that may be taken.
    pub fn is_watched(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.response.is_published()) || self.has_briefing()
    }

    /// Whether something about it is not over, so that it cannot be forgotten.
    pub(super) fn is_pending(&self) -> bool {
        let lies =
            |waiter: &Waiter| waiter.response.is_published() || waiter.response.state() == DeliveryState::TakingBack;
        self.waiters.iter().any(lies)
            || self.follow_up().is_under_way()
            || self.is_late_open()
            || matches!(self.follow_up().after_timeout, AfterTimeout::StopOwed | AfterTimeout::Stopping)
    }

    /// Whether anything in it is counted in less than days and so has to follow a clock that is set.
    pub fn counts_time(&self) -> bool {
        self.outcome().is_none() || self.is_pending() || self.widget_deadline().is_some()
    }

    /// Whether its briefing lies there.
    pub fn has_briefing(&self) -> bool {
        self.follow_up().briefing.is_published()
    }

    /// Whether there is no briefing: none now, none before and none owed.
    pub(super) fn has_no_briefing(&self) -> bool {
        self.follow_up().briefing == Delivery::default()
    }
}
