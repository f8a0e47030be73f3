//! What set-up asks of Slack before there is a daemon: who the bot is, whether the app may connect, whether the bot is in a
//! channel. A failure is told with how to fix it.

use super::AuthTest;
use super::client::{CallError, Client};
use super::pace::Pace;
use crate::clock::Clock;
use crate::host::settings::{SlackSettings, SlackTransport};
use serde::de::IgnoredAny;
use serde_json::json;
use std::io;
use std::sync::Arc;

/// Slack, for a few calls.
#[derive(Debug)]
pub struct Visit {
    client: Client,
    transport: SlackTransport,
}

impl Visit {
    /// Calls Slack with these tokens.
    pub fn new(settings: &SlackSettings, clock: Clock) -> io::Result<Self> {
        let pace = Arc::new(Pace::new(settings.pace, clock, None));
        let client = Client::new(settings, pace, None).map_err(io::Error::other)?;
        Ok(Self { client, transport: settings.transport.clone() })
    }

    /// The bot and its workspace.
    pub async fn who(&self) -> Result<String, String> {
        let bot: AuthTest = self.client.post("auth.test", "", &json!({})).await.map_err(|error| error.explain())?;
        Ok(format!("@{} in the workspace {}", bot.user, bot.team))
    }

    /// Whether the app-level token opens a connection.
    pub async fn connects(&self) -> Result<(), String> {
        let SlackTransport::Socket(token) = &self.transport else { return Ok(()) };
        let opened: Result<IgnoredAny, _> = self.client.post_as_app(token, "apps.connections.open").await;
        opened.map(drop).map_err(|error| match error {
            CallError::Refused { code, .. } => format!(
                "slack: {code}: the app-level token (xapp-...) is wrong: Basic Information > App-Level Tokens, with the \
                 scope connections:write"
            ),
            other => other.explain(),
        })
    }

    /// Whether the bot is in this channel.
    pub async fn is_in(&self, chat: &str) -> Result<(), String> {
        let arguments = [("channel", chat.to_owned()), ("limit", "1".to_owned())];
        let read: Result<IgnoredAny, _> = self.client.get("conversations.history", chat, &arguments).await;
        read.map(drop).map_err(|error| error.explain())
    }
}
