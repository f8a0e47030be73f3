//! What is remembered beside the asks, as documents: what channels know of people, browsers that are pushed to, agents'
//! tokens. A document's name is its path below `state/`; its owner decides what stands in it. The engine that keeps the asks
//! keeps the documents, too.

use super::marks::{self, Mark};
use super::memory::Memory;
use super::{MAX_FILE_BYTES, Rates, STATE_FOLDER, StoreError};
use crate::ipc::files::{Access, Dir, ReadError};
use crate::ipc::is_json_file;
#[cfg(feature = "postgres")]
use serde_json::Value;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Where documents are kept. Every call blocks.
pub trait Documents: Debug + Send + Sync {
    /// Reads a document; `None` if there is none.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a document, or makes it. It is on stable storage when this returns.
    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The same for a document that nothing depends on: a loss of power may undo it.
    fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The same, unless the document is not what it was before; `false` then, and nothing was changed. Where no other daemon
    /// writes it is what it was.
    fn swap(&self, name: &str, _before: Option<&[u8]>, bytes: &[u8]) -> io::Result<bool> {
        self.store(name, bytes).map(|()| true)
    }

    /// Removes a document, if it is there. It stays away after a loss of power.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all, without those that were set aside.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The rates of calls, if several daemons make them.
    fn rates(&self) -> Option<Arc<dyn Rates>> {
        None
    }

    /// What channels remember in entries, if several daemons do.
    fn memory(&self) -> Option<Arc<dyn Memory>> {
        None
    }

    /// Gives a damaged document another name, ending in `.corrupt`, for a person to look at.
    fn set_aside(&self, name: &str) -> io::Result<()>;
}

/// Changes a document: `change` is given its bytes, and says what to store, if anything, and what comes of it. Another daemon may
/// change the document at the same moment, so `change` may run more than once.
pub fn change<T>(
    documents: &dyn Documents,
    name: &str,
    mut change: impl FnMut(Option<&[u8]>) -> io::Result<(Option<Vec<u8>>, T)>,
) -> io::Result<T> {
    loop {
        let before = documents.read(name)?;
        let (after, changed) = change(before.as_deref())?;
        match after {
            Some(after) if !documents.swap(name, before.as_deref(), &after)? => {}
            _ => return Ok(changed),
        }
    }
}

/// The tokens of agents.
pub(super) const AGENT_TOKENS: &str = "agent_tokens.json";

/// The token of the inbox.
pub const TOKEN_FILE: &str = "web_token";

/// The browsers that are pushed to.
const PUSH: &str = "push.json";

/// The documents of those who are no channel.
const OTHERS: [&str; 4] = [AGENT_TOKENS, "agent_tokens_used.json", PUSH, TOKEN_FILE];

/// Whether there is more than every daemon makes by itself: a token of the inbox, and a key for browsers.
#[cfg(feature = "postgres")]
pub(super) fn remembers(documents: &dyn Documents) -> io::Result<bool> {
    for name in documents.names()?.iter().filter(|name| *name != TOKEN_FILE) {
        let kept = if name == PUSH { documents.read(name)? } else { None };
        let kept = kept.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let has_no_browser = |kept: Value| kept["devices"].as_array().is_some_and(Vec::is_empty);
        if !kept.is_some_and(has_no_browser) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where channels keep what they have to remember.
pub(super) const CHANNELS: &str = "channels";

/// What a document is called after it was set aside.
pub fn aside(name: &str) -> String {
    format!("{name}.corrupt")
}

/// Documents as files in a folder, for the daemon's user alone.
#[derive(Debug)]
pub struct InFiles(Dir);

impl InFiles {
    /// Those in this folder.
    pub fn open(state: &Path) -> io::Result<Self> {
        Dir::open(state).map(Self)
    }

    /// Whether they may be used: they were not moved away, and are not half a copy.
    pub fn check(&self) -> Result<(), StoreError> {
        marks::check(self, STATE_FOLDER)
    }

    /// Whether the records were moved from here.
    pub fn is_moved(&self) -> io::Result<bool> {
        Ok(marks::mark_of(self)? == Some(Mark::Moved))
    }

    /// Runs `act` in the folder that holds a document; creates the folder if it is missing.
    fn at<T>(&self, name: &str, act: impl FnOnce(&Dir, &str) -> io::Result<T>) -> io::Result<T> {
        match name.split_once('/') {
            None => act(&self.0, name),
            Some((folder, name)) => act(&self.0.ensure(folder, Access::PRIVATE)?, name),
        }
    }
}

impl Documents for InFiles {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.at(name, |folder, file| match folder.read_own(file, MAX_FILE_BYTES) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(ReadError::Gone) => Ok(None),
            Err(error) => Err(io::Error::other(format!("state/{name}: {error}"))),
        })
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.at(name, |folder, file| folder.replace(&format!(".tmp-{file}"), file, bytes, Access::PRIVATE))
    }

    fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.at(name, |folder, file| folder.place(&format!(".tmp-{file}"), file, bytes, Access::PRIVATE))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.at(name, |folder, file| folder.remove_for_good(file).map(drop))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let of_channels = self.0.ensure(CHANNELS, Access::PRIVATE)?.names()?;
        let of_channels = of_channels.into_iter().map(|name| format!("{CHANNELS}/{name}"));
        let of_others = self.0.names()?.into_iter().filter(|name| OTHERS.contains(&name.as_str()));
        let mut names: Vec<String> = of_others.chain(of_channels.filter(|name| is_json_file(name))).collect();
        names.sort();
        Ok(names)
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        self.at(name, |folder, file| {
            folder.rename(file, &aside(file))?;
            folder.sync()
        })
    }
}

/// Documents for tests: `before` comes before each read, and may fail it or hold it up.
#[cfg(test)]
pub struct ReadAfter<F> {
    pub files: InFiles,
    pub before: F,
}

#[cfg(test)]
impl<F> Debug for ReadAfter<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(formatter)
    }
}

#[cfg(test)]
impl<F: Fn() -> io::Result<()> + Send + Sync> Documents for ReadAfter<F> {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        (self.before)()?;
        self.files.read(name)
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files.store(name, bytes)
    }

    fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files.place(name, bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.files.names()
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        self.files.set_aside(name)
    }
}
