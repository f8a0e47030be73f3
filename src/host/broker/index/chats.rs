//! The asks that a person may mean who answers in words: by those who may answer. Built anew at every start; decides
//! nothing.

use super::Slot;
use super::entries::{Entries, Entry};
use super::tables::Ordered;
use askd_core::{Ask, AskId, Responders, Route, Time};
use std::collections::{BTreeSet, HashMap};

/// The most asks to look at: two are enough to make a message doubtful, so hundreds need not be read.
pub(super) const LOOKED_AT: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chats {
    /// By the ids of those who may answer.
    people: HashMap<String, Person>,
}

#[derive(Debug, Default)]
struct Person {
    open: Ordered,
    /// Settled asks that were shown in such a chat, by the time at which they were settled.
    ended: Ordered,
}

/// Whether people answer there in words: such a platform has no forms, so a message has to be matched to its question.
/// Its message ids are unique without their chat.
pub(in crate::host::broker) const fn is_chat(route: &Route) -> bool {
    !route.capabilities.forms
}

fn people(ask: &Ask) -> impl Iterator<Item = &String> {
    let routes = ask.widgets.iter().map(|widget| &widget.route).chain(&ask.next_routes);
    routes.filter(|route| is_chat(route)).flat_map(|route| {
        let listed = match &route.responders {
            Responders::Anyone => &[][..],
            Responders::Only(ids) => ids,
        };
        std::iter::once(&route.chat).chain(listed)
    })
}

fn in_time(entries: &Entries) -> impl Fn(Slot) -> (Time, AskId) + Copy {
    |slot| (entries[slot].at(), entries[slot].id())
}

impl Chats {
    /// Takes in what an ask has become.
    pub(super) fn put(&mut self, slot: Slot, ask: &Ask, entries: &Entries) {
        // A message in a chat cannot mean an ask that was never shown there.
        let shown = ask.widgets.iter().any(|widget| is_chat(&widget.route));
        for id in people(ask) {
            let person = self.people.entry(id.clone()).or_default();
            if !entries[slot].is_settled() {
                person.open.insert(slot, |slot| slot);
            } else if shown {
                person.ended.insert(slot, in_time(entries));
            }
        }
    }

    /// Takes an ask out, before anything of it changes.
    pub(super) fn drop(&mut self, slot: Slot, ask: &Ask, entries: &Entries) {
        for id in people(ask) {
            let Some(person) = self.people.get_mut(id) else { continue };
            person.open.remove(slot, |slot| slot);
            person.ended.remove(slot, in_time(entries));
            if person.open.is_empty() && person.ended.is_empty() {
                self.people.remove(id);
            }
        }
    }

    fn of<'a>(&'a self, ids: &'a [String]) -> impl Iterator<Item = &'a Person> {
        ids.iter().filter_map(|id| self.people.get(id))
    }

    /// The open asks of the person with these ids.
    pub(super) fn asked_of(&self, ids: &[String], entries: &Entries) -> Vec<AskId> {
        let asks: BTreeSet<AskId> =
            self.of(ids).flat_map(|person| person.open.iter()).map(|s| entries[s].id()).collect();
        asks.into_iter().collect()
    }

    /// The newest asks of that person that were settled at that time or later.
    pub(super) fn ended_since(&self, ids: &[String], since: Time, entries: &Entries) -> Vec<AskId> {
        let ended = |person: &'_ Person| {
            let newest = person.ended.iter().rev().map(|slot| &entries[slot]).take_while(|entry| entry.at() >= since);
            newest.take(LOOKED_AT).map(Entry::id).collect::<Vec<_>>()
        };
        let asks: BTreeSet<AskId> = self.of(ids).flat_map(ended).collect();
        asks.into_iter().collect()
    }

    /// Whether such an ask of that person was settled.
    pub(super) fn has_ended(&self, ids: &[String], slot: Slot, entries: &Entries) -> bool {
        self.of(ids).any(|person| person.ended.contains(slot, in_time(entries)))
    }

    /// Whether anybody can answer an open ask in words.
    pub(super) fn asks_anybody(&self) -> bool {
        self.people.values().any(|person| !person.open.is_empty())
    }
}
