//! What is known of single messages for 30 days: which of people's were dealt with, and what ours are about, besides the questions themselves.
//! They are many, so each day (UTC) has a document of its own, like `state/channels/whatsapp-2026-11-28.json`: what is written
//! with each message is as long as a day.

use super::deadline_text::zoned;
use super::entries::{Changes, Replaced, Values};
use super::state_file::StateFile;
use super::together::{Numbers, add};
use crate::host::store::Documents;
use crate::host::store::memory::Place;
use askd_core::{AskId, Time};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// How the documents are called.
const NAME: (&str, &str) = ("channels/whatsapp-", ".json");

/// What one of our messages is about, besides the questions themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum About {
    /// It asks to confirm words about this question, as the request with that number: a quote of it answers no question.
    Request { ask: AskId, question: usize, confirms: u8 },
    /// This question of an ask: a quote of the message means that question.
    Question { ask: AskId, question: usize },
    /// An ask as a whole. Earlier versions wrote no other.
    Ask(AskId),
    /// No ask.
    Nothing(()),
}

impl About {
    pub(super) fn ask(self) -> Option<AskId> {
        match self {
            Self::Request { ask, .. } | Self::Question { ask, .. } | Self::Ask(ask) => Some(ask),
            Self::Nothing(()) => None,
        }
    }

    pub(super) fn question(self) -> Option<usize> {
        match self {
            Self::Request { question, .. } | Self::Question { question, .. } => Some(question),
            Self::Ask(_) | Self::Nothing(()) => None,
        }
    }
}

/// Messages of some time.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
struct Noted {
    /// People's messages that were dealt with, and when.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<String, Time>,
    /// Our messages, what each is about, and when that was noted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    about: BTreeMap<String, (About, Time)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Messages {
    documents: Arc<dyn Documents>,
    number: String,
    days: Mutex<BTreeMap<Date, Arc<StateFile<Noted>>>>,
}

impl Noted {
    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.about.is_empty()
    }
}

fn day_of(at: Time) -> Date {
    zoned(at, TimeZone::UTC).date()
}

fn name_of(day: Date) -> String {
    format!("{}{day}{}", NAME.0, NAME.1)
}

/// The day of a document; `None`: it is another document.
fn day_in(name: &str) -> Option<Date> {
    name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.parse().ok()
}

impl Messages {
    /// Reads what an earlier run has noted.
    pub(super) fn open(documents: &Arc<dyn Documents>, number: &str) -> io::Result<Self> {
        let open = |name: String| {
            let day = day_in(&name)?;
            Some(StateFile::open(Arc::clone(documents), name, number).map(|file| (day, Arc::new(file))))
        };
        let days = documents.names()?.into_iter().filter_map(open).collect::<io::Result<_>>()?;
        Ok(Self { days: Mutex::new(days), ..Self::new(Arc::clone(documents), number) })
    }

    /// Nothing is noted yet.
    pub(super) fn new(documents: Arc<dyn Documents>, number: &str) -> Self {
        Self { documents, number: number.to_owned(), days: Mutex::default() }
    }

    /// Whether that message was dealt with.
    pub(super) fn has_seen(&self, message: &str) -> bool {
        self.days.lock().values().any(|day| day.get().seen.contains_key(message))
    }

    /// That message was dealt with.
    pub(super) fn saw(&self, message: &str, now: Time) {
        self.day(now).change().seen.insert(message.to_owned(), now);
    }

    /// What our message is about, as it was last noted.
    pub(super) fn about(&self, message: &str) -> Option<About> {
        self.days.lock().values().rev().find_map(|day| day.get().about.get(message).map(|(about, _)| *about))
    }

    /// Our message is about this.
    pub(super) fn is_about(&self, message: &str, about: About, now: Time) {
        self.day(now).change().about.insert(message.to_owned(), (about, now));
    }

    fn day(&self, now: Time) -> Arc<StateFile<Noted>> {
        self.file_of(day_of(now))
    }

    fn file_of(&self, day: Date) -> Arc<StateFile<Noted>> {
        let new = || Arc::new(StateFile::new(Arc::clone(&self.documents), name_of(day), &self.number));
        Arc::clone(self.days.lock().entry(day).or_insert_with(new))
    }

    /// The names of all documents, and what stands in them.
    pub(super) fn add_to(&self, numbers: &mut Numbers) -> io::Result<Vec<String>> {
        let days = self.days.lock();
        for (day, file) in &*days {
            add(numbers, &name_of(*day), file)?;
        }
        Ok(days.keys().map(|day| name_of(*day)).collect())
    }

    /// Takes in what stands in one of them, as other daemons may have changed it.
    pub(super) fn take_in(&self, name: &str, found: Changes) -> io::Result<Vec<Place>> {
        day_in(name).map_or(Ok(Vec::new()), |day| self.file_of(day).take_in(found))
    }

    /// One of them is what is stored, and nothing else.
    pub(super) fn set(&self, name: &str, stored: Values) {
        if let Some(day) = day_in(name) {
            self.file_of(day).set(stored);
        }
    }

    /// The entries of each that are not stored as they are now. Those of days that were over by then are taken out.
    pub(super) fn unstored(&self, before: Time) -> io::Result<Vec<(String, Replaced)>> {
        let first = day_of(before);
        let days = self.days.lock();
        let unstored = days.iter().map(|(day, file)| {
            if *day < first && !file.get().is_empty() {
                *file.change() = Noted::default();
            }
            Ok((name_of(*day), file.unstored(|_| {})?))
        });
        unstored.collect()
    }

    /// These are stored now.
    pub(super) fn stored(&self, name: &str, stored: Changes) {
        if let Some(day) = day_in(name) {
            self.file_of(day).stored(stored);
        }
    }

    /// The places of all entries that are stored.
    pub(super) fn places(&self) -> Vec<(String, Vec<Place>)> {
        self.days.lock().iter().map(|(day, file)| (name_of(*day), file.places())).collect()
    }

    /// Puts everything on stable storage, and removes the days that were over by then.
    pub(super) async fn save(&self, before: Time) -> io::Result<()> {
        let (kept, over) = {
            let mut days = self.days.lock();
            let kept = days.split_off(&day_of(before));
            (kept.values().cloned().collect::<Vec<_>>(), std::mem::replace(&mut *days, kept))
        };
        for day in kept {
            day.save(|_| {}).await?;
        }
        for day in over.into_keys() {
            let documents = Arc::clone(&self.documents);
            let removed = tokio::task::spawn_blocking(move || documents.remove(&name_of(day)));
            if let Err(error) = removed.await.map_err(io::Error::other).flatten() {
                tracing::warn!(%error, %day, "an old day of the WhatsApp channel's memory stays until the next start");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::InFiles;
    use std::time::Duration;

    const NOW: Time = Time::from_millis(1_790_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test]
    async fn what_is_written_with_a_message_is_as_long_as_its_day() {
        let temp = tempfile::tempdir().unwrap();
        let documents = || Arc::new(InFiles::open(temp.path()).unwrap()) as Arc<dyn Documents>;
        let open = || Messages::open(&documents(), "106").unwrap();
        let path = |day: &str| temp.path().join(format!("channels/whatsapp-2026-09-{day}.json"));
        let about = About::Ask(AskId::from_bits(7));
        let messages = open();
        messages.saw("wamid.first", NOW);
        messages.is_about("wamid.ours", about, NOW);
        messages.save(NOW - DAY).await.unwrap();
        assert!(path("21").exists());
        let messages = open();
        assert!(messages.has_seen("wamid.first") && messages.about("wamid.ours") == Some(about));
        // If it were written again it would be there again.
        std::fs::remove_file(path("21")).unwrap();
        messages.saw("wamid.next", NOW + DAY);
        messages.is_about("wamid.ours", About::Nothing(()), NOW + DAY);
        messages.save(NOW - DAY).await.unwrap();
        assert!(!path("21").exists() && path("22").exists());
        assert_eq!(messages.about("wamid.ours"), Some(About::Nothing(())), "what was noted last");
        assert!(messages.has_seen("wamid.first") && messages.has_seen("wamid.next"));
        messages.save(NOW + DAY).await.unwrap();
        assert!(!messages.has_seen("wamid.first") && messages.has_seen("wamid.next"), "that day is over");
        messages.save(NOW + DAY * 2).await.unwrap();
        assert!(!path("22").exists() && !open().has_seen("wamid.next"));
    }
}
