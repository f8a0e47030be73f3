//! Calls the HTTP API of a running daemon, for the command line and the demo.

use crate::host::outgoing::{client_for, root_cause};
use crate::host::settings::{Settings, SettingsError};
use crate::host::store::TOKEN_FILE;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Storing an answer on a slow disk takes less.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Shorter than the time limit of a container's health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(4);

/// Where `deploy/askd.service` keeps its records.
const SYSTEM_STATE: &str = "/var/lib/askd/state";

/// Why a call failed, in words for people.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings, which name the address, cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The token cannot be read.
    #[error("cannot read the inbox token in {file}: {source}. {}", to_read_it(file, source))]
    NoToken {
        /// Where it should be.
        file: PathBuf,
        /// Why it cannot be read.
        source: std::io::Error,
    },
    /// No daemon answers at this address.
    #[error("no askd at {url} ({why}). Start it with `askd serve`, or say where it is with --url or --config")]
    Away {
        /// The address.
        url: String,
        /// What happened instead of an answer.
        why: String,
    },
    /// The daemon refused the call.
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
    /// Calls this address with this token. What is not given comes from the settings.
    pub fn find(files: &[PathBuf], url: Option<String>, token: Option<SecretString>) -> Result<Self, ClientError> {
        let (url, token) = match (url, token) {
            (Some(url), Some(token)) => (url, token),
            (url, token) => {
                let settings = Settings::load(files)?;
                let local = format!("http://{}", crate::host::settings::reachable(settings.http.listen));
                let token = match token.or_else(|| settings.web.token.clone()) {
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
        let url = address(url);
        let http = caller(&url, TIMEOUT)?;
        Ok(Self { url, token, http })
    }

    /// The same caller with another token.
    pub fn with_token(self, token: SecretString) -> Self {
        Self { token, ..self }
    }

    /// The link with which people open the inbox at this address.
    pub fn link(&self, inbox: &str) -> String {
        format!("{}/#token={}", address(inbox), self.token.expose_secret())
    }

    /// Makes one call below `/api/v1`. An empty answer is `Null`.
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
        if status == StatusCode::UNAUTHORIZED {
            let mend = "if it was started with --config, give this command the same; else `askd link` prints the current token, \
                        run as askd's own user or in its container";
            return Err(ClientError::Problem {
                status: status.as_u16(),
                detail: format!("the daemon at {} refuses this token; {mend}", self.url),
            });
        }
        let detail = match serde_json::from_str::<ProblemBody>(&text) {
            Ok(problem) if problem.candidates.is_empty() => problem.detail,
            Ok(problem) => format!("{}\n  {}", problem.detail, problem.candidates.join("\n  ")),
            // It has begun, and its database is away.
            Err(_) if status == StatusCode::SERVICE_UNAVAILABLE && is_sentence(&text) => {
                format!("askd at {} is not ready: {}", self.url, text.trim())
            }
            Err(_) => format!("{} answered {status}", self.url),
        };
        Err(ClientError::Problem { status: status.as_u16(), detail })
    }
}

/// Whether a reply is what a daemon says that is not ready, and no proxy's page.
fn is_sentence(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.len() < 200 && !text.contains(['<', '\n'])
}

/// An address as people type it.
fn address(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

fn caller(url: &str, timeout: Duration) -> Result<reqwest::Client, ClientError> {
    client_for(url)
        .timeout(timeout)
        .build()
        .map_err(|error| ClientError::Away { url: url.to_owned(), why: error.to_string() })
}

/// Checks that the daemon of these settings, or at this address, answers `/healthz`. Needs no token.
pub async fn healthy(files: &[PathBuf], url: Option<String>) -> Result<(), ClientError> {
    let url = match url {
        Some(url) => address(&url),
        None => format!("http://{}", crate::host::settings::reachable(Settings::load(files)?.http.listen)),
    };
    let away = |why: String| ClientError::Away { url: url.clone(), why };
    let answer = caller(&url, HEALTH_TIMEOUT)?.get(format!("{url}/healthz")).send().await;
    let status = answer.map_err(|error| away(root_cause(&error)))?.status();
    if status.is_success() { Ok(()) } else { Err(away(format!("/healthz answers {status}"))) }
}

/// The token that the daemon keeps. One that systemd runs keeps it where only its unit says.
fn kept_token(own: PathBuf) -> Result<SecretString, ClientError> {
    let of_system = Path::new(SYSTEM_STATE).join(TOKEN_FILE);
    let missing = |file: &Path| matches!(file.try_exists(), Ok(false));
    let file = if missing(&own) && !missing(&of_system) { of_system } else { own };
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().to_owned().into()),
        Err(source) => Err(ClientError::NoToken { file, source }),
    }
}

fn to_read_it(file: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            // Whose the folders are can be seen from further out than what is in them.
            let owner = file.ancestors().skip(1).find_map(|folder| Some(std::fs::metadata(folder).ok()?.uid()));
            let user = owner.map_or_else(|| "askd".to_owned(), |uid| format!("'#{uid}'"));
            format!("Only askd's own user can: put sudo -u {user} before the command, or set ASKD_TOKEN")
        }
        ErrorKind::NotFound => format!(
            "There is none in {SYSTEM_STATE} either. Has `askd serve` run here? Or give --token, or the same --config"
        ),
        _ => "Has `askd serve` run here? Or give --token, or the same --config".to_owned(),
    }
}
