//! `askd sim`: the stand-ins of the chat platforms alone, for checks by other clients. Hidden: it is of no use to users.

use super::{Exit, small_runtime};
use anyhow::Context as _;
use askd_sim::{SlackArgs, run_slack, whatsapp};
use clap::Subcommand;

/// Run a stand-in of a chat platform alone, for checks.
#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// A stand-in of Slack; serves until standard input ends.
    Slack(SlackArgs),
    /// A stand-in of the WhatsApp Cloud API, with a page that looks like the person's phone; serves until standard input ends.
    Whatsapp(whatsapp::Args),
}

impl Sim {
    pub(super) fn run(self) -> Result<(), Exit> {
        let runtime = small_runtime()?;
        Ok(match self {
            Self::Slack(args) => runtime.block_on(run_slack(args)).context("the stand-in of Slack"),
            Self::Whatsapp(args) => runtime.block_on(whatsapp::run(args)).context("the stand-in of WhatsApp"),
        }?)
    }
}
