//! One call of the Cloud API, and what came of it. Knows nothing of asks, windows or rates.

use super::errors::{Verdict, verdict};
use super::settings::Whatsapp as Settings;
use crate::clock::Clock;
use crate::host::outgoing::client_for;
use askd_core::Time;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, RETRY_AFTER};
use reqwest::redirect::Policy;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a call may take before nobody knows what became of it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// No answer of the API comes near this.
const MAX_ANSWER: usize = 1024 * 1024;

/// A message to somebody.
#[derive(Debug, Clone)]
pub(super) struct Outgoing<'a> {
    /// A number, or a business-scoped id.
    pub(super) to: &'a str,
    /// What it says.
    pub(super) content: Content<'a>,
    /// Comes back with every status of the message.
    pub(super) tag: String,
    /// The message it quotes.
    pub(super) quotes: Option<&'a str>,
}

/// What a message says.
#[derive(Debug, Clone)]
pub(super) enum Content<'a> {
    /// Words.
    Text(&'a str),
    /// The approved template, with or without the name of the group as parameter.
    Template(&'a str, &'a str, Option<&'a str>),
}

/// What came of a call, and what else the answer says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) sent: Sent,
    /// What the platform's clock showed, in whole seconds.
    pub(super) date: Option<Time>,
    /// The platform's own id for the person we wrote to.
    pub(super) wa_id: Option<String>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// Taken; the id of the message.
    Id(String),
    /// Certainly not taken.
    Refused(Verdict),
    /// Nobody knows.
    Lost,
    /// The daemon is stopping, so the call was not made.
    NotBegun,
}

/// The client of one number.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    clock: Clock,
    settings: Settings,
    /// Set if the last call got no answer.
    away: AtomicBool,
}

#[derive(Deserialize)]
struct Taken {
    messages: Vec<TakenMessage>,
    #[serde(default)]
    contacts: Vec<TakenContact>,
}

#[derive(Deserialize)]
struct TakenContact {
    input: Option<String>,
    wa_id: Option<String>,
}

#[derive(Deserialize)]
struct TakenMessage {
    id: String,
}

#[derive(Deserialize)]
struct Envelope {
    error: ErrorShape,
}

#[derive(Deserialize)]
struct ErrorShape {
    code: u64,
    #[serde(default)]
    message: String,
}

impl Client {
    /// Fixed address, no redirects, no proxy: the token goes nowhere else.
    pub(super) fn new(settings: Settings, clock: Clock) -> Result<Self, reqwest::Error> {
        let http = client_for(&settings.api_url).redirect(Policy::none()).build()?;
        Ok(Self { http, clock, settings, away: AtomicBool::new(false) })
    }

    /// What it was set up with.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sends a message. `attempt`: which try, for the waits that grow with it.
    pub(super) async fn send(&self, message: &Outgoing<'_>, attempt: u8) -> Answer {
        let mut answer = Answer { sent: Sent::Lost, date: None, wa_id: None };
        let sent = self.clock.timeout(TIMEOUT, self.call(message, attempt, &mut answer)).await;
        answer.sent = sent.unwrap_or_else(|| {
            self.away.store(true, Ordering::Relaxed);
            tracing::warn!("WhatsApp did not answer within {} s", TIMEOUT.as_secs());
            Sent::Lost
        });
        answer
    }

    /// Whether the last call got no answer.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    async fn call(&self, message: &Outgoing<'_>, attempt: u8, answer: &mut Answer) -> Sent {
        let url = format!("{}/{}/messages", self.settings.api_url, self.settings.phone_number_id);
        let call = self.http.post(url).bearer_auth(self.settings.access_token.expose_secret()).json(&body(message));
        let called = call.send().await;
        self.away.store(called.is_err(), Ordering::Relaxed);
        let response = match called {
            Ok(response) => response,
            // No connection: nothing can have been taken.
            Err(error) if error.is_connect() => {
                tracing::warn!(error = %error.without_url(), "WhatsApp cannot be reached");
                return Sent::Refused(Verdict::Away);
            }
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "the answer to a WhatsApp message was lost");
                return Sent::Lost;
            }
        };
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let date = response.headers().get(DATE).and_then(|value| date(value.to_str().ok()?));
        let Some(bytes) = read(response).await else { return Sent::Lost };
        // Only from a complete answer: a proxy between us and the platform does not send these.
        answer.date = date;
        if status.is_success() {
            let Ok(Taken { messages, contacts }) = serde_json::from_slice(&bytes) else { return Sent::Lost };
            let same = contacts.into_iter().find(|contact| contact.input.as_deref() == Some(message.to));
            answer.wa_id = same.and_then(|contact| contact.wa_id);
            return messages.into_iter().next_back().map_or(Sent::Lost, |message| Sent::Id(message.id));
        }
        match serde_json::from_slice::<Envelope>(&bytes) {
            Ok(Envelope { error }) => {
                tracing::warn!(code = error.code, status = status.as_u16(), "WhatsApp refused a message");
                Sent::Refused(verdict(error.code, &error.message, attempt))
            }
            // Something in between refused it.
            Err(_) if status.is_client_error() => Sent::Refused(Verdict::Again(retry_after.map(Duration::from_secs))),
            Err(_) => Sent::Lost,
        }
    }
}

/// The moment that a `Date` header names.
fn date(text: &str) -> Option<Time> {
    let moment = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Time::from_millis(moment.as_millisecond()))
}

async fn read(mut response: reqwest::Response) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_ANSWER {
            return None;
        }
    }
    Some(bytes)
}

fn body(message: &Outgoing<'_>) -> Value {
    let mut body = json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "biz_opaque_callback_data": message.tag,
    });
    // Business-scoped ids have a dot; numbers have none.
    body[if message.to.contains('.') { "recipient" } else { "to" }] = json!(message.to);
    match &message.content {
        Content::Text(text) => {
            body["type"] = json!("text");
            body["text"] = json!({"preview_url": false, "body": text});
        }
        Content::Template(name, language, group) => {
            body["type"] = json!("template");
            body["template"] = json!({"name": name, "language": {"code": language}});
            if let Some(group) = group {
                body["template"]["components"] =
                    json!([{"type": "body", "parameters": [{"type": "text", "text": group}]}]);
            }
        }
    }
    if let Some(quoted) = message.quotes {
        body["context"] = json!({"message_id": quoted});
    }
    body
}
