//! What the channel has to remember over a restart: when each person last wrote, which ids are one
//! person, and which messages were dealt with. Kept in `state/channels/whatsapp.json`, 30 days.
//!
//! It decides nothing about asks. Several changes at once share one write.

use super::coalesced_file::CoalescedFile;
use crate::ipc::wire::{time_from, time_text};
use crate::sabotage::on;
use askd_core::{AskId, Time};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// The file's name below `state/channels/`.
const FILE: &str = "whatsapp.json";
/// The format that is written. What is newer is not touched.
const VERSION: u32 = 1;
/// How long a person's message leaves the chat open (Cloud API: 24 hours).
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// So much before its end a chat counts as closed: what is sent has to arrive within the window.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long ids are kept. Webhooks are repeated for up to 7 days.
pub(super) const KEEP: Duration = Duration::from_secs(30 * 86_400);

/// How long the log keeps quiet about a stranger that it has mentioned.
const DAY: Duration = Duration::from_secs(86_400);
/// How many strangers are remembered.
const STRANGERS: usize = 100;

/// What the channel remembers of one number of the business.
#[derive(Debug, Default, Clone)]
struct Kept {
    /// By id of a person.
    last_inbound: BTreeMap<String, Time>,
    /// Business-scoped ids, other spellings and later ids, each mapped to another id of the same person.
    same: BTreeMap<String, String>,
    /// Messages of people that were dealt with.
    seen: BTreeMap<String, Time>,
    /// Messages of ours besides questions, and the ask they are about.
    about: BTreeMap<String, (AskId, Time)>,
    /// Routes of asks whose closing line failed after it was taken.
    unclosed: BTreeMap<(AskId, usize), Unclosed>,
    /// The people who were told that they wrote before a question was asked: `person ask question`.
    told_before: BTreeMap<String, Time>,
    /// What people have been asked to confirm, by one of their ids.
    confirmations: BTreeMap<String, Confirmation>,
    /// How far the platform's clock is ahead of ours, in milliseconds, as last seen.
    ahead: i64,
}

/// Words that may have been written before their question was displayed: one `1` makes them count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confirmation {
    /// The id of the ask.
    pub(super) ask: String,
    pub(super) question: usize,
    pub(super) said: String,
    /// Tells our requests for confirmation apart.
    #[serde(default)]
    pub(super) nth: u8,
    /// The id of our message that asks for the confirmation, once it has left.
    #[serde(default)]
    pub(super) note: Option<String>,
    /// Only a message received later than this confirms it, in milliseconds by the platform's clock.
    #[serde(default)]
    pub(super) since: Option<i64>,
    /// When we asked for the confirmation, in milliseconds by our clock.
    pub(super) at: i64,
}

/// A closing line that failed late.
#[derive(Debug, Clone, Copy)]
struct Unclosed {
    /// When that was told.
    at: Time,
    /// It is still to be said.
    owed: bool,
    /// It was sent again although nothing hindered it.
    again: bool,
}

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    numbers: BTreeMap<String, NumberShape>,
}

#[derive(Serialize, Deserialize, Default, Clone)]
#[serde(default)]
struct NumberShape {
    last_inbound: BTreeMap<String, String>,
    same: BTreeMap<String, String>,
    seen: BTreeMap<String, String>,
    about: BTreeMap<String, (String, String)>,
    unclosed: BTreeMap<String, UnclosedShape>,
    told_before: BTreeMap<String, String>,
    confirmations: BTreeMap<String, Confirmation>,
    clock_ahead_ms: i64,
}

#[derive(Serialize, Deserialize, Clone)]
struct UnclosedShape {
    at: String,
    owed: bool,
    again: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Contacts {
    file: CoalescedFile,
    number: String,
    kept: Mutex<Kept>,
    /// Of other numbers, as they were found.
    others: BTreeMap<String, NumberShape>,
    /// Unknown people, and when they wrote.
    strangers: Mutex<BTreeMap<String, Time>>,
    /// Somebody wrote.
    inbound: watch::Sender<u64>,
}

impl std::fmt::Debug for NumberShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NumberShape").finish_non_exhaustive()
    }
}

impl Contacts {
    /// Reads what is there. A damaged file is moved aside; one of a newer askd stops the start.
    pub(super) fn open(state: &Path, number: &str) -> io::Result<Self> {
        let file = CoalescedFile::open(state, FILE)?;
        let mut numbers = match file.read()?.map(|bytes| serde_json::from_slice::<Shape>(&bytes)) {
            Some(Ok(shape)) if shape.v > VERSION => return Err(file.too_new(shape.v, VERSION)),
            Some(Ok(shape)) => shape.numbers,
            Some(Err(error)) => {
                file.set_aside(&error)?;
                BTreeMap::new()
            }
            None => BTreeMap::new(),
        };
        let kept = Kept::of(numbers.remove(number).unwrap_or_default());
        Ok(Self {
            file,
            number: number.to_owned(),
            kept: Mutex::new(kept),
            others: numbers,
            strangers: Mutex::default(),
            inbound: watch::Sender::new(0),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// All ids of the person of these.
    pub(super) fn person(&self, ids: &[String]) -> Vec<String> {
        let kept = self.kept();
        let mut all: BTreeSet<String> = ids.iter().cloned().collect();
        loop {
            let known = |(one, other): (&String, &String)| [one.clone(), other.clone()];
            let next = kept.same.iter().filter(|(one, other)| all.contains(*one) != all.contains(*other));
            let next: Vec<String> = next.flat_map(known).collect();
            if next.is_empty() {
                return all.into_iter().collect();
            }
            all.extend(next);
        }
    }

    /// One name for the person of that id, whichever of their ids it is.
    pub(super) fn one_name(&self, id: &str) -> String {
        let kept = self.kept();
        let mut name = id;
        // At most as many steps as there are ids, because a circle has no end.
        for _ in 0..kept.same.len() {
            let Some(next) = kept.same.get(name).filter(|next| *next != id) else { break };
            name = next;
        }
        name.to_owned()
    }

    /// Learns that two ids belong to one person; other ids may already point to `known`. `true` if this is new.
    pub(super) fn learn(&self, known: &str, other: &str) -> bool {
        let ids = self.person(&[known.to_owned()]);
        if ids.iter().any(|id| id == other) {
            return false;
        }
        let name = self.one_name(known);
        // `other` may already have a name: that name, too, now leads to this one.
        let others = self.one_name(other);
        self.kept().same.insert(others, name);
        self.file.changed();
        true
    }

    /// Somebody wrote at that time.
    pub(super) fn wrote(&self, ids: &[String], at: Time) {
        {
            let mut kept = self.kept();
            for id in ids {
                let last = kept.last_inbound.entry(id.clone()).or_insert(at);
                *last = (*last).max(at);
            }
        }
        self.file.changed();
        self.inbound.send_modify(|count| *count += 1);
    }

    /// The platform says that the chat is closed, whatever we thought; if nobody wrote since `at`.
    pub(super) fn lapsed(&self, id: &str, at: Time) {
        for id in self.person(&[id.to_owned()]) {
            let mut kept = self.kept();
            if kept.last_inbound.get(&id).is_some_and(|last| *last <= at) {
                kept.last_inbound.remove(&id);
            }
        }
        self.file.changed();
    }

    /// Whether the person of that id may be written to freely.
    pub(super) fn is_open(&self, id: &str, now: Time) -> bool {
        let ids = self.person(&[id.to_owned()]);
        let kept = self.kept();
        ids.iter().filter_map(|id| kept.last_inbound.get(id)).any(|last| now + MARGIN < *last + WINDOW)
    }

    /// Told whenever somebody writes.
    pub(super) fn inbound(&self) -> watch::Receiver<u64> {
        self.inbound.subscribe()
    }

    /// Whether that message was dealt with.
    pub(super) fn has_seen(&self, message: &str) -> bool {
        self.kept().seen.contains_key(message)
    }

    /// That message was dealt with. Counts once [`Self::save`] has returned.
    pub(super) fn saw(&self, message: &str, now: Time) {
        if on("noseen") {
            return;
        }
        self.kept().seen.insert(message.to_owned(), now);
        self.file.changed();
    }

    /// A message of ours is about that ask: kept with the next write.
    pub(super) fn about(&self, message: &str, ask: AskId, now: Time) {
        self.kept().about.insert(message.to_owned(), (ask, now));
        self.file.changed();
    }

    /// The ask that a message of ours was about.
    pub(super) fn subject(&self, message: &str) -> Option<AskId> {
        self.kept().about.get(message).map(|(ask, _)| *ask)
    }

    /// Whether to tell that person that they wrote before the question was asked. `true` only once.
    pub(super) fn tell_before(&self, person: &str, ask: AskId, question: usize, now: Time) -> bool {
        let new = self.kept().told_before.insert(format!("{person} {ask} {question}"), now).is_none();
        self.file.changed();
        new
    }

    /// Notes that a person is asked to confirm what they said.
    pub(super) fn ask_to_confirm(&self, person: &str, confirmation: Confirmation) {
        self.kept().confirmations.insert(person.to_owned(), confirmation);
        self.file.changed();
    }

    /// What that person has been asked to confirm.
    pub(super) fn to_confirm(&self, person: &str) -> Option<Confirmation> {
        self.kept().confirmations.get(person).cloned()
    }

    /// Notes that the person has nothing to confirm any more.
    pub(super) fn confirmed(&self, person: &str) {
        if self.kept().confirmations.remove(person).is_some() {
            self.file.changed();
        }
    }

    /// Notes that our request for confirmation had left by then; `told`: the platform itself says so.
    pub(super) fn confirmation_left(&self, person: &str, nth: u8, note: &str, by: Time, told: bool) {
        if let Some(asked) = self.kept().confirmations.get_mut(person).filter(|asked| asked.nth == nth) {
            asked.note = Some(note.to_owned());
            if told || asked.since.is_none() {
                asked.since = Some(by.as_millis());
            }
        }
        self.file.changed();
    }

    /// Learns from an answer of the platform: it was dated `date` (in whole seconds) when our clock showed `now`.
    pub(super) fn compare_clocks(&self, date: Time, now: Time) {
        self.kept().ahead = date.as_millis() + 500 - now.as_millis();
    }

    /// How much the two clocks differ, as last seen.
    pub(super) fn clocks_differ_by(&self) -> Duration {
        Duration::from_millis(self.kept().ahead.unsigned_abs())
    }

    /// Whether that stranger has not written within a day. Only the most recent strangers are remembered.
    pub(super) fn is_new_today(&self, stranger: &str, now: Time) -> bool {
        let mut strangers = self.strangers.lock();
        strangers.retain(|_, at| now < *at + DAY);
        if strangers.len() >= STRANGERS || strangers.contains_key(stranger) {
            return false;
        }
        strangers.insert(stranger.to_owned(), now);
        true
    }

    /// Converts a time of our clock to the platform's, as far as the difference is known.
    pub(super) fn by_their_clock(&self, time: Time) -> Time {
        Time::from_millis(time.as_millis().saturating_add(self.kept().ahead))
    }

    /// A closing line failed after it was taken. `true`: it is to be said again; `false`: it is about to be;
    /// `None`: it was, in vain. Counts once [`Self::save`] has returned.
    pub(super) fn unclosed(&self, ask: AskId, route: usize, window: bool, at: Time) -> Option<bool> {
        let mut kept = self.kept();
        let known = kept.unclosed.entry((ask, route)).or_insert(Unclosed { at, owed: false, again: false });
        let again = match known {
            Unclosed { owed: true, .. } => Some(false),
            // Who has to write first may have to do so more than once.
            Unclosed { again: true, .. } if !window => None,
            _ => {
                *known = Unclosed { at, owed: true, again: known.again || !window };
                Some(true)
            }
        };
        self.file.changed();
        again
    }

    /// It was said again, or never will be.
    pub(super) fn said(&self, ask: AskId, route: usize) {
        if let Some(unclosed) = self.kept().unclosed.get_mut(&(ask, route)) {
            unclosed.owed = false;
        }
        self.file.changed();
    }

    /// Closing lines that are still to be said again.
    pub(super) fn owed(&self) -> Vec<(AskId, usize)> {
        self.kept().unclosed.iter().filter(|(_, unclosed)| unclosed.owed).map(|(key, _)| *key).collect()
    }

    /// Puts everything on stable storage; returns at once if somebody else just did.
    pub(super) async fn save(&self, now: Time) -> io::Result<()> {
        let write = || {
            let mut kept = self.kept();
            kept.drop_old(now - KEEP);
            let mut numbers = self.others.clone();
            numbers.insert(self.number.clone(), kept.shape());
            move || serde_json::to_vec(&Shape { v: VERSION, numbers })
        };
        self.file.save(write).await
    }
}

impl Kept {
    fn of(shape: NumberShape) -> Self {
        let times = |texts: BTreeMap<String, String>| {
            texts.into_iter().filter_map(|(key, text)| Some((key, time_from(&text)?))).collect()
        };
        let about = shape
            .about
            .into_iter()
            .filter_map(|(message, (ask, at))| Some((message, (ask.parse().ok()?, time_from(&at)?))));
        let unclosed = shape.unclosed.into_iter().filter_map(|(key, UnclosedShape { at, owed, again })| {
            let (ask, route) = key.split_once(':')?;
            Some(((ask.parse().ok()?, route.parse().ok()?), Unclosed { at: time_from(&at)?, owed, again }))
        });
        Self {
            last_inbound: times(shape.last_inbound),
            same: shape.same,
            seen: times(shape.seen),
            about: about.collect(),
            unclosed: unclosed.collect(),
            told_before: times(shape.told_before),
            confirmations: shape.confirmations,
            ahead: shape.clock_ahead_ms,
        }
    }

    fn shape(&self) -> NumberShape {
        let texts = |times: &BTreeMap<String, Time>| times.iter().map(|(k, at)| (k.clone(), time_text(*at))).collect();
        let about = self.about.iter().map(|(k, (ask, at))| (k.clone(), (ask.to_string(), time_text(*at))));
        let unclosed = self.unclosed.iter().map(|((ask, route), Unclosed { at, owed, again })| {
            (format!("{ask}:{route}"), UnclosedShape { at: time_text(*at), owed: *owed, again: *again })
        });
        NumberShape {
            last_inbound: texts(&self.last_inbound),
            same: self.same.clone(),
            seen: texts(&self.seen),
            about: about.collect(),
            unclosed: unclosed.collect(),
            told_before: texts(&self.told_before),
            confirmations: self.confirmations.clone(),
            clock_ahead_ms: self.ahead,
        }
    }

    fn drop_old(&mut self, before: Time) {
        self.last_inbound.retain(|_, at| *at >= before);
        self.seen.retain(|_, at| *at >= before);
        self.about.retain(|_, (_, at)| *at >= before);
        self.unclosed.retain(|_, unclosed| unclosed.at >= before);
        self.told_before.retain(|_, at| *at >= before);
        self.confirmations.retain(|_, asked| Time::from_millis(asked.at) >= before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::files::{Access, Dir};

    const NOW: Time = Time::from_millis(1_790_000_000_000);

    #[tokio::test]
    async fn it_is_the_same_after_a_restart_and_forgets_after_30_days() {
        let temp = tempfile::tempdir().unwrap();
        let contacts = Contacts::open(temp.path(), "106").unwrap();
        contacts.learn("15551234567", "US.1");
        contacts.wrote(&["US.1".to_owned()], NOW);
        contacts.saw("wamid.old", NOW - KEEP - Duration::from_secs(1));
        contacts.saw("wamid.new", NOW);
        let ask = AskId::from_bits(7);
        assert_eq!(contacts.unclosed(ask, 1, false, NOW), Some(true));
        contacts.save(NOW).await.unwrap();
        let again = Contacts::open(temp.path(), "106").unwrap();
        assert!(again.has_seen("wamid.new") && !again.has_seen("wamid.old"));
        assert_eq!(again.owed(), [(ask, 1)]);
        assert_eq!(again.unclosed(ask, 1, false, NOW), Some(false), "it is owed already");
        again.said(ask, 1);
        assert_eq!(again.unclosed(ask, 1, false, NOW), None, "it was said again, in vain");
        assert_eq!(again.unclosed(ask, 1, true, NOW), Some(true), "that one waits for the person");
        assert!(again.is_open("15551234567", NOW), "known by the other id");
        assert!(
            !Contacts::open(temp.path(), "107").unwrap().is_open("15551234567", NOW),
            "another number, another window"
        );
    }

    #[test]
    fn a_window_closes_a_little_early_and_when_the_platform_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let contacts = Contacts::open(temp.path(), "106").unwrap();
        assert!(!contacts.is_open("1", NOW));
        contacts.wrote(&["1".to_owned()], NOW);
        contacts.wrote(&["1".to_owned()], NOW - Duration::from_secs(500));
        assert!(contacts.is_open("1", NOW + WINDOW - MARGIN - Duration::from_secs(1)));
        assert!(!contacts.is_open("1", NOW + WINDOW - MARGIN));
        contacts.lapsed("1", NOW - Duration::from_secs(1));
        assert!(contacts.is_open("1", NOW), "somebody wrote since");
        contacts.lapsed("1", NOW);
        assert!(!contacts.is_open("1", NOW));
    }

    #[test]
    fn what_is_damaged_is_moved_aside_and_what_is_newer_stays() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Dir::open(temp.path()).unwrap().ensure("channels", Access::PRIVATE).unwrap();
        folder.create(FILE, b"{", Access::PRIVATE).unwrap();
        assert!(Contacts::open(temp.path(), "106").is_ok());
        assert!(folder.stat("whatsapp.json.corrupt").unwrap().is_some());
        folder.create(FILE, br#"{"v":9,"numbers":{}}"#, Access::PRIVATE).unwrap();
        assert!(Contacts::open(temp.path(), "106").is_err());
    }
}
