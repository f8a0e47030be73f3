//! Renders an ask as Slack messages. Pure: an ask goes in, blocks come out.
//!
//! A card is one message if everything fits. Otherwise the texts go first, in messages of their own, and the last
//! message is the card that people use. Only notices and long typed answers are shortened. The limits come from
//! `@slack/types`, `slack_sdk` and, for a message as a whole, from what users have measured.

mod blocked;
mod blocks;
mod closed;
mod modal;
mod open;
#[cfg(test)]
mod tests;

pub(super) use blocked::blocked;
pub(super) use blocks::{OTHER, SKIP};
pub(super) use closed::closed;
pub(super) use modal::modal;
use open::is_one_message;
pub(super) use open::{card, fits};

use super::text;
use askd_core::{Ask, AskId, Content, Group, Kind, Question, Stage, Time};
use serde_json::Value;

/// Blocks in a message.
const MAX_BLOCKS: usize = 50;
/// Units of all text in a message, and the units that each block takes of it. Users measured refusals from about
/// 11,300 on; a maintainer spoke of 12,000.
const MAX_TOTAL: usize = 12_000;
const BLOCK_COST: usize = 20;
/// Up to this size a card is one message; the rest is for the line that closes it.
const COMFORTABLE: usize = 9_100;
/// Units of the text of a section or a context.
const MAX_SECTION: usize = 3_000;
/// Units of a header, a label of an option or button, a placeholder.
const MAX_HEADER: usize = 150;
const MAX_OPTION: usize = 75;
const MAX_INPUT_LABEL: usize = 2_000;
const MAX_PLACEHOLDER: usize = 150;
/// Options of radio buttons and checkboxes.
const MAX_RADIOS: usize = 10;
/// How much of a button's text Slack shows on a small screen.
const SHORT_LABEL: usize = 30;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// For notifications and for clients that show no blocks.
    pub(super) text: String,
    pub(super) blocks: Vec<Value>,
}

/// What a card is rendered from.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardView<'a> {
    pub(super) id: AskId,
    pub(super) group: &'a Group,
    pub(super) content: &'a Content,
    /// The number of the attempt, from 1.
    pub(super) attempt: u8,
    /// Which retry its heading calls it; `0`: none.
    pub(super) retry: u8,
    /// Until when it can be answered.
    pub(super) until: Time,
    /// It timed out then, and can still be answered.
    pub(super) timed_out: Option<Time>,
}

impl<'a> CardView<'a> {
    /// The card as it looks now. The time to answer begins when Slack confirms the post, a moment later.
    pub(super) fn of(ask: &'a Ask, attempt: u8, now: Time) -> Self {
        let until = match &ask.stage {
            Stage::Open { answer_by, .. } => *answer_by,
            _ => now + ask.rules.timeout,
        };
        let (id, group, content) = (ask.id, &ask.group, &ask.content);
        Self { id, group, content, attempt, retry: attempt.saturating_sub(1), until, timed_out: None }
    }

    /// The same on this route: a try that does not count carries no number, nor does one after a card that was displayed.
    pub(super) fn on(ask: &'a Ask, route: usize, attempt: u8, now: Time) -> Self {
        let retry = ask.widgets.get(route).map_or(0, |widget| {
            let own = usize::from(widget.state.card().is_some());
            let counts = ask.counts(route) && widget.posts.len() <= own;
            if counts { widget.nth_try(attempt).saturating_sub(1) } else { 0 }
        });
        Self { retry, ..Self::of(ask, attempt, now) }
    }

    /// The card as it looks after the timeout, while an answer is still accepted.
    pub(super) fn late(ask: &'a Ask, attempt: u8, at: Time) -> Self {
        Self { timed_out: Some(at), ..Self::of(ask, attempt, at) }
    }

    /// The card as it can be answered now, also after the timeout.
    pub(super) fn now(ask: &'a Ask, attempt: u8, now: Time) -> Self {
        match &ask.stage {
            Stage::Settled { at, .. } => Self::late(ask, attempt, *at),
            _ => Self::of(ask, attempt, now),
        }
    }

    /// The question, if a click on a choice is the answer.
    fn one_click(&self) -> Option<&'a Question> {
        let [question] = &*self.content.questions else { return None };
        Some(question).filter(|question| one_click(question))
    }
}

/// A reminder in the thread of a card.
pub(super) fn reminder(until: Time) -> Message {
    let line = askd_core::wording::slack_reminder(&closed::date(until));
    let text = text::top_level(askd_core::wording::SLACK_REMINDER);
    Message { text, blocks: vec![blocks::section(&line)] }
}

/// Whether one click answers a question that stands alone.
fn one_click(question: &Question) -> bool {
    matches!(question.kind, Kind::Select | Kind::Confirm)
}

/// How much of [`MAX_TOTAL`] these blocks take.
fn total(blocks: &[Value]) -> usize {
    fn texts(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(texts).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| match value {
                    Value::String(said) if key == "text" => text::units(said),
                    other => texts(other),
                })
                .sum(),
            _ => 0,
        }
    }
    blocks.iter().map(texts).sum::<usize>() + blocks.len() * BLOCK_COST
}
