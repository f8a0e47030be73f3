//! A route of an ask, and the card that was posted there: how far it is, and which messages it consists of. The steps that
//! lead on are in [`super::showing`] and [`super::one_by_one`]; what the card shows is in [`super::face`].

use super::{Card, Context, Face, Sending, WidgetEffect};
use crate::{Reason, Route, Time, Trouble};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a look into a history may take: Slack may allow one call in a minute. A history that cannot be read for so long tells nothing
/// any more.
const LOOK_FOR: Duration = Duration::from_secs(120);
/// How long the status of a message may take, which is all that a channel without a history says.
const STATUS_WITHIN: Duration = Duration::from_secs(60);

/// A route, and what was posted there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widget {
    /// The route.
    pub route: Route,
    /// Which try this is, from 1.
    pub attempt: u8,
    /// How far it is.
    pub state: WidgetState,
    /// What was posted; the last one is the card people use.
    pub posts: Vec<Post>,
    /// Where several questions are asked one after the other: how far that is.
    pub one_by_one: OneByOne,
    /// When its questions were sent, to whom, and what came of that.
    pub sendings: Vec<Sending>,
    /// Why the last try was not shown, as long as no card is up.
    pub trouble: Option<Trouble>,
}

/// A message that was posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// The channel's id of it.
    pub message_id: String,
    /// The number of the question that it asked; `0` if it asks all of them.
    pub question: usize,
    /// It asked none: it only invited the person to write, so a quote of it says nothing about a question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub invitation: bool,
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
        /// The card.
        card: Card,
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
    /// Nothing more is posted.
    Closed {
        /// The card says how the ask ended; `None`: there is none that would have to.
        card: Option<Card>,
    },
}

impl Widget {
    /// How long to look for what became of a post.
    pub(super) fn looks_for(&self) -> Duration {
        if self.route.capabilities.history { LOOK_FOR } else { STATUS_WITHIN }
    }

    pub(super) fn new(route: Route, now: Time) -> Self {
        Self {
            route,
            attempt: 1,
            state: WidgetState::Queued { not_before: now, until: now },
            posts: Vec::new(),
            one_by_one: OneByOne::default(),
            sendings: Vec::new(),
            trouble: None,
        }
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.trouble.map(|trouble| Reason { channel: self.route.channel, trouble })
    }

    /// People see it, without proof so far.
    pub(super) fn up(&mut self, at: Time, fall_back_at: Option<Time>, face: Face) {
        self.state = WidgetState::Up { at, proven: false, fall_back_at, card: Card::Shows(face) };
        self.trouble = None;
    }

    /// Keeps the channel's id of a message, and which question it asked.
    pub(super) fn remember(&mut self, message_id: String, question: usize) -> bool {
        self.keep(Post { message_id, question, invitation: false })
    }

    /// Keeps the channel's id of a message that invites the person to write.
    pub(super) fn invited(&mut self, message_id: String) {
        let question = self.one_by_one.index;
        self.keep(Post { message_id, question, invitation: true });
    }

    fn keep(&mut self, post: Post) -> bool {
        let new = !self.knows(&post.message_id);
        if new {
            self.posts.push(post);
        }
        new
    }

    /// The channel's ids of what was posted; the last one is the card people use.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.posts.iter().map(|post| post.message_id.as_str())
    }

    /// Whether it was posted again without knowing what came of an earlier post: that one may be up, too.
    pub fn may_be_up_twice(&self) -> bool {
        self.attempt > 1 || self.one_by_one.repeated
    }

    /// The person who is asked now: the chat of the route, or another one who is answering.
    pub fn asked(&self) -> &str {
        self.one_by_one.to.as_ref().unwrap_or(&self.route.chat)
    }

    /// Whether that message was posted here.
    pub(super) fn knows(&self, message: &str) -> bool {
        self.messages().any(|known| known == message)
    }

    /// Which question the message of that id asked.
    pub fn question_of(&self, message: &str) -> Option<usize> {
        self.posts.iter().find(|post| post.message_id == message && !post.invitation).map(|post| post.question)
    }

    /// The message that last invited the person to write.
    pub fn invitation(&self) -> Option<&str> {
        self.posts.iter().rfind(|post| post.invitation).map(|post| post.message_id.as_str())
    }

    /// Which try of the question that is on its way this is, from 1.
    pub fn tries(&self) -> u8 {
        self.nth_try(self.attempt)
    }

    /// The same of an earlier attempt.
    pub fn nth_try(&self, attempt: u8) -> u8 {
        attempt.saturating_sub(self.one_by_one.first_attempt.max(1)).saturating_add(1)
    }

    /// People have seen it there, or a part of it, as far as is known.
    pub fn was_shown(&self) -> bool {
        let taken = self.one_by_one.seen || self.posts.iter().any(|post| !post.invitation);
        match self.state {
            WidgetState::Up { .. } => true,
            // What the channel took first was not displayed.
            WidgetState::Failed { .. } => self.one_by_one.seen,
            WidgetState::Closed { .. } => taken || !self.route.posts(),
            WidgetState::Queued { .. }
            | WidgetState::Sent { .. }
            | WidgetState::Unknown { .. }
            | WidgetState::Held { .. } => taken,
        }
    }

    /// More of it is posted: it may take until then. `false`: it may anyway, or it is not being posted.
    pub(super) fn progress(&mut self, due: Time) -> bool {
        let WidgetState::Sent { render_by, .. } = &mut self.state else { return false };
        let is_later = *render_by < due;
        *render_by = due.max(*render_by);
        is_later
    }

    /// Waits in our own queue.
    pub(super) fn queue(&mut self, route: usize, not_before: Time, until: Time, cx: &mut Context) {
        self.state = WidgetState::Queued { not_before, until };
        cx.act(WidgetEffect::Queue { not_before }.on(route));
    }

    /// Another question, or the same one on another footing: lines up anew.
    pub(super) fn line_up(&mut self, route: usize, until: Time, cx: &mut Context) {
        self.attempt = self.attempt.saturating_add(1);
        self.one_by_one.first_attempt = self.attempt;
        self.one_by_one.repeated = false;
        self.queue(route, cx.now, until, cx);
    }

    /// People may see something of it although nothing is known to be up: a question that went before, a message that asked
    /// them to write, or a card whose post got no reply before the history could not be read. Who closes it looks for it.
    pub(super) fn may_stand(&self) -> bool {
        self.one_by_one.seen || self.one_by_one.repeated && self.route.capabilities.history
    }

    /// Nothing is up at the moment, but people know of it: they are told how it ended.
    pub(super) fn came_up(&mut self, at: Time) {
        self.state = WidgetState::Up { at, proven: true, fall_back_at: None, card: Card::Shows(Face::Open) };
    }
}
