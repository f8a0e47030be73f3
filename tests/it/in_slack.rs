//! What people do and see in Slack: a world with the stand-in of Slack switched on.

use crate::harness::{Part, SOON, World};
use askd_sim::slack::{APP_TOKEN, BOT_TOKEN, Config, Message, SIGNING_SECRET, Slack};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub(crate) const CHANNEL: &str = "C0AGENTS";
pub(crate) const ALICE: &str = "U0ALICE";
pub(crate) const BOB: &str = "U0BOB";
pub(crate) const STRANGER: &str = "U0STRANGER";

/// How the daemon is told what people do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Http,
    Socket,
}

/// How Slack and the daemon find each other.
pub(crate) struct Meeting {
    mode: Mode,
    /// Where the webhooks are, if not beside the inbox.
    webhooks: Option<String>,
    /// Whether a start waits until what people do comes in.
    waits: bool,
}

/// What a world with Slack is made of.
pub(crate) struct InSlack {
    meeting: Meeting,
    /// Of the stand-in.
    sim: Config,
    /// The keys of `[slack]`.
    keys: String,
    /// `[groups.*]`, and whatever else.
    groups: String,
    /// Further settings.
    more: String,
    process: bool,
}

/// One group, `research`, whose only route is a channel in which alice and bob may answer; no pace.
pub(crate) fn in_slack(mode: Mode) -> InSlack {
    let key = match mode {
        Mode::Http => format!("signing_secret = \"{SIGNING_SECRET}\""),
        Mode::Socket => format!("app_token = \"{APP_TOKEN}\""),
    };
    InSlack {
        meeting: Meeting { mode, webhooks: None, waits: true },
        sim: Config { pace: Duration::ZERO, ..Config::default() },
        keys: format!("bot_token = \"{BOT_TOKEN}\"\n{key}\npace = \"0s\"\n"),
        groups: format!(
            "[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{BOB}\"] }}]\n"
        ),
        more: String::new(),
        process: false,
    }
}

impl InSlack {
    /// Slack's webhooks have this listener of their own.
    pub(crate) fn webhooks_at(mut self, port: u16) -> Self {
        self.meeting.webhooks = Some(format!("http://127.0.0.1:{port}"));
        self.more = format!("[http]\nwebhook_listen = \"127.0.0.1:{port}\"\n");
        self
    }

    /// A start does not wait until what people do comes in.
    pub(crate) fn without_waiting(mut self) -> Self {
        self.meeting.waits = false;
        self
    }

    /// The daemon is the real binary.
    pub(crate) fn with_binary(mut self) -> Self {
        self.process = true;
        self
    }

    pub(crate) fn sim(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.sim);
        self
    }

    /// With another text in the keys of `[slack]`.
    pub(crate) fn key(mut self, from: &str, to: &str) -> Self {
        self.keys = self.keys.replace(from, to);
        self
    }

    /// With these groups instead.
    pub(crate) fn groups(mut self, groups: &str) -> Self {
        groups.clone_into(&mut self.groups);
        self
    }

    /// With these settings, too.
    pub(crate) fn more(mut self, settings: &str) -> Self {
        self.more.push_str(settings);
        self
    }

    /// With a pause between two messages: without one they can overtake each other on their way.
    pub(crate) fn pace(mut self, pace: &str) -> Self {
        self.keys = self.keys.replace("pace = \"0s\"", &format!("pace = \"{pace}\""));
        self
    }

    /// With another text in the groups.
    pub(crate) fn group(mut self, from: &str, to: &str) -> Self {
        self.groups = self.groups.replace(from, to);
        self
    }

    /// The stand-in and the settings, and no daemon yet.
    pub(crate) async fn prepare(self) -> World {
        let slack = Slack::start(self.sim).await.unwrap();
        let text = format!("{}[slack]\napi_url = \"{}\"\n{}\n{}", self.more, slack.api_url(), self.keys, self.groups);
        let world = World::empty().config(&text);
        let mut world = if self.process { world.with_binary() } else { world };
        (world.slack, world.meeting) = (Part(Some(slack)), Part(Some(self.meeting)));
        world
    }

    pub(crate) async fn start(self) -> World {
        let mut world = self.prepare().await;
        world.begin().await;
        world
    }
}

/// A test's own file.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

impl World {
    /// Tells Slack where the daemon is, and waits until what people do comes in, as the story wants it.
    pub(crate) async fn connect_slack(&self) {
        let Meeting { mode, webhooks, waits } = &*self.meeting;
        let url = webhooks.clone().unwrap_or_else(|| self.url());
        self.slack.set_interactivity_url(Some(format!("{url}/slack/interactions")));
        match mode {
            _ if !waits => {}
            Mode::Http => {
                self.slack.set_events_url(&format!("{url}/slack/events")).await.expect("the challenge is echoed");
            }
            Mode::Socket => {
                self.slack.wait_for(SOON, || (self.slack.sockets() > 0).then_some(())).await.expect("a socket");
            }
        }
    }

    /// The newest card of a channel that can be used.
    pub(crate) async fn card(&self, channel: &str) -> Message {
        self.passes(SOON, "a card", || self.live(channel).pop()).await
    }

    /// Messages of a channel that can still be used.
    pub(crate) fn live(&self, channel: &str) -> Vec<Message> {
        self.slack.messages(channel).into_iter().filter(|message| !message.elements().is_empty()).collect()
    }

    /// Waits until a message says this, in its blocks or in the text for notices.
    pub(crate) async fn says(&self, channel: &str, ts: &str, text: &str) -> Message {
        let said = |message: &Message| message.visible_text().contains(text) || message.text.contains(text);
        let says = || self.slack.message(channel, ts).filter(said);
        self.passes(SOON, &format!("a card that says {text:?}"), says).await
    }

    /// Waits until this person is told something privately; the newest of what they were told.
    pub(crate) async fn told(&self, user: &str, text: &str) -> Message {
        let told = || self.slack.ephemerals(user).into_iter().rfind(|message| message.text.contains(text));
        self.passes(SOON, &format!("{user} to be told {text:?}"), told).await
    }

    /// Waits until this is in a file of an open ask, and the agent has been told: then the daemon knows it, too. Of
    /// one that is settled nobody is told.
    pub(crate) async fn stored(&self, text: &str) {
        let found = || {
            let record = self.store().into_values().find(|file| file.contains(text))?;
            let record: Value = serde_json::from_str(&record).ok()?;
            if record["stage"]["name"] == "settled" {
                return Some(());
            }
            let responses = self.group(record["source_group"].as_str()?).path.join("responses");
            let status = responses.join(format!("{}.status", record["request_id"].as_str()?));
            std::fs::read_to_string(status).ok()?.contains("\"open\"").then_some(())
        };
        self.passes(SOON, &format!("{text} to be stored"), found).await;
    }
}

/// An HTTP client with a time limit. It calls without TLS, so it does not read the system's certificates.
pub(crate) fn client() -> reqwest::Client {
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(SOON).build().unwrap()
}
