//! `biz_opaque_callback_data`: rides in our messages and comes back with each of their statuses. It says which ask,
//! route, attempt and question a message belongs to. Pure.

use askd_core::AskId;

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A question, or the last message of one: the message with the choices.
    Question,
    /// An earlier message of a question that needs several.
    Part,
    /// The template that asks the person to write.
    Template,
    /// How the ask ended.
    Closing,
    /// A request for confirmation; the attempt tells such requests apart.
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
    /// Whether an ask waits for the result.
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
    /// The question; of a closing message its own part.
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
    /// The data of a message about that question of an ask.
    pub(super) fn note(ask: AskId, question: usize, kind: Kind, attempt: u8) -> Self {
        Self { ask, route: 0, attempt, part: question, kind }
    }

    /// `None`: not one of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix("askd:")?.split(':');
        let data = Self {
            ask: fields.next()?.parse().ok()?,
            route: fields.next()?.parse().ok()?,
            attempt: fields.next()?.parse().ok()?,
            part: fields.next()?.parse().ok()?,
            kind: fields.next().and_then(|name| KINDS.iter().find(|(_, known)| *known == name))?.0,
        };
        fields.next().is_none().then_some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_went() {
        for (kind, _) in KINDS {
            let data = CallbackData { ask: AskId::from_bits(7), route: 1, attempt: 2, part: 3, kind };
            assert_eq!(CallbackData::parse(&data.to_string()), Some(data));
        }
        for bad in ["", "askd:", "askd:x:1:1:1:q", "k7", "askd:00000000000000000000000000000007:1:2:3:q:x"] {
            assert_eq!(CallbackData::parse(bad), None, "{bad}");
        }
    }
}
