//! Finding requests: an event is a hint, the directory is the truth.
//!
//! A watch event, a lost event, a new folder and the timer ([`LOOK_EVERY`]) all do the same thing: they wake the
//! intake, which only tells the groups' scanners that there may be something to look at. Each scanner works on the disk
//! of its group's folder by itself, so that a slow, flooded or hung folder keeps no other group waiting. The
//! broker decides what becomes of a request.

mod group_scanner;
mod hints;
mod known;
mod survey;
mod watching;

use crate::clock::Moment;
use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::settings::Settings;
use crate::host::warnings::Warnings;
use crate::ipc::HOST_GROUP;
use crate::ipc::watch::{Hint, Watch};
use crate::sabotage::on;
use askd_core::Group;
use group_scanner::{GroupScanner, Shared};
use hints::{Hints, Wanted};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use watching::{Change, Watching};

/// How often every folder is looked at, whatever the events say.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon everything is looked at again after events were lost: a flood of events loses many.
const AT_LEAST: Duration = Duration::from_millis(200);
/// Folders that are worked on at a time. A hung one keeps its place, and its thread.
const DISKS: usize = 256;

/// How the round of looks is going, for the health calls. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LookRound(Arc<Mutex<Round>>);

#[derive(Debug)]
struct Round {
    came_by: Moment,
    hung: usize,
}

impl LookRound {
    /// When the last round took place.
    pub fn came_by(&self) -> Moment {
        self.0.lock().came_by
    }

    /// How many groups have a folder that does not answer.
    pub fn hung(&self) -> usize {
        self.0.lock().hung
    }
}

/// Tells the groups' scanners where to look.
#[derive(Debug)]
pub struct Intake {
    shared: Shared,
    /// In the order of names, so that a look-round goes the same way every time.
    scanners: BTreeMap<Group, Arc<GroupScanner>>,
    /// The groups whose folder was said to hang.
    hung: HashSet<Group>,
    ignored: HashSet<String>,
    round: LookRound,
}

impl Intake {
    /// Starts watching; looking begins with [`Self::run`].
    pub fn new(broker: Broker, folders: Folders, ctx: Ctx, warnings: Warnings) -> io::Result<Self> {
        let hints = Arc::new(Hints::default());
        let (root, told) = (folders.root().to_owned(), Arc::clone(&hints));
        let watch = Watch::new(move |hint| match hint {
            Hint::Everywhere => told.everywhere(),
            Hint::At(path) => told.look_at(&root, path),
        });
        let watching = Watching::start(watch, Arc::clone(&hints))?;
        let round = LookRound(Arc::new(Mutex::new(Round { came_by: ctx.clock().monotonic(), hung: 0 })));
        let disks = Arc::new(Semaphore::new(DISKS));
        let shared = Shared { broker, folders, ctx, warnings, hints, watching, disks };
        let intake = Self { shared, scanners: BTreeMap::new(), hung: HashSet::new(), ignored: HashSet::new(), round };
        intake.watch_root();
        Ok(intake)
    }

    /// How the round of looks is going.
    pub fn look_round(&self) -> LookRound {
        self.round.clone()
    }

    /// Looks until the daemon stops. A request claimed by then is finished now or found by the next start.
    pub async fn run(mut self) {
        let mut prepared = None;
        let clock = self.shared.ctx.clock().clone();
        let mut next_look = clock.monotonic();
        let mut not_before = next_look;
        loop {
            let settings = self.shared.broker.settings();
            if !prepared.as_ref().is_some_and(|known| Arc::ptr_eq(known, &settings)) {
                self.prepare(&settings);
                prepared = Some(settings);
            }
            let now = clock.monotonic();
            let places = self.shared.hints.take();
            // The sabotage trusts events alone, once the groups of the start are found.
            let trusting = on("noscan") && !self.scanners.is_empty();
            if places.everywhere {
                next_look = next_look.min(not_before.max(now));
            }
            if now >= next_look && (places.everywhere || !trusting) {
                self.look_round_all().await;
                next_look = clock.monotonic() + LOOK_EVERY;
                not_before = clock.monotonic() + AT_LEAST;
            } else if now >= next_look {
                next_look = now + LOOK_EVERY;
            }
            for (group, wanted) in places.groups {
                self.look(&group, wanted).await;
            }
            tokio::select! {
                () = self.shared.hints.new.notified() => {}
                () = clock.sleep_to(next_look) => {}
                () = self.shared.ctx.stopping() => return,
            }
        }
    }

    /// Has every group looked at, and sees how they are.
    async fn look_round_all(&mut self) {
        let folders = self.shared.folders.clone();
        let names = tokio::task::spawn_blocking(move || folders.names()).await;
        match names.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(names) => self.find_groups(names),
            Err(error) => self.make_root(&error),
        }
        for group in self.scanners.keys().cloned().collect::<Vec<_>>() {
            self.look(&group, Wanted::folder()).await;
        }
        self.shared.broker.nudge();
        self.shared.broker.look_after();
        self.shared.warnings.tell();
        self.say_hung();
    }

    async fn look(&self, group: &Group, wanted: Wanted) {
        let Some(scanner) = self.scanners.get(group) else { return };
        let looking = Arc::clone(scanner).look(wanted);
        if on("onedesk") {
            looking.await;
        } else {
            self.shared.ctx.finish(looking);
        }
    }

    /// Has the folders of configured groups made, and the host's own.
    fn prepare(&mut self, settings: &Settings) {
        let host = HOST_GROUP.parse::<Group>().ok();
        for group in settings.configured().chain(host) {
            if settings.group(&group).is_some() {
                self.scanner(&group);
                self.shared.hints.add(group, Wanted { make: true, ..Wanted::folder() });
            }
        }
    }

    fn find_groups(&mut self, names: Vec<String>) {
        for name in names {
            match name.parse::<Group>() {
                Ok(group) => self.scanner(&group),
                Err(rule) => {
                    if self.ignored.insert(name.clone()) {
                        tracing::warn!(name, %rule, "ignored: not a group's name");
                    }
                }
            }
        }
    }

    fn scanner(&mut self, group: &Group) {
        if !self.scanners.contains_key(group) {
            self.scanners.insert(group.clone(), Arc::new(GroupScanner::new(group.clone(), self.shared.clone())));
        }
    }

    fn make_root(&mut self, error: &io::Error) {
        let folder = self.shared.folders.root();
        tracing::error!(folder = %folder.display(), %error, "the groups' folders cannot be listed; making the folder anew");
        match std::fs::create_dir_all(folder) {
            Ok(()) => {
                self.watch_root();
                self.scanners.clear();
                self.prepare(&self.shared.broker.settings());
            }
            Err(error) => {
                tracing::error!(folder = %folder.display(), %error, "it cannot be made: check who owns its parent");
            }
        }
    }

    fn watch_root(&self) {
        let add = vec![self.shared.folders.root().to_owned()];
        // A folder without a watch is looked at every few seconds anyway.
        let _full = self.shared.watching.change(Change { group: None, remove: Vec::new(), add });
    }

    /// Logs once for each group that its folder hangs, and once that it answers again.
    fn say_hung(&mut self) {
        let now = self.shared.ctx.clock().monotonic();
        let hung: HashSet<Group> =
            self.scanners.iter().filter(|(_, scanner)| scanner.hangs(now)).map(|(group, _)| group.clone()).collect();
        for group in hung.difference(&self.hung) {
            let folder = self.shared.folders.root().join(group.as_str());
            tracing::error!(
                group = %group, folder = %folder.display(),
                "the group's folder does not answer: its requests wait, other groups go on. Look at what is mounted there \
                 (mount | grep {group}); if its server does not come back, unmount it with umount -l"
            );
        }
        for group in self.hung.difference(&hung) {
            tracing::info!(group = %group, "the group's folder answers again");
        }
        *self.round.0.lock() = Round { came_by: now, hung: hung.len() };
        self.hung = hung;
    }
}
