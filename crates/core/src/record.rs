//! How a record holds the core's types, beyond what deriving says: the checks of an ask that is read, and the forms of
//! names, times and durations. Knows no file and no version; the daemon's store calls it by way of serde.

use crate::{AfterTimeout, Ask, AskState, Outcome, Stage};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

impl Serialize for Ask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Reads only an ask that could have come to be: its parts fit each other.
impl<'de> Deserialize<'de> for Ask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut ask = AskState::deserialize(deserializer)?;
        let AskState { stage, content, .. } = &mut ask;
        if let Stage::Settled { outcome, follow_up, .. } = stage {
            if follow_up.block.is_some() != matches!(outcome, Outcome::Blocked { .. }) {
                return Err(D::Error::custom("a block belongs to an ask that is blocked, and to no other"));
            }
            if let Outcome::Answered { answers, .. } = outcome {
                *answers = answers.fitting(&content.questions).map_err(D::Error::custom)?;
            }
            if let AfterTimeout::Answered { answers, .. } = &mut follow_up.after_timeout {
                *answers = answers.fitting(&content.questions).map_err(D::Error::custom)?;
            }
        }
        content.within_limits().map_err(D::Error::custom)?;
        if ask.widgets.is_empty() || ask.waiters.is_empty() {
            return Err(D::Error::custom("an ask has a waiter and a route"));
        }
        Ok(Self(ask))
    }
}

/// A type that a record, and a debugger, show as the text that it prints.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use as_text;

/// A duration in whole milliseconds.
pub(crate) mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same, or nothing.
pub(crate) mod millis_if_any {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[expect(clippy::ref_option, reason = "what serde calls")]
    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::millis::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
