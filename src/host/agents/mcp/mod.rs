//! MCP by URL: the tools of `askd mcp` for a client that has a token and no folder. rmcp reads and checks each message, in
//! both eras, and answers it without a session of its own; this file adds what is askd's: whose question it is, the stream
//! that begins at once, and when an outcome has reached its client.
//!
//! A session is the header `Askd-Session`, else the id that a client got when it introduced itself, else none: then nothing is
//! joined, and each call is a taker of its own. A stream that is closed means that this call is gone, and withdraws nothing.

mod outcomes;
mod sessions;
mod stream;
mod tools;

use super::Agents;
use super::door::Caller;
use super::problems::away;
use crate::clock::Clock;
use crate::host::channel::web::Problem;
use crate::host::line::Line;
use crate::host::store::McpCall;
use crate::mcp::{CANCEL, Rounds, Settings, no_call, tasks};
use crate::random;
use askd_core::{Group, MAX_TOKEN, RequestId};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, RequestId as CallId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use sessions::{Client, Message, Sessions};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Which run of the agent asks.
const SESSION: HeaderName = HeaderName::from_static("askd-session");
const MCP_SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

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
    client: Option<Client>,
    its: McpCall,
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
    /// The tool that is called, and with what.
    name: Option<Value>,
    arguments: Option<Box<RawValue>>,
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

/// Who says something.
#[derive(Default)]
struct Said {
    /// The session that it belongs to.
    session: Option<String>,
    /// The one that its client got when it introduced itself, and what that is.
    own: Option<String>,
    client: Option<Client>,
    /// How the client was told to call its session; empty if it was not.
    id: String,
}

impl Said {
    fn of(headers: &HeaderMap, sessions: &Sessions) -> Result<Self, Refused> {
        let named = text(headers, &SESSION);
        let is_twice = headers.get_all(&SESSION).iter().nth(1).is_some();
        if is_twice || named.is_some_and(|named| named.is_empty() || named.len() > MAX_TOKEN) {
            return Err(Refused::BadSession);
        }
        let named = named.map(str::to_owned);
        let Some(id) = text(headers, &MCP_SESSION) else { return Ok(Self { session: named, ..Self::default() }) };
        let known = Client::of_session(id).filter(|(own, _)| !sessions.has_ended(own));
        let (own, client) = known.ok_or(Refused::Over)?;
        let session = named.or_else(|| Some(own.clone()));
        Ok(Self { session, own: Some(own), client: Some(client), id: id.to_owned() })
    }
}

/// Why a message, or the end of a session, is not taken.
enum Refused {
    /// The session that a client names itself is no name.
    BadSession,
    NoSession,
    /// The session has ended, or never was one.
    Over,
    /// It is not known just now what the client has.
    Problem(Box<Problem>),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let problem = |status, title, detail: String| Problem::new(status, title, detail).into_response();
        match self {
            Self::BadSession => {
                let why = format!("Askd-Session stands there once, with 1 to {MAX_TOKEN} visible characters of ASCII.");
                problem(StatusCode::BAD_REQUEST, "Not understood", why)
            }
            Self::NoSession => {
                let why = "Mcp-Session-Id says which session ends";
                refused(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, why)
            }
            Self::Over => refused(StatusCode::NOT_FOUND, ErrorCode(-32001), "Session not found: initialize again"),
            Self::Problem(problem) => problem.into_response(),
        }
    }
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

    /// One of its calls.
    fn call(&self, client: &str, number: &str) -> McpCall {
        let (group, taker) = self.key();
        McpCall { group, taker, client: client.to_owned(), number: number.to_owned() }
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
    let Envelope { method, id, params } = match envelope(&body) {
        Ok(envelope) => envelope,
        Err(refused) => return *refused,
    };
    let mut said = match Said::of(&headers, &mcp.sessions) {
        Ok(said) => said,
        Err(refused) => return refused.into_response(),
    };
    if crate::sabotage::on("tokenjoins") {
        said.session.get_or_insert_with(|| caller.holder.id.clone());
    }
    // What has become of a task can be asked again, and so can a call that goes on waiting.
    let task = params.task_id.and_then(|id| tasks::question(&id).ok());
    let goes_on = || params.request_state.and_then(|_| Rounds::question_in(caller.holder.key(), &body));
    let question = task.or_else(goes_on);
    let caller = caller.in_session(said.session.as_deref().or(question.as_ref().map(RequestId::as_str)));
    let method = method.as_deref();
    let is_call = matches!(method, Some("tools/call" | "tasks/get" | "tasks/cancel"));
    let number = serde_json::to_string(&id).unwrap_or_default();
    if let Some(session) = &said.session {
        let cancelled = params.request_id.and_then(|id| serde_json::to_string(&id).ok());
        let begins = is_call.then(|| number.clone());
        if let Err(refused) =
            mcp.heard(&caller, &said, Message { method, client: said.id.clone(), begins, cancelled }).await
        {
            return refused.into_response();
        }
        mcp.renew_lease(&caller.holder.group, session).await;
    }
    let mut request = Request::new(Body::from(body));
    (*request.method_mut(), *request.headers_mut()) = (Method::POST, headers);
    match method {
        Some("notifications/cancelled") => StatusCode::ACCEPTED.into_response(),
        _ if is_call => {
            // What waits for nobody is possible however many calls wait: a question can always be withdrawn.
            let waits = method == Some("tools/call") && params.name.as_ref().and_then(Value::as_str) != Some(CANCEL);
            let place = match waits.then(|| mcp.agents.place(&caller)).transpose() {
                Ok(place) => place,
                Err(problem) => return problem.into_response(),
            };
            let (begun, gone, outcome) = (CancellationToken::new(), CancellationToken::new(), Mutex::default());
            let (its, Said { session, client, .. }) = (caller.call(&said.id, &number), said);
            let call = Arc::new(Call { caller, session, client, its, line, begun, gone, outcome });
            request.extensions_mut().insert(Arc::clone(&call));
            mcp.call(call, place, request).await
        }
        _ => {
            let mut response = mcp.http().handle(request).await.map(Body::new);
            if let Some(client) = params.client_info.filter(|_| method == Some("initialize"))
                && response.status().is_success()
                && let Ok(id) = HeaderValue::from_str(&client.new_session())
            {
                response.headers_mut().insert(MCP_SESSION, id);
            }
            response
        }
    }
}

/// What a message says of itself, unless it is none that can be taken.
fn envelope(body: &[u8]) -> Result<Envelope, Box<Response>> {
    let refuse = |code, why: &str| Err(Box::new(refused(StatusCode::BAD_REQUEST, code, why)));
    let Envelope { method, id, params } = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        Err(_) if body.trim_ascii_start().starts_with(b"[") => {
            return refuse(ErrorCode::INVALID_REQUEST, "a batch is not taken by URL: send each message by itself");
        }
        Err(error) => return refuse(ErrorCode::PARSE_ERROR, &format!("not one message of JSON-RPC: {error}")),
    };
    let is_object = |arguments: &RawValue| arguments.get().starts_with('{');
    let is_fit =
        params.name.as_ref().is_some_and(Value::is_string) && params.arguments.as_deref().is_none_or(is_object);
    if method.as_deref() == Some("tools/call") && id.is_some() && !is_fit {
        let error: ServerJsonRpcMessage = JsonRpcMessage::error(no_call(), id);
        return Err(Box::new(Json(error).into_response()));
    }
    Ok(Envelope { method, id, params })
}

/// The client's run is over, and nobody waits for its questions any more; or only this client of a run that has several.
async fn end(State(mcp): State<Mcp>, Extension(caller): Extension<Caller>, headers: HeaderMap) -> Response {
    match end_session(&mcp, caller, &headers).await {
        Ok(status) => status.into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn end_session(mcp: &Mcp, caller: Caller, headers: &HeaderMap) -> Result<StatusCode, Refused> {
    let said = Said::of(headers, &mcp.sessions)?;
    let Some(session) = said.session.clone() else {
        return Err(Refused::NoSession);
    };
    let caller = caller.in_session(Some(&session));
    mcp.heard(&caller, &said, Message { client: said.id.clone(), ..Message::default() }).await?;
    let (group, leases) = (&caller.holder.group, mcp.agents.broker.leases());
    // It may have asked at another daemon just now.
    mcp.agents.broker.catch_up().await.or_else(|error| away(&error))?;
    let is_run = said.own.as_ref().is_none_or(|own| *own == session);
    let requests = if is_run { mcp.adopt(group, &session).await } else { Vec::new() };
    let ending = said.own.as_ref().unwrap_or(&session);
    mcp.agents.broker.end_session(group, ending, requests).await.or_else(|error| away(&error))?;
    if is_run {
        leases.end(group, &session);
    }
    said.own.into_iter().for_each(|own| mcp.sessions.end(own));
    Ok(StatusCode::NO_CONTENT)
}

impl Mcp {
    /// A session is heard of. If its lease had ended, it gets back what it waits for.
    async fn renew_lease(&self, group: &Group, session: &str) {
        let agents = &self.agents;
        if agents.broker.leases().renew(group, session) {
            let (of, group, session) = (self.clone(), group.clone(), session.to_owned());
            let is_known = agents.broker.has_loaded(&group);
            let adopting = async move { drop(of.adopt(&group, &session).await) };
            // No message waits until the stored questions are read.
            if is_known { adopting.await } else { agents.ctx.spawn(adopting) }
        }
    }

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
}
