//! Events that something in a folder may be new.
//!
//! An event is a hint, the directory is the truth. Every event in a watched folder, and an overflow of the kernel's queue
//! too, only says "look again". The callers look every few seconds in any case, so a missing or silent watch (NFS,
//! virtual machines) costs time and nothing else. An agent, which waits for a few names only, listens to inotify itself
//! (`agent::process`).

use crate::ipc::WATCH_SWITCH;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::path::Path;

/// What a watch has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint<'a> {
    /// Something may be new at this path.
    At(&'a Path),
    /// Events were lost: look everywhere.
    Everywhere,
}

/// Watches folders, each by itself, not what is below them. Dropping it ends all watches.
pub(super) struct Watch(Option<RecommendedWatcher>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(on)" } else { "Watch(off)" })
    }
}

impl Watch {
    /// Calls `hint` from a thread of its own. If no watch can be had, that is logged and it never calls.
    pub(super) fn new(hint: impl Fn(Hint<'_>) + Send + 'static) -> Self {
        if std::env::var(WATCH_SWITCH).is_ok_and(|value| value == "off") {
            tracing::info!("watching is switched off by {WATCH_SWITCH}=off; looking every few seconds instead");
            return Self(None);
        }
        let tell = move |event: notify::Result<notify::Event>| match event {
            Ok(event) if event.need_rescan() => hint(Hint::Everywhere),
            Ok(event) if worth_a_look(event.kind) => event.paths.iter().for_each(|path| hint(Hint::At(path))),
            Ok(_) => {}
            Err(_) => hint(Hint::Everywhere),
        };
        match notify::recommended_watcher(tell) {
            Ok(watcher) => Self(Some(watcher)),
            Err(error) => {
                tracing::warn!(%error, "no file watch to be had (see fs.inotify.max_user_instances); looking every few seconds instead");
                Self(None)
            }
        }
    }

    /// Watches this folder, and not the one that was at its place before; `false` if no events can be expected from it.
    pub(super) fn add_anew(&mut self, folder: &Path) -> bool {
        let Some(watcher) = &mut self.0 else { return false };
        // It may never have been watched, or have gone with its folder.
        let _gone = watcher.unwatch(folder);
        if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch a folder (see fs.inotify.max_user_watches); looking every few seconds instead");
            return false;
        }
        true
    }
}

/// Reading and listing raise events too; answering those with another look would never end. A rename is told three times:
/// what it is called now is enough.
fn worth_a_look(kind: EventKind) -> bool {
    match kind {
        EventKind::Create(_)
        | EventKind::Modify(ModifyKind::Name(RenameMode::To))
        | EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Any
        | EventKind::Other => true,
        EventKind::Modify(_) | EventKind::Access(_) | EventKind::Remove(_) => false,
    }
}
