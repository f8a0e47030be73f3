//! What the operator has decided: read, checked, and turned into types that cannot be wrong.
//!
//! Strict, because it is ours: an unknown key is an error that names the key. It opens nothing but
//! settings and secret files. Section 11 of the specification.

mod group;
mod http;
mod session;
mod slack;
mod values;
pub mod whatsapp;

pub use group::GroupSettings;
pub use http::{Http, is_loopback_url, reachable, url_host};
pub use session::{Means, Session};
pub use slack::{SlackSettings, SlackTransport};
pub(crate) use values::secret;

use crate::ipc::NoDataDir;
use crate::ipc::files::Access;
use askd_core::{Capabilities, ChannelName, Group, Responders, Route, TimeoutPolicy};
use config::{Config, Environment, File, FileFormat};
use group::{GroupShape, Table, web_route};
use http::HttpShape;
use secrecy::SecretString;
use serde::Deserialize;
use slack::{SlackShape, slack_is_there};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::{data_dir, dir_mode, duration, gid, list};
use whatsapp::Whatsapp;

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
    /// How Slack is reached; `None`: askd asks no one there.
    pub slack: Option<SlackSettings>,
    /// The token of the inbox; `None`: made at the first start.
    pub web_token: Option<SecretString>,
    /// What is needed to ask on WhatsApp; `None`: it is not set up.
    pub whatsapp: Option<Whatsapp>,
    /// What is logged, and how.
    pub log: Log,
    /// How long audit lines are kept.
    pub keep_audit: Duration,
    /// Where the Docker Engine listens: `DOCKER_HOST` in the environment.
    pub docker_host: Option<String>,
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
            docker_host: None,
            groups: BTreeMap::from([("research".to_owned(), asks.clone())]),
            defaults: asks,
        }
    }

    /// The same, with a further group that asks in a stand-in of Slack.
    pub fn and_in_slack(mut self, group: &str, slack: SlackSettings, chat: &str) -> Self {
        let route = Route {
            channel: ChannelName::SLACK,
            chat: chat.to_owned(),
            responders: Responders::Anyone,
            capabilities: Capabilities::default(),
        };
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
    pub fn group(&self, group: &Group) -> Option<&GroupSettings> {
        let settings = self.groups.get(group.as_str()).unwrap_or(&self.defaults);
        (!settings.routes.is_empty()).then_some(settings)
    }

    /// The groups that are named in the settings.
    pub fn configured(&self) -> impl Iterator<Item = Group> {
        self.groups.keys().filter_map(|name| name.parse().ok())
    }

    /// Whether more than one group may ask in a chat, so that each says who asks.
    pub fn shares(&self, channel: ChannelName, chat: &str) -> bool {
        let there = |group: &GroupSettings| group.routes.iter().any(|r| r.channel == channel && r.chat == chat);
        // Any number of folders may use the defaults.
        there(&self.defaults) || self.groups.values().filter(|group| there(group)).count() > 1
    }

    /// Whether some group asks a person with one of these ids on WhatsApp.
    pub fn may_write_on_whatsapp(&self, ids: &[String]) -> bool {
        let all = self.groups.values().chain(std::iter::once(&self.defaults)).flat_map(|group| &group.routes);
        all.filter(|route| route.channel == ChannelName::WHATSAPP).any(|route| {
            let listed = matches!(&route.responders, Responders::Only(_));
            ids.iter().any(|id| *id == route.chat || (listed && route.responders.includes(id)))
        })
    }

    /// Where the inbox is, for a link: the public address if there is one.
    pub fn inbox_url(&self) -> String {
        self.http.public_url.clone().unwrap_or_else(|| format!("http://{}", reachable(self.http.listen)))
    }

    /// Records that are askd's alone.
    pub fn state_dir(&self) -> PathBuf {
        self.data_dir.join("state")
    }

    /// The folders shared with agents.
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
    asks: Table,
    slack: SlackShape,
    whatsapp: whatsapp::Shape,
    web: WebShape,
    log: Log,
    defaults: Option<GroupShape>,
    #[serde(default)]
    groups: BTreeMap<String, GroupShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebShape {
    token: Option<SecretString>,
    token_file: Option<PathBuf>,
}

impl Shape {
    fn check(self) -> Result<Settings, SettingsError> {
        let (base, keep_audit) = group::base(&self.asks)?;
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
            docker_host: std::env::var("DOCKER_HOST").ok(),
            groups,
            defaults,
        })
    }
}

/// Checks that WhatsApp is set up if the group asks there.
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

#[cfg(test)]
mod tests;
