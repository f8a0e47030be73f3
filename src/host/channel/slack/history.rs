//! Finds the messages of an ask in the history of its channel: how askd learns what became of a post whose answer was lost.

use super::Slack;
use super::client::CallError;
use super::payload::Message;
use askd_core::{Ask, AskId};
use serde::Deserialize;
use std::time::Duration;

/// Messages of a page. Slack may send fewer.
const PAGE: usize = 200;
/// How many pages askd reads: what Slack allows in a minute.
const PAGES: usize = 50;
/// How long before the ask was made the search begins, for clocks that differ.
const EARLIER: Duration = Duration::from_secs(300);

/// The `event_type` in the metadata of a card, and of a text that goes before it.
pub(super) const CARD: &str = "askd_question";
pub(super) const TEXT: &str = "askd_text";

/// The messages of one ask that are in its channel.
#[derive(Debug, Default)]
pub(super) struct PostedMessages {
    /// The `ts` of each card, oldest first.
    pub(super) cards: Vec<String>,
    /// The number of each text.
    pub(super) texts: Vec<usize>,
    /// There are older messages, which were not read: what was not found may be among them.
    pub(super) partly_read: bool,
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

impl Slack {
    /// Reads the history of this channel for messages of the ask.
    pub(super) async fn posted_messages(&self, ask: &Ask, chat: &str) -> Result<PostedMessages, CallError> {
        let oldest = (ask.created_at - EARLIER).as_millis();
        let mut posted = PostedMessages::default();
        let mut cursor = String::new();
        for _ in 0..PAGES {
            let mut arguments = vec![
                ("channel", chat.to_owned()),
                ("oldest", format!("{}.{:03}000", oldest.div_euclid(1000), oldest.rem_euclid(1000))),
                ("include_all_metadata", "true".to_owned()),
                ("limit", PAGE.to_string()),
            ];
            if !cursor.is_empty() {
                arguments.push(("cursor", cursor));
            }
            let page: Page = self.0.client.get("conversations.history", chat, &arguments).await?;
            // Others in the channel could copy the metadata of our messages.
            let bot_id = self.0.bot.get().and_then(|bot| bot.bot_id.as_deref());
            for message in
                page.messages.iter().filter(|message| bot_id.is_none() || message.bot_id.as_deref() == bot_id)
            {
                posted.add(ask, message);
            }
            cursor = page.response_metadata.next_cursor;
            posted.partly_read = !cursor.is_empty();
            if !posted.partly_read {
                break;
            }
        }
        posted.cards.sort();
        Ok(posted)
    }

    /// The ask of this card, if the bot posted it.
    pub(super) async fn ask_of(&self, chat: &str, ts: &str) -> Result<Option<AskId>, CallError> {
        let place = [("channel", chat), ("oldest", ts), ("latest", ts), ("inclusive", "true")];
        let wanted = [("limit", "1"), ("include_all_metadata", "true")];
        let arguments: Vec<_> = place.into_iter().chain(wanted).map(|(name, value)| (name, value.to_owned())).collect();
        let page: Page = self.0.client.get("conversations.history", chat, &arguments).await?;
        let is_card = |message: &&Message| {
            message.ts == ts && message.metadata.as_ref().is_none_or(|metadata| metadata.event_type != TEXT)
        };
        Ok(page.messages.iter().find(is_card).and_then(Message::ask))
    }
}

impl PostedMessages {
    fn add(&mut self, ask: &Ask, message: &Message) {
        match message.metadata.as_ref().filter(|metadata| !metadata.event_type.is_empty()) {
            Some(metadata) if metadata.ask() != Some(ask.id) => {}
            Some(metadata) if metadata.event_type == TEXT => {
                self.texts.extend(metadata.value("part").and_then(|part| part.parse::<usize>().ok()));
            }
            Some(metadata) if metadata.event_type == CARD => self.cards.push(message.ts.clone()),
            None if message.ask_by_blocks() == Some(ask.id) => self.cards.push(message.ts.clone()),
            Some(_) | None => {}
        }
    }
}
