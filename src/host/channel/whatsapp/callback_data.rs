//! What rides in a message of ours and comes back with each of its statuses: which ask, route, try and
//! question it belongs to. Pure.

use askd_core::AskId;

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A question, or the last message of one: the one with what can be chosen.
    Question,
    /// What goes before it.
    Part,
    /// Asks the person to write.
    Template,
    /// Says how the ask ended.
    Closing,
    /// A request for confirmation; the attempt tells it from others.
    Confirmation,
    /// Anything else.
    Note,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Question, "q"),
    (Kind::Part, "p"),
    (Kind::Template, "t"),
    (Kind::Closing, "c"),
    (Kind::Confirmation, "y"),
    (Kind::Note, "n"),
];

impl Kind {
    /// Whether an ask waits for what comes of it.
    pub(super) fn asks(self) -> bool {
        matches!(self, Self::Question | Self::Part | Self::Template)
    }
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallbackData {
    pub(super) ask: AskId,
    pub(super) route: usize,
    pub(super) attempt: u8,
    pub(super) part: usize,
    pub(super) kind: Kind,
}

impl std::fmt::Display for CallbackData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("n", |(_, name)| name);
        write!(f, "askd:{}:{}:{}:{}:{kind}", self.ask, self.route, self.attempt, self.part)
    }
}

impl CallbackData {
    /// `None`: not one of ours.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("askd:")?.split(':');
        let tag = Self {
            ask: parts.next()?.parse().ok()?,
            route: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            part: parts.next()?.parse().ok()?,
            kind: parts.next().and_then(|name| KINDS.iter().find(|(_, known)| *known == name))?.0,
        };
        parts.next().is_none().then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_went() {
        for (kind, _) in KINDS {
            let tag = CallbackData { ask: AskId::from_bits(7), route: 1, attempt: 2, part: 3, kind };
            assert_eq!(CallbackData::read(&tag.to_string()), Some(tag));
        }
        for bad in ["", "askd:", "askd:x:1:1:1:q", "k7", "askd:00000000000000000000000000000007:1:2:3:q:x"] {
            assert_eq!(CallbackData::read(bad), None, "{bad}");
        }
    }
}
