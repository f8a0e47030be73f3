//! Where to look: which asks there are, by id, request, key, short code and deadline. Built anew at
//! every start; decides nothing.

use super::Job;
use super::attempts::Attempts;
use super::chats::Chats;
use super::collect::Lying;
use crate::ask::{Ask, AskId, Digest, Group, RequestId, ShortId, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// New asks are counted over this long.
const HOUR: Duration = Duration::from_secs(3600);

/// Where to look.
#[derive(Debug, Default)]
pub(super) struct Index {
    asks: HashMap<AskId, Entry>,
    /// Jobs of asks that something is happening to.
    lanes: HashMap<AskId, VecDeque<Job>>,
    deadlines: BTreeSet<(Time, AskId)>,
    groups: HashMap<Group, Counts>,
    shorts: HashMap<ShortId, AskId>,
    /// By hash of group and request id; whoever finds one has to look whether it is the one.
    requests: HashMap<u64, AskId>,
    /// What was posted, by hash of chat and message id.
    messages: HashMap<u64, AskId>,
    /// By hash of group and key: open asks.
    keys: HashMap<u64, AskId>,
    /// The same: asks whose outcome nobody took, or that can still be answered late.
    kept: HashMap<u64, AskId>,
    /// What lies in the groups' folders to be taken.
    lying: HashMap<AskId, Lying>,
    hash: RandomState,
    chats: Chats,
    attempts: Attempts,
}

#[derive(Debug)]
struct Entry {
    group: Arc<Group>,
    deadline: Time,
    settled: bool,
}

#[derive(Debug)]
struct Counts {
    name: Arc<Group>,
    open: u32,
    /// When asks were accepted within the last hour.
    asked: VecDeque<Time>,
}

impl Index {
    fn counts(&mut self, group: &Group) -> &mut Counts {
        self.groups.entry(group.clone()).or_insert_with(|| Counts {
            name: Arc::new(group.clone()),
            open: 0,
            asked: VecDeque::new(),
        })
    }

    /// Takes an ask in.
    pub(super) fn insert(&mut self, ask: &Ask) {
        let settled = ask.outcome().is_some();
        let counts = self.counts(&ask.group);
        counts.open += u32::from(!settled);
        if ask.block.is_none() {
            counts.asked.push_back(ask.created_at);
        }
        let group = Arc::clone(&counts.name);
        let deadline = ask.deadline();
        self.deadlines.insert((deadline, ask.id));
        self.asks.insert(ask.id, Entry { group, deadline, settled });
        self.chats.note(ask);
        self.attempts.note(ask);
        if !settled || ask.is_blocked() {
            self.shorts.insert(ask.short_id.clone(), ask.id);
        }
        if !settled && let Some(key) = ask.key {
            self.keys.insert(self.hash.hash_one((&ask.group, key)), ask.id);
        }
        self.note_after(ask);
        self.add_names(ask);
    }

    /// What comes after the decision.
    fn note_after(&mut self, ask: &Ask) {
        match Lying::of(ask) {
            Some(lying) => self.lying.insert(ask.id, lying),
            None => self.lying.remove(&ask.id),
        };
        let Some(key) = ask.key else { return };
        let hash = self.hash.hash_one((&ask.group, key));
        if ask.is_untaken() || ask.is_late_open() {
            self.kept.insert(hash, ask.id);
        } else if self.kept.get(&hash) == Some(&ask.id) {
            self.kept.remove(&hash);
        }
    }

    fn add_names(&mut self, ask: &Ask) {
        for (route, widget) in ask.rules.routes.iter().zip(&ask.widgets) {
            for message in &widget.messages {
                self.messages.insert(self.hash.hash_one((&route.chat, message)), ask.id);
            }
        }
        for waiter in &ask.waiters {
            self.requests.insert(self.hash.hash_one((&ask.group, &waiter.request_id)), ask.id);
        }
    }

    /// Notes what an ask has become.
    pub(super) fn update(&mut self, ask: &Ask) {
        let Some(entry) = self.asks.get_mut(&ask.id) else { return };
        self.deadlines.remove(&(entry.deadline, ask.id));
        entry.deadline = ask.deadline();
        self.deadlines.insert((entry.deadline, ask.id));
        let settled_now = ask.outcome().is_some() && !std::mem::replace(&mut entry.settled, ask.outcome().is_some());
        if settled_now {
            self.close(ask);
        }
        if ask.block.is_some() && !ask.is_blocked() {
            self.release_code(ask);
        }
        self.chats.note(ask);
        self.attempts.note(ask);
        self.note_after(ask);
        self.add_names(ask);
    }

    fn release_code(&mut self, ask: &Ask) {
        if self.shorts.get(&ask.short_id) == Some(&ask.id) {
            self.shorts.remove(&ask.short_id);
        }
    }

    /// An ask is not open any more.
    fn close(&mut self, ask: &Ask) {
        let counts = self.counts(&ask.group);
        counts.open = counts.open.saturating_sub(1);
        self.release_code(ask);
        if let Some(key) = ask.key {
            let hash = self.hash.hash_one((&ask.group, key));
            if self.keys.get(&hash) == Some(&ask.id) {
                self.keys.remove(&hash);
            }
        }
    }

    /// Takes back an ask that could not be stored: it was never asked, and does not count.
    pub(super) fn take_back(&mut self, ask: &Ask) {
        let asked = &mut self.counts(&ask.group).asked;
        if ask.block.is_none()
            && let Some(at) = asked.iter().rposition(|at| *at == ask.created_at)
        {
            asked.remove(at);
        }
        self.remove(ask);
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        let Some(entry) = self.asks.remove(&ask.id) else { return };
        self.deadlines.remove(&(entry.deadline, ask.id));
        self.chats.remove(ask);
        self.lying.remove(&ask.id);
        if let Some(key) = ask.key {
            let hash = self.hash.hash_one((&ask.group, key));
            if self.kept.get(&hash) == Some(&ask.id) {
                self.kept.remove(&hash);
            }
        }
        self.attempts.remove(ask);
        self.release_code(ask);
        if !entry.settled {
            self.close(ask);
        }
        for waiter in &ask.waiters {
            let hash = self.hash.hash_one((&ask.group, &waiter.request_id));
            if self.requests.get(&hash) == Some(&ask.id) {
                self.requests.remove(&hash);
            }
        }
        self.messages.retain(|_, id| *id != ask.id);
    }

    /// What is known of chats.
    pub(super) fn chats(&self) -> &Chats {
        &self.chats
    }

    /// What is known of attempts.
    pub(super) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// The same, to be changed.
    pub(super) fn attempts_mut(&mut self) -> &mut Attempts {
        &mut self.attempts
    }

    /// Whose an ask is.
    pub(super) fn group(&self, id: AskId) -> Option<Arc<Group>> {
        self.asks.get(&id).map(|entry| Arc::clone(&entry.group))
    }

    /// Whether an ask is settled or gone.
    pub(super) fn is_settled(&self, id: AskId) -> bool {
        self.asks.get(&id).is_none_or(|entry| entry.settled)
    }

    /// The ask that may be that request's.
    pub(super) fn by_request(&self, group: &Group, request_id: &RequestId) -> Option<AskId> {
        self.requests.get(&self.hash.hash_one((group, request_id))).copied()
    }

    /// The ask of which that message is a widget.
    pub(super) fn by_message(&self, chat: &str, message: &str) -> Option<AskId> {
        self.messages.get(&self.hash.hash_one((chat, message))).copied()
    }

    /// The open ask that may have that key.
    pub(super) fn by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.keys.get(&self.hash.hash_one((group, key))).copied()
    }

    /// The ask that may have that key, and an outcome that nobody took.
    pub(super) fn kept_by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.kept.get(&self.hash.hash_one((group, key))).copied()
    }

    /// What lies in the groups' folders to be taken.
    pub(super) fn lying(&self) -> Vec<(Arc<Group>, AskId, Lying)> {
        let lying = self.lying.iter();
        lying.filter_map(|(id, lying)| Some((self.group(*id)?, *id, lying.clone()))).collect()
    }

    /// Whether an open ask has that code.
    pub(super) fn short_taken(&self, short: &ShortId) -> bool {
        self.shorts.contains_key(short)
    }

    /// How many asks of a group are open, and how many came within the last hour.
    pub(super) fn load(&mut self, group: &Group, now: Time) -> (u32, u32) {
        let counts = self.counts(group);
        let an_hour_ago = now - HOUR;
        // What is loaded at a start is in no order.
        counts.asked.retain(|asked| *asked > an_hour_ago);
        (counts.open, u32::try_from(counts.asked.len()).unwrap_or(u32::MAX))
    }

    /// Every open ask, in no order.
    pub(super) fn open(&self) -> Vec<(Arc<Group>, AskId)> {
        let open = self.asks.iter().filter(|(_, entry)| !entry.settled);
        open.map(|(id, entry)| (Arc::clone(&entry.group), *id)).collect()
    }

    /// The newest settled asks, newest first: they are the last to be forgotten. And every block that stands.
    pub(super) fn settled(&self, most: usize) -> Vec<(Arc<Group>, AskId)> {
        let blocked: BTreeSet<AskId> = self.attempts.blocked().collect();
        let newest = self.deadlines.iter().rev().map(|(_, id)| *id);
        let newest = newest.filter(|id| !blocked.contains(id) && self.asks.get(id).is_some_and(|entry| entry.settled));
        let listed = blocked.iter().copied().chain(newest.take(most));
        listed.filter_map(|id| Some((self.group(id)?, id))).collect()
    }

    /// The asks that are meant by a text: a short code, else the beginning of an id.
    pub(super) fn named(&self, text: &str, short: Option<&ShortId>) -> Vec<AskId> {
        if let Some(id) = short.and_then(|short| self.shorts.get(short)) {
            return vec![*id];
        }
        if let Ok(id) = text.parse::<AskId>() {
            return self.asks.contains_key(&id).then_some(id).into_iter().collect();
        }
        let mut found: Vec<AskId> =
            self.asks.keys().filter(|id| !text.is_empty() && id.to_string().starts_with(text)).copied().collect();
        found.sort_unstable();
        found
    }

    /// Lines a job up; `true` if the ask had no lane, so that somebody has to run it.
    pub(super) fn join_lane(&mut self, id: AskId, job: Job) -> bool {
        let idle = !self.lanes.contains_key(&id);
        self.lanes.entry(id).or_default().push_back(job);
        idle
    }

    /// The next job of a lane; the lane ends with the last one.
    pub(super) fn next_job(&mut self, id: AskId) -> Option<Job> {
        let job = self.lanes.get_mut(&id).and_then(VecDeque::pop_front);
        if job.is_none() {
            self.lanes.remove(&id);
        }
        job
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::MAX, |(time, _)| *time)
    }

    /// What is due. It comes back with the deadline of the step it leads to.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<AskId> {
        let mut due = Vec::new();
        while let Some((time, id)) = self.deadlines.first().copied().filter(|(time, _)| *time <= now) {
            self.deadlines.remove(&(time, id));
            due.push(id);
        }
        due
    }
}
