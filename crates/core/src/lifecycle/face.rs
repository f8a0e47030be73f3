//! What a card shows is computed from the ask. A card that is up remembers what it shows, and one effect brings it up to
//! date: when it is to be closed, counts anew, says something new, or has another deadline.

use super::{AfterTimeout, AgentStart, Context, Fact, FollowUp, WidgetEffect, WidgetState};
use crate::AskState;
use serde::{Deserialize, Serialize};

/// What a card shows, beside its questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// They can be answered.
    Open,
    /// They were asked too often.
    Blocked {
        /// That often.
        times: u32,
    },
    /// How the ask ended, and this beside it.
    Closed(Remark),
}

/// What a closed card says beside how the ask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remark {
    /// Nothing.
    #[default]
    Plain,
    /// It can still be answered.
    Late,
    /// The agent has asked the same again.
    AskedAgain,
    /// The agent has not collected the answer.
    Overdue,
    /// The host that serves the agent's folder does not answer.
    HostAway,
    /// The agent runs, but does not wait for it any more.
    Running,
    /// The agent was started with the answer.
    Started,
    /// The agent was started since it asked; the answer lies there.
    StartedBefore,
    /// The answer is kept for the agent's next start.
    Kept,
    /// The agent could not be started.
    NotStarted,
    /// The session was stopped.
    Stopped,
}

/// A card that people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Card {
    /// It shows this.
    Shows(Face),
    /// It is being changed. There is one change at a time: two could end in the wrong order.
    Changing {
        /// Another change has to follow, because this one may not have reached all of the card.
        again: bool,
    },
}

impl Card {
    /// Begins a change; `false` if one is under way, which another one follows then.
    pub(super) const fn change(&mut self) -> bool {
        let begins = matches!(self, Self::Shows(_));
        *self = Self::Changing { again: !begins };
        begins
    }

    /// One more message of it is known, which shows this.
    pub(super) const fn grow(&mut self, face: Face) {
        *self = match self {
            Self::Shows(_) => Self::Shows(face),
            Self::Changing { .. } => Self::Changing { again: true },
        };
    }
}

impl WidgetState {
    /// The card, if there is one.
    pub const fn card(&self) -> Option<Card> {
        if let Self::Up { card, .. } | Self::Closed { card: Some(card) } = self { Some(*card) } else { None }
    }

    pub(super) const fn card_mut(&mut self) -> Option<&mut Card> {
        if let Self::Up { card, .. } | Self::Closed { card: Some(card) } = self { Some(card) } else { None }
    }
}

impl AskState {
    /// What its cards have to show.
    pub fn face(&self) -> Face {
        match self.block() {
            Some(block) if block.lifted.is_none() => Face::Blocked { times: block.times },
            _ if self.outcome().is_none() => Face::Open,
            _ => Face::Closed(self.remark()),
        }
    }

    /// What a card shows that has just come up. It was made before that, and may count too low.
    pub(super) fn first_face(&self) -> Face {
        match self.block() {
            Some(block) => Face::Blocked { times: block.first },
            None => Face::Open,
        }
    }

    /// What a closed card says beside how it ended.
    pub fn remark(&self) -> Remark {
        let FollowUp { after_timeout, start, overdue, briefing, .. } = self.follow_up();
        match (after_timeout, start) {
            (AfterTimeout::Stopped, _) => Remark::Stopped,
            (AfterTimeout::Answerable { .. }, _) => Remark::Late,
            (AfterTimeout::AskedAgain, _) => Remark::AskedAgain,
            (_, AgentStart::StartedBefore) => Remark::StartedBefore,
            (_, AgentStart::Started) => Remark::Started,
            (_, AgentStart::GivenUp { .. }) => Remark::NotStarted,
            (_, AgentStart::NotTried | AgentStart::Starting { .. }) if self.waits_for_host() => Remark::HostAway,
            (_, AgentStart::Starting { running: true, .. }) => Remark::Running,
            (_, AgentStart::NotTried) if briefing.is_published() && self.is_worth_a_start() => Remark::Kept,
            (_, AgentStart::NotTried) if briefing.is_taken() => Remark::Plain,
            (_, AgentStart::NotTried | AgentStart::Starting { .. }) if *overdue => Remark::Overdue,
            (_, AgentStart::NotTried | AgentStart::Starting { .. }) => Remark::Plain,
        }
    }

    /// Brings every card up to date that shows something else than it has to.
    pub(super) fn update_cards(&mut self, cx: &mut Context) {
        let face = self.face();
        for (route, widget) in self.widgets.iter_mut().enumerate() {
            if !widget.route.posts() {
                // The inbox shows the stored ask itself: it is closed by being settled.
                if matches!((&widget.state, face), (WidgetState::Up { .. }, Face::Closed(_))) {
                    widget.state = WidgetState::Closed { card: None };
                }
            } else if let Some(card) = widget.state.card_mut()
                && matches!(card, Card::Shows(shown) if *shown != face)
                && card.change()
            {
                cx.act(WidgetEffect::Update.on(route));
            }
        }
    }

    /// A card shows this now, or never will show anything else.
    pub(super) fn updated(&mut self, route: usize, face: Face, cx: &mut Context) -> bool {
        let over = self.is_over();
        let Some(state) = self.widgets.get_mut(route).map(|widget| &mut widget.state) else { return false };
        let Some(Card::Changing { again }) = state.card() else { return false };
        let card = if again { Card::Changing { again: false } } else { Card::Shows(face) };
        if again {
            cx.act(WidgetEffect::Update.on(route));
        }
        if let Some(changing) = state.card_mut() {
            *changing = card;
        }
        if over && matches!((&*state, card), (WidgetState::Up { .. }, Card::Shows(Face::Closed(_)))) {
            *state = WidgetState::Closed { card: Some(card) };
            cx.note(Fact::Closed { route });
        }
        true
    }
}
