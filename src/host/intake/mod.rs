//! Finding requests: an event is a hint, the directory is the truth.
//!
//! Watch events, a lost event, a new folder and time (every [`LOOK_EVERY`]) all do the same thing: they
//! wake the one scanner, which lists folders. Each group has a desk of its own, so that a group
//! with a slow or flooded folder keeps nobody else waiting. What becomes of a request is the
//! broker's to say.

mod desk;

use crate::ask::Group;
use crate::host::broker::Broker;
use crate::host::ctx::Ctx;
use crate::host::folders::Folders;
use crate::host::settings::Settings;
use crate::ipc::files::Stamp;
use crate::ipc::watch::{Hint, Watch};
use crate::ipc::{HOST_GROUP, TASKS, is_json_file};
use crate::sabotage::on;
use desk::Desk;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often every folder is looked at, whatever the events say.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What there is to look at.
#[derive(Debug, Default)]
struct Hints {
    places: Mutex<Places>,
    new: Notify,
}

#[derive(Debug, Default)]
struct Places {
    everywhere: bool,
    groups: BTreeSet<Group>,
}

impl Hints {
    fn add(&self, change: impl FnOnce(&mut Places)) {
        change(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner));
        self.new.notify_one();
    }

    /// Says after a while that there is something to look at.
    fn add_soon(self: &Arc<Self>, ctx: &Ctx, group: Group, after: Duration) {
        let (hints, clock) = (Arc::clone(self), ctx.clock().clone());
        ctx.spawn(async move {
            clock.sleep(after).await;
            hints.add(|places| places.groups.extend(std::iter::once(group)));
        });
    }

    fn take(&self) -> Places {
        std::mem::take(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The one scanner.
#[derive(Debug)]
pub struct Intake {
    broker: Broker,
    folders: Folders,
    ctx: Ctx,
    hints: Arc<Hints>,
    watch: Watch,
    desks: HashMap<Group, Arc<Desk>>,
    /// The `tasks` folders that are watched: a folder that was replaced needs a new watch.
    watched: HashMap<Group, Stamp>,
    /// What is wrong with a group's folders, as last said: said again when it changes.
    troubles: HashMap<Group, String>,
    ignored: HashSet<String>,
}

impl Intake {
    /// Starts watching; looking begins with [`Self::run`].
    #[must_use]
    pub fn new(broker: Broker, folders: Folders, ctx: Ctx) -> Self {
        let hints = Arc::new(Hints::default());
        let (root, told) = (folders.root().to_owned(), Arc::clone(&hints));
        let mut watch = Watch::new(move |hint| match hint {
            Hint::Everywhere => told.add(|places| places.everywhere = true),
            Hint::At(path) => told.look_at(&root, path),
        });
        watch.add(folders.root());
        Self {
            broker,
            folders,
            ctx,
            hints,
            watch,
            desks: HashMap::new(),
            watched: HashMap::new(),
            troubles: HashMap::new(),
            ignored: HashSet::new(),
        }
    }

    /// Looks until the daemon stops. What a look has claimed by then is finished, or found by the next start.
    pub async fn run(mut self) {
        let mut prepared = None;
        let clock = self.ctx.clock().clone();
        let mut next_look = clock.monotonic();
        loop {
            let settings = self.broker.settings();
            if !prepared.as_ref().is_some_and(|known| Arc::ptr_eq(known, &settings)) {
                self.prepare(&settings);
                prepared = Some(settings);
            }
            let places = self.hints.take();
            let mut groups = places.groups;
            // The sabotage trusts events alone, once the groups of the start are found.
            let trusting = on("noscan") && !self.desks.is_empty();
            if places.everywhere || (clock.monotonic() >= next_look && !trusting) {
                self.find_groups();
                groups.extend(self.desks.keys().cloned());
                next_look = clock.monotonic() + LOOK_EVERY;
                self.broker.nudge();
                self.broker.look_after();
            }
            for group in groups {
                if let Some(desk) = self.desks.get(&group) {
                    if on("onedesk") {
                        Arc::clone(desk).look().await;
                    } else {
                        self.ctx.finish(Arc::clone(desk).look());
                    }
                }
            }
            tokio::select! {
                () = self.hints.new.notified() => {}
                () = clock.sleep_to(next_look) => {}
                () = self.ctx.stopping() => return,
            }
        }
    }

    /// Makes the folders of configured groups, and the host's own.
    fn prepare(&self, settings: &Settings) {
        let host = HOST_GROUP.parse::<Group>().ok();
        for group in settings.configured().chain(host) {
            if settings.group(&group).is_some()
                && let Err(error) = self.folders.prepare(&group)
            {
                tracing::error!(group = %group, %error, folder = %self.folders.root().display(), "cannot make a group's folders");
            }
        }
    }

    fn find_groups(&mut self) {
        let names = match self.folders.names() {
            Ok(names) => names,
            Err(error) => {
                let folder = self.folders.root();
                tracing::error!(folder = %folder.display(), %error, "the groups' folders cannot be listed; making the folder anew");
                match std::fs::create_dir_all(folder) {
                    Ok(()) => {
                        self.watch.add(folder);
                        self.watched.clear();
                        self.prepare(&self.broker.settings());
                    }
                    Err(error) => {
                        tracing::error!(folder = %folder.display(), %error, "it cannot be made: check who owns its parent");
                    }
                }
                return;
            }
        };
        for name in names {
            match name.parse::<Group>() {
                Ok(group) => self.take_up(group),
                Err(rule) => {
                    if self.ignored.insert(name.clone()) {
                        tracing::warn!(name, %rule, "ignored: not a group's name");
                    }
                }
            }
        }
    }

    /// Watches a group's folder, if that is new, and says what is wrong with it.
    fn take_up(&mut self, group: Group) {
        let stamp = self.folders.get(&group, TASKS).and_then(|tasks| tasks.stamp()).ok();
        let known = self.watched.get(&group).zip(stamp).is_some_and(|(old, new)| old.same_file(&new));
        if known && self.desks.contains_key(&group) && !self.troubles.contains_key(&group) {
            return;
        }
        let served = self.broker.settings().group(&group).is_some();
        if served {
            let prepared = self.folders.prepare(&group).map_err(|error| error.to_string());
            // The check says more than the error of making them.
            let trouble = self.folders.check(&group).map_err(|trouble| trouble.to_string()).and(prepared).err();
            self.say(&group, trouble);
        } else if !self.desks.contains_key(&group) {
            tracing::warn!(group = %group, "not served: its requests are rejected (add [groups.{group}], or [defaults] with routes)");
        }
        if let Ok(stamp) = self.folders.get(&group, TASKS).and_then(|tasks| tasks.stamp())
            && !self.watched.get(&group).is_some_and(|old| old.same_file(&stamp))
        {
            let tasks = self.folders.tasks_path(&group);
            if self.watched.insert(group.clone(), stamp).is_some() {
                self.watch.remove(&tasks);
            } else {
                self.watch.add(&self.folders.root().join(group.as_str()));
            }
            self.watch.add(&tasks);
            tracing::info!(group = %group, tasks = %tasks.display(), "Group found");
        }
        if !self.desks.contains_key(&group) {
            let (broker, folders, ctx) = (self.broker.clone(), self.folders.clone(), self.ctx.clone());
            let desk = Desk::new(group.clone(), broker, folders, ctx, Arc::clone(&self.hints));
            self.desks.insert(group, Arc::new(desk));
        }
    }

    fn say(&mut self, group: &Group, trouble: Option<String>) {
        match trouble {
            Some(trouble) if self.troubles.get(group) != Some(&trouble) => {
                tracing::error!(group = %group, "{trouble}");
                self.troubles.insert(group.clone(), trouble);
            }
            Some(_) => {}
            None => {
                if self.troubles.remove(group).is_some() {
                    tracing::info!(group = %group, "its folders are in order again");
                }
            }
        }
    }
}

impl Hints {
    /// Turns a path into a place to look at; names that cannot be requests say nothing.
    fn look_at(&self, root: &Path, path: &Path) {
        let Ok(inner) = path.strip_prefix(root) else { return };
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        match parts.as_slice() {
            [group, folder, name] if *folder == TASKS && is_json_file(name) => {
                if let Ok(group) = group.parse() {
                    self.add(|places| places.groups.extend(std::iter::once(group)));
                }
            }
            // A group, or one of its folders.
            [_] | [_, _] => self.add(|places| places.everywhere = true),
            _ => {}
        }
    }
}
