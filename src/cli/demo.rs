//! `askd demo`.

use super::{Exit, say, stop_on_signals};
use crate::demo;
use anyhow::Context as _;
use clap::Args;

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

impl Demo {
    pub(super) fn run(self) -> Result<(), Exit> {
        // What people do wrong in the demo is part of it, and said in its own lines.
        super::log("error", false)?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let demo = async { Box::pin(demo::run(self.auto, stop_on_signals()?, |line| drop(say(line)))).await };
        Ok(runtime.block_on(demo)?)
    }
}
