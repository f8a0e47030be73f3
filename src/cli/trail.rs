//! `askd log ID`: what happened to a question, from the audit log. Read only; needs no daemon unless the question is named by its code
//! or by few characters of its id.

use super::asks::{Where, segment};
use super::layout::text;
#[cfg(feature = "postgres")]
use super::small_runtime;
use super::{Exit, FAILED, say};
use crate::host::settings::Settings;
use crate::host::store::BEGINNING;
#[cfg(feature = "postgres")]
use crate::host::store::lines_of;
use askd_core::printable;
use clap::Args;
use reqwest::Method;
#[cfg(feature = "postgres")]
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Show what happened to a question: asked, shown, answered, delivered (ready for the agent).
///
/// Reads the audit log (`keep_audit`), so it also knows questions that are long gone: this host's files and, if the records are in
/// a database, the lines of all daemons there. With `--url` the daemon there reads its own. It holds no text of questions or answers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd log k7\n  askd log 3f2a\n  askd log 3f2a --json | jq .what")]
pub(super) struct Trail {
    #[command(flatten)]
    at: Where,
    /// Its code, or the beginning of its id (8 or more characters if no daemon knows it).
    id: String,
    /// Print the lines as they are in the log.
    #[arg(long)]
    json: bool,
}

/// One line of the log, and what stands in it.
type Line = (Map<String, Value>, String);

impl Trail {
    pub(super) fn run(self) -> Result<(), Exit> {
        // Only the daemon knows codes. A code that it does not know may be the beginning of another question's id.
        let known = self.at.call(Method::GET, &format!("/asks/{}", segment(&self.id)?), None);
        let id = match &known {
            Ok(ask) => text(ask, "id"),
            Err(_) if self.id.len() >= BEGINNING && self.at.url.is_none() => &self.id,
            Err(Exit { message, .. }) if self.at.url.is_some() => return Err(Exit::new(FAILED, message.clone())),
            Err(Exit { message, .. }) => {
                let message = message.trim_end_matches('.');
                let fix = "the audit log takes the first 8 or more characters of its id";
                return Err(Exit::new(FAILED, format!("{message}; {fix}")));
            }
        };
        let lines = match (&known, &self.at.url) {
            // That daemon may be on another host.
            (Ok(_), Some(_)) => self.lines_of_daemon(id)?,
            _ => self.lines(id)?,
        };
        let asks: BTreeSet<&str> = lines.iter().map(|(line, _)| line["ask"].as_str().unwrap_or_default()).collect();
        match asks.len() {
            0 => Err(Exit::new(
                FAILED,
                format!("the audit log knows no question {id:?}; `askd list --settled --json` shows ids"),
            )),
            1 if self.json => Ok(lines.iter().try_for_each(|(_, line)| say(line))?),
            1 => {
                say(&format!("Question {}", asks.first().copied().unwrap_or_default()))?;
                Ok(lines.iter().try_for_each(|(line, _)| say(&plain(line)))?)
            }
            _ => {
                let asks = asks.into_iter().collect::<Vec<_>>().join("\n  ");
                Err(Exit::new(FAILED, format!("several questions begin with {id:?}:\n  {asks}")))
            }
        }
    }

    /// The lines of a question that the daemon knows.
    fn lines_of_daemon(&self, id: &str) -> Result<Vec<Line>, Exit> {
        let trail = self.at.call(Method::GET, &format!("/asks/{id}/trail"), None)?;
        let lines = trail["trail"].as_array().into_iter().flatten();
        Ok(lines.filter_map(|line| parsed(&line.to_string(), id)).collect())
    }

    /// The lines of the questions whose id begins so, the oldest first.
    fn lines(&self, id: &str) -> Result<Vec<Line>, Exit> {
        let settings = self.at.settings()?;
        let folder = settings.state_dir().join("audit");
        let unreadable = |error: std::io::Error| {
            let hint = if error.kind() == std::io::ErrorKind::PermissionDenied {
                "; only askd's own user can read it"
            } else {
                ""
            };
            Exit::new(FAILED, format!("cannot read {}: {error}{hint}", folder.display()))
        };
        let mut files = std::fs::read_dir(&folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>())
            .map_err(unreadable)?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let mut lines = Vec::new();
        for file in files {
            lines
                .extend(std::fs::read_to_string(file).map_err(unreadable)?.lines().filter_map(|line| parsed(line, id)));
        }
        lines.extend(shared_lines(&settings, id)?.iter().filter_map(|line| parsed(line, id)));
        Ok(lines)
    }
}

/// A line about a question whose id begins so. One that a crash cut off has no end.
fn parsed(line: &str, id: &str) -> Option<Line> {
    let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    fields["ask"].as_str()?.starts_with(id).then(|| (fields, line.to_owned()))
}

/// What all daemons that share a database have noted.
#[cfg(feature = "postgres")]
fn shared_lines(settings: &Settings, id: &str) -> Result<Vec<String>, Exit> {
    let Some(url) = &settings.postgres.url else { return Ok(Vec::new()) };
    let runtime = small_runtime()?;
    let lines = runtime.block_on(lines_of(url.expose_secret(), id));
    lines.map_err(|error| Exit::new(FAILED, format!("cannot read the audit log in the database: {error}")))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unnecessary_wraps, reason = "only a database can be out of reach")]
fn shared_lines(_settings: &Settings, _id: &str) -> Result<Vec<String>, Exit> {
    Ok(Vec::new())
}

/// `2026-11-22 10:04:03  answered       channel slack, by U1`
fn plain(line: &Map<String, Value>) -> String {
    let word = |field: &str| line.get(field).and_then(Value::as_str).unwrap_or_default();
    let at = word("at").get(..19).unwrap_or_default().replace('T', " ");
    let rest = line.iter().filter(|(field, _)| !matches!(field.as_str(), "at" | "what" | "ask"));
    let rest = rest.map(|(field, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {value}", field.replace('_', " "))
    });
    let rest = rest.collect::<Vec<_>>().join(", ");
    printable(&format!("{at} UTC  {:<16} {rest}", word("what").replace('_', " ")))
}
