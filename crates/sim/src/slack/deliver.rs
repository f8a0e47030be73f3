//! Bringing payloads to the app: signed HTTP POST, or a socket when one is connected.
//!
//! Measures how long the app took to acknowledge, and keeps a record of every attempt. Builds no payloads (see `interact` and `events`).
//! Events are retried, interactions never: Slack documents retries for events only.

use std::time::Duration;

use serde_json::{Value, json};

use super::faults::{EVENTS, FaultKind, INTERACTIONS};
use super::shared::Shared;
use super::sign::sign;

/// How one attempt went.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `interactive` or `events_api`.
    pub kind: String,
    /// Sent over a socket.
    pub socket: bool,
    /// Which attempt, from 0.
    pub attempt: u32,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// Body of the answer (or payload of the acknowledgement).
    pub answer: String,
    /// How long it took.
    pub took: Duration,
    /// Acknowledged in time and with a 2xx: the person sees no warning.
    pub acknowledged: bool,
    /// The app asked for no more retries (`X-Slack-No-Retry: 1`).
    pub no_retry: bool,
    /// What was sent.
    pub payload: Value,
}

/// What to add to a POST.
pub(super) struct Post {
    pub(super) url: String,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Shared {
    /// Sends an interaction and says how it went. A fault may lose or double it.
    pub(super) async fn interaction(&self, payload: &Value) -> Delivery {
        match self.faults.strike(INTERACTIONS, &self.chance) {
            Some(FaultKind::Lost) => {
                let lost = self.attempt_record("interactive", payload, Attempt::default());
                self.record(lost)
            }
            Some(FaultKind::Duplicate) => {
                self.one_interaction(payload).await;
                self.one_interaction(payload).await
            }
            Some(FaultKind::Stall(wait) | FaultKind::StallBefore(wait)) => {
                tokio::time::sleep(wait).await;
                self.one_interaction(payload).await
            }
            _ => self.one_interaction(payload).await,
        }
    }

    async fn one_interaction(&self, payload: &Value) -> Delivery {
        let attempt = if self.socket_mode() {
            self.over_socket("interactive", payload, None, accepts_response(payload)).await
        } else {
            let url = self.state().interactivity_url.clone();
            match url {
                Some(url) => self.signed(interaction_post(url, payload)).await,
                None => Attempt::default(),
            }
        };
        let delivery = self.attempt_record("interactive", payload, attempt);
        self.record(delivery)
    }

    /// Sends an event until it is acknowledged, as often as configured.
    pub(super) async fn event(&self, payload: &Value) {
        let fault = self.faults.strike(EVENTS, &self.chance);
        if fault == Some(FaultKind::Lost) {
            return;
        }
        if fault == Some(FaultKind::Duplicate) {
            self.one_event(payload, 0, "").await;
        }
        let mut last = self.one_event(payload, 0, "").await;
        for (index, wait) in self.config.event_retries.clone().into_iter().enumerate() {
            if last.acknowledged || last.no_retry {
                return;
            }
            tokio::time::sleep(wait).await;
            let reason = match last.status {
                None if last.took >= self.config.ack_within => "http_timeout",
                None => "connection_failed",
                Some(_) => "http_error",
            };
            let attempt = u32::try_from(index).unwrap_or(u32::MAX) + 1;
            last = self.one_event(payload, attempt, reason).await;
        }
    }

    async fn one_event(&self, payload: &Value, number: u32, reason: &str) -> Delivery {
        let attempt = if self.socket_mode() {
            self.over_socket("events_api", payload, Some((number, reason)), false).await
        } else {
            let url = self.state().events_url.clone();
            match url {
                Some(url) => {
                    let mut headers = Vec::new();
                    if number > 0 {
                        headers.push(("x-slack-retry-num", number.to_string()));
                        headers.push(("x-slack-retry-reason", reason.to_owned()));
                    }
                    let body = payload.to_string().into_bytes();
                    let content_type = "application/json";
                    self.signed(Post { url, content_type, body, headers }).await
                }
                None => Attempt::default(),
            }
        };
        let mut delivery = self.attempt_record("events_api", payload, attempt);
        delivery.attempt = number;
        self.record(delivery)
    }

    /// Signs with the app's secret at the present time, and posts.
    pub(super) async fn signed(&self, mut post: Post) -> Attempt {
        let timestamp = self.clock.now().as_secs();
        let signature = sign(&self.config.signing_secret, timestamp, &post.body);
        post.headers.push(("x-slack-request-timestamp", timestamp.to_string()));
        post.headers.push(("x-slack-signature", signature));
        self.post(post).await
    }

    /// Posts as it is.
    pub(super) async fn post(&self, post: Post) -> Attempt {
        let started = self.clock.monotonic();
        let mut request = self.http.post(&post.url).header("content-type", post.content_type).body(post.body);
        for (name, value) in post.headers {
            request = request.header(name, value);
        }
        let answer = tokio::time::timeout(self.config.ack_within, async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            let no_retry = response.headers().get("x-slack-no-retry").is_some_and(|value| value == "1");
            Some((status, no_retry, response.text().await.unwrap_or_default()))
        })
        .await;
        let took = self.clock.monotonic().saturating_sub(started);
        let Ok(Some((status, no_retry, answer))) = answer else {
            return Attempt { took, ..Attempt::default() };
        };
        Attempt {
            status: Some(status),
            acknowledged: (200..300).contains(&status),
            no_retry,
            answer,
            took,
            socket: false,
        }
    }

    fn attempt_record(&self, kind: &str, payload: &Value, attempt: Attempt) -> Delivery {
        Delivery {
            kind: kind.into(),
            socket: attempt.socket,
            attempt: 0,
            status: attempt.status,
            answer: attempt.answer,
            took: attempt.took,
            acknowledged: attempt.acknowledged && attempt.took <= self.config.ack_within,
            no_retry: attempt.no_retry,
            payload: payload.clone(),
        }
    }

    fn record(&self, delivery: Delivery) -> Delivery {
        self.state().deliveries.push(delivery.clone());
        self.touch();
        delivery
    }
}

/// What came back from one attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) socket: bool,
    pub(super) status: Option<u16>,
    pub(super) acknowledged: bool,
    pub(super) no_retry: bool,
    pub(super) answer: String,
    pub(super) took: Duration,
}

/// The form-encoded POST of an interaction.
pub(super) fn interaction_post(url: String, payload: &Value) -> Post {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("payload", &payload.to_string())
        .finish()
        .into_bytes();
    Post { url, content_type: "application/x-www-form-urlencoded", body, headers: Vec::new() }
}

fn accepts_response(payload: &Value) -> bool {
    payload["type"] == "view_submission"
}

/// `{"ok": true}` with more.
pub(super) fn ok(mut more: Value) -> Value {
    if let Some(map) = more.as_object_mut() {
        map.insert("ok".into(), json!(true));
    }
    more
}
