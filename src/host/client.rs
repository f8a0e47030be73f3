//! Talking to a running daemon through its HTTP API: for the command line and the demo.

use crate::host::channel::web::TOKEN_FILE;
use crate::host::outgoing::client_for;
use crate::host::settings::{Settings, SettingsError};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than any answer takes to be stored on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Shorter than the patience of whoever asks for health.
const HEALTH: Duration = Duration::from_secs(4);

/// Why a call did not work, for people.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Where to call is not known.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is no token.
    #[error(
        "cannot read the inbox token in {file}: {error}. Has `askd serve` run here? Or give --token, or the same --config"
    )]
    NoToken {
        /// Where it should be.
        file: PathBuf,
        /// What came of reading it.
        error: std::io::Error,
    },
    /// Nobody answers there.
    #[error("no askd at {url} ({why}). Start it with `askd serve`, or say where it is with --url or --config")]
    Away {
        /// Where.
        url: String,
        /// What came of it.
        why: String,
    },
    /// The daemon said no.
    #[error("{detail}")]
    Problem {
        /// The HTTP status.
        status: u16,
        /// The daemon's sentence.
        detail: String,
    },
}

/// A caller with the operator's token.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    token: SecretString,
    http: reqwest::Client,
}

#[derive(Deserialize)]
struct ProblemBody {
    detail: String,
    #[serde(default)]
    candidates: Vec<String>,
}

impl Client {
    /// Calls this address with this token; what is not given comes from the settings.
    pub fn find(files: &[PathBuf], url: Option<String>, token: Option<SecretString>) -> Result<Self, ClientError> {
        let (url, token) = match (url, token) {
            (Some(url), Some(token)) => (url, token),
            (url, token) => {
                let settings = Settings::load(files)?;
                let local = format!("http://{}", crate::host::settings::reachable(settings.http.listen));
                let token = match token.or_else(|| settings.web_token.clone()) {
                    Some(token) => Ok(token),
                    None => kept_token(settings.state_dir().join(TOKEN_FILE)),
                }?;
                (url.unwrap_or(local), token)
            }
        };
        Self::new(&url, token)
    }

    /// Calls this address with this token.
    pub fn new(url: &str, token: SecretString) -> Result<Self, ClientError> {
        let url = url.trim_end_matches('/').to_owned();
        let http = caller(&url, TIMEOUT)?;
        Ok(Self { url, token, http })
    }

    /// One call below `/api/v1`; what it answers, `Null` if it answers nothing.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let mut request =
            self.http.request(method, format!("{}/api/v1{path}", self.url)).bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.json(body);
        }
        let away = |error: reqwest::Error| ClientError::Away { url: self.url.clone(), why: root_cause(&error) };
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        let text = response.text().await.map_err(away)?;
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        if status.is_success() {
            return serde_json::from_str(&text)
                .map_err(|error| ClientError::Away { url: self.url.clone(), why: format!("it is not askd: {error}") });
        }
        let detail = match serde_json::from_str::<ProblemBody>(&text) {
            Ok(problem) if problem.candidates.is_empty() => problem.detail,
            Ok(problem) => format!("{}\n  {}", problem.detail, problem.candidates.join("\n  ")),
            Err(_) => format!("{} answered {status}", self.url),
        };
        Err(ClientError::Problem { status: status.as_u16(), detail })
    }
}

fn caller(url: &str, timeout: Duration) -> Result<reqwest::Client, ClientError> {
    client_for(url)
        .timeout(timeout)
        .build()
        .map_err(|error| ClientError::Away { url: url.to_owned(), why: error.to_string() })
}

/// Whether the daemon of these settings, or at this address, says that it is well. Needs no token.
pub async fn healthy(files: &[PathBuf], url: Option<String>) -> Result<(), ClientError> {
    let url = match url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("http://{}", crate::host::settings::reachable(Settings::load(files)?.http.listen)),
    };
    let away = |why: String| ClientError::Away { url: url.clone(), why };
    let answer = caller(&url, HEALTH)?.get(format!("{url}/healthz")).send().await;
    let status = answer.map_err(|error| away(root_cause(&error)))?.status();
    if status.is_success() { Ok(()) } else { Err(away(format!("/healthz answers {status}"))) }
}

fn kept_token(file: PathBuf) -> Result<SecretString, ClientError> {
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().to_owned().into()),
        Err(error) => Err(ClientError::NoToken { file, error }),
    }
}

/// The innermost reason: the outer ones only say that there was one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
