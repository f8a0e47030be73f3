//! Every sentence of the daemon that a person or an agent reads about an ask. Texts marked *exact*
//! are part of the contract; the rest may be improved here, and only here.

use super::{
    Answer, Ask, Cause, Given, Kind, Outcome, Person, Question, Questions, Reason, Refusal, Rejection, Remark, Trouble,
};
use std::time::Duration;

pub use super::wording_of_answers::*;
pub use super::wording_of_blocks::*;
pub use super::wording_of_sessions::*;

/// Beside `result`, so that an old client sees a failure and not an empty answer. *Exact.*
#[must_use]
pub fn error(outcome: &Outcome, questions: &Questions) -> Option<String> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Dismissed { .. } => Some("ask_user cancelled: the user dismissed the question.".to_owned()),
        Outcome::Withdrawn => Some(WITHDRAWN.to_owned()),
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

/// `retryReason` of a response. *Exact.*
#[must_use]
pub fn retry_reason(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Undelivered { cause: Cause { retries: Some(retries), .. } } => Some(max_retries_reason(*retries)),
        _ => None,
    }
}

/// Why a channel could not show a question, as a sentence for people.
#[must_use]
pub fn trouble(Reason { channel, trouble }: Reason) -> String {
    let name = channel.title();
    match trouble {
        Trouble::NoConnection => format!("{name} cannot be reached."),
        Trouble::Refused => format!("{name} refused the question."),
        Trouble::RateLimited => format!("{name} takes no more messages for now."),
        Trouble::ChatNotFound => format!("{name} does not know the chat."),
        Trouble::NotConfigured => format!("{name} is not set up."),
        Trouble::WindowClosed => format!("{name} lets nobody write to the person before they write themselves."),
        Trouble::Unknown => format!("{name} could not show the question."),
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
        Outcome::Blocked { .. } => "Asked too often".to_owned(),
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
    let where_by = |by: &Person| format!("{} ({})", by.called(), by.via.as_str());
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
        Outcome::TimedOut => TIMED_OUT_ALREADY.to_owned(),
        Outcome::Undelivered { .. } => {
            "This question could not be shown in time, and the agent was told so.".to_owned()
        }
        Outcome::Blocked { .. } => {
            "This question cannot be answered: it was asked too often, and the agent was told to wait. Once somebody \
             allows it again, the agent may ask it anew."
                .to_owned()
        }
    }
}

const TIMED_OUT_ALREADY: &str = "This question has timed out. The agent was told that nobody answered.";

/// To somebody whose answer comes after the timeout, with what they said, so that it is not lost to them.
#[must_use]
pub fn too_late(said: &str) -> String {
    format!("{TIMED_OUT_ALREADY} Your answer was not used: {said}")
}

/// Replies in words, for whoever gave them.
#[must_use]
pub fn said(questions: &Questions, given: &[(usize, Given)]) -> String {
    let words = given.iter().filter_map(|(index, given)| {
        let question = questions.get(*index)?;
        let labels = given.picks.iter().filter_map(|pick| question.choices.get(*pick)).map(|c| c.label.as_str());
        let words: Vec<&str> = labels.chain(given.text.as_deref()).collect();
        Some(words.join(", ")).filter(|words| !words.is_empty())
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Why a reply was not taken.
#[must_use]
pub fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Settled { outcome, said: Some(said), .. } if **outcome == Outcome::TimedOut => too_late(said),
        Refusal::Settled { outcome, questions, .. } => already(outcome, questions),
        Refusal::FromBefore => FROM_BEFORE.to_owned(),
        Refusal::NotResponder { id } => format!(
            "Only the people named for this question may answer it, and your id, {id}, is not among them. \
             An operator can add it to the responders of the route. The question stays open."
        ),
        Refusal::MayNotAllow { id } => may_not_allow(id),
        Refusal::NotBlocked { by } => not_blocked(by.as_ref()),
        Refusal::Missing { questions } => format!("Still missing: an answer to {}.", list(questions)),
        Refusal::NoSuchQuestion { name } => {
            format!("This ask has no question {name:?}. Name a question by its id or by its whole text.")
        }
        Refusal::NotOffered { question, given, labels } => {
            format!("{given:?} is not an answer that {question:?} offers. Choose from: {}.", list(labels))
        }
        Refusal::NoText { question } => {
            format!("The answer to {question:?} has to be a text, or a list of texts.")
        }
        Refusal::OnlyOne { question } => format!("{question:?} takes one answer only."),
        Refusal::ChoiceOrText { question } => {
            format!("{question:?} takes a choice or an answer of your own, not both. Leave one of them out.")
        }
        Refusal::Unreadable { question } => {
            format!("The answer to {question:?} has the character U+0000, which cannot be kept. Leave it out.")
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
        Rejection::NoQuestions => "No questions provided".to_owned(),
        Rejection::TooLong { field, limit, size, unit } => {
            format!("{field} has {size} {unit}; at most {limit} are possible. Shorten it and ask again.")
        }
        Rejection::Empty { field } => format!("{field} is empty; say something in it."),
        Rejection::OutOfRange { field, min, max, value } => {
            format!("{field} is {value}; it has to be from {min} to {max}.")
        }
        Rejection::Duplicate { field, first } => {
            format!("{field} is the same as {first}; they have to differ.")
        }
        Rejection::Wrong { field, why } => format!("{field}: {why}."),
        Rejection::Malformed { why } => format!("the request file is not what it should be: {why}."),
        Rejection::UnknownGroup { group } => format!(
            "group {group:?} is not served here: it is not in the settings, and [defaults] serve no others. \
             An operator can add [groups.{group}]."
        ),
        Rejection::NoChannel { why } => format!("this question cannot be shown to anybody: {why}."),
        Rejection::RateLimited { group, what, setting, limit } => format!(
            "rate_limited: group {group:?} has {limit} questions {what}, which is all that {setting} = {limit} \
             allows. Wait for answers before you ask more."
        ),
        Rejection::SetAside => "askd itself failed at this question and has set it aside, so no answer will come. \
                                Its operator can see why. Do not ask it again unchanged."
            .to_owned(),
    }
}

/// Above a card that was posted again. *Exact.*
#[must_use]
pub fn retry_heading(attempt: u8) -> String {
    format!("Previous attempt failed to display. This is retry attempt {attempt}.")
}

/// Who asks, in a line of askd's own. `until` is in Slack's form for dates.
#[must_use]
pub fn slack_who(group: &str, code: &str, until: &str) -> String {
    format!("*{group}* asks · `{code}` · answer until {until}")
}

/// The same, of a card that is closed.
#[must_use]
pub fn slack_asked(group: &str, code: &str) -> String {
    format!("*{group}* asked · `{code}`")
}

/// What a notice says: the question, and how many more there are.
#[must_use]
pub fn slack_notice(group: &str, question: &str, more: usize) -> String {
    match more {
        0 => format!("{group} asks: {question}"),
        1 => format!("{group} asks: {question} (and 1 more question)"),
        _ => format!("{group} asks: {question} (and {more} more questions)"),
    }
}

/// Which part of a card of several messages this is.
#[must_use]
pub fn slack_part(part: usize, count: usize) -> String {
    format!("· part {part} of {count}")
}

/// Before a question of several.
#[must_use]
pub fn slack_number(index: usize) -> String {
    format!("*{}.*", index + 1)
}

/// Where the text of a question stands that is too long for the form.
#[must_use]
pub fn slack_above(index: Option<usize>) -> String {
    match index {
        Some(index) => format!("*Question {}* (its text is above)", index + 1),
        None => "The question is above.".to_owned(),
    }
}

/// On the button of an option whose label is too long for one; the label stands above under this number.
#[must_use]
pub fn slack_option(index: usize) -> String {
    format!("Option {}", index + 1)
}

/// Over a choice in a form.
#[must_use]
pub fn slack_choose(kind: super::Kind) -> &'static str {
    if kind == super::Kind::MultiSelect { "Choose any" } else { "Choose one" }
}

/// Over a text input: the answer itself, or another one than those offered.
#[must_use]
pub fn slack_type(alone: bool) -> &'static str {
    if alone { "Your answer" } else { "Other answer" }
}

/// What a notice of a reminder says.
pub const SLACK_REMINDER: &str = "This question still waits for an answer.";
/// A reminder in a card's thread.
#[must_use]
pub fn slack_reminder(code: &str, until: &str) -> String {
    format!("This question (`{code}`) still waits for an answer. It can be answered until {until}.")
}
/// In a choice: the answer is typed.
pub const SLACK_OTHER: &str = "Other: what I type below";
/// Leaves an optional question out.
pub const SLACK_SKIP: &str = "Skip";
/// Sends a form.
pub const SLACK_SUBMIT: &str = "Submit";
/// Ends the whole ask without an answer.
pub const SLACK_DISMISS: &str = "Dismiss";
/// To somebody who used a card of an ask that is not known (any more).
pub const UNKNOWN_QUESTION: &str =
    "This question is not known here any more, so nothing was done. If it still matters, the agent will ask again.";
/// To somebody who used a card where it does not belong.
pub const NOT_ASKED_HERE: &str = "This question is not asked in this channel. Nothing was changed.";
/// To somebody of another workspace.
pub const OTHER_TEAM: &str = "Only people of the workspace that askd belongs to may answer here. Nothing was changed.";
/// To somebody who wrote something in a card's thread that is no answer.
#[must_use]
pub fn thread_hint(question: Option<&Question>) -> String {
    let Some(question) = question else {
        return "This card has several questions: please answer them with the form, not in the thread.".to_owned();
    };
    let labels: Vec<String> = question.choices.iter().map(|choice| choice.label.clone()).collect();
    format!(
        "That is not one of the answers. Write one of these, or its number: {}. Anything else goes through the card.",
        list(&labels)
    )
}

/// What is wrong when Slack refuses to show something for good, and how an operator mends it.
#[must_use]
pub fn slack_refuses(code: &str, needed: Option<&str>) -> String {
    let mend = match code {
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
            return format!(
                "slack: missing_scope: the app lacks {scope}: add it under OAuth & Permissions and install the app again"
            );
        }
        "restricted_action" | "no_permission" | "ekm_access_denied" | "access_denied" => {
            "the workspace does not let the app post there: ask its administrator"
        }
        _ => "the daemon's log and Slack's documentation of this error say more",
    };
    format!("slack: {code}: {mend}")
}

/// A rejection without the agent's own texts, which do not belong in a log.
#[must_use]
pub fn for_log(rejection: &Rejection) -> String {
    match rejection {
        // The parser quotes what it did not expect; where it stood is said after that.
        Rejection::Malformed { why } => {
            let at = why.rfind(" at line ").map_or("", |at| &why[at..]);
            format!("the request file is not what it should be{at} (the response says more)")
        }
        other => self::rejection(other),
    }
}

/// What the agent's side says when nobody takes its request. *Exact* but for the counts.
#[must_use]
pub fn not_claimed(attempt: u32, retries: u8) -> String {
    format!("UI failed to render question within timeout (attempt {attempt}/{retries})")
}

/// What the agent's side says when the host goes silent after the deadline. *Exact.*
pub const HOST_SILENT: &str = "Request timed out waiting for host response";

/// What ends the text of a result that says that the same call is to be made again. *Exact.*
pub const RETRY_NOW: &str = "Retry this exact call now, in this session, with the same parameters.";

/// When nobody has taken the request as often as it may be retried. *Exact.*
pub const MAX_RETRIES: &str = "Max retries exceeded";

/// `retryReason` beside [`MAX_RETRIES`]. *Exact* but for the count.
#[must_use]
pub fn max_retries_reason(retries: u8) -> String {
    format!("Max retries ({retries}) exceeded")
}

/// What a call returns that waits no longer while the question stays open. *Exact.*
pub const STILL_PENDING: &str = "⏳ Waiting for user confirmation... The question is still open. Retry this exact call, \
                                 or call ask_user_wait with this question_id; if the user already answered, it \
                                 returns at once.";

/// What is said to who waits for a question that this process has not asked. *Exact.*
pub const UNKNOWN_HERE: &str = "Unknown here: repeat the ask_user call with the same arguments; if it was answered it \
                                returns at once.";

/// The same to who withdraws one.
pub const UNKNOWN_NOT_WITHDRAWN: &str = "Unknown here: this process has not asked a question with this question_id, \
                                         so nothing was withdrawn. Use the question_id of a pending result.";

/// When the client goes away while it calls.
pub const CLIENT_GONE: &str = "the client has closed its end; nothing was asked.";

/// What a client may show while a person thinks.
pub const PROGRESS: &str = "waiting for a person to answer";

/// That a person gets more time than the agent meant to give.
#[must_use]
pub fn timeout_raised(asked: u64, least: u64) -> String {
    format!(
        "timeoutMs {asked} was raised to {least}: a person needs time to see a question. To return sooner and leave it \
         open, use waitMs."
    )
}

impl Ask {
    /// The closing line of its cards, once it is settled.
    #[must_use]
    pub fn closing_line(&self) -> Option<String> {
        if let Some(block) = &self.block {
            return Some(block_line(block));
        }
        if self.remark() == Remark::Stopped {
            return remark(Remark::Stopped).map(str::to_owned);
        }
        if let Some((late, _)) = self.late_outcome() {
            let line = closing_line(&late, &self.content.questions);
            return Some(line.replacen("Answered: ", ANSWERED_LATE, 1));
        }
        self.outcome().map(|outcome| closing_line(outcome, &self.content.questions))
    }
}

/// Heads a question that is sent a second time because the first may have been lost.
pub const REPEAT: &str = "(repeat)";
/// To somebody who had answered a part of what ended otherwise.
pub const NOT_USED: &str = "Your answers so far were not used.";
/// To a person whose message the platform received before it had sent the question. *Exact.*
pub const FROM_BEFORE: &str = "You wrote this before I asked. Please reply again.";
/// To a person who edits a message. *Exact.*
pub const NOT_EDITED: &str = "An answer cannot be edited.";
/// To a person whose phone was off, so that askd cannot know which question their words are for. *Exact.*
#[must_use]
pub fn did_you_mean(question: &str) -> String {
    let question = question.trim_end_matches('?');
    format!("Did you mean this for: {question}? Reply 1 to confirm.")
}
/// To a person who forwards a message where an answer is expected.
pub const FORWARDED: &str = "That is a forwarded message, so I did not take it as your answer.";
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

/// Until when a question can be answered, and about how long that is from when this is sent.
#[must_use]
pub fn answer_until(time: &str, left: Duration) -> String {
    format!("You can answer until {time} (about {} from now).", about(left))
}

/// A reminder that quotes its question; `until` is the line of [`answer_until`].
#[must_use]
pub fn whatsapp_reminder(until: &str) -> String {
    format!("This question still waits for an answer. {until}")
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
    format!("{} {} Reply cancel to dismiss the question.", why_unfit(unfit, question), how_to_reply(question))
}

/// The same after the timeout, when a number alone would be taken for something else.
#[must_use]
pub fn unfit_late(unfit: &Unfit, question: &Question, code: &str) -> String {
    format!("{} {}", why_unfit(unfit, question), how_to_reply_late(question, code))
}

/// How a question is answered by a message after its timeout.
#[must_use]
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
        Unfit::AnsweredAlready => "That question has been answered already; nothing was changed.".to_owned(),
    }
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
