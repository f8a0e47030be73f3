//! Where to look: which asks there are, by id, request, key, message, code, person, time and deadline. Built anew at every
//! start; decides nothing.
//!
//! It holds some 150 bytes of an open ask and less of a settled one: an [`Entry`] of 56 bytes, 17 for the hash of each
//! name (a table of 100,000 is three quarters full), 6 for each place in an order, and no text. Hashes can collide, so a
//! caller who acts on an ask checks its record.

mod attempts;
mod chats;
mod entries;
mod pages;
mod tables;

pub(super) use attempts::{Attempts, held};
pub(super) use chats::is_chat;
pub use pages::Cursor;
pub(super) use pages::{Began, Position};

use super::collect::Lying;
use super::lane::{Job, Unfinished};
use super::listing::Filter;
use askd_core::{Ask, AskId, Content, Digest, Group, Person, RequestId, ShortId, Time};
use chats::Chats;
use entries::{Entries, Entry};
use pages::Pages;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tables::{Names, Ordered};

/// Where an ask is in memory. Another ask has the slot when that one is forgotten.
type Slot = u32;

/// How many outcomes of a group are kept at most.
const MOST_KEPT: usize = 5_000;
/// New asks are counted over this long.
const HOUR: Duration = Duration::from_secs(3600);
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
    Code,
}

/// Where to look.
#[derive(Debug)]
pub(super) struct Index {
    entries: Entries,
    names: [Names; 5],
    deadlines: Ordered,
    pages: Pages,
    chats: Chats,
    attempts: Attempts,
    groups: Vec<Counts>,
    group_numbers: HashMap<Group, u32>,
    /// How far the clock had been set at different times.
    clocks: Vec<i64>,
    /// When asks were settled that are forgotten by now, by their codes, as long as the codes rest.
    resting: HashMap<u64, Time>,
    /// What lies in the groups' folders to be taken.
    lying: HashMap<AskId, Lying>,
    /// Jobs of asks that something is happening to.
    lanes: HashMap<AskId, Lane>,
    /// Asks for which the last run left something undone, and whether a loss of power came in between.
    owing: HashMap<AskId, bool>,
    /// Failed saves, and whether a job to finish each of them is queued.
    unfinished: HashMap<AskId, (Unfinished, bool)>,
    hash: RandomState,
}

/// The jobs of an ask.
#[derive(Debug, Default)]
struct Lane {
    jobs: VecDeque<Job>,
    /// A thread runs them.
    runs: bool,
    /// A thread was called to run them, and whether it was called because of a promise.
    called: Option<bool>,
}

#[derive(Debug)]
struct Counts {
    name: Arc<Group>,
    open: u32,
    /// When asks were accepted within the last hour.
    asked: VecDeque<Time>,
    /// Asks of which nothing is left but an outcome that is kept, by the time at which they were settled.
    kept: Ordered,
}

impl Default for Index {
    fn default() -> Self {
        let hash = RandomState::new();
        Self {
            entries: Entries::default(),
            names: Default::default(),
            deadlines: Ordered::default(),
            // Tells this run of the daemon from any other.
            pages: Pages::new(hash.hash_one("life")),
            chats: Chats::default(),
            attempts: Attempts::default(),
            groups: Vec::new(),
            group_numbers: HashMap::new(),
            clocks: Vec::new(),
            resting: HashMap::new(),
            lying: HashMap::new(),
            lanes: HashMap::new(),
            owing: HashMap::new(),
            unfinished: HashMap::new(),
            hash,
        }
    }
}

fn in_time(entries: &Entries) -> impl Fn(Slot) -> (Time, Slot) + Copy {
    |slot| (entries[slot].at, slot)
}

fn due(entries: &Entries) -> impl Fn(Slot) -> (Time, Slot) + Copy {
    |slot| (entries[slot].deadline, slot)
}

impl Entry {
    /// Whether the ask may fit, as far as the index can tell. `group` is the number of the filter's group.
    fn fits(&self, filter: &Filter, group: Option<u32>) -> bool {
        filter.settled.is_none_or(|settled| settled == self.is_settled())
            && filter.group.as_ref().is_none_or(|_| group == Some(self.group))
            && filter.outcome.is_none_or(|outcome| self.status() == Some(outcome))
            && filter.since.is_none_or(|since| self.at >= since)
            && filter.until.is_none_or(|until| self.at < until)
    }
}

impl Index {
    fn group_number(&mut self, group: &Group) -> u32 {
        if let Some(number) = self.group_numbers.get(group) {
            return *number;
        }
        let number = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(Counts {
            name: Arc::new(group.clone()),
            open: 0,
            asked: VecDeque::new(),
            kept: Ordered::default(),
        });
        self.group_numbers.insert(group.clone(), number);
        number
    }

    fn counts(&mut self, group: u32) -> &mut Counts {
        &mut self.groups[group as usize]
    }

    fn clock_number(&mut self, set_by: i64) -> u32 {
        let known = self.clocks.iter().rposition(|known| *known == set_by);
        let number = known.unwrap_or_else(|| {
            self.clocks.push(set_by);
            self.clocks.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Takes in an ask. `set_by` is how far the clock had been set when its times were written.
    pub(super) fn insert(&mut self, ask: &Ask, set_by: i64) {
        if self.entries.slot(ask.id).is_some() {
            return self.update(ask);
        }
        let (group, clock) = (self.group_number(&ask.group), self.clock_number(set_by));
        let entry = Entry::of(ask, group, clock);
        let counts = self.counts(group);
        counts.open += u32::from(!entry.is_settled());
        // What is loaded at a start is in no order.
        let newest = counts.asked.back().copied().max(Some(ask.created_at));
        if ask.block().is_none() && newest.is_none_or(|newest| ask.created_at + HOUR > newest) {
            counts.asked.push_back(ask.created_at);
        }
        let slot = self.entries.add(entry);
        self.attempts.note(slot, ask, None, &self.entries);
        self.link(slot, ask);
    }

    /// Notes what an ask has become.
    pub(super) fn update(&mut self, ask: &Ask) {
        let Some(slot) = self.entries.slot(ask.id) else { return };
        let before = self.entries[slot];
        let entry = Entry::of(ask, before.group, before.clock);
        if before != entry {
            if before.deadline != entry.deadline {
                self.deadlines.remove(slot, due(&self.entries));
            }
            if before.done && (!entry.done || before.at != entry.at) {
                self.groups[entry.group as usize].kept.remove(slot, in_time(&self.entries));
            }
            if !Pages::stays(&before, &entry) {
                self.unplace(slot, ask);
            }
            if entry.is_settled() && !before.is_settled() {
                let counts = self.counts(entry.group);
                counts.open = counts.open.saturating_sub(1);
            }
            self.entries.set(slot, entry);
            self.attempts.note(slot, ask, Some(&before), &self.entries);
        }
        self.link(slot, ask);
    }

    /// Enters an ask into each table that it belongs into. It leaves those that it does not belong into any more.
    fn link(&mut self, slot: Slot, ask: &Ask) {
        let entry = self.entries[slot];
        if entry.deadline < Time::MAX {
            self.deadlines.insert(slot, due(&self.entries));
        }
        if entry.done {
            self.groups[entry.group as usize].kept.insert(slot, in_time(&self.entries));
        }
        if !self.pages.has(slot, &self.entries) {
            self.pages.put(slot, &self.entries);
        }
        self.chats.put(slot, ask, &self.entries);
        for (by, name) in self.names_of(ask) {
            let names = &mut self.names[by as usize];
            if matches!(by, By::Key) && entry.is_settled() && !entry.is_kept() {
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

    /// Takes an ask out of its place in the list and among the asks of people.
    fn unplace(&mut self, slot: Slot, ask: &Ask) {
        self.pages.drop(slot, &self.entries);
        self.chats.drop(slot, ask, &self.entries);
    }

    /// All that an ask can be looked up by.
    fn names_of(&self, ask: &Ask) -> Vec<(By, u64)> {
        let group = &ask.group;
        let mut names = vec![(By::Code, self.hash.hash_one(&ask.short_id))];
        names.extend(ask.key.map(|key| (By::Key, self.hash.hash_one((group, key)))));
        names.extend(ask.waiters.iter().map(|it| (By::Request, self.hash.hash_one((group, &it.request_id)))));
        names.extend(ask.heard.iter().map(|message| (By::Heard, self.hash.hash_one(message))));
        for widget in &ask.widgets {
            let chat = if chats::is_chat(&widget.route) { "" } else { &widget.route.chat };
            names.extend(widget.messages().map(|it| (By::Message, self.hash.hash_one((chat, it)))));
        }
        names
    }

    /// Takes back an ask that could not be stored: it was never asked, and does not count.
    pub(super) fn take_back(&mut self, ask: &Ask) {
        let group = self.group_number(&ask.group);
        let asked = &mut self.counts(group).asked;
        if ask.block().is_none()
            && let Some(at) = asked.iter().rposition(|at| *at == ask.created_at)
        {
            asked.remove(at);
        }
        self.remove(ask);
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        let Some(slot) = self.entries.slot(ask.id) else { return };
        let entry = self.entries[slot];
        self.deadlines.remove(slot, due(&self.entries));
        self.groups[entry.group as usize].kept.remove(slot, in_time(&self.entries));
        self.unplace(slot, ask);
        self.attempts.remove(slot, ask, &self.entries);
        for (by, name) in self.names_of(ask) {
            self.names[by as usize].remove(name, slot);
        }
        self.lying.remove(&ask.id);
        self.owing.remove(&ask.id);
        self.unfinished.remove(&ask.id);
        if let Some(at) = ask.settled_at() {
            let rests = self.resting.entry(self.hash.hash_one(&ask.short_id)).or_insert(at);
            *rests = at.max(*rests);
            // Looked through only when it has doubled.
            if self.resting.len() == self.resting.capacity() {
                self.resting.retain(|_, settled| at < *settled + CODE_RESTS);
            }
        } else {
            let counts = self.counts(entry.group);
            counts.open = counts.open.saturating_sub(1);
        }
        self.entries.drop(slot);
    }

    /// How many asks are open, and how many are settled.
    pub(super) fn count(&self) -> (usize, usize) {
        let settled = self.entries.iter().filter(|entry| entry.is_settled()).count();
        (self.entries.iter().count() - settled, settled)
    }

    /// How far the clock was set after the times of an ask were written.
    pub(super) fn behind(&self, id: AskId, set_by: i64) -> i64 {
        self.entries.get(id).map_or(0, |entry| set_by.saturating_sub(self.clocks[entry.clock as usize]))
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
        self.entries.iter().filter(|entry| entry.counts_time).map(Entry::id).collect()
    }

    /// What is known of attempts.
    pub(super) const fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// The same, to be changed.
    pub(super) const fn attempts_mut(&mut self) -> &mut Attempts {
        &mut self.attempts
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
        Arc::clone(&self.groups[entry.group as usize].name)
    }

    /// Whether an ask is settled or gone.
    pub(super) fn is_settled(&self, id: AskId) -> bool {
        self.entries.get(id).is_none_or(Entry::is_settled)
    }

    /// The newest ask with that name that `fits`.
    fn find(&self, by: By, name: u64, fits: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        let named = self.names[by as usize].of(name).map(|slot| &self.entries[slot]).filter(|entry| fits(entry));
        named.max_by_key(|entry| (entry.created, entry.id()))
    }

    fn find_id(&self, by: By, name: impl std::hash::Hash, fits: impl Fn(&Entry) -> bool) -> Option<AskId> {
        self.find(by, self.hash.hash_one(name), fits).map(Entry::id)
    }

    /// The ask that may be that request's.
    pub(super) fn by_request(&self, group: &Group, request_id: &RequestId) -> Option<AskId> {
        self.find_id(By::Request, (group, request_id), |_| true)
    }

    /// The ask of which that message is a widget; no chat is given where people answer in words.
    pub(super) fn by_message(&self, chat: &str, message: &str) -> Option<AskId> {
        self.find_id(By::Message, (chat, message), |_| true)
    }

    /// The ask that may have been changed by that message of a person.
    pub(super) fn heard(&self, message: &str) -> Option<AskId> {
        self.find_id(By::Heard, message, |_| true)
    }

    /// The open ask that may have that key.
    pub(super) fn by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.find_id(By::Key, (group, key), |entry| !entry.is_settled())
    }

    /// The ask that may have that key, and an outcome that no call took.
    pub(super) fn kept_by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.find_id(By::Key, (group, key), Entry::is_kept)
    }

    /// The open asks that the person with these ids may answer in words.
    pub(super) fn asked_of(&self, ids: &[String]) -> Vec<AskId> {
        self.chats.asked_of(ids, &self.entries)
    }

    /// The newest asks of that person that were settled at that time or later.
    pub(super) fn ended_since(&self, ids: &[String], since: Time) -> Vec<AskId> {
        self.chats.ended_since(ids, since, &self.entries)
    }

    /// That person's settled asks with that code: first those that can still be answered, then the newest.
    pub(super) fn ended_with(&self, ids: &[String], code: &ShortId) -> Vec<AskId> {
        let coded = self.names[By::Code as usize].of(self.hash.hash_one(code));
        let ended = coded.filter(|slot| self.chats.has_ended(ids, *slot, &self.entries));
        let mut ended: Vec<&Entry> = ended.map(|slot| &self.entries[slot]).collect();
        ended.sort_by_key(|entry| std::cmp::Reverse((entry.late, entry.at, entry.id())));
        ended.into_iter().take(chats::LOOKED_AT).map(Entry::id).collect()
    }

    /// Whether anybody can answer an open ask in words.
    pub(super) fn asks_in_chats(&self) -> bool {
        self.chats.asks_anybody()
    }

    /// What lies in the groups' folders to be taken.
    pub(super) fn lying(&self) -> Vec<(Arc<Group>, AskId, Lying)> {
        let lying = self.lying.iter();
        lying.filter_map(|(id, lying)| Some((self.group(*id)?, *id, lying.clone()))).collect()
    }

    /// Whether an ask that can be answered has that code, or had it so recently that a message with it may still be on its
    /// way.
    pub(super) fn short_taken(&self, short: &ShortId, now: Time) -> bool {
        let code = self.hash.hash_one(short);
        let rests = |settled: Time| now < settled + CODE_RESTS;
        let has_it = |entry: &Entry| !entry.is_settled() || entry.blocked || entry.late || rests(entry.at);
        self.resting.get(&code).is_some_and(|settled| rests(*settled)) || self.find(By::Code, code, has_it).is_some()
    }

    /// How many asks of a group are open, and how many came within the last hour.
    pub(super) fn load(&mut self, group: &Group, now: Time) -> (u32, u32) {
        let number = self.group_number(group);
        let counts = self.counts(number);
        let an_hour_ago = now - HOUR;
        counts.asked.retain(|asked| *asked > an_hour_ago);
        (counts.open, u32::try_from(counts.asked.len()).unwrap_or(u32::MAX))
    }

    /// The oldest kept outcomes of a group, as many as there are too many.
    pub(super) fn crowded(&self, group: &Group) -> Vec<AskId> {
        let Some(number) = self.group_numbers.get(group) else { return Vec::new() };
        let kept = &self.groups[*number as usize].kept;
        let too_many = kept.len().saturating_sub(MOST_KEPT);
        kept.iter().take(too_many).map(|slot| self.entries[slot].id()).collect()
    }

    /// The same of all groups.
    pub(super) fn all_crowded(&self) -> Vec<AskId> {
        self.group_numbers.keys().flat_map(|group| self.crowded(group)).collect()
    }

    fn number_of(&self, filter: &Filter) -> Option<u32> {
        self.group_numbers.get(filter.group.as_ref()?).copied()
    }

    /// What is true for a reader of the list who begins now.
    pub(super) fn begin(&self, filter: &Filter) -> Began {
        let group = self.number_of(filter);
        self.pages.begin(self.entries.iter().filter(|entry| entry.fits(filter, group)).count())
    }

    /// The asks after `last` that may fit, in the order of the list.
    pub(super) fn ahead(
        &self,
        filter: &Filter,
        began: Began,
        last: Option<Position>,
        most: usize,
    ) -> Vec<(Arc<Group>, Position)> {
        let group = self.number_of(filter);
        let ahead = self.pages.after(&self.entries, began, last).filter(|(entry, _)| entry.fits(filter, group));
        ahead.map(|(entry, position)| (self.group_of(entry), position)).take(most).collect()
    }

    /// The asks that a text means: a short code (of an open ask, or else of the newest settled one), or else the
    /// beginning of an id.
    pub(super) fn named(&self, text: &str, short: Option<&ShortId>) -> Vec<AskId> {
        let coded = short.map(|short| self.hash.hash_one(short)).and_then(|code| {
            let open = self.find(By::Code, code, |entry| !entry.is_settled() || entry.blocked);
            let late = || self.find(By::Code, code, |entry| entry.late);
            let settled = self.names[By::Code as usize].of(code).map(|slot| &self.entries[slot]);
            open.or_else(late).or_else(|| settled.max_by_key(|entry| (entry.at, entry.id())))
        });
        if let Some(entry) = coded {
            return vec![entry.id()];
        }
        if let Ok(id) = text.parse::<AskId>() {
            return self.entries.get(id).map(Entry::id).into_iter().collect();
        }
        let begins = |id: &AskId| !text.is_empty() && id.to_string().starts_with(text);
        let mut found: Vec<AskId> = self.entries.iter().map(Entry::id).filter(begins).collect();
        found.sort_unstable();
        found
    }

    /// Lines a job up. `true`: no thread runs the lane or is on its way to it that is called as urgently, so the caller has
    /// to call one.
    pub(super) fn join_lane(&mut self, id: AskId, job: Job, urgent: bool) -> bool {
        let lane = self.lanes.entry(id).or_default();
        lane.jobs.push_back(job);
        let calls = !lane.runs && lane.called.is_none_or(|before| urgent && !before);
        if calls {
            lane.called = Some(urgent);
        }
        calls
    }

    /// Takes a lane over, unless another thread runs it or there is nothing to do.
    pub(super) fn begin_lane(&mut self, id: AskId) -> bool {
        self.lanes.get_mut(&id).is_some_and(|lane| !std::mem::replace(&mut lane.runs, true))
    }

    /// The next job of a lane; the lane ends with the last one.
    pub(super) fn next_job(&mut self, id: AskId) -> Option<Job> {
        let job = self.lanes.get_mut(&id).and_then(|lane| lane.jobs.pop_front());
        if job.is_none() {
            self.lanes.remove(&id);
        }
        job
    }

    /// Notes that the last run left something undone for an ask.
    pub(super) fn owe(&mut self, id: AskId, after_loss: bool) {
        self.owing.insert(id, after_loss);
    }

    /// Whether something is undone that has to be done before anything else happens to an ask, and whether a loss of power
    /// came in between.
    pub(super) fn owes(&self, id: AskId) -> Option<bool> {
        self.owing.get(&id).copied()
    }

    /// Notes that it is done.
    pub(super) fn paid(&mut self, id: AskId) {
        self.owing.remove(&id);
        if self.owing.is_empty() {
            self.owing = HashMap::new();
        }
    }

    /// The asks for which something is undone.
    pub(super) fn owing(&self) -> Vec<AskId> {
        self.owing.keys().copied().collect()
    }

    /// The open asks of each group.
    pub(super) fn open(&self) -> HashMap<Arc<Group>, Vec<AskId>> {
        let mut open: HashMap<Arc<Group>, Vec<AskId>> = HashMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.is_settled()) {
            open.entry(self.group_of(entry)).or_default().push(entry.id());
        }
        open
    }

    /// Notes that a save failed.
    pub(super) fn unfinish(&mut self, id: AskId, what: Unfinished) {
        self.unfinished.insert(id, (what, false));
    }

    /// The failed save that has to be finished before anything else happens to an ask.
    pub(super) fn unfinished(&self, id: AskId) -> Option<Unfinished> {
        self.unfinished.get(&id).map(|(what, _)| what.clone())
    }

    /// Notes that it is finished.
    pub(super) fn finished(&mut self, id: AskId) {
        self.unfinished.remove(&id);
    }

    /// `true` if there is a save to finish and no job for it is queued yet: the caller has to queue one.
    pub(super) fn needs_finishing(&mut self, id: AskId) -> bool {
        self.unfinished.get_mut(&id).is_some_and(|(_, coming)| !std::mem::replace(coming, true))
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::MAX, |slot| self.entries[slot].deadline)
    }

    /// What is due. It comes back with the deadline of the step it leads to.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<AskId> {
        let mut found = Vec::new();
        while let Some(slot) = self.deadlines.first().filter(|slot| self.entries[*slot].deadline <= now) {
            self.deadlines.remove(slot, due(&self.entries));
            found.push(self.entries[slot].id());
        }
        found
    }
}

#[cfg(test)]
mod tests;
