//! Errors of the API, as `application/problem+json` (RFC 9457).

use crate::host::channel::web::view::View;
use askd_core::{Ask, AskId};
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The content type of them.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// An error that a client is told.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    more: Map<String, Value>,
    retry_after: Option<u64>,
}

impl Problem {
    /// With a sentence for people.
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        Self { status, title, detail: detail.into(), more: Map::new(), retry_after }
    }

    /// Whether it says that something is not there.
    pub fn is_unknown(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Whether it says only that now is not the time.
    pub fn is_for_now(&self) -> bool {
        self.retry_after.is_some()
    }

    /// The sentence alone.
    pub fn into_detail(self) -> String {
        self.detail
    }

    /// Says after how many whole seconds to try again.
    pub fn retry_after(self, time: Duration) -> Self {
        Self { retry_after: Some(time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)), ..self }
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.more.insert(key.to_owned(), value);
        self
    }

    pub(super) fn unknown_ask(name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "No such ask",
            format!(
                "No question has a code or an id that begins with {name:?}. `askd list` shows the open ones, `askd list --settled` the others."
            ),
        )
    }

    pub(super) fn ambiguous(name: &str, ids: &[AskId]) -> Self {
        let candidates: Vec<String> = ids.iter().take(20).map(ToString::to_string).collect();
        let detail = format!("{} questions have an id that begins with {name:?}; give more of it.", ids.len());
        Self::new(StatusCode::BAD_REQUEST, "More than one ask", detail).with("candidates", json!(candidates))
    }

    pub(super) fn settled(detail: String, ask: &Ask) -> Self {
        Self::new(StatusCode::CONFLICT, "Already settled", detail).with("ask", json!(View::of(ask)))
    }

    pub(super) fn not_stored() -> Self {
        let detail = "It could not be stored, and nothing was changed. Try again; the daemon's log says what is wrong.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not stored", detail)
    }

    pub(super) fn loading() -> Self {
        let detail = "askd has started and is still reading its stored questions. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", detail)
    }

    pub(super) fn in_doubt() -> Self {
        let detail = "It may have been stored; look again. If it was not, askd keeps trying; the daemon's log says what is wrong.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not known to be stored", detail)
    }

    pub(super) fn token_in_doubt() -> Self {
        let detail = "The inbox token may have been replaced, or not: the disk or the database failed half-way. `askd link` on askd's \
                      host prints the one that holds now; the daemon's log says what is wrong.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not known to be stored", detail)
    }

    /// What lets the caller in may have been replaced or revoked at another daemon.
    pub fn cut_off() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not now", "The database cannot be reached. Try again.")
    }

    pub(super) fn broken() -> Self {
        let detail = "askd failed on this question and set it aside; the daemon's log says where it is.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Set aside", detail)
    }

    pub(super) fn no_token() -> Self {
        let detail = "The inbox token is missing or wrong. On askd's host, run `askd link` with neither --token nor `ASKD_TOKEN` set: it prints a \
                      link that contains it. Send the token as: Authorization: Bearer <token>";
        Self::new(StatusCode::UNAUTHORIZED, "No access", detail)
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "Not understood", rejection.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = self.more;
        body.insert("type".to_owned(), json!("about:blank"));
        body.insert("title".to_owned(), json!(self.title));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("detail".to_owned(), json!(self.detail));
        let mut response = (self.status, Value::Object(body).to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"askd\""));
        }
        response
    }
}
