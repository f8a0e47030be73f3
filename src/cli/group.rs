//! `askd group add`: an agent's folders, and the lines that connect the agent. `askd group move` has a file of its own.

use super::{Exit, FAILED, USAGE, say};
use crate::clock::Clock;
use crate::host::folders::Folders;
use crate::host::settings::Settings;
use crate::ipc::{BRIEFINGS, RESPONSES, TASKS};
use anyhow::Context as _;
use askd_core::Group;
use clap::{Args, Subcommand};
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

/// Make an agent's folders, or have another host serve them.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  askd group add research --for-docker")]
pub(super) enum Groups {
    Add(Add),
    #[cfg(feature = "postgres")]
    Move(super::moving::Move),
}

/// Make an agent's folders with the right owner and mode, and print how to connect the agent.
///
/// Folders that are there already keep what is in them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd group add research\n  askd group add research --for-docker\n  \
                        docker exec askd /askd group add research --for-docker --on-host /srv/askd")]
pub(super) struct Add {
    /// The group: your agent's name (letters, digits, _ and -).
    name: String,
    /// The daemon's settings file.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Print what to add to `docker run` and to a Compose file.
    #[arg(long)]
    for_docker: bool,
    /// Where the host has the data folder, if askd itself runs in a container.
    #[arg(long, value_name = "DIR", requires = "for_docker")]
    on_host: Option<PathBuf>,
}

impl Groups {
    pub(super) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Add(add) => add.run(),
            #[cfg(feature = "postgres")]
            Self::Move(moving) => moving.run(),
        }
    }
}

impl Add {
    fn run(self) -> Result<(), Exit> {
        let group = Group::of_folder(&self.name)
            .map_err(|rule| Exit::new(USAGE, format!("{:?}: a group's name is {rule}", self.name)))?;
        let settings = Settings::load(&self.config).map_err(|error| Exit::new(USAGE, error))?;
        let data = &settings.data_dir;
        if rustix::process::geteuid().is_root() && !data.exists() {
            let why = format!(
                "{0} does not exist yet, so askd cannot tell which user the folders should belong to. Start askd once, or make \
                 it for askd's user: sudo install -d -o askd -g askd -m 0751 {0}",
                data.display()
            );
            return Err(Exit::new(FAILED, why));
        }
        let gid = make(&settings, &group)?;
        let folder = settings.ipc_dir().join(group.as_str());
        say(&format!("The folders of {group} are ready: {}", folder.display()))?;
        if self.for_docker {
            let on_host = self.on_host.map_or(folder.clone(), |data| data.join("ipc").join(group.as_str()));
            say(&for_docker(&group, &on_host, gid))?;
        } else {
            say(&format!(
                "An agent on this host asks with:\n  ASKD_IPC_DIR={0} askd ask \"Deploy now?\" --confirm\n  \
                 claude mcp add askd -- askd mcp --ipc {0}",
                folder.display()
            ))?;
        }
        if settings.group(&group).is_none() {
            let section = format!("[groups.{group}]\nroutes = [{{ channel = \"web\" }}]");
            say(&format!(
                "askd does not serve it yet. Add this to the settings, then restart or reload askd:\n{section}"
            ))?;
        }
        Ok(())
    }
}

/// Makes the folders, and returns the group id that the agent needs.
pub(super) fn make(settings: &Settings, group: &Group) -> Result<u32, Exit> {
    let root = settings.ipc_dir();
    // Looked at first: what root makes is root's.
    let owner = anothers(&root).or_else(|| anothers(&settings.data_dir));
    let folders = Folders::open(root.clone(), settings.access, Clock::system())
        .with_context(|| format!("cannot make {}", root.display()))
        .and_then(|folders| {
            folders.prepare(group).with_context(|| format!("cannot make {}/{group}", root.display()))?;
            Ok(folders)
        })
        .map_err(|error| Exit::new(FAILED, format!("{error:#}. Run it as the user of the daemon, or as root")))?;
    let own = root.join(group.as_str());
    // Root makes them for the daemon.
    if let Some(owner) = owner.filter(|_| rustix::process::geteuid().is_root()) {
        let gid = settings.access.gid.unwrap_or(owner.gid());
        let folders = [own.clone(), own.join(TASKS), own.join(RESPONSES), own.join(BRIEFINGS)];
        for (folder, gid) in folders.map(|folder| (folder, gid)).into_iter().chain([(root, owner.gid())]) {
            let given = chown(&folder, Some(owner.uid()), Some(gid));
            given.with_context(|| format!("cannot give {} to user id {}", folder.display(), owner.uid()))?;
        }
    } else {
        folders.check(group).map_err(|trouble| Exit::new(FAILED, trouble))?;
    }
    Ok(std::fs::metadata(own.join(TASKS)).context("the folder of the requests")?.gid())
}

/// What a folder is like that another user than root has; `None`: it is root's, or is not there.
pub(super) fn anothers(folder: &Path) -> Option<Metadata> {
    std::fs::metadata(folder).ok().filter(|at| at.uid() != 0)
}

pub(super) fn for_docker(group: &Group, on_host: &Path, gid: u32) -> String {
    let folders =
        [TASKS, RESPONSES, BRIEFINGS].map(|name| format!("{}/{name}:/workspace/ipc/{name}", on_host.display()));
    let run = folders.each_ref().map(|folder| format!("  -v {folder} \\\n")).concat();
    let compose = folders.map(|folder| format!("      - {folder}\n")).concat();
    format!(
        "\nAdd to docker run (any user id does; the group id {gid} opens the folders):\n  --user 1000:{gid} \\\n{run}  \
         <your image>\n\nOr to the agent in a Compose file:\n  {group}:\n    user: \"1000:{gid}\"\n    volumes:\n{compose}"
    )
}
