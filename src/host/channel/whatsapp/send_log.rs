//! What was sent to whom lately, on stable storage before it is sent, in `state/channels/whatsapp-sent.json`:
//! so that a restart in a burst keeps the pair limit, and knows which questions certainly never left.
//!
//! Kept for minutes, and no longer: what came of a message stands with its ask.

use super::coalesced_file::CoalescedFile;
use crate::ipc::wire::{time_from, time_text};
use askd_core::{AskId, Time};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The file's name below `state/channels/`.
const FILE: &str = "whatsapp-sent.json";
/// The format that is written.
const VERSION: u32 = 1;
/// How long it takes at most until what came of a message is stored with its ask.
const KEEP: Duration = Duration::from_secs(600);

/// One try of one route of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    pub(super) ask: AskId,
    pub(super) route: usize,
    pub(super) number: u8,
}

impl Attempt {
    fn text(self) -> String {
        format!("{}:{}:{}", self.ask, self.route, self.number)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (ask, route, attempt) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { ask: ask.parse().ok()?, route: route.parse().ok()?, number: attempt.parse().ok()? })
    }
}

/// Messages to one person that are not paid for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    /// When the first of them was sent.
    pub(super) began: Time,
    /// How many there are.
    pub(super) sent: u64,
}

#[derive(Debug, Default)]
struct Kept {
    debts: BTreeMap<String, Debt>,
    begun: BTreeMap<Attempt, Time>,
}

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    numbers: BTreeMap<String, NumberShape>,
}

#[derive(Serialize, Deserialize, Default, Clone, Debug)]
#[serde(default)]
struct NumberShape {
    debts: BTreeMap<String, (String, u64)>,
    begun: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SendLog {
    file: CoalescedFile,
    number: String,
    kept: Mutex<Kept>,
    /// Of other numbers, as they were found.
    others: BTreeMap<String, NumberShape>,
    /// The file was there and whole: what does not stand in it was not sent.
    whole: bool,
}

impl SendLog {
    /// Reads what is there.
    pub(super) fn open(state: &Path, number: &str, now: Time) -> io::Result<Self> {
        let file = CoalescedFile::open(state, FILE)?;
        let shape = match file.read()?.map(|bytes| serde_json::from_slice::<Shape>(&bytes)) {
            Some(Ok(shape)) if shape.v > VERSION => return Err(file.too_new(shape.v, VERSION)),
            Some(Ok(shape)) => Some(shape),
            Some(Err(error)) => {
                file.set_aside(&error)?;
                None
            }
            None => None,
        };
        let whole = shape.is_some();
        let mut others = shape.map(|shape| shape.numbers).unwrap_or_default();
        let ours = others.remove(number).unwrap_or_default();
        let debts = ours.debts.into_iter().filter_map(|(person, (began, sent))| {
            // A clock that was set back makes nobody wait for ever.
            Some((person, Debt { began: time_from(&began)?.min(now), sent }))
        });
        let kept = Kept {
            debts: debts.collect(),
            // However long ago that was: what came of it may have to be found out still.
            begun: ours.begun.iter().filter_map(|text| Some((Attempt::read(text)?, now))).collect(),
        };
        Ok(Self { file, number: number.to_owned(), kept: Mutex::new(kept), others, whole })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// Everybody who was sent something lately.
    pub(super) fn debts(&self) -> Vec<(String, Debt)> {
        self.kept().debts.iter().map(|(person, debt)| (person.clone(), *debt)).collect()
    }

    /// A message to that person is about to leave, as the so many-th of a burst; stored when this returns.
    pub(super) async fn sending(&self, person: &str, sent: u64, of: Option<Attempt>, now: Time) -> io::Result<()> {
        {
            let mut kept = self.kept();
            let debt = kept.debts.entry(person.to_owned()).or_insert(Debt { began: now, sent });
            if sent <= 1 {
                debt.began = now;
            }
            debt.sent = sent;
            kept.begun.extend(of.map(|of| (of, now)));
        }
        self.file.changed();
        self.save(now).await
    }

    /// Nothing came of that try: it was refused.
    pub(super) fn refused(&self, of: Attempt) {
        self.kept().begun.remove(&of);
        self.file.changed();
    }

    /// Whether that try may have left. In doubt it may.
    pub(super) fn may_have_left(&self, of: Attempt) -> bool {
        !self.whole || self.kept().begun.contains_key(&of)
    }

    async fn save(&self, now: Time) -> io::Result<()> {
        let write = || {
            let mut kept = self.kept();
            let owed = |debt: &Debt| debt.began + KEEP >= now;
            kept.debts.retain(|_, debt| owed(debt));
            kept.begun.retain(|_, at| *at + KEEP >= now);
            let debts = kept.debts.iter().map(|(person, debt)| (person.clone(), (time_text(debt.began), debt.sent)));
            let shape = NumberShape { debts: debts.collect(), begun: kept.begun.keys().map(|of| of.text()).collect() };
            let mut numbers = self.others.clone();
            numbers.insert(self.number.clone(), shape);
            move || serde_json::to_vec(&Shape { v: VERSION, numbers })
        };
        self.file.save(write).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1_790_000_000_000);

    #[tokio::test]
    async fn what_left_is_known_after_a_restart_and_what_did_not_too() {
        let temp = tempfile::tempdir().unwrap();
        let of = |number| Attempt { ask: AskId::from_bits(7), route: 1, number };
        let first = SendLog::open(temp.path(), "106", NOW).unwrap();
        assert!(first.may_have_left(of(1)), "nobody knows what was before");
        first.sending("1555", 1, Some(of(1)), NOW).await.unwrap();
        first.sending("1555", 2, Some(of(2)), NOW + Duration::from_secs(1)).await.unwrap();
        first.refused(of(2));
        first.sending("1666", 1, None, NOW + Duration::from_secs(2)).await.unwrap();
        let later = NOW + Duration::from_secs(86_400);
        let again = SendLog::open(temp.path(), "106", later).unwrap();
        assert!(again.may_have_left(of(1)) && !again.may_have_left(of(2)) && !again.may_have_left(of(3)));
        assert_eq!(again.debts()[0], ("1555".to_owned(), Debt { began: NOW, sent: 2 }));
        assert!(SendLog::open(temp.path(), "107", later).unwrap().debts().is_empty(), "another number");
        again.sending("1777", 1, None, later).await.unwrap();
        let third = SendLog::open(temp.path(), "106", later).unwrap();
        assert!(third.may_have_left(of(1)), "a start later it is still known");
        assert_eq!(third.debts().len(), 1, "what is paid for is forgotten");
    }
}
