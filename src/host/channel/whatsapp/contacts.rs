//! What the channel has to remember of people over a restart: when each of them last wrote, which ids are one person,
//! and what people have to be told yet. Kept in `state/channels/whatsapp.json` for 30 days; single messages are in [`super::messages`].
//! It decides nothing about asks.

use super::callback_data::CallbackData;
use super::confirmations::{Confirmation, Confirmations};
use super::identities::{Moves, Same, is_user_id};
use super::messages::{About, Messages};
use super::owed::{Owed, Unclosed};
use super::state_file::StateFile;
use super::together::Together;
use crate::clock::Clock;
use crate::host::keyed_lock::KeyedLock;
use crate::host::store::Documents;
use crate::sabotage::on;
use askd_core::{AskId, Left, Time};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The file's name below `state/channels/`.
pub(in crate::host) const FILE: &str = "channels/whatsapp.json";
/// The customer service window: how long after a person's message they may be written to freely.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// A window counts as closed this long before its end: what is sent has to arrive within it.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long everything is kept. Meta repeats webhooks for up to 7 days.
pub(super) const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// The log mentions a stranger once in this time.
const DAY: Duration = Duration::from_secs(86_400);
/// How many strangers are remembered.
const STRANGERS: usize = 100;
/// How exact it is what the replies say of the platform's clock, in milliseconds.
const CLOCK_IS_EXACT: u64 = 1_000;
/// For how long the leader can learn that a status has named a closing message. After that, nobody waits for it.
const HEARD: Duration = Duration::from_secs(600);
/// A message has certainly left this long after the date of the reply to its call, which is in whole seconds.
const AFTER_DATE: Duration = Duration::from_secs(1);
/// The same without a reply: the two clocks may differ, and the call took a while to arrive.
const AFTER_CALL: Duration = Duration::from_secs(5);

/// What the channel remembers of one number of the business.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Known {
    /// When each person last wrote, by each of their ids.
    last_inbound: BTreeMap<String, Time>,
    same: Same,
    moved: Moves,
    /// Single messages, as earlier versions noted them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<String, Time>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    about: BTreeMap<String, (About, Time)>,
    /// Closing messages that failed after they had been accepted, as `ask:route`.
    pub(super) unclosed: BTreeMap<String, Unclosed>,
    /// The people who were told that they wrote before a question was asked, as `person ask question`.
    told_before: BTreeMap<String, Time>,
    confirmations: Confirmations,
    /// What people have to be told yet.
    pub(super) notes: Vec<Owed>,
    /// The closing messages that statuses told of lately, at a daemon that does not send them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) closings: BTreeMap<String, Time>,
    /// How far the platform's clock is ahead of ours, in milliseconds, as last seen.
    clock_ahead_ms: i64,
}

/// When the person with this id last wrote to this business phone number, as far as the daemon remembers.
pub(in crate::host) fn last_wrote(remembered: &Value, number: &str, id: &str) -> Option<Time> {
    let known: Known = serde_json::from_value(remembered["numbers"][number].clone()).ok()?;
    known.same.all(&[id.to_owned()]).iter().filter_map(|id| known.last_inbound.get(id)).max().copied()
}

/// See the module.
#[derive(Debug)]
pub(super) struct Contacts {
    pub(super) file: StateFile<Known>,
    pub(super) messages: Messages,
    clock: Clock,
    /// With other daemons, if there may be any.
    pub(super) together: Option<Together>,
    /// Held by person while what is known of them is changed.
    pub(super) alone: KeyedLock<String>,
    /// The notes that are on their way.
    pub(super) in_hand: Mutex<HashSet<String>>,
    /// How far the platform's clock was ahead when the other daemons were told.
    clock_told: AtomicI64,
    /// Unknown people, and when they wrote.
    strangers: Mutex<BTreeMap<String, Time>>,
    /// Changes whenever a person writes.
    pub(super) inbound: watch::Sender<()>,
    /// The number of the next request for confirmation. A start begins anywhere, because statuses of earlier requests
    /// may still come.
    next_request: AtomicU8,
}

impl Contacts {
    /// Reads what an earlier run has remembered.
    pub(super) fn open(documents: Arc<dyn Documents>, number: &str, clock: Clock) -> io::Result<Self> {
        let together = documents.memory().map(|memory| Together::new(memory, number, clock.clone()));
        // Beside the leader, what its documents have is its alone.
        let (messages, file) = if together.as_ref().is_none_or(Together::leads) {
            (Messages::open(&documents, number)?, StateFile::open(documents, FILE, number)?)
        } else {
            (Messages::new(Arc::clone(&documents), number), StateFile::new(documents, FILE, number))
        };
        let next_request = AtomicU8::new(clock.now().as_millis().to_le_bytes()[1]);
        let contacts = Self {
            file,
            messages,
            clock,
            together,
            alone: KeyedLock::default(),
            in_hand: Mutex::default(),
            clock_told: AtomicI64::new(0),
            strangers: Mutex::default(),
            inbound: watch::Sender::new(()),
            next_request,
        };
        contacts.begin()?;
        Ok(contacts)
    }

    /// A number for a request for confirmation that no recent one has: none of that person's, whichever daemon made it.
    pub(super) fn number_request(&self, person: &str) -> u8 {
        let theirs = self.to_confirm(person);
        loop {
            let nth = self.next_request.fetch_add(1, Ordering::Relaxed);
            if theirs.len() > usize::from(u8::MAX) || theirs.iter().all(|other| other.nth != nth) {
                return nth;
            }
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// All ids of the person with these.
    pub(super) fn all_ids(&self, ids: &[String]) -> Vec<String> {
        self.file.get().same.all(ids)
    }

    /// All ids of the sender of a message, by those that it names, a number first; none if the person had left the first by
    /// then: a user id may be told with the number that it had before.
    pub(super) fn ids_of_sender(&self, named: &[String], received: Option<Time>) -> Vec<String> {
        let known = self.file.get();
        let is_left = |id: &&String| known.moved.had_left(id, received);
        let theirs = named.iter().filter(|id| !is_left(id)).filter(|_| named.first().is_none_or(|id| !is_left(&id)));
        known.same.all(&theirs.cloned().collect::<Vec<_>>())
    }

    /// The person with the old ids has these others instead, since that time.
    pub(super) fn moved(&self, before: &[String], after: &[String], at: Time) {
        self.file.change().moved.add(before, after, at);
    }

    /// The id under which the person with that id is reached now.
    pub(super) fn current(&self, id: &str) -> String {
        self.file.get().moved.current(id).to_owned()
    }

    /// One name for the person with that id: the same for each of their ids.
    pub(super) fn person(&self, id: &str) -> String {
        self.file.get().same.name(id)
    }

    /// Learns that two ids belong to one person; other ids may already point to `known`. `true` if this is new.
    pub(super) fn learn(&self, known: &str, other: &str) -> bool {
        if self.all_ids(&[known.to_owned()]).iter().any(|id| id == other) {
            return false;
        }
        // `other` may already point to a name: that name now leads to this one, too. If a number and a user id belong to one person, the
        // number is the name. So two daemons that learn this choose the same name.
        let (from, to) = (self.person(other), self.person(known));
        let (from, to) = if is_user_id(&to) && !is_user_id(&from) { (to, from) } else { (from, to) };
        let mut known = self.file.change();
        known.confirmations.follow(&from, &to);
        known.same.join(from, to);
        true
    }

    /// The person with these ids wrote at that time.
    pub(super) fn wrote(&self, ids: &[String], at: Time) {
        {
            let mut known = self.file.change();
            for id in ids {
                let last = known.last_inbound.entry(id.clone()).or_insert(at);
                *last = (*last).max(at);
            }
        }
        self.inbound.send_replace(());
    }

    /// Whether a message of the person with these ids was dealt with that was written then or later.
    pub(super) fn has_written_since(&self, ids: &[String], at: Time) -> bool {
        let known = self.file.get();
        ids.iter().filter_map(|id| known.last_inbound.get(id)).any(|last| *last >= at)
    }

    /// The platform said at that time that the window is closed, whatever we thought.
    pub(super) fn window_closed(&self, id: &str, at: Time) {
        let ids = self.all_ids(&[id.to_owned()]);
        self.file.change().last_inbound.retain(|id, last| !ids.contains(id) || *last > at);
    }

    /// Whether the person with that id may be written to freely.
    pub(super) fn window_is_open(&self, id: &str) -> bool {
        let (ids, now) = (self.all_ids(&[id.to_owned()]), self.now());
        let known = self.file.get();
        ids.iter().filter_map(|id| known.last_inbound.get(id)).any(|last| now + MARGIN < *last + WINDOW)
    }

    /// Waits until the window is open; `false` if it is not open by `until`.
    pub(super) async fn window_opens(&self, id: &str, until: Time) -> bool {
        let mut inbound = self.inbound.subscribe();
        let opens = async {
            while !self.window_is_open(id) {
                if inbound.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        // The wait is measured once, because the time of day may be set meanwhile.
        self.clock.timeout(until.since(self.now()), opens).await.unwrap_or(false)
    }

    /// Whether no other daemon knows them.
    pub(super) fn are_its_own(&self) -> bool {
        self.together.is_none()
    }

    /// Whether that message was dealt with.
    pub(super) fn has_seen(&self, message: &str) -> bool {
        self.messages.has_seen(message) || self.file.get().seen.contains_key(message)
    }

    /// That message was dealt with. This counts once [`Self::save`] has returned.
    pub(super) fn saw(&self, message: &str) {
        if !on("noseen") {
            self.messages.saw(message, self.now());
        }
    }

    /// Learns what our message is about. This counts once [`Self::save`] has returned.
    pub(super) fn is_about(&self, message: &str, about: About) {
        if self.about(message) != Some(about) {
            self.messages.is_about(message, about, self.now());
        }
    }

    /// What our message is about, if it is one and asks no question.
    pub(super) fn about(&self, message: &str) -> Option<About> {
        self.messages.about(message).or_else(|| self.file.get().about.get(message).map(|(about, _)| *about))
    }

    /// Whether to tell that person that they wrote before the question was asked. `true` only once.
    pub(super) fn tell_before(&self, person: &str, ask: AskId, question: usize) -> bool {
        self.file.change().told_before.insert(format!("{person} {ask} {question}"), self.now()).is_none()
    }

    /// Whether to tell that person how they can answer what has timed out. `true` only once.
    pub(super) fn tell_late(&self, person: &str, ask: AskId) -> bool {
        self.file.change().told_before.insert(format!("{person} {ask} late"), self.now()).is_none()
    }

    /// The person is asked to confirm what they said.
    pub(super) fn ask_to_confirm(&self, person: &str, confirmation: Confirmation) {
        self.file.change().confirmations.ask(person, confirmation);
    }

    /// What that person has been asked to confirm: first what a `1` is most likely meant for.
    pub(super) fn to_confirm(&self, person: &str) -> Vec<Confirmation> {
        self.file.get().confirmations.of(person)
    }

    /// The person has nothing to confirm about that ask any more.
    pub(super) fn confirmed(&self, person: &str, ask: AskId) {
        self.file.change().confirmations.end(person, ask);
    }

    /// A message to that person is about to leave. `true`: this has to be stored, because something is to be confirmed.
    pub(super) fn leaves(&self, person: &str, message: Option<&CallbackData>) -> bool {
        let changed = self.file.get().confirmations.leaves(person, message);
        if changed {
            drop(self.file.change());
        }
        changed
    }

    /// Our request for confirmation had left by then; `told`: the platform itself says so.
    pub(super) fn confirmation_left(&self, person: &str, nth: u8, note: &str, by: Time, told: bool) {
        self.file.change().confirmations.left(person, nth, note, by, told);
    }

    /// When a message had certainly left whose call began at `called`. `date`: what the reply says that the
    /// platform's clock shows now, in whole seconds.
    pub(super) fn left(&self, called: Time, date: Option<Time>) -> Left {
        let by = date.map(|date| {
            self.file.get().clock_ahead_ms = date.as_millis() + 500 - self.now().as_millis();
            date + AFTER_DATE
        });
        Left { called, by: by.unwrap_or_else(|| called.moved(self.clock_ahead()) + AFTER_CALL) }
    }

    /// How far the platform's clock is ahead of ours, in milliseconds, as last seen.
    pub(super) fn clock_ahead(&self) -> i64 {
        self.file.get().clock_ahead_ms
    }

    /// Whether that has changed by more than it is exact since other daemons were told, once for each such change.
    pub(super) fn tells_clock(&self) -> bool {
        let ahead = self.clock_ahead();
        let tells = self.has_company() && ahead.abs_diff(self.clock_told.load(Ordering::Relaxed)) > CLOCK_IS_EXACT;
        if tells {
            self.clock_told.store(ahead, Ordering::Relaxed);
            drop(self.file.change());
        }
        tells
    }

    /// Whether that stranger has not written within a day. Only the most recent strangers are remembered.
    pub(super) fn is_new_today(&self, stranger: &str) -> bool {
        let (mut strangers, now) = (self.strangers.lock(), self.now());
        strangers.retain(|_, at| now < *at + DAY);
        strangers.len() < STRANGERS && strangers.insert(stranger.to_owned(), now).is_none()
    }
}

impl Known {
    pub(super) fn forget(&mut self, before: Time) {
        self.last_inbound.retain(|_, at| *at >= before);
        self.seen.retain(|_, at| *at >= before);
        self.about.retain(|_, (_, at)| *at >= before);
        self.unclosed.retain(|_, unclosed| unclosed.at >= before);
        self.told_before.retain(|_, at| *at >= before);
        self.confirmations.forget(before);
        self.closings.retain(|_, at| *at + HEARD >= before + KEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::InFiles;
    use crate::ipc::files::{Access, Dir};
    use std::path::Path;

    const NOW: Time = Time::from_millis(1_790_000_000_000);

    fn open(folder: &Path, number: &str, now: Time) -> io::Result<Contacts> {
        Contacts::open(Arc::new(InFiles::open(folder)?), number, Clock::by_hand(now).0)
    }

    #[tokio::test]
    async fn it_is_the_same_after_a_restart_and_forgets_after_30_days() {
        let temp = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(NOW - KEEP - DAY);
        let contacts = Contacts::open(Arc::new(InFiles::open(temp.path()).unwrap()), "106", clock).unwrap();
        contacts.saw("wamid.old");
        contacts.save().await.unwrap();
        let old = temp.path().join("channels/whatsapp-2026-08-21.json");
        assert!(old.exists());
        hand.advance(KEEP + DAY);
        contacts.learn("15551234567", "US.1");
        contacts.wrote(&["US.1".to_owned()], NOW);
        contacts.saw("wamid.new");
        let ask = AskId::from_bits(7);
        assert_eq!(contacts.closing_failed(ask, 1, false), Some(true));
        contacts.save().await.unwrap();
        assert!(!old.exists());
        let again = open(temp.path(), "106", NOW).unwrap();
        assert!(again.has_seen("wamid.new") && !again.has_seen("wamid.old"));
        assert_eq!(again.closings_owed(), [(ask, 1)]);
        assert_eq!(again.closing_failed(ask, 1, false), Some(false), "it is owed already");
        again.closing_done(ask, 1);
        assert_eq!(again.closing_failed(ask, 1, false), None, "it was sent again, in vain");
        assert_eq!(again.closing_failed(ask, 1, true), Some(true), "that one waits for the person");
        assert!(again.window_is_open("15551234567"), "known by the other id");
        let other = open(temp.path(), "107", NOW).unwrap();
        assert!(!other.window_is_open("15551234567"), "another number, another window");
    }

    #[tokio::test]
    async fn what_a_message_is_about_outlives_a_restart_as_earlier_versions_wrote_it_too() {
        let temp = tempfile::tempdir().unwrap();
        let ask = AskId::from_bits(7);
        let memory = serde_json::json!({"v": 1, "numbers": {"106": {"about": {"wamid.earlier": [ask, NOW]}}}});
        let folder = Dir::open(temp.path()).unwrap().ensure("channels", Access::PRIVATE).unwrap();
        folder.create("whatsapp.json", memory.to_string().as_bytes(), Access::PRIVATE).unwrap();
        let contacts = open(temp.path(), "106", NOW).unwrap();
        let request = About::Request { ask, question: 1, confirms: 3 };
        let question = About::Question { ask, question: 1 };
        let all = [("wamid.r", request), ("wamid.q", question), ("wamid.n", About::Nothing(()))];
        for (message, about) in all {
            contacts.is_about(message, about);
        }
        contacts.save().await.unwrap();
        let again = open(temp.path(), "106", NOW).unwrap();
        for (message, about) in all.into_iter().chain([("wamid.earlier", About::Ask(ask))]) {
            assert_eq!(again.about(message), Some(about), "{message}");
        }
        assert_eq!(again.about("wamid.theirs"), None);
    }

    #[test]
    fn a_number_names_a_person_whichever_id_was_known_first_and_what_they_are_to_confirm_follows() {
        let temp = tempfile::tempdir().unwrap();
        let contacts = open(temp.path(), "106", NOW).unwrap();
        let waiting = serde_json::json!({"ask": AskId::from_bits(7), "question": 0, "said": "no", "at": 1});
        let waiting: Confirmation = serde_json::from_value(waiting).unwrap();
        contacts.ask_to_confirm("US.1", waiting.clone());
        assert!(contacts.learn("US.1", "1555"));
        assert_eq!((contacts.person("US.1"), contacts.person("1555")), ("1555".to_owned(), "1555".to_owned()));
        assert!(!contacts.learn("1555", "US.1"), "that is known");
        assert_eq!(contacts.to_confirm("1555"), [waiting]);
    }

    #[test]
    fn a_window_closes_a_little_early_and_when_the_platform_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(NOW);
        let contacts = Contacts::open(Arc::new(InFiles::open(temp.path()).unwrap()), "106", clock).unwrap();
        assert!(!contacts.window_is_open("1"));
        contacts.wrote(&["1".to_owned()], NOW);
        contacts.wrote(&["1".to_owned()], NOW - Duration::from_secs(500));
        hand.advance(Duration::from_secs(24 * 3600 - 5 * 60 - 1));
        assert!(contacts.window_is_open("1"));
        contacts.window_closed("1", NOW - Duration::from_secs(1));
        assert!(contacts.window_is_open("1"), "the person has written since");
        hand.advance(Duration::from_secs(1));
        assert!(!contacts.window_is_open("1"));
        contacts.wrote(&["1".to_owned()], NOW + WINDOW);
        contacts.window_closed("1", NOW + WINDOW);
        assert!(!contacts.window_is_open("1"));
    }

    #[test]
    fn what_is_damaged_is_moved_aside_and_the_rest_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Dir::open(temp.path()).unwrap().ensure("channels", Access::PRIVATE).unwrap();
        folder.create("whatsapp.json", b"{", Access::PRIVATE).unwrap();
        assert!(open(temp.path(), "106", NOW).is_ok());
        assert!(folder.stat("whatsapp.json.corrupt").unwrap().is_some());
        let memory =
            br#"{"v":1,"numbers":{"107":5,"106":{"seen":{"wamid.good":"2026-09-21T14:13:20Z","wamid.bad":"soon"},
            "about":[],"confirmations":{"1555":{"ask":"?"}},"same":{"US.1":"1555"},"clock_ahead_ms":"?"}}}"#;
        folder.replace(".tmp", "whatsapp.json", memory, Access::PRIVATE).unwrap();
        for _ in 0..2 {
            let contacts = open(temp.path(), "106", NOW).unwrap();
            assert!(contacts.has_seen("wamid.good") && !contacts.has_seen("wamid.bad"));
            assert_eq!(contacts.person("US.1"), "1555");
            let (aside, _) = folder.read("whatsapp.json.corrupt", 10_000).unwrap();
            let aside: serde_json::Value = serde_json::from_slice(&aside).unwrap();
            let places: Vec<_> = aside.as_object().unwrap().keys().collect();
            assert_eq!(places, ["about", "clock_ahead_ms", "confirmations.1555.ask", "seen.wamid.bad"]);
            let (kept, _) = folder.read("whatsapp.json", 10_000).unwrap();
            let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
            assert_eq!(kept["numbers"]["107"], 5, "another number is left alone");
        }
    }
}
