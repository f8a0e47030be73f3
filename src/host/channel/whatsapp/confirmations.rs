//! What people have been asked to confirm: words that may have been written before their question was displayed. Pure:
//! [`super::confirming`] asks and hears people, [`super::contacts`] keeps it.

use super::callback_data::{CallbackData, Kind};
use askd_core::{AskId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is to be confirmed, by person and ask. Earlier versions kept one for each person, under their name alone.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Confirmations(BTreeMap<String, Confirmation>);

/// Words that a `1` makes count, if nothing else can be meant by it. They wait until their question is answered or over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confirmation {
    pub(super) ask: AskId,
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
    /// The platform itself has said when it sent our request.
    #[serde(default)]
    pub(super) told: bool,
    /// What has left since our request.
    #[serde(default)]
    pub(super) after: After,
    /// When we asked for the confirmation, in milliseconds by our clock.
    pub(super) at: i64,
}

/// What has left since a request to confirm, so that a `1` may be meant for that instead. The later of these includes the
/// earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum After {
    /// A `1` means the request.
    #[default]
    Nothing,
    /// Requests to confirm other words.
    Requests,
    /// Something about another ask: a `1` with the code of this one still means the request.
    Others,
    /// Something about the same ask, or about none: only a quote proves that a `1` means the request.
    Any,
}

impl Confirmations {
    fn key(person: &str, ask: AskId) -> String {
        format!("{person} {ask}")
    }

    fn of_mut<'a>(&'a mut self, person: &'a str) -> impl Iterator<Item = &'a mut Confirmation> {
        self.0.iter_mut().filter(|(key, _)| is_theirs(key, person)).map(|(_, waiting)| waiting)
    }

    /// The person is asked to confirm what they said.
    pub(super) fn ask(&mut self, person: &str, confirmation: Confirmation) {
        self.end(person, confirmation.ask);
        self.0.insert(Self::key(person, confirmation.ask), confirmation);
    }

    /// What that person has been asked to confirm: first what a `1` is most likely meant for.
    pub(super) fn of(&self, person: &str) -> Vec<Confirmation> {
        let theirs = self.0.iter().filter(|(key, _)| is_theirs(key, person));
        let mut theirs: Vec<Confirmation> = theirs.map(|(_, waiting)| waiting.clone()).collect();
        theirs.sort_by_key(|waiting| (waiting.after, -waiting.at));
        theirs
    }

    /// The person has nothing to confirm about that ask any more.
    pub(super) fn end(&mut self, person: &str, ask: AskId) {
        self.0.remove(&Self::key(person, ask));
        if self.0.get(person).is_some_and(|earlier| earlier.ask == ask) {
            self.0.remove(person);
        }
    }

    /// A message to that person is about to leave. `true`: something is to be confirmed, so this has to be remembered.
    pub(super) fn leaves(&mut self, person: &str, message: Option<&CallbackData>) -> bool {
        let mut changed = false;
        for waiting in self.of_mut(person) {
            let after = match message {
                // It asks for nothing.
                Some(CallbackData { kind: Kind::Closing, .. }) => continue,
                Some(request) if request.kind == Kind::Confirmation => {
                    if (request.ask, request.attempt) == (waiting.ask, waiting.nth) {
                        After::Nothing
                    } else {
                        waiting.after.max(After::Requests)
                    }
                }
                Some(other) if other.ask != waiting.ask => waiting.after.max(After::Others),
                Some(_) | None => After::Any,
            };
            changed |= waiting.after != after;
            waiting.after = after;
        }
        changed
    }

    /// Our request for confirmation had left by then; `told`: the platform itself says so.
    pub(super) fn left(&mut self, person: &str, nth: u8, note: &str, by: Time, told: bool) {
        if let Some(waiting) = self.of_mut(person).find(|waiting| waiting.nth == nth) {
            waiting.note = Some(note.to_owned());
            waiting.told |= told;
            if told || waiting.since.is_none() {
                waiting.since = Some(by.as_millis());
            }
        }
    }

    /// The person with that name has another one from now on.
    pub(super) fn follow(&mut self, before: &str, name: &str) {
        let theirs: Vec<_> = self.0.keys().filter(|key| is_theirs(key, before)).cloned().collect();
        for key in theirs {
            if let Some(waiting) = self.0.remove(&key) {
                self.0.insert(Self::key(name, waiting.ask), waiting);
            }
        }
    }

    pub(super) fn forget(&mut self, before: Time) {
        self.0.retain(|_, waiting| waiting.at >= before.as_millis());
    }
}

/// Whether what is kept under that key is that person's.
fn is_theirs(key: &str, person: &str) -> bool {
    key.split(' ').next() == Some(person)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(ask: u128, nth: u8) -> Confirmation {
        let (said, note, since, after) = ("no".to_owned(), None, None, After::Nothing);
        Confirmation {
            ask: AskId::from_bits(ask),
            question: 0,
            said,
            nth,
            note,
            since,
            told: false,
            after,
            at: i64::from(nth),
        }
    }

    fn message(ask: u128, kind: Kind, nth: u8) -> CallbackData {
        CallbackData::note(AskId::from_bits(ask), 0, kind, nth)
    }

    #[test]
    fn what_leaves_says_what_a_one_can_mean() {
        let mut all = Confirmations::default();
        for (ask, nth) in [(1, 1), (2, 2)] {
            all.ask("1555", waiting(ask, nth));
            assert_eq!(all.leaves("1555", Some(&message(ask, Kind::Confirmation, nth))), ask == 2, "the other one");
        }
        all.ask("1666", waiting(1, 3));
        let after = |all: &Confirmations| {
            let theirs = all.of("1555");
            theirs.iter().map(|waiting| (waiting.nth, waiting.after)).collect::<Vec<_>>()
        };
        assert_eq!(after(&all), [(2, After::Nothing), (1, After::Requests)]);
        assert!(!all.leaves("1555", Some(&message(2, Kind::Closing, 0))), "it asks for nothing");
        assert!(all.leaves("1555", Some(&message(1, Kind::Note, 0))));
        assert_eq!(after(&all), [(2, After::Others), (1, After::Any)]);
        assert!(all.leaves("1555", Some(&message(1, Kind::Confirmation, 1))));
        assert_eq!(after(&all), [(1, After::Nothing), (2, After::Others)]);
        assert!(all.leaves("1555", None), "what is about no ask may be about any");
        assert_eq!(after(&all), [(2, After::Any), (1, After::Any)]);
        all.end("1555", AskId::from_bits(2));
        assert_eq!(after(&all), [(1, After::Any)]);
        assert_eq!(all.of("1666"), [waiting(1, 3)], "another person");
    }

    #[test]
    fn what_an_earlier_version_kept_still_waits() {
        let ask = AskId::from_bits(7);
        let kept = serde_json::json!({"1555": {"ask": ask, "question": 0, "said": "no", "nth": 3, "note": "wamid.n",
            "since": 5, "at": 4}});
        let mut all: Confirmations = serde_json::from_value(kept).unwrap();
        let of = all.of("1555");
        assert!(of.len() == 1 && of[0].note.as_deref() == Some("wamid.n") && of[0].after == After::Nothing, "{of:?}");
        all.end("1555", ask);
        assert!(all.of("1555").is_empty());
    }
}
