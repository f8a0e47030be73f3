//! The page: draws a channel as Slack does, lets one act as any person, and follows every change.
//!
//! Serves three embedded files and a small JSON interface for them. Only requests that name this machine as their host are answered, so that no web site can
//! reach it by name. What an act means is `interact`'s. Called by browsers, by way of the router.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt as _, wrappers::WatchStream};

use super::interact::{Act, At};
use super::message::Message;
use super::shared::{Shared, State as Workspace};

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                   base-uri 'none'; form-action 'none'; frame-ancestors http://127.0.0.1:* http://localhost:*";

/// Routes of the page.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(|| async { Html(include_str!("page/index.html")) }))
        .route("/page/app.js", get(|| async { file("text/javascript; charset=utf-8", include_str!("page/app.js")) }))
        .route(
            "/page/blocks.js",
            get(|| async { file("text/javascript; charset=utf-8", include_str!("page/blocks.js")) }),
        )
        .route("/page/style.css", get(|| async { file("text/css; charset=utf-8", include_str!("page/style.css")) }))
        .route("/page/state", get(state))
        .route("/page/changes", get(changes))
        .route("/page/act", post(act))
        .route("/page/say", post(say))
        .route("/page/view", post(view))
        .layer(from_fn(guard))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !matches!(name, "127.0.0.1" | "localhost") {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// All that one person sees of one channel.
async fn state(State(shared): State<Arc<Shared>>, Query(query): Query<HashMap<String, String>>) -> Json<Value> {
    let part = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
    let (channel, user) = (part("channel"), part("user"));
    let config = &shared.config;
    let state = shared.state();
    let mine = |known: &super::config::Channel| known.members.iter().any(|member| member == user);
    let allowed = state.channel(channel).is_some_and(mine);
    let messages: Vec<Value> = state
        .messages
        .iter()
        .filter(|message| allowed && message.channel == channel && !message.deleted)
        .filter(|message| message.only_for.as_deref().is_none_or(|only| only == user))
        .map(|message| drawn(&shared, &state, message, user))
        .collect();
    let views: Vec<&Value> = state.views.iter().filter(|view| view["opened_for"] == user).collect();
    Json(json!({
        "app": config.app_name, "bot_user": config.bot_user, "team": config.team_id, "sockets": state.sockets.connected(),
        "http": state.interactivity_url.is_some(),
        "users": config.users.iter().map(|user| json!({"id": user.id, "name": user.name})).collect::<Vec<_>>(),
        "channels": state.channels.iter().filter(|known| mine(known) || user.is_empty())
            .map(|known| json!({"id": known.id, "name": known.name, "archived": known.archived, "bot": known.bot_invited})).collect::<Vec<_>>(),
        "messages": messages, "views": views,
    }))
}

fn drawn(shared: &Shared, state: &Workspace, message: &Message, user: &str) -> Value {
    let mut wire = shared.with_thread(state, message, false);
    wire["name"] = json!(shared.user(&message.user).map(|user| user.name));
    wire["by_app"] = json!(message.by_app);
    wire["only_for"] = json!(message.only_for);
    wire["in_thread"] = json!(message.thread_ts);
    wire["broadcast"] = json!(message.broadcast);
    wire["warning"] = json!(message.warnings.get(user));
    wire["values"] = message.state_for(user);
    wire["edits"] = json!(message.edits);
    wire
}

async fn changes(State(shared): State<Arc<Shared>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = WatchStream::new(shared.changes()).map(|version| Ok(Event::default().data(version.to_string())));
    Sse::new(changes).keep_alive(KeepAlive::default())
}

/// One act of a person.
#[derive(Deserialize)]
struct Acted {
    user: String,
    channel: String,
    ts: String,
    block_id: String,
    action_id: String,
    #[serde(default)]
    values: Vec<String>,
    #[serde(default)]
    text: String,
    act: String,
}

async fn act(State(shared): State<Arc<Shared>>, Json(acted): Json<Acted>) -> Json<Value> {
    let act = match acted.act.as_str() {
        "click" => Act::Click,
        "enter" => Act::Enter,
        "type" => Act::Type(acted.text),
        _ => Act::Choose(acted.values),
    };
    let at = At { channel: acted.channel, ts: acted.ts, block_id: Some(acted.block_id), action_id: acted.action_id };
    Json(match shared.act(&acted.user, &at, &act).await {
        Ok(None) => json!({"sent": false}),
        Ok(Some(delivery)) => json!({"sent": true, "acknowledged": delivery.acknowledged}),
        Err(error) => json!({"error": error}),
    })
}

/// Something a person writes.
#[derive(Deserialize)]
struct Said {
    user: String,
    channel: String,
    thread_ts: Option<String>,
    text: String,
}

async fn say(State(shared): State<Arc<Shared>>, Json(said): Json<Said>) -> Json<Value> {
    let said = shared.say(&said.channel, said.thread_ts.as_deref(), &said.user, &said.text);
    Json(match said {
        Ok(message) => json!({"ts": message.ts}),
        Err(error) => json!({"error": error}),
    })
}

/// A modal is submitted, or closed when there are no values.
#[derive(Deserialize)]
struct Viewed {
    user: String,
    view_id: String,
    values: Option<Value>,
}

async fn view(State(shared): State<Arc<Shared>>, Json(viewed): Json<Viewed>) -> Json<Value> {
    let Some(values) = viewed.values else {
        shared.state().views.retain(|view| view["id"] != viewed.view_id);
        shared.touch();
        return Json(json!({}));
    };
    Json(match shared.submit_view(&viewed.view_id, &viewed.user, &values).await {
        Ok(delivery) => json!({
            "acknowledged": delivery.acknowledged, "answer": serde_json::from_str::<Value>(&delivery.answer).unwrap_or_default(),
        }),
        Err(error) => json!({"error": error}),
    })
}
