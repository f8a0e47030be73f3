//! `askd sim`: the stand-ins of chat platforms as processes of their own.

use super::Exit;
use anyhow::Context as _;
use clap::Subcommand;
use std::process::ExitCode;

/// Run a stand-in of a chat platform, on 127.0.0.1: for tests and for trying things.
#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// The WhatsApp Cloud API, with a page that looks like the person's phone.
    Whatsapp(crate::sim::whatsapp::Args),
}

impl Sim {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start").map_err(Exit::from)?;
        match self {
            Self::Whatsapp(args) => runtime.block_on(crate::sim::whatsapp::run(args)).context("the stand-in")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
