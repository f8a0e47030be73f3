//! Every sentence of the daemon that a person or an agent reads about an ask. Texts marked *exact*
//! are part of the contract; the rest may be improved here, and only here.

use super::{Answer, Ask, Cause, Outcome, Person, Question, Questions, Refusal, Rejection};

/// Beside `result`, so that an old client sees a failure and not an empty answer. *Exact.*
#[must_use]
pub fn error(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Dismissed { .. } => Some("ask_user cancelled: the user dismissed the question.".to_owned()),
        Outcome::Withdrawn => Some("ask_user cancelled: the question was withdrawn.".to_owned()),
        Outcome::TimedOut => Some(
            "ask_user timeout: no response. Please decide whether to retry when the user sends a new message."
                .to_owned(),
        ),
        Outcome::Undelivered { cause: Cause::RetriesUsedUp(_) } => Some("Max retries exceeded".to_owned()),
        Outcome::Undelivered { cause: Cause::Never(reason) } => Some(format!("Could not be shown: {reason}")),
    }
}

/// `retryReason` of a response. *Exact.*
#[must_use]
pub fn retry_reason(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Undelivered { cause: Cause::RetriesUsedUp(retries) } => {
            Some(format!("Max retries ({retries}) exceeded"))
        }
        _ => None,
    }
}

/// The closing line of a card. *Exact.*
#[must_use]
pub fn closing_line(outcome: &Outcome, questions: &Questions) -> String {
    match outcome {
        Outcome::Answered { answers, by } => {
            let told: Vec<String> = questions
                .iter()
                .zip(answers.entries())
                .filter_map(|(question, answer)| answer.as_ref().map(|answer| answer_words(question, answer)))
                .collect();
            let told = if told.is_empty() { "(skipped)".to_owned() } else { told.join("; ") };
            format!("Answered: {told} by {}", by.called())
        }
        Outcome::Dismissed { .. } | Outcome::Withdrawn => "Cancelled".to_owned(),
        Outcome::TimedOut => "Timed out".to_owned(),
        Outcome::Undelivered { .. } => "Could not be shown".to_owned(),
    }
}

/// The labels and the text of one answer.
fn answer_words(question: &Question, answer: &Answer) -> String {
    let labels = answer.picks().iter().filter_map(|pick| question.choices.get(*pick)).map(|c| c.label.as_str());
    labels.chain(answer.text()).collect::<Vec<_>>().join(", ")
}

/// How an ask ended, told to somebody who came too late.
#[must_use]
pub fn already(outcome: &Outcome, questions: &Questions) -> String {
    let where_by = |by: &Person| format!("{} ({})", by.called(), by.via.name());
    match outcome {
        Outcome::Answered { by, .. } => {
            let line = closing_line(outcome, questions);
            let answer = line.strip_suffix(&format!(" by {}", by.called())).unwrap_or(&line);
            format!("This question was answered already. {answer}, by {}. Nothing was changed.", where_by(by))
        }
        Outcome::Dismissed { by } => {
            format!("This question was dismissed already by {}. Nothing was changed.", where_by(by))
        }
        Outcome::Withdrawn => "This question was withdrawn. Nothing was changed.".to_owned(),
        Outcome::TimedOut => "This question has timed out. The agent was told that nobody answered.".to_owned(),
        Outcome::Undelivered { .. } => {
            "This question could not be shown in time, and the agent was told so.".to_owned()
        }
    }
}

/// Why a reply was not taken.
#[must_use]
pub fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Settled { outcome, questions, .. } => already(outcome, questions),
        Refusal::NotResponder { id } => format!(
            "Only the people named for this question may answer it, and your id, {id}, is not among them. \
             An operator can add it to the responders of the route. The question stays open."
        ),
        Refusal::Missing { questions } => format!("Still missing: an answer to {}.", list(questions)),
        Refusal::NoSuchQuestion { name } => {
            format!("This ask has no question {name:?}. Name a question by its id or by its whole text.")
        }
        Refusal::NotOffered { question, given, labels } => {
            format!("{given:?} is not an answer that {question:?} offers. Choose from: {}.", list(labels))
        }
        Refusal::OnlyOne { question } => format!("{question:?} takes one answer only."),
        Refusal::ChoiceOrText { question } => {
            format!("{question:?} takes a choice or an answer of your own, not both. Leave one of them out.")
        }
        Refusal::TooLong { question, limit, size } => {
            format!("The answer to {question:?} has {size} characters; at most {limit} are possible.")
        }
    }
}

fn list(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
}

/// Why a request cannot be asked.
#[must_use]
pub fn rejection(rejection: &Rejection) -> String {
    match rejection {
        Rejection::NoQuestions => "Error: No questions provided".to_owned(),
        Rejection::TooLong { field, limit, size, unit } => {
            format!("Error: {field} has {size} {unit}; at most {limit} are possible. Shorten it and ask again.")
        }
        Rejection::Empty { field } => format!("Error: {field} is empty; say something in it."),
        Rejection::OutOfRange { field, min, max, value } => {
            format!("Error: {field} is {value}; it has to be from {min} to {max}.")
        }
        Rejection::Duplicate { field, first } => {
            format!("Error: {field} is the same as {first}; they have to differ.")
        }
        Rejection::Wrong { field, why } => format!("Error: {field}: {why}."),
        Rejection::Malformed { why } => format!("Error: the request file is not what it should be: {why}."),
        Rejection::UnknownGroup { group } => format!(
            "Error: group {group:?} is not served here: it is not in the settings, and [defaults] serve no others. \
             An operator can add [groups.{group}]."
        ),
        Rejection::NoChannel { why } => format!("Error: this question cannot be shown to anybody: {why}."),
        Rejection::RateLimited { group, what, setting, limit } => format!(
            "Error: rate_limited: group {group:?} has {limit} questions {what}, which is all that {setting} = {limit} \
             allows. Wait for answers before you ask more."
        ),
    }
}

/// Why a question that waited for a person to write was given up.
pub const HELD_TOO_LONG: &str = "the person was asked on WhatsApp to write first, and did not";

/// What the agent's side says when nobody takes its request. *Exact* but for the counts.
#[must_use]
pub fn not_claimed(attempt: u32, retries: u8) -> String {
    format!("UI failed to render question within timeout (attempt {attempt}/{retries})")
}

/// What the agent's side says when the host goes silent after the deadline. *Exact.*
pub const HOST_SILENT: &str = "Error: Request timed out waiting for host response";

impl Ask {
    /// The closing line of its cards, once it is settled.
    #[must_use]
    pub fn closing_line(&self) -> Option<String> {
        self.outcome().map(|outcome| closing_line(outcome, &self.content.questions))
    }
}
