//! The places where people can be asked, behind one port. A channel knows nothing of files, timers
//! or who may answer: the broker asks it to post, look and close, and what people do comes back
//! as events.
//!
//! The inbox needs none of this: it shows the stored asks themselves.

pub mod signed;
pub mod slack;
pub mod web;
pub mod whatsapp;

use crate::host::broker::Broker;
use askd_core::{Ask, ChannelName, Content, Found, Group, Posted, Rejection, Route, Time, Trouble};
use slack::Slack;
use std::time::Duration;
use whatsapp::Whatsapp;

/// The channels that are set up.
#[derive(Debug, Default)]
pub struct Channels {
    slack: Option<Slack>,
    whatsapp: Option<Whatsapp>,
}

/// One that posts.
enum Posting<'a> {
    Slack(&'a Slack),
    Whatsapp(&'a Whatsapp),
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
    pub fn new(slack: Option<Slack>, whatsapp: Option<Whatsapp>) -> Self {
        Self { slack, whatsapp }
    }

    /// Says where what people do is to go.
    pub fn attach(&self, broker: &Broker) {
        if let Some(whatsapp) = &self.whatsapp {
            whatsapp.attach(broker);
        }
    }

    /// Whether this content can be shown on each of these routes.
    pub fn fit(&self, routes: &[Route], group: &Group, content: &Content) -> Result<(), Rejection> {
        routes.iter().try_for_each(|route| match route.channel {
            ChannelName::SLACK => Slack::fits(group, content),
            // Whatever is long is split over messages.
            _ => Ok(()),
        })
    }

    /// The channel of a route, if it is one that posts and is set up.
    fn of(&self, route: Option<&Route>) -> Option<Posting<'_>> {
        match route?.channel {
            ChannelName::SLACK => self.slack.as_ref().map(Posting::Slack),
            ChannelName::WHATSAPP => self.whatsapp.as_ref().map(Posting::Whatsapp),
            _ => None,
        }
    }

    /// Waits for the route's turn in the channel's queue.
    pub async fn turn(&self, route: &Route) {
        match self.of(Some(route)) {
            Some(Posting::Slack(slack)) => slack.turn(&route.chat).await,
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.turn(route).await,
            None => {}
        }
    }

    /// Posts the ask on its route. Calls `progress` for each message that the channel took before the last one. `None`:
    /// the daemon stops before all of it has left.
    pub async fn post(
        &self,
        ask: &Ask,
        route: usize,
        attempt: u8,
        progress: impl Fn() + Send + Sync,
    ) -> Option<Posted> {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => Some(slack.post(ask, route, attempt, progress).await),
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.post(ask, route, attempt).await,
            None => Some(Posted::Never { trouble: Trouble::NotConfigured, why: not_set_up(ask, route) }),
        }
    }

    /// Looks whether the ask was posted on its route.
    pub async fn find(&self, ask: &Ask, route: usize) -> Found {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => slack.find(ask, route).await,
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.find(ask, route).await,
            None => Found::CannotKnow,
        }
    }

    /// Brings an open ask to people's minds.
    pub async fn remind(&self, ask: &Ask, route: usize) {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => slack.remind(ask, route).await,
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.remind(ask, route).await,
            None => {}
        }
    }

    /// Waits until the person of a held widget has written; `false` if that does not happen.
    pub async fn opened(&self, ask: &Ask, route: usize, until: Time) -> bool {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.opened(ask, route, until).await,
            Some(Posting::Slack(_)) | None => false,
        }
    }

    /// Makes an open card show its current deadline. Calling it twice is harmless.
    pub async fn redraw(&self, ask: &Ask, route: usize) -> Closed {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => slack.redraw(ask, route).await,
            // A sent message stays as it is; the next reminder says the new deadline.
            Some(Posting::Whatsapp(_)) | None => Closed::Done,
        }
    }

    /// Makes the card of a block say how often it was asked by now. May be done twice.
    pub async fn recount(&self, ask: &Ask, route: usize) -> Closed {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => slack.recount(ask, route).await,
            // What was sent there stays as it is.
            Some(Posting::Whatsapp(_)) | None => Closed::Done,
        }
    }

    /// Makes the widget say how the ask ended. May be done twice.
    pub async fn close(&self, ask: &Ask, route: usize) -> Closed {
        match self.of(ask.rules.routes.get(route)) {
            Some(Posting::Slack(slack)) => slack.close(ask, route).await,
            Some(Posting::Whatsapp(whatsapp)) => whatsapp.close(ask, route).await,
            None => Closed::Never(not_set_up(ask, route)),
        }
    }
}

fn not_set_up(ask: &Ask, route: usize) -> String {
    let name = ask.rules.routes.get(route).map_or("channel", |route| route.channel.as_str());
    format!("{name} is not set up")
}
