//! The `askd` binary.

use clap::Parser;

#[derive(Parser)]
#[command(version, about)]
enum Cli {
    /// Stand-ins of chat platforms, on 127.0.0.1, for tests and for trying things
    #[cfg(feature = "host")]
    #[command(subcommand)]
    Sim(Sim),
}

#[cfg(feature = "host")]
#[derive(clap::Subcommand)]
enum Sim {
    /// The WhatsApp Cloud API, with a page that looks like the person's phone
    Whatsapp(askd::sim::whatsapp::Args),
}

#[cfg(feature = "host")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Cli::Sim(Sim::Whatsapp(args)) = Cli::parse();
    Ok(askd::sim::whatsapp::run(args).await?)
}

#[cfg(not(feature = "host"))]
fn main() {
    Cli::parse();
}
