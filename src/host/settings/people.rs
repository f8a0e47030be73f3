//! `[web]`: the inbox token, people with tokens of their own, and a proxy that says who calls.

use super::mistakes::Mistakes;
use super::values::{list, push, secret};
use askd_core::Group;
use axum::http::HeaderName;
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// `[web]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSettings {
    /// The token of the operator; `None`: made at the first start.
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    /// People beside the operator.
    pub people: Vec<PersonSettings>,
    /// The header in which a trusted proxy names the person; `None`: no proxy does.
    #[serde(deserialize_with = "header")]
    pub proxy_header: Option<HeaderName>,
    /// The proxies that are believed.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// What browsers are told of a new question while no page is open.
    #[serde(deserialize_with = "push")]
    pub push: PushSettings,
    /// Push services in the operator's own network, as `host:port`.
    #[serde(deserialize_with = "list")]
    pub push_hosts: Vec<String>,
}

/// `[web] push`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushSettings {
    /// Nothing.
    Off,
    /// Which agent asks.
    Notice,
    /// What it asks, too.
    Text,
}

/// A person with a name, and where said with a token and groups.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonSettings {
    /// Stands beside what they answer.
    pub name: String,
    /// Opens the inbox for them; not needed where a proxy names them.
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    /// All that they see and answer; `None`: every group.
    #[serde(default)]
    pub groups: Option<BTreeSet<Group>>,
}

fn header<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HeaderName>, D::Error> {
    let name = String::deserialize(from)?;
    let header = (!name.is_empty()).then(|| name.parse()).transpose();
    header.map_err(|_| D::Error::custom(format!("{name:?} is not the name of a header like X-Remote-User")))
}

fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let network = |text: &String| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let wrong = |text: &String| D::Error::custom(format!("{text:?} is not an address like 10.0.0.2 or 10.0.0.0/24"));
    list(from)?.iter().map(|text| network(text).map_err(|_| wrong(text))).collect()
}

/// The shortest token that cannot be guessed.
const SHORTEST_TOKEN: usize = 16;
const TOO_SHORT: &str = "is too short; make one with `openssl rand -hex 32`";
const LONGEST_NAME: usize = 64;

impl WebSettings {
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        if self.proxy_header.is_some() == self.trusted_proxies.is_empty() {
            let why = "set both: proxy_header names the header with the person, and trusted_proxies the addresses of the proxies that are believed";
            mistakes.add("web.proxy_header", why);
        }
        let (mut names, mut tokens) = (BTreeSet::new(), BTreeSet::new());
        if let Some(token) = self.token.as_ref().map(ExposeSecret::expose_secret) {
            tokens.insert(token);
            if token.len() < SHORTEST_TOKEN {
                mistakes.add("web.token", TOO_SHORT);
            }
        }
        for (place, person) in self.people.iter().enumerate() {
            let mut wrong = |key: &str, why: &str| mistakes.add(format!("web.people[{place}].{key}"), why);
            let PersonSettings { name, token, groups } = person;
            let too_long = name.chars().count() > LONGEST_NAME;
            if name.trim() != name || name.is_empty() || too_long || name.contains(char::is_control) {
                wrong("name", &format!("{name:?} is not a name of 1 to {LONGEST_NAME} characters"));
            } else if name == "operator" || !names.insert(name) {
                wrong("name", &format!("{name:?} is taken; every person needs a name of their own"));
            }
            match token.as_ref().map(ExposeSecret::expose_secret) {
                None if self.proxy_header.is_none() => {
                    wrong("token", "is missing; write token_file = \"/path/to/a/token\", or set web.proxy_header");
                }
                Some(token) if token.len() < SHORTEST_TOKEN => wrong("token", TOO_SHORT),
                Some(token) if !tokens.insert(token) => wrong("token", "is the token of somebody else"),
                _ => {}
            }
            if groups.as_ref().is_some_and(BTreeSet::is_empty) {
                wrong("groups", "is empty, so this person would see nothing; leave it out for every group");
            }
        }
    }
}
