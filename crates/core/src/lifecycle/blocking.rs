//! An ask that askd puts to no person, because its questions were asked too often: it is settled from the
//! start, its callers are told so, and people see a card that says it, with the right to allow it again.
//! Section 8, "Attempts", of the specification.
//!
//! Whether a question was asked too often is counted elsewhere (the broker); here is only what follows. As long
//! as the block stands, its card is treated like one of an open ask: posted until it is up, shown on the next
//! route where it cannot be. It is closed when the block ends.

use super::{Accepted, Context, Effect, Fact, FollowUp, FollowUpEvent, Outcome, Source, Stage, Step, Waiter};
use crate::{Ask, AskState, Person, Refusal, Time};
use serde::{Deserialize, Serialize};

/// Callers of a blocked ask that are remembered; older ones have had their response, and an agent that asks
/// in a loop must not fill the disk.
const REMEMBERED: usize = 50;

/// What is remembered of a blocked ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// How often its questions were asked without an answer, this ask and those that joined it included.
    pub times: u32,
    /// How often when it was blocked: a card that has just come up shows this, or more.
    pub first: u32,
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
    pub fn blocked(new: Accepted, limit: u8, times: u32, now: Time) -> Step {
        let mut ask = AskState::new(new, now);
        let block = Some(Block { times, first: times, any_context: false, lifted: None });
        let follow_up = Box::new(FollowUp { block, ..FollowUp::default() });
        ask.stage = Stage::Settled { outcome: Outcome::Blocked { limit }, at: now, shown_at: None, follow_up };
        let mut cx = Context { now, effects: vec![Effect::Note(Fact::Asked), Effect::Note(Fact::Settled)] };
        for waiter in &mut ask.waiters {
            cx.act(waiter.response.owe().of(waiter.request_id.clone()));
        }
        ask.show_next(&mut cx);
        Step { ask: Self(ask), effects: cx.effects }
    }
}

impl AskState {
    /// What is remembered of it, if it was asked too often.
    pub fn block(&self) -> Option<&Block> {
        self.follow_up().block.as_ref()
    }

    /// Whether it goes on although no route shows it: a page does, or it is a block that stands.
    pub(super) fn goes_on_unshown(&self) -> bool {
        self.viewed || self.is_blocked()
    }

    /// Whether it was asked too often and no person has allowed it again.
    pub fn is_blocked(&self) -> bool {
        self.block().is_some_and(|block| block.lifted.is_none())
    }

    /// Who ended it: answered or dismissed it, or allowed it again.
    pub fn ended_by(&self) -> Option<&Person> {
        match (self.outcome()?, self.block()) {
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
    pub(super) fn repeated(&mut self, mut waiter: Waiter, cx: &mut Context) -> bool {
        if !self.is_blocked() || self.waiter(&waiter.request_id).is_some() {
            return false;
        }
        if let Some(FollowUp { block: Some(block), .. }) = self.follow_up_mut() {
            block.times = block.times.saturating_add(1);
        }
        self.make_place();
        cx.note(Fact::Joined(waiter.request_id.clone()));
        cx.act(waiter.response.owe().of(waiter.request_id.clone()));
        let waiter = self.of_other_session(waiter);
        self.waiters.push(waiter);
        true
    }

    /// Makes place for one more call. One without a response yet is not forgotten, and a response that nobody has collected yet
    /// stays where it is: its process may come for it.
    fn make_place(&mut self) {
        let lies = |waiter: &Waiter| waiter.response.is_published();
        while self.waiters.len() >= REMEMBERED {
            let Some(told) = self.first_other(Waiter::may_go).or_else(|| self.first_other(lies)) else { break };
            self.waiters.remove(told);
        }
    }

    /// A person lets the questions be asked again: on the card of a block that stands, or, with the token, of
    /// any ask. `heard`: by a message with that id, which counts once.
    pub(super) fn allow(
        &mut self,
        source: Source,
        person: Person,
        heard: Option<String>,
        cx: &mut Context,
    ) -> Result<bool, Refusal> {
        self.may_answer(source, &person).map_err(|_| Refusal::MayNotAllow { id: person.id.clone() })?;
        if !self.is_blocked() && source != Source::Token {
            let by = self.block().and_then(|block| block.lifted.as_ref()?.by.clone());
            return Err(Refusal::NotBlocked { by });
        }
        cx.note(Fact::AllowedAgain { by: person.clone() });
        self.lift(Some(person), cx);
        self.heard.extend(heard);
        Ok(true)
    }

    /// The block has ended.
    pub(super) fn lift(&mut self, by: Option<Person>, cx: &mut Context) -> bool {
        let event = FollowUpEvent::Lifted { by };
        let lifts = self.follow_up_mut().is_some_and(|follow_up| follow_up.step(event, cx));
        if lifts {
            self.close_widgets(cx.now);
        }
        lifts
    }
}
