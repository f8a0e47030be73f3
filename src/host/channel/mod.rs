//! The channels of askd. Each is a room of its own that implements the port of [`crate::host::port`] and stands above the
//! broker: what people do there goes to [`Broker::apply`].

pub(super) mod signed;
pub(super) mod slack;
pub mod web;
pub(super) mod whatsapp;

use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::port::Channel;
use crate::host::settings::Settings;
use async_trait::async_trait;
use axum::Router;
use signed::Webhooks;
use std::io;
use std::sync::Arc;

/// Makes a channel from the settings; `None` if they do not set it up. Connects to nothing yet.
pub type Open = fn(&Settings, &Ctx) -> io::Result<Option<Arc<dyn Adapter>>>;

/// A channel with what comes in from it.
#[async_trait]
pub trait Adapter: Channel {
    /// Hands over the broker, before it goes on with stored asks. Returns the addresses that the platform calls: below
    /// `/` and the channel's name.
    fn connect(&self, _broker: &Broker, _webhooks: &Webhooks) -> Router {
        Router::new()
    }

    /// Learns within seconds whether the credentials are good, and tells the operator if they are not.
    async fn greet(&self) {}

    /// Goes on in the background until the daemon stops.
    fn start(&self, _broker: &Broker) {}
}
