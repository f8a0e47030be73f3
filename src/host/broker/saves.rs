//! The threads on which asks are loaded, stepped and saved. They are the store's alone, so that no hung folder of a group
//! takes them all. What promises something goes first: the rest waits behind a small gate. While there is a burst of promises, nothing
//! behind it begins for a second, and then one piece at a time does. What only waits in memory for a flush takes next to no time, so one thread does it for all asks: to wake
//! one for each would take longer.

use crate::clock::{Clock, Moment};
use crate::host::ctx::Ctx;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// With a store of its own: promises share syncs, so more threads would mostly wait for each other, and for a processor.
const THREADS: usize = 12;
/// With a database: of those that wait for it, all share the next transaction.
const THREADS_SHARED: usize = 32;
/// How many of them what promises nothing may use.
const BEHIND_THE_GATE: usize = 4;
/// So many promises at a time are a burst.
pub(super) const BURST: usize = 4;
/// How long what promises nothing makes way, at most.
const MAKES_WAY: Duration = Duration::from_secs(1);
/// A burst of which nobody has saved anything for so long is over: those that were told may be about to send what they have next. With a store of
/// its own a daemon tells them one by one, and what follows goes on at once.
const OVER: Duration = Duration::from_millis(20);
/// The places of a line that are kept when nothing waits there.
const KEPT: usize = 1_024;
/// How long a thread waits for more work before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) type Work = Box<dyn FnOnce() + Send>;

/// How urgent a piece of work is that blocks on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Somebody waits for it.
    Promise,
    /// It follows from something that is stored.
    FollowUp,
    /// It waits in memory for a flush.
    Note,
}

/// The promises that are being saved.
#[derive(Debug)]
pub(super) struct Promises {
    number: Mutex<usize>,
    /// How long a burst of them has to be away until it is over for what makes way for it.
    over: Duration,
    /// When the last burst went away.
    away: Mutex<Option<Moment>>,
    /// The computer's, by which threads wait.
    clock: Clock,
    fewer: Condvar,
    /// Rings when a burst of them is over, when the last one is saved, and when nothing that follows runs or waits.
    idle: Notify,
}

impl Promises {
    pub(super) fn new(over: Duration, clock: Clock) -> Arc<Self> {
        let (number, away, fewer, idle) = (Mutex::default(), Mutex::default(), Condvar::new(), Notify::new());
        Arc::new(Self { number, over, away, clock, fewer, idle })
    }

    /// One is being saved until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Promise {
        *self.number.lock() += 1;
        Promise(Arc::clone(self))
    }

    /// How long it takes until the burst that went away last is over.
    fn lingers(&self) -> Duration {
        self.away.lock().map_or(Duration::ZERO, |away| (away + self.over).since(self.clock.monotonic()))
    }

    /// Waits until there are fewer than so many of them; `true`: that took too long.
    pub(super) fn make_way(&self, many: usize) -> bool {
        self.make_way_for(MAKES_WAY, many)
    }

    fn make_way_for(&self, limit: Duration, many: usize) -> bool {
        self.fewer.wait_while_for(&mut self.number.lock(), |number| *number >= many, limit).timed_out()
    }

    /// Waits until a burst of them is over; `true`: that took too long.
    pub(super) fn make_way_for_burst(&self) -> bool {
        let until = self.clock.monotonic() + MAKES_WAY;
        while !self.make_way_for(until.since(self.clock.monotonic()), BURST) {
            let (left, rest) = (self.lingers(), until.since(self.clock.monotonic()));
            if left.is_zero() {
                return false;
            }
            if rest.is_zero() {
                return true;
            }
            self.fewer.wait_while_for(&mut self.number.lock(), |_| true, left.min(rest));
        }
        true
    }
}

/// A promise that is being saved.
#[derive(Debug)]
pub(super) struct Promise(Arc<Promises>);

impl Drop for Promise {
    fn drop(&mut self) {
        let mut number = self.0.number.lock();
        *number -= 1;
        if *number == BURST - 1 {
            *self.0.away.lock() = Some(self.0.clock.monotonic());
        }
        if *number < BURST {
            self.0.fewer.notify_all();
        }
        if *number == BURST - 1 || *number == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Lets a few pieces of work run at a time. The others wait in line, and no thread waits with them. Those that run make way for a burst
/// of promises, and all but one of them go on to do so once that takes long.
#[derive(Debug)]
pub(super) struct Gate {
    most: usize,
    line: Mutex<Line>,
    /// Nothing runs or waits.
    idle: Condvar,
    /// How many of those that run do not make way now.
    at_work: AtomicUsize,
    /// They have made way for long enough: one at a time does not.
    is_late: AtomicBool,
    promises: Arc<Promises>,
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
    pub(super) fn new(most: usize, promises: &Arc<Promises>) -> Arc<Self> {
        let promises = Arc::clone(promises);
        let (at_work, is_late) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { most, line: Mutex::default(), idle: Condvar::new(), at_work, is_late, promises })
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
                if gate.at_work.load(Ordering::Relaxed) > 0 || !gate.is_late.load(Ordering::Relaxed) {
                    gate.is_late.store(gate.promises.make_way_for_burst(), Ordering::Relaxed);
                }
                gate.at_work.fetch_add(1, Ordering::Relaxed);
                // A panic has been reported, and the place must not be lost.
                let _panicked = catch_unwind(AssertUnwindSafe(work));
                gate.at_work.fetch_sub(1, Ordering::Relaxed);
                next = gate.next();
            }
        }))
    }

    fn next(&self) -> Option<Work> {
        let mut line = self.line.lock();
        let next = line.waiting.pop_front();
        if next.is_none() {
            line.running -= 1;
            if line.running == 0 {
                self.is_late.store(false, Ordering::Relaxed);
                self.idle.notify_all();
                self.promises.idle.notify_waiters();
            }
            // After a flood.
            line.waiting.shrink_to(KEPT);
        }
        next
    }

    /// Waits until it has nothing to do.
    fn make_way(&self) {
        let _late = self.idle.wait_while_for(&mut self.line.lock(), |line| line.running > 0, MAKES_WAY);
    }

    fn is_idle(&self) -> bool {
        self.line.lock().running == 0
    }

    /// How much waits for its turn.
    pub(super) fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }
}

/// The threads, and the gate.
#[derive(Debug)]
pub(super) struct Saves {
    /// Only its blocking threads are used.
    threads: Option<Runtime>,
    gate: Arc<Gate>,
    notes: Arc<Gate>,
    /// The promises that are being saved.
    pub(super) promises: Arc<Promises>,
}

impl Saves {
    /// `clock`: the computer's.
    pub(super) fn new(ctx: &Ctx, is_shared: bool, clock: Clock) -> std::io::Result<Self> {
        let threads = if is_shared { THREADS_SHARED } else { THREADS };
        let mut builder = Builder::new_current_thread();
        let builder = builder.max_blocking_threads(threads).thread_keep_alive(KEEP_ALIVE);
        let builder = builder.thread_name(ctx.thread_name("save"));
        let promises = Promises::new(if is_shared { OVER } else { Duration::ZERO }, clock);
        let (gate, notes) = (Gate::new(BEHIND_THE_GATE, &promises), Gate::new(1, &promises));
        Ok(Self { threads: Some(builder.build()?), gate, notes, promises })
    }

    /// Lets all that is to be saved go first: nobody waits for what the caller does.
    pub(super) fn make_way(&self) {
        self.gate.make_way();
        let _late = self.promises.make_way(1);
    }

    /// Waits until nothing is being saved that others wait for, or that follows from it.
    pub(super) async fn until_idle(&self) {
        self.until(|| self.gate.is_idle() && *self.promises.number.lock() == 0).await;
    }

    /// The same as [`Promises::make_way_for_burst`] for a task, which must not block.
    pub(super) async fn until_no_burst(&self) {
        let Promises { number, clock, .. } = &*self.promises;
        let over = async {
            loop {
                self.until(|| *number.lock() < BURST).await;
                let left = self.promises.lingers();
                if left.is_zero() {
                    return;
                }
                clock.sleep(left).await;
            }
        };
        let _late = clock.timeout(MAKES_WAY, over).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let idle = self.promises.idle.notified();
            if is_so() {
                return;
            }
            idle.await;
        }
    }

    /// Runs work that blocks on the disk.
    pub(super) fn run(&self, ctx: &Ctx, rank: Rank, work: impl FnOnce() + Send + 'static) {
        let work: Work = Box::new(ctx.as_own(work));
        let work = match rank {
            Rank::Promise => Some(work),
            Rank::FollowUp => self.gate.admit(work),
            Rank::Note => self.notes.admit(work),
        };
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
    use std::sync::mpsc::{Receiver, channel};

    #[test]
    fn few_run_at_a_time_in_order_and_a_panic_keeps_no_place() {
        let (gate, order) =
            (Gate::new(1, &Promises::new(Duration::ZERO, Clock::system())), Arc::new(Mutex::new(Vec::new())));
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

    /// What follows waits for a burst to end, but not for ever: then one piece at a time goes on beside it.
    #[test]
    fn what_follows_makes_way_for_a_burst_and_is_not_starved_by_it() {
        let (promises, gate, work, done) = behind_a_burst(Duration::ZERO);
        let burst: Vec<Promise> = (0..BURST).map(|_| promises.begin()).collect();
        let late = std::thread::spawn(gate.admit(work()).unwrap());
        done.recv_timeout(MAKES_WAY / 2).unwrap_err();
        done.recv().unwrap();
        late.join().unwrap();
        let soon = std::thread::spawn(gate.admit(work()).unwrap());
        drop(burst);
        done.recv_timeout(MAKES_WAY / 2).unwrap();
        soon.join().unwrap();
    }

    /// Those that were told send what they have next.
    #[test]
    fn a_burst_that_pauses_is_not_over_for_what_follows() {
        let (promises, gate, work, done) = behind_a_burst(MAKES_WAY / 4);
        let mut burst: Vec<Promise> = (0..BURST).map(|_| promises.begin()).collect();
        burst.pop();
        let follows = std::thread::spawn(gate.admit(work()).unwrap());
        done.recv_timeout(MAKES_WAY / 8).unwrap_err();
        burst.push(promises.begin());
        done.recv_timeout(MAKES_WAY / 4).unwrap_err();
        drop(burst);
        done.recv_timeout(MAKES_WAY / 8).unwrap_err();
        done.recv().unwrap();
        follows.join().unwrap();
    }

    /// A gate, work to wait behind it, and what tells of each piece that is done.
    fn behind_a_burst(over: Duration) -> (Arc<Promises>, Arc<Gate>, impl Fn() -> Work, Receiver<()>) {
        let promises = Promises::new(over, Clock::system());
        let gate = Gate::new(BEHIND_THE_GATE, &promises);
        let (does, done) = channel();
        let work = move || -> Work {
            let does = does.clone();
            Box::new(move || does.send(()).unwrap())
        };
        (promises, gate, work, done)
    }

    /// What other daemons have stored is not read beside a burst here, but soon after its start or its end.
    #[tokio::test(start_paused = true)]
    async fn a_burst_is_waited_for_until_it_is_over_but_not_for_ever() {
        let clock = Clock::of_tokio();
        let saves = Saves::new(&Ctx::new(clock.clone()), true, clock.clone()).unwrap();
        let mut burst: Vec<Promise> = (0..BURST).map(|_| saves.promises.begin()).collect();
        let begun = clock.monotonic();
        saves.until_no_burst().await;
        assert_eq!(clock.monotonic().since(begun), MAKES_WAY);
        let (begun, fewer) = (clock.monotonic(), MAKES_WAY / 5);
        let ends = async {
            clock.sleep(fewer).await;
            // Those that were told send what they have next.
            burst.pop();
            clock.sleep(OVER / 2).await;
            burst.push(saves.promises.begin());
            clock.sleep(fewer).await;
            burst.clear();
        };
        tokio::join!(saves.until_no_burst(), ends);
        assert_eq!(clock.monotonic().since(begun), fewer + OVER / 2 + fewer + OVER);
        // Since then there was none.
        let begun = clock.monotonic();
        saves.until_no_burst().await;
        assert_eq!(clock.monotonic().since(begun), Duration::ZERO);
    }
}
