//! Which waiting processes live, as far as their signs of life tell: `tasks/.alive/<process>` (or
//! `tasks/.alive-<process>`) changes every 5 s. Section 7 of the specification.
//!
//! A change is all that counts, and when it was seen by this daemon's own clock: the times of the files are
//! the container's to set. Nobody is judged before there was time to see a change: after a start of the daemon,
//! and after it did not look for a while (the computer may have slept). Looked at with every listing of a
//! group's `tasks`; decides nothing.

use crate::ipc::files::Stamp;
use askd_core::{Group, Time};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

/// Without a change for so long, a process is dead; and a daemon that did not look for so long knows nothing.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(15);
/// How long a sign of life that nobody gives any more is left lying.
const TIDY_AFTER: Duration = Duration::from_secs(3600);

/// More processes than ever wait in one group.
const CROWD: usize = 5_000;

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It gives signs of life.
    Alive,
    /// It has given none for 15 s.
    Dead,
    /// It is too early to tell.
    NotYet,
}

/// Signs of life of all groups.
#[derive(Debug, Default)]
pub(crate) struct Lives(Mutex<HashMap<Group, Signs>>);

/// Signs of life of one group.
#[derive(Debug)]
struct Signs {
    /// Since when its folder is looked at without a long pause.
    since: Time,
    /// When it was looked at last.
    looked: Time,
    processes: HashMap<String, Sign>,
}

#[derive(Debug)]
struct Sign {
    /// How its file was last seen; `None`: it was asked about and is not there.
    stamp: Option<Stamp>,
    /// When that was new.
    changed: Time,
    /// Set if a caller asked about this process, or if it waits.
    expected: bool,
}

impl Sign {
    fn missing(now: Time, expected: bool) -> Self {
        Self { stamp: None, changed: now, expected }
    }
}

impl Signs {
    fn expect(&mut self, process: &str, now: Time) -> &mut Sign {
        let sign = self.processes.entry(process.to_owned()).or_insert(Sign::missing(now, true));
        // Looks at a part of a crowded folder may have passed over its file: only from now on it is looked up by name.
        if !std::mem::replace(&mut sign.expected, true) {
            sign.changed = now;
        }
        sign
    }
}

impl Lives {
    fn lock(&self) -> MutexGuard<'_, HashMap<Group, Signs>> {
        self.0.lock()
    }

    /// Notes all the signs of life that lie in a group's folder now. Returns those that can be tidied away.
    pub(crate) fn note(&self, group: &Group, found: Vec<(String, Stamp)>, now: Time) -> Vec<String> {
        let mut groups = self.lock();
        let new = || Signs { since: now, looked: now, processes: HashMap::new() };
        let signs = groups.entry(group.clone()).or_insert_with(new);
        // A pause, or a clock that was set: whatever was not seen in the meantime says nothing.
        if now.since(signs.looked) > DEAD_AFTER || now < signs.looked {
            signs.since = now;
            signs.processes.values_mut().for_each(|sign| sign.changed = now);
        }
        signs.looked = now;
        let mut old = Vec::new();
        for (process, stamp) in found {
            let sign = signs.processes.entry(process.clone()).or_insert(Sign::missing(now, false));
            if sign.stamp != Some(stamp) {
                *sign = Sign { stamp: Some(stamp), changed: now, ..*sign };
            } else if now.since(sign.changed) > TIDY_AFTER {
                old.push(process);
            }
        }
        for process in &old {
            signs.processes.remove(process);
        }
        // Processes that were only asked about, or whose file is gone, are not kept for ever. If there are many, those
        // that nobody asked about are dropped sooner.
        let crowd = signs.processes.len() > CROWD;
        signs.processes.retain(|_, sign| {
            let keep = if crowd && !sign.expected { 2 * DEAD_AFTER } else { TIDY_AFTER };
            now.since(sign.changed) <= keep
        });
        old
    }

    /// A process waits: its sign of life is looked for by name from now on.
    pub(crate) fn expect(&self, group: &Group, process: &str, now: Time) {
        let mut groups = self.lock();
        let new = || Signs { since: now, looked: now, processes: HashMap::new() };
        groups.entry(group.clone()).or_insert_with(new).expect(process, now);
    }

    /// The processes whose signs of life have to be looked up by name.
    pub(crate) fn expected(&self, group: &Group) -> Vec<String> {
        let groups = self.lock();
        let processes = groups.get(group).into_iter().flat_map(|signs| &signs.processes);
        processes.filter(|(_, sign)| sign.expected).map(|(process, _)| process.clone()).collect()
    }

    /// Whether a process lives.
    pub(crate) fn of(&self, group: &Group, process: &str, now: Time) -> Life {
        let mut groups = self.lock();
        let Some(signs) = groups.get_mut(group) else { return Life::NotYet };
        let (looked, since) = (signs.looked, signs.since);
        let sign = signs.expect(process, now);
        let stale = now.since(looked) > DEAD_AFTER || now < looked;
        if stale || now.since(since) < DEAD_AFTER {
            Life::NotYet
        } else if now.since(sign.changed) < DEAD_AFTER {
            if sign.stamp.is_some() { Life::Alive } else { Life::NotYet }
        } else {
            Life::Dead
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

    fn stamp(folder: &std::path::Path, text: &str) -> Stamp {
        let file = folder.join("x");
        #[expect(clippy::disallowed_methods, reason = "a file of the test's own")]
        std::fs::write(&file, text).unwrap();
        Stamp::at(&file).unwrap()
    }

    #[test]
    fn dead_is_who_gave_no_sign_for_15_seconds_while_somebody_looked() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Lives, Group) = (Lives::default(), "g".parse().unwrap());
        let life = |seconds| lives.of(&group, "p", at(seconds));
        assert_eq!(life(0), Life::NotYet, "nobody has looked");
        let first = stamp(folder.path(), "1");
        for seconds in [0, 5, 10] {
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        assert_eq!(life(10), Life::NotYet, "just started");
        let second = stamp(folder.path(), "22");
        lives.note(&group, vec![("p".to_owned(), second)], at(15));
        assert_eq!(life(16), Life::Alive);
        for seconds in [20, 25] {
            lives.note(&group, vec![("p".to_owned(), second)], at(seconds));
        }
        assert_eq!(life(29), Life::Alive);
        lives.note(&group, vec![("p".to_owned(), second)], at(30));
        assert_eq!(life(30), Life::Dead);
        lives.note(&group, Vec::new(), at(35));
        assert_eq!(life(35), Life::Dead, "a sign that was taken away is none");
        assert_eq!(lives.of(&group, "never seen", at(35)), Life::NotYet);
    }

    #[test]
    fn looks_that_may_have_passed_over_a_process_do_not_count_against_it() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Lives, Group) = (Lives::default(), "g".parse().unwrap());
        let first = stamp(folder.path(), "1");
        for seconds in [0, 5, 10, 15] {
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        for seconds in [20, 25, 30, 35] {
            lives.note(&group, Vec::new(), at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(36)), Life::Alive, "it was last seen, and nobody has looked for it since");
        for seconds in [40, 45, 50] {
            lives.note(&group, vec![("p".to_owned(), first)], at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(50)), Life::Alive);
        assert_eq!(lives.of(&group, "p", at(51)), Life::Dead, "15 s of looks for it by name, and no change");
    }

    #[test]
    fn after_a_pause_or_a_clock_that_was_set_nobody_is_judged_for_15_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Lives, Group) = (Lives::default(), "g".parse().unwrap());
        let sign = vec![("p".to_owned(), stamp(folder.path(), "1"))];
        lives.expect(&group, "p", at(0));
        for seconds in [0, 5, 10, 15] {
            lives.note(&group, sign.clone(), at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(15)), Life::Dead);
        assert_eq!(lives.of(&group, "p", at(200)), Life::NotYet, "it slept, and has not looked since");
        lives.note(&group, sign.clone(), at(200));
        assert_eq!(lives.of(&group, "p", at(201)), Life::NotYet);
        for seconds in [205, 210, 215] {
            lives.note(&group, sign.clone(), at(seconds));
        }
        assert_eq!(lives.of(&group, "p", at(215)), Life::Dead);
        lives.note(&group, sign.clone(), at(100));
        assert_eq!(lives.of(&group, "p", at(100)), Life::NotYet, "the clock was set back");
    }

    #[test]
    fn who_is_asked_about_is_kept_in_a_crowd() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Lives, Group) = (Lives::default(), "g".parse().unwrap());
        let sign = stamp(folder.path(), "1");
        lives.expect(&group, "waits", at(0));
        let crowd = |wave: usize| (0..2_000).map(|number| (format!("{wave}-{number}"), sign)).collect::<Vec<_>>();
        for (wave, seconds) in (0..60).step_by(5).enumerate() {
            lives.note(&group, crowd(wave), at(u64::try_from(seconds).unwrap()));
        }
        assert_eq!(lives.expected(&group), ["waits"]);
        assert_eq!(lives.of(&group, "waits", at(56)), Life::Dead);
        let kept = lives.lock()[&group].processes.len();
        assert!(kept < 16_000, "{kept}");
    }

    #[test]
    fn what_nobody_changes_for_an_hour_is_tidied_away() {
        let folder = tempfile::tempdir().unwrap();
        let (lives, group): (Lives, Group) = (Lives::default(), "g".parse().unwrap());
        let sign = vec![("p".to_owned(), stamp(folder.path(), "1"))];
        let mut tidied = Vec::new();
        for seconds in (0..3_700).step_by(5) {
            tidied.extend(lives.note(&group, sign.clone(), at(seconds)));
        }
        assert_eq!(tidied.first().map(String::as_str), Some("p"));
    }
}
