//! Slack: cards with buttons and forms. Posts, looks, closes and tells people privately; what they do comes in by
//! webhooks or over a socket, to one [`desk`].
//!
//! `render` and `text` are pure; `client` and `pace` know how to call; nothing here decides what becomes of an ask.

mod client;
mod desk;
mod history;
mod pace;
mod payload;
mod port;
mod render;
mod socket;
mod text;
mod verified;
mod webhooks;

use crate::clock::Clock;
use crate::host::broker::Broker;
use crate::host::channel::signed::Webhooks;
use crate::host::ctx::Ctx;
use crate::host::settings::{SlackDoor, SlackSettings};
use askd_core::{Content, Group, Rejection, Time};
use axum::Router;
use client::{CallError, Client};
use desk::Desk;
use pace::Pace;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long a start waits until we know who we are in Slack.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Longest pause before Slack is asked again who we are.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// How often a private note is tried.
const NOTE_TRIES: u32 = 3;

/// Slack, as far as this workspace's app reaches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slack(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: SlackSettings,
    client: Client,
    pace: Arc<Pace>,
    ctx: Ctx,
    started: Time,
    me: OnceCell<Me>,
    /// What the log last said about Slack not knowing us.
    said: Mutex<Option<CallError>>,
}

/// Who the bot is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Me {
    team_id: String,
    team: String,
    user: String,
    bot_id: Option<String>,
    enterprise_id: Option<String>,
    is_enterprise_install: bool,
}

impl Slack {
    /// Not connected to anything yet; that may come and go.
    pub fn new(settings: SlackSettings, ctx: Ctx) -> io::Result<Self> {
        let pace = Arc::new(Pace::new(settings.pace, ctx.clock().clone()));
        let client = Client::new(&settings, Arc::clone(&pace)).map_err(io::Error::other)?;
        let (me, started) = (OnceCell::new(), ctx.clock().now());
        Ok(Self(Arc::new(Inner { settings, client, pace, ctx, started, me, said: Mutex::default() })))
    }

    /// Whether a card of this content is within Slack's limits.
    pub fn fits(group: &Group, content: &Content) -> Result<(), Rejection> {
        render::fits(group, content)
    }

    /// Finds out who we are and, with an app token, connects. Goes on in the background until the daemon stops.
    pub fn start(&self, broker: &Broker) {
        let slack = self.clone();
        self.0.ctx.spawn(async move { slack.introduce().await });
        if let SlackDoor::Socket(token) = &self.0.settings.door {
            let (desk, token) = (Desk::new(self.clone(), broker.clone()), token.clone());
            self.0.ctx.serve(async move { socket::run(&desk, &token).await });
        }
    }

    /// The addresses Slack posts to, if it does.
    #[must_use]
    pub fn routes(&self, broker: &Broker, webhooks: &Webhooks) -> Option<Router> {
        let SlackDoor::Webhooks(secret) = &self.0.settings.door else { return None };
        let desk = Desk::new(self.clone(), broker.clone());
        Some(webhooks::routes(desk, secret.clone(), webhooks.clone()))
    }

    /// Whether Slack did not answer when it was called last.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.client.is_away()
    }

    fn clock(&self) -> &Clock {
        self.0.ctx.clock()
    }

    /// Asks Slack who we are, once and not for long, so that a wrong token is reported before anything else.
    pub async fn greet(&self) {
        if let Some(Err(error)) = self.clock().timeout(KNOWN_WITHIN, self.me()).await {
            self.complain(error);
        }
    }

    /// Asks Slack who we are until it says so; what is wrong is said to the operator, once for each reason.
    async fn introduce(&self) {
        let mut pause = Duration::from_secs(1);
        loop {
            match self.me().await {
                Ok(me) => {
                    tracing::info!(team = me.team, team_id = me.team_id, bot = me.user, "Slack knows us");
                    return;
                }
                Err(error) => self.complain(error),
            }
            self.clock().sleep(pause).await;
            pause = (pause * 2).min(ASK_AGAIN);
        }
    }

    fn complain(&self, error: CallError) {
        let mut said = self.0.said.lock();
        if said.as_ref() == Some(&error) {
            return;
        }
        let why = error.explain();
        tracing::error!(why, "Slack cannot be used; trying again until it can");
        *said = Some(error);
    }

    async fn me(&self) -> Result<&Me, CallError> {
        let nothing = json!({});
        let ask = || self.0.client.post::<Me>("auth.test", "", &nothing);
        self.0.me.get_or_try_init(ask).await
    }

    /// The teams whose people are listened to; `None` while Slack has not said whose bot we are.
    async fn teams(&self) -> Option<Vec<String>> {
        if !self.0.settings.team_ids.is_empty() {
            return Some(self.0.settings.team_ids.clone());
        }
        let me = self.me().await.ok()?;
        let organisation = me.enterprise_id.clone().filter(|_| me.is_enterprise_install);
        Some(std::iter::once(me.team_id.clone()).chain(organisation).collect())
    }

    /// Tells one person something, in the background: nobody else sees it.
    fn note(&self, chat: &str, user: &str, thread: Option<&str>, sentence: &str) {
        let (slack, chat) = (self.clone(), chat.to_owned());
        let mut body = json!({
            "channel": chat, "user": user, "text": text::top_level(sentence), "parse": "none", "link_names": false,
        });
        if let Some(thread) = thread {
            body["thread_ts"] = json!(thread);
        }
        self.0.ctx.finish(async move {
            for attempt in 0..NOTE_TRIES {
                let noted = slack.0.client.post::<serde_json::Value>("chat.postEphemeral", &chat, &body);
                let wait = match noted.await {
                    Ok(_) => return,
                    Err(CallError::RateLimited(wait)) => wait,
                    Err(CallError::NotSent | CallError::Unknown(_)) => Duration::from_secs(1 << attempt),
                    Err(error @ CallError::Refused { .. }) => {
                        tracing::warn!(%error, "a person could not be told something privately");
                        return;
                    }
                };
                if !slack.0.ctx.pause(wait).await {
                    return;
                }
            }
        });
    }
}
