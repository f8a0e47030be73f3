//! MCP by URL: the tools of `askd mcp` for a client that has a token and no folder. rmcp reads and checks each message, in
//! both eras, and answers it without a session of its own; this file adds what is askd's: whose question it is, the stream
//! that begins at once, and when an outcome has reached its client.
//!
//! A session is the header `Askd-Session`, else the id that a client got when it introduced itself, else none: then nothing is
//! joined, and each call is a taker of its own. A stream that is closed means that this call is gone, and withdraws nothing.

mod sessions;
mod tools;

use super::Agents;
use super::door::Caller;
use crate::clock::{Clock, Moment};
use crate::host::channel::web::Problem;
use crate::host::line::Line;
use crate::mcp::{CANCEL, Rounds, Settings, tasks};
use crate::random;
use askd_core::{Group, MAX_TOKEN, RequestId, Waiter, WaiterEvent};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, RequestId as CallId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sessions::{Client, Message, Registered, Sent, Sessions};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Which run of the agent asks.
const SESSION: HeaderName = HeaderName::from_static("askd-session");
const MCP_SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How often a stream without news gets a comment.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// How the events begin that are no result.
const NOTIFICATION: &[u8] = b"data: {\"jsonrpc\":\"2.0\",\"method\"";
/// How long after its last event an outcome counts as taken by a client that says nothing more.
const REACHED_AFTER: Duration = Duration::from_secs(10);

/// The calls of MCP. Cheap to clone.
#[derive(Clone)]
struct Mcp {
    agents: Agents,
    sessions: Arc<Sessions>,
    settings: Arc<Settings>,
}

/// One call of a tool: what its handler and its stream know of each other.
struct Call {
    caller: Caller,
    session: Option<String>,
    mcp_session: Option<String>,
    client: Option<Client>,
    id: Option<CallId>,
    line: Line,
    /// The handler has it, so that its message is in order.
    begun: CancellationToken,
    /// Nobody waits for it any more.
    gone: CancellationToken,
    /// The question whose outcome it returns.
    outcome: Mutex<Option<RequestId>>,
}

/// What askd itself reads of a message.
#[derive(Deserialize)]
struct Envelope {
    method: Option<String>,
    id: Option<CallId>,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Params {
    request_id: Option<CallId>,
    task_id: Option<String>,
    request_state: Option<IgnoredAny>,
    /// The tool that is called.
    name: Option<String>,
    client_info: Option<Client>,
}

/// The route of MCP.
pub(super) fn route(agents: &Agents) -> Router<Agents> {
    let mcp = Mcp { agents: agents.clone(), sessions: Arc::default(), settings: Arc::default() };
    Router::new().route("/mcp", post(message).delete(end)).with_state(mcp)
}

fn refused(status: StatusCode, code: ErrorCode, why: impl Into<String>) -> Response {
    let error: ServerJsonRpcMessage = JsonRpcMessage::error(ErrorData::new(code, why.into(), None), None);
    (status, Json(error)).into_response()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// The session that a message belongs to, and what its client is.
fn session(headers: &HeaderMap, sessions: &Sessions) -> Result<(Option<String>, Option<Client>), Box<Response>> {
    let own = text(headers, &SESSION);
    let is_twice = headers.get_all(&SESSION).iter().nth(1).is_some();
    if is_twice || own.is_some_and(|own| own.is_empty() || own.len() > MAX_TOKEN) {
        let detail = format!("Askd-Session stands there once, with 1 to {MAX_TOKEN} visible characters of ASCII.");
        return Err(Box::new(Problem::new(StatusCode::BAD_REQUEST, "Not understood", detail).into_response()));
    }
    let Some((session, client)) = text(headers, &MCP_SESSION)
        .map(|id| Client::of_session(id).filter(|(session, _)| !sessions.has_ended(session)))
        .map_or(Some((None, None)), |known| known.map(|(session, client)| (Some(session), Some(client))))
    else {
        let why = "Session not found: initialize again";
        return Err(Box::new(refused(StatusCode::NOT_FOUND, ErrorCode(-32001), why)));
    };
    Ok((own.map(str::to_owned).or(session), client))
}

impl Caller {
    /// The same caller, whose outcomes go to this session, or to this one call.
    fn in_session(self, session: Option<&str>) -> Self {
        let taker =
            session.map_or_else(|| format!("call/{}", random::unique()), |session| format!("session/{session}"));
        Self { taker, ..self }
    }

    fn key(&self) -> (Group, String) {
        (self.holder.group.clone(), self.taker.clone())
    }
}

async fn message(
    State(mcp): State<Mcp>,
    Extension(caller): Extension<Caller>,
    Extension(line): Extension<Line>,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Nobody needs it any more.
    headers.remove(header::AUTHORIZATION);
    let Envelope { method, id, params } = match serde_json::from_slice(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            let why = format!("not one message of JSON-RPC: {error}");
            return refused(StatusCode::BAD_REQUEST, ErrorCode::PARSE_ERROR, why);
        }
    };
    let (session, client) = match session(&headers, &mcp.sessions) {
        Ok(known) => known,
        Err(refused) => return *refused,
    };
    let session = session.or_else(|| crate::sabotage::on("tokenjoins").then(|| caller.holder.id.clone()));
    // What has become of a task can be asked again, and so can a call that goes on waiting.
    let task = params.task_id.and_then(|id| tasks::question(&id).ok());
    let goes_on = || params.request_state.and_then(|_| Rounds::question_in(caller.holder.key(), &body));
    let question = task.or_else(goes_on);
    let caller = caller.in_session(session.as_deref().or(question.as_ref().map(RequestId::as_str)));
    let mcp_session = text(&headers, &MCP_SESSION).map(str::to_owned);
    if let Some(session) = &session {
        let (agents, group) = (&mcp.agents, &caller.holder.group);
        if agents.broker.leases().renew(group, session) {
            let (of, group, session) = (mcp.clone(), group.clone(), session.clone());
            let is_known = agents.broker.has_loaded(&group);
            let adopting = async move { of.adopt(&group, &session).await };
            // No message waits until the stored questions are read.
            if is_known { adopting.await } else { agents.ctx.spawn(adopting) }
        }
        let (method, mcp_session) = (method.as_deref(), mcp_session.as_deref());
        mcp.heard(&caller, Message { method, mcp_session, cancelled: params.request_id.as_ref() }).await;
    }
    let mut request = Request::new(Body::from(body));
    (*request.method_mut(), *request.headers_mut()) = (Method::POST, headers);
    match method.as_deref() {
        Some("notifications/cancelled") => StatusCode::ACCEPTED.into_response(),
        Some("tools/call" | "tasks/get" | "tasks/cancel") => {
            // What waits for nobody is possible however many calls wait: a question can always be withdrawn.
            let waits = method.as_deref() == Some("tools/call") && params.name.as_deref() != Some(CANCEL);
            let place = match waits.then(|| mcp.agents.place(&caller)).transpose() {
                Ok(place) => place,
                Err(problem) => return problem.into_response(),
            };
            let (begun, gone, outcome) = (CancellationToken::new(), CancellationToken::new(), Mutex::default());
            let call = Arc::new(Call { caller, session, mcp_session, client, id, line, begun, gone, outcome });
            request.extensions_mut().insert(Arc::clone(&call));
            mcp.call(call, place, request).await
        }
        _ => {
            let mut response = mcp.http().handle(request).await.map(Body::new);
            if let Some(client) = params.client_info.filter(|_| method.as_deref() == Some("initialize"))
                && response.status().is_success()
                && let Ok(id) = HeaderValue::from_str(&client.new_session())
            {
                response.headers_mut().insert(MCP_SESSION, id);
            }
            response
        }
    }
}

/// The client's run is over, and nobody waits for its questions any more; or only this client of a run that has several.
async fn end(State(mcp): State<Mcp>, Extension(caller): Extension<Caller>, headers: HeaderMap) -> Response {
    match session(&headers, &mcp.sessions) {
        Ok((Some(session), _)) => {
            let mcp_session = text(&headers, &MCP_SESSION);
            let own = mcp_session.and_then(Client::of_session).map(|(own, _)| own);
            let is_run = own.as_ref().is_none_or(|own| *own == session);
            if let Some(own) = own {
                mcp.sessions.end(own);
            }
            let caller = caller.in_session(Some(&session));
            mcp.heard(&caller, Message { mcp_session, ..Message::default() }).await;
            if is_run {
                mcp.adopt(&caller.holder.group, &session).await;
                mcp.agents.broker.leases().end(&caller.holder.group, &session);
            }
            StatusCode::NO_CONTENT.into_response()
        }
        Ok((None, _)) => {
            refused(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, "Mcp-Session-Id says which session ends")
        }
        Err(refused) => *refused,
    }
}

impl Mcp {
    /// rmcp's server, which keeps nothing between two messages. The address and the site were judged before.
    fn http(&self) -> StreamableHttpService<Self, NeverSessionManager> {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_sse_keep_alive(None)
            .disable_allowed_hosts();
        let own = self.clone();
        StreamableHttpService::new(move || Ok(own.clone()), Arc::default(), config)
    }

    fn clock(&self) -> &Clock {
        self.agents.ctx.clock()
    }

    /// A message of this session has come: its client has what it shows that it has read, unless it drops that very call.
    async fn heard(&self, caller: &Caller, message: Message<'_>) {
        let of = caller.key();
        if let Some(call) = message.cancelled.filter(|_| !crate::sabotage::on("cancelledtaken")) {
            self.sessions.cancel(&(of.clone(), message.mcp_session.map(str::to_owned), call.clone()));
            for sent in self.sessions.over(&of, |sent| sent.was_dropped_by(&message)) {
                self.lost(caller, sent.request_id);
            }
        }
        for sent in self.sessions.over(&of, |sent| sent.was_read_before(&message)) {
            self.reached(caller, sent).await;
        }
    }

    /// A message of this session has come: it still waits for what it asked in an earlier run, or at another daemon.
    async fn adopt(&self, group: &Group, session: &str) {
        let broker = &self.agents.broker;
        broker.loaded_of(group).await;
        for id in broker.reaching(group) {
            let Ok(Some(ask)) = broker.get(id).await else { continue };
            let its = |waiter: &&Waiter| tools::waits(waiter) && ask.session_of(waiter) == Some(session);
            ask.waiters.iter().filter(its).for_each(|waiter| {
                broker.leases().adopt(group, &waiter.request_id, session);
            });
        }
    }

    /// An outcome has reached its client.
    async fn reached(&self, caller: &Caller, sent: Sent) {
        let request_id = sent.request_id;
        let Some(id) = self.agents.broker.of_request(&caller.holder.group, &request_id) else { return };
        let event = WaiterEvent::Collected { by: caller.taker.clone() }.of(request_id);
        if let Err(problem) = self.agents.apply(id, event).await {
            tracing::warn!(ask = %id, why = problem.into_detail(), "an outcome that an MCP client has is still owed");
        }
    }

    /// It has not: it is still owed, to whoever asks next.
    fn lost(&self, caller: &Caller, request_id: RequestId) {
        let Agents { broker, holds, ctx, .. } = &self.agents;
        ctx.finish(broker.release(holds, &caller.taker, &(caller.holder.group.clone(), request_id)));
    }

    /// The last event of a call was written, with this outcome.
    fn sent(&self, call: &Call, request_id: RequestId) {
        let (of, at) = (call.caller.key(), self.clock().monotonic());
        let (id, mcp_session, line) = (call.id.clone(), call.mcp_session.clone(), call.line.clone());
        self.sessions.note(of.clone(), Sent { request_id, call: id, mcp_session, line, at });
        let (mcp, caller) = (self.clone(), call.caller.clone());
        self.agents.ctx.spawn(async move {
            mcp.clock().sleep_to(at + REACHED_AFTER).await;
            for sent in mcp.sessions.over(&of, |sent| sent.at <= at) {
                if sent.line.was_reset() && !crate::sabotage::on("resettaken") {
                    mcp.lost(&caller, sent.request_id);
                } else {
                    mcp.reached(&caller, sent).await;
                }
            }
        });
    }

    /// Answers a call with a stream that begins as soon as the call is known to be in order.
    async fn call(self, call: Arc<Call>, place: Option<OwnedSemaphorePermit>, request: Request<Body>) -> Response {
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
        let registered = call
            .session
            .is_some()
            .then_some(call.id.clone())
            .flatten()
            .map(|id| self.sessions.register((call.caller.key(), call.mcp_session.clone(), id), call.gone.clone()));
        let comment_at = self.clock().monotonic();
        let events = Events { mcp: self, call, events, comment_at, _place: place, _registered: registered };
        let headers =
            [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")];
        (headers, Body::from_stream(stream::unfold(events, Events::next))).into_response()
    }

    /// A call with an outcome that nobody waits for any more.
    fn give_back(&self, call: &Call) {
        let outcome = call.outcome.lock().take();
        if let Some(request_id) = outcome {
            self.lost(&call.caller, request_id);
        }
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
                let outcome = if is_result { self.call.outcome.lock().take() } else { None };
                if let Some(request_id) = outcome {
                    self.mcp.sent(&self.call, request_id);
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
