//! What the operator has decided: read, checked, and turned into types that cannot be wrong.
//!
//! Strict, because it is ours: an unknown key is an error that names the key. It opens nothing but
//! settings and secret files. Section 11 of the specification.

mod changes;
mod group;
mod http;
mod mistakes;
mod people;
mod postgres;
mod session;
mod slack;
mod values;
mod webhook;
mod whatsapp;

pub use group::{GroupSettings, RouteSettings};
pub use http::{Agents, Http, is_loopback_url, reachable, url_host};
pub use mistakes::SettingsError;
pub use people::{PersonSettings, PushSettings, WebSettings};
pub use postgres::PostgresSettings;
pub use session::Means;
pub use slack::{SlackSettings, SlackTransport, slack_id};
pub use values::{Secrets, data_folder};
pub use webhook::Webhook;
pub use whatsapp::WhatsappSettings;

use crate::ipc::files::Access;
use askd_core::{ChannelName, Group, Responders, TimeoutPolicy};
use config::{Config, Environment, File, FileFormat};
use jiff::tz::TimeZone;
use mistakes::{Mistakes, Source};
use serde::Deserialize;
use slack::SlackShape;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every key with its default.
pub const DEFAULTS: &str = include_str!("../../../config/default.toml");
/// Read if it is there and no file is named.
pub const SYSTEM_FILE: &str = "/etc/askd/askd.toml";

/// What the operator has decided.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute.
    pub data_dir: PathBuf,
    /// Of the folders shared with agents.
    pub access: Access,
    /// Where to listen, and under which names.
    pub http: Http,
    /// Where agents ask over HTTP.
    pub agents: Agents,
    /// How Slack is reached; `None`: askd asks no one there.
    pub slack: Option<SlackSettings>,
    /// Who opens the inbox.
    pub web: WebSettings,
    /// What is needed to ask on WhatsApp; `None`: it is not set up.
    pub whatsapp: Option<WhatsappSettings>,
    /// What is logged, and how.
    pub log: Log,
    /// Where traces go.
    pub traces: Traces,
    /// Where the records are, if not in files.
    pub postgres: PostgresSettings,
    /// How long audit lines are kept.
    pub keep_audit: Duration,
    /// Where the Docker Engine listens: `DOCKER_HOST` in the environment.
    pub docker_host: Option<String>,
    /// The disk may have lost what was written last: `--after-loss` on the command line.
    pub after_loss: bool,
    groups: BTreeMap<String, GroupSettings>,
    defaults: GroupSettings,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// A filter of `tracing-subscriber`.
    #[serde(deserialize_with = "values::log_filter")]
    pub filter: String,
    /// `text` or `json`.
    #[serde(deserialize_with = "values::log_format")]
    pub format: LogFormat,
}

/// `[traces]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// The collector, without a slash at the end; `None`: no traces.
    #[serde(deserialize_with = "values::endpoint")]
    pub endpoint: Option<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

impl Settings {
    /// Reads the named files (else the system's, if it is there) and the environment.
    pub fn load(files: &[PathBuf]) -> Result<Self, SettingsError> {
        let (mut sources, mut unread) = (Vec::new(), Mistakes::default());
        let named = Self::files(files);
        // Nobody has to write the usual one. If it cannot be looked at, it may be there.
        let missing =
            |file: &Path| std::fs::symlink_metadata(file).is_err_and(|it| it.kind() == io::ErrorKind::NotFound);
        for file in named.iter().filter(|file| !files.is_empty() || !missing(file)) {
            match std::fs::read_to_string(file) {
                Ok(text) => sources.push(Source { name: file.display().to_string(), text }),
                Err(error) => unread.at_large(&format!("cannot read the settings file {}: {error}", file.display())),
            }
        }
        unread.none(())?;
        Self::read(sources, Some(environment()))
    }

    /// The files that are read: those that are named, or else the usual one.
    pub fn files(named: &[PathBuf]) -> Vec<PathBuf> {
        if named.is_empty() { vec![PathBuf::from(SYSTEM_FILE)] } else { named.to_vec() }
    }

    /// Reads the environment and a text that is to become a file. Without the file's name no place in it is told.
    pub fn draft(file: Option<&Path>, text: String) -> Result<Self, SettingsError> {
        let name = file.map(|file| file.display().to_string()).unwrap_or_default();
        Self::read(vec![Source { name, text }], Some(environment()))
    }

    /// Reads settings from a text, and nothing from elsewhere.
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        Self::read(vec![Source { name: "settings".to_owned(), text: text.to_owned() }], None)
    }

    fn read(sources: Vec<Source>, environment: Option<Environment>) -> Result<Self, SettingsError> {
        let mut builder = Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
        let mut syntax = Mistakes::default();
        for source in &sources {
            source.check(&mut syntax);
            builder = builder.add_source(File::from_str(&source.text, FileFormat::Toml));
        }
        syntax.none(())?;
        let variables = if environment.is_some() {
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
        } else {
            Vec::new()
        };
        let mut mistakes = Mistakes::of(sources, variables);
        if let Some(environment) = environment {
            builder = builder.add_source(environment);
        }
        let table = builder.build().and_then(|built| built.cache.into_table());
        let mut table = match table {
            Ok(table) => table,
            Err(error) => {
                mistakes.at_large(&error.to_string());
                return Err(mistakes.into());
            }
        };
        values::read_secret_files(&mut table, &mut mistakes);
        match mistakes.read(table) {
            Some(shape) => {
                let settings = shape.check(&mut mistakes);
                mistakes.none(settings)
            }
            None => Err(mistakes.into()),
        }
    }

    /// One more group, with the rules of all.
    pub fn add_group(&mut self, name: &str, routes: Vec<RouteSettings>) {
        self.groups.insert(name.to_owned(), GroupSettings { routes, ..self.defaults.clone() });
    }

    /// What holds for this group; `None` if it is not served.
    pub fn group(&self, group: &Group) -> Option<&GroupSettings> {
        let settings = self.groups.get(group.folder()).unwrap_or(&self.defaults);
        (!settings.routes.is_empty()).then_some(settings)
    }

    /// What holds for a folder without a section; `None` if it is not served.
    pub fn unconfigured(&self) -> Option<&GroupSettings> {
        Some(&self.defaults).filter(|group| !group.routes.is_empty())
    }

    /// Whether the settings name this group.
    pub fn has_section(&self, group: &Group) -> bool {
        self.groups.contains_key(group.folder())
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

    /// The time zone of a chat in this channel, if a route sets one.
    pub fn time_zone(&self, channel: ChannelName, chat: &str) -> Option<TimeZone> {
        let mut routes = self.routes_to(channel).into_iter();
        routes.find_map(|route| route.time_zone.clone().filter(|_| route.chat == chat))
    }

    /// Every route in this channel.
    pub fn routes_to(&self, channel: ChannelName) -> Vec<&RouteSettings> {
        let all = self.groups.values().chain(std::iter::once(&self.defaults)).flat_map(|group| &group.routes);
        all.filter(|route| route.channel == channel).collect()
    }

    /// Whether a route in this channel names a person with one of these ids, as its chat or as a responder.
    pub fn names(&self, channel: ChannelName, ids: &[String]) -> bool {
        self.routes_to(channel).into_iter().any(|route| {
            let listed = if let Some(Responders::Only(listed)) = &route.responders { &listed[..] } else { &[] };
            ids.iter().any(|id| *id == route.chat || listed.contains(id))
        })
    }

    /// Where the inbox is, for a link: the public address if there is one.
    pub fn inbox_url(&self) -> String {
        self.http.url("http")
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

/// Values stay texts here (no `try_parsing`): it would turn a token "0123" into "123".
fn environment() -> Environment {
    Environment::with_prefix("ASKD").prefix_separator("__").separator("__")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    #[serde(deserialize_with = "values::data_dir")]
    data_dir: PathBuf,
    #[serde(deserialize_with = "values::dir_mode")]
    dir_mode: u32,
    #[serde(deserialize_with = "values::gid")]
    gid: Option<u32>,
    http: Http,
    agents: Agents,
    asks: GroupSettings,
    slack: SlackShape,
    whatsapp: WhatsappSettings,
    web: WebSettings,
    log: Log,
    traces: Traces,
    postgres: PostgresSettings,
    defaults: Option<GroupSettings>,
    #[serde(default)]
    groups: BTreeMap<String, GroupSettings>,
}

impl Shape {
    fn check(self, mistakes: &mut Mistakes) -> Settings {
        self.http.check("http", mistakes);
        self.agents.check(&self.http, mistakes);
        self.web.check(mistakes);
        if self.defaults.is_none() && self.asks.on_timeout == TimeoutPolicy::AbortTask {
            let why = "abort_task needs a session that can be stopped, and folders that are not configured have none: set \
                       it in a group with a session, or add [defaults] with on_timeout = \"return_cancel\"";
            mistakes.add("asks.on_timeout", why);
        }
        let keep_audit = self.asks.keep_audit;
        let (mut groups, mut defaults) = (self.groups, self.defaults.unwrap_or(self.asks));
        let mut settings = Settings {
            data_dir: self.data_dir,
            access: Access { dir_mode: self.dir_mode, gid: self.gid },
            http: self.http,
            agents: self.agents,
            slack: self.slack.check(mistakes),
            whatsapp: self.whatsapp.check(mistakes),
            web: self.web,
            log: self.log,
            traces: self.traces,
            postgres: self.postgres.check(mistakes),
            keep_audit,
            docker_host: std::env::var("DOCKER_HOST").ok(),
            after_loss: false,
            groups: BTreeMap::new(),
            defaults: defaults.clone(),
        };
        for (name, group) in &mut groups {
            let at = format!("groups.{name}");
            if let Err(rule) = Group::of_folder(name) {
                mistakes.add(&*at, format!("a group's name is {rule}"));
            }
            group.check(&at, &settings, mistakes);
        }
        defaults.check("defaults", &settings, mistakes);
        (settings.groups, settings.defaults) = (groups, defaults);
        settings
    }
}

#[cfg(test)]
mod tests;
