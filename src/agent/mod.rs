//! The agent's side: write a request, wait for its response, take it, tidy up. Section 8 of the
//! specification.
//!
//! It touches nothing but its own files, and trusts nothing but the folder: a watch only makes it
//! look sooner. The daemon owns the deadline; the waiter follows `.status`. Rooms: the folder (here),
//! one waiting call (`waiter`), the watch and the sign of life of a process (`process`), the MCP server
//! that holds many calls (`mcp`), and what was answered while nobody waited (`briefing`). `askd ask`,
//! `askd mcp` and `askd briefing` call it, and the demo's agent.

mod briefing;
pub mod mcp;
mod process;
mod waiter;

pub use briefing::{Briefing, Briefings, Found};
pub use process::Process;
pub use waiter::{Asking, Look, Taken, Waited, Waiter};

use crate::ipc::files::{Access, Dir, Stamp};
use crate::ipc::wire::Draft;
use crate::ipc::{HOST_GROUP, MAX_REQUEST_BYTES, RESPONSES, TASKS, default_data_dir};
use crate::random;
use std::io;
use std::path::{Path, PathBuf};

/// Where a container's folder is.
const CONTAINER_IPC: &str = "/workspace/ipc";
/// For the host's own folder: what the daemon would have made.
const OWN_FOLDER: Access = Access { dir_mode: 0o770, gid: None };
/// For request files: the daemon may be another user without a group in common. Who gets at them
/// is for the folder's mode to say.
const SHARED: Access = Access { dir_mode: 0o777, gid: None };

/// What is wrong with the agent's folder, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no folder.
    #[error("no folder to ask through: {0}")]
    NoFolder(String),
    /// The folder cannot be used.
    #[error("{path}: {error}. {mend}")]
    Folder {
        /// Which.
        path: String,
        /// What came of it.
        error: io::Error,
        /// What to do.
        mend: String,
    },
    /// The request is larger than the daemon reads.
    #[error("the request has {0} bytes; at most {MAX_REQUEST_BYTES} are possible")]
    TooLarge(usize),
}

/// The folder of one group, as an agent sees it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    tasks: Dir,
    responses: Dir,
}

/// Finds the folder: named, else `ASKD_IPC_DIR`, else the container's, else this host's own.
pub fn find(named: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Result<Folder, AgentError> {
    let set = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = named.map(Path::to_owned).or_else(|| set("ASKD_IPC_DIR"));
    if let Some(path) = named {
        return Folder::open(&path);
    }
    if Path::new(CONTAINER_IPC).is_dir() {
        return Folder::open(Path::new(CONTAINER_IPC));
    }
    let data = match set("ASKD__DATA_DIR") {
        Some(path) => path,
        None => default_data_dir(&variable).map_err(|error| AgentError::NoFolder(error.to_string()))?,
    };
    let ipc = data.join("ipc");
    let path = ipc.join(HOST_GROUP);
    let at = |error: io::Error| AgentError::Folder {
        path: path.display().to_string(),
        error,
        mend: "Start the daemon with `askd serve`, or name another folder with --ipc or ASKD_IPC_DIR".to_owned(),
    };
    std::fs::create_dir_all(&ipc).map_err(at)?;
    let group = Dir::open(&ipc).and_then(|ipc| ipc.ensure(HOST_GROUP, OWN_FOLDER)).map_err(at)?;
    [TASKS, RESPONSES].iter().try_for_each(|name| group.ensure(name, OWN_FOLDER).map(drop)).map_err(at)?;
    Folder::open(&path)
}

impl Folder {
    /// Opens a group's folder: the one that holds `tasks/` and `responses/`.
    pub fn open(path: &Path) -> Result<Self, AgentError> {
        let sub = |name: &str| {
            Dir::open(&path.join(name)).map_err(|error| AgentError::Folder {
                path: path.join(name).display().to_string(),
                mend: match error.kind() {
                    io::ErrorKind::NotFound => {
                        "It has to be a group's folder that askd shares: mount it, or name it with --ipc or \
                         ASKD_IPC_DIR"
                            .to_owned()
                    }
                    _ => "Its owner, group or mode keeps this user out; see `gid` and `dir_mode` in askd's settings"
                        .to_owned(),
                },
                error,
            })
        };
        Ok(Self { path: path.to_owned(), tasks: sub(TASKS)?, responses: sub(RESPONSES)? })
    }

    /// Whether it is still what its path leads to. Nothing is opened: that would wake whoever watches it.
    fn is_current(&self) -> bool {
        let same = |name: &str, dir: &Dir| {
            let now = Stamp::at(&self.path.join(name));
            now.is_ok_and(|now| dir.stamp().is_ok_and(|held| held.same_file(&now)))
        };
        same(TASKS, &self.tasks) && same(RESPONSES, &self.responses)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), AgentError> {
        if bytes.len() > MAX_REQUEST_BYTES {
            return Err(AgentError::TooLarge(bytes.len()));
        }
        let temporary = format!(".tmp-{}", random::unique());
        // Not synced: a crash of the machine takes whoever waits for it with it. It is claimed, or it is not.
        self.tasks.place(&temporary, name, bytes, SHARED).map_err(|error| AgentError::Folder {
            path: self.path.join(TASKS).display().to_string(),
            error,
            mend: "The folder has to be writable for this user".to_owned(),
        })
    }
}

/// One question as `askd ask` has it.
#[must_use]
pub fn question(text: &str) -> Draft {
    Draft { question: text.to_owned(), ..Draft::default() }
}
