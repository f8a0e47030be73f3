//! Where to look for what somebody writes in a chat: by the person, by the message that is quoted, by
//! the code of an ask that is settled. Built anew at every start; decides nothing.

use crate::ask::{Ask, AskId, Channel, Responders, ShortId};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chats {
    /// Open asks by the ids of those who may answer on WhatsApp.
    people: HashMap<String, BTreeSet<AskId>>,
    /// By hash of a channel's message id; whoever finds one has to look whether it is the one.
    messages: HashMap<u64, AskId>,
    /// Of settled asks, the last one of each code.
    closed: HashMap<ShortId, AskId>,
    hash: RandomState,
}

fn people(ask: &Ask) -> impl Iterator<Item = &String> {
    ask.rules.routes.iter().filter(|route| route.channel == Channel::Whatsapp).flat_map(|route| {
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
        let messages = ask.widgets.iter().flat_map(|widget| &widget.messages);
        for message in messages {
            self.messages.insert(self.hash.hash_one(message), ask.id);
        }
        if ask.outcome().is_none() {
            for person in people(ask) {
                self.people.entry(person.clone()).or_default().insert(ask.id);
            }
        } else {
            self.closed.insert(ask.short_id.clone(), ask.id);
            self.drop_people(ask);
        }
    }

    fn drop_people(&mut self, ask: &Ask) {
        for person in people(ask) {
            if let Some(asks) = self.people.get_mut(person) {
                asks.remove(&ask.id);
                if asks.is_empty() {
                    self.people.remove(person);
                }
            }
        }
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        self.drop_people(ask);
        for message in ask.widgets.iter().flat_map(|widget| &widget.messages) {
            self.messages.remove(&self.hash.hash_one(message));
        }
        if self.closed.get(&ask.short_id) == Some(&ask.id) {
            self.closed.remove(&ask.short_id);
        }
    }

    /// The open asks of somebody with these ids.
    pub(super) fn asked_of(&self, ids: &[String]) -> Vec<AskId> {
        let asks: BTreeSet<AskId> = ids.iter().filter_map(|id| self.people.get(id)).flatten().copied().collect();
        asks.into_iter().collect()
    }

    /// The ask that may have posted that message.
    pub(super) fn of_message(&self, message: &str) -> Option<AskId> {
        self.messages.get(&self.hash.hash_one(message)).copied()
    }

    /// The last settled ask of that code.
    pub(super) fn closed_with(&self, code: &ShortId) -> Option<AskId> {
        self.closed.get(code).copied()
    }
}
