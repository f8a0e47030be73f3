//! The deadlines of `cluster`. Some questions have the shortest time that there is: nobody answers them, or people click just when it is
//! over. An outcome has to be there for the agent at most [`SOON`] after the deadline that the agent was told, plus the time for which the
//! database was away, or the host of the agent's folder. Nothing times out before that, and nothing that was acknowledged before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::gone::Bereaved;
use super::{World, host_of};
use crate::agent::lock;
use crate::dice::Dice;
use crate::history::Verdict;

/// How soon after its deadline each question has ended, and how soon after its card came its time has begun.
const SOON: Duration = Duration::from_secs(20);
/// The shortest time that a request may give, in milliseconds, and what it has by default.
const SHORTEST: u64 = 10_000;
const USUAL: Duration = Duration::from_secs(30 * 60);
/// How soon a daemon ends that was paused and overtaken.
const ENDS: Duration = Duration::from_secs(5);
/// How much the clocks of two daemons may differ, which follow the database's: each measures how far its own is off.
const CLOCKS: Duration = Duration::from_millis(200);
/// When people click on a question that they let wait: around its deadline.
const CLOSE: (Duration, Duration) = (Duration::from_millis(8_500), Duration::from_millis(10_500));

/// How long a question waits for people, and what they do about it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Usual,
    /// Nobody answers.
    Quiet,
    /// People answer when its time is nearly over, or just over.
    Close,
}

impl Wait {
    pub(super) fn roll(dice: &mut Dice) -> Self {
        match dice.roll(20) {
            0 | 1 => Self::Quiet,
            2 | 3 => Self::Close,
            _ => Self::Usual,
        }
    }

    /// Of this request: its id says so.
    pub(super) fn of(request: &str) -> Self {
        let ends = |wait: &Self| request.ends_with(wait.end());
        [Self::Quiet, Self::Close].into_iter().find(ends).unwrap_or(Self::Usual)
    }

    /// How the ids of such requests end.
    pub(super) fn end(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Quiet => "-quiet",
            Self::Close => "-close",
        }
    }

    fn time(self) -> Duration {
        self.timeout().map_or(USUAL, Duration::from_millis)
    }

    /// What such a request gives, in milliseconds.
    pub(super) fn timeout(self) -> Option<u64> {
        (self != Self::Usual).then_some(SHORTEST)
    }

    /// Whether people click on its card that has been there for so long.
    pub(super) fn is_clicked(self, age: Duration) -> bool {
        match self {
            Self::Usual => true,
            Self::Quiet => false,
            Self::Close => age > CLOSE.0 && age < CLOSE.1,
        }
    }
}

/// A time in which nobody could be told: of everybody, or of the agents on this host.
struct Trouble {
    host: Option<usize>,
    from: Instant,
    until: Instant,
}

/// What is known of deadlines.
pub(super) struct Deadlines {
    /// One moment, by the clock that runs evenly and by the time of day.
    base: (Instant, Duration),
    /// What the agent was told last.
    told: Mutex<HashMap<String, Instant>>,
    troubles: Mutex<Vec<Trouble>>,
    /// When a daemon went on that had been paused for longer than its lease.
    resumed: Mutex<Vec<Instant>>,
}

impl Default for Deadlines {
    fn default() -> Self {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (told, troubles, resumed) = Default::default();
        Self { base: (Instant::now(), day), told, troubles, resumed }
    }
}

impl Deadlines {
    /// This time of day, since 1970.
    fn at(&self, day: Duration) -> Instant {
        let (base, of_day) = self.base;
        base + day.saturating_sub(of_day)
    }

    /// When a card came into the chat.
    pub(super) fn came(&self, ts: &str) -> Option<Instant> {
        let (seconds, micros) = ts.split_once('.')?;
        Some(self.at(Duration::new(seconds.parse().ok()?, micros.parse::<u32>().ok()? * 1_000)))
    }

    fn parsed(&self, time: &Value) -> Option<Instant> {
        let time: jiff::Timestamp = time.as_str()?.parse().ok()?;
        Some(self.at(Duration::from_millis(u64::try_from(time.as_millisecond()).ok()?)))
    }

    /// An agent was told how far its question is.
    pub(super) fn told(&self, request: &str, status: &[u8]) {
        let status = serde_json::from_slice::<Value>(status).unwrap_or_default();
        if let Some(end) = self.parsed(&status["answer_by"]) {
            lock(&self.told).insert(request.to_owned(), end);
        }
    }

    /// From then until now nobody could be told; `host`: only the agents on that host.
    pub(super) fn trouble(&self, host: Option<usize>, from: Instant) {
        lock(&self.troubles).push(Trouble { host, from, until: Instant::now() });
    }

    /// A daemon goes on that was paused for longer than its lease.
    pub(super) fn resumes(&self) {
        lock(&self.resumed).push(Instant::now());
    }

    /// Whether a card may come from a call that lay in a paused daemon: nothing can take it back.
    pub(super) fn follows_a_pause(&self, ts: &str) -> bool {
        let resumed = lock(&self.resumed);
        let lay = |came: Instant| resumed.iter().any(|at| (*at..*at + ENDS).contains(&came));
        self.came(ts).is_some_and(lay)
    }

    /// How much of this time was trouble for that request.
    fn troubled(&self, host: Option<usize>, from: Instant, until: Instant) -> Duration {
        let mut spans: Vec<_> = lock(&self.troubles)
            .iter()
            .filter(|trouble| trouble.host.is_none() || trouble.host == host)
            .map(|trouble| (trouble.from.max(from), trouble.until.min(until)))
            .filter(|(from, until)| from < until)
            .collect();
        spans.sort_unstable();
        let (mut sum, mut counted) = (Duration::ZERO, from);
        for (from, until) in spans {
            sum += until.saturating_duration_since(from.max(counted));
            counted = counted.max(until);
        }
        sum
    }
}

/// What was judged.
#[derive(Default)]
struct Judged {
    timeouts: usize,
    /// Those that never came into a chat.
    unshown: usize,
    /// Those that were answered when their time was nearly over.
    close: usize,
    latest: Duration,
}

impl World {
    /// Judges every question by its deadline.
    pub(super) fn judge_deadlines(&self, bereaved: &Bereaved, verdict: &mut Verdict) {
        let (deadlines, now) = (&self.deadlines, Instant::now());
        let mut cards: BTreeMap<String, Instant> = BTreeMap::new();
        for (request, card) in self.cards() {
            if let Some(came) = deadlines.came(&card.ts) {
                let first = cards.entry(request).or_insert(came);
                *first = came.min(*first);
            }
        }
        let (history, told) = (lock(&self.history), lock(&deadlines.told));
        let mut judged = Judged::default();
        for (request, end) in history.ends() {
            let (wait, card) = (Wait::of(request), cards.get(request).copied());
            let at_least = card.map(|came| came + wait.time());
            let Some(due) = told.get(request).copied().or(at_least) else {
                judged.unshown += 1;
                continue;
            };
            // What its host would be told is known from elsewhere, and that it is away is no reason to be late.
            let own = bereaved.get(request);
            let host = host_of(request).filter(|_| own.is_none());
            let (outcome, at) = end.map_or((None, now), |(outcome, at)| (Some(outcome), at));
            let at = own.and_then(|of| of.ended.as_ref()).and_then(|ended| deadlines.parsed(ended)).unwrap_or(at);
            let took = at.saturating_duration_since(due).saturating_sub(deadlines.troubled(host, due, at));
            judged.latest = judged.latest.max(took);
            if took > SOON {
                verdict.found("late", 1, &format!("{request}: its outcome came {took:?} after its deadline"));
            }
            if let Some(came) = card {
                let from = due.checked_sub(wait.time()).unwrap_or(came);
                let began = from.saturating_duration_since(came);
                if began.saturating_sub(deadlines.troubled(None, came, from)) > SOON {
                    verdict.found("late", 1, &format!("{request}: its time began {began:?} after its card came"));
                }
            }
            let Some(outcome) = outcome else { continue };
            let status = outcome["result"]["status"].as_str().unwrap_or_default();
            if status == "answered" {
                judged.close += usize::from(wait == Wait::Close);
                continue;
            }
            judged.timeouts += 1;
            let due = at_least.map_or(due, |at_least| due.max(at_least));
            let due = due.checked_sub(CLOCKS).unwrap_or(due);
            if at < due {
                verdict.found("early", 1, &format!("{request}: {status:?} {:?} before its deadline", due - at));
            }
            if let Some(before) = history.acknowledged(request).and_then(|at| due.checked_duration_since(at)) {
                let text = format!("{request}: an answer was acknowledged {before:?} before the deadline: {status:?}");
                verdict.found("lost", 1, &text);
            }
        }
        let Judged { timeouts, unshown, close, latest } = judged;
        let others = format!("{close} answered just before that, {unshown} never shown");
        verdict.note(format!("{timeouts} timed out ({others}), told {:.1} s late at most", latest.as_secs_f64()));
    }
}
