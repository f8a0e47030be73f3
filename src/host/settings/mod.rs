//! What the operator has decided: read, checked, and turned into types that cannot be wrong.
//!
//! Strict, because it is ours: an unknown key is an error that names the key. It opens nothing but
//! settings and secret files. Section 11 of the specification.

mod http;
mod session;
mod slack;
mod values;

pub use http::{Http, is_loopback_url, reachable, url_host};
pub use session::{Means, Session};
pub use slack::{SlackDoor, SlackSettings};
pub(crate) use values::secret;

use crate::host::channel::whatsapp::settings::{self as whatsapp, Whatsapp};
use crate::ipc::NoDataDir;
use crate::ipc::files::Access;
use askd_core::{ChannelName, Group, Responders, Route, SessionRules, TimeoutPolicy};
use config::{Config, Environment, File, FileFormat};
use http::HttpShape;
use secrecy::SecretString;
use serde::Deserialize;
use session::SessionShape;
use slack::{SlackShape, slack_is_there};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::{at_least_one, between, data_dir, dir_mode, duration, gid, list, or_off};

/// Every key with its default.
pub const DEFAULTS: &str = include_str!("../../../config/default.toml");
/// Read if it is there and no file is named.
pub const SYSTEM_FILE: &str = "/etc/askd/askd.toml";

/// What is wrong with the settings, and where.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file or the environment does not have the right shape.
    #[error("settings: {0}")]
    Shape(#[from] config::ConfigError),
    /// A value does not fit.
    #[error("settings: {key}: {why}")]
    Value {
        /// Which key.
        key: String,
        /// What is wrong and what to write instead.
        why: String,
    },
    /// There is no data folder.
    #[error(transparent)]
    NoDataDir(#[from] NoDataDir),
}

pub(crate) fn wrong(key: impl Into<String>, why: impl Into<String>) -> SettingsError {
    SettingsError::Value { key: key.into(), why: why.into() }
}

/// What the operator has decided.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute.
    pub data_dir: PathBuf,
    /// Of the folders shared with agents.
    pub access: Access,
    /// Where to listen, and under which names.
    pub http: Http,
    /// How Slack is reached; `None`: nobody is asked there.
    pub slack: Option<SlackSettings>,
    /// The token of the inbox; `None`: made at the first start.
    pub web_token: Option<SecretString>,
    /// What is needed to ask on WhatsApp; `None`: it is not set up.
    pub whatsapp: Option<Whatsapp>,
    /// What is logged, and how.
    pub log: Log,
    /// How long audit lines are kept.
    pub keep_audit: Duration,
    groups: BTreeMap<String, GroupSettings>,
    defaults: GroupSettings,
}

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// A filter of `tracing-subscriber`.
    pub filter: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

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
    /// How long a response that nobody takes stays.
    pub answer_retention: Duration,
    /// How long an answer is still taken after a timeout; zero: not at all.
    pub late_answers: Duration,
}

impl Settings {
    /// Reads the named files (else the system's, if it is there) and the environment.
    pub fn load(files: &[PathBuf]) -> Result<Self, SettingsError> {
        let mut builder = Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
        if files.is_empty() {
            builder = builder.add_source(File::new(SYSTEM_FILE, FileFormat::Toml).required(false));
        }
        for file in files {
            builder = builder.add_source(File::from(file.as_path()).format(FileFormat::Toml));
        }
        // Values stay texts here (no `try_parsing`): it would turn a token "0123" into "123".
        let environment = Environment::with_prefix("ASKD").prefix_separator("__").separator("__");
        let shape: Shape = builder.add_source(environment).build()?.try_deserialize()?;
        shape.check()
    }

    /// For the demo: everything below one folder, a free port, one group, nothing from elsewhere.
    #[must_use]
    pub fn for_demo(data_dir: &Path) -> Self {
        let asks = GroupSettings {
            routes: vec![web_route()],
            timeout: Duration::from_secs(1800),
            render_timeout: Duration::from_secs(30),
            max_retries: 3,
            max_attempts: 5,
            on_timeout: TimeoutPolicy::ReturnCancel,
            max_open: 16,
            max_per_hour: 1000,
            keep_settled: Duration::from_secs(3600),
            remind_after: None,
            escalate_after: None,
            session: Session::default(),
            pickup_timeout: Duration::from_secs(60),
            answer_retention: Duration::from_secs(3600),
            late_answers: Duration::ZERO,
        };
        Self {
            data_dir: data_dir.to_owned(),
            access: Access { dir_mode: 0o770, gid: None },
            http: Http {
                listen: ([127, 0, 0, 1], 0).into(),
                webhook_listen: None,
                public_url: None,
                allowed_hosts: Vec::new(),
            },
            slack: None,
            web_token: None,
            whatsapp: None,
            log: Log { filter: "warn".to_owned(), format: LogFormat::Text },
            keep_audit: Duration::from_secs(3600),
            groups: BTreeMap::from([("research".to_owned(), asks.clone())]),
            defaults: asks,
        }
    }

    /// The same, with a further group that asks in a stand-in of Slack.
    #[must_use]
    pub fn and_in_slack(mut self, group: &str, slack: SlackSettings, chat: &str) -> Self {
        let route = Route { channel: ChannelName::SLACK, chat: chat.to_owned(), responders: Responders::Anyone };
        let settings = GroupSettings { routes: vec![route, web_route()], ..self.defaults.clone() };
        self.groups.insert(group.to_owned(), settings);
        self.slack = Some(slack);
        self
    }

    /// One more group, with the rules of all.
    pub fn add_group(&mut self, name: &str, routes: Vec<Route>) {
        self.groups.insert(name.to_owned(), GroupSettings { routes, ..self.defaults.clone() });
    }

    /// What holds for this group; `None` if it is not served.
    #[must_use]
    pub fn group(&self, group: &Group) -> Option<&GroupSettings> {
        let settings = self.groups.get(group.as_str()).unwrap_or(&self.defaults);
        (!settings.routes.is_empty()).then_some(settings)
    }

    /// The groups that are named in the settings.
    pub fn configured(&self) -> impl Iterator<Item = Group> {
        self.groups.keys().filter_map(|name| name.parse().ok())
    }

    /// Whether more than one group may ask in a chat, so that each says who asks.
    #[must_use]
    pub fn shares(&self, channel: ChannelName, chat: &str) -> bool {
        let there = |group: &GroupSettings| group.routes.iter().any(|r| r.channel == channel && r.chat == chat);
        // Any number of folders may use the defaults.
        there(&self.defaults) || self.groups.values().filter(|group| there(group)).count() > 1
    }

    /// Whether somebody with one of these ids is asked on WhatsApp by some group.
    #[must_use]
    pub fn may_write_on_whatsapp(&self, ids: &[String]) -> bool {
        let all = self.groups.values().chain(std::iter::once(&self.defaults)).flat_map(|group| &group.routes);
        all.filter(|route| route.channel == ChannelName::WHATSAPP).any(|route| {
            let listed = matches!(&route.responders, Responders::Only(_));
            ids.iter().any(|id| *id == route.chat || (listed && route.responders.includes(id)))
        })
    }

    /// Where the inbox is, for a link: the public address if there is one.
    #[must_use]
    pub fn inbox_url(&self) -> String {
        self.http.public_url.clone().unwrap_or_else(|| format!("http://{}", reachable(self.http.listen)))
    }

    /// Records that are askd's alone.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.data_dir.join("state")
    }

    /// The folders shared with agents.
    #[must_use]
    pub fn ipc_dir(&self) -> PathBuf {
        self.data_dir.join("ipc")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    data_dir: String,
    dir_mode: String,
    gid: String,
    http: HttpShape,
    asks: AsksShape,
    slack: SlackShape,
    whatsapp: whatsapp::Shape,
    web: WebShape,
    log: Log,
    defaults: Option<GroupShape>,
    #[serde(default)]
    groups: BTreeMap<String, GroupShape>,
}

/// `[asks]`, and the same keys in a group. Every one may be missing there.
#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct AsksShape {
    timeout: Option<String>,
    render_timeout: Option<String>,
    max_retries: Option<u8>,
    max_attempts: Option<u8>,
    on_timeout: Option<String>,
    pickup_timeout: Option<String>,
    answer_retention: Option<String>,
    late_answers: Option<String>,
    remind_after: Option<String>,
    escalate_after: Option<String>,
    max_open_per_group: Option<u32>,
    max_per_hour_per_group: Option<u32>,
    keep_settled: Option<String>,
    keep_audit: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebShape {
    token: Option<SecretString>,
    token_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteShape {
    channel: String,
    chat: Option<String>,
    responders: Option<RespondersShape>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RespondersShape {
    Word(String),
    Ids(Vec<String>),
}

#[derive(Deserialize)]
struct GroupShape {
    routes: Option<Vec<RouteShape>>,
    session: Option<SessionShape>,
    // `flatten` cannot refuse unknown keys by itself: they are caught here and refused in `check`.
    #[serde(flatten)]
    asks: BTreeMap<String, config::Value>,
}

impl Shape {
    fn check(self) -> Result<Settings, SettingsError> {
        let base = GroupSettings::base(&self.asks)?;
        let keep_audit = duration("asks.keep_audit", self.asks.keep_audit.as_deref(), Duration::ZERO)?;
        let mut groups = BTreeMap::new();
        for (name, shape) in self.groups {
            name.parse::<Group>()
                .map_err(|rule| wrong(format!("groups.{name}"), format!("a group's name is {rule}")))?;
            let settings = shape.check(&format!("groups.{name}"), &self.asks, &base)?;
            groups.insert(name, settings);
        }
        let defaults = match self.defaults {
            Some(shape) => shape.check("defaults", &self.asks, &base)?,
            None if base.on_timeout == TimeoutPolicy::AbortTask => {
                return Err(wrong(
                    "asks.on_timeout",
                    "abort_task needs a session that can be stopped, and folders that are not configured have none: \
                     set it in a group with a session, or add [defaults] with on_timeout = \"return_cancel\"",
                ));
            }
            None => base.clone(),
        };
        let whatsapp = self.whatsapp.check()?;
        let slack = self.slack.check()?;
        for (at, group) in groups.iter().map(|(name, group)| (format!("groups.{name}"), group)) {
            slack_is_there(&at, group, slack.as_ref())?;
            whatsapp_is_there(&at, group, whatsapp.as_ref())?;
        }
        slack_is_there("defaults", &defaults, slack.as_ref())?;
        whatsapp_is_there("defaults", &defaults, whatsapp.as_ref())?;
        Ok(Settings {
            data_dir: data_dir(&self.data_dir)?,
            access: Access { dir_mode: dir_mode(&self.dir_mode)?, gid: gid(&self.gid)? },
            http: self.http.check()?,
            slack,
            whatsapp,
            web_token: secret("web.token", self.web.token, self.web.token_file.as_deref())?,
            log: self.log,
            keep_audit,
            groups,
            defaults,
        })
    }
}

/// The same of WhatsApp.
fn whatsapp_is_there(at: &str, group: &GroupSettings, whatsapp: Option<&Whatsapp>) -> Result<(), SettingsError> {
    if whatsapp.is_none() && group.routes.iter().any(|route| route.channel == ChannelName::WHATSAPP) {
        return Err(wrong(
            format!("{at}.routes"),
            "a whatsapp route needs access_token, app_secret, verify_token and phone_number_id in [whatsapp] \
             (docs/whatsapp.md says where they come from)",
        ));
    }
    Ok(())
}

impl GroupSettings {
    /// What holds where nothing else is said: `[asks]`, and the inbox.
    fn base(asks: &AsksShape) -> Result<Self, SettingsError> {
        Self::from_asks("asks", asks, vec![web_route()], None)
    }

    /// By which rules an outcome that nobody takes is handled.
    #[must_use]
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

    fn from_asks(
        at: &str,
        asks: &AsksShape,
        routes: Vec<Route>,
        session: Option<Session>,
    ) -> Result<Self, SettingsError> {
        let key = |name: &str| format!("{at}.{name}");
        let on_timeout = asks.on_timeout.as_deref().unwrap_or("return_cancel");
        if !(1..=10).contains(&asks.max_attempts.unwrap_or(5)) {
            return Err(wrong(key("max_attempts"), "has to be from 1 to 10"));
        }
        if asks.max_retries.unwrap_or(3) > 5 {
            return Err(wrong(key("max_retries"), "has to be from 0 to 5"));
        }
        Ok(Self {
            timeout: between(&key("timeout"), asks.timeout.as_deref(), 10, 604_800)?,
            render_timeout: between(&key("render_timeout"), asks.render_timeout.as_deref(), 10, 60)?,
            max_retries: asks.max_retries.unwrap_or(3),
            max_attempts: asks.max_attempts.unwrap_or(5),
            on_timeout: match TimeoutPolicy::from_name(on_timeout) {
                // Only a group can have a session; what serves nobody needs none.
                Some(TimeoutPolicy::AbortTask)
                    if !routes.is_empty() && session.as_ref().is_some_and(|session| session.stop.is_none()) =>
                {
                    return Err(wrong(
                        key("on_timeout"),
                        "abort_task needs a way to stop the session; add it to the group: \
                         session = { stop = { docker = \"<container>\" } }",
                    ));
                }
                Some(policy) => policy,
                None => {
                    return Err(wrong(
                        key("on_timeout"),
                        format!("{on_timeout:?} is neither return_cancel nor abort_task"),
                    ));
                }
            },
            max_open: at_least_one(&key("max_open_per_group"), asks.max_open_per_group)?,
            max_per_hour: at_least_one(&key("max_per_hour_per_group"), asks.max_per_hour_per_group)?,
            keep_settled: duration(&key("keep_settled"), asks.keep_settled.as_deref(), Duration::from_secs(60))?,
            remind_after: or_off(&key("remind_after"), asks.remind_after.as_deref())?,
            escalate_after: or_off(&key("escalate_after"), asks.escalate_after.as_deref())?,
            routes,
            session: session.unwrap_or_default(),
            pickup_timeout: duration(&key("pickup_timeout"), asks.pickup_timeout.as_deref(), Duration::from_secs(1))?,
            answer_retention: duration(
                &key("answer_retention"),
                asks.answer_retention.as_deref(),
                Duration::from_secs(1),
            )?,
            late_answers: or_off(
                &key("late_answers"),
                asks.late_answers.as_deref().filter(|text| !matches!(*text, "0" | "0s")),
            )?
            .unwrap_or_default(),
        })
    }
}

impl GroupShape {
    fn check(self, at: &str, asks: &AsksShape, base: &GroupSettings) -> Result<GroupSettings, SettingsError> {
        let session = self.session.map(|shape| shape.check(&format!("{at}.session"))).transpose()?.unwrap_or_default();
        known(at, self.asks.keys())?;
        let own = config::Value::new(None, config::ValueKind::Table(self.asks.into_iter().collect()));
        let own: AsksShape = own.try_deserialize().map_err(|error| wrong(at, error.to_string()))?;
        let routes = match self.routes {
            None => base.routes.clone(),
            Some(routes) => routes
                .into_iter()
                .enumerate()
                .map(|(index, route)| route.check(&format!("{at}.routes[{index}]")))
                .collect::<Result<_, _>>()?,
        };
        GroupSettings::from_asks(at, &own.or(asks), routes, Some(session))
    }
}

/// What a group may set.
const GROUP_KEYS: [&str; 16] = [
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

/// Refuses a key that no group has; the error first says which key may have been meant.
fn known<'a>(at: &str, mut keys: impl Iterator<Item = &'a String>) -> Result<(), SettingsError> {
    let Some(unknown) = keys.find(|key| !GROUP_KEYS.contains(&key.as_str())) else { return Ok(()) };
    let distance = |known: &&&str| strsim::damerau_levenshtein(known, unknown);
    let meant = GROUP_KEYS.iter().min_by_key(distance).filter(|known| distance(known) <= 2);
    let meant = meant.map(|known| format!(" did you mean {known:?}?")).unwrap_or_default();
    Err(wrong(at, format!("unknown key {unknown:?};{meant} A group has: {}", GROUP_KEYS.join(", "))))
}

impl AsksShape {
    /// These, and the others where these say nothing.
    fn or(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            timeout: self.timeout.or(other.timeout),
            render_timeout: self.render_timeout.or(other.render_timeout),
            max_retries: self.max_retries.or(other.max_retries),
            max_attempts: self.max_attempts.or(other.max_attempts),
            on_timeout: self.on_timeout.or(other.on_timeout),
            pickup_timeout: self.pickup_timeout.or(other.pickup_timeout),
            answer_retention: self.answer_retention.or(other.answer_retention),
            late_answers: self.late_answers.or(other.late_answers),
            remind_after: self.remind_after.or(other.remind_after),
            escalate_after: self.escalate_after.or(other.escalate_after),
            max_open_per_group: self.max_open_per_group.or(other.max_open_per_group),
            max_per_hour_per_group: self.max_per_hour_per_group.or(other.max_per_hour_per_group),
            keep_settled: self.keep_settled.or(other.keep_settled),
            keep_audit: self.keep_audit.or(other.keep_audit),
        }
    }
}

fn web_route() -> Route {
    Route { channel: ChannelName::WEB, chat: String::new(), responders: Responders::Only(Vec::new()) }
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

#[cfg(test)]
mod tests;
