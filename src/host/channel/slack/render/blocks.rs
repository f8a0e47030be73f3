//! The blocks and elements of cards, with the ids that `payload` reads again. Ids hold indices, never labels.

use super::super::text;
use super::{MAX_OPTION, MAX_PLACEHOLDER, MAX_SECTION};
use askd_core::{AskId, Kind, Question, wording};
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

/// Text of the agent as Markdown.
pub(super) fn markdown(text: &str) -> Value {
    json!({"type": "markdown", "text": text::markdown(text)})
}

pub(super) fn plain(one_line: &str) -> Value {
    json!({"type": "plain_text", "text": one_line})
}

pub(super) fn button(action_id: &str, label: &str, value: &str, style: Option<&str>) -> Value {
    let mut button = json!({"type": "button", "action_id": action_id, "text": plain(label), "value": value});
    if let Some(style) = style {
        button["style"] = json!(style);
    }
    button
}

/// The button that Slack asks about before it sends the click.
pub(super) fn dismiss() -> Value {
    let mut button = button("dismiss", wording::SLACK_DISMISS, "dismiss", None);
    let [title, text, back] = wording::SLACK_DISMISS_ASKED.map(plain);
    button["confirm"] = json!({"title": title, "text": text, "confirm": plain(wording::SLACK_DISMISS), "deny": back, "style": "danger"});
    button
}

pub(super) fn actions(block_id: &str, buttons: &[Value]) -> Value {
    json!({"type": "actions", "block_id": block_id, "elements": buttons})
}

/// An input, which sends nothing by itself. Slack marks an optional one beside its label.
pub(super) fn input(block_id: &str, label: &str, element: &Value, optional: bool) -> Value {
    json!({"type": "input", "block_id": block_id, "label": plain(label), "element": element, "optional": optional})
}

/// An input of text. A placeholder that is too long for its place stands under it.
pub(super) fn text_input(block_id: &str, label: &str, question: &Question, index: usize, optional: bool) -> Value {
    let mut element = json!({"type": "plain_text_input", "action_id": format!("text:{index}"),
        "multiline": !optional || question.kind == Kind::Text, "max_length": askd_core::MAX_TEXT});
    let placeholder = question.placeholder.as_deref().map(text::line);
    let (inside, under): (Vec<String>, Vec<String>) =
        placeholder.into_iter().partition(|line| text::units(line) <= MAX_PLACEHOLDER);
    for line in inside {
        element["placeholder"] = plain(&line);
    }
    let mut input = input(block_id, label, &element, optional);
    for line in under {
        input["hint"] = plain(&line);
    }
    input
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
