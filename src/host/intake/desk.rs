//! One group's requests: telling them from other people's files, claiming them, handing them to the
//! broker, and only then deleting them. Sections 3 and 4 of the specification.

use crate::ask::{Group, Rejection, RequestId};
use crate::clock::Clock;
use crate::host::broker::{Broker, Submitted};
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::ipc::files::{Dir, ReadError, Stamp};
use crate::ipc::wire::{self, Kinds, Message, Peek};
use crate::ipc::{MAX_REQUEST_BYTES, TASKS, is_json_file};
use crate::random;
use crate::sabotage::crash_point;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// A file that cannot be read yet is whole, or never will be, when it was left alone for this long.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a request waits that could not be stored.
const HOLD: Duration = Duration::from_secs(2);
/// What claimed requests are called: nobody else looks at them.
const CLAIMED: &str = ".claimed-";

/// One group's requests.
#[derive(Debug)]
pub(super) struct Desk {
    group: Group,
    broker: Broker,
    folders: Folders,
    clock: Clock,
    /// Held while looking. What is known of files that stay.
    seen: Mutex<Option<HashMap<String, Seen>>>,
    again: AtomicBool,
}

/// A file that is still there.
#[derive(Debug, Clone)]
struct Seen {
    stamp: Stamp,
    since: crate::ask::Time,
    /// Nothing of ours, as long as it is not changed.
    done: bool,
    /// Could not be stored: not to be tried again before this.
    hold: Option<crate::ask::Time>,
}

/// A request, in the order in which requests are taken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Asks before cancels.
    cancel: bool,
    /// Oldest first.
    modified: (i64, u64),
    name: String,
}

/// What a claimed file turned out to be.
enum Claimed {
    /// A request of ours, or what is wrong with it.
    Ours(Result<Message, Rejection>, Peek, Vec<u8>),
    /// Not there any more, or not ours after all.
    NotOurs,
}

impl Desk {
    pub(super) fn new(group: Group, broker: Broker, folders: Folders, clock: Clock) -> Self {
        Self { group, broker, folders, clock, seen: Mutex::new(None), again: AtomicBool::new(false) }
    }

    /// Looks at the folder; if somebody is looking already, they look once more.
    pub(super) async fn look(self: Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            let Ok(mut seen) = self.seen.try_lock() else { return };
            while self.again.swap(false, Ordering::SeqCst) {
                self.sweep(&mut seen).await;
            }
        }
    }

    async fn sweep(self: &Arc<Self>, seen: &mut Option<HashMap<String, Seen>>) {
        let (desk, known) = (Arc::clone(self), seen.take());
        let listed = tokio::task::spawn_blocking(move || {
            // Before anything else: what was claimed by a daemon that is no more.
            let leftovers = known.is_none();
            let mut known = known.unwrap_or_default();
            (desk.list(&mut known, leftovers), known)
        });
        let Ok((listed, known)) = listed.await else { return };
        let known = seen.insert(known);
        match listed {
            Ok(candidates) => {
                for candidate in candidates {
                    if !self.take(&candidate.name).await
                        && let Some(seen) = known.get_mut(&candidate.name)
                    {
                        seen.hold = Some(self.clock.now() + HOLD);
                    }
                }
            }
            // Said with how to mend it by whoever looks after the folders.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => tracing::error!(group = %self.group, %error, "cannot read a tasks folder"),
        }
    }

    /// The requests that are there, in order. Blocks on the disk.
    fn list(&self, known: &mut HashMap<String, Seen>, leftovers: bool) -> io::Result<Vec<Candidate>> {
        let tasks = self.folders.get(&self.group, TASKS)?;
        let names = tasks.names()?;
        let still: HashSet<&String> = names.iter().collect();
        known.retain(|name, _| still.contains(name));
        let mut candidates = Vec::new();
        for name in &names {
            let leftover = leftovers && name.starts_with(CLAIMED);
            if leftover || is_json_file(name) {
                candidates.extend(self.judge(&tasks, name, known)?);
            }
        }
        candidates.sort();
        Ok(candidates)
    }

    /// Whether a file is a request of ours that can be taken now.
    fn judge(&self, tasks: &Dir, name: &str, known: &mut HashMap<String, Seen>) -> io::Result<Option<Candidate>> {
        let Some(stamp) = tasks.look(name)? else { return Ok(None) };
        let now = self.clock.now();
        let seen = known.entry(name.to_owned()).or_insert(Seen { stamp, since: now, done: false, hold: None });
        if seen.stamp != stamp {
            *seen = Seen { stamp, since: now, done: false, hold: seen.hold };
        }
        if seen.done || seen.hold.is_some_and(|until| until > now) {
            return Ok(None);
        }
        let (bytes, stamp) = match tasks.read(name, MAX_REQUEST_BYTES) {
            Ok(read) => read,
            Err(ReadError::Gone) => return Ok(None),
            Err(error) => {
                seen.done = true;
                tracing::warn!(group = %self.group, file = name, why = %error, "a file in tasks/ was left alone");
                return Ok(None);
            }
        };
        let peek = wire::peek(&bytes);
        let settled = now.since(seen.since) >= SETTLE;
        match &peek.kind {
            Some(kind) if !kind.starts_with(Kinds::PREFIX) => {
                seen.done = true;
                Ok(None)
            }
            Some(_) if peek.torn && !settled => Ok(None),
            Some(kind) => {
                let cancel = kind == Kinds::CANCEL;
                Ok(Some(Candidate { cancel, modified: stamp.modified(), name: name.to_owned() }))
            }
            None if settled => {
                seen.done = true;
                tracing::warn!(group = %self.group, file = name, "a file in tasks/ has no readable \"type\"; it was left alone");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Claims a request, hands it on and deletes it; `false` if it has to be tried again.
    async fn take(self: &Arc<Self>, name: &str) -> bool {
        let leftover = name.starts_with(CLAIMED);
        let claimed = if leftover { name.to_owned() } else { format!("{CLAIMED}{}.json", random::unique()) };
        let (desk, from, to) = (Arc::clone(self), name.to_owned(), claimed.clone());
        let read = tokio::task::spawn_blocking(move || desk.claim(&from, &to)).await;
        let (message, peek, bytes) = match read.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(Claimed::Ours(message, peek, bytes)) => (message, peek, bytes),
            Ok(Claimed::NotOurs) => return true,
            Err(error) => {
                tracing::error!(group = %self.group, file = name, %error, "a request could not be claimed; trying again");
                return false;
            }
        };
        let settled = match message {
            Ok(Message::Ask(request)) => self.submit(*request, bytes, name).await,
            Ok(Message::Cancel(cancel)) => self.broker.withdraw(&self.group, &cancel.request_id).await.is_ok(),
            Err(rejection) => {
                let request_id = peek.request_id.filter(|id| !self.broker.knows(&self.group, id));
                self.reject(request_id, None, rejection, Some((name, bytes))).await
            }
        };
        let (desk, name) = (Arc::clone(self), name.to_owned());
        let finish = move || {
            let tasks = desk.folders.get(&desk.group, TASKS)?;
            if settled {
                tasks.remove(&claimed).map(drop)
            } else if leftover {
                Ok(())
            } else {
                // Nobody else took it: it goes back to where it was.
                tasks.rename(&claimed, &name)
            }
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(finish).await {
            tracing::error!(group = %self.group, %error, "a claimed request could not be deleted");
        }
        settled
    }

    /// Renames a request to a name of ours and reads it. From here on only what was read counts.
    fn claim(&self, from: &str, to: &str) -> io::Result<Claimed> {
        let tasks = self.folders.get(&self.group, TASKS)?;
        if from != to {
            match tasks.rename(from, to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claimed::NotOurs),
                other => other?,
            }
        }
        crash_point("accept.claimed");
        let read = tasks.read(to, MAX_REQUEST_BYTES).map_err(io::Error::other);
        let (bytes, peek) = match read {
            Ok((bytes, _)) => {
                let peek = wire::peek(&bytes);
                (bytes, peek)
            }
            Err(error) => {
                tasks.rename(to, from)?;
                return Err(error);
            }
        };
        if !peek.kind.as_ref().is_some_and(|kind| kind.starts_with(Kinds::PREFIX)) {
            // It was replaced between the look and the claim.
            tasks.rename(to, from)?;
            return Ok(Claimed::NotOurs);
        }
        Ok(Claimed::Ours(wire::read(&bytes), peek, bytes))
    }

    async fn submit(self: &Arc<Self>, request: wire::Request, bytes: Vec<u8>, name: &str) -> bool {
        let (request_id, op_code) = (request.request_id.clone(), request.op_code.clone());
        match self.broker.submit(&self.group, request).await {
            Submitted::New(_) | Submitted::Joined(_) | Submitted::Known(_) => true,
            Submitted::NotStored => false,
            Submitted::Rejected(rejection) => self.reject(Some(request_id), op_code, rejection, None).await,
            Submitted::OtherContent => {
                let why = "this request_id stands for another request already; nobody is answered".to_owned();
                let rejection = Rejection::Wrong { field: "request_id".to_owned(), why };
                self.reject(None, None, rejection, Some((name, bytes))).await
            }
        }
    }

    /// Tells the agent, if it can be told, keeps what was malformed, and says so in the log.
    async fn reject(
        self: &Arc<Self>,
        request_id: Option<RequestId>,
        op_code: Option<String>,
        rejection: Rejection,
        keep: Option<(&str, Vec<u8>)>,
    ) -> bool {
        let file = keep.as_ref().map(|(name, _)| (*name).to_owned());
        tracing::warn!(
            group = %self.group, request_id = request_id.as_ref().map(tracing::field::display), file,
            reason = %rejection, "Request rejected"
        );
        let desk = Arc::clone(self);
        let bytes = keep.map(|(_, bytes)| bytes);
        let tell = move || -> io::Result<()> {
            if let Some(bytes) = bytes {
                let name = format!("{:013}-{}.json", desk.clock.now().as_millis(), random::unique());
                desk.broker.keep_rejected(&desk.group, &name, &bytes).map_err(io::Error::other)?;
            }
            match &request_id {
                Some(request_id) => {
                    let response = wire::refused(request_id, op_code, &rejection);
                    delivery::write_at_once(&desk.folders, &desk.group, &response)
                }
                None => Ok(()),
            }
        };
        match tokio::task::spawn_blocking(tell).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(group = %self.group, %error, "a rejection could not be written; trying again");
                false
            }
            Err(_) => false,
        }
    }
}
