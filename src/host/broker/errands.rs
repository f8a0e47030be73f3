//! What follows a saved step and has its turn: responses, statuses and cards that are brought up to date. A few asks at a
//! time have theirs, so that a burst of clicks is not held up by what follows earlier ones. An errand that fails is tried
//! again until it is done, and comes back as an event.
//!
//! Errands use the folders of groups, which may hang, and line up for them: [`super::folder_work`]. None of the store's threads
//! runs errands where a folder is mounted. A thread that writes a response also saves that it did: nothing waits for another
//! thread in between.

use super::saves::Work;
use super::{Broker, RETRY};
use crate::host::folders::Folders;
use askd_core::{Ask, DeliveryEvent, RequestId};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub(super) type Task = fn(&Folders, &Ask, &RequestId) -> io::Result<()>;

/// One thing to do for an ask.
pub(super) struct Errand {
    pub(super) ask: Arc<Ask>,
    pub(super) what: What,
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
        let group = first.ask.group.clone();
        if !self.0.folders.is_home(&group) {
            // Cards do not wait for the folder.
            let cards = errands.extract_if(.., |errand| matches!(errand.what, What::Update { .. }));
            cards.for_each(|errand| drop(self.run_errand(errand)));
        }
        let broker = self.clone();
        self.turn_in_folder(&group, move || broker.run_errands(errands))
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
                let tried = catch_unwind(AssertUnwindSafe(|| task(&self.0.folders, &ask, &of)));
                let tried = tried.unwrap_or_else(|_reported| Err(io::Error::other("it panicked")));
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
}
