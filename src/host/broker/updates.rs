//! Brings cards up to date. A few cards of each channel have their turn at a time; of the others only their names wait, so that
//! answers that come while a platform is slow take little memory, however many they are. A card that waits for a person to
//! write gives its turn back.

use super::overview::Stuck;
use super::{Broker, RETRY};
use crate::host::port::{Updated, not_set_up};
use askd_core::{Ask, AskId, ChannelName, Time, WidgetEvent, WidgetState, wording};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// How many cards of a channel have their turn at a time.
const AT_A_TIME: usize = 64;

/// A card that has to be brought up to date.
#[derive(Debug, Clone, Copy)]
struct Card {
    ask: AskId,
    route: usize,
    /// How long to wait before another try.
    pause: Duration,
}

/// The cards of each channel that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Updates(Mutex<HashMap<ChannelName, Line>>);

#[derive(Debug, Default)]
struct Line {
    at_work: usize,
    waiting: VecDeque<Card>,
    /// The same cards: one that waits already shows whatever is new when it has its turn.
    names: HashSet<(AskId, usize)>,
}

impl Updates {
    /// `true`: whoever calls this has to work the line off.
    #[must_use]
    fn join(&self, channel: ChannelName, card: Card) -> bool {
        let mut lines = self.0.lock();
        let line = lines.entry(channel).or_default();
        if !line.names.insert((card.ask, card.route)) {
            return false;
        }
        line.waiting.push_back(card);
        let goes = line.at_work < AT_A_TIME;
        line.at_work += usize::from(goes);
        goes
    }

    /// The next one; `None`: nobody waits, and the caller's place is free.
    fn next(&self, channel: ChannelName) -> Option<Card> {
        let mut lines = self.0.lock();
        let line = lines.entry(channel).or_default();
        let next = line.waiting.pop_front();
        match &next {
            Some(card) => drop(line.names.remove(&(card.ask, card.route))),
            None => line.at_work -= 1,
        }
        next
    }
}

impl Broker {
    /// Tries until the card shows what the ask is now, or never can.
    pub(super) fn update(&self, ask: &Ask, route: usize) {
        if let Some(place) = ask.route(route) {
            self.line_up(place.channel, Card { ask: ask.id, route, pause: RETRY.0 });
        }
    }

    fn line_up(&self, channel: ChannelName, card: Card) {
        if !self.0.updates.join(channel, card) {
            return;
        }
        let broker = self.clone();
        self.0.ctx.finish(async move {
            while let Some(card) = broker.0.updates.next(channel) {
                // A panic has been reported, and the place must not be lost.
                let _panicked = AssertUnwindSafe(broker.bring_up_to_date(channel, card)).catch_unwind().await;
            }
        });
    }

    async fn bring_up_to_date(&self, channel: ChannelName, card: Card) {
        if !self.0.ctx.until_calls_may_begin().await {
            return;
        }
        let ask = match self.get(card.ask).await {
            Ok(Some(ask)) => ask,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(ask = %card.ask, %error, "an ask cannot be read; its card is brought up to date later");
                return self.line_up_later(channel, card, None);
            }
        };
        // The next holder brings it up to date.
        let Some(_tenure) = self.tenure(&ask) else { return };
        if !self.0.channels.has(channel) {
            return self.leave_for_its_channel(&ask, card.route, channel);
        }
        match self.0.channels.of(&ask, card.route).update(&ask, card.route).await {
            Updated::Done => {
                self.updated(&ask, card.route);
                // The core does not know of the look after a takeover, beside which another update may have shown what came since.
                let is_past = |now: Arc<Ask>| now.face() != ask.face();
                if self.is_shared() && self.get(card.ask).await.is_ok_and(|now| now.is_some_and(is_past)) {
                    self.line_up(channel, card);
                }
            }
            Updated::Never(why) => self.never_updated(&ask, card.route, why),
            Updated::Later(after) => self.line_up_later(channel, card, after),
            Updated::Held { person, until } => self.line_up_once_written(channel, card, person, until),
        }
    }

    fn updated(&self, ask: &Ask, route: usize) {
        self.apply_later(ask.id, WidgetEvent::Updated(ask.face()).on(route));
    }

    fn never_updated(&self, ask: &Arc<Ask>, route: usize, why: String) {
        tracing::error!(ask = %ask.id, group = %ask.group, route, why, "a card cannot be updated");
        self.give_up(ask, route, Stuck::Never(why));
        self.updated(ask, route);
    }

    /// Only a start can set a channel up, and a start brings every card up to date that is not. A channel that has been away for as
    /// long as questions are kept does not come back.
    fn leave_for_its_channel(&self, ask: &Arc<Ask>, route: usize, channel: ChannelName) {
        if ask.widgets.get(route).is_some_and(|widget| matches!(widget.state, WidgetState::Closed { .. })) {
            // It says how the question ended; what came after that is not worth the wait.
            return self.updated(ask, route);
        }
        if ask.settled_at().is_some_and(|at| at + ask.rules.keep < self.clock().now()) {
            return self.never_updated(ask, route, not_set_up(channel));
        }
        tracing::warn!(ask = %ask.id, group = %ask.group, route, "a card is not brought up to date: {}", not_set_up(channel));
        self.give_up(ask, route, Stuck::NotSetUp);
    }

    /// The turn goes to others until the person has written, which may take weeks.
    fn line_up_once_written(&self, channel: ChannelName, card: Card, person: String, until: Time) {
        let broker = self.clone();
        self.0.ctx.spawn(async move {
            if broker.0.channels.named(channel).wait_for_person(&person, until).await {
                broker.line_up(channel, card);
            } else if let Ok(Some(ask)) = broker.get(card.ask).await {
                broker.never_updated(&ask, card.route, wording::NEVER_WROTE.to_owned());
            }
        });
    }

    /// The turn goes to others meanwhile.
    fn line_up_later(&self, channel: ChannelName, mut card: Card, after: Option<Duration>) {
        card.pause = card.pause.max(after.unwrap_or_default());
        let broker = self.clone();
        self.0.ctx.finish(async move {
            if broker.pause(&mut card.pause).await {
                broker.line_up(channel, card);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_cards_have_their_turn_and_one_that_waits_is_named_once() {
        let (updates, channel) = (Updates::default(), ChannelName::SLACK);
        let card = |ask| Card { ask: AskId::from_bits(ask), route: 0, pause: Duration::ZERO };
        for number in 0..AT_A_TIME as u128 {
            assert!(updates.join(channel, card(number)));
        }
        assert!(!updates.join(channel, card(1000)) && !updates.join(channel, card(1000)), "it waits");
        assert!(updates.join(ChannelName::WEB, card(1000)), "another channel has places of its own");
        let turns: Vec<AskId> = std::iter::from_fn(|| updates.next(channel)).map(|card| card.ask).collect();
        assert_eq!(turns.len(), AT_A_TIME + 1);
        assert_eq!(turns.last(), Some(&AskId::from_bits(1000)));
        // One place is free by now, and no more than that.
        assert!(updates.join(channel, card(1)) && !updates.join(channel, card(2)));
    }
}
