//! Every sentence of the daemon that a person or an agent reads about an ask. Texts marked *exact*
//! are part of the contract; the rest may be improved here, and only here.

mod agent;
mod answers;
mod blocks;
mod sessions;
#[cfg(test)]
mod shorter_tests;
mod slack;
mod whatsapp;

pub use agent::*;
pub use answers::*;
use blocks::block_closing;
pub use blocks::*;
pub use sessions::*;
use slack::notice;
pub use slack::*;
pub use whatsapp::*;

use super::{
    Answers, AskState, Cause, Given, Kind, Limited, Outcome, Person, Question, Questions, Reason, Refusal, Rejection,
    Remark, Trouble,
};

/// Beside `result`, so that an old client sees a failure and not an empty answer. *Exact.*
pub fn error(outcome: &Outcome, questions: &Questions) -> Option<String> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Dismissed { .. } => Some("ask_user cancelled: the user dismissed the question.".to_owned()),
        Outcome::Withdrawn { .. } => Some(WITHDRAWN.to_owned()),
        Outcome::TimedOut => Some(
            "ask_user timeout: no response. Please decide whether to retry when the user sends a new message."
                .to_owned(),
        ),
        Outcome::Undelivered { cause: Cause { retries: Some(_), .. } } => Some(MAX_RETRIES.to_owned()),
        Outcome::Undelivered { cause: Cause { retries: None, reason } } => {
            let reason = reason.map_or(Trouble::Unknown.name().to_owned(), |reason| reason.to_string());
            Some(format!("Could not be shown: {reason}"))
        }
        Outcome::Blocked { limit } => Some(too_often(*limit, questions)),
    }
}

/// What is said of a question that the agent or an operator took back. *Exact.*
pub const WITHDRAWN: &str = "ask_user cancelled: the question was withdrawn.";

/// What an agent is told of a question on which askd panicked.
pub const SET_ASIDE: &str = "askd failed on this question and set it aside, so no answer will come. The operator's log says why. \
                             Do not ask it again unchanged.";

/// `retryReason` of a response. *Exact.*
pub fn retry_reason(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Undelivered { cause: Cause { retries: Some(retries), .. } } => Some(max_retries_reason(*retries)),
        _ => None,
    }
}

/// Why a channel could not show a question, as a sentence for people.
pub fn trouble(Reason { channel, trouble }: Reason) -> String {
    let name = channel.title();
    match trouble {
        Trouble::NoConnection => format!("{name} cannot be reached."),
        Trouble::Refused => format!("{name} refused the question."),
        Trouble::RateLimited => format!("{name} accepts no more messages for now."),
        Trouble::ChatNotFound => format!("{name} does not know the chat."),
        Trouble::NotConfigured => format!("{name} is not set up."),
        Trouble::WindowClosed => format!("{name} does not let askd write until the person writes first."),
        Trouble::Unknown => format!("{name} could not show the question."),
    }
}

/// How an ask ended, in parts: a channel with its own name for the person puts it in the place of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// What happened: `Answered: React`, `Cancelled`.
    pub what: String,
    /// The person who did it.
    pub by: Option<Person>,
}

impl Closing {
    fn of(outcome: &Outcome, questions: &Questions) -> Self {
        let (what, by) = match outcome {
            Outcome::Answered { answers, by } => (format!("Answered: {}", told(answers, questions)), Some(by)),
            Outcome::Dismissed { by } => ("Cancelled".to_owned(), Some(by)),
            Outcome::Withdrawn { .. } => ("Cancelled".to_owned(), None),
            Outcome::TimedOut => ("Timed out".to_owned(), None),
            Outcome::Undelivered { .. } => ("Could not be shown".to_owned(), None),
            Outcome::Blocked { .. } => ("Asked too often".to_owned(), None),
        };
        Self { what, by: by.cloned() }
    }
}

/// What was answered to all questions.
pub(crate) fn told(answers: &Answers, questions: &Questions) -> String {
    let answers = questions.iter().zip(answers.entries());
    let told = answers.filter_map(|(question, answer)| Some(joined(question, answer.as_ref()?)));
    let told = told.collect::<Vec<_>>().join("; ");
    if told.is_empty() { SKIPPED.to_owned() } else { told }
}

/// What is said of a question that was left out.
const SKIPPED: &str = "(skipped)";

/// What was answered to one question, for a card.
pub fn answer_to(question: &Question, answer: Option<&Given>) -> String {
    answer.map_or_else(|| SKIPPED.to_owned(), |answer| joined(question, answer))
}

fn joined(question: &Question, given: &Given) -> String {
    words(question, given).collect::<Vec<_>>().join(", ")
}

/// The labels and the text of one answer.
fn words<'a>(question: &'a Question, given: &'a Given) -> impl Iterator<Item = &'a str> {
    let labels = given.picks.iter().filter_map(|pick| question.choices.get(*pick)).map(|choice| choice.label.as_str());
    labels.chain(given.text.as_deref())
}

/// A person and the place where they acted, as a phrase.
fn who_and_where(by: &Person) -> String {
    let who = if *by == Person::operator(by.via) { "the operator" } else { by.called() };
    format!("{who} {}", by.via.place())
}

/// How an ask ended, told to a person whose answer came too late.
pub fn already(outcome: &Outcome, questions: &Questions) -> String {
    let ended = ended(outcome, questions);
    if matches!(outcome, Outcome::Answered { .. } | Outcome::Dismissed { .. }) {
        return format!("{ended} Your answer was not used.");
    }
    ended
}

/// The same for a person who gave no answer.
pub fn ended(outcome: &Outcome, questions: &Questions) -> String {
    match outcome {
        Outcome::Answered { answers, by } => {
            format!("Already answered \"{}\" by {}.", told(answers, questions), who_and_where(by))
        }
        Outcome::Dismissed { by } => format!("Already dismissed by {}.", who_and_where(by)),
        Outcome::Withdrawn { .. } => "This question was withdrawn.".to_owned(),
        Outcome::TimedOut => TIMED_OUT_ALREADY.to_owned(),
        Outcome::Undelivered { .. } => "This question could not be shown in time; the agent knows.".to_owned(),
        Outcome::Blocked { .. } => {
            "This question is blocked: the agent asked it too often. Allow it again first.".to_owned()
        }
    }
}

const TIMED_OUT_ALREADY: &str = "This question has timed out, and the agent was told so.";

/// To a person whose answer comes after the timeout, with what they said, so that it is not lost to them.
pub fn too_late(said: &str) -> String {
    format!("{TIMED_OUT_ALREADY} Your answer was not used: {said}")
}

/// Replies in words, for the people who gave them.
pub fn said(questions: &Questions, given: &[(usize, Given)]) -> String {
    let said = given.iter().filter_map(|(index, given)| {
        let question = questions.get(*index)?;
        Some(joined(question, given)).filter(|words| !words.is_empty())
    });
    said.collect::<Vec<_>>().join("; ")
}

/// Why a reply was not taken.
pub fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Settled { outcome, said: Some(said), .. } if **outcome == Outcome::TimedOut => too_late(said),
        Refusal::Settled { outcome, questions, said: Some(_), .. } => already(outcome, questions),
        Refusal::Settled { outcome, questions, said: None, .. } => ended(outcome, questions),
        Refusal::FromBefore => FROM_BEFORE.to_owned(),
        Refusal::NotResponder { id } => {
            format!("You're not on the list for this question. To be added, send your admin this id: {id}.")
        }
        Refusal::OtherTeam => OTHER_TEAM.to_owned(),
        Refusal::NotAskedHere => NOT_ASKED_HERE.to_owned(),
        Refusal::MayNotAllow { id } => may_not_allow(id),
        Refusal::NotBlocked { by } => not_blocked(by.as_ref()),
        Refusal::Missing { questions } => format!("Please answer: {}", questions.join("; ")),
        Refusal::NoSuchQuestion { name } => {
            format!("No question {name:?} here. Use its id or its whole text.")
        }
        Refusal::NotOffered { question, given, labels } => {
            format!("{given:?} is not an option of {question:?}. Choose from: {}.", list(labels))
        }
        Refusal::NoText { question } => {
            format!("The answer to {question:?} must be a text or a list of texts.")
        }
        Refusal::OnlyOne { question } => format!("{question:?} takes one answer."),
        Refusal::OnlyOneText { question } => {
            format!("{question:?} takes only one answer in your own words, besides its options.")
        }
        Refusal::ChoiceOrText { question } => {
            format!("{question:?} takes a choice or your own answer, not both.")
        }
        Refusal::Unreadable { question } => {
            format!("The answer to {question:?} contains U+0000. Remove it.")
        }
        Refusal::TooLong { question, limit, size } => {
            format!("The answer to {question:?} has {size} characters; the limit is {limit}.")
        }
    }
}

fn list(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
}

/// Why a request cannot be asked.
pub fn rejection(rejection: &Rejection) -> String {
    match rejection {
        Rejection::NoQuestions => "No questions provided".to_owned(),
        Rejection::TooLong { field, limit, size, unit } => {
            format!("{field} has {size} {unit}; the limit is {limit}. Shorten it and ask again.")
        }
        Rejection::Empty { field } => format!("{field} is empty."),
        Rejection::OutOfRange { field, min, max, value } => {
            format!("{field} is {value}; it must be between {min} and {max}.")
        }
        Rejection::Duplicate { field, first } => {
            format!("{field} is the same as {first}; they must differ.")
        }
        Rejection::Wrong { field, why } => format!("{field}: {why}."),
        Rejection::Malformed { why } => format!("the request is malformed: {why}."),
        Rejection::UnknownGroup { group } => format!(
            "group {group:?} is not served here: it is not in the settings, and [defaults] has no routes. An operator \
             can add [groups.{group}]."
        ),
        Rejection::ServedElsewhere { group, host } => format!("Group {group} is served by {host}."),
        Rejection::RateLimited { group, limit, kind } => {
            let (what, setting, mend) = match kind {
                Limited::Open => ("open", "max_open_per_group", "Wait for answers before you ask more."),
                Limited::Hourly => (
                    "asked within an hour",
                    "max_per_hour_per_group",
                    "Ask no more for now; the oldest of them leaves the count an hour after it was asked.",
                ),
            };
            format!("rate_limited: group {group:?} has {limit} questions {what}, the limit that {setting} sets. {mend}")
        }
        Rejection::TooManyWait { limit } => format!(
            "rate_limited: {limit} calls have joined this question, the limit for one question. Wait for its answer with \
             one of them, or ask again once it is closed."
        ),
        Rejection::SetAside => SET_ASIDE.to_owned(),
    }
}

/// A rejection without the agent's own texts, which do not belong in a log.
pub fn for_log(rejection: &Rejection) -> String {
    match rejection {
        // The parser quotes what it did not expect; where it stood is said after that.
        Rejection::Malformed { why } => {
            let at = why.rfind(" at line ").map_or("", |at| &why[at..]);
            format!("the request file is malformed{at} (the response says more)")
        }
        // So does what is none of the words that askd knows.
        Rejection::Wrong { field, why } if why.starts_with('"') => {
            format!("{field}: it{}.", why.rfind("\" is ").map_or(" is not understood", |at| &why[at + 1..]))
        }
        other => self::rejection(other),
    }
}

impl AskState {
    /// How it ended, for its cards; `None` before the end.
    pub fn closing(&self) -> Option<Closing> {
        if let Some(block) = self.block() {
            return Some(block_closing(block));
        }
        if let (Remark::Stopped, Some(line)) = (self.remark(), remark(Remark::Stopped)) {
            return Some(Closing { what: line.to_owned(), by: None });
        }
        let questions = &self.content.questions;
        if let Some((Outcome::Answered { answers, by }, _)) = self.late_outcome() {
            return Some(Closing { what: format!("{ANSWERED_LATE}{}", told(&answers, questions)), by: Some(by) });
        }
        self.outcome().map(|outcome| Closing::of(outcome, questions))
    }

    /// The closing line of its cards; `None` before the end. *Exact.*
    pub fn closing_line(&self) -> Option<String> {
        let Closing { what, by } = self.closing()?;
        // The line for a dismissal names no person.
        let by = by.filter(|_| !matches!(self.outcome(), Some(Outcome::Dismissed { .. })));
        Some(by.map_or_else(|| what.clone(), |by| format!("{what} by {}", by.called())))
    }
}
