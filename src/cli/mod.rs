//! The command line: one executable, the daemon and the agent's side. It joins the rooms and maps
//! their errors to sentences and exit codes; it decides nothing else.

mod ask;
#[cfg(feature = "host")]
mod asks;
mod mcp;
#[cfg(feature = "host")]
mod phone;
#[cfg(feature = "host")]
mod serve;
#[cfg(feature = "host")]
mod sim;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Lets an agent without a screen ask a person and wait.
#[derive(Debug, Parser)]
#[command(
    name = "askd",
    version,
    disable_help_subcommand = true,
    after_help = "Try it:  askd demo\nDocs:    README.md, docs/protocol.md (the files), docs/api.md (HTTP)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: watch the groups' folders, show questions, deliver answers.
    #[cfg(feature = "host")]
    Serve(serve::Serve),
    /// Show the whole loop with no account and no configuration: a daemon, its inbox, a pretended Slack and scripted agents.
    #[cfg(feature = "host")]
    Demo(serve::Demo),
    /// Ask a person and wait for the answer.
    Ask(ask::AskCommand),
    /// Serve the tool `ask_user` to an agent: MCP on standard input and output.
    Mcp(mcp::Mcp),
    /// List what waits for an answer.
    #[cfg(feature = "host")]
    List(asks::List),
    /// Show one ask.
    #[cfg(feature = "host")]
    Show(asks::Show),
    /// Answer an ask.
    #[cfg(feature = "host")]
    Answer(asks::Answer),
    /// Dismiss an ask: the agent is told that the user dismissed the question.
    #[cfg(feature = "host")]
    Dismiss(asks::Dismiss),
    /// Withdraw an ask: the agent is told that the question was withdrawn.
    #[cfg(feature = "host")]
    Cancel(asks::Cancel),
    /// Let the questions of an ask be asked again that were asked too often.
    #[cfg(feature = "host")]
    Reset(asks::Reset),
    /// Run a stand-in of a chat platform alone, for checks.
    #[cfg(feature = "host")]
    #[command(hide = true, subcommand)]
    Sim(sim::Sim),
}

/// Anything that went wrong and has no exit code of its own.
const FAILED: u8 = 1;
/// Bad usage or bad settings.
const USAGE: u8 = 2;

/// Runs the command line and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    let done = match command {
        #[cfg(feature = "host")]
        Command::Serve(serve) => serve.run(),
        #[cfg(feature = "host")]
        Command::Demo(demo) => demo.run(),
        Command::Ask(ask) => ask.run(),
        Command::Mcp(mcp) => mcp.run(),
        #[cfg(feature = "host")]
        Command::List(list) => list.run(),
        #[cfg(feature = "host")]
        Command::Show(show) => show.run(),
        #[cfg(feature = "host")]
        Command::Answer(answer) => answer.run(),
        #[cfg(feature = "host")]
        Command::Dismiss(dismiss) => dismiss.run(),
        #[cfg(feature = "host")]
        Command::Cancel(cancel) => cancel.run(),
        #[cfg(feature = "host")]
        Command::Reset(reset) => reset.run(),
        #[cfg(feature = "host")]
        Command::Sim(sim) => sim.run(),
    };
    match done {
        Ok(code) => code,
        Err(Exit { code, message }) => {
            complain(&message);
            ExitCode::from(code)
        }
    }
}

/// A sentence for people and a code for scripts.
#[derive(Debug)]
struct Exit {
    code: u8,
    message: String,
}

impl Exit {
    fn new(code: u8, message: impl std::fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        Self::new(FAILED, format!("{error:#}"))
    }
}

/// One line on standard error; if nobody reads it, that is that.
fn complain(message: &str) {
    use std::io::Write as _;
    let _unread = writeln!(std::io::stderr(), "askd: {message}");
}

/// Text on standard output. A reader that has gone (`| head`) is no error.
fn say(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Logs to standard error: `RUST_LOG`, else `filter`.
fn log(filter: &str, json: bool) -> Result<(), Exit> {
    let own = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = log_filter(own.as_deref().unwrap_or(filter))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_target(false).init();
    }
    Ok(())
}

/// What is logged. One thing never is: at `debug` bollard repeats all that the Docker Engine says of a container, with the
/// secrets in its environment.
fn log_filter(text: &str) -> Result<EnvFilter, Exit> {
    let wrong = |error: &dyn std::fmt::Display| Exit::new(USAGE, format!("log filter: {error}"));
    let silence = "bollard::docker=warn".parse().map_err(|error| wrong(&error))?;
    Ok(EnvFilter::try_new(text).map_err(|error| wrong(&error))?.add_directive(silence))
}

/// A runtime for one command that mostly waits.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The environment; where it says nothing of the data folder, the settings of this host do.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    #[cfg(feature = "host")]
    if value.is_none() && name == "ASKD__DATA_DIR" {
        let settings = crate::host::settings::Settings::load(&[]).ok()?;
        return settings.data_dir.to_str().map(str::to_owned);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_engine_says_of_a_container_is_never_logged() {
        for text in ["debug", "trace", "bollard=trace", "bollard::docker=debug"] {
            let kept = Kept::default();
            let writer = kept.clone();
            let logs = tracing_subscriber::fmt()
                .with_env_filter(log_filter(text).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(logs, || {
                tracing::debug!(target: "bollard::docker", "Decoded into string: marked-secret");
                tracing::warn!(target: "bollard::docker", "a warning");
            });
            let logged = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert!(!logged.contains("marked") && logged.contains("a warning"), "{text}: {logged}");
        }
    }
}
