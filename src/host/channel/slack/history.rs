//! Finds the messages of an ask in the history of its channel: how askd learns what became of a post whose answer was lost.

use super::Slack;
use super::client::CallError;
use super::payload::Message;
use crate::host::broker::{Broker, Filter};
use crate::host::channel::NotStored;
use crate::host::keyed_lock::KeyedLock;
use askd_core::{Ask, AskId, ChannelName, Time, Widget, WidgetState};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Messages of a page. Slack may send fewer.
const PAGE: usize = 200;
/// How many pages askd reads: what Slack allows in a minute.
const PAGES: usize = 50;
/// How many open asks are looked at for a card that is missed.
const OPEN: usize = 10_000;
/// How long before the ask was made its messages can have been posted: this host's clock may be ahead of Slack's, by hours if
/// its time zone is wrong.
const EARLIER: Duration = Duration::from_secs(86_400);
/// By how much the clocks differ as a rule. What was posted still earlier need not have been read to say that there is no card.
const DIFFER: Duration = Duration::from_secs(300);

/// The `event_type` in the metadata of a card, and of a text that goes before it.
pub(super) const CARD: &str = "askd_question";
pub(super) const TEXT: &str = "askd_text";

/// The messages of one ask that are in its channel.
#[derive(Debug, Default, Clone)]
pub(super) struct PostedMessages {
    /// The `ts` of each card, oldest first.
    pub(super) cards: Vec<String>,
    /// The number of each text.
    pub(super) texts: Vec<usize>,
    /// There are older messages, which were not read: what was not found may be among them.
    pub(super) partly_read: bool,
    /// Slack shows older ones only after so long.
    pub(super) rest_after: Option<Duration>,
}

/// The message of the bot's that a thread is under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent {
    pub(super) ask: AskId,
    /// It is a text that goes before the card.
    pub(super) is_text: bool,
    /// It has something to press or to fill in.
    pub(super) is_open: bool,
}

/// Looks into histories. Slack allows few, so one look is for all who wait for the next one of its chat.
#[derive(Debug, Default)]
pub(super) struct Looks {
    waiting: Mutex<HashMap<String, Vec<Waiting>>>,
    looking: KeyedLock<String>,
}

#[derive(Debug)]
struct Waiting {
    ask: AskId,
    created: Time,
    found: oneshot::Sender<Result<PostedMessages, CallError>>,
}

impl Looks {
    fn wait(&self, ask: &Ask, chat: &str) -> oneshot::Receiver<Result<PostedMessages, CallError>> {
        let (found, told) = oneshot::channel();
        let waiting = Waiting { ask: ask.id, created: ask.created_at, found };
        self.waiting.lock().entry(chat.to_owned()).or_default().push(waiting);
        told
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    messages: Vec<Message>,
    response_metadata: ResponseMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseMetadata {
    next_cursor: String,
}

/// The channels in which this ask may have a card that askd does not know yet.
fn unconfirmed(ask: &Ask) -> Vec<String> {
    let unsure = |widget: &&Widget| matches!(widget.state, WidgetState::Sent { .. } | WidgetState::Unknown { .. });
    let routes = ask.widgets.iter().filter(unsure).map(|widget| &widget.route);
    routes.filter(|route| route.channel == ChannelName::SLACK).map(|route| route.chat.clone()).collect()
}

impl Slack {
    /// Whether a message of this user, under which there is a thread, is the bot's. Fails while Slack has not said who the
    /// bot is, if askd does not know yet whether a card is in that channel: Slack sends the reply again.
    pub(super) async fn is_bots(
        &self,
        broker: &Broker,
        channel: &str,
        user: Option<&String>,
    ) -> Result<bool, NotStored> {
        let Some(user) = user else { return Ok(false) };
        if let Ok(bot) = self.bot().await {
            return Ok(bot.user_id == *user);
        }
        let open = Filter { settled: Some(false), ..Filter::default() };
        let missed = broker.page(open, OPEN, None, unconfirmed).await.map_err(|_| NotStored)?.asks;
        if missed.iter().flatten().any(|chat| chat == channel) { Err(NotStored) } else { Ok(false) }
    }

    /// Reads the history of this channel for messages of the ask.
    pub(super) async fn posted_messages(&self, ask: &Ask, chat: &str) -> Result<PostedMessages, CallError> {
        let mut told = self.0.looks.wait(ask, chat);
        loop {
            let _turn = self.0.looks.looking.lock(chat.to_owned()).await;
            match told.try_recv() {
                Ok(found) => return found,
                // Whoever looked was called off.
                Err(TryRecvError::Closed) => told = self.0.looks.wait(ask, chat),
                Err(TryRecvError::Empty) => {}
            }
            let waiting = self.0.looks.waiting.lock().remove(chat).unwrap_or_default();
            let found = self.messages_of(&waiting, chat).await;
            for Waiting { ask, found: tell, .. } in waiting {
                let posted =
                    found.as_ref().map_err(Clone::clone).map(|found| found.get(&ask).cloned().unwrap_or_default());
                // It may have been called off.
                let _gone = tell.send(posted);
            }
        }
    }

    /// Reads the history for messages of all of these.
    async fn messages_of(&self, waiting: &[Waiting], chat: &str) -> Result<HashMap<AskId, PostedMessages>, CallError> {
        let oldest = waiting.iter().map(|waiting| (waiting.created - EARLIER).as_millis()).min().unwrap_or_default();
        let mut posted: HashMap<AskId, PostedMessages> = HashMap::new();
        for waiting in waiting {
            posted.entry(waiting.ask).or_default();
        }
        let mut cursor = String::new();
        for page in 1..=PAGES {
            let mut arguments = vec![
                ("channel", chat.to_owned()),
                ("oldest", format!("{}.{:03}000", oldest.div_euclid(1000), oldest.rem_euclid(1000))),
                ("include_all_metadata", "true".to_owned()),
                ("limit", PAGE.to_string()),
            ];
            if !cursor.is_empty() {
                arguments.push(("cursor", cursor));
            }
            let read: Page = match self.0.client.get("conversations.history", chat, &arguments).await {
                // The newest came first: whoever looks for a card may have it.
                Err(CallError::RateLimited(wait)) if posted.values().any(|posted| !posted.cards.is_empty()) => {
                    for posted in posted.values_mut() {
                        posted.rest_after = Some(wait);
                    }
                    break;
                }
                read => read?,
            };
            // Others in the channel could copy the metadata of our messages.
            let bot_id = self.0.bot.get().and_then(|bot| bot.bot_id.as_deref());
            for message in
                read.messages.iter().filter(|message| bot_id.is_none() || message.bot_id.as_deref() == bot_id)
            {
                if let Some(posted) = message.card_or_text_of().and_then(|ask| posted.get_mut(&ask)) {
                    posted.add(message);
                }
            }
            cursor = read.response_metadata.next_cursor;
            if cursor.is_empty() {
                break;
            }
            if page == PAGES {
                // The newest come first.
                let reached = read.messages.last().and_then(|message| time_of(&message.ts));
                let unread = |waiting: &&Waiting| reached.is_none_or(|reached| waiting.created - DIFFER < reached);
                for waiting in waiting.iter().filter(unread) {
                    posted.entry(waiting.ask).or_default().partly_read = true;
                }
            }
        }
        for posted in posted.values_mut() {
            posted.cards.sort();
        }
        Ok(posted)
    }

    /// Which ask the bot posted this message for.
    pub(super) async fn parent(&self, chat: &str, ts: &str) -> Result<Option<Parent>, CallError> {
        let place = [("channel", chat), ("oldest", ts), ("latest", ts), ("inclusive", "true")];
        let wanted = [("limit", "1"), ("include_all_metadata", "true")];
        let arguments: Vec<_> = place.into_iter().chain(wanted).map(|(name, value)| (name, value.to_owned())).collect();
        let page: Page = self.0.client.get("conversations.history", chat, &arguments).await?;
        let parent = |message: &Message| {
            let is_text = message.metadata.as_ref().is_some_and(|metadata| metadata.event_type == TEXT);
            Some(Parent { ask: message.ask()?, is_text, is_open: message.ask_by_blocks().is_some() })
        };
        Ok(page.messages.iter().find(|message| message.ts == ts).and_then(parent))
    }
}

/// The second in which Slack took a message.
fn time_of(ts: &str) -> Option<Time> {
    let (seconds, _) = ts.split_once('.')?;
    Some(Time::from_millis(seconds.parse::<i64>().ok()?.saturating_mul(1000)))
}

impl Message {
    /// The ask of which this is a card, or a text before it.
    fn card_or_text_of(&self) -> Option<AskId> {
        match self.metadata.as_ref().filter(|metadata| !metadata.event_type.is_empty()) {
            Some(metadata) => metadata.ask(),
            None => self.ask_by_blocks(),
        }
    }
}

impl PostedMessages {
    fn add(&mut self, message: &Message) {
        match message.metadata.as_ref().filter(|metadata| !metadata.event_type.is_empty()) {
            Some(metadata) if metadata.event_type == TEXT => {
                self.texts.extend(metadata.value("part").and_then(|part| part.parse::<usize>().ok()));
            }
            Some(metadata) if metadata.event_type != CARD => {}
            Some(_) | None => self.cards.push(message.ts.clone()),
        }
    }
}
