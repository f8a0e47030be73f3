//! How far a start is with reading the stored asks. Work that needs some of them waits here until they are known.

use askd_core::Group;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// See the module.
#[derive(Debug, Default)]
pub struct Loading {
    done: AtomicUsize,
    of: AtomicUsize,
    groups: watch::Sender<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    /// How many folders of each group are not read to their end; `None` before they were listed.
    left: Option<HashMap<String, usize>>,
    /// The groups that work waits for: they are read first.
    wanted: HashSet<String>,
    /// Every ask is known.
    over: bool,
}

impl Groups {
    fn has(&self, group: &str) -> bool {
        self.over || self.left.as_ref().is_some_and(|left| !left.contains_key(group))
    }
}

impl Loading {
    /// How many files were read, and of how many; 0 of 0 before it begins.
    pub fn so_far(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }

    /// Whether every ask is known.
    pub fn is_over(&self) -> bool {
        self.groups.borrow().over
    }

    /// Whether every ask of this group is known.
    pub fn has(&self, group: &Group) -> bool {
        self.groups.borrow().has(group.as_str())
    }

    /// Waits until every ask is known.
    pub async fn wait_for_all(&self) {
        // The sender lives as long as this does.
        let _known = self.groups.subscribe().wait_for(|groups| groups.over).await.is_ok();
    }

    /// Waits until every ask of this group is known, and has them read before those of other groups.
    pub async fn wait_for(&self, group: &Group) {
        self.groups.send_if_modified(|groups| {
            if !groups.has(group.as_str()) {
                groups.wanted.insert(group.to_string());
            }
            false
        });
        let _known = self.groups.subscribe().wait_for(|groups| groups.has(group.as_str())).await.is_ok();
    }

    /// There are this many files, in these folders of groups.
    pub(super) fn begin<'a>(&self, files: usize, folders: impl Iterator<Item = &'a str>) {
        self.of.store(files, Ordering::Relaxed);
        let mut left = HashMap::new();
        for group in folders {
            *left.entry(group.to_owned()).or_insert(0) += 1;
        }
        self.groups.send_modify(|groups| groups.left = Some(left));
    }

    /// One more file was read.
    pub(super) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// The groups that work waits for since the last call of this.
    pub(super) fn wanted(&self) -> HashSet<String> {
        let mut wanted = HashSet::new();
        self.groups.send_if_modified(|groups| {
            wanted = std::mem::take(&mut groups.wanted);
            false
        });
        wanted
    }

    /// A folder of this group was read to its end.
    pub(super) fn has_read(&self, group: &str) {
        self.groups.send_modify(|groups| {
            let Some(left) = &mut groups.left else { return };
            if let Some(folders) = left.get_mut(group) {
                *folders -= 1;
                if *folders == 0 {
                    left.remove(group);
                }
            }
        });
    }

    /// Every ask is known.
    pub fn end(&self) {
        self.groups.send_modify(|groups| *groups = Groups { over: true, ..Groups::default() });
    }
}
