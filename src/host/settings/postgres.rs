//! `[postgres]`: records in a database instead of files.

use super::mistakes::Mistakes;
use super::values::secret;
use crate::ipc::HOST_GROUP;
use askd_core::Group;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

/// `[postgres]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresSettings {
    /// Where the database is; it may have a password. `None`: the records are files.
    #[serde(default, deserialize_with = "secret")]
    pub url: Option<SecretString>,
    /// The same past a pooler, for `LISTEN`. `None`: askd looks every second.
    #[serde(default, deserialize_with = "secret")]
    pub listen_url: Option<SecretString>,
    /// What this daemon's host is called where several share the database.
    pub node: String,
}

impl PostgresSettings {
    pub(super) fn check(mut self, mistakes: &mut Mistakes) -> Self {
        if self.url.is_some() && !cfg!(feature = "postgres") {
            let why =
                "this askd was built without PostgreSQL; build it with --features postgres, or leave the section out";
            mistakes.add("postgres.url", why);
        }
        for (key, url) in [("url", &self.url), ("listen_url", &self.listen_url)] {
            let is_one = |url: &SecretString| {
                ["postgres://", "postgresql://"].iter().any(|scheme| url.expose_secret().starts_with(scheme))
            };
            if url.as_ref().is_some_and(|url| !is_one(url)) {
                mistakes.add(format!("postgres.{key}"), "it is not a URL like postgres://user@host/database");
            } else if let Some(why) = url.as_ref().and_then(unfit) {
                mistakes.add(format!("postgres.{key}"), format!("it cannot be used: {why}"));
            }
        }
        if self.node.is_empty() {
            self.node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        }
        // It is part of the names of groups.
        if HOST_GROUP.parse::<Group>().is_ok_and(|group| group.at(&self.node).is_none()) {
            mistakes.add("postgres.node", format!("{:?} is not 1-64 of A-Z a-z 0-9 . _ -", self.node));
        }
        self
    }
}

/// Why no connection can be made with such a URL.
#[cfg(feature = "postgres")]
fn unfit(url: &SecretString) -> Option<String> {
    match url.expose_secret().parse::<sqlx::postgres::PgConnectOptions>() {
        Err(sqlx::Error::Configuration(why)) => Some(why.to_string()),
        other => other.err().map(|error| error.to_string()),
    }
}

#[cfg(not(feature = "postgres"))]
fn unfit(_: &SecretString) -> Option<String> {
    None
}
