//! `askd demo`, and `askd sim`: the stand-ins of the chat platforms alone, for checks by other clients. `sim` is hidden: it
//! is of no use to users.

use super::{Exit, say, small_runtime, stop_on_signals};
use crate::demo;
use anyhow::Context as _;
use askd_sim::{SlackArgs, run_slack, whatsapp};
use clap::{Args, Subcommand};

/// What needs the stand-ins. The help of the first stands at its arguments.
#[derive(Debug, Subcommand)]
pub(super) enum Demos {
    Demo(Demo),
    /// Run a stand-in of a chat platform alone, for checks.
    #[command(hide = true, subcommand)]
    Sim(Sim),
}

/// Show the whole loop with no account and no configuration: a daemon, its inbox, a pretended Slack and scripted agents.
///
/// Everything lives in a temporary folder and on free ports of the loopback, and is gone afterwards.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd demo\n  askd demo --auto     (answers by itself; a smoke test)")]
pub(super) struct Demo {
    /// Answer by itself and exit with 0 if everything worked.
    #[arg(long)]
    auto: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// A stand-in of Slack; serves until standard input ends.
    Slack(SlackArgs),
    /// A stand-in of the WhatsApp Cloud API, with a page that looks like the person's phone; serves until standard input ends.
    Whatsapp(whatsapp::Args),
}

impl Demos {
    pub(super) fn run(self) -> Result<(), Exit> {
        Ok(match self {
            Self::Demo(Demo { auto }) => {
                // What people do wrong in the demo is part of it, and said in its own lines.
                super::log("error", false)?;
                let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
                runtime.block_on(async { Box::pin(demo::run(auto, stop_on_signals()?, |line| drop(say(line)))).await })
            }
            Self::Sim(Sim::Slack(args)) => small_runtime()?.block_on(run_slack(args)).context("the stand-in of Slack"),
            Self::Sim(Sim::Whatsapp(args)) => {
                small_runtime()?.block_on(whatsapp::run(args)).context("the stand-in of WhatsApp")
            }
        }?)
    }
}
