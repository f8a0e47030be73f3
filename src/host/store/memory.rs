//! What a channel remembers of people where several daemons serve them: entries that each of them changes, in place of a document that one
//! daemon has alone. Whoever changes what is known of a person has the person's [`Turn`].

use super::snapshot::Snapshot;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;

/// Where an entry stands: in a section, under a key.
pub type Place = (String, String);

/// Entries by the name of their document and their place, each as JSON; without a value it was taken out.
pub type Entries = BTreeMap<(String, Place), Option<String>>;

/// An entry that is to be stored in the place of what its daemon knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub before: Option<String>,
    pub now: Option<String>,
}

/// Such entries by the name of their document and their place. One that another daemon has changed meanwhile stays as it is.
pub type Writes = BTreeMap<(String, Place), Write>;

/// How far a daemon has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What the last look has seen.
    pub(super) seen: Snapshot,
    /// The server's era.
    pub(super) era: String,
}

/// What a look finds.
#[derive(Debug)]
pub struct Changed {
    pub entries: Entries,
    /// These are all entries that there are.
    pub all: bool,
    /// `None`: the next look reads all of them.
    pub known: Option<Known>,
}

/// What a leader has that begins with entries.
#[derive(Debug)]
pub struct Shared {
    /// Its own entries were stored just now, and not at another time.
    pub moved: bool,
    pub found: Changed,
}

/// The memory of a number of the business.
#[async_trait]
pub trait Memory: Debug + Send + Sync {
    /// Whether this daemon does what one of them does.
    fn leads(&self) -> bool;

    /// Whether every daemon can read entries. Once this has said yes, a daemon that cannot is refused.
    async fn may_share(&self) -> io::Result<bool>;

    /// Makes entries of the documents with these names, unless that was done before, and reads all there are of that number. `None`: a daemon
    /// is running that reads only documents. Blocks, for long if there are many. For the leader.
    fn share(&self, number: &str, documents: &[String], entries: &[(String, Entries)]) -> io::Result<Option<Shared>>;

    /// Whether that was done.
    async fn is_shared(&self) -> io::Result<bool>;

    /// What has changed of that number; all there is without `known`, which may take long.
    async fn changed(&self, number: &str, known: Option<&Known>) -> io::Result<Changed>;

    /// Puts entries on stable storage, all or none.
    async fn write(&self, number: &str, writes: &Writes) -> io::Result<()>;

    /// Waits until nobody else has the turn of that person.
    async fn turn(&self, number: &str, person: &str) -> io::Result<Box<dyn Turn>>;
}

/// Whoever has it may change what is known of a person. A turn that is dropped, or that has taken too long, changes nothing.
#[async_trait]
pub trait Turn: Send {
    /// What has changed, also by whoever had the turn before.
    async fn changed(&mut self, known: Option<&Known>) -> io::Result<Changed>;

    /// Puts entries on stable storage, and ends the turn.
    async fn end(self: Box<Self>, writes: &Writes) -> io::Result<()>;
}
