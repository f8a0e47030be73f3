//! What is known of the files in one group's `tasks/`: which were read and left alone, which requests have to wait,
//! and how far the listing has come. A machine without I/O. It is bounded, so a folder full of odd files costs
//! little; a file that it forgets is read once more.

use crate::clock::Moment;
use crate::host::backoff::Backoff;
use crate::ipc::files::{Listing, Stamp};
use askd_core::RequestId;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Files that are remembered, at about 20 bytes each.
const MOST_FILES: usize = 400_000;
/// Cancels that wait for their request to be found. Others are found again by the next pass.
const MOST_CANCELS: usize = 1_000;
/// The first and the longest pause before a waiting request is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(1));

/// What a file turned out to be when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A request that is cut off.
    CutOff,
    /// It is empty, or cut off before its `type`.
    Untyped,
    /// It does not end early but is not a request: it is not JSON, or JSON without a `type`.
    Garbled,
    /// Not ours, as long as it is not changed.
    NotOurs,
}

/// A file that has not changed since it was read, and that is left alone.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Since when, in seconds.
    since: u32,
    /// The last pass that met it.
    pass: u16,
    verdict: Verdict,
}

/// A request that has to wait.
#[derive(Debug)]
struct Held {
    until: Moment,
    again: Backoff,
}

/// A cancel of a request that has not been found yet.
#[derive(Debug)]
struct Unmatched {
    request_id: RequestId,
    /// How many passes had begun when the cancel was found.
    begun: u64,
}

/// What is known of one `tasks/`.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where the last look stopped, if that was not the end.
    pub(super) listing: Option<Listing>,
    begun: u64,
    ended: u64,
    /// The last pass that met what could still become a request.
    cut_off: u64,
    hash: RandomState,
    files: HashMap<u64, Seen>,
    held: HashMap<String, Held>,
    /// Requests that stay claimed while they wait for who gets an outcome: their claimed names, and what to echo.
    waiting: HashMap<RequestId, (String, Option<String>)>,
    unmatched: HashMap<String, Unmatched>,
}

impl Known {
    pub(super) fn begin_pass(&mut self) {
        self.begun += 1;
    }

    /// Ends a pass: files that it did not meet are gone.
    pub(super) fn end_pass(&mut self) {
        self.ended = self.begun;
        let pass = self.pass();
        self.files.retain(|_, seen| seen.pass == pass);
        if self.files.len() < self.files.capacity() / 8 {
            self.files.shrink_to_fit();
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only compared with the one before it")]
    fn pass(&self) -> u16 {
        self.begun as u16
    }

    /// Whether listing the folder again can show more, although nothing is new in it.
    pub(super) fn is_unsettled(&self) -> bool {
        self.listing.is_some() || self.cut_off == self.begun || !self.unmatched.is_empty()
    }

    fn key(&self, name: &str, stamp: &Stamp) -> u64 {
        self.hash.hash_one((name, stamp))
    }

    /// What a file was when it was last read, if it has not changed since, and for how long it has been so.
    pub(super) fn verdict(&mut self, name: &str, stamp: &Stamp, now: Moment) -> Option<(Verdict, Duration)> {
        let (key, pass) = (self.key(name, stamp), self.pass());
        let seen = self.files.get_mut(&key)?;
        seen.pass = pass;
        if seen.verdict != Verdict::NotOurs {
            self.cut_off = self.begun;
        }
        let since = Moment::default() + Duration::from_secs(seen.since.into());
        Some((seen.verdict, now.since(since)))
    }

    /// Remembers what a file is. If it was known before, its time counts from then.
    pub(super) fn remember(&mut self, name: &str, stamp: &Stamp, verdict: Verdict, now: Moment) {
        let (key, pass) = (self.key(name, stamp), self.pass());
        if verdict != Verdict::NotOurs {
            self.cut_off = self.begun;
        }
        let since = u32::try_from(now.since(Moment::default()).as_secs()).unwrap_or(u32::MAX);
        if self.files.len() < MOST_FILES || self.files.contains_key(&key) {
            self.files.entry(key).or_insert(Seen { since, pass, verdict }).verdict = verdict;
        }
    }

    /// Whether a request has to wait now.
    pub(super) fn is_held(&self, name: &str, now: Moment) -> bool {
        self.held.get(name).is_some_and(|held| held.until > now)
    }

    /// Lets a request wait, longer each time. Returns for how long.
    pub(super) fn hold(&mut self, name: &str, now: Moment) -> Duration {
        let new = || Held { until: now, again: Backoff::new(PAUSE.0, PAUSE.1) };
        let held = self.held.entry(name.to_owned()).or_insert_with(new);
        let pause = held.again.pause();
        held.until = now + pause;
        pause
    }

    /// A request stays claimed under this name until it is clear who gets the outcome.
    pub(super) fn waits(&mut self, request_id: RequestId, claimed: &str, op_code: Option<String>) {
        self.waiting.insert(request_id, (claimed.to_owned(), op_code));
    }

    /// The claimed name of a request that waits like this, and what to echo.
    pub(super) fn waiting(&self, request_id: &RequestId) -> Option<(String, Option<String>)> {
        self.waiting.get(request_id).cloned()
    }

    /// Forgets a request that was taken or is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.waiting.retain(|_, (claimed, _)| claimed != name);
        self.held.remove(name);
        self.unmatched.remove(name);
    }

    /// The requests that have waited long enough, and the cancels whose request was not found yet.
    pub(super) fn due(&self, now: Moment) -> Vec<String> {
        let held = self.held.iter().filter(|(_, held)| held.until <= now).map(|(name, _)| name);
        held.chain(self.unmatched.keys()).cloned().collect()
    }

    /// Whether the request that a cancel means does not exist: a whole pass that began after the cancel was found has
    /// not met it, and no waiting or cut-off file could become it.
    pub(super) fn is_nowhere(&mut self, cancel: &str, request_id: &RequestId) -> bool {
        let Some(known) = self.unmatched.get(cancel) else {
            if self.unmatched.len() < MOST_CANCELS {
                let met = Unmatched { request_id: request_id.clone(), begun: self.begun };
                self.unmatched.insert(cancel.to_owned(), met);
            }
            return false;
        };
        self.ended > known.begun && self.cut_off < self.ended && self.held.is_empty()
    }

    /// The cancels that wait for this request.
    pub(super) fn cancels_of(&self, request_id: &RequestId) -> Vec<String> {
        let of = self.unmatched.iter().filter(|(_, cancel)| cancel.request_id == *request_id);
        of.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use askd_core::Time;

    fn start() -> Moment {
        Clock::by_hand(Time::from_millis(1_760_000_000_000)).0.monotonic()
    }

    fn stamp(text: &str) -> Stamp {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        #[expect(clippy::disallowed_methods, reason = "a file of the test's own")]
        std::fs::write(&file, text).unwrap();
        Stamp::at(&file).unwrap()
    }

    #[test]
    fn a_cancel_is_in_vain_only_after_a_whole_pass_that_began_after_it() {
        let mut known = Known::default();
        let id: RequestId = "r1".parse().unwrap();
        known.begin_pass();
        assert!(!known.is_nowhere("c.json", &id), "met in the middle of a pass");
        known.end_pass();
        assert!(!known.is_nowhere("c.json", &id), "what that pass had gone by may be the request");
        known.begin_pass();
        known.remember("half.json", &stamp("{"), Verdict::CutOff, start());
        known.end_pass();
        assert!(!known.is_nowhere("c.json", &id), "the file that is cut off may be it");
        known.begin_pass();
        assert!(!known.is_nowhere("c.json", &id));
        known.end_pass();
        assert!(known.is_nowhere("c.json", &id));
        known.hold("r1.json", start());
        assert!(!known.is_nowhere("c.json", &id), "what has to wait may be it");
        assert_eq!(known.cancels_of(&id), ["c.json"]);
    }

    #[test]
    fn a_file_is_known_as_long_as_it_stays_as_it_is() {
        let mut known = Known::default();
        let (old, new) = (stamp("1"), stamp("2"));
        known.begin_pass();
        known.remember("a.json", &old, Verdict::Untyped, start());
        known.end_pass();
        let later = start() + Duration::from_secs(60);
        assert_eq!(known.verdict("a.json", &new, later), None, "it was changed");
        assert_eq!(known.verdict("b.json", &old, later), None, "another one");
        known.begin_pass();
        assert_eq!(known.verdict("a.json", &old, later), Some((Verdict::Untyped, Duration::from_secs(60))));
        known.end_pass();
        known.begin_pass();
        known.end_pass();
        assert_eq!(known.verdict("a.json", &old, later), None, "a pass did not meet it");
    }

    #[test]
    fn a_request_that_has_to_wait_is_tried_ever_more_rarely() {
        let mut known = Known::default();
        let pauses: Vec<u128> = (0..5).map(|_| known.hold("r.json", start()).as_millis()).collect();
        assert_eq!(pauses, [300, 600, 1000, 1000, 1000]);
        let soon = start() + Duration::from_millis(999);
        assert!(known.is_held("r.json", soon) && known.due(soon).is_empty());
        let then = start() + Duration::from_secs(1);
        assert!(!known.is_held("r.json", then));
        assert_eq!(known.due(then), ["r.json"]);
        known.forget("r.json");
        assert_eq!(known.hold("r.json", start()).as_millis(), 300);
    }
}
