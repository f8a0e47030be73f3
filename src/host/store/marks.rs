//! The mark of a store whose records are being or were moved (`copying`): no daemon starts on half a copy or on moved records.

use super::{Documents, StoreError};
use std::io;

/// The document that is a store's mark.
pub(super) const MARK: &str = "copy";

/// The document that both stores of a finished copy have alike: it shows that the records of the one are in the other.
pub(super) const COPY_ID: &str = "copy_id";

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is being copied from here.
    Moving,
    /// It is being copied to here.
    Coming,
    /// All of it was copied from here.
    Moved,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Moving, Self::Coming, Self::Moved];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Coming => "coming",
            Self::Moved => "moved",
        }
    }
}

pub(super) fn mark_of(documents: &dyn Documents) -> io::Result<Option<Mark>> {
    Ok(documents.read(MARK)?.and_then(|bytes| parsed(&bytes)))
}

fn parsed(bytes: &[u8]) -> Option<Mark> {
    let text = String::from_utf8_lossy(bytes);
    Mark::ALL.into_iter().find(|mark| mark.text() == text.trim())
}

/// Lets a daemon, or a command, use only records that were not moved, and not half a copy.
pub(super) fn check(documents: &dyn Documents, place: &str) -> Result<(), StoreError> {
    let unreadable = |source| StoreError::Io { what: format!("cannot read {place}"), source };
    judge(mark_of(documents).map_err(unreadable)?, place)
}

/// The same for a caller that has read the document.
#[cfg(feature = "postgres")]
pub(super) fn check_read(read: &[u8], place: &str) -> Result<(), StoreError> {
    judge(parsed(read), place)
}

fn judge(mark: Option<Mark>, place: &str) -> Result<(), StoreError> {
    match mark {
        None => Ok(()),
        Some(Mark::Moved) => Err(StoreError::Moved(format!(
            "the records of {place} were moved: start askd where they are now (with or without [postgres] url), or bring \
             them back with askd store copy"
        ))),
        Some(Mark::Moving | Mark::Coming) => Err(StoreError::Moved(format!(
            "the records of {place} are being copied: run askd store copy again to finish, or with --abort to undo it"
        ))),
    }
}
