//! What `askd forget` has to know whatever the engine: who is meant, and what in a record or a document is about them. It works
//! on JSON of any format, and only while no daemon runs.

use askd_core::{Ask, AskId};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io;

/// A text of this length on is the beginning of an id; codes are shorter, and can consist of hex digits, too.
pub const BEGINNING: usize = 8;
/// Digits of a number with its country.
const SHORTEST_NUMBER: usize = 7;
/// Who or what is forgotten.
#[derive(Debug, Clone)]
pub enum Whom {
    /// The question with this id; [`Store::learn`](super::Store::learn) takes its code, or the beginning of the id.
    Ask(String),
    /// The person with these ids.
    Person(BTreeSet<String>),
}

impl Whom {
    /// Whether this is one of the person's ids.
    pub fn is_person(&self, id: &str) -> bool {
        matches!(self, Self::Person(ids) if ids.contains(id))
    }

    /// Whether this is the question's id.
    pub fn is_ask(&self, id: &str) -> bool {
        matches!(self, Self::Ask(known) if known == id)
    }

    /// Whether this is one of the person's ids, or the question's.
    pub(super) fn is(&self, id: &str) -> bool {
        self.is_person(id) || self.is_ask(id)
    }

    /// Whether one of these ids stands in this text as a whole word, or in the id of a WhatsApp message, which has the number of
    /// the other side in base64.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let id = |rest: &str| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/')).next().map(decoded)
        };
        let messages: Vec<String> = text.split("wamid.").skip(1).filter_map(id).collect();
        let has = |id: &str| {
            // The rest of a message's id is any bytes, among which a short word may stand by chance.
            let is_number = id.len() >= SHORTEST_NUMBER && id.bytes().all(|byte| byte.is_ascii_digit());
            has_word(text, id) || is_number && messages.iter().any(|message| has_word(message, id))
        };
        match self {
            Self::Ask(id) => id.parse::<AskId>().is_ok() && has(id),
            Self::Person(ids) => ids.iter().any(|id| has(id)),
        }
    }
}

/// Whether this stands in the text as a whole word; `ann` is not `ann@example.com`.
fn has_word(text: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.match_indices(word).any(|(at, _)| {
        let after = text[at + word.len()..].chars().next();
        !text[..at].chars().next_back().is_some_and(inner) && !after.is_some_and(|c| inner(c) || c == '@')
    })
}

/// What stands in the id of a message, so far as it is text.
fn decoded(id: &str) -> String {
    String::from_utf8_lossy(&MESSAGE.decode(id).unwrap_or_default()).into_owned()
}

/// How Meta writes what stands in the id of a message.
const MESSAGE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent).with_decode_allow_trailing_bits(true),
);

/// What was taken out of the records.
#[derive(Debug, Default)]
pub struct Erased {
    /// Questions that are gone as a whole.
    pub asks: Vec<Ask>,
    /// Questions that are not over, so that they still name the person, or are still there.
    pub unfinished: Vec<AskId>,
    /// Records in which the person was no more than one of those who could answer.
    pub lists: usize,
    /// Other files from which something was taken.
    pub others: usize,
}

/// The one question that was found; another id stays as it was given.
pub(super) fn take_whole(id: &mut String, known: BTreeSet<String>) -> io::Result<()> {
    let whole: Vec<String> = known.into_iter().collect();
    match &whole[..] {
        [one] => one.clone_into(id),
        [] => {}
        _ => {
            return Err(io::Error::other(format!("{id:?} may be any of these:\n  {}", whole.join("\n  "))));
        }
    }
    Ok(())
}

/// Whether a record says that the person answered, dismissed, withdrew or unblocked, or was asked in a chat of their own.
/// What an agent wrote, and a group or a field that is called like the person, is not about them.
pub(super) fn tells_of(record: &Value, whom: &Whom) -> bool {
    let is = |id: &Value| id.as_str().is_some_and(|id| whom.is_person(id));
    match record {
        Value::Array(values) => values.iter().any(|value| tells_of(value, whom)),
        Value::Object(fields) => fields.iter().any(|(field, value)| match field.as_str() {
            "by" | "person" => is(&value["id"]),
            "chat" | "to" => is(value),
            "waiting" => value.as_array().is_some_and(|ids| ids.iter().any(is)),
            _ => tells_of(value, whom),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether one of these ids stands anywhere in it.
fn mentions(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(values) => values.iter().any(|value| mentions(value, is)),
        Value::Object(fields) => fields.iter().any(|(key, value)| is(key) || mentions(value, is)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Takes the person out of the lists of those who can answer; `true` if there was one.
pub(super) fn leave_lists(value: &mut Value, whom: &Whom) -> bool {
    match value {
        Value::Array(values) => values.iter_mut().fold(false, |left, value| leave_lists(value, whom) | left),
        Value::Object(fields) => fields.iter_mut().fold(false, |left, (key, value)| match value {
            Value::Array(ids) if key == "only" => {
                let before = ids.len();
                ids.retain(|id| !id.as_str().is_some_and(|id| whom.is_person(id)));
                left | (ids.len() < before)
            }
            value => leave_lists(value, whom) | left,
        }),
        _ => false,
    }
}

/// Leaves no name where the person allowed questions again: since when they count must not be lost.
pub(super) fn leave_unnamed(value: &mut Value, whom: &Whom) {
    if let Value::Object(fields) = value {
        if fields.get("id").and_then(Value::as_str).is_some_and(|id| whom.is_person(id)) {
            fields.insert("id".to_owned(), json!("forgotten"));
            fields.insert("name".to_owned(), Value::Null);
        }
        fields.values_mut().for_each(|value| leave_unnamed(value, whom));
    }
}

/// Which ids of a channel are one person.
const SAME: &str = "same";

/// Learns the other ids of the person.
pub(super) fn learn_ids(ids: &mut BTreeSet<String>, value: &Value) {
    let Value::Object(fields) = value else { return };
    let same = fields.get(SAME).and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<(&String, &str)> = same.filter_map(|(one, other)| Some((one, other.as_str()?))).collect();
    let mut known = 0;
    while known < ids.len() {
        known = ids.len();
        for (one, other) in &pairs {
            if ids.contains(*one) || ids.contains(*other) {
                ids.extend([(*one).clone(), (*other).to_owned()]);
            }
        }
    }
    fields.values().for_each(|value| learn_ids(ids, value));
}

/// Takes the person's browsers out of those that get notices.
pub(super) fn leave_devices(push: &mut Value, whom: &Whom) {
    if let Some(Value::Array(devices)) = push.get_mut("devices") {
        devices.retain(|device| !device["person"].as_str().is_some_and(|person| whom.is_person(person)));
    }
}

/// Takes out of what a channel remembers of each number each entry that is about the person or the question. Which ids are one
/// person is still to be known for the next call, unless `ids_too`.
pub(super) fn prune(channel: &mut Value, whom: &Whom, ids_too: bool) {
    let is = |id: &str| whom.is(id);
    let numbers = channel.get_mut("numbers").and_then(Value::as_object_mut);
    let fields = numbers.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut).flatten();
    for (_, entries) in fields.filter(|(field, _)| ids_too || *field != SAME) {
        match entries {
            Value::Object(entries) => entries.retain(|key, value| !whom.is_in(key) && !mentions(value, &is)),
            Value::Array(entries) => {
                entries.retain(|entry| !entry.as_str().is_some_and(|text| whom.is_in(text)) && !mentions(entry, &is));
            }
            _ => {}
        }
    }
}
