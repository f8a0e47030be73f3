//! Adds and removes watches in a separate thread, because a folder whose disk hangs also hangs the thread that watches
//! it. Until that thread goes on, regular looks serve the groups that wait behind it.

use super::group_scanner::GroupScanner;
use super::groups::Wanted;
use super::watch::Watch;
use crate::host::ctx::Ctx;
use std::path::PathBuf;
use std::sync::Weak;
use std::sync::mpsc::{SyncSender, sync_channel};

/// How many changes may wait for their turn; the next look tries the others again.
const WAITING: usize = 1_000;

/// Folders that are there anew.
#[derive(Debug)]
pub(super) struct NewFolders {
    pub(super) folders: Vec<PathBuf>,
    /// Looks again once they are watched: earlier files have raised no event.
    pub(super) scanner: Option<Weak<GroupScanner>>,
}

/// Has folders watched.
#[derive(Debug, Clone)]
pub(super) struct Watching(SyncSender<NewFolders>);

impl Watching {
    /// Starts the thread; it ends when its last handle is dropped.
    pub(super) fn start(mut watch: Watch, ctx: &Ctx) -> std::io::Result<Self> {
        let (sender, new) = sync_channel::<NewFolders>(WAITING);
        std::thread::Builder::new().name(ctx.thread_name("watch")).spawn(move || {
            for NewFolders { folders, scanner } in new {
                // Tries every one of them, whatever came of the others.
                let watched = folders.iter().filter(|folder| watch.add_anew(folder)).count();
                if let Some(scanner) = scanner.filter(|_| watched > 0).and_then(|scanner| scanner.upgrade()) {
                    scanner.look(Wanted::folder());
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// `false` if it has to be asked again later.
    pub(super) fn watch(&self, new: NewFolders) -> bool {
        self.0.try_send(new).is_ok()
    }
}
