//! What the channel's history shows of an ask: the way to know what became of a post whose reply was lost.

use super::Slack;
use super::client::CallError;
use super::payload::Part;
use askd_core::{Ask, AskId};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages of a page; apps outside Slack's marketplace that are sold may get fewer.
const PAGE: usize = 200;
/// Pages that are read.
const PAGES: usize = 10;
/// How much before the ask was made, for clocks that differ.
const EARLIER: Duration = Duration::from_secs(300);

/// Names the card, and a message of text that belongs to it.
pub(super) const CARD: &str = "askd_question";
pub(super) const TEXT: &str = "askd_text";

/// Messages of one ask.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// `ts` of cards, oldest first.
    pub(super) cards: Vec<String>,
    /// Parts of text that are there.
    pub(super) texts: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    messages: Vec<Message>,
    response_metadata: Cursor,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cursor {
    next_cursor: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    ts: String,
    bot_id: Option<String>,
    metadata: Metadata,
    blocks: Vec<Block>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    event_type: String,
    event_payload: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Block {
    block_id: String,
}

impl Message {
    fn says(&self, kind: &str, ask: AskId) -> bool {
        let said = self.metadata.event_payload.get("ask").and_then(Value::as_str);
        self.metadata.event_type == kind && said.is_some_and(|said| said == ask.to_string())
    }

    fn is_card_of(&self, ask: AskId) -> bool {
        let by_block = || self.blocks.iter().any(|block| Part::of(&block.block_id).is_some_and(|part| part.ask == ask));
        self.says(CARD, ask) || (self.metadata.event_type.is_empty() && by_block())
    }
}

impl Slack {
    /// What is there of this ask in its chat now.
    pub(super) async fn shown(&self, ask: &Ask, chat: &str) -> Result<Shown, CallError> {
        let oldest = (ask.created_at - EARLIER).as_millis();
        let mut shown = Shown::default();
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
            // Ours alone: others in the channel could repeat what our messages say.
            let me = self.0.me.get().and_then(|me| me.bot_id.as_deref());
            for message in page.messages.iter().filter(|message| me.is_none() || message.bot_id.as_deref() == me) {
                if message.is_card_of(ask.id) {
                    shown.cards.push(message.ts.clone());
                } else if message.says(TEXT, ask.id) {
                    let part = message.metadata.event_payload.get("part").and_then(Value::as_str);
                    shown.texts.extend(part.and_then(|part| part.parse::<usize>().ok()));
                }
            }
            cursor = page.response_metadata.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
        shown.cards.sort();
        Ok(shown)
    }
}
