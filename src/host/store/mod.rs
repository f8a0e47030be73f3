//! Asks and what is known beside them, durably: the port that the broker uses, and the errors that it can meet.
//!
//! An engine decides nothing about an ask, and nobody outside learns where it keeps one. Calls for one ask come one at a
//! time (from its lane), calls for different asks side by side; every call blocks on the disk. `files` is the first
//! engine. `conformance` is what every engine has to pass.

mod cache;
#[cfg(test)]
mod conformance;
#[cfg(feature = "postgres")]
mod copying;
mod documents;
mod earlier;
mod files;
mod forgetting;
mod loading;
mod marks;
pub mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod rates;
mod record;
mod sharing;
mod snapshot;

#[cfg(feature = "postgres")]
pub use copying::{Copied, abort, copy};
#[cfg(test)]
pub use documents::ReadAfter;
pub use documents::{Documents, InFiles, TOKEN_FILE, aside, change as change_document};
#[cfg(feature = "postgres")]
use files::boot_id;
pub use files::{BOOT_ID_FIX, CHANNELS_FORMAT, Files, PENDING, hold, no_boot_id, note_settings, noted_settings};
pub use forgetting::{BEGINNING, Erased, Whom};
pub use loading::Loading;
#[cfg(feature = "postgres")]
pub use postgres::{Moved, Seen, Turn, Waiting, document_of, lines_of, look, move_group};
pub use rates::Rates;
pub use record::{BadRecord, Version};
#[cfg(feature = "postgres")]
pub use sharing::OnItsWay;
pub use sharing::{
    Along, Basis, Holdings, LeftTo, McpCall, McpCalls, McpMessage, News, Owed, Pin, Pins, REPORTED, Reached, Sharing,
    Shown, Silent, Surplus, Tended, Tenure, Wait, Webhook,
};

use crate::host::audit::Together;
use askd_core::{Ask, AskId, Digest, Group, Person, Time};
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// No document beside the asks comes near this, in bytes.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;

/// When a change has to be on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// Before the save returns: it is a promise.
    Now,
    /// With the next [`Store::flush`]. Until then a `kill -9` keeps it, and a loss of power undoes it as a whole.
    Soon,
    /// The same, and until then a `kill -9` may undo it as a whole, too: askd finds it out again after a start, or does it
    /// again. Several such changes of one ask are one write.
    Later,
}

/// What files are called.
const STATE_FOLDER: &str = "the state folder";

/// Where asks and outcomes are kept.
pub trait Store: Debug + Send + Sync {
    /// Saves an ask, new or changed. A new one is saved [`Save::Now`]. An outcome that was retired is saved where it is:
    /// it may still change.
    fn save(&self, ask: &Arc<Ask>, save: Save) -> Result<(), StoreError>;

    /// An ask that is at hand without a look at the disk.
    fn cached(&self, id: AskId) -> Option<Arc<Ask>>;

    /// Reads an ask, open or settled; `None` if there is none.
    fn load(&self, group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError>;

    /// The same for a reader of many: an ask that is not at hand is not kept at hand.
    fn read(&self, group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError>;

    /// Looks for an ask in every group, while a scan has not handed over all of them.
    fn find(&self, id: AskId) -> Result<Option<Stored>, StoreError>;

    /// Puts all that was saved [`Save::Soon`] or [`Save::Later`] on stable storage, and all that was retired or forgotten.
    fn flush(&self) -> Result<(), StoreError>;

    /// The same, and has a scan find it.
    fn flush_whole(&self) -> Result<(), StoreError> {
        self.flush()
    }

    /// Whether another flush has something to do although nothing is saved.
    fn has_more_to_flush(&self) -> bool {
        false
    }

    /// The same, and notes that nothing is missing. From then on nothing can be saved.
    fn close(&self) -> Result<(), StoreError>;

    /// Moves a finished ask to the kept outcomes. That is stored like what is saved [`Save::Later`].
    fn retire(&self, group: &Group, id: AskId) -> Result<(), StoreError>;

    /// Drops an outcome that was kept long enough.
    fn forget(&self, group: &Group, id: AskId) -> Result<(), StoreError>;

    /// Takes an ask out of the store for a person to look at. Says where it is now, in words for that person.
    fn set_aside(&self, group: &Group, id: AskId) -> Result<String, StoreError>;

    /// Reads every ask, the open ones first, and hands each over; two threads do so at once. Groups that work waits for
    /// come before others. Asks that are saved meanwhile are handed over or not, as they were or as they are. Returns what
    /// is no record.
    fn scan(&self, loading: &Loading, each: &(dyn Fn(Stored) + Sync)) -> Result<Vec<(String, BadRecord)>, StoreError>;

    /// Keeps that these questions may be asked again. Drops entries before `oldest`, because no ask of that time is kept
    /// any more.
    fn allow(&self, group: &Group, allowed: &[Allowed], oldest: Time) -> Result<(), StoreError>;

    /// What may be asked again in every group, for the start.
    fn allowed(&self) -> Result<Vec<(Group, Vec<Allowed>)>, StoreError>;

    /// Finds out the whole id of the question, or the other ids that a channel knows of the person, before
    /// [`Self::erase`].
    fn learn(&self, whom: &mut Whom) -> Result<(), StoreError>;

    /// Takes them out of everything that is kept but the audit log. `first` comes before a record goes. No daemon may run.
    fn erase(&self, whom: &Whom, first: &mut dyn FnMut(&Ask) -> io::Result<()>) -> Result<Erased, StoreError>;

    /// Keeps a copy of a request that could not be asked, and removes the oldest copies over the bounds.
    fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Whether the last run stopped cleanly and the computer has not been switched off since: nothing that it did is
    /// missing anywhere.
    fn ended_well(&self) -> bool {
        false
    }

    /// Whether the store can be written now, found out by writing.
    fn probe(&self) -> Result<(), StoreError>;

    /// Whether the last save of an ask failed or is in doubt.
    fn last_save_failed(&self) -> bool;

    /// What holds the records, in words for a person.
    fn place(&self) -> &'static str {
        STATE_FOLDER
    }

    /// How long a call that others see may take if it begins now; zero: none may begin. No other daemon can take over before.
    fn calls_for(&self) -> Duration {
        Duration::MAX
    }

    /// Whether such a call may begin now.
    fn is_ours(&self) -> bool {
        !self.calls_for().is_zero()
    }

    /// What there is besides if other daemons change the same records.
    fn shared(&self) -> Option<&(dyn Sharing + 'static)> {
        None
    }

    /// Cancelled when another daemon has taken over: nothing can be saved any more.
    fn overtaken(&self) -> CancellationToken {
        CancellationToken::new()
    }
}

/// A store that this daemon holds, with its documents.
#[derive(Debug)]
pub struct Opened {
    /// The asks.
    pub store: Box<dyn Store>,
    /// What is remembered beside them.
    pub documents: Arc<dyn Documents>,
    /// The audit log, if several daemons keep theirs together.
    pub audit: Option<Together>,
}

impl Opened {
    /// Whether a daemon may use them: they were not moved away, and are not half a copy.
    pub fn check(&self) -> Result<(), StoreError> {
        marks::check(&*self.documents, self.store.place())
    }

    /// Whether another store has had all of it: they were copied from there, or to there.
    pub fn was_copied(&self) -> Result<bool, StoreError> {
        let unreadable = |source| StoreError::Io { what: format!("cannot read {}", self.store.place()), source };
        Ok(self.documents.read(marks::COPY_ID).map_err(unreadable)?.is_some())
    }

    /// The files of this folder. `after_loss`: the operator says that the disk may have lost what was written last.
    pub fn files(state: &Path, after_loss: bool) -> Result<Self, StoreError> {
        let store = Box::new(Files::open(state, after_loss)?);
        let unusable = |source| StoreError::Io { what: format!("cannot use {}", state.display()), source };
        Ok(Self { store, documents: Arc::new(InFiles::open(state).map_err(unusable)?), audit: None })
    }
}

/// An ask that a scan finds.
#[derive(Debug)]
pub struct Stored {
    /// As it is stored.
    pub ask: Ask,
    /// It is a kept outcome.
    pub settled: bool,
    /// Its record may be older than what was done: the computer lost its power since.
    pub after_loss: bool,
}

/// A question that may be asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The question's digest.
    pub question: Digest,
    /// Since when its attempts count.
    pub at: Time,
    /// Who allowed it.
    pub by: Person,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon holds the folder.
    #[error("another askd holds {0}; stop it first, or use another data_dir")]
    Held(String),
    /// Another daemon that shares the records has this name.
    #[error("another askd is called {0}; give each its own name ([postgres] node), or stop that one")]
    Namesake(String),
    /// The records are elsewhere, or on their way there.
    #[error("{0}")]
    Moved(String),
    /// A newer askd wrote a file.
    #[error(
        "{file}: {source}. Nothing was changed; start that version again, or restore the copy of the records that was made before it"
    )]
    Newer {
        /// Where it is.
        file: String,
        /// Its format and ours.
        source: BadRecord,
    },
    /// askd may not read what may hold questions or outcomes, or cannot for now.
    #[error(
        "{place}: {source}. It may hold questions or outcomes, so askd does not go on without it; nothing was changed. Fix: {fix}"
    )]
    KeptOut {
        /// A file or a folder.
        place: String,
        /// What keeps askd out.
        source: io::Error,
        /// How to mend it.
        fix: String,
    },
    /// Another daemon changed the ask, or gave its group another one, before this save. Nothing was changed.
    #[error("another daemon was faster")]
    Stale,
    /// The file of an ask cannot be used.
    #[error("the record of {id} is damaged: {source}")]
    Damaged {
        /// The ask.
        id: AskId,
        /// Where the record is.
        place: String,
        /// What is wrong with it.
        source: BadRecord,
    },
    /// The disk failed after the write: a loss of power may keep the change or undo it.
    #[error("{what}: {source} (it is written, and not known to be on stable storage)")]
    InDoubt {
        /// What was tried.
        what: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed, and nothing was changed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The disk's error.
        source: io::Error,
    },
}

impl StoreError {
    /// The same error after another part of the same change was stored.
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Io { what, source } => Self::InDoubt { what, source },
            other => other,
        }
    }
}
