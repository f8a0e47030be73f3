//! The sentences that only Slack shows. Texts marked *exact* are part of the contract.

use super::list;
use crate::Question;

/// Above a card that was posted again. *Exact.*
pub fn retry_heading(attempt: u8) -> String {
    format!("Previous attempt failed to display. This is retry attempt {attempt}.")
}

/// Who asks, in a line of askd's own. `until` is in Slack's form for dates.
pub fn slack_who(group: &str, code: &str, until: &str) -> String {
    format!("*{group}* asks · `{code}` · answer until {until}")
}

/// The same, of a card that is closed.
pub fn slack_asked(group: &str, code: &str) -> String {
    format!("*{group}* asked · `{code}`")
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

/// Before a question of several.
pub fn slack_number(index: usize) -> String {
    format!("*{}.*", index + 1)
}

/// Where the text of a question stands that is too long for the form.
pub fn slack_above(index: Option<usize>) -> String {
    match index {
        Some(index) => format!("*Question {}* (its text is above)", index + 1),
        None => "The question is above.".to_owned(),
    }
}

/// On the button of an option whose label is too long for one; the label stands above under this number.
pub fn slack_option(index: usize) -> String {
    format!("Option {}", index + 1)
}

/// Over a choice in a form.
pub fn slack_choose(kind: super::Kind) -> &'static str {
    if kind == super::Kind::MultiSelect { "Pick one or more" } else { "Pick one" }
}

/// Over a text input: the answer itself, or another one than those offered.
pub fn slack_type(alone: bool) -> &'static str {
    if alone { "Your answer" } else { "Other answer" }
}

/// What a notice of a reminder says.
pub const SLACK_REMINDER: &str = "This question is still open.";

/// A reminder in a card's thread.
pub fn slack_reminder(code: &str, until: &str) -> String {
    format!("This question (`{code}`) is still open. You can answer until {until}.")
}

/// In a choice: the answer is typed.
pub const SLACK_OTHER: &str = "Other (type below)";

/// Leaves an optional question out.
pub const SLACK_SKIP: &str = "Skip";

/// Sends a form.
pub const SLACK_SUBMIT: &str = "Submit";

/// Ends the whole ask without an answer.
pub const SLACK_DISMISS: &str = "Dismiss";

/// To a person who used a card of an ask that is not known (any more).
pub const UNKNOWN_QUESTION: &str = "This question is no longer active.";

/// To a person who used a card where it does not belong.
pub const NOT_ASKED_HERE: &str = "This question belongs to another channel.";

/// To a person of another workspace.
pub const OTHER_TEAM: &str = "Only members of this workspace can answer.";

/// To a person who wrote something in a card's thread that is no answer.
pub fn thread_hint(question: Option<&Question>) -> String {
    let Some(question) = question else {
        return "This card has several questions: please answer them with the form, not in the thread.".to_owned();
    };
    let labels: Vec<String> = question.choices.iter().map(|choice| choice.label.clone()).collect();
    format!(
        "That is not one of the options. Write one of these, or its number: {}. For any other answer use the card.",
        list(&labels)
    )
}

/// What is wrong when Slack refuses to show something for good, and how an operator mends it.
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
