//! `askd demo`.

use super::serve::stop_on_signals;
use super::{Exit, say};
use crate::demo;
use anyhow::Context as _;
use clap::Args;
use std::process::ExitCode;

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
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        // What people do wrong in the demo is part of it, and said in its own lines.
        super::log("error", false)?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start").map_err(Exit::from)?;
        runtime.block_on(async {
            let stop = stop_on_signals()?;
            Box::pin(demo::run(self.auto, stop, |line| drop(say(line)))).await?;
            anyhow::Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
