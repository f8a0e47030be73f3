//! What follows a saved step and has its turn: responses, statuses and cards that are brought up to date. A few asks at a
//! time have theirs, so that a burst of clicks is not held up by what follows earlier ones. An errand that fails is tried
//! again until it is done, and comes back as an event.
//!
//! Errands use the folders of groups, which may hang, and line up for them: [`super::folder_work`]. None of the store's threads
//! runs errands where a folder is mounted. A thread that writes a response also saves that it did: nothing waits for another
//! thread in between.
//!
//! Answers may come faster than what follows them can be done. With files, where many errands wait already, only the names of further
//! ones do: their asks are read again when they have their turn, and are newer then. So an answer that waits takes a few hundred bytes.

use super::saves::Work;
use super::{Broker, RETRY};
use crate::host::folders::Folders;
use askd_core::{Ask, AskId, DeliveryEvent, Group, RequestId};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Where so many wait in a line, only names of further errands do.
const MANY: usize = 1_000;

pub(super) type Task = fn(&Folders, &Ask, &RequestId) -> io::Result<()>;

/// One thing to do for an ask.
pub(super) struct Errand {
    pub(super) ask: Arc<Ask>,
    pub(super) what: What,
}

/// What is to be done for an ask, while its turn is far away.
struct Named {
    ask: AskId,
    what: Box<[What]>,
    /// How long to wait before the ask is read again, if it cannot be.
    pause: Duration,
}

pub(super) enum What {
    /// Done in the group's folder until it succeeds.
    Deliver { task: Task, of: RequestId, done: DeliveryEvent, pause: Duration },
    /// A hint for waiters, worth one try: without it they wait by their own reckoning.
    Status,
    /// Brings the card of this route up to date.
    Update { route: usize },
}

impl Errand {
    /// Something to be done for a waiter in the group's folder, and what is true then.
    pub(super) fn deliver(ask: &Arc<Ask>, of: RequestId, done: DeliveryEvent, task: Task) -> Self {
        Self { ask: Arc::clone(ask), what: What::Deliver { task, of, done, pause: RETRY.0 } }
    }
}

impl Broker {
    /// Has an ask's errands run, each in its turn.
    pub(super) fn hand_over(&self, errands: Vec<Errand>) {
        if let Some((work, _)) = self.turn_of(errands) {
            self.0.ctx.finish_blocking(work);
        }
    }

    /// The same on this thread, if it is their turn now and their folder is on the disk of the root.
    pub(super) fn run_or_hand_over(&self, errands: Vec<Errand>) {
        match self.turn_of(errands) {
            Some((work, true)) => work(),
            Some((work, false)) => self.0.ctx.finish_blocking(work),
            None => {}
        }
    }

    /// The errands as work that can be done now, unless they line up, and whether their folder is on the disk of the root.
    fn turn_of(&self, mut errands: Vec<Errand>) -> Option<(Work, bool)> {
        let first = errands.first()?;
        let (group, id) = (first.ask.group.clone(), first.ask.id);
        if !self.0.folders.is_home(&group) {
            // Cards do not wait for the folder.
            let cards = errands.extract_if(.., |errand| matches!(errand.what, What::Update { .. }));
            cards.for_each(|errand| drop(self.run_errand(errand)));
        }
        // With a database each ask that is read again is a call over the network; and one that was set aside is not there any more.
        if self.many_wait(&group, MANY) && !self.is_shared() && self.index().group(id).is_some() {
            let what = errands.into_iter().map(|errand| errand.what).collect();
            return self.turn_of_named(&group, Named { ask: id, what, pause: RETRY.0 });
        }
        let broker = self.clone();
        self.turn_in_folder(&group, move || broker.run_errands(errands))
    }

    fn turn_of_named(&self, group: &Group, named: Named) -> Option<(Work, bool)> {
        let broker = self.clone();
        self.turn_in_folder(group, move || broker.run_named(named))
    }

    /// Runs errands of an ask as it is by now.
    fn run_named(&self, Named { ask: id, what, mut pause }: Named) {
        let error = match self.load(id) {
            Ok(Some(ask)) => {
                let errands = what.into_iter().map(|what| Errand { ask: Arc::clone(&ask), what });
                return self.run_errands(errands.collect());
            }
            // Nothing is owed of an ask that is forgotten.
            Ok(None) => return,
            Err(error) => error,
        };
        tracing::error!(ask = %id, %error, "an ask cannot be read; what follows its answer is done later");
        let broker = self.clone();
        self.0.ctx.finish(async move {
            if !broker.pause(&mut pause).await {
                return;
            }
            let Some(group) = broker.index().group(id) else { return };
            if let Some((work, _)) = broker.turn_of_named(&group, Named { ask: id, what, pause }) {
                broker.0.ctx.finish_blocking(work);
            }
        });
    }

    /// Runs errands on this thread, and what they lead to.
    pub(super) fn run_errands(&self, errands: Vec<Errand>) {
        let mut left = errands;
        left.reverse();
        while let Some(errand) = left.pop() {
            // What it leads to goes first: a response is published before the card says that there is one.
            let mut next = self.run_errand(errand);
            next.reverse();
            left.append(&mut next);
        }
    }

    fn run_errand(&self, Errand { ask, what }: Errand) -> Vec<Errand> {
        match what {
            What::Status => self.write_status(&ask),
            What::Update { route } => self.update(&ask, route),
            What::Deliver { task, of, done, mut pause } => {
                let Some(alone) = self.0.moving.try_lock(ask.id) else {
                    self.after_moving(Errand { ask, what: What::Deliver { task, of, done, pause } });
                    return Vec::new();
                };
                let tried = catch_unwind(AssertUnwindSafe(|| task(&self.0.folders, &ask, &of)));
                let tried = tried.unwrap_or_else(|_reported| Err(io::Error::other("it panicked")));
                drop(alone);
                self.note_written(&ask, &of, &tried);
                let Err(error) = tried else {
                    return self.apply_here(ask.id, done.of(of));
                };
                tracing::error!(
                    ask = %ask.id, group = %ask.group, %error,
                    "a response could not be written; trying again until it can"
                );
                let broker = self.clone();
                self.0.ctx.finish(async move {
                    if broker.pause(&mut pause).await {
                        broker.hand_over(vec![Errand { ask, what: What::Deliver { task, of, done, pause } }]);
                    }
                });
            }
        }
        Vec::new()
    }

    /// Hands an errand over once what lies in its folder for the ask is not being moved any more: a response that was put in the place
    /// of one that is being taken back would be taken back instead.
    fn after_moving(&self, errand: Errand) {
        let broker = self.clone();
        self.0.ctx.finish(async move {
            if broker.0.ctx.unless_cut(broker.0.moving.lock(errand.ask.id)).await.is_some() {
                broker.hand_over(vec![errand]);
            }
        });
    }
}
