//! What holds for one group: the keys of `[asks]`, the group's own keys over them, its routes and its session.

use super::session::{Session, SessionShape};
use super::values::{at_least_one, between, duration, or_off};
use super::whatsapp;
use super::{SettingsError, wrong};
use askd_core::{Capabilities, ChannelName, Responders, Route, SessionRules, TimeoutPolicy};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Keys and values that are still to be read.
pub(super) type Table = BTreeMap<String, config::Value>;

/// What holds for one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// Where it is asked, in order.
    pub routes: Vec<Route>,
    /// How long a person has.
    pub timeout: Duration,
    /// How long to wait for proof of display.
    pub render_timeout: Duration,
    /// How often an unshown ask is posted again.
    pub max_retries: u8,
    /// How often a question may be asked without an answer.
    pub max_attempts: u8,
    /// What happens at a timeout.
    pub on_timeout: TimeoutPolicy,
    /// Open asks at a time.
    pub max_open: u32,
    /// New asks within an hour.
    pub max_per_hour: u32,
    /// How long an outcome is kept.
    pub keep_settled: Duration,
    /// When an open ask is brought to mind first.
    pub remind_after: Option<Duration>,
    /// When an unanswered ask is shown on the next route too.
    pub escalate_after: Option<Duration>,
    /// How to reach the agent's session.
    pub session: Session,
    /// How long a drop-in client has to take a response before the agent is started.
    pub pickup_timeout: Duration,
    /// How long a response that no call takes stays.
    pub answer_retention: Duration,
    /// How long an answer is still taken after a timeout; zero: not at all.
    pub late_answers: Duration,
}

/// The keys of `[asks]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AsksShape {
    timeout: String,
    render_timeout: String,
    max_retries: u8,
    max_attempts: u8,
    on_timeout: String,
    pickup_timeout: String,
    answer_retention: String,
    late_answers: String,
    remind_after: String,
    escalate_after: String,
    max_open_per_group: u32,
    max_per_hour_per_group: u32,
    keep_settled: String,
    keep_audit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteShape {
    pub(super) channel: String,
    pub(super) chat: Option<String>,
    pub(super) responders: Option<RespondersShape>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RespondersShape {
    Word(String),
    Ids(Vec<String>),
}

#[derive(Deserialize)]
pub(super) struct GroupShape {
    routes: Option<Vec<RouteShape>>,
    session: Option<SessionShape>,
    /// What the group says instead of `[asks]`.
    #[serde(flatten)]
    own: Table,
}

/// What holds by default: `[asks]` and the inbox; and how long audit lines are kept.
pub(super) fn base(asks: &Table) -> Result<(GroupSettings, Duration), SettingsError> {
    let shape = AsksShape::read("asks", asks.clone(), &GROUP_KEYS[2..])?;
    let keep_audit = duration("asks.keep_audit", &shape.keep_audit, Duration::ZERO)?;
    Ok((shape.check("asks", vec![web_route()], None)?, keep_audit))
}

impl GroupSettings {
    /// The rules for an outcome that no call takes.
    pub fn session_rules(&self) -> SessionRules {
        SessionRules {
            pickup_timeout: self.pickup_timeout,
            answer_retention: self.answer_retention,
            late_answers: self.late_answers,
            probe: self.session.probe.is_some(),
            start: self.session.start.is_some(),
            stop: self.session.stop.is_some(),
        }
    }
}

impl GroupShape {
    /// The settings of a group that says these of itself, under the key `at`.
    pub(super) fn check(self, at: &str, asks: &Table, base: &GroupSettings) -> Result<GroupSettings, SettingsError> {
        let session = self.session.map(|shape| shape.check(&format!("{at}.session"))).transpose()?.unwrap_or_default();
        let routes = match self.routes {
            None => base.routes.clone(),
            Some(routes) => routes
                .into_iter()
                .enumerate()
                .map(|(index, route)| route.check(&format!("{at}.routes[{index}]")))
                .collect::<Result<_, _>>()?,
        };
        let all = asks.clone().into_iter().chain(self.own).collect();
        AsksShape::read(at, all, &GROUP_KEYS)?.check(at, routes, Some(session))
    }
}

/// What a group may set. All but the first two stand in `[asks]`, too.
pub(super) const GROUP_KEYS: [&str; 16] = [
    "routes",
    "session",
    "timeout",
    "render_timeout",
    "max_retries",
    "max_attempts",
    "on_timeout",
    "pickup_timeout",
    "answer_retention",
    "late_answers",
    "remind_after",
    "escalate_after",
    "max_open_per_group",
    "max_per_hour_per_group",
    "keep_settled",
    "keep_audit",
];

impl AsksShape {
    /// Reads the keys. An error about a key that is not there says which may have been meant.
    fn read(at: &str, table: Table, keys: &[&str]) -> Result<Self, SettingsError> {
        if let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) {
            let distance = |known: &&&str| strsim::damerau_levenshtein(known, unknown);
            let meant = keys.iter().min_by_key(distance).filter(|known| distance(known) <= 2);
            let meant = meant.map(|known| format!(" did you mean {known:?}?")).unwrap_or_default();
            let holder = if at == "asks" { "[asks]" } else { "A group" };
            return Err(wrong(at, format!("unknown key {unknown:?};{meant} {holder} has: {}", keys.join(", "))));
        }
        let table = config::Value::new(None, config::ValueKind::Table(table.into_iter().collect()));
        table.try_deserialize().map_err(|error| wrong(at, error.to_string()))
    }

    fn check(self, at: &str, routes: Vec<Route>, session: Option<Session>) -> Result<GroupSettings, SettingsError> {
        let key = |name: &str| format!("{at}.{name}");
        if !(1..=10).contains(&self.max_attempts) {
            return Err(wrong(key("max_attempts"), "has to be from 1 to 10"));
        }
        if self.max_retries > 5 {
            return Err(wrong(key("max_retries"), "has to be from 0 to 5"));
        }
        let Some(on_timeout) = TimeoutPolicy::from_name(&self.on_timeout) else {
            let why = format!("{:?} is neither return_cancel nor abort_task", self.on_timeout);
            return Err(wrong(key("on_timeout"), why));
        };
        // Only a group can have a session, and a group without routes needs none.
        let cannot_stop = session.as_ref().is_some_and(|session| session.stop.is_none());
        if on_timeout == TimeoutPolicy::AbortTask && cannot_stop && !routes.is_empty() {
            return Err(wrong(
                key("on_timeout"),
                "abort_task needs a way to stop the session; add it to the group: \
                 session = { stop = { docker = \"<container>\" } }",
            ));
        }
        let second = Duration::from_secs(1);
        let late_answers = if matches!(&*self.late_answers, "0" | "0s") { "" } else { &self.late_answers };
        Ok(GroupSettings {
            timeout: between(&key("timeout"), &self.timeout, 10, 604_800)?,
            render_timeout: between(&key("render_timeout"), &self.render_timeout, 10, 60)?,
            max_retries: self.max_retries,
            max_attempts: self.max_attempts,
            on_timeout,
            max_open: at_least_one(&key("max_open_per_group"), self.max_open_per_group)?,
            max_per_hour: at_least_one(&key("max_per_hour_per_group"), self.max_per_hour_per_group)?,
            keep_settled: duration(&key("keep_settled"), &self.keep_settled, 60 * second)?,
            remind_after: or_off(&key("remind_after"), &self.remind_after)?,
            escalate_after: or_off(&key("escalate_after"), &self.escalate_after)?,
            routes,
            session: session.unwrap_or_default(),
            pickup_timeout: duration(&key("pickup_timeout"), &self.pickup_timeout, second)?,
            answer_retention: duration(&key("answer_retention"), &self.answer_retention, second)?,
            late_answers: or_off(&key("late_answers"), late_answers)?.unwrap_or_default(),
        })
    }
}

pub(super) fn web_route() -> Route {
    Route {
        channel: ChannelName::WEB,
        chat: String::new(),
        responders: Responders::Only(Vec::new()),
        capabilities: Capabilities::default(),
    }
}

impl RouteShape {
    fn check(self, at: &str) -> Result<Route, SettingsError> {
        match self.channel.as_str() {
            "web" if self.chat.is_some() || self.responders.is_some() => {
                Err(wrong(at, "the inbox has no chat and no responders: whoever has its token is the operator"))
            }
            "web" => Ok(web_route()),
            "slack" => self.slack(at),
            "whatsapp" => whatsapp::route(at, self.chat, responders(at, self.responders)?),
            other => Err(wrong(format!("{at}.channel"), format!("{other:?} is none of slack, whatsapp, web"))),
        }
    }
}

fn responders(at: &str, shape: Option<RespondersShape>) -> Result<Option<Responders>, SettingsError> {
    match shape {
        None => Ok(None),
        Some(RespondersShape::Word(word)) if word == "anyone" => Ok(Some(Responders::Anyone)),
        Some(RespondersShape::Word(word)) => {
            Err(wrong(format!("{at}.responders"), format!("{word:?} is neither \"anyone\" nor a list of ids")))
        }
        Some(RespondersShape::Ids(ids)) if ids.is_empty() => {
            Err(wrong(format!("{at}.responders"), "the list is empty, so nobody could answer; name somebody"))
        }
        Some(RespondersShape::Ids(ids)) => Ok(Some(Responders::Only(ids))),
    }
}
