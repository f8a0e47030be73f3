//! Socket Mode: tickets, sockets, envelopes and their acknowledgements.
//!
//! Each payload goes to one socket, in turn; up to ten may be connected (documentation). An eleventh is told
//! `too_many_websockets`, a reason that clients report, and closed. Interactions that are not acknowledged are not sent again; events are, by `deliver`. Called by the router and by `deliver`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::create_response;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::deliver::Attempt;
use super::shared::Shared;

type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Most sockets per app (documentation of Socket Mode).
pub const MAX_SOCKETS: usize = 10;
/// How often a socket is pinged; Bolt gives up after 30 s of silence.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Sockets and what they wait for.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) tickets: HashSet<String>,
    lines: Vec<Line>,
    waiting: HashMap<String, oneshot::Sender<Value>>,
    turn: usize,
    count: u64,
}

impl Sockets {
    /// How many were ever connected: more than none means that the app uses Socket Mode.
    pub(super) fn ever(&self) -> u64 {
        self.count
    }

    /// How many are connected.
    pub(super) fn connected(&self) -> usize {
        self.lines.len()
    }
}

struct Line {
    id: u64,
    orders: mpsc::UnboundedSender<Order>,
}

/// What a socket is told to do.
#[derive(Debug, Clone)]
pub(super) enum Order {
    /// Send this text.
    Text(String),
    /// Break off without a word.
    Drop,
}

impl Shared {
    /// Whether payloads go over sockets now.
    pub(super) fn socket_mode(&self) -> bool {
        self.sockets() > 0
    }

    /// Number of connected sockets.
    pub(super) fn sockets(&self) -> usize {
        self.state().sockets.connected()
    }

    /// The address for the next socket, good once.
    pub(super) fn socket_url(&self) -> String {
        let ticket = self.chance.word(32);
        self.state().sockets.tickets.insert(ticket.clone());
        // `wss:` where it is reached by `https:`.
        let base = self.public("").replacen("http", "ws", 1);
        format!("{base}/link/?ticket={ticket}&app_id={}", self.config.app_id)
    }

    /// Tells every socket the same.
    pub(super) fn tell_sockets(&self, order: &Order) {
        let mut state = self.state();
        state.sockets.lines.retain(|line| line.orders.send(order.clone()).is_ok());
        if matches!(order, Order::Drop) {
            state.sockets.lines.clear();
        }
    }

    /// Sends an envelope to one socket and waits for its acknowledgement.
    pub(super) async fn over_socket(
        &self,
        kind: &str,
        payload: &Value,
        retry: Option<(u32, &str)>,
        accepts: bool,
    ) -> Attempt {
        let id = format!("{}-{}", self.chance.word(8).to_lowercase(), self.chance.word(12).to_lowercase());
        let mut envelope =
            json!({"envelope_id": id, "type": kind, "accepts_response_payload": accepts, "payload": payload});
        if let Some((attempt, reason)) = retry {
            envelope["retry_attempt"] = json!(attempt);
            envelope["retry_reason"] = json!(if reason == "http_timeout" { "timeout" } else { reason });
        }
        let started = self.clock.monotonic();
        let acknowledged = self.hand_out(&id, &envelope);
        let answer = tokio::time::timeout(self.config.ack_within, acknowledged).await;
        let took = self.clock.monotonic().saturating_sub(started);
        self.state().sockets.waiting.remove(&id);
        let Ok(Ok(answer)) = answer else {
            return Attempt { socket: true, took, ..Attempt::default() };
        };
        Attempt {
            socket: true,
            acknowledged: true,
            answer: if answer.is_null() { String::new() } else { answer.to_string() },
            took,
            ..Attempt::default()
        }
    }

    fn hand_out(&self, id: &str, envelope: &Value) -> oneshot::Receiver<Value> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let sockets = &mut state.sockets;
        sockets.waiting.insert(id.to_owned(), sender);
        while !sockets.lines.is_empty() {
            let at = sockets.turn % sockets.lines.len();
            sockets.turn += 1;
            if sockets.lines[at].orders.send(Order::Text(envelope.to_string())).is_ok() {
                break;
            }
            sockets.lines.remove(at);
        }
        receiver
    }

    fn socket_said(&self, text: &str) {
        let Ok(said) = serde_json::from_str::<Value>(text) else {
            return;
        };
        let waiting = said["envelope_id"].as_str().and_then(|id| self.state().sockets.waiting.remove(id));
        if let Some(waiting) = waiting {
            // Nobody waits any more when the time for it is over.
            let _ = waiting.send(said["payload"].clone());
        }
    }
}

/// `GET /link`: the upgrade, for the holder of a fresh ticket.
pub(super) async fn link(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
    mut request: Request,
) -> Response {
    let known = query.get("ticket").is_some_and(|ticket| shared.state().sockets.tickets.remove(ticket));
    if !known {
        return StatusCode::FORBIDDEN.into_response();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let Ok(response) = create_response(&request.map(|_| ())) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            serve(shared, WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await).await;
        }
    });
    response.map(|()| Body::empty())
}

async fn serve(shared: Arc<Shared>, mut socket: WebSocket) {
    let (orders, mut inbox) = mpsc::unbounded_channel();
    let (id, count) = {
        let mut state = shared.state();
        state.sockets.count += 1;
        let id = state.sockets.count;
        if state.sockets.lines.len() < MAX_SOCKETS {
            state.sockets.lines.push(Line { id, orders });
        } else {
            drop(orders);
        }
        (id, state.sockets.lines.len())
    };
    if socket.send(Frame::text(hello(&shared, count))).await.is_ok() {
        shared.touch();
        talk(&shared, &mut socket, &mut inbox).await;
    }
    shared.state().sockets.lines.retain(|line| line.id != id);
    shared.touch();
}

async fn talk(shared: &Shared, socket: &mut WebSocket, inbox: &mut mpsc::UnboundedReceiver<Order>) {
    let mut ping = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            order = inbox.recv() => match order {
                Some(Order::Text(text)) => {
                    if socket.send(Frame::text(text)).await.is_err() {
                        return;
                    }
                }
                Some(Order::Drop) => return,
                // Not among the ten, or taken off the list.
                None => {
                    let _ = socket.send(Frame::text(goodbye("too_many_websockets"))).await;
                    return;
                }
            },
            frame = socket.next() => match frame {
                Some(Ok(Frame::Text(text))) => shared.socket_said(&text),
                // After a goodbye the stream is read on: that is how the answer to it gets sent.
                Some(Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            _ = ping.tick() => {
                if socket.send(Frame::Ping("Ping from applink-sim".into())).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn hello(shared: &Shared, count: usize) -> String {
    json!({
        "type": "hello", "num_connections": count, "connection_info": {"app_id": shared.config.app_id},
        "debug_info": {"host": "applink-sim", "build_number": 1, "approximate_connection_time": 18060},
    })
    .to_string()
}

/// The text of a `disconnect`, with `warning`, `refresh_requested` or another reason.
pub(super) fn goodbye(reason: &str) -> String {
    json!({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-sim"}}).to_string()
}
