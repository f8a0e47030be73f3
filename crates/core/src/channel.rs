//! Channels as the core knows them: a name and what the platform can do. Both are data, so that a channel can be added
//! without a change here. The port that a channel implements is in the daemon.

use crate::BadName;
use crate::record::as_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name of a channel, in bytes.
const LONGEST: usize = 16;

/// The name of a channel in settings, files and metrics.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelName([u8; LONGEST]);

impl ChannelName {
    /// Slack Block Kit messages.
    pub const SLACK: Self = Self::padded("slack");
    /// WhatsApp numbered text.
    pub const WHATSAPP: Self = Self::padded("whatsapp");
    /// The daemon's own inbox.
    pub const WEB: Self = Self::padded("web");
    /// The channels that askd has.
    pub const ALL: [Self; 3] = [Self::WEB, Self::SLACK, Self::WHATSAPP];

    const fn padded(name: &str) -> Self {
        let (mut bytes, mut at) = ([0; LONGEST], 0);
        while at < name.len() {
            bytes[at] = name.as_bytes()[at];
            at += 1;
        }
        Self(bytes)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    /// What people call the channel, at the beginning of a sentence.
    pub fn title(&self) -> &str {
        match *self {
            Self::SLACK => "Slack",
            Self::WHATSAPP => "WhatsApp",
            Self::WEB => "The inbox",
            _ => self.as_str(),
        }
    }
}

impl FromStr for ChannelName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let fits = (1..=LONGEST).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if fits { Ok(Self::padded(text)) } else { Err(BadName("a channel's name is 1-16 of a-z 0-9 _")) }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a platform can do. Fixed with the route of an ask, so that another version of a channel does not change what is
/// expected of a card that is already up.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a platform")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// A message that was sent can be changed.
    pub edits: bool,
    /// The messages of a chat can be read again, so that a post whose reply was lost can be looked for.
    pub history: bool,
    /// People answer on the card: what they do says which question they mean. A plain message may name none.
    pub forms: bool,
    /// It lists every ask by itself: nothing is posted, reminded of or closed.
    pub lists_itself: bool,
}

impl Capabilities {
    /// What the channels could do whose routes were stored before records said it.
    pub fn before_they_were_stored(channel: ChannelName) -> Self {
        match channel {
            ChannelName::SLACK => Self { edits: true, history: true, forms: true, lists_itself: false },
            ChannelName::WEB => Self { forms: true, lists_itself: true, ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// How a reply came in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// A chat channel: a click, a form or a message.
    Channel(ChannelName),
    /// The web inbox.
    Web,
    /// `askd answer` and its sisters.
    Cli,
    /// The HTTP API.
    Api,
}

impl Via {
    /// The name used in files and sentences.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Channel(name) => name.as_str(),
            Self::Web => "web",
            Self::Cli => "cli",
            Self::Api => "api",
        }
    }

    /// Where the person acted, at the end of a sentence.
    pub fn place(&self) -> String {
        match self {
            Self::Channel(ChannelName::WHATSAPP) => "on WhatsApp".to_owned(),
            Self::Channel(name) => format!("in {}", name.title()),
            Self::Web => "in the inbox".to_owned(),
            Self::Cli => "in a terminal".to_owned(),
            Self::Api => "through the API".to_owned(),
        }
    }

    /// Whether the token of the inbox was shown: the operator, who may answer every group.
    pub fn is_operator(self) -> bool {
        matches!(self, Self::Web | Self::Cli | Self::Api)
    }
}

impl FromStr for Via {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let own = [Self::Web, Self::Cli, Self::Api].into_iter().find(|via| via.as_str() == text);
        own.map_or_else(|| text.parse().map(Self::Channel), Ok)
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

as_text!(ChannelName, Via);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ChannelName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        let added: ChannelName = "carrier_pigeon_2".parse().unwrap();
        assert_eq!((added.as_str(), added.title()), ("carrier_pigeon_2", "carrier_pigeon_2"));
        for bad in ["", "Slack", "a b", "../x", "seventeen_letters"] {
            assert!(bad.parse::<ChannelName>().is_err(), "{bad:?}");
        }
        for via in [Via::Web, Via::Cli, Via::Api, Via::Channel(ChannelName::SLACK), Via::Channel(added)] {
            assert_eq!(via.as_str().parse(), Ok(via));
        }
    }
}
