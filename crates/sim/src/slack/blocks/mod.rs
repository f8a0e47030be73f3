//! Block Kit's limits as pure functions: what Slack would refuse is refused here, with Slack's error names and JSON pointers.
//!
//! Known blocks: section, actions, context, divider, header, image, input, markdown, rich text. Slack knows more (table, card, video, ...); those are refused
//! here, which is stricter than Slack. Rich text is not looked into. Nothing is drawn or stored. Called by the Web API, `response_url` and `views.open`.
//!
//! Sources: `@slack/types` 3.2.0 (most lengths and counts), `slack_sdk` 3.47.0 (overflow, 25 actions, 12,000 of markdown), documentation pages (50 and 100
//! blocks, modal title 24). Not documented anywhere, so held on the strict side: the total behind `msg_blocks_too_long` (users measured 9,597 characters in 50
//! blocks accepted and 11,341 in 45 refused, a maintainer spoke of 12,000 with a buffer per block: here 12,000 less 20 per block), 2,000 characters for a
//! text of a context block, the wording for doubled ids and for options that do not match.

mod check;
mod elements;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Map, Value};

use check::{Check, Kind, length};
use elements::{Place, element};

/// Text characters of all blocks of a message together, see the module's note.
const MAX_TOTAL: usize = 12_000;
/// What each block takes of [`MAX_TOTAL`] for itself.
const BLOCK_COST: usize = 20;
/// Most blocks in a message (documentation).
pub const MAX_MESSAGE_BLOCKS: usize = 50;
/// Most blocks in a modal (documentation).
pub const MAX_MODAL_BLOCKS: usize = 100;

/// Where blocks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// A message in a conversation.
    Message,
    /// A modal view.
    Modal,
}

/// Why blocks are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// `invalid_blocks`, with what is wrong and where.
    Invalid(Vec<String>),
    /// `msg_blocks_too_long`.
    TooLong,
}

/// Checks the blocks of a message or a modal. `root` is the JSON pointer of the list (`/blocks`, `/view/blocks`).
pub fn check(blocks: &[Value], surface: Surface, root: &str) -> Result<(), Refused> {
    let mut check = Check::default();
    let most = match surface {
        Surface::Message => MAX_MESSAGE_BLOCKS,
        Surface::Modal => MAX_MODAL_BLOCKS,
    };
    if blocks.len() > most {
        check.problem(root, format!("no more than {most} items allowed"));
    }
    let mut seen = HashSet::new();
    for (index, value) in blocks.iter().enumerate() {
        let at = format!("{root}/{index}");
        let Some(map) = check.object(&at, value) else {
            continue;
        };
        if let Some(id) = check.string(&at, map, "block_id", 255)
            && !seen.insert(id)
        {
            check.problem(&format!("{at}/block_id"), format!("block_id already exists: {id}"));
        }
        block(&mut check, &at, map);
    }
    if markdown_total(blocks) > MAX_TOTAL {
        check.problem(root, "must be less than 12001 characters");
    }
    let problems = check.into_problems();
    if !problems.is_empty() {
        return Err(Refused::Invalid(problems));
    }
    if surface == Surface::Message && total(blocks) > MAX_TOTAL {
        return Err(Refused::TooLong);
    }
    Ok(())
}

/// Checks a whole modal view; the problems are those of `invalid_arguments`.
#[must_use]
pub fn check_view(view: &Value) -> Vec<String> {
    let mut check = Check::default();
    let at = "/view";
    let Some(map) = check.object(at, view) else {
        return check.into_problems();
    };
    check.only(
        at,
        map,
        &[
            "type",
            "title",
            "blocks",
            "submit",
            "close",
            "private_metadata",
            "callback_id",
            "external_id",
            "clear_on_close",
            "notify_on_close",
            "submit_disabled",
        ],
    );
    check.required(at, map, "type");
    check.word(at, map, "type", &["modal"]);
    check.required_text(at, map, "title", Kind::Plain, 24);
    check.text(at, map, "submit", Kind::Plain, 24);
    check.text(at, map, "close", Kind::Plain, 24);
    check.string_or_empty(at, map, "private_metadata", 3000);
    check.string_or_empty(at, map, "callback_id", 255);
    let blocks = check.list(at, map, "blocks", 0, MAX_MODAL_BLOCKS);
    if blocks.iter().any(|block| block["type"] == "input") && !map.contains_key("submit") {
        check.problem(at, "missing required field: submit");
    }
    let mut problems = check.into_problems();
    if let Err(Refused::Invalid(more)) = self::check(blocks, Surface::Modal, "/view/blocks") {
        problems.extend(more);
    }
    problems
}

/// Text characters of all blocks, plus what each block costs.
#[must_use]
pub fn total(blocks: &[Value]) -> usize {
    fn texts(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(texts).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| match value {
                    Value::String(text) if key == "text" => length(text),
                    other => texts(other),
                })
                .sum(),
            _ => 0,
        }
    }
    blocks.iter().map(texts).sum::<usize>() + blocks.len() * BLOCK_COST
}

fn markdown_total(blocks: &[Value]) -> usize {
    blocks
        .iter()
        .filter(|block| block["type"] == "markdown")
        .filter_map(|block| block["text"].as_str())
        .map(length)
        .sum()
}

fn block(check: &mut Check, at: &str, map: &Map<String, Value>) {
    let Some(kind) = check.required(at, map, "type") else {
        return;
    };
    match kind.as_str().unwrap_or_default() {
        "section" => section(check, at, map),
        "actions" => actions(check, at, map),
        "context" => context(check, at, map),
        "divider" => check.only(at, map, &["type", "block_id"]),
        "header" => {
            check.only(at, map, &["type", "block_id", "text"]);
            check.required_text(at, map, "text", Kind::Plain, 150);
        }
        "image" => {
            check.only(at, map, &["type", "block_id", "image_url", "alt_text", "title"]);
            elements::image(check, at, map, false);
            check.text(at, map, "title", Kind::Plain, 2000);
        }
        "input" => input(check, at, map),
        "markdown" => {
            check.only(at, map, &["type", "block_id", "text"]);
            check.required_string(at, map, "text", MAX_TOTAL);
        }
        "rich_text" => {
            check.only(at, map, &["type", "block_id", "elements"]);
            check.list(at, map, "elements", 1, 100);
        }
        other => check.problem(&format!("{at}/type"), format!("unsupported type: {other}")),
    }
}

fn section(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "block_id", "text", "fields", "accessory", "expand"]);
    check.boolean(at, map, "expand");
    if !map.contains_key("text") && !map.contains_key("fields") {
        check.problem(at, "must define either `text` or `fields`");
    }
    check.text(at, map, "text", Kind::Any, 3000);
    if map.contains_key("fields") {
        for (index, field) in check.list(at, map, "fields", 1, 10).iter().enumerate() {
            check.text_object(&format!("{at}/fields/{index}"), field, Kind::Any, 2000);
        }
    }
    if let Some(accessory) = map.get("accessory") {
        element(check, &format!("{at}/accessory"), accessory, Place::Accessory);
    }
}

fn actions(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "block_id", "elements"]);
    let mut seen = HashSet::new();
    for (index, value) in check.list(at, map, "elements", 1, 25).iter().enumerate() {
        let at = format!("{at}/elements/{index}");
        if let Some(id) = element(check, &at, value, Place::Actions)
            && !seen.insert(id)
        {
            check.problem(&format!("{at}/action_id"), format!("action_id already exists: {id}"));
        }
    }
}

fn context(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "block_id", "elements"]);
    for (index, value) in check.list(at, map, "elements", 1, 10).iter().enumerate() {
        let at = format!("{at}/elements/{index}");
        if value["type"] == "image" {
            element(check, &at, value, Place::Accessory);
        } else {
            check.text_object(&at, value, Kind::Any, 2000);
        }
    }
}

fn input(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "block_id", "label", "element", "hint", "optional", "dispatch_action"]);
    check.required_text(at, map, "label", Kind::Plain, 2000);
    check.text(at, map, "hint", Kind::Plain, 2000);
    check.boolean(at, map, "optional");
    check.boolean(at, map, "dispatch_action");
    if let Some(value) = check.required(at, map, "element") {
        element(check, &format!("{at}/element"), value, Place::Input);
    }
}
