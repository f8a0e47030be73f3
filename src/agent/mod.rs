//! The agent's side: write a request, wait for its response, take it, tidy up. Section 8 of the
//! specification.
//!
//! It touches nothing but its own files, and trusts nothing but the folder: a watch only makes it
//! look sooner. The daemon owns the deadline; the waiter follows `.status`. Rooms: the folder (here),
//! one waiting call (`waiter`, with the daemon's `deadline`), the watch and the signs of life of a process (`process`),
//! the same over HTTP for an agent without a folder (`connection`, `remote`), which of the two it is (`way`), the MCP server that holds many calls (`mcp`), and the answers that came while no agent waited (`briefing`).
//! `askd ask`, `askd mcp` and `askd briefing` call it, and the demo's agent.

mod briefing;
#[cfg(feature = "remote")]
mod connection;
mod deadline;
pub mod mcp;
mod process;
#[cfg(feature = "remote")]
mod remote;
mod waiter;
mod way;

pub use briefing::{Briefing, Briefings, Found};
#[cfg(feature = "remote")]
pub use connection::Connection;
pub use waiter::Look;
pub use way::{OpenCall, Taken, Way, url};

use crate::ipc::files::{Access, Dir, Stamp};
use crate::ipc::wire::RequestFile;
use crate::ipc::{ALIVE, HOST_GROUP, MAX_REQUEST_BYTES, RESPONSES, TASKS, default_data_dir};
use crate::random;
use askd_core::wording;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a container's folder is.
const CONTAINER_IPC: &str = "/workspace/ipc";
/// For the host's own folder: what the daemon would have made.
const OWN_FOLDER: Access = Access { dir_mode: 0o770, gid: None };
/// For what the daemon reads: it may run as another user, without a group in common. The mode of the folder around it
/// decides who gets that far.
const SHARED: Access = Access { dir_mode: 0o777, gid: None };

/// What is wrong with the agent's folder, and what to do.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "what only HTTP has to say"))]
pub enum AgentError {
    /// There is no folder.
    #[error("no folder to ask through: {0}")]
    NoFolder(#[from] crate::ipc::NoDataDir),
    /// The folder cannot be used.
    #[error("{path}: {source}. {mend}")]
    Folder {
        /// Which.
        path: String,
        /// Why not.
        source: io::Error,
        /// What to do.
        mend: &'static str,
    },
    /// The daemon did not claim the request in time. The request was taken back, and no person will see it.
    #[error(
        "no daemon took the question from {place}; it was taken back. Is `askd serve` running, with this folder below its \
         data folder (ipc/<group>)?"
    )]
    NotClaimed {
        /// The folder.
        place: String,
    },
    /// The daemon is silent long after the deadline.
    #[error("{}", wording::HOST_SILENT)]
    HostSilent,
    /// The request is larger than the daemon reads.
    #[error("the request has {0} bytes; the limit is {MAX_REQUEST_BYTES}")]
    TooLarge(usize),
    /// The address, the token or the certificates for HTTP cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The token is refused.
    #[error(
        "askd at {url} refuses the token in {token}: it is wrong, revoked or expired, or not an agent's; `askd token new GROUP` on askd's host makes one"
    )]
    Refused {
        /// The address.
        url: String,
        /// The variable that the token came from, and its file.
        token: String,
    },
    /// No daemon took the question over HTTP in time, so that no person will see it.
    #[error("no askd took the question at {url} ({why}); ASKD_URL says where it is")]
    NotTaken {
        /// The address.
        url: String,
        /// What came instead.
        why: String,
    },
    /// A daemon may have taken the question over HTTP, and it could not be taken back.
    #[error(
        "it is not clear whether askd at {url} took the question ({why}), and it could not be withdrawn: a person may still see it"
    )]
    Unclear {
        /// The address.
        url: String,
        /// What came instead.
        why: String,
    },
    /// The daemon cannot be reached over HTTP.
    #[error("askd at {url} does not answer ({why}); ASKD_URL says where it is")]
    Away {
        /// The address.
        url: String,
        /// What came instead.
        why: String,
    },
    /// What the daemon says over HTTP of something that is not there for this process.
    #[error("{0}")]
    Gone(String),
    /// The request cannot be written as JSON.
    #[error("the request cannot be written as JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// What is wrong with the file or folder at `path`.
fn trouble(path: &Path, mend: &'static str, source: io::Error) -> AgentError {
    AgentError::Folder { path: path.display().to_string(), source, mend }
}

/// The folder of one group, as an agent sees it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    tasks: Dir,
    tasks_are: Stamp,
    responses: Dir,
    responses_are: Stamp,
    /// `tasks/.alive`; `None` if it can be neither made nor opened.
    alive: OnceLock<Option<Dir>>,
}

/// Finds the folder: `named`, else `ASKD_IPC_DIR`, else the container's, else this host's own.
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
        None => default_data_dir(&variable)?,
    };
    let ipc = data.join("ipc");
    let path = ipc.join(HOST_GROUP);
    let mend = "Start the daemon with `askd serve`, or name another folder with --ipc or ASKD_IPC_DIR";
    let make = || {
        std::fs::create_dir_all(&ipc)?;
        let group = Dir::open(&ipc)?.ensure(HOST_GROUP, OWN_FOLDER)?;
        [TASKS, RESPONSES].iter().try_for_each(|name| group.ensure(name, OWN_FOLDER).map(drop))
    };
    make().map_err(|error| trouble(&path, mend, error))?;
    Folder::open(&path)
}

impl Folder {
    /// Opens a group's folder: the one that holds `tasks/` and `responses/`.
    pub fn open(path: &Path) -> Result<Self, AgentError> {
        let sub = |name: &str| {
            let dir = Dir::open(&path.join(name)).and_then(|dir| Ok((dir.stamp()?, dir)));
            dir.map_err(|error| {
                let mend = match error.kind() {
                    // Somebody has made the folder, and no daemon has looked at it since.
                    io::ErrorKind::NotFound if name == RESPONSES => {
                        "askd makes it: start the daemon that serves this folder, or wait a moment and try again"
                    }
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                        "It must be the folder of an askd group: mount it, or name it with --ipc or ASKD_IPC_DIR"
                    }
                    _ => "Its owner, group or mode keeps this user out; see `gid` and `dir_mode` in askd's settings",
                };
                trouble(&path.join(name), mend, error)
            })
        };
        let ((tasks_are, tasks), (responses_are, responses)) = (sub(TASKS)?, sub(RESPONSES)?);
        Ok(Self { path: path.to_owned(), tasks, tasks_are, responses, responses_are, alive: OnceLock::new() })
    }

    /// Its two parts, each as it was opened and as it is now. Nothing is opened: the daemon's watch would hear of it.
    fn parts(&self) -> [(Stamp, io::Result<Stamp>); 2] {
        [(TASKS, self.tasks_are), (RESPONSES, self.responses_are)]
            .map(|(name, was)| (was, Stamp::at(&self.path.join(name))))
    }

    /// Whether it is still the folder that its path leads to.
    fn is_current(&self) -> bool {
        self.parts().iter().all(|(was, now)| now.as_ref().is_ok_and(|now| now.same_file(was)))
    }

    /// Whether it lacks a part, which the daemon makes again.
    fn lacks_a_part(&self) -> bool {
        self.path.exists()
            && self
                .parts()
                .iter()
                .any(|(_, now)| now.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
    }

    /// `tasks/.alive`, made if it was not there.
    fn alive(&self) -> Option<&Dir> {
        let make =
            || self.tasks.ensure(ALIVE, SHARED).inspect_err(|error| tracing::debug!(%error, "no {ALIVE} folder"));
        self.alive.get_or_init(|| make().ok()).as_ref()
    }

    fn put(&self, name: &str, request: &RequestFile) -> Result<(), AgentError> {
        let bytes = serde_json::to_vec_pretty(request)?;
        if bytes.len() > MAX_REQUEST_BYTES {
            return Err(AgentError::TooLarge(bytes.len()));
        }
        let temporary = format!(".tmp-{}", random::unique());
        // Not synced: if the machine crashes, the process that waits is gone, too.
        let placed = self.tasks.place(&temporary, name, &bytes, SHARED);
        placed.map_err(|error| trouble(&self.path.join(TASKS), "The folder must be writable for this user", error))
    }
}
