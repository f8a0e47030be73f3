//! The sentences that only WhatsApp shows. Texts marked *exact* are part of the contract.

use super::late_by_message;
use crate::{Kind, Question};
use std::time::Duration;

/// Heads a question that is sent a second time because the first may have been lost.
pub const REPEAT: &str = "(repeat)";

/// To a person who had answered a part of an ask that ended otherwise.
pub const NOT_USED: &str = "Your answers so far were not used.";

/// To a person whose message the platform received before it had sent the question. *Exact.*
pub const FROM_BEFORE: &str = "You wrote this before I asked. Please reply again.";

/// To a person who edits a message. *Exact.*
pub const NOT_EDITED: &str = "An answer cannot be edited.";

/// To a person whose phone was off, so that askd cannot know which question their words are for. *Exact.*
pub fn did_you_mean(question: &str) -> String {
    let question = question.trim_end_matches('?');
    format!("Did you mean this for: {question}? Reply 1 to confirm.")
}

/// To a person who forwards a message where an answer is expected.
pub const FORWARDED: &str = "That is a forwarded message, so I did not take it as your answer.";

/// The receipt of an answer.
pub const GOT_IT: &str = "Got it.";

/// Heads one of several questions. *Exact.*
pub fn question_of(number: usize, count: usize) -> String {
    format!("Question {number} of {count}")
}

/// Who asks what, in a chat. *Exact.*
pub fn asking(group: Option<&str>, question: &str) -> String {
    match group {
        Some(group) => format!("The agent \"{group}\" is asking: {question}"),
        None => format!("The agent is asking: {question}"),
    }
}

/// How a question is answered by a message. *Exact*, but for what can be skipped.
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
pub fn with_code(code: &str) -> String {
    format!("More than one question is open here. Quote this message, or begin your reply with {code}, like: {code} 2")
}

/// Until when a question can be answered, and about how long that is from when this is sent.
pub fn answer_until(time: &str, left: Duration) -> String {
    format!("You can answer until {time} (about {} from now).", about(left))
}

/// A reminder that quotes its question; `until` is the line of [`answer_until`].
pub fn whatsapp_reminder(until: &str) -> String {
    format!("This question is still open. {until}")
}

/// A span of time to the nearest number that says something.
fn about(span: Duration) -> String {
    let seconds = span.as_secs();
    let (count, unit) = match seconds {
        0..90 => (seconds, "second"),
        90..5_400 => ((seconds + 30) / 60, "minute"),
        5_400..129_600 => ((seconds + 1_800) / 3_600, "hour"),
        _ => ((seconds + 43_200) / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Asks which of several open asks was meant; each with its code and a few words.
pub fn which_one(open: &[(String, String)]) -> String {
    let list: Vec<String> = open.iter().map(|(code, question)| format!("{code}: {question}")).collect();
    let code = open.first().map_or("k7", |(code, _)| code.as_str());
    format!(
        "Which question do you mean?\n{}\n\nQuote its message, or begin your reply with its \
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
pub fn unfit(unfit: &Unfit, question: &Question) -> String {
    format!("{} {} Reply cancel to dismiss the question.", why_unfit(unfit, question), how_to_reply(question))
}

/// The same after the timeout, when a number alone would be taken for something else.
pub fn unfit_late(unfit: &Unfit, question: &Question, code: &str) -> String {
    format!("{} {}", why_unfit(unfit, question), how_to_reply_late(question, code))
}

/// How a question is answered by a message after its timeout.
pub fn how_to_reply_late(question: &Question, code: &str) -> String {
    format!("{} {}", how_to_reply(question), late_by_message(code))
}

fn why_unfit(unfit: &Unfit, question: &Question) -> String {
    let count = question.choices.len();
    match unfit {
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
        Unfit::AnsweredAlready => "That question has already been answered.".to_owned(),
    }
}

/// To a person who ended an ask of another chat.
pub fn receipt(line: &str) -> String {
    format!("{GOT_IT}\n{line}")
}

/// Why a question cannot be put to a person who has been silent, and how to mend it.
pub const NO_TEMPLATE: &str = "the person has not written within 24 hours, so that WhatsApp lets only an approved \
                               template through, and whatsapp.template is not set (see docs/whatsapp.md)";

/// Why an approved template cannot be used, and how to mend it.
pub const TEMPLATE_PARAMETERS: &str = "the template does not have the parameters that askd fills in: one, {{1}}, for \
                                       the name of the group, or none (see docs/whatsapp.md)";

/// Why a person is never told how an ask ended.
pub const NEVER_WROTE: &str = "the person did not write again for as long as the outcome is kept";
