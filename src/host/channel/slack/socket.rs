//! Socket Mode: Slack sends interactions and events over a WebSocket that askd opens, so that Slack need not reach this
//! host. askd acknowledges each when it is stored.

use super::Slack;
use super::client::CallError;
use super::inbound::Inbound;
use super::payload::Payload;
use super::seat::Seat;
use crate::clock::Clock;
use crate::host::backoff::Backoff;
use crate::host::channel::NotStored;
use askd_core::wording;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::StatusCode;
use reqwest::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

type Socket = WebSocketStream<reqwest::Upgraded>;

/// The first and the longest pause before askd connects again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that held this long was a good one: askd replaces it at once.
const STABLE: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the connection may be silent: Slack pings every few seconds.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// How often askd pings.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How long acknowledgements may take when the connection has to end, and how long closing it may take after that.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a message; a form at its limits is far smaller.
const MAX_MESSAGE: usize = 1024 * 1024;
/// How many envelopes may wait to be stored. askd does not acknowledge what comes beyond.
const MAX_IN_HAND: usize = 64;

/// The answer of `apps.connections.open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connection {
    url: String,
}

#[derive(Debug, Deserialize)]
struct Envelope<P> {
    #[serde(rename = "type", default)]
    kind: String,
    reason: Option<String>,
    #[serde(rename = "envelope_id")]
    id: Option<String>,
    payload: Option<P>,
}

/// Keeps a connection until the daemon stops. What is in hand then is still stored and acknowledged.
pub(super) async fn run(inbound: &Inbound, app_token: &SecretString) {
    let (ctx, clock) = (&inbound.slack.0.ctx, inbound.slack.clock());
    let standing = &inbound.slack.0.socket;
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let seat = Seat::of(&inbound.slack);
    loop {
        if !seat.taken().await {
            return;
        }
        let connected = tokio::select! {
            connected = connect(&inbound.slack, app_token) => connected,
            () = ctx.stopping() => return,
        };
        let pause = match connected {
            Ok(socket) => {
                standing.works();
                let since = clock.monotonic();
                let ended = listen(inbound, socket, seat.lost()).await;
                let reason = match &ended {
                    Ok(reason) => *reason,
                    Err(reason) => reason,
                };
                tracing::info!(reason, "the connection to Slack ended");
                if clock.monotonic().since(since) >= STABLE {
                    backoff.reset();
                    Duration::ZERO
                } else {
                    // Until the next one there is none.
                    if ended.is_err() {
                        standing.fails(clock.now(), format!("Socket Mode: {reason}"), wording::slack_socket_fix(None));
                    }
                    backoff.pause()
                }
            }
            Err(CallError::RateLimited(wait)) => wait.max(backoff.pause()),
            Err(error) => {
                let code = if let CallError::Refused { code, .. } = &error { Some(code.as_str()) } else { None };
                let fix = wording::slack_socket_fix(code);
                standing.fails(clock.now(), format!("Socket Mode: {error}"), fix);
                tracing::error!(why = %error, fix, "cannot connect to Slack (Socket Mode); trying again");
                backoff.pause()
            }
        };
        tokio::select! {
            () = clock.sleep(pause) => {}
            () = ctx.stopping() => return,
        }
    }
}

async fn connect(slack: &Slack, app_token: &SecretString) -> Result<Socket, CallError> {
    let client = &slack.0.client;
    let connection: Connection = client.post_as_app(app_token, "apps.connections.open").await?;
    let unknown = |what: &str| CallError::Unknown(what.to_owned());
    let upgraded = slack.clock().timeout(CONNECT_TIMEOUT, upgrade(&client.http, &connection.url)).await;
    let upgraded = upgraded.ok_or_else(|| unknown("connecting took too long"))??;
    let upgraded = upgraded.ok_or_else(|| unknown("the WebSocket was not accepted"))?;
    let limits = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(limits)).await;
    tracing::info!("connected to Slack (Socket Mode)");
    Ok(socket)
}

/// Asks for a WebSocket by HTTP, so that it has the same TLS as every call; `None` if the server refuses.
async fn upgrade(http: &reqwest::Client, url: &str) -> Result<Option<reqwest::Upgraded>, reqwest::Error> {
    // An HTTP client knows `wss:` as `https:`.
    let url = url.replacen("ws", "http", 1);
    let key = generate_key();
    let request = http.get(url).header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
    let response = request.header(SEC_WEBSOCKET_VERSION, "13").header(SEC_WEBSOCKET_KEY, &key).send().await?;
    let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS
        || accept != Some(derive_accept_key(key.as_bytes()).as_bytes())
    {
        return Ok(None);
    }
    response.upgrade().await.map(Some)
}

/// Reads until the connection ends, and says why askd needs it no more; an error, if it broke. Acknowledgements leave in any order.
async fn listen(inbound: &Inbound, mut socket: Socket, lost: impl Future<Output = ()>) -> Result<&'static str, String> {
    let mut lost = pin!(lost);
    let (ctx, clock) = (&inbound.slack.0.ctx, inbound.slack.clock());
    let (acks, mut stored) = mpsc::channel::<Value>(MAX_IN_HAND);
    let (mut heard, mut pinged) = (clock.monotonic(), clock.monotonic());
    let ended = loop {
        tokio::select! {
            message = socket.next() => {
                heard = clock.monotonic();
                match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Some(reason) = receive(inbound, &text, &acks) {
                            break Err(reason);
                        }
                    }
                    Some(Ok(Message::Close(_))) | None => return Err("closed".to_owned()),
                    Some(Err(error)) => return Err(error.to_string()),
                    Some(Ok(_)) => {}
                }
            }
            Some(ack) = stored.recv() => {
                if acknowledge(&mut socket, &ack).await.is_err() {
                    return Err("broken".to_owned());
                }
            }
            () = clock.sleep_to(pinged + PING_EVERY) => {
                pinged = clock.monotonic();
                if pinged.since(heard) > MAX_SILENCE {
                    return Err("silent".to_owned());
                }
                if socket.send(Message::Ping("askd".into())).await.is_err() {
                    return Err("broken".to_owned());
                }
            }
            () = &mut lost => break Ok("other daemons have all of them"),
            () = ctx.stopping() => break Ok("askd stops"),
        }
    };
    finish(clock, &mut socket, acks, stored).await;
    ended
}

async fn acknowledge(socket: &mut Socket, ack: &Value) -> Result<(), tungstenite::Error> {
    socket.send(Message::text(ack.to_string())).await
}

/// Ends the connection. What is being stored meanwhile is still acknowledged.
async fn finish(clock: &Clock, socket: &mut Socket, acks: mpsc::Sender<Value>, mut stored: mpsc::Receiver<Value>) {
    drop(acks);
    let rest = async {
        while let Some(ack) = stored.recv().await {
            if acknowledge(socket, &ack).await.is_err() {
                return;
            }
        }
    };
    // A reply that was not acknowledged is stored all the same.
    let _in_time = clock.timeout(FINISH_TIMEOUT, rest).await;
    let _in_time = clock.timeout(CLOSE_TIMEOUT, socket.close(None)).await;
}

/// Takes in one message; the reason if it ends the connection.
fn receive(inbound: &Inbound, text: &str, acks: &mpsc::Sender<Value>) -> Option<String> {
    let envelope = serde_json::from_str::<Envelope<Payload>>(text).or_else(|_| {
        // What askd does not understand is acknowledged all the same.
        let Envelope { kind, reason, id, .. } = serde_json::from_str::<Envelope<IgnoredAny>>(text)?;
        Ok::<_, serde_json::Error>(Envelope { kind, reason, id, payload: None })
    });
    let Ok(envelope) = envelope else {
        tracing::debug!("ignored a message over the socket that askd does not understand");
        return None;
    };
    if envelope.kind == "disconnect" {
        return Some(envelope.reason.unwrap_or_else(|| "disconnect".to_owned()));
    }
    let id = envelope.id?;
    let Ok(ack) = acks.clone().try_reserve_owned() else {
        tracing::warn!("Slack sends too much at once; askd did not take in an envelope");
        return None;
    };
    let receiver = inbound.clone();
    inbound.slack.0.ctx.serve(async move {
        // Slack warns the person if an envelope is not acknowledged.
        match receiver.take_in(envelope.payload.unwrap_or_default()).await {
            Ok(None) => drop(ack.send(json!({"envelope_id": id}))),
            Ok(Some(answer)) => drop(ack.send(json!({"envelope_id": id, "payload": answer}))),
            Err(NotStored) => {}
        }
    });
    None
}
