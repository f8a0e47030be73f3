//! `askd list`, `show`, `answer`, `dismiss`, `cancel`, `reset`: the inbox for a terminal.

use super::{Exit, FAILED, USAGE, say};
use crate::ask::{Time, wording};
use crate::clock::Clock;
use crate::host::client::{Client, ClientError};
use crate::ipc::wire::time_from;
use clap::Args;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Where the daemon is.
#[derive(Debug, Args)]
struct Where {
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
        let client = Client::find(&self.config, self.url.clone(), token).map_err(|error| exit(&error))?;
        runtime.block_on(client.call(method, path, body)).map_err(|error| exit(&error))
    }
}

fn exit(error: &ClientError) -> Exit {
    Exit::new(if matches!(error, ClientError::Settings(_)) { USAGE } else { FAILED }, error)
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
    /// List what was settled instead, newest first.
    #[arg(long)]
    settled: bool,
    /// Write what GET /api/v1/asks answers.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let state = if self.settled { "settled" } else { "open" };
        let found = self.at.call(Method::GET, &format!("/asks?state={state}"), None)?;
        if self.json {
            say(&pretty(&found))?;
            return Ok(ExitCode::SUCCESS);
        }
        let asks = found["asks"].as_array().cloned().unwrap_or_default();
        if asks.is_empty() {
            say(if self.settled { "Nothing was settled." } else { "Nothing waits for an answer." })?;
        }
        let now = Clock::system().now();
        for ask in &asks {
            say(&row(ask, now))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn age(ask: &Value, field: &str, now: Time) -> Option<Duration> {
    time_from(text(ask, field)).map(|at| now.since(at))
}

/// At most two units: nobody counts the seconds of an hour.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let rounded = match seconds {
        0..60 => seconds,
        60..86_400 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}

/// Control characters could move the cursor and write over other lines, and marks of direction turn
/// askd's own words around.
fn printable(text: &str) -> String {
    let turns =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !turns(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect()
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
        (outcome, _) => printable(text(outcome, "line")),
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
    at: Where,
    /// The beginning of its id, or its short code.
    id: String,
    /// Write what GET /api/v1/asks/{id} answers.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let ask = self.at.call(Method::GET, &format!("/asks/{}", segment(&self.id)?), None)?;
        say(&if self.json { pretty(&ask) } else { whole(&ask, Clock::system().now()) })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn whole(ask: &Value, now: Time) -> String {
    let mut lines = vec![format!("{} ({}), asked by {}", text(ask, "id"), text(ask, "short_id"), text(ask, "group"))];
    lines.push(match &ask["outcome"] {
        Value::Null => {
            let left = time_from(text(ask, "answer_by")).map(|answer_by| short(answer_by.since(now)));
            left.map_or("Being shown".to_owned(), |left| format!("Open, {left} left"))
        }
        outcome => format!("{} (at {})", printable(text(outcome, "line")), text(outcome, "at")),
    });
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

fn indented(value: &str) -> String {
    value.lines().map(printable).collect::<Vec<_>>().join("\n  ")
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Answer an ask.
///
/// A label of an option (upper and lower case do not matter), else text of your own where the
/// question takes it. Several values answer a multi-select question.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd answer 3f2a React\n  askd answer 3f2a staging prod\n  \
                        askd answer 3f2a -q r1_0=React -q \"Why?=because it is known\"")]
pub(super) struct Answer {
    #[command(flatten)]
    at: Where,
    /// The beginning of its id, or its short code.
    id: String,
    /// The answer to an ask with one question.
    #[arg(value_name = "ANSWER", required_unless_present = "questions", conflicts_with = "questions")]
    values: Vec<String>,
    /// The answer to one of several questions, by the question's id or text. Repeat for more.
    #[arg(short = 'q', value_name = "QUESTION=ANSWER")]
    questions: Vec<String>,
}

impl Answer {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let path = format!("/asks/{}", segment(&self.id)?);
        let ask = self.at.call(Method::GET, &path, None)?;
        let answers = if self.questions.is_empty() { self.single(&ask)? } else { self.several(&ask)? };
        let path = format!("/asks/{}/answer", text(&ask, "id"));
        settled(&self.at.call(Method::POST, &path, Some(&json!({"answers": answers, "by": "cli"})))?)
    }

    fn single(&self, ask: &Value) -> Result<Map<String, Value>, Exit> {
        let questions = ask["questions"].as_array().map_or(&[][..], Vec::as_slice);
        let [question] = questions else {
            let names: Vec<String> = questions
                .iter()
                .map(|q| format!("  -q \"{}=...\"  {}", text(q, "id"), printable(text(q, "question"))))
                .collect();
            let message = format!("this ask has {} questions; answer each:\n{}", names.len(), names.join("\n"));
            return Err(Exit::new(USAGE, message));
        };
        Ok(std::iter::once((text(question, "id").to_owned(), json!(self.values))).collect())
    }

    fn several(&self, ask: &Value) -> Result<Map<String, Value>, Exit> {
        let names: Vec<&str> = ask["questions"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|question| [text(question, "id"), text(question, "question")])
            .collect();
        let mut answers: Map<String, Value> = Map::new();
        for pair in &self.questions {
            // A question's text may hold a "=" itself: the longest name that fits is meant.
            let known = names.iter().filter(|name| pair.strip_prefix(**name).is_some_and(|rest| rest.starts_with('=')));
            let (name, answer) = match known.max_by_key(|name| name.len()) {
                Some(name) => (*name, &pair[name.len() + 1..]),
                None => {
                    pair.split_once('=').ok_or_else(|| Exit::new(USAGE, format!("{pair:?} is not QUESTION=ANSWER")))?
                }
            };
            let list = answers.entry(name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(json!(answer));
            }
        }
        Ok(answers)
    }
}

/// Says what became of an ask.
fn settled(ask: &Value) -> Result<ExitCode, Exit> {
    say(&printable(text(&ask["outcome"], "line")))?;
    Ok(ExitCode::SUCCESS)
}

/// Dismiss an ask: the agent is told that the user dismissed the question.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd dismiss 3f2a")]
pub(super) struct Dismiss {
    #[command(flatten)]
    at: Where,
    /// The beginning of its id, or its short code.
    id: String,
}

impl Dismiss {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let path = format!("/asks/{}/dismiss", segment(&self.id)?);
        settled(&self.at.call(Method::POST, &path, Some(&json!({"by": "cli"})))?)
    }
}

/// Withdraw an ask: the agent is told that the question was withdrawn.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd cancel 3f2a")]
pub(super) struct Cancel {
    #[command(flatten)]
    at: Where,
    /// The beginning of its id, or its short code.
    id: String,
}

impl Cancel {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let path = format!("/asks/{}/cancel", segment(&self.id)?);
        settled(&self.at.call(Method::POST, &path, Some(&json!({"by": "cli"})))?)
    }
}

/// Let the questions of an ask be asked again: their attempts are counted anew.
///
/// The same as Allow again on the card of a question that was asked too often.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd reset 3f2a")]
pub(super) struct Reset {
    #[command(flatten)]
    at: Where,
    /// The beginning of its id, or its short code.
    id: String,
}

impl Reset {
    pub(super) fn run(self) -> Result<ExitCode, Exit> {
        let path = format!("/asks/{}/reset", segment(&self.id)?);
        self.at.call(Method::POST, &path, Some(&json!({"by": "cli"})))?;
        say(wording::RESET)?;
        Ok(ExitCode::SUCCESS)
    }
}
