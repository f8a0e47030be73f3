//! `askd healthz`: the health check of an image that has nothing but askd in it.

use super::Exit;
use crate::host::client::healthy;
use clap::Args;
use std::path::PathBuf;

/// Ask the daemon whether it is well: exit code 0 if it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd healthz")]
pub(super) struct Healthz {
    /// The settings file that the daemon uses; its address comes from it.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Address of the daemon, such as <http://127.0.0.1:8484>.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

impl Healthz {
    pub(super) fn run(self) -> Result<(), Exit> {
        Ok(super::small_runtime()?.block_on(healthy(&self.config, self.url))?)
    }
}
