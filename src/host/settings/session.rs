//! `session` of a group: whether a run of its agent lives, and how it is started and stopped.

use super::webhook::Webhook;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// How to reach the session of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Tells whether it lives.
    #[serde(default, deserialize_with = "probe")]
    pub probe: Option<Means>,
    /// Starts it.
    pub start: Option<Means>,
    /// Stops it.
    pub stop: Option<Means>,
}

/// One way to do something with a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "MeansShape")]
pub enum Means {
    /// Through the Docker Engine; the container's name.
    Docker(String),
    /// A command and its arguments; never a shell.
    Command(Vec<String>),
    /// A signed call of an address; it cannot probe.
    Webhook(Webhook),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeansShape {
    #[serde(default, deserialize_with = "container")]
    docker: Option<String>,
    #[serde(default, deserialize_with = "command")]
    command: Option<Vec<String>>,
    webhook: Option<String>,
    secret_file: Option<PathBuf>,
    private: Option<bool>,
}

impl TryFrom<MeansShape> for Means {
    type Error = String;

    fn try_from(shape: MeansShape) -> Result<Self, String> {
        match (shape.docker, shape.command, shape.webhook, shape.secret_file, shape.private) {
            (Some(container), None, None, None, None) => Ok(Self::Docker(container)),
            (None, Some(argv), None, None, None) => Ok(Self::Command(argv)),
            (None, None, Some(url), Some(secret_file), private) => {
                Webhook::new(&url, secret_file, private.unwrap_or_default()).map(Self::Webhook)
            }
            _ => {
                Err("takes one of docker = \"<container>\", command = [\"/path\", ...], or webhook = \"https://...\" \
                      with secret_file = \"/path\""
                    .to_owned())
            }
        }
    }
}

/// How to tell whether a session lives.
fn probe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Means>, D::Error> {
    match Option::deserialize(from)? {
        Some(Means::Webhook(_)) => Err(D::Error::custom(
            "a webhook cannot tell whether an agent is alive; use docker or command, or leave probe out: askd ask and \
             askd mcp send heartbeats",
        )),
        means => Ok(means),
    }
}

fn container<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner) {
        return Ok(Some(name));
    }
    let why = "is not a container name; use letters, digits, _, . and -";
    Err(D::Error::custom(format!("{name:?} {why}")))
}

fn command<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let argv = Vec::<String>::deserialize(from)?;
    if argv.first().is_some_and(|program| program.starts_with('/')) {
        return Ok(Some(argv));
    }
    Err(D::Error::custom(
        "must be a list that begins with the absolute path of a program, like [\"/usr/local/bin/start-agent\", \
         \"research\"]; no shell reads it",
    ))
}
