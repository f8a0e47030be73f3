//! The places where people can be asked, behind one port. A channel knows nothing of files, timers
//! or who may answer: the broker asks it to post, look and close, and what people do comes back
//! as events.
//!
//! The inbox needs none of this: it shows the stored asks themselves.

pub mod slack;
pub mod web;

use crate::ask::{Ask, Channel, Content, Found, Group, Posted, Rejection, Route};
use slack::Slack;
use std::time::Duration;

/// The channels that are set up.
#[derive(Debug, Default)]
pub struct Channels {
    slack: Option<Slack>,
}

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

impl Channels {
    /// With these.
    #[must_use]
    pub fn new(slack: Option<Slack>) -> Self {
        Self { slack }
    }

    /// Whether this content can be shown on each of these routes.
    pub fn fit(&self, routes: &[Route], group: &Group, content: &Content) -> Result<(), Rejection> {
        routes.iter().try_for_each(|route| match route.channel {
            Channel::Slack => Slack::fits(group, content),
            Channel::Whatsapp | Channel::Web => Ok(()),
        })
    }

    /// The channel of a route, if it is one that posts and is set up.
    fn of(&self, route: Option<&Route>) -> Option<&Slack> {
        route.filter(|route| route.channel == Channel::Slack).and(self.slack.as_ref())
    }

    /// Waits for the route's turn in the channel's queue.
    pub async fn turn(&self, route: &Route) {
        if let Some(slack) = self.of(Some(route)) {
            slack.turn(&route.chat).await;
        }
    }

    /// Posts the ask on its route; within the HTTP timeout.
    pub async fn post(&self, ask: &Ask, route: usize, attempt: u8) -> Posted {
        match self.of(ask.rules.routes.get(route)) {
            Some(slack) => slack.post(ask, route, attempt).await,
            None => Posted::Never(not_set_up(ask, route)),
        }
    }

    /// Looks whether the ask was posted on its route.
    pub async fn find(&self, ask: &Ask, route: usize) -> Found {
        match self.of(ask.rules.routes.get(route)) {
            Some(slack) => slack.find(ask, route).await,
            None => Found::CannotKnow,
        }
    }

    /// Makes the widget say how the ask ended. May be done twice.
    pub async fn close(&self, ask: &Ask, route: usize) -> Closed {
        match self.of(ask.rules.routes.get(route)) {
            Some(slack) => slack.close(ask, route).await,
            None => Closed::Never(not_set_up(ask, route)),
        }
    }
}

fn not_set_up(ask: &Ask, route: usize) -> String {
    let name = ask.rules.routes.get(route).map_or("channel", |route| route.channel.name());
    format!("{name} is not set up")
}
