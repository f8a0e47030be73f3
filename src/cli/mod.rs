//! The command line: one executable, the daemon and the agent's side. It joins the rooms and maps
//! their errors to sentences and exit codes; it decides nothing else.

#[cfg(feature = "host")]
mod answer;
mod ask;
#[cfg(feature = "host")]
mod asks;
mod briefing;
#[cfg(feature = "host")]
mod check;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "host")]
mod doctor;
#[cfg(feature = "host")]
mod forget;
#[cfg(feature = "host")]
mod group;
#[cfg(feature = "host")]
mod init;
mod json;
#[cfg(feature = "host")]
mod layout;
#[cfg(feature = "host")]
mod link;
mod mcp;
#[cfg(feature = "postgres")]
mod moving;
#[cfg(feature = "host")]
mod serve;
#[cfg(feature = "host")]
mod status;
#[cfg(feature = "postgres")]
mod store;
#[cfg(feature = "host")]
mod systemd;
#[cfg(feature = "host")]
mod token;
#[cfg(feature = "host")]
mod trail;

use crate::agent::AgentError;
use crate::sabotage::on;
use anyhow::Context as _;
#[cfg(feature = "host")]
use clap::CommandFactory as _;
#[cfg(feature = "host")]
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::future::pending;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Ask a human from a headless agent and wait for the answer.
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

/// The help of each stands at its arguments; a comment here would replace it.
#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "host")]
    Serve(serve::Serve),
    #[cfg(feature = "host")]
    Init(init::Init),
    #[cfg(feature = "host")]
    Check(check::Check),
    #[cfg(feature = "demo")]
    #[command(flatten)]
    Demos(demo::Demos),
    Ask(ask::AskCommand),
    Mcp(mcp::Mcp),
    Briefing(briefing::BriefingCommand),
    #[cfg(feature = "host")]
    Status(status::StatusCommand),
    #[cfg(feature = "host")]
    Doctor(doctor::Doctor),
    #[cfg(feature = "host")]
    #[command(flatten)]
    Asks(asks::Asks),
    #[cfg(feature = "host")]
    Forget(forget::ForgetCommand),
    #[cfg(feature = "host")]
    #[command(subcommand)]
    Group(group::Groups),
    #[cfg(feature = "host")]
    #[command(subcommand)]
    Token(token::TokenCommand),
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Store(store::StoreCommand),
    #[cfg(feature = "host")]
    Completions(link::Completions),
}

/// Anything that went wrong and has no exit code of its own.
const FAILED: u8 = 1;
/// Bad usage or bad settings.
const USAGE: u8 = 2;

/// Runs the command line and says how it went.
pub fn main() -> ExitCode {
    let command = parse().command;
    let done = match command {
        #[cfg(feature = "host")]
        Command::Serve(serve) => serve.run(),
        #[cfg(feature = "host")]
        Command::Init(init) => init.run(),
        #[cfg(feature = "host")]
        Command::Check(check) => check.run(),
        #[cfg(feature = "demo")]
        Command::Demos(demos) => demos.run(),
        Command::Ask(ask) => ask.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Briefing(briefing) => briefing.run(),
        #[cfg(feature = "host")]
        Command::Status(status) => status.run(),
        #[cfg(feature = "host")]
        Command::Doctor(doctor) => doctor.run(),
        #[cfg(feature = "host")]
        Command::Asks(asks) => asks.run(),
        #[cfg(feature = "host")]
        Command::Forget(forget) => forget.run(),
        #[cfg(feature = "host")]
        Command::Group(groups) => groups.run(),
        #[cfg(feature = "host")]
        Command::Token(token) => token.run(),
        #[cfg(feature = "postgres")]
        Command::Store(store) => store.run(),
        #[cfg(feature = "host")]
        Command::Completions(completions) => completions.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit { code, message }) => {
            if !message.is_empty() {
                complain(&message);
            }
            ExitCode::from(code)
        }
    }
}

/// The command line. clap proposes no command for two letters that changed places, as in `aks`.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        #[cfg(feature = "host")]
        let error = with_proposal(error);
        error.exit()
    })
}

#[cfg(feature = "host")]
fn with_proposal(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let commands = Cli::command();
    let near = |name: &&str| strsim::damerau_levenshtein(name, typed) == 1;
    let meant = commands.get_subcommands().map(clap::Command::get_name).find(near);
    if let Some(meant) = meant.filter(|_| error.get(ContextKind::SuggestedSubcommand).is_none()) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant.to_owned()]));
    }
    error
}

/// A sentence for people, which may be missing, and a code for scripts.
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

impl From<AgentError> for Exit {
    fn from(error: AgentError) -> Self {
        let code = match error {
            // As `askd ask` says of a question that could not be shown.
            AgentError::NotClaimed { .. } | AgentError::NotTaken { .. } => 5,
            AgentError::Settings(_) => USAGE,
            _ => FAILED,
        };
        Self::new(code, error)
    }
}

/// One line on standard error. A reader that has gone is no error.
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
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = variable.as_deref().unwrap_or(filter);
    let filter = log_filter(filter)?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(lines.json().flatten_event(true)).init();
    } else {
        registry.with(lines.with_target(false)).init();
    }
    Ok(())
}

/// What is logged: targets and levels; what more there is needs regular expressions, a megabyte in the agent's
/// binary. Three things are held back: at `debug` bollard repeats all that the Docker Engine says of a container, with the
/// secrets in its environment, and rmcp each message, with questions and answers; and below `error` sqlx repeats each statement and
/// each connection of a database that is slow or away, beside what askd says of it.
fn log_filter(text: &str) -> Result<Targets, Exit> {
    let targets: Targets = text.parse().map_err(|error| Exit::new(USAGE, format!("log filter: {error}")))?;
    Ok(targets
        .with_target("bollard::docker", LevelFilter::WARN)
        .with_target("rmcp", LevelFilter::ERROR)
        .with_target("sqlx", LevelFilter::ERROR))
}

/// A runtime for one command that mostly waits.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Keeps SIGTERM, Ctrl-C and SIGHUP from this thread and those that it starts, until it is dropped; then this thread gets them.
struct HeldSignals(SigSet);

impl HeldSignals {
    fn hold() -> anyhow::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot hold signals back")?;
        Ok(Self(before))
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // It fails only for a wrong argument.
        let _held = self.0.thread_set_mask();
    }
}

/// Cancelled by SIGTERM, Ctrl-C, or the end of the terminal, after which nobody would read an answer. See [`stop_on`].
fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    stop_on(!ignores_hangup())
}

/// Whether whoever started this process wants it to outlive the terminal, as `nohup` does. Where nobody can say, SIGHUP does what it
/// always does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_none_or(|ignored| ignored & (1 << (Signal::SIGHUP as i32 - 1)) != 0)
}

/// Cancelled by SIGTERM or Ctrl-C, and by SIGHUP if `hangup` says so. A second SIGTERM or Ctrl-C ends the process at once; a terminal that
/// ends may send SIGHUP several times, and SIGTERM with it. No other thread may take these signals before.
fn stop_on(hangup: bool) -> anyhow::Result<CancellationToken> {
    // The handler is there a moment before it knows whom to tell: a signal that came in between would be lost.
    let _held = (!on("nohold")).then(HeldSignals::hold).transpose()?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let hangup = hangup.then(|| signal(SignalKind::hangup())).transpose();
    let mut hangup = hangup.context("cannot listen for SIGHUP")?;
    let stopping = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "listens for as long as the process lives")]
    tokio::spawn(async move {
        let mut meant = false;
        loop {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => pending().await,
                }
            };
            let is_meant = tokio::select! {
                _ = terminate.recv() => true,
                _ = interrupt.recv() => true,
                _ = hung_up => false,
            };
            if meant && is_meant {
                tracing::warn!("told to stop twice: stopping at once; what is unfinished goes on at the next start");
                std::process::exit(i32::from(FAILED));
            }
            meant |= is_meant;
            if !stopping.is_cancelled() {
                tracing::info!("stopping");
                stopping.cancel();
            }
        }
    });
    Ok(stop)
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

/// Lets only the user do this to whom the daemon's folder belongs: a daemon could not read what another one writes.
#[cfg(feature = "host")]
fn as_owner(folder: &std::path::Path, command: &str) -> Result<(), Exit> {
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(folder).map_err(|error| {
        Exit::new(FAILED, format!("cannot look at {}: {error}. Give the daemon's --config", folder.display()))
    })?;
    if owner.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let (folder, uid) = (folder.display(), owner.uid());
    let why =
        format!("{folder} belongs to user id {uid}; run this as askd's own user: sudo -u '#{uid}' askd {command} ...");
    Err(Exit::new(FAILED, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_engine_says_of_a_container_and_a_client_of_mcp_is_never_logged() {
        for text in ["debug", "trace", "bollard=trace,rmcp=debug", "bollard::docker=debug"] {
            let kept = Kept::default();
            let writer = kept.clone();
            let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
            let logs = tracing_subscriber::registry().with(log_filter(text).unwrap()).with(lines);
            tracing::subscriber::with_default(logs, || {
                tracing::debug!(target: "bollard::docker", "Decoded into string: marked-secret");
                tracing::warn!(target: "rmcp::service", "received: marked-answer");
                tracing::warn!(target: "bollard::docker", "a warning");
            });
            let logged = String::from_utf8(kept.0.lock().clone()).unwrap();
            assert!(!logged.contains("marked") && logged.contains("a warning"), "{text}: {logged}");
        }
    }

    #[test]
    fn a_filter_is_a_level_or_levels_of_targets() {
        for (text, askd, notify) in
            [("info,notify=error", true, false), ("askd=debug", true, false), ("warn", false, false)]
        {
            let filter = log_filter(text).unwrap();
            assert_eq!(filter.would_enable("askd::host", &tracing::Level::INFO), askd, "{text}");
            assert_eq!(filter.would_enable("notify", &tracing::Level::INFO), notify, "{text}");
        }
        assert_eq!(log_filter("info,askd=loud").unwrap_err().code, USAGE);
    }
}
