//! `askd mcp`: the tools `ask_user`, `ask_user_wait` and `ask_user_cancel` over standard input and
//! output. Section 8 of the specification.
//!
//! This file turns calls into waiting, and outcomes into results. What the tools are and say is `crate::mcp`, for every
//! carrier. Rooms: the questions of this process (`questions`) on a thread of their own (`calls`), lines to messages, and
//! whether a reply has reached the client (`transport`). `cli` starts it.
#![expect(
    clippy::disallowed_methods,
    reason = "when to look is a matter of the runtime's timer; what has passed, of the clock"
)]

mod calls;
mod questions;
mod settings;
mod transport;

pub use settings::Settings;

use super::Way;
use crate::clock::Clock;
use crate::ipc::wire::{RENDER_TIMEOUT_MS, ResponseFile};
use crate::mcp::answer::{self, Report, failed};
use crate::mcp::{self, AskArguments, Call, Rounds, WaitArguments, tasks};
use askd_core::wording;
use calls::Calls;
use questions::{Asked, Questions};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetTaskParams, GetTaskResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use transport::{Client, stdout_was_read};

/// How often a client that asked for it is told that the call still waits.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How long a withdrawal waits for the daemon's word: the answer may have come first.
const WITHDRAWAL: Duration = Duration::from_secs(3);
/// How long a call that may wait no longer gives a folder to say what it holds. A folder that hangs says nothing.
const A_MOMENT: Duration = Duration::from_secs(1);

/// How long the end of the process waits for the daemon to hear what was taken and what is withdrawn.
#[cfg(feature = "remote")]
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Serves one client on standard input and output, until it closes its end or `stop` comes.
pub async fn serve(settings: Settings, way: Way, clock: &Clock, stop: impl Future<Output = ()>) -> io::Result<()> {
    #[cfg(feature = "remote")]
    let connection = way.connection().cloned();
    let calls = Arc::new(Calls::start(settings, way, clock)?);
    #[cfg(feature = "remote")]
    let news = async {
        let Some(connection) = &connection else { return std::future::pending().await };
        loop {
            connection.news().await;
            calls.queue(Questions::look_at_all);
        }
    };
    #[cfg(not(feature = "remote"))]
    let news = std::future::pending::<()>();
    let served = async {
        match (Server { calls: Arc::clone(&calls), clock: clock.clone() }).serve(Client::new(Arc::clone(&calls))).await
        {
            Ok(running) => {
                // How it ended does not matter: the last job puts in order what is left.
                let _ended = running.waiting().await;
                Ok(())
            }
            // A client that checks whether the program starts, and goes.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(io::Error::other(format!("the MCP session did not begin: {error}"))),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop => Ok(()),
        () = news => Ok(()),
    };
    calls.end(stdout_was_read());
    #[cfg(feature = "remote")]
    if let Some(connection) = &connection {
        connection.finish(LAST_CALLS).await;
    }
    ended
}

type Context = RequestContext<RoleServer>;

/// The MCP side of the calls.
#[derive(Debug, Clone)]
struct Server {
    calls: Arc<Calls>,
    clock: Clock,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        mcp::info()
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(mcp::tools(&self.calls.settings.calls)))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Result<CallToolResponse, ErrorData> {
        let settings = &self.calls.settings;
        let rounds = Rounds::of(settings.key.as_bytes(), &request, &context)?;
        let result = match Call::read(request, &settings.calls, Some(&settings.session))? {
            Ok(Call::Ask(arguments)) => self.ask(*arguments, &rounds, &context).await?,
            Ok(Call::Wait(arguments)) => self.wait(arguments, &rounds, &context).await?,
            Ok(Call::Cancel(question_id)) => self.cancel(question_id, &context).await?,
            Err(rejected) => rejected,
        };
        Ok(rounds.go_on(result, self.clock.now()))
    }

    async fn get_task(&self, request: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        let question_id = tasks::question(&request.task_id)?;
        let find = move |questions: &mut Questions| {
            questions.find(question_id.as_str()).ok_or_else(|| answer::unknown(wording::UNKNOWN_HERE))
        };
        let result = self.wait_for(find, Some(Duration::ZERO), &context, |_| answer::pending()).await?;
        if answer::is_unknown(&result) { Err(tasks::unknown()) } else { tasks::state(request.task_id, result) }
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        let question_id = tasks::question(&request.task_id)?;
        let withdraw = move |questions: &mut Questions| questions.withdraw(question_id.as_str()).map(drop);
        self.calls.run(withdraw).await?.map_err(|refused| tasks::not_cancelled(&refused))
    }
}

impl Server {
    async fn ask(
        &self,
        arguments: AskArguments,
        rounds: &Rounds,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        tracing::info!(
            questions = arguments.request.questions.len(),
            title = arguments.request.title.as_deref().unwrap_or_default(),
            maxRetries = arguments.retries,
            renderTimeoutMs = arguments.request.render_timeout.unwrap_or(RENDER_TIMEOUT_MS.cast_signed()),
            "ask_user called"
        );
        let wait = rounds.wait(self.wait_of(arguments.wait, context));
        let before = rounds.question().cloned();
        let find = move |questions: &mut Questions| match before {
            Some(id) => questions.find(id.as_str()).ok_or_else(|| answer::unknown(wording::UNKNOWN_HERE)),
            None => questions.ask(arguments),
        };
        self.wait_for(find, wait, context, |_| answer::pending()).await
    }

    async fn wait(
        &self,
        arguments: WaitArguments,
        rounds: &Rounds,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        let WaitArguments { question_id, wait } = arguments;
        let wait = rounds.wait(self.wait_of(wait, context));
        let find = move |questions: &mut Questions| {
            questions.find(&question_id).ok_or_else(|| answer::unknown(wording::UNKNOWN_HERE))
        };
        self.wait_for(find, wait, context, |_| answer::pending()).await
    }

    async fn cancel(&self, question_id: String, context: &Context) -> Result<CallToolResult, ErrorData> {
        let withdraw = move |questions: &mut Questions| questions.withdraw(&question_id);
        // If the daemon is slow or away, the withdrawal waits for it in its folder. HTTP has no such place.
        let at_the_limit: fn(bool) -> ResponseFile = if self.calls.is_remote {
            |_| failed("undeliverable", wording::WITHDRAWAL_UNHEARD)
        } else {
            |found| {
                if found {
                    failed("cancelled", wording::WITHDRAWN)
                } else {
                    failed("undeliverable", wording::FOLDER_SILENT)
                }
            }
        };
        let result = self.wait_for(withdraw, Some(WITHDRAWAL), context, at_the_limit).await?;
        Ok(answer::withdrawal(result))
    }

    /// How long this call may take: what it says itself, else the setting, else what the client is known to allow.
    fn wait_of(&self, own: Option<Duration>, context: &Context) -> Option<Duration> {
        let client = || context.client_info().map(|client| (client.name, client.version));
        own.map_or_else(|| self.calls.settings.calls.max_wait(client), Some)
    }

    /// Asks or finds a question, and waits for its outcome. A call that may wait no longer returns what `at_the_limit`
    /// says, which hears whether the question was found: a folder that hangs keeps no call.
    async fn wait_for(
        &self,
        find: impl FnOnce(&mut Questions) -> Result<Asked, CallToolResult> + Send + 'static,
        wait: Option<Duration>,
        context: &Context,
        at_the_limit: fn(bool) -> ResponseFile,
    ) -> Result<CallToolResult, ErrorData> {
        let begun = Instant::now();
        let end = wait.map(|wait| begun + wait);
        let (tell, mut told) = oneshot::channel();
        let call = context.id.clone();
        let asked = self.calls.run(move |questions| {
            let asked = find(questions)?;
            questions.await_outcome(&asked.id, call, tell);
            Ok(asked)
        });
        let asked = match within(end.map(|end| end.max(begun + A_MOMENT)), context, asked).await.transpose()? {
            Some(Err(refused)) => return Ok(refused),
            Some(Ok(asked)) => Some(asked),
            None => None,
        };
        let report = tokio::select! {
            report = within(end, context, &mut told) => report.and_then(Result::ok),
            () = report_progress(begun, context) => None,
        };
        // The outcome may have come as the time ran out. From here on it goes to another call.
        told.close();
        let report = report.or_else(|| told.try_recv().ok());
        let (id, note) = asked.map_or((None, None), |asked| (Some(asked.id), asked.note));
        if report.is_none() || context.ct.is_cancelled() {
            let (call, id) = (context.id.clone(), id.clone());
            // The last look shows whether the daemon has claimed the request.
            self.calls.queue(move |questions| {
                questions.lost(&call);
                if let Some(id) = id {
                    questions.look(&id);
                }
            });
        }
        let report = report.unwrap_or_else(|| Report { response: at_the_limit(id.is_some()), note });
        Ok(answer::result(&report, id.as_ref()))
    }
}

/// What `work` comes to; `None` if it takes longer than until `end`, or the client does not wait for this call any more,
/// which is no withdrawal: a client that is out of patience looks just the same.
async fn within<T>(end: Option<Instant>, context: &Context, work: impl Future<Output = T>) -> Option<T> {
    let end = async {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = work => Some(done),
        () = context.ct.cancelled() => None,
        () = end => None,
    }
}

/// Tells a client that asked for it, every 10 s, that the call still waits. Never ends.
async fn report_progress(begun: Instant, context: &Context) {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let mut next = begun;
    loop {
        next += PROGRESS_EVERY;
        tokio::time::sleep_until(next).await;
        let so_far = ProgressNotificationParam::new(token.clone(), begun.elapsed().as_secs_f64());
        // A client that misses it loses nothing.
        let _unheard = context.peer.notify_progress(so_far.with_message(wording::PROGRESS)).await;
    }
}
