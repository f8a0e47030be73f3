//! The HTTP API of `docs/api.md`. It turns calls into events of asks and says what became of them;
//! an answer is acknowledged once it is on disk.

use super::people::{self, Caller};
use super::view::View;
use super::{Inbox, Peer, Problem, export, listing, problem, push, tokens};
use crate::host::broker::{Broker, Failure, Named};
use crate::host::status::Report;
use crate::host::store::StoreError;
use crate::ipc::wire::{Object, Pairs};
use askd_core::{Ask, AskId, ChannelName, Event, Given, Refusal, Reply, Source, Via, WidgetEvent};
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Extension, FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

/// The largest body of a call, in bytes: ten answers at their limit, and room.
const MAX_BODY: usize = 256 * 1024;
/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes(inbox: Inbox) -> Router {
    let api = Router::new()
        .route("/asks", get(listing::list))
        .route("/asks/{id}", get(show))
        .route("/asks/{id}/trail", get(trail))
        .route("/export", get(export::export))
        .route("/asks/{id}/answer", post(answer))
        .route("/asks/{id}/dismiss", post(dismiss))
        .route("/asks/{id}/cancel", post(cancel))
        .route("/asks/{id}/reset", post(reset))
        .route("/asks/{id}/shown", post(shown))
        .route("/asks/{id}/typing", post(typing))
        .route("/tokens", get(tokens::list).post(tokens::make))
        .route("/tokens/{id}", delete(tokens::revoke))
        .route("/inbox-token", post(tokens::replace))
        .route("/events", get(events))
        .route("/push", post(push::subscribe).delete(push::unsubscribe))
        .route("/status", get(status))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "No such call", "docs/api.md lists the calls.") })
        .method_not_allowed_fallback(|| async {
            let detail = "This call does not take that method: answers are sent by POST, never by GET.";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
        })
        .layer(middleware::map_response(problems_only))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(inbox.clone(), people::known_only))
        .with_state(inbox.clone());
    let api = Router::new().nest("/api/v1", api).route("/api/v1/me", get(people::me).with_state(inbox));
    api.route("/agent/v1/{*call}", any(no_agents_here))
}

/// An agent that has the wrong port would take any other reply for a proxy's, and wait for the daemon behind it.
async fn no_agents_here() -> Problem {
    let detail =
        "This is the address of the inbox. Agents ask at the one of [agents] listen, by default with port 8486.";
    Problem::new(StatusCode::NOT_FOUND, "No such call", detail)
}

/// What was refused before a handler of ours saw it (a path or query that is no text) is told like the rest.
async fn problems_only(response: Response) -> Response {
    let ours = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == problem::CONTENT_TYPE);
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || ours {
        return response;
    }
    Problem::new(status, "Not understood", "The path or the query is malformed; see docs/api.md.").into_response()
}

/// A call about one ask: who calls, and how the path names the ask.
struct Call {
    inbox: Inbox,
    caller: Caller,
    name: String,
}

impl FromRequestParts<Inbox> for Call {
    type Rejection = Response;
    async fn from_request_parts(parts: &mut Parts, inbox: &Inbox) -> Result<Self, Response> {
        let caller = Extension::from_request_parts(parts, inbox).await.map_err(IntoResponse::into_response)?;
        let name = Path::from_request_parts(parts, inbox).await.map_err(IntoResponse::into_response)?;
        let (Extension(caller), Path(name)) = (caller, name);
        Ok(Self { inbox: inbox.clone(), caller, name })
    }
}

impl Call {
    async fn id(&self) -> Result<AskId, Problem> {
        // A whole id needs no other asks.
        if let Ok(id) = self.name.parse() {
            return Ok(id);
        }
        if !self.inbox.broker.is_loaded() {
            return Err(Problem::loading());
        }
        let named = |broker: &Broker| match broker.named(&self.name, |group| self.caller.sees(group)) {
            Named::None => None,
            named => Some(named),
        };
        match self.inbox.broker.find_anywhere(named).await.map_err(unreadable)?.unwrap_or(Named::None) {
            Named::One(id) => Ok(id),
            Named::None => Err(Problem::unknown_ask(&self.name)),
            Named::Several(ids) => Err(Problem::ambiguous(&self.name, &ids)),
        }
    }

    /// An ask that the caller may see: what others ask is not there for them.
    async fn ask(&self) -> Result<Arc<Ask>, Problem> {
        let ask = self.inbox.broker.get(self.id().await?).await.map_err(unreadable)?;
        ask.filter(|ask| self.caller.sees(&ask.group)).ok_or_else(|| Problem::unknown_ask(&self.name))
    }

    async fn apply(&self, event: Event) -> Result<Json<View>, Problem> {
        let id = if self.caller.groups.is_some() { self.ask().await?.id } else { self.id().await? };
        self.apply_to(id, event).await
    }

    /// The same to an ask that the caller is known to see.
    async fn apply_to(&self, id: AskId, event: Event) -> Result<Json<View>, Problem> {
        match self.inbox.broker.apply(id, event).await {
            Ok(ask) => Ok(Json(View::of(&ask))),
            Err(Failure::Unknown) => Err(Problem::unknown_ask(&self.name)),
            Err(Failure::NotStored) => Err(Problem::not_stored()),
            Err(Failure::InDoubt) => Err(Problem::in_doubt()),
            Err(Failure::Broken) => Err(Problem::broken()),
            Err(Failure::Refused(refusal, ask)) => Err(match *refusal {
                Refusal::Settled { .. } => Problem::settled(refusal.to_string(), &ask),
                _ => does_not_fit(&refusal),
            }),
        }
    }
}

fn does_not_fit(refusal: &Refusal) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "The answer does not fit", refusal.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of map_err")]
pub(super) fn unreadable(error: StoreError) -> Problem {
    tracing::error!(%error, "cannot read stored asks");
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Not readable",
        "askd cannot read the stored questions; its log says why.",
    )
}

async fn show(call: Call) -> Result<Json<View>, Problem> {
    Ok(Json(View::of(&*call.ask().await?)))
}

/// What happened to an ask, from the audit log.
async fn trail(call: Call) -> Result<Json<Value>, Problem> {
    let ask = call.ask().await?;
    Ok(Json(json!({"trail": call.inbox.broker.trail(ask).await})))
}

/// How the daemon is, and what an operator has to do.
async fn status(State(inbox): State<Inbox>, Extension(caller): Extension<Caller>) -> Result<Json<Report>, Problem> {
    if caller.groups.is_some() {
        let detail =
            "The status is about all groups, and your token shows only some of them. Use the token of the inbox.";
        return Err(Problem::new(StatusCode::FORBIDDEN, "Not for you", detail));
    }
    Ok(Json(inbox.status.report().await))
}

/// Which door the person used.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Door {
    Web,
    Cli,
    #[default]
    Api,
}

impl Door {
    fn via(self) -> Via {
        match self {
            Self::Web => Via::Web,
            Self::Cli => Via::Cli,
            Self::Api => Via::Api,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    /// By question id or text. Any type is accepted here, so that the error for a wrong value can name the question.
    answers: Pairs<Value>,
    #[serde(default)]
    by: Door,
}

async fn answer(call: Call, body: Result<Json<Object<AnswerBody>>, JsonRejection>) -> Result<Json<View>, Problem> {
    let Json(Object(body)) = body?;
    let ask = call.ask().await?;
    let given = understand(&ask, body.answers.0).map_err(|refusal| does_not_fit(&refusal));
    // What does not fit an ask that is settled anyway is told the more important thing.
    let over = ask.outcome().is_some() && !ask.is_late_open();
    let given = if over { given.unwrap_or_default() } else { given? };
    let event =
        Event::Replied { source: Source::Token, person: call.caller.person(body.by.via()), reply: Reply::Whole(given) };
    call.apply_to(ask.id, event).await
}

fn understand(ask: &Ask, answers: Vec<(String, Value)>) -> Result<Vec<(usize, Given)>, Refusal> {
    let questions = &ask.content.questions;
    let mut given: Vec<(usize, Given)> = Vec::new();
    for (name, value) in answers {
        let index = questions.find(&name).ok_or(Refusal::NoSuchQuestion { name })?;
        if given.iter().any(|(known, _)| *known == index) {
            return Err(Refusal::OnlyOne { question: questions[index].text.clone() });
        }
        let values = texts(value).ok_or_else(|| Refusal::NoText { question: questions[index].text.clone() })?;
        given.push((index, questions[index].understand(&values)?));
    }
    Ok(given)
}

/// A text, or a list of texts.
fn texts(value: Value) -> Option<Vec<String>> {
    let text = |value| match value {
        Value::String(text) => Some(text),
        _ => None,
    };
    match value {
        Value::Array(values) => values.into_iter().map(text).collect(),
        value => text(value).map(|text| vec![text]),
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DoorBody {
    #[serde(default)]
    by: Door,
}

/// A body that may be missing.
struct Optional(DoorBody);

impl<S: Send + Sync> FromRequest<S> for Optional {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(head.clone(), body), state).await;
        let body = body.map_err(|error| Problem::new(error.status(), "Not understood", error.body_text()))?;
        if body.is_empty() {
            return Ok(Self(DoorBody::default()));
        }
        let Json(Object(body)) = Json::from_request(Request::from_parts(head, body.into()), state).await?;
        Ok(Self(body))
    }
}

async fn dismiss(call: Call, Optional(body): Optional) -> Result<Json<View>, Problem> {
    let event =
        Event::Replied { source: Source::Token, person: call.caller.person(body.by.via()), reply: Reply::Dismiss };
    call.apply(event).await
}

async fn cancel(call: Call, Optional(body): Optional) -> Result<Json<View>, Problem> {
    let person = call.caller.person(body.by.via());
    call.apply(Event::Cancel(person)).await
}

/// Lets the questions of an ask be asked again, whatever became of it.
async fn reset(call: Call, Optional(body): Optional) -> Result<Json<View>, Problem> {
    let event = Event::Allow { source: Source::Token, person: call.caller.person(body.by.via()), heard: None };
    call.apply(event).await
}

/// The beacon of a page in view that displays an ask. It is proof for the inbox; an ask of other routes counts as
/// viewed.
async fn shown(call: Call, Optional(_body): Optional) -> Result<StatusCode, Problem> {
    let ask = call.ask().await?;
    // A beacon that arrives after the answer has nothing to prove any more.
    if ask.outcome().is_none() {
        let event = ask.shown_on(ChannelName::WEB).map_or(Event::Viewed, |route| WidgetEvent::Proof.on(route));
        let Json(_view) = call.apply_to(ask.id, event).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A page holds words of a person that were not sent yet: its clock moves once.
async fn typing(call: Call, Optional(_body): Optional) -> Result<Json<View>, Problem> {
    call.apply(Event::Typing).await
}

async fn events(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    from: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let Ok(place) = Arc::clone(&inbox.streams).try_acquire_owned() else {
        let detail = "Too many pages and readers follow what happens. Close some of them; this one tries again.";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Too many readers", detail));
    };
    let (whole, mine) = (inbox.clone(), caller.clone());
    let changes = BroadcastStream::new(inbox.broker.changes());
    let resync = || SseEvent::default().event("resync").data("{}");
    let stream = changes.filter_map(move |change| {
        let (inbox, caller) = (inbox.clone(), caller.clone());
        async move {
            let event = match change {
                Ok(id) => match inbox.broker.get(id).await {
                    Ok(Some(ask)) if caller.sees(&ask.group) => {
                        SseEvent::default().event("ask").json_data(View::of(&ask)).ok()?
                    }
                    Ok(_) => return None,
                    // The page reads everything again until it can be read: else it would go on showing what is over.
                    Err(_) => resync(),
                },
                Err(BroadcastStreamRecvError::Lagged(_)) => resync(),
            };
            Some(Ok::<_, Infallible>(event))
        }
    });
    let first = stream::once(std::future::ready(Ok(SseEvent::default().event("resync").data("{}"))));
    let stream = first.chain(stream);
    let stream = stream.take_until(async move {
        let _place = place;
        // A page that is let in differently, or not at all, reads everything again. A stream that never ends would keep the daemon
        // from stopping.
        tokio::select! {
            () = people::let_out(&whole, &mine, &headers, from.as_deref().copied()) => {}
            () = whole.ctx.stopping() => {}
        }
    });
    // nginx would hold back what is small, the first event among it.
    Ok(([("x-accel-buffering", "no")], Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))))
}
