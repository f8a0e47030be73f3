//! What every task of the daemon shares: the clock, the signal to stop, and the tasks that a stop waits for.
//!
//! A stop has one order, and each of its steps has a time limit. The daemon takes in nothing new. It finishes what
//! people have in hand. It asks channels and sessions for nothing more. It lets writes and calls that are under way
//! end. The next start takes up the rest. All tasks of the daemon are spawned here.

use crate::clock::{Clock, Moment};
use crate::sabotage::on;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::dispatcher;

/// How long clicks, webhooks and calls in hand may still take after the daemon was told to stop.
pub(super) const IN_HAND: Duration = Duration::from_secs(5);
/// How long writes and calls that are under way may take after that.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// How long a step of the stop may take that has this time limit.
pub(super) fn at_most(limit: Duration) -> Duration {
    match () {
        () if on("stopatonce") => Duration::ZERO,
        () if on("stopwaits") => Duration::from_secs(3600),
        () => limit,
    }
}

/// How often a daemon that may have been overtaken looks whether it was.
const OURS_AGAIN: Duration = Duration::from_millis(200);

/// Says how long a call may take that begins now; zero: none may begin.
type CallsFor = Box<dyn Fn() -> Duration + Send + Sync>;

/// Work of a task. Because it is boxed, the compiler makes the machinery of a task once, and not for each of some two hundred
/// places that spawn one.
type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The clock, the stop and the tasks of one daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ctx(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// Cancelled when the daemon was told to stop. It may take calls for a while longer.
    leaving: CancellationToken,
    /// Cancelled when nothing new is taken in any more.
    stopping: CancellationToken,
    /// Cancelled when channels and sessions are asked for nothing more.
    cut: CancellationToken,
    /// The tasks that people or platforms wait for.
    in_hand: TaskTracker,
    tasks: TaskTracker,
    /// Where all of them run, whichever thread spawns them.
    runtime: Handle,
    told: OnceLock<Moment>,
    cut_short: AtomicBool,
    limit: OnceLock<Limit>,
    /// What its threads are called.
    name: String,
}

struct Limit(CallsFor);

impl std::fmt::Debug for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Limit").field(&(self.0)()).finish()
    }
}

impl Ctx {
    /// The context of a daemon that runs by this clock, on the runtime of its caller.
    pub fn new(clock: Clock) -> Self {
        let [leaving, stopping, cut] = std::array::from_fn(|_| CancellationToken::new());
        let (in_hand, tasks) = (TaskTracker::new(), TaskTracker::new());
        let name = std::thread::current().name().filter(|name| *name != "main").unwrap_or("askd").into();
        let (told, cut_short, limit, runtime) =
            (OnceLock::new(), AtomicBool::new(false), OnceLock::new(), Handle::current());
        Self(Arc::new(Inner { clock, leaving, stopping, cut, in_hand, tasks, runtime, told, cut_short, limit, name }))
    }

    /// The name of threads of its own that a part of the daemon has. Named after those of its runtime, all threads of one
    /// daemon are found by their names, although several may run in one process.
    pub fn thread_name(&self, part: &str) -> String {
        format!("{}-{part}", self.0.name)
    }

    /// From now on, calls that others see begin and end as this allows. Where another daemon can take over, it may do so as soon as
    /// this one has been silent for some seconds: a call that this one begins then would be made twice.
    pub fn limit_calls(&self, calls_for: impl Fn() -> Duration + Send + Sync + 'static) {
        if !on("anytime") && self.0.limit.set(Limit(Box::new(calls_for))).is_err() {
            tracing::error!("calls of this daemon are limited already");
        }
    }

    /// How long a call may take that begins now and that others see, `most` at most; `None`: none may begin.
    pub fn call_within(&self, most: Duration) -> Option<Duration> {
        let left = self.0.limit.get().map_or(most, |limit| (limit.0)().min(most));
        (!left.is_zero()).then_some(left)
    }

    /// Waits until a call may begin that others see; `false` if the daemon stops before.
    pub async fn until_calls_may_begin(&self) -> bool {
        while self.call_within(Duration::MAX).is_none() {
            if !self.pause(OURS_AGAIN).await {
                return false;
            }
        }
        true
    }

    /// The clock that the whole daemon runs by.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Spawns work that a stop may cut off anywhere: the next start takes it up.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    fn spawn_boxed(&self, work: Work<()>) {
        let ctx = self.clone();
        self.0.tasks.spawn_on(async move { ctx.unless_cut(work).await }, &self.0.runtime);
    }

    /// Spawns work that a stop waits for, up to its time limit: a write, or a call whose result has to be recorded.
    /// Such work has to pause with [`Self::pause`] or [`Self::unless_cut`], so that a stop ends its pauses.
    pub fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.tasks.spawn_on(Box::pin(work) as Work<T>, &self.0.runtime)
    }

    /// The same as [`Self::finish`] for work that blocks on the disk.
    pub fn finish_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.0.tasks.spawn_blocking_on(Box::new(work) as Box<dyn FnOnce() + Send>, &self.0.runtime);
    }

    /// Work for a thread of another pool. It counts as this daemon's until it is done or dropped, and what it spawns and logs
    /// goes where the caller's does.
    pub fn as_own(&self, work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        let (counts, runtime, log) =
            (self.0.tasks.token(), self.0.runtime.clone(), dispatcher::get_default(Clone::clone));
        move || {
            let (_counts, _runtime) = (counts, runtime.enter());
            dispatcher::with_default(&log, work);
        }
    }

    /// Spawns work that a person or a platform has begun: a stop waits for it before it cuts anything off.
    pub fn serve<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.in_hand.spawn_on(Box::pin(work) as Work<T>, &self.0.runtime)
    }

    /// Waits for `work`; `None` if a stop cuts it off first.
    pub async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.cut.run_until_cancelled(work).await
    }

    /// Pauses before another try; `false` if a stop cuts the work off, so that there must be no other try.
    pub async fn pause(&self, pause: Duration) -> bool {
        self.unless_cut(self.0.clock.sleep(pause)).await.is_some()
    }

    /// Whether channels and sessions are asked for nothing more.
    pub fn is_cut(&self) -> bool {
        self.0.cut.is_cancelled()
    }

    /// Whether a stop has cut off work that somebody waited for.
    pub fn was_cut_short(&self) -> bool {
        self.0.cut_short.load(Ordering::Relaxed)
    }

    /// Waits until the daemon takes in nothing new.
    pub async fn stopping(&self) {
        self.0.stopping.cancelled().await;
    }

    /// Whether the daemon takes in nothing new any more.
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }

    /// Whether the daemon was told to stop.
    pub fn is_leaving(&self) -> bool {
        self.0.leaving.is_cancelled()
    }

    /// The daemon was told to stop, and says so from now on.
    pub fn leave(&self) {
        self.0.leaving.cancel();
    }

    /// The first step of a stop: from now on the daemon takes in nothing new.
    pub fn begin_stop(&self) {
        self.leave();
        self.0.told.get_or_init(|| self.0.clock.monotonic());
        self.0.stopping.cancel();
    }

    /// Begins a stop when it is dropped, so that the threads of a run that was cut off anywhere end too.
    pub fn stop_on_drop(&self) -> DropGuard {
        self.0.stopping.clone().drop_guard()
    }

    /// The other steps, in their order. Returns within [`IN_HAND`] plus [`UNDER_WAY`], whatever hangs.
    pub async fn stop(&self) {
        self.begin_stop();
        let told = self.0.told.get().copied().unwrap_or_else(|| self.0.clock.monotonic());
        let left = (told + at_most(IN_HAND)).since(self.0.clock.monotonic());
        self.0.in_hand.close();
        if self.0.clock.timeout(left, self.0.in_hand.wait()).await.is_none() {
            self.0.cut_short.store(true, Ordering::Relaxed);
            tracing::warn!(left = self.0.in_hand.len(), "work that did not end in time was cut off");
        }
        if !on("stopwaits") {
            self.0.cut.cancel();
        }
        self.0.tasks.close();
        if self.0.clock.timeout(at_most(UNDER_WAY), self.0.tasks.wait()).await.is_none() {
            tracing::warn!(left = self.0.tasks.len(), "what is unfinished goes on at the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_what_is_in_hand_then_cuts_off_and_hangs_on_nothing() {
        let ctx = Ctx::new(Clock::of_tokio());
        let cut_too_early = Arc::new(AtomicBool::new(false));
        let (told, seen) = (ctx.clone(), Arc::clone(&cut_too_early));
        ctx.serve(async move {
            told.stopping().await;
            tokio::task::yield_now().await;
            seen.store(told.0.cut.is_cancelled(), Ordering::SeqCst);
        });
        ctx.spawn(std::future::pending());
        let (written, has_written) = (ctx.clone(), Arc::new(AtomicBool::new(false)));
        let writes = Arc::clone(&has_written);
        ctx.finish(async move {
            assert!(!written.pause(Duration::from_secs(3600)).await);
            writes.store(true, Ordering::SeqCst);
        });
        ctx.stop().await;
        assert!(!cut_too_early.load(Ordering::SeqCst) && has_written.load(Ordering::SeqCst));
        let hanging = Ctx::new(Clock::of_tokio());
        hanging.serve(std::future::pending::<()>());
        hanging.finish(std::future::pending::<()>());
        hanging.stop().await;
    }
}
