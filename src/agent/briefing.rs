//! Briefings: what people answered while no agent waited, for the agent's next start. Section 7 of the
//! specification.
//!
//! Reading changes nothing. Taking renames each file first (`.taken-<name>`), so that the daemon and other processes see
//! it as taken. The process that took it deletes it once it has printed it, or puts it back. A later run finds what a
//! run that died has left under such a name. One process takes at a time. `askd briefing` calls it.

use super::{AgentError, Folder, trouble};
use crate::ipc::files::{Dir, ReadError};
use crate::ipc::wire::BriefingFile;
use crate::ipc::{BRIEFINGS, is_json_file};
use serde::Deserialize as _;
use serde_json::Value;
use std::io;
use std::path::PathBuf;

/// The largest briefing that is read: as large as the largest response.
const MAX_BRIEFING_BYTES: usize = 4 * 1024 * 1024;
/// What a file is called while it is being handed over, before its name.
const TAKEN: &str = ".taken-";

/// The briefings of a group.
#[derive(Debug)]
pub struct Briefings {
    path: PathBuf,
    /// `None` if the daemon has never made the folder.
    dir: Option<Dir>,
}

/// One of them.
#[derive(Debug)]
pub struct Briefing {
    /// The whole content, with fields that this version does not know.
    pub content: Value,
    /// The fields that it knows.
    pub file: BriefingFile,
    /// What it is called: over HTTP its ask.
    pub(super) name: String,
}

/// What was found, oldest first.
#[derive(Debug, Default)]
pub struct Found {
    /// The briefings that can be read.
    pub briefings: Vec<Briefing>,
    /// Files that cannot be read, with the reason. They stay as they are.
    pub unreadable: Vec<String>,
}

/// A file that may be a briefing: the name it was written under, and whether a run has taken it and died.
struct Entry {
    written: (i64, u64),
    name: String,
    left_over: bool,
}

impl Entry {
    fn present_name(&self) -> String {
        if self.left_over { taken_name(&self.name) } else { self.name.clone() }
    }
}

fn taken_name(name: &str) -> String {
    format!("{TAKEN}{name}")
}

impl Briefing {
    /// The briefing with this content.
    pub(super) fn of(content: Value, name: String) -> Result<Self, String> {
        let file = BriefingFile::deserialize(&content).map_err(|error| format!("{name}: not a briefing ({error})"))?;
        Ok(Self { content, file, name })
    }
}

impl Briefings {
    /// Those of this group.
    pub fn of(folder: &Folder) -> Result<Self, AgentError> {
        let path = folder.path.join(BRIEFINGS);
        match Dir::open(&path) {
            Ok(dir) => Ok(Self { path, dir: Some(dir) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { path, dir: None }),
            Err(error) => Err(Self { path, dir: None }.error(error)),
        }
    }

    /// Locks them for this process until it ends; `false` while another process has the lock.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.dir.as_ref().is_none_or(|dir| match dir.claim() {
            Ok(claimed) => claimed,
            Err(error) => {
                // Not every file system has locks. Without one, two runs at once may print the same briefing.
                tracing::debug!(%error, "briefings cannot be locked");
                true
            }
        })
    }

    /// Reads them and changes nothing. `left_over`: also those that a run that died has taken.
    pub fn read(&self, left_over: bool) -> Result<Found, AgentError> {
        let mut found = Found::default();
        let Some(dir) = &self.dir else { return Ok(found) };
        for entry in self.entries(dir)?.into_iter().filter(|entry| left_over || !entry.left_over) {
            match read(dir, &entry.present_name(), entry.name) {
                Ok(briefing) => found.briefings.extend(briefing),
                Err(why) => found.unreadable.push(why),
            }
        }
        Ok(found)
    }

    /// Takes them all. The caller then calls [`Briefings::done`] or [`Briefings::put_back`].
    pub fn take(&self) -> Result<Found, AgentError> {
        let mut found = Found::default();
        let Some(dir) = &self.dir else { return Ok(found) };
        for entry in self.entries(dir)? {
            let taken = taken_name(&entry.name);
            if !entry.left_over {
                match dir.rename(&entry.name, &taken) {
                    Ok(()) => {}
                    // The daemon withdrew it in this very moment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        self.put_back(&found.briefings);
                        return Err(self.error(error));
                    }
                }
            }
            match read(dir, &taken, entry.name.clone()) {
                Ok(briefing) => found.briefings.extend(briefing),
                Err(why) => {
                    found.unreadable.push(why);
                    restore(dir, &entry.name);
                }
            }
        }
        Ok(found)
    }

    /// They were delivered: nothing is left behind.
    pub fn done(&self, briefings: &[Briefing]) -> Result<(), AgentError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let mut names = briefings.iter().map(|briefing| taken_name(&briefing.name));
        names.try_for_each(|name| dir.remove(&name).map(drop)).map_err(|error| self.error(error))
    }

    /// They could not be delivered: they wait again.
    pub fn put_back(&self, briefings: &[Briefing]) {
        let Some(dir) = &self.dir else { return };
        for briefing in briefings {
            restore(dir, &briefing.name);
        }
    }

    /// What is there, oldest first, each once.
    fn entries(&self, dir: &Dir) -> Result<Vec<Entry>, AgentError> {
        let names = dir.names().map_err(|error| self.error(error))?;
        let mut entries = Vec::new();
        for present in &names {
            let left_over = present.strip_prefix(TAKEN);
            let name = left_over.unwrap_or(present);
            // The daemon has written it again meanwhile: the new one counts.
            let replaced = left_over.is_some() && names.iter().any(|other| other == name);
            if !is_json_file(name) || replaced {
                continue;
            }
            if let Some(stamp) = dir.stat(present).map_err(|error| self.error(error))? {
                let left_over = left_over.is_some();
                entries.push(Entry { written: stamp.modified, name: name.to_owned(), left_over });
            }
        }
        entries.sort_by(|one, other| (one.written, &one.name).cmp(&(other.written, &other.name)));
        Ok(entries)
    }

    fn error(&self, error: io::Error) -> AgentError {
        trouble(&self.path, "The folder must be readable for this user, and writable for --take", error)
    }
}

/// `None` if it is gone.
fn read(dir: &Dir, present: &str, name: String) -> Result<Option<Briefing>, String> {
    let bytes = match dir.read(present, MAX_BRIEFING_BYTES) {
        Ok((bytes, _)) => bytes,
        Err(ReadError::Gone) => return Ok(None),
        Err(error) => return Err(format!("{name}: {error}")),
    };
    let content = serde_json::from_slice(&bytes).map_err(|error| format!("{name}: not a briefing ({error})"))?;
    Briefing::of(content, name).map(Some)
}

/// Gives a taken file its name back. If that fails, it stays as taken, and the next run that takes finds it.
fn restore(dir: &Dir, name: &str) {
    if let Err(error) = dir.rename_unless_there(&taken_name(name), name) {
        tracing::debug!(%error, name, "a briefing could not be put back");
    }
}
