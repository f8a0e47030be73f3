//! The daemon: built from settings, then run until it is told to stop.
//!
//! A request goes `intake` -> `broker` -> `channel`; an answer goes `channel` -> `broker` -> `delivery`. The
//! pure rules of both are in [`askd_core`].

mod agents;
pub mod audit;
mod backoff;
pub mod broker;
pub mod channel;
pub mod client;
mod ctx;
mod delivery;
pub mod doctor;
mod doors;
pub mod folders;
pub mod forget;
mod holds;
pub mod http;
pub mod intake;
mod keyed_lock;
mod lead;
mod line;
mod metrics;
mod networks;
mod outgoing;
mod places;
pub mod port;
mod ready;
mod rereads;
pub mod session;
pub mod settings;
mod standby;
mod standing;
mod status;
pub mod store;
mod tls;
pub mod tokens;
mod traces;
pub mod warnings;

use crate::clock::Clock;
use agents::Agents;
use askd_core::ChannelName;
use audit::Audit;
use broker::Broker;
use channel::signed::Webhooks;
pub use channel::slack::Visit as SlackVisit;
use channel::web::{Inbox, KeptToken, Web};
use channel::{Adapter, Open, slack, whatsapp};
use ctx::Ctx;
use doors::{AGENTS, Door, all_are_used, serve};
use folders::Folders;
use futures_util::future::{OptionFuture, join, join_all, try_join_all};
use intake::Intake;
pub use lead::Current;
use lead::Next;
use parking_lot::Mutex;
use port::{Channel, Channels};
use secrecy::SecretString;
use settings::Settings;
use standby::{Line, Place};
use status::Status;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use store::{InFiles, Opened, StoreError};
pub use tls::Tls;
use tokens::Tokens;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use warnings::Warnings;

/// How long a stop waits until everything that was saved is on stable storage.
const DISK: Duration = Duration::from_secs(1);

/// The channels of askd, one line each.
pub const CHANNELS: &[(ChannelName, Open)] = &[
    (ChannelName::SLACK, slack::open),
    (ChannelName::WHATSAPP, whatsapp::open),
    (ChannelName::WEB, |_, _, _| Ok(Some(Arc::new(Web)))),
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
    /// Another daemon serves the records of this one now.
    #[error("another askd has taken over; started again, this one works beside it")]
    Overtaken,
}

impl DaemonError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    /// Whether another daemon holds the state folder, or has the name of this one.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Store(StoreError::Held(_) | StoreError::Namesake(_)))
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
    agents: Option<SocketAddr>,
    overtaken: CancellationToken,
    /// Another daemon leads; what it takes to follow it.
    next: Option<(Line, Next)>,
    current: Current,
}

/// How a daemon has ended.
enum Ended {
    Stopped,
    /// It leads as soon as it is opened there.
    Leads(Place),
}

impl Daemon {
    /// Takes the state folder (before the port, so that a second daemon says what is the matter) and the address, and
    /// serves what needs no stored asks.
    pub async fn open(settings: Settings, clock: Clock) -> Result<Self, DaemonError> {
        Self::open_with(CHANNELS, Vec::new(), settings, clock).await
    }

    /// The same with other channels than [`CHANNELS`], and with sockets that listen already.
    pub async fn open_with(
        all: &[(ChannelName, Open)],
        passed: Vec<std::net::TcpListener>,
        settings: Settings,
        clock: Clock,
    ) -> Result<Self, DaemonError> {
        let ctx = Ctx::new(clock.clone());
        let place = Place::open(&settings, &ctx)?;
        let next = Next { channels: all.to_vec(), sockets: passed, settings, clock, known: None };
        Box::pin(Self::open_at(place, next, ctx, None)).await
    }

    /// The same where the records are. `current`: what the daemon was before.
    #[expect(clippy::too_many_lines, reason = "it puts all parts together, in the order in which they need each other")]
    async fn open_at(place: Place, next: Next, ctx: Ctx, current: Option<Current>) -> Result<Self, DaemonError> {
        let Next { channels: all, sockets: mut passed, settings, clock, known: carried } = next;
        let state = settings.state_dir();
        if settings.after_loss {
            tracing::info!(
                "started after a loss: askd checks what was already done before it posts or starts anything"
            );
        }
        let at = |path: &Path| format!("cannot use {}", path.display());
        let folders = Folders::open(settings.ipc_dir(), settings.access, clock.clone())
            .map_err(DaemonError::io(at(&settings.ipc_dir())))?;
        let listener =
            http::bind(settings.http.listen, "http.listen", &mut passed).await.map_err(DaemonError::io("http"))?;
        let address = listener.local_addr().map_err(DaemonError::io("http"))?;
        let (Opened { store, documents, audit }, line) = place.opened(&settings, &listener, &ctx).await?;
        let audit = Audit::open(&state, settings.keep_audit, audit).map_err(DaemonError::io(at(&state)))?;
        let overtaken = store.overtaken();
        let leads = line.is_none();
        // A reload can take `[web] token` away: from then on the kept one holds.
        let copy = settings.postgres.url.as_ref().map(|_| InFiles::open(&state)).transpose();
        let kept = copy.and_then(|copy| KeptToken::open(Arc::clone(&documents), copy));
        let kept = kept.map_err(DaemonError::io("the inbox token"))?;
        let token = settings.web.token.clone().unwrap_or_else(|| kept.now());
        let webhooks = settings.http.webhook_listen.map(|at| http::bind(at, "http.webhook_listen", &mut passed));
        let webhooks = OptionFuture::from(webhooks).await.transpose();
        let webhooks = webhooks.map_err(DaemonError::io("http.webhook_listen"))?;
        let tokens = Tokens::open(Arc::clone(&documents), ctx.clock().clone());
        let tokens = tokens.map_err(DaemonError::io("the tokens of agents"))?;
        let door = Door::open(&settings, &tokens, &mut passed).await.map_err(DaemonError::io(AGENTS))?;
        all_are_used(&passed).map_err(DaemonError::io("a socket that systemd passed"))?;
        let next = line.map(|line| {
            Next::of(&all, (&listener, webhooks.as_ref(), door.listener.as_ref()), &settings, clock)
                .map(|next| (line, next))
        });
        let next = next.transpose().map_err(DaemonError::io("http.listen"))?;
        let mut adapters = Vec::new();
        for (name, open) in &all {
            adapters.extend(open(&settings, &documents, &ctx).map_err(DaemonError::io(name.as_str()))?);
        }
        let settings = Arc::new(settings);
        let warnings = Warnings::new(ctx.clock().clone());
        let signed = Webhooks::new(ctx.clock().clone(), warnings.clone());
        let channels: Channels = adapters.iter().map(|adapter| Arc::clone(adapter) as Arc<dyn Channel>).collect();
        let (loading, http) = (Arc::default(), settings.http.clone());
        let broker = {
            let (folders, channels, loading) = (folders.clone(), channels.clone(), Arc::clone(&loading));
            Broker::new(store, folders, audit, channels, ctx.clone(), settings, (loading, carried))
        };
        let broker = broker.map_err(DaemonError::io("cannot start"))?;
        let intake = Intake::new(broker.clone(), folders.clone(), ctx.clone(), warnings.clone());
        let intake = intake.map_err(DaemonError::io("the watch of the groups' folders"))?;
        let connect = |it: &Arc<dyn Adapter>| {
            if leads { it.connect(&broker, &signed) } else { it.connect_beside(&broker, &signed) }
        };
        let called = channel::routes(&all, adapters.iter().map(connect));
        let started = ctx.clock().now();
        ctx.spawn(tokens.clone().follow(broker.documents_changes()));
        ctx.spawn(kept.clone().follow(broker.documents_changes(), ctx.clock().clone()));
        let agents = Agents::new(broker.clone(), folders.clone(), tokens.clone(), ctx.clone(), warnings);
        let status = Status {
            ctx: ctx.clone(),
            loading,
            broker: broker.clone(),
            folders,
            channels,
            agents: Arc::clone(&door.standing),
            started,
            unwritable: Arc::default(),
        };
        let inbox = Inbox::new(broker.clone(), kept, ctx.clone(), status.clone(), documents, tokens.clone());
        let inbox = inbox.map_err(DaemonError::io("the browsers that are pushed to"))?.routes();
        let inbox = inbox.merge(ready::metrics(&status));
        let mut serving = serve(&http, &ctx, inbox, &ready::routes(&status), called, (listener, webhooks));
        let (agents_at, tls) = (door.listener.as_ref().and_then(|at| at.local_addr().ok()), door.tls.clone());
        serving.push(door.serve(agents.routes(), tokens, &ctx));
        let current = current.unwrap_or_else(|| Current(Arc::new(Mutex::new((broker.clone(), None)))));
        *current.0.lock() = (broker.clone(), tls);
        let (channels, agents) = (adapters, agents_at);
        Ok(Self { broker, intake, ctx, token, channels, serving, address, agents, overtaken, next, current })
    }

    /// Where it listens: the port is known even if it was chosen by the system.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token of its inbox.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// What a reload of the settings reaches.
    pub fn current(&self) -> &Current {
        &self.current
    }

    /// Where agents ask over HTTP, if an address is set or there was a token before.
    pub fn agents_address(&self) -> Option<SocketAddr> {
        self.agents
    }

    /// Runs until `stop`, finishes what is in flight within a bound, and loses nothing. Reads the stored asks meanwhile,
    /// and calls `ready` when all of them are known and each channel has learned whether its credentials are good.
    pub async fn run(self, stop: CancellationToken, ready: impl FnOnce()) -> Result<(), DaemonError> {
        let (mut daemon, mut ready) = (self, Some(ready));
        loop {
            let (current, next) = (daemon.current.clone(), daemon.next.take());
            let (line, next) = next.map_or((None, None), |(line, next)| (Some(line), Some(next)));
            let begun = || ready.take().map_or((), |ready| ready());
            match (Box::pin(daemon.run_until(stop.clone(), line, begun)).await?, next) {
                (Ended::Leads(place), Some(next)) if !stop.is_cancelled() => {
                    tracing::info!("this daemon leads from now on");
                    // A reload may have changed them; what listens stays.
                    let (before, known) = (current.broker(), current.broker().settings());
                    let mut settings = Settings::clone(&known);
                    (settings.http.listen, settings.http.webhook_listen, settings.agents.listen) =
                        (next.settings.http.listen, next.settings.http.webhook_listen, next.settings.agents.listen);
                    let next = Next { settings, known: before.pass_on(), ..next };
                    let ctx = Ctx::new(next.clock.clone());
                    let opened = Box::pin(Self::open_at(place, next, ctx, Some(current)));
                    // If the database goes away just now, that waits for it. Another daemon takes the lead of one that stops.
                    let Some(opened) = stop.run_until_cancelled(opened).await else { return Ok(()) };
                    daemon = opened?;
                    // Or it came meanwhile.
                    let latest = before.settings();
                    if !Arc::ptr_eq(&latest, &known) {
                        daemon.broker.reload(latest);
                    }
                }
                (Ended::Leads(place), _) => {
                    place.abandon().await;
                    return Ok(());
                }
                (Ended::Stopped, _) => return Ok(()),
            }
        }
    }

    /// The same until `stop`, or until this daemon can lead.
    async fn run_until(
        self,
        stop: CancellationToken,
        line: Option<Line>,
        ready: impl FnOnce(),
    ) -> Result<Ended, DaemonError> {
        let (ctx, broker) = (self.ctx, self.broker);
        let _ends_threads = ctx.stop_on_drop();
        for channel in &self.channels {
            channel.start(&broker);
        }
        let intake = self.intake;
        ctx.finish_blocking(move || intake.run());
        ctx.spawn(channel::keep_up(self.channels.clone(), broker.clone()));
        broker.begin();
        let won = begin_end(&ctx, &broker, (stop, self.overtaken.clone()), line);
        let reader = broker.clone();
        let reading = tokio::task::spawn_blocking(move || reader.read_all());
        let greet = join_all(self.channels.iter().map(|channel| channel.greet()));
        let mut serving = pin!(try_join_all(self.serving));
        let served = tokio::select! {
            served = &mut serving => served,
            (loaded, _) = join(reading, greet) => {
                if let Err(error) = loaded.map_err(io::Error::other).map_err(DaemonError::io("the stored asks"))? {
                    // It takes in nothing more, and notes no clean end.
                    ctx.stop().await;
                    broker.let_go().await;
                    return Err(error.into());
                }
                ready();
                serving.await
            }
        };
        let served: io::Result<()> = served.map_err(io::Error::other).and_then(|served| served.into_iter().collect());
        // Told to, because serving failed, or because another daemon has taken over.
        ctx.stop().await;
        if self.overtaken.is_cancelled() {
            return Err(DaemonError::Overtaken);
        }
        let mut won = won;
        let won = won.try_recv().ok().transpose()?;
        if let Some(place) = won {
            // The run goes on, with the lead.
            if let Err(error) = broker.flush().await {
                tracing::warn!(%error, "what was saved lately is not on stable storage yet");
            }
            return Ok(Ended::Leads(place));
        }
        // The next start finds out what was not put on stable storage in this time.
        match ctx.clock().timeout(ctx::at_most(DISK), broker.close_store()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "what was saved lately is not on stable storage"),
            None => tracing::warn!("what was saved lately is not on stable storage yet"),
        }
        served.map_err(DaemonError::io("http"))?;
        Ok(Ended::Stopped)
    }
}

/// Begins the end when it is time: when told to, when another daemon has taken over, or when this one can lead. Then it says where.
fn begin_end(
    ctx: &Ctx,
    broker: &Broker,
    (stop, overtaken): (CancellationToken, CancellationToken),
    line: Option<Line>,
) -> oneshot::Receiver<Result<Place, StoreError>> {
    let (told, served) = (ctx.clone(), broker.clone());
    let (lead, won) = oneshot::channel();
    ctx.spawn(async move {
        let leads = async {
            match line {
                Some(line) => line.lead().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => {
                told.leave();
                // Until a proxy has noticed, what it still sends is taken.
                told.clock().timeout(served.settings().http.stop_delay, overtaken.cancelled()).await;
            }
            () = overtaken.cancelled() => {}
            place = leads => drop(lead.send(place)),
        }
        told.begin_stop();
    });
    won
}
