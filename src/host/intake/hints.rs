//! Places to look at. Events, time and the scanners themselves only add places; the intake takes them. Every part has a
//! limit: beyond it, the hint becomes "look at the whole folder".

use crate::ipc::{TASKS, is_json_file};
use askd_core::Group;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio::sync::Notify;

/// How many files are named one by one; beyond that, the whole folder is looked at.
const MOST_NAMES: usize = 500;

/// What there is to look at in one group's folder.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// All of it, or as much as one look takes.
    pub(super) folder: bool,
    /// Make missing folders: the group is configured.
    pub(super) make: bool,
    /// These files.
    pub(super) names: BTreeSet<String>,
}

impl Wanted {
    pub(super) fn folder() -> Self {
        Self { folder: true, ..Self::default() }
    }

    pub(super) fn name(name: &str) -> Self {
        Self { names: BTreeSet::from([name.to_owned()]), ..Self::default() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.folder |= other.folder;
        self.make |= other.make;
        self.names.extend(other.names);
        if self.names.len() > MOST_NAMES {
            self.names.clear();
            self.folder = true;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.folder && !self.make && self.names.is_empty()
    }
}

/// Where to look.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) everywhere: bool,
    pub(super) groups: BTreeMap<Group, Wanted>,
}

/// Places to look at, gathered until the intake takes them.
#[derive(Debug, Default)]
pub(super) struct Hints {
    places: Mutex<Places>,
    pub(super) new: Notify,
}

impl Hints {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock()
    }

    pub(super) fn everywhere(&self) {
        self.lock().everywhere = true;
        self.new.notify_one();
    }

    pub(super) fn add(&self, group: Group, wanted: Wanted) {
        self.lock().groups.entry(group).or_default().add(wanted);
        self.new.notify_one();
    }

    pub(super) fn take(&self) -> Places {
        std::mem::take(&mut self.lock())
    }

    /// Turns a path into a place to look at; names that cannot be requests say nothing.
    pub(super) fn look_at(&self, root: &Path, path: &Path) {
        let Ok(inner) = path.strip_prefix(root) else { return };
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        let Some(Ok(group)) = parts.first().map(|group| group.parse::<Group>()) else { return self.everywhere() };
        match parts.as_slice() {
            [_] => self.everywhere(),
            // One of its folders is new.
            [_, _] => self.add(group, Wanted::folder()),
            [_, folder, name] if *folder == TASKS && is_json_file(name) => self.add(group, Wanted::name(name)),
            _ => {}
        }
    }
}
