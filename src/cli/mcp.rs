//! `askd mcp`: the MCP server of an agent, on standard input and output.

use super::{Exit, USAGE};
use crate::agent::mcp::{Settings, serve};
use crate::clock::Clock;
use clap::Args;
use std::path::PathBuf;

/// Give an agent the tool `ask_user`: an MCP server on standard input and output.
///
/// Logs go to standard error. Environment: `ASKD_IPC_DIR` (the folder), `ASKD_SESSION_ID` (which run of
/// the agent asks), `ASKD_MAX_WAIT` (how long a call waits: seconds, 45s, auto, or 0 for no limit),
/// `ASKD_MIN_TIMEOUT` (the least time that people get, 5m), `ASK_USER_TIMEOUT_POLICY` (`return_cancel` or
/// `abort_task`). Settings for each client and text for the agent's instructions: docs/agents.md.
#[derive(Debug, Args)]
#[command(after_help = "Example (in an agent's MCP settings):\n  \
                  {\"mcpServers\": {\"askd\": {\"command\": \"askd\", \"args\": [\"mcp\"]}}}")]
pub(super) struct Mcp {
    /// The group's folder, which holds tasks/ and responses/ [default: `ASKD_IPC_DIR`, else /workspace/ipc, else this
    /// host's folder of the group "default"].
    #[arg(long, value_name = "DIR")]
    ipc: Option<PathBuf>,
}

impl Mcp {
    pub(super) fn run(self) -> Result<(), Exit> {
        super::log("warn,askd=info,rmcp=error", false)?;
        let settings =
            Settings::read(self.ipc, |name| std::env::var(name).ok()).map_err(|error| Exit::new(USAGE, error))?;
        let runtime = super::small_runtime()?;
        let served = runtime.block_on(async {
            let stop = super::stop_on_signals()?;
            anyhow::Ok(serve(settings, &Clock::system(), stop.cancelled_owned()).await?)
        });
        // A read of standard input may hang in a thread of its own; the process ends without it.
        runtime.shutdown_background();
        Ok(served?)
    }
}
