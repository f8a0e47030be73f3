//! An ask as the API shows it. The shape is `docs/api.md`; it only gains fields.

use crate::ipc::wire::{AnsweredBy, Detail, answers, details, status};
use askd_core::{AfterTimeout, Ask, Block, ChannelName, Lifted, Outcome, Questions, Stage, Time, Widget, wording};
use serde::Serialize;
use serde_json::{Value, json};

/// An ask as the API shows it.
#[derive(Debug, Serialize)]
pub(super) struct View {
    id: String,
    short_id: String,
    group: String,
    request_id: String,
    state: &'static str,
    stage: &'static str,
    title: Option<String>,
    context: Option<String>,
    questions: Questions,
    channel: String,
    attempt: u8,
    created_at: Time,
    shown_at: Option<Time>,
    answer_by: Option<Time>,
    render_confirmed: bool,
    /// A page that a person was looking at has displayed it.
    viewed: bool,
    /// Which channel could not show it, and why; for an open ask, as long as that lasts.
    cause: Option<String>,
    /// The same as a sentence.
    cause_line: Option<String>,
    outcome: Option<OutcomeView>,
    /// Of a question that was asked too often.
    block: Option<Value>,
    /// Until when it can still be answered after its timeout.
    late_until: Option<Time>,
    /// A person answered after the timeout; the outcome for the waiters stays as it was.
    late: bool,
    late_answer: Option<AnswerView>,
    /// What became of an outcome that was not collected.
    note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct AnswerView {
    answers: Value,
    details: Vec<Detail>,
    by: Option<AnsweredBy>,
    at: Time,
}

#[derive(Debug, Serialize)]
struct OutcomeView {
    status: &'static str,
    reason: &'static str,
    answers: Value,
    details: Vec<Detail>,
    by: Option<AnsweredBy>,
    at: Time,
    error: Option<String>,
    line: String,
}

impl View {
    pub(super) fn of(ask: &Ask) -> Self {
        let stage = match &ask.stage {
            Stage::Posting => "posting",
            Stage::Open { .. } => "open",
            Stage::Settled { .. } => "settled",
        };
        let answer_by = match ask.stage {
            Stage::Open { answer_by, .. } => Some(answer_by),
            _ => None,
        };
        let cause = ask.outcome().map_or_else(|| ask.trouble(), Outcome::cause);
        Self {
            id: ask.id.to_string(),
            short_id: ask.short_id.to_string(),
            group: ask.group.to_string(),
            request_id: ask
                .waiters
                .iter()
                .find(|waiter| !waiter.is_withdrawn())
                .or(ask.waiters.first())
                .map(|waiter| waiter.request_id.to_string())
                .unwrap_or_default(),
            state: if stage == "settled" { "settled" } else { "open" },
            stage,
            title: ask.content.title.clone(),
            context: ask.content.context.clone(),
            questions: ask.content.questions.clone(),
            channel: ask.widgets.last().map_or(ChannelName::WEB, |widget| widget.route.channel).to_string(),
            attempt: ask.widgets.last().map_or(1, Widget::tries),
            created_at: ask.created_at,
            shown_at: ask.shown_at(),
            answer_by,
            render_confirmed: ask.confirmed,
            viewed: ask.viewed,
            cause: cause.map(|reason| reason.to_string()),
            cause_line: cause.map(wording::trouble),
            outcome: outcome(ask),
            block: ask.block().map(block),
            late_until: match ask.follow_up().after_timeout {
                AfterTimeout::Answerable { until } => Some(until),
                _ => None,
            },
            late: ask.late_outcome().is_some(),
            late_answer: ask.late_outcome().map(|(late, at)| AnswerView {
                answers: json!(answers(&ask.content.questions, &late)),
                details: details(&ask.content.questions, &late),
                by: person(&late),
                at,
            }),
            note: wording::remark(ask.remark()),
        }
    }
}

fn block(block: &Block) -> Value {
    let lifted = |lifted: &Lifted| json!({"by": lifted.by.as_ref().map(AnsweredBy::from), "at": lifted.at});
    json!({"times": block.times, "allowed_again": block.lifted.as_ref().map(lifted)})
}

fn outcome(ask: &Ask) -> Option<OutcomeView> {
    let Stage::Settled { outcome, at, .. } = &ask.stage else { return None };
    let (status, reason) = status(outcome);
    let questions = &ask.content.questions;
    Some(OutcomeView {
        status,
        reason,
        answers: json!(answers(questions, outcome)),
        details: details(questions, outcome),
        by: person(outcome),
        at: *at,
        error: wording::error(outcome, questions),
        line: ask.closing_line().unwrap_or_default(),
    })
}

fn person(outcome: &Outcome) -> Option<AnsweredBy> {
    match outcome {
        Outcome::Answered { by, .. } | Outcome::Dismissed { by } => Some(by.into()),
        _ => None,
    }
}
