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
pub mod port;
mod ready;
pub mod session;
pub mod settings;
pub mod store;
pub mod warnings;

use crate::clock::Clock;
use askd_core::ChannelName;
use audit::Audit;
use axum::Router;
use broker::Broker;
use channel::signed::Webhooks;
use channel::web::{Inbox, Web, token};
use channel::{Adapter, Open, slack, whatsapp};
use ctx::Ctx;
use folders::Folders;
use intake::Intake;
use port::{Channel, Channels};
use ready::{Gate, Readiness, Running};
use secrecy::SecretString;
use settings::{Http, Settings};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Files, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use warnings::Warnings;

/// How long a stop waits until everything that was saved is on stable storage.
const DISK: Duration = Duration::from_secs(1);

/// The channels of askd, one line each.
pub const CHANNELS: &[(ChannelName, Open)] = &[
    (ChannelName::SLACK, slack::open),
    (ChannelName::WHATSAPP, whatsapp::open),
    (ChannelName::WEB, |_, _| Ok(Some(Arc::new(Web)))),
];

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
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Store(StoreError::Held(_)))
    }

    /// Whether a newer askd wrote something that this one would have to understand.
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
    channels: Vec<Arc<dyn Adapter>>,
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
        Self::open_with(CHANNELS, settings, clock).await
    }

    /// The same with other channels than [`CHANNELS`].
    pub async fn open_with(all: &[(ChannelName, Open)], settings: Settings, clock: Clock) -> Result<Self, DaemonError> {
        let (state, ctx) = (settings.state_dir(), Ctx::new(clock));
        let store = Box::new(Files::open(&state, settings.after_loss)?);
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
        let mut adapters = Vec::new();
        for (name, open) in all {
            adapters.extend(open(&settings, &ctx).map_err(DaemonError::io(name.as_str()))?);
        }
        // From now on the health calls answer: reading many asks takes time.
        let (readiness, gates) = (Readiness::new(ctx.clone()), Gates::default());
        let called = gates.webhooks.webhooks(all.iter().map(|(name, _)| *name));
        let serving = serve(&settings.http, &ctx, &readiness, &gates, called, (listener, webhooks));
        let settings = Arc::new(settings);
        let warnings = Warnings::new(ctx.clock().clone());
        let signed = Webhooks::new(ctx.clock().clone(), warnings.clone());
        let channels: Channels = adapters.iter().map(|adapter| Arc::clone(adapter) as Arc<dyn Channel>).collect();
        let connect = {
            let adapters = adapters.clone();
            move |broker: &Broker| {
                adapters.iter().map(|it| it.connect(broker, &signed)).fold(Router::new(), Router::merge)
            }
        };
        let (loading, its) =
            (readiness.loading(), (folders.clone(), channels.clone(), ctx.clone(), Arc::clone(&settings)));
        let load = move || {
            let (broker, stored) = Broker::open(store, its.0, audit, its.1, its.2, its.3, &loading)?;
            let routes = connect(&broker);
            broker.go_on(stored);
            Ok::<_, StoreError>((broker, routes))
        };
        let loaded = tokio::task::spawn_blocking(load).await.map_err(io::Error::other);
        let (broker, signed_routes) = loaded.map_err(DaemonError::io("the stored asks"))??;
        let intake = Intake::new(broker.clone(), folders, ctx.clone(), warnings);
        let intake = intake.map_err(DaemonError::io("the watch of the groups' folders"))?;
        gates.inbox.open(Inbox::new(broker.clone(), token.clone(), ctx.clone()).routes());
        gates.webhooks.open(signed_routes);
        readiness.runs(Running { broker: broker.clone(), round: intake.look_round(), channels });
        Ok(Self { broker, intake, ctx, token, channels: adapters, serving, address })
    }

    /// Where it listens: the port is known even if it was chosen by the system.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token of its inbox.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// What it does with asks: for reloading the settings.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Learns within seconds whether the credentials of its channels are good, and tells the operator if they are not.
    pub async fn greet(&self) {
        for channel in &self.channels {
            channel.greet().await;
        }
    }

    /// Runs until `stop`, finishes what is in flight within a bound, and loses nothing.
    pub async fn run(self, stop: CancellationToken) -> Result<(), DaemonError> {
        let ctx = self.ctx;
        for channel in &self.channels {
            channel.start(&self.broker);
        }
        let intake = self.intake;
        ctx.finish_blocking(move || intake.run());
        let told = ctx.clone();
        ctx.spawn(async move {
            stop.cancelled().await;
            told.begin_stop();
        });
        let served = futures_util::future::try_join_all(self.serving).await;
        let served = served.map_err(io::Error::other).and_then(|served| served.into_iter().collect());
        // Told to, or because serving failed.
        ctx.stop().await;
        // The next start finds out what was not put on stable storage in this time.
        match ctx.clock().timeout(DISK, self.broker.close_store()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "what was saved lately is not on stable storage"),
            None => tracing::warn!("what was saved lately is not on stable storage yet"),
        }
        served.map_err(DaemonError::io("http"))
    }
}

/// Serves only the health calls at first; the rest waits behind the gates.
fn serve(
    http: &Http,
    ctx: &Ctx,
    readiness: &Readiness,
    gates: &Gates,
    called: Router,
    (listener, webhooks): (TcpListener, Option<TcpListener>),
) -> Vec<JoinHandle<io::Result<()>>> {
    let begin = |listener, routes, open| {
        let (http, own) = (http.clone(), ctx.clone());
        ctx.finish(async move { http::serve(listener, &http, routes, open, &own).await })
    };
    let (inbox, health) = (gates.inbox.routes(), readiness.routes());
    let open = health.clone().merge(called);
    match webhooks {
        None => vec![begin(listener, inbox, open)],
        Some(apart) => vec![begin(listener, inbox, health), begin(apart, Router::new(), open)],
    }
}
