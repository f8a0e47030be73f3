//! `[slack]`, and the routes that lead there.

use super::{GroupSettings, RespondersShape, RouteShape, SettingsError, duration, list, secret, url_host, wrong};
use crate::ask::{Channel, Responders, Route};
use secrecy::SecretString;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// `[slack]`, with everything that is needed.
#[derive(Debug, Clone)]
pub struct SlackSettings {
    /// `xoxb-...`
    pub bot_token: SecretString,
    /// How what people do comes in.
    pub door: SlackDoor,
    /// Whose clicks are taken; empty: the bot's own team's.
    pub team_ids: Vec<String>,
    /// Without a slash at the end.
    pub api_url: String,
    /// Least time between two posts to one chat.
    pub pace: Duration,
}

/// How what people do in Slack comes in.
#[derive(Debug, Clone)]
pub enum SlackDoor {
    /// Slack posts to us, signed with this.
    Webhooks(SecretString),
    /// We connect to Slack with this token (`xapp-...`); nothing has to be reachable.
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
        let api_url = self.api_url.trim_end_matches('/').to_owned();
        let loopback = is_loopback_url(&api_url);
        let secure = api_url.starts_with("https://") && url_host(&api_url).is_some();
        if !loopback && !secure {
            return Err(wrong(
                "slack.api_url",
                format!("{api_url:?} is neither https://... nor http://127.0.0.1:<port>/... (plain http is for tests)"),
            ));
        }
        let pace = duration("slack.pace", Some(&self.pace), Duration::ZERO)?;
        if pace.is_zero() && !loopback {
            return Err(wrong(
                "slack.pace",
                "\"0s\" is for tests with a loopback api_url; Slack allows one post a second",
            ));
        }
        let Some(bot_token) = bot_token else { return Ok(None) };
        let door = match (app_token, signing_secret) {
            (Some(token), _) => SlackDoor::Socket(token),
            (None, Some(secret)) => SlackDoor::Webhooks(secret),
            (None, None) => {
                return Err(wrong(
                    "slack.signing_secret",
                    "without it (Basic Information of the app) no click can be verified; or set slack.app_token for \
                     Socket Mode",
                ));
            }
        };
        Ok(Some(SlackSettings { bot_token, door, team_ids: self.team_ids, api_url, pace }))
    }
}

/// A route of Slack needs Slack.
pub(super) fn slack_is_there(
    at: &str,
    group: &GroupSettings,
    slack: Option<&SlackSettings>,
) -> Result<(), SettingsError> {
    if slack.is_none() && group.routes.iter().any(|route| route.channel == Channel::Slack) {
        return Err(wrong(
            "slack.bot_token",
            format!("{at} asks in Slack: set the bot token (xoxb-..., see docs/slack.md), or bot_token_file"),
        ));
    }
    Ok(())
}

/// Whether a URL is plain http to this very machine.
fn is_loopback_url(url: &str) -> bool {
    let Some(host) = url.strip_prefix("http://").and_then(|_| url_host(url)) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl RouteShape {
    pub(super) fn slack(self, at: &str) -> Result<Route, SettingsError> {
        let chat = self.chat.unwrap_or_default();
        let is_id = chat.starts_with(['C', 'G', 'D'])
            && chat.len() > 1
            && chat.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if !is_id {
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
            Some(RespondersShape::Ids(ids)) if !ids.is_empty() => Responders::Only(ids),
            _ => return Err(wrong(format!("{at}.responders"), people)),
        };
        Ok(Route { channel: Channel::Slack, chat, responders })
    }
}
