//! Load, step, save: what a lane does with one job, on a thread that may block on the disk.

use super::hosts::Shares;
use super::lane::{Unfinished, Work};
use super::owed::undone;
use super::{Broker, RETRY, promise};
use crate::clock::Reading;
use crate::host::settings::Means;
use crate::host::store::{Along, Basis, Save, StoreError};
use crate::sabotage::{crash_point, gate, on, panic_point};
use askd_core::{Ask, AskId, DeliveryEffect, Effect, Event, Group, Person, Refusal, Step, Taker, Time};
use std::sync::Arc;

/// The ask after a step, and what to do about it.
#[derive(Debug, Clone)]
pub(super) struct Stepped {
    pub(super) ask: Arc<Ask>,
    pub(super) effects: Vec<Effect>,
    /// What it was stepped from.
    pub(super) basis: Basis,
    /// Who does what of the effects, since it was saved; `None` where no other daemon shares the records.
    shares: Option<Shares>,
}

impl Stepped {
    pub(super) fn new(Step { ask, effects }: Step, basis: Basis) -> Self {
        Self { ask: Arc::new(ask), effects, basis, shares: None }
    }

    /// What of the effects this daemon does.
    fn own(&self) -> &[Effect] {
        self.shares.as_ref().map_or(&self.effects, |shares| &shares.own)
    }

    /// The same, and the ask.
    pub(super) fn into_own(self) -> (Arc<Ask>, Vec<Effect>) {
        (self.ask, self.shares.map_or(self.effects, |shares| shares.own))
    }

    fn from(step: Step, before: &Arc<Ask>) -> Self {
        Self::new(step, Basis::Ask(Arc::clone(before)))
    }

    /// The same with a loss of power after it.
    fn after_loss(Step { ask, mut effects }: Step, before: &Arc<Ask>, now: Time) -> Self {
        let lost = ask.clone().step(Event::PowerLost, now).ok().flatten();
        let ask = lost.map_or(ask, |lost| {
            effects.extend(lost.effects);
            lost.ask
        });
        Self::new(Step { ask, effects }, Basis::Lost(Arc::clone(before)))
    }
}

/// What came of a job.
pub(super) enum Applied {
    Stepped(Stepped),
    /// A step had to come first: to follow a clock that was set, take up what the last run left undone, or let the ask time out.
    First(Stepped),
    Same(Arc<Ask>),
    Refused(Box<Refusal>, Arc<Ask>),
    Unknown,
    /// Our own work is done.
    Finished,
    /// Another daemon may have changed the ask meanwhile. Nothing was changed.
    Stale,
    /// Nothing was changed.
    NotStored(String),
    /// It may have been stored.
    InDoubt(String),
    /// The core panicked.
    Broken,
}

impl Broker {
    /// Load, step, save. `fresh`: the ask was read anew just before.
    pub(super) fn run_work(&self, id: AskId, work: Work, fresh: bool) -> Applied {
        let event = match work {
            Work::Accept(step) => return self.store_first(step),
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
        if self.is_of_another_folder(&ask, &event) || self.is_of_another_holder(&ask, &event) {
            return Applied::Same(ask);
        }
        let Reading { now, set_by } = self.clock().reading();
        let first = match self.follow_clock(&ask, set_by, now) {
            Ok(None) => self.resume(&ask, now),
            followed => followed,
        };
        match first {
            Ok(Some(first)) => Applied::First(first),
            Ok(None) if ask.is_overdue(now) && !matches!(event, Event::Tick) => self.time_out(ask, now, fresh),
            Ok(None) => self.step(ask, event, now, fresh),
            Err(StoreError::Stale) => Applied::Stale,
            Err(error) => Applied::NotStored(error.to_string()),
        }
    }

    /// Moves the ask's deadlines along with a clock that was set, before anything is judged by that clock.
    fn follow_clock(&self, ask: &Arc<Ask>, set_by: i64, now: Time) -> Result<Option<Stepped>, StoreError> {
        let by = self.index().behind(ask.id, set_by);
        // The clock of the daemon that holds its group counts, and no other one's.
        if by == 0 || !self.holds(&ask.group) {
            return Ok(None);
        }
        let after_loss = self.lanes().owes(ask.id) == Some(true);
        let mut step = Ask::clone(ask).clock_set(by).map(|step| {
            // What may be lost comes with the first step.
            if after_loss { Stepped::after_loss(step, ask, now) } else { Stepped::from(step, ask) }
        });
        if let Some(step) = &mut step
            && let save = promise::save(Save::Soon, &step.effects)
            && let Err(error) = self.save(step, now, save)
        {
            if matches!(error, StoreError::InDoubt { .. }) {
                self.unfinish(Unfinished { followed: Some(set_by), ..Unfinished::of(step.clone(), now) });
            }
            return Err(error);
        }
        self.index().has_followed(ask.id, set_by);
        Ok(step)
    }

    /// Takes up what the last run left undone for this ask, before anything else happens to it.
    fn resume(&self, ask: &Arc<Ask>, now: Time) -> Result<Option<Stepped>, StoreError> {
        let Some(lost) = self.lanes().owes(ask.id) else { return Ok(None) };
        let interrupted = self.serves(ask) && ask.was_interrupted();
        let event = if lost { Some(Event::PowerLost) } else { interrupted.then_some(Event::Interrupted) };
        let step = event.and_then(|event| Ask::clone(ask).step(event, now).ok().flatten());
        // After a loss of power the step itself says what is owed, unless another daemon has taken it meanwhile. The audit log
        // was mended when the ask was read.
        let effects = if lost && step.is_some() { Vec::new() } else { undone(ask) };
        let (basis, shares) = (Basis::Ask(Arc::clone(ask)), self.shares(ask, &effects));
        let mut resumed = Stepped { ask: Arc::clone(ask), effects, basis, shares };
        if let Some(step) = step {
            let before = Arc::clone(ask);
            let mut step = Stepped::new(step, if lost { Basis::Lost(before) } else { Basis::Ask(before) });
            let save = promise::save(Save::Soon, &step.effects);
            let saved = self.save(&mut step, now, save);
            (resumed.ask, resumed.basis) = (step.ask, step.basis);
            resumed.effects.extend(step.effects);
            // What was undone before is nobody else's: whoever else has to do some of it finds that out from the ask.
            resumed.shares = resumed.shares.zip(step.shares).map(|(before, shares)| shares.after(before));
            if let Err(error) = saved {
                if matches!(error, StoreError::InDoubt { .. }) {
                    self.lanes().paid(ask.id);
                    let (event, owed) = (Some(Event::Tick), Some(lost));
                    self.unfinish(Unfinished { event, owed, ..Unfinished::of(resumed, now) });
                }
                return Err(error);
            }
        } else if resumed.own().contains(&Effect::Retire) {
            self.retire(ask, false);
        }
        self.has_resumed(ask.id, interrupted);
        Ok(Some(resumed))
    }

    /// Lets an ask whose deadline has come time out before anything else happens to it: what comes now is too late.
    fn time_out(&self, ask: Arc<Ask>, now: Time, fresh: bool) -> Applied {
        match self.step(ask, Event::Tick, now, fresh) {
            Applied::Stepped(timeout) => Applied::First(timeout),
            // The event that was to come next has not been tried.
            Applied::InDoubt(error) => Applied::NotStored(error),
            applied => applied,
        }
    }

    fn step(&self, ask: Arc<Ask>, event: Event, now: Time, fresh: bool) -> Applied {
        let (replying, save) = (event.person().cloned(), promise::save_of(&event));
        // What another daemon has changed meanwhile may make a difference to whoever is told.
        let has_a_sender = promise::has_a_sender(&event);
        let old = !fresh && has_a_sender && self.is_shared();
        let own = (!has_a_sender).then(|| event.clone());
        match Ask::clone(&ask).step(event, now) {
            Ok(Some(step)) => {
                let mut step = Stepped::from(step, &ask);
                let save = promise::save(save, &step.effects);
                match self.save(&mut step, now, save) {
                    Ok(()) => Applied::Stepped(step),
                    Err(StoreError::Stale) => Applied::Stale,
                    Err(error @ StoreError::InDoubt { .. }) => {
                        self.unfinish(Unfinished { event: own, ..Unfinished::of(step, now) });
                        Applied::InDoubt(error.to_string())
                    }
                    Err(error) => {
                        let basis = Basis::Ask(Arc::clone(&ask));
                        let nothing = Stepped { ask, effects: Vec::new(), basis, shares: None };
                        self.unfinish(Unfinished::of(nothing, now));
                        Applied::NotStored(error.to_string())
                    }
                }
            }
            // What is settled stays so.
            Ok(None) if old => Applied::Stale,
            Err(ref refusal) if old && !matches!(refusal, Refusal::Settled { .. }) => Applied::Stale,
            Ok(None) => Applied::Same(ask),
            Err(refusal) => {
                if let Some(person) = replying {
                    self.refused(Some(&ask), &person, &refusal, now);
                }
                Applied::Refused(Box::new(refusal), ask)
            }
        }
    }

    /// Notes a reply that was not taken, by a step or by its channel.
    pub fn refused(&self, ask: Option<&Ask>, person: &Person, refusal: &Refusal, now: Time) {
        if let Some(ask) = ask {
            self.0.audit.refused(ask, person, refusal, now);
        }
        self.0.metrics.refused(person, refusal);
    }

    fn unfinish(&self, what: Unfinished) {
        if !on("forgetsave") {
            self.lanes().unfinish(what.step.ask.id, what);
        }
    }

    pub(super) fn load(&self, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        let read = self.load_now(id);
        self.note_read(id, &read);
        read
    }

    fn load_now(&self, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        let all_known = self.0.loading.is_over();
        let group = self.index().group_of_read(id);
        match group {
            Some(group) => {
                if self.is_shared() && self.0.store.cached(id).is_none() {
                    // The index learns what comes to hand.
                    self.refresh(id)?;
                }
                self.0.store.load(&group, id)
            }
            None if all_known && !self.is_shared() => Ok(None),
            None => self.find(id),
        }
    }

    fn store_first(&self, mut step: Stepped) -> Applied {
        let now = step.ask.created_at;
        panic_point("store", step.ask.content.title.as_deref());
        match self.save(&mut step, now, Save::Now) {
            Ok(()) => {
                crash_point("accept.stored");
                Applied::Stepped(step)
            }
            Err(error @ StoreError::InDoubt { .. }) => {
                self.0.doubted.lock().insert(step.ask.id);
                self.unfinish(Unfinished::of(step, now));
                Applied::InDoubt(error.to_string())
            }
            Err(error) => {
                self.forget_new(&step.ask);
                if matches!(error, StoreError::Stale) { Applied::Stale } else { Applied::NotStored(error.to_string()) }
            }
        }
    }

    /// It was never asked.
    pub(super) fn forget_new(&self, ask: &Ask) {
        self.index().take_back(ask);
        self.lanes().forget(ask.id);
    }

    /// Stores a step, and notes in it who does what of its effects. If it is stored again, that stays so: an earlier try may count.
    pub(super) fn save(&self, step: &mut Stepped, now: Time, save: Save) -> Result<(), StoreError> {
        if step.shares.is_none() {
            step.shares = self.shares(&step.ask, &step.effects);
        }
        let (step, ask) = (&*step, &step.ask);
        let allowed = self.allow(ask, &step.effects, now)?;
        if step.effects.contains(&Effect::Forget) {
            self.0.store.forget(&ask.group, ask.id)?;
            self.tidy_all(ask);
            self.drop_ask(ask);
            self.0.saved.notify_one();
            return Ok(());
        }
        let retired = step.own().contains(&Effect::Retire);
        if !(on("ackfirst") && ask.outcome().is_some()) {
            // Allow again is stored already, so something was changed, whatever becomes of the ask.
            let saved = match self.0.store.shared() {
                None => self.0.store.save(ask, save),
                Some(shared) => {
                    let noted = self.0.audit.with_step(ask, &step.effects, now);
                    let (left, of_holder) = step.shares.as_ref().map(|shares| (&shares.left, shares.of_holder)).unzip();
                    let along = Along { left, noted: &noted, retired, of_holder: of_holder.unwrap_or_default() };
                    shared.save(ask, &step.basis, along, save)
                }
            };
            saved.map_err(|error| if allowed { error.in_doubt() } else { error })?;
        }
        self.note(step, now);
        gate("saved");
        // Another daemon may have stored something over it already, and this one may have learned that.
        let newest = if self.is_shared() { self.0.store.cached(ask.id) } else { None };
        self.enter(|index| {
            index.update(newest.as_ref().unwrap_or(ask));
            if let Basis::Ask(before) = &step.basis {
                index.unname(before, ask);
            }
        });
        self.0.saved.notify_one();
        crash_point(point(step));
        if retired {
            self.retire(ask, self.is_shared());
        }
        // It is no error if no page is listening.
        let _nobody = self.0.changes.send(ask.id);
        Ok(())
    }

    fn note(&self, step: &Stepped, now: Time) {
        for effect in &step.effects {
            if let Effect::Note(fact) = effect {
                self.0.audit.fact(&step.ask, fact, now);
                self.0.traces.fact(&step.ask, fact, now);
                self.0.metrics.fact(&step.ask, fact, self.kind_of_start(&step.ask.group), now);
            }
        }
    }

    fn kind_of_start(&self, group: &Group) -> &'static str {
        match self.settings().group(group).and_then(|group| group.session.start.as_ref()) {
            None => "none",
            Some(Means::Docker(_)) => "docker",
            Some(Means::Command(_)) => "command",
            Some(Means::Webhook(_)) => "webhook",
        }
    }

    /// `kept`: only its outcome is kept already.
    fn retire(&self, ask: &Ask, kept: bool) {
        if !kept && let Err(error) = self.keep_outcome(ask) {
            tracing::error!(ask = %ask.id, %error, "a finished ask cannot be kept as an outcome only; trying again");
            self.enqueue_later(ask.id, Work::Retire, RETRY.0);
        }
        crash_point("close.retired");
        self.make_room(&ask.group);
    }

    /// Forgets the oldest outcomes of a group that keeps too many, if this daemon holds it.
    pub(super) fn make_room(&self, group: &Group) {
        if self.holds(group) && self.0.loading.has(group) {
            let crowded = self.index().crowded(group);
            for id in crowded {
                self.apply_later(id, Event::Crowded);
            }
        }
    }

    /// The next flush moves its file.
    fn keep_outcome(&self, ask: &Ask) -> Result<(), StoreError> {
        self.0.store.retire(&ask.group, ask.id)?;
        self.0.saved.notify_one();
        Ok(())
    }

    fn retire_again(&self, id: AskId) -> Applied {
        match self.load(id) {
            // Another job may have taken it up again meanwhile.
            Ok(Some(ask)) if ask.resume().contains(&Effect::Retire) => match self.keep_outcome(&ask) {
                Ok(()) => Applied::Finished,
                Err(error) => Applied::NotStored(error.to_string()),
            },
            Ok(_) => Applied::Finished,
            Err(error) => Applied::NotStored(error.to_string()),
        }
    }
}

/// The crash point that follows the save of this step.
fn point(step: &Stepped) -> &'static str {
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
