//! One waiting call over HTTP, for an agent that shares no folder with the daemon: `ASKD_URL` and its token. It goes on through
//! restarts, lost connections and 5xx until its own deadline; a token that is refused is an error at once. `askd ask` calls it.

use crate::clock::{Clock, Moment};
use crate::ipc::wire::{RequestFile, ResponseFile, StatusFile, unanswered};
use crate::random;
use askd_core::{RequestId, Time, wording};
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, Response, StatusCode, header};
use std::net::IpAddr;
use std::time::Duration;

/// How long one call waits for the outcome, and for the reply to anything else.
const WAIT: u64 = 55;
const REPLY: Duration = Duration::from_secs(20);
/// First and longest pause before another try.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long after its own deadline the daemon may stay silent; without a known one, beside twice the timeout.
const PATIENCE: Duration = Duration::from_secs(30);
const BLIND_PATIENCE: Duration = Duration::from_secs(600);
/// How long a question that may have been taken is taken back.
const WITHDRAWAL: Duration = Duration::from_secs(10);
const RENDER_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(1800);
/// How names end that lead nowhere on the internet: reserved ones, and a cluster's.
const OWN_NAMES: [&str; 4] = [".internal", ".local", ".localhost", ".svc"];

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
    /// A daemon may have taken the question, and it could not be taken back.
    #[error(
        "it is not clear whether askd at {url} took the question ({why}), and it could not be withdrawn: a person may still see it"
    )]
    Unclear {
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
        if !is_private(url) {
            let mend = "write https://; http:// is for this host and for addresses in your own network";
            return Err(unfit(format!("ASKD_URL={url} would send the token unencrypted: {mend}")));
        }
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
            // Its reply may have been lost, not the question.
            Err(Failed::Late { why, heard: true }) if !self.withdraw(WITHDRAWAL).await => {
                return Err(RemoteError::Unclear { url: self.url.clone(), why });
            }
            Err(Failed::Late { why, .. }) => return Err(RemoteError::NotTaken { url: self.url.clone(), why }),
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
        let (mut heard, mut pause) = (self.clock.monotonic(), PAUSES.0);
        loop {
            let until = || self.answer_by.lock().map_or(blind, |end| end + PATIENCE).max(heard + PATIENCE);
            let reply = match self.try_until(Method::GET, &path, b"", until).await {
                Ok(reply) => reply,
                Err(Failed::Refused) => return Err(RemoteError::Refused(self.url.clone())),
                Err(Failed::Late { .. }) => return Err(RemoteError::Silent),
            };
            match reply.status() {
                StatusCode::OK => {
                    if let Ok(response) = reply.json::<ResponseFile>().await {
                        return Ok(response.with_bare_error());
                    }
                }
                StatusCode::ACCEPTED => {
                    if self.note(reply).await {
                        (heard, pause) = (self.clock.monotonic(), PAUSES.0);
                        continue;
                    }
                }
                _ => return Err(RemoteError::Gone(detail(reply).await)),
            }
            // It broke off, or something other than askd answered: the outcome is still owed.
            if self.clock.monotonic() + pause >= until() {
                return Err(RemoteError::Silent);
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The outcome has reached its caller. If the daemon cannot be told, it is owed to the next process that asks.
    pub async fn taken(&self) -> Result<(), RemoteError> {
        let until = self.clock.monotonic() + PATIENCE;
        match self.try_until(Method::POST, &format!("/{}/taken", self.request_id), b"", || until).await {
            Ok(reply) if reply.status().is_success() => Ok(()),
            Ok(reply) => Err(RemoteError::Gone(detail(reply).await)),
            Err(Failed::Refused) => Err(RemoteError::Refused(self.url.clone())),
            Err(Failed::Late { .. }) => Err(RemoteError::Silent),
        }
    }

    /// Withdraws the question; `false` if no daemon has said so. One that is away has it until its deadline.
    pub async fn withdraw(&self, at_most: Duration) -> bool {
        let until = self.clock.monotonic() + at_most;
        let reply = self.try_until(Method::DELETE, &format!("/{}", self.request_id), b"", || until).await;
        // A proxy can say 404 too, but not in the daemon's words.
        let is_problem = |reply: &Response| {
            let kind = reply.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
            kind.is_some_and(|kind| kind.starts_with(b"application/problem+json"))
        };
        reply.is_ok_and(|reply| match reply.status() {
            StatusCode::NOT_FOUND => is_problem(&reply),
            status => status == StatusCode::NO_CONTENT,
        })
    }

    /// Notes until when it can be answered, by the daemon's clock: this host's may be wrong. `false` if the reply says nothing.
    async fn note(&self, reply: Response) -> bool {
        let date = reply.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let now = date.map(|date| Time::from_millis(date.as_millisecond()));
        let Ok(status) = reply.json::<StatusFile>().await else { return false };
        if let Some(end) = status.answer_by {
            let left = end.since(now.unwrap_or_else(|| self.clock.now()));
            *self.answer_by.lock() = Some(self.clock.monotonic() + left);
        }
        true
    }

    /// Makes a call again until it gets a reply that says something about it.
    async fn try_until(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        until: impl Fn() -> Moment,
    ) -> Result<Response, Failed> {
        let (mut pause, mut heard) = (PAUSES.0, false);
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
                    // Behind a proxy that gave up, the daemon may have gone on.
                    heard |= matches!(reply.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
                    format!("it answers {}", reply.status())
                }
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    heard |= !error.is_connect();
                    error.without_url().to_string()
                }
            };
            if self.clock.monotonic() + pause >= until() {
                return Err(Failed::Late { why, heard });
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

/// Whether a token may be sent there: by HTTPS, or within one's own network. A name counts if no name of the internet is like it.
fn is_private(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return true };
    let host = url.host_str().unwrap_or_default();
    let address =
        host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().map(|address| address.to_canonical());
    url.scheme() != "http"
        || match address {
            Ok(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
            Ok(IpAddr::V6(v6)) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
            Err(_) => !host.contains('.') || OWN_NAMES.iter().any(|end| host.trim_end_matches('.').ends_with(end)),
        }
}

/// Why a call was not made.
enum Failed {
    Refused,
    Late {
        why: String,
        /// A daemon may have done what the call asks for.
        heard: bool,
    },
}

async fn detail(reply: Response) -> String {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = reply.status();
    reply.json::<Problem>().await.map_or_else(|_no_problem| format!("askd answers {status}"), |problem| problem.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str) -> Option<String> {
        // Once for the process: another test may have been first.
        drop(rustls::crypto::ring::default_provider().install_default());
        (name == "ASKD_TOKEN").then(|| "askd_1_2".to_owned())
    }

    #[test]
    fn a_token_is_not_sent_unencrypted_to_the_internet() {
        let host = "h.example";
        for good in
            [&format!("https://{host}"), "http://127.0.0.1:8486", "http://[::1]:8486", "http://10.1.2.3", "http://askd"]
        {
            assert!(Remote::new(good, token, Clock::system()).is_ok(), "{good}");
        }
        assert!(is_private("http://askd.agents.svc:8486/") && is_private("http://host.docker.internal"));
        for bad in
            [&format!("http://{host}"), "http://8.8.8.8", "http://[2606:4700::1]:8486/", "HTTP://internal.example."]
        {
            let refused = Remote::new(bad, token, Clock::system()).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("unencrypted")), "{bad}");
        }
    }
}
