//! What Slack sends, as far as askd uses it. Tolerant: every field may be missing, what holds others may be null, and unknown
//! ones are ignored. The sender has been verified before.

use super::render::{OTHER, SKIP};
use super::text;
use askd_core::{AskId, Given, Reply};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Nothing, if it is null.
fn given<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// An interaction, e.g. a click on a button, or the envelope of an event. They share no field but the type.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Payload {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of the check that Slack makes before it posts events to an address.
    pub(super) challenge: Option<String>,
    pub(super) team_id: Option<String>,
    pub(super) event_id: Option<String>,
    #[serde(deserialize_with = "given")]
    pub(super) event: MessageEvent,
    pub(super) trigger_id: Option<String>,
    /// The modal that a person has sent.
    view: Option<View>,
    pub(super) team: Option<Team>,
    #[serde(deserialize_with = "given")]
    pub(super) user: User,
    #[serde(deserialize_with = "given")]
    pub(super) container: Container,
    pub(super) message: Option<Message>,
    #[serde(deserialize_with = "given")]
    actions: Vec<BlockAction>,
    #[serde(deserialize_with = "given")]
    state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Team {
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
struct View {
    /// The team of the app. The payload's `team` is that of whoever sent the modal, e.g. of a guest of a shared channel.
    app_installed_team_id: Option<String>,
    /// The [`Container`] of the card whose button opened it.
    #[serde(deserialize_with = "given")]
    private_metadata: String,
    #[serde(deserialize_with = "given")]
    state: State,
}

/// Where a card is.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) message_ts: String,
    pub(super) channel_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_ts: Option<String>,
}

/// What Slack says of a message that it has just posted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Posting {
    pub(super) ts: String,
    pub(super) message: InThread,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InThread {
    pub(super) thread_ts: Option<String>,
}

/// A message of askd's own, in an interaction or in the history of a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) ts: String,
    pub(super) bot_id: Option<String>,
    pub(super) metadata: Option<Metadata>,
    #[serde(deserialize_with = "given")]
    blocks: Vec<Block>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) event_type: String,
    #[serde(deserialize_with = "given")]
    event_payload: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(deserialize_with = "given")]
    block_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BlockAction {
    action_id: String,
    block_id: String,
    value: Option<String>,
    action_ts: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    #[serde(deserialize_with = "given")]
    values: BTreeMap<String, BTreeMap<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Value {
    #[serde(rename = "value")]
    typed: Option<String>,
    selected_option: Option<SelectedOption>,
    #[serde(deserialize_with = "given")]
    selected_options: Vec<SelectedOption>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SelectedOption {
    value: String,
}

impl Message {
    /// The ask that the message belongs to: by its metadata, or else by its blocks.
    pub(super) fn ask(&self) -> Option<AskId> {
        self.metadata.as_ref().and_then(Metadata::ask).or_else(|| self.ask_by_blocks())
    }

    pub(super) fn ask_by_blocks(&self) -> Option<AskId> {
        self.blocks.iter().find_map(|block| BlockId::parse(&block.block_id)).map(|block_id| block_id.ask)
    }
}

impl Metadata {
    pub(super) fn ask(&self) -> Option<AskId> {
        self.value("ask")?.parse().ok()
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.event_payload.get(name)?.as_str()
    }
}

/// A `block_id` that askd wrote.
#[derive(Debug, PartialEq, Eq)]
struct BlockId {
    ask: AskId,
    /// The choices or the text of question n, e.g. `q0` and `t0`, or the last row.
    part: String,
}

impl BlockId {
    fn parse(block_id: &str) -> Option<Self> {
        let mut parts = block_id.split(':');
        let (ours, ask, part) = (parts.next()?, parts.next()?, parts.next()?);
        (ours == "askd").then_some(())?;
        Some(Self { ask: ask.parse().ok()?, part: part.to_owned() })
    }

    fn question(&self, kind: char) -> Option<usize> {
        self.part.strip_prefix(kind)?.parse().ok()
    }
}

/// What a person wants with a card.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Reply(Reply),
    /// Let the question be asked again.
    Allow,
    /// Answer in words, in a modal.
    Other,
}

/// No question has so many choices. A value that is not a number stands for a choice that was not offered.
const NOT_OFFERED: usize = 998;

impl Payload {
    /// Reads a modal that was sent as if its field stood in its card. Returns the field's block, for what Slack shows there.
    pub(super) fn unfold(&mut self) -> Option<String> {
        let view = self.view.take().filter(|_| self.kind == "view_submission")?;
        self.container = serde_json::from_str(&view.private_metadata).unwrap_or_default();
        self.state = view.state;
        // An app of a whole organisation has no team of its own.
        if let (Some(team), Some(id)) = (&mut self.team, view.app_installed_team_id) {
            team.id = id;
        }
        let block_id = self.state.values.keys().find(|block_id| BlockId::parse(block_id).is_some())?.clone();
        let (action_id, block) = ("submit".to_owned(), block_id.clone());
        self.actions = vec![BlockAction { action_id, block_id, ..BlockAction::default() }];
        Some(block)
    }

    /// What the click means, and for which ask. `None` if the block is not askd's, or if the click says nothing by
    /// itself, e.g. a choice in a form.
    pub(super) fn action(&self) -> Option<(AskId, Action)> {
        let mut ours = self.actions.iter().filter_map(|action| Some((action, BlockId::parse(&action.block_id)?)));
        let (action, block_id) = ours.next()?;
        let reply = match action.action_id.split(':').next()? {
            "allow" => return Some((block_id.ask, Action::Allow)),
            "other" => return Some((block_id.ask, Action::Other)),
            "pick" => {
                let question = block_id.question('q')?;
                // The value decides; an `action_id` that contradicts it was forged.
                let value = action.value.as_deref().and_then(|value| value.parse().ok()).unwrap_or(NOT_OFFERED);
                let pick = if action.action_id == format!("pick:{question}:{value}") { value } else { NOT_OFFERED };
                Reply::Whole(vec![(question, Given { picks: vec![pick], text: None })])
            }
            "submit" => Reply::Whole(self.form(block_id.ask)),
            "skip" => Reply::Whole(Vec::new()),
            "dismiss" => Reply::Dismiss,
            _ => return None,
        };
        Some((block_id.ask, Action::Reply(reply)))
    }

    /// All answers that the form of this ask holds.
    fn form(&self, ask: AskId) -> Vec<(usize, Given)> {
        let (mut form, mut skipped): (BTreeMap<usize, Given>, Vec<usize>) = Default::default();
        for (block_id, elements) in &self.state.values {
            let Some(block_id) = BlockId::parse(block_id).filter(|block_id| block_id.ask == ask) else { continue };
            for value in elements.values() {
                if let Some(question) = block_id.question('q') {
                    let given = form.entry(question).or_default();
                    for option in value.selected_option.iter().chain(&value.selected_options) {
                        match &*option.value {
                            SKIP => skipped.push(question),
                            // Without words it is no answer, and it is no skip either.
                            OTHER => given.text = Some(given.text.take().unwrap_or_default()),
                            value => given.picks.push(value.parse().unwrap_or(NOT_OFFERED)),
                        }
                    }
                } else if let Some(question) = block_id.question('t') {
                    let typed = value.typed.as_deref().map(text::copied).filter(|typed| !typed.trim().is_empty());
                    let given = form.entry(question).or_default();
                    // Who opens a modal wants to type, too.
                    let blank = || (self.kind == "view_submission").then(String::new);
                    given.text = typed.or(given.text.take()).or_else(blank);
                }
            }
        }
        for question in skipped {
            // To skip is a choice like any other: with words beside it, it is one of two answers, and the core refuses both.
            let has_words = |given: &&mut Given| given.text.as_deref().is_some_and(|text| !text.trim().is_empty());
            if let Some(given) = form.get_mut(&question).filter(has_words) {
                given.picks.extend([0, 1]);
            }
        }
        form.into_iter().collect()
    }

    /// Two copies of one click have the same key.
    pub(super) fn key(&self) -> Option<String> {
        self.trigger_id.clone().or_else(|| {
            let action = self.actions.first()?;
            Some(format!("{} {} {}", self.user.id, action.block_id, action.action_ts.as_ref()?))
        })
    }
}

/// An event of type `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageEvent {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    bot_id: Option<String>,
    app_id: Option<String>,
    pub(super) user: Option<String>,
    pub(super) user_team: Option<String>,
    /// Of the author, too, where Slack leaves `user_team` out.
    pub(super) source_team: Option<String>,
    pub(super) team: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) ts: Option<String>,
    pub(super) thread_ts: Option<String>,
    /// Who wrote the first message of the thread.
    pub(super) parent_user_id: Option<String>,
    pub(super) text: Option<String>,
    /// What was typed, once more and in parts.
    pub(super) blocks: serde_json::Value,
    /// Of a change: the message as it is now, and as it was.
    message: Option<Box<Self>>,
    previous_message: Option<Box<Self>>,
    deleted_ts: Option<String>,
    #[serde(deserialize_with = "given")]
    files: Vec<IgnoredAny>,
}

impl MessageEvent {
    /// The channel and the `ts` of a message that was deleted. Of one with replies Slack says that it changed into a mark.
    pub(super) fn deleted(&self) -> Option<(&String, &String)> {
        let ts = match (self.subtype.as_deref()?, &self.message) {
            ("message_deleted", _) => self.deleted_ts.as_ref(),
            ("message_changed", Some(mark)) if mark.subtype.as_deref() == Some("tombstone") => mark.ts.as_ref(),
            _ => None,
        };
        self.channel.as_ref().zip(ts)
    }

    /// The message that the event is about and, if it was changed, what it said before.
    pub(super) fn unfold(self) -> (Self, Option<String>) {
        let is_change = self.subtype.as_deref() == Some("message_changed");
        match (self.message, self.previous_message) {
            (Some(message), Some(before)) if is_change => {
                (Self { channel: self.channel, ..*message }, Some(before.text.unwrap_or_default()))
            }
            (message, previous_message) => (Self { message, previous_message, ..self }, None),
        }
    }

    /// Whether a person wrote it: it is not a bot's and not a notice of Slack's.
    pub(super) fn is_reply(&self) -> bool {
        let written = matches!(self.subtype.as_deref(), None | Some("thread_broadcast" | "file_share"));
        self.kind == "message" && written && self.bot_id.is_none() && self.app_id.is_none()
    }

    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty() || self.subtype.as_deref() == Some("file_share")
    }

    /// Whether it was written after the card of its thread, by Slack's clock. A message without a time counts as older.
    pub(super) fn is_later(&self) -> bool {
        let moment = |ts: &Option<String>| {
            let (seconds, micros) = ts.as_deref()?.split_once('.')?;
            Some((seconds.parse::<u64>().ok()?, micros.parse::<u64>().ok()?))
        };
        moment(&self.ts).zip(moment(&self.thread_ts)).is_some_and(|(message, card)| message > card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask() -> AskId {
        AskId::from_bits(7)
    }

    fn interaction(block: &str, action: &str, value: &str, values: &serde_json::Value) -> Option<Action> {
        let block = format!("askd:{}:{block}:1", ask());
        let payload = json!({"type": "block_actions", "team": null, "user": {"id": "U1"}, "unheard_of": [1],
            "actions": [{"block_id": block, "action_id": action, "value": value}], "state": {"values": values}});
        let payload: Payload = serde_json::from_value(payload).unwrap();
        payload.action().map(|(_, action)| action)
    }

    #[test]
    fn clicks_mean_indices() {
        let pick = |n: usize| Some(Action::Reply(Reply::Whole(vec![(0, Given { picks: vec![n], text: None })])));
        assert_eq!(interaction("q0", "pick:0:1", "1", &json!({})), pick(1));
        assert_eq!(interaction("q0", "pick:0:1", "2", &json!({})), pick(NOT_OFFERED), "forged");
        assert_eq!(interaction("q0", "pick:0:1", "React", &json!({})), pick(NOT_OFFERED), "forged");
        assert_eq!(interaction("do", "dismiss", "dismiss", &json!({})), Some(Action::Reply(Reply::Dismiss)));
        assert_eq!(interaction("do", "skip", "skip", &json!({})), Some(Action::Reply(Reply::Whole(vec![]))));
        assert_eq!(interaction("q0", "choice:0", "1", &json!({})), None, "a choice in a form says nothing yet");
    }

    /// As if it were missing.
    #[test]
    fn what_is_null_costs_no_click() {
        let block = format!("askd:{}:q0:1", ask());
        let click = json!({"block_id": block, "action_id": "pick:0:1", "value": "1", "action_ts": null});
        let whole = json!({"type": "block_actions", "user": {"id": "U1"}, "container": {"message_ts": "1.2"}, "actions": [click],
            "message": {"ts": "1.2", "metadata": {"event_type": "askd_ask", "event_payload": {}}, "blocks": [{"block_id": "b"}]},
            "state": {"values": {"x": {"y": {"selected_options": []}}}}, "view": null, "event": null, "team": null});
        let action = |payload: &serde_json::Value| {
            let payload: Payload = serde_json::from_value(payload.clone()).unwrap();
            payload.action().map(|(_, action)| action)
        };
        for place in [
            "/state",
            "/state/values",
            "/state/values/x/y/selected_options",
            "/user",
            "/container",
            "/message",
            "/message/blocks",
            "/message/blocks/0/block_id",
            "/message/metadata",
            "/message/metadata/event_payload",
        ] {
            let mut payload = whole.clone();
            *payload.pointer_mut(place).unwrap() = serde_json::Value::Null;
            assert_eq!(action(&payload), action(&whole), "{place}");
            assert!(action(&whole).is_some());
        }
    }

    #[test]
    fn a_form_is_read_by_its_block_ids() {
        let block = |part: &str| format!("askd:{}:{part}:1", ask());
        let other = format!("askd:{}:t1:1", AskId::from_bits(8));
        let values = json!({
            block("q0"): {"choice:0": {"type": "radio_buttons", "selected_option": {"value": "1"}}},
            block("t0"): {"text:0": {"type": "plain_text_input", "value": null}},
            block("q1"): {"choice:1": {"type": "checkboxes", "selected_options": [{"value": "0"}, {"value": "2"}]}},
            block("t1"): {"text:1": {"type": "plain_text_input", "value": "mi\u{2060}ne"}},
            block("q2"): {"choice:2": {"type": "radio_buttons", "selected_option": {"value": "other"}}},
            other: {"text:1": {"type": "plain_text_input", "value": "of another ask"}},
            "elsewhere": {"x": {"value": "y"}},
        });
        let given =
            |picks: &[usize], text: Option<&str>| Given { picks: picks.to_vec(), text: text.map(str::to_owned) };
        let expected = vec![(0, given(&[1], None)), (1, given(&[0, 2], Some("mine"))), (2, given(&[], Some("")))];
        assert_eq!(interaction("do", "submit", "submit", &values), Some(Action::Reply(Reply::Whole(expected))));
    }

    #[test]
    fn words_beside_a_chosen_skip_are_no_answer() {
        let (choice, text) = (format!("askd:{}:q0:1", ask()), format!("askd:{}:t0:1", ask()));
        let form = |typed: &str| {
            let values = json!({
                &choice: {"choice:0": {"type": "radio_buttons", "selected_option": {"value": "skip"}}},
                &text: {"text:0": {"type": "plain_text_input", "value": typed}},
            });
            interaction("do", "submit", "submit", &values)
        };
        let sent = |picks: &[usize], text: Option<&str>| {
            let given = Given { picks: picks.to_vec(), text: text.map(str::to_owned) };
            Some(Action::Reply(Reply::Whole(vec![(0, given)])))
        };
        assert_eq!(form("  "), sent(&[], None));
        assert_eq!(form("mine"), sent(&[0, 1], Some("mine")), "what the core refuses");
    }

    #[test]
    fn a_modal_is_read_like_the_field_of_its_card() {
        let block = format!("askd:{}:t0:2", ask());
        let view = json!({"private_metadata": r#"{"channel_id":"C1","message_ts":"1.2"}"#,
            "state": {"values": {&block: {"text:0": {"type": "plain_text_input", "value": "mine"}}}}});
        let mut payload: Payload =
            serde_json::from_value(json!({"type": "view_submission", "user": {"id": "U1"}, "view": view})).unwrap();
        assert_eq!(payload.action(), None, "before it is unfolded");
        assert_eq!(payload.unfold(), Some(block));
        let mine = Given { picks: vec![], text: Some("mine".to_owned()) };
        assert_eq!(payload.action(), Some((ask(), Action::Reply(Reply::Whole(vec![(0, mine)])))));
        assert_eq!((&*payload.container.channel_id, &*payload.container.message_ts), ("C1", "1.2"));
        for view in [json!({}), json!({"private_metadata": "{", "state": {"values": {"x": {"y": {"value": "z"}}}}})] {
            let mut payload: Payload =
                serde_json::from_value(json!({"type": "view_submission", "view": view})).unwrap();
            assert_eq!((payload.unfold(), payload.action()), (None, None));
        }
    }

    #[test]
    fn what_is_not_ours_is_nobody_s_reply() {
        for block in ["", "askd", "askd:zz:q0:1", "other:00000000000000000000000000000007:q0:1"] {
            assert_eq!(BlockId::parse(block), None, "{block}");
        }
    }

    const CLICK: &str = r#"{"type":"block_actions","trigger_id":"t","team":{"id":"T1"},"user":{"id":"U1","username":"alice","team_id":"T1"},"container":{"message_ts":"1.2","channel_id":"C1","thread_ts":null},"message":{"ts":"1.2","bot_id":"B1","metadata":{"event_type":"askd_ask","event_payload":{"ask":"00000000000000000000000000000007"}},"blocks":[{"block_id":"askd:00000000000000000000000000000007:q0:1"}]},"actions":[{"action_id":"submit","block_id":"askd:00000000000000000000000000000007:q0:1","value":"1","action_ts":"3.4"}],"state":{"values":{"askd:00000000000000000000000000000007:q0:1":{"choice:0":{"selected_options":[{"value":"0"}]}},"askd:00000000000000000000000000000007:t0:1":{"text:0":{"value":"mine"}}}}}"#;
    const EVENT: &str = r#"{"type":"event_callback","team_id":"T1","event_id":"E1","event":{"type":"message","user":"U1","channel":"C1","ts":"5.6","thread_ts":"1.2","text":"1","team":"T1"}}"#;

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 10_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_body_breaks_it(click in crate::odd::near(CLICK), event in crate::odd::near(EVENT)) {
            if let Ok(payload) = crate::odd::in_time(|| serde_json::from_slice::<Payload>(&click)) {
                let _ = crate::odd::in_time(|| (payload.action(), payload.key()));
                let _ = payload.message.as_ref().and_then(Message::ask);
            }
            if let Ok(payload) = crate::odd::in_time(|| serde_json::from_slice::<Payload>(&event)) {
                let event = payload.event;
                // The rule of times: nothing without two readable times is later than its card.
                let readable = [&event.ts, &event.thread_ts].into_iter().all(|ts| ts.as_deref().is_some_and(|ts| ts.contains('.')));
                proptest::prop_assert!(!event.is_later() || readable);
            }
        }
    }
}
