//! What the index is asked: which asks have that name, belong to that person, or fit that filter.

use super::entries::{Entry, code_number};
use super::{Began, By, CODE_RESTS, Index, Lying, Position, Slot, chats, coded};
use crate::host::broker::listing::Filter;
use crate::host::broker::lying::Outcomes;
use askd_core::{AskId, Digest, Group, RequestId, ShortId, Time};
use std::collections::HashMap;
use std::sync::Arc;

impl Entry {
    /// Whether the ask may fit, as far as the index can tell. `groups` are the numbers of the filter's groups.
    fn fits(&self, filter: &Filter, groups: Option<&[u32]>) -> bool {
        filter.settled.is_none_or(|settled| settled == self.is_settled())
            && groups.is_none_or(|groups| groups.contains(&self.group()))
            && filter.outcome.is_none_or(|outcome| self.status() == Some(outcome))
            && filter.since.is_none_or(|since| self.at() >= since)
            && filter.until.is_none_or(|until| self.at() < until)
    }
}

impl Index {
    /// The newest of these asks that `fits`.
    fn newest(&self, asks: impl Iterator<Item = Slot>, fits: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        // A call that made room for another one in another daemon may have left its name behind.
        let asks = asks.filter_map(|slot| self.entries.at(slot)).filter(|entry| fits(entry));
        asks.max_by_key(|entry| (entry.created(), entry.id()))
    }

    fn find_id(&self, by: By, name: impl std::hash::Hash, fits: impl Fn(&Entry) -> bool) -> Option<AskId> {
        self.newest(self.names[by as usize].of(self.naming.name(name)), fits).map(Entry::id)
    }

    /// The asks with that code.
    fn coded(&self, code: u64) -> impl Iterator<Item = Slot> {
        let asks = self.codes.from((code, 0), coded(&self.entries));
        asks.take_while(move |slot| self.entries[*slot].code() == code)
    }

    /// The ask that may be that request's.
    pub(in crate::host::broker) fn by_request(&self, group: &Group, request_id: &RequestId) -> Option<AskId> {
        self.find_id(By::Request, (group, request_id), |_| true)
    }

    /// The ask of which that message is a widget; no chat is given where people answer in words.
    pub(in crate::host::broker) fn by_message(&self, chat: &str, message: &str) -> Option<AskId> {
        self.find_id(By::Message, (chat, message), |_| true)
    }

    /// The ask that may have been changed by that message of a person.
    pub(in crate::host::broker) fn heard(&self, message: &str) -> Option<AskId> {
        self.find_id(By::Heard, message, |_| true)
    }

    /// The open ask that may have that key.
    pub(in crate::host::broker) fn by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.find_id(By::Key, (group, key), |entry| !entry.is_settled())
    }

    /// The ask that may have that key, and an outcome that no call took.
    pub(in crate::host::broker) fn kept_by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.find_id(By::Key, (group, key), Entry::is_kept)
    }

    /// The open asks that the person with these ids may answer in words.
    pub(in crate::host::broker) fn asked_of(&self, ids: &[String]) -> Vec<AskId> {
        self.chats.asked_of(ids, &self.entries)
    }

    /// The newest asks of that person that were settled at that time or later.
    pub(in crate::host::broker) fn ended_since(&self, ids: &[String], since: Time) -> Vec<AskId> {
        self.chats.ended_since(ids, since, &self.entries)
    }

    /// That person's settled asks with that code: first those that can still be answered, then the newest.
    pub(in crate::host::broker) fn ended_with(&self, ids: &[String], code: &ShortId) -> Vec<AskId> {
        let coded = self.coded(code_number(code));
        let ended = coded.filter(|slot| self.chats.has_ended(ids, *slot, &self.entries));
        let mut ended: Vec<&Entry> = ended.map(|slot| &self.entries[slot]).collect();
        ended.sort_by_key(|entry| std::cmp::Reverse((entry.is_late(), entry.at(), entry.id())));
        ended.into_iter().take(chats::LOOKED_AT).map(Entry::id).collect()
    }

    /// Whether anybody can answer an open ask in words.
    pub(in crate::host::broker) fn asks_in_chats(&self) -> bool {
        self.chats.asks_anybody()
    }

    /// The asks of a group whose briefings nobody has read.
    pub(in crate::host::broker) fn briefed(&self, group: &Group) -> Vec<AskId> {
        let briefed = self.lying.iter().filter(|(_, lying)| lying.is_briefing()).map(|(id, _)| *id);
        briefed.filter(|id| self.group(*id).is_some_and(|of| *of == *group)).collect()
    }

    /// The asks of each group of which something lies in its folders to be taken, or may again.
    pub(in crate::host::broker) fn lying(&mut self, now: Time) -> HashMap<Arc<Group>, Outcomes> {
        self.lying.retain(|_, lying| lying.is_watched(now));
        if self.lying.len() < self.lying.capacity() / 8 {
            self.lying.shrink_to_fit();
        }
        let mut groups: HashMap<Arc<Group>, Outcomes> = HashMap::new();
        for id in self.lying.keys() {
            if let Some(group) = self.group(*id) {
                groups.entry(group).or_default().push(*id);
            }
        }
        groups
    }

    /// What lies there of these asks now, and who may come for it.
    pub(in crate::host::broker) fn lying_of(&self, ids: &[AskId]) -> Vec<(AskId, Lying)> {
        ids.iter().filter_map(|id| Some((*id, self.lying.get(id)?.clone()))).collect()
    }

    /// How many asks are open.
    pub(in crate::host::broker) fn open(&self) -> usize {
        self.pages.open()
    }

    /// Whether an ask that can be answered has that code, or had it so recently that a message with it may still be on its
    /// way.
    pub(in crate::host::broker) fn short_taken(&self, short: &ShortId, now: Time) -> bool {
        let code = code_number(short);
        let rests = |settled: Time| now < settled + CODE_RESTS;
        let has_it = |entry: &Entry| !entry.is_settled() || entry.is_blocked() || entry.is_late() || rests(entry.at());
        self.resting.get(&code).is_some_and(|settled| rests(*settled))
            || self.coded(code).any(|slot| has_it(&self.entries[slot]))
    }

    /// The groups of a filter that are known; `None`: all groups fit.
    fn numbers_of(&self, filter: &Filter) -> Option<Vec<u32>> {
        let Filter { group, only, .. } = filter;
        let seen = |group: &&Group| only.as_ref().is_none_or(|only| only.contains(*group));
        match (group, only) {
            (None, None) => None,
            (Some(group), _) => {
                Some(Some(group).filter(seen).and_then(|group| self.groups.known(group)).into_iter().collect())
            }
            (None, Some(only)) => Some(only.iter().filter_map(|group| self.groups.known(group)).collect()),
        }
    }

    fn is_stored(&self, entry: &Entry) -> bool {
        !self.unstored.contains(&entry.id())
    }

    /// What is true for a reader of the list who begins now.
    pub(in crate::host::broker) fn begin(&self, filter: &Filter) -> Began {
        self.pages.begin(self.count_of(filter, |_| true))
    }

    /// How many asks fit, of those that a reader can be `told` of.
    pub(in crate::host::broker) fn count_of(&self, filter: &Filter, told: impl Fn(AskId) -> bool) -> usize {
        let groups = self.numbers_of(filter);
        let fits = |entry: &Entry| entry.fits(filter, groups.as_deref()) && self.is_stored(entry) && told(entry.id());
        self.entries.iter().filter(|entry| fits(entry)).count()
    }

    /// The asks after `last` that may fit, in the order of the list.
    pub(in crate::host::broker) fn ahead(
        &self,
        filter: &Filter,
        began: Began,
        last: Option<Position>,
        most: usize,
    ) -> Vec<(Arc<Group>, Position)> {
        let groups = self.numbers_of(filter);
        let ahead = self.pages.after(&self.entries, began, last);
        let ahead = ahead.filter(|(entry, _)| entry.fits(filter, groups.as_deref()) && self.is_stored(entry));
        ahead.map(|(entry, position)| (self.group_of(entry), position)).take(most).collect()
    }

    /// The asks of the groups that are `seen` that a text means: a short code (of an open ask, or else of the newest settled
    /// one), or else the beginning of an id.
    pub(in crate::host::broker) fn named(
        &self,
        text: &str,
        short: Option<&ShortId>,
        seen: impl Fn(&Group) -> bool,
    ) -> Vec<AskId> {
        let seen = |entry: &&Entry| seen(&self.group_of(entry));
        let coded = short.map(code_number).and_then(|code| {
            let open =
                self.newest(self.coded(code), |entry| seen(&entry) && (!entry.is_settled() || entry.is_blocked()));
            let late = || self.newest(self.coded(code), |entry| seen(&entry) && entry.is_late());
            let settled = self.coded(code).map(|slot| &self.entries[slot]).filter(seen);
            open.or_else(late).or_else(|| settled.max_by_key(|entry| (entry.at(), entry.id())))
        });
        if let Some(entry) = coded {
            return vec![entry.id()];
        }
        if let Ok(id) = text.parse::<AskId>() {
            return self.entries.get(id).filter(seen).map(Entry::id).into_iter().collect();
        }
        let begins = |id: &AskId| !text.is_empty() && id.to_string().starts_with(text);
        let mut found: Vec<AskId> = self.entries.iter().filter(seen).map(Entry::id).filter(begins).collect();
        found.sort_unstable();
        found
    }
}
