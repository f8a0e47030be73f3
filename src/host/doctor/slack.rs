//! Slack: the tokens and their scopes, each chat and responder of a route, the socket or the webhooks.

use super::Findings;
use super::probe::{Probe, Said, not_taken, signature, webhooks};
use crate::host::channel::DOCTORS_CHALLENGE;
use crate::host::settings::{Secrets, Settings, SlackSettings, SlackTransport};
use askd_core::{ChannelName, Responders, wording};
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Calls the Web API with one token.
struct Api<'a> {
    probe: &'a Probe,
    slack: &'a SlackSettings,
}

impl Api<'_> {
    async fn call(
        &self,
        token: &SecretString,
        method: &str,
        arguments: &[(&str, &str)],
    ) -> Result<(Said, Value), String> {
        let url = format!("{}/{method}", self.slack.api_url);
        let read = Url::parse_with_params(&url, arguments).map_err(|error| error.to_string())?;
        // Methods that read take their arguments in the address.
        let call = |client: &reqwest::Client| {
            let call = if arguments.is_empty() { client.post(&url) } else { client.get(read) };
            call.bearer_auth(token.expose_secret())
        };
        let said = self.probe.call(&url, call).await?;
        let answer = said.json();
        if answer.is_object() { Ok((said, answer)) } else { Err(format!("HTTP status {}", said.status)) }
    }

    async fn as_bot(&self, method: &str, arguments: &[(&str, &str)]) -> Result<Value, String> {
        Ok(self.call(&self.slack.bot_token, method, arguments).await?.1)
    }
}

fn code(answer: &Value) -> Option<&str> {
    answer["error"].as_str()
}

pub(super) async fn check(found: &mut Findings, probe: &Probe, slack: &SlackSettings, settings: &Settings, runs: bool) {
    let api = Api { probe, slack };
    let routes = settings.routes_to(ChannelName::SLACK);
    let chats: BTreeSet<&str> = routes.iter().map(|route| route.chat.as_str()).collect();
    match api.call(&slack.bot_token, "auth.test", &[]).await {
        Err(why) => {
            found.fault("slack connection", format!("{} cannot be used: {why}", slack.api_url), wording::UNREACHABLE);
            for check in ["slack token", "slack scopes", "slack chats", "slack people"] {
                found.not_checked(check, "slack connection");
            }
        }
        Ok((said, answer)) => {
            found.ok("slack connection", &slack.api_url);
            found.clock("slack", said.date, probe.clock.now());
            if let Some(code) = code(&answer) {
                found.fault("slack token", code, wording::slack_fix(code, None));
                for check in ["slack scopes", "slack chats", "slack people"] {
                    found.not_checked(check, "slack token");
                }
            } else {
                let name = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
                found.ok("slack token", format!("workspace {}, as {}", name("team"), name("user")));
                let scopes = scopes(found, said.scopes, &chats);
                for chat in &chats {
                    chat_of(found, &api, chat, &scopes).await;
                }
                let people = routes.iter().filter_map(|route| match &route.responders {
                    Some(Responders::Only(ids)) => Some(ids.iter().map(String::as_str)),
                    _ => None,
                });
                for person in people.flatten().collect::<BTreeSet<&str>>() {
                    person_of(found, &api, person, &scopes).await;
                }
            }
        }
    }
    match &slack.transport {
        SlackTransport::Socket(app_token) => socket(found, &api, app_token).await,
        SlackTransport::Webhooks(secrets) => webhook(found, probe, secrets, settings, runs).await,
    }
}

/// The scopes that the bot has, if Slack says so.
fn scopes(found: &mut Findings, told: Option<String>, chats: &BTreeSet<&str>) -> Vec<String> {
    let Some(told) = told else {
        found.not_checked("slack scopes", "Slack does not name them");
        return Vec::new();
    };
    let held: Vec<String> = told.split(',').map(|scope| scope.trim().to_owned()).collect();
    let history = chats.iter().filter_map(|chat| match chat.as_bytes().first() {
        // The id does not say whether the channel is private. Slack does, when askd looks into it.
        Some(b'C') => Some(&["channels:history", "groups:history"][..]),
        Some(b'G') => Some(&["groups:history"][..]),
        Some(b'D') => Some(&["im:history"][..]),
        _ => None,
    });
    // Of each, one is enough.
    let needed: BTreeSet<&[&str]> = history.chain([&["chat:write"][..]]).collect();
    let lacks = |scopes: &&[&str]| !scopes.iter().any(|scope| held.iter().any(|has| has == scope));
    let missing: Vec<String> = needed.into_iter().filter(lacks).map(|scopes| scopes.join(" or ")).collect();
    if missing.is_empty() {
        found.ok("slack scopes", "all that askd needs");
    } else {
        let missing = missing.join(", ");
        found.fault(
            "slack scopes",
            format!("the app lacks {missing}"),
            wording::slack_fix("missing_scope", Some(&missing)),
        );
    }
    held
}

async fn chat_of(found: &mut Findings, api: &Api<'_>, chat: &str, scopes: &[String]) {
    let check = format!("slack chat {chat}");
    let sees_archives = scopes.iter().any(|scope| matches!(scope.as_str(), "channels:read" | "groups:read"));
    if sees_archives
        && let Ok(answer) = api.as_bot("conversations.info", &[("channel", chat)]).await
        && answer["channel"]["is_archived"] == true
    {
        return found.fault(check, "it is archived", wording::slack_fix("is_archived", None));
    }
    if found.has_fault("slack scopes") {
        return found.not_checked(check, "slack scopes");
    }
    match api.as_bot("conversations.history", &[("channel", chat), ("limit", "1")]).await {
        Ok(answer) => match code(&answer) {
            None if sees_archives => found.ok(check, "the bot is in it"),
            None => found.ok(
                check,
                "the bot is in it; whether it is archived is not checked without the scope channels:read or groups:read",
            ),
            Some(code) => found.fault(check, code, wording::slack_fix(code, answer["needed"].as_str())),
        },
        Err(why) => found.not_checked(check, why),
    }
}

async fn person_of(found: &mut Findings, api: &Api<'_>, person: &str, scopes: &[String]) {
    let check = format!("slack person {person}");
    if !scopes.iter().any(|scope| scope == "users:read") {
        return found.not_checked(check, "the app has no users:read, which askd needs for this check alone");
    }
    let fix = "correct responders of the route: a member's id is in their profile, under the three dots";
    match api.as_bot("users.info", &[("user", person)]).await {
        Ok(answer) => match (code(&answer), &answer["user"]) {
            (Some(code), _) => found.fault(check, code, fix),
            (None, user) if user["deleted"] == true => found.fault(check, "the account was deactivated", fix),
            (None, user) if user["is_bot"] == true => found.fault(check, "this is a bot, not a person", fix),
            (None, user) => found.ok(check, user["name"].as_str().unwrap_or_default()),
        },
        Err(why) => found.not_checked(check, why),
    }
}

async fn socket(found: &mut Findings, api: &Api<'_>, app_token: &SecretString) {
    if found.has_fault("slack connection") {
        return found.not_checked("slack socket", "slack connection");
    }
    match api.call(app_token, "apps.connections.open", &[]).await {
        Ok((_, answer)) => match code(&answer) {
            None => found.ok("slack socket", "Socket Mode can connect"),
            Some(code) => found.fault("slack socket", code, wording::slack_socket_fix(Some(code))),
        },
        Err(why) => found.not_checked("slack socket", why),
    }
}

/// Whether the daemon takes what is signed with each secret of these settings.
async fn webhook(found: &mut Findings, probe: &Probe, secrets: &Secrets, settings: &Settings, runs: bool) {
    if !runs {
        return found.not_checked("slack webhook", "daemon");
    }
    let url = format!("{}/slack/events", webhooks(settings));
    let body = json!({"type": "url_verification", "challenge": DOCTORS_CHALLENGE}).to_string();
    let seconds = probe.clock.now().as_millis() / 1000;
    for secret in secrets.all() {
        let signed = format!("v0={}", signature(secret, format!("v0:{seconds}:{body}").as_bytes()));
        let call = |client: &reqwest::Client| {
            let call = client.post(&url).header("content-type", "application/json").body(body.clone());
            call.header("x-slack-request-timestamp", seconds).header("x-slack-signature", signed)
        };
        match probe.call(&url, call).await {
            Ok(said) if said.text.contains(DOCTORS_CHALLENGE) => {}
            Ok(said) => {
                let (what, fix) = not_taken(said.status, "slack.signing_secret");
                return found.fault("slack webhook", what, fix);
            }
            Err(why) => {
                let fix = "check http.webhook_listen, and restart the daemon";
                return found.fault("slack webhook", format!("{url}: {why}"), fix);
            }
        }
    }
    found.ok("slack webhook", "the daemon takes this signing secret");
}
