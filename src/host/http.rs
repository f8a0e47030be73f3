//! The one HTTP server: which host names and sites it accepts, which headers every response carries, and how many
//! connections it serves. The routes belong to the channels.

use super::line::{Line, Noted};
use super::places::{Place, Places};
use super::tls::Tls;
use crate::host::channel::web::{Peer, Problem};
use crate::host::ctx::{Ctx, IN_HAND, at_most};
use crate::host::settings::{Http, url_host};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::either::Either;
use tokio_util::task::TaskTracker;
use tower_http::timeout::RequestBodyTimeoutLayer;

/// The host names that the server accepts. A page of another site that points its name at our address (DNS rebinding)
/// is refused.
#[derive(Debug)]
struct Hosts {
    /// `name:port`, lower case.
    exact: Vec<String>,
    /// Names that are allowed with any port.
    any_port: Vec<String>,
}

impl Hosts {
    fn new(http: &Http, listen: SocketAddr) -> Self {
        let port = listen.port();
        let mut exact: Vec<String> =
            ["127.0.0.1", "localhost", "[::1]"].iter().map(|name| format!("{name}:{port}")).collect();
        exact.push(listen.to_string());
        let mut any_port = Vec::new();
        let public = http.public_url.as_deref().and_then(url_host);
        for name in http.allowed_hosts.iter().cloned().chain(public) {
            let name = name.to_ascii_lowercase();
            if has_port(&name) { exact.push(name) } else { any_port.push(name) }
        }
        Self { exact, any_port }
    }

    fn allow(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = if has_port(&host) { host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name) } else { &host };
        self.exact.contains(&host) || self.any_port.iter().any(|allowed| allowed == name)
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// The socket among those that systemd passed which has the port of this setting's address, else one that is bound to it. An error
/// says how to mend it.
pub async fn bind(
    listen: SocketAddr,
    setting: &str,
    passed: &mut Vec<std::net::TcpListener>,
) -> io::Result<TcpListener> {
    let port = |socket: &std::net::TcpListener| socket.local_addr().is_ok_and(|at| at.port() == listen.port());
    if let Some(place) = passed.iter().position(port) {
        let socket = passed.swap_remove(place);
        socket.set_nonblocking(true)?;
        return TcpListener::from_std(socket);
    }
    TcpListener::bind(listen).await.map_err(|error| {
        let (section, key) = setting.split_once('.').unwrap_or_default();
        let mend = match error.kind() {
            io::ErrorKind::AddrInUse => {
                let another = SocketAddr::new(listen.ip(), listen.port().saturating_add(101));
                let variable = format!("ASKD__{}__{}", section.to_uppercase(), key.to_uppercase());
                format!(
                    "something else listens there; stop it, or set [{section}] {key} (environment: {variable}={another})"
                )
            }
            io::ErrorKind::PermissionDenied => {
                format!("ports below 1024 need a privilege; use a higher one in [{section}] {key}")
            }
            _ => format!("check [{section}] {key}"),
        };
        io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}; {mend}"))
    })
}

/// Serves until the daemon stops, and finishes the requests in hand. If this is dropped, no more connections are accepted, and those
/// that were go on. The routes in `open` accept every host name,
/// because tunnels, proxies and probes use names of their own: webhooks carry a signature, and health is no secret.
pub async fn serve(
    listener: TcpListener,
    http: &Http,
    tls: Option<Tls>,
    (routes, open): (Router, Router),
    most: usize,
    ctx: &Ctx,
) -> io::Result<()> {
    let hosts = Arc::new(Hosts::new(http, listener.local_addr()?));
    // Webhooks limit the time of a body themselves, and health calls have none.
    let own = routes.layer(RequestBodyTimeoutLayer::new(TIMEOUT));
    let app = own.layer(middleware::from_fn_with_state(hosts, own_site_only)).merge(open);
    let places = Places::new(most);
    let connections = TaskTracker::new();
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(KEEP_ALIVE).max_buf_size(MAX_BUFFER);
    while let Some(stream) = accept(&listener, &places, ctx).await {
        // Nagle's algorithm and delayed acknowledgements would cost each reply of two small writes 40 ms on loopback.
        drop(stream.set_nodelay(true));
        let place = Arc::new(places.take(ctx.clock().monotonic()));
        let dropped = place.dropped.clone();
        let app = TowerToHyperService::new(app.clone());
        let peer = stream.peer_addr().ok().map(|peer| Peer(peer.ip()));
        let line = Line::default();
        let stream = Noted { stream, line: line.clone() };
        let service = service_fn(move |mut request: Request<Incoming>| {
            peer.map(|peer| request.extensions_mut().insert(peer));
            request.extensions_mut().insert(line.clone());
            answer(app.clone(), request, Arc::clone(&place))
        });
        let (connection, counted) = (connection.clone(), connections.token());
        let (acceptor, stop) = (tls.as_ref().map(Tls::acceptor), ctx.clone());
        // On the heap, like what it waits for: each future around either would have room for it, too.
        let serving = Box::pin(async move {
            let _counted = counted;
            let stream = match acceptor {
                None => Either::Left(stream),
                // A client that says nothing costs its own connection, as one does that sends no head.
                Some(acceptor) => match stop.clock().timeout(TIMEOUT, acceptor.accept(stream)).await {
                    Some(Ok(stream)) => Either::Right(stream),
                    _ => return,
                },
            };
            let mut serving = Box::pin(connection.serve_connection(TokioIo::new(stream), service));
            // A broken connection concerns only its client. A request that has come is read before the stop is looked at.
            tokio::select! {
                biased;
                _ended = &mut serving => return,
                () = stop.stopping() => serving.as_mut().graceful_shutdown(),
            }
            let _ended = serving.await;
        });
        ctx.serve(async move {
            let _ended = dropped.run_until_cancelled(serving).await;
        });
    }
    drop(listener);
    connections.close();
    if ctx.clock().timeout(at_most(IN_HAND), connections.wait()).await.is_none() {
        tracing::warn!("cut off connections that did not end in time");
    }
    Ok(())
}

/// How long a client may take between two pieces of a body, and to agree on TLS.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be without a request. Proxies keep theirs for one or two minutes (nginx 60 s, Caddy 120 s); if
/// askd closed one first, a click that the proxy sends at that moment would be lost. The head of a request may take as long: a
/// stranger who sends one slowly holds a place only until a new connection needs it.
const KEEP_ALIVE: Duration = Duration::from_secs(150);
/// How many connections are served at a time. One more displaces the one that has been without a request in work for
/// longest. Streams of events and webhooks have lower limits of their own, so a health check always finds a place.
pub(super) const MAX_CONNECTIONS: usize = 512;
/// The same for agents, each of which waits on one.
pub(super) const MAX_AGENTS: usize = 4096;
/// The largest head of a request and the largest piece of a body, in bytes.
const MAX_BUFFER: usize = 16 * 1024;
/// The pause after a connection could not be accepted, e.g. because no file handle is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The next connection; `None` when the daemon stops.
async fn accept(listener: &TcpListener, places: &Places, ctx: &Ctx) -> Option<TcpStream> {
    let accepting = async {
        // Meanwhile new connections wait in the queue of the kernel.
        while let Some(wait) = places.wait(ctx.clock().monotonic()) {
            ctx.clock().sleep(wait).await;
        }
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    ctx.clock().sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        stream = accepting => Some(stream),
        () = ctx.stopping() => None,
    }
}

/// Answers a request. The connection keeps its place from the end of the request to the end of the response.
async fn answer(
    app: TowerToHyperService<Router>,
    request: Request<Incoming>,
    place: Arc<Place>,
) -> Result<Response, Infallible> {
    if request.body().is_end_stream() {
        place.begin();
    }
    let request = request.map(|body| Body::new(Tracked { body, end: End::OfRequest, place: Arc::clone(&place) }));
    let response = app.call(request).await?;
    Ok(response.map(|body| Body::new(Tracked { body, end: End::OfResponse, place })))
}

/// A body whose end says where its connection is.
struct Tracked<B> {
    body: B,
    end: End,
    place: Arc<Place>,
}

/// What the end of a body means.
#[derive(PartialEq, Eq)]
enum End {
    /// From here on the request is in work.
    OfRequest,
    /// When the body is dropped, it is no longer in work.
    OfResponse,
}

impl<B: HttpBody + Unpin> HttpBody for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let is_over = matches!(polled, Poll::Ready(None)) || polled.is_ready() && self.body.is_end_stream();
        if is_over && self.end == End::OfRequest {
            self.place.begin();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Tracked<B> {
    fn drop(&mut self) {
        if self.end == End::OfResponse {
            self.place.end();
        }
    }
}

/// The headers of every response to a page or a call, unless the response has its own.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Nothing from other sites and nothing inline: foreign text in the page can do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      manifest-src 'self'; worker-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

async fn own_site_only(State(hosts): State<Arc<Hosts>>, request: axum::extract::Request, next: Next) -> Response {
    let mut response = match refusal(&hosts, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn refusal(hosts: &Hosts, request: &axum::extract::Request) -> Option<Problem> {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str));
    let forbidden = |title, detail: &str| Some(Problem::new(StatusCode::FORBIDDEN, title, detail));
    // A proxy in front of askd might judge by the other one.
    let single = [header::HOST, header::ORIGIN, HeaderName::from_static("sec-fetch-site")];
    if let Some(twice) = single.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        let detail = format!("The header {twice} occurs more than once.");
        return Some(Problem::new(StatusCode::BAD_REQUEST, "Not understood", detail));
    }
    if !host.is_some_and(|host| hosts.allow(host)) {
        let section = if request.uri().path().starts_with("/agent/") { "agents" } else { "http" };
        let detail = format!("Add this host name to [{section}] allowed_hosts, or set public_url there.");
        return forbidden("Host not allowed", &detail);
    }
    if ["/api/", "/agent/"].iter().any(|calls| request.uri().path().starts_with(calls)) && !same_site(headers, hosts) {
        return forbidden("Other site", "The API takes no calls from pages of other sites.");
    }
    None
}

/// Whether a call comes from askd's own page, or from no page at all.
fn same_site(headers: &HeaderMap, hosts: &Hosts) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text("origin").is_none_or(|origin| url_host(origin).is_some_and(|host| hosts.allow(&host)));
    let site = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    origin && site
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listen: &str, public_url: Option<&str>, allowed: &[&str]) -> Hosts {
        let http = Http {
            listen: listen.parse().unwrap(),
            webhook_listen: None,
            public_url: public_url.map(str::to_owned),
            allowed_hosts: allowed.iter().map(|host| (*host).to_owned()).collect(),
            stop_delay: Duration::ZERO,
        };
        Hosts::new(&http, http.listen)
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let hosts = hosts("127.0.0.1:8484", Some("https://Askd.example/"), &["inbox.lan", "box:9000"]);
        for good in [
            "127.0.0.1:8484",
            "localhost:8484",
            "LOCALHOST:8484",
            "[::1]:8484",
            "askd.example",
            "inbox.lan:81",
            "box:9000",
        ] {
            assert!(hosts.allow(good), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:8484",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost.evil.example:8484",
            "",
            "box:9001",
            "box",
            "127.0.0.1:8484.evil.example",
            "inbox.lan.evil.example",
            "[::1]",
            "0.0.0.0:8484",
        ] {
            assert!(!hosts.allow(bad), "{bad}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_not_taken() {
        let hosts = hosts("127.0.0.1:8484", None, &[]);
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
        };
        assert!(same_site(&headers(&[]), &hosts), "curl");
        assert!(same_site(&headers(&[("origin", "http://127.0.0.1:8484"), ("sec-fetch-site", "same-origin")]), &hosts));
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:8485"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!same_site(&headers(&[bad]), &hosts), "{bad:?}");
        }
    }
}
