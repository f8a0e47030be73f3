//! Slack: cards with buttons and forms. What people do arrives by webhooks or over a socket, at one [`Inbound`].
//!
//! `render` and `text` are pure; `client` and `pace` know how to call. The broker decides what becomes of an ask.

mod client;
mod emoji;
mod history;
mod inbound;
mod pace;
mod payload;
mod port;
mod render;
mod seat;
mod socket;
mod text;
mod threads;
mod visit;
mod webhooks;

use crate::clock::Clock;
use crate::host::backoff::Backoff;
use crate::host::broker::{Broker, WeakBroker};
use crate::host::channel::signed::Webhooks;
use crate::host::channel::{AWAY_PAUSES, Adapter, notice_its_return};
use crate::host::ctx::Ctx;
use crate::host::settings::{Settings, SlackSettings, SlackTransport};
use crate::host::standing::Standing;
use crate::host::store::Documents;
use askd_core::wording;
use async_trait::async_trait;
use axum::Router;
use client::{CallError, Client};
use history::Looks;
use inbound::Inbound;
use pace::Pace;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::OnceCell;
pub use visit::Visit;

/// How long a start waits for the answer to `auth.test`.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses between the tries to post an ephemeral message, and how often askd tries.
const EPHEMERAL_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
const EPHEMERAL_TRIES: u32 = 3;

/// One workspace's Slack, as far as the app reaches. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Slack(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: SlackSettings,
    client: Client,
    pace: Arc<Pace>,
    ctx: Ctx,
    broker: OnceLock<WeakBroker>,
    bot: OnceCell<AuthTest>,
    looks: Looks,
    /// Whether the socket of Socket Mode could be opened.
    socket: Standing,
    /// The failure of `auth.test` that was logged last.
    logged: Mutex<Option<CallError>>,
}

/// What Slack says about the bot: the answer of `auth.test`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AuthTest {
    team_id: String,
    team: String,
    user: String,
    user_id: String,
    bot_id: Option<String>,
    enterprise_id: Option<String>,
    is_enterprise_install: bool,
}

/// Slack, if the settings have its tokens. Connects to nothing yet; connections may come and go.
pub(in crate::host) fn open(
    settings: &Settings,
    documents: &Arc<dyn Documents>,
    ctx: &Ctx,
) -> io::Result<Option<Arc<dyn Adapter>>> {
    let Some(settings) = settings.slack.clone() else { return Ok(None) };
    let pace = Arc::new(Pace::new(settings.pace, ctx.clock().clone(), documents.rates()));
    let client = Client::new(&settings, Arc::clone(&pace), Some(ctx.clone())).map_err(io::Error::other)?;
    let (ctx, broker, bot) = (ctx.clone(), OnceLock::new(), OnceCell::new());
    Ok(Some(Arc::new(Slack(Arc::new(Inner {
        settings,
        client,
        pace,
        ctx,
        broker,
        bot,
        looks: Looks::default(),
        socket: Standing::default(),
        logged: Mutex::default(),
    })))))
}

#[async_trait]
impl Adapter for Slack {
    fn connect(&self, broker: &Broker, webhooks: &Webhooks) -> Router {
        let Some(secrets) = self.0.settings.signing_secrets().cloned() else { return Router::new() };
        webhooks::routes(Inbound::new(self.clone(), broker.clone()), secrets, webhooks.clone())
    }

    /// Calls `auth.test` once and not for long, so that the log reports a wrong token before anything else.
    async fn greet(&self) {
        if let Some(Err(error)) = self.clock().timeout(GREETING_TIMEOUT, self.bot()).await {
            self.log_failure(error);
        }
    }

    /// Finds out who the bot is and, with an app token, connects.
    fn start(&self, broker: &Broker) {
        // Nobody starts it twice.
        let _same = self.0.broker.set(broker.downgrade());
        let slack = self.clone();
        self.0.ctx.spawn(async move {
            slack.introduce().await;
            slack.notice_its_return().await;
        });
        if let SlackTransport::Socket(app_token) = &self.0.settings.transport {
            let (inbound, app_token) = (Inbound::new(self.clone(), broker.clone()), app_token.clone());
            self.0.ctx.serve(async move { socket::run(&inbound, &app_token).await });
        }
    }
}

impl Slack {
    fn clock(&self) -> &Clock {
        self.0.ctx.clock()
    }

    /// Calls `auth.test` until it succeeds.
    async fn introduce(&self) {
        let mut backoff = Backoff::new(AWAY_PAUSES.0, AWAY_PAUSES.1);
        loop {
            match self.bot().await {
                Ok(bot) => {
                    tracing::info!(team = bot.team, team_id = bot.team_id, bot = bot.user, "Slack knows us");
                    return;
                }
                Err(error) => self.log_failure(error),
            }
            self.clock().sleep(backoff.pause()).await;
        }
    }

    /// Calls `auth.test` while Slack is away.
    async fn notice_its_return(&self) {
        let client = &self.0.client;
        let call = || async {
            let _noted = client.post::<IgnoredAny>("auth.test", "", &json!({})).await;
        };
        notice_its_return(self.clock(), &client.standing, call).await;
    }

    /// Logs a failure of `auth.test`, unless it was the last one already.
    fn log_failure(&self, error: CallError) {
        let mut logged = self.0.logged.lock();
        if logged.as_ref() != Some(&error) {
            tracing::error!(why = error.explain(), "Slack cannot be used; trying again until it can");
            *logged = Some(error);
        }
    }

    async fn bot(&self) -> Result<&AuthTest, CallError> {
        self.0.bot.get_or_try_init(|| async { self.0.client.post("auth.test", "", &json!({})).await }).await
    }

    /// Whether people of this team are listened to; `None` while Slack has not said which team the bot belongs to.
    async fn is_our_team(&self, team: &str) -> Option<bool> {
        let teams = &self.0.settings.team_ids;
        if !teams.is_empty() {
            return Some(teams.iter().any(|ours| ours == team));
        }
        let bot = self.bot().await.ok()?;
        Some(team == bot.team_id || bot.is_enterprise_install && bot.enterprise_id.as_deref() == Some(team))
    }

    /// Opens a modal for a person who has just clicked, in the background. If Slack does not, the person is told.
    fn open_modal(&self, trigger_id: &str, view: &Value, chat: &str, user: &str, thread_ts: Option<&str>) {
        let (slack, chat, user, thread_ts) =
            (self.clone(), chat.to_owned(), user.to_owned(), thread_ts.map(str::to_owned));
        let body = json!({"trigger_id": trigger_id, "view": view});
        self.0.ctx.finish(async move {
            if let Err(error) = slack.0.client.post::<IgnoredAny>("views.open", "", &body).await {
                tracing::warn!(%error, "Slack did not open a modal");
                slack.post_ephemeral(&chat, &user, thread_ts.as_deref(), wording::SLACK_NOT_OPENED);
            }
        });
    }

    /// Posts a message that only this person sees, in the background.
    fn post_ephemeral(&self, chat: &str, user: &str, thread_ts: Option<&str>, sentence: &str) {
        let (slack, chat) = (self.clone(), chat.to_owned());
        let mut body = json!({
            "channel": chat, "user": user, "text": text::top_level(sentence), "parse": "none", "link_names": false,
        });
        if let Some(thread_ts) = thread_ts {
            body["thread_ts"] = json!(thread_ts);
        }
        self.0.ctx.finish(async move {
            let mut backoff = Backoff::new(EPHEMERAL_PAUSES.0, EPHEMERAL_PAUSES.1);
            for _ in 0..EPHEMERAL_TRIES {
                let wait = match slack.0.client.post::<IgnoredAny>("chat.postEphemeral", &chat, &body).await {
                    Ok(_) => return,
                    Err(CallError::RateLimited(wait)) => wait,
                    Err(CallError::NotSent(_) | CallError::Unknown(_)) => backoff.pause(),
                    Err(error @ CallError::Refused { .. }) => {
                        tracing::warn!(%error, "Slack refused a private message to a person");
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
