//! The two addresses that Slack posts to. What is said there is taken to the same desk as what comes over a socket.

use super::desk::{Desk, Taken};
use super::payload::{Callback, Interaction};
use super::verified::{Door, Verified};
use crate::host::channel::signed::Webhooks;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use secrecy::SecretString;

/// `POST /slack/interactions` and `POST /slack/events`.
pub(super) fn routes(desk: Desk, secret: SecretString, webhooks: Webhooks) -> Router {
    Router::new()
        .route("/slack/interactions", post(interactions))
        .route("/slack/events", post(events))
        .with_state(Door { desk, secret, webhooks })
}

async fn interactions(State(Door { desk, .. }): State<Door>, Verified(signed): Verified) -> Response {
    let payload = form_urlencoded::parse(&signed.body).find(|(name, _)| name == "payload");
    let Some(payload) = payload.and_then(|(_, payload)| serde_json::from_str::<Interaction>(&payload).ok()) else {
        // Genuine, and not understood: an error would only be shown to a person who cannot mend it.
        tracing::debug!("an interaction that is not understood was ignored");
        return StatusCode::OK.into_response();
    };
    answer(desk.interaction(payload).await)
}

async fn events(State(Door { desk, .. }): State<Door>, Verified(signed): Verified) -> Response {
    let Ok(callback) = serde_json::from_slice::<Callback>(&signed.body) else {
        tracing::debug!("an event that is not understood was ignored");
        return StatusCode::OK.into_response();
    };
    if callback.kind == "url_verification" {
        return callback.challenge.unwrap_or_default().into_response();
    }
    answer(desk.event(callback).await)
}

fn answer(taken: Taken) -> Response {
    match taken {
        Taken::Done => StatusCode::OK.into_response(),
        // Slack shows a person a warning, and sends an event again.
        Taken::NotStored => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
