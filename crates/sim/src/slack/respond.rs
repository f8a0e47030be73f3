//! The `response_url` of an interaction: five uses within thirty minutes (documentation).
//!
//! Needs no token: whoever knows the address may use it, as with Slack. The errors `used_url` and `expired_url` are as users report them, not documented.
//! Called by the router.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::api::Failure;
use super::message::Message;
use super::shared::{ResponseUrl, Shared, State as Workspace};

/// How often an address may be used.
const USES: u8 = 5;
/// How long it may be used.
const LIFE: Duration = Duration::from_secs(30 * 60);

/// `POST /actions/...`.
pub(super) async fn respond(State(shared): State<Arc<Shared>>, OriginalUri(uri): OriginalUri, body: Bytes) -> Response {
    match answer(&shared, uri.path(), &body) {
        Ok(()) => {
            shared.touch();
            (StatusCode::OK, "ok").into_response()
        }
        Err((status, error)) => (status, axum::Json(json!({"ok": false, "error": error}))).into_response(),
    }
}

fn answer(shared: &Arc<Shared>, path: &str, body: &[u8]) -> Result<(), (StatusCode, String)> {
    let refuse = |error: &str| (StatusCode::BAD_REQUEST, error.to_owned());
    let body: Value = serde_json::from_slice(body).map_err(|_| refuse("invalid_payload"))?;
    let blocks = match body.get("blocks") {
        None => None,
        Some(Value::Array(blocks)) => Some(blocks.clone()),
        Some(_) => return Err(refuse("invalid_blocks_format")),
    };
    super::api::check_blocks(blocks.as_deref().unwrap_or_default())
        .map_err(|failure: Failure| refuse(failure.error()))?;
    let now = shared.clock.now();
    let posted = {
        let mut state = shared.state();
        let url = state.response_urls.get_mut(path);
        let url = url.ok_or_else(|| (StatusCode::NOT_FOUND, "no_such_url".to_owned()))?;
        if now.saturating_sub(url.issued) > LIFE {
            return Err((StatusCode::NOT_FOUND, "expired_url".into()));
        }
        if url.uses >= USES {
            return Err((StatusCode::NOT_FOUND, "used_url".into()));
        }
        url.uses += 1;
        let url = url.clone();
        apply(shared, &mut state, &url, &body, blocks)
    };
    if let Some(message) = posted.map_err(refuse)? {
        shared.announce(&message);
    }
    Ok(())
}

/// Deletes, replaces or posts. Yields a new message that all can see.
fn apply(
    shared: &Shared,
    state: &mut Workspace,
    url: &ResponseUrl,
    body: &Value,
    blocks: Option<Vec<Value>>,
) -> Result<Option<Message>, &'static str> {
    let text = body["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if body["delete_original"] == true {
        let message = state.message(&url.channel, &url.ts).ok_or("message_not_found")?;
        message.deleted = true;
        return Ok(None);
    }
    if text.is_none() && blocks.as_ref().is_none_or(Vec::is_empty) {
        return Err("no_text");
    }
    if body["replace_original"] == true {
        let message = state.message(&url.channel, &url.ts).ok_or("message_not_found")?;
        // Unlike an edit, this replaces the whole.
        shared.edit(message, text, Some(blocks.unwrap_or_default()));
        return Ok(None);
    }
    let in_channel = body["response_type"] == "in_channel";
    let message = Message {
        channel: url.channel.clone(),
        user: shared.config.bot_user.clone(),
        by_app: true,
        text: text.unwrap_or_default(),
        blocks: blocks.unwrap_or_default(),
        thread_ts: body["thread_ts"].as_str().map(str::to_owned),
        only_for: (!in_channel).then(|| url.user.clone()),
        ..Message::default()
    };
    let message = shared.store(state, message);
    Ok(in_channel.then_some(message))
}
