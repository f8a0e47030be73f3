//! The groups and their scanners. Events name places to look at; a scanner that is told of one looks there by itself.

use super::group_scanner::GroupScanner;
use super::watch::Hint;
use crate::ipc::{TASKS, is_json_file};
use askd_core::Group;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
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

/// The scanners of all groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// In the order of names, so that a look goes the same way every time.
    scanners: Mutex<BTreeMap<Group, Arc<GroupScanner>>>,
    /// Look everywhere: events were lost, or a group may be new.
    pub(super) everywhere: Notify,
}

impl Groups {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Group, Arc<GroupScanner>>> {
        self.scanners.lock()
    }

    pub(super) fn all(&self) -> Vec<Arc<GroupScanner>> {
        self.lock().values().cloned().collect()
    }

    /// Has a scanner look at the place that an event names; names that cannot be requests say nothing.
    pub(super) fn take(&self, hint: Hint<'_>, root: &Path) {
        let Hint::At(path) = hint else { return self.everywhere.notify_one() };
        let Ok(inner) = path.strip_prefix(root) else { return };
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        let wanted = match parts.as_slice() {
            [] | [_] => return self.everywhere.notify_one(),
            // One of its folders is new.
            [_, _] => Wanted::folder(),
            [_, folder, name] if *folder == TASKS && is_json_file(name) => Wanted::name(name),
            _ => return,
        };
        let group = parts.first().and_then(|group| group.parse::<Group>().ok());
        let scanner = group.and_then(|group| self.lock().get(&group).cloned());
        if let Some(scanner) = scanner {
            scanner.look(wanted);
        }
    }
}
