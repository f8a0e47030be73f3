//! Where to look: which asks there are, by id, request, key, message, code, person, time and deadline. Built anew at every
//! start; decides nothing.
//!
//! It holds some 110 bytes of an ask: an [`Entry`] of 48 bytes, 14 for the hash of each name, 5 for each place in an order,
//! and no text. Hashes can collide, so a caller who acts on an ask checks its record.

mod attempts;
mod carrying;
mod chats;
mod entries;
mod groups;
mod loading;
mod lookups;
mod pages;
mod reaching;
mod tables;
mod tallies;

pub(super) use attempts::{Attempts, held};
pub(super) use chats::is_chat;
pub use pages::Cursor;
pub(super) use pages::{Began, Position};
pub(super) use tallies::Tallies;

use super::lying::Lying;
use askd_core::{Ask, AskId, Content, Group, Person, Time};
use chats::Chats;
use entries::{Entries, Entry};
use groups::Groups;
use pages::Pages;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use tables::{Names, Ordered};

/// Where an ask is in memory. Another ask has the slot when that one is forgotten.
type Slot = u32;

/// How long a code is not given again: Meta repeats webhooks for up to 7 days, and a code says which question is meant,
/// not when the message was written.
const CODE_RESTS: Duration = Duration::from_secs(8 * 86_400);

/// What an ask can be looked up by.
#[derive(Debug, Clone, Copy)]
enum By {
    Request,
    /// A message that was posted: with its chat, except where its id is unique without.
    Message,
    /// A person's message that changed it.
    Heard,
    /// The key that other calls join it by.
    Key,
}

/// Where to look.
#[derive(Debug)]
pub(super) struct Index {
    entries: Entries,
    names: [Names; 4],
    /// By their codes.
    codes: Ordered,
    deadlines: Ordered,
    pages: Pages,
    chats: Chats,
    pub(super) attempts: Attempts,
    groups: Groups,
    /// How far the clock had been set at different times.
    clocks: Vec<i64>,
    /// When asks were settled that are forgotten by now, by their codes, as long as the codes rest.
    resting: HashMap<u64, Time>,
    /// What lies in the groups' folders to be taken, and who may come for it.
    lying: HashMap<AskId, Lying>,
    /// They are being stored for the first time, so no list has them yet.
    unstored: HashSet<AskId>,
    /// Their deadlines have come, and another daemon holds their groups.
    passed: HashSet<Slot>,
    /// While a run reads the stored asks that was handed the rest ([`carrying`]): those that it has read.
    read: Option<HashSet<AskId>>,
    /// While asks are loaded: those that are not in the orders yet ([`loading`]).
    unordered: Option<Vec<Slot>>,
    /// How it names asks.
    pub(super) naming: Naming,
}

/// What an ask can be looked up by, as it stands in the tables.
#[derive(Debug, Clone, Default)]
pub(super) struct Naming(RandomState);

/// What is worked out of an ask before it is entered. That takes longer than to enter it, and needs no lock.
#[derive(Debug)]
pub(super) struct Named {
    names: Vec<(By, u64)>,
    questions: Vec<u64>,
}

impl Naming {
    /// All that has to be known of a new ask.
    pub(super) fn of(&self, ask: &Ask) -> Named {
        Named { names: self.names(ask), questions: self.questions(&ask.group, &ask.content).collect() }
    }

    fn name(&self, what: impl Hash) -> u64 {
        self.0.hash_one(what)
    }

    /// The name of an ask's key.
    pub(super) fn key(&self, ask: &Ask) -> Option<u64> {
        ask.key.map(|key| self.name((&ask.group, key)))
    }

    fn names(&self, ask: &Ask) -> Vec<(By, u64)> {
        let group = &ask.group;
        let mut names: Vec<_> = self.key(ask).map(|key| (By::Key, key)).into_iter().collect();
        names.extend(ask.waiters.iter().map(|it| (By::Request, self.name((group, &it.request_id)))));
        names.extend(ask.heard.iter().map(|message| (By::Heard, self.name(message))));
        for widget in &ask.widgets {
            let chat = if chats::is_chat(&widget.route) { "" } else { &widget.route.chat };
            names.extend(widget.messages().map(|it| (By::Message, self.name((chat, it)))));
        }
        names
    }
}

impl Default for Index {
    fn default() -> Self {
        let naming = Naming::default();
        Self {
            entries: Entries::default(),
            names: Default::default(),
            codes: Ordered::default(),
            deadlines: Ordered::default(),
            // Tells this run of the daemon from any other.
            pages: Pages::new(naming.name("life")),
            chats: Chats::default(),
            attempts: Attempts::new(naming.clone()),
            groups: Groups::default(),
            clocks: Vec::new(),
            resting: HashMap::new(),
            lying: HashMap::new(),
            unstored: HashSet::new(),
            passed: HashSet::new(),
            read: None,
            unordered: None,
            naming,
        }
    }
}

fn in_time(entries: &Entries) -> impl Fn(Slot) -> (Time, Slot) + Copy {
    |slot| (entries[slot].at(), slot)
}

fn coded(entries: &Entries) -> impl Fn(Slot) -> (u64, Slot) + Copy {
    |slot| (entries[slot].code(), slot)
}

fn due(entries: &Entries) -> impl Fn(Slot) -> (Time, Slot) + Copy {
    |slot| (entries[slot].deadline(), slot)
}

impl Index {
    fn clock_number(&mut self, set_by: i64) -> NonZeroU16 {
        let known = self.clocks.iter().rposition(|known| *known == set_by);
        let before = known.unwrap_or_else(|| {
            self.clocks.push(set_by);
            self.clocks.len() - 1
        });
        u16::try_from(before).ok().and_then(|before| NonZeroU16::MIN.checked_add(before)).unwrap_or(NonZeroU16::MAX)
    }

    /// Takes in an ask. `set_by` is how far the clock had been set when its times were written.
    pub(super) fn insert(&mut self, ask: &Ask, set_by: i64) {
        if let Some(slot) = self.add(ask, self.naming.of(ask), set_by) {
            self.put_in_order(slot);
        }
    }

    /// Enters one that is not stored yet.
    pub(super) fn insert_unstored(&mut self, ask: &Ask, set_by: i64) {
        self.insert(ask, set_by);
        self.unstored.insert(ask.id);
    }

    /// Enters an ask, but into no order. `None`: it was known.
    fn add(&mut self, ask: &Ask, Named { names, questions }: Named, set_by: i64) -> Option<Slot> {
        if self.entries.slot(ask.id).is_some() {
            self.update(ask);
            return None;
        }
        let (group, clock) = (self.groups.number(&ask.group), self.clock_number(set_by));
        let entry = Entry::of(ask, group, clock);
        self.groups.add(ask, &entry);
        let slot = self.entries.add(entry);
        self.attempts.note(slot, ask, questions, None, &self.entries);
        self.link(slot, ask, names);
        Some(slot)
    }

    /// Puts an ask that was just entered in its place in the list, by its code, and by its deadline.
    fn put_in_order(&mut self, slot: Slot) {
        self.pages.put(slot, &self.entries);
        self.codes.insert(slot, coded(&self.entries));
        self.put_deadline(slot);
    }

    fn put_deadline(&mut self, slot: Slot) {
        if self.entries[slot].deadline() < Time::MAX {
            self.deadlines.insert(slot, due(&self.entries));
        }
    }

    /// Notes what an ask has become.
    pub(super) fn update(&mut self, ask: &Ask) {
        self.order();
        let Some(slot) = self.entries.slot(ask.id) else { return };
        self.unstored.remove(&ask.id);
        let before = self.entries[slot];
        let entry = Entry::of(ask, before.group(), before.clock);
        if before != entry {
            if before.deadline() != entry.deadline() {
                self.deadlines.remove(slot, due(&self.entries));
            }
            if before.is_outcome() && (!entry.is_outcome() || before.at() != entry.at()) {
                self.groups.drop(slot, &self.entries);
            }
            if !Pages::stays(&before, &entry) {
                self.unplace(slot, ask);
            }
            if entry.is_settled() && !before.is_settled() {
                self.groups.end(&entry);
            }
            self.entries.set(slot, entry);
            if !Pages::stays(&before, &entry) {
                self.pages.put(slot, &self.entries);
            }
            let questions = self.naming.questions(&ask.group, &ask.content);
            self.attempts.note(slot, ask, questions, Some(&before), &self.entries);
        }
        self.put_deadline(slot);
        self.link(slot, ask, self.naming.names(ask));
    }

    /// Enters an ask into each table without an order that it belongs into. It leaves those that it does not belong into any more.
    fn link(&mut self, slot: Slot, ask: &Ask, names: Vec<(By, u64)>) {
        let entry = self.entries[slot];
        if let Some(read) = &mut self.read {
            read.insert(ask.id);
        }
        if !self.passed.is_empty() {
            self.passed.remove(&slot);
        }
        if entry.is_outcome() {
            self.groups.keep(slot, &self.entries);
        }
        self.chats.put(slot, ask, &self.entries);
        for (by, name) in names {
            let names = &mut self.names[by as usize];
            // A late answer to an older one with this key does not count any more.
            let supersedes =
                |other: Slot| self.entries[other].is_late() && self.entries[other].created() < entry.created();
            if matches!(by, By::Key) && entry.is_settled() && !entry.is_kept() && !names.of(name).any(supersedes) {
                names.remove(name, slot);
            } else {
                names.insert(name, slot);
            }
        }
        match Lying::of(ask) {
            Some(lying) => self.lying.insert(ask.id, lying),
            None => self.lying.remove(&ask.id),
        };
    }

    /// Forgets the names of calls that made room for others.
    pub(super) fn unname(&mut self, before: &Ask, ask: &Ask) {
        let Some(slot) = self.entries.slot(ask.id) else { return };
        let gone = before.waiters.iter().filter(|waiter| ask.waiter(&waiter.request_id).is_none());
        for waiter in gone {
            let name = self.naming.name((&ask.group, &waiter.request_id));
            self.names[By::Request as usize].remove(name, slot);
        }
    }

    /// Takes an ask out of its place in the list and among the asks of people.
    fn unplace(&mut self, slot: Slot, ask: &Ask) {
        self.pages.drop(slot, &self.entries);
        self.chats.drop(slot, ask, &self.entries);
    }

    /// Takes back an ask that could not be stored: it was never asked, and does not count.
    pub(super) fn take_back(&mut self, ask: &Ask) {
        self.groups.take_back(ask);
        self.remove(ask);
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        self.order();
        let Some(slot) = self.entries.slot(ask.id) else { return };
        let entry = self.entries[slot];
        self.passed.remove(&slot);
        self.deadlines.remove(slot, due(&self.entries));
        self.codes.remove(slot, coded(&self.entries));
        self.groups.drop(slot, &self.entries);
        self.unplace(slot, ask);
        self.attempts.remove(slot, ask, &self.entries);
        for (by, name) in self.naming.names(ask) {
            self.names[by as usize].remove(name, slot);
        }
        self.lying.remove(&ask.id);
        self.unstored.remove(&ask.id);
        if let Some(at) = ask.settled_at() {
            let rests = self.resting.entry(entry.code()).or_insert(at);
            *rests = at.max(*rests);
            // Looked through only when it has doubled.
            if self.resting.len() == self.resting.capacity() {
                self.resting.retain(|_, settled| at < *settled + CODE_RESTS);
            }
        } else {
            self.groups.end(&entry);
        }
        self.entries.drop(slot);
    }

    /// How far the clock was set after the times of an ask were written.
    pub(super) fn behind(&self, id: AskId, set_by: i64) -> i64 {
        self.entries.get(id).map_or(0, |entry| set_by.saturating_sub(self.clocks[usize::from(entry.clock.get()) - 1]))
    }

    /// Notes that the times of an ask have followed the clock.
    pub(super) fn has_followed(&mut self, id: AskId, set_by: i64) {
        if let Some(slot) = self.entries.slot(id) {
            let clock = self.clock_number(set_by);
            let mut entry = self.entries[slot];
            entry.clock = clock;
            self.entries.set(slot, entry);
        }
    }

    /// The asks that have to follow a clock that was set.
    pub(super) fn counting_time(&self) -> Vec<AskId> {
        self.entries.iter().filter(|entry| entry.counts_time()).map(Entry::id).collect()
    }

    /// What of these questions was asked as often as it may be, and how often that was at most.
    pub(super) fn over(&self, group: &Group, content: &Content, limit: u8) -> Option<(Vec<usize>, u32)> {
        self.attempts.over(group, content, limit, &self.entries)
    }

    /// Blocks of which no question is over the limit any more, and who allowed that.
    pub(super) fn ended_blocks(&self, group: &Group, limit: u8) -> Vec<(AskId, Option<Person>)> {
        self.attempts.ended(group, limit, &self.entries)
    }

    /// The group of an ask.
    pub(super) fn group(&self, id: AskId) -> Option<Arc<Group>> {
        self.entries.get(id).map(|entry| self.group_of(entry))
    }

    fn group_of(&self, entry: &Entry) -> Arc<Group> {
        self.groups.name(entry)
    }

    /// Whether an ask is settled or gone.
    pub(super) fn is_settled(&self, id: AskId) -> bool {
        self.entries.get(id).is_none_or(Entry::is_settled)
    }

    /// How many asks of a group are open, and how many came within the last hour.
    pub(super) fn load(&mut self, group: &Group, now: Time) -> (u32, u32) {
        self.groups.load(group, now)
    }

    /// The oldest kept outcomes of a group, as many as there are too many.
    pub(super) fn crowded(&self, group: &Group) -> Vec<AskId> {
        self.groups.crowded(group, &self.entries)
    }

    /// The same of all groups.
    pub(super) fn all_crowded(&self) -> Vec<AskId> {
        self.groups.all_crowded(&self.entries)
    }

    /// The open asks of each group in so many slots from that one on; `None`: there are no further ones.
    pub(super) fn open_within(&self, from: usize, slots: usize) -> Option<HashMap<Arc<Group>, Vec<AskId>>> {
        let mut open: HashMap<Arc<Group>, Vec<AskId>> = HashMap::new();
        for entry in self.entries.within(from, slots)?.filter(|entry| !entry.is_settled()) {
            open.entry(self.group_of(entry)).or_default().push(entry.id());
        }
        Some(open)
    }
}

#[cfg(test)]
mod tests;
