//! `/healthz` and `/readyz`: whether the process runs, and whether it can take asks and answers. Neither needs a token,
//! so neither names a group, a chat or a person.

use super::status::Status;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// The two calls.
pub(super) fn routes(status: &Status) -> Router {
    let status = status.clone();
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(move || say(status.clone())))
}

async fn say(status: Status) -> (StatusCode, String) {
    match status.judge().await {
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        Ok(reasons) if reasons.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        Ok(reasons) => (StatusCode::OK, format!("degraded: {}\n", reasons.join("\n"))),
    }
}
