//! Which waiting processes live, as far as their signs of life tell. A client changes `tasks/.alive/<process>` (older
//! ones `tasks/.alive-<process>`) every 5 s. Section 7 of the specification.
//!
//! Only a change counts, and only when this daemon saw it by its own clock, because a container can set the times of
//! its files. No process counts as dead before there was time to see a change: not right after a start, and not after a
//! pause in which the daemon did not look (the computer may have slept). The scanner of each group notes what it finds
//! at every look. This module decides nothing about asks.

use crate::ipc::files::Stamp;
use askd_core::{Group, Time};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

/// A process without a change for this long is dead. A daemon that has not looked for this long knows nothing.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(15);
/// A sign of life that has not changed for this long is removed.
const TIDY_AFTER: Duration = Duration::from_secs(3600);

/// More processes than ever wait in one group. Beyond that number, processes that no ask names are forgotten sooner.
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
pub(crate) struct Heartbeats(Mutex<HashMap<Group, Signs>>);

/// The signs of life of one group.
#[derive(Debug)]
struct Signs {
    /// Since when askd has looked at its folder without a long pause.
    since: Time,
    /// When askd last looked at it.
    looked: Time,
    /// `tasks/.alive` cannot be read, so that a process without a sign may live all the same.
    blind: bool,
    processes: HashMap<String, Sign>,
}

#[derive(Debug)]
struct Sign {
    /// Both places as they were last seen; without any, askd has looked for it and never found it.
    seen: Seen,
    /// When that was last different from before.
    changed: Time,
    /// A caller asked about this process, or an ask names it: each look looks it up by name.
    expected: bool,
}

impl Sign {
    fn missing(now: Time, expected: bool) -> Self {
        Self { seen: [None; 2], changed: now, expected }
    }
}

impl Signs {
    fn new(now: Time) -> Self {
        Self { since: now, looked: now, blind: false, processes: HashMap::new() }
    }

    fn expect(&mut self, process: &str, now: Time) -> &mut Sign {
        let sign = self.processes.entry(process.to_owned()).or_insert(Sign::missing(now, true));
        // Looks at a part of a crowded folder may have missed its file. From now on each look looks it up by name.
        if !std::mem::replace(&mut sign.expected, true) {
            sign.changed = now;
        }
        sign
    }
}

impl Heartbeats {
    fn lock(&self) -> MutexGuard<'_, HashMap<Group, Signs>> {
        self.0.lock()
    }

    /// Records all signs of life that a look found in a group's folder. Returns the processes whose files can be
    /// removed.
    pub(crate) fn note(&self, group: &Group, found: Vec<(String, Seen)>, now: Time) -> Vec<String> {
        let mut groups = self.lock();
        let signs = groups.entry(group.clone()).or_insert_with(|| Signs::new(now));
        // A pause, or a clock that was set: a change in the meantime may have been missed.
        if now.since(signs.looked) > DEAD_AFTER || now < signs.looked {
            signs.since = now;
            signs.processes.values_mut().for_each(|sign| sign.changed = now);
        }
        signs.looked = now;
        let mut old = Vec::new();
        for (process, seen) in found {
            let sign = signs.processes.entry(process.clone()).or_insert(Sign::missing(now, false));
            if sign.seen != seen {
                *sign = Sign { seen, changed: now, ..*sign };
            } else if now.since(sign.changed) > TIDY_AFTER {
                old.push(process);
            }
        }
        for process in &old {
            signs.processes.remove(process);
        }
        // Processes without a file are not kept for ever. In a crowd, those that no ask names are forgotten sooner.
        let crowd = signs.processes.len() > CROWD;
        signs.processes.retain(|_, sign| {
            let keep = if crowd && !sign.expected { 2 * DEAD_AFTER } else { TIDY_AFTER };
            now.since(sign.changed) <= keep
        });
        old
    }

    /// A process waits. From now on every look looks up its sign of life by name.
    pub(crate) fn expect(&self, group: &Group, process: &str, now: Time) {
        self.lock().entry(group.clone()).or_insert_with(|| Signs::new(now)).expect(process, now);
    }

    /// Whether the look that is noted next could not read all the signs of this group.
    pub(crate) fn set_blind(&self, group: &Group, blind: bool) {
        if let Some(signs) = self.lock().get_mut(group) {
            signs.blind = blind;
        }
    }

    /// The processes whose signs of life have to be looked up by name.
    pub(crate) fn expected(&self, group: &Group) -> Vec<String> {
        let groups = self.lock();
        let processes = groups.get(group).into_iter().flat_map(|signs| &signs.processes);
        processes.filter(|(_, sign)| sign.expected).map(|(process, _)| process.clone()).collect()
    }

    /// Whether a process lives.
    pub(crate) fn of(&self, group: &Group, process: &str, now: Time) -> Liveness {
        let mut groups = self.lock();
        let Some(signs) = groups.get_mut(group) else { return Liveness::TooEarly };
        let (looked, since, blind) = (signs.looked, signs.since, signs.blind);
        let sign = signs.expect(process, now);
        let stale = now.since(looked) > DEAD_AFTER || now < looked;
        if stale || now.since(since) < DEAD_AFTER {
            Liveness::TooEarly
        } else if now.since(sign.changed) < DEAD_AFTER {
            if sign.seen == [None; 2] { Liveness::TooEarly } else { Liveness::Alive }
        } else if blind {
            Liveness::TooEarly
        } else {
            Liveness::Dead
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
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        assert_eq!(life(10), Liveness::TooEarly, "just started");
        let second = stamp(folder.path(), "22");
        lives.note(&group, vec![("p".to_owned(), second)], at(15));
        assert_eq!(life(16), Liveness::Alive);
        for seconds in [20, 25] {
            lives.note(&group, vec![("p".to_owned(), second)], at(seconds));
        }
        assert_eq!(life(29), Liveness::Alive);
        lives.note(&group, vec![("p".to_owned(), second)], at(30));
        assert_eq!(life(30), Liveness::Dead);
        lives.note(&group, Vec::new(), at(35));
        assert_eq!(life(35), Liveness::Dead, "a sign that was taken away is none");
        assert_eq!(lives.of(&group, "never seen", at(35)), Liveness::TooEarly);
    }

    #[test]
    fn looks_that_may_have_passed_over_a_process_do_not_count_against_it() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let first = stamp(folder.path(), "1");
        for seconds in [0, 5, 10, 15] {
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        for seconds in [20, 25, 30, 35] {
            lives.note(&group, Vec::new(), at(seconds));
        }
        assert_eq!(
            lives.of(&group, "p", at(36)),
            Liveness::Alive,
            "it was last seen, and nobody has looked for it since"
        );
        for seconds in [40, 45, 50] {
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(50)), Liveness::Alive);
        assert_eq!(lives.of(&group, "p", at(51)), Liveness::Dead, "15 s of looks for it by name, and no change");
    }

    #[test]
    fn after_a_pause_or_a_clock_that_was_set_nobody_is_judged_for_15_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let sign = vec![("p".to_owned(), stamp(folder.path(), "1"))];
        lives.expect(&group, "p", at(0));
        for seconds in [0, 5, 10, 15] {
            lives.note(&group, sign.clone(), at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(15)), Liveness::Dead);
        assert_eq!(lives.of(&group, "p", at(200)), Liveness::TooEarly, "it slept, and has not looked since");
        lives.note(&group, sign.clone(), at(200));
        assert_eq!(lives.of(&group, "p", at(201)), Liveness::TooEarly);
        for seconds in [205, 210, 215] {
            lives.note(&group, sign.clone(), at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(215)), Liveness::Dead);
        lives.note(&group, sign.clone(), at(100));
        assert_eq!(lives.of(&group, "p", at(100)), Liveness::TooEarly, "the clock was set back");
    }

    #[test]
    fn either_sign_keeps_a_process_alive_and_one_that_cannot_be_read_keeps_it_from_being_judged() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let old = stamp(folder.path(), "1")[0];
        for seconds in [0, 5, 10, 15, 20] {
            // The one in `.alive` stays as it is; the process can touch only the other one.
            let beside = stamp(folder.path(), &"2".repeat(usize::try_from(seconds).unwrap() + 2))[0];
            lives.note(&group, vec![("p".to_owned(), [old, beside])], at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(20)), Liveness::Alive);
        assert_eq!(lives.of(&group, "hidden", at(20)), Liveness::TooEarly);
        for seconds in [25, 30, 35, 40] {
            lives.set_blind(&group, true);
            lives.note(&group, Vec::new(), at(seconds));
        }
        assert_eq!(lives.of(&group, "hidden", at(40)), Liveness::TooEarly);
        lives.set_blind(&group, false);
        assert_eq!(lives.of(&group, "hidden", at(40)), Liveness::Dead);
    }

    #[test]
    fn who_is_asked_about_is_kept_in_a_crowd() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let sign = stamp(folder.path(), "1");
        lives.expect(&group, "waits", at(0));
        let crowd = |wave: usize| (0..2_000).map(|number| (format!("{wave}-{number}"), sign)).collect::<Vec<_>>();
        for (wave, seconds) in (0..60).step_by(5).enumerate() {
            lives.note(&group, crowd(wave), at(u64::try_from(seconds).unwrap()));
        }
        assert_eq!(lives.expected(&group), ["waits"]);
        assert_eq!(lives.of(&group, "waits", at(56)), Liveness::Dead);
        let kept = lives.lock()[&group].processes.len();
        assert!(kept < 16_000, "{kept}");
    }

    #[test]
    fn what_nobody_changes_for_an_hour_is_tidied_away() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Heartbeats, Group) = (Heartbeats::default(), "g".parse().unwrap());
        let sign = vec![("p".to_owned(), stamp(folder.path(), "1"))];
        let mut tidied = Vec::new();
        for seconds in (0..3_700).step_by(5) {
            tidied.extend(lives.note(&group, sign.clone(), at(seconds)));
        }
        assert_eq!(tidied.first().map(String::as_str), Some("p"));
    }
}
