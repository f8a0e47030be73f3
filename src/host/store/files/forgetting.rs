//! What `askd forget` takes out of `state/`: whole records, a person's id in lists of people who could answer, and what
//! is remembered of a person beside the asks. It changes files of any format, and only while no daemon holds the folder.
//!
//! A record goes after what it names elsewhere, and what channels know of a person goes last, because their other ids are known
//! from there: after a crash, or with a question still open, the same call finds the rest.

use super::{
    CHANNELS, Files, Kind, MAX_RECORD_BYTES, PENDING, REJECTED, SETTLED, StoreError, groups, io_error, record,
};
use crate::host::store::{MAX_FILE_BYTES, Store as _};
use crate::ipc::files::{Access, Dir, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId, Group};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io;

/// A text of this length on is the beginning of an id; codes are shorter, and can consist of hex digits, too.
const BEGINNING: usize = 8;
/// Digits of a number with its country.
const SHORTEST_NUMBER: usize = 7;
/// The browsers that get notices, and what a write of that file left that was cut off.
const PUSH: [&str; 2] = ["push.json", ".tmp-push.json"];

/// Who or what is forgotten.
#[derive(Debug, Clone)]
pub enum Whom {
    /// The question with this id; [`Files::learn`] takes its code, or the beginning of the id.
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
    fn is(&self, id: &str) -> bool {
        self.is_person(id) || self.is_ask(id)
    }

    /// Whether one of these ids stands in this text as a whole word, or in the id of a WhatsApp message, which has the number of
    /// the other side in base64.
    fn is_in(&self, text: &str) -> bool {
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

impl Files {
    /// Finds out the whole id of the question, or the other ids that a channel knows of the person.
    pub fn learn(&self, whom: &mut Whom) -> Result<(), StoreError> {
        // What the last run left in the journal goes into files, too.
        self.flush()?;
        let mut learn = || match whom {
            Whom::Ask(id) => self.whole_id(id),
            Whom::Person(ids) => {
                let channels = self.root.ensure(CHANNELS, Access::PRIVATE)?;
                for name in channels.names()? {
                    learn_ids(ids, &json_of(&channels, &name)?);
                }
                Ok(())
            }
        };
        learn().map_err(io_error("cannot forget"))
    }

    /// Of the question that has this code, or whose id begins so.
    fn whole_id(&self, id: &mut String) -> io::Result<()> {
        let mut known = BTreeSet::new();
        for kind in [PENDING, SETTLED] {
            let groups = self.root.sub(kind)?;
            for group in groups.names()? {
                let folder = groups.sub(&group)?;
                for name in folder.names()? {
                    let Some(whole) = words(&name).find(|word| word.parse::<AskId>().is_ok()) else { continue };
                    let begins = id.len() >= BEGINNING && whole.starts_with(&**id);
                    if begins || json_of(&folder, &name)?["short_id"] == **id {
                        known.insert(whole.to_owned());
                    }
                }
            }
        }
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

    /// Takes it out of everything below `state/` but the audit log. `first` comes before a record goes.
    pub fn erase(&self, whom: &Whom, first: &mut dyn FnMut(&Ask) -> io::Result<()>) -> Result<Erased, StoreError> {
        // The journal holds no copies of records after this.
        self.flush()?;
        self.journal.wipe().map_err(io_error("cannot wipe the journal"))?;
        let mut erased = Erased::default();
        self.erase_all(whom, &mut erased, first).map_err(io_error("cannot forget"))?;
        Ok(erased)
    }

    fn erase_all(
        &self,
        whom: &Whom,
        erased: &mut Erased,
        first: &mut dyn FnMut(&Ask) -> io::Result<()>,
    ) -> io::Result<()> {
        let groups = self.root.sub(groups::GROUPS)?;
        for name in self.root.names()?.iter().filter(|name| PUSH.contains(&&***name)) {
            erased.others += usize::from(erase_in(&self.root, name, &leave_devices, whom)?);
        }
        for name in groups.names()? {
            erased.others += usize::from(erase_in(&groups, &name, &leave_unnamed, whom)?);
        }
        let rejected = self.root.sub(REJECTED)?;
        for group in rejected.names()? {
            let folder = rejected.sub(&group)?;
            for name in folder.names()? {
                let bytes = folder.read_own(&name, MAX_FILE_BYTES).map_err(io::Error::other)?.0;
                if whom.is_in(&String::from_utf8_lossy(&bytes)) {
                    folder.remove_for_good(&name)?;
                    erased.others += 1;
                }
            }
            folder.sync()?;
        }
        for kind in [Kind::Pending, Kind::Settled] {
            for group in self.root.sub(kind.name())?.names()? {
                let Ok(group) = group.parse::<Group>() else { continue };
                let folder = self.folder(kind, &group)?;
                for name in folder.names()? {
                    erase_record(kind, &folder, &name, whom, erased, first)?;
                }
                folder.sync()?;
            }
        }
        // The file that has the other ids goes after the channels' other files.
        let channels = self.root.ensure(CHANNELS, Access::PRIVATE)?;
        let mut names = channels.names()?;
        names.sort_by_key(|name| (is_json_file(name), name.clone()));
        let ids_too = erased.unfinished.is_empty();
        for name in names {
            erased.others += usize::from(erase_in(&channels, &name, &|value, whom| prune(value, whom, ids_too), whom)?);
        }
        Ok(())
    }
}

/// The words of a file's name, one of which is the id of the ask that the file is about.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// A file of the store; one that is not whole JSON says nothing.
fn json_of(folder: &Dir, name: &str) -> io::Result<Value> {
    match folder.read_own(name, MAX_FILE_BYTES) {
        Ok((bytes, _)) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(ReadError::Gone) => Ok(Value::Null),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Changes a file beside the asks. One that is damaged, was set aside, or was left by a write that was cut off goes if it names
/// the person. Whether it had to.
fn erase_in(folder: &Dir, name: &str, change: &dyn Fn(&mut Value, &Whom), whom: &Whom) -> io::Result<bool> {
    let (bytes, _) = folder.read_own(name, MAX_FILE_BYTES).map_err(io::Error::other)?;
    let Some(mut value) = is_json_file(name).then(|| serde_json::from_slice::<Value>(&bytes).ok()).flatten() else {
        return if whom.is_in(&String::from_utf8_lossy(&bytes)) { folder.remove_for_good(name) } else { Ok(false) };
    };
    let before = value.clone();
    change(&mut value, whom);
    if value != before {
        folder.replace(".tmp-forget", name, &serde_json::to_vec_pretty(&value)?, Access::PRIVATE)?;
    }
    Ok(value != before)
}

fn erase_record(
    kind: Kind,
    folder: &Dir,
    name: &str,
    whom: &Whom,
    erased: &mut Erased,
    first: &mut dyn FnMut(&Ask) -> io::Result<()>,
) -> io::Result<()> {
    let bytes = match folder.read_own(name, MAX_RECORD_BYTES) {
        Ok((bytes, _)) => bytes,
        Err(ReadError::Gone) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    let named = words(name).any(|word| whom.is_ask(word));
    let Some(ask) = is_json_file(name).then(|| record::read(&bytes).ok()).flatten() else {
        // What was set aside, is damaged, or was left by a write that was cut off.
        if named || whom.is_in(&String::from_utf8_lossy(&bytes)) {
            folder.remove_for_good(name)?;
            erased.others += 1;
        }
        return Ok(());
    };
    let mut value: Value = serde_json::from_slice(&bytes)?;
    let listed = leave_lists(&mut value, whom);
    let named = named || tells_of(&value, whom);
    if kind == Kind::Pending {
        erased.unfinished.extend((named || listed).then_some(ask.ask.id));
    } else if named {
        first(&ask.ask)?;
        folder.remove_for_good(name)?;
        erased.asks.push(ask.ask);
    } else if listed {
        let bytes = serde_json::to_vec_pretty(&value)?;
        record::read(&bytes).map_err(io::Error::other)?;
        folder.replace(&format!(".tmp-{}", ask.ask.id), name, &bytes, Access::PRIVATE)?;
        erased.lists += 1;
    }
    Ok(())
}

/// Whether a record says that the person answered, dismissed or unblocked, or was asked in a chat of their own. What an agent
/// wrote, and a group or a field that is called like the person, is not about them.
fn tells_of(record: &Value, whom: &Whom) -> bool {
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
fn leave_lists(value: &mut Value, whom: &Whom) -> bool {
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
fn leave_unnamed(value: &mut Value, whom: &Whom) {
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
fn learn_ids(ids: &mut BTreeSet<String>, value: &Value) {
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
fn leave_devices(push: &mut Value, whom: &Whom) {
    if let Some(Value::Array(devices)) = push.get_mut("devices") {
        devices.retain(|device| !device["person"].as_str().is_some_and(|person| whom.is_person(person)));
    }
}

/// Takes out of what a channel remembers of each number each entry that is about the person or the question. Which ids are one
/// person is still to be known for the next call, unless `ids_too`.
fn prune(channel: &mut Value, whom: &Whom, ids_too: bool) {
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
