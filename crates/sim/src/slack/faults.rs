//! Faults on demand: which call goes wrong, how, and how often.
//!
//! Decides only; the Web API and the deliveries carry out. Filled by tests through the handle.
//!
//! A fault of a count strikes before faults of a probability, in the order pushed. A method is a Web API method, `*` for all of them,
//! or [`INTERACTIONS`] or [`EVENTS`] for what the stand-in sends.

use parking_lot::Mutex;
use std::time::Duration;

use serde_json::Value;

use super::chance::Chance;

/// Pseudo-method: interactions sent to the app.
pub const INTERACTIONS: &str = "(interactions)";
/// Pseudo-method: events sent to the app.
pub const EVENTS: &str = "(events)";

/// How a call goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// 429 with `Retry-After`, in whole seconds.
    RateLimited(u64),
    /// An HTTP status with Slack's kind of error page, such as 500, 502 or 503.
    Status(u16),
    /// A redirect to an address that must never be followed.
    Redirect(String),
    /// The connection is reset, nothing was done.
    ResetBefore,
    /// It was done, then the connection is reset: the client cannot know.
    ResetAfter,
    /// It was done, then nothing comes for so long, then the answer.
    Stall(Duration),
    /// Nothing is done for so long; then it is.
    StallBefore(Duration),
    /// It was done; the answer breaks off half-way.
    Truncate,
    /// 200 with `ok: false` and this error; nothing was done.
    Error(String),
    /// `Error` with a whole body, for errors that carry more.
    Body(Value),
    /// Interactions and events: sent twice.
    Duplicate,
    /// Interactions and events: lost on the way, never sent.
    Lost,
}

/// How often a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The next so many matching calls.
    Next(u32),
    /// This share of matching calls, 0 to 100.
    Percent(u8),
}

/// One fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Web API method, `*`, [`INTERACTIONS`] or [`EVENTS`].
    pub method: String,
    /// How.
    pub kind: FaultKind,
    /// How often.
    pub times: Times,
}

/// The faults of one stand-in.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault.
    pub fn push(&self, fault: Fault) {
        self.0.lock().push(fault);
    }

    /// The next `times` calls of `method` go wrong like this.
    pub fn next(&self, method: &str, kind: FaultKind, times: u32) {
        self.push(Fault { method: method.into(), kind, times: Times::Next(times) });
    }

    /// All is well again.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// What strikes this call, if anything. Uses up one time.
    pub(super) fn strike(&self, method: &str, chance: &Chance) -> Option<FaultKind> {
        let mut faults = self.0.lock();
        let matches = |fault: &Fault| fault.method == method || (fault.method == "*" && !method.starts_with('('));
        for index in 0..faults.len() {
            if let (true, Times::Next(left)) = (matches(&faults[index]), faults[index].times) {
                let kind = faults[index].kind.clone();
                if left <= 1 {
                    faults.remove(index);
                } else {
                    faults[index].times = Times::Next(left - 1);
                }
                return (left > 0).then_some(kind);
            }
        }
        faults
            .iter()
            .filter(|fault| matches(fault))
            .find(|fault| matches!(fault.times, Times::Percent(percent) if chance.percent(percent)))
            .map(|fault| fault.kind.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_faults_strike_first_and_run_out() {
        let (faults, chance) = (Faults::default(), Chance::new(1));
        faults.push(Fault { method: "*".into(), kind: FaultKind::Truncate, times: Times::Percent(100) });
        faults.next("chat.update", FaultKind::ResetAfter, 2);
        let strikes: Vec<_> = (0..3).map(|_| faults.strike("chat.update", &chance)).collect();
        assert_eq!(strikes, [Some(FaultKind::ResetAfter), Some(FaultKind::ResetAfter), Some(FaultKind::Truncate)]);
        assert_eq!(faults.strike(EVENTS, &chance), None);
    }

    #[test]
    fn the_same_seed_strikes_the_same_calls() {
        let run = |seed| {
            let (faults, chance) = (Faults::default(), Chance::new(seed));
            faults.push(Fault { method: "*".into(), kind: FaultKind::ResetBefore, times: Times::Percent(30) });
            (0..1000).map(|_| faults.strike("api.test", &chance).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        let struck = run(7).iter().filter(|struck| **struck).count();
        assert!((240..360).contains(&struck), "{struck}");
    }
}
