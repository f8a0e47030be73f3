//! `askd token`: the tokens with which agents ask over HTTP. A running daemon does it; without one this command does it itself,
//! under the lock of the state folder.

use super::asks::{Where, pretty, segment};
use super::layout::{Look, short, text, time_from};
use super::{Exit, FAILED, USAGE, as_owner, say};
use crate::clock::Clock;
use crate::host::client::ClientError;
use crate::host::store::{InFiles, hold};
use crate::host::tokens::{Tokens, id_in};
use anyhow::Context as _;
use askd_core::{Group, Time, printable};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// From two of these on, the time left is told in whole ones.
const DAY: Duration = Duration::from_secs(86_400);

/// Make, list and revoke the tokens with which agents ask over HTTP (docs/remote.md).
///
/// A token belongs to one group, and can ask, wait and withdraw for it: nothing else.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  askd token new research --name ci --expires 90d\n  askd token list\n  \
                        askd token revoke 3f2a9c0e41b7")]
pub(super) enum TokenCommand {
    New(New),
    List(List),
    Revoke(Revoke),
}

/// Make a token and print it, once: askd keeps only its hash.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd token new research --name ci --expires 90d")]
pub(super) struct New {
    /// The group that asks with it: your agent's name.
    group: Group,
    /// What it is for, as `askd token list` shows it.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// How long it is valid, for example 90d [default: until it is revoked].
    #[arg(long, value_name = "DURATION", value_parser = expiry)]
    expires: Option<Duration>,
    #[command(flatten)]
    at: Where,
}

/// List the tokens: whose they are, and when each was last used.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd token list")]
pub(super) struct List {
    /// Print the API's JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

/// Revoke a token: calls with it end at once.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd token revoke 3f2a9c0e41b7")]
pub(super) struct Revoke {
    /// Its id, as `askd token list` shows it, or the whole token.
    id: String,
    #[command(flatten)]
    at: Where,
}

/// The id of a token. A whole one is a secret, so no error repeats it.
fn id_of(given: &str) -> Result<&str, Exit> {
    let why = "that is neither a token nor the id of one; `askd token list` shows the ids";
    segment(id_in(given.trim())).map_err(|_| Exit::new(USAGE, why))
}

/// A token that has expired already is a mistake.
fn expiry(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|_| format!("{text:?} is not a duration like 90d"))?;
    if duration < Duration::from_secs(1) { Err(format!("{text:?} is too short; at least 1s")) } else { Ok(duration) }
}

impl TokenCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        match self {
            Self::New(New { group, name, expires, at }) => {
                let body = json!({"group": group, "name": name, "expires_in": expires.map(|time| time.as_secs())});
                let made = at.ask_daemon(Method::POST, "/tokens", Some(&body))?;
                let token = or_here(&at, made, |tokens| {
                    if at.settings()?.group(&group).is_none() {
                        let why =
                            format!("askd does not serve the group {group}; add [groups.{group}] to the settings");
                        return Err(Exit::new(USAGE, why));
                    }
                    Ok(json!({"token": tokens.make(group.clone(), name.clone(), expires).context("cannot store it")?}))
                })?;
                Ok(say(text(&token, "token"))?)
            }
            Self::List(List { json, at }) => {
                let listed = at.ask_daemon(Method::GET, "/tokens", None)?;
                let listed = or_here(&at, listed, |tokens| Ok(json!({"tokens": tokens.list()})))?;
                if json {
                    return Ok(say(&pretty(&listed))?);
                }
                Ok(say(&shown(&Look::of_stdout(), &listed, Clock::system().now()))?)
            }
            Self::Revoke(Revoke { id, at }) => {
                let id = id_of(&id)?;
                let revoked = at.ask_daemon(Method::DELETE, &format!("/tokens/{id}"), None)?;
                or_here(&at, revoked, |tokens| {
                    if tokens.revoke(id).context("cannot store it")? {
                        Ok(Value::Null)
                    } else {
                        Err(Exit::new(FAILED, format!("there is no token {id:?}")))
                    }
                })?;
                Ok(())
            }
        }
    }
}

/// What the daemon said or, if none runs on this state folder, what is done here instead.
fn or_here(
    at: &Where,
    said: Result<Value, ClientError>,
    here: impl FnOnce(&Tokens) -> Result<Value, Exit>,
) -> Result<Value, Exit> {
    match said {
        Err(away @ (ClientError::Away { .. } | ClientError::NoToken { .. })) if at.url.is_none() => {
            let settings = at.settings()?;
            if settings.postgres.url.is_some() {
                let why = format!("{away}. The tokens are in the database: run this on a host where askd runs");
                return Err(Exit::new(FAILED, why));
            }
            let state = settings.state_dir();
            if state.exists() {
                as_owner(&state, "token")?;
            }
            // Held by a daemon that does not answer: it would not know of a change.
            let Ok(_held) = hold(&state) else { return Err(away.into()) };
            let documents = InFiles::open(&state).context("the tokens cannot be read")?;
            documents.check().map_err(|error| Exit::new(FAILED, error))?;
            let tokens = Tokens::open(Arc::new(documents), Clock::system()).context("the tokens cannot be read")?;
            here(&tokens)
        }
        said => Ok(said?),
    }
}

fn shown(look: &Look, listed: &Value, now: Time) -> String {
    let ago = |token: &Value, field: &str| {
        time_from(text(token, field)).map_or("-".to_owned(), |at| format!("{} ago", short(now.since(at))))
    };
    let row = |token: &Value| {
        let expires = time_from(text(token, "expires")).map_or("never".to_owned(), |at| match at.since(now) {
            Duration::ZERO => "expired".to_owned(),
            left if left >= DAY * 2 => format!("in {}d", left.as_secs() / DAY.as_secs()),
            left => format!("in {}", short(left)),
        });
        let name = Some(text(token, "name")).filter(|name| !name.is_empty()).map_or("-".to_owned(), printable);
        let id_and_group = (text(token, "id").to_owned(), text(token, "group").to_owned());
        [id_and_group.0, id_and_group.1, name, ago(token, "made"), expires, ago(token, "last_used")]
    };
    let rows = listed["tokens"].as_array().into_iter().flatten().map(row).collect();
    look.table(["ID", "AGENT", "NAME", "MADE", "EXPIRES", "LAST USED"], rows).join("\n")
}
