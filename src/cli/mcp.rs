//! `askd mcp`: the MCP server of an agent, on standard input and output.

use super::{Exit, FAILED, USAGE, complain, say};
use crate::agent::Way;
use crate::agent::mcp::{Settings, serve};
use crate::clock::Clock;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Give an agent the tool `ask_user`: an MCP server on standard input and output.
///
/// Logs go to standard error. Environment: `ASKD_IPC_DIR` (the folder), or `ASKD_URL` and `ASKD_TOKEN` or
/// `ASKD_TOKEN_FILE` (over HTTP, docs/remote.md), `ASKD_SESSION_ID` (which run of the agent asks), `ASKD_MAX_WAIT` (how
/// long a call waits: seconds, 45s, auto, or 0 for no limit),
/// `ASKD_MIN_TIMEOUT` (the least time that people get, 5m), `ASK_USER_TIMEOUT_POLICY` (`return_cancel` or
/// `abort_task`). Settings for each client and text for the agent's instructions: docs/agents.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd mcp --print claude\n  askd mcp --print codex >> ~/.codex/config.toml\n\n\
                  In an agent's MCP settings:\n  \
                  {\"mcpServers\": {\"askd\": {\"command\": \"askd\", \"args\": [\"mcp\"]}}}")]
pub(super) struct Mcp {
    /// The group's folder, which holds tasks/ and responses/ [default: `ASKD_IPC_DIR`, else /workspace/ipc, else this
    /// host's folder of the group "default"].
    #[arg(long, value_name = "DIR")]
    ipc: Option<PathBuf>,
    /// Print what this program needs to use askd, and say where it goes, instead of serving.
    #[arg(long, value_name = "PROGRAM")]
    print: Option<Program>,
}

/// Programs with an MCP client.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Program {
    /// Claude Code.
    Claude,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// VS Code.
    Vscode,
}

impl Program {
    /// Where its settings go, and what to write there. A desktop program may not have askd on its PATH. `elsewhere`: it does not
    /// run where this does, so askd's path there is not known.
    pub(super) fn settings(self, ipc: Option<&Path>, elsewhere: bool) -> (&'static str, String) {
        let args: Vec<Value> = match ipc {
            Some(ipc) => vec!["mcp".into(), "--ipc".into(), ipc.display().to_string().into()],
            None => vec!["mcp".into()],
        };
        let own = std::env::current_exe().ok().filter(|_| !elsewhere);
        let program = own.map_or_else(|| "askd".to_owned(), |path| path.display().to_string());
        let entry = json!({"command": program, "args": args});
        let file = |key: &str| format!("{:#}", json!({ key: { "askd": entry } }));
        match self {
            Self::Claude => {
                let folder = ipc.map(|ipc| format!(" --ipc '{}'", ipc.display())).unwrap_or_default();
                ("run this in the project's folder", format!("claude mcp add askd -- askd mcp{folder}"))
            }
            Self::ClaudeDesktop => {
                ("add this to claude_desktop_config.json (Settings > Developer > Edit Config)", file("mcpServers"))
            }
            // It cuts a call after 300 s unless told otherwise.
            Self::Codex => {
                let args = json!(args);
                let wait = "tool_timeout_sec = 1900\nenv = { ASKD_MAX_WAIT = \"1850\" }";
                (
                    "add this to ~/.codex/config.toml",
                    format!("[mcp_servers.askd]\ncommand = \"askd\"\nargs = {args}\n{wait}"),
                )
            }
            Self::Cursor => ("add this to ~/.cursor/mcp.json", file("mcpServers")),
            Self::Vscode => ("add this to .vscode/mcp.json", file("servers")),
        }
    }
}

impl Mcp {
    pub(super) fn run(self) -> Result<(), Exit> {
        if let Some(program) = self.print {
            let (place, text) = program.settings(self.ipc.as_deref(), false);
            // Apart from the text, which can go straight into a file.
            complain(&format!("{place}:"));
            return Ok(say(&text)?);
        }
        super::log("warn,askd=info,rmcp=error", false)?;
        let settings = Settings::read(|name| std::env::var(name).ok()).map_err(|error| Exit::new(USAGE, error))?;
        let runtime = super::small_runtime()?;
        let served = runtime.block_on(async {
            let stop = super::stop_on_signals()?;
            let clock = Clock::system();
            let way = Way::new(self.ipc, super::variable, &clock)?;
            serve(settings, way, &clock, stop.cancelled_owned()).await.map_err(|error| Exit::new(FAILED, error))
        });
        // A read of standard input may hang in a thread of its own; the process ends without it.
        runtime.shutdown_background();
        served
    }
}
