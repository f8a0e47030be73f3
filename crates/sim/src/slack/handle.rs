//! The handle of a running stand-in: what tests and the demo do with it.
//!
//! Starts and stops the server, plays the people, and shows what the app did. Decides nothing itself. Called by tests, benches, the demo.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::calls::Call;
use super::config::Config;
use super::deliver::Delivery;
use super::faults::Faults;
use super::interact::{Act, At};
use super::message::Message;
use super::shared::Shared;
use super::socket::{Order, goodbye};
use crate::line::{Line, Lines};

/// A running stand-in. Dropping it stops it.
pub struct Slack {
    pub(super) shared: Arc<Shared>,
}

/// Why sockets are told to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// `disconnect` with `warning`: the socket will be closed soon.
    Warning,
    /// `disconnect` with `refresh_requested`: connect anew.
    Refresh,
    /// No word: the connection is gone.
    Abrupt,
}

/// Largest body that the Web API takes; Slack's own is not documented.
const MAX_BODY: usize = 8 * 1024 * 1024;

impl Drop for Slack {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.tell_sockets(&Order::Drop);
    }
}

impl Slack {
    /// Starts a stand-in on 127.0.0.1.
    pub async fn start(config: Config) -> std::io::Result<Self> {
        // Another part of the process may have chosen already; only that one is chosen matters.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, config.port))).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            // Only addresses on this machine are called, without TLS.
            .tls_certs_only([])
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared::new(config, url, http));
        let service = router(Arc::clone(&shared)).into_make_service_with_connect_info::<Line>();
        let stop = shared.stop.clone();
        let lines = Lines { listener, stop: stop.clone() };
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                served = axum::serve(lines, service) => {
                    if let Err(error) = served {
                        tracing::error!(%error, "the stand-in of Slack stopped");
                    }
                }
            }
        });
        Ok(Self { shared })
    }

    /// `http://127.0.0.1:PORT`, where the page is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// What a client's API address is set to: `http://127.0.0.1:PORT/api`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("{}/api", self.shared.url)
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The faults, to be filled.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Where interactions go from now on, without Socket Mode.
    pub fn set_interactivity_url(&self, url: Option<String>) {
        self.shared.state().interactivity_url = url;
    }

    /// Where events go from now on, after the app has echoed Slack's challenge.
    pub async fn set_events_url(&self, url: &str) -> Result<(), String> {
        self.shared.verify_url(url).await?;
        self.shared.state().events_url = Some(url.into());
        Ok(())
    }

    /// Invites the bot to a channel, or removes it.
    pub fn invite_bot(&self, channel: &str, invited: bool) {
        let mut state = self.shared.state();
        if let Some(channel) = state.channels.iter_mut().find(|known| known.id == channel) {
            channel.bot_invited = invited;
        }
    }

    /// Sets the stand-in's clock forward: signatures, `ts`, and lives of triggers and response addresses follow.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Messages of a channel that everyone in it sees, oldest first, threads included.
    #[must_use]
    pub fn messages(&self, channel: &str) -> Vec<Message> {
        self.select(|message| message.channel == channel && message.only_for.is_none() && !message.deleted)
    }

    /// Messages that only this person sees, oldest first.
    #[must_use]
    pub fn ephemerals(&self, user: &str) -> Vec<Message> {
        self.select(|message| message.only_for.as_deref() == Some(user) && !message.deleted)
    }

    /// One message, if it is there.
    #[must_use]
    pub fn message(&self, channel: &str, ts: &str) -> Option<Message> {
        self.shared.state().message(channel, ts).cloned()
    }

    /// All messages that are wanted, oldest first, ephemeral and deleted ones included.
    pub fn select(&self, wanted: impl Fn(&Message) -> bool) -> Vec<Message> {
        let state = self.shared.state();
        state.messages.iter().filter(|message| wanted(message)).cloned().collect()
    }

    /// Waits until there is such a message (ephemeral ones included), at most so long.
    pub async fn wait_for_message(&self, wanted: impl Fn(&Message) -> bool, at_most: Duration) -> Option<Message> {
        self.wait_for(at_most, || self.select(|message| !message.deleted && wanted(message)).pop()).await
    }

    /// Waits until `look` finds something; looks again after each change here.
    pub async fn wait_for<T>(&self, at_most: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
        let mut changes = self.shared.changes();
        let search = async {
            loop {
                if let Some(found) = look() {
                    return Some(found);
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(at_most, search).await.ok().flatten()
    }

    /// All Web API calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }

    /// All attempts to send interactions and events so far.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.state().deliveries.clone()
    }

    /// Modals that are open.
    #[must_use]
    pub fn views(&self) -> Vec<Value> {
        self.shared.state().views.clone()
    }

    /// Does something with an element of a message. `Ok(None)`: Slack would send nothing for it.
    pub async fn act(&self, user: &str, at: &At, act: Act) -> Result<Option<Delivery>, String> {
        self.shared.act(user, at, &act).await
    }

    /// Clicks the button of this `action_id`.
    pub async fn click(&self, channel: &str, ts: &str, action_id: &str, user: &str) -> Result<Delivery, String> {
        let at = at(channel, ts, None, action_id);
        let delivery = self.shared.act(user, &at, &Act::Click).await?;
        delivery.ok_or_else(|| "nothing was sent".into())
    }

    /// Chooses exactly these options, by value.
    pub async fn choose(
        &self,
        channel: &str,
        ts: &str,
        action_id: &str,
        user: &str,
        values: &[&str],
    ) -> Result<Option<Delivery>, String> {
        let values = values.iter().map(ToString::to_string).collect();
        self.shared.act(user, &at(channel, ts, None, action_id), &Act::Choose(values)).await
    }

    /// Types into a text input (its whole new content).
    pub async fn type_in(
        &self,
        channel: &str,
        ts: &str,
        action_id: &str,
        user: &str,
        text: &str,
    ) -> Result<Option<Delivery>, String> {
        self.shared.act(user, &at(channel, ts, None, action_id), &Act::Type(text.into())).await
    }

    /// Presses Enter in a text input.
    pub async fn press_enter(
        &self,
        channel: &str,
        ts: &str,
        action_id: &str,
        user: &str,
    ) -> Result<Option<Delivery>, String> {
        self.shared.act(user, &at(channel, ts, None, action_id), &Act::Enter).await
    }

    /// Fills elements one after the other, then clicks the button.
    pub async fn submit(
        &self,
        channel: &str,
        ts: &str,
        fill: &[(&str, Act)],
        button: &str,
        user: &str,
    ) -> Result<Delivery, String> {
        for (action_id, act) in fill {
            self.shared.act(user, &at(channel, ts, None, action_id), act).await?;
        }
        self.click(channel, ts, button, user).await
    }

    /// Submits an open modal with these `state.values`.
    pub async fn submit_view(&self, view_id: &str, user: &str, values: Value) -> Result<Delivery, String> {
        self.shared.submit_view(view_id, user, &values).await
    }

    /// Types into the only input of the modal that this person has open, and submits it.
    pub async fn answer_in_modal(&self, user: &str, text: &str) -> Result<Delivery, String> {
        let (view_id, values) = self.modal_of(user, text)?;
        self.shared.submit_view(&view_id, user, &values).await
    }

    /// The id of the newest modal of this person, and this text in its only input.
    pub(super) fn modal_of(&self, user: &str, text: &str) -> Result<(String, Value), String> {
        let views = self.views();
        let view = views.iter().rfind(|view| view["opened_for"] == user).ok_or("no modal is open")?;
        let mut blocks = view["blocks"].as_array().into_iter().flatten();
        let block = blocks.find(|block| block["type"] == "input").ok_or("the modal has no input")?;
        let (block_id, action_id) = (&block["block_id"], &block["element"]["action_id"]);
        let (Some(block_id), Some(action_id)) = (block_id.as_str(), action_id.as_str()) else {
            return Err("no ids".into());
        };
        let typed = json!({action_id: {"type": "plain_text_input", "value": text}});
        Ok((view["id"].as_str().unwrap_or_default().to_owned(), json!({block_id: typed})))
    }

    /// A person writes in a message's thread.
    pub fn reply_in_thread(&self, channel: &str, ts: &str, user: &str, text: &str) -> Result<Message, String> {
        self.shared.say(channel, Some(ts), user, text)
    }

    /// A person writes in a channel.
    pub fn say(&self, channel: &str, user: &str, text: &str) -> Result<Message, String> {
        self.shared.say(channel, None, user, text)
    }

    /// A person changes what they wrote. With the same text: Slack has added a preview of a link.
    pub fn edit(&self, channel: &str, ts: &str, text: &str) -> Result<(), String> {
        self.shared.change(channel, ts, text)
    }

    /// An admin deletes a message. One with replies leaves a mark in its place.
    pub fn delete(&self, channel: &str, ts: &str) -> Result<(), String> {
        self.shared.delete_message(channel, ts)
    }

    /// How many sockets are connected.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.shared.sockets()
    }

    /// How many sockets were ever connected.
    #[must_use]
    pub fn sockets_ever(&self) -> u64 {
        self.shared.state().sockets.ever()
    }

    /// Tells all sockets to go, or just drops them.
    pub fn disconnect(&self, how: Goodbye) {
        let order = match how {
            Goodbye::Warning => Order::Text(goodbye("warning")),
            Goodbye::Refresh => Order::Text(goodbye("refresh_requested")),
            Goodbye::Abrupt => Order::Drop,
        };
        self.shared.tell_sockets(&order);
    }
}

fn at(channel: &str, ts: &str, block_id: Option<&str>, action_id: &str) -> At {
    At { channel: channel.into(), ts: ts.into(), block_id: block_id.map(str::to_owned), action_id: action_id.into() }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/{method}", any(super::api::handle))
        .route("/actions/{team}/{id}/{secret}", post(super::respond::respond))
        .route("/link", get(super::socket::link))
        .route("/link/", get(super::socket::link))
        .merge(super::page::routes())
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(shared)
}
