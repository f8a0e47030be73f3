//! The rules of block elements: buttons, choices, text inputs, images.
//!
//! Only the elements that `askd` could ever send are known. Slack knows more (pickers, files, workflows): those are refused here as unsupported, which is
//! stricter than Slack. Called by the block rules in `mod.rs`. Limits without another source are those of `@slack/types` 3.2.0.

use serde_json::{Map, Value};

use super::check::{Check, Kind};

/// Where an element stands decides which are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Beside the text of a section.
    Accessory,
    /// In a row of actions.
    Actions,
    /// In an input block.
    Input,
}

impl Place {
    fn allows(self, kind: &str) -> bool {
        match kind {
            "button" | "overflow" => self != Self::Input,
            "plain_text_input" => self == Self::Input,
            "image" => self == Self::Accessory,
            "radio_buttons" | "checkboxes" | "static_select" | "multi_static_select" => true,
            _ => false,
        }
    }
}

/// Checks one element; yields its `action_id`, if it has one.
pub(super) fn element<'v>(check: &mut Check, at: &str, value: &'v Value, place: Place) -> Option<&'v str> {
    let map = check.object(at, value)?;
    let kind = check.required(at, map, "type")?.as_str().unwrap_or_default();
    if !place.allows(kind) {
        check.problem(&format!("{at}/type"), format!("unsupported type: {kind}"));
        return None;
    }
    match kind {
        "button" => button(check, at, map),
        "overflow" => overflow(check, at, map),
        "plain_text_input" => text_input(check, at, map),
        "radio_buttons" | "checkboxes" => choices(check, at, map, kind),
        "static_select" | "multi_static_select" => select(check, at, map, kind),
        _ => image(check, at, map, true),
    }
    if kind == "image" {
        return None;
    }
    check.confirm(at, map);
    check.string(at, map, "action_id", 255)
}

fn button(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "text", "action_id", "url", "value", "style", "confirm", "accessibility_label"]);
    check.required_text(at, map, "text", Kind::Plain, 75);
    check.string_or_empty(at, map, "value", 2000);
    check.string(at, map, "url", 3000);
    check.word(at, map, "style", &["primary", "danger"]);
    check.string(at, map, "accessibility_label", 75);
}

/// `slack_sdk`: 1 to 5 options (`OverflowMenuElement`).
fn overflow(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(at, map, &["type", "action_id", "options", "confirm"]);
    for (index, option) in check.list(at, map, "options", 1, 5).iter().enumerate() {
        check.option(&format!("{at}/options/{index}"), option, Kind::Plain, true);
    }
}

fn choices(check: &mut Check, at: &str, map: &Map<String, Value>, kind: &str) {
    let initial = if kind == "checkboxes" { "initial_options" } else { "initial_option" };
    check.only(at, map, &["type", "action_id", "options", initial, "confirm", "focus_on_load"]);
    check.boolean(at, map, "focus_on_load");
    let options = check.list(at, map, "options", 1, 10);
    for (index, option) in options.iter().enumerate() {
        check.option(&format!("{at}/options/{index}"), option, Kind::Any, false);
    }
    check.initial(at, map, &options.iter().collect::<Vec<_>>());
}

fn select(check: &mut Check, at: &str, map: &Map<String, Value>, kind: &str) {
    let many = kind == "multi_static_select";
    let initial = if many { "initial_options" } else { "initial_option" };
    let mut known =
        vec!["type", "action_id", "options", "option_groups", "placeholder", initial, "confirm", "focus_on_load"];
    if many {
        known.push("max_selected_items");
    }
    check.only(at, map, &known);
    check.text(at, map, "placeholder", Kind::Plain, 150);
    check.boolean(at, map, "focus_on_load");
    check.integer(at, map, "max_selected_items", 1, 100);
    let mut options: Vec<&Value> = Vec::new();
    match (map.contains_key("options"), map.contains_key("option_groups")) {
        (true, true) | (false, false) => check.problem(at, "must define either `options` or `option_groups`"),
        (true, false) => select_options(check, at, map, &mut options),
        (false, true) => {
            for (index, group) in check.list(at, map, "option_groups", 1, 100).iter().enumerate() {
                let at = format!("{at}/option_groups/{index}");
                let Some(group) = check.object(&at, group) else {
                    continue;
                };
                check.only(&at, group, &["label", "options"]);
                check.required_text(&at, group, "label", Kind::Plain, 75);
                select_options(check, &at, group, &mut options);
            }
        }
    }
    check.initial(at, map, &options);
}

fn select_options<'v>(check: &mut Check, at: &str, map: &'v Map<String, Value>, all: &mut Vec<&'v Value>) {
    for (index, option) in check.list(at, map, "options", 1, 100).iter().enumerate() {
        check.option(&format!("{at}/options/{index}"), option, Kind::Plain, false);
        all.push(option);
    }
}

/// `max_length` and `initial_value` up to 3000: the documentation pages; `@slack/types` says it of `min_length` only.
fn text_input(check: &mut Check, at: &str, map: &Map<String, Value>) {
    check.only(
        at,
        map,
        &[
            "type",
            "action_id",
            "placeholder",
            "initial_value",
            "multiline",
            "min_length",
            "max_length",
            "dispatch_action_config",
            "focus_on_load",
        ],
    );
    check.text(at, map, "placeholder", Kind::Plain, 150);
    check.string_or_empty(at, map, "initial_value", 3000);
    check.boolean(at, map, "multiline");
    check.boolean(at, map, "focus_on_load");
    let min = check.integer(at, map, "min_length", 0, 3000);
    let max = check.integer(at, map, "max_length", 1, 3000);
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        check.problem(at, "min_length must not exceed max_length");
    }
    let Some(config) = map.get("dispatch_action_config") else {
        return;
    };
    let at = format!("{at}/dispatch_action_config");
    let Some(config) = check.object(&at, config) else {
        return;
    };
    check.only(&at, config, &["trigger_actions_on"]);
    for (index, word) in check.list(&at, config, "trigger_actions_on", 1, 2).iter().enumerate() {
        if !matches!(word.as_str(), Some("on_enter_pressed" | "on_character_entered")) {
            check.problem(&format!("{at}/trigger_actions_on/{index}"), "must be a valid enum value");
        }
    }
}

/// An image, as an element or as the common part of the image block.
pub(super) fn image(check: &mut Check, at: &str, map: &Map<String, Value>, element: bool) {
    if element {
        check.only(at, map, &["type", "image_url", "alt_text"]);
    }
    check.required_string(at, map, "image_url", 3000);
    check.required_string(at, map, "alt_text", 2000);
}
