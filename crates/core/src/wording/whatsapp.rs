//! The sentences that only WhatsApp shows. Texts marked *exact* are part of the contract.

use super::late_by_message;
use crate::{Choice, Kind, Question};
use std::time::Duration;

/// Heads a question that is sent a second time because the first may have been lost.
pub const REPEAT: &str = "(repeat)";

/// To a person who had answered a part of an ask that ended otherwise.
pub const NOT_USED: &str = "Your answers were not used.";

/// Before how a question ended, to a person who has not seen it. `question`: a few words of it.
pub fn question_was(question: &str) -> String {
    format!("The question was: {question}")
}

/// To a person whose message the platform received before it had sent the question. *Exact.*
pub const FROM_BEFORE: &str = "You wrote this before I asked. Please reply again.";

/// To a person who edits a message. *Exact.*
pub const NOT_EDITED: &str = "An answer cannot be edited.";

/// To a person whose phone was off, so that askd cannot know which question their words are for. *Exact.*
pub fn did_you_mean(question: &str) -> String {
    let question = question.trim_end_matches('?');
    format!("Did you mean this for: {question}? Reply 1 to confirm.")
}

/// The same once more, when a 1 may have been meant for something else that askd has said since.
pub fn did_you_mean_that(said: &str, question: &str) -> String {
    format!("You wrote \"{said}\". {}", did_you_mean(question))
}

/// To a person who replied neither 1 nor a number to that: a yes may confirm what they wrote, or answer the question.
pub fn confirm_or_quote(said: &str) -> String {
    format!("You wrote \"{said}\". Reply 1 to confirm it, or swipe the question to reply again.")
}

/// To a person who forwards a message where an answer is expected.
pub const FORWARDED: &str = "I do not take forwarded messages as answers.";

/// To a person whose words do not say that they answer what has timed out.
pub const NOT_TAKEN_LATE: &str = "The question has timed out, so I did not take this as its answer.";

/// To a person whose tap cannot be read.
pub const NO_BUTTON: &str = "This button does not work any more.";

/// The receipt of an answer, before the number of the next question. The closing message is the receipt of the last one.
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
    // The name of an option comes first.
    let skip = if question.choice("0").is_some() { "\"skip\"" } else { "0" };
    if question.required { line.to_owned() } else { format!("{line} Reply {skip} to skip.") }
}

/// Who asks, in a line above a question of a chat that one group uses.
pub fn asked_by(group: &str) -> String {
    format!("Agent: {group}")
}

/// How one of several open asks is meant.
pub fn with_code(code: &str, question: &Question) -> String {
    let answer = if question.choices.is_empty() { "your answer" } else { "2" };
    format!("Several questions are open. Swipe this one to reply, or start with {code}: \"{code} {answer}\".")
}

/// On the button that opens the list of options.
pub const WHATSAPP_LIST: &str = "Choose";

/// Over the list.
pub const WHATSAPP_OPTIONS: &str = "Options";

/// Until when a question can be answered, at least a day from now.
pub fn answer_by(moment: &str) -> String {
    format!("Answer by {moment}.")
}

/// How long a question can be answered: never more than is left, but for the moments that sending takes.
pub fn time_left(left: Duration) -> String {
    let seconds = left.as_secs();
    let (count, unit) = match seconds {
        0..90 => (seconds, "second"),
        90..7_190 => ((seconds + 5) / 60, "minute"),
        _ => ((seconds + 5) / 3_600, "hour"),
    };
    format!("{count} {unit}{} left.", if count == 1 { "" } else { "s" })
}

/// A reminder that quotes its question; `until` is one of the lines above.
pub fn whatsapp_reminder(until: &str) -> String {
    format!("Still open. {until}")
}

/// Asks which of several open asks was meant; each with its code and a few words.
pub fn which_one(open: &[(String, String)]) -> String {
    let (list, code) = by_code(open);
    format!("Which question do you mean?\n{list}\n\nSwipe it to reply, or start with its code: \"{code} 2\".")
}

/// Asks with their codes and a few words each, line by line, and the first code for an example.
pub(super) fn by_code(asks: &[(String, String)]) -> (String, &str) {
    let list: Vec<String> = asks.iter().map(|(code, question)| format!("{code}: {question}")).collect();
    (list.join("\n"), asks.first().map_or("k7", |(code, _)| code.as_str()))
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
    /// The same, but it may stand for this option.
    Near(usize),
    /// The question cannot be left out.
    NotOptional,
    /// Another question was answered with that message already.
    AnsweredAlready,
}

/// What is possible instead.
pub fn unfit(unfit: &Unfit, question: &Question) -> String {
    match unfit {
        Unfit::Near(_) => why_unfit(unfit, question),
        _ => format!("{} (\"cancel\" to dismiss)", why_unfit(unfit, question)),
    }
}

/// The same where a number alone is not enough: several questions are open, or this one has timed out.
pub fn unfit_by_code(unfit: &Unfit, question: &Question, code: &str) -> String {
    format!("{} {}", why_unfit(unfit, question), late_by_message(code))
}

/// How a question is answered by a message after its timeout.
pub fn how_to_reply_late(question: &Question, code: &str) -> String {
    format!("{} {}", how_to_reply(question), late_by_message(code))
}

/// Up to how many options a refusal names; the question above it has all of them.
const NAMED: usize = 3;

pub(super) fn why_unfit(unfit: &Unfit, question: &Question) -> String {
    let count = question.choices.len();
    let options = |between: &str, or: &str| {
        let each = |(n, choice): (usize, &Choice)| format!("{}{between}{}", n + 1, choice.label);
        let mut options: Vec<String> = question.choices.iter().enumerate().map(each).collect();
        let last = options.pop().unwrap_or_default();
        if options.is_empty() {
            last
        } else {
            format!("{}{or}{last}", options.join(if or == "\n" { or } else { ", " }))
        }
    };
    let how = how_to_reply(question);
    match unfit {
        Unfit::NoText => format!("I can only read text as an answer. {how}"),
        Unfit::NoSuchNumber if question.takes_text() => {
            format!("Please pick 1-{count}, or answer in words: a number alone picks an option.")
        }
        Unfit::NotOffered if count <= NAMED => format!("Please reply {}.", options(" for ", " or ")),
        Unfit::NoSuchNumber | Unfit::NotOffered => format!("Please pick 1-{count}."),
        Unfit::OnlyOne => format!("Please pick one of 1-{count}."),
        Unfit::TwoMeanings => {
            let options = options(". ", "\n");
            format!("One option has that name, another that number:\n{options}\nWrite the number with a dot: \"2.\"")
        }
        Unfit::Near(option) => {
            let label = question.choices.get(*option).map_or("", |choice| choice.label.as_str());
            format!("Shall I take that as {label}? Reply {}.", option + 1)
        }
        Unfit::NotOptional => format!("This question cannot be skipped. {how}"),
        Unfit::AnsweredAlready => "That question has already been answered.".to_owned(),
    }
}

/// Why a question cannot be put to a person who has been silent, and how to mend it.
pub const NO_TEMPLATE: &str = "the person has not written within 24 hours, so WhatsApp lets only an approved template \
                               through, and whatsapp.template is not set (see docs/whatsapp.md)";

/// Why an approved template cannot be used, and how to mend it.
pub const TEMPLATE_PARAMETERS: &str = "the template does not have the parameters that askd fills in: one, {{1}}, for \
                                       the name of the group, or none (see docs/whatsapp.md)";

/// Why a person is never told how an ask ended.
pub const NEVER_WROTE: &str = "the person did not write again for as long as the outcome is kept";
