//! The `askd` binary: for now only the command that runs the stand-in of Slack.

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a stand-in of a chat platform alone, for checks
    #[cfg(feature = "host")]
    #[command(hide = true, subcommand)]
    Sim(Sim),
}

#[cfg(feature = "host")]
#[derive(Subcommand)]
enum Sim {
    /// A stand-in of Slack; serves until standard input ends
    Slack(askd::sim::SlackArgs),
}

#[cfg(feature = "host")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command::Sim(Sim::Slack(args)) = Options::parse().command;
    askd::sim::run_slack(args).await?;
    Ok(())
}

#[cfg(not(feature = "host"))]
fn main() {
    match Options::parse().command {}
}
