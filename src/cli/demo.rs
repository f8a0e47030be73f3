//! `askd demo`, and `askd sim`: the stand-ins of the chat platforms alone, for checks by other clients. `sim` is hidden: it
//! is of no use to users.

use super::{Exit, say, small_runtime, stop_on_signals};
use crate::demo;
use anyhow::Context as _;
use askd_sim::{SlackArgs, run_slack, whatsapp};
use clap::{Args, Subcommand};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What needs the stand-ins. The help of the first stands at its arguments.
#[derive(Debug, Subcommand)]
pub(super) enum Demos {
    Demo(Demo),
    /// Run a stand-in of a chat platform alone, for checks.
    #[command(hide = true, subcommand)]
    Sim(Sim),
}

/// Try askd in your browser, with no account and no settings: an inbox, a mock Slack, a mock phone, and agents that ask.
///
/// Everything is in a temporary folder and gone afterwards. Anyone who can reach the address can use the demo: leave it on this
/// computer (127.0.0.1).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd demo\n  askd demo --listen 127.0.0.1:8484\n  \
                        docker run --rm -p 127.0.0.1:8484:8484 askd demo --listen 0.0.0.0:8484\n  \
                        askd demo --auto     (answers by itself; a smoke test)")]
pub(super) struct Demo {
    /// Answer by itself and exit with 0 if everything worked.
    #[arg(long)]
    auto: bool,
    /// Address of the tour page; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// The demo's agent that is started with an answer: keeps the briefing, which it gets on standard input, in a file.
    Agent { file: PathBuf },
    /// A stand-in of Slack; serves until standard input ends.
    Slack(SlackArgs),
    /// A stand-in of the WhatsApp Cloud API, with a page that looks like the person's phone; serves until standard input ends.
    Whatsapp(whatsapp::Args),
}

impl Demos {
    pub(super) fn run(self) -> Result<(), Exit> {
        Ok(match self {
            Self::Demo(Demo { auto, listen }) => {
                // What people do wrong in the demo is part of it, and said in its own lines.
                super::log("error", false)?;
                let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
                runtime.block_on(async {
                    Box::pin(demo::run(auto, listen, stop_on_signals()?, |line| drop(say(line)))).await
                })
            }
            Self::Sim(Sim::Agent { file }) => keep(&file).with_context(|| format!("cannot write {}", file.display())),
            Self::Sim(Sim::Slack(args)) => small_runtime()?.block_on(run_slack(args)).context("the stand-in of Slack"),
            Self::Sim(Sim::Whatsapp(args)) => {
                small_runtime()?.block_on(whatsapp::run(args)).context("the stand-in of WhatsApp")
            }
        }?)
    }
}

/// Whole or not at all: the demo looks for the file.
fn keep(file: &Path) -> io::Result<()> {
    let partial = file.with_extension("partial");
    io::copy(&mut io::stdin().lock(), &mut std::fs::File::create(&partial)?)?;
    std::fs::rename(partial, file)
}
