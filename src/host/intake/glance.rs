//! A look at a group's folders by stat alone, every few seconds: whether `tasks/` has to be listed, which waiting
//! processes gave a sign of life, and which outcomes were taken. Reads no file and lists nothing.

use super::group_scanner::GroupScanner;
use super::groups::Wanted;
use crate::clock::Moment;
use crate::host::broker::Outcomes;
use crate::ipc::files::{Dir, Stamp};
use crate::ipc::{ALIVE, RESPONSES, TASKS, alive_name};
use askd_core::RequestId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A file that came later than this after a stamp was first seen has given the folder another stamp, however coarse the
/// clock of its file system is.
const COARSE: Duration = Duration::from_secs(2);

/// How a folder was left when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Glance {
    stamps: [Option<Stamp>; 2],
    since: Moment,
    /// It was listed at a time when nothing could come any more without another stamp.
    listed: bool,
    /// It is listed again then, although nothing seems to be new.
    pub(super) again: Option<Moment>,
    /// Its group's folders cannot be used as they are. A change of mode or owner shows in their stamps.
    pub(super) in_trouble: bool,
    /// A look at it has not ended.
    looking: bool,
}

impl Glance {
    /// Whether the folder has to be listed now. Looks at the clock only if that depends on it.
    pub(super) fn has_news(&mut self, stamps: [Option<Stamp>; 2], now: impl FnOnce() -> Moment) -> bool {
        let is_new = self.stamps != stamps || self.since == Moment::default();
        if self.listed && !is_new {
            return false;
        }
        let now = now();
        if is_new {
            *self = Self { stamps, since: now, listed: false, ..*self };
        }
        !std::mem::replace(&mut self.listed, now.since(self.since) >= COARSE)
    }
}

impl GroupScanner {
    /// Looks at the folders: at once, or in a thread that may hang with the disk that is mounted there.
    pub(super) fn glance(self: &Arc<Self>, root: &Arc<(Dir, Stamp)>, outcomes: Outcomes) {
        if !self.is_mounted.load(Ordering::Relaxed) {
            return self.glance_now(root, &outcomes);
        }
        if std::mem::replace(&mut self.glance.lock().looking, true) {
            return;
        }
        let (scanner, root) = (Arc::clone(self), Arc::clone(root));
        self.ctx.finish(async move {
            let glance = move |scanner: &Arc<Self>| {
                scanner.glance_now(&root, &outcomes);
                Ok(())
            };
            let _ended = scanner.on_disk(glance).await;
            scanner.glance.lock().looking = false;
        });
    }

    fn glance_now(self: &Arc<Self>, root: &(Dir, Stamp), outcomes: &Outcomes) {
        let (dir, root) = root;
        let stamp = dir.stat_below(&self.tasks).ok();
        if let Some(stamp) = stamp {
            let is_home = root.device == stamp.device;
            // A link can lead to another file system, too, but then none is mounted here.
            let is_home = if is_home || dir.pin(&self.tasks).is_ok() {
                self.folders.note_home(&self.group, TASKS, is_home)
            } else {
                self.folders.is_home(&self.group)
            };
            self.is_mounted.store(!is_home, Ordering::Relaxed);
        }
        let now = || self.ctx.clock().monotonic();
        let mut glance = self.glance.lock();
        let again = glance.again.take_if(|at| *at <= now()).is_some();
        let beside =
            glance.in_trouble.then(|| dir.stat_below(&format!("{}/{RESPONSES}", self.group.folder())).ok()).flatten();
        if glance.has_news([stamp, beside], now) || again {
            self.look(Wanted::folder());
        }
        drop(glance);
        // A look that fails shows nothing; one that fails for long shows no process dead.
        let _unseen = self.note_heartbeats();
        self.broker.look_after(&self.group, outcomes);
    }

    /// Hands on the signs of life of the processes that are waited for.
    fn note_heartbeats(&self) -> io::Result<()> {
        let processes = self.broker.heartbeats().expected(&self.group);
        if processes.is_empty() {
            return Ok(());
        }
        let tasks = self.folders.pin(&self.group, TASKS)?;
        let (folder, mut blind) = match tasks.pin(ALIVE) {
            Ok(folder) => (Some(folder), false),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                (None, false)
            }
            Err(error) => {
                let what = "tasks/.alive cannot be read, so that askd takes no waiting process of this group for dead";
                if self.warnings.is_first(Some(&self.group), what) {
                    tracing::warn!(group = %self.group, why = %error, "{what}");
                }
                (None, true)
            }
        };
        let mut signs = Vec::new();
        // Only these can be the name of a file.
        for process in processes.into_iter().filter(|process| process.parse::<RequestId>().is_ok()) {
            let inside = folder.as_ref().map(|folder| folder.stat(&process)).transpose();
            blind |= inside.is_err();
            let seen = [inside.ok().flatten().flatten(), tasks.stat(&alive_name(&process))?];
            signs.push((process, seen));
        }
        self.broker.heartbeats().note(&self.group, signs, blind, self.ctx.clock().now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_listed_until_its_stamp_was_two_seconds_old_when_the_listing_began() {
        let folder = tempfile::tempdir().unwrap();
        let at = |millis| move || Moment::default() + Duration::from_hours(1) + Duration::from_millis(millis);
        let stamp = || [Stamp::at(folder.path()).ok(), None];
        let mut glance = Glance::default();
        assert!(glance.has_news(stamp(), at(0)), "never listed");
        assert!(glance.has_news(stamp(), at(1_999)), "a file may have come in the same tick of a coarse clock");
        assert!(glance.has_news(stamp(), at(7_000)));
        assert!(!glance.has_news(stamp(), at(12_000)) && !glance.has_news(stamp(), at(17_000)));
        std::fs::create_dir(folder.path().join("new")).unwrap();
        assert!(glance.has_news(stamp(), at(22_000)) && glance.has_news(stamp(), at(27_000)));
        assert!(!glance.has_news(stamp(), at(32_000)));
        assert!(glance.has_news([None; 2], at(37_000)), "it is gone");
    }
}
