//! What `askd forget` takes out of `state/`: whole records, a person's id in lists of people who could answer, and what
//! is remembered of a person beside the asks. It changes files of any format, and only while no daemon holds the folder.
//!
//! A record goes last, because it names what lies elsewhere: after a crash the same call finds the rest.

use super::{
    CHANNELS, Files, Kind, MAX_FILE_BYTES, MAX_RECORD_BYTES, PENDING, REJECTED, SETTLED, StoreError, groups, io_error,
    record,
};
use crate::host::store::Store as _;
use crate::ipc::files::{Access, Dir, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId, Group};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;

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

    /// Whether one of the person's ids stands in this text as a whole word.
    fn is_in(&self, text: &str) -> bool {
        text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-')).any(|word| self.is_person(word))
    }
}

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
                    let Some(whole) = name.split('.').next().filter(|whole| whole.parse::<AskId>().is_ok()) else {
                        continue;
                    };
                    if whole.starts_with(&**id) || json_of(&folder, &name)?["short_id"] == **id {
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
        // Second copies of records are gone after this.
        self.flush()?;
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
        let (channels, groups) = (self.root.ensure(CHANNELS, Access::PRIVATE)?, self.root.sub(groups::GROUPS)?);
        // What lies in `state/` itself is what channels keep, too.
        for (folder, change) in [(&self.root, prune as Change), (&channels, prune), (&groups, leave_unnamed)] {
            for name in folder.names()?.iter().filter(|name| name.contains(".json")) {
                erased.others += usize::from(erase_in(folder, name, change, whom)?);
            }
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
        Ok(())
    }
}

type Change = fn(&mut Value, &Whom);

/// A file of the store; one that is not whole JSON says nothing.
fn json_of(folder: &Dir, name: &str) -> io::Result<Value> {
    match folder.read_own(name, MAX_FILE_BYTES) {
        Ok((bytes, _)) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(ReadError::Gone) => Ok(Value::Null),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Changes a file beside the asks; one that is damaged goes if it names the person. Whether it had to.
fn erase_in(folder: &Dir, name: &str, change: Change, whom: &Whom) -> io::Result<bool> {
    let (bytes, _) = folder.read_own(name, MAX_FILE_BYTES).map_err(io::Error::other)?;
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
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
    let named = name.split('.').next().is_some_and(|id| whom.is_ask(id));
    let Some(ask) = is_json_file(name).then(|| record::read(&bytes).ok()).flatten() else {
        // What was set aside, or is damaged.
        if named || whom.is_in(&String::from_utf8_lossy(&bytes)) {
            folder.remove_for_good(name)?;
            erased.others += 1;
        }
        return Ok(());
    };
    let mut value: Value = serde_json::from_slice(&bytes)?;
    let listed = leave_lists(&mut value, whom);
    let named = named || mentions(&value, whom);
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

/// Whether one of the person's ids stands anywhere in it.
fn mentions(value: &Value, whom: &Whom) -> bool {
    match value {
        Value::String(text) => whom.is_person(text),
        Value::Array(values) => values.iter().any(|value| mentions(value, whom)),
        Value::Object(fields) => fields.iter().any(|(key, value)| whom.is_person(key) || mentions(value, whom)),
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

/// Takes out of what a channel remembers each entry that is about the person, or that quotes words about the ask.
fn prune(value: &mut Value, whom: &Whom) {
    let names = |value: &Value| value.as_str().is_some_and(|text| whom.is_person(text) || whom.is_ask(text));
    let tells = |value: &Value| value.as_object().is_some_and(|fields| fields.values().any(names));
    match value {
        Value::Array(values) => {
            values.retain(|value| !tells(value));
            for value in values {
                prune(value, whom);
            }
        }
        Value::Object(fields) => {
            fields.retain(|key, value| !whom.is_in(key) && (key == SAME || !tells(value)));
            if let Some(Value::Object(same)) = fields.get_mut(SAME) {
                same.retain(|_, other| !names(other));
            }
            fields.values_mut().for_each(|value| prune(value, whom));
        }
        _ => {}
    }
}
