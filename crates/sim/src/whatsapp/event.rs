//! Meta's webhook shapes: what one event looks like and how several share one POST.
//!
//! Sources: Meta's messages webhook reference (status, sticker, audio, image, reaction, interactive,
//! button, unsupported; 2026), the page on business-scoped user ids (2026-05-28) and `pywa` 4.5, which
//! reads what is sent here in `tests/contract`. Not certain: `contacts` beside a `failed` status (see
//! `Shapes`), and the exact keys of `pricing`. Called by `state` (one event) and `courier` (bodies).

use serde_json::{Value, json};

use super::config::Config;
use super::error::status_error;
use super::message::{Message, Person, Stage, Tap};
use super::random::Random;

/// One thing to tell the business.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Message { contact: Value, message: Value },
    Status { contact: Option<Value>, status: Value },
}

/// What a person can send, besides plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sending {
    /// Text.
    Text(String),
    /// A sticker.
    Sticker,
    /// A voice note.
    Voice,
    /// A picture; `None`: no caption, `Some("")`: an empty one.
    Image(Option<String>),
    /// An emoji on a message of the business; empty: taken off again.
    Reaction {
        /// The message it is put on.
        on: String,
        /// The emoji.
        emoji: String,
    },
    /// A button, a list row or a template's quick reply of a message is tapped.
    Tap {
        /// The message it belongs to.
        on: String,
        /// Its `id` (or payload).
        id: String,
    },
    /// Something the Cloud API does not carry (a poll, say): `type: unsupported` with 131051.
    Unsupported,
}

/// `contacts[]` of a person.
pub(super) fn contact(config: &Config, person: &Person, with_username: bool, number_known: bool) -> Value {
    let mut profile = json!({"name": person.name});
    if let (true, Some(username)) = (with_username, &person.username) {
        profile["username"] = json!(username);
    }
    let mut contact = json!({ "profile": profile });
    if number_known || !person.number_hidden {
        contact["wa_id"] = json!(person.wa_id);
    }
    if !config.shapes.without_user_ids {
        contact["user_id"] = json!(person.user_id);
    }
    contact
}

/// A person's message.
pub(super) fn message(config: &Config, person: &Person, m: &Message, sending: &Sending, on: Option<&Message>) -> Event {
    let mut message = json!({"id": m.id, "timestamp": seconds(m.at)});
    if !person.number_hidden {
        message["from"] = json!(person.wa_id);
    }
    if !config.shapes.without_user_ids {
        message["from_user_id"] = json!(person.user_id);
    }
    if let Some(quoted) = &m.quotes {
        let from = if on.is_none_or(|q| q.outgoing) { &config.display_phone_number } else { &person.wa_id };
        message["context"] = json!({"from": from, "id": quoted});
    }
    let (kind, content) = content(&m.id, sending, on);
    message["type"] = json!(kind);
    if kind == "unsupported" {
        message["errors"] = json!([status_error(131_051)]);
    }
    message[kind] = content;
    Event::Message { contact: contact(config, person, true, false), message }
}

/// `type` and the object of that name.
fn content(id: &str, sending: &Sending, on: Option<&Message>) -> (&'static str, Value) {
    let media =
        |mime: &str| json!({"mime_type": mime, "sha256": "Zm9vYmFy+/8=", "id": media_id(id), "url": media_url(id)});
    match sending {
        Sending::Text(text) => ("text", json!({"body": text})),
        Sending::Sticker => {
            let mut sticker = media("image/webp");
            sticker["animated"] = json!(false);
            ("sticker", sticker)
        }
        Sending::Voice => {
            let mut audio = media("audio/ogg; codecs=opus");
            audio["voice"] = json!(true);
            ("audio", audio)
        }
        Sending::Image(caption) => {
            let mut image = media("image/jpeg");
            if let Some(caption) = caption {
                image["caption"] = json!(caption);
            }
            ("image", image)
        }
        Sending::Reaction { on, emoji } if emoji.is_empty() => ("reaction", json!({"message_id": on})),
        Sending::Reaction { on, emoji } => ("reaction", json!({"message_id": on, "emoji": emoji})),
        Sending::Tap { id, .. } => tapped(id, on),
        Sending::Unsupported => ("unsupported", json!({"type": "poll_creation"})),
    }
}

fn tapped(id: &str, on: Option<&Message>) -> (&'static str, Value) {
    let unknown = Tap { id: id.to_owned(), title: id.to_owned(), description: None };
    let tap = on.and_then(|m| m.taps.iter().find(|t| t.id == id)).unwrap_or(&unknown);
    match on.map(|m| (m.kind.as_str(), m.list_label.is_some())) {
        Some(("template", _)) => ("button", json!({"payload": tap.id, "text": tap.title})),
        Some((_, true)) => {
            let mut row = json!({"id": tap.id, "title": tap.title});
            if let Some(description) = &tap.description {
                row["description"] = json!(description);
            }
            ("interactive", json!({"type": "list_reply", "list_reply": row}))
        }
        _ => ("interactive", json!({"type": "button_reply", "button_reply": {"id": tap.id, "title": tap.title}})),
    }
}

/// A status of a message of the business.
pub(super) fn status(config: &Config, person: &Person, m: &Message, stage: Stage, code: Option<i64>, at: i64) -> Event {
    let mut status = json!({"id": m.id, "status": stage.word(), "timestamp": seconds(at)});
    let number_known = !m.by_user_id;
    if number_known || !person.number_hidden {
        status["recipient_id"] = json!(person.wa_id);
    }
    let failed = stage == Stage::Failed;
    // Somebody without WhatsApp has no business-scoped id.
    let has_user_id = !config.shapes.without_user_ids && code != Some(131_026);
    if has_user_id {
        status["recipient_user_id"] = json!(person.user_id);
    }
    if let Some(opaque) = &m.opaque {
        status["biz_opaque_callback_data"] = json!(opaque);
    }
    let category = if m.kind == "template" { "utility" } else { "service" };
    if failed {
        status["errors"] = json!([status_error(code.unwrap_or(131_000))]);
    } else {
        let free = if m.kind == "template" { "regular" } else { "free_customer_service" };
        let billable = m.kind == "template";
        status["pricing"] = json!({"billable": billable, "pricing_model": "PMP", "category": category, "type": free});
        if config.shapes.conversations {
            let expires = seconds(at + config.window_ms);
            status["conversation"] =
                json!({"id": "6f5cb1b0a4c1d1e9", "expiration_timestamp": expires, "origin": {"type": category}});
        }
    }
    let mut contact = contact(config, person, stage != Stage::Sent, number_known);
    if !has_user_id && let Some(map) = contact.as_object_mut() {
        map.remove("user_id");
    }
    Event::Status { contact: (!failed || config.shapes.contacts_when_failed).then_some(contact), status }
}

fn seconds(ms: i64) -> String {
    (ms / 1000).to_string()
}

/// Media ids are digits with Meta; there is nothing behind them here.
fn media_id(id: &str) -> String {
    let sum = id.bytes().fold(7_u64, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(b)));
    format!("1{:015}", sum % 1_000_000_000_000_000)
}

fn media_url(id: &str) -> String {
    format!("https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid={}", media_id(id))
}

/// One POST body with these events, in one of the layouts Meta allows: all in one `value`, a change
/// each, or an entry each.
pub(super) fn envelope(config: &Config, events: &[Event], random: &mut Random) -> Value {
    let values: Vec<Value> = match random.below(3) {
        _ if events.len() == 1 => vec![value(config, events)],
        0 => vec![value(config, events)],
        _ => events.iter().map(|e| value(config, std::slice::from_ref(e))).collect(),
    };
    let changes: Vec<Value> = values.into_iter().map(|v| json!({"value": v, "field": "messages"})).collect();
    let entry = |changes: &[Value]| json!({"id": config.waba_id, "changes": changes});
    let entries: Vec<Value> = if changes.len() > 1 && random.chance(0.5) {
        changes.chunks(1).map(entry).collect()
    } else {
        vec![entry(&changes)]
    };
    json!({"object": "whatsapp_business_account", "entry": entries})
}

fn value(config: &Config, events: &[Event]) -> Value {
    let (mut contacts, mut messages, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Message { contact, message } => {
                contacts.push(contact.clone());
                messages.push(message.clone());
            }
            Event::Status { contact, status } => {
                contacts.extend(contact.clone());
                statuses.push(status.clone());
            }
        }
    }
    contacts.dedup();
    let mut value = json!({"messaging_product": "whatsapp", "metadata":
        {"display_phone_number": config.display_phone_number, "phone_number_id": config.phone_number_id}});
    for (key, list) in [("contacts", contacts), ("messages", messages), ("statuses", statuses)] {
        if !list.is_empty() {
            value[key] = Value::Array(list);
        }
    }
    value
}
