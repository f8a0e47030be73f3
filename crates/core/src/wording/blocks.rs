//! The sentences about questions that were asked too often: a part of [`super::wording`], through which they are
//! used. Texts marked *exact* are part of the contract.

use super::whatsapp::by_code;
use super::{Closing, notice};
use crate::{Block, Person, Questions};

/// How a block ended, or how often it was asked while it stands.
pub(super) fn block_closing(block: &Block) -> Closing {
    match &block.lifted {
        None => Closing { what: format!("Asked {} times without an answer", block.times), by: None },
        Some(lifted) => {
            let what = if lifted.by.is_some() { "Allowed again" } else { "Unblocked" };
            Closing { what: what.to_owned(), by: lifted.by.clone() }
        }
    }
}

/// What a card says under the questions of a block.
pub const BLOCKED: &str = "The agent was told to wait for your guidance. It cannot ask this again until you allow \
                           it.";
/// On the button that ends a block. *Exact.*
pub const ALLOW_AGAIN: &str = "Allow again";
/// What `askd reset` says.
pub const RESET: &str = "Unblocked. The agent can ask again.";
/// The same of a question that was not blocked.
pub const COUNT_RESET: &str = "The attempt count is reset. The agent can ask again.";

/// How often who asked what, in a line of askd's own.
pub fn slack_blocked(group: &str, times: u32) -> String {
    format!("*{group}* asked this {times} times without an answer")
}

/// What a notice of a block says.
pub fn blocked_notice(group: &str, question: &str, more: usize) -> String {
    notice(&format!("{group} asked too often"), question, more)
}

/// The head of a message of a block in a chat.
pub fn chat_blocked(group: &str, times: u32, several: bool) -> String {
    let what = if several { "these questions" } else { "this question" };
    format!("The agent \"{group}\" has asked {what} {times} times without an answer:")
}

/// How a block is ended by a message.
pub fn how_to_allow(code: &str) -> String {
    format!("{BLOCKED} To allow it again, reply \"allow {code}\", or swipe this to reply \"allow\".")
}

/// To a person who allowed something while several things are blocked; each with its code and a few words.
pub fn which_to_allow(blocked: &[(String, String)]) -> String {
    let (list, code) = by_code(blocked);
    format!("Which one do you mean?\n{list}\n\nReply \"allow {code}\", for example.")
}

/// To a person who wrote `allow` while something is blocked and a question is open that takes any words; each block with its code
/// and a few words.
pub fn allow_or_answer(blocked: &[(String, String)]) -> String {
    let (list, code) = by_code(blocked);
    format!(
        "Do you want to allow this, or to answer the open question?\n{list}\n\nReply \"allow {code}\" to allow it. Swipe the open \
         question to answer it."
    )
}

/// What an agent is told that has asked too often. *Exact.*
pub fn too_often(limit: u8, questions: &Questions) -> String {
    let named: Vec<String> = questions.iter().map(|question| format!("'{}'", question.text)).collect();
    format!(
        "Maximum retry attempts ({limit}) exceeded for: {}. Please wait for user guidance or manually mark as completed.",
        named.join(", ")
    )
}

/// To a person who may not let a question be asked again.
pub fn may_not_allow(id: &str) -> String {
    format!("You're not on the list of people who can allow this. To be added, send your admin this id: {id}.")
}

/// To a person who allows what may be asked already.
pub fn not_blocked(by: Option<&Person>) -> String {
    match by {
        Some(by) => format!("{} has already allowed it again.", by.called()),
        None => "This question is not blocked.".to_owned(),
    }
}
