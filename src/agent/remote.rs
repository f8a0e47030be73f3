//! One waiting call over HTTP, for an agent that shares no folder with the daemon: `ASKD_URL` and its token. It goes on through
//! restarts, lost connections and 5xx until its own deadline; a token that is refused is an error at once. `askd ask` calls it.

use crate::clock::{Clock, Moment};
use crate::ipc::wire::{RequestFile, ResponseFile, StatusFile, unanswered};
use crate::random;
use askd_core::{RequestId, wording};
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, Response, StatusCode, header};
use std::time::Duration;

/// How long one call waits for the outcome, and for the reply to anything else.
const WAIT: u64 = 55;
const REPLY: Duration = Duration::from_secs(20);
/// First and longest pause before another try.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long after its own deadline the daemon may stay silent; without a known one, beside twice the timeout.
const PATIENCE: Duration = Duration::from_secs(30);
const BLIND_PATIENCE: Duration = Duration::from_secs(600);
const RENDER_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Why a question over HTTP has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address, the token or the certificates of the settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The token is refused.
    #[error(
        "askd at {0} refuses the token in ASKD_TOKEN: it is wrong, revoked or expired, or not an agent's; `askd token new GROUP` on askd's host makes one"
    )]
    Refused(String),
    /// No daemon took the question in time, so that no person will see it.
    #[error("no askd took the question at {url} ({why}); ASKD_URL says where it is")]
    NotTaken {
        /// The address.
        url: String,
        /// What came instead.
        why: String,
    },
    /// The daemon is silent long after the deadline.
    #[error("{}", wording::HOST_SILENT)]
    Silent,
    /// The outcome is another process's now.
    #[error("{0}")]
    Gone(String),
}

/// One waiting call.
pub struct Remote {
    url: String,
    token: String,
    process: String,
    http: Client,
    clock: Clock,
    request_id: RequestId,
    answer_by: Mutex<Option<Moment>>,
}

impl Remote {
    /// A call to this address with this token, named by the environment.
    pub fn new(url: &str, variable: impl Fn(&str) -> Option<String>, clock: Clock) -> Result<Self, RemoteError> {
        let unfit = |what: String| RemoteError::Settings(what);
        let read = |file: String| {
            std::fs::read_to_string(&file)
                .map_err(|error| unfit(format!("cannot read ASKD_TOKEN_FILE={file}: {error}")))
        };
        let token = match (variable("ASKD_TOKEN"), variable("ASKD_TOKEN_FILE")) {
            (Some(token), _) => token,
            (None, Some(file)) => read(file)?,
            (None, None) => return Err(unfit("ASKD_URL needs a token: set ASKD_TOKEN or ASKD_TOKEN_FILE".to_owned())),
        };
        let mut builder = ClientBuilder::new().connect_timeout(REPLY).redirect(reqwest::redirect::Policy::none());
        // Plain HTTP needs no certificates, and slim images have none.
        if url.starts_with("http://") {
            builder = builder.tls_certs_only([]);
        }
        if let Some(file) = variable("ASKD_CA_FILE") {
            let fail = |why: String| unfit(format!("cannot use ASKD_CA_FILE={file}: {why}"));
            let bytes = std::fs::read(&file).map_err(|error| fail(error.to_string()))?;
            let authorities = reqwest::Certificate::from_pem_bundle(&bytes).map_err(|error| fail(error.to_string()))?;
            builder = builder.tls_certs_only(authorities);
        }
        let http = builder.build().map_err(|error| unfit(format!("ASKD_URL={url}: {error}")))?;
        let (url, token) = (url.trim_end_matches('/').to_owned(), token.trim().to_owned());
        let (process, request_id) = (random::unique(), random::request_id());
        Ok(Self { url, token, process, http, clock, request_id, answer_by: Mutex::default() })
    }

    /// Names the question.
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// How long a person still has, if the daemon has said so.
    pub fn left(&self) -> Option<Duration> {
        self.answer_by.lock().map(|end| end.since(self.clock.monotonic()))
    }

    /// Asks, and waits for the outcome. It stays owed until [`Self::taken`].
    pub async fn ask(&self, mut request: RequestFile) -> Result<ResponseFile, RemoteError> {
        request.request_id = self.request_id.to_string();
        let millis = |given: Option<i64>, default| {
            given.and_then(|millis| u64::try_from(millis).ok()).map_or(default, Duration::from_millis)
        };
        let until = self.clock.monotonic() + millis(request.render_timeout, RENDER_TIMEOUT);
        let body = serde_json::to_vec(&request).map_err(|error| RemoteError::Settings(error.to_string()))?;
        let asked = self.try_until(Method::POST, "", &body, || until).await;
        let reply = match asked {
            Ok(reply) => reply,
            Err(Failed::Refused) => return Err(RemoteError::Refused(self.url.clone())),
            Err(Failed::Late(why)) => return Err(RemoteError::NotTaken { url: self.url.clone(), why }),
        };
        if !reply.status().is_success() {
            let rejected = unanswered(self.request_id.as_str(), request.op_code, "rejected", "system");
            return Ok(ResponseFile { result: rejected, error: Some(detail(reply).await) });
        }
        self.note(reply).await;
        let blind = self.clock.monotonic() + millis(request.timeout_ms, TIMEOUT) * 2 + BLIND_PATIENCE;
        self.wait(blind).await
    }

    /// Waits for the outcome, at most until `blind` unless the daemon says a deadline.
    pub async fn wait(&self, blind: Moment) -> Result<ResponseFile, RemoteError> {
        let path = format!("/{}?wait={WAIT}", self.request_id);
        let until = || self.answer_by.lock().map_or(blind, |end| end + PATIENCE);
        loop {
            let reply = match self.try_until(Method::GET, &path, b"", until).await {
                Ok(reply) => reply,
                Err(Failed::Refused) => return Err(RemoteError::Refused(self.url.clone())),
                Err(Failed::Late(_)) => return Err(RemoteError::Silent),
            };
            match reply.status() {
                // A reply that breaks off is fetched again: it is still owed.
                StatusCode::OK => {
                    if let Ok(response) = reply.json::<ResponseFile>().await {
                        return Ok(response.with_bare_error());
                    }
                }
                StatusCode::ACCEPTED => self.note(reply).await,
                _ => return Err(RemoteError::Gone(detail(reply).await)),
            }
            if self.clock.monotonic() >= until() {
                return Err(RemoteError::Silent);
            }
        }
    }

    /// The outcome has reached its caller. If the daemon cannot be told, it is owed to the next process that asks.
    pub async fn taken(&self) -> Result<(), RemoteError> {
        let until = self.clock.monotonic() + PATIENCE;
        match self.try_until(Method::POST, &format!("/{}/taken", self.request_id), b"", || until).await {
            Ok(reply) if reply.status().is_success() => Ok(()),
            Ok(reply) => Err(RemoteError::Gone(detail(reply).await)),
            Err(Failed::Refused) => Err(RemoteError::Refused(self.url.clone())),
            Err(Failed::Late(_)) => Err(RemoteError::Silent),
        }
    }

    /// Withdraws the question.
    pub async fn withdraw(&self, at_most: Duration) {
        let until = self.clock.monotonic() + at_most;
        // A daemon that is away has it until its deadline.
        let _away = self.try_until(Method::DELETE, &format!("/{}", self.request_id), b"", || until).await;
    }

    /// Notes until when it can be answered.
    async fn note(&self, reply: Response) {
        let status = reply.json::<StatusFile>().await.ok();
        if let Some(end) = status.and_then(|status| status.answer_by) {
            *self.answer_by.lock() = Some(self.clock.monotonic() + end.since(self.clock.now()));
        }
    }

    /// Makes a call again until it gets a reply that says something about it.
    async fn try_until(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        until: impl Fn() -> Moment,
    ) -> Result<Response, Failed> {
        let mut pause = PAUSES.0;
        loop {
            let call = self.http.request(method.clone(), format!("{}/agent/v1/asks{path}", self.url));
            let call = call.bearer_auth(&self.token).header("askd-process", &self.process).body(body.to_vec());
            let limit = REPLY + if method == Method::GET { Duration::from_secs(WAIT) } else { Duration::ZERO };
            let why = match call.timeout(limit).send().await {
                Ok(reply) if reply.status() == StatusCode::UNAUTHORIZED => return Err(Failed::Refused),
                Ok(reply) if is_for_now(&reply) => {
                    let after =
                        reply.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
                    pause = pause.max(Duration::from_secs(after.unwrap_or(0))).min(PAUSES.1);
                    format!("it answers {}", reply.status())
                }
                Ok(reply) => return Ok(reply),
                Err(error) => error.without_url().to_string(),
            };
            if self.clock.monotonic() + pause >= until() {
                return Err(Failed::Late(why));
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Whether a reply says only that now is not the time. A proxy whose daemon is away answers 502 or 504.
fn is_for_now(reply: &Response) -> bool {
    let held = reply.status() == StatusCode::CONFLICT && reply.headers().contains_key(header::RETRY_AFTER);
    held || reply.status() == StatusCode::TOO_MANY_REQUESTS || reply.status().is_server_error()
}

/// Why a call was not made.
enum Failed {
    Refused,
    Late(String),
}

async fn detail(reply: Response) -> String {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = reply.status();
    reply.json::<Problem>().await.map_or_else(|_no_problem| format!("askd answers {status}"), |problem| problem.detail)
}
