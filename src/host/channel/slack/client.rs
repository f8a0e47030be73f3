//! Calls of Slack's Web API: one connector for production and tests, a time limit on each call, and
//! `Retry-After` kept. Says how sure a failure is; what follows from it is the caller's to say.
//!
//! Bodies of answers are never logged: they hold what people wrote.

use super::pace::Pace;
use crate::host::settings::SlackSettings;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Error as HyperError;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use slack_morphism::errors::SlackClientError;
use slack_morphism::hyper_tokio::{SlackClientHyperConnector, SlackClientHyperHttpsConnector};
use slack_morphism::{SlackApiToken, SlackClient};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a call may take; after that nobody knows what came of it.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// How long is waited after a 429 that does not say.
const LIMITED: Duration = Duration::from_secs(1);

/// A call that did not succeed, and how sure that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// Refused or not sent because of a rate limit; not sooner than after this.
    Limited(Duration),
    /// Slack says no: its name for the reason, and the scope that is missing, if that is it.
    Refused {
        /// Such as `channel_not_found`.
        code: String,
        /// Such as `chat:write`.
        needed: Option<String>,
    },
    /// It never left this machine.
    NotSent,
    /// Nobody knows whether it was done: in a few words why.
    Unknown(String),
}

/// Calls the Web API.
pub(super) struct Client {
    slack: SlackClient<SlackClientHyperHttpsConnector>,
    pace: Arc<Pace>,
    /// The last call got no answer.
    away: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

fn connector(api_url: &str) -> io::Result<SlackClientHyperHttpsConnector> {
    let builder = HttpsConnectorBuilder::new().with_native_roots()?;
    // The settings allow plain http to this machine only.
    let https = if api_url.starts_with("http://") {
        builder.https_or_http().enable_http1().enable_http2().build()
    } else {
        builder.https_only().enable_http1().enable_http2().build()
    };
    Ok(SlackClientHyperConnector::with_connector(https).with_slack_api_url(api_url))
}

impl Client {
    pub(super) fn new(settings: &SlackSettings, pace: Arc<Pace>) -> io::Result<Self> {
        Ok(Self { slack: SlackClient::new(connector(&settings.api_url)?), pace, away: AtomicBool::new(false) })
    }

    /// Calls a method that writes, with JSON. `chat`: where, if anywhere.
    pub(super) async fn post<R: DeserializeOwned + Send>(
        &self,
        token: &SecretString,
        method: &str,
        chat: &str,
        body: &Value,
    ) -> Result<R, CallError> {
        let _alone = self.pace.call(method, chat).await.map_err(CallError::Limited)?;
        let token = SlackApiToken::new(token.expose_secret().to_owned().into());
        let session = self.slack.open_session(&token);
        let call = session.http_session_api.http_post(method, body, None);
        self.judge(method, chat, self.pace.clock().timeout(CALL, call).await)
    }

    /// Calls a method that reads.
    pub(super) async fn get<R: DeserializeOwned + Send>(
        &self,
        token: &SecretString,
        method: &str,
        chat: &str,
        arguments: &[(&str, String)],
    ) -> Result<R, CallError> {
        let _alone = self.pace.call(method, chat).await.map_err(CallError::Limited)?;
        let token = SlackApiToken::new(token.expose_secret().to_owned().into());
        let session = self.slack.open_session(&token);
        let arguments: Vec<(&str, Option<&String>)> =
            arguments.iter().map(|(name, value)| (*name, Some(value))).collect();
        let call = session.http_session_api.http_get(method, &arguments, None);
        self.judge(method, chat, self.pace.clock().timeout(CALL, call).await)
    }

    /// Whether the last call got no answer that says anything.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    fn judge<R>(&self, method: &str, chat: &str, called: Option<Result<R, SlackClientError>>) -> Result<R, CallError> {
        let failed = match called {
            Some(Ok(answer)) => {
                self.away.store(false, Ordering::Relaxed);
                return Ok(answer);
            }
            Some(Err(error)) => failure(error),
            None => CallError::Unknown(format!("no answer within {} s", CALL.as_secs())),
        };
        self.away.store(matches!(failed, CallError::NotSent | CallError::Unknown(_)), Ordering::Relaxed);
        if let CallError::Limited(wait) = failed {
            self.pace.limit(method, chat, wait);
            tracing::warn!(method, chat, seconds = wait.as_secs(), "Slack asks us to wait");
        }
        Err(failed)
    }
}

fn failure(error: SlackClientError) -> CallError {
    match error {
        SlackClientError::ApiError(error) if matches!(error.code.as_str(), "ratelimited" | "rate_limited") => {
            CallError::Limited(LIMITED)
        }
        // Slack: "It's possible some aspect of the operation succeeded before the error was raised."
        SlackClientError::ApiError(error) if matches!(error.code.as_str(), "internal_error" | "fatal_error") => {
            CallError::Unknown(error.code)
        }
        SlackClientError::ApiError(error) => {
            let needed = error.http_response_body.as_deref().and_then(|body| serde_json::from_str(body).ok());
            let needed = needed.and_then(|Needed { needed }| needed);
            CallError::Refused { code: error.code, needed }
        }
        SlackClientError::RateLimitError(error) => CallError::Limited(error.retry_after.unwrap_or(LIMITED)),
        SlackClientError::HttpError(error) => CallError::Unknown(format!("HTTP status {}", error.status_code)),
        SlackClientError::ProtocolError(_) => CallError::Unknown("an answer that is not JSON".to_owned()),
        SlackClientError::HttpProtocolError(error) => {
            let cause = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<HyperError>());
            if cause.is_some_and(HyperError::is_connect) {
                CallError::NotSent
            } else {
                CallError::Unknown("the connection broke".to_owned())
            }
        }
        _ => CallError::Unknown("the connection broke".to_owned()),
    }
}

#[derive(serde::Deserialize)]
struct Needed {
    needed: Option<String>,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited(wait) => write!(f, "rate limited for {} s", wait.as_secs()),
            Self::Refused { code, needed: Some(scope) } => write!(f, "{code} ({scope})"),
            Self::Refused { code, needed: None } => f.write_str(code),
            Self::NotSent => f.write_str("no connection"),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}
