//! The connection of an agent that shares no folder with the daemon: `ASKD_URL` and its token. Each call is made again through
//! restarts, lost connections and 5xx; a token that is refused is an error at once, unless its file holds another one by now.
//! [`super::remote`] waits with it.

use super::waiter::{PATIENCE, STOOD_STILL};
use super::{AgentError, Briefing, Found};
use crate::clock::{Clock, Moment};
use crate::random;
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, Response, StatusCode, Url, header};
use serde_json::Value;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// How long one call waits for the outcome, and for the reply to anything else.
pub(super) const WAIT: u64 = 55;
const REPLY: Duration = Duration::from_secs(20);
/// How long it takes at most to connect. That is less than for a reply, so that an address which drops packets is known to have heard nothing.
const CONNECT: Duration = Duration::from_secs(10);
/// First and longest pause before another try.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How names end that lead nowhere on the internet: reserved ones, and a cluster's.
const OWN_NAMES: [&str; 4] = [".internal", ".local", ".localhost", ".svc"];

/// A daemon's address, and what all waiting calls of this process share.
#[derive(Debug)]
pub struct Connection {
    pub(super) url: String,
    token: Mutex<String>,
    /// Where it was read, and where an operator puts another one.
    token_file: Option<String>,
    process: String,
    http: Client,
    pub(super) clock: Clock,
    pub(super) tasks: TaskTracker,
    pub(super) news: Notify,
}

impl Connection {
    /// A connection to this address, with the token that the environment names.
    pub fn new(url: &str, variable: impl Fn(&str) -> Option<String>, clock: Clock) -> Result<Self, AgentError> {
        let unfit = |what: String| AgentError::Settings(what);
        let read = |file: &str| {
            std::fs::read_to_string(file).map_err(|error| unfit(format!("cannot read ASKD_TOKEN_FILE={file}: {error}")))
        };
        let (token, token_file) = match (variable("ASKD_TOKEN"), variable("ASKD_TOKEN_FILE")) {
            (Some(token), _) => (token, None),
            (None, Some(file)) => (read(&file)?, Some(file)),
            (None, None) => return Err(unfit("ASKD_URL needs a token: set ASKD_TOKEN or ASKD_TOKEN_FILE".to_owned())),
        };
        let address = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(address) = address else {
            return Err(unfit(format!("ASKD_URL={url} is no address: write it like https://askd.example")));
        };
        if !is_private(&address) {
            let mend = "write https://; http:// is for this host and for addresses in your own network";
            return Err(unfit(format!("ASKD_URL={url} would send the token unencrypted: {mend}")));
        }
        let mut builder = ClientBuilder::new().connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none());
        // Plain HTTP needs no certificates, and slim images have none. It leads nowhere else: a proxy would read the token.
        if address.scheme() == "http" {
            builder = builder.tls_certs_only([]).no_proxy();
        }
        if let Some(file) = variable("ASKD_CA_FILE") {
            let fail = |why: String| unfit(format!("cannot use ASKD_CA_FILE={file}: {why}"));
            let bytes = std::fs::read(&file).map_err(|error| fail(error.to_string()))?;
            let authorities = reqwest::Certificate::from_pem_bundle(&bytes).map_err(|error| fail(error.to_string()))?;
            if authorities.is_empty() {
                return Err(fail("there is no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned()));
            }
            builder = builder.tls_certs_only(authorities);
        }
        let http = builder.build().map_err(|error| unfit(format!("ASKD_URL={url}: {error}")))?;
        let (url, token) = (base(url).to_owned(), Mutex::new(token.trim().to_owned()));
        let (process, tasks, news) = (random::unique(), TaskTracker::new(), Notify::new());
        Ok(Self { url, token, token_file, process, http, clock, tasks, news })
    }

    /// Wakes one that waits for news of any call.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Until each call that was told to take its outcome or to withdraw its question has done so, at most for so long.
    pub async fn finish(&self, at_most: Duration) {
        self.tasks.close();
        if self.clock.timeout(at_most, self.tasks.wait()).await.is_none() {
            tracing::warn!(
                "askd does not answer; outcomes that it could not be told of become briefings, and questions withdrawn lately may stay open"
            );
        }
        self.tasks.reopen();
    }

    /// What was answered while nobody waited. Who is to `take` it waits until no other process does.
    pub async fn briefings(&self, take: bool) -> Result<Found, AgentError> {
        #[derive(serde::Deserialize)]
        struct List {
            briefings: Vec<Value>,
        }
        let until = self.clock.monotonic() + PATIENCE;
        let path = if take { "/briefings?take=true" } else { "/briefings" };
        let read = async |reply: Response| {
            if reply.status().is_success() {
                return reply.json::<List>().await.ok().map(Ok);
            }
            Some(Err(AgentError::Gone(detail(reply).await)))
        };
        let list = self.try_until(Method::GET, path, b"", || until, read).await.map_err(|why| self.away(why))??;
        let mut found = Found::default();
        for content in list.briefings {
            let name = content["ask_id"].as_str().unwrap_or_default().to_owned();
            match Briefing::of(content, name) {
                Ok(briefing) => found.briefings.push(briefing),
                Err(why) => found.unreadable.push(why),
            }
        }
        Ok(found)
    }

    /// This briefing was read. One that is gone was read by another process meanwhile.
    pub async fn take_briefing(&self, briefing: &Briefing) -> Result<(), AgentError> {
        let until = self.clock.monotonic() + PATIENCE;
        let path = format!("/briefings/{}/taken", briefing.name);
        let reply = self.try_until(Method::POST, &path, b"", || until, done).await.map_err(|why| self.away(why))?;
        match reply.status() {
            StatusCode::NO_CONTENT | StatusCode::GONE => Ok(()),
            _ => Err(AgentError::Gone(detail(reply).await)),
        }
    }

    /// These could not be printed: another process may have them at once. Worth one try each: they are kept.
    pub async fn put_back_briefings(&self, briefings: &[Briefing]) {
        for briefing in briefings {
            let path = format!("/briefings/{}/taken", briefing.name);
            let now = self.clock.monotonic();
            let _kept = self.try_until(Method::DELETE, &path, b"", || now, done).await;
        }
    }

    fn away(&self, failed: Failed) -> AgentError {
        match failed {
            Failed::Refused => self.refused(),
            Failed::Late { why, .. } => AgentError::Away { url: self.url.clone(), why },
        }
    }

    /// Nobody is let in with this token.
    pub(super) fn refused(&self) -> AgentError {
        let token = self.token_file.as_ref().map_or("ASKD_TOKEN".to_owned(), |file| format!("ASKD_TOKEN_FILE={file}"));
        AgentError::Refused { url: self.url.clone(), token }
    }

    /// Whether there is another token than this one, which was refused: the file may have been written since.
    async fn has_other_token(&self, refused: &str) -> bool {
        let Some(file) = &self.token_file else { return false };
        let now = tokio::fs::read_to_string(file).await.unwrap_or_default();
        let mut token = self.token.lock();
        if !now.trim().is_empty() {
            now.trim().clone_into(&mut token);
        }
        *token != refused
    }

    /// Makes a call again until it gets a reply that says something about it: one that `read` can make something of.
    pub(super) async fn try_until<T, Reading: Future<Output = Option<T>>>(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        until: impl Fn() -> Moment,
        read: impl Fn(Response) -> Reading,
    ) -> Result<T, Failed> {
        let (mut pause, mut heard, mut at_least) = (PAUSES.0, false, self.clock.monotonic());
        loop {
            let began = self.clock.monotonic();
            let call = self.http.request(method.clone(), format!("{}/agent/v1{path}", self.url));
            let token = self.token.lock().clone();
            let call = call.bearer_auth(&token).header("askd-process", &self.process).body(body.to_vec());
            let limit = REPLY + if method == Method::GET { Duration::from_secs(WAIT) } else { Duration::ZERO };
            let why = match call.timeout(limit).send().await {
                Ok(reply) if reply.status() == StatusCode::UNAUTHORIZED => {
                    if self.has_other_token(&token).await {
                        continue;
                    }
                    return Err(Failed::Refused);
                }
                Ok(reply) if is_for_now(&reply) => {
                    let after =
                        reply.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
                    pause = pause.max(Duration::from_secs(after.unwrap_or(0))).min(PAUSES.1);
                    // Behind a proxy that gave up, the daemon may have gone on; and the daemon itself may not know whether it has
                    // stored what it was told.
                    heard |= reply.status().is_server_error();
                    format!("it answers {}", reply.status())
                }
                Ok(reply) => {
                    let (status, is_own) = (reply.status(), is_of(&reply, b"application/json"));
                    if let Some(read) = read(reply).await {
                        return Ok(read);
                    }
                    // askd's own broke off. Anything else is a portal's page.
                    heard |= is_own;
                    format!("it answers {status}")
                }
                Err(error) => {
                    heard |= !error.is_connect() && !error.is_builder();
                    let error = anyhow::Error::from(error.without_url());
                    format!("{error:#}{}", of_tls(&error))
                }
            };
            let now = self.clock.monotonic();
            if now.since(began) > limit + STOOD_STILL {
                at_least = now + PATIENCE;
            }
            let left = until().max(at_least).since(now);
            if left.is_zero() {
                return Err(Failed::Late { why, heard });
            }
            // The last try comes at the very end: a daemon may be back by then.
            self.clock.sleep(pause.min(left)).await;
            pause = pause.saturating_mul(2).min(PAUSES.1);
        }
    }
}

/// An address without the path that each call adds, which stands in the addresses for MCP and for curl.
fn base(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let url = url.strip_suffix("/mcp").filter(|url| url.ends_with("/agent/v1")).unwrap_or(url);
    url.strip_suffix("/agent/v1").unwrap_or(url)
}

/// How to mend what TLS does not say in words for people.
fn of_tls(error: &anyhow::Error) -> &'static str {
    match error.chain().find_map(tls_error) {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            ": there is no TLS at this port; is it http://, or another port?"
        }
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature,
        )) => ": ASKD_CA_FILE names the certificate of a private authority",
        _ => "",
    }
}

/// It comes in an error of input and output, or in one within another.
fn tls_error<'e>(cause: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    cause.downcast_ref().or_else(|| tls_error(cause.downcast_ref::<io::Error>()?.get_ref()?))
}

/// Whether a reply says only that now is not the time. A proxy whose daemon is away answers 502 or 504, or by a page of its
/// own: what askd refuses is a problem in JSON.
fn is_for_now(reply: &Response) -> bool {
    let status = reply.status();
    let held = status == StatusCode::CONFLICT && reply.headers().contains_key(header::RETRY_AFTER);
    held || status == StatusCode::TOO_MANY_REQUESTS
        || status.is_server_error()
        || !(status.is_success() || is_of(reply, b"application/problem+json"))
}

/// Whether a reply is of this type.
fn is_of(reply: &Response, kind: &[u8]) -> bool {
    reply.headers().get(header::CONTENT_TYPE).is_some_and(|of| of.as_bytes().starts_with(kind))
}

/// Whether a token may be sent there: by HTTPS, or within one's own network. A name counts if no name of the internet is like it.
fn is_private(url: &Url) -> bool {
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
pub(super) enum Failed {
    Refused,
    Late {
        why: String,
        /// A daemon may have done what the call asks for.
        heard: bool,
    },
}

/// A reply to a call that asks for no content: done, or refused. Any other success is not askd's.
pub(super) async fn done(reply: Response) -> Option<Response> {
    (reply.status() == StatusCode::NO_CONTENT || !reply.status().is_success()).then_some(reply)
}

/// The sentence of a refusal.
pub(super) async fn detail(reply: Response) -> String {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = reply.status();
    reply.json::<Problem>().await.map_or_else(|_no_problem| format!("askd answers {status}"), |problem| problem.detail)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    pub(in crate::agent) fn token(name: &str) -> Option<String> {
        // Once for the process: another test may have been first.
        drop(rustls::crypto::ring::default_provider().install_default());
        (name == "ASKD_TOKEN").then(|| "askd_1_2".to_owned())
    }

    /// Gives one reply after the other, each on a connection of its own.
    pub(in crate::agent) fn replies(all: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for reply in all {
                let (mut stream, _) = listener.accept().unwrap();
                let _request = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        url
    }

    #[test]
    fn the_path_of_the_calls_can_stand_in_the_address() {
        for url in ["https://h", "https://h/", "https://h/agent/v1", "https://h/agent/v1/", "https://h/agent/v1/mcp"] {
            assert_eq!(base(url), "https://h", "{url}");
        }
        assert_eq!((base("https://h/askd/"), base("https://h/mcp")), ("https://h/askd", "https://h/mcp"));
    }

    #[tokio::test]
    async fn an_address_with_https_at_a_port_without_tls_is_told_in_words() {
        let url = replies(&["HTTP/1.1 400 Bad Request\r\n\r\n"]).replace("http:", "https:");
        let connection = Connection::new(&url, token, Clock::system()).unwrap();
        let now = connection.clock.monotonic();
        let tried = connection.try_until(Method::GET, "/briefings", b"", || now, async |_| Some(())).await;
        let Err(Failed::Late { why, .. }) = tried else { panic!("it was taken") };
        assert!(why.ends_with("there is no TLS at this port; is it http://, or another port?"), "{why}");
    }

    /// It was stopped, or its host slept, while a call was under way: no time for that call is left.
    #[tokio::test]
    async fn a_process_that_stood_still_tries_again() {
        let (clock, hand) = Clock::by_hand(askd_core::Time::from_millis(1_760_000_000_000));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (stopped, _) = listener.accept().unwrap();
            hand.advance(Duration::from_secs(3_600));
            drop(stopped);
            listener.set_nonblocking(true).unwrap();
            let mut stream = loop {
                hand.advance(PAUSES.0);
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(_none) => std::thread::yield_now(),
                }
            };
            stream.set_nonblocking(false).unwrap();
            let _request = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
        });
        let connection = Connection::new(&url, token, clock.clone()).unwrap();
        let until = clock.monotonic() + PATIENCE;
        let tried = connection.try_until(Method::GET, "/asks/r1", b"", || until, async |_| Some(())).await;
        assert!(tried.is_ok(), "it gave up");
    }

    #[test]
    fn a_file_without_a_certificate_names_no_authority() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        let variable = |name: &str| match name {
            "ASKD_CA_FILE" => Some(empty.path().display().to_string()),
            name => token(name),
        };
        let refused = Connection::new("https://h.example", variable, Clock::system()).unwrap_err().to_string();
        assert!(refused.contains("there is no certificate in it"), "{refused}");
    }

    #[test]
    fn a_token_is_not_sent_unencrypted_to_the_internet() {
        let host = "h.example";
        for good in
            [&format!("https://{host}"), "http://127.0.0.1:8486", "http://[::1]:8486", "http://10.1.2.3", "http://askd"]
        {
            assert!(Connection::new(good, token, Clock::system()).is_ok(), "{good}");
        }
        for own in ["http://askd.agents.svc:8486/", "http://host.docker.internal"] {
            assert!(Connection::new(own, token, Clock::system()).is_ok(), "{own}");
        }
        for bad in
            [&format!("http://{host}"), "http://8.8.8.8", "http://[2606:4700::1]:8486/", "HTTP://internal.example."]
        {
            let refused = Connection::new(bad, token, Clock::system()).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("unencrypted")), "{bad}");
        }
        for none in ["localhost:8486", "askd.example", "ftp://h.example", "http://"] {
            let refused = Connection::new(none, token, Clock::system()).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("is no address")), "{none}");
        }
    }
}
