//! The part of `askd init` about Slack: the app, its tokens, the channel, and the people who can answer.

use super::asking::{Asked, Question};
use super::files;
use super::form::{Field, Form};
use super::plan::{Plan, Section};
use super::{is_served, quoted};
use crate::cli::{Exit, FAILED, USAGE, say};
use crate::clock::Clock;
use crate::host::SlackVisit;
use crate::host::settings::{RouteSettings, Settings, slack_id};
use crate::random;
use anyhow::Context as _;
use askd_core::{ChannelName, Group};
use clap::Args;
use std::net::{Ipv4Addr, SocketAddr};
use url::form_urlencoded::byte_serialize;

const MANIFEST: &str = include_str!("../../../deploy/slack-manifest.yaml");
/// The group of the card that people press.
const PRESSES: &str = "askd-init";

/// What is asked about Slack.
#[derive(Debug, Args)]
pub(super) struct SlackFlags {
    /// The app's Bot User OAuth Token; prefer the variable: other users can see command lines.
    #[arg(long, value_name = "TOKEN", env = "ASKD_SLACK_BOT_TOKEN", hide_env_values = true)]
    slack_bot_token: Option<String>,
    /// Its app-level token for Socket Mode.
    #[arg(long, value_name = "TOKEN", env = "ASKD_SLACK_APP_TOKEN", hide_env_values = true)]
    slack_app_token: Option<String>,
    /// The channel: its link or id.
    #[arg(long, value_name = "LINK")]
    slack_channel: Option<String>,
    /// A person who can answer: the link of the profile, or the member id. Repeatable [default: who presses a button].
    #[arg(long, value_name = "LINK")]
    slack_responder: Vec<String>,
}

impl SlackFlags {
    /// The flag that says other than these routes.
    pub(super) fn other_than(&self, routes: &[RouteSettings]) -> Option<&'static str> {
        let slack = || routes.iter().filter(|route| route.channel == ChannelName::SLACK);
        let is_there =
            |text: &String| slack_id(text, &['C', 'G', 'D']).is_some_and(|id| slack().any(|route| route.chat == id));
        let may_answer = |text: &str| {
            let id = slack_id(text, &['U', 'W']).unwrap_or(text);
            slack().any(|route| route.responders.as_ref().is_some_and(|people| people.includes(id)))
        };
        let people =
            || self.slack_responder.iter().flat_map(|text| text.split([' ', ','])).filter(|text| !text.is_empty());
        let channel = self.slack_channel.as_ref().filter(|text| !is_there(text)).map(|_| "--slack-channel");
        channel.or_else(|| people().any(|text| !may_answer(text)).then_some("--slack-responder"))
    }

    /// Sets the app up if it is not, and returns the group's route.
    pub(super) fn route(&self, form: &Form, plan: &mut Plan, group: &Group, asked: &Asked<'_>) -> Result<String, Exit> {
        if plan.settings()?.slack.is_none() {
            plan.takes("slack")?;
            if let Some(key) = plan.key_of("slack", "app_token") {
                let what = format!("{}: [slack] has {key}, but not all that Slack needs", plan.file.display());
                return Err(Exit::new(USAGE, format!("{what}. Take {key} out, and run askd init again")));
            }
            let keys = self.app(form, plan, asked)?;
            let comment =
                "# The bot that posts the cards, and the token with which askd hears of clicks (Socket Mode).\n";
            plan.set(&Section { name: "slack", comment, keys: &keys })?;
        }
        let visit = visit(&plan.settings()?).map_err(|why| Exit::new(FAILED, why))?;
        let channel = Field {
            flag: "--slack-channel",
            question: "Invite the app to the channel (/invite @askd), and paste the channel's link",
            ..Field::default()
        };
        let chat = form.ask(channel, self.slack_channel.as_deref(), |text| {
            let chat = slack_id(text, &['C', 'G', 'D']).ok_or_else(|| {
                format!("{text:?} holds no channel id like C0123ABCD (right-click the channel, Copy link)")
            })?;
            asked.runtime.block_on(visit.is_in(chat))?;
            Ok(chat.to_owned())
        })?;
        let people = self.people(form, plan, &chat, group, asked)?;
        Ok(format!("{{ channel = \"slack\", chat = {chat:?}, responders = {people:?} }}"))
    }

    /// Who can answer: named, or found out by a button.
    fn people(
        &self,
        form: &Form,
        plan: &Plan,
        chat: &str,
        group: &Group,
        asked: &Asked<'_>,
    ) -> Result<Vec<String>, Exit> {
        let field = Field {
            flag: "--slack-responder",
            question: "Who can answer? Paste the links of their profiles, or their member ids",
            ..Field::default()
        };
        let ids = |text: &str| {
            let id = |text: &str| {
                let id = slack_id(text, &['U', 'W']).map(str::to_owned);
                id.ok_or_else(|| format!("{text:?} holds no member id like U0123ABCD"))
            };
            let ids = text.split([' ', ',']).filter(|text| !text.is_empty()).map(id).collect::<Result<Vec<_>, _>>()?;
            if ids.is_empty() { Err("at least one person has to be able to answer".to_owned()) } else { Ok(ids) }
        };
        if !self.slack_responder.is_empty() {
            let named = self.slack_responder.iter().map(|text| form.ask(field, Some(text), ids));
            return Ok(named.collect::<Result<Vec<_>, _>>()?.concat());
        }
        match no_button(&plan.settings()?)? {
            Some(why) => {
                say(why)?;
                form.ask(field, None, ids)
            }
            None => pressed(form, plan, chat, group, asked),
        }
    }

    /// The tokens, each tried as soon as it is there, and the keys that name their files.
    fn app(&self, form: &Form, plan: &Plan, asked: &Asked<'_>) -> Result<[(&'static str, String); 2], Exit> {
        let typed = |text: &str| format!("{text:?}");
        let manifest = plan.beside("slack-manifest.yaml");
        files::put(&manifest, MANIFEST, 0o644)?;
        if form.terminal {
            say(&steps(&manifest.display().to_string()))?;
        }
        let field = |flag, question| Field { flag, question, secret: true, ..Field::default() };
        let bot = field("--slack-bot-token", "Bot User OAuth Token (xoxb-...; not shown)");
        let bot = form.ask(bot, self.slack_bot_token.as_deref(), |token| {
            let mut keys = vec![("bot_token", typed(token))];
            if plan.key_of("slack", "signing_secret").is_none() {
                keys.push(("signing_secret", typed("-")));
            }
            let settings = plan.trying("slack", &keys)?;
            let who = asked.runtime.block_on(visit(&settings)?.who())?;
            say(&format!("Slack knows it: {who}.")).map_err(|error| error.to_string())?;
            Ok(token.to_owned())
        })?;
        let app = field("--slack-app-token", "App-level token (xapp-...; not shown)");
        let app = form.ask(app, self.slack_app_token.as_deref(), |token| {
            let settings = plan.trying("slack", &[("bot_token", typed(&bot)), ("app_token", typed(token))])?;
            asked.runtime.block_on(visit(&settings)?.connects())?;
            say("Socket Mode connects.").map_err(|error| error.to_string())?;
            Ok(token.to_owned())
        })?;
        let bot = files::secret(&plan.secrets(), "slack_bot_token", &bot)?;
        let app = files::secret(&plan.secrets(), "slack_app_token", &app)?;
        Ok([("bot_token_file", quoted(&bot)), ("app_token_file", quoted(&app))])
    }
}

fn visit(settings: &Settings) -> Result<SlackVisit, String> {
    let slack = settings.slack.as_ref().ok_or("Slack is not set up")?;
    SlackVisit::new(slack, Clock::system()).map_err(|error| error.to_string())
}

/// Why no button can find out here who can answer. A second daemon with the same app would get clicks that are meant for
/// the first one, and would acknowledge and lose them.
fn no_button(settings: &Settings) -> Result<Option<&'static str>, Exit> {
    let webhooks = settings.slack.as_ref().is_some_and(|slack| slack.signing_secrets().is_some());
    Ok(if is_served(settings)? {
        Some(
            "A daemon runs on this data folder, and clicks in Slack come to it. So no button finds out who can answer.",
        )
    } else if webhooks {
        Some("Clicks in Slack come by webhooks, which reach the daemon alone. So no button finds out who can answer.")
    } else if settings.postgres.url.is_some() {
        Some("Clicks in Slack may come to another daemon on this database. So no button finds out who can answer.")
    } else {
        None
    })
}

/// Posts a card, and returns who pressed its button.
fn pressed(form: &Form, plan: &Plan, chat: &str, group: &Group, asked: &Asked<'_>) -> Result<Vec<String>, Exit> {
    let anyone = format!("routes = [{{ channel = \"slack\", chat = {chat:?}, responders = \"anyone\" }}]");
    let mut settings = plan.with(&format!("\n[groups.{PRESSES}]\n{anyone}\n")).map_err(|why| Exit::new(FAILED, why))?;
    let folder = std::env::temp_dir().join(format!("askd-init-{}", random::unique()));
    settings.data_dir.clone_from(&folder);
    settings.http.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.http.webhook_listen = None;
    let presses: Group = PRESSES.parse().map_err(|_| Exit::new(FAILED, PRESSES))?;
    let context = format!("Everyone who presses it can answer the questions of {group}. Sent by askd init.");
    let question =
        Question { text: "Press the button if you will answer questions here.", option: "I answer", context: &context };
    let mut people = Vec::new();
    let done = loop {
        let told = |_: &str| Ok(say("Now press \"I answer\" on the card in the channel.")?);
        match asked.ask(settings.clone(), &presses, &question, told) {
            Ok(Some(id)) if !people.contains(&id) => {
                say(&format!("{id} can answer."))?;
                people.push(id);
            }
            Ok(_) => {}
            Err(error) => break Err(error),
        }
        let more = Field { flag: "", question: "Can someone else answer, too?", usual: Some("no"), ..Field::default() };
        if form.choose(more, None, &[("no", "no"), ("yes", "yes, they press the next card")])? == "no" {
            break Ok(people);
        }
    };
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    done
}

fn steps(manifest: &str) -> String {
    let plain: Vec<&str> = MANIFEST.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let link: String = byte_serialize(plain.join("\n").as_bytes()).collect();
    format!(
        "\nSlack, in three steps:\n1. Open this link, pick the workspace, Create (or: Create New App, From a manifest, {manifest}):\n   \
         https://api.slack.com/apps?new_app=1&manifest_yaml={link}\n2. Install App, Install to Workspace, Allow: copy the Bot \
         User OAuth Token.\n3. Basic Information, App-Level Tokens, Generate, scope connections:write: copy the token.\n"
    )
}
