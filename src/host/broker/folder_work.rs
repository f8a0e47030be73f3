//! Work in the folders of groups, which may hang. A few things are done at a time where the folders are on the disk of the
//! root. A folder that is mounted may hang by itself, so each such group has a line of its own: it takes a few threads at most,
//! and others do not wait for it.

use super::Broker;
use super::saves::{Gate, Promises, Work};
use crate::host::standing::{Problem, Standing};
use askd_core::{Ask, AskId, Group, RequestId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How much is done at a time on the disk of the root, and in a folder that is mounted.
const AT_A_TIME: usize = 4;
/// For how long it may be impossible to write a response before an operator is told.
const LATE: Duration = Duration::from_secs(10);

/// Who has a turn.
#[derive(Debug)]
pub(super) struct FolderWork {
    home: Arc<Gate>,
    mounted: Mutex<HashMap<Group, Arc<Gate>>>,
    promises: Arc<Promises>,
    /// The responses that could not be written when they were tried last.
    unwritten: Mutex<HashMap<(AskId, RequestId), (Group, Standing)>>,
}

impl FolderWork {
    pub(super) fn new(promises: &Arc<Promises>) -> Self {
        let home = Gate::new(AT_A_TIME, promises);
        Self { home, mounted: Mutex::default(), promises: Arc::clone(promises), unwritten: Mutex::default() }
    }

    fn of_mounted(&self, group: &Group) -> Arc<Gate> {
        let mut gates = self.mounted.lock();
        if gates.len() == gates.capacity() {
            // Whatever runs or waits holds its gate.
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        Arc::clone(gates.entry(group.clone()).or_insert_with(|| Gate::new(AT_A_TIME, &self.promises)))
    }
}

impl Broker {
    /// The line for this folder, and whether the folder is on the disk of the root.
    fn line_of(&self, group: &Group) -> (Arc<Gate>, bool) {
        let (is_home, lines) = (self.0.folders.is_home(group), &self.0.folder_work);
        (if is_home { Arc::clone(&lines.home) } else { lines.of_mounted(group) }, is_home)
    }

    /// Whether so many wait for their turn in this folder.
    pub(super) fn many_wait(&self, group: &Group, many: usize) -> bool {
        self.line_of(group).0.waiting() >= many
    }

    /// Takes in work in a group's folder. What it returns, if anything, has to be run: it is the turn of that work. Also whether
    /// the folder is on the disk of the root.
    pub(super) fn turn_in_folder(&self, group: &Group, work: impl FnOnce() + Send + 'static) -> Option<(Work, bool)> {
        let (line, is_home) = self.line_of(group);
        let turn = line.admit(Box::new(self.0.ctx.as_own(work)));
        turn.map(|work| (work, is_home))
    }

    /// Notes whether a response could be written.
    pub(super) fn note_written(&self, ask: &Ask, of: &RequestId, tried: &io::Result<()>) {
        let mut unwritten = self.0.folder_work.unwritten.lock();
        if tried.is_ok() && unwritten.is_empty() {
            return;
        }
        let key = (ask.id, of.clone());
        let Err(error) = tried else { return drop(unwritten.remove(&key)) };
        let folder = self.0.folders.root().join(ask.group.folder());
        let why = format!("a response cannot be written in {}: {error}", folder.display());
        let fix =
            "see who owns its folders, their modes and their disk (askd doctor); askd writes it as soon as it can";
        let (_, standing) = unwritten.entry(key).or_insert_with(|| (ask.group.clone(), Standing::default()));
        standing.fails(self.clock().now(), why, fix);
    }

    /// The groups that do not get their responses for a while now.
    pub fn unwritten(&self) -> BTreeMap<Group, Problem> {
        let (late, unwritten) = (self.clock().now() - LATE, self.0.folder_work.unwritten.lock());
        let problems = unwritten.values().filter_map(|(group, standing)| Some((group.clone(), standing.problem()?)));
        problems.filter(|(_, problem)| problem.since <= late).collect()
    }

    /// Does something in a group's folder, on another thread.
    pub(super) fn in_folder(&self, group: &Group, work: impl FnOnce() + Send + 'static) {
        if let Some((work, _)) = self.turn_in_folder(group, work) {
            self.0.ctx.finish_blocking(work);
        }
    }

    /// The same for work that its caller waits for.
    pub(super) async fn done_in_folder<T: Send + 'static>(
        &self,
        group: &Group,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (told, done) = oneshot::channel();
        // It is no error if the caller has gone.
        self.in_folder(group, move || drop(told.send(work())));
        done.await.unwrap_or_else(|_panicked| Err(io::Error::other("it panicked")))
    }
}
