//! The agent's side: write a request, wait for its response, take it, tidy up. Section 8 of the
//! specification.
//!
//! It touches nothing but its own files, and trusts nothing but the folder: a watch only makes it
//! look sooner. The daemon owns the deadline; the waiter follows `.status`.

use crate::ask::{RequestId, Time};
use crate::clock::Clock;
use crate::ipc::files::{Access, Dir, ReadError};
use crate::ipc::watch::Watch;
use crate::ipc::wire::{Draft, Kinds, RequestFile, ResponseFile, StatusFile, time_from};
use crate::ipc::{
    HOST_GROUP, MAX_REQUEST_BYTES, RESPONSES, TASKS, default_data_dir, response_name, status_name, taken_name,
};
use crate::random;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Where a container's folder is.
const CONTAINER_IPC: &str = "/workspace/ipc";
/// How often the folder is looked at without any event: for file systems that have none.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The same where no watch is to be had.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
/// How long after its own deadline the daemon may stay silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same without a known deadline, beside twice the timeout.
const BLIND_PATIENCE: Duration = Duration::from_secs(600);
/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
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
    let named = named.map(Path::to_owned).or_else(|| variable("ASKD_IPC_DIR").map(PathBuf::from));
    if let Some(path) = named {
        return Folder::open(&path);
    }
    if Path::new(CONTAINER_IPC).is_dir() {
        return Folder::open(Path::new(CONTAINER_IPC));
    }
    let data = match variable("ASKD__DATA_DIR").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => default_data_dir(variable).map_err(|error| AgentError::NoFolder(error.to_string()))?,
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
        self.tasks.replace(&temporary, name, bytes, SHARED).map_err(|error| AgentError::Folder {
            path: self.path.join(TASKS).display().to_string(),
            error,
            mend: "The folder has to be writable for this user".to_owned(),
        })
    }
}

/// How waiting ended.
#[derive(Debug)]
pub enum Waited {
    /// With a response; it stays `.taken-` until [`Taken::done`].
    Taken(Box<Taken>),
    /// Nobody claimed the request in time; it was taken back, nobody will be asked.
    NotClaimed,
    /// The daemon is silent long after the deadline.
    HostSilent,
}

/// A response on its way to whoever asked.
#[derive(Debug)]
pub struct Taken {
    /// What came of the ask.
    pub response: ResponseFile,
    responses: Dir,
    name: String,
}

impl Taken {
    /// It was handed over: nothing is left behind.
    pub fn done(self) -> io::Result<()> {
        self.responses.remove(&self.name).map(drop)
    }
}

/// One waiting call.
#[derive(Debug)]
pub struct Waiter {
    folder: Folder,
    request_id: RequestId,
    clock: Clock,
    render_timeout: Duration,
    timeout: Duration,
    wake: Arc<Notify>,
    watch: Watch,
}

/// What is asked, beside its questions.
#[derive(Debug, Clone)]
pub struct Asking {
    /// The request; its id and kind are filled in here.
    pub file: RequestFile,
    /// How long the daemon has to claim it.
    pub render_timeout: Duration,
    /// What the daemon takes as timeout if it says nothing else.
    pub timeout: Duration,
}

impl Waiter {
    /// Writes the request. Watching starts before, so that no answer is missed.
    pub fn ask(folder: Folder, mut asking: Asking, clock: Clock) -> Result<Self, AgentError> {
        let wake = Arc::new(Notify::new());
        let woken = Arc::clone(&wake);
        let mut watch = Watch::new(move |_| woken.notify_one());
        watch.add(&folder.path.join(RESPONSES));
        let request_id: RequestId =
            random::unique().parse().map_err(|error| AgentError::NoFolder(format!("{error}")))?;
        Kinds::ASK.clone_into(&mut asking.file.kind);
        asking.file.request_id = request_id.to_string();
        let bytes = serde_json::to_vec_pretty(&asking.file).unwrap_or_default();
        folder.put(&format!("{request_id}.json"), &bytes)?;
        Ok(Self {
            folder,
            request_id,
            clock,
            render_timeout: asking.render_timeout,
            timeout: asking.timeout,
            wake,
            watch,
        })
    }

    /// Names the response.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// When the daemon will give up, if it has said so.
    #[must_use]
    pub fn answer_by(&self) -> Option<Time> {
        let (bytes, _) = self.folder.responses.read(&status_name(&self.request_id), MAX_RESPONSE_BYTES).ok()?;
        let status: StatusFile = serde_json::from_slice(&bytes).ok()?;
        time_from(&status.answer_by?)
    }

    /// Waits for the outcome.
    pub async fn wait(&self) -> Result<Waited, AgentError> {
        let asked_at = self.clock.now();
        let mut claimed_at = None;
        loop {
            if let Some(taken) = self.take()? {
                return Ok(Waited::Taken(Box::new(taken)));
            }
            let now = self.clock.now();
            if claimed_at.is_none() && !self.is_waiting_to_be_claimed()? {
                claimed_at = Some(now);
            }
            let give_up = match claimed_at {
                None => asked_at + self.render_timeout,
                Some(claimed_at) => match self.answer_by() {
                    Some(answer_by) => answer_by + PATIENCE,
                    None => claimed_at + self.timeout * 2 + BLIND_PATIENCE,
                },
            };
            if now >= give_up {
                match claimed_at {
                    Some(_) => return Ok(Waited::HostSilent),
                    // If it is gone now, it was claimed in this very moment: go on waiting.
                    None if self.take_back()? => return Ok(Waited::NotClaimed),
                    None => continue,
                }
            }
            let look_every = if self.watch.is_on() { LOOK_EVERY } else { LOOK_OFTEN };
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.clock.sleep_until(give_up.min(now + look_every)) => {}
            }
        }
    }

    fn error(&self, folder: &str, error: io::Error) -> AgentError {
        AgentError::Folder {
            path: self.folder.path.join(folder).display().to_string(),
            error,
            mend: "The folder has to be there, readable and writable".to_owned(),
        }
    }

    fn is_waiting_to_be_claimed(&self) -> Result<bool, AgentError> {
        let name = format!("{}.json", self.request_id);
        self.folder.tasks.look(&name).map(|stamp| stamp.is_some()).map_err(|error| self.error(TASKS, error))
    }

    fn take_back(&self) -> Result<bool, AgentError> {
        let name = format!("{}.json", self.request_id);
        self.folder.tasks.remove(&name).map_err(|error| self.error(TASKS, error))
    }

    /// Takes the response, if it is there: a name of our own first, so that nobody thinks it waits.
    fn take(&self) -> Result<Option<Taken>, AgentError> {
        let (name, taken) = (response_name(&self.request_id), taken_name(&self.request_id));
        let responses = &self.folder.responses;
        let bytes = match responses.read(&name, MAX_RESPONSE_BYTES) {
            Ok((bytes, _)) => bytes,
            Err(ReadError::Gone) => return Ok(None),
            Err(error) => return Err(self.error(RESPONSES, io::Error::other(error))),
        };
        // A host that writes in place may be half-way: it is read again, never deleted.
        let Ok(response) = serde_json::from_slice::<ResponseFile>(&bytes) else { return Ok(None) };
        match responses.rename(&name, &taken) {
            Ok(()) => {
                let responses =
                    Dir::open(&self.folder.path.join(RESPONSES)).map_err(|error| self.error(RESPONSES, error))?;
                Ok(Some(Taken { response, responses, name: taken }))
            }
            // Withdrawn by the daemon in this very moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(RESPONSES, error)),
        }
    }

    /// Withdraws the request: takes it back, or tells the daemon that nobody waits any more.
    pub fn withdraw(&self) -> Result<(), AgentError> {
        if self.take_back()? {
            return Ok(());
        }
        let cancel = RequestFile {
            kind: Kinds::CANCEL.to_owned(),
            request_id: self.request_id.to_string(),
            ..RequestFile::default()
        };
        let bytes = serde_json::to_vec_pretty(&cancel).unwrap_or_default();
        self.folder.put(&format!("cancel-{}.json", self.request_id), &bytes)
    }
}

/// One question as `askd ask` has it.
#[must_use]
pub fn question(text: &str) -> Draft {
    Draft { question: text.to_owned(), ..Draft::default() }
}
