//! Response and status files. Section 5 of the specification. The booleans of the wire are derived
//! from the outcome in one place, so that no combination but the legal ones can be written.

use askd_core::{
    Ask, Given, Outcome, Person, Question, Questions, Rejection, RequestId, Stage, Time, Told, Waiter, wording,
};
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A response file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResponseFile {
    pub result: ResponseResult,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What came of an ask, as one waiter is told. What a model reads about each field is its comment here.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "")]
#[expect(clippy::struct_excessive_bools, reason = "the wire has them; they are derived from the outcome below")]
pub struct ResponseResult {
    /// By question text: one label or text, or a list for multi-select. Empty unless answered.
    #[schemars(with = "BTreeMap<String, AnswerValue>")]
    pub answers: Pairs,
    /// answered, pending, timeout, cancelled, undeliverable, blocked or rejected
    pub status: String,
    /// user, system, timeout or pending: who or what brought it about
    pub reason: String,
    /// a person has answered
    pub answered: bool,
    /// dismissed or withdrawn
    pub cancelled: bool,
    /// nobody answered in time; never a yes
    pub timed_out: bool,
    /// repeat this exact call now
    pub should_retry: bool,
    /// why it could not be shown
    pub retry_reason: Option<String>,
    /// which channel could not show it and why, like slack: no connection; else left out
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cause: Option<String>,
    /// it is known that it was shown
    pub render_confirmed: bool,
    pub details: Vec<Detail>,
    #[serde(rename = "answered_by")]
    pub answered_by: Option<AnsweredBy>,
    /// the id of this call's request; empty if nothing was asked
    #[serde(rename = "request_id")]
    pub request_id: String,
    pub op_code: Option<String>,
    /// when, RFC 3339
    #[serde(rename = "answered_at")]
    pub answered_at: Option<String>,
}

/// Question texts and their answers, in the order of the questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs<V = AnswerValue>(pub Vec<(String, V)>);

/// One label or text, or a list of them for `multi-select`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "")]
pub enum AnswerValue {
    One(String),
    Many(Vec<String>),
}

/// One question's answer, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "")]
pub struct Detail {
    pub id: String,
    pub question: String,
    pub selected: Vec<String>,
    pub text: Option<String>,
}

/// Who answered, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "", transform = without_required)]
pub struct AnsweredBy {
    pub channel: String,
    pub id: String,
    pub name: Option<String>,
}

/// A newer daemon may leave some of them out.
fn without_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// A `.status` file: where an undecided ask is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusFile {
    /// `posting` or `open`.
    pub state: String,
    /// When the answer clock started.
    pub shown_at: Option<Time>,
    /// When it ends.
    pub answer_by: Option<Time>,
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(question, answer)| (question, answer)))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for InOrder<V> {
            type Value = Pairs<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of answers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

impl From<&Person> for AnsweredBy {
    fn from(person: &Person) -> Self {
        Self { channel: person.via.as_str().to_owned(), id: person.id.clone(), name: person.name.clone() }
    }
}

/// How an ask can have ended, as [`status`] says it.
pub const STATUSES: [&str; 5] = ["answered", "cancelled", "timeout", "undeliverable", "blocked"];

/// `status` and `reason` of an outcome.
pub fn status(outcome: &Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Answered { .. } => ("answered", "user"),
        Outcome::Dismissed { .. } => ("cancelled", "user"),
        Outcome::Withdrawn { .. } => ("cancelled", "system"),
        Outcome::TimedOut => ("timeout", "timeout"),
        Outcome::Undelivered { .. } => ("undeliverable", "system"),
        Outcome::Blocked { .. } => ("blocked", "system"),
    }
}

/// The labels and the text of an answer, as `answers` has them.
pub fn answer_value(question: &Question, answer: &Given) -> AnswerValue {
    let mut values = labels(question, answer);
    values.extend(answer.text.clone());
    if question.kind == askd_core::Kind::MultiSelect {
        AnswerValue::Many(values)
    } else {
        AnswerValue::One(values.pop().unwrap_or_default())
    }
}

fn labels(question: &Question, answer: &Given) -> Vec<String> {
    answer.picks.iter().filter_map(|pick| question.choices.get(*pick)).map(|choice| choice.label.clone()).collect()
}

fn answered<'a>(questions: &'a Questions, outcome: &'a Outcome) -> impl Iterator<Item = (&'a Question, &'a Given)> {
    let entries = match outcome {
        Outcome::Answered { answers, .. } => answers.entries(),
        _ => &[],
    };
    questions.iter().zip(entries).filter_map(|(question, answer)| answer.as_ref().map(|answer| (question, answer)))
}

/// `answers` of an outcome: empty unless a person answered.
pub fn answers(questions: &Questions, outcome: &Outcome) -> Pairs {
    Pairs(answered(questions, outcome).map(|(q, answer)| (q.text.clone(), answer_value(q, answer))).collect())
}

/// `details` of an outcome: empty unless a person answered.
pub fn details(questions: &Questions, outcome: &Outcome) -> Vec<Detail> {
    let detail = |(question, answer): (&Question, &Given)| Detail {
        id: question.id.clone(),
        question: question.text.clone(),
        selected: labels(question, answer),
        text: answer.text.clone(),
    };
    answered(questions, outcome).map(detail).collect()
}

/// What `waiter` is told of a settled ask; `None` while there is nothing to tell.
pub fn response_for(ask: &Ask, waiter: &Waiter) -> Option<ResponseFile> {
    match waiter.told {
        Told::Outcome => Some(told(ask, waiter, ask.outcome()?)),
        Told::LateAnswer => outcome_of(ask, waiter),
        Told::Withdrawal => Some(told(ask, waiter, &Outcome::Withdrawn { by: None })),
        Told::Elsewhere => Some(ResponseFile {
            result: unanswered(waiter.request_id.as_str(), waiter.op_code.clone(), "undeliverable", "system"),
            error: Some(wording::TOLD_ELSEWHERE.to_owned()),
        }),
    }
}

/// What came of an ask, a late answer included: for who was not told its outcome before.
pub fn outcome_of(ask: &Ask, waiter: &Waiter) -> Option<ResponseFile> {
    match ask.late_outcome() {
        Some((late, at)) => {
            let mut told = told(ask, waiter, &late);
            told.result.answered_at = Some(at.to_string());
            Some(told)
        }
        None => Some(told(ask, waiter, ask.outcome()?)),
    }
}

fn told(ask: &Ask, waiter: &Waiter, outcome: &Outcome) -> ResponseFile {
    let (status, reason) = status(outcome);
    let by = match outcome {
        Outcome::Answered { by, .. } | Outcome::Dismissed { by } => Some(by.into()),
        _ => None,
    };
    let at = match (&ask.stage, &by) {
        (Stage::Settled { at, .. }, Some(_)) => Some(at.to_string()),
        _ => None,
    };
    ResponseFile {
        result: ResponseResult {
            answers: answers(&ask.content.questions, outcome),
            answered: status == "answered",
            retry_reason: wording::retry_reason(outcome),
            cause: outcome.cause().map(|reason| reason.to_string()),
            render_confirmed: ask.confirmed,
            details: details(&ask.content.questions, outcome),
            answered_by: by,
            answered_at: at,
            ..unanswered(waiter.request_id.as_str(), waiter.op_code.clone(), status, reason)
        },
        error: wording::error(outcome, &ask.content.questions),
    }
}

/// A result without answers: for what never became an ask, and for what only the agent's side knows.
pub fn unanswered(request_id: &str, op_code: Option<String>, status: &str, reason: &str) -> ResponseResult {
    ResponseResult {
        answers: Pairs(Vec::new()),
        status: status.to_owned(),
        reason: reason.to_owned(),
        answered: false,
        cancelled: status == "cancelled",
        timed_out: status == "timeout",
        should_retry: false,
        retry_reason: None,
        cause: None,
        render_confirmed: false,
        details: Vec::new(),
        answered_by: None,
        request_id: request_id.to_owned(),
        op_code,
        answered_at: None,
    }
}

/// What the sender of a request is told that never became an ask.
pub fn refused(request_id: &RequestId, op_code: Option<String>, rejection: &Rejection) -> ResponseFile {
    ResponseFile {
        result: unanswered(request_id.as_str(), op_code, "rejected", "system"),
        error: Some(wording::rejection(rejection)),
    }
}

/// What the sender of a request is told that was withdrawn before it became part of an ask.
pub fn withdrawn(request_id: &RequestId, op_code: Option<String>) -> ResponseFile {
    ResponseFile {
        result: unanswered(request_id.as_str(), op_code, "cancelled", "system"),
        error: Some(wording::WITHDRAWN.to_owned()),
    }
}

impl StatusFile {
    /// Where an undecided ask is; `None` once it is settled.
    pub fn of(ask: &Ask) -> Option<Self> {
        match &ask.stage {
            Stage::Posting => Some(Self { state: "posting".to_owned(), shown_at: None, answer_by: None }),
            Stage::Open { shown_at, answer_by, .. } => {
                Some(Self { state: "open".to_owned(), shown_at: Some(*shown_at), answer_by: Some(*answer_by) })
            }
            Stage::Settled { .. } => None,
        }
    }
}

impl ResponseFile {
    /// The error as today's hosts write it: earlier ones began some errors with a prefix.
    pub fn with_bare_error(mut self) -> Self {
        let bare = |text: Option<String>| text.map(|text| wording::bare_error(&text).to_owned());
        self.error = bare(self.error);
        self.result.retry_reason = bare(self.result.retry_reason);
        self
    }
}
