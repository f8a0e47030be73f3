//! Calls of Slack's Web API: a time limit on each call, and `Retry-After` obeyed. An error says how certain it is that
//! the call had no effect; the caller decides what follows from that.
//!
//! Response bodies are never logged: they hold what people wrote.

use super::pace::{POST, Pace};
use crate::host::ctx::Ctx;
use crate::host::outgoing::{client_for, root_cause};
use crate::host::settings::SlackSettings;
use crate::host::standing::Standing;
use askd_core::wording;
use axum::body::Bytes;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long a call may take; after that its effect is unknown.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Why a call was not made.
const SILENT: &str = "another daemon may have taken over what this one does";
/// The pause after a rate limit without a `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A call that did not succeed, and how certain that is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// Slack refused it, or it was not sent, because of a rate limit that holds for this long.
    #[error("rate limited for {} s", .0.as_secs())]
    RateLimited(Duration),
    /// Slack refused it.
    #[error("{code}{}", needed.as_ref().map(|scope| format!(" ({scope})")).unwrap_or_default())]
    Refused {
        /// Slack's name for the reason, e.g. `channel_not_found`.
        code: String,
        /// The scope that the app lacks, e.g. `chat:write`.
        needed: Option<String>,
    },
    /// It never left this machine.
    #[error("no connection: {0}")]
    NotSent(String),
    /// It may have had its effect.
    #[error("{0}")]
    Unknown(String),
}

impl CallError {
    /// What the operator reads: for a refusal with the way to mend it.
    pub(super) fn explain(&self) -> String {
        match self {
            Self::Refused { code, needed } => wording::slack_refuses(code, needed.as_deref()),
            Self::RateLimited(_) | Self::NotSent(_) | Self::Unknown(_) => self.to_string(),
        }
    }
}

impl From<reqwest::Error> for CallError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_connect() {
            return Self::NotSent(root_cause(&error.without_url()));
        }
        Self::Unknown("the connection broke".to_owned())
    }
}

/// Calls the Web API of one workspace.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) http: reqwest::Client,
    api_url: String,
    bot_token: SecretString,
    pace: Arc<Pace>,
    /// `None`: set-up calls it, and no daemon.
    ctx: Option<Ctx>,
    /// Whether the last call as the bot got a usable answer, and the token was good.
    pub(super) standing: Standing,
}

impl Client {
    pub(super) fn new(settings: &SlackSettings, pace: Arc<Pace>, ctx: Option<Ctx>) -> reqwest::Result<Self> {
        let http = client_for(&settings.api_url).redirect(Policy::none()).build()?;
        let (api_url, bot_token) = (settings.api_url.clone(), settings.bot_token.clone());
        Ok(Self { http, api_url, bot_token, pace, ctx, standing: Standing::default() })
    }

    /// Calls a method that writes. `chat` is empty for methods that concern no chat.
    pub(super) async fn post<R: DeserializeOwned>(
        &self,
        method: &str,
        chat: &str,
        body: &Value,
    ) -> Result<R, CallError> {
        read(&self.call(&self.bot_token, method, chat, self.with_json(method, body)).await?)
    }

    /// Calls a method that writes, as the app and not as its bot.
    pub(super) async fn post_as_app<R: DeserializeOwned>(
        &self,
        app_token: &SecretString,
        method: &str,
    ) -> Result<R, CallError> {
        read(&self.call(app_token, method, "", self.with_json(method, &Value::Object(serde_json::Map::new()))).await?)
    }

    /// Calls a method that reads; these take no JSON.
    pub(super) async fn get<R: DeserializeOwned>(
        &self,
        method: &str,
        chat: &str,
        arguments: &[(&str, String)],
    ) -> Result<R, CallError> {
        let url = Url::parse_with_params(&self.url(method), arguments);
        let url = url.map_err(|error| CallError::Unknown(error.to_string()))?;
        read(&self.call(&self.bot_token, method, chat, self.http.get(url)).await?)
    }

    fn note(&self, result: Result<(), &CallError>) {
        let now = self.pace.clock.now();
        match result {
            Err(CallError::RateLimited(_)) => {}
            Err(error @ (CallError::NotSent(_) | CallError::Unknown(_))) => {
                self.standing.fails(now, error.to_string(), wording::UNREACHABLE);
            }
            Err(CallError::Refused { code, needed }) if is_about_the_token(code) => {
                self.standing.fails(now, code, wording::slack_fix(code, needed.as_deref()));
            }
            Ok(()) | Err(CallError::Refused { .. }) => self.standing.works(),
        }
    }

    fn url(&self, method: &str) -> String {
        format!("{}/{method}", self.api_url)
    }

    fn with_json(&self, method: &str, body: &Value) -> RequestBuilder {
        // Slack warns about JSON that does not say its encoding.
        let request = self.http.post(self.url(method)).header(CONTENT_TYPE, "application/json; charset=utf-8");
        request.body(body.to_string())
    }

    /// How long a call may take that begins now.
    fn within(&self, method: &str) -> Result<Duration, CallError> {
        let ctx = self.ctx.as_ref().filter(|_| others_see(method));
        let within = ctx.map_or(Some(CALL_TIMEOUT), |ctx| ctx.call_within(CALL_TIMEOUT));
        within.ok_or_else(|| CallError::NotSent(SILENT.to_owned()))
    }

    /// The body of a call that Slack did not refuse.
    async fn call(
        &self,
        token: &SecretString,
        method: &str,
        chat: &str,
        request: RequestBuilder,
    ) -> Result<Bytes, CallError> {
        let _turn = self.pace.call(method, chat).await.map_err(CallError::RateLimited)?;
        let within = self.within(method)?;
        let answer = Box::pin(answer(request.bearer_auth(token.expose_secret())));
        let answer = self.pace.clock.timeout(within, answer).await;
        let too_late = || CallError::Unknown(format!("no answer within {} s", within.as_secs()));
        let answer = answer.unwrap_or_else(|| Err(too_late()));
        if std::ptr::eq(token, &raw const self.bot_token) {
            self.note(answer.as_ref().map(drop));
        }
        if let Err(CallError::RateLimited(wait)) = answer {
            self.pace.limit(method, chat, wait).await;
            tracing::warn!(method, chat, seconds = wait.as_secs(), "Slack asks us to wait");
        }
        answer
    }
}

/// Whether a call of this method is to be made once, by whichever daemon.
fn others_see(method: &str) -> bool {
    matches!(method, POST | "chat.update" | "chat.delete")
}

/// Whether the refusal concerns every call with this token.
fn is_about_the_token(code: &str) -> bool {
    matches!(
        code,
        "invalid_auth"
            | "not_authed"
            | "not_allowed_token_type"
            | "token_revoked"
            | "token_expired"
            | "account_inactive"
    )
}

/// What every answer of Slack may say beside its result.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: Option<String>,
    needed: Option<String>,
}

fn read<'a, R: Deserialize<'a>>(body: &'a [u8]) -> Result<R, CallError> {
    serde_json::from_slice(body).map_err(|_| CallError::Unknown("an answer that is not JSON".to_owned()))
}

async fn answer(request: RequestBuilder) -> Result<Bytes, CallError> {
    let response = request.send().await?;
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    match response.status() {
        StatusCode::OK => {}
        StatusCode::TOO_MANY_REQUESTS => {
            return Err(CallError::RateLimited(retry_after.map_or(DEFAULT_RETRY_AFTER, Duration::from_secs)));
        }
        status => return Err(CallError::Unknown(format!("HTTP status {}", status.as_u16()))),
    }
    let body = response.bytes().await?;
    let Refusal { error, needed } = read(&body)?;
    let Some(code) = error else { return Ok(body) };
    Err(match code.as_str() {
        "ratelimited" | "rate_limited" => CallError::RateLimited(DEFAULT_RETRY_AFTER),
        // Slack: "It's possible some aspect of the operation succeeded before the error was raised."
        "internal_error" | "fatal_error" => CallError::Unknown(code),
        _ => CallError::Refused { code, needed },
    })
}
