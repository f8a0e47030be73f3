//! The stand-in by HTTP, for tests in other languages and for the page: `POST /control` with one `Order`,
//! and lists to read under `/control/…`. Nothing here is Meta's.
//!
//! `GET /control/messages?who=`, `/control/calls`, `/control/webhooks`, `/control/chats`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{Ladder, Template, Traffic};
use super::courier;
use super::event::Sending;
use super::fault::{Fault, FaultMix};
use super::message::{Person, Stage};
use super::state::Hub;

/// What the stand-in can be told, as `{"do": "says", "who": "1555…", "text": "2"}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    /// Where webhooks go; `null`: nowhere.
    Webhook {
        url: Option<String>,
    },
    /// Run the verification handshake.
    Handshake,
    /// Post these bytes to the webhook once, with this signature or a good one.
    Raw {
        body: String,
        signature: Option<String>,
    },
    /// Post the n-th delivered webhook again (from the end, 0 is the last).
    Again {
        back: usize,
    },
    /// Post the webhook again that carried this id.
    AgainWith {
        id: String,
    },
    Person(Person),
    Template(Template),
    /// `at`: when the platform received it, in seconds since the Unix epoch; by default as soon as a person can have read
    /// and written.
    Says {
        who: String,
        text: String,
        quotes: Option<String>,
        at: Option<i64>,
    },
    Sticker {
        who: String,
        quotes: Option<String>,
    },
    Voice {
        who: String,
        quotes: Option<String>,
    },
    Image {
        who: String,
        caption: Option<String>,
        quotes: Option<String>,
    },
    Unsupported {
        who: String,
    },
    Reaction {
        who: String,
        on: String,
        emoji: String,
    },
    Tap {
        who: String,
        on: String,
        id: String,
    },
    Phone {
        who: String,
        on: bool,
    },
    /// The person has the chat before the eyes.
    Opens {
        who: String,
    },
    /// The number has no WhatsApp (or again).
    Reachable {
        who: String,
        on: bool,
    },
    Status {
        id: String,
        status: Stage,
        code: Option<i64>,
    },
    Advance {
        seconds: u64,
    },
    Account {
        code: Option<i64>,
    },
    Fault {
        fault: Fault,
        times: usize,
    },
    Faults(FaultMix),
    Ladder(Ladder),
    Traffic(Traffic),
}

#[derive(Deserialize)]
struct Who {
    who: Option<String>,
}

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/control", post(order))
        .route("/control/messages", get(messages))
        .route("/control/chats", get(chats))
        .route("/control/calls", get(async |State(hub): State<Arc<Hub>>| Json(json!(hub.lock().calls))))
        .route("/control/webhooks", get(async |State(hub): State<Arc<Hub>>| Json(json!(hub.lock().posted))))
}

async fn order(State(hub): State<Arc<Hub>>, Json(order): Json<Order>) -> Response {
    match carry_out(&hub, order).await {
        Ok(done) => Json(done).into_response(),
        Err(why) => (StatusCode::CONFLICT, Json(json!({"error": why}))).into_response(),
    }
}

async fn carry_out(hub: &Hub, order: Order) -> Result<Value, String> {
    match order {
        Order::Webhook { url } => hub.lock().webhook = url,
        Order::Handshake => courier::handshake(hub).await?,
        Order::Raw { body, signature } => {
            let status = courier::attempt(hub, body.as_bytes(), signature, 0).await;
            return Ok(json!({"status": status}));
        }
        Order::Again { back } => {
            let status = hub.again(back).await;
            return Ok(json!({"status": status}));
        }
        Order::AgainWith { id } => {
            let status = hub.again_with(&id).await;
            return Ok(json!({"status": status}));
        }
        Order::Template(template) => hub.lock().templates.push(template),
        Order::Status { id, status, code } => {
            if !hub.set_stage(&id, status, code) {
                return Err(format!("no message of the business has the id {id}"));
            }
        }
        Order::Advance { seconds } => hub.clock.advance(Duration::from_secs(seconds)),
        Order::Account { code } => hub.lock().account = code,
        Order::Fault { fault, times } => hub.lock().faults.queue(fault, times),
        Order::Faults(mix) => hub.lock().faults.set_mix(mix),
        Order::Ladder(ladder) => hub.lock().ladder = ladder,
        Order::Traffic(traffic) => hub.lock().traffic = traffic,
        of_a_person => return Ok(persons(hub, of_a_person)),
    }
    hub.bump();
    Ok(json!({"ok": true}))
}

/// Orders that are something a person does.
fn persons(hub: &Hub, order: Order) -> Value {
    let send = |who: &str, sending: &Sending, quotes: Option<String>| json!({"id": hub.person_sends(who, sending, quotes.as_deref())});
    match order {
        Order::Says { who, text, quotes, at } => {
            let at = at.map(|seconds| seconds * 1000);
            let id = hub.person_sends_at(&who, &Sending::Text(text), quotes.as_deref(), at);
            return json!({"id": id});
        }
        Order::Sticker { who, quotes } => return send(&who, &Sending::Sticker, quotes),
        Order::Voice { who, quotes } => return send(&who, &Sending::Voice, quotes),
        Order::Image { who, caption, quotes } => return send(&who, &Sending::Image(caption), quotes),
        Order::Unsupported { who } => return send(&who, &Sending::Unsupported, None),
        Order::Reaction { who, on, emoji } => return send(&who, &Sending::Reaction { on, emoji }, None),
        Order::Tap { who, on, id } => return send(&who, &Sending::Tap { on, id }, None),
        Order::Person(person) => hub.add_person(person),
        Order::Phone { who, on } => hub.phone(&who, on),
        Order::Opens { who } => hub.opens_chat(&who),
        Order::Reachable { who, on } => hub.reachable(&who, on),
        _ => {}
    }
    json!({"ok": true})
}

async fn messages(State(hub): State<Arc<Hub>>, Query(Who { who }): Query<Who>) -> Json<Value> {
    let state = hub.lock();
    let key = who.as_deref().map(|w| state.key(w).unwrap_or_default());
    let chats = state.chats.iter().filter(|(wa_id, _)| key.as_ref().is_none_or(|k| k == *wa_id));
    Json(json!(chats.flat_map(|(_, c)| &c.messages).collect::<Vec<_>>()))
}

/// For the page: who there is, in which state.
async fn chats(State(hub): State<Arc<Hub>>) -> Json<Value> {
    let now = hub.clock.now();
    let state = hub.lock();
    let list: Vec<Value> = state
        .chats
        .values()
        .map(|c| {
            let last = c.messages.last();
            let unread = c.messages.iter().filter(|m| m.outgoing && m.stage == Stage::Delivered).count();
            json!({"person": c.person, "phone_on": c.phone_on, "typing": c.typing_until > now, "unread": unread,
                "window_open": c.window_open(now, hub.config.window_ms),
                "window_until": c.last_inbound.map(|at| at + hub.config.window_ms), "last": last})
        })
        .collect();
    Json(
        json!({"business": hub.config.verified_name, "number": hub.config.display_phone_number, "now": now, "chats": list}),
    )
}
