//! The names things go by. Each is checked where it is made, so a path can never be an id.

use crate::record::as_text;
use std::fmt;
use std::str::FromStr;

/// A name that does not fit its rule; the text says the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(pub(crate) &'static str);

/// The host's id of an ask: 128 random bits, written as 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId(u128);

impl AskId {
    /// From 128 random bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Those bits.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for AskId {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| hex);
        bits.map(Self).ok_or(BadName("an ask id is 32 lower-case hex digits"))
    }
}

macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            const RULE: &str = $rule;

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(BadName(Self::RULE)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

checked_name!(
    /// The container's id of one waiting call; names its response file and nothing else.
    RequestId,
    "1-64 of A-Z a-z 0-9 _ -",
    word
);

impl RequestId {
    /// From 128 random bits, written as 32 hex digits.
    pub fn from_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

fn folder(text: &str) -> bool {
    word(text) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// The name of a host that shares its records with others.
fn host(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

checked_name!(
    /// One agent's folder and its settings. Where several hosts share the records, a folder that the settings do not name is another
    /// group on each: `<folder>@<host>`.
    Group,
    "1-64 of A-Z a-z 0-9 _ -, the first a letter or digit",
    |text| text.split_once('@').map_or_else(|| folder(text), |(name, at)| folder(name) && host(at))
);

impl Group {
    /// The group of a folder, which names no host.
    pub fn of_folder(name: &str) -> Result<Self, BadName> {
        if name.contains('@') { Err(BadName(Self::RULE)) } else { name.parse() }
    }

    /// The group of the folder with this name on that host.
    #[must_use]
    pub fn at(&self, host: &str) -> Option<Self> {
        format!("{}@{host}", self.folder()).parse().ok()
    }

    /// The name of its folder, by which its agent knows it.
    pub fn folder(&self) -> &str {
        self.0.split_once('@').map_or(&self.0, |(folder, _)| folder)
    }
}

checked_name!(
    /// The code people type to say which ask they mean, such as `k7`.
    ShortId,
    "2-8 lower-case letters and digits, the first a letter",
    |text| {
        (2..=8).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
    }
);

/// SHA-256 of some content: two things with one digest are the same thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// From the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Digest {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let mut bytes = [0; 32];
        let decoded =
            hex::decode_to_slice(text, &mut bytes).ok().filter(|()| !text.contains(|c: char| c.is_ascii_uppercase()));
        decoded.map(|()| Self(bytes)).ok_or(BadName("a digest is 64 lower-case hex digits"))
    }
}

as_text!(AskId, RequestId, Group, ShortId, Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_a_name() {
        for bad in ["", "..", "../../x", "a/b", "a.b", "a b", "é", "\0", &"x".repeat(65)] {
            assert!(bad.parse::<RequestId>().is_err(), "{bad:?}");
            assert!(bad.parse::<Group>().is_err(), "{bad:?}");
        }
        assert!("_x".parse::<RequestId>().is_ok());
        assert!("_x".parse::<Group>().is_err(), "a group starts with a letter or digit");
        assert!("7".parse::<Group>().is_ok());
    }

    #[test]
    fn a_group_of_one_host_is_no_folder_and_leads_to_one() {
        let group: Group = "default".parse().unwrap();
        let here = group.at("host-1.example").unwrap();
        assert_eq!((here.as_str(), here.folder(), group.folder()), ("default@host-1.example", "default", "default"));
        assert_eq!(here.to_string().parse(), Ok(here.clone()));
        assert_eq!(here.at("b").unwrap().as_str(), "default@b");
        assert!(Group::of_folder("default@b").is_err() && Group::of_folder("default").is_ok());
        for bad in ["", "a/b", "a@b", "a b", "'"] {
            assert_eq!(group.at(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn ids_round_trip() {
        let id = AskId::from_bits(0x00ab_cdef);
        assert_eq!(id.to_string().parse::<AskId>(), Ok(id));
        assert!("00ABCDEF00ABCDEF00ABCDEF00ABCDEF".parse::<AskId>().is_err(), "one spelling only");
        let digest = Digest::from_bytes([7; 32]);
        assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
        for bad in ["+7".repeat(32), "0A".repeat(32), "07".repeat(33)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
