//! The Web API: `GET` or `POST /api/{method}`, with Slack's order of checks: limits, token, scope, arguments.
//!
//! Dispatches, answers in Slack's manner and carries out faults. What a method does stands in the files beside this one. Called by the router.

mod args;
mod chat;
mod conversations;
mod people;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::calls::{Call, Outcome};
use super::config::Token;
use super::faults::FaultKind;
use super::shared::Shared;
use crate::line::Line;

pub(in crate::slack) use args::Args;
pub(in crate::slack) use chat::check_blocks;

/// Why a method failed, as it is told to the client.
#[derive(Debug, Clone)]
pub(in crate::slack) struct Failure {
    error: String,
    more: Value,
    retry_after: Option<u64>,
}

impl Failure {
    pub(in crate::slack) fn new(error: &str) -> Self {
        Self { error: error.into(), more: json!({}), retry_after: None }
    }

    /// Adds `response_metadata.messages`.
    pub(super) fn messages(mut self, messages: impl IntoIterator<Item = String>) -> Self {
        let messages: Vec<String> = messages.into_iter().collect();
        self.more["response_metadata"] = json!({"messages": messages});
        self
    }

    /// Slack's name for it.
    pub(in crate::slack) fn error(&self) -> &str {
        &self.error
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.more[key] = value;
        self
    }

    fn limited(seconds: u64) -> Self {
        let mut failure = Self::new("ratelimited");
        failure.retry_after = Some(seconds);
        failure
    }

    fn body(&self) -> Value {
        let mut body = self.more.clone();
        body["ok"] = json!(false);
        body["error"] = json!(self.error);
        body
    }
}

type Answer = Result<Value, Failure>;

/// Which token a method wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Nothing,
    Bot,
    App,
}

/// What each known method needs: kind of token, and one of these scopes. If it is about one channel, that of the channel's kind.
fn method_needs(method: &str) -> Option<(Wants, &'static [&'static str])> {
    const READ: &[&str] = &["channels:read", "groups:read", "im:read", "mpim:read"];
    const HISTORY: &[&str] = &["channels:history", "groups:history", "im:history", "mpim:history"];
    Some(match method {
        "api.test" => (Wants::Nothing, &[]),
        "auth.test" | "views.open" => (Wants::Bot, &[]),
        "chat.postMessage" | "chat.update" | "chat.postEphemeral" | "chat.delete" => (Wants::Bot, &["chat:write"]),
        "conversations.history" | "conversations.replies" => (Wants::Bot, HISTORY),
        "conversations.info" | "conversations.list" | "conversations.members" => (Wants::Bot, READ),
        "conversations.join" => (Wants::Bot, &["channels:join"]),
        "users.info" | "users.list" => (Wants::Bot, &["users:read"]),
        "reactions.add" => (Wants::Bot, &["reactions:write"]),
        "apps.connections.open" => (Wants::App, &["connections:write"]),
        _ => return None,
    })
}

/// The handler of all methods.
pub(super) async fn handle(
    State(shared): State<Arc<Shared>>,
    Path(method): Path<String>,
    ConnectInfo(line): ConnectInfo<Line>,
    http: Method,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let at = shared.clock.monotonic();
    let (token, args) = Args::read(&headers, query.as_deref().unwrap_or_default(), &body);
    let mut call = Call {
        at,
        http: http.to_string(),
        channel: args.as_ref().ok().and_then(|args| args.text("channel")),
        args: args.as_ref().map_or(Value::Null, Args::all),
        method: method.clone(),
        outcome: Outcome::Ok,
        retry_after: None,
    };
    let fault = shared.faults.strike(&method, &shared.chance);
    if let Some(response) = before(&shared, fault.as_ref(), &line, &mut call).await {
        shared.note(call);
        return response;
    }
    let (scopes, answer) = shared.run(&method, token.as_deref(), args);
    let mut response = respond(&answer);
    if let Ok(value) = HeaderValue::from_str(&scopes.join(",")) {
        response.headers_mut().insert("x-oauth-scopes", value);
    }
    let accepted = method_needs(&method).map_or(&[][..], |needs| needs.1).join(",");
    if let Ok(value) = HeaderValue::from_str(&accepted) {
        response.headers_mut().insert("x-accepted-oauth-scopes", value);
    }
    match &answer {
        Ok(_) => {}
        Err(failure) => {
            call.outcome = Outcome::Error(failure.error.clone());
            call.retry_after = failure.retry_after;
        }
    }
    after(&shared, fault, &line, call, response).await
}

/// Faults that strike before anything is done.
async fn before(shared: &Shared, fault: Option<&FaultKind>, line: &Line, call: &mut Call) -> Option<Response> {
    match fault? {
        FaultKind::RateLimited(seconds) => {
            call.outcome = Outcome::Error("ratelimited".into());
            call.retry_after = Some(*seconds);
            Some(respond(&Err(Failure::limited(*seconds))))
        }
        FaultKind::Status(status) => {
            call.outcome = Outcome::Status(*status);
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            Some((status, "upstream connect error or disconnect").into_response())
        }
        FaultKind::Redirect(to) => {
            call.outcome = Outcome::Status(302);
            Some((StatusCode::FOUND, [(header::LOCATION, to.clone())]).into_response())
        }
        FaultKind::ResetBefore => {
            call.outcome = Outcome::Broken { done: false };
            line.reset();
            Some(StatusCode::OK.into_response())
        }
        FaultKind::StallBefore(wait) => {
            shared.pause(*wait).await;
            None
        }
        FaultKind::Error(error) => {
            call.outcome = Outcome::Error(error.clone());
            Some(respond(&Err(Failure::new(error))))
        }
        FaultKind::Body(body) => {
            call.outcome = Outcome::Error(body["error"].as_str().unwrap_or_default().into());
            Some(json_response(StatusCode::OK, body.to_string()))
        }
        _ => None,
    }
}

/// Faults that strike when all is done.
async fn after(shared: &Shared, fault: Option<FaultKind>, line: &Line, mut call: Call, response: Response) -> Response {
    let done = call.outcome == Outcome::Ok;
    let response = match fault {
        Some(FaultKind::ResetAfter) => {
            call.outcome = Outcome::Broken { done };
            line.reset();
            response
        }
        Some(FaultKind::Truncate) => {
            call.outcome = Outcome::Broken { done };
            shared.note(call);
            return truncated(response).await;
        }
        Some(FaultKind::Stall(wait)) => {
            // Noted before the wait: a client that gives up ends this handler.
            shared.note(call);
            shared.pause(wait).await;
            return response;
        }
        _ => response,
    };
    shared.note(call);
    response
}

/// Half of the body under the length of the whole; then the connection ends.
async fn truncated(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let half = whole.slice(..whole.len() / 2);
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let pieces = async_pieces(half);
    Response::from_parts(parts, Body::from_stream(pieces))
}

fn async_pieces(half: Bytes) -> impl tokio_stream::Stream<Item = Result<Bytes, std::io::Error>> {
    use tokio_stream::StreamExt as _;
    let broken = tokio_stream::once(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
    // The pause lets the first half leave before the break.
    let broken = broken.then(|item| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        item
    });
    tokio_stream::once(Ok(half)).chain(broken)
}

fn respond(answer: &Answer) -> Response {
    match answer {
        Ok(value) => json_response(StatusCode::OK, super::deliver::ok(value.clone()).to_string()),
        Err(failure) => match failure.retry_after {
            Some(seconds) => {
                let mut response = json_response(StatusCode::TOO_MANY_REQUESTS, failure.body().to_string());
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                response
            }
            None => json_response(StatusCode::OK, failure.body().to_string()),
        },
    }
}

fn json_response(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response()
}

impl Shared {
    /// Runs one method. Yields the scopes of the token as well, for the headers.
    fn run(self: &Arc<Self>, method: &str, token: Option<&str>, args: Result<Args, Failure>) -> (Vec<String>, Answer) {
        let Some((wants, scopes)) = method_needs(method) else {
            let unknown = Failure::new("unknown_method").with("req_method", json!(method));
            return (Vec::new(), Err(unknown));
        };
        let scopes = args.as_ref().map_or(scopes, |args| self.of_kind(scopes, args));
        let provided = match self.authorize(wants, scopes, token) {
            Ok(token) => token.map(|token| token.scopes.clone()).unwrap_or_default(),
            Err(failure) => return (Vec::new(), Err(failure)),
        };
        let answer = self.tier(method).and(args).and_then(|args| self.call(method, &args));
        if answer.is_ok() {
            self.touch();
        }
        (provided, answer)
    }

    /// Of several scopes the one for the kind of this channel, if the bot can see the channel.
    fn of_kind(&self, scopes: &'static [&'static str], args: &Args) -> &'static [&'static str] {
        let (state, id) = (self.state(), args.text("channel").unwrap_or_default());
        let Some(channel) = state.channel(&id).filter(|channel| !channel.private || channel.bot_invited) else {
            return scopes;
        };
        let is_its = |scope: &&str| scope.split(':').next() == Some(channel.kind().0);
        scopes.iter().position(is_its).map_or(scopes, |at| &scopes[at..=at])
    }

    fn authorize(&self, wants: Wants, scopes: &[&str], token: Option<&str>) -> Result<Option<&Token>, Failure> {
        if wants == Wants::Nothing {
            return Ok(None);
        }
        let token = token.filter(|token| !token.is_empty()).ok_or_else(|| Failure::new("not_authed"))?;
        let same = |known: &&Token| known.secret == token;
        let bot = self.config.bot_tokens.iter().find(same);
        let app = self.config.app_token.iter().find(same);
        let (right, wrong) = if wants == Wants::Bot { (bot, app) } else { (app, bot) };
        let Some(right) = right else {
            let error = if wrong.is_some() { "not_allowed_token_type" } else { "invalid_auth" };
            return Err(Failure::new(error));
        };
        let allowed = scopes.is_empty() || scopes.iter().any(|scope| right.scopes.iter().any(|has| has == scope));
        if !allowed {
            let missing = Failure::new("missing_scope")
                .with("needed", json!(scopes.join(",")))
                .with("provided", json!(right.scopes.join(",")));
            return Err(missing);
        }
        Ok(Some(right))
    }

    /// The limit of a method, where one is configured.
    fn tier(&self, method: &str) -> Result<(), Failure> {
        let Some(most) = self.config.per_minute.get(method).copied().filter(|most| *most > 0) else {
            return Ok(());
        };
        let every = Duration::from_secs(60) / most;
        let now = self.clock.monotonic();
        self.state().pace.take(method, every, most, now).map_err(Failure::limited)
    }

    fn call(self: &Arc<Self>, method: &str, args: &Args) -> Answer {
        match method {
            "api.test" => self.api_test(args),
            "auth.test" => Ok(self.auth_test()),
            "chat.postMessage" => self.post_message(args),
            "chat.update" => self.update(args),
            "chat.postEphemeral" => self.post_ephemeral(args),
            "chat.delete" => self.delete(args),
            "conversations.history" => self.history(args),
            "conversations.replies" => self.replies(args),
            "conversations.info" => self.conversation_info(args),
            "conversations.list" => Ok(self.conversation_list(args)),
            "conversations.members" => self.conversation_members(args),
            "conversations.join" => self.conversation_join(args),
            "users.info" => self.user_info(args),
            "users.list" => Ok(self.user_list()),
            "views.open" => self.view_open(args),
            "reactions.add" => self.reaction_add(args),
            _ => Ok(json!({"url": self.socket_url()})),
        }
    }

    fn note(&self, call: Call) {
        self.state().calls.push(call);
        self.touch();
    }

    async fn pause(&self, wait: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}
