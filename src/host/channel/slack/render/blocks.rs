//! The blocks and elements of cards, with the ids that `payload` reads again. Ids hold indices, never labels.

use super::super::text;
use super::{MAX_OPTION, MAX_PLACEHOLDER, MAX_SECTION};
use askd_core::AskId;
use serde_json::{Value, json};

/// The values of the options that askd adds to those of the question.
pub(in crate::host::channel::slack) const OTHER: &str = "other";
pub(in crate::host::channel::slack) const SKIP: &str = "skip";

/// The id of a block: its ask, its part of the card, and the attempt, because Slack wants unique ids.
pub(super) fn block_id(id: AskId, part: &str, attempt: u8) -> String {
    format!("askd:{id}:{part}:{attempt}")
}

/// A section of safe text.
pub(super) fn section(safe: &str) -> Value {
    json!({"type": "section", "text": mrkdwn(safe)})
}

fn mrkdwn(safe: &str) -> Value {
    json!({"type": "mrkdwn", "text": safe, "verbatim": true})
}

/// Safe text, in as many sections as it needs.
pub(super) fn sections(safe: &str) -> Vec<Value> {
    let pieces = text::pieces(safe, MAX_SECTION);
    pieces.iter().filter(|piece| !piece.trim().is_empty()).map(|piece| section(piece)).collect()
}

/// A line in small print.
pub(super) fn context(safe: &str) -> Value {
    json!({"type": "context", "elements": [mrkdwn(safe)]})
}

pub(super) fn header(title: &str) -> Value {
    json!({"type": "header", "text": plain(title)})
}

fn plain(one_line: &str) -> Value {
    json!({"type": "plain_text", "text": one_line})
}

pub(super) fn button(action_id: &str, label: &str, value: &str, primary: bool) -> Value {
    let mut button = json!({"type": "button", "action_id": action_id, "text": plain(label), "value": value});
    if primary {
        button["style"] = json!("primary");
    }
    button
}

pub(super) fn actions(block_id: &str, buttons: &[Value]) -> Value {
    json!({"type": "actions", "block_id": block_id, "elements": buttons})
}

/// An input, which sends nothing by itself. Slack marks an optional one beside its label.
pub(super) fn input(block_id: &str, label: &str, element: &Value, optional: bool) -> Value {
    json!({"type": "input", "block_id": block_id, "label": plain(label), "element": element, "optional": optional})
}

pub(super) fn text_input(action_id: &str, placeholder: Option<&str>, multiline: bool) -> Value {
    let mut element = json!({"type": "plain_text_input", "action_id": action_id, "multiline": multiline, "max_length": askd_core::MAX_TEXT});
    if let Some(shown) = placeholder.map(text::line).filter(|line| text::units(line) <= MAX_PLACEHOLDER) {
        element["placeholder"] = plain(&shown);
    }
    element
}

/// `radio_buttons`, `checkboxes` or `static_select`.
pub(super) fn choice(kind: &str, action_id: &str, options: &[Value]) -> Value {
    json!({"type": kind, "action_id": action_id, "options": options})
}

pub(super) fn option(label: &str, value: &str, description: Option<&str>) -> Value {
    let mut option = json!({"text": plain(label), "value": value});
    if let Some(description) = description.map(text::line).filter(|line| text::units(line) <= MAX_OPTION) {
        option["description"] = plain(&description);
    }
    option
}
