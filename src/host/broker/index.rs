//! Where to look: which asks there are, by id, request, key, short code and deadline. Built anew at
//! every start; decides nothing.

use super::attempts::Attempts;
use super::chats::Chats;
use super::collect::Lying;
use super::lane::{Job, Unfinished};
use super::listing::Filter;
use super::pages::{Began, Pages, Place, Position};
use crate::ipc::wire;
use askd_core::{Ask, AskId, Digest, Group, RequestId, ShortId, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// New asks are counted over this long.
const HOUR: Duration = Duration::from_secs(3600);

/// Where to look.
#[derive(Debug)]
pub(super) struct Index {
    asks: HashMap<AskId, Entry>,
    /// Jobs of asks that something is happening to.
    lanes: HashMap<AskId, VecDeque<Job>>,
    /// Failed saves, and whether a job to finish each of them is queued.
    unfinished: HashMap<AskId, (Unfinished, bool)>,
    deadlines: BTreeSet<(Time, AskId)>,
    groups: HashMap<Group, Counts>,
    shorts: HashMap<ShortId, AskId>,
    /// Codes with which people can still answer after the timeout: no other ask may have them.
    late: HashMap<ShortId, AskId>,
    /// By hash of group and request id. Hashes can collide, so the caller has to check the ask.
    requests: HashMap<u64, AskId>,
    /// What was posted, by hash of chat and message id.
    messages: HashMap<u64, AskId>,
    /// By hash of group and key: open asks.
    keys: HashMap<u64, AskId>,
    /// The same: the newest ask whose outcome no call took, or that can still be answered late.
    kept: HashMap<u64, (Time, AskId)>,
    /// What lies in the groups' folders to be taken.
    lying: HashMap<AskId, Lying>,
    hash: RandomState,
    chats: Chats,
    attempts: Attempts,
    pages: Pages,
}

#[derive(Debug)]
struct Entry {
    group: Arc<Group>,
    deadline: Time,
    settled: bool,
    place: Place,
    /// How it ended.
    status: Option<&'static str>,
    /// How far the clock had been set in all when its times were written.
    set_by: i64,
    /// Whether it has to follow a clock that is set.
    counts_time: bool,
}

impl Entry {
    /// Whether the ask may fit, as far as the index can tell.
    fn fits(&self, filter: &Filter) -> bool {
        filter.settled.is_none_or(|settled| settled == self.settled)
            && filter.group.as_ref().is_none_or(|group| *group == *self.group)
            && filter.outcome.is_none_or(|outcome| self.status == Some(outcome))
            && filter.since.is_none_or(|since| self.place.at >= since)
            && filter.until.is_none_or(|until| self.place.at < until)
    }
}

#[derive(Debug)]
struct Counts {
    name: Arc<Group>,
    open: u32,
    /// When asks were accepted within the last hour.
    asked: VecDeque<Time>,
}

impl Default for Index {
    fn default() -> Self {
        let hash = RandomState::new();
        Self {
            asks: HashMap::new(),
            lanes: HashMap::new(),
            unfinished: HashMap::new(),
            deadlines: BTreeSet::new(),
            groups: HashMap::new(),
            shorts: HashMap::new(),
            late: HashMap::new(),
            requests: HashMap::new(),
            messages: HashMap::new(),
            keys: HashMap::new(),
            kept: HashMap::new(),
            lying: HashMap::new(),
            chats: Chats::default(),
            attempts: Attempts::default(),
            // Tells this run of the daemon from any other.
            pages: Pages::new(hash.hash_one("life")),
            hash,
        }
    }
}

fn status(ask: &Ask) -> Option<&'static str> {
    ask.outcome().map(|outcome| wire::status(outcome).0)
}

impl Index {
    fn counts(&mut self, group: &Group) -> &mut Counts {
        self.groups.entry(group.clone()).or_insert_with(|| Counts {
            name: Arc::new(group.clone()),
            open: 0,
            asked: VecDeque::new(),
        })
    }

    /// Takes in an ask. `set_by` is how far the clock had been set when its times were written.
    pub(super) fn insert(&mut self, ask: &Ask, set_by: i64) {
        let settled = ask.outcome().is_some();
        let counts = self.counts(&ask.group);
        counts.open += u32::from(!settled);
        if ask.block.is_none() {
            counts.asked.push_back(ask.created_at);
        }
        let group = Arc::clone(&counts.name);
        let deadline = ask.deadline();
        self.deadlines.insert((deadline, ask.id));
        let place = Place::of(ask);
        self.pages.put(ask.id, None, place);
        let (status, counts_time) = (status(ask), ask.counts_time());
        self.asks.insert(ask.id, Entry { group, deadline, settled, place, status, set_by, counts_time });
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
        if ask.is_late_open() {
            self.late.insert(ask.short_id.clone(), ask.id);
        } else {
            self.drop_late(ask);
        }
        let Some(key) = ask.key else { return };
        let hash = self.hash.hash_one((&ask.group, key));
        if ask.is_untaken() || ask.is_late_open() {
            let kept = self.kept.entry(hash).or_insert((ask.created_at, ask.id));
            *kept = (*kept).max((ask.created_at, ask.id));
        } else if self.kept.get(&hash).is_some_and(|(_, id)| *id == ask.id) {
            self.kept.remove(&hash);
        }
    }

    fn drop_late(&mut self, ask: &Ask) {
        if self.late.get(&ask.short_id) == Some(&ask.id) {
            self.late.remove(&ask.short_id);
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
        let place = Place::of(ask);
        self.pages.put(ask.id, Some(std::mem::replace(&mut entry.place, place)), place);
        entry.status = status(ask);
        entry.counts_time = ask.counts_time();
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
        self.pages.drop(ask.id, entry.place);
        self.unfinished.remove(&ask.id);
        self.chats.remove(ask);
        self.lying.remove(&ask.id);
        self.drop_late(ask);
        if let Some(key) = ask.key {
            let hash = self.hash.hash_one((&ask.group, key));
            if self.kept.get(&hash).is_some_and(|(_, id)| *id == ask.id) {
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
        // Not by looking through all of them: many are forgotten at once after a long rest.
        for (route, widget) in ask.rules.routes.iter().zip(&ask.widgets) {
            for message in &widget.messages {
                let hash = self.hash.hash_one((&route.chat, message));
                if self.messages.get(&hash) == Some(&ask.id) {
                    self.messages.remove(&hash);
                }
            }
        }
    }

    /// How far the clock was set after the times of an ask were written.
    pub(super) fn behind(&self, id: AskId, set_by: i64) -> i64 {
        self.asks.get(&id).map_or(0, |entry| set_by.saturating_sub(entry.set_by))
    }

    /// Notes that the times of an ask have followed the clock.
    pub(super) fn has_followed(&mut self, id: AskId, set_by: i64) {
        if let Some(entry) = self.asks.get_mut(&id) {
            entry.set_by = set_by;
        }
    }

    /// The asks that have to follow a clock that was set.
    pub(super) fn counting_time(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, entry)| entry.counts_time).map(|(id, _)| *id).collect()
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

    /// The ask that may have that key, and an outcome that no call took.
    pub(super) fn kept_by_key(&self, group: &Group, key: Digest) -> Option<AskId> {
        self.kept.get(&self.hash.hash_one((group, key))).map(|(_, id)| *id)
    }

    /// What lies in the groups' folders to be taken.
    pub(super) fn lying(&self) -> Vec<(Arc<Group>, AskId, Lying)> {
        let lying = self.lying.iter();
        lying.filter_map(|(id, lying)| Some((self.group(*id)?, *id, lying.clone()))).collect()
    }

    /// Whether an ask that can be answered has that code, or had it recently.
    pub(super) fn short_taken(&self, short: &ShortId, now: Time) -> bool {
        self.shorts.contains_key(short) || self.late.contains_key(short) || self.chats.rests(short, now)
    }

    /// How many asks of a group are open, and how many came within the last hour.
    pub(super) fn load(&mut self, group: &Group, now: Time) -> (u32, u32) {
        let counts = self.counts(group);
        let an_hour_ago = now - HOUR;
        // What is loaded at a start is in no order.
        counts.asked.retain(|asked| *asked > an_hour_ago);
        (counts.open, u32::try_from(counts.asked.len()).unwrap_or(u32::MAX))
    }

    /// What is true for a reader of the list who begins now.
    pub(super) fn begin(&self, filter: &Filter) -> Began {
        let total = self.asks.values().filter(|entry| entry.fits(filter)).count();
        self.pages.begin(total)
    }

    /// The asks after `last` that may fit, in the order of the list.
    pub(super) fn ahead(
        &self,
        filter: &Filter,
        began: Began,
        last: Option<Position>,
        most: usize,
    ) -> Vec<(Arc<Group>, Position)> {
        let ahead = self.pages.after(began, last).filter_map(|position| {
            let entry = self.asks.get(&position.id).filter(|entry| entry.fits(filter))?;
            Some((Arc::clone(&entry.group), position))
        });
        ahead.take(most).collect()
    }

    /// The asks that a text means: a short code (of an open ask, or else of the newest settled one), or else the
    /// beginning of an id.
    pub(super) fn named(&self, text: &str, short: Option<&ShortId>) -> Vec<AskId> {
        let open = |short| self.shorts.get(short).or_else(|| self.late.get(short)).copied();
        if let Some(id) = short.and_then(|short| {
            open(short).or_else(|| self.chats.closed_with(short).filter(|id| self.asks.contains_key(id)))
        }) {
            return vec![id];
        }
        if let Ok(id) = text.parse::<AskId>() {
            return self.asks.contains_key(&id).then_some(id).into_iter().collect();
        }
        let mut found: Vec<AskId> =
            self.asks.keys().filter(|id| !text.is_empty() && id.to_string().starts_with(text)).copied().collect();
        found.sort_unstable();
        found
    }

    /// Lines a job up; `true` if the ask had no lane, so that the caller has to run it.
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
