//! What browsers are told of an ask.

use askd_core::{Ask, AskId, Group, Stage, Time};
use std::time::Duration;

/// The longest text of a question in it, in characters.
const LONGEST_TEXT: usize = 300;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    pub(super) ask: AskId,
    pub(super) group: Group,
    pub(super) created_at: Time,
    pub(super) text: String,
    pub(super) is_open: bool,
    pub(super) answer_within: Duration,
}

impl Notice {
    pub(super) fn of(ask: &Ask) -> Self {
        let question = ask.content.questions.iter().next().map(|question| &question.text);
        let text = ask.content.title.as_ref().or(question).map_or("", String::as_str);
        Self {
            ask: ask.id,
            group: ask.group.clone(),
            created_at: ask.created_at,
            text: text.chars().take(LONGEST_TEXT).collect(),
            is_open: !matches!(ask.stage, Stage::Settled { .. }),
            answer_within: ask.rules.timeout,
        }
    }
}
