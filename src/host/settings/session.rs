//! `session` of a group: whether a run of its agent lives, and how it is started and stopped.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How to reach the session of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Tells whether it lives.
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeansShape {
    #[serde(default, deserialize_with = "container")]
    docker: Option<String>,
    #[serde(default, deserialize_with = "command")]
    command: Option<Vec<String>>,
}

impl TryFrom<MeansShape> for Means {
    type Error = &'static str;

    fn try_from(shape: MeansShape) -> Result<Self, Self::Error> {
        match (shape.docker, shape.command) {
            (Some(container), None) => Ok(Self::Docker(container)),
            (None, Some(argv)) => Ok(Self::Command(argv)),
            _ => Err("takes either docker = \"<container>\" or command = [\"/path\", ...]"),
        }
    }
}

fn container<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner) {
        return Ok(Some(name));
    }
    let why = "is no name of a container; a name is of letters, digits, _ . and -";
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
