//! What the stand-in remembers, as tests, the page and the control API see it: people, messages, calls
//! and webhooks. Plain records; the rules are in `state`.

use serde::{Deserialize, Serialize};

use super::clock::UnixMs;

/// Somebody with WhatsApp on a phone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// Phone number in digits, with country code. The stand-in always knows it.
    pub wa_id: String,
    /// Profile name.
    #[serde(default)]
    pub name: String,
    /// Business-scoped user id; made from the number when empty.
    #[serde(default)]
    pub user_id: String,
    /// The person's username, if one was taken.
    #[serde(default)]
    pub username: Option<String>,
    /// The number is kept from the business: webhooks carry no `from` and no `wa_id`.
    #[serde(default)]
    pub number_hidden: bool,
    /// Other spellings of the number that reach the same person, as in Brazil, Argentina and Mexico: the answer to
    /// a send names `wa_id` beside them, and webhooks come from `wa_id`.
    #[serde(default)]
    pub also: Vec<String>,
}

impl Person {
    /// A person with a number, a name and the business-scoped id that follows from the number.
    #[must_use]
    pub fn new(wa_id: &str, name: &str) -> Self {
        let user_id = format!("US.9{wa_id}");
        Self {
            wa_id: wa_id.to_owned(),
            name: name.to_owned(),
            user_id,
            username: None,
            number_hidden: false,
            also: Vec::new(),
        }
    }

    /// A person who took a username and whose number the business never sees.
    #[must_use]
    pub fn hidden(wa_id: &str, name: &str, username: &str) -> Self {
        Self { username: Some(username.to_owned()), number_hidden: true, ..Self::new(wa_id, name) }
    }
}

/// Where a message of the business stands, in the order of the ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The call was answered with 200; nothing else is known.
    Accepted,
    /// One tick: on Meta's servers.
    Sent,
    /// Two ticks: on the person's phone.
    Delivered,
    /// Two blue ticks.
    Read,
    /// Red mark: it will never be shown.
    Failed,
}

impl Stage {
    /// As in the `status` of a webhook.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Read => "read",
            Self::Failed => "failed",
        }
    }

    /// The person has it on the phone.
    #[must_use]
    pub fn shown(self) -> bool {
        matches!(self, Self::Delivered | Self::Read)
    }
}

/// A reply button, a list row or a template's quick reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// What comes back when it is tapped (`id`, or a template button's `payload`).
    pub id: String,
    /// What the person sees.
    pub title: String,
    /// Second line of a list row.
    #[serde(default)]
    pub description: Option<String>,
}

/// One bubble in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `wamid.…`
    pub id: String,
    /// The person's number: whose chat this is.
    pub wa_id: String,
    /// From the business (true) or from the person.
    pub outgoing: bool,
    /// `text`, `interactive`, `template`, `sticker`, `audio`, `image`, `button`, …
    pub kind: String,
    /// What is read in the bubble.
    pub text: String,
    /// What can be tapped.
    pub taps: Vec<Tap>,
    /// The label of a list's button.
    pub list_label: Option<String>,
    /// The message this one quotes.
    pub quotes: Option<String>,
    /// Where it stands; for a person's message `Read` means that the business marked it.
    pub stage: Stage,
    /// Why it failed.
    pub error: Option<i64>,
    /// `biz_opaque_callback_data` of the call.
    pub opaque: Option<String>,
    /// Reactions put on it by the person.
    pub reaction: Option<String>,
    /// When it was accepted or written, Unix milliseconds on the stand-in's clock.
    pub at: UnixMs,
    /// When it first reached each stage; a status that is told later still carries that time.
    pub reached: Vec<(Stage, UnixMs)>,
    /// Named by business-scoped id in the call.
    pub by_user_id: bool,
}

impl Message {
    /// When it reached a stage, if it has.
    #[must_use]
    pub fn reached(&self, stage: Stage) -> Option<UnixMs> {
        self.reached.iter().find(|(reached, _)| *reached == stage).map(|(_, at)| *at)
    }
}

/// One call of the API.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Real milliseconds since the stand-in started; not moved by `advance`.
    pub at_ms: i64,
    /// The stand-in's clock, Unix milliseconds.
    pub clock: UnixMs,
    /// `POST /v25.0/…/messages`
    pub request: String,
    /// Whose chat, once known.
    pub to: Option<String>,
    /// HTTP status of the answer; 0: the connection was reset.
    pub status: u16,
    /// Graph code of a refusal.
    pub code: Option<i64>,
    /// The accepted message, even when the sender never learnt of it.
    pub message: Option<String>,
    /// The fault that was forced, if any.
    pub fault: Option<super::fault::Fault>,
    /// The body, if it was JSON.
    pub body: serde_json::Value,
}

/// One attempt to deliver a webhook.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Posted {
    /// Real milliseconds since the stand-in started.
    pub at_ms: i64,
    /// 1 for the first attempt; 0 for bytes that a test made.
    pub attempt: usize,
    /// HTTP status of the receiver; 0: none came.
    pub status: u16,
    /// The bytes that were signed and sent (always ASCII).
    pub body: String,
    /// Value of `X-Hub-Signature-256`.
    pub signature: String,
}
