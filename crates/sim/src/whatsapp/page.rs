//! The phone: static files and a stream that says "look again". What is clicked goes to `/control`.
//!
//! CSP-clean (no inline script or style, nothing from elsewhere). Called by `mod`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;

use super::state::Hub;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/", get(async || asset("text/html; charset=utf-8", include_str!("page/phone.html"))))
        .route("/phone.js", get(async || asset("text/javascript; charset=utf-8", include_str!("page/phone.js"))))
        .route("/markup.js", get(async || asset("text/javascript; charset=utf-8", include_str!("page/markup.js"))))
        .route("/phone.css", get(async || asset("text/css; charset=utf-8", include_str!("page/phone.css"))))
        .route("/icon.svg", get(async || asset("image/svg+xml", include_str!("page/icon.svg"))))
        .route("/live", get(live))
}

/// Refuses a request that came under another name than this machine's: a page elsewhere that had its own
/// name resolve to 127.0.0.1 could otherwise read chats and give orders. Laid over page and control.
pub(super) async fn local_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if ["127.0.0.1", "localhost"].contains(&name) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "this stand-in answers on 127.0.0.1 only").into_response()
    }
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text)
}

/// One event per change, at most about twenty a second, until the stand-in stops or the page is closed.
async fn live(State(hub): State<Arc<Hub>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (to_page, events) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut changed = hub.changed.subscribe();
        loop {
            let number = *changed.borrow_and_update();
            if to_page.send(Ok(Event::default().data(number.to_string()))).await.is_err()
                || hub.pause(50).await.is_none()
            {
                return;
            }
            tokio::select! {
                seen = changed.changed() => if seen.is_err() { return },
                () = hub.stop.cancelled() => return,
                () = to_page.closed() => return,
            }
        }
    });
    Sse::new(ReceiverStream::new(events)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
