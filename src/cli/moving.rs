//! `askd group move`: another host serves an agent's folder, where several daemons share a database.

use super::{Exit, FAILED, USAGE, say, small_runtime};
use crate::host::settings::Settings;
use crate::host::store::{Moved, move_group};
use askd_core::Group;
use clap::Args;
use secrecy::ExposeSecret as _;
use std::path::PathBuf;

/// Have another host serve an agent's folder, where several daemons share a database (docs/cluster.md).
///
/// Daemons may run meanwhile. The new host writes every outcome again in its own folder, unless it is known to be taken. Exit codes: 0
/// done, 2 bad settings or usage, 1 anything else.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  askd group move research --to host-2")]
pub(super) struct Move {
    /// The group: your agent's name.
    name: String,
    /// The host, by the name that its daemon has ([postgres] node).
    #[arg(long, value_name = "HOST")]
    to: String,
    /// The daemon's settings file.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

impl Move {
    pub(super) fn run(self) -> Result<(), Exit> {
        let Self { name, to, config } = self;
        let group: Group =
            name.parse().map_err(|rule| Exit::new(USAGE, format!("{name:?}: a group's name is {rule}")))?;
        if let Some((folder, host)) = name.split_once('@') {
            let why = format!(
                "{name} is the folder {folder} of {host}; another host has a group of its own in that folder, so it cannot be moved. Only \
                 groups that the settings name can ([groups.{folder}])"
            );
            return Err(Exit::new(USAGE, why));
        }
        let settings = Settings::load(&config).map_err(|error| Exit::new(USAGE, error))?;
        let Some(url) = &settings.postgres.url else {
            let why = "the settings name no database, so this host serves the folders of all groups";
            return Err(Exit::new(USAGE, why));
        };
        if !settings.has_section(&group) {
            let known: Vec<String> = settings.configured().map(|group| group.to_string()).collect();
            let why = format!("the settings have no group {group}; they have: {}", known.join(", "));
            return Err(Exit::new(USAGE, why));
        }
        let runtime = small_runtime()?;
        let moved = runtime.block_on(move_group(url.expose_secret(), &group, &to));
        let told = match moved.map_err(|why| Exit::new(FAILED, format!("the database cannot be used: {why}")))? {
            Moved::Unknown(hosts) => {
                let why = format!("no daemon is called {to}; there are: {}", hosts.join(", "));
                return Err(Exit::new(USAGE, why));
            }
            Moved::From(Some(from)) if from == to => format!("{to} serves the folder of {group} already."),
            Moved::From(Some(from)) => format!("{to} serves the folder of {group} from now on, and {from} no longer."),
            Moved::From(None) => format!("{to} serves the folder of {group} from now on."),
        };
        Ok(say(&told)?)
    }
}
