//! The places where people can be asked, behind one port. A channel knows nothing of files, timers
//! or who may answer: the broker asks it to post, look and close, and what people do comes back
//! as events.
//!
//! The inbox needs none of this: it shows the stored asks themselves.

pub mod web;
pub mod whatsapp;

use crate::ask::{Ask, Channel, Found, Posted, Route, Time};
use crate::host::broker::Broker;
use axum::Router;
use std::time::Duration;
use whatsapp::Whatsapp;

/// The channels that are set up.
#[derive(Debug, Default)]
pub struct Channels {
    /// Numbered text by the Cloud API.
    pub whatsapp: Option<Whatsapp>,
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
    /// Says where what people do is to go.
    pub fn attach(&self, broker: &Broker) {
        if let Some(whatsapp) = &self.whatsapp {
            whatsapp.attach(broker);
        }
    }

    /// The webhooks.
    pub fn routes(&self) -> Router {
        match &self.whatsapp {
            Some(whatsapp) => whatsapp.routes(),
            None => Router::new(),
        }
    }

    /// Begins nothing more.
    pub async fn stop(&self) {
        if let Some(whatsapp) = &self.whatsapp {
            whatsapp.stop().await;
        }
    }

    fn whatsapp(&self, ask: &Ask, route: usize) -> Option<&Whatsapp> {
        let on = ask.rules.routes.get(route).is_some_and(|route| route.channel == Channel::Whatsapp);
        self.whatsapp.as_ref().filter(|_| on)
    }

    /// Waits for the route's turn in the channel's queue.
    pub async fn turn(&self, route: &Route) {
        match route.channel {
            Channel::Whatsapp => {
                if let Some(whatsapp) = &self.whatsapp {
                    whatsapp.turn(route).await;
                }
            }
            Channel::Slack | Channel::Web => {}
        }
    }

    /// Posts the ask on its route; within the HTTP timeout.
    pub async fn post(&self, ask: &Ask, route: usize, attempt: u8) -> Posted {
        if let Some(whatsapp) = self.whatsapp(ask, route) {
            return whatsapp.post(ask, route, attempt).await;
        }
        Posted::Never(not_set_up(ask, route))
    }

    /// Looks whether the ask was posted on its route.
    pub async fn find(&self, ask: &Ask, route: usize) -> Found {
        if let Some(whatsapp) = self.whatsapp(ask, route) {
            return whatsapp.find().await;
        }
        Found::CannotKnow
    }

    /// Waits until the person of a held widget has written; `false` if that does not happen.
    pub async fn opened(&self, ask: &Ask, route: usize, until: Time) -> bool {
        match self.whatsapp(ask, route) {
            Some(whatsapp) => whatsapp.opened(ask, route, until).await,
            None => false,
        }
    }

    /// Makes the widget say how the ask ended. May be done twice.
    pub async fn close(&self, ask: &Ask, route: usize) -> Closed {
        if let Some(whatsapp) = self.whatsapp(ask, route) {
            return whatsapp.close(ask, route).await;
        }
        Closed::Never(not_set_up(ask, route))
    }
}

fn not_set_up(ask: &Ask, route: usize) -> String {
    let name = ask.rules.routes.get(route).map_or("channel", |route| route.channel.name());
    format!("{name} is not set up")
}
