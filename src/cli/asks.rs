//! `askd list`, `show`, `dismiss`, `cancel`, `reset`, `healthz`: the inbox for a terminal. `answer` has a file of its own.

use super::answer::Answer;
use super::json::escaped;
use super::{Exit, FAILED, USAGE, say};
use crate::clock::Clock;
use crate::host::client::{Client, ClientError, healthy};
use crate::ipc::wire::time_from;
use askd_core::{Time, printable, wording};
use clap::{Args, Subcommand};
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

/// Asks that are read at a time.
const PAGE: usize = 1000;

/// Where the daemon is.
#[derive(Debug, Args)]
pub(super) struct Where {
    /// The settings file that the daemon uses; address and token come from it.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Address of the daemon, such as <http://127.0.0.1:8484>.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Token of the inbox; the environment variable `ASKD_TOKEN` is not seen in lists of processes.
    #[arg(long, value_name = "TOKEN", env = "ASKD_TOKEN", hide_env = true)]
    token: Option<String>,
}

impl Where {
    fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Exit> {
        let runtime = super::small_runtime()?;
        let token = self.token.clone().map(SecretString::from);
        let client = Client::find(&self.config, self.url.clone(), token)?;
        Ok(runtime.block_on(client.call(method, path, body))?)
    }
}

/// Every ask of a list, page by page. What moves meanwhile may come twice; the later word counts.
fn listed(at: &Where, query: &str) -> Result<Vec<Value>, Exit> {
    let (mut asks, mut places) = (Vec::<Value>::new(), HashMap::new());
    let mut path = format!("/asks?{query}&limit={PAGE}");
    loop {
        let page = at.call(Method::GET, &path, None)?;
        for ask in page["asks"].as_array().into_iter().flatten() {
            match places.entry(text(ask, "id").to_owned()) {
                Entry::Occupied(place) => asks[*place.get()] = ask.clone(),
                Entry::Vacant(place) => {
                    place.insert(asks.len());
                    asks.push(ask.clone());
                }
            }
        }
        let Some(next) = page["next"].as_str() else { return Ok(asks) };
        path = format!("/asks?{query}&limit={PAGE}&after={next}");
    }
}

impl From<ClientError> for Exit {
    fn from(error: ClientError) -> Self {
        Self::new(if matches!(error, ClientError::Settings(_)) { USAGE } else { FAILED }, error)
    }
}

/// A part of a path: ids need no escaping, and what is none must not become another path.
fn segment(id: &str) -> Result<&str, Exit> {
    if !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Ok(id);
    }
    Err(Exit::new(USAGE, format!("{id:?} is not the beginning of an ask's id; `askd list` shows them")))
}

/// List what waits for an answer, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd list\n  askd list --settled\n  askd list --json | jq -r '.asks[].id'")]
pub(super) struct List {
    #[command(flatten)]
    at: Where,
    /// List what was settled instead: first what can still be answered or was not collected, then the newest.
    #[arg(long)]
    settled: bool,
    /// Write what GET /api/v1/asks answers, all pages as one.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> Result<(), Exit> {
        let state = if self.settled { "settled" } else { "open" };
        let asks = listed(&self.at, &format!("state={state}"))?;
        if self.json {
            return Ok(say(&pretty(&json!({ "total": asks.len(), "asks": asks })))?);
        }
        if asks.is_empty() {
            say(if self.settled { "Nothing was settled." } else { "Nothing waits for an answer." })?;
        }
        let now = Clock::system().now();
        for ask in &asks {
            say(&row(ask, now))?;
        }
        Ok(())
    }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn age(ask: &Value, field: &str, now: Time) -> Option<Duration> {
    time_from(text(ask, field)).map(|at| now.since(at))
}

/// At most two units: the seconds of an hour do not matter.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let rounded = match seconds {
        0..60 => seconds,
        60..86_400 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}

fn row(ask: &Value, now: Time) -> String {
    let id: String = text(ask, "id").chars().take(8).collect();
    let first = &ask["questions"][0];
    let more = ask["questions"].as_array().map_or(0, Vec::len).saturating_sub(1);
    let mut question: String = printable(text(first, "question")).chars().take(100).collect();
    if more > 0 {
        question = format!("{question} (and {more} more)");
    }
    let when = match (&ask["outcome"], time_from(text(ask, "answer_by"))) {
        (Value::Null, Some(answer_by)) => format!("{} left", short(answer_by.since(now))),
        (Value::Null, None) => "being shown".to_owned(),
        (outcome, _) => {
            let left = time_from(text(ask, "late_until")).map(|until| format!(", {} left", short(until.since(now))));
            format!("{}{}", printable(text(outcome, "line")), left.unwrap_or_default())
        }
    };
    let asked = age(ask, "created_at", now).map(short).unwrap_or_default();
    format!(
        "{id}  {:<4} {:<16} {:<28} {question}",
        text(ask, "short_id"),
        text(ask, "group"),
        format!("{asked} old, {when}")
    )
}

/// Show one ask: its questions, choices and state.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd show 3f2a")]
pub(super) struct Show {
    #[command(flatten)]
    ask: One,
    /// Write what GET /api/v1/asks/{id} answers.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<(), Exit> {
        let ask = self.ask.read()?;
        Ok(say(&if self.json { pretty(&ask) } else { whole(&ask, Clock::system().now()) })?)
    }
}

fn whole(ask: &Value, now: Time) -> String {
    let settled = if ask["outcome"].is_null() { "" } else { ", settled" };
    let (id, code, group) = (text(ask, "id"), text(ask, "short_id"), text(ask, "group"));
    let mut lines = vec![format!("{id} ({code}), asked by {group}{settled}")];
    match &ask["outcome"] {
        Value::Null => {
            let left = time_from(text(ask, "answer_by")).map(|answer_by| short(answer_by.since(now)));
            lines.push(left.map_or("Being shown".to_owned(), |left| format!("Open, {left} left")));
        }
        outcome => lines.extend(ending(ask, outcome, now)),
    }
    for field in ["title", "context"] {
        if let Some(value) = ask[field].as_str() {
            lines.push(format!("{field}: {}", indented(value)));
        }
    }
    for question in ask["questions"].as_array().into_iter().flatten() {
        lines.push(String::new());
        lines.push(indented(text(question, "question")));
        lines.push(format!("  [{}] {}", text(question, "type"), text(question, "id")));
        for option in question["options"].as_array().into_iter().flatten() {
            let description = option["description"].as_str().map(|text| format!(" - {}", printable(text)));
            lines.push(format!("  * {}{}", printable(text(option, "label")), description.unwrap_or_default()));
        }
        if question["custom"] == true {
            lines.push("  * or an answer of your own".to_owned());
        }
        if question["required"] == false {
            lines.push("  (may be skipped)".to_owned());
        }
    }
    lines.join("\n")
}

/// How it ended and when, and what became of that since.
fn ending(ask: &Value, outcome: &Value, now: Time) -> Vec<String> {
    let line = printable(text(outcome, "line"));
    let mut lines = match ask["late_answer"]["at"].as_str() {
        Some(at) => vec![format!("Timed out (at {})", text(outcome, "at")), format!("{line} (at {at})")],
        None => vec![format!("{line} (at {})", text(outcome, "at"))],
    };
    // The closing line may say the same.
    if let Some(note) = ask["note"].as_str().filter(|note| *note != line) {
        lines.push(printable(note));
    }
    if let Some(until) = time_from(text(ask, "late_until")) {
        lines.push(format!("Until {}, {} left", text(ask, "late_until"), short(until.since(now))));
    }
    lines
}

fn indented(value: &str) -> String {
    value.lines().map(printable).collect::<Vec<_>>().join("\n  ")
}

fn pretty(value: &Value) -> String {
    escaped(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Says what became of an ask.
pub(super) fn say_settled(ask: &Value) -> Result<(), Exit> {
    Ok(say(&printable(text(&ask["outcome"], "line")))?)
}

/// One ask of the daemon.
#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    pub(super) at: Where,
    /// The beginning of its id, or its short code.
    pub(super) id: String,
}

impl One {
    pub(super) fn read(&self) -> Result<Value, Exit> {
        self.at.call(Method::GET, &format!("/asks/{}", segment(&self.id)?), None)
    }

    /// Does something to it, and returns what became of it.
    pub(super) fn post(&self, action: &str, mut body: Value) -> Result<Value, Exit> {
        body["by"] = "cli".into();
        self.at.call(Method::POST, &format!("/asks/{}/{action}", segment(&self.id)?), Some(&body))
    }
}

/// What can be done with asks through the daemon. The help of some stands at their arguments.
#[derive(Debug, Subcommand)]
pub(super) enum Asks {
    List(List),
    Show(Show),
    Answer(Answer),
    /// Dismiss an ask: the agent is told that the user dismissed the question.
    #[command(after_help = "Example:\n  askd dismiss 3f2a")]
    Dismiss(One),
    /// Withdraw an ask: the agent is told that the question was withdrawn.
    #[command(after_help = "Example:\n  askd cancel 3f2a")]
    Cancel(One),
    /// Let the questions of an ask be asked again: their attempts are counted anew.
    ///
    /// The same as Allow again on the card of a question that was asked too often.
    #[command(after_help = "Example:\n  askd reset 3f2a")]
    Reset(One),
    /// Ask the daemon whether it is well: exit code 0 if it is.
    ///
    /// The health check of an image that has nothing but askd in it.
    #[command(hide = true, after_help = "Example:\n  askd healthz")]
    Healthz(Where),
}

impl Asks {
    pub(super) fn run(self) -> Result<(), Exit> {
        match self {
            Self::List(list) => list.run(),
            Self::Show(show) => show.run(),
            Self::Answer(answer) => answer.run(),
            Self::Dismiss(ask) => say_settled(&ask.post("dismiss", json!({}))?),
            Self::Cancel(ask) => say_settled(&ask.post("cancel", json!({}))?),
            Self::Reset(ask) => {
                ask.post("reset", json!({}))?;
                Ok(say(wording::RESET)?)
            }
            Self::Healthz(at) => Ok(super::small_runtime()?.block_on(healthy(&at.config, at.url))?),
        }
    }
}
