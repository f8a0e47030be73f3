//! The web inbox: one page, and the HTTP API that it and the command line use.
//!
//! `people` is the whole of the access control: it says who calls and which groups they see. There are no
//! cookies, so there is nothing that another page could make a browser send along.

mod api;
mod export;
mod listing;
mod page;
mod people;
mod problem;
mod push;
mod token;
mod tokens;
mod view;

pub use people::Peer;
use people::People;
pub use problem::Problem;
pub use token::KeptToken;

use super::Adapter;
use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::port::{Channel, Progress, Updated};
use crate::host::status::Status;
use crate::host::store::Documents;
use crate::host::tokens::Tokens;
use askd_core::{Ask, Capabilities, ChannelName, Posted};
use async_trait::async_trait;
use axum::Router;
use push::Push;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What the inbox needs. Cheap to clone, which each call does several times.
#[derive(Debug, Clone)]
pub struct Inbox(Arc<Parts>);

#[derive(Debug)]
pub struct Parts {
    broker: Broker,
    people: Arc<People>,
    ctx: Ctx,
    status: Status,
    push: Push,
    /// Of agents that ask over HTTP.
    tokens: Tokens,
    /// Places for streams of events.
    streams: Arc<Semaphore>,
}

impl Deref for Inbox {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Streams of events at a time: one for each browser that has the inbox open, or for each tab over plain HTTP to another host.
const STREAMS: usize = 32;

impl Inbox {
    /// An inbox that ends its streams when the daemon stops. It keeps in `documents` which browsers are pushed to.
    pub fn new(
        broker: Broker,
        token: KeptToken,
        ctx: Ctx,
        status: Status,
        documents: Arc<dyn Documents>,
        tokens: Tokens,
    ) -> io::Result<Self> {
        let people = Arc::new(People::new(token, broker.clone()));
        let push = Push::open(broker.clone(), Arc::clone(&people), &ctx, documents)?;
        let streams = Arc::new(Semaphore::new(STREAMS));
        Ok(Self(Arc::new(Parts { broker, people, ctx, status, push, tokens, streams })))
    }

    /// The page and the API.
    pub fn routes(self) -> Router {
        page::routes().merge(api::routes(self))
    }
}

/// The inbox as a channel: every ask is up as soon as it is stored, and the page shows what it is now.
#[derive(Debug)]
pub(in crate::host) struct Web;

#[async_trait]
impl Channel for Web {
    fn name(&self) -> ChannelName {
        ChannelName::WEB
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { forms: true, lists_itself: true, ..Capabilities::default() }
    }

    async fn post(&self, _ask: &Ask, _route: usize, _attempt: u8, _progress: Progress<'_>) -> Option<Posted> {
        None
    }

    async fn update(&self, _ask: &Ask, _route: usize) -> Updated {
        Updated::Done
    }
}

impl Adapter for Web {}
