//! What the broker has to do after a step, nested by machine: a new effect does not compile until the shell has dealt
//! with it.

use super::{Fact, Taker};
use crate::{RequestId, Time};
use serde::{Deserialize, Serialize};

/// Something that has to be done now that the ask is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Do something about the widget of a route.
    Widget {
        /// The route.
        route: usize,
        /// What to do.
        effect: WidgetEffect,
    },
    /// Do something about the outcome on its way to a taker.
    Delivery {
        /// The taker.
        to: Taker,
        /// What to do.
        effect: DeliveryEffect,
    },
    /// Do something that follows the decision.
    FollowUp(FollowUpEffect),
    /// Tell every waiter where the ask is (`.status`).
    Status,
    /// Find out which run of the session made a request; may come back as [`WaiterEvent::Identified`].
    Identify(RequestId),
    /// For the audit log, the log and the metrics.
    Note(Fact),
    /// Nothing is owed any more: keep it as an outcome only.
    Retire,
    /// The outcome has been kept long enough.
    Forget,
}

/// Something to do about a widget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WidgetEffect {
    /// Line up for the route's channel; comes back as [`WidgetEvent::SlotGranted`].
    Queue {
        /// Not sooner than this.
        not_before: Time,
    },
    /// Post it now; comes back as [`WidgetEvent::Posted`].
    Send {
        /// The try.
        attempt: u8,
    },
    /// Look whether it was posted; comes back as [`WidgetEvent::Looked`].
    Look,
    /// Wait until the person has written; comes back as [`WidgetEvent::Opened`].
    Await {
        /// Not longer than this.
        until: Time,
    },
    /// Bring its card up to date; comes back as [`WidgetEvent::Updated`].
    Update,
    /// Remind people of it. Not owed after a crash: the next one comes.
    Remind,
}

/// Something to do about an outcome on its way to a taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeliveryEffect {
    /// Write and sync it. A response comes back as [`DeliveryEvent::Written`], a briefing, which is there at once, as
    /// [`DeliveryEvent::Published`].
    Write,
    /// Put it where its taker looks for it; comes back as [`DeliveryEvent::Published`].
    Publish,
    /// Put it out of its taker's reach; comes back as [`DeliveryEvent::TakenBack`].
    TakeBack {
        /// Since when it had been there, if that is known.
        since: Option<Time>,
    },
}

/// Something to do after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowUpEffect {
    /// Start the agent; comes back as [`FollowUpEvent::Tried`].
    Start,
    /// Stop the session; comes back as [`FollowUpEvent::Stopped`].
    Stop,
    /// Remove what was put out of its takers' reach: the record says what became of it.
    Tidy,
}

impl WidgetEffect {
    /// The effect on the widget of this route.
    pub const fn on(self, route: usize) -> Effect {
        Effect::Widget { route, effect: self }
    }
}

impl DeliveryEffect {
    /// The effect on the delivery to this taker.
    pub const fn to(self, to: Taker) -> Effect {
        Effect::Delivery { to, effect: self }
    }

    /// The effect on the response to this request.
    pub const fn of(self, request_id: RequestId) -> Effect {
        self.to(Taker::Waiter(request_id))
    }
}
