//! `askd list`, `show`, `dismiss`, `cancel`, `reset`, `healthz`: the inbox for a terminal. `answer` has a file of its
//! own, and `layout` knows how it looks.

use super::answer::Answer;
use super::json::escaped;
use super::layout::{Look, text};
use super::link::Link;
use super::trail::Trail;
use super::{Exit, FAILED, USAGE, say};
use crate::clock::Clock;
use crate::host::client::{Client, ClientError, healthy};
use crate::host::settings::Settings;
use crate::host::tokens::is_an_agents;
use askd_core::{printable, wording};
use clap::{Args, Subcommand};
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

/// Asks that are read at a time.
const PAGE: usize = 1000;

/// Where the daemon is.
#[derive(Debug, Args)]
pub(super) struct Where {
    /// The daemon's settings file, for its address and token.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// The daemon's address, for example `http://127.0.0.1:8484`.
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// The inbox token; prefer `ASKD_TOKEN`: other users can see command lines. An agent's token does not open the inbox:
    /// it is refused here, and ignored in `ASKD_TOKEN`.
    #[arg(long, value_name = "TOKEN", value_parser = of_the_inbox)]
    token: Option<String>,
}

/// A token that is not an agent's.
fn of_the_inbox(token: &str) -> Result<String, &'static str> {
    let mend = "this is an agent's token, and it does not open the inbox; the link that `askd link` prints contains the inbox token";
    if is_an_agents(token) { Err(mend) } else { Ok(token.to_owned()) }
}

impl Where {
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        // Beside an agent's token the inbox token is that of the settings, as without the variable.
        let variable = || std::env::var("ASKD_TOKEN").ok().filter(|token| !token.is_empty() && !is_an_agents(token));
        let token = self.token.clone().or_else(variable);
        Client::find(&self.config, self.url.clone(), token.map(SecretString::from))
    }

    pub(super) fn settings(&self) -> Result<Settings, ClientError> {
        Ok(Settings::load(&self.config)?)
    }

    /// The address that people open.
    pub(super) fn inbox_url(&self) -> Result<String, ClientError> {
        self.url.clone().map_or_else(|| Ok(self.settings()?.inbox_url()), Ok)
    }

    pub(super) async fn healthy(&self) -> Result<(), ClientError> {
        healthy(&self.config, self.url.clone()).await
    }

    pub(super) fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Exit> {
        Ok(self.ask_daemon(method, path, body)??)
    }

    /// The same; what the daemon said, or that there is none, is the caller's to judge.
    pub(super) fn ask_daemon(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, ClientError>, Exit> {
        let runtime = super::small_runtime()?;
        let client = self.client();
        Ok(client.and_then(|client| runtime.block_on(client.call(method, path, body))))
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
pub(super) fn segment(id: &str) -> Result<&str, Exit> {
    if !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Ok(id);
    }
    Err(Exit::new(USAGE, format!("{id:?} is not a code or the beginning of an id; `askd list` shows them")))
}

/// List open questions, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd list\n  askd list --settled\n  askd list --json | jq -r '.asks[].id'")]
pub(super) struct List {
    #[command(flatten)]
    at: Where,
    /// List closed questions instead: first those that can still be answered or whose answer nobody collected, then the newest.
    #[arg(long)]
    settled: bool,
    /// Print the API's JSON.
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
            return Ok(say(if self.settled { "No closed questions." } else { "No open questions." })?);
        }
        Ok(say(&Look::of_stdout().list(&asks, self.settled, Clock::system().now()))?)
    }
}

/// Show a question with its options and state.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd show 3f2a")]
pub(super) struct Show {
    #[command(flatten)]
    ask: One,
    /// Print the API's JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<(), Exit> {
        let ask = self.ask.read()?;
        Ok(say(&if self.json { pretty(&ask) } else { Look::of_stdout().show(&ask, Clock::system().now()) })?)
    }
}

pub(super) fn pretty(value: &Value) -> String {
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
    /// Its code, or the beginning of its id.
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
    Log(Trail),
    Link(Link),
    /// Dismiss a question: the agent is told that the user does not want to answer.
    #[command(after_help = "Example:\n  askd dismiss 3f2a")]
    Dismiss(One),
    /// Withdraw a question: the agent is told that it was withdrawn.
    #[command(after_help = "Example:\n  askd cancel 3f2a")]
    Cancel(One),
    /// Unblock a question by resetting its attempt count.
    ///
    /// Does the same as Allow again on the card of a blocked question. It also works on a question that is not blocked: the
    /// agent can then ask it as many times as a new one.
    #[command(after_help = "Example:\n  askd reset 3f2a")]
    Reset(One),
    /// Exit with code 0 if the daemon is healthy.
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
            Self::Log(trail) => trail.run(),
            Self::Link(link) => link.run(),
            Self::Dismiss(ask) => say_settled(&ask.post("dismiss", json!({}))?),
            Self::Cancel(ask) => say_settled(&ask.post("cancel", json!({}))?),
            Self::Reset(ask) => {
                let blocked = ask.post("reset", json!({}))?["block"].is_object();
                Ok(say(if blocked { wording::RESET } else { wording::COUNT_RESET })?)
            }
            Self::Healthz(at) => Ok(super::small_runtime()?.block_on(at.healthy())?),
        }
    }
}
