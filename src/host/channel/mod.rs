//! The channels of askd. Each is a room of its own that implements the port of [`crate::host::port`] and stands above the
//! broker: what people do there goes to [`Broker::apply`].

pub(super) mod signed;
pub(super) mod slack;
pub mod web;
pub(super) mod whatsapp;

use crate::clock::Clock;
use crate::host::backoff::Backoff;
use crate::host::broker::{Broker, Failure};
use crate::host::ctx::Ctx;
use crate::host::port::Channel;
use crate::host::settings::Settings;
use crate::host::standing::Standing;
use crate::host::store::Documents;
use askd_core::{Ask, AskId, ChannelName, Event, Refusal};
use async_trait::async_trait;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use signed::Webhooks;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What `askd doctor` has a webhook echo, as the platform does when its address is entered there: nothing was set up.
pub const DOCTORS_CHALLENGE: &str = "askd-doctor";

/// The first and the longest pause before askd calls a platform again that is away.
const AWAY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Makes a channel from the settings; `None` if they do not set it up. Connects to nothing yet.
pub type Open = fn(&Settings, &Arc<dyn Documents>, &Ctx) -> io::Result<Option<Arc<dyn Adapter>>>;

/// What the platforms of these channels call. Nothing else below the name of a channel is the inbox.
pub(super) fn routes(all: &[(ChannelName, Open)], connected: impl Iterator<Item = Router>) -> Router {
    all.iter().fold(connected.fold(Router::new(), Router::merge), |routes, (name, _)| {
        routes.route(&format!("/{name}/{{*rest}}"), any(|| async { StatusCode::NOT_FOUND }))
    })
}

/// A channel with what comes in from it.
#[async_trait]
pub trait Adapter: Channel {
    /// Hands over the broker, before it goes on with stored asks. Returns the addresses that the platform calls: below
    /// `/` and the channel's name.
    fn connect(&self, _broker: &Broker, _webhooks: &Webhooks) -> Router {
        Router::new()
    }

    /// The same where another daemon leads: what has to be read in one place is kept for it.
    fn connect_beside(&self, broker: &Broker, webhooks: &Webhooks) -> Router {
        self.connect(broker, webhooks)
    }

    /// Learns what other daemons have stored for channels: what they know of people, and webhooks that they keep for the leader.
    async fn keep_up(&self) {}

    /// Learns within seconds whether the credentials are good, and tells the operator if they are not.
    async fn greet(&self) {}

    /// Goes on in the background until the daemon stops.
    fn start(&self, _broker: &Broker) {}
}

/// Has channels learn what other daemons store, as long as the daemon runs.
pub(super) async fn keep_up(channels: Vec<Arc<dyn Adapter>>, broker: Broker) {
    while broker.news().await {
        for channel in &channels {
            channel.keep_up().await;
        }
    }
}

/// Calls a platform while it is away: nothing else may call for hours, and would notice that it is back. Each call notes
/// itself what comes of it.
async fn notice_its_return<F: Future<Output = ()>>(clock: &Clock, standing: &Standing, call: impl Fn() -> F) {
    loop {
        standing.failed().await;
        let mut backoff = Backoff::new(AWAY_PAUSES.0, AWAY_PAUSES.1);
        loop {
            clock.sleep(backoff.pause()).await;
            if standing.problem().is_none() {
                break;
            }
            call().await;
        }
    }
}

/// Something could not be stored or read, so it must not be acknowledged: the platform sends it again, or the person tries
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotStored;

impl IntoResponse for NotStored {
    fn into_response(self) -> Response {
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

/// The ask as it is stored, if there is one.
async fn load(broker: &Broker, id: AskId) -> Result<Option<Arc<Ask>>, NotStored> {
    load_fitting(broker, id, |_| true).await
}

/// The same, read anew if what this daemon knows of it does not fit: another daemon may have changed it since.
async fn load_fitting(broker: &Broker, id: AskId, fits: impl Fn(&Ask) -> bool) -> Result<Option<Arc<Ask>>, NotStored> {
    broker.get_fitting(id, fits).await.map_err(|error| {
        tracing::error!(ask = %id, %error, "an ask could not be read");
        NotStored
    })
}

/// Applies an event. Returns the ask as it is now, and why the event was refused if it was; `None`: there is no such ask.
/// What came of it is on stable storage then.
async fn apply(broker: &Broker, id: AskId, event: Event) -> Result<Option<(Arc<Ask>, Option<Refusal>)>, NotStored> {
    match broker.apply(id, event).await {
        Ok(ask) => Ok(Some((ask, None))),
        Err(Failure::Refused(refusal, ask)) => Ok(Some((ask, Some(*refusal)))),
        Err(Failure::Unknown | Failure::Broken) => Ok(None),
        Err(Failure::NotStored | Failure::InDoubt) => {
            tracing::error!(ask = %id, "what a chat told of this ask could not be stored; its sender was told to try again");
            Err(NotStored)
        }
    }
}

/// Compares what people see with the document of that name in `docs/cards`, which the judges in `tests/contract` read.
/// `ASKD_CARDS=1` writes it anew.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test's own file")]
fn as_documented(name: &str, card: &serde_json::Value) {
    let path = format!("{}/docs/cards/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = format!("{}\n", serde_json::to_string_pretty(card).unwrap());
    if std::env::var_os("ASKD_CARDS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "{name}: ASKD_CARDS=1 writes it anew");
}
