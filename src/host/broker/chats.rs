//! Finds the asks that a chat message may be about: by its sender, by the message that it quotes, by its own id if it
//! was dealt with before, and by the code of a settled ask. Every start rebuilds it; it decides nothing.

use askd_core::{Ask, AskId, Responders, Route, ShortId, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// How long a code is not given again: Meta repeats webhooks for up to 7 days, and a code says which question is meant,
/// not when the message was written.
const CODE_RESTS: Duration = Duration::from_secs(8 * 86_400);
/// The most asks to look at: two are enough to make a message doubtful, so hundreds need not be read.
const LOOKED_AT: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chats {
    /// Asks by the ids of those who may answer in words.
    people: HashMap<String, Person>,
    /// By hash of a channel's message id. Hashes can collide, so the caller has to check the ask.
    messages: HashMap<u64, AskId>,
    /// By the hash of a person's message id: the ask that the message changed. Hashes can collide, so the caller has to
    /// check the ask.
    heard: HashMap<u64, AskId>,
    /// For each code, the ask with it that was settled last, and when. That ask may be forgotten by now.
    codes: HashMap<ShortId, (Time, AskId)>,
    hash: RandomState,
}

#[derive(Debug, Default)]
struct Person {
    open: BTreeSet<AskId>,
    /// Settled asks, by the time at which they were settled.
    ended: BTreeMap<(Time, AskId), Ended>,
}

#[derive(Debug)]
struct Ended {
    code: ShortId,
    /// It can still be answered.
    late: bool,
}

/// Whether people answer there in words: such a platform has no forms, so a message has to be matched to its question.
fn is_chat(route: &Route) -> bool {
    !route.capabilities.forms
}

fn people(ask: &Ask) -> impl Iterator<Item = &String> {
    ask.rules.routes.iter().filter(|route| is_chat(route)).flat_map(|route| {
        let listed = match &route.responders {
            Responders::Anyone => &[][..],
            Responders::Only(ids) => ids,
        };
        std::iter::once(&route.chat).chain(listed)
    })
}

impl Chats {
    /// Takes in what an ask has become.
    pub(super) fn note(&mut self, ask: &Ask) {
        for message in ask.widgets.iter().flat_map(|widget| &widget.messages) {
            self.messages.insert(self.hash.hash_one(message), ask.id);
        }
        for message in &ask.heard {
            self.heard.insert(self.hash.hash_one(message), ask.id);
        }
        let settled = ask.settled_at();
        if let Some(at) = settled {
            let last = self.codes.entry(ask.short_id.clone()).or_insert((at, ask.id));
            *last = (*last).max((at, ask.id));
        }
        // A message in a chat cannot mean an ask that was never shown there.
        let shown = ask.rules.routes.iter().take(ask.widgets.len()).any(is_chat);
        for id in people(ask) {
            let person = self.people.entry(id.clone()).or_default();
            match settled {
                None => drop(person.open.insert(ask.id)),
                Some(at) => {
                    person.open.remove(&ask.id);
                    if shown {
                        let ended = Ended { code: ask.short_id.clone(), late: ask.is_late_open() };
                        person.ended.insert((at, ask.id), ended);
                    }
                }
            }
        }
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        for id in people(ask) {
            if let Some(person) = self.people.get_mut(id) {
                person.open.remove(&ask.id);
                if let Some(at) = ask.settled_at() {
                    person.ended.remove(&(at, ask.id));
                }
                if person.open.is_empty() && person.ended.is_empty() {
                    self.people.remove(id);
                }
            }
        }
        for message in ask.widgets.iter().flat_map(|widget| &widget.messages) {
            self.messages.remove(&self.hash.hash_one(message));
        }
        for message in &ask.heard {
            self.heard.remove(&self.hash.hash_one(message));
        }
    }

    /// The open asks of the person with these ids.
    pub(super) fn asked_of(&self, ids: &[String]) -> Vec<AskId> {
        let people = ids.iter().filter_map(|id| self.people.get(id));
        let asks: BTreeSet<AskId> = people.flat_map(|person| &person.open).copied().collect();
        asks.into_iter().collect()
    }

    /// The newest asks of that person that were settled at that time or later.
    pub(super) fn ended_since(&self, ids: &[String], since: Time) -> Vec<AskId> {
        let people = ids.iter().filter_map(|id| self.people.get(id));
        let ended = |person: &Person| {
            let newest = person.ended.iter().rev().take_while(|((at, _), _)| *at >= since);
            newest.take(LOOKED_AT).map(|((_, id), _)| *id).collect::<Vec<_>>()
        };
        let asks: BTreeSet<AskId> = people.flat_map(ended).collect();
        asks.into_iter().collect()
    }

    /// That person's settled asks with that code: first those that can still be answered, then the newest.
    pub(super) fn ended_with(&self, ids: &[String], code: &ShortId) -> Vec<AskId> {
        let people = ids.iter().filter_map(|id| self.people.get(id));
        let ended = people.flat_map(|person| &person.ended).filter(|(_, ended)| ended.code == *code);
        let order: BTreeSet<(bool, Time, AskId)> = ended.map(|((at, id), ended)| (ended.late, *at, *id)).collect();
        order.into_iter().rev().take(LOOKED_AT).map(|(_, _, id)| id).collect()
    }

    /// Whether anybody can answer an open ask in words.
    pub(super) fn asks_anybody(&self) -> bool {
        self.people.values().any(|person| !person.open.is_empty())
    }

    /// The ask that may have posted that message.
    pub(super) fn of_message(&self, message: &str) -> Option<AskId> {
        self.messages.get(&self.hash.hash_one(message)).copied()
    }

    /// The ask that may have been changed by that message of a person.
    pub(super) fn heard(&self, message: &str) -> Option<AskId> {
        self.heard.get(&self.hash.hash_one(message)).copied()
    }

    /// The ask of that code that was settled last.
    pub(super) fn closed_with(&self, code: &ShortId) -> Option<AskId> {
        self.codes.get(code).map(|(_, id)| *id)
    }

    /// Whether a code was used so recently that a message with it may still be on its way.
    pub(super) fn rests(&self, code: &ShortId, now: Time) -> bool {
        self.codes.get(code).is_some_and(|(settled, _)| now < *settled + CODE_RESTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_rests_for_eight_days_after_its_last_ask_was_settled() {
        let mut chats = Chats::default();
        let (code, at): (ShortId, _) = ("k7".parse().unwrap(), Time::from_millis(1_790_000_000_000));
        chats.codes.insert(code.clone(), (at, AskId::from_bits(7)));
        assert!(chats.rests(&code, at + CODE_RESTS - Duration::from_millis(1)));
        assert!(!chats.rests(&code, at + CODE_RESTS) && !chats.rests(&"m3".parse().unwrap(), at));
    }
}
