//! The places where people can be asked, behind one port. A channel knows nothing of files, timers
//! or who may answer: the broker asks it to post, look and close, and what people do comes back
//! as events.
//!
//! The inbox needs none of this: it shows the stored asks themselves.

pub mod web;

use crate::ask::{Ask, Channel, Found, Posted, Route};
use std::time::Duration;

/// The channels that are set up.
#[derive(Debug, Default)]
pub struct Channels {}

/// What came of closing a widget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// It says how the ask ended, or is gone.
    Done,
    /// Not now; not sooner than after this, if the channel said so.
    Later(Option<Duration>),
    /// It never will, and this is why: the operator is told.
    Never(String),
}

#[expect(clippy::unused_async, reason = "the port is asynchronous; no channel that posts is built yet")]
impl Channels {
    /// Waits for the route's turn in the channel's queue.
    pub async fn turn(&self, route: &Route) {
        match route.channel {
            Channel::Slack | Channel::Whatsapp | Channel::Web => {}
        }
    }

    /// Posts the ask on its route; within the HTTP timeout.
    pub async fn post(&self, ask: &Ask, route: usize, _attempt: u8) -> Posted {
        Posted::Never(not_set_up(ask, route))
    }

    /// Looks whether the ask was posted on its route.
    pub async fn find(&self, _ask: &Ask, _route: usize) -> Found {
        Found::CannotKnow
    }

    /// Makes the widget say how the ask ended. May be done twice.
    pub async fn close(&self, ask: &Ask, route: usize) -> Closed {
        Closed::Never(not_set_up(ask, route))
    }
}

fn not_set_up(ask: &Ask, route: usize) -> String {
    let name = ask.rules.routes.get(route).map_or("channel", |route| route.channel.name());
    format!("{name} is not set up")
}
