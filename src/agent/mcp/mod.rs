//! `askd mcp`: the tools `ask_user`, `ask_user_wait` and `ask_user_cancel` over standard input and
//! output. Section 8 of the specification.
//!
//! Here calls become waiting and waiting becomes results. What is asked, by which arguments and with
//! which schemas: `arguments` and `tools`. Questions between two calls: `calls` and their `table`. Whether a reply has
//! reached the client: `handover`. Lines to messages: `lines`. How a result looks: `answer`. `cli` starts it.
#![expect(
    clippy::disallowed_methods,
    reason = "when to look is a matter of the runtime's timer; what has passed, of the clock"
)]

mod answer;
mod arguments;
mod calls;
mod handover;
mod lines;
mod settings;
mod table;
mod tools;

pub use settings::{BadSetting, Settings};

use crate::clock::Clock;
use answer::{Outcome, Said};
use arguments::{AskArguments, WaitArguments};
use askd_core::{RequestId, wording};
use calls::Calls;
use handover::Witness;
use lines::Lines;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::io::stdio_pipes;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a client that asked for it is told that the call still waits.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How long a withdrawal waits for the daemon's word: the answer may have come first.
const WITHDRAWAL: Duration = Duration::from_secs(3);

/// The server cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No process name could be made.
    #[error(transparent)]
    Agent(#[from] super::AgentError),
    /// The client did not speak MCP.
    #[error("the MCP session did not begin: {0}")]
    Begin(String),
}

/// Serves one client on standard input and output, until it closes its end or `stop` comes. `origin` is
/// the moment just before the runtime was made: see [`Calls::look_after`].
pub async fn serve(
    settings: Settings,
    clock: Clock,
    origin: Instant,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let calls = Arc::new(Calls::new(settings, clock, origin)?);
    let looking = tokio::spawn(Arc::clone(&calls).look_after());
    let (input, output) = stdio_pipes();
    let transport = Witness::new(Lines::new(input, output), Arc::clone(&calls));
    let served = async {
        match (Server { calls: Arc::clone(&calls) }).serve(transport).await {
            Ok(running) => {
                // How it ended does not matter: what is owed is put in order below.
                let _ended = running.waiting().await;
                Ok(())
            }
            // A client that looks whether the program starts, and goes.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(ServeError::Begin(error.to_string())),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop => Ok(()),
    };
    looking.abort();
    calls.end();
    ended
}

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

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(self.calls.settings())))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all(self.calls.settings()).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let told = match request.name.as_ref() {
            tools::ASK => match AskArguments::read(arguments, self.calls.settings()) {
                Ok(arguments) => self.ask(arguments, &context).await,
                Err(rejection) => rejected(rejection.to_string()),
            },
            tools::WAIT => match WaitArguments::read(arguments) {
                Ok(arguments) => self.wait(&arguments, &context).await,
                Err(rejection) => rejected(rejection.to_string()),
            },
            tools::CANCEL => match WaitArguments::read(arguments) {
                Ok(arguments) => self.cancel(&arguments.question_id, &context).await,
                Err(rejection) => rejected(rejection.to_string()),
            },
            other => {
                let known = [tools::ASK, tools::WAIT, tools::CANCEL].join(", ");
                return Err(ErrorData::invalid_params(format!("unknown tool {other:?}; there are {known}"), None));
            }
        };
        Ok(told.into())
    }
}

/// The error for a question that cannot be asked.
fn rejected(why: String) -> CallToolResult {
    answer::result(&Said { outcome: Outcome::Rejected(why), note: None }, None)
}

/// The error for a question that cannot be waited for or withdrawn, because this process has not asked it.
fn unknown(why: &str) -> CallToolResult {
    answer::result(&Said { outcome: Outcome::Unknown(why.to_owned()), note: None }, None)
}

impl Server {
    async fn ask(&self, arguments: AskArguments, context: &RequestContext<RoleServer>) -> CallToolResult {
        tracing::info!(
            questions = arguments.asking.file.questions.len(),
            title = arguments.asking.file.title.as_deref().unwrap_or_default(),
            maxRetries = arguments.retries,
            renderTimeoutMs = arguments.asking.render_timeout.as_millis(),
            "ask_user called"
        );
        let wait = self.wait_of(arguments.wait, context);
        match self.calls.ask(arguments) {
            Ok(id) => self.outcome(&id, wait, context).await,
            Err(said) => answer::result(&said, None),
        }
    }

    async fn wait(&self, arguments: &WaitArguments, context: &RequestContext<RoleServer>) -> CallToolResult {
        match self.calls.known(&arguments.question_id) {
            Some(id) => self.outcome(&id, self.wait_of(arguments.wait, context), context).await,
            None => unknown(wording::UNKNOWN_HERE),
        }
    }

    async fn cancel(&self, question_id: &str, context: &RequestContext<RoleServer>) -> CallToolResult {
        let Some(id) = self.calls.known(question_id) else {
            return unknown(wording::UNKNOWN_NOT_WITHDRAWN);
        };
        if let Err(error) = self.calls.withdraw(&id) {
            return answer::result(
                &Said { outcome: Outcome::Broken(error.to_string()), note: None },
                Some(id.as_str()),
            );
        }
        let said = self.wait_for(&id, Some(WITHDRAWAL), context).await;
        // The daemon is slow or away: the withdrawal waits for it in its folder.
        let said = said.unwrap_or(Said { outcome: Outcome::Withdrawn, note: None });
        answer::withdrawal(&said, id.as_str())
    }

    /// How long this call may take: its own word, else the setting, else what the client is known to allow.
    fn wait_of(&self, own: Option<Duration>, context: &RequestContext<RoleServer>) -> Option<Duration> {
        let client = || context.client_info().map(|client| client.name);
        own.map_or_else(|| self.calls.settings().max_wait(client), Some)
    }

    async fn outcome(
        &self,
        id: &RequestId,
        wait: Option<Duration>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let said = self.wait_for(id, wait, context).await;
        let said = said.unwrap_or_else(|| Said { outcome: Outcome::Pending, note: self.calls.note(id) });
        answer::result(&said, Some(id.as_str()))
    }

    /// Waits for the outcome; `None` if it has not come in time, or nobody listens any more.
    async fn wait_for(
        &self,
        id: &RequestId,
        wait: Option<Duration>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Said> {
        let begun = Instant::now();
        let token = context.meta.get_progress_token();
        let mut progress = begun + PROGRESS_EVERY;
        let mut changed = self.calls.changes();
        loop {
            changed.mark_unchanged();
            if let Some(said) = self.calls.poll(id, &context.id) {
                return Some(said);
            }
            if self.calls.is_closed() {
                return None;
            }
            tokio::select! {
                _ = changed.changed() => {}
                // Not a withdrawal: a client that is out of patience looks just the same.
                () = context.ct.cancelled() => return None,
                () = until(begun, wait) => return self.calls.poll(id, &context.id),
                () = tokio::time::sleep_until(self.calls.on_the_wheel(progress)), if token.is_some() => if let Some(token) = &token {
                    progress += PROGRESS_EVERY;
                    let sofar = ProgressNotificationParam::new(token.clone(), begun.elapsed().as_secs_f64());
                    // A client that does not hear it learns nothing less.
                    let _unheard = context.peer.notify_progress(sofar.with_message(wording::PROGRESS)).await;
                }
            }
        }
    }
}

/// Until so much time has passed since then; `None` never comes.
async fn until(begun: Instant, wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep_until(begun + wait).await,
        None => std::future::pending().await,
    }
}
