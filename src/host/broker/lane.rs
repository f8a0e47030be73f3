//! The lane of an ask: its events, handled one after the other. For each event the lane loads the record, steps the
//! core, saves, and only then answers the caller and acts.
//!
//! A failed save is never forgotten. If the new record may be on the disk, the lane writes it again until it is
//! certainly there, and only then acts on it. If the new record is certainly not there, the lane writes the old record
//! again. Until then nothing else happens to the ask, and callers are told that their event was not stored.
//!
//! A panic is a mistake in askd, and writing again does not help: the lane sets the ask aside, and other asks go on.

use super::{Broker, Failure, RETRY, promise};
use crate::clock::Reading;
use crate::host::store::{Save, StoreError};
use crate::sabotage::{crash_point, on, panic_point};
use askd_core::{Ask, AskId, DeliveryEffect, Effect, Event, Refusal, Step, Taker, Time};
use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Tells a caller what came of its job.
type Done = oneshot::Sender<Result<Box<Ask>, Failure>>;

/// Work that waits for its turn in an ask's lane.
#[derive(Debug)]
pub(super) struct Job {
    work: Work,
    /// Without a caller the work is our own, and the lane repeats it until it is stored.
    done: Option<Done>,
    /// How long to wait before it is tried again.
    pause: Duration,
}

/// What a job has to do.
#[derive(Debug, Clone)]
enum Work {
    /// Store a new ask for the first time.
    Accept(Box<Step>),
    Event(Event),
    /// Keep only the outcome of a finished ask; an earlier try failed.
    Retire,
    /// Finish a save that failed.
    Finish,
}

impl Work {
    /// Whether a person or an agent may wait for it.
    fn promises(&self) -> bool {
        match self {
            Self::Accept(_) | Self::Finish => true,
            Self::Event(event) => promise::is_made_by(event),
            Self::Retire => false,
        }
    }
}

/// A failed save. The lane repeats the whole of it and then acts on it.
#[derive(Debug, Clone)]
pub(super) struct Unfinished {
    step: Arc<Step>,
    at: Time,
    /// How far the clock was set, if this step makes the ask follow it.
    followed: Option<i64>,
}

/// What came of a job.
enum Applied {
    Stepped(Box<Step>),
    /// A step had to come first: it makes the ask follow a clock that was set.
    Followed(Box<Step>),
    Same(Box<Ask>),
    Refused(Box<Refusal>, Box<Ask>),
    Unknown,
    /// Our own work is done.
    Finished,
    /// Nothing was changed.
    NotStored(String),
    /// It may have been stored.
    InDoubt(String),
    /// The core panicked.
    Broken,
}

impl Broker {
    /// Lets an event happen and says what became of the ask.
    pub async fn apply(&self, id: AskId, event: Event) -> Result<Box<Ask>, Failure> {
        self.do_and_tell(id, Work::Event(event)).await
    }

    /// Stores a new ask, which the index knows already.
    pub(super) async fn accept(&self, step: Step) -> Result<Box<Ask>, Failure> {
        self.do_and_tell(step.ask.id, Work::Accept(Box::new(step))).await
    }

    async fn do_and_tell(&self, id: AskId, work: Work) -> Result<Box<Ask>, Failure> {
        let (done, told) = oneshot::channel();
        self.enqueue(id, Job { work, done: Some(done), pause: RETRY.0 });
        told.await.unwrap_or(Err(Failure::Broken))
    }

    /// Lets an event of our own happen; the lane repeats it until it is stored.
    pub(in crate::host) fn apply_later(&self, id: AskId, event: Event) {
        self.enqueue(id, Job { work: Work::Event(event), done: None, pause: RETRY.0 });
    }

    /// Keeps only the outcome of a finished ask; the lane repeats this until it is stored.
    pub(super) fn retire_later(&self, id: AskId) {
        self.enqueue(id, Job { work: Work::Retire, done: None, pause: RETRY.0 });
    }

    /// Whether a failed save of this ask is still unfinished.
    pub(super) fn is_unfinished(&self, id: AskId) -> bool {
        self.index().unfinished(id).is_some()
    }

    fn enqueue(&self, id: AskId, job: Job) {
        if self.index().join_lane(id, job) {
            let broker = self.clone();
            self.0.ctx.finish(async move { broker.run_lane(id).await });
        }
    }

    /// Queues the job again after a pause. The pause is outside the lane, so other callers hear at once that their
    /// event is not stored.
    fn enqueue_later(&self, id: AskId, work: Work, mut pause: Duration) {
        let broker = self.clone();
        self.0.ctx.finish(async move {
            if broker.pause(&mut pause).await {
                broker.enqueue(id, Job { work, done: None, pause });
            }
        });
    }

    async fn run_lane(&self, id: AskId) {
        loop {
            let Some(job) = self.index().next_job(id) else { return };
            // If a panic ended the lane here, every later caller would wait for ever.
            if AssertUnwindSafe(self.run(id, job)).catch_unwind().await.is_err() {
                tracing::error!(ask = %id, "acting on a stored event panicked; what is left of it is done at the next start");
            }
        }
    }

    async fn run(&self, id: AskId, Job { work, done, pause }: Job) {
        let applied = loop {
            let applied = match self.finish(id).await {
                Ok(()) => self.blocking(id, work.promises(), work.clone(), Self::run_work).await,
                Err(error) => Applied::NotStored(error),
            };
            match applied {
                Applied::Followed(step) => self.act(&Arc::new(step.ask), step.effects),
                applied => break applied,
            }
        };
        let told = match applied {
            Applied::Stepped(step) => {
                let Step { ask, effects } = *step;
                // The caller may have gone; the ask is decided all the same.
                let _gone = done.map(|done| done.send(Ok(Box::new(ask.clone()))));
                panic_point("act", ask.content.title.as_deref());
                return self.act(&Arc::new(ask), effects);
            }
            Applied::Same(ask) => {
                // A tick that came too early (the clock was set back) has to come again.
                self.index().update(&ask);
                Ok(ask)
            }
            Applied::Refused(refusal, ask) => Err(Failure::Refused(refusal, ask)),
            Applied::Unknown => Err(Failure::Unknown),
            Applied::Followed(_) | Applied::Finished => return,
            Applied::NotStored(error) if matches!(work, Work::Accept(_)) => {
                tracing::error!(ask = %id, error, "a new ask could not be stored; its request stays where it is");
                Err(Failure::NotStored)
            }
            Applied::NotStored(error) if done.is_some() => {
                tracing::error!(ask = %id, error, "an event could not be stored; its sender was told so");
                self.finish_later(id);
                Err(Failure::NotStored)
            }
            Applied::NotStored(error) => {
                tracing::error!(ask = %id, error, "an event could not be stored; trying again");
                return self.enqueue_later(id, work, pause);
            }
            Applied::InDoubt(error) => {
                tracing::error!(ask = %id, error, "askd does not know whether an ask is stored; storing it again until it is");
                self.finish_later(id);
                Err(Failure::InDoubt)
            }
            Applied::Broken => {
                self.set_aside(id).await;
                Err(Failure::Broken)
            }
        };
        let _gone = done.map(|done| done.send(told));
    }

    /// Runs work of a lane on a thread where it may block on the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        id: AskId,
        promises: bool,
        what: T,
        run: impl FnOnce(&Self, AskId, T) -> Applied + Send + 'static,
    ) -> Applied {
        let broker = self.clone();
        match self.0.saves.run(promises, move || run(&broker, id, what)).await {
            Ok(applied) => applied,
            Err(panic) if panic.is_panic() => Applied::Broken,
            Err(stopped) => Applied::NotStored(stopped.to_string()),
        }
    }

    /// Finishes a save that failed before, if there is one.
    async fn finish(&self, id: AskId) -> Result<(), String> {
        let Some(Unfinished { step, at, followed }) = self.index().unfinished(id) else { return Ok(()) };
        let again = Arc::clone(&step);
        let saved = self.blocking(id, true, again, move |broker, _, step| match broker.save(&step, at, Save::Now) {
            Ok(()) => Applied::Finished,
            Err(error) => Applied::NotStored(error.to_string()),
        });
        match saved.await {
            Applied::Finished => {
                self.index().finished(id);
                if let Some(set_by) = followed {
                    self.index().has_followed(id, set_by);
                }
                tracing::info!(ask = %id, "a save that failed before has succeeded");
                self.act(&Arc::new(step.ask.clone()), step.effects.clone());
                Ok(())
            }
            Applied::NotStored(error) => Err(error),
            _ => {
                self.set_aside(id).await;
                Ok(())
            }
        }
    }

    /// Queues a job that finishes the failed save later; one job, however many callers wait for it.
    fn finish_later(&self, id: AskId) {
        if self.index().needs_finishing(id) {
            self.enqueue_later(id, Work::Finish, RETRY.0);
        }
    }

    /// Load, step, save. Blocks on the disk.
    fn run_work(&self, id: AskId, work: Work) -> Applied {
        let event = match work {
            Work::Accept(step) => return self.store_first(*step),
            Work::Finish => return Applied::Finished,
            Work::Retire => return self.retire_again(id),
            Work::Event(event) => event,
        };
        let ask = match self.load(id) {
            Ok(Some(ask)) => ask,
            Ok(None) => return Applied::Unknown,
            Err(error) => return Applied::NotStored(error.to_string()),
        };
        panic_point("step", ask.content.title.as_deref());
        let Reading { now, set_by } = self.clock().reading();
        match self.follow_clock(&ask, set_by, now) {
            Ok(Some(followed)) => Applied::Followed(followed),
            Ok(None) => self.step(ask, event, now),
            Err(error) => Applied::NotStored(error.to_string()),
        }
    }

    /// Moves the ask's deadlines along with a clock that was set, before anything is judged by that clock.
    fn follow_clock(&self, ask: &Ask, set_by: i64, now: Time) -> Result<Option<Box<Step>>, StoreError> {
        let by = self.index().behind(ask.id, set_by);
        let step = if by == 0 { None } else { ask.clone().clock_set(by) };
        if let Some(step) = &step
            && let Err(error) = self.save(step, now, Save::Soon)
        {
            if matches!(error, StoreError::InDoubt { .. }) {
                self.unfinish(step.clone(), now, Some(set_by));
            }
            return Err(error);
        }
        self.index().has_followed(ask.id, set_by);
        Ok(step.map(Box::new))
    }

    fn step(&self, ask: Arc<Ask>, event: Event, now: Time) -> Applied {
        let (replying, promised) = (event.person().cloned(), promise::is_made_by(&event));
        match Ask::clone(&ask).step(event, now) {
            Ok(Some(step)) => match self.save(&step, now, promise::save(promised, &step)) {
                Ok(()) => Applied::Stepped(Box::new(step)),
                Err(error @ StoreError::InDoubt { .. }) => {
                    self.unfinish(step, now, None);
                    Applied::InDoubt(error.to_string())
                }
                Err(error) => {
                    self.unfinish(Step { ask: Arc::unwrap_or_clone(ask), effects: Vec::new() }, now, None);
                    Applied::NotStored(error.to_string())
                }
            },
            Ok(None) => Applied::Same(Box::new(Arc::unwrap_or_clone(ask))),
            Err(refusal) => {
                if let Some(person) = replying {
                    self.0.audit.refused(&ask, &person, &refusal, now);
                }
                Applied::Refused(Box::new(refusal), Box::new(Arc::unwrap_or_clone(ask)))
            }
        }
    }

    fn unfinish(&self, step: Step, at: Time, followed: Option<i64>) {
        if on("forgetsave") {
            return;
        }
        self.index().unfinish(step.ask.id, Unfinished { step: Arc::new(step), at, followed });
    }

    pub(super) fn load(&self, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        let Some(group) = self.index().group(id) else { return Ok(None) };
        self.0.store.load(&group, id)
    }

    fn store_first(&self, step: Step) -> Applied {
        let now = step.ask.created_at;
        match self.save(&step, now, Save::Now) {
            Ok(()) => {
                crash_point("accept.stored");
                Applied::Stepped(Box::new(step))
            }
            Err(error @ StoreError::InDoubt { .. }) => {
                self.unfinish(step, now, None);
                Applied::InDoubt(error.to_string())
            }
            Err(error) => {
                self.index().take_back(&step.ask);
                Applied::NotStored(error.to_string())
            }
        }
    }

    fn save(&self, step: &Step, now: Time, save: Save) -> Result<(), StoreError> {
        let ask = &step.ask;
        let allowed = self.0.allow(step, now)?;
        if step.effects.contains(&Effect::Forget) {
            self.0.store.forget(&ask.group, ask.id)?;
            self.0.tidy(ask, true);
            self.index().remove(ask);
            return Ok(());
        }
        if !(on("ackfirst") && ask.outcome().is_some()) {
            // Allow again is stored already, so something was changed, whatever becomes of the ask.
            self.0.store.save(ask, save).map_err(|error| if allowed { error.in_doubt() } else { error })?;
        }
        self.note(step, now);
        self.index().update(ask);
        self.0.moved.notify_one();
        self.0.saved.notify_one();
        crash_point(point(step));
        if step.effects.contains(&Effect::Retire) {
            self.retire(ask);
        }
        // It is no error if no page is listening.
        let _nobody = self.0.changes.send(ask.id);
        Ok(())
    }

    fn note(&self, step: &Step, now: Time) {
        for effect in &step.effects {
            if let Effect::Note(fact) = effect {
                self.0.audit.fact(&step.ask, fact, now);
            }
        }
    }

    fn retire(&self, ask: &Ask) {
        if let Err(error) = self.0.store.retire(&ask.group, ask.id) {
            tracing::error!(ask = %ask.id, %error, "a finished ask cannot be kept as an outcome only; trying again");
            self.enqueue_later(ask.id, Work::Retire, RETRY.0);
        }
        crash_point("close.retired");
    }

    fn retire_again(&self, id: AskId) -> Applied {
        match self.load(id) {
            // Another job may have taken it up again meanwhile.
            Ok(Some(ask)) if ask.resume().contains(&Effect::Retire) => match self.0.store.retire(&ask.group, id) {
                Ok(()) => Applied::Finished,
                Err(error) => Applied::NotStored(error.to_string()),
            },
            Ok(_) => Applied::Finished,
            Err(error) => Applied::NotStored(error.to_string()),
        }
    }
}

/// The crash point that follows the save of this step.
fn point(step: &Step) -> &'static str {
    let delivers = |wanted| {
        let delivers =
            |effect: &Effect| matches!(effect, Effect::Delivery { to: Taker::Waiter(_), effect } if *effect == wanted);
        step.effects.iter().any(delivers)
    };
    if delivers(DeliveryEffect::Write) {
        "settle.saved"
    } else if delivers(DeliveryEffect::Publish) {
        "deliver.ready"
    } else if step.effects.contains(&Effect::Retire) {
        "close.saved"
    } else {
        "saved"
    }
}
