//! Why a channel could not show an ask. Agents and pages are told only the class of the trouble; only the operator's
//! log says what to fix.

use super::{BadName, ChannelName, Outcome};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The channel cannot be reached.
    NoConnection,
    /// The channel said no.
    Refused,
    /// The channel takes no more messages for now.
    RateLimited,
    /// The chat or the person of the route is not there.
    ChatNotFound,
    /// The channel is not set up.
    NotConfigured,
    /// The person has to write first.
    WindowClosed,
    /// The reason is unknown.
    Unknown,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoConnection,
        Self::Refused,
        Self::RateLimited,
        Self::ChatNotFound,
        Self::NotConfigured,
        Self::WindowClosed,
        Self::Unknown,
    ];

    /// The name used in files. *Exact.*
    pub fn name(self) -> &'static str {
        match self {
            Self::NoConnection => "no connection",
            Self::Refused => "refused",
            Self::RateLimited => "rate limited",
            Self::ChatNotFound => "chat not found",
            Self::NotConfigured => "not configured",
            Self::WindowClosed => "window closed",
            Self::Unknown => "unknown",
        }
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trouble| trouble.name() == name)
    }
}

/// Which channel had which trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The channel.
    pub channel: ChannelName,
    /// Its trouble.
    pub trouble: Trouble,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.channel, self.trouble.name())
    }
}

impl FromStr for Reason {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        const RULE: BadName = BadName("a reason is a channel's name and a class of trouble");
        let (channel, trouble) = text.split_once(": ").ok_or(RULE)?;
        Ok(Self { channel: channel.parse()?, trouble: Trouble::named(trouble).ok_or(RULE)? })
    }
}

/// Why an ask could not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// How often it was posted again, which was as often as allowed. `None`: no retry could help.
    pub retries: Option<u8>,
    /// The trouble of the first route that counts; older records do not have it.
    pub reason: Option<Reason>,
}

impl Outcome {
    /// Why it could not be shown, if it could not.
    pub fn cause(&self) -> Option<Reason> {
        if let Self::Undelivered { cause } = self { cause.reason } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_as_it_is_written() {
        for channel in ChannelName::ALL {
            for trouble in Trouble::ALL {
                let reason = Reason { channel, trouble };
                assert_eq!(reason.to_string().parse(), Ok(reason));
            }
        }
        assert!("slack: a token".parse::<Reason>().is_err());
    }
}
