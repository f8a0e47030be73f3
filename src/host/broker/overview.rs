//! What an operator wants to know of all groups at once: how many questions are open, which answers nobody has collected,
//! which cards still show a question that is closed. Made anew for each reader; decides nothing.

use super::Broker;
use super::index::Tallies;
use crate::host::metrics::{Cluster, Metrics};
use crate::host::port::not_set_up;
use askd_core::{Ask, AskId, Card, ChannelName, Group, Route, Time, Widget};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many asks of a kind are named one by one.
const MOST_NAMED: usize = 100;
/// How many cards that cannot be closed are remembered.
const MOST_GIVEN_UP: usize = 100;
/// How long they are named.
const GIVEN_UP_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// A card that is not closed this long after its question is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// All groups at once.
#[derive(Debug, Default)]
pub struct Overview {
    /// Each group that has asked.
    pub groups: BTreeMap<Arc<Group>, Tally>,
    /// The newest asks that a person answered or dismissed and no agent has collected, and when they were settled.
    pub uncollected: Vec<(Arc<Ask>, Time)>,
    /// Cards that still show a question that is closed.
    pub stuck: Vec<StuckCard>,
}

/// What is counted of a group.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Asks that are open.
    pub open: usize,
    /// Asks that a person answered or dismissed and no agent has collected.
    pub uncollected: usize,
    /// When it asked last, of the asks that are kept.
    pub asked: Option<Time>,
}

/// A card that still shows a question that is closed, or an open one that nobody hears an answer to.
#[derive(Debug, Clone)]
pub struct StuckCard {
    /// Its ask.
    pub ask: Arc<Ask>,
    /// Where it is.
    pub channel: ChannelName,
    /// The chat.
    pub chat: String,
    /// Since when.
    pub since: Time,
    /// What keeps askd from closing it.
    pub stuck: Stuck,
}

/// What keeps askd from closing a card.
#[derive(Debug, Clone)]
pub enum Stuck {
    /// Nothing for good: askd goes on trying.
    Trying,
    /// Its channel is not in the settings any more. The start that sets it up again closes the card.
    NotSetUp,
    /// It never can, for this reason.
    Never(String),
}

impl StuckCard {
    /// Why askd does not close it; `None`: it goes on trying.
    pub fn why(&self) -> Option<String> {
        match &self.stuck {
            Stuck::Trying => None,
            Stuck::NotSetUp => Some(not_set_up(self.channel)),
            Stuck::Never(why) => Some(why.clone()),
        }
    }

    /// Whether it is the same card.
    fn is(&self, other: &Self) -> bool {
        self.ask.id == other.ask.id && self.channel == other.channel && self.chat == other.chat
    }
}

impl Broker {
    /// What holds the records, in words for a person.
    pub fn place(&self) -> &'static str {
        self.0.store.place()
    }

    /// Looks at all of them.
    pub async fn overview(&self) -> Overview {
        let broker = self.clone();
        tokio::task::spawn_blocking(move || broker.look_over()).await.unwrap_or_default()
    }

    /// What is counted of each group.
    pub fn tallies(&self) -> BTreeMap<Arc<Group>, Tally> {
        self.index().tallies().groups
    }

    /// What was counted since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Where daemons share the records: what this one is among them.
    pub fn cluster(&self) -> Option<Cluster> {
        let (shared, is_ours) = (self.0.store.shared()?, self.0.store.is_ours());
        let held = if is_ours { shared.held().len() } else { 0 };
        let (leads, unserved) = (is_ours && shared.leads(), shared.unserved());
        Some(Cluster { leads, held, unserved, standbys: shared.standbys() })
    }

    fn look_over(&self) -> Overview {
        let Tallies { groups, mut uncollected, unfinished } = self.index().tallies();
        // Only now: every click waits while the index is held.
        uncollected.sort_unstable_by_key(|(at, _)| Reverse(*at));
        let read = |id: &AskId| self.load(*id).ok().flatten();
        let newest = uncollected.iter().take(MOST_NAMED);
        let uncollected = newest.filter_map(|(at, id)| Some((read(id)?, *at))).collect();
        let late = self.clock().now() - STUCK_AFTER;
        let unfinished = unfinished.iter().filter(|(at, _)| *at < late).take(10 * MOST_NAMED);
        let named = self.clock().now() - GIVEN_UP_FOR;
        let mut stuck: Vec<StuckCard> =
            self.0.given_up.lock().iter().filter(|card| card.since > named).cloned().collect();
        // A question that was open then may be over by now, or forgotten.
        stuck.retain_mut(|card| card.ask.is_over() || read(&card.ask.id).map(|newest| card.ask = newest).is_some());
        let given_up = stuck.clone();
        for (at, id) in unfinished {
            if let Some(ask) = read(id) {
                // One that was given up is tried once more whenever it would say something else.
                let is_new = |card: &StuckCard| !given_up.iter().any(|known| known.is(card));
                // One whose channel is not set up is named for as long as any that was given up.
                let is_tried = |card: &StuckCard| self.0.channels.has(card.channel);
                stuck.extend(still_open(&ask, *at).filter(|card| is_tried(card) && is_new(card)));
            }
        }
        stuck.truncate(MOST_NAMED);
        Overview { groups, uncollected, stuck }
    }

    /// Remembers a card that cannot be closed, once.
    pub(super) fn give_up(&self, ask: &Arc<Ask>, route: usize, stuck: Stuck) {
        if let Some(place) = ask.route(route).filter(|_| ask.is_over()) {
            self.name_card(ask, place, stuck);
        }
    }

    /// Remembers the cards of an open question whose channel was taken out of the settings: nobody hears an answer there.
    pub(super) fn note_unheard(&self, ask: &Ask) {
        let unheard = |widget: &&Widget| widget.state.card().is_some() && !self.0.channels.has(widget.route.channel);
        for widget in ask.widgets.iter().filter(|_| !ask.is_over()).filter(unheard) {
            self.name_card(&Arc::new(ask.clone()), &widget.route, Stuck::NotSetUp);
        }
    }

    fn name_card(&self, ask: &Arc<Ask>, place: &Route, stuck: Stuck) {
        let (channel, chat, since) = (place.channel, place.chat.clone(), self.clock().now());
        let card = StuckCard { ask: Arc::clone(ask), channel, chat, since, stuck };
        let mut given_up = self.0.given_up.lock();
        if !given_up.iter().any(|known| known.is(&card)) {
            given_up.truncate(MOST_GIVEN_UP - 1);
            given_up.push_front(card);
        }
    }
}

fn still_open(ask: &Arc<Ask>, since: Time) -> impl Iterator<Item = StuckCard> {
    let changing = ask.widgets.iter().filter(|widget| matches!(widget.state.card(), Some(Card::Changing { .. })));
    changing.map(move |widget| StuckCard {
        ask: Arc::clone(ask),
        channel: widget.route.channel,
        chat: widget.route.chat.clone(),
        since,
        stuck: Stuck::Trying,
    })
}
