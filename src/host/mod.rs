//! The daemon: built from settings, then run until it is told to stop.
//!
//! A request goes `intake` -> `broker` -> `channel`; an answer goes `channel` -> `broker` -> `delivery`. The
//! pure rules of both are in [`askd_core`].

pub mod audit;
mod backoff;
pub mod broker;
pub mod channel;
pub mod client;
mod ctx;
mod delivery;
pub mod folders;
pub mod http;
pub mod intake;
mod keyed_lock;
mod outgoing;
mod places;
mod ready;
pub mod session;
pub mod settings;
pub mod store;
pub mod warnings;

use crate::clock::Clock;
use audit::Audit;
use axum::Router;
use broker::Broker;
use channel::Channels;
use channel::signed::Webhooks;
use channel::slack::Slack;
use channel::web::{Inbox, token};
use channel::whatsapp::Whatsapp;
use ctx::Ctx;
use folders::Folders;
use intake::Intake;
use ready::{Gate, Readiness, Running};
use secrecy::SecretString;
use settings::{Http, Settings};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use warnings::Warnings;

/// Why the daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another file or the network cannot be used.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What came of it.
        error: io::Error,
    },
}

impl DaemonError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    /// Whether another daemon holds the state folder.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Store(StoreError::Held(_)))
    }

    /// Whether a newer askd wrote something that this one would have to understand.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Store(StoreError::Newer { .. }))
    }
}

/// A daemon that is ready to run: it holds its state folder and its address.
#[derive(Debug)]
pub struct Daemon {
    broker: Broker,
    intake: Intake,
    ctx: Ctx,
    token: SecretString,
    slack: Option<Slack>,
    serving: Vec<JoinHandle<io::Result<()>>>,
    address: SocketAddr,
}

/// Where calls go once the asks are loaded.
#[derive(Debug, Default)]
struct Gates {
    inbox: Gate,
    webhooks: Gate,
}

impl Daemon {
    /// Takes the state folder (before the port, so that a second daemon says what is the matter), the
    /// address, and every stored ask.
    pub async fn open(settings: Settings, clock: Clock) -> Result<Self, DaemonError> {
        let (state, ctx) = (settings.state_dir(), Ctx::new(clock));
        let store = Store::open(&state)?;
        let at = |path: &Path| format!("cannot use {}", path.display());
        let folders =
            Folders::open(settings.ipc_dir(), settings.access).map_err(DaemonError::io(at(&settings.ipc_dir())))?;
        let audit = Audit::open(&state, settings.keep_audit).map_err(DaemonError::io(at(&state)))?;
        let token = match settings.web_token.clone() {
            Some(token) => token,
            None => token(&state).map_err(DaemonError::io("the inbox token"))?,
        };
        let listener = http::bind(settings.http.listen).await.map_err(DaemonError::io("http"))?;
        let address = listener.local_addr().map_err(DaemonError::io("http"))?;
        let webhooks = match settings.http.webhook_listen {
            Some(listen) => Some(http::bind(listen).await.map_err(DaemonError::io("http.webhook_listen"))?),
            None => None,
        };
        let slack = settings.slack.clone().map(|slack| Slack::new(slack, ctx.clone())).transpose();
        let slack = slack.map_err(DaemonError::io("slack: the certificates of this machine cannot be read"))?;
        let whatsapp = settings.whatsapp.clone().map(|whatsapp| Whatsapp::open(whatsapp, &state, ctx.clone()));
        let whatsapp = whatsapp.transpose().map_err(DaemonError::io("whatsapp"))?;
        // From now on the health calls answer: reading many asks takes time.
        let (readiness, gates) = (Readiness::new(ctx.clone()), Gates::default());
        let serving = serve(&settings.http, &ctx, &readiness, &gates, listener, webhooks);
        let settings = Arc::new(settings);
        let channels = Channels::new(slack.clone(), whatsapp.clone());
        let (loading, its) = (readiness.loading(), (folders.clone(), ctx.clone(), Arc::clone(&settings)));
        let load = move || Broker::start(store, its.0, audit, channels, its.1, its.2, &loading);
        let broker = tokio::task::spawn_blocking(load).await.map_err(io::Error::other);
        let broker = broker.map_err(DaemonError::io("the stored asks"))??;
        let warnings = Warnings::new(ctx.clock().clone());
        let signed = Webhooks::new(ctx.clock().clone(), warnings.clone());
        let mut signed_routes = Router::new();
        if let Some(slack) = &slack {
            signed_routes = slack.routes(&broker, &signed).unwrap_or_default();
        }
        if let Some(whatsapp) = &whatsapp {
            signed_routes = signed_routes.merge(whatsapp.routes(&signed));
        }
        let intake = Intake::new(broker.clone(), folders, ctx.clone(), warnings);
        let intake = intake.map_err(DaemonError::io("the watch of the groups' folders"))?;
        gates.inbox.open(Inbox::new(broker.clone(), token.clone(), ctx.clone()).routes());
        gates.webhooks.open(signed_routes);
        let (of, slack_too) = (broker.clone(), slack.clone());
        readiness.runs(Running { broker: of, round: intake.look_round(), slack: slack_too, whatsapp });
        Ok(Self { broker, intake, ctx, token, slack, serving, address })
    }

    /// Where it listens: the port is known even if it was chosen by the system.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token of its inbox.
    #[must_use]
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// What it does with asks: for reloading the settings.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Learns within seconds whether its tokens are good, and says so if they are not.
    pub async fn greet(&self) {
        if let Some(slack) = &self.slack {
            slack.greet().await;
        }
    }

    /// Runs until `stop`, finishes what is in flight within a bound, and loses nothing.
    pub async fn run(self, stop: CancellationToken) -> Result<(), DaemonError> {
        let ctx = self.ctx;
        if let Some(slack) = &self.slack {
            slack.start(&self.broker);
        }
        ctx.finish(self.intake.run());
        let told = ctx.clone();
        ctx.spawn(async move {
            stop.cancelled().await;
            told.begin_stop();
        });
        let served = futures_util::future::try_join_all(self.serving).await;
        let served = served.map_err(io::Error::other).and_then(|served| served.into_iter().collect());
        // Told to, or because serving failed.
        ctx.stop().await;
        served.map_err(DaemonError::io("http"))
    }
}

/// Serves only the health calls at first; the rest waits behind the gates.
fn serve(
    http: &Http,
    ctx: &Ctx,
    readiness: &Readiness,
    gates: &Gates,
    listener: TcpListener,
    webhooks: Option<TcpListener>,
) -> Vec<JoinHandle<io::Result<()>>> {
    let begin = |listener, routes, open| {
        let (http, own) = (http.clone(), ctx.clone());
        ctx.finish(async move { http::serve(listener, &http, routes, open, &own).await })
    };
    let (inbox, health) = (gates.inbox.routes(), readiness.routes());
    let open = health.clone().merge(gates.webhooks.webhooks());
    match webhooks {
        None => vec![begin(listener, inbox, open)],
        Some(apart) => vec![begin(listener, inbox, health), begin(apart, Router::new(), open)],
    }
}
