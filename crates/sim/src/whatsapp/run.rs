//! The stand-in as a process, for contract checks in other languages and for clicking around: prints one
//! line of JSON, serves until its stdin closes. Called by `askd sim whatsapp`.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde_json::json;

use super::{Config, Whatsapp};

/// Arguments of `askd sim whatsapp`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Where webhooks go
    #[arg(long)]
    pub webhook: Option<String>,
    /// JSON file with settings of the stand-in (people, templates, limits, faults)
    #[arg(long)]
    pub config: Option<PathBuf>,
}

/// Serves until stdin ends. Errors: the file cannot be read or understood, or the port is taken.
pub async fn run(args: Args) -> io::Result<()> {
    let mut config = match &args.config {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => Config::default(),
    };
    if args.port != 0 {
        config.port = args.port;
    }
    config.webhook = args.webhook.or(config.webhook);
    let sim = Whatsapp::start(config).await?;
    let config = sim.config();
    let line = json!({
        "url": sim.url(), "api_url": sim.api_url(), "token": config.token, "app_secret": config.app_secret,
        "verify_token": config.verify_token, "phone_number_id": config.phone_number_id, "waba_id": config.waba_id,
    });
    let mut stdout = io::stdout();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    let (closed, stdin_closed) = tokio::sync::oneshot::channel();
    // A thread of its own: the runtime would wait for a blocking task that reads for ever.
    std::thread::spawn(move || {
        let mut sink = [0_u8; 1024];
        while io::stdin().read(&mut sink).is_ok_and(|n| n > 0) {}
        let _ = closed.send(());
    });
    let _ = stdin_closed.await;
    drop(sim);
    Ok(())
}
