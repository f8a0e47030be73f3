//! `askd mcp`: the tools `ask_user`, `ask_user_wait` and `ask_user_cancel` over standard input and
//! output. Section 8 of the specification.
//!
//! This file turns calls into waiting, and outcomes into results. Rooms: what the tools say about themselves (`tools`),
//! what a call may ask (`arguments`), the questions of this process (`questions`) on a thread of their own (`calls`),
//! whether a reply has reached the client (`transport`), lines to messages (`lines`), how a result looks (`answer`).
//! `cli` starts it.
#![expect(
    clippy::disallowed_methods,
    reason = "when to look is a matter of the runtime's timer; what has passed, of the clock"
)]

mod answer;
mod arguments;
mod calls;
mod lines;
mod questions;
mod settings;
mod tools;
mod transport;

pub use settings::Settings;

use super::waiter::RENDER_TIMEOUT_MS;
use crate::clock::Clock;
use answer::{Outcome, Report};
use arguments::{AskArguments, WaitArguments};
use askd_core::{RequestId, wording};
use calls::Calls;
use lines::Lines;
use questions::Questions;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::io::stdio_pipes;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;
use transport::{AckTransport, stdout_was_read};

/// How often a client that asked for it is told that the call still waits.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How long a withdrawal waits for the daemon's word: the answer may have come first.
const WITHDRAWAL: Duration = Duration::from_secs(3);

/// The server cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no thread for the file work.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// Why not.
        #[from]
        source: io::Error,
    },
    /// The client did not speak MCP.
    #[error("the MCP session did not begin: {source}")]
    Begin {
        /// Why not.
        source: Box<ServerInitializeError>,
    },
}

/// Serves one client on standard input and output, until it closes its end or `stop` comes.
pub async fn serve(settings: Settings, clock: Clock, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let calls = Arc::new(Calls::start(settings, clock)?);
    let (input, output) = stdio_pipes();
    let transport = AckTransport::new(Lines::new(input, output), Arc::clone(&calls));
    let served = async {
        match (Server { calls: Arc::clone(&calls) }).serve(transport).await {
            Ok(running) => {
                // How it ended does not matter: the last job puts in order what is left.
                let _ended = running.waiting().await;
                Ok(())
            }
            // A client that checks whether the program starts, and goes.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(ServeError::Begin { source: Box::new(error) }),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop => Ok(()),
        () = calls.follow_watch() => Ok(()),
    };
    calls.end(stdout_was_read());
    ended
}

type Context = RequestContext<RoleServer>;

/// The MCP side of the calls.
#[derive(Debug, Clone)]
struct Server {
    calls: Arc<Calls>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("askd", env!("CARGO_PKG_VERSION")))
            .with_instructions(tools::INSTRUCTIONS)
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(self.calls.settings())))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all(self.calls.settings()).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let result = match request.name.as_ref() {
            tools::ASK => match AskArguments::read(arguments, self.calls.settings()) {
                Ok(arguments) => self.ask(arguments, &context).await?,
                Err(rejection) => rejected(rejection.to_string()),
            },
            tools::WAIT => match WaitArguments::read(arguments) {
                Ok(arguments) => self.wait(arguments, &context).await?,
                Err(rejection) => rejected(rejection.to_string()),
            },
            tools::CANCEL => match WaitArguments::read(arguments) {
                Ok(arguments) => self.cancel(arguments.question_id, &context).await?,
                Err(rejection) => rejected(rejection.to_string()),
            },
            other => {
                let known = [tools::ASK, tools::WAIT, tools::CANCEL].join(", ");
                return Err(ErrorData::invalid_params(format!("unknown tool {other:?}; there are {known}"), None));
            }
        };
        Ok(result.into())
    }
}

/// The error for a question that cannot be asked.
fn rejected(why: String) -> CallToolResult {
    answer::result(&Report { outcome: Outcome::Rejected(why), note: None }, None)
}

/// The error for a question that this process has not asked.
fn unknown(why: &str) -> CallToolResult {
    answer::result(&Report { outcome: Outcome::Unknown(why.to_owned()), note: None }, None)
}

impl Server {
    async fn ask(&self, arguments: AskArguments, context: &Context) -> Result<CallToolResult, ErrorData> {
        tracing::info!(
            questions = arguments.request.questions.len(),
            title = arguments.request.title.as_deref().unwrap_or_default(),
            maxRetries = arguments.retries,
            renderTimeoutMs = arguments.request.render_timeout.unwrap_or(RENDER_TIMEOUT_MS.cast_signed()),
            "ask_user called"
        );
        let wait = self.wait_of(arguments.wait, context);
        match self.calls.run(|questions| questions.ask(arguments)).await? {
            Ok(id) => self.outcome(id, wait, context).await,
            Err(report) => Ok(answer::result(&report, None)),
        }
    }

    async fn wait(&self, arguments: WaitArguments, context: &Context) -> Result<CallToolResult, ErrorData> {
        let WaitArguments { question_id, wait } = arguments;
        match self.calls.run(move |questions| questions.find(&question_id)).await? {
            Some(id) => self.outcome(id, self.wait_of(wait, context), context).await,
            None => Ok(unknown(wording::UNKNOWN_HERE)),
        }
    }

    async fn cancel(&self, question_id: String, context: &Context) -> Result<CallToolResult, ErrorData> {
        let withdraw = move |questions: &mut Questions| {
            let id = questions.find(&question_id)?;
            Some((questions.withdraw(&id), id))
        };
        let Some((withdrawn, id)) = self.calls.run(withdraw).await? else {
            return Ok(unknown(wording::UNKNOWN_NOT_WITHDRAWN));
        };
        if let Err(error) = withdrawn {
            let report = Report { outcome: Outcome::Broken(error.to_string()), note: None };
            return Ok(answer::result(&report, Some(id.as_str())));
        }
        let report = self.wait_for(&id, Some(WITHDRAWAL), context).await?;
        // If the daemon is slow or away, the withdrawal waits for it in its folder.
        let report = report.unwrap_or(Report { outcome: Outcome::Withdrawn, note: None });
        Ok(answer::withdrawal(&report, id.as_str()))
    }

    /// How long this call may take: what it says itself, else the setting, else what the client is known to allow.
    fn wait_of(&self, own: Option<Duration>, context: &Context) -> Option<Duration> {
        let client = || context.client_info().map(|client| client.name);
        own.map_or_else(|| self.calls.settings().max_wait(client), Some)
    }

    async fn outcome(
        &self,
        id: RequestId,
        wait: Option<Duration>,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        let report = if let Some(report) = self.wait_for(&id, wait, context).await? {
            report
        } else {
            let asked = id.clone();
            let note = self.calls.run(move |questions| questions.note(&asked)).await?;
            Report { outcome: Outcome::Pending, note }
        };
        Ok(answer::result(&report, Some(id.as_str())))
    }

    /// Waits for the outcome; `None` if it has not come in time, or if the client has gone.
    async fn wait_for(
        &self,
        id: &RequestId,
        wait: Option<Duration>,
        context: &Context,
    ) -> Result<Option<Report>, ErrorData> {
        let begun = Instant::now();
        let poll = || {
            let (id, call) = (id.clone(), context.id.clone());
            self.calls.run(move |questions| questions.poll(&id, &call))
        };
        let outcome = async {
            let mut changed = self.calls.changes();
            loop {
                changed.mark_unchanged();
                if let Poll::Ready(report) = poll().await? {
                    return Ok(report);
                }
                if changed.changed().await.is_err() {
                    return Ok(None);
                }
            }
        };
        tokio::select! {
            report = outcome => report,
            // Not a withdrawal: a client that is out of patience looks just the same.
            () = context.ct.cancelled() => Ok(None),
            // A poll that was under way may have taken the outcome for this call: the last one gets it then.
            () = until(begun, wait) => match poll().await? {
                Poll::Ready(report) => Ok(report),
                Poll::Pending => Ok(None),
            },
            () = report_progress(begun, context) => Ok(None),
        }
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

/// Until so much time has passed since then; `None` never comes.
async fn until(begun: Instant, wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep_until(begun + wait).await,
        None => std::future::pending().await,
    }
}
