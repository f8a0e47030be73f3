//! What can happen to an ask, nested by machine: a new event does not compile until the core has dealt with it.

use super::{Face, Left, Tried, Waiter};
use crate::{Person, Reply, RequestId, Source, Time, Trouble};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The daemon has started again. It has to look for what it was posting when it ended; a post that is not there
    /// does not count as a try.
    Interrupted,
    /// The computer lost its power after the ask was stored, so that more may have been done than the record says.
    PowerLost,
    /// Its group keeps too many outcomes, and this is the oldest of them that may go.
    Crowded,
    /// Another request of the agent concerns this ask.
    Requested(Relation),
    /// A page that a person is looking at displays the ask, whatever its routes are.
    Viewed,
    /// A page holds words of a person that were not sent yet.
    Typing,
    /// A person replied.
    Replied {
        /// On which widget, or with the token.
        source: Source,
        /// Who.
        person: Person,
        /// What.
        reply: Reply,
    },
    /// A person lets the questions be asked again.
    Allow {
        /// On which card, or with the token.
        source: Source,
        /// Who.
        person: Person,
        /// By which message, where each has an id: its copies change nothing.
        heard: Option<String>,
    },
    /// This operator withdrew the whole ask.
    Cancel(Person),
    /// Something happened to the widget of a route.
    Widget {
        /// The route.
        route: usize,
        /// What.
        event: WidgetEvent,
    },
    /// Something happened to the outcome on its way to a taker.
    Delivery {
        /// The taker.
        to: Taker,
        /// What.
        event: DeliveryEvent,
    },
    /// Something happened to a waiting call.
    Waiter {
        /// Its request.
        request_id: RequestId,
        /// What.
        event: WaiterEvent,
    },
    /// Something happened after the decision.
    FollowUp(FollowUpEvent),
}

/// Another request of the agent, by how it relates to the ask.
#[derive(Debug, Clone)]
pub enum Relation {
    /// It asks the same while the ask is open.
    Joins(Box<Waiter>),
    /// It asks what is blocked.
    JoinsBlocked(Box<Waiter>),
    /// It asks the same after the decision, and is given the outcome that no call has taken.
    JoinsSettled(Box<Waiter>),
    /// It asks the same, and waited while another call was given the outcome: it is given it, too.
    Shares(Box<Waiter>),
    /// It will ask the same after the decision. The briefing and the responses of these waiters are taken back for it.
    Reclaims(Vec<RequestId>),
    /// The ask knows it already: the agent made it once more, in a file that was called so once askd had claimed it.
    Replays(RequestId, Option<String>),
    /// It became a new ask with the same key.
    Supersedes,
}

/// Something that happened to a widget.
#[derive(Debug, Clone)]
pub enum WidgetEvent {
    /// The queue of the channel has reached it.
    SlotGranted,
    /// The call that sends it has returned.
    Posted {
        /// The try it belongs to.
        attempt: u8,
        /// What the channel said.
        posted: Posted,
    },
    /// The channel has taken one of the messages of a card that needs several; more follow.
    Progress {
        /// The try it belongs to.
        attempt: u8,
    },
    /// A look into the channel's history has ended.
    Looked(Found),
    /// Something shows that a person could see it.
    Proof,
    /// The channel reports the status of a message that it had taken and cannot change.
    Status {
        /// The try the message belongs to.
        attempt: u8,
        /// The question it asks.
        question: usize,
        /// The channel's id of it.
        message: String,
        /// The status.
        status: MessageStatus,
        /// When, by the platform's clock, if it says.
        at: Option<Time>,
    },
    /// The person has written: what was held can be posted.
    Opened,
    /// A person used a message of ours, known to the ask or not: the channel's id of it.
    Spotted(String),
    /// The message of that id is not there any more.
    Gone(String),
    /// A reminder was due, and the channel has sent it or left it out.
    Reminded {
        /// Whether it was sent.
        sent: bool,
    },
    /// Its card shows this now, or never will show anything else.
    Updated(Face),
}

/// Who takes an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taker {
    /// The waiting call of this request, by its response.
    Waiter(RequestId),
    /// The agent's next start, by the briefing.
    Briefing,
}

/// Something that happened to an outcome on its way to a taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryEvent {
    /// It is synced under a name of our own.
    Written,
    /// It is where its taker looks for it. Of a briefing, [`FollowUpEvent::Briefed`] says so.
    Published,
    /// The taker has taken it.
    Taken {
        /// Since when it had been there.
        since: Time,
    },
    /// The folder in which it lay is gone, or another one is in its place: nobody took it.
    Lost {
        /// Since when it had been there.
        since: Time,
    },
    /// It was put out of its taker's reach.
    TakenBack {
        /// It was not there any more: the taker has it.
        taken: bool,
    },
}

/// Something that happened to a waiting call.
#[derive(Debug, Clone)]
pub enum WaiterEvent {
    /// The agent withdrew it.
    Withdrawn,
    /// A probe has told which run of the session made it.
    Identified {
        /// The run.
        run: String,
    },
    /// Its process is gone, and its response still lies there, or a later call waits.
    Died,
    /// Its process was thought gone, and gives a sign of life.
    Resumed,
    /// A call over HTTP says that it has its outcome.
    Collected {
        /// The taker: only the first one has it.
        by: String,
    },
}

/// Something that happened after the decision.
#[derive(Debug, Clone)]
pub enum FollowUpEvent {
    /// A briefing is where the agent looks for it.
    Briefed {
        /// Which of the ask's briefings: by now another one may be owed, with what has come since.
        nth: u32,
    },
    /// A start of the agent was tried.
    Tried {
        /// Which of the ask's briefings the agent was started with: by now askd may be briefing another session.
        nth: u32,
        /// What came of it.
        what: Tried,
    },
    /// Whether the session was stopped; else there is nothing left to stop it with.
    Stopped(bool),
    /// The block has ended, and this person allowed it.
    Lifted {
        /// `None`: the question was answered elsewhere, or its attempts were forgotten.
        by: Option<Person>,
    },
    /// Whether the host that serves the folder of the ask's group is away.
    HostAway(bool),
}

impl Event {
    /// The person who replied or allowed, and who is told why if the ask refuses that.
    pub fn person(&self) -> Option<&Person> {
        match self {
            Self::Replied { person, .. } | Self::Allow { person, .. } => Some(person),
            Self::Tick
            | Self::Interrupted
            | Self::PowerLost
            | Self::Crowded
            | Self::Requested(_)
            | Self::Viewed
            | Self::Typing
            | Self::Cancel(_)
            | Self::Widget { .. }
            | Self::Delivery { .. }
            | Self::Waiter { .. }
            | Self::FollowUp(_) => None,
        }
    }
}

impl WidgetEvent {
    /// The event of the widget of this route.
    pub fn on(self, route: usize) -> Event {
        Event::Widget { route, event: self }
    }
}

impl DeliveryEvent {
    /// The event of the delivery to this taker.
    pub fn to(self, to: Taker) -> Event {
        Event::Delivery { to, event: self }
    }

    /// The event of the response to this request.
    pub fn of(self, request_id: RequestId) -> Event {
        self.to(Taker::Waiter(request_id))
    }
}

impl WaiterEvent {
    /// The event of the waiter of this request.
    pub fn of(self, request_id: RequestId) -> Event {
        Event::Waiter { request_id, event: self }
    }
}

/// What came of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// Up, and that is proof enough that people can see it; the channel's id of the message.
    Shown(String),
    /// Taken by the channel, not proven to be displayed; the channel's ids of the messages, and when the last one left.
    Accepted(Vec<String>, Option<Left>),
    /// Cannot be posted before the person writes; the channel's id of the message that asks for that.
    Held(String),
    /// Certainly not posted; worth another try, not sooner than after this many milliseconds.
    NotPosted {
        /// What the channel asked for (`Retry-After`).
        retry_after_millis: Option<u64>,
        /// Why.
        trouble: Trouble,
    },
    /// It is unknown whether it was posted; holds when it left, if it did.
    Unknown(Option<Left>),
    /// Certainly not posted, and no retry will mend it.
    Never {
        /// What the agent is told.
        trouble: Trouble,
        /// What the operator is told, and how to mend it.
        why: String,
    },
}

/// What became of a message that a channel had taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageStatus {
    /// It is the channel's; where a question needs several messages, all but the last say only this.
    Known,
    /// The channel has it, and with it the whole question.
    Taken,
    /// It is on the person's screen.
    Displayed,
    /// It never will be.
    Failed {
        /// What helps against that.
        why: Undelivered,
        /// What the agent is told.
        trouble: Trouble,
    },
}

/// What helps against a message that was taken and did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undelivered {
    /// The person has to write first.
    WindowClosed,
    /// Another message may arrive, not before this pause.
    ForNow(Option<Duration>),
    /// Nothing.
    ForGood,
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
