//! Which waiting processes live, as far as their signs of life tell. A client changes `tasks/.alive/<process>` (older
//! ones `tasks/.alive-<process>`) every 5 s. Section 7 of the specification.
//!
//! Only a change counts, and only when this daemon saw it by its own clock, because a container can set the times of
//! its files. No process counts as dead before there was time to see a change: not right after it was first asked about,
//! and not after a pause in which the daemon did not look (the computer may have slept). Each look at a group notes the
//! signs of the processes that are waited for, and of no other. This module decides nothing about asks.

use crate::ipc::files::Stamp;
use askd_core::{Group, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A process without a change for this long is dead. A daemon that has not looked for this long knows nothing.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(15);
/// A process that has not changed its sign for this long is forgotten until an ask names it again.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// The same in a crowd: more processes than ever wait in one group.
const FORGET_IN_A_CROWD: Duration = Duration::from_secs(30);
const CROWD: usize = 5_000;

/// How the two signs of a process were last seen: in `tasks/.alive/`, and in `tasks/` itself.
pub(crate) type Seen = [Option<Stamp>; 2];

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It gave a sign of life within the last 15 s.
    Alive,
    /// It has given none for 15 s.
    Dead,
    /// It is too early to tell.
    TooEarly,
}

/// The signs of life of all groups.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<HashMap<Group, Signs>>, Mutex<BTreeMap<Group, Time>>);

/// The signs of life of one group.
#[derive(Debug)]
struct Signs {
    /// When askd last looked at them.
    looked: Time,
    /// `tasks/.alive` cannot be read, so that a process without a sign may live all the same.
    blind: bool,
    processes: HashMap<String, Sign>,
}

#[derive(Debug)]
struct Sign {
    /// As they were last seen; `None` before the first look.
    seen: Option<Seen>,
    /// When that was last different from before, or since when askd looks without a pause.
    changed: Time,
    /// That was a change, and not only the first look.
    lives: bool,
}

impl Sign {
    fn new(now: Time) -> Self {
        Self { seen: None, changed: now, lives: false }
    }
}

impl Heartbeats {
    /// Records the signs of life that a look found of the processes it was to look for; `blind`: it could not see all.
    pub(crate) fn note(&self, group: &Group, found: Vec<(String, Seen)>, blind: bool, now: Time) {
        let mut groups = self.0.lock();
        let Some(signs) = groups.get_mut(group) else { return };
        // A pause, or a clock that was set: a change in the meantime may have been missed.
        if now.since(signs.looked) > DEAD_AFTER || now < signs.looked {
            signs.processes.values_mut().for_each(|sign| *sign = Sign::new(now));
        }
        (signs.looked, signs.blind) = (now, blind);
        for (process, seen) in found {
            let Some(sign) = signs.processes.get_mut(&process) else { continue };
            let before = sign.seen.replace(seen);
            // A sign that was taken away is none.
            if before.is_some_and(|before| before != seen) && seen != [None; 2] {
                (sign.changed, sign.lives) = (now, true);
                self.1.lock().insert(group.clone(), now);
            }
        }
        let forget = if signs.processes.len() > CROWD { FORGET_IN_A_CROWD } else { FORGET_AFTER };
        signs.processes.retain(|_, sign| now.since(sign.changed) <= forget);
        if signs.processes.is_empty() {
            groups.remove(group);
        }
    }

    /// When each group last gave a sign of life, since the daemon started.
    pub(crate) fn last(&self) -> BTreeMap<Group, Time> {
        self.1.lock().clone()
    }

    /// The processes whose signs of life a look looks for.
    pub(crate) fn expected(&self, group: &Group) -> Vec<String> {
        self.0.lock().get(group).map(|signs| signs.processes.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether a process lives. From the first time on that this is asked, each look looks for its sign of life.
    pub(crate) fn of(&self, group: &Group, process: &str, now: Time) -> Liveness {
        let mut groups = self.0.lock();
        let new = || Signs { looked: now, blind: false, processes: HashMap::new() };
        let signs = groups.entry(group.clone()).or_insert_with(new);
        let sign = signs.processes.entry(process.to_owned()).or_insert(Sign::new(now));
        let stale = now.since(signs.looked) > DEAD_AFTER || now < signs.looked;
        match (now.since(sign.changed) < DEAD_AFTER, sign.lives) {
            _ if stale => Liveness::TooEarly,
            (true, true) => Liveness::Alive,
            (false, _) if !signs.blind => Liveness::Dead,
            _ => Liveness::TooEarly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(1_760_000_000_000);

    fn at(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    fn stamp(folder: &std::path::Path, text: &str) -> Seen {
        let file = folder.join("x");
        #[expect(clippy::disallowed_methods, reason = "a file of the test's own")]
        std::fs::write(&file, text).unwrap();
        [Some(Stamp::at(&file).unwrap()), None]
    }

    #[test]
    fn dead_is_who_gave_no_sign_for_15_seconds_while_somebody_looked() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let life = |seconds| lives.of(&group, "p", at(seconds));
        assert_eq!(life(0), Liveness::TooEarly, "nobody has looked");
        let first = stamp(folder.path(), "1");
        for seconds in [0, 5, 10] {
            lives.note(&group, vec![("p".to_owned(), first)], false, at(seconds));
        }
        assert_eq!(life(10), Liveness::TooEarly, "just started");
        let second = stamp(folder.path(), "22");
        lives.note(&group, vec![("p".to_owned(), second)], false, at(15));
        assert_eq!(life(16), Liveness::Alive);
        for seconds in [20, 25] {
            lives.note(&group, vec![("p".to_owned(), second)], false, at(seconds));
        }
        assert_eq!(life(29), Liveness::Alive);
        lives.note(&group, vec![("p".to_owned(), second)], false, at(30));
        assert_eq!(life(30), Liveness::Dead);
        lives.note(&group, vec![("p".to_owned(), [None; 2])], false, at(35));
        assert_eq!(life(35), Liveness::Dead, "a sign that was taken away is none");
        assert_eq!(lives.of(&group, "never seen", at(35)), Liveness::TooEarly);
    }

    #[test]
    fn after_a_pause_or_a_clock_that_was_set_nobody_is_judged_for_15_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let sign = vec![("p".to_owned(), stamp(folder.path(), "1"))];
        lives.of(&group, "p", at(0));
        for seconds in [0, 5, 10, 15] {
            lives.note(&group, sign.clone(), false, at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(15)), Liveness::Dead);
        assert_eq!(lives.of(&group, "p", at(200)), Liveness::TooEarly, "it slept, and has not looked since");
        lives.note(&group, sign.clone(), false, at(200));
        assert_eq!(lives.of(&group, "p", at(201)), Liveness::TooEarly);
        for seconds in [205, 210, 215] {
            lives.note(&group, sign.clone(), false, at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(215)), Liveness::Dead);
        lives.note(&group, sign.clone(), false, at(100));
        assert_eq!(lives.of(&group, "p", at(100)), Liveness::TooEarly, "the clock was set back");
    }

    #[test]
    fn either_sign_keeps_a_process_alive_and_one_that_cannot_be_read_keeps_it_from_being_judged() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let old = stamp(folder.path(), "1")[0];
        lives.of(&group, "p", at(0));
        for seconds in [0, 5, 10, 15, 20] {
            // The one in `.alive` stays as it is; the process can touch only the other one.
            let beside = stamp(folder.path(), &"2".repeat(usize::try_from(seconds).unwrap() + 2))[0];
            lives.note(&group, vec![("p".to_owned(), [old, beside])], false, at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(20)), Liveness::Alive);
        assert_eq!(lives.of(&group, "hidden", at(20)), Liveness::TooEarly);
        for seconds in [25, 30, 35, 40] {
            lives.note(&group, Vec::new(), true, at(seconds));
        }
        assert_eq!(lives.of(&group, "hidden", at(40)), Liveness::TooEarly);
        lives.note(&group, Vec::new(), false, at(40));
        assert_eq!(lives.of(&group, "hidden", at(40)), Liveness::Dead);
    }

    #[test]
    fn a_crowd_is_forgotten_sooner() {
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        for wave in 0..12 {
            for number in 0..2_000 {
                lives.of(&group, &format!("{wave}-{number}"), at(wave * 5));
            }
            lives.note(&group, Vec::new(), false, at(wave * 5));
        }
        let kept = lives.expected(&group).len();
        assert!(kept < 16_000, "{kept}");
        lives.note(&group, Vec::new(), false, at(4_000));
        assert_eq!(lives.expected(&group).len(), kept, "nobody has looked for long");
        for seconds in [4_015, 4_030, 4_031] {
            lives.note(&group, Vec::new(), false, at(seconds));
        }
        assert!(lives.0.lock().is_empty());
    }
}
