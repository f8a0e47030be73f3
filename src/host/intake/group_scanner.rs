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
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, Semaphore};

/// What claimed requests are called: only their scanner looks at them.
pub(super) const CLAIMED: &str = ".claimed-";
/// How many requests are taken before the folder is looked at again, and before other folders have their turn.
const IN_A_ROW: usize = 100;
const IN_A_TURN: usize = 10;
/// How soon a look on which askd panicked is made again.
const AGAIN: Duration = Duration::from_secs(5);
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
    alone: Arc<tokio::sync::Mutex<()>>,
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
            alone: Arc::default(),
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
        // The look that was begun for the first of them sees all; a flood of events begins no more of them.
        if !is_coming {
            self.begin();
        }
    }

    /// Begins to look, unless that is under way.
    fn begin(self: &Arc<Self>) {
        // Whoever has it looks again after this.
        let Ok(alone) = Arc::clone(&self.alone).try_lock_owned() else { return };
        let at_once = !self.is_mounted.load(Ordering::Relaxed) && !on("onedesk");
        let Some(place) = at_once.then(|| Arc::clone(&self.home).try_acquire_owned().ok()).flatten() else {
            return self.go_on(alone, Turn::Taken);
        };
        let waits = Waits::begin(self);
        // Without a task before it: each hand-over between threads costs as much as a write.
        self.ctx.finish_blocking(move || {
            let scanner = Arc::clone(&waits.0);
            let wanted = std::mem::take(&mut *scanner.wanted.lock());
            let turn = scanner.turns(Some(wanted));
            drop((place, waits));
            match turn {
                Turn::Nothing => scanner.end(alone),
                turn => scanner.go_on(alone, turn),
            }
        });
    }

    /// Does what a first turn has left to do, and all that is wanted meanwhile.
    fn go_on(self: &Arc<Self>, alone: OwnedMutexGuard<()>, first: Turn) {
        let scanner = Arc::clone(self);
        self.ctx.finish(async move {
            // The sabotage has one desk for all groups.
            let desk = if on("onedesk") { scanner.mounted.acquire().await.ok() } else { None };
            scanner.follow(first).await;
            while scanner.is_wanted() {
                scanner.round().await;
            }
            drop(desk);
            scanner.end(alone);
        });
    }

    /// Ends a look. What was wanted just before may rely on it.
    fn end(self: &Arc<Self>, alone: OwnedMutexGuard<()>) {
        drop(alone);
        if self.is_wanted() {
            self.begin();
        }
    }

    fn is_wanted(&self) -> bool {
        !self.ctx.is_stopping() && (!self.wanted.lock().is_empty() || !self.survey.lock().queue.is_empty())
    }

    /// Finds what can be taken, and takes some of it.
    async fn round(self: &Arc<Self>) {
        let mut wanted = Some(std::mem::take(&mut *self.wanted.lock()));
        for _ in 0..IN_A_ROW / IN_A_TURN {
            let wanted = wanted.take();
            let turn = self.on_disk(move |scanner| Ok(scanner.turns(wanted))).await.unwrap_or(Turn::Nothing);
            if !self.follow(turn).await {
                return;
            }
        }
    }

    /// Does what has to wait for more than a disk; `false` if nothing more can be taken now.
    async fn follow(self: &Arc<Self>, turn: Turn) -> bool {
        match turn {
            Turn::Taken => {}
            Turn::Claimed(claim) => {
                let (name, claimed) = claim.names();
                if AssertUnwindSafe(self.take(*claim)).catch_unwind().await.is_err() {
                    let set_aside = move |scanner: &Arc<Self>| {
                        scanner.set_aside(&name, &claimed);
                        Ok(())
                    };
                    let _told = self.on_disk(set_aside).await;
                }
            }
            Turn::Waits => tokio::select! {
                () = self.broker.loaded_of(&self.group) => {}
                () = self.ctx.stopping() => return false,
            },
            Turn::Nothing => return false,
        }
        true
    }

    /// Looks where it is told to, and takes some requests, as long as that needs nothing but disks.
    fn turns(self: &Arc<Self>, mut wanted: Option<Wanted>) -> Turn {
        for _ in 0..IN_A_TURN {
            let wanted = wanted.take().filter(|wanted| !wanted.is_empty());
            if wanted.is_none() && self.survey.lock().queue.is_empty() {
                return Turn::Nothing;
            }
            let make = wanted.as_ref().is_some_and(|wanted| wanted.make);
            match catch_unwind(AssertUnwindSafe(|| self.turn(wanted))) {
                Ok(Turn::Taken) => self.count_waiting(|waiting| waiting),
                Ok(turn) => return turn,
                Err(_reported) => {
                    tracing::error!(group = %self.group, "askd panicked when it looked for requests; looking again");
                    self.look_later(AGAIN, Wanted { make, ..Wanted::folder() });
                    return Turn::Nothing;
                }
            }
        }
        Turn::Taken
    }

    /// Lets a request wait, and has it looked at again.
    pub(super) fn hold(self: &Arc<Self>, name: &str) {
        let pause = self.survey.lock().known.hold(name, self.ctx.clock().monotonic());
        self.look_later(pause, Wanted::name(name));
    }

    fn look_later(self: &Arc<Self>, pause: Duration, wanted: Wanted) {
        let scanner = Arc::clone(self);
        self.ctx.spawn(async move {
            scanner.ctx.clock().sleep(pause).await;
            scanner.look(wanted);
        });
    }

    /// Does something on the disk of the group's folder, where it may hang.
    pub(super) async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let disk = if self.is_mounted.load(Ordering::Relaxed) { &self.mounted } else { &self.home };
        let waits = Waits::begin(self);
        let place = Arc::clone(disk).acquire_owned().await;
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&waits.0);
            drop((place, waits));
            done
        });
        worked.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
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

/// Something waits for the disk of a folder until this is dropped.
struct Waits(Arc<GroupScanner>);

impl Waits {
    fn begin(scanner: &Arc<GroupScanner>) -> Self {
        scanner.count_waiting(|waiting| waiting + 1);
        Self(Arc::clone(scanner))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.count_waiting(|waiting| waiting - 1);
    }
}
