//! What all parts of one stand-in share: its workspace, clock, chance, faults, and the way to tell that something changed.
//!
//! One lock around all state, never held while waiting. Used by every part beside it; tests see it only through the handle.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::calls::Call;
use super::chance::{Chance, Clock};
use super::config::{Channel, Config, User};
use super::deliver::Delivery;
use super::faults::Faults;
use super::message::Message;
use super::pace::Pace;
use super::socket::Sockets;

/// One stand-in.
pub(super) struct Shared {
    pub(super) config: Config,
    /// `http://127.0.0.1:PORT`
    pub(super) url: String,
    pub(super) clock: Clock,
    pub(super) chance: Chance,
    pub(super) faults: Faults,
    pub(super) http: reqwest::Client,
    pub(super) stop: CancellationToken,
    changed: watch::Sender<u64>,
    state: Mutex<State>,
}

/// What changes.
#[derive(Default)]
pub(super) struct State {
    pub(super) interactivity_url: Option<String>,
    pub(super) events_url: Option<String>,
    pub(super) channels: Vec<Channel>,
    /// In the order they were posted, all channels.
    pub(super) messages: Vec<Message>,
    pub(super) calls: Vec<Call>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) pace: Pace,
    pub(super) sockets: Sockets,
    pub(super) triggers: HashMap<String, Trigger>,
    pub(super) response_urls: HashMap<String, ResponseUrl>,
    pub(super) views: Vec<Value>,
    last_ts: u128,
}

/// A `trigger_id`: good once, for three seconds.
#[derive(Debug, Clone)]
pub(super) struct Trigger {
    pub(super) issued: Duration,
    pub(super) user: String,
    pub(super) used: bool,
}

/// A `response_url`: good five times within thirty minutes.
#[derive(Debug, Clone)]
pub(super) struct ResponseUrl {
    pub(super) issued: Duration,
    pub(super) uses: u8,
    pub(super) channel: String,
    pub(super) ts: String,
    pub(super) user: String,
}

impl Shared {
    pub(super) fn new(config: Config, url: String, http: reqwest::Client) -> Self {
        let state = State {
            interactivity_url: config.interactivity_url.clone(),
            events_url: config.events_url.clone(),
            channels: config.channels.clone(),
            ..State::default()
        };
        Self {
            clock: Clock::new(),
            chance: Chance::new(config.seed),
            faults: Faults::default(),
            stop: CancellationToken::new(),
            changed: watch::Sender::new(0),
            state: Mutex::new(state),
            config,
            url,
            http,
        }
    }

    /// The state, locked. Never kept over an `await`.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes the page and waiting tests.
    pub(super) fn touch(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Changes, as they come.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A person or the bot.
    pub(super) fn user(&self, id: &str) -> Option<User> {
        if id == self.config.bot_user {
            return Some(User { id: id.into(), name: self.config.app_name.clone(), team: self.config.team_id.clone() });
        }
        self.config.users.iter().find(|user| user.id == id).cloned()
    }

    /// A fresh `trigger_id` for this person.
    pub(super) fn trigger(&self, state: &mut State, user: &str) -> String {
        let id = format!(
            "{}.{}.{}",
            self.chance.next() % 1_000_000_000,
            self.chance.next() % 1_000_000,
            self.chance.word(32)
        );
        let trigger = Trigger { issued: self.clock.now(), user: user.into(), used: false };
        state.triggers.insert(id.clone(), trigger);
        id
    }

    /// A fresh `response_url` for this person and message.
    pub(super) fn response_url(&self, state: &mut State, user: &str, channel: &str, ts: &str) -> String {
        let path = format!(
            "/actions/{}/{}/{}",
            self.config.team_id,
            self.chance.next() % 1_000_000_000_000,
            self.chance.word(24)
        );
        let entry = ResponseUrl {
            issued: self.clock.now(),
            uses: 0,
            channel: channel.into(),
            ts: ts.into(),
            user: user.into(),
        };
        state.response_urls.insert(path.clone(), entry);
        self.public(&path)
    }

    /// The address at which the app reaches a path of this.
    pub(super) fn public(&self, path: &str) -> String {
        format!("{}{path}", self.config.public_url.as_ref().unwrap_or(&self.url))
    }

    /// Stores a message under a fresh `ts`, which is returned.
    pub(super) fn store(&self, state: &mut State, mut message: Message) -> Message {
        message.ts = state.mint_ts(self.clock.now());
        super::message::complete(&mut message.blocks, &self.chance);
        state.messages.push(message.clone());
        message
    }

    /// How a team is told in a payload: `null` for an organisation-wide install.
    pub(super) fn team_json(&self) -> Value {
        match &self.config.enterprise_install {
            Some(_) => Value::Null,
            None => json!({"id": self.config.team_id, "domain": "askd-sim"}),
        }
    }

    /// How the organisation is told in a payload.
    pub(super) fn enterprise_json(&self) -> Value {
        match &self.config.enterprise_install {
            Some(id) => json!({"id": id, "name": "askd-sim"}),
            None => Value::Null,
        }
    }
}

impl State {
    fn mint_ts(&mut self, now: Duration) -> String {
        self.last_ts = now.as_micros().max(self.last_ts + 1);
        format!("{}.{:06}", self.last_ts / 1_000_000, self.last_ts % 1_000_000)
    }

    pub(super) fn channel(&self, id: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.id == id)
    }

    /// Whether there is a message in the thread of this one.
    pub(super) fn has_replies(&self, channel: &str, ts: &str) -> bool {
        let in_its_thread = |other: &&Message| other.thread_ts.as_deref() == Some(ts) && other.channel == channel;
        self.messages.iter().filter(in_its_thread).any(|reply| !reply.deleted && reply.only_for.is_none())
    }

    /// A message that is there.
    pub(super) fn message(&mut self, channel: &str, ts: &str) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.channel == channel && message.ts == ts && !message.deleted)
    }
}
