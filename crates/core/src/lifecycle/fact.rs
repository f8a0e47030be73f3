//! What is worth remembering of an ask: for the audit log, the log and the metrics. A step notes it;
//! nothing is decided by it.

use crate::{Person, RequestId};
use serde::{Deserialize, Serialize};

/// Something worth remembering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The ask was accepted and stored.
    Asked,
    /// Another call joined it.
    Joined(RequestId),
    /// One of its calls was withdrawn.
    WaiterWithdrawn(RequestId),
    /// The process of a waiting call was gone, and a later call waits instead.
    Replaced(RequestId),
    /// Listed, or handed to a channel.
    Posted {
        /// The route.
        route: usize,
        /// The try.
        attempt: u8,
    },
    /// Proven to be displayed.
    Shown {
        /// The route.
        route: usize,
    },
    /// No proof of display in time, or certainly not posted.
    NotShown {
        /// The route.
        route: usize,
        /// The try.
        attempt: u8,
    },
    /// Decided.
    Settled,
    /// A response is there to be taken.
    Delivered(RequestId),
    /// A response was taken.
    Taken(RequestId),
    /// A response was not taken, and was put out of its waiter's reach.
    TakenBack(RequestId),
    /// The briefing for the agent's next start is there.
    Briefed,
    /// The agent has read it.
    BriefingRead,
    /// The agent was started with it.
    Started,
    /// The agent could not be started.
    StartFailed {
        /// In words.
        why: String,
        /// It is not tried again.
        last: bool,
    },
    /// Somebody answered after the timeout.
    LateAnswer,
    /// The session was stopped after a timeout.
    Stopped,
    /// It was brought to people's minds.
    Reminded {
        /// The route.
        route: usize,
    },
    /// That was due, and the channel left it out.
    NotReminded {
        /// The route.
        route: usize,
    },
    /// Nobody answered, so it is shown on a further route.
    Escalated {
        /// The route.
        route: usize,
    },
    /// Its questions may be asked again: counting starts anew.
    AllowedAgain {
        /// Who said so.
        by: Person,
    },
    /// A block has ended.
    Unblocked,
    /// A widget says how it ended.
    Closed {
        /// The route.
        route: usize,
    },
}
