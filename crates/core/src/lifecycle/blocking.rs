//! An ask that askd puts to no person, because its questions were asked too often: it is settled from the
//! start, its callers are told so, and people see a card that says it, with the right to allow it again.
//! Section 8, "Attempts", of the specification.
//!
//! Whether a question was asked too often is counted elsewhere (the broker); here is only what follows. As long
//! as the block stands, its card is treated like one of an open ask: posted until it is up, shown on the next
//! route where it cannot be. It is closed when the block ends.

use super::{Accepted, Effect, Fact, FollowUpEffect, Outcome, Source, Stage, Waiter, WidgetEffect, WidgetState};
use crate::{Ask, Person, Refusal, Time};
use serde::{Deserialize, Serialize};

/// Callers of a blocked ask that are remembered; older ones have had their response, and an agent that asks
/// in a loop must not fill the disk.
const REMEMBERED: usize = 50;

/// What is remembered of a blocked ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// How often its questions were asked without an answer, this ask and those that joined it included.
    pub times: u32,
    /// The lowest number that a card may still show.
    pub told: u32,
    /// Whether the cards are being rewritten.
    pub telling: bool,
    /// Made by an earlier version: it holds for its questions under every title and context.
    pub any_context: bool,
    /// How the block ended, once it has.
    pub lifted: Option<Lifted>,
}

/// The end of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifted {
    /// Who allowed it again; `None` if the question was answered elsewhere or its attempts were forgotten.
    pub by: Option<Person>,
    /// When.
    pub at: Time,
}

impl Ask {
    /// An ask that no person answers: all its questions were asked `limit` times before.
    /// `times` counts this one too.
    pub fn block(new: Accepted, limit: u8, times: u32, now: Time) -> super::Step {
        let mut ask = Self::new(new, now);
        ask.block = Some(Block { times, told: times, telling: false, any_context: false, lifted: None });
        ask.stage =
            Stage::Settled { outcome: Outcome::Blocked { limit }, at: now, shown_at: None, follow_up: Box::default() };
        let mut effects = vec![Effect::Note(Fact::Asked), Effect::Note(Fact::Settled)];
        for waiter in &mut ask.waiters {
            effects.push(waiter.response.owe().of(waiter.request_id.clone()));
        }
        ask.show_next(now, &mut effects);
        super::Step { ask, effects }
    }

    /// Whether it was asked too often and no person has allowed it again.
    pub fn is_blocked(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.lifted.is_none())
    }

    /// Who ended it: answered or dismissed it, or allowed it again.
    pub fn ended_by(&self) -> Option<&Person> {
        match (self.outcome()?, &self.block) {
            (_, Some(block)) => block.lifted.as_ref()?.by.as_ref(),
            (Outcome::Answered { by, .. } | Outcome::Dismissed { by }, None) => Some(by),
            _ => None,
        }
    }

    /// Whether its cards are to be closed: it is settled, and no block stands.
    pub fn is_over(&self) -> bool {
        self.outcome().is_some() && !self.is_blocked()
    }

    /// The same was asked again: the call is told the same, and the card counts it.
    pub(super) fn repeated(&mut self, mut waiter: Waiter, effects: &mut Vec<Effect>) -> bool {
        if !self.is_blocked() || self.waiter(&waiter.request_id).is_some() {
            return false;
        }
        if let Some(block) = &mut self.block {
            block.times = block.times.saturating_add(1);
        }
        // The first waiter names the record, and a waiter without a response yet is not forgotten.
        let taken = |waiter: &Waiter| waiter.response.is_taken() || waiter.response.is_taken_back();
        let lies = |waiter: &Waiter| waiter.response.is_published();
        while self.waiters.len() >= REMEMBERED {
            let others = || self.waiters.iter().skip(1);
            let Some(told) = others().position(taken).or_else(|| others().position(lies)) else { break };
            self.waiters.remove(told + 1);
        }
        effects.push(Effect::Note(Fact::Joined(waiter.request_id.clone())));
        effects.push(waiter.response.owe().of(waiter.request_id.clone()));
        self.waiters.push(waiter);
        true
    }

    /// A person lets the questions be asked again: on the card of a block that stands, or, with the token, of
    /// any ask.
    pub(super) fn allow(
        &mut self,
        source: Source,
        person: Person,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        self.may_answer(source, &person).map_err(|_| Refusal::MayNotAllow { id: person.id.clone() })?;
        if !self.is_blocked() && source != Source::Token {
            let by = self.block.as_ref().and_then(|block| block.lifted.as_ref()?.by.clone());
            return Err(Refusal::NotBlocked { by });
        }
        effects.push(Effect::Note(Fact::AllowedAgain { by: person.clone() }));
        if !self.lift(Some(person), now, effects) {
            // Nothing of the ask itself has changed; what is kept as an outcome stays that.
            self.retire_if_done(effects);
        }
        Ok(true)
    }

    /// The block has ended.
    pub(super) fn lift(&mut self, by: Option<Person>, now: Time, effects: &mut Vec<Effect>) -> bool {
        let Some(block) = self.block.as_mut().filter(|block| block.lifted.is_none()) else { return false };
        block.lifted = Some(Lifted { by, at: now });
        let telling = block.telling;
        effects.push(Effect::Note(Fact::Unblocked));
        let mut closing = Vec::new();
        self.close_widgets(now, &mut closing);
        // Two rewritings of one card at a time could end in the wrong order.
        if !telling {
            effects.append(&mut closing);
        }
        self.retire_if_done(effects);
        true
    }

    /// The cards show this number now, or never will show another one.
    pub(super) fn recounted(&mut self, times: u32, effects: &mut Vec<Effect>) -> bool {
        let Some(block) = self.block.as_mut().filter(|block| block.telling) else { return false };
        block.telling = false;
        block.told = block.told.max(times);
        if block.lifted.is_some() {
            let up =
                self.widgets.iter().enumerate().filter(|(_, widget)| matches!(widget.state, WidgetState::Up { .. }));
            effects.extend(up.map(|(route, _)| WidgetEffect::Close.on(route)));
        }
        true
    }

    /// Has the cards rewritten if they may show too low a number; `true` if that begins now.
    pub(super) fn keep_count(&mut self, effects: &mut Vec<Effect>) -> bool {
        let is_blocked = self.is_blocked();
        let posts = |route: usize| self.rules.routes[route].posts();
        let up = self.widgets.iter().enumerate().any(|(at, w)| posts(at) && matches!(w.state, WidgetState::Up { .. }));
        match &mut self.block {
            Some(block) if is_blocked && up && !block.telling && block.told < block.times => {
                block.telling = true;
                effects.push(Effect::FollowUp(FollowUpEffect::Recount));
                true
            }
            _ => false,
        }
    }
}
