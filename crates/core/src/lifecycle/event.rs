//! What can happen to an ask, and what is then to be done: the words between the core and whoever acts for it.

use super::{Fact, Left, Remark, Tried, Waiter};
use crate::{Person, Reply, RequestId, Time, Trouble};

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
    /// The channel has taken one of the messages of a card that needs several; more follow.
    Progress {
        /// The route.
        route: usize,
        /// The try it belongs to.
        attempt: u8,
    },
    /// The daemon has started again. It has to look for what it was posting when it ended; a post that is not there
    /// does not count as a try.
    Interrupted,
    /// What a look into the channel's history found.
    Looked {
        /// The route.
        route: usize,
        /// What it found.
        found: Found,
    },
    /// A page that a person is looking at displays the ask, whatever its routes are.
    Viewed,
    /// Something shows that a person could see it.
    Proof {
        /// The route.
        route: usize,
    },
    /// The channel tells later what became of a message it had taken.
    MessageStatus {
        /// The route.
        route: usize,
        /// The try the message belongs to.
        attempt: u8,
        /// The question it asks.
        part: usize,
        /// The channel's id of it.
        message: String,
        /// What became of it.
        fate: MessageStatus,
        /// When, by the platform's clock, if it says.
        at: Option<Time>,
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
    /// A call asks the same: what nobody took is to be taken back for it, the responses of these waiters too.
    Reclaim(Vec<RequestId>),
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
    /// Taken by the channel, not proven to be displayed; the channel's ids of the messages, and when the last one left.
    Accepted(Vec<String>, Option<Left>),
    /// Cannot be posted before the person writes, who was asked to; the channel's id of that message.
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
        /// Because the person has to write first.
        window: bool,
        /// What the agent is told.
        trouble: Trouble,
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
    /// Redraw the open card, because its deadline has moved. Not owed after a crash.
    Redraw {
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
