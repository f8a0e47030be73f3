//! The stream of a call, which begins at once and ends with its result, with its token, or with its client.

use super::sessions::Registered;
use super::{Call, Mcp};
use crate::clock::Moment;
use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How often a stream without news gets a comment.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// How the events begin that are no result.
const NOTIFICATION: &[u8] = b"data: {\"jsonrpc\":\"2.0\",\"method\"";

impl Mcp {
    /// Answers a call with a stream that begins as soon as the call is known to be in order.
    pub(super) async fn call(
        self,
        call: Arc<Call>,
        place: Option<OwnedSemaphorePermit>,
        request: Request<Body>,
    ) -> Response {
        let http = self.http();
        let mut reply = Box::pin(async move { http.handle(request).await.map(Body::new) });
        let events = tokio::select! {
            response = &mut reply => {
                let kind = response.headers().get(header::CONTENT_TYPE);
                if kind.is_none_or(|kind| kind != "text/event-stream") {
                    return response;
                }
                response.into_body().into_data_stream().boxed()
            }
            () = call.begun.cancelled() => {
                stream::once(reply).flat_map(|response| response.into_body().into_data_stream()).boxed()
            }
        };
        let registered = call.session.is_some().then(|| self.sessions.register(call.its.clone(), call.gone.clone()));
        let comment_at = self.clock().monotonic();
        let events = Events { mcp: self, call, events, comment_at, _place: place, _registered: registered };
        let headers =
            [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")];
        (headers, Body::from_stream(stream::unfold(events, Events::next))).into_response()
    }
}

/// The stream of a call.
struct Events {
    mcp: Mcp,
    call: Arc<Call>,
    events: BoxStream<'static, Result<Bytes, axum::Error>>,
    comment_at: Moment,
    _place: Option<OwnedSemaphorePermit>,
    _registered: Option<Registered>,
}

impl Events {
    /// The next event, or a comment after a while without one. It ends with its token, too.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let clock = self.mcp.clock().clone();
        tokio::select! {
            // In this order: a call that is cancelled returns, and what it returns then is for nobody.
            biased;
            () = self.call.gone.cancelled() => None,
            () = self.call.caller.holder.ends(&clock) => None,
            event = self.events.next() => {
                let Some(Ok(event)) = event else { return None };
                // Noted before it leaves: the client's next message may come before this stream ends.
                let is_result = !event.starts_with(NOTIFICATION);
                let outcome = if is_result { self.call.outcome.lock().clone() } else { None };
                if let Some(request_id) = outcome {
                    if !self.mcp.is_sent(&self.call, request_id).await {
                        return None;
                    }
                    self.call.outcome.lock().take();
                }
                Some((Ok(event), self))
            }
            () = clock.sleep_to(self.comment_at) => {
                self.comment_at = clock.monotonic() + COMMENT_EVERY;
                Some((Ok(Bytes::from_static(b":\n\n")), self))
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // In this order: a handler that has an outcome now gives it back itself.
        self.call.gone.cancel();
        self.mcp.give_back(&self.call);
    }
}
