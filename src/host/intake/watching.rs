//! Adds and removes watches in a separate thread, because a folder whose disk hangs also hangs the thread that watches
//! it. Until that thread goes on, regular looks serve the groups that wait behind it.

use super::hints::{Hints, Wanted};
use crate::ipc::watch::Watch;
use askd_core::Group;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// How many changes may wait for their turn; the next look tries the others again.
const WAITING: usize = 1_000;

/// Another set of folders to watch.
#[derive(Debug)]
pub(super) struct Change {
    /// The group to look at again once its folders are watched: earlier files have raised no event.
    pub(super) group: Option<Group>,
    pub(super) remove: Vec<PathBuf>,
    pub(super) add: Vec<PathBuf>,
}

/// Has folders watched.
#[derive(Debug, Clone)]
pub(super) struct Watching(SyncSender<Change>);

impl Watching {
    /// Starts the thread; it ends when its last handle is dropped.
    pub(super) fn start(mut watch: Watch, hints: Arc<Hints>) -> std::io::Result<Self> {
        let (sender, changes) = sync_channel::<Change>(WAITING);
        std::thread::Builder::new().name("askd-watch".to_owned()).spawn(move || {
            for Change { group, remove, add } in changes {
                for folder in &remove {
                    watch.remove(folder);
                }
                // Tries every one of them, whatever came of the others.
                let added = add.iter().filter(|folder| watch.add(folder)).count();
                if let Some(group) = group.filter(|_| added > 0) {
                    hints.add(group, Wanted::folder());
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// `false` if it has to be asked again later.
    pub(super) fn change(&self, change: Change) -> bool {
        self.0.try_send(change).is_ok()
    }
}
