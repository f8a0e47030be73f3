//! One group's requests, one after the other. [`super::survey`] finds them, [`super::taking`] takes them.

use super::glance::Glance;
use super::groups::Wanted;
use super::survey::Survey;
use super::taking::Turn;
use super::watching::Watching;
use crate::clock::Moment;
use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::warnings::Warnings;
use crate::ipc::TASKS;
use crate::sabotage::on;
use askd_core::Group;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What claimed requests are called: only their scanner looks at them.
pub(super) const CLAIMED: &str = ".claimed-";
/// How many requests are taken before the folder is looked at again.
const IN_A_ROW: usize = 100;
/// A folder that has not answered for this long counts as hanging.
const HANGS: Duration = Duration::from_secs(10);

/// What all scanners share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) broker: Broker,
    pub(super) folders: Folders,
    pub(super) ctx: Ctx,
    pub(super) warnings: Warnings,
    pub(super) watching: Watching,
    /// How many folders are worked on at a time: those on the disk of their root, and those that are mounted there. One
    /// that hangs keeps its place and its thread.
    pub(super) home: Arc<Semaphore>,
    pub(super) mounted: Arc<Semaphore>,
}

/// One group's requests.
#[derive(Debug)]
pub(super) struct GroupScanner {
    pub(super) group: Group,
    /// Its `tasks/`, below the folder of the groups' folders.
    pub(super) tasks: String,
    shared: Shared,
    /// Held while looking.
    alone: tokio::sync::Mutex<()>,
    pub(super) wanted: Mutex<Wanted>,
    pub(super) survey: Mutex<Survey>,
    pub(super) glance: Mutex<Glance>,
    /// Another file system is mounted there: it may hang by itself.
    pub(super) is_mounted: AtomicBool,
    /// How much waits for the disk of its folder, and since when nothing has come back from there.
    waits: Mutex<(usize, Option<Moment>)>,
}

impl std::ops::Deref for GroupScanner {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// A request, in the order in which requests are taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// Asks before cancels.
    pub(super) cancel: bool,
    /// Oldest first.
    pub(super) modified: (i64, u64),
    pub(super) name: String,
    /// When the file arrived. `modified` may be older: a copy can keep the time of its original.
    pub(super) changed: (i64, u64),
}

impl GroupScanner {
    pub(super) fn new(group: Group, shared: Shared) -> Self {
        Self {
            is_mounted: AtomicBool::new(shared.folders.is_mounted(&group)),
            tasks: format!("{}/{TASKS}", group.folder()),
            group,
            shared,
            alone: tokio::sync::Mutex::default(),
            wanted: Mutex::default(),
            survey: Mutex::default(),
            glance: Mutex::default(),
            waits: Mutex::default(),
        }
    }

    /// Whether the disk of its folder does not answer.
    pub(super) fn hangs(&self, now: Moment) -> bool {
        self.waits.lock().1.is_some_and(|since| now.since(since) >= HANGS)
    }

    /// Looks where it is told to; if a look is already running, that one does it.
    pub(super) fn look(self: &Arc<Self>, wanted: Wanted) {
        let mut already = self.wanted.lock();
        let is_coming = !already.is_empty();
        already.add(wanted);
        drop(already);
        // The task that was begun for the first of them sees all; a flood of events begins no more tasks.
        if is_coming {
            return;
        }
        let scanner = Arc::clone(self);
        self.ctx.finish(async move {
            while scanner.is_wanted() {
                let Ok(_alone) = scanner.alone.try_lock() else { return };
                // The sabotage has one desk for all groups.
                let _desk = if on("onedesk") { scanner.mounted.acquire().await.ok() } else { None };
                while scanner.is_wanted() {
                    scanner.round().await;
                }
            }
        });
    }

    fn is_wanted(&self) -> bool {
        !self.ctx.is_stopping() && (!self.wanted.lock().is_empty() || !self.survey.lock().queue.is_empty())
    }

    /// Finds what can be taken, and takes some of it.
    async fn round(self: &Arc<Self>) {
        let mut wanted = Some(std::mem::take(&mut *self.wanted.lock()));
        for _ in 0..IN_A_ROW {
            let wanted = wanted.take().filter(|wanted| !wanted.is_empty());
            if wanted.is_none() && self.survey.lock().queue.is_empty() {
                return;
            }
            match self.on_disk(move |scanner| Ok(scanner.turn(wanted))).await {
                Ok(Turn::Taken) => {}
                Ok(Turn::Claimed(claim)) => self.take(*claim).await,
                Ok(Turn::Waits) => tokio::select! {
                    () = self.broker.loaded_of(&self.group) => {}
                    () = self.ctx.stopping() => return,
                },
                Ok(Turn::Nothing) => return,
                Err(error) => {
                    tracing::error!(group = %self.group, %error, "a request could not be taken; trying again");
                    return;
                }
            }
        }
    }

    /// Lets a request wait, and has it looked at again.
    pub(super) fn hold(self: &Arc<Self>, name: &str) {
        let pause = self.survey.lock().known.hold(name, self.ctx.clock().monotonic());
        let (scanner, again) = (Arc::clone(self), Wanted::name(name));
        self.ctx.spawn(async move {
            scanner.ctx.clock().sleep(pause).await;
            scanner.look(again);
        });
    }

    /// Does something on the disk of the group's folder, where it may hang.
    pub(super) async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let disk = if self.is_mounted.load(Ordering::Relaxed) { &self.mounted } else { &self.home };
        self.count_waiting(|waiting| waiting + 1);
        let (scanner, place) = (Arc::clone(self), Arc::clone(disk).acquire_owned().await);
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&scanner);
            drop(place);
            done
        });
        let done = worked.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        self.count_waiting(|waiting| waiting - 1);
        done
    }

    fn count_waiting(&self, count: impl FnOnce(usize) -> usize) {
        let mut waits = self.waits.lock();
        let (before, after) = (waits.0, count(waits.0));
        // What comes back shows that the disk answers.
        let since = if after > before { waits.1 } else { None };
        let now = self.ctx.clock().monotonic();
        *waits = (after, (after > 0).then(|| since.unwrap_or(now)));
    }
}
