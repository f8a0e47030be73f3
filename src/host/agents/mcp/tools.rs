//! The tools of MCP over HTTP: each asks, waits for or withdraws a question by the same calls of the broker as HTTP does.

use super::{Call, Mcp};
use crate::clock::{Clock, Moment};
use crate::host::agents::asks::Waited;
use crate::host::agents::problems::{away, unstored};
use crate::host::broker::Submitted;
use crate::host::channel::web::Problem;
use crate::host::session::OF_MCP;
use crate::ipc::wire::{Request, RequestFile, ResponseFile};
use crate::mcp::answer::{self, Report, failed};
use crate::mcp::{self, AskArguments, Rounds, WaitArguments, tasks};
use crate::random;
use askd_core::{AskId, DeliveryState, Digest, RequestId, Waiter, wording};
use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetTaskParams, GetTaskResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How often a client that asked for it hears that its call still waits.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);
/// How long a withdrawal waits for what came of it: the answer may have come first.
const WITHDRAWAL: Duration = Duration::from_secs(3);
/// How soon, and how long, a question is asked again while it is not clear who gets the outcome of the same one before. A
/// process counts as dead 15 s after the look that saw its last sign of life, and looks are up to 8 s apart.
const SOON: Duration = Duration::from_millis(200);
const UNCLEAR_FOR: Duration = Duration::from_secs(30);
/// How soon a call looks again for an outcome that another taker was sent.
const LOOK: Duration = Duration::from_secs(1);

impl Call {
    /// The call that a message makes. From now on its stream is open.
    fn of(context: &RequestContext<RoleServer>) -> Result<Arc<Self>, ErrorData> {
        let call = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Arc<Self>>()).cloned();
        let call = call.ok_or_else(|| ErrorData::internal_error("a call without its sender", None))?;
        call.begun.cancel();
        Ok(call)
    }
}

/// Whether this is a call of MCP whose outcome nobody has yet.
pub(super) fn waits(waiter: &Waiter) -> bool {
    use DeliveryState::{Owed, Published, Ready, Undecided};
    let of_mcp = waiter.request_id.as_str().starts_with(OF_MCP) && !waiter.is_withdrawn();
    of_mcp && matches!(waiter.response.state(), Undecided | Owed | Ready | Published { .. })
}

impl Mcp {
    /// The question of a task; inside, that it cannot be read just now.
    async fn of_task(&self, call: &Call, id: &RequestId) -> Result<Result<AskId, Problem>, ErrorData> {
        match self.agents.find(&call.caller, id.as_str()).await {
            Err(problem) if problem.is_unknown() => Err(tasks::unknown()),
            found => Ok(found.map(|(ask, _)| ask.id)),
        }
    }

    /// The question that is open under this session and content, or a new one.
    async fn asked(
        &self,
        call: &Call,
        request: RequestFile,
        key: Option<Digest>,
    ) -> Result<(AskId, RequestId), (ResponseFile, Option<RequestId>)> {
        let refused = |status, why: String| (failed(status, why), None);
        let (agents, group) = (&self.agents, &call.caller.holder.group);
        agents.broker.loaded_of(group).await;
        let (mut until, mut paced) = (self.clock().monotonic() + UNCLEAR_FOR, false);
        let id = format!("{OF_MCP}{}", random::unique()).parse();
        let id: RequestId = id.map_err(|error: askd_core::BadName| refused("rejected", error.to_string()))?;
        // The lease begins before anything can be owed to it.
        let _lease = agents.broker.leases().begin_new(group, &id, call.session.as_deref());
        loop {
            if let Some(key) = key {
                // The client may have shown another daemon that it has the outcome of the same question before.
                let caught_up = agents.broker.catch_up().await.or_else(|error| away(&error));
                caught_up.map_err(|problem| refused("undeliverable", problem.into_detail()))?;
                if let Some(open) = self.open(call, key).await {
                    return Ok(open);
                }
            }
            if !paced {
                while let Some(over) = agents.over_pace(&call.caller) {
                    if self.clock().monotonic() >= until || call.gone.is_cancelled() || agents.ctx.is_stopping() {
                        let why = agents.too_fast(&call.caller, over).into_detail();
                        return Err(refused("rejected", format!("rate_limited: {why}")));
                    }
                    self.clock().sleep(over.min(SOON)).await;
                }
                (paced, until) = (true, self.clock().monotonic() + UNCLEAR_FOR);
            }
            let asking = Request::over_http(id.clone(), request.clone());
            let asking = asking.map_err(|error| refused("rejected", error.to_string()))?;
            match agents.broker.submit(group, asking).await {
                Submitted::New(ask) | Submitted::Joined(ask) | Submitted::Known(ask) => return Ok((ask, id)),
                Submitted::Rejected(rejection) => return Err(refused("rejected", rejection.to_string())),
                // With the same id again, it is not asked twice.
                Submitted::NotYet | Submitted::InDoubt
                    if self.clock().monotonic() < until && !call.gone.is_cancelled() =>
                {
                    self.clock().sleep(SOON).await;
                }
                Submitted::InDoubt => return Err((failed("undeliverable", wording::MAY_BE_ASKED), Some(id))),
                Submitted::NotStored if agents.broker.of_request(group, &id).is_some() => {
                    return Err((failed("undeliverable", wording::MAY_BE_ASKED), Some(id)));
                }
                Submitted::NotYet => return Err(refused("undeliverable", wording::NOT_CLEAR_YET.to_owned())),
                Submitted::NotStored | Submitted::OtherContent => {
                    let why = "askd could not store the question, and nothing was asked. Try again.";
                    return Err(refused("undeliverable", why.to_owned()));
                }
            }
        }
    }

    /// What an earlier call of the same session has asked and nobody has taken.
    async fn open(&self, call: &Call, key: Digest) -> Option<(AskId, RequestId)> {
        let id = self.agents.broker.of_key(&call.caller.holder.group, key)?;
        let ask = self.agents.load(id).await.ok().filter(|ask| ask.key == Some(key))?;
        ask.waiters.iter().find(|waiter| waits(waiter)).map(|waiter| (id, waiter.request_id.clone()))
    }

    /// Waits for the outcome of a question. A call that may wait no longer returns what `at_the_limit` says.
    async fn wait_for(
        &self,
        call: &Call,
        context: &RequestContext<RoleServer>,
        (id, request_id): (AskId, RequestId),
        wait: Option<Duration>,
        (note, at_the_limit): (Option<String>, fn() -> ResponseFile),
    ) -> CallToolResult {
        let waited = self.waited(call, context, (id, &request_id), wait, at_the_limit).await;
        let response = waited.unwrap_or_else(|problem| match at_the_limit() {
            // A model does not come back to what is over.
            pending if problem.is_for_now() && pending.result.status == "pending" => pending,
            _ => failed("undeliverable", problem.into_detail()),
        });
        let result = answer::result(&Report { response, note }, Some(&request_id));
        if call.session.is_some() { result } else { answer::alone(result) }
    }

    async fn waited(
        &self,
        call: &Call,
        context: &RequestContext<RoleServer>,
        (id, request_id): (AskId, &RequestId),
        wait: Option<Duration>,
        at_the_limit: fn() -> ResponseFile,
    ) -> Result<ResponseFile, Problem> {
        let (agents, group) = (&self.agents, &call.caller.holder.group);
        let mut lease = agents.broker.leases().begin_in(group, request_id, call.session.as_deref());
        let limit = wait.map(|wait| self.clock().monotonic() + wait);
        let mut end = pin!(async {
            tokio::select! {
                () = sleep_to(self.clock(), limit) => {}
                () = call.gone.cancelled() => {}
                () = agents.ctx.stopping() => {}
            }
        });
        let mut progress = pin!(report_progress(self.clock(), context));
        let waited = loop {
            let waited = tokio::select! {
                waited = agents.wait_for(&call.caller, id, request_id, end.as_mut()) => waited,
                never = progress.as_mut() => match never {},
            };
            if !waited.as_ref().is_err_and(Problem::is_for_now) {
                break waited;
            }
            // Another taker may have it, or may not: the call waits until that is clear.
            tokio::select! {
                () = end.as_mut() => break waited,
                () = self.clock().sleep(LOOK) => {}
                never = progress.as_mut() => match never {},
            }
        };
        if waited.is_err() && !call.gone.is_cancelled() {
            lease.comes_back();
        }
        Ok(match waited? {
            Waited::Outcome(response) => {
                *call.outcome.lock() = Some(request_id.clone());
                if call.gone.is_cancelled() {
                    self.give_back(call);
                }
                response.with_bare_error()
            }
            Waited::Open(_) => {
                if !call.gone.is_cancelled() {
                    lease.comes_back();
                }
                at_the_limit()
            }
        })
    }
}

/// Waits for that moment; forever if there is none.
async fn sleep_to(clock: &Clock, moment: Option<Moment>) {
    match moment {
        Some(moment) => clock.sleep_to(moment).await,
        None => std::future::pending().await,
    }
}

/// Tells a client that asked for it, every 30 s, that the call still waits.
async fn report_progress(clock: &Clock, context: &RequestContext<RoleServer>) -> Infallible {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let begun = clock.monotonic();
    let mut next = begun;
    loop {
        next = next + PROGRESS_EVERY;
        clock.sleep_to(next).await;
        let so_far = ProgressNotificationParam::new(token.clone(), clock.monotonic().since(begun).as_secs_f64());
        // A client that misses it loses nothing.
        let _unheard = context.peer.notify_progress(so_far.with_message(wording::PROGRESS)).await;
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        mcp::info()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(mcp::tools(&self.settings)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = Call::of(&context)?;
        let client = call.client.clone().map(|client| (client.name, client.version));
        let client = || client.or_else(|| context.client_info().map(|client| (client.name, client.version)));
        let rounds = Rounds::of(call.caller.holder.key(), &request, &context)?;
        let begun = self.clock().monotonic();
        // Counted from here, as the client does: what comes before the wait may take its time, too.
        let wait_of = |own: Option<Duration>| {
            let wait = rounds.wait(own.map_or_else(|| self.settings.max_wait(client), Some));
            wait.map(|wait| wait.saturating_sub(self.clock().monotonic().since(begun)))
        };
        let unknown_here = if call.session.is_some() { wording::UNKNOWN_HERE } else { wording::UNKNOWN_ALONE };
        let found = async |id: &str| self.agents.find(&call.caller, id.trim()).await.map(|(ask, id)| (ask.id, id));
        let unknown = |problem: Problem, why: &str| {
            if problem.is_unknown() {
                return answer::unknown(why);
            }
            answer::result(&Report { response: failed("undeliverable", problem.into_detail()), note: None }, None)
        };
        let result = match mcp::Call::read(request, &self.settings, call.session.as_deref())? {
            Err(rejected) => rejected,
            Ok(mcp::Call::Ask(arguments)) => {
                let AskArguments { request, key, wait, note, .. } = *arguments;
                let asked = if let Some(id) = rounds.question() {
                    found(id.as_str()).await.map_err(|problem| unknown(problem, unknown_here))
                } else {
                    let asked = self.asked(&call, request, key).await;
                    asked
                        .map_err(|(response, id)| answer::result(&Report { response, note: note.clone() }, id.as_ref()))
                };
                match asked {
                    Ok(asked) => self.wait_for(&call, &context, asked, wait_of(wait), (note, answer::pending)).await,
                    Err(refused) => refused,
                }
            }
            Ok(mcp::Call::Wait(WaitArguments { question_id, wait })) => match found(&question_id).await {
                Ok(asked) => self.wait_for(&call, &context, asked, wait_of(wait), (None, answer::pending)).await,
                Err(problem) => unknown(problem, unknown_here),
            },
            Ok(mcp::Call::Cancel(id)) => match found(&id).await {
                Ok(asked) => {
                    let withdrawn = self.agents.broker.withdraw(&call.caller.holder.group, &asked.1).await;
                    if let Err(failure) = withdrawn {
                        let response = failed("undeliverable", format!("The withdrawal: {}", unstored(&failure)));
                        answer::result(&Report { response, note: None }, Some(&asked.1))
                    } else {
                        let withdrawn = || failed("cancelled", wording::WITHDRAWN);
                        let wait = Some(WITHDRAWAL);
                        answer::withdrawal(self.wait_for(&call, &context, asked, wait, (None, withdrawn)).await)
                    }
                }
                Err(problem) => unknown(problem, wording::UNKNOWN_NOT_WITHDRAWN),
            },
        };
        // A client whose next call may find no askd has `pending`, which its model can come back from.
        let now = self.clock().now();
        Ok(if self.agents.ctx.is_stopping() { result.into() } else { rounds.go_on(result, now) })
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let call = Call::of(&context)?;
        let request_id = tasks::question(&request.task_id)?;
        let waited = match self.of_task(&call, &request_id).await? {
            Ok(id) => self.waited(&call, &context, (id, &request_id), Some(Duration::ZERO), answer::pending).await,
            Err(problem) => Err(problem),
        };
        let response = waited.unwrap_or_else(|problem| {
            // A client asks no more about a task that is over.
            if problem.is_for_now() { answer::pending() } else { failed("undeliverable", problem.into_detail()) }
        });
        tasks::state(request.task_id, answer::result(&Report { response, note: None }, Some(&request_id)))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let call = Call::of(&context)?;
        let request_id = tasks::question(&request.task_id)?;
        // What cannot be read just now may be withdrawn even so.
        let _found = self.of_task(&call, &request_id).await?;
        let withdrawn = self.agents.broker.withdraw(&call.caller.holder.group, &request_id).await;
        withdrawn.map_err(|failure| ErrorData::internal_error(unstored(&failure), None))
    }
}
