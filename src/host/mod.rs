//! The daemon: built from settings, then run until it is told to stop.
//!
//! A request goes `intake` -> `broker` -> `channel`; an answer goes `channel` -> `broker` -> `delivery`. The
//! pure rules of both are in [`crate::ask`].

pub mod audit;
pub mod broker;
pub mod channel;
pub mod client;
mod ctx;
mod delivery;
pub mod demo;
pub mod folders;
pub mod http;
pub mod intake;
mod places;
pub mod session;
pub mod settings;
pub mod store;
pub mod warnings;

use crate::clock::Clock;
use audit::Audit;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use broker::Broker;
use channel::Channels;
use channel::signed::Webhooks;
use channel::slack::Slack;
use channel::web::{Inbox, token};
use channel::whatsapp::Whatsapp;
use ctx::Ctx;
use folders::Folders;
use intake::Intake;
use secrecy::SecretString;
use settings::Settings;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use store::{Store, StoreError};
use tokio::net::TcpListener;
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
}

/// A daemon that is ready to run: it holds its state folder and its address.
#[derive(Debug)]
pub struct Daemon {
    settings: Arc<Settings>,
    broker: Broker,
    folders: Folders,
    ctx: Ctx,
    token: SecretString,
    slack: Option<Slack>,
    whatsapp: Option<Whatsapp>,
    listener: TcpListener,
    webhooks: Option<TcpListener>,
    address: SocketAddr,
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
        let settings = Arc::new(settings);
        let channels = Channels::new(slack.clone(), whatsapp.clone());
        let broker = Broker::start(store, folders.clone(), audit, channels, ctx.clone(), Arc::clone(&settings))?;
        Ok(Self { settings, broker, folders, ctx, token, slack, whatsapp, listener, webhooks, address })
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
        let routes = Inbox::new(self.broker.clone(), self.token, ctx.clone()).routes();
        let health = health(self.broker.clone(), ctx.clone());
        let warnings = Warnings::new(ctx.clock().clone());
        let signed = Webhooks::new(ctx.clock().clone(), warnings.clone());
        let mut webhooks = Router::new();
        if let Some(slack) = &self.slack {
            slack.start(&self.broker);
            webhooks = slack.routes(&self.broker, &signed).unwrap_or_default();
        }
        if let Some(whatsapp) = &self.whatsapp {
            webhooks = webhooks.merge(whatsapp.routes(&signed));
        }
        let intake = Intake::new(self.broker.clone(), self.folders, ctx.clone(), warnings);
        ctx.finish(intake.map_err(DaemonError::io("the watch of the groups' folders"))?.run());
        let told = ctx.clone();
        ctx.spawn(async move {
            stop.cancelled().await;
            told.begin_stop();
        });
        let http = &self.settings.http;
        let served = match self.webhooks {
            None => http::serve(self.listener, http, routes, health.merge(webhooks), &ctx).await,
            Some(apart) => {
                let inbox = http::serve(self.listener, http, routes, health.clone(), &ctx);
                let webhooks = http::serve(apart, http, Router::new(), health.merge(webhooks), &ctx);
                tokio::try_join!(inbox, webhooks).map(drop)
            }
        };
        // Told to, or because serving failed.
        ctx.stop().await;
        served.map_err(DaemonError::io("http"))
    }
}

/// `/healthz`: the process runs. `/readyz`: asks and answers can be taken. Neither needs a token or a name.
fn health(broker: Broker, ctx: Ctx) -> Router {
    let ready = move || {
        let (broker, ctx) = (broker.clone(), ctx.clone());
        async move {
            if ctx.is_stopping() {
                return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
            }
            match broker.probe().await {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(error) => {
                    tracing::error!(%error, "not ready");
                    (StatusCode::SERVICE_UNAVAILABLE, "the state folder cannot be written\n".to_owned())
                }
            }
        }
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}
