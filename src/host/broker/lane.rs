//! The lane of an ask: its events, handled one after the other. For each event the lane loads the record, steps the
//! core, saves ([`super::step`]), and only then answers the caller and acts. One thread runs a lane, from its first job to
//! its last.
//!
//! A failed save is never forgotten. If the new record may be on the disk, the lane writes it again until it is
//! certainly there, and only then acts on it. If the new record is certainly not there, the lane writes the old record
//! again. Until then nothing else happens to the ask, and callers are told that their event was not stored.
//!
//! A panic is a mistake in askd, and writing again does not help: the lane sets the ask aside, and other asks go on.

use super::errands::Errand;
use super::saves::Rank;
use super::step::{Applied, Stepped};
use super::submit::Stale;
use super::{Broker, Failure, RETRY, promise};
use crate::host::store::{Basis, Save, StoreError};
use crate::sabotage::{on, panic_point};
use askd_core::{Ask, AskId, Event, Step, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How many times a step is begun anew because other daemons change the same ask.
const RIVALS: u32 = 50;

/// So many words of people are being stored at most. Only a disk that hangs lets it come to that: those who sent them have been told
/// to send them again by then.
const MOST_WORDS: usize = 2_048;

/// What a caller is told. Only a new ask has to be judged anew.
type Told = Result<Result<Arc<Ask>, Failure>, Stale>;

/// Work that waits for its turn in an ask's lane.
#[derive(Debug)]
pub(super) struct Job {
    work: Work,
    /// Without a caller the work is our own, and the lane repeats it until it is stored.
    done: Option<oneshot::Sender<Told>>,
    /// How long to wait before it is tried again.
    pause: Duration,
    /// Counts as a word of a person that is being stored.
    word: Option<Arc<()>>,
}

impl Job {
    fn own(work: Work) -> Self {
        Self { work, done: None, pause: RETRY.0, word: None }
    }

    fn told(work: Work) -> (Self, oneshot::Receiver<Told>) {
        let (done, told) = oneshot::channel();
        (Self { done: Some(done), ..Self::own(work) }, told)
    }
}

/// What a job has to do.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Store a new ask for the first time.
    Accept(Stepped),
    Event(Event),
    /// Keep only the outcome of a finished ask; an earlier try failed.
    Retire,
    /// Finish a save that failed.
    Finish,
}

/// A failed save. The lane repeats the whole of it and then acts on it.
#[derive(Debug, Clone)]
pub(super) struct Unfinished {
    pub(super) step: Stepped,
    pub(super) at: Time,
    /// How far the clock was set, if this step makes the ask follow it.
    pub(super) followed: Option<i64>,
    /// What happens to the ask instead if another daemon has changed it meanwhile: nobody else repeats it.
    pub(super) event: Option<Event>,
    /// The step takes up what was left undone, and whether a loss of power came in between.
    pub(super) owed: Option<bool>,
}

impl Unfinished {
    /// A step whose sender is told that it has to come again.
    pub(super) fn of(step: Stepped, at: Time) -> Self {
        Self { step, at, followed: None, event: None, owed: None }
    }
}

impl Broker {
    /// Lets an event happen and says what became of the ask.
    pub async fn apply(&self, id: AskId, event: Event) -> Result<Arc<Ask>, Failure> {
        let most = if on("oneword") { 1 } else { MOST_WORDS };
        let word = promise::is_a_persons_word(&event).then(|| Arc::clone(&self.0.words));
        if word.as_ref().is_some_and(|word| Arc::strong_count(word) > most + 1) {
            return Err(Failure::NotStored);
        }
        let (mut job, told) = Job::told(Work::Event(event));
        job.word = word;
        self.enqueue(id, job);
        told.await.unwrap_or(Ok(Err(Failure::Broken))).unwrap_or(Err(Failure::NotStored))
    }

    /// Stores a new ask, which the index knows already. `given`: how many its group had been given when it was judged.
    pub(super) async fn accept(&self, step: Step, given: i64) -> Told {
        let (id, (job, told)) = (step.ask.id, Job::told(Work::Accept(Stepped::new(step, Basis::New(given)))));
        self.enqueue(id, job);
        told.await.unwrap_or(Ok(Err(Failure::Broken)))
    }

    /// The same on this thread, which may block on the disk and on the folders of groups.
    pub(super) fn accept_here(&self, step: Step) -> Told {
        let (id, (job, mut told)) = (step.ask.id, Job::told(Work::Accept(Stepped::new(step, Basis::New(0)))));
        self.lanes().join(id, job, true);
        self.run_or_hand_over(self.run_lane(id));
        told.try_recv().unwrap_or(Ok(Err(Failure::Broken)))
    }

    /// Lets an event of our own happen; the lane repeats it until it is stored.
    pub(in crate::host) fn apply_later(&self, id: AskId, event: Event) {
        self.enqueue(id, Job::own(Work::Event(event)));
    }

    /// Keeps only the outcome of an ask, if it is still finished by then.
    pub(super) fn retire_later(&self, id: AskId) {
        self.enqueue(id, Job::own(Work::Retire));
    }

    /// The same on this thread, which may block on the disk, unless another one runs the lane. Returns what follows.
    pub(super) fn apply_here(&self, id: AskId, event: Event) -> Vec<Errand> {
        self.lanes().join(id, Job::own(Work::Event(event)), false);
        self.run_lane(id)
    }

    /// Whether a failed save of this ask is still unfinished.
    pub(in crate::host) fn is_unfinished(&self, id: AskId) -> bool {
        self.lanes().unfinished(id).is_some()
    }

    fn rank(&self, work: &Work) -> Rank {
        match work {
            Work::Accept(_) | Work::Finish => Rank::Promise,
            Work::Event(event) if promise::is_made_by(event) => Rank::Promise,
            // A database is told at once, and many saves share its transaction.
            Work::Event(event) if promise::save_of(event) == Save::Later && !self.is_shared() => Rank::Note,
            Work::Event(_) | Work::Retire => Rank::FollowUp,
        }
    }

    fn enqueue(&self, id: AskId, job: Job) {
        let rank = self.rank(&job.work);
        let promises = rank == Rank::Promise;
        let calls = self.lanes().join(id, job, promises);
        if calls {
            let (broker, promise) = (self.clone(), promises.then(|| self.0.saves.promises.begin()));
            self.0.saves.run(&self.0.ctx, rank, move || {
                let errands = broker.run_lane(id);
                drop(promise);
                match rank {
                    // The one thread for these must not become one for what waits in line for a folder.
                    Rank::Note => broker.hand_over(errands),
                    Rank::Promise | Rank::FollowUp => broker.run_or_hand_over(errands),
                }
            });
        }
    }

    /// Queues the job again after a pause. The pause is outside the lane, so other callers hear at once that their
    /// event is not stored.
    pub(super) fn enqueue_later(&self, id: AskId, work: Work, mut pause: Duration) {
        let broker = self.clone();
        self.0.ctx.finish(async move {
            if broker.pause(&mut pause).await {
                broker.enqueue(id, Job { pause, ..Job::own(work) });
            }
        });
    }

    /// Runs the lane on this thread, unless another one does. Returns what follows, for a thread that may hang with the
    /// group's folder.
    fn run_lane(&self, id: AskId) -> Vec<Errand> {
        let mut errands = Vec::new();
        if !self.lanes().begin(id) {
            return errands;
        }
        loop {
            let Some(job) = self.lanes().next_job(id) else { return errands };
            // If a panic ended the lane here, every later caller would wait for ever.
            if catch_unwind(AssertUnwindSafe(|| self.run(id, *job, &mut errands))).is_err() {
                tracing::error!(ask = %id, "acting on a stored event panicked; what is left of it is done at the next start");
            }
        }
    }

    /// What came of some work once what is owed before it is done, and as often as other daemons change the same ask.
    fn run_past_rivals(&self, id: AskId, work: &Work, errands: &mut Vec<Errand>) -> Applied {
        let (mut fresh, mut rivals) = (false, 0);
        loop {
            let applied = match self.finish(id, errands) {
                Ok(()) => catch_unwind(AssertUnwindSafe(|| self.run_work(id, work.clone(), fresh))),
                Err(error) => Ok(Applied::NotStored(error)),
            };
            match applied.unwrap_or(Applied::Broken) {
                Applied::First(step) => {
                    fresh = false;
                    self.act(step, errands);
                }
                Applied::Stale if rivals < RIVALS && !matches!(work, Work::Accept(_)) => match self.refresh(id) {
                    Ok(()) => (fresh, rivals) = (true, rivals + 1),
                    Err(error) => return Applied::NotStored(error.to_string()),
                },
                applied => return applied,
            }
        }
    }

    fn run(&self, id: AskId, Job { work, done, pause, word }: Job, errands: &mut Vec<Errand>) {
        let applied = self.run_past_rivals(id, &work, errands);
        drop(word);
        self.return_unused_slots(&work, &applied);
        let told = match applied {
            Applied::Stepped(step) => {
                let ask = Arc::clone(&step.ask);
                // The caller may have gone; the ask is decided all the same.
                let tell = |done: Option<oneshot::Sender<Told>>| done.map(|done| done.send(Ok(Ok(Arc::clone(&ask)))));
                // Whoever knows that an ask is stored may bring the next one, whose card must not overtake this one's.
                let is_new = matches!(work, Work::Accept(_));
                let (first, last) = if is_new { (None, done) } else { (done, None) };
                let _gone = tell(first);
                panic_point("act", ask.content.title.as_deref());
                self.act(step, errands);
                let _gone = tell(last);
                return;
            }
            Applied::Same(ask) => {
                // A tick that came too early (the clock was set back) has to come again.
                self.enter(|index| index.update(&ask));
                Ok(ask)
            }
            Applied::Refused(refusal, ask) => Err(Failure::Refused(refusal, ask)),
            Applied::Unknown => Err(Failure::Unknown),
            Applied::First(_) | Applied::Finished => return,
            Applied::Stale if matches!(work, Work::Accept(_)) => {
                let _gone = done.map(|done| done.send(Err(Stale)));
                return;
            }
            Applied::Stale if done.is_some() => Err(Failure::NotStored),
            Applied::Stale => return self.enqueue_later(id, work, pause),
            Applied::NotStored(error) if matches!(work, Work::Accept(_)) => {
                tracing::error!(ask = %id, error, "a new ask could not be stored; its request stays where it is");
                Err(Failure::NotStored)
            }
            Applied::NotStored(error) if done.is_some() => {
                tracing::error!(ask = %id, error, "an event could not be stored; its sender was told so");
                self.turn_away(id);
                self.finish_later(id);
                Err(Failure::NotStored)
            }
            Applied::NotStored(error) => {
                tracing::error!(ask = %id, error, "an event could not be stored; trying again");
                return self.enqueue_later(id, work, pause);
            }
            Applied::InDoubt(error) => {
                tracing::error!(ask = %id, error, "askd does not know whether an ask is stored; storing it again until it is");
                self.turn_away(id);
                self.finish_later(id);
                Err(Failure::InDoubt)
            }
            Applied::Broken => {
                if let (false, Work::Accept(step)) = (self.set_aside(id, errands), &work) {
                    self.forget_new(&step.ask);
                }
                Err(Failure::Broken)
            }
        };
        let _gone = done.map(|done| done.send(Ok(told)));
    }

    /// The database does not answer: whoever waits for it in this lane is told so now, not one after the other.
    fn turn_away(&self, id: AskId) {
        if !self.is_shared() || on("inturn") {
            return;
        }
        let waiting = self.lanes().take_jobs(id, |job| job.done.is_some() && matches!(job.work, Work::Event(_)));
        for Job { done, .. } in waiting {
            let _gone = done.map(|done| done.send(Ok(Err(Failure::NotStored))));
        }
    }

    /// Finishes a save that failed before, if there is one.
    fn finish(&self, id: AskId, errands: &mut Vec<Errand>) -> Result<(), String> {
        let Some(Unfinished { mut step, at, followed, event, owed }) = self.lanes().unfinished(id) else {
            return Ok(());
        };
        match catch_unwind(AssertUnwindSafe(|| self.save(&mut step, at, Save::Now))) {
            Ok(Err(StoreError::Stale)) => {
                // Another daemon has gone on without it.
                self.lanes().finished(id);
                if let Basis::New(_) = step.basis {
                    self.forget_new(&step.ask);
                    return Ok(());
                }
                if let Some(after_loss) = owed {
                    self.lanes().owe(id, after_loss);
                }
                if let Some(event) = event {
                    self.apply_later(id, event);
                }
                return self.refresh(id).map_err(|error| error.to_string());
            }
            Ok(saved) => saved.map_err(|error| error.to_string())?,
            Err(_reported) => {
                self.set_aside(id, errands);
                return if self.is_unfinished(id) { Err("askd panicked on it".to_owned()) } else { Ok(()) };
            }
        }
        self.lanes().finished(id);
        if let Some(set_by) = followed {
            self.index().has_followed(id, set_by);
        }
        tracing::info!(ask = %id, "a save that failed before has succeeded");
        self.act(step, errands);
        Ok(())
    }

    /// Queues a job that finishes the failed save later; one job, however many callers wait for it.
    fn finish_later(&self, id: AskId) {
        if self.lanes().needs_finishing(id) {
            self.enqueue_later(id, Work::Finish, RETRY.0);
        }
    }
}
