//! Raw sends for tests: any body, any signature, any time, whole or in chunks.
//!
//! This is how an attacker, a replay or a broken proxy looks to the app. Not recorded among the deliveries. Called by tests through the handle.

use std::time::Duration;

use serde_json::Value;

use super::handle::Slack;
use super::sign::sign;

/// One raw POST. [`Raw::interaction`] and [`Raw::event`] start from what Slack would send; fields can then be changed.
#[derive(Debug, Clone)]
pub struct Raw {
    /// Where to.
    pub url: String,
    /// Body as it goes out, and as it is signed.
    pub body: Vec<u8>,
    /// `Content-Type`.
    pub content_type: String,
    /// Key of the signature; `None` sends no signature.
    pub secret: Option<String>,
    /// A signature instead of the computed one.
    pub signature: Option<String>,
    /// Seconds to add to the time of sending: -301 is too old.
    pub skew: i64,
    /// In chunks of so many bytes, without `Content-Length`.
    pub chunks: Option<usize>,
    /// More headers.
    pub headers: Vec<(String, String)>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawAnswer {
    /// HTTP status; `None` when the connection broke.
    pub status: Option<u16>,
    /// Body.
    pub body: String,
}

impl Raw {
    /// An interaction with this payload, form-encoded, signed with the app's secret.
    #[must_use]
    pub fn interaction(slack: &Slack, url: &str, payload: &Value) -> Self {
        let post = super::deliver::interaction_post(url.into(), payload);
        Self::new(slack, url, post.content_type, post.body)
    }

    /// An event with this payload, as JSON, signed with the app's secret.
    #[must_use]
    pub fn event(slack: &Slack, url: &str, payload: &Value) -> Self {
        Self::new(slack, url, "application/json", payload.to_string().into_bytes())
    }

    /// Any body, signed with the app's secret.
    #[must_use]
    pub fn new(slack: &Slack, url: &str, content_type: &str, body: Vec<u8>) -> Self {
        Self {
            url: url.into(),
            body,
            content_type: content_type.into(),
            secret: Some(slack.config().signing_secret.clone()),
            signature: None,
            skew: 0,
            chunks: None,
            headers: Vec::new(),
        }
    }
}

impl Slack {
    /// The payload Slack would send if this person clicked this button, sent nowhere: to be changed and sent by [`Slack::send_raw`].
    pub fn payload_of_click(&self, channel: &str, ts: &str, action_id: &str, user: &str) -> Result<Value, String> {
        let at =
            super::interact::At { channel: channel.into(), ts: ts.into(), block_id: None, action_id: action_id.into() };
        let payload = self.shared.payload(user, &at, &super::interact::Act::Click)?;
        payload.ok_or_else(|| "nothing would be sent".into())
    }

    /// The payload Slack would send if this person typed this into the modal that is open and submitted it, sent nowhere.
    pub fn payload_of_modal(&self, user: &str, text: &str) -> Result<Value, String> {
        let (view_id, values) = self.modal_of(user, text)?;
        self.shared.view_payload(&view_id, user, &values)
    }

    /// The envelope of an `event_callback` around this event, sent nowhere.
    #[must_use]
    pub fn event_payload(&self, event: &Value) -> Value {
        self.shared.event_callback(event)
    }

    /// Sends over a socket whatever this is as an `interactive` envelope.
    pub async fn send_over_socket(&self, payload: &Value) -> bool {
        self.shared.over_socket("interactive", payload, None, false).await.acknowledged
    }

    /// Sends it as it is.
    pub async fn send_raw(&self, raw: Raw) -> RawAnswer {
        let now = i64::try_from(self.shared.clock.now().as_secs()).unwrap_or(i64::MAX);
        let timestamp = u64::try_from(now.saturating_add(raw.skew)).unwrap_or(0);
        let mut request = self
            .shared
            .http
            .post(&raw.url)
            .timeout(Duration::from_secs(30))
            .header("content-type", raw.content_type)
            .header("x-slack-request-timestamp", timestamp.to_string());
        let computed = raw.secret.map(|secret| sign(&secret, timestamp, &raw.body));
        if let Some(signature) = raw.signature.or(computed) {
            request = request.header("x-slack-signature", signature);
        }
        for (name, value) in raw.headers {
            request = request.header(name, value);
        }
        let request = match raw.chunks {
            None => request.body(raw.body),
            Some(size) => {
                let chunks: Vec<Result<Vec<u8>, std::io::Error>> =
                    raw.body.chunks(size.max(1)).map(|chunk| Ok(chunk.to_vec())).collect();
                request.body(reqwest::Body::wrap_stream(tokio_stream::iter(chunks)))
            }
        };
        let Ok(response) = request.send().await else {
            return RawAnswer { status: None, body: String::new() };
        };
        RawAnswer { status: Some(response.status().as_u16()), body: response.text().await.unwrap_or_default() }
    }
}
