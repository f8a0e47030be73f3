//! One group's requests: telling them from other people's files, claiming them, handing them to the
//! broker, and only then deleting them. Sections 3 and 4 of the specification.

use super::Hints;
use crate::ask::{Group, Rejection, RequestId, wording};
use crate::host::broker::{Broker, Submitted};
use crate::host::ctx::Ctx;
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::ipc::files::{Dir, ReadError, Stamp};
use crate::ipc::wire::{self, Kinds, Message, Peek};
use crate::ipc::{MAX_REQUEST_BYTES, TASKS, alive_name, is_json_file};
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
/// What signs of life are called.
const ALIVE: &str = ".alive-";
/// How many signs of life are looked at in one group.
const MOST_LIVES: usize = 1_000;
/// How soon a request is taken again that has to wait for another process to be judged.
const SOON: Duration = Duration::from_millis(300);

/// One group's requests.
#[derive(Debug)]
pub(super) struct Desk {
    group: Group,
    broker: Broker,
    folders: Folders,
    ctx: Ctx,
    hints: Arc<Hints>,
    /// Held while looking. What is known of files that stay.
    seen: Mutex<HashMap<String, Seen>>,
    again: AtomicBool,
}

/// A file that is still there.
#[derive(Debug, Clone)]
struct Seen {
    stamp: Stamp,
    since: crate::ask::Time,
    /// Nothing of ours, as long as it is not changed.
    done: bool,
    /// It could not be read, and that was said.
    said: bool,
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

/// What is to be done about a file.
enum Judged {
    /// A request that can be taken.
    Take(Candidate),
    /// A request that is not whole yet, or could not be stored just now.
    Later,
    /// Nothing, or nothing yet.
    Leave,
}

/// What became of a request that was to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It is gone, and what came of it is stored.
    Done,
    /// Tried again after a while.
    Later,
    /// Tried again at the next look, which comes soon.
    Soon,
}

/// What a claimed file turned out to be.
enum Claimed {
    /// A request of ours, or what is wrong with it.
    Ours(Result<Message, Rejection>, Peek, Vec<u8>),
    /// Not there any more, or not ours after all.
    NotOurs,
}

impl Desk {
    pub(super) fn new(group: Group, broker: Broker, folders: Folders, ctx: Ctx, hints: Arc<Hints>) -> Self {
        Self { group, broker, folders, ctx, hints, seen: Mutex::default(), again: AtomicBool::new(false) }
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

    async fn sweep(self: &Arc<Self>, known: &mut HashMap<String, Seen>) {
        let (desk, mut seen) = (Arc::clone(self), std::mem::take(known));
        let listed = tokio::task::spawn_blocking(move || (desk.list(&mut seen), seen));
        let Ok((listed, seen)) = listed.await else { return };
        *known = seen;
        match listed {
            Ok(candidates) => {
                let mut all_taken = true;
                for candidate in candidates {
                    // It may be meant for one that could not be stored: another time.
                    if candidate.cancel && !all_taken {
                        continue;
                    }
                    let taken = self.take(&candidate.name).await;
                    all_taken &= taken == Taken::Done;
                    if taken == Taken::Later
                        && let Some(seen) = known.get_mut(&candidate.name)
                    {
                        seen.hold = Some(self.ctx.clock().now() + HOLD);
                    }
                }
            }
            // Said with how to mend it by whoever looks after the folders.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => tracing::error!(group = %self.group, %error, "cannot read a tasks folder"),
        }
    }

    /// The requests that are there, in order. Blocks on the disk.
    fn list(&self, known: &mut HashMap<String, Seen>) -> io::Result<Vec<Candidate>> {
        let tasks = self.folders.get(&self.group, TASKS)?;
        let names = tasks.names()?;
        let still: HashSet<&String> = names.iter().collect();
        known.retain(|name, _| still.contains(name));
        self.note_lives(&tasks, &names)?;
        let mut candidates = Vec::new();
        let mut later = false;
        for name in &names {
            // What is claimed while nobody works here was claimed by a daemon that is no more.
            if name.starts_with(CLAIMED) || is_json_file(name) {
                match self.judge(&tasks, name, known)? {
                    Judged::Take(candidate) => candidates.push(candidate),
                    Judged::Later => later = true,
                    Judged::Leave => {}
                }
            }
        }
        // A withdrawal may be meant for one of those that cannot be taken yet: it comes after them.
        candidates.retain(|candidate| !(later && candidate.cancel));
        candidates.sort();
        Ok(candidates)
    }

    /// Hands on the signs of life that lie among the requests, and removes those that are long past.
    fn note_lives(&self, tasks: &Dir, names: &[String]) -> io::Result<()> {
        let mut signs = Vec::new();
        let processes = names.iter().filter_map(|name| name.strip_prefix(ALIVE));
        // What no request can name says nothing; and there is no end of names that can be made up.
        let processes = processes.filter(|process| process.parse::<RequestId>().is_ok());
        for process in processes.take(MOST_LIVES) {
            if let Some(stamp) = tasks.look(&alive_name(process))? {
                signs.push((process.to_owned(), stamp));
            }
        }
        for process in self.broker.lives().note(&self.group, signs, self.ctx.clock().now()) {
            // A folder of that name, say: it is in nobody's way.
            let _untidy = tasks.remove(&alive_name(&process));
        }
        Ok(())
    }

    /// Whether a file is a request of ours that can be taken now.
    fn judge(&self, tasks: &Dir, name: &str, known: &mut HashMap<String, Seen>) -> io::Result<Judged> {
        let Some(stamp) = tasks.look(name)? else { return Ok(Judged::Leave) };
        let now = self.ctx.clock().now();
        let seen =
            known.entry(name.to_owned()).or_insert(Seen { stamp, since: now, done: false, said: false, hold: None });
        if seen.stamp != stamp {
            *seen = Seen { stamp, since: now, done: false, said: false, hold: seen.hold };
        }
        if seen.done {
            return Ok(Judged::Leave);
        }
        if seen.hold.is_some_and(|until| until > now) {
            return Ok(Judged::Later);
        }
        let (bytes, stamp) = match tasks.read(name, MAX_REQUEST_BYTES) {
            Ok(read) => read,
            Err(ReadError::Gone) => return Ok(Judged::Leave),
            // What keeps it from being read may pass (no file handles, a mount that is away): try again.
            Err(ReadError::Io(error)) => {
                if !std::mem::replace(&mut seen.said, true) {
                    tracing::warn!(group = %self.group, file = name, why = %error, "a file in tasks/ was left alone; trying again");
                }
                return Ok(Judged::Leave);
            }
            Err(error) => {
                seen.done = true;
                tracing::warn!(group = %self.group, file = name, why = %error, "a file in tasks/ was left alone");
                return Ok(Judged::Leave);
            }
        };
        let peek = wire::peek(&bytes);
        let settled = now.since(seen.since) >= SETTLE;
        match &peek.kind {
            Some(kind) if !kind.starts_with(Kinds::PREFIX) => {
                seen.done = true;
                Ok(Judged::Leave)
            }
            Some(_) if peek.torn && !settled => Ok(Judged::Later),
            Some(kind) => {
                let cancel = kind == Kinds::CANCEL;
                Ok(Judged::Take(Candidate { cancel, modified: stamp.modified(), name: name.to_owned() }))
            }
            None if settled => {
                seen.done = true;
                tracing::warn!(group = %self.group, file = name, "a file in tasks/ has no readable \"type\"; it was left alone");
                Ok(Judged::Leave)
            }
            None => Ok(Judged::Leave),
        }
    }

    /// Claims a request, hands it on and deletes it.
    async fn take(self: &Arc<Self>, name: &str) -> Taken {
        let leftover = name.starts_with(CLAIMED);
        let claimed = if leftover { name.to_owned() } else { format!("{CLAIMED}{}.json", random::unique()) };
        let (desk, from, to) = (Arc::clone(self), name.to_owned(), claimed.clone());
        let read = tokio::task::spawn_blocking(move || desk.claim(&from, &to)).await;
        let (message, peek, bytes) = match read.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(Claimed::Ours(message, peek, bytes)) => (message, peek, bytes),
            Ok(Claimed::NotOurs) => return Taken::Done,
            Err(error) => {
                tracing::error!(group = %self.group, file = name, %error, "a request could not be claimed; trying again");
                return Taken::Later;
            }
        };
        let taken = match message {
            Ok(Message::Ask(request)) => self.submit(*request, bytes, name).await,
            Ok(Message::Cancel(cancel)) => match self.broker.withdraw(&self.group, &cancel.request_id).await {
                Ok(()) => Taken::Done,
                Err(_) => Taken::Later,
            },
            Err(rejection) => {
                let request_id = peek.request_id.filter(|id| !self.broker.knows(&self.group, id));
                self.reject(request_id, None, rejection, Some((name, bytes))).await
            }
        };
        let (desk, name) = (Arc::clone(self), name.to_owned());
        let finish = move || {
            let tasks = desk.folders.get(&desk.group, TASKS)?;
            if taken == Taken::Done {
                tasks.remove(&claimed).map(drop)
            } else if leftover {
                Ok(())
            } else {
                // Back to where it was; if the client has put another one there, it is taken as it is.
                tasks.rename_unless_there(&claimed, &name).map(drop)
            }
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(finish).await {
            tracing::error!(group = %self.group, %error, "a claimed request could not be deleted");
        }
        taken
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
                tasks.rename_unless_there(to, from)?;
                return Err(error);
            }
        };
        if !peek.kind.as_ref().is_some_and(|kind| kind.starts_with(Kinds::PREFIX)) {
            // It was replaced between the look and the claim.
            tasks.rename_unless_there(to, from)?;
            return Ok(Claimed::NotOurs);
        }
        Ok(Claimed::Ours(wire::read(&bytes), peek, bytes))
    }

    async fn submit(self: &Arc<Self>, request: wire::Request, bytes: Vec<u8>, name: &str) -> Taken {
        let (request_id, op_code) = (request.request_id.clone(), request.op_code.clone());
        match self.broker.submit(&self.group, request).await {
            Submitted::New(_) | Submitted::Joined(_) | Submitted::Known(_) => Taken::Done,
            Submitted::NotStored => Taken::Later,
            Submitted::NotYet => {
                self.hints.add_soon(&self.ctx, self.group.clone(), SOON);
                Taken::Soon
            }
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
    ) -> Taken {
        let file = keep.as_ref().map(|(name, _)| (*name).to_owned());
        tracing::warn!(
            group = %self.group, request_id = request_id.as_ref().map(tracing::field::display), file,
            reason = wording::for_log(&rejection), "Request rejected"
        );
        let desk = Arc::clone(self);
        let bytes = keep.map(|(_, bytes)| bytes);
        let tell = move || -> io::Result<()> {
            // First what may fail and be tried again, so that one mistake is kept once.
            if let Some(request_id) = &request_id {
                let response = wire::refused(request_id, op_code, &rejection);
                delivery::write_at_once(&desk.folders, &desk.group, &response)?;
            }
            let Some(bytes) = bytes else { return Ok(()) };
            let name = format!("{:013}-{}.json", desk.ctx.clock().now().as_millis(), random::unique());
            desk.broker.keep_rejected(&desk.group, &name, &bytes).map_err(io::Error::other)
        };
        match tokio::task::spawn_blocking(tell).await {
            Ok(Ok(())) => Taken::Done,
            Ok(Err(error)) => {
                tracing::error!(group = %self.group, %error, "a rejection could not be written; trying again");
                Taken::Later
            }
            Err(_) => Taken::Later,
        }
    }
}
