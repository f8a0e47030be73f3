//! The `askd` binary: for now only the command that runs the stand-in of Slack.

#[cfg(feature = "host")]
#[derive(clap::Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[cfg(feature = "host")]
#[derive(clap::Subcommand)]
enum Command {
    /// Run a stand-in of a chat platform alone, for checks
    #[command(hide = true, subcommand)]
    Sim(Sim),
}

#[cfg(feature = "host")]
#[derive(clap::Subcommand)]
enum Sim {
    /// A stand-in of Slack; serves until standard input ends
    Slack(askd::sim::SlackArgs),
}

#[cfg(feature = "host")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command::Sim(Sim::Slack(args)) = <Options as clap::Parser>::parse().command;
    askd::sim::run_slack(args).await?;
    Ok(())
}

#[cfg(not(feature = "host"))]
fn main() {}
