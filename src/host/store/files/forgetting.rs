//! What `askd forget` takes out of `state/`: whole records, a person's id in lists of people who could answer, and what
//! is remembered of a person beside the asks. It changes files of any format, and only while no daemon holds the folder.
//!
//! A record goes after what it names elsewhere, and what channels know of a person goes last, because their other ids are known
//! from there: after a crash, or with a question still open, the same call finds the rest.

use super::{CHANNELS, Files, Kind, MAX_RECORD_BYTES, PENDING, REJECTED, SETTLED, groups, record};
use crate::host::store::MAX_FILE_BYTES;
use crate::host::store::forgetting::{
    BEGINNING, Erased, Whom, learn_ids, leave_devices, leave_lists, leave_unnamed, prune, take_whole, tells_of,
};
use crate::ipc::files::{Access, Dir, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Ask, AskId, Group};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;

/// The browsers that get notices, and what a write of that file left that was cut off.
const PUSH: [&str; 2] = ["push.json", ".tmp-push.json"];

impl Files {
    pub(super) fn learn_all(&self, whom: &mut Whom) -> io::Result<()> {
        match whom {
            Whom::Ask(id) => self.whole_id(id),
            Whom::Person(ids) => {
                let channels = self.root.ensure(CHANNELS, Access::PRIVATE)?;
                for name in channels.names()? {
                    learn_ids(ids, &json_of(&channels, &name)?);
                }
                Ok(())
            }
        }
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
        take_whole(id, known)
    }

    /// Takes it out of everything below `state/` but the audit log. The journal holds no copies of records any more.
    pub(super) fn erase_all(
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
