//! The groups' folders: finding them, making them, and saying what is wrong with them.
//!
//! A group is the folder it comes from. Folders are opened below the root and never through links. Those used last are
//! held open; a stat before each use notices one that was replaced. A folder that is mounted is not held, because that
//! would keep it from being unmounted. While it is unmounted, askd does not use what lies under its mount point: files that
//! are missing there were taken by nobody. Reads no requests, writes no responses.

mod faults;

pub use faults::FolderTrouble;

use super::standing::Problem;
use crate::clock::{Clock, Moment, Reading, STEP};
use crate::ipc::files::{Access, Dir, Stamp};
use crate::ipc::{BRIEFINGS, RESPONSES, TASKS};
use crate::random;
use askd_core::{Group, Time};
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Gid, MemfdFlags, fchown, memfd_create};
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Folders that are held open, each with its stamp, by their paths.
type Held = LruCache<PathBuf, (Stamp, Arc<Dir>)>;

/// Of how many groups the folders are held open at most.
const MOST_HELD: u64 = 1024;
/// How many folders of a group are in use: requests, signs of what becomes of them, and responses.
const OF_A_GROUP: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2);
/// How many open files are left to connections (4,096 of agents, 512 each of the inbox and of webhooks), to calls of askd's own, and to
/// what is being written.
const FOR_CONNECTIONS: u64 = 5_632;
/// How the name of a file begins while it is being written.
const TEMPORARY: &str = ".tmp-";
/// How many entries of a folder are looked at for what a crash has left: a container could make a listing endless.
const FEW: usize = 10_000;

/// The folders that are being made, and what tells of one less.
type Making = (Mutex<HashSet<PathBuf>>, Condvar);

/// One thread alone makes this folder until it is dropped.
struct MakesAlone<'a>(&'a Making, PathBuf);

impl Drop for MakesAlone<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
        self.0.1.notify_all();
    }
}

/// The folders below `ipc/`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Folders {
    root: PathBuf,
    access: Access,
    /// What the names of all that this run is writing have in common.
    run: Arc<str>,
    held: Arc<Mutex<Held>>,
    clock: Clock,
    /// When folders of groups were made, or found in the place of others, in this run.
    renewed: Arc<Mutex<HashMap<PathBuf, Reading>>>,
    /// The folders that are being made.
    making: Arc<Making>,
    /// The groups whose folders are on the disk of the root.
    home: Arc<Mutex<HashSet<Group>>>,
    /// Folders on which another file system was seen in this run.
    mounted: Arc<Mutex<HashMap<Group, BTreeSet<String>>>>,
    /// What keeps groups' folders from working now.
    problems: Arc<Mutex<Problems>>,
    /// When all of them were looked at last, and how many did not answer.
    looked: Arc<Mutex<(Moment, usize)>>,
}

impl Folders {
    /// Makes the root if need be.
    pub fn open(root: PathBuf, access: Access, clock: Clock) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let (run, held) =
            (random::unique().into(), Arc::new(Mutex::new(LruCache::new(most_held().saturating_mul(OF_A_GROUP)))));
        let (renewed, making, home, mounted, problems, looked) = Default::default();
        Ok(Self { root, access, run, held, clock, renewed, making, home, mounted, problems, looked })
    }

    /// Notes that all of them were looked at, and how many did not answer.
    pub fn note_look(&self, at: Moment, hung: usize) {
        *self.looked.lock() = (at, hung);
    }

    /// When all of them were looked at last, and how many did not answer.
    pub fn last_look(&self) -> (Moment, usize) {
        *self.looked.lock()
    }

    /// Notes what keeps a group's folders from working, or that nothing does.
    pub fn note_problem(&self, group: &Group, problem: Option<Problem>) {
        note(&mut self.problems.lock().found, group, problem);
    }

    /// Notes that a group's folder does not answer, or that it does. What was found in it before stays known meanwhile.
    pub fn note_hung(&self, group: &Group, problem: Option<Problem>) {
        note(&mut self.problems.lock().hung, group, problem);
    }

    /// Notes that nothing is known of that any more.
    pub fn forget_problems(&self) {
        *self.problems.lock() = Problems::default();
    }

    /// What keeps groups' folders from working now.
    pub fn problems(&self) -> BTreeMap<Group, Problem> {
        let Problems { mut found, hung } = self.problems.lock().clone();
        found.extend(hung);
        found
    }

    /// Where they are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The mode and group of what is written into them.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Where a group's requests are put.
    pub fn tasks_path(&self, group: &Group) -> PathBuf {
        self.path_of(group, TASKS)
    }

    fn path_of(&self, group: &Group, name: &str) -> PathBuf {
        self.root.join(group.folder()).join(name)
    }

    /// The names below the root: groups, and what is none.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        Dir::open(&self.root)?.list()?.part(usize::MAX, |name| {
            names.push(name.to_owned());
            Ok(())
        })?;
        Ok(names)
    }

    /// The folder of the groups' folders, to look at what is below it, and how it was left. No watch reports that.
    pub fn look_from(&self) -> io::Result<(Dir, Stamp)> {
        let root = Dir::pinned(&self.root)?;
        let stamp = root.stamp()?;
        Ok((root, stamp))
    }

    /// Whether another file system is mounted at a group's folder. Does not look into it: it may hang.
    #[must_use]
    pub fn is_mounted(&self, group: &Group) -> bool {
        Dir::pinned(&self.root).is_ok_and(|root| root.leads_elsewhere(&format!("{}/{TASKS}", group.folder())))
    }

    /// Whether a group has a folder.
    pub fn exists(&self, group: &Group) -> bool {
        Dir::pinned(&self.root).and_then(|root| root.pin(group.folder())).is_ok()
    }

    /// Whether nothing is in the place of a group's folder, no link or file either.
    pub fn is_absent(&self, group: &Group) -> bool {
        let place = Stamp::of_place(&self.root.join(group.folder()));
        place.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// One of a group's folders, only to look at files in it by name: no watch reports that.
    pub fn pin(&self, group: &Group, name: &str) -> io::Result<Dir> {
        let root = Dir::pinned(&self.root)?;
        let dir = root.pin(&format!("{}/{name}", group.folder()))?;
        if self.was_mounted(group, name) && dir.stamp()?.device == root.stamp()?.device {
            return Err(unmounted());
        }
        Ok(dir)
    }

    /// One of a group's folders.
    pub fn get(&self, group: &Group, name: &str) -> io::Result<Arc<Dir>> {
        let path = self.path_of(group, name);
        let held = self.held.lock().get(&path).cloned();
        if let Some((stamp, dir)) = held
            && let Ok(now) = Stamp::of_place(&path)
        {
            if now.same_file(&stamp) {
                return Ok(dir);
            }
            // Another thread may have noted it, and put something there since.
            let mut all = self.held.lock();
            if all.peek(&path).is_some_and(|(known, _)| known.same_file(&stamp)) {
                all.pop(&path);
                self.renewed.lock().insert(path.clone(), self.clock.reading());
            }
        }
        let root = Dir::pinned(&self.root)?;
        let dir = match root.sub(&format!("{}/{name}", group.folder())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_unmounted(&root, group, name) => {
                return Err(unmounted());
            }
            found => Arc::new(found?),
        };
        let stamp = dir.stamp()?;
        let is_home = stamp.device == root.stamp()?.device;
        self.note_home(group, name, is_home);
        if is_home && self.was_mounted(group, name) {
            return Err(unmounted());
        }
        // Not if another one has taken its place meanwhile, which another thread may hold already.
        if is_home && Stamp::of_place(&path).is_ok_and(|now| now.same_file(&stamp)) {
            self.held.lock().put(path, (stamp, Arc::clone(&dir)));
        }
        Ok(dir)
    }

    /// Whether a group's folders are on the disk of the root, as far as this run has seen. Others may hang by themselves.
    pub fn is_home(&self, group: &Group) -> bool {
        self.home.lock().contains(group)
    }

    /// Notes whether one of a group's folders is, and says whether they are. None is that was mounted before.
    pub fn note_home(&self, group: &Group, name: &str, is_home: bool) -> bool {
        if !is_home {
            self.mounted.lock().entry(group.clone()).or_default().insert(name.to_owned());
            self.home.lock().remove(group);
            return false;
        }
        if self.is_home(group) {
            return true;
        }
        let was_mounted = self.mounted.lock().contains_key(group);
        if !was_mounted {
            self.home.lock().insert(group.clone());
        }
        !was_mounted
    }

    fn was_mounted(&self, group: &Group, name: &str) -> bool {
        self.mounted.lock().get(group).is_some_and(|names| names.contains(name))
    }

    /// Whether a folder that is missing would lie on a file system that is not mounted now.
    fn is_unmounted(&self, root: &Dir, group: &Group, name: &str) -> bool {
        self.was_mounted(group, name) && !root.leads_elsewhere(group.folder())
    }

    /// One of a group's folders, made if need be.
    pub fn ensure(&self, group: &Group, name: &str) -> io::Result<Arc<Dir>> {
        match self.get(group, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = self.path_of(group, name);
                let _alone = self.make_alone(path.clone());
                match self.get(group, name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    found => return found,
                }
                let of_group = Dir::open(&self.root)?.ensure(group.folder(), self.access)?;
                // Before it is there: whoever finds it has to know that it is another one.
                let before = self.renewed.lock().insert(path.clone(), self.clock.reading());
                if let Err(error) = of_group.ensure(name, self.access) {
                    let mut renewed = self.renewed.lock();
                    match before {
                        Some(before) => renewed.insert(path, before),
                        None => renewed.remove(&path),
                    };
                    return Err(error);
                }
                self.get(group, name)
            }
            found => found,
        }
    }

    /// Waits while another thread makes that folder.
    fn make_alone(&self, path: PathBuf) -> MakesAlone<'_> {
        let (paths, fewer) = &*self.making;
        let mut making = paths.lock();
        while !making.insert(path.clone()) {
            fewer.wait(&mut making);
        }
        drop(making);
        MakesAlone(&self.making, path)
    }

    /// Whether what was put into one of a group's folders at `since` went with the folder: another one is in its place. Whoever put
    /// it there is this run, by the same clock, or an earlier one.
    pub fn has_lost(&self, group: &Group, name: &str, since: Time) -> bool {
        let renewed = self.renewed.lock().get(&self.path_of(group, name)).copied();
        let Reading { now, set_by } = self.clock.reading();
        // A clock that was set meanwhile has moved `since` along. What is ahead of now is of an earlier run.
        renewed.is_some_and(|at| since > now + STEP || since < at.now.moved(set_by - at.set_by))
    }

    /// Makes all of a group's folders.
    pub fn prepare(&self, group: &Group) -> io::Result<()> {
        [TASKS, RESPONSES, BRIEFINGS].iter().try_for_each(|name| self.ensure(group, name).map(drop))
    }

    /// A name for a file in a group's folder as long as it is being written.
    pub fn temporary(&self) -> String {
        format!("{TEMPORARY}{}-{}", self.run, random::unique())
    }

    /// Removes what earlier runs were writing into a group's folders when they were killed. Nobody else writes there.
    pub fn tidy(&self, group: &Group) -> io::Result<()> {
        let own = format!("{TEMPORARY}{}", self.run);
        for folder in [RESPONSES, BRIEFINGS] {
            let folder = match self.get(group, folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            let mut left = Vec::new();
            folder.list()?.part(FEW, |name| {
                left.extend((name.starts_with(TEMPORARY) && !name.starts_with(&own)).then(|| name.to_owned()));
                Ok(())
            })?;
            left.iter().try_for_each(|name| folder.remove(name).map(drop))?;
        }
        Ok(())
    }
}

/// Of how many groups to hold the folders open: those of requests, and one each of open questions and of outcomes.
pub fn most_held() -> NonZeroUsize {
    static FITS: LazyLock<NonZeroUsize> =
        LazyLock::new(|| held_of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)));
    *FITS
}

/// The same if so many files may be open. Connections come first; where even they do not all fit, folders get a third.
fn held_of(files: u64) -> NonZeroUsize {
    let folders = files.saturating_sub(FOR_CONNECTIONS) / (OF_A_GROUP.get() as u64 + 2);
    let held = folders.max(files / 16).min(MOST_HELD);
    usize::try_from(held).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
}

/// Whether this process may give files to a group, found out with one that nobody else sees.
fn may_give_to(gid: u32) -> bool {
    let file = memfd_create("askd", MemfdFlags::CLOEXEC);
    // Without such a file nobody can tell.
    !file.is_ok_and(|file| fchown(file, None, Some(Gid::from_raw(gid))).is_err())
}

fn unmounted() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "a file system was mounted here, and is not any more")
}

/// What keeps groups from asking: what was found in their folders, and which of those do not answer.
#[derive(Debug, Default, Clone)]
struct Problems {
    found: BTreeMap<Group, Problem>,
    hung: BTreeMap<Group, Problem>,
}

fn note(problems: &mut BTreeMap<Group, Problem>, group: &Group, problem: Option<Problem>) {
    match problem {
        Some(problem) => drop(problems.insert(group.clone(), problem)),
        None => drop(problems.remove(group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::http::{MAX_AGENTS, MAX_CONNECTIONS};
    use std::time::Duration;

    /// The folders that are held, and all connections.
    #[test]
    fn what_may_be_open_at_once_fits() {
        let folders = |files| (OF_A_GROUP.get() as u64 + 2) * held_of(files).get() as u64;
        assert_eq!(held_of(12_288).get() as u64, MOST_HELD, "those of 1,024 groups fit");
        for files in [8_192, 12_288, 20_000] {
            assert!(folders(files) + FOR_CONNECTIONS <= files, "{files}");
        }
        assert!((MAX_AGENTS + 2 * MAX_CONNECTIONS) as u64 <= FOR_CONNECTIONS);
        // The usual limit, without agents over HTTP.
        assert!(folders(1_024) + (MAX_CONNECTIONS as u64) < 1_024);
    }

    #[test]
    fn whoever_finds_a_new_folder_knows_that_it_is_new_and_what_is_put_there_is_not_lost() {
        let (root, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let folders = Folders::open(root.path().join("ipc"), Access::PRIVATE, clock.clone()).unwrap();
        for number in 0..200 {
            let group: Group = format!("g{number}").parse().unwrap();
            let before = clock.now() - Duration::from_secs(1);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        folders.ensure(&group, RESPONSES).unwrap();
                        let put = clock.now();
                        std::thread::yield_now();
                        assert!(!folders.has_lost(&group, RESPONSES, put), "{number}");
                    });
                }
                let begun = clock.monotonic();
                while folders.get(&group, RESPONSES).is_err() {
                    assert!(clock.monotonic().since(begun) < Duration::from_secs(10), "it is not made");
                }
                assert!(folders.has_lost(&group, RESPONSES, before), "{number}");
            });
        }
    }

    #[test]
    fn a_folder_that_answers_again_has_the_fault_that_it_had_before() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path().join("ipc"), Access::PRIVATE, Clock::of_tokio()).unwrap();
        let group: Group = "g".parse().unwrap();
        let problem =
            |why: &str| Some(Problem { since: Time::from_millis(1), why: why.to_owned(), fix: String::new() });
        let why = || folders.problems().get(&group).map(|problem| problem.why.clone());
        folders.note_problem(&group, problem("no right to read it"));
        folders.note_hung(&group, problem("it does not answer"));
        assert_eq!(why().as_deref(), Some("it does not answer"));
        folders.note_hung(&group, None);
        assert_eq!(why().as_deref(), Some("no right to read it"));
        folders.note_problem(&group, None);
        assert_eq!(why(), None);
    }
}
