//! The modal in which a person answers in words of their own, instead of by one of the buttons of the card.

use super::super::text;
use super::CardView;
use super::blocks::{block_id, context, plain, sections, text_input};
use super::open::{byline, label};
use askd_core::wording;
use serde_json::{Value, json};

/// The modal for the question of this card. Slack hands `card` back with what the person sends: where the card is.
pub(in super::super) fn modal(view: &CardView<'_>, card: &Value) -> Option<Value> {
    let question = view.one_click().filter(|question| question.takes_text())?;
    let mut blocks = vec![context(&byline(view))];
    let label = label(view.content, 0, question).unwrap_or_else(|| {
        blocks.extend(sections(&text::bold(&question.text)));
        wording::SLACK_ANSWER.to_owned()
    });
    blocks.push(text_input(&block_id(view.id, "t0", view.attempt), &label, question, 0, false));
    Some(json!({
        "type": "modal", "callback_id": "askd_other", "private_metadata": card.to_string(), "blocks": blocks,
        "title": plain(wording::SLACK_ANSWER), "submit": plain(wording::SLACK_SEND), "close": plain(wording::SLACK_CLOSE),
    }))
}
