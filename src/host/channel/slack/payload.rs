//! What Slack sends, as much of it as is used. Tolerant: everything may be missing, and nothing else is looked at.
//! Who sent it has been verified before.

use super::render::{OTHER, SKIP};
use askd_core::{AskId, Given, Reply};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An interaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Interaction {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) trigger_id: Option<String>,
    pub(super) team: Option<Named>,
    pub(super) user: User,
    pub(super) container: Container,
    pub(super) message: Option<Message>,
    pub(super) actions: Vec<Action>,
    pub(super) state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) id: String,
    pub(super) username: Option<String>,
    pub(super) name: Option<String>,
    pub(super) team_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) message_ts: String,
    pub(super) channel_id: String,
    pub(super) thread_ts: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) ts: String,
    pub(super) metadata: Option<Metadata>,
    pub(super) blocks: Vec<Block>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    event_payload: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block {
    block_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Action {
    #[serde(rename = "action_id")]
    pub(super) id: String,
    #[serde(rename = "block_id")]
    pub(super) block: String,
    pub(super) value: Option<String>,
    #[serde(rename = "action_ts")]
    pub(super) at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    values: BTreeMap<String, BTreeMap<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Value {
    #[serde(rename = "value")]
    typed: Option<String>,
    selected_option: Option<Chosen>,
    selected_options: Vec<Chosen>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Chosen {
    value: String,
}

impl Message {
    /// The ask that the message says it belongs to.
    pub(super) fn ask(&self) -> Option<AskId> {
        let said =
            self.metadata.as_ref().and_then(|metadata| metadata.event_payload.get("ask")?.as_str()?.parse().ok());
        said.or_else(|| self.blocks.iter().find_map(|block| Part::of(&block.block_id)).map(|part| part.ask))
    }
}

/// What a `block_id` of ours says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) ask: AskId,
    /// The element of question n, its text, or the last row.
    what: String,
}

impl Part {
    pub(super) fn of(block_id: &str) -> Option<Self> {
        let mut parts = block_id.split(':');
        let (ours, ask, what) = (parts.next()?, parts.next()?, parts.next()?);
        (ours == "askd").then_some(())?;
        Some(Self { ask: ask.parse().ok()?, what: what.to_owned() })
    }

    fn question(&self, kind: char) -> Option<usize> {
        self.what.strip_prefix(kind)?.parse().ok()
    }
}

/// A number that no question has so many choices for: what is not a number is not offered either.
const STRAY: usize = 998;

impl Interaction {
    /// What was done, and in which part of which ask's card; `None` if it is not ours.
    pub(super) fn part(&self) -> Option<(&Action, Part)> {
        self.actions.iter().find_map(|action| Some((action, Part::of(&action.block)?)))
    }

    /// The reply that a click means; `None` for what is not a reply by itself, such as a choice in a form.
    pub(super) fn reply(&self, action: &Action, part: &Part) -> Option<Reply> {
        match action.id.split(':').next()? {
            "pick" => {
                let question = part.question('q')?;
                // The value counts; an id that says something else was made up.
                let value = action.value.as_deref().and_then(|value| value.parse().ok()).unwrap_or(STRAY);
                let pick = if action.id == format!("pick:{question}:{value}") { value } else { STRAY };
                Some(Reply::Whole(vec![(question, Given { picks: vec![pick], text: None })]))
            }
            "submit" => Some(Reply::Whole(self.form(part.ask))),
            "skip" => Some(Reply::Whole(Vec::new())),
            "dismiss" => Some(Reply::Dismiss),
            _ => None,
        }
    }

    /// All that the form holds.
    fn form(&self, ask: AskId) -> Vec<(usize, Given)> {
        let mut form: BTreeMap<usize, Given> = BTreeMap::new();
        for (block_id, elements) in &self.state.values {
            let Some(part) = Part::of(block_id).filter(|part| part.ask == ask) else { continue };
            for value in elements.values() {
                if let Some(question) = part.question('q') {
                    let chosen = value.selected_option.iter().chain(&value.selected_options);
                    let values =
                        chosen.map(|chosen| chosen.value.as_str()).filter(|value| ![OTHER, SKIP].contains(value));
                    let picks = values.map(|value| value.parse().unwrap_or(STRAY));
                    form.entry(question).or_default().picks.extend(picks);
                } else if let Some(question) = part.question('t') {
                    form.entry(question).or_default().text.clone_from(&value.typed);
                }
            }
        }
        form.into_iter().collect()
    }

    /// What makes this click the same as one that came before.
    pub(super) fn key(&self) -> Option<String> {
        self.trigger_id.clone().or_else(|| {
            let action = self.actions.first()?;
            Some(format!("{} {} {}", self.user.id, action.block, action.at.as_ref()?))
        })
    }
}

/// What comes to the events address, or in an envelope of that kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Callback {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) challenge: Option<String>,
    pub(super) team_id: Option<String>,
    pub(super) event_id: Option<String>,
    pub(super) event: Event,
}

/// An event: a message that somebody wrote.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) subtype: Option<String>,
    pub(super) bot_id: Option<String>,
    pub(super) app_id: Option<String>,
    pub(super) user: Option<String>,
    pub(super) user_team: Option<String>,
    pub(super) team: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) ts: Option<String>,
    pub(super) thread_ts: Option<String>,
    pub(super) text: Option<String>,
}

impl Event {
    /// A person's own words in a thread: not a bot's, not an edit, not a notice of Slack's.
    pub(super) fn is_reply(&self) -> bool {
        let spoken = matches!(self.subtype.as_deref(), None | Some("thread_broadcast" | "file_share"));
        self.kind == "message" && spoken && self.bot_id.is_none() && self.app_id.is_none()
    }

    /// Whether it was written after the card of its thread, by Slack's clock; without a time it counts as older.
    pub(super) fn is_later(&self) -> bool {
        let moment = |ts: &Option<String>| {
            let (seconds, micros) = ts.as_deref()?.split_once('.')?;
            Some((seconds.parse::<u64>().ok()?, micros.parse::<u64>().ok()?))
        };
        moment(&self.ts).zip(moment(&self.thread_ts)).is_some_and(|(said, card)| said > card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask() -> AskId {
        AskId::from_bits(7)
    }

    fn interaction(block: &str, action: &str, value: &str, values: &serde_json::Value) -> Option<Reply> {
        let block = format!("askd:{}:{block}:1", ask());
        let payload = json!({"type": "block_actions", "team": null, "user": {"id": "U1"}, "unheard_of": [1],
            "actions": [{"block_id": block, "action_id": action, "value": value}], "state": {"values": values}});
        let payload: Interaction = serde_json::from_value(payload).unwrap();
        let (action, part) = payload.part()?;
        payload.reply(action, &part)
    }

    #[test]
    fn clicks_mean_indices() {
        let pick = |n: usize| Some(Reply::Whole(vec![(0, Given { picks: vec![n], text: None })]));
        assert_eq!(interaction("q0", "pick:0:1", "1", &json!({})), pick(1));
        assert_eq!(interaction("q0", "pick:0:1", "2", &json!({})), pick(STRAY), "forged");
        assert_eq!(interaction("q0", "pick:0:1", "React", &json!({})), pick(STRAY), "forged");
        assert_eq!(interaction("do", "dismiss", "dismiss", &json!({})), Some(Reply::Dismiss));
        assert_eq!(interaction("do", "skip", "skip", &json!({})), Some(Reply::Whole(vec![])));
        assert_eq!(interaction("q0", "choice:0", "1", &json!({})), None, "a choice in a form says nothing yet");
    }

    #[test]
    fn a_form_is_read_by_its_block_ids() {
        let block = |part: &str| format!("askd:{}:{part}:1", ask());
        let other = format!("askd:{}:t1:1", AskId::from_bits(8));
        let values = json!({
            block("q0"): {"choice:0": {"type": "radio_buttons", "selected_option": {"value": "1"}}},
            block("t0"): {"text:0": {"type": "plain_text_input", "value": null}},
            block("q1"): {"choice:1": {"type": "checkboxes", "selected_options": [{"value": "0"}, {"value": "2"}]}},
            block("t1"): {"text:1": {"type": "plain_text_input", "value": "mine"}},
            block("q2"): {"choice:2": {"type": "radio_buttons", "selected_option": {"value": "other"}}},
            other: {"text:1": {"type": "plain_text_input", "value": "of another ask"}},
            "elsewhere": {"x": {"value": "y"}},
        });
        let given =
            |picks: &[usize], text: Option<&str>| Given { picks: picks.to_vec(), text: text.map(str::to_owned) };
        let expected = vec![(0, given(&[1], None)), (1, given(&[0, 2], Some("mine"))), (2, given(&[], None))];
        assert_eq!(interaction("do", "submit", "submit", &values), Some(Reply::Whole(expected)));
    }

    #[test]
    fn what_is_not_ours_is_nobody_s_reply() {
        for block in ["", "askd", "askd:zz:q0:1", "other:00000000000000000000000000000007:q0:1"] {
            assert_eq!(Part::of(block), None, "{block}");
        }
    }
}
