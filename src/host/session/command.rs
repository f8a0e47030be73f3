//! A session by commands of the operator: `argv`, never a shell, with a small environment. It takes what it has
//! to know as JSON on its standard input. Who calls it: [`super::Sessions`].

use crate::host::ctx::Ctx;
use askd_core::Ask;
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What of our own environment a command is given.
const PASSED_ON: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "DOCKER_HOST"];
/// A start that still runs after this long has started.
pub(super) const STARTED_AFTER: Duration = Duration::from_secs(30);

/// What came of a command.
pub(super) enum Ran {
    /// It has ended.
    Ended(ExitStatus),
    /// It still runs, and goes on.
    Runs,
    /// It could not be run.
    Not(String),
}

/// What becomes of a command that runs for longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlong {
    /// It goes on.
    GoesOn,
    /// It is ended with its children, also when the daemon stops: the next start runs it again, and they would pile up.
    Ends,
}

/// Runs a command about an ask for at most `patience`, with `input` on its standard input.
pub(super) async fn run(
    ctx: &Ctx,
    argv: &[String],
    ask: &Ask,
    variables: &[(&str, &str)],
    input: &[u8],
    (patience, overlong): (Duration, Overlong),
) -> Ran {
    let Some((program, arguments)) = argv.split_first() else { return Ran::Not("there is no command".to_owned()) };
    let environment = PASSED_ON.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .env("ASKD_ASK_ID", ask.id.to_string())
        .env("ASKD_GROUP", ask.group.folder())
        .envs(variables.iter().copied())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A start belongs to the operator, not to us: it goes on when the daemon stops. For the others see `Ends`.
        .kill_on_drop(false)
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Not(format!("{program}: {error}")),
    };
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // Who does not read its input has not failed by that.
        ctx.spawn(async move {
            let _unread = stdin.write_all(&input).await;
        });
    }
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut ends = Ends(group.filter(|_| overlong == Overlong::Ends));
    if let Some(ended) = ctx.clock().timeout(patience, child.wait()).await {
        ends.0 = None;
        return ended.map_or_else(|error| Ran::Not(format!("{program}: {error}")), Ran::Ended);
    }
    drop(ends);
    // Waits for it, so that none of its processes is left.
    ctx.spawn(async move {
        let _ended = child.wait().await;
    });
    Ran::Runs
}

/// Ends a command and everything it has started when it takes too long or the daemon stops.
struct Ends(Option<Pid>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ended = kill_process_group(group, Signal::KILL);
        }
    }
}
