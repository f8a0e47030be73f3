//! `[slack]`, and the routes that lead there.

use super::group::RouteSettings;
use super::mistakes::Mistakes;
use super::values::{ANY, Secrets, api_url, list, seconds, secret, secrets};
use super::{Settings, is_loopback_url};
use askd_core::Responders;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
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
    /// Slack posts webhooks, signed with one of these.
    Webhooks(Secrets),
    /// askd opens a socket with this token (`xapp-...`), so that Slack need not reach this host.
    Socket(SecretString),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlackShape {
    #[serde(default, deserialize_with = "secret")]
    bot_token: Option<SecretString>,
    #[serde(default, deserialize_with = "secrets")]
    signing_secret: Option<Secrets>,
    #[serde(default, deserialize_with = "secret")]
    app_token: Option<SecretString>,
    #[serde(deserialize_with = "list")]
    team_ids: Vec<String>,
    #[serde(deserialize_with = "api_url")]
    api_url: String,
    #[serde(deserialize_with = "seconds::<0, ANY, _>")]
    pace: Duration,
}

impl SlackSettings {
    /// What Slack signs its webhooks with, if it posts any.
    pub fn signing_secrets(&self) -> Option<&Secrets> {
        match &self.transport {
            SlackTransport::Webhooks(secrets) => Some(secrets),
            SlackTransport::Socket(_) => None,
        }
    }
}

impl SlackShape {
    /// The section; `None` if it has no bot token.
    pub(super) fn check(self, mistakes: &mut Mistakes) -> Option<SlackSettings> {
        let Self { bot_token, signing_secret, app_token, team_ids, api_url, pace } = self;
        check_token("bot_token", bot_token.as_ref(), "xoxb-", "a Bot User OAuth Token", mistakes);
        check_token("app_token", app_token.as_ref(), "xapp-", "an app-level token", mistakes);
        if pace.is_zero() && !is_loopback_url(&api_url) {
            let why = "\"0s\" is for tests with a loopback api_url; Slack allows one post a second: write \"1s\"";
            mistakes.add("slack.pace", why);
        }
        let transport = match (app_token, signing_secret) {
            (Some(token), _) => SlackTransport::Socket(token),
            (None, Some(secret)) => SlackTransport::Webhooks(secret),
            (None, None) if bot_token.is_none() || mistakes.any_in("slack") => return None,
            (None, None) => {
                let why = "missing: without it (Basic Information of the app) no click can be verified; or set \
                           slack.app_token for Socket Mode";
                mistakes.add("slack.signing_secret", why);
                return None;
            }
        };
        Some(SlackSettings { bot_token: bot_token?, transport, team_ids, api_url, pace })
    }
}

/// Refuses another kind of Slack token in this place. The error never repeats the token.
fn check_token(key: &str, token: Option<&SecretString>, prefix: &str, name: &str, mistakes: &mut Mistakes) {
    let Some(token) = token.map(SecretString::expose_secret) else { return };
    // Slack puts another prefix in front of a token that it rotates.
    if token.strip_prefix("xoxe.").unwrap_or(token).starts_with(prefix) {
        return;
    }
    let other = [("xoxb-", "slack.bot_token"), ("xapp-", "slack.app_token")];
    let swapped = other.iter().find(|(other, _)| token.starts_with(other));
    let swapped = swapped.map(|(_, place)| format!("; this one belongs in {place}")).unwrap_or_default();
    let why = format!("not {name}, which begins with {prefix}{swapped} (see docs/slack.md)");
    mistakes.add(format!("slack.{key}"), why);
}

/// A capital letter and what follows it in the ids of Slack.
fn is_id(text: &str, kinds: &[char]) -> bool {
    text.starts_with(kinds) && text.len() > 1 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

/// The first id of one of these kinds in a text: a link, or the id itself.
pub fn slack_id<'a>(text: &'a str, kinds: &[char]) -> Option<&'a str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).find(|part| is_id(part, kinds))
}

pub(super) fn check_route(route: &mut RouteSettings, at: &str, settings: &Settings, mistakes: &mut Mistakes) {
    let chat = &route.chat;
    if !is_id(chat, &['C', 'G', 'D']) {
        let why = "is not the id of a Slack channel like \"C0123ABCD\" (last line of the channel's details)";
        mistakes.add(format!("{at}.chat"), format!("{chat:?} {why}"));
    }
    let people = "say who can answer: responders = [\"U0123ABCD\"] (member ids, from people's profiles), or \
                  responders = \"anyone\" for every member of your workspace in the channel";
    let responders = format!("{at}.responders");
    match &route.responders {
        None => mistakes.add(responders, people),
        Some(Responders::Anyone) => {}
        Some(Responders::Only(ids)) => {
            if let Some(id) = ids.iter().find(|id| !is_id(id, &['U', 'W'])) {
                let why = "is not a member id of Slack, so that this person could never answer";
                mistakes.add(responders, format!("{id:?} {why}; {people}"));
            }
        }
    }
    if settings.slack.is_none() && !mistakes.any_in("slack") {
        let why =
            format!("missing: {at} asks in Slack; set the bot token (xoxb-..., see docs/slack.md), or bot_token_file");
        mistakes.add("slack.bot_token", why);
    }
}
