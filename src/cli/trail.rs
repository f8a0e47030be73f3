//! `askd log ID`: what happened to a question, from the audit files. Read only; needs no daemon unless the question is named by its code.

use super::asks::{Where, segment};
use super::layout::text;
use super::{Exit, FAILED, say};
use askd_core::printable;
use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Show what happened to a question: asked, shown, answered, collected.
///
/// Reads the audit files of this host (`keep_audit`), so it also knows questions that are long gone. They hold no text of
/// questions or answers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd log k7\n  askd log 3f2a\n  askd log 3f2a --json | jq .what")]
pub(super) struct Trail {
    #[command(flatten)]
    at: Where,
    /// Its code, or the beginning of its id.
    id: String,
    /// Print the lines as they are in the files.
    #[arg(long)]
    json: bool,
}

/// One line of the files, and what stands in it.
type Line = (Map<String, Value>, String);

impl Trail {
    pub(super) fn run(self) -> Result<(), Exit> {
        // Only the daemon knows codes; without it the beginning of an id does.
        let known = self.at.call(Method::GET, &format!("/asks/{}", segment(&self.id)?), None);
        let id = known.as_ref().map_or(&*self.id, |ask| text(ask, "id"));
        let lines = self.lines(id)?;
        let asks: BTreeSet<&str> = lines.iter().map(|(line, _)| line["ask"].as_str().unwrap_or_default()).collect();
        match asks.len() {
            0 => Err(Exit::new(
                FAILED,
                format!("the audit files know no question {id:?}; `askd list --settled --json` shows ids"),
            )),
            1 if self.json => Ok(lines.iter().try_for_each(|(_, line)| say(line))?),
            1 => Ok(lines.iter().try_for_each(|(line, _)| say(&plain(line)))?),
            _ => {
                let asks = asks.into_iter().collect::<Vec<_>>().join("\n  ");
                Err(Exit::new(FAILED, format!("several questions begin with {id:?}:\n  {asks}")))
            }
        }
    }

    /// The lines of the questions whose id begins so, the oldest first.
    fn lines(&self, id: &str) -> Result<Vec<Line>, Exit> {
        let folder = self.at.settings()?.state_dir().join("audit");
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
            let whole = std::fs::read_to_string(file).map_err(unreadable)?;
            lines.extend(whole.lines().filter_map(|line| -> Option<Line> {
                // A line that a crash cut off has no end.
                let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
                fields["ask"].as_str()?.starts_with(id).then(|| (fields, line.to_owned()))
            }));
        }
        Ok(lines)
    }
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
