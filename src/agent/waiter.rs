//! One waiting call: its request in `tasks/`, its response in `responses/`, and how long to be
//! patient. [`Waiter::look`] is all it does; who looks, and when, is decided by the caller.

use super::process::{Process, lock};
use super::{AgentError, Folder};
use crate::ask::{RequestId, Time};
use crate::clock::Clock;
use crate::ipc::files::ReadError;
use crate::ipc::wire::{Kinds, RequestFile, ResponseFile, StatusFile, time_from};
use crate::ipc::{RESPONSES, TASKS, response_name, status_name, taken_name};
use crate::random;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long after its own deadline the daemon may stay silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same without a known deadline, beside twice the timeout.
const BLIND_PATIENCE: Duration = Duration::from_secs(600);
/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// What is asked, beside its questions.
#[derive(Debug, Clone)]
pub struct Asking {
    /// The request; its id, kind and process are filled in here.
    pub file: RequestFile,
    /// How long the daemon has to claim it.
    pub render_timeout: Duration,
    /// What the daemon takes as timeout if it says nothing else.
    pub timeout: Duration,
}

/// What a look has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing yet; at this moment it is time to give up.
    Waiting(Instant),
    /// A whole response is there, and stays until it is taken.
    Ready,
    /// Nobody claimed the request in time; it was taken back, nobody will be asked.
    NotClaimed,
    /// The daemon is silent long after the deadline.
    HostSilent,
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
    folder: Arc<Folder>,
    request_id: RequestId,
}

impl Taken {
    /// It was handed over: nothing is left behind.
    pub fn done(self) -> io::Result<()> {
        self.folder.responses.remove(&taken_name(&self.request_id)).map(drop)
    }

    /// It could not be handed over: it waits again, as if it had not been touched.
    pub fn put_back(self) -> io::Result<()> {
        self.folder.responses.rename(&taken_name(&self.request_id), &response_name(&self.request_id))
    }
}

/// One waiting call.
#[derive(Debug)]
pub struct Waiter {
    folder: Arc<Folder>,
    process: Arc<Process>,
    request_id: RequestId,
    clock: Clock,
    render_timeout: Duration,
    timeout: Duration,
    asked: Instant,
    seen: Mutex<Seen>,
}

/// What the folder has shown so far. Durations are measured by a clock that nobody sets.
#[derive(Debug, Default)]
struct Seen {
    claimed: Option<Instant>,
    /// The daemon's deadline, and the moment at which it will have passed as it looked when first read.
    deadline: Option<(Time, Instant)>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.process.end(&self.folder, &self.request_id);
    }
}

impl Waiter {
    /// Writes the request. Watching and the sign of life start before, so that no answer is missed.
    pub fn ask(
        folder: Arc<Folder>,
        mut asking: Asking,
        clock: Clock,
        process: &Arc<Process>,
    ) -> Result<Self, AgentError> {
        let request_id: RequestId =
            random::unique().parse().map_err(|error| AgentError::NoFolder(format!("{error}")))?;
        Kinds::ASK.clone_into(&mut asking.file.kind);
        asking.file.request_id = request_id.to_string();
        asking.file.process = Some(process.name().to_owned());
        process.begin(&folder, &request_id);
        let waiter = Self {
            folder,
            process: Arc::clone(process),
            request_id,
            clock,
            render_timeout: asking.render_timeout,
            timeout: asking.timeout,
            asked: Instant::now(),
            seen: Mutex::default(),
        };
        let bytes = serde_json::to_vec_pretty(&asking.file).unwrap_or_default();
        waiter.folder.put(&waiter.request_name(), &bytes)?;
        Ok(waiter)
    }

    /// Names the response.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Whether the daemon has taken the request.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        lock(&self.seen).claimed.is_some()
    }

    /// When the daemon will give up, if it has said so.
    #[must_use]
    pub fn answer_by(&self) -> Option<Time> {
        let (bytes, _) = self.folder.responses.read(&status_name(&self.request_id), MAX_RESPONSE_BYTES).ok()?;
        let status: StatusFile = serde_json::from_slice(&bytes).ok()?;
        time_from(&status.answer_by?)
    }

    /// Waits for the outcome and takes it.
    pub async fn wait(&self) -> Result<Waited, AgentError> {
        loop {
            self.beat();
            let give_up = match self.look()? {
                Look::Waiting(give_up) => give_up,
                Look::Ready => match self.take()? {
                    Some(taken) => return Ok(Waited::Taken(Box::new(taken))),
                    None => continue,
                },
                Look::NotClaimed => return Ok(Waited::NotClaimed),
                Look::HostSilent => return Ok(Waited::HostSilent),
            };
            tokio::select! {
                () = self.process.woken() => {}
                () = tokio::time::sleep_until(give_up.min(Instant::now() + self.process.look_every())) => {}
            }
        }
    }

    /// Says that the process that waits for this lives.
    pub fn beat(&self) {
        self.process.beat(&self.folder);
    }

    /// Looks into the folder, without taking anything but a request that nobody wants.
    pub fn look(&self) -> Result<Look, AgentError> {
        if self.read()?.is_some() {
            self.claimed();
            return Ok(Look::Ready);
        }
        let now = Instant::now();
        if !self.is_claimed() && !self.is_waiting_to_be_claimed()? {
            self.claimed();
        }
        let Some(claimed) = lock(&self.seen).claimed else {
            let give_up = self.asked + self.render_timeout;
            if now < give_up {
                return Ok(Look::Waiting(give_up));
            }
            if self.take_back()? {
                return Ok(Look::NotClaimed);
            }
            // It was claimed in this very moment: go on waiting.
            self.claimed();
            return Ok(Look::Waiting(now + self.timeout));
        };
        let give_up = self.give_up(claimed, now);
        Ok(if now >= give_up { Look::HostSilent } else { Look::Waiting(give_up) })
    }

    fn claimed(&self) {
        lock(&self.seen).claimed.get_or_insert_with(Instant::now);
    }

    /// When patience ends. The daemon's deadline is a time of day, and those are set forward and back:
    /// so it has to have passed both by the clock on the wall and by one that only runs, and a clock set
    /// back makes nobody wait longer than without a deadline.
    fn give_up(&self, claimed: Instant, now: Instant) -> Instant {
        let blind = claimed + self.timeout * 2 + BLIND_PATIENCE;
        let Some(answer_by) = self.answer_by() else { return blind };
        let left = answer_by.since(self.clock.now());
        let mut seen = lock(&self.seen);
        let passes = match seen.deadline {
            Some((known, passes)) if known == answer_by => passes,
            _ => now + left,
        };
        seen.deadline = Some((answer_by, passes));
        let most = passes + self.timeout + BLIND_PATIENCE;
        (passes.max(now + left) + PATIENCE).min(most)
    }

    fn request_name(&self) -> String {
        format!("{}.json", self.request_id)
    }

    fn error(&self, folder: &str, error: io::Error) -> AgentError {
        AgentError::Folder {
            path: self.folder.path.join(folder).display().to_string(),
            error,
            mend: "The folder has to be there, readable and writable".to_owned(),
        }
    }

    fn is_waiting_to_be_claimed(&self) -> Result<bool, AgentError> {
        let there = self.folder.tasks.look(&self.request_name());
        there.map(|stamp| stamp.is_some()).map_err(|error| self.error(TASKS, error))
    }

    fn take_back(&self) -> Result<bool, AgentError> {
        self.folder.tasks.remove(&self.request_name()).map_err(|error| self.error(TASKS, error))
    }

    /// The response, if it is there and whole. A host that writes in place may be half-way: what is
    /// not whole is read again, never deleted.
    fn read(&self) -> Result<Option<ResponseFile>, AgentError> {
        match self.folder.responses.read(&response_name(&self.request_id), MAX_RESPONSE_BYTES) {
            Ok((bytes, _)) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(ReadError::Gone) => Ok(None),
            Err(error) => Err(self.error(RESPONSES, io::Error::other(error))),
        }
    }

    /// Takes the response, if it is there: a name of our own first, so that nobody thinks it waits.
    pub fn take(&self) -> Result<Option<Taken>, AgentError> {
        let Some(response) = self.read()? else { return Ok(None) };
        match self.folder.responses.rename(&response_name(&self.request_id), &taken_name(&self.request_id)) {
            Ok(()) => {
                let (folder, request_id) = (Arc::clone(&self.folder), self.request_id.clone());
                Ok(Some(Taken { response, folder, request_id }))
            }
            // Withdrawn by the daemon in this very moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(RESPONSES, error)),
        }
    }

    /// Withdraws the request: takes it back (`true`), or tells the daemon that nobody waits any more.
    pub fn withdraw(&self) -> Result<bool, AgentError> {
        if self.take_back()? {
            return Ok(true);
        }
        let cancel = RequestFile {
            kind: Kinds::CANCEL.to_owned(),
            request_id: self.request_id.to_string(),
            ..RequestFile::default()
        };
        let bytes = serde_json::to_vec_pretty(&cancel).unwrap_or_default();
        self.folder.put(&format!("cancel-{}.json", self.request_id), &bytes)?;
        Ok(false)
    }

    /// The process goes, the question stays: see [`Process::leave`].
    pub fn leave(&self) {
        self.process.leave();
    }
}
