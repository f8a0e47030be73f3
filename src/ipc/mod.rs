//! The file contract between an agent and the daemon: which folders, which names, which shapes.
//!
//! Both sides use it, so that they cannot disagree. It decides nothing about asks. Rooms: the shapes of the files
//! (`wire`), and reading and writing them safely in folders that a container can write too (`files`).

mod calls;
pub mod files;
mod names;
pub mod wire;

use askd_core::RequestId;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Where requests are put: agent to daemon.
pub const TASKS: &str = "tasks";
/// Where responses are put: daemon to agent.
pub const RESPONSES: &str = "responses";
/// Where briefings are put: daemon to the next session.
pub const BRIEFINGS: &str = "briefings";
/// The environment variable that turns file events off when it is `off`, so that only the regular looks remain: for tests,
/// and for file systems where watching costs and says nothing.
pub const WATCH_SWITCH: &str = "ASKD_WATCH";
/// The largest request file, in bytes.
pub const MAX_REQUEST_BYTES: usize = 512 * 1024;
/// The group whose folder is used on a host without containers.
pub const HOST_GROUP: &str = "default";

/// The name under which a waiter looks for its response, and the agent for a briefing, which has the id of its ask.
pub fn response_name(request_id: &impl Display) -> String {
    format!("{request_id}.json")
}

/// The name of a response that is synced but not published. Only the daemon reads it.
pub fn unpublished_name(request_id: &RequestId) -> String {
    format!(".new-{request_id}")
}

/// How the name of a response begins that its waiter is taking.
pub const TAKEN: &str = ".taken-";

/// The name of a response that its waiter is taking.
pub fn taken_name(request_id: &impl Display) -> String {
    format!("{TAKEN}{request_id}.json")
}

/// The name of a response that was put out of its waiter's reach.
pub fn withdrawn_name(request_id: &impl Display) -> String {
    format!(".withdrawn-{request_id}.json")
}

/// The name of the file that says where an undecided ask is.
pub fn status_name(request_id: &RequestId) -> String {
    format!("{request_id}.status")
}

/// The folder in `tasks/` in which each waiting process keeps touching a file of its own, named by its id.
pub const ALIVE: &str = ".alive";

/// Where a waiting process touches a file in `tasks/` itself: the only place that earlier clients and daemons know.
pub fn alive_name(process: &str) -> String {
    format!(".alive-{process}")
}

/// Whether this is the name of a whole JSON file. Other names belong to temporary files.
pub fn is_json_file(name: &str) -> bool {
    !name.starts_with('.') && Path::new(name).extension().is_some_and(|extension| extension == "json")
}

/// There is no place to keep anything.
#[derive(Debug, thiserror::Error)]
#[error(
    "no data folder: neither HOME nor XDG_STATE_HOME is set. Set one of them, or data_dir in the settings \
     (environment: ASKD__DATA_DIR=/path)"
)]
pub struct NoDataDir;

/// Where askd keeps its files when no setting says so: `$XDG_STATE_HOME/askd`, else `~/.local/state/askd`.
pub fn default_data_dir(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, NoDataDir> {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_STATE_HOME")
        .map(|state| state.join("askd"))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/askd")))
        .ok_or(NoDataDir)
}
