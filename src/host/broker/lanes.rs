//! What happens to which ask: the jobs that are lined up for it, and what has to be done before them.

use super::lane::{Job, Unfinished};
use askd_core::AskId;
use std::collections::{HashMap, VecDeque};

/// Room for so many lanes is kept after a flood.
const KEPT: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Jobs of asks that something is happening to.
    lanes: HashMap<AskId, Lane>,
    /// Asks for which the last run left something undone, and whether a loss of power came in between.
    owing: HashMap<AskId, bool>,
    /// Failed saves, and whether a job to finish each of them is queued.
    unfinished: HashMap<AskId, (Unfinished, bool)>,
}

/// The jobs of an ask.
#[derive(Debug, Default)]
struct Lane {
    /// Boxed, because a queue makes room for four, and mostly has one.
    jobs: VecDeque<Box<Job>>,
    /// A thread runs them.
    runs: bool,
    /// A thread was called to run them, and whether it was called because of a promise.
    called: Option<bool>,
}

impl Lanes {
    /// Lines a job up. `true`: no thread runs the lane or is on its way to it that is called as urgently, so the caller has
    /// to call one.
    pub(super) fn join(&mut self, id: AskId, job: Job, urgent: bool) -> bool {
        let lane = self.lanes.entry(id).or_default();
        lane.jobs.push_back(Box::new(job));
        let calls = !lane.runs && lane.called.is_none_or(|before| urgent && !before);
        if calls {
            lane.called = Some(urgent);
        }
        calls
    }

    /// Takes a lane over, unless another thread runs it or there is nothing to do.
    pub(super) fn begin(&mut self, id: AskId) -> bool {
        self.lanes.get_mut(&id).is_some_and(|lane| !std::mem::replace(&mut lane.runs, true))
    }

    /// The next job of a lane; the lane ends with the last one.
    pub(super) fn next_job(&mut self, id: AskId) -> Option<Box<Job>> {
        let job = self.lanes.get_mut(&id).and_then(|lane| lane.jobs.pop_front());
        if job.is_none() {
            self.lanes.remove(&id);
            if self.lanes.is_empty() && self.lanes.capacity() > KEPT {
                self.lanes = HashMap::new();
            }
        }
        job
    }

    /// Takes the jobs out of a lane that are of this kind.
    pub(super) fn take_jobs(&mut self, id: AskId, is_of_it: impl Fn(&Job) -> bool) -> Vec<Job> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Vec::new() };
        let (taken, left): (VecDeque<_>, _) = lane.jobs.drain(..).partition(|job| is_of_it(job));
        lane.jobs = left;
        taken.into_iter().map(|job| *job).collect()
    }

    /// Notes that the last run left something undone for an ask.
    pub(super) fn owe(&mut self, id: AskId, after_loss: bool) {
        self.owing.insert(id, after_loss);
    }

    /// Whether something is undone that has to be done before anything else happens to an ask, and whether a loss of power
    /// came in between.
    pub(super) fn owes(&self, id: AskId) -> Option<bool> {
        self.owing.get(&id).copied()
    }

    /// Notes that it is done.
    pub(super) fn paid(&mut self, id: AskId) {
        self.owing.remove(&id);
        if self.owing.is_empty() {
            self.owing = HashMap::new();
        }
    }

    /// The asks for which something is undone.
    pub(super) fn owing(&self) -> Vec<AskId> {
        self.owing.keys().copied().collect()
    }

    /// Notes that a save failed.
    pub(super) fn unfinish(&mut self, id: AskId, what: Unfinished) {
        self.unfinished.insert(id, (what, false));
    }

    /// The failed save that has to be finished before anything else happens to an ask.
    pub(super) fn unfinished(&self, id: AskId) -> Option<Unfinished> {
        self.unfinished.get(&id).map(|(what, _)| what.clone())
    }

    /// Notes that it is finished.
    pub(super) fn finished(&mut self, id: AskId) {
        self.unfinished.remove(&id);
    }

    /// `true` if there is a save to finish and no job for it is queued yet: the caller has to queue one.
    pub(super) fn needs_finishing(&mut self, id: AskId) -> bool {
        self.unfinished.get_mut(&id).is_some_and(|(_, coming)| !std::mem::replace(coming, true))
    }

    /// The asks that something is happening to, or of which a save has failed.
    pub(super) fn busy(&self) -> Vec<AskId> {
        self.lanes.keys().chain(self.unfinished.keys()).copied().collect()
    }

    /// Notes that an ask is gone, and with it what had to be done for it.
    pub(super) fn forget(&mut self, id: AskId) {
        self.owing.remove(&id);
        self.unfinished.remove(&id);
    }
}
