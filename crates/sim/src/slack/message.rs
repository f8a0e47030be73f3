//! A message as the stand-in keeps it, and as Slack would say it.
//!
//! What a person has typed or chosen in it and not yet sent belongs to that person's screen, so it is kept per person. No rules here: who may post or edit is
//! the Web API's matter. Used by everything beside it.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::chance::Chance;
use super::config::Config;
use super::emoji;

/// One message.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// `1732104000.000100`; unique and rising.
    pub ts: String,
    /// `C...`
    pub channel: String,
    /// Who wrote it: the bot's user or a person.
    pub user: String,
    /// Written by the app.
    pub by_app: bool,
    /// Plain text, or the fallback of blocks.
    pub text: String,
    /// Blocks with the ids that Slack adds where none were given.
    pub blocks: Vec<Value>,
    /// `{event_type, event_payload}`.
    pub metadata: Option<Value>,
    /// The message whose thread this is in.
    pub thread_ts: Option<String>,
    /// A reply that is shown in the channel as well.
    pub broadcast: bool,
    /// Ephemeral: the only person who sees it.
    pub only_for: Option<String>,
    /// Time of the last edit.
    pub edited: Option<String>,
    /// How often it was edited.
    pub edits: u32,
    /// Gone.
    pub deleted: bool,
    /// Emoji name to people.
    pub reactions: BTreeMap<String, Vec<String>>,
    /// The last interaction of a person with it failed: what the person reads beside the warning sign.
    pub warnings: HashMap<String, String>,
    /// What each person typed or chose: (person, `block_id`, `action_id`) to the element's value.
    pub(super) drafts: HashMap<(String, String, String), Value>,
}

/// An element that a person can use, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) block_id: String,
    pub(super) action_id: String,
    pub(super) element: Value,
    /// Sends by itself when used; input blocks do only with `dispatch_action`.
    pub(super) sends: bool,
}

/// Elements with a value that people set.
const STATEFUL: &[&str] = &["plain_text_input", "radio_buttons", "checkboxes", "static_select", "multi_static_select"];

impl Spot {
    pub(super) fn kind(&self) -> &str {
        self.element["type"].as_str().unwrap_or_default()
    }

    /// Options of a choice, those of groups included.
    pub(super) fn options(&self) -> Vec<Value> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let groups = list(&self.element["option_groups"]);
        let grouped = groups.iter().flat_map(|group| list(&group["options"]));
        list(&self.element["options"]).into_iter().chain(grouped).collect()
    }
}

/// All usable elements of these blocks.
pub(super) fn spots(blocks: &[Value]) -> Vec<Spot> {
    let mut spots = Vec::new();
    for block in blocks {
        let mut add = |element: &Value, sends: bool| {
            if let Some(action_id) = element["action_id"].as_str() {
                spots.push(Spot {
                    block_id: block["block_id"].as_str().unwrap_or_default().into(),
                    action_id: action_id.into(),
                    element: element.clone(),
                    sends,
                });
            }
        };
        match block["type"].as_str() {
            Some("actions") => {
                for element in block["elements"].as_array().into_iter().flatten() {
                    add(element, true);
                }
            }
            Some("section") => add(&block["accessory"], true),
            Some("input") => add(&block["element"], block["dispatch_action"] == true),
            _ => {}
        }
    }
    spots
}

/// The `values` of `state`: every stateful element, touched or not.
pub(super) fn state_values(blocks: &[Value], draft: impl Fn(&Spot) -> Option<Value>) -> Value {
    let mut values = Map::new();
    for spot in spots(blocks) {
        if !STATEFUL.contains(&spot.kind()) {
            continue;
        }
        let (key, untouched) = match spot.kind() {
            "plain_text_input" => ("value", spot.element.get("initial_value").cloned().unwrap_or(Value::Null)),
            "checkboxes" | "multi_static_select" => {
                ("selected_options", spot.element.get("initial_options").cloned().unwrap_or_else(|| json!([])))
            }
            _ => ("selected_option", spot.element.get("initial_option").cloned().unwrap_or(Value::Null)),
        };
        let value = draft(&spot).unwrap_or(untouched);
        let entry = json!({"type": spot.kind(), key: value});
        let block = values.entry(spot.block_id.clone()).or_insert_with(|| json!({}));
        block[spot.action_id.as_str()] = entry;
    }
    Value::Object(values)
}

/// What Slack adds to blocks that it stores: ids, `emoji` and `verbatim`.
pub(super) fn complete(blocks: &mut [Value], chance: &Chance) {
    fn texts(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(texts),
            Value::Object(map) => match map.get("type").and_then(Value::as_str) {
                Some("plain_text") => {
                    map.entry("emoji").or_insert(Value::Bool(true));
                }
                Some("mrkdwn") => {
                    map.entry("verbatim").or_insert(Value::Bool(false));
                }
                _ => map.values_mut().for_each(texts),
            },
            _ => {}
        }
    }
    let name = |value: &mut Value, key: &str| {
        if let Some(map) = value.as_object_mut() {
            map.entry(key).or_insert_with(|| Value::String(chance.word(5)));
        }
    };
    for block in blocks {
        name(block, "block_id");
        texts(block);
        let elements = match block["type"].as_str() {
            Some("actions") => block["elements"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice),
            Some("section") if block.get("accessory").is_some() => std::slice::from_mut(&mut block["accessory"]),
            Some("input") => std::slice::from_mut(&mut block["element"]),
            _ => &mut [],
        };
        for element in elements.iter_mut().filter(|element| element["type"] != "image") {
            name(element, "action_id");
        }
    }
}

/// What Slack makes of text that a person typed.
fn typed(text: &str) -> Value {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let section = json!({"type": "rich_text_section", "elements": emoji::elements(&text)});
    json!({"type": "rich_text", "block_id": "typed", "elements": [section]})
}

/// What stands in the place of a message that was deleted and has replies.
pub(super) fn tombstone(ts: &Value) -> Value {
    json!({
        "type": "message", "subtype": "tombstone", "text": "This message was deleted.", "user": "USLACKBOT", "hidden": true,
        "ts": ts, "thread_ts": ts,
    })
}

impl Message {
    /// State of the message's elements on the screen of this person, as `state.values` of a payload has it.
    #[must_use]
    pub fn state_for(&self, user: &str) -> Value {
        state_values(&self.blocks, |spot| {
            let key = (user.to_owned(), spot.block_id.clone(), spot.action_id.clone());
            self.drafts.get(&key).cloned()
        })
    }

    /// As the Web API and payloads show it.
    pub(super) fn wire(&self, config: &Config, with_metadata: bool) -> Value {
        let author = config.users.iter().find(|user| user.id == self.user);
        let team = author.map_or(&config.team_id, |author| &author.team);
        let mut wire = json!({"type": "message", "user": self.user, "ts": self.ts, "text": self.text, "team": team});
        if self.by_app {
            wire["bot_id"] = json!(config.bot_id);
            wire["app_id"] = json!(config.app_id);
            wire["bot_profile"] = json!({
                "id": config.bot_id, "app_id": config.app_id, "user_id": config.bot_user, "name": config.app_name,
                "icons": {"image_36": "", "image_48": "", "image_72": ""}, "deleted": false, "updated": 0, "team_id": config.team_id,
            });
        }
        if !self.blocks.is_empty() {
            wire["blocks"] = json!(self.blocks);
        } else if !self.by_app {
            wire["blocks"] = json!([typed(&self.text)]);
        }
        if let Some(thread_ts) = &self.thread_ts {
            wire["thread_ts"] = json!(thread_ts);
        }
        if self.broadcast {
            wire["subtype"] = json!("thread_broadcast");
        }
        if let Some(edited) = &self.edited {
            wire["edited"] = json!({"user": config.bot_id, "ts": edited});
        }
        if let (true, Some(metadata)) = (with_metadata, &self.metadata) {
            wire["metadata"] = metadata.clone();
        }
        if !self.reactions.is_empty() {
            let reactions =
                self.reactions.iter().map(|(name, users)| json!({"name": name, "users": users, "count": users.len()}));
            wire["reactions"] = reactions.collect();
        }
        wire
    }

    /// Whether people see an element of this `action_id`.
    #[must_use]
    pub fn has_action(&self, action_id: &str) -> bool {
        spots(&self.blocks).iter().any(|spot| spot.action_id == action_id)
    }

    /// All usable elements: (`block_id`, `action_id`, type).
    #[must_use]
    pub fn elements(&self) -> Vec<(String, String, String)> {
        spots(&self.blocks)
            .into_iter()
            .map(|spot| {
                let kind = spot.kind().to_owned();
                (spot.block_id, spot.action_id, kind)
            })
            .collect()
    }

    /// Everything that can be read in the message, line by line.
    #[must_use]
    pub fn visible_text(&self) -> String {
        fn texts(value: &Value, into: &mut Vec<String>) {
            match value {
                Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
                Value::Object(map) => {
                    for (key, value) in map {
                        match value {
                            Value::String(text) if key == "text" => into.push(text.clone()),
                            other => texts(other, into),
                        }
                    }
                }
                _ => {}
            }
        }
        let mut lines = Vec::new();
        texts(&Value::Array(self.blocks.clone()), &mut lines);
        if lines.is_empty() {
            lines.push(self.text.clone());
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_elements_are_null_or_empty() {
        let option = json!({"text": {"type": "plain_text", "text": "A"}, "value": "0"});
        let blocks = [
            json!({"type": "input", "block_id": "b1", "element": {"type": "plain_text_input", "action_id": "t"}}),
            json!({"type": "input", "block_id": "b2", "element": {"type": "checkboxes", "action_id": "c", "options": [option]}}),
            json!({"type": "actions", "block_id": "b3", "elements": [
                {"type": "radio_buttons", "action_id": "r", "options": [option]}, {"type": "button", "action_id": "go"}]}),
        ];
        assert_eq!(
            state_values(&blocks, |_| None),
            json!({
                "b1": {"t": {"type": "plain_text_input", "value": null}},
                "b2": {"c": {"type": "checkboxes", "selected_options": []}},
                "b3": {"r": {"type": "radio_buttons", "selected_option": null}},
            })
        );
    }

    #[test]
    fn slack_names_what_has_no_name() {
        let mut blocks =
            [json!({"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "x"}}]})];
        complete(&mut blocks, &Chance::new(1));
        assert!(blocks[0]["block_id"].is_string());
        assert!(blocks[0]["elements"][0]["action_id"].is_string());
        assert_eq!(blocks[0]["elements"][0]["text"]["emoji"], true);
    }
}
