//! Putting responses where their waiters look for them: absent or complete, never torn, and "never
//! written" and "published" told apart after a crash. Section 5 of the specification.
//!
//! What is in a file is synced before it gets a name that is read. The name itself is not synced: after a loss of power
//! each response that is not recorded as taken is written again. Every call blocks on the disk and may be repeated. When
//! and how often is the broker's to say.

use super::folders::Folders;
use crate::ipc::files::{Dir, Stamp};
use crate::ipc::wire::{ResponseFile, StatusFile, file_bytes, outcome_of, response_for};
use crate::ipc::{
    MAX_REQUEST_BYTES, RESPONSES, TAKEN, response_name, status_name, taken_name, unpublished_name, withdrawn_name,
};
use crate::sabotage::{crash_point, on};
use askd_core::{Ask, Group, RequestId, Time, Waiter};
use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

/// A waiter whose response is a file. A call over HTTP fetches what the record says.
fn by_file<'a>(ask: &'a Ask, request_id: &RequestId) -> Option<&'a Waiter> {
    ask.waiter(request_id).filter(|waiter| waiter.carrier.is_file())
}

/// The waiters that read `.status`.
pub(super) fn readers_of_status(ask: &Ask) -> impl Iterator<Item = &Waiter> {
    ask.waiters.iter().filter(|waiter| !waiter.is_withdrawn() && waiter.carrier.is_file())
}

/// Writes and syncs a waiter's response again: one of an earlier time may have been put out of reach, and as long as that
/// file is there, it looks as if this one had been.
pub(super) fn rewrite(folders: &Folders, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
    if by_file(ask, request_id).is_some() {
        folders.ensure(&ask.group, RESPONSES)?.remove(&withdrawn_name(request_id))?;
    }
    write(folders, ask, request_id)
}

/// Writes and syncs a waiter's response under a name that no waiter reads.
pub(super) fn write(folders: &Folders, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
    let Some(response) = by_file(ask, request_id).and_then(|waiter| response_for(ask, waiter)) else { return Ok(()) };
    let dir = folders.ensure(&ask.group, RESPONSES)?;
    let (name, bytes) = (unpublished_name(request_id), file_bytes(&response)?);
    if on("torn") {
        dir.remove(&response_name(request_id))?;
        return dir.create(&response_name(request_id), &bytes[..bytes.len() / 2], folders.access());
    }
    dir.stage(&name, &bytes, folders.access())?;
    crash_point("deliver.written");
    Ok(())
}

/// Publishes it. A file that is gone was published before, unless it went with its folder.
pub(super) fn publish(folders: &Folders, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
    if by_file(ask, request_id).is_none() {
        return Ok(());
    }
    let (dir, group) = (folders.ensure(&ask.group, RESPONSES)?, &ask.group);
    match dir.publish(&unpublished_name(request_id), &response_name(request_id)) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            group = %group, request_id = %request_id,
            "a response file of that name was there already; it was replaced"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Since the outcome: when it was written is not known any more.
            let decided = ask.late_outcome().map(|(_, at)| at).or(ask.settled_at());
            if decided.is_some_and(|at| folders.has_lost(group, RESPONSES, at)) && !on("renewed") {
                write(folders, ask, request_id)?;
                dir.publish(&unpublished_name(request_id), &response_name(request_id))?;
            }
        }
        Err(error) => return Err(error),
    }
    crash_point("deliver.published");
    // Published is published: a status that cannot be removed is only untidy.
    if let Err(error) = dir.remove_for_good(&status_name(request_id)) {
        tracing::warn!(group = %group, request_id = %request_id, %error, "a status file cannot be removed");
    }
    Ok(())
}

/// Tells every waiter of an undecided ask where it is.
pub(super) fn status(folders: &Folders, ask: &Ask) -> io::Result<()> {
    let Some(status) = StatusFile::of(ask) else { return Ok(()) };
    let bytes = serde_json::to_vec(&status)?;
    let several = readers_of_status(ask).nth(1).is_some();
    for waiter in readers_of_status(ask) {
        let dir = folders.ensure(&ask.group, RESPONSES)?;
        let name = status_name(&waiter.request_id);
        // A call that joins is told; all the others know.
        if several && says(&dir, &name, &bytes) {
            continue;
        }
        let temporary = folders.temporary();
        // A hint, written again at each start.
        dir.place(&temporary, &name, &bytes, folders.access())?;
    }
    Ok(())
}

/// Whether every waiter of an undecided ask was told where it is.
pub(super) fn has_told_status(folders: &Folders, ask: &Ask) -> io::Result<bool> {
    let Some(status) = StatusFile::of(ask) else { return Ok(true) };
    let bytes = serde_json::to_vec(&status)?;
    for waiter in readers_of_status(ask) {
        let dir = folders.ensure(&ask.group, RESPONSES)?;
        if !says(&dir, &status_name(&waiter.request_id), &bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether this and nothing else is in the file.
fn says(folder: &Dir, name: &str, bytes: &[u8]) -> bool {
    folder.read(name, bytes.len()).is_ok_and(|(told, _)| told == bytes)
}

/// Tells a waiter that its request was seen, before it can be taken in.
pub(super) fn seen(folders: &Folders, group: &Group, request_id: &RequestId) -> io::Result<()> {
    let status = StatusFile { state: "posting".to_owned(), shown_at: None, answer_by: None };
    let temporary = folders.temporary();
    let dir = folders.ensure(group, RESPONSES)?;
    dir.place(&temporary, &status_name(request_id), &serde_json::to_vec(&status)?, folders.access())
}

/// Writes a response that belongs to no open ask: a rejection, or an outcome asked for again.
pub(super) fn write_at_once(folders: &Folders, group: &Group, response: &ResponseFile) -> io::Result<()> {
    let dir = folders.ensure(group, RESPONSES)?;
    let temporary = folders.temporary();
    let name = format!("{}.json", response.result.request_id);
    dir.replace(&temporary, &name, &file_bytes(response)?, folders.access())?;
    if let Ok(request_id) = response.result.request_id.parse::<RequestId>() {
        dir.remove_for_good(&status_name(&request_id))?;
    }
    Ok(())
}

/// How many names of a folder are looked through for responses of calls that their ask has forgotten.
const MANY: usize = 20_000;

/// The responses that calls of a blocked ask have not collected, of which it does not know any more: it remembers its last calls
/// alone. `before`: only those that were written before then.
pub(super) fn forgotten(folder: &Dir, ask: &Ask, before: Option<Time>) -> io::Result<Vec<String>> {
    let first = ask.waiters.first().filter(|_| ask.block().is_some());
    let Some(told) = first.and_then(|first| outcome_of(ask, first)) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    folder.list()?.part(MANY, |name| {
        let id = name.strip_prefix(TAKEN).unwrap_or(name).strip_suffix(".json");
        let Some(id) = id.and_then(|id| id.parse::<RequestId>().ok()) else { return Ok(()) };
        let is_old = |stamp: Stamp| {
            let (seconds, _) = stamp.modified;
            before.is_none_or(|before| Time::from_millis(seconds.saturating_mul(1000)) < before)
        };
        if ask.waiter(&id).is_some() || !folder.stat(name)?.is_some_and(is_old) {
            return Ok(());
        }
        let lies = folder.read(name, MAX_REQUEST_BYTES).ok();
        let lies = lies.and_then(|(bytes, _)| serde_json::from_slice::<ResponseFile>(&bytes).ok());
        let same = |lies: &ResponseFile| {
            lies.result.status == told.result.status
                && lies.error == told.error
                && lies.result.request_id == id.as_str()
        };
        found.extend(lies.is_some_and(|lies| same(&lies)).then(|| name.to_owned()));
        Ok(())
    })?;
    Ok(found)
}

/// Whether a response is where its waiter looks for it.
pub(super) enum Lies {
    There,
    /// Its waiter is handing it over.
    BeingTaken,
    Gone,
}

/// Whether a response or briefing of this name lies in its folder. Its taker may be putting it back, so that is looked
/// for last.
pub(super) fn lies_in(folder: &Dir, id: &impl Display) -> io::Result<Lies> {
    let name = response_name(id);
    if folder.stat(&name)?.is_some() {
        return Ok(Lies::There);
    }
    if folder.stat(&taken_name(id))?.is_some() {
        return Ok(Lies::BeingTaken);
    }
    Ok(if folder.stat(&name)?.is_some() { Lies::There } else { Lies::Gone })
}

/// How many names of a folder a look takes in at most.
const FEW: usize = 500;

/// A look at many outcomes in one folder. Files that are gone cost one listing in all.
pub(super) struct Look {
    folder: Arc<Dir>,
    /// Every name in it, if they are few.
    names: Option<HashSet<String>>,
}

impl Look {
    /// Lists the folder twice: one listing may miss a file that is renamed meanwhile.
    pub(super) fn at(folder: Arc<Dir>) -> Self {
        let list = || -> io::Result<Option<HashSet<String>>> {
            let mut names = HashSet::new();
            for _ in 0..2 {
                let ended = folder.list()?.part(FEW, |name| {
                    names.insert(name.to_owned());
                    Ok(())
                })?;
                // A container could make a listing endless.
                if !ended {
                    return Ok(None);
                }
            }
            Ok(Some(names))
        };
        let names = list().ok().flatten();
        Self { folder, names }
    }

    /// Whether a response or briefing of this name lies there.
    pub(super) fn finds(&self, id: &impl Display) -> io::Result<Lies> {
        let is_gone = |names: &HashSet<String>| !names.contains(&response_name(id)) && !names.contains(&taken_name(id));
        if self.names.as_ref().is_some_and(is_gone) { Ok(Lies::Gone) } else { lies_in(&self.folder, id) }
    }
}
