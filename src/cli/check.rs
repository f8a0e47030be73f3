//! `askd check`: whether the settings hold. Starts nothing and calls nobody.

use super::{Exit, USAGE, say};
use crate::host::Tls;
use crate::host::settings::{GroupSettings, Settings, SlackTransport};
use askd_core::{ChannelName, Responders};
use clap::Args;
use std::path::PathBuf;

/// Check the settings without starting anything.
///
/// Prints every mistake with its file and line, or what the settings say. Exit codes: 0 they are right, 2 they are not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd check\n  askd check --config askd.toml")]
pub(super) struct Check {
    /// Settings file; repeatable, later files override earlier ones [default: /etc/askd/askd.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Exit> {
        let settings = Settings::load(&self.config).map_err(|error| Exit::new(USAGE, error))?;
        certificate(&settings)?;
        Ok(say(&summary(&settings))?)
    }
}

/// Whether the files of a certificate can be used. Only the daemon's own user may be able to read them.
fn certificate(settings: &Settings) -> Result<(), Exit> {
    let read = settings.agents.tls().map(|(cert, key)| Tls::new(cert, key)).transpose();
    read.map(drop).map_err(|error| Exit::new(USAGE, format!("[agents] tls_cert, tls_key: {error}")))
}

fn summary(settings: &Settings) -> String {
    let slack = settings.slack.as_ref().map_or("not set up", |slack| match slack.transport {
        SlackTransport::Socket(_) => "Socket Mode",
        SlackTransport::Webhooks(_) => "webhooks",
    });
    let whatsapp = settings
        .whatsapp
        .as_ref()
        .map_or_else(|| "not set up".to_owned(), |whatsapp| format!("phone number id {}", whatsapp.phone_number_id));
    let records = match &settings.postgres.url {
        Some(_) => format!("PostgreSQL; this daemon's host is {}", settings.postgres.node),
        None => format!("files in {}", settings.state_dir().display()),
    };
    let once = if settings.agents.listen.is_some() { "" } else { ", once there is a token" };
    let mut lines = vec![
        "The settings are right.".to_owned(),
        format!("Data folder  {}", settings.data_dir.display()),
        format!("Records      {records}"),
        format!("Inbox        {}", settings.inbox_url()),
        format!("Agents       their folders, or {}{once}", settings.agents.url()),
        format!("Slack        {slack}"),
        format!("WhatsApp     {whatsapp}"),
    ];
    let groups = settings.configured();
    lines.extend(groups.map(|group| format!("Group {group}: {}", settings.group(&group).map_or_else(closed, routes))));
    lines.push(format!("Other groups: {}", settings.unconfigured().map_or_else(closed, routes)));
    lines.join("\n")
}

fn closed() -> String {
    "not served".to_owned()
}

fn routes(group: &GroupSettings) -> String {
    let route = |route: &crate::host::settings::RouteSettings| {
        let place = match route.channel {
            ChannelName::WEB => return "the inbox".to_owned(),
            channel => format!("{} {}", channel.title(), route.chat),
        };
        match &route.responders {
            Some(Responders::Anyone) => format!("{place} (anyone there can answer)"),
            Some(Responders::Only(people)) if people[..] != [route.chat.clone()] => {
                format!("{place} ({} can answer)", people.join(", "))
            }
            _ => place,
        }
    };
    group.routes.iter().map(route).collect::<Vec<_>>().join(", then ")
}
