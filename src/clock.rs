//! The one place where clocks are read and waited for. Everything else is handed a [`Clock`], so that tests move time
//! by hand instead of waiting for it.
//!
//! There are two clocks. People and files are told the time of day; it can be set, forward or back. The
//! monotonic clock only goes on, even while the computer sleeps (`CLOCK_BOOTTIME`); it measures how long something
//! took and how long is left. If the two drift apart by more than [`JUMP`], the time of day was set: a deadline that
//! was counted by it has to move along, and [`Clock::reading`] says by how much.
//!
//! Where several daemons share a database, its time of day counts for all of them ([`Clock::follow`]), and how this computer's is
//! set makes no difference.
//!
//! Tokio's timers stand still while the computer sleeps. [`Clock::reading`] notices that it slept, and then everything
//! that waits looks at the clock again. So nothing has to wake up to look: the daemon reads the clock at each of its looks.

use askd_core::Time;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::ops::{Add, Sub};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// A time of day that has moved by no more than this against the monotonic clock was not set.
pub const JUMP: Duration = Duration::from_secs(5);
/// A time of day that follows another one moves towards it by no more than this at a time.
pub const STEP: Duration = Duration::from_millis(100);
/// Both clocks are read at one moment if reading them took no longer.
const AT_ONCE: Duration = Duration::from_millis(5);

/// A moment on the monotonic clock. It means nothing to another process or after a restart of the computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Moment {
    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

/// What both clocks show at one moment.
#[derive(Debug, Clone, Copy)]
struct Face {
    now: Time,
    moment: Moment,
}

/// The time of day, and how far it was set since the clock was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The time of day.
    pub now: Time,
    /// By how many milliseconds it was set in all: forward, or back if negative.
    pub set_by: i64,
}

/// Tells the time and waits for it. Clones share what they have noticed.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Source,
    noticed: Mutex<Noticed>,
    followed: Mutex<Option<Followed>>,
    /// Time has passed without Tokio's timers.
    jumped: Notify,
}

#[derive(Debug)]
enum Source {
    System,
    Hand(Dial),
    /// Tokio's clock, which tests pause.
    #[cfg(all(test, feature = "host"))]
    Tokio(tokio::time::Instant),
}

#[derive(Debug)]
struct Noticed {
    /// The time of day less the monotonic clock, in milliseconds, when it was last set.
    apart: i64,
    set_by: i64,
    /// How long the computer has slept.
    slept: Duration,
}

/// Another computer's time of day.
#[derive(Debug, Clone, Copy)]
struct Followed {
    /// What is shown for it at a moment. It goes on from there.
    face: Face,
    /// How many milliseconds that is behind it, as far as it is known.
    behind: i64,
}

/// What a hand moves.
#[derive(Debug)]
struct Dial {
    face: Mutex<Face>,
    /// When the clock was made, if time passes on it by itself, too.
    runs_since: Option<Moment>,
}

impl Dial {
    /// How much time has passed by itself.
    fn passed(&self) -> Duration {
        self.runs_since.map_or(Duration::ZERO, |since| boottime().since(since))
    }
}

/// Moves a clock by hand.
#[derive(Debug)]
pub struct Hand(Clock);

impl Hand {
    /// Lets time pass at once.
    pub fn advance(&self, by: Duration) {
        self.turn(|face, _| *face = Face { now: face.now + by, moment: face.moment + by });
    }

    /// Sets the time of day, forward or back, as people and networks do. No time passes.
    pub fn set(&self, now: Time) {
        self.turn(|face, dial| face.now = now - dial.passed());
    }

    fn turn(&self, turn: impl FnOnce(&mut Face, &Dial)) {
        if let Source::Hand(dial) = &self.0.0.source {
            turn(&mut dial.face.lock(), dial);
            self.0.0.jumped.notify_waiters();
        }
    }
}

impl Face {
    /// What it has become at a later moment.
    fn at(self, moment: Moment) -> Self {
        Self { now: self.now + moment.since(self.moment), moment }
    }

    fn apart(self) -> i64 {
        self.now.as_millis().saturating_sub(i64::try_from(self.moment.0.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
    fn of_the_system() -> Self {
        let mut before = boottime();
        loop {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let moment = boottime();
            // If the process was stopped between the two readings, the pause would look like a clock that was set.
            if moment.since(before) <= AT_ONCE {
                return Self { now: Time::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)), moment };
            }
            before = moment;
        }
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn boottime() -> Moment {
    moment_of(ClockId::Boottime)
}

/// How long the computer has slept since it was started. A pause between the two readings makes it less, never more.
fn slept() -> Duration {
    let boottime = boottime();
    boottime.since(moment_of(ClockId::Monotonic))
}

fn moment_of(clock: ClockId) -> Moment {
    let time = clock_gettime(clock);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Moment(Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanos))
}

impl Clock {
    fn of(source: Source) -> Self {
        let noticed = Mutex::new(Noticed { apart: source.face().apart(), set_by: 0, slept: slept() });
        Self(Arc::new(Shared { source, noticed, followed: Mutex::default(), jumped: Notify::new() }))
    }

    /// The computer's clocks.
    pub fn system() -> Self {
        Self::of(Source::System)
    }

    /// A clock that stands still until its hand is moved.
    pub fn by_hand(start: Time) -> (Self, Hand) {
        Self::with_hand(start, None)
    }

    /// A clock that shows the computer's time and runs with it. If its hand is moved, it runs on from there.
    pub fn running_by_hand() -> (Self, Hand) {
        Self::with_hand(Face::of_the_system().now, Some(boottime()))
    }

    fn with_hand(start: Time, runs_since: Option<Moment>) -> (Self, Hand) {
        // The computer has been on for a day, so that there are moments before the start.
        let face = Mutex::new(Face { now: start, moment: Moment(Duration::from_secs(86_400)) });
        let clock = Self::of(Source::Hand(Dial { face, runs_since }));
        (clock.clone(), Hand(clock))
    }

    /// Tokio's clock: in a test that pauses it, waiting takes no time.
    #[cfg(all(test, feature = "host"))]
    #[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
    pub(crate) fn of_tokio() -> Self {
        Self::of(Source::Tokio(tokio::time::Instant::now()))
    }

    /// The time of day.
    pub fn now(&self) -> Time {
        self.reading().now
    }

    /// The time of day, and how far it was set until now.
    pub fn reading(&self) -> Reading {
        let mut noticed = self.0.noticed.lock();
        let face = self.face();
        let by = face.apart().saturating_sub(noticed.apart);
        if Duration::from_millis(by.unsigned_abs()) > JUMP {
            noticed.apart = face.apart();
            noticed.set_by = noticed.set_by.saturating_add(by);
            tracing::warn!(seconds = by / 1000, "the clock was set; what is left of each deadline stays as it was");
        }
        let slept = slept();
        if slept > noticed.slept + AT_ONCE {
            noticed.slept = slept;
            self.0.jumped.notify_waiters();
        }
        Reading { now: face.now, set_by: noticed.set_by }
    }

    fn face(&self) -> Face {
        let followed = *self.0.followed.lock();
        followed.map_or_else(|| self.0.source.face(), |followed| followed.face.at(boottime()))
    }

    /// Shows another computer's time of day instead of this one's: `told` is what it was at some moment between `asked` and
    /// `heard`. The first time at once, from then on in steps, so that time neither stands still nor leaps. A difference
    /// that may be no more than the time a reply took on its way counts as none, or else time would go back and forth.
    /// A clock with a hand follows nobody.
    pub fn follow(&self, told: Time, asked: Moment, heard: Moment) {
        if !matches!(self.0.source, Source::System) {
            return;
        }
        let half = heard.since(asked) / 2;
        let moment = asked + half;
        let unsure = half + Duration::from_millis(1);
        let mut noticed = self.0.noticed.lock();
        let mut followed = self.0.followed.lock();
        let Some(Followed { face, behind }) = followed.as_mut() else {
            let face = Face { now: told, moment };
            noticed.apart = face.apart();
            *followed = Some(Followed { face, behind: 0 });
            return;
        };
        let shown = face.at(moment).now.as_millis();
        let off = told.as_millis().saturating_sub(shown);
        let off = if Duration::from_millis(off.unsigned_abs()) > unsure { off } else { 0 };
        let most = i64::try_from(STEP.as_millis()).unwrap_or(i64::MAX);
        let step = off.clamp(-most, most);
        *behind = off - step;
        if step == 0 {
            return;
        }
        *face = Face { now: Time::from_millis(shown + step), moment };
        // Nobody has set it.
        noticed.apart += step;
    }

    /// By how many milliseconds it is behind the time of day that it follows, or before it if negative.
    pub fn behind(&self) -> i64 {
        self.0.followed.lock().map_or(0, |followed| followed.behind)
    }

    /// The monotonic clock.
    pub fn monotonic(&self) -> Moment {
        if let Source::System = self.0.source { boottime() } else { self.0.source.face().moment }
    }

    /// Waits until that moment has come.
    #[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
    pub async fn sleep_to(&self, moment: Moment) {
        loop {
            let jumps = self.0.jumped.notified();
            let left = moment.since(self.monotonic());
            if left.is_zero() {
                return;
            }
            let runs = !matches!(self.0.source, Source::Hand(Dial { runs_since: None, .. }));
            tokio::select! {
                () = tokio::time::sleep(left), if runs => {}
                () = jumps => {}
            }
        }
    }

    /// Blocks this thread until `event`, or until that moment has come: `None` then. The thread wakes up once for it, where
    /// Tokio's wheel of timers wakes up several times.
    pub fn wait<T>(&self, moment: Moment, event: impl Future<Output = T>) -> Option<T> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut event = pin!(event);
        loop {
            let mut jumps = pin!(self.0.jumped.notified());
            if let Poll::Ready(done) = event.as_mut().poll(&mut context) {
                return Some(done);
            }
            let left = moment.since(self.monotonic());
            if left.is_zero() {
                return None;
            }
            if jumps.as_mut().poll(&mut context).is_pending() {
                std::thread::park_timeout(left);
            }
        }
    }

    /// Waits as long as it is now until `time`, however the time of day is set meanwhile.
    pub async fn sleep_until(&self, time: Time) {
        self.sleep(time.since(self.now())).await;
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_to(self.monotonic() + duration).await;
    }

    /// Runs `work` for no longer than `limit`; `None` if it was not done by then.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.sleep(limit) => None,
        }
    }
}

impl Source {
    fn face(&self) -> Face {
        match self {
            Self::System => Face::of_the_system(),
            Self::Hand(dial) => {
                let (face, passed) = (*dial.face.lock(), dial.passed());
                Face { now: face.now + passed, moment: face.moment + passed }
            }
            #[cfg(all(test, feature = "host"))]
            Self::Tokio(origin) => {
                let passed = origin.elapsed();
                Face { now: Time::from_millis(1_790_000_000_000) + passed, moment: Moment(passed) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(1_790_000_000_000);

    #[test]
    fn a_clock_that_is_set_is_told_apart_from_time_that_passes() {
        let (clock, hand) = Clock::by_hand(START);
        let began = clock.monotonic();
        hand.advance(Duration::from_secs(7200));
        assert_eq!(clock.reading(), Reading { now: START + Duration::from_secs(7200), set_by: 0 });
        hand.set(START);
        assert_eq!(clock.clone().reading(), Reading { now: START, set_by: -7_200_000 });
        hand.set(START + JUMP);
        assert_eq!(clock.reading().set_by, -7_200_000, "what is small is not counted");
        hand.set(START + JUMP + Duration::from_millis(1));
        assert_eq!(clock.reading().set_by, -7_194_999, "until it has come to more");
        assert_eq!(clock.monotonic().since(began), Duration::from_secs(7200));
    }

    #[tokio::test]
    async fn waiting_goes_by_the_clock_that_nobody_sets() {
        let (clock, hand) = Clock::by_hand(START);
        let waiting = clock.sleep_until(START + Duration::from_secs(60));
        tokio::pin!(waiting);
        assert!(now_done(waiting.as_mut()).is_none());
        hand.set(START + Duration::from_secs(3600));
        assert!(now_done(waiting.as_mut()).is_none());
        hand.advance(Duration::from_secs(60));
        waiting.await;
        assert!(clock.timeout(Duration::from_secs(1), std::future::ready(())).await.is_some());
    }

    #[tokio::test]
    async fn a_clock_that_runs_can_be_moved_besides() {
        let (clock, hand) = Clock::running_by_hand();
        let (began, shown) = (clock.monotonic(), clock.now());
        let asleep = clock.sleep(Duration::from_secs(3600));
        tokio::pin!(asleep);
        assert!(now_done(asleep.as_mut()).is_none(), "it counts from its first poll");
        clock.sleep(Duration::from_millis(10)).await;
        assert!(clock.monotonic().since(began) >= Duration::from_millis(10), "it runs");
        hand.advance(Duration::from_secs(3590));
        assert!(now_done(asleep.as_mut()).is_none(), "not early");
        hand.advance(Duration::from_secs(10));
        asleep.await;
        hand.set(shown);
        let reading = clock.reading();
        assert!(reading.now.since(shown) < JUMP && reading.set_by < -3_590_000, "{reading:?}");
    }

    /// The result of `work`, if it is ready now.
    fn now_done<T>(work: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match work.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn a_time_of_day_that_is_followed_is_taken_at_once_and_then_in_steps() {
        let clock = Clock::system();
        let (now, passed) = (clock.monotonic(), Duration::from_secs(10));
        clock.follow(START, now - passed, now - passed);
        assert!(clock.now().since(START + passed) < JUMP && clock.behind() == 0);
        // It has gone on by itself, and is told to be a second late.
        clock.follow(START + passed + Duration::from_secs(1), now, now);
        assert_eq!(clock.behind(), 900);
        clock.follow(START + passed, now, now);
        assert_eq!((clock.behind(), clock.reading().set_by), (0, 0));
        clock.follow(START + passed - Duration::from_secs(3600), now, now);
        assert_eq!((clock.behind(), clock.reading().set_by), (-3_599_900, 0));
        let (by_hand, _hand) = Clock::by_hand(START);
        by_hand.follow(START + passed, now, now);
        assert_eq!((by_hand.now(), by_hand.behind()), (START, 0));
    }

    #[test]
    fn the_way_of_a_reply_does_not_set_a_time_of_day_back() {
        let clock = Clock::system();
        let (now, half, millis) = (clock.monotonic(), Duration::from_secs(5), Duration::from_millis);
        clock.follow(START, now - 2 * half, now - 2 * half);
        let shown = clock.now();
        clock.follow(START + half - millis(30), now - half - millis(40), now - half + millis(40));
        assert!(clock.now() >= shown, "the reply took 80 ms");
        clock.follow(START + half - millis(30), now - half - millis(10), now - half + millis(10));
        assert!(clock.now() < shown, "it took 20 ms");
    }

    #[test]
    fn the_clocks_of_the_system_go_on() {
        let clock = Clock::system();
        let (now, moment) = (clock.now(), clock.monotonic());
        assert!(clock.now() >= now && clock.monotonic() >= moment && clock.reading().set_by == 0);
    }
}
