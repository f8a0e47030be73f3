//! The pure core: what an ask is and what may happen to it.
//!
//! No I/O, no clock, no async, no randomness: times and ids are arguments, so that every life an
//! ask can have is tested here without a disk or a network. No format of a wire is known here (Slack's,
//! Meta's, MCP's, the request file); these types are the format of an ask's record.
#![cfg_attr(test, expect(clippy::too_many_lines, reason = "a test may be a table, or read from top to bottom"))]

mod channel;
mod lifecycle;
mod names;
mod question;
pub mod record;
mod rejection;
mod reply;
mod shown;
mod time;
mod trouble;
mod typed;
pub mod wording;

pub use channel::{Capabilities, ChannelName, Via};
pub use lifecycle::{
    Accepted, AfterTimeout, AgentStart, Block, Card, Carrier, Delivery, DeliveryEffect, DeliveryEvent, DeliveryState,
    Effect, Event, Face, Fact, FollowUp, FollowUpEffect, FollowUpEvent, Found, Left, Lifted, MAX_WAITERS,
    MessageStatus, OneByOne, Outcome, Post, Posted, Relation, Remark, Sending, SessionRules, SoFar, Stage, Step, Taker,
    Told, Tried, Undelivered, Waiter, WaiterEvent, Widget, WidgetEffect, WidgetEvent, WidgetState,
};
pub use names::{AskId, BadName, Digest, Group, RequestId, ShortId};
pub use question::{
    Choice, Draft, Kind, MAX_CHOICES, MAX_CONTEXT, MAX_DESCRIPTION, MAX_HEADER, MAX_LABEL, MAX_PLACEHOLDER,
    MAX_QUESTION_ID, MAX_QUESTIONS, MAX_TEXT, MAX_TITLE, MAX_TOKEN, Question, Questions, Style, without_nul,
};
pub use rejection::{Limited, Rejection};
pub use reply::{Answers, Given, Heard, Names, Refusal, Reply, Source};
pub use shown::{printable, quoted, shown, turns, without_controls};
pub use time::Time;
pub use trouble::{Cause, Reason, Trouble};
pub use typed::{Mistyped, chosen, numbered};

use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::time::Duration;

/// One `ask_user` call and its life, from the accepted request to the last closed widget. Everybody may read it; only
/// [`Ask::step`] and [`Ask::clock_set`] change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask(AskState);

impl Deref for Ask {
    type Target = AskState;
    fn deref(&self) -> &AskState {
        &self.0
    }
}

/// What an [`Ask`] is at a moment. [`record`] reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskState {
    /// Minted by the host, unguessable; rides in buttons and names the pending file.
    pub id: AskId,
    /// The short code people type where there are no buttons; unique among open asks.
    pub short_id: ShortId,
    /// Whose agent asks: the folder the request came from.
    #[serde(rename = "source_group")]
    pub group: Group,
    /// What is asked.
    #[serde(flatten)]
    pub content: Content,
    /// How long it waits, how often it is posted.
    pub rules: Rules,
    /// Asks of one group with the same key are one ask; `None` joins nothing.
    pub key: Option<Digest>,
    /// Which run of the agent asked, as it said itself.
    #[serde(rename = "session_id")]
    pub session: Option<String>,
    /// Every call that waits for the outcome; the first one made the ask.
    pub waiters: Vec<Waiter>,
    /// The routes by which it was shown so far, each with what was posted there. A route is named by its place here.
    pub widgets: Vec<Widget>,
    /// The routes by which it is shown next.
    pub next_routes: Vec<Route>,
    /// Answers so far, kept apart by person and widget.
    pub so_far: Vec<SoFar>,
    /// The channel's ids of the messages that changed it: none of them counts twice.
    pub heard: Vec<String>,
    /// Whether anything has shown that a person could see it: a proof of display, or a valid reply.
    #[serde(rename = "render_confirmed")]
    pub confirmed: bool,
    /// Whether a page that a person was looking at has displayed it, whatever became of its routes.
    pub viewed: bool,
    /// Whether it was given more time because a person was typing; that happens once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub extended: bool,
    /// Where it is in its life.
    pub stage: Stage,
    /// When the request was accepted.
    #[serde(rename = "timestamp")]
    pub created_at: Time,
}

/// What a person is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// A heading, at most [`MAX_TITLE`] characters.
    pub title: Option<String>,
    /// Background a person needs to decide, at most [`MAX_CONTEXT`] characters.
    pub context: Option<String>,
    /// One to [`MAX_QUESTIONS`] questions.
    pub questions: Questions,
}

impl Content {
    /// Whether a person is shown the same, whatever ids the questions were given.
    pub fn same_as(&self, other: &Self) -> bool {
        self.title == other.title && self.context == other.context && self.questions.same_as(&other.questions)
    }
}

/// How long it waits and how often it is posted. Fixed when the ask is accepted, so
/// that a restart with other settings does not change a question that people already see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// How long a person has, from the moment it was shown.
    #[serde(rename = "timeout_ms", with = "record::millis")]
    pub timeout: Duration,
    /// How long to wait for proof that it was shown, from the moment the post left our queue.
    #[serde(rename = "render_timeout_ms", with = "record::millis")]
    pub render_timeout: Duration,
    /// How often an unshown ask is posted again on one route.
    pub max_retries: u8,
    /// How long the outcome is kept for late clicks and repeated calls.
    #[serde(rename = "keep_ms", with = "record::millis")]
    pub keep: Duration,
    /// When an open ask is brought to mind: after this long, then doubling.
    #[serde(rename = "remind_after_ms", with = "record::millis_if_any")]
    pub remind_after: Option<Duration>,
    /// When an unanswered ask is shown on the next route too, and again on the one after that.
    #[serde(rename = "escalate_after_ms", with = "record::millis_if_any")]
    pub escalate_after: Option<Duration>,
    /// What askd does with an outcome that no call takes.
    pub session: SessionRules,
}

/// A channel and chat of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Which channel.
    pub channel: ChannelName,
    /// The channel's own name of the chat; empty for the inbox, which has one.
    pub chat: String,
    /// Who may answer there.
    pub responders: Responders,
    /// What the platform can do. The daemon asks the channel when it accepts an ask; settings leave it empty.
    pub capabilities: Capabilities,
}

impl Route {
    /// Whether a card is posted there.
    pub fn posts(&self) -> bool {
        !self.capabilities.lists_itself
    }

    /// Whether the channel may still report that a message which it took is not displayed. Where messages can be
    /// changed, the reply to the post is the last word: a card that vanished could not be brought up to date.
    pub(crate) fn reports_statuses(&self) -> bool {
        self.posts() && !self.capabilities.edits
    }
}

/// The people who may answer on a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Responders {
    /// Whoever is in the chat; only when said explicitly.
    Anyone,
    /// These ids of the channel.
    Only(Vec<String>),
}

impl Responders {
    /// Whether a person of this id may answer.
    pub fn includes(&self, id: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Only(ids) => ids.iter().any(|known| known == id),
        }
    }
}

/// Somebody who replied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// How the reply came in.
    #[serde(rename = "channel")]
    pub via: Via,
    /// The channel's id of the person; `operator` for those who hold the inbox token.
    pub id: String,
    /// A name for people to read, if the channel told one.
    pub name: Option<String>,
}

impl Person {
    /// Whether it is the same person, whatever they are called by now.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.via, &self.id) == (&other.via, &other.id)
    }

    /// Whoever holds the inbox token: may answer every group.
    pub fn operator(via: Via) -> Self {
        Self { via, id: "operator".to_owned(), name: None }
    }

    /// What to call them in a sentence.
    pub fn called(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

/// What a waiter wants done when nobody answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutPolicy {
    /// The call returns with `timeout` and the agent goes on.
    ReturnCancel,
    /// The response is written, then the session is stopped.
    AbortTask,
}

impl TimeoutPolicy {
    /// The name used in files and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReturnCancel => "return_cancel",
            Self::AbortTask => "abort_task",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ReturnCancel, Self::AbortTask].into_iter().find(|policy| policy.name() == name)
    }
}
