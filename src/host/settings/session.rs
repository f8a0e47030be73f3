//! `session` of a group: whether a run of its agent lives, and how it is started and stopped.

use super::{SettingsError, wrong};
use serde::Deserialize;

/// How to reach the session of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Tells whether it lives.
    pub probe: Option<Means>,
    /// Starts it.
    pub start: Option<Means>,
    /// Stops it.
    pub stop: Option<Means>,
}

/// One way to do something with a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Means {
    /// Through the Docker Engine; the container's name.
    Docker(String),
    /// A command and its arguments; never a shell.
    Command(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionShape {
    probe: Option<MeansShape>,
    start: Option<MeansShape>,
    stop: Option<MeansShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeansShape {
    docker: Option<String>,
    command: Option<Vec<String>>,
}

impl SessionShape {
    pub(super) fn check(self, at: &str) -> Result<Session, SettingsError> {
        let means =
            |name: &str, shape: Option<MeansShape>| shape.map(|shape| shape.check(&format!("{at}.{name}"))).transpose();
        Ok(Session {
            probe: means("probe", self.probe)?,
            start: means("start", self.start)?,
            stop: means("stop", self.stop)?,
        })
    }
}

impl MeansShape {
    fn check(self, at: &str) -> Result<Means, SettingsError> {
        match (self.docker, self.command) {
            (Some(container), None) if is_container(&container) => Ok(Means::Docker(container)),
            (Some(container), None) => Err(wrong(
                format!("{at}.docker"),
                format!("{container:?} is no name of a container; a name is of letters, digits, _ . and -"),
            )),
            (None, Some(argv)) if argv.first().is_some_and(|program| program.starts_with('/')) => {
                Ok(Means::Command(argv))
            }
            (None, Some(_)) => Err(wrong(
                format!("{at}.command"),
                "has to be a list that begins with the absolute path of a program, like [\"/usr/local/bin/start-agent\", \
                 \"research\"]; no shell reads it",
            )),
            _ => Err(wrong(at, "takes either docker = \"<container>\" or command = [\"/path\", ...]")),
        }
    }
}

fn is_container(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}
