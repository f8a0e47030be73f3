//! A session by commands of the operator: `argv`, never a shell, with a small environment. It takes what it has
//! to know as JSON on its standard input. Who calls it: [`super::Sessions`].

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

/// Runs a command for at most `patience`, with `input` on its standard input.
pub(super) async fn run(argv: &[String], variables: &[(&str, &str)], input: &[u8], patience: Duration) -> Ran {
    let Some((program, arguments)) = argv.split_first() else { return Ran::Not("there is no command".to_owned()) };
    let environment = PASSED_ON.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .envs(variables.iter().copied())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // It is the operator's, not ours: it goes on when the daemon stops.
        .kill_on_drop(false)
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Not(format!("{program}: {error}")),
    };
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // Who does not read its input has not failed by that.
        tokio::spawn(async move {
            let _unread = stdin.write_all(&input).await;
        });
    }
    match tokio::time::timeout(patience, child.wait()).await {
        Ok(Ok(status)) => Ran::Ended(status),
        Ok(Err(error)) => Ran::Not(format!("{program}: {error}")),
        Err(_) => {
            // Waited for, so that nothing of it is left when it ends.
            tokio::spawn(async move { child.wait().await });
            Ran::Runs
        }
    }
}
