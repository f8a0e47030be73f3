//! Sentences of the contract that several stories quote: what agents and people are told.

/// A card, once askd has started the agent.
pub(crate) const STARTED: &str = "The agent was started with the answer.";

/// An agent whose question a person dismissed.
pub(crate) const DISMISSED: &str = "ask_user cancelled: the user dismissed the question.";

/// An agent whose question was withdrawn.
pub(crate) const WITHDRAWN: &str = "ask_user cancelled: the question was withdrawn.";

/// An agent whose question nobody answered in time.
pub(crate) const TIMED_OUT: &str =
    "ask_user timeout: no response. Please decide whether to retry when the user sends a new message.";

/// An agent whose outcome was read by another one while it was suspended.
pub(crate) const TOLD_ELSEWHERE: &str =
    "The outcome became a briefing, which was read, or with which the agent was started.";

/// A person who sent a sticker, a voice message or a place.
pub(crate) const ONLY_TEXT: &str = "I can only read text as an answer.";

/// A person whose message came before the question.
pub(crate) const FROM_BEFORE: &str = "You wrote this before I asked. Please reply again.";

/// A card whose answer lies there.
pub(crate) const KEPT: &str = "Nobody collected the answer; it is kept for the agent's next start.";

/// A card that timed out, where the agent can be started.
pub(crate) const STILL_ANSWERABLE: &str = "You can still answer: the agent will be started with it.";
