//! The threads on which asks are loaded, stepped and saved. They are the store's alone, so that no hung folder of a group
//! takes them all. What promises something goes first: the rest waits behind a small gate.

use crate::host::ctx::Ctx;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Enough for a disk that syncs many files at a time.
const THREADS: usize = 32;
/// How many of them what promises nothing may use.
const BEHIND_THE_GATE: usize = 4;
/// How long a thread waits for more work before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Lets a few pieces of work run at a time. The others wait in line, and no thread waits with them.
#[derive(Debug)]
pub(super) struct Gate {
    most: usize,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    running: usize,
    waiting: VecDeque<Work>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} running, {} waiting", self.running, self.waiting.len())
    }
}

impl Gate {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, line: Mutex::default() })
    }

    /// Takes in a piece of work. What it returns, if anything, has to be run on some thread: the work, and then what has
    /// lined up meanwhile.
    #[must_use]
    pub(super) fn admit(self: &Arc<Self>, work: Work) -> Option<Work> {
        let mut line = self.line.lock();
        if line.running == self.most {
            line.waiting.push_back(work);
            return None;
        }
        line.running += 1;
        let gate = Arc::clone(self);
        Some(Box::new(move || {
            let mut next = Some(work);
            while let Some(work) = next {
                // A panic has been reported, and the place must not be lost.
                let _panicked = catch_unwind(AssertUnwindSafe(work));
                next = gate.next();
            }
        }))
    }

    fn next(&self) -> Option<Work> {
        let mut line = self.line.lock();
        let next = line.waiting.pop_front();
        if next.is_none() {
            line.running -= 1;
        }
        next
    }
}

/// The threads, and the gate.
#[derive(Debug)]
pub(super) struct Saves {
    /// Only its blocking threads are used.
    threads: Option<Runtime>,
    gate: Arc<Gate>,
}

impl Saves {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let builder = builder.max_blocking_threads(THREADS).thread_keep_alive(KEEP_ALIVE).thread_name("askd-save");
        Ok(Self { threads: Some(builder.build()?), gate: Gate::new(BEHIND_THE_GATE) })
    }

    /// Runs work that blocks on the disk.
    pub(super) fn run(&self, ctx: &Ctx, promises: bool, work: impl FnOnce() + Send + 'static) {
        let work: Work = Box::new(ctx.as_own(work));
        let work = if promises { Some(work) } else { self.gate.admit(work) };
        if let (Some(work), Some(threads)) = (work, &self.threads) {
            threads.spawn_blocking(work);
        }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_run_at_a_time_in_order_and_a_panic_keeps_no_place() {
        let (gate, order) = (Gate::new(1), Arc::new(Mutex::new(Vec::new())));
        let work = |number: u8| -> Work {
            let order = Arc::clone(&order);
            Box::new(move || {
                order.lock().push(number);
                assert_ne!(number, 1, "on purpose");
            })
        };
        let first = gate.admit(work(1)).unwrap();
        assert!(gate.admit(work(2)).is_none() && gate.admit(work(3)).is_none());
        first();
        assert_eq!(*order.lock(), [1, 2, 3]);
        assert!(gate.admit(work(4)).is_some());
    }
}
