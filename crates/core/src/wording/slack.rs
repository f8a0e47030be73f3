//! The sentences that only Slack shows. Texts marked *exact* are part of the contract.

use super::whatsapp::{Unfit, why_unfit};
use super::{ended, list, told};
use crate::{AskState, Outcome, Question};

/// Above a card that was posted again. *Exact.*
pub fn retry_heading(attempt: u8) -> String {
    format!("Previous attempt failed to display. This is retry attempt {attempt}.")
}

/// Who asks, in a line of askd's own. `until` is in Slack's form for dates.
pub fn slack_who(group: &str, until: &str) -> String {
    format!("*{group}* asks · answer until {until}")
}

/// Who asks, over a text that goes before the card. It is never changed, so it names no time.
pub fn slack_asks(group: &str) -> String {
    format!("*{group}* asks")
}

/// The same, of a card that is closed.
pub fn slack_asked(group: &str) -> String {
    format!("*{group}* asked")
}

/// What a notice says: the question, and how many more there are.
pub fn slack_notice(group: &str, question: &str, more: usize) -> String {
    notice(&format!("{group} asks"), question, more)
}

pub(super) fn notice(what: &str, question: &str, more: usize) -> String {
    match more {
        0 => format!("{what}: {question}"),
        1 => format!("{what}: {question} (and 1 more question)"),
        _ => format!("{what}: {question} (and {more} more questions)"),
    }
}

/// Which part of a card of several messages this is.
pub fn slack_part(part: usize, count: usize) -> String {
    format!("· part {part} of {count}")
}

/// Where the text of a question stands that is too long for the form.
pub fn slack_above(index: Option<usize>) -> String {
    match index {
        Some(index) => format!("Question {} (its text is above)", index + 1),
        None => "The question is above.".to_owned(),
    }
}

/// On the button of an option whose label is too long for one; the label stands above under this number.
pub fn slack_option(index: usize) -> String {
    format!("Option {}", index + 1)
}

/// Over a choice in a form whose question stands above it.
pub fn slack_choose(kind: super::Kind) -> &'static str {
    if kind == super::Kind::MultiSelect { SLACK_SEVERAL } else { "Pick one" }
}

/// Under a choice of several.
pub const SLACK_SEVERAL: &str = "Pick one or more";

/// Over a text input: the answer itself, or another one than those offered.
pub fn slack_type(alone: bool) -> &'static str {
    if alone { SLACK_ANSWER } else { "Other answer" }
}

/// Over the input of an answer in words, and of the modal that holds it.
pub const SLACK_ANSWER: &str = "Your answer";

/// Under the buttons of a question that a message in the thread answers, too.
pub const SLACK_THREAD: &str = "or reply in the thread";

/// What a notice of a reminder says.
pub const SLACK_REMINDER: &str = "This question is still open.";

/// A reminder in a card's thread.
pub fn slack_reminder(until: &str) -> String {
    format!("Still open. You can answer until {until}.")
}

/// On the button that opens a modal for an answer in words.
pub const SLACK_OTHER_ANSWER: &str = "Other…";

/// On the button that sends that modal.
pub const SLACK_SEND: &str = "Send";

/// On the button that closes it.
pub const SLACK_CLOSE: &str = "Cancel";

/// To a person for whom Slack did not open the modal.
pub const SLACK_NOT_OPENED: &str = "Slack did not open the form. Please press Other… again.";

/// In a choice: the answer is typed.
pub const SLACK_OTHER: &str = "Other (type below)";

/// Leaves an optional question out.
pub const SLACK_SKIP: &str = "Skip";

/// Sends a form.
pub const SLACK_SUBMIT: &str = "Submit";

/// Ends the whole ask without an answer.
pub const SLACK_DISMISS: &str = "Dismiss";

/// What Slack asks before it: the title, the text, and the button that goes back.
pub const SLACK_DISMISS_ASKED: [&str; 3] = ["Dismiss this question?", "The agent gets no answer.", "Keep it open"];

/// How a card says at a glance that it was answered or dismissed; `by` names the person in Slack's way.
pub fn slack_answered(answer: Option<&str>, by: &str, late: bool) -> String {
    let what = answer.map_or_else(|| "Answered".to_owned(), |answer| format!("*{answer}*"));
    format!(":white_check_mark: {what} by {by}{}", if late { ", after the timeout" } else { "" })
}

/// The same of a dismissal.
pub fn slack_dismissed(by: &str) -> String {
    format!(":no_entry_sign: Dismissed by {by}")
}

/// One question of several on a closed card, with its answer.
pub fn slack_line(question: &str, answer: Option<&str>) -> String {
    answer.map_or_else(|| question.to_owned(), |answer| format!("{question} *{answer}*"))
}

/// To a person who used a card of an ask that is not known (any more).
pub const UNKNOWN_QUESTION: &str = "This question is no longer active.";

/// To a person who used a card where it does not belong.
pub const NOT_ASKED_HERE: &str = "This question belongs to another channel.";

/// To a person of another workspace.
pub const OTHER_TEAM: &str = "Only members of this workspace can answer.";

/// To a person who sent a file with their answer.
pub const SLACK_WORDS_TAKEN: &str = "askd does not read files. Your words were taken.";

/// To a person who wrote something in a card's thread that is no answer, or sent it with files.
pub fn thread_hint(question: Option<&Question>, typed: &str, files: bool) -> String {
    match question {
        Some(question) if question.kind == super::Kind::Text => {
            "Please answer in words: askd does not read files.".to_owned()
        }
        _ if files => format!("askd does not read files. {}", hint(question, typed)),
        _ => hint(question, typed),
    }
}

fn hint(question: Option<&Question>, typed: &str) -> String {
    let Some(question) = question else { return SEVERAL.to_owned() };
    if question.choice(typed).is_some() {
        return why_unfit(&Unfit::TwoMeanings, question);
    }
    let labels: Vec<String> = question.choices.iter().map(|choice| choice.label.clone()).collect();
    let other = if question.custom { " Anything else: use the card." } else { "" };
    format!("That is not one of the options. Reply with one, or its number: {}.{other}", list(&labels))
}

const SEVERAL: &str = "Several questions: please answer them on the card.";

/// To a person who edited a message in a card's thread.
pub fn slack_edited(ask: &AskState) -> String {
    let questions = &ask.content.questions;
    let next = match ask.last_outcome().as_ref() {
        Some(Outcome::Answered { answers, .. }) => {
            format!("The first answer stands: \"{}\".", told(answers, questions))
        }
        Some(outcome) if !ask.is_late_open() => ended(outcome, questions),
        _ if questions.len() > 1 => SEVERAL.to_owned(),
        _ => "Please send a new reply.".to_owned(),
    };
    format!("Edits are not read. {next}")
}

/// To a person who replied under a text that goes before a card.
pub const SLACK_LAST_PART: &str = "Please answer below, on the last part: replies here are not read.";

/// What is wrong when Slack refuses to show something for good, and how an operator fixes it.
pub fn slack_refuses(code: &str, needed: Option<&str>) -> String {
    format!("slack: {code}: {}", slack_fix(code, needed))
}

/// What an operator can do when Slack refuses something for good.
pub fn slack_fix(code: &str, needed: Option<&str>) -> String {
    let fix = match code {
        "not_in_channel" => "invite the bot with /invite @askd in that channel",
        "channel_not_found" => {
            "there is no such channel for the bot: check the route's chat, and invite the bot if the channel is private"
        }
        "is_archived" => "the channel is archived: unarchive it, or set another chat in the route",
        "invalid_auth" | "not_authed" | "not_allowed_token_type" => {
            "slack.bot_token is wrong: copy the Bot User OAuth Token (xoxb-...) of the app again"
        }
        "token_revoked" | "token_expired" | "account_inactive" => {
            "the app was removed or its token revoked: install it to the workspace again and set the new slack.bot_token"
        }
        "missing_scope" => {
            let scope = needed.unwrap_or("chat:write");
            return format!("the app lacks {scope}: add it under OAuth & Permissions and install the app again");
        }
        "restricted_action" | "no_permission" | "ekm_access_denied" | "access_denied" => {
            "the workspace does not let the app post there: ask its administrator"
        }
        _ => "the daemon's log and Slack's documentation of this error say more",
    };
    fix.to_owned()
}

/// What an operator can do when the socket of Slack's Socket Mode cannot be opened.
pub fn slack_socket_fix(code: Option<&str>) -> &'static str {
    match code {
        Some("invalid_auth" | "not_authed" | "not_allowed_token_type" | "token_revoked" | "token_expired") => {
            "slack.app_token is wrong: copy the app-level token (xapp-...) from Basic Information of the app again"
        }
        Some("missing_scope") => "the app-level token lacks connections:write: make another one with that scope",
        Some("socket_mode_disabled") => "switch Socket Mode on in the settings of the app",
        _ => UNREACHABLE,
    }
}

/// What an operator can do when a platform does not answer.
pub const UNREACHABLE: &str = "check that this host can reach it directly: network, DNS, firewall, CA certificates (askd uses no \
                               proxy). askd keeps trying";
