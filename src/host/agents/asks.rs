//! Asking, waiting, taking and withdrawing over HTTP.

use super::door::Caller;
use super::problems::{TAKEN, away, in_doubt, not_done, problem, to_another, unavailable, why_not_taken};
use super::{Agents, Holds};
use crate::host::broker::{Failure, Submitted};
use crate::host::channel::web::Problem;
use crate::ipc::wire::{self, ResponseFile, StatusFile, response_for};
use crate::random;
use crate::sabotage::task_gate;
use askd_core::{
    Ask, AskId, Carrier, DeliveryState, Event, Group, Rejection, Relation, RequestId, Waiter, WaiterEvent, wording,
};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How long a call may wait.
const LONGEST_WAIT: u64 = 300;

/// What a call is told of an ask without an outcome.
#[derive(Serialize)]
pub(super) struct Status {
    request_id: RequestId,
    #[serde(flatten)]
    status: StatusFile,
}

impl Status {
    pub(super) fn of(ask: &Ask, request_id: RequestId) -> Self {
        let settled = || StatusFile { state: "settled".to_owned(), shown_at: None, answer_by: None };
        Self { request_id, status: StatusFile::of(ask).unwrap_or_else(settled) }
    }
}

impl Agents {
    /// The ask that a request of the caller's group became, with its waiting call.
    pub(super) async fn find(&self, caller: &Caller, request_id: &str) -> Result<(Arc<Ask>, RequestId), Problem> {
        let group = &caller.holder.group;
        let unknown = || {
            let detail = format!("This group has no question with the request id {request_id:?}, or it was forgotten.");
            problem(StatusCode::NOT_FOUND, "No such question", detail)
        };
        let Ok(id) = request_id.parse::<RequestId>() else { return unknown() };
        self.broker.loaded_of(group).await;
        let found = self.broker.find_anywhere(|broker| broker.of_request(group, &id)).await;
        let Some(found) = found.or_else(|error| away(&error))? else { return unknown() };
        let ask = match self.load(found).await {
            Err(none) if none.is_unknown() && self.broker.of_request(group, &id) == Some(found) => {
                return unavailable("askd is still storing the question. Try again.");
            }
            loaded => loaded?,
        };
        match ask.waiter(&id) {
            Some(waiter) if !waiter.carrier.is_file() => Ok((ask, id)),
            _ => unknown(),
        }
    }

    pub(super) async fn load(&self, id: AskId) -> Result<Arc<Ask>, Problem> {
        match self.broker.get(id).await {
            Ok(Some(ask)) => Ok(ask),
            Ok(None) if self.broker.is_unfinished(id) => {
                unavailable("It is not clear yet whether the question is stored. Try again.")
            }
            Ok(None) => problem(StatusCode::NOT_FOUND, "No such question", "It was forgotten."),
            Err(error) => {
                tracing::error!(%error, "cannot read a stored ask");
                unavailable("The stored questions cannot be read; the daemon's log says why.")
            }
        }
    }

    pub(super) async fn apply(&self, id: AskId, event: Event) -> Result<Arc<Ask>, Problem> {
        match self.broker.apply(id, event).await {
            Ok(ask) | Err(Failure::Refused(_, ask)) => Ok(ask),
            Err(Failure::Unknown) => problem(StatusCode::NOT_FOUND, "No such question", "It was forgotten."),
            Err(failure) => not_done(&failure),
        }
    }
}

pub(super) async fn ask(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let request = match wire::parse_ask(&body, random::request_id()) {
        Ok(request) => request,
        Err(rejection) => return problem(StatusCode::UNPROCESSABLE_ENTITY, "Rejected", rejection.to_string()),
    };
    let (group, request_id) = (caller.holder.group.clone(), request.request_id.clone());
    agents.broker.loaded_of(&group).await;
    if agents.broker.of_request(&group, &request_id).is_none() {
        agents.pace(&caller)?;
    }
    // The lease begins before anything can be owed to it.
    let _lease = agents.broker.leases().begin(&group, &request_id);
    let (status, id) = match agents.broker.submit(&group, request).await {
        Submitted::New(id) | Submitted::Joined(id) => (StatusCode::CREATED, id),
        Submitted::Known(id) => (StatusCode::OK, id),
        Submitted::OtherContent => {
            let detail = "This request_id already belongs to another request. Leave it out to get a new one.";
            return problem(StatusCode::CONFLICT, "Another request", detail);
        }
        Submitted::Rejected(rejection @ Rejection::SetAside) => {
            return problem(StatusCode::INTERNAL_SERVER_ERROR, "Set aside", rejection.to_string());
        }
        Submitted::Rejected(rejection) => {
            return problem(StatusCode::UNPROCESSABLE_ENTITY, "Rejected", rejection.to_string());
        }
        // An earlier try of the same request may be in doubt still.
        Submitted::NotStored if agents.broker.of_request(&group, &request_id).is_some() => {
            return unavailable(&in_doubt(&request_id));
        }
        Submitted::InDoubt => return unavailable(&in_doubt(&request_id)),
        Submitted::NotStored => return unavailable("It could not be stored, and nothing was asked. Try again."),
        Submitted::NotYet => return unavailable(wording::NOT_CLEAR_YET),
    };
    let ask = agents.load(id).await?;
    let place = format!("/agent/v1/asks/{request_id}");
    Ok((status, [(header::LOCATION, place)], Json(Status::of(&ask, request_id))).into_response())
}

#[derive(Deserialize)]
pub(super) struct Wait {
    #[serde(default)]
    wait: u64,
}

/// What there is for a call now.
enum Now {
    Outcome(Box<ResponseFile>),
    /// Nothing yet.
    Open,
    /// It became a briefing that nobody has read: this brings it back.
    Briefed(Event),
    Gone(&'static str),
}

const KEPT: &str = "It became a briefing, which is kept for the agent's next start: GET /agent/v1/briefings has it.";
const GAVE_WAY: &str =
    "Too many calls wait for this question. askd dropped this one because its agent seemed dead. Ask again.";

impl Now {
    fn of(ask: &Ask, waiter: &Waiter, caller: &Caller, agents: &Agents) -> Self {
        let outcome = || response_for(ask, waiter).map_or(Self::Open, |response| Self::Outcome(Box::new(response)));
        match waiter.response.state() {
            DeliveryState::Undecided | DeliveryState::Owed | DeliveryState::Ready | DeliveryState::TakingBack => {
                Self::Open
            }
            DeliveryState::Published { .. } => outcome(),
            DeliveryState::Taken => match &waiter.carrier {
                Carrier::Http { taken_by: Some(by) } if *by == caller.taker => outcome(),
                _ => Self::Gone(TAKEN),
            },
            // If this call got the outcome, the agent that was started with the briefing would find nothing.
            DeliveryState::TakenBack { .. } if ask.is_told_elsewhere(waiter) => Self::Gone(wording::TOLD_ELSEWHERE),
            DeliveryState::TakenBack { .. } if ask.is_not_briefed(waiter) => {
                Self::Briefed(Event::Requested(Relation::Replays(waiter.request_id.clone(), None)))
            }
            DeliveryState::TakenBack { .. } => match ask.follow_up().briefing.state() {
                DeliveryState::Owed | DeliveryState::Published { .. }
                    if ask.keeps_outcome(agents.ctx.clock().now(), ask.session_of(waiter)) =>
                {
                    Self::Briefed(Event::Requested(Relation::Reclaims(Vec::new())))
                }
                DeliveryState::Undecided | DeliveryState::TakenBack { .. } | DeliveryState::Taken => {
                    Self::Briefed(Event::Requested(Relation::Replays(waiter.request_id.clone(), None)))
                }
                DeliveryState::Ready | DeliveryState::TakingBack => Self::Open,
                DeliveryState::Owed | DeliveryState::Published { .. } => Self::Gone(KEPT),
            },
        }
    }
}

pub(super) async fn outcome(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Path(request_id): Path<String>,
    Query(Wait { wait }): Query<Wait>,
) -> Result<Response, Problem> {
    if wait > LONGEST_WAIT {
        let detail = format!("wait={wait} is more than {LONGEST_WAIT} seconds.");
        return problem(StatusCode::BAD_REQUEST, "Not understood", detail);
    }
    let (ask, request_id) = agents.find(&caller, &request_id).await?;
    // A call for which there is no place shows all the same that its process lives.
    let _lease = agents.broker.leases().begin(&caller.holder.group, &request_id);
    let _place = if wait > 0 { Some(agents.place(&caller)?) } else { None };
    let clock = agents.ctx.clock();
    let until = clock.monotonic() + Duration::from_secs(wait);
    tokio::select! {
        waited = agents.wait_for(&caller, ask.id, &request_id, clock.sleep_to(until)) => match waited? {
            Waited::Outcome(response) => Ok(Json(response).into_response()),
            Waited::Open(ask) => {
                let again_at_once = [(header::RETRY_AFTER, "0")];
                Ok((StatusCode::ACCEPTED, again_at_once, Json(Status::of(&ask, request_id))).into_response())
            }
        },
        () = agents.ctx.stopping() => unavailable("askd is being restarted. Try again."),
    }
}

/// What a call has waited for.
pub(super) enum Waited {
    /// It is held for this taker now.
    Outcome(Box<ResponseFile>),
    Open(Arc<Ask>),
}

impl Agents {
    /// Waits for the outcome of a request, at most until `end`.
    pub(super) async fn wait_for(
        &self,
        caller: &Caller,
        id: AskId,
        request_id: &RequestId,
        end: impl Future<Output = ()>,
    ) -> Result<Waited, Problem> {
        let mut end = pin!(end);
        let mut changes = self.broker.changes();
        let mut ask = self.load(id).await?;
        if ask.waiter(request_id).is_some_and(|waiter| waiter.replaced) {
            // It was silent for so long that another call took its place.
            ask = self.apply(id, Event::Requested(Relation::Replays(request_id.clone(), None))).await?;
        }
        loop {
            let Some(waiter) = ask.waiter(request_id) else {
                return problem(StatusCode::GONE, "Not there any more", GAVE_WAY);
            };
            match Now::of(&ask, waiter, caller, self) {
                Now::Outcome(response) => {
                    self.hold(caller, request_id).await?;
                    return Ok(Waited::Outcome(response));
                }
                Now::Gone(why) => return problem(StatusCode::GONE, "Not there any more", why),
                Now::Briefed(event) => {
                    // While the agent is being started with it, nobody else gets it.
                    if let Some(_alone) = self.broker.hold_start(id).await {
                        task_gate("call.holds").await;
                        self.hold_briefing(caller, id).await?;
                        let before = Arc::clone(&ask);
                        ask = self.apply(id, event).await?;
                        if *ask != *before {
                            continue;
                        }
                    }
                }
                Now::Open => {}
            }
            let is_over = tokio::select! {
                there_is_more = change_of(&mut changes, id) => !there_is_more,
                () = &mut end => true,
            };
            if is_over {
                return Ok(Waited::Open(ask));
            }
            ask = self.load(id).await?;
        }
    }
}

/// Waits until an ask may have changed; `false` if nothing will any more.
async fn change_of(changes: &mut broadcast::Receiver<AskId>, id: AskId) -> bool {
    loop {
        match changes.recv().await {
            Ok(other) if other != id => {}
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return true,
            Err(broadcast::error::RecvError::Closed) => return false,
        }
    }
}

impl Agents {
    /// Holds these for this taker, all or none; else returns for how long another one has one of them.
    pub(super) async fn held<Id: Clone + Eq + Hash + Display>(
        &self,
        holds: &Holds<Id>,
        caller: &Caller,
        all: &[(Group, Id)],
    ) -> Result<Option<Duration>, Problem> {
        self.broker.hold_for(holds, &caller.taker, all).await.or_else(|error| away(&error))
    }

    /// Holds an outcome for this taker, unless another one has been sent it within the last minute.
    async fn hold(&self, caller: &Caller, request_id: &RequestId) -> Result<(), Problem> {
        let of = [(caller.holder.group.clone(), request_id.clone())];
        let detail = "Another taker was sent this outcome and may still say that it has it.";
        self.held(&self.holds, caller, &of).await?.map_or(Ok(()), |left| to_another(detail, left))
    }

    /// The same of the briefing that it became.
    async fn hold_briefing(&self, caller: &Caller, id: AskId) -> Result<(), Problem> {
        let of = [(caller.holder.group.clone(), id)];
        let detail = "It became a briefing. Another taker was sent the briefing and may still say that it has it.";
        self.held(self.broker.briefed(), caller, &of).await?.map_or(Ok(()), |left| to_another(detail, left))
    }
}

/// The outcome has reached its taker.
pub(super) async fn taken(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Path(request_id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (ask, request_id) = agents.find(&caller, &request_id).await?;
    let of = (caller.holder.group.clone(), request_id.clone());
    let is_taken = ask.waiter(&request_id).is_some_and(|waiter| waiter.response.state() == DeliveryState::Taken);
    // It is held on: another daemon may not know yet that it was taken.
    let anothers = !is_taken && agents.held(&agents.holds, &caller, std::slice::from_ref(&of)).await?.is_some();
    if anothers && !crate::sabotage::on("anytaker") {
        return problem(StatusCode::GONE, "Not yours", TAKEN);
    }
    let event = WaiterEvent::Collected { by: caller.taker.clone() };
    let ask = agents.apply(ask.id, event.of(request_id.clone())).await?;
    let waiter = ask.waiter(&request_id).map(|waiter| (waiter.response.state(), &waiter.carrier));
    if matches!(waiter, Some((DeliveryState::Taken, Carrier::Http { taken_by: Some(by) })) if *by == caller.taker) {
        return Ok(StatusCode::NO_CONTENT);
    }
    agents.broker.release(&agents.holds, &caller.taker, &of).await;
    Err(why_not_taken(waiter.map_or(DeliveryState::Undecided, |(state, _)| state)))
}

pub(super) async fn withdraw(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Path(request_id): Path<String>,
) -> Result<StatusCode, Problem> {
    let request_id = match agents.find(&caller, &request_id).await {
        Ok((_ask, id)) => id,
        // While its first save is under way, or in doubt, the withdrawal has its turn after it, even if its caller goes away.
        Err(problem) if problem.is_for_now() => request_id.parse().map_err(|_| problem)?,
        Err(problem) => return Err(problem),
    };
    match agents.broker.withdraw(&caller.holder.group, &request_id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(failure) => not_done(&failure),
    }
}
