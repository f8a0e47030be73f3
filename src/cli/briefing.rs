//! `askd briefing`: what was answered while no agent waited, for the entry point that starts one.

use super::json::escaped;
use super::{Exit, FAILED};
#[cfg(feature = "remote")]
use crate::agent::Connection;
use crate::agent::{Briefing, Briefings, Found, find, url};
use crate::clock::Clock;
use clap::Args;
use rustix::fs::{FileType, OFlags};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// How long another process may be at it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to see whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const CLOSED: &str = "standard output is closed; no briefing was taken";

/// Print the answers that came while no agent was waiting, for an agent that starts.
///
/// Each briefing is a text for the agent; a blank line separates them, oldest first. Without a briefing
/// nothing is printed (with --json: an empty array). --take deletes each one once it is printed.
///
/// Environment: `ASKD_IPC_DIR` (the folder), or `ASKD_URL` and `ASKD_TOKEN` or `ASKD_TOKEN_FILE` (over HTTP,
/// docs/remote.md).
///
/// Exit codes: 0 printed or none there, 2 usage, 1 anything else.
#[derive(Debug, Args)]
#[command(after_help = "Example (an agent's entry point):\n  \
                  briefing=$(askd briefing --take) || exit 1\n  exec my-agent \"${briefing:-Begin with the first task.}\"")]
pub(super) struct BriefingCommand {
    /// Delete the briefings once they are printed.
    #[arg(long)]
    take: bool,
    /// The group's folder, which holds tasks/, responses/ and briefings/ [default: `ASKD_IPC_DIR`, else /workspace/ipc,
    /// else this host's folder of the group "default"].
    #[arg(long, value_name = "DIR")]
    ipc: Option<PathBuf>,
    /// Print the files as a JSON array instead of their texts.
    #[arg(long)]
    json: bool,
}

impl BriefingCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        super::log("warn", false)?;
        let url = url(self.ipc.as_deref(), super::variable)?;
        #[cfg(not(feature = "remote"))]
        drop(url);
        #[cfg(feature = "remote")]
        if let Some(url) = url {
            let connection = Connection::new(&url, super::variable, Clock::system())?;
            return super::small_runtime()?.block_on(self.run_over_http(&connection));
        }
        let folder = find(self.ipc.as_deref(), super::variable)?;
        let briefings = Briefings::of(&folder)?;
        if !self.take {
            // While no process takes any, a file that is called taken was left by a run that died.
            let found = briefings.read(briefings.claim())?;
            complain_of(&found);
            return self.print(&found.briefings);
        }
        if output_was_closed() {
            return Err(Exit::new(FAILED, CLOSED));
        }
        super::small_runtime()?.block_on(alone(&briefings))?;
        let found = briefings.take()?;
        complain_of(&found);
        if let Err(Exit { code, message }) = self.print(&found.briefings) {
            briefings.put_back(&found.briefings);
            return Err(Exit { code, message: format!("{message}; the briefings stay where they were") });
        }
        Ok(briefings.done(&found.briefings)?)
    }

    /// The same for an agent that shares no folder with the daemon.
    #[cfg(feature = "remote")]
    async fn run_over_http(&self, connection: &Connection) -> Result<(), Exit> {
        if self.take && output_was_closed() {
            return Err(Exit::new(FAILED, CLOSED));
        }
        let found = connection.briefings(self.take).await?;
        complain_of(&found);
        if let Err(not_printed) = self.print(&found.briefings) {
            if self.take {
                connection.put_back_briefings(&found.briefings).await;
            }
            return Err(not_printed);
        }
        for briefing in found.briefings.iter().filter(|_| self.take) {
            connection.take_briefing(briefing).await?;
        }
        Ok(())
    }

    /// All of it or an error: a reader that has gone has not read it.
    fn print(&self, briefings: &[Briefing]) -> Result<(), Exit> {
        let text = if self.json {
            let files: Vec<_> = briefings.iter().map(|briefing| &briefing.content).collect();
            let json = serde_json::to_string_pretty(&files).map_err(|error| Exit::new(FAILED, error))?;
            escaped(&json) + "\n"
        } else {
            let texts: Vec<_> = briefings.iter().map(|briefing| briefing.file.text.trim_end()).collect();
            if texts.is_empty() { String::new() } else { texts.join("\n\n") + "\n" }
        };
        let mut output = std::io::stdout().lock();
        let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        written.map_err(|error| Exit::new(FAILED, format!("the briefings cannot be printed: {error}")))
    }
}

/// Until no other process takes briefings here.
async fn alone(briefings: &Briefings) -> Result<(), Exit> {
    let clock = Clock::system();
    let end = clock.monotonic() + PATIENCE;
    while !briefings.claim() {
        if clock.monotonic() > end {
            return Err(Exit::new(FAILED, "another `askd briefing --take` is at work here; no briefing was taken"));
        }
        clock.sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn complain_of(found: &Found) {
    for why in &found.unreadable {
        super::complain(&format!("a file in briefings/ was left alone: {why}"));
    }
}

/// Whether standard output was closed. In its place the runtime opens `/dev/null` for reading and writing; `>/dev/null`
/// opens it for writing alone.
fn output_was_closed() -> bool {
    let output = std::io::stdout();
    let flags = rustix::fs::fcntl_getfl(&output);
    let Ok(stat) = rustix::fs::fstat(&output) else { return true };
    let null = rustix::fs::stat("/dev/null").is_ok_and(|null| null.st_rdev == stat.st_rdev);
    let device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    device && null && flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}
