//! Finding requests: an event is a hint, the directory is the truth.
//!
//! One thread looks at all groups' folders every few seconds, by stat alone ([`glance`]). A watch event names a place, a
//! stamp that changed names a folder; the group's scanner then looks there by itself, so that a slow, flooded or hung
//! folder keeps no other group waiting. The broker decides what becomes of a request.

mod glance;
mod group_scanner;
mod groups;
mod known;
mod refusing;
mod survey;
mod taking;
mod watch;
mod watching;

use crate::clock::Moment;
use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::settings::Settings;
use crate::host::standing::Problem;
use crate::host::warnings::Warnings;
use crate::ipc::HOST_GROUP;
use crate::ipc::files::{Dir, Stamp};
use crate::sabotage::on;
use askd_core::Group;
use glance::Glance;
use group_scanner::{GroupScanner, Shared};
use groups::{Groups, Wanted};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use watch::Watch;
use watching::{NewFolders, Watching};

/// How often every folder is looked at, whatever the events say.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The same for more than [`MANY`] groups. The shortest time within which a card has to be shown is 10 s.
const LOOK_EVERY_MANY: Duration = Duration::from_secs(8);
const MANY: usize = 500;
/// How soon everything is looked at again after events were lost: a flood of events loses many.
const AT_LEAST: Duration = Duration::from_millis(200);
/// Folders that are worked on at a time on the disk of their root, and on disks that are mounted there.
const HOME: usize = 8;
const MOUNTED: usize = 12;

/// Looks at the groups' folders.
#[derive(Debug)]
pub struct Intake {
    shared: Shared,
    groups: Arc<Groups>,
    /// How the folder of the groups' folders was left.
    root: Glance,
    /// By how far the time of day was set when it was last looked at.
    set_by: i64,
    /// The groups whose folder was said to hang.
    hung: HashSet<Group>,
    ignored: HashSet<String>,
}

impl Intake {
    /// Starts watching; looking begins with [`Self::run`].
    pub fn new(broker: Broker, folders: Folders, ctx: Ctx, warnings: Warnings) -> io::Result<Self> {
        let groups = Arc::new(Groups::default());
        let (root, told) = (folders.root().to_owned(), Arc::downgrade(&groups));
        let watch = Watch::new(move |hint| {
            if let Some(groups) = told.upgrade() {
                groups.take(hint, &root);
            }
        });
        let watching = Watching::start(watch, &ctx)?;
        let (now, set_by) = (ctx.clock().monotonic(), ctx.clock().reading().set_by);
        folders.note_look(now, 0);
        let mounted = Arc::new(Semaphore::new(if on("onedesk") { 1 } else { MOUNTED }));
        let home = Arc::new(Semaphore::new(HOME));
        let shared = Shared { broker, folders, ctx, warnings, watching, home, mounted };
        let (hung, ignored) = (HashSet::new(), HashSet::new());
        let intake = Self { shared, groups, root: Glance::default(), set_by, hung, ignored };
        intake.watch_root();
        Ok(intake)
    }

    /// Looks until the daemon stops. Blocks: it has a thread of its own, so that a look wakes nothing else. A request that is
    /// claimed by then is finished now or found by the next start.
    pub fn run(mut self) {
        let (ctx, groups) = (self.shared.ctx.clone(), Arc::clone(&self.groups));
        let clock = ctx.clock();
        let mut prepared = None;
        let mut told = true;
        loop {
            let settings = self.shared.broker.settings();
            if !prepared.as_ref().is_some_and(|known| Arc::ptr_eq(known, &settings)) {
                if prepared.is_some() && self.shared.broker.is_shared() {
                    // A folder is another group if the settings name it now.
                    self.groups.lock().clear();
                    self.root = Glance::default();
                    // What is wrong is found again, under the names that the groups have now.
                    self.shared.folders.forget_problems();
                    self.hung.clear();
                }
                self.prepare(&settings, &[]);
                prepared = Some(settings);
            }
            // The sabotage trusts events alone.
            if told || !on("noscan") {
                self.shared.broker.make_way();
                self.look_everywhere();
            }
            let looked = clock.monotonic();
            let every = if groups.lock().len() > MANY { LOOK_EVERY_MANY } else { LOOK_EVERY };
            let event = async {
                tokio::select! {
                    () = groups.everywhere.notified() => {}
                    () = ctx.stopping() => {}
                }
            };
            told = clock.wait(looked + every, event).is_some();
            if told {
                clock.wait(looked + AT_LEAST, ctx.stopping());
            }
            if ctx.is_stopping() {
                return;
            }
        }
    }

    /// Looks at every group, and sees how they are.
    fn look_everywhere(&mut self) {
        let (broker, clock) = (self.shared.broker.clone(), self.shared.ctx.clock().clone());
        let reading = clock.reading();
        if std::mem::replace(&mut self.set_by, reading.set_by) != reading.set_by {
            broker.nudge();
        }
        let hung = match self.shared.folders.look_from() {
            Ok(root) => self.look_below(&Arc::new(root), clock.monotonic()),
            Err(error) => {
                self.make_root(&error);
                HashSet::new()
            }
        };
        broker.has_looked();
        self.shared.warnings.tell();
        self.say_hung(hung, clock.monotonic());
    }

    /// Looks at each group, and returns those whose folder hangs.
    fn look_below(&mut self, root: &Arc<(Dir, Stamp)>, now: Moment) -> HashSet<Group> {
        if self.root.has_news([Some(root.1), None], || now) {
            match self.shared.folders.names() {
                Ok(names) => {
                    self.prepare(&self.shared.broker.settings(), &names);
                    self.find_groups(names);
                }
                Err(error) => self.make_root(&error),
            }
        }
        let (mut outcomes, mut hung) = (self.shared.broker.outcomes(), HashSet::new());
        for scanner in self.groups.all() {
            let outcomes = outcomes.remove(&scanner.group).unwrap_or_default();
            scanner.glance(root, outcomes);
            if scanner.hangs(now) {
                hung.insert(scanner.group.clone());
            }
        }
        // Groups whose agents ask over HTTP need no folder.
        for (group, outcomes) in outcomes {
            self.shared.broker.look_after(&group, &outcomes);
        }
        hung
    }

    /// Has the folders of configured groups made, and the host's own, but for those that are there.
    fn prepare(&self, settings: &Settings, there: &[String]) {
        let there: HashSet<&str> = there.iter().map(String::as_str).collect();
        let host = HOST_GROUP.parse::<Group>().ok();
        for group in settings.configured().chain(host) {
            if !there.contains(group.folder()) && settings.group(&group).is_some() {
                self.scanner(&group).look(Wanted { make: true, ..Wanted::folder() });
            }
        }
    }

    fn find_groups(&mut self, names: Vec<String>) {
        for name in names {
            match Group::of_folder(&name) {
                Ok(group) => drop(self.scanner(&group)),
                Err(rule) => {
                    if self.ignored.insert(name.clone()) {
                        tracing::warn!(name, %rule, "ignored: not a group's name");
                    }
                }
            }
        }
    }

    /// What looks at the folder of that name.
    fn scanner(&self, folder: &Group) -> Arc<GroupScanner> {
        let new = || Arc::new(GroupScanner::new(self.shared.broker.group_of(folder), self.shared.clone()));
        Arc::clone(self.groups.lock().entry(folder.clone()).or_insert_with(new))
    }

    fn make_root(&mut self, error: &io::Error) {
        let folder = self.shared.folders.root();
        // Whatever is new there is still to be found.
        self.root = Glance::default();
        if error.kind() != io::ErrorKind::NotFound {
            let what = "cannot list the groups' folders; trying again every few seconds";
            if self.shared.warnings.is_first(None, what) {
                tracing::error!(folder = %folder.display(), %error, "{what}");
            }
            return;
        }
        tracing::error!(folder = %folder.display(), %error, "cannot list the groups' folders; creating the folder again");
        match std::fs::create_dir_all(folder) {
            Ok(()) => {
                self.watch_root();
                self.groups.lock().clear();
                self.prepare(&self.shared.broker.settings(), &[]);
            }
            Err(error) => {
                tracing::error!(folder = %folder.display(), %error, "cannot create it: check who owns its parent");
            }
        }
    }

    fn watch_root(&self) {
        let folders = vec![self.shared.folders.root().to_owned()];
        // A folder without a watch is looked at every few seconds anyway.
        let _full = self.shared.watching.watch(NewFolders { folders, scanner: None });
    }

    /// Logs once for each group that its folder hangs, and once that it answers again.
    fn say_hung(&mut self, hung: HashSet<Group>, now: Moment) {
        for group in hung.difference(&self.hung) {
            let problem = Problem {
                since: self.shared.ctx.clock().now(),
                why: "the group's folder does not answer".to_owned(),
                fix: format!(
                    "look at what is mounted there (mount | grep {}), or unmount it with umount -l",
                    group.folder()
                ),
            };
            self.shared.folders.note_hung(group, Some(problem));
            let folder = self.shared.folders.root().join(group.folder());
            tracing::error!(
                group = %group, folder = %folder.display(),
                "the group's folder does not answer: its requests wait, other groups go on. Look at what is mounted there \
                 (mount | grep {group}); if its server does not come back, unmount it with umount -l"
            );
        }
        for group in self.hung.difference(&hung) {
            self.shared.folders.note_hung(group, None);
            tracing::info!(group = %group, "the group's folder answers again");
        }
        self.shared.folders.note_look(now, hung.len());
        self.hung = hung;
    }
}
