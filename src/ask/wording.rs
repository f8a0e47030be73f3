//! Every sentence of the daemon that a person or an agent reads about an ask. Texts marked *exact*
//! are part of the contract; the rest may be improved here, and only here.

use super::{Answer, Ask, Cause, Kind, Outcome, Person, Question, Questions, Refusal, Rejection};

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

/// Heads a question that is sent a second time because the first may have been lost.
pub const REPEAT: &str = "(repeat)";
/// The receipt of an answer.
pub const GOT_IT: &str = "Got it.";

/// Heads one of several questions. *Exact.*
#[must_use]
pub fn question_of(number: usize, count: usize) -> String {
    format!("Question {number} of {count}")
}

/// Who asks what, in a chat. *Exact.*
#[must_use]
pub fn asking(group: Option<&str>, question: &str) -> String {
    match group {
        Some(group) => format!("The agent \"{group}\" is asking: {question}"),
        None => format!("The agent is asking: {question}"),
    }
}

/// How a question is answered by a message. *Exact*, but for what can be skipped.
#[must_use]
pub fn how_to_reply(question: &Question) -> String {
    let line = match (question.kind, question.takes_text()) {
        (Kind::Text, _) => "Reply with your answer.",
        (Kind::MultiSelect, true) => "Reply with one or more numbers, like 1,3, or type your own answer.",
        (Kind::MultiSelect, false) => "Reply with one or more numbers, like 1,3.",
        (Kind::Select | Kind::Confirm, true) => "Reply with a number or type your own answer.",
        (Kind::Select | Kind::Confirm, false) => "Reply with a number.",
    };
    if question.required { line.to_owned() } else { format!("{line} Reply 0 to skip.") }
}

/// How one of several open asks is meant.
#[must_use]
pub fn with_code(code: &str) -> String {
    format!("More than one question is open here. Quote this message, or begin your reply with {code}, like: {code} 2")
}

/// Asks which of several open asks was meant; each with its code and a few words.
#[must_use]
pub fn which_one(open: &[(String, String)]) -> String {
    let list: Vec<String> = open.iter().map(|(code, question)| format!("{code}: {question}")).collect();
    let code = open.first().map_or("k7", |(code, _)| code.as_str());
    format!(
        "Which question do you mean? Nothing was answered yet.\n{}\n\nQuote its message, or begin your reply with its \
         code, like: {code} 2",
        list.join("\n")
    )
}

/// Why a message is not an answer to the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A sticker, a voice note, a reaction, a picture without words.
    NoText,
    /// A number that is not in the list.
    NoSuchNumber,
    /// Several numbers where one is wanted.
    OnlyOne,
    /// A label of one option and the number of another.
    TwoMeanings,
    /// None of the options, and nothing else is allowed.
    NotOffered,
    /// The question cannot be left out.
    NotOptional,
    /// Another question was answered with that message already.
    AnsweredAlready,
}

/// What is possible instead.
#[must_use]
pub fn unfit(unfit: &Unfit, question: &Question) -> String {
    let count = question.choices.len();
    let why = match unfit {
        Unfit::NoText => "I can only read text as an answer.".to_owned(),
        Unfit::NoSuchNumber if question.takes_text() => format!(
            "There are the numbers 1 to {count}. For a number of your own, write a word with it, like \"it is 12\"."
        ),
        Unfit::NoSuchNumber => format!("There are the numbers 1 to {count}."),
        Unfit::OnlyOne => "This question takes one answer.".to_owned(),
        Unfit::TwoMeanings => {
            let labels = question.choices.iter().enumerate().map(|(n, choice)| format!("{}. {}", n + 1, choice.label));
            let labels: Vec<String> = labels.collect();
            format!(
                "That could be the name of one option or the number of another:\n{}\nWrite the number with a dot, \
                 like \"2.\"",
                labels.join("\n")
            )
        }
        Unfit::NotOffered => {
            let labels: Vec<&str> = question.choices.iter().map(|choice| choice.label.as_str()).collect();
            format!("That is not one of the options: {}.", labels.join(", "))
        }
        Unfit::NotOptional => "This question cannot be skipped.".to_owned(),
        Unfit::AnsweredAlready => "That question has been answered already; nothing was changed.".to_owned(),
    };
    format!("{why} {} Reply cancel to dismiss the question.", how_to_reply(question))
}

/// To somebody who ended an ask of another chat.
#[must_use]
pub fn receipt(line: &str) -> String {
    format!("{GOT_IT}\n{line}")
}

/// Why a question cannot be put to somebody who has been silent, and how to mend it.
pub const NO_TEMPLATE: &str = "the person has not written within 24 hours, so that WhatsApp lets only an approved \
                               template through, and whatsapp.template is not set (see docs/whatsapp.md)";
/// Why an approved template cannot be used, and how to mend it.
pub const TEMPLATE_PARAMETERS: &str = "the template does not have the parameters that askd fills in: one, {{1}}, for \
                                       the name of the group, or none (see docs/whatsapp.md)";
/// Why somebody is never told how an ask ended.
pub const NEVER_WROTE: &str = "the person did not write again for as long as the outcome is kept";
