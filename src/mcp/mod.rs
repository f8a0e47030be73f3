//! What an agent's MCP client sees of askd, however it is connected: the tools and what they say about themselves
//! (`tools`), what a call may ask (`arguments`) and goes by (`settings`), how a result looks (`answer`). It asks nothing
//! itself. `rounds` and `tasks` let a client wait on without its model. `agent::mcp` serves standard input and output, `host::agents::mcp` serves HTTP. Section 8 of the specification.

pub(crate) mod answer;
mod arguments;
mod rounds;
mod settings;
pub(crate) mod tasks;
mod tools;

pub(crate) use arguments::{AskArguments, WaitArguments};
pub(crate) use rounds::Rounds;
pub use settings::{BadSetting, Settings};
pub(crate) use tools::{CANCEL, all as tools};

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResult, Implementation, ServerCapabilities, ServerConfig};
use tools::{ASK, WAIT};

/// A call of a tool, within all limits.
#[derive(Debug)]
pub(crate) enum Call {
    /// `ask_user`.
    Ask(Box<AskArguments>),
    /// `ask_user_wait`.
    Wait(WaitArguments),
    /// `ask_user_cancel`, with its question.
    Cancel(String),
}

impl Call {
    /// Reads a call of a session. What is wrong with its arguments is a result, which the model reads.
    pub(crate) fn read(
        request: CallToolRequestParams,
        settings: &Settings,
        session: Option<&str>,
    ) -> Result<Result<Self, CallToolResult>, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let call = match request.name.as_ref() {
            ASK => AskArguments::read(arguments, settings, session).map(|asked| Self::Ask(Box::new(asked))),
            WAIT => WaitArguments::read(arguments).map(Self::Wait),
            CANCEL => WaitArguments::read(arguments).map(|cancelled| Self::Cancel(cancelled.question_id)),
            other => {
                let known = [ASK, WAIT, CANCEL].join(", ");
                return Err(ErrorData::invalid_params(format!("unknown tool {other:?}; there are {known}"), None));
            }
        };
        Ok(call.map_err(|rejection| answer::rejected(&rejection)))
    }
}

/// The error of a `tools/call` that names no tool, or whose arguments are no object.
pub(crate) fn no_call() -> ErrorData {
    ErrorData::invalid_params("tools/call needs params with the name of a tool, and arguments that are an object", None)
}

/// What the server says about itself.
pub(crate) fn info() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
        .with_server_info(Implementation::new("askd", env!("CARGO_PKG_VERSION")))
        .with_instructions(tools::INSTRUCTIONS)
}
