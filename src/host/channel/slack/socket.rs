//! Socket Mode: Slack's messages over a WebSocket that we open, for hosts that nothing can reach. Each is taken to the
//! same desk as a webhook, and acknowledged when it is stored.

use super::client::CallError;
use super::desk::{Desk, Taken};
use super::payload::{Callback, Interaction};
use crate::clock::Clock;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::StatusCode;
use reqwest::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

type Socket = WebSocketStream<reqwest::Upgraded>;

/// First and longest pause before connecting again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A connection that held so long was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long nothing at all may come: Slack pings every few seconds.
const SILENCE: Duration = Duration::from_secs(45);
/// How often we ping.
const PING: Duration = Duration::from_secs(15);
/// How long the work in hand may take when the connection has to end, and how long the goodbye may take after that.
const FINISH: Duration = Duration::from_secs(3);
const GOODBYE: Duration = Duration::from_secs(1);
/// Bytes of a message; a form at its limits is far smaller.
const LARGEST: usize = 1024 * 1024;
/// Messages that wait to be stored; what comes beyond is not acknowledged.
const IN_HAND: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Opened {
    url: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    reason: Option<String>,
    #[serde(rename = "envelope_id")]
    id: Option<String>,
    payload: Value,
}

/// Keeps a connection until the daemon stops. Work in hand is then still stored and acknowledged.
pub(super) async fn run(desk: &Desk, token: &SecretString) {
    let (ctx, clock) = (&desk.slack().0.ctx, desk.slack().clock());
    let mut pause = PAUSE.0;
    while !ctx.is_stopping() {
        let began = clock.monotonic();
        let ended = match tokio::select! {
            connected = connect(desk, token) => connected,
            () = ctx.stopping() => return,
        } {
            Ok(socket) => Ok(talk(desk, socket).await),
            Err(error) => Err(error),
        };
        let held = clock.monotonic().since(began);
        if held >= GOOD {
            pause = PAUSE.0;
        }
        let wait = match ended {
            // Slack wants us elsewhere, and we had a connection for a while.
            Ok(reason) => {
                tracing::info!(reason, "the connection to Slack ended; connecting again");
                if held >= GOOD { Duration::ZERO } else { pause }
            }
            Err(CallError::RateLimited(wait)) => wait.max(pause),
            Err(error) => {
                let why = error.explain();
                tracing::error!(why, "cannot connect to Slack (Socket Mode); trying again");
                pause
            }
        };
        tokio::select! {
            () = clock.sleep(wait) => {}
            () = ctx.stopping() => return,
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn connect(desk: &Desk, token: &SecretString) -> Result<Socket, CallError> {
    let client = &desk.slack().0.client;
    let opened: Opened = client.post_as_app(token, "apps.connections.open").await?;
    let unknown = |what: &str| CallError::Unknown(what.to_owned());
    let upgraded = desk.slack().clock().timeout(CONNECT, upgrade(client.http(), &opened.url)).await;
    let upgraded = upgraded.ok_or_else(|| unknown("connecting took too long"))??;
    let upgraded = upgraded.ok_or_else(|| unknown("the WebSocket was not accepted"))?;
    let limits = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
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

/// Reads until the connection ends, and says why it did. Acknowledgements come back from the desk in any order.
async fn talk(desk: &Desk, mut socket: Socket) -> String {
    let (ctx, clock) = (&desk.slack().0.ctx, desk.slack().clock());
    let (acks, mut stored) = mpsc::channel::<String>(IN_HAND);
    let (mut heard, mut pinged) = (clock.monotonic(), clock.monotonic());
    let reason = loop {
        tokio::select! {
            message = socket.next() => {
                heard = clock.monotonic();
                match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Some(reason) = hear(desk, &text, &acks) {
                            break reason;
                        }
                    }
                    Some(Ok(Message::Close(_))) | None => return "closed".to_owned(),
                    Some(Err(error)) => return error.to_string(),
                    Some(Ok(_)) => {}
                }
            }
            Some(id) = stored.recv() => {
                if acknowledge(&mut socket, &id).await.is_err() {
                    return "broken".to_owned();
                }
            }
            () = clock.sleep_to(pinged + PING) => {
                pinged = clock.monotonic();
                if pinged.since(heard) > SILENCE {
                    return "silent".to_owned();
                }
                if socket.send(Message::Ping("askd".into())).await.is_err() {
                    return "broken".to_owned();
                }
            }
            () = ctx.stopping() => break "askd stops".to_owned(),
        }
    };
    finish(clock, &mut socket, acks, stored).await;
    reason
}

async fn acknowledge(socket: &mut Socket, id: &str) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    socket.send(Message::text(json!({"envelope_id": id}).to_string())).await
}

/// Ends the connection: events that are being stored are still acknowledged.
async fn finish(clock: &Clock, socket: &mut Socket, acks: mpsc::Sender<String>, mut stored: mpsc::Receiver<String>) {
    drop(acks);
    let rest = async {
        while let Some(id) = stored.recv().await {
            if acknowledge(socket, &id).await.is_err() {
                return;
            }
        }
    };
    // Whether that worked or not, the connection is over; an answer that was not acknowledged is stored all the same.
    let _over = clock.timeout(FINISH, rest).await;
    let _gone = clock.timeout(GOODBYE, socket.close(None)).await;
}

/// Takes one message in; the reason if it ends the connection.
fn hear(desk: &Desk, text: &str, acks: &mpsc::Sender<String>) -> Option<String> {
    let Ok(envelope) = serde_json::from_str::<Envelope>(text) else {
        tracing::debug!("a message over the socket that is not understood was ignored");
        return None;
    };
    if envelope.kind == "disconnect" {
        return Some(envelope.reason.unwrap_or_else(|| "disconnect".to_owned()));
    }
    let id = envelope.id?;
    let Ok(place) = acks.clone().try_reserve_owned() else {
        tracing::warn!("too much comes from Slack at once; something was not taken");
        return None;
    };
    let taking = desk.clone();
    desk.slack().0.ctx.serve(async move {
        let taken = match envelope.kind.as_str() {
            "interactive" => match serde_json::from_value::<Interaction>(envelope.payload) {
                Ok(interaction) => taking.interaction(interaction).await,
                Err(_) => Taken::Done,
            },
            "events_api" => match serde_json::from_value::<Callback>(envelope.payload) {
                Ok(callback) => taking.event(callback).await,
                Err(_) => Taken::Done,
            },
            _ => Taken::Done,
        };
        // What is not stored is not acknowledged: Slack shows the person a warning.
        if taken == Taken::Done {
            place.send(id);
        }
    });
    None
}
