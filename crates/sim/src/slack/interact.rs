//! What a person does with a message, and the payload that Slack makes of it.
//!
//! Behaves like Slack's client: who is not in the channel does nothing, text over `max_length` cannot be typed, input blocks without `dispatch_action` keep
//! silent, and every `block_actions` carries the state of all elements. Sending is `deliver`'s. Called by the handle and the page.

use serde_json::{Value, json};

use super::deliver::Delivery;
use super::message::{Message, Spot, spots};
use super::shared::{Shared, State};

/// Where an element is. Without `block_id` the first element of that `action_id`.
#[derive(Debug, Clone)]
pub struct At {
    /// `C...`
    pub channel: String,
    /// Of the message.
    pub ts: String,
    /// Of the block.
    pub block_id: Option<String>,
    /// Of the element.
    pub action_id: String,
}

/// What is done with an element.
#[derive(Debug, Clone)]
pub enum Act {
    /// A button is clicked.
    Click,
    /// Exactly the options of these values are chosen now.
    Choose(Vec<String>),
    /// The text of an input is this now.
    Type(String),
    /// Enter is pressed in a text input.
    Enter,
}

/// What Slack's client shows beside a message when the app did not acknowledge.
const WARNING: &str = "This app responded with an error or not in time.";

impl Shared {
    /// Carries out what a person does. `Ok(None)`: nothing was sent, as nothing would be by Slack.
    pub(super) async fn act(&self, user: &str, at: &At, act: &Act) -> Result<Option<Delivery>, String> {
        let payload = self.payload(user, at, act)?;
        self.touch();
        let Some(payload) = payload else {
            return Ok(None);
        };
        let delivery = self.interaction(&payload).await;
        if let Some(message) = self.state().message(&at.channel, &at.ts) {
            message.warnings.remove(user);
            if !delivery.acknowledged {
                message.warnings.insert(user.into(), WARNING.into());
            }
        }
        self.touch();
        Ok(Some(delivery))
    }

    /// Notes the act in the person's draft and builds what Slack would send for it, if anything.
    pub(super) fn payload(&self, user: &str, at: &At, act: &Act) -> Result<Option<Value>, String> {
        let mut state = self.state();
        let (message, spot) = find(&mut state, user, at)?;
        if let Some(value) = draft(&spot, act)? {
            let key = (user.to_owned(), spot.block_id.clone(), spot.action_id.clone());
            message.drafts.insert(key, value);
        }
        let message = message.clone();
        if !fires(&spot, act) {
            return Ok(None);
        }
        let action = self.action(&spot, act, &message, user);
        Ok(Some(self.block_actions(&mut state, user, &message, &action)))
    }

    fn action(&self, spot: &Spot, act: &Act, message: &Message, user: &str) -> Value {
        let now = self.clock.now();
        let mut action = json!({
            "type": spot.kind(), "block_id": spot.block_id, "action_id": spot.action_id,
            "action_ts": format!("{}.{:06}", now.as_secs(), now.subsec_micros()),
        });
        if spot.kind() == "button" {
            for key in ["text", "value", "style", "confirm", "url"] {
                if let Some(value) = spot.element.get(key) {
                    action[key] = value.clone();
                }
            }
        } else if spot.kind() == "overflow" {
            if let Act::Choose(values) = act {
                action["selected_option"] = json!(chosen(spot, values).first());
            }
        } else {
            let state = message.state_for(user);
            for key in ["value", "selected_option", "selected_options"] {
                if let Some(value) = state[&spot.block_id][&spot.action_id].get(key) {
                    action[key] = value.clone();
                }
            }
        }
        action
    }

    /// A whole `block_actions` payload for this person and message.
    fn block_actions(&self, state: &mut State, user: &str, message: &Message, action: &Value) -> Value {
        let trigger = self.trigger(state, user);
        let response_url = self.response_url(state, user, &message.channel, &message.ts);
        let channel_name = state.channel(&message.channel).map_or("directmessage", |channel| channel.name.as_str());
        let ephemeral = message.only_for.is_some();
        let mut container = json!({
            "type": "message", "message_ts": message.ts, "channel_id": message.channel, "is_ephemeral": ephemeral,
        });
        if let Some(thread_ts) = &message.thread_ts {
            container["thread_ts"] = json!(thread_ts);
        }
        let mut payload = json!({
            "type": "block_actions", "user": self.user_json(user), "api_app_id": self.config.app_id, "token": "sim-verification-token",
            "container": container, "trigger_id": trigger, "team": self.team_json(), "enterprise": self.enterprise_json(),
            "is_enterprise_install": self.config.enterprise_install.is_some(),
            "channel": {"id": message.channel, "name": channel_name}, "state": {"values": message.state_for(user)},
            "response_url": response_url, "actions": [action],
        });
        // The source of an ephemeral message is not sent along.
        if !ephemeral {
            payload["message"] = message.wire(&self.config, true);
        }
        payload
    }

    /// A person in a payload.
    pub(super) fn user_json(&self, id: &str) -> Value {
        let user = self.user(id);
        let name = user.as_ref().map_or("unknown", |user| user.name.as_str());
        let team = user.as_ref().map_or("", |user| user.team.as_str());
        json!({"id": id, "username": name, "name": name, "team_id": team})
    }

    /// What Slack would send if this person submitted an open modal with these `state.values`. Its client lets nobody submit
    /// another's modal, leave out a field that is not optional, or type more than it takes; fields left alone are null.
    pub(super) fn view_payload(&self, view_id: &str, user: &str, values: &Value) -> Result<Value, String> {
        let mut state = self.state();
        let mut view = state.views.iter().find(|view| view["id"] == view_id).cloned().ok_or("no such view")?;
        let opened_for = view.as_object_mut().and_then(|view| view.remove("opened_for"));
        if opened_for != Some(json!(user)) {
            return Err("the modal of another person".into());
        }
        view["state"] = json!({"values": view_values(&view, values)?});
        view["app_installed_team_id"] = json!(self.config.team_id);
        // The team of whoever submits it, which is another one for a guest of a shared channel.
        let mut team = self.team_json();
        if let (Some(person), false) = (self.user(user), team.is_null()) {
            team["id"] = json!(person.team);
        }
        Ok(json!({
            "type": "view_submission", "team": team, "enterprise": self.enterprise_json(), "user": self.user_json(user),
            "api_app_id": self.config.app_id, "token": "sim-verification-token", "trigger_id": self.trigger(&mut state, user),
            "view": view, "response_urls": [], "is_enterprise_install": self.config.enterprise_install.is_some(),
        }))
    }

    /// A person submits an open modal. It closes if the app acknowledges with nothing; `errors` for its fields keep it open,
    /// and so does an answer that Slack does not know.
    pub(super) async fn submit_view(&self, view_id: &str, user: &str, values: &Value) -> Result<Delivery, String> {
        let payload = self.view_payload(view_id, user, values)?;
        let mut delivery = self.interaction(&payload).await;
        if delivery.acknowledged {
            match view_answer(&payload["view"], &delivery.answer) {
                Ok(true) => self.state().views.retain(|view| view["id"] != view_id),
                Ok(false) => {}
                Err(problem) => {
                    tracing::error!(problem, answer = delivery.answer, "Slack would not take this answer to a modal");
                    delivery.acknowledged = false;
                }
            }
        }
        self.touch();
        Ok(delivery)
    }
}

fn inputs(view: &Value) -> impl Iterator<Item = &Value> {
    view["blocks"].as_array().into_iter().flatten().filter(|block| block["type"] == "input")
}

fn view_values(view: &Value, given: &Value) -> Result<Value, String> {
    let mut values = json!({});
    for block in inputs(view) {
        let (block_id, element) = (block["block_id"].as_str().unwrap_or_default(), &block["element"]);
        let action_id = element["action_id"].as_str().unwrap_or_default();
        let typed = &given[block_id][action_id]["value"];
        let length = typed.as_str().map_or(0, |text| text.encode_utf16().count());
        if length == 0 && block["optional"] != true {
            return Err(format!("{action_id} has to be filled in"));
        }
        if length > element["max_length"].as_u64().and_then(|most| most.try_into().ok()).unwrap_or(3000) {
            return Err(format!("{action_id} takes no more"));
        }
        values[block_id] = json!({action_id: {"type": element["type"], "value": typed}});
    }
    let strange = given.as_object().into_iter().flatten().find(|(block_id, _)| values.get(block_id).is_none());
    strange.map_or(Ok(values), |(block_id, _)| Err(format!("the modal has no input {block_id}")))
}

/// Whether the answer to a submission closes the modal.
fn view_answer(view: &Value, answer: &str) -> Result<bool, &'static str> {
    if answer.trim().is_empty() {
        return Ok(true);
    }
    let answer: Value = serde_json::from_str(answer).map_err(|_| "not JSON")?;
    match answer["response_action"].as_str() {
        Some("clear") => Ok(true),
        Some("errors") => {
            let errors = answer["errors"].as_object().filter(|errors| !errors.is_empty()).ok_or("no errors")?;
            let of_input = |(block_id, text): (&String, &Value)| {
                inputs(view).any(|block| block["block_id"] == block_id.as_str()) && text.is_string()
            };
            if errors.iter().all(of_input) { Ok(false) } else { Err("an error for no input") }
        }
        None if answer == json!({}) => Ok(true),
        _ => Err("an unknown response_action"),
    }
}

fn find<'s>(state: &'s mut State, user: &str, at: &At) -> Result<(&'s mut Message, Spot), String> {
    let channel = state.channel(&at.channel).ok_or("channel_not_found")?;
    if !channel.members.iter().any(|member| member == user) {
        return Err("user_not_in_channel".into());
    }
    let message = state.message(&at.channel, &at.ts).ok_or("message_not_found")?;
    if message.only_for.as_deref().is_some_and(|only| only != user) {
        return Err("message_not_found".into());
    }
    let block = at.block_id.as_deref();
    let spot = spots(&message.blocks)
        .into_iter()
        .find(|spot| spot.action_id == at.action_id && block.is_none_or(|block| block == spot.block_id))
        .ok_or("no such element in the message")?;
    Ok((message, spot))
}

fn chosen(spot: &Spot, values: &[String]) -> Vec<Value> {
    let options = spot.options().into_iter();
    options.filter(|option| values.iter().any(|value| option["value"] == value.as_str())).collect()
}

/// What the act leaves in the element; an error if Slack's client would not let it happen.
fn draft(spot: &Spot, act: &Act) -> Result<Option<Value>, String> {
    match (spot.kind(), act) {
        ("button", Act::Click) | ("plain_text_input", Act::Enter) => Ok(None),
        ("plain_text_input", Act::Type(text)) => {
            let most = spot.element["max_length"].as_u64().unwrap_or(3000);
            if u64::try_from(text.chars().count()).unwrap_or(u64::MAX) > most {
                return Err(format!("the input takes no more than {most} characters"));
            }
            Ok(Some(if text.is_empty() { Value::Null } else { json!(text) }))
        }
        (kind, Act::Choose(values)) => {
            let options = chosen(spot, values);
            if options.len() != values.len() {
                return Err("no such option".into());
            }
            match kind {
                "checkboxes" | "multi_static_select" => Ok(Some(json!(options))),
                "radio_buttons" | "static_select" if options.len() == 1 => Ok(options.into_iter().next()),
                "overflow" if options.len() == 1 => Ok(None),
                _ => Err(format!("a {kind} takes one choice")),
            }
        }
        (kind, act) => Err(format!("{act:?} is nothing to do with a {kind}")),
    }
}

fn fires(spot: &Spot, act: &Act) -> bool {
    let triggers = &spot.element["dispatch_action_config"]["trigger_actions_on"];
    let on = |word: &str, default: bool| {
        triggers.as_array().map_or(default, |words| words.iter().any(|trigger| trigger == word))
    };
    match act {
        Act::Click => true,
        Act::Choose(_) => spot.sends,
        Act::Type(_) => spot.sends && on("on_character_entered", false),
        Act::Enter => spot.sends && on("on_enter_pressed", true),
    }
}
