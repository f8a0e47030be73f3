//! `[slack]`, and the routes that lead there.

use super::group::{RespondersShape, RouteShape};
use super::{GroupSettings, SettingsError, duration, is_loopback_url, list, secret, url_host, wrong};
use askd_core::{Capabilities, ChannelName, Responders, Route};
use secrecy::SecretString;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// `[slack]`, complete.
#[derive(Debug, Clone)]
pub struct SlackSettings {
    /// `xoxb-...`
    pub bot_token: SecretString,
    /// How Slack sends what people do.
    pub transport: SlackTransport,
    /// The teams whose people are listened to. Empty means the bot's own team.
    pub team_ids: Vec<String>,
    /// Without a slash at the end.
    pub api_url: String,
    /// Least time between two posts to one chat.
    pub pace: Duration,
}

/// How Slack sends what people do.
#[derive(Debug, Clone)]
pub enum SlackTransport {
    /// Slack posts webhooks, signed with this secret.
    Webhooks(SecretString),
    /// askd opens a socket with this token (`xapp-...`), so that Slack need not reach this host.
    Socket(SecretString),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlackShape {
    bot_token: Option<SecretString>,
    bot_token_file: Option<PathBuf>,
    signing_secret: Option<SecretString>,
    signing_secret_file: Option<PathBuf>,
    app_token: Option<SecretString>,
    app_token_file: Option<PathBuf>,
    #[serde(deserialize_with = "list")]
    team_ids: Vec<String>,
    api_url: String,
    pace: String,
}

impl SlackShape {
    pub(super) fn check(self) -> Result<Option<SlackSettings>, SettingsError> {
        let bot_token = secret("slack.bot_token", self.bot_token, self.bot_token_file.as_deref())?;
        let signing_secret = secret("slack.signing_secret", self.signing_secret, self.signing_secret_file.as_deref())?;
        let app_token = secret("slack.app_token", self.app_token, self.app_token_file.as_deref())?;
        token("slack.bot_token", bot_token.as_ref(), "xoxb-", "a Bot User OAuth Token")?;
        token("slack.app_token", app_token.as_ref(), "xapp-", "an app-level token")?;
        let api_url = self.api_url.trim_end_matches('/').to_owned();
        let loopback = is_loopback_url(&api_url);
        let secure = api_url.starts_with("https://") && url_host(&api_url).is_some();
        if !loopback && !secure {
            return Err(wrong(
                "slack.api_url",
                format!("{api_url:?} is neither https://... nor http://127.0.0.1:<port>/... (plain http is for tests)"),
            ));
        }
        let pace = duration("slack.pace", &self.pace, Duration::ZERO)?;
        if pace.is_zero() && !loopback {
            return Err(wrong(
                "slack.pace",
                "\"0s\" is for tests with a loopback api_url; Slack allows one post a second",
            ));
        }
        let Some(bot_token) = bot_token else { return Ok(None) };
        let transport = match (app_token, signing_secret) {
            (Some(token), _) => SlackTransport::Socket(token),
            (None, Some(secret)) => SlackTransport::Webhooks(secret),
            (None, None) => {
                return Err(wrong(
                    "slack.signing_secret",
                    "without it (Basic Information of the app) no click can be verified; or set slack.app_token for \
                     Socket Mode",
                ));
            }
        };
        Ok(Some(SlackSettings { bot_token, transport, team_ids: self.team_ids, api_url, pace }))
    }
}

/// Refuses a route to Slack without a bot token.
pub(super) fn slack_is_there(
    at: &str,
    group: &GroupSettings,
    slack: Option<&SlackSettings>,
) -> Result<(), SettingsError> {
    if slack.is_none() && group.routes.iter().any(|route| route.channel == ChannelName::SLACK) {
        return Err(wrong(
            "slack.bot_token",
            format!("{at} asks in Slack: set the bot token (xoxb-..., see docs/slack.md), or bot_token_file"),
        ));
    }
    Ok(())
}

/// Refuses another kind of Slack token in this place. The error never repeats the token.
fn token(key: &str, token: Option<&SecretString>, prefix: &str, name: &str) -> Result<(), SettingsError> {
    let Some(token) = token.map(secrecy::ExposeSecret::expose_secret) else { return Ok(()) };
    // Slack puts another prefix in front of a token that it rotates.
    if token.strip_prefix("xoxe.").unwrap_or(token).starts_with(prefix) {
        return Ok(());
    }
    let other = [("xoxb-", "slack.bot_token"), ("xapp-", "slack.app_token")];
    let swapped = other.iter().find(|(other, _)| token.starts_with(other));
    let swapped = swapped.map(|(_, place)| format!("; this one belongs in {place}")).unwrap_or_default();
    Err(wrong(key, format!("not {name}, which begins with {prefix}{swapped} (see docs/slack.md)")))
}

/// A capital letter and what follows it in the ids of Slack.
fn is_id(text: &str, kinds: [char; 3]) -> bool {
    text.starts_with(kinds) && text.len() > 1 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

impl RouteShape {
    pub(super) fn slack(self, at: &str) -> Result<Route, SettingsError> {
        let chat = self.chat.unwrap_or_default();
        if !is_id(&chat, ['C', 'G', 'D']) {
            return Err(wrong(
                format!("{at}.chat"),
                format!(
                    "{chat:?} is not the id of a Slack channel, such as \"C0123ABCD\" (last line of the channel's details)"
                ),
            ));
        }
        let people = "say who may answer: responders = [\"U0123ABCD\"] (member ids, from people's profiles), or \
                      responders = \"anyone\" for everybody in the channel";
        let responders = match self.responders {
            Some(RespondersShape::Word(word)) if word == "anyone" => Responders::Anyone,
            Some(RespondersShape::Ids(ids)) if !ids.is_empty() => {
                if let Some(wrong_id) = ids.iter().find(|id| !is_id(id, ['U', 'W', 'W'])) {
                    let why = format!(
                        "{wrong_id:?} is not a member id of Slack, so that this person could never answer; {people}"
                    );
                    return Err(wrong(format!("{at}.responders"), why));
                }
                Responders::Only(ids)
            }
            _ => return Err(wrong(format!("{at}.responders"), people)),
        };
        Ok(Route { channel: ChannelName::SLACK, chat, responders, capabilities: Capabilities::default() })
    }
}
