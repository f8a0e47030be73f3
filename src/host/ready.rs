//! `/healthz` and `/readyz`: whether the process runs, and whether it can take asks and answers. Neither needs a token,
//! so neither names a group, a chat or a person. `/metrics` needs none either, but it names groups, so it is served beside
//! the inbox alone, under its host names.

use super::metrics::CONTENT_TYPE;
use super::status::Status;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;

/// What Prometheus scrapes.
pub(super) fn metrics(status: &Status) -> Router {
    let status = status.clone();
    let say = move || {
        let text = status.metrics().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
        async { text.map(|text| ([(header::CONTENT_TYPE, CONTENT_TYPE)], text)) }
    };
    Router::new().route("/metrics", get(say))
}

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
