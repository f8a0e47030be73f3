//! The sentences about sessions: late answers, what became of an outcome that nobody took, and what a newly
//! started agent reads: a part of [`super::wording`], through which they are used. Texts marked *exact* are part of
//! the contract.

use super::words;
use crate::{Ask, Outcome, Remark};

/// Begins the closing line of a card that was answered after its timeout.
pub const ANSWERED_LATE: &str = "Answered after the timeout: ";
/// After `Timed out at <time>.`, while a late answer is still taken. *Exact.*
const STILL_ANSWERABLE: &str = "You can still answer: the agent will be started with it.";

/// `Timed out at 14:32. You can still answer: ...`; the time as the channel writes it. *Exact* but for the time.
pub fn timed_out_late(time: &str) -> String {
    format!("Timed out at {time}. {STILL_ANSWERABLE}")
}

/// What a closed card says beside how the ask ended; `None`: nothing. *Exact* for [`Remark::HostAway`].
pub fn remark(remark: Remark) -> Option<&'static str> {
    match remark {
        Remark::Plain => None,
        Remark::Late => Some(STILL_ANSWERABLE),
        Remark::AskedAgain => Some("Asked again."),
        Remark::Overdue => Some("The agent has not collected it yet."),
        Remark::HostAway => Some("The agent's host does not answer; it gets this when it is back."),
        Remark::Running => {
            Some("The agent is running but no longer waits; it gets the answer when it asks again or next starts.")
        }
        Remark::Started => Some("The agent was started with the answer."),
        Remark::StartedBefore => Some("The agent has been started since it asked; the answer is kept for it."),
        Remark::Kept => Some("Nobody collected the answer; it is kept for the agent's next start."),
        Remark::NotStarted => Some("The agent could not be started; the answer is kept for its next start."),
        Remark::Stopped => Some("Timed out, cancelled."),
    }
}

/// How an answer after the timeout is given where there are no buttons.
pub fn late_by_message(code: &str) -> String {
    format!("Swipe the question to reply, or start with {code}.")
}

/// What a newly started agent reads of an ask. *Exact* for answered and dismissed ones.
pub fn briefing(ask: &Ask) -> String {
    let last = ask.last_outcome();
    let outcome = last.as_ref();
    let mut lines = Vec::new();
    if ask.follow_up().retold {
        lines.push("This may have reached you before the computer stopped.".to_owned());
    }
    for (index, question) in ask.content.questions.iter().enumerate() {
        lines.push(format!("You previously asked the user: \"{}\"", question.text));
        if !question.choices.is_empty() {
            let options = question.choices.iter().enumerate().map(|(n, choice)| format!("{}. {}", n + 1, choice.label));
            lines.push(format!("Options: {}", options.collect::<Vec<_>>().join(", ")));
        }
        lines.push(match outcome {
            Some(Outcome::Answered { answers, .. }) => match answers.entries().get(index).and_then(Option::as_ref) {
                Some(answer) => {
                    let quoted: Vec<String> = words(question, answer).map(|word| format!("\"{word}\"")).collect();
                    format!("The user answered: {}", quoted.join(", "))
                }
                None => "The user skipped the question.".to_owned(),
            },
            Some(Outcome::Dismissed { .. }) => "The user dismissed the question.".to_owned(),
            Some(Outcome::TimedOut) => "Nobody answered in time.".to_owned(),
            Some(Outcome::Withdrawn { .. }) | None => "The question was withdrawn.".to_owned(),
            Some(Outcome::Undelivered { .. }) => "The question could not be shown to anyone.".to_owned(),
            Some(Outcome::Blocked { .. }) => "It was asked too often, so no one was asked.".to_owned(),
        });
    }
    lines.push("Continue from where you left off.".to_owned());
    lines.join("\n")
}
