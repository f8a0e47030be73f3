//! One call of somebody else's server, as a check makes it: with a time limit, and with what its clock shows.

use crate::clock::Clock;
use crate::host::outgoing::{client_for, root_cause};
use crate::host::settings::{Settings, reachable};
use askd_core::Time;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::Sha256;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes calls.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) clock: Clock,
}

/// What a server said.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) text: String,
    /// What its clock shows.
    pub(super) date: Option<Time>,
    /// The scopes of the token, as Slack tells them.
    pub(super) scopes: Option<String>,
}

/// What is wrong if the daemon did not take what was signed with the secret under this key, and how to mend it.
pub(super) fn not_taken(status: u16, key: &str) -> (String, String) {
    match status {
        401 => (
            format!("the daemon has another {key} than the settings"),
            format!("reload the daemon, so that it reads {key} again: sudo systemctl reload askd"),
        ),
        404 => (
            "the daemon was started without this channel".to_owned(),
            "restart the daemon, a reload starts no channel: sudo systemctl restart askd".to_owned(),
        ),
        503 => (
            "the daemon is not ready".to_owned(),
            "its log and `askd status` say why: it loads, stops, or cannot use its database".to_owned(),
        ),
        status => (
            format!("the daemon answered with HTTP status {status}"),
            "its log says why; if it says nothing, look at what stands in front of http.webhook_listen".to_owned(),
        ),
    }
}

impl Said {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Probe {
    pub(super) const fn new(clock: Clock) -> Self {
        Self { clock }
    }

    /// Calls; the error says in a few words why there is no answer.
    pub(super) async fn call(&self, url: &str, build: impl FnOnce(&Client) -> RequestBuilder) -> Result<Said, String> {
        let client = client_for(url).timeout(TIMEOUT).build().map_err(|error| error.to_string())?;
        let why = |error: reqwest::Error| {
            if error.is_timeout() {
                return "no answer".to_owned();
            }
            format!("no connection: {}", root_cause(&error.without_url()))
        };
        let response = build(&client).send().await.map_err(why)?;
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let date = header("date").and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let date = date.map(|date| Time::from_millis(date.as_millisecond()));
        let (status, scopes) = (response.status().as_u16(), header("x-oauth-scopes"));
        let text = response.text().await.map_err(why)?;
        Ok(Said { status, text, date, scopes })
    }
}

/// The signature of these bytes, as both platforms make it.
pub(super) fn signature(secret: &SecretString, bytes: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return String::new() };
    mac.update(bytes);
    hex::encode(mac.finalize().into_bytes())
}

/// Where the daemon takes webhooks, from this host.
pub(super) fn webhooks(settings: &Settings) -> String {
    format!("http://{}", reachable(settings.http.webhook_listen.unwrap_or(settings.http.listen)))
}
