//! One group's requests: claiming them, handing them to the broker, and only then deleting them. Sections 3 and 4
//! of the specification. [`super::survey`] finds the files to claim.

use super::glance::Glance;
use super::groups::Wanted;
use super::survey::{Survey, is_said_elsewhere};
use super::watching::Watching;
use crate::clock::Moment;
use crate::host::broker::{Broker, Submitted};
use crate::host::ctx::Ctx;
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::host::warnings::Warnings;
use crate::ipc::wire::{self, Kinds, Message, Peek};
use crate::ipc::{MAX_REQUEST_BYTES, TASKS};
use crate::random;
use crate::sabotage::{crash_point, on};
use askd_core::{Group, Rejection, RequestId, wording};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What claimed requests are called: only their scanner looks at them.
pub(super) const CLAIMED: &str = ".claimed-";
/// How many requests are taken before the folder is looked at again.
const IN_A_ROW: usize = 100;
/// A folder that has not answered for this long counts as hanging.
const HANGS: Duration = Duration::from_secs(10);

/// What all scanners share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) broker: Broker,
    pub(super) folders: Folders,
    pub(super) ctx: Ctx,
    pub(super) warnings: Warnings,
    pub(super) watching: Watching,
    /// How many folders are worked on at a time: those on the disk of their root, and those that are mounted there. One
    /// that hangs keeps its place and its thread.
    pub(super) home: Arc<Semaphore>,
    pub(super) mounted: Arc<Semaphore>,
}

/// One group's requests.
#[derive(Debug)]
pub(super) struct GroupScanner {
    pub(super) group: Group,
    shared: Shared,
    /// Held while looking.
    alone: tokio::sync::Mutex<()>,
    wanted: Mutex<Wanted>,
    survey: Mutex<Survey>,
    pub(super) glance: Mutex<Glance>,
    /// Another file system is mounted there: it may hang by itself.
    pub(super) is_mounted: AtomicBool,
    /// How much waits for the disk of its folder, and since when nothing has come back from there.
    waits: Mutex<(usize, Option<Moment>)>,
}

impl std::ops::Deref for GroupScanner {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// A request, in the order in which requests are taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// Asks before cancels.
    pub(super) cancel: bool,
    /// Oldest first.
    pub(super) modified: (i64, u64),
    pub(super) name: String,
}

/// What became of a request that was to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It is gone, and what came of it is stored.
    Done,
    /// Tried again after a while.
    Later,
}

/// What a claimed file turned out to be.
enum Claimed {
    /// A request of ours, or what is wrong with it.
    Ours(Result<Message, Rejection>, Peek, Vec<u8>),
    /// Not there any more, or not ours after all.
    NotOurs,
}

impl GroupScanner {
    pub(super) fn new(group: Group, shared: Shared) -> Self {
        Self {
            is_mounted: AtomicBool::new(shared.folders.is_mounted(&group)),
            group,
            shared,
            alone: tokio::sync::Mutex::default(),
            wanted: Mutex::default(),
            survey: Mutex::default(),
            glance: Mutex::default(),
            waits: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Survey> {
        self.survey.lock()
    }

    /// Whether the disk of its folder does not answer.
    pub(super) fn hangs(&self, now: Moment) -> bool {
        self.waits.lock().1.is_some_and(|since| now.since(since) >= HANGS)
    }

    /// Looks where it is told to; if a look is already running, that one does it.
    pub(super) fn look(self: &Arc<Self>, wanted: Wanted) {
        let mut already = self.wanted.lock();
        let is_coming = !already.is_empty();
        already.add(wanted);
        drop(already);
        // The task that was begun for the first of them sees all; a flood of events begins no more tasks.
        if is_coming {
            return;
        }
        let scanner = Arc::clone(self);
        self.ctx.finish(async move {
            while scanner.is_wanted() {
                let Ok(_alone) = scanner.alone.try_lock() else { return };
                // The sabotage has one desk for all groups.
                let _desk = if on("onedesk") { scanner.mounted.acquire().await.ok() } else { None };
                while scanner.is_wanted() {
                    scanner.round().await;
                }
            }
        });
    }

    fn is_wanted(&self) -> bool {
        !self.ctx.is_stopping() && (!self.wanted.lock().is_empty() || !self.lock().queue.is_empty())
    }

    /// Finds what can be taken, and takes some of it.
    async fn round(self: &Arc<Self>) {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        if !wanted.is_empty() {
            match self.on_disk(move |scanner| scanner.survey(&wanted)).await {
                Err(error) if !is_said_elsewhere(&error) => {
                    let what = "cannot read a tasks folder";
                    if self.warnings.is_first(Some(&self.group), what) {
                        tracing::error!(group = %self.group, %error, "{what}");
                    }
                }
                Ok(()) | Err(_) => {}
            }
        }
        for _ in 0..IN_A_ROW {
            let Some((candidate, cancels)) = self.lock().queue.pop_first() else { return };
            if self.ctx.is_stopping() {
                return;
            }
            let unknown = |id: &RequestId| !self.broker.knows(&self.group, id);
            if let Some(id) = cancels.as_ref().filter(|id| unknown(id))
                && !self.lock().known.is_nowhere(&candidate.name, id)
            {
                continue;
            }
            let taken = self.take(&candidate.name).await;
            match taken {
                Taken::Done => self.lock().known.forget(&candidate.name),
                Taken::Later => self.hold(&candidate.name),
            }
        }
    }

    /// Lets a request wait, and has it looked at again.
    fn hold(self: &Arc<Self>, name: &str) {
        let pause = self.lock().known.hold(name, self.ctx.clock().monotonic());
        let (scanner, again) = (Arc::clone(self), Wanted::name(name));
        self.ctx.spawn(async move {
            scanner.ctx.clock().sleep(pause).await;
            scanner.look(again);
        });
    }

    /// Does something on the disk of the group's folder, where it may hang.
    pub(super) async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let disk = if self.is_mounted.load(Ordering::Relaxed) { &self.mounted } else { &self.home };
        self.count_waiting(|waiting| waiting + 1);
        let (scanner, place) = (Arc::clone(self), Arc::clone(disk).acquire_owned().await);
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&scanner);
            drop(place);
            done
        });
        let done = worked.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        self.count_waiting(|waiting| waiting - 1);
        done
    }

    fn count_waiting(&self, count: impl FnOnce(usize) -> usize) {
        let mut waits = self.waits.lock();
        let (before, after) = (waits.0, count(waits.0));
        // What comes back shows that the disk answers.
        let since = if after > before { waits.1 } else { None };
        let now = self.ctx.clock().monotonic();
        *waits = (after, (after > 0).then(|| since.unwrap_or(now)));
    }

    /// Claims a request, hands it on and deletes it.
    async fn take(self: &Arc<Self>, name: &str) -> Taken {
        let leftover = name.starts_with(CLAIMED);
        let claimed = if leftover { name.to_owned() } else { format!("{CLAIMED}{}.json", random::unique()) };
        let (from, to) = (name.to_owned(), claimed.clone());
        let (message, peek, bytes) = match self.on_disk(move |scanner| scanner.claim(&from, &to)).await {
            Ok(Claimed::Ours(message, peek, bytes)) => (message, peek, bytes),
            Ok(Claimed::NotOurs) => return Taken::Done,
            Err(error) => {
                tracing::error!(group = %self.group, file = name, %error, "a request could not be claimed; trying again");
                return Taken::Later;
            }
        };
        let taken = match message {
            Ok(Message::Ask(request)) => {
                let request_id = request.request_id.clone();
                let taken = self.submit(*request, bytes, name).await;
                // A cancel may have come first.
                for cancel in self.lock().known.cancels_of(&request_id) {
                    self.wanted.lock().add(Wanted::name(&cancel));
                }
                taken
            }
            Ok(Message::Cancel(request_id)) => match self.broker.withdraw(&self.group, &request_id).await {
                Ok(()) => Taken::Done,
                Err(_) => Taken::Later,
            },
            Err(rejection) => {
                let request_id = peek.request_id.filter(|id| !self.broker.knows(&self.group, id));
                self.reject(request_id, None, rejection, Some((name, bytes))).await
            }
        };
        let name = name.to_owned();
        let finish = move |scanner: &Arc<Self>| {
            let tasks = scanner.folders.get(&scanner.group, TASKS)?;
            if taken == Taken::Done {
                // One that stays is read as a request again, and its outcome told once more.
                tasks.remove_for_good(&claimed).map(drop)
            } else if leftover {
                Ok(())
            } else {
                // Back to where it was; if the client has put another one there, it is taken as it is.
                tasks.rename_unless_there(&claimed, &name).map(drop)
            }
        };
        if let Err(error) = self.on_disk(finish).await {
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
        Ok(Claimed::Ours(wire::parse(&bytes), peek, bytes))
    }

    async fn submit(self: &Arc<Self>, request: wire::Request, bytes: Vec<u8>, name: &str) -> Taken {
        let (request_id, op_code) = (request.request_id.clone(), request.op_code.clone());
        if let Some(process) = &request.process {
            // From now on each look looks for its sign of life.
            self.broker.heartbeats().of(&self.group, process, self.ctx.clock().now());
        }
        match self.broker.submit(&self.group, request).await {
            Submitted::New(_) | Submitted::Joined(_) | Submitted::Known(_) => Taken::Done,
            Submitted::NotStored | Submitted::NotYet => Taken::Later,
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
        let reason = wording::for_log(&rejection);
        if self.warnings.is_first(Some(&self.group), &format!("Request rejected: {reason}")) {
            let request_id = request_id.as_ref().map(tracing::field::display);
            tracing::warn!(group = %self.group, request_id, file, reason, "Request rejected");
        }
        let bytes = keep.map(|(_, bytes)| bytes);
        let tell = move |scanner: &Arc<Self>| -> io::Result<()> {
            // First what may fail and be tried again, so that one mistake is kept once.
            if let Some(request_id) = &request_id {
                let response = wire::refused(request_id, op_code, &rejection);
                delivery::write_at_once(&scanner.folders, &scanner.group, &response)?;
            }
            let Some(bytes) = bytes else { return Ok(()) };
            let name = format!("{:013}-{}.json", scanner.ctx.clock().now().as_millis(), random::unique());
            scanner.broker.keep_rejected(&scanner.group, &name, &bytes).map_err(io::Error::other)
        };
        match self.on_disk(tell).await {
            Ok(()) => Taken::Done,
            Err(error) => {
                tracing::error!(group = %self.group, %error, "a rejection could not be written; trying again");
                Taken::Later
            }
        }
    }
}
