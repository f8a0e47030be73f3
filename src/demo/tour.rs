//! The demo's one address: a tour page with inbox, Slack and phone side by side and the agents' terminal below. Those three
//! come from servers of their own and are passed on below `/inbox/`, `/slack/` and `/phone/`. The page asks again and again
//! for the lines of the terminal.

use super::terminal::Terminal;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, ORIGIN, TRANSFER_ENCODING, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Headers of a request that the page's own server has to see.
const PASSED_ON: [&str; 4] = ["accept", "authorization", "content-type", "if-none-match"];

/// The page of one of the three places.
pub(super) struct Page {
    /// Where the tour shows it: `inbox` is `/inbox/`.
    pub(super) name: &'static str,
    /// Its own server, without a slash at the end.
    pub(super) server: String,
    /// What follows the address of its page: query and fragment.
    pub(super) opens: String,
}

struct Front {
    places: [Page; 3],
    /// Who can reach the tour, in a sentence.
    reach: &'static str,
    http: reqwest::Client,
    terminal: Arc<Terminal>,
}

/// Serves the tour until the demo drops it.
pub(super) async fn serve(
    listener: TcpListener,
    places: [Page; 3],
    reach: &'static str,
    terminal: Arc<Terminal>,
) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
    let file = |kind: &'static str, text: &'static str| get(async move || ([(CONTENT_TYPE, kind)], text));
    let app = Router::new()
        .route("/", get(page))
        .route("/tour.css", file("text/css; charset=utf-8", include_str!("tour/tour.css")))
        .route("/tour.js", file("text/javascript; charset=utf-8", include_str!("tour/tour.js")))
        .route("/lines", get(async |State(front): State<Arc<Front>>| Json(front.terminal.lines())))
        .route("/{place}/", any(pass_on))
        .route("/{place}/{*path}", any(pass_on))
        .layer(from_fn(guard))
        .with_state(Arc::new(Front { places, reach, http, terminal }));
    Ok(axum::serve(listener, app).await?)
}

async fn guard(request: Request, next: Next) -> Response {
    if !is_ours(request.headers()) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let mut response = next.run(request).await;
    response.headers_mut().entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    response
}

/// Whether no web site calls that has its own name resolve to this address, or that uses ours. It cannot come under a bare
/// address, so any of these is let in: the demo may run in a container.
fn is_ours(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    (name == "localhost" || name.parse::<IpAddr>().is_ok())
        && text(ORIGIN).is_none_or(|origin| origin.strip_prefix("http://") == Some(host))
}

async fn page(State(front): State<Arc<Front>>) -> Html<String> {
    let fill = |page: String, place: &Page| page.replace(&format!("{{{}}}", place.name), &place.link(""));
    let page = include_str!("tour/tour.html").replace("{reach}", front.reach);
    Html(front.places.iter().fold(page, fill))
}

impl Page {
    /// Its page, as a part of the tour at this address.
    pub(super) fn link(&self, tour: &str) -> String {
        format!("{tour}{}/{}", self.name, self.opens)
    }
}

/// Fetches what the page's own server has to say, a stream as it comes.
async fn pass_on(
    State(front): State<Arc<Front>>,
    Path(path): Path<Vec<(String, String)>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let [(_, name), ..] = &path[..] else { return StatusCode::NOT_FOUND.into_response() };
    let Some(place) = front.places.iter().find(|place| place.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let rest =
        uri.path_and_query().map_or("", |path| path.as_str()).strip_prefix(&format!("/{name}")).unwrap_or_default();
    let mut call = front.http.request(method, format!("{}{rest}", place.server)).body(body);
    for name in PASSED_ON {
        if let Some(value) = headers.get(name) {
            call = call.header(name, value);
        }
    }
    let Ok(reply) = call.send().await else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, mut headers) = (reply.status(), reply.headers().clone());
    headers.remove(TRANSFER_ENCODING);
    headers.remove(X_FRAME_OPTIONS);
    if let Some(policy) = headers.get(CONTENT_SECURITY_POLICY).and_then(|policy| policy.to_str().ok()) {
        let others = policy.split(';').filter(|rule| !rule.trim_start().starts_with("frame-ancestors"));
        let framed = others.chain([" frame-ancestors 'self'"]).collect::<Vec<_>>().join(";");
        if let Ok(framed) = HeaderValue::from_str(&framed) {
            headers.insert(CONTENT_SECURITY_POLICY, framed);
        }
    }
    (status, headers, Body::from_stream(reply.bytes_stream())).into_response()
}
