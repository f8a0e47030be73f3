//! The stand-in as a command: prints where it is as one line of JSON, serves until standard input ends.
//!
//! For checks by programs that are not ours. Called by the command line.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;

use super::config::{APP_TOKEN, BOT_TOKEN, Config, Token};
use super::handle::Slack;

/// How `askd sim slack` is started.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SlackArgs {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Where interactions are posted, without Socket Mode
    #[arg(long)]
    pub interactivity_url: Option<String>,
    /// Where events are posted, without Socket Mode
    #[arg(long)]
    pub events_url: Option<String>,
    /// Least seconds between two posts to a channel; 0 switches the limit off
    #[arg(long, default_value_t = 1.0)]
    pub pace: f64,
    /// Say `"team": null`, as after an installation for a whole organisation
    #[arg(long)]
    pub enterprise: bool,
}

/// Serves a stand-in of Slack until standard input ends. Prints one line of JSON first: where it is and the secrets it knows.
pub async fn run_slack(args: SlackArgs) -> std::io::Result<()> {
    let config = Config {
        port: args.port,
        interactivity_url: args.interactivity_url,
        events_url: args.events_url,
        pace: Duration::try_from_secs_f64(args.pace).map_err(std::io::Error::other)?,
        enterprise_install: args.enterprise.then(|| "E0ASKD".to_owned()),
        bot_tokens: vec![Token::with_all_scopes(BOT_TOKEN)],
        ..Config::default()
    };
    let slack = Slack::start(config).await?;
    let config = slack.config();
    let line = json!({
        "url": slack.url(), "api_url": slack.api_url(), "bot_token": BOT_TOKEN, "app_token": APP_TOKEN,
        "signing_secret": config.signing_secret, "team_id": config.team_id, "bot_user": config.bot_user,
        "channels": config.channels.iter().map(|channel| channel.id.as_str()).collect::<Vec<_>>(),
        "users": config.users.iter().map(|user| user.id.as_str()).collect::<Vec<_>>(),
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    drop(out);
    let mut input = tokio::io::stdin();
    let mut buffer = [0_u8; 256];
    while input.read(&mut buffer).await? > 0 {}
    Ok(())
}
