//! Taking a request: claiming it, handing it to the broker, and only then deleting it. Sections 3 and 4 of the
//! specification.

use super::group_scanner::{CLAIMED, Candidate, GroupScanner};
use super::groups::Wanted;
use super::survey::is_said_elsewhere;
use crate::host::broker::Submitted;
use crate::host::delivery;
use crate::ipc::files::{ReadError, Stamp};
use crate::ipc::wire::{self, Kinds, Message, Peek};
use crate::ipc::{MAX_REQUEST_BYTES, TASKS};
use crate::random;
use crate::sabotage::{crash_point, on, panic_point};
use askd_core::{Rejection, RequestId, Time};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How many looks there are at most before requests are taken: a folder that others fill all the time has no end.
const LOOKS: usize = 5;

/// What became of a request that was to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is gone, and what came of it is stored.
    Done,
    /// Tried again after a while; its agent may take it back.
    Later,
    /// Tried again after a while. It stays claimed, so that its agent does not take askd for dead, and does not take it back.
    Waits,
}

/// A request of ours, or what is wrong with it; what a glance at it says; its bytes.
type Claimed = (Result<Message, Rejection>, Peek, Vec<u8>);

/// A claimed request.
pub(super) struct Claim {
    name: String,
    /// Its name as long as it is claimed.
    claimed: String,
    message: Result<Message, Rejection>,
    peek: Peek,
    bytes: Vec<u8>,
}

impl Claim {
    /// Its own name, and the one that it has as long as it is claimed.
    pub(super) fn names(&self) -> (String, String) {
        (self.name.clone(), self.claimed.clone())
    }
}

/// What came of looking for the next request.
pub(super) enum Turn {
    Nothing,
    /// Not all asks of the group are known yet, so that it cannot be told which request is new.
    Waits,
    Taken,
    /// What becomes of it may have to wait for more than a disk.
    Claimed(Box<Claim>),
}

/// A name for a request that is claimed.
fn claimed_name() -> String {
    format!("{CLAIMED}{}.json", random::unique())
}

impl GroupScanner {
    /// Looks where it is told to, and takes the next request if that needs nothing but disks.
    pub(super) fn turn(self: &Arc<Self>, wanted: Option<Wanted>) -> Turn {
        match wanted.map_or(Ok(()), |wanted| self.look_far(&wanted)) {
            Err(error) if !is_said_elsewhere(&error) => {
                let what = "cannot read a tasks folder";
                if self.warnings.is_first(Some(&self.group), what) {
                    tracing::error!(group = %self.group, %error, "{what}");
                }
            }
            Ok(()) | Err(_) => {}
        }
        if !self.survey.lock().queue.is_empty() && !self.broker.has_loaded(&self.group) && !on("unread") {
            if let Err(error) = self.show_as_seen() {
                tracing::warn!(group = %self.group, %error, "requests wait until the stored questions are read, and their agents cannot be told");
            }
            return Turn::Waits;
        }
        let mut survey = self.survey.lock();
        let (next, read) = (survey.queue.pop_first(), survey.read.take());
        drop(survey);
        let Some((Candidate { name, changed, .. }, cancels)) = next else { return Turn::Nothing };
        if self.ctx.is_stopping() {
            return Turn::Nothing;
        }
        let unknown = |id: &RequestId| self.broker.of_request(&self.group, id).is_none();
        if let Some(id) = cancels.as_ref().filter(|id| unknown(id)) {
            let known = &mut self.survey.lock().known;
            if known.waiting(id).is_none() && !known.is_nowhere(&name, id) {
                return Turn::Taken;
            }
        }
        let leftover = name.starts_with(CLAIMED);
        let claimed = if leftover { name.clone() } else { claimed_name() };
        let read = read.filter(|(of, ..)| *of == name);
        let took = catch_unwind(AssertUnwindSafe(|| self.take_next(&name, &claimed, changed, read)));
        took.unwrap_or_else(|_reported| {
            self.set_aside(&name, &claimed);
            Turn::Taken
        })
    }

    /// Claims the next request, and asks what is certainly new.
    fn take_next(
        self: &Arc<Self>,
        name: &str,
        claimed: &str,
        changed: (i64, u64),
        read: Option<(String, Stamp, Vec<u8>)>,
    ) -> Turn {
        match self.claim(name, claimed, read) {
            Ok(Some((mut message, peek, bytes))) => {
                if let Ok(Message::Ask(request)) = &mut message {
                    panic_point("accept", request.content.title.as_deref());
                    let (seconds, nanos) = changed;
                    let millis = seconds.saturating_mul(1000).saturating_add_unsigned(nanos / 1_000_000);
                    request.file = Some((Time::from_millis(millis), claimed.to_owned()));
                }
                let (name, claimed) = (name.to_owned(), claimed.to_owned());
                self.ask_at_once(Claim { name, claimed, message, peek, bytes })
            }
            Ok(None) => self.taken(name, Taken::Done),
            Err(error) => {
                self.cannot_claim(name, &error);
                self.taken(name, Taken::Later)
            }
        }
    }

    /// Looks where it is told to. One look takes only so many names; the oldest request may be among the last ones, and should be taken
    /// first. So a few looks come before anything is taken.
    fn look_far(self: &Arc<Self>, wanted: &Wanted) -> io::Result<()> {
        self.survey(wanted)?;
        for _ in 1..LOOKS {
            if !wanted.folder || !self.survey.lock().is_in_the_middle() {
                break;
            }
            self.survey(&Wanted::folder())?;
        }
        Ok(())
    }

    /// Claims what is to be asked, so that no client takes it back, and tells each waiter that its request was seen.
    fn show_as_seen(&self) -> io::Result<()> {
        let waits = |candidate: &&Candidate| !candidate.cancel && !candidate.name.starts_with(CLAIMED);
        let waiting: Vec<Candidate> = self.survey.lock().queue.keys().filter(waits).cloned().collect();
        for candidate in waiting {
            let name = claimed_name();
            let claimed = self.claim(&candidate.name, &name, None)?;
            let mut survey = self.survey.lock();
            survey.queue.remove(&candidate);
            survey.known.forget(&candidate.name);
            if let Some((message, ..)) = claimed {
                survey.queue.insert(Candidate { name, ..candidate }, None);
                drop(survey);
                if let Ok(Message::Ask(request)) = message {
                    delivery::seen(&self.folders, &self.group, &request.request_id)?;
                }
            }
        }
        Ok(())
    }

    /// Asks what is certainly new without leaving this thread.
    fn ask_at_once(self: &Arc<Self>, mut claim: Claim) -> Turn {
        let request = match claim.message {
            Ok(Message::Ask(request)) => request,
            message => return Turn::Claimed(Box::new(Claim { message, ..claim })),
        };
        self.expect_life(&request);
        let request_id = request.request_id.clone();
        match self.broker.submit_at_once(&self.group, request) {
            Ok(submitted) => {
                self.wake_cancels(&request_id);
                let taken = match submitted {
                    Submitted::New(_) => Taken::Done,
                    Submitted::InDoubt => Taken::Waits,
                    Submitted::Rejected(Rejection::SetAside) => {
                        self.set_aside(&claim.name, &claim.claimed);
                        return Turn::Taken;
                    }
                    _ => Taken::Later,
                };
                self.conclude(&claim.name, &claim.claimed, taken)
            }
            Err(request) => {
                claim.message = Ok(Message::Ask(request));
                Turn::Claimed(Box::new(claim))
            }
        }
    }

    /// A folder may be taken from askd while it runs. The next look finds out whether it has it back.
    fn cannot_claim(&self, name: &str, error: &io::Error) {
        let what = "a request could not be claimed; trying again";
        let checked = self.folders.check(&self.group);
        // Its writer may have taken it back.
        let is_gone = error.kind() == io::ErrorKind::NotFound && checked.is_ok();
        if !is_gone && self.warnings.is_first(Some(&self.group), what) {
            tracing::error!(group = %self.group, file = name, %error, "{what}");
        }
        if let Err(trouble) = checked {
            self.say(&mut self.survey.lock(), Some(trouble));
        }
    }

    pub(super) fn taken(self: &Arc<Self>, name: &str, taken: Taken) -> Turn {
        match taken {
            Taken::Done => self.survey.lock().known.forget(name),
            Taken::Later | Taken::Waits => self.hold(name),
        }
        Turn::Taken
    }

    /// Deletes a claimed request, has it wait, or gives it back its name.
    pub(super) fn conclude(self: &Arc<Self>, name: &str, claimed: &str, taken: Taken) -> Turn {
        self.finish(name, claimed, taken);
        let stays_claimed = taken == Taken::Waits && name != claimed;
        if stays_claimed {
            self.survey.lock().known.forget(name);
        }
        self.taken(if stays_claimed { claimed } else { name }, taken)
    }

    /// A cancel may have come before its request.
    fn wake_cancels(&self, request_id: &RequestId) {
        let cancels = self.survey.lock().known.cancels_of(request_id);
        for cancel in cancels {
            self.wanted.lock().add(Wanted::name(&cancel));
        }
    }

    /// From now on each look looks for the sign of life of the process that asks.
    fn expect_life(&self, request: &wire::Request) {
        if let Some(process) = &request.process {
            self.broker.heartbeats().of(&self.group, process, self.ctx.clock().now());
        }
    }

    /// Hands a claimed request on and deletes it.
    pub(super) async fn take(self: &Arc<Self>, Claim { name, claimed, message, peek, bytes }: Claim) {
        let mut tells = None;
        let taken = match message {
            Ok(Message::Ask(request)) => {
                let (request_id, op_code) = (request.request_id.clone(), request.op_code.clone());
                let taken = self.submit(*request, bytes, &name).await;
                if taken == Taken::Waits {
                    self.survey.lock().known.waits(request_id.clone(), &claimed, op_code);
                }
                self.wake_cancels(&request_id);
                // What an ask knows has a status, or a response.
                let is_new = name != claimed && self.broker.of_request(&self.group, &request_id).is_none();
                tells = (taken == Taken::Waits && is_new).then_some(request_id);
                taken
            }
            // What another host's agents ask is not withdrawn here.
            Ok(Message::Cancel(_)) if self.broker.served_elsewhere(&self.group).is_some() => Taken::Done,
            Ok(Message::Cancel(request_id)) => match self.withdraw_waiting(&request_id).await {
                Some(taken) => taken,
                None => match self.broker.withdraw(&self.group, &request_id).await {
                    Ok(()) => Taken::Done,
                    Err(_) => Taken::Later,
                },
            },
            Err(rejection) => {
                let request_id = self.to_be_told(&peek);
                self.reject(request_id, peek.op_code, rejection, Some((&name, bytes))).await
            }
        };
        let finish = move |scanner: &Arc<Self>| {
            scanner.conclude(&name, &claimed, taken);
            if let Some(request_id) = tells
                && let Err(error) = delivery::seen(&scanner.folders, &scanner.group, &request_id)
            {
                tracing::warn!(group = %scanner.group, %request_id, %error, "a request waits, and its agent cannot be told");
            }
            Ok(())
        };
        if let Err(error) = self.on_disk(finish).await {
            tracing::error!(group = %self.group, %error, "a claimed request could not be deleted");
        }
    }

    /// Withdraws a request that waits for who gets an outcome, and has not been given it: nothing else changes.
    async fn withdraw_waiting(self: &Arc<Self>, request_id: &RequestId) -> Option<Taken> {
        let (claimed, op_code) = self.survey.lock().known.waiting(request_id)?;
        self.broker.of_request(&self.group, request_id).is_none().then_some(())?;
        let response = wire::withdrawn(request_id, op_code);
        let of = claimed.clone();
        let withdraw = move |scanner: &Arc<Self>| {
            // First the response: after a crash in between both files are read again.
            delivery::write_at_once(&scanner.folders, &scanner.group, &response)?;
            scanner.folders.get(&scanner.group, TASKS)?.remove_for_good(&of)
        };
        if let Err(error) = self.on_disk(withdraw).await {
            tracing::error!(group = %self.group, %request_id, %error, "a request that waits could not be withdrawn; trying again");
            return Some(Taken::Later);
        }
        self.broker.forget_repeat(&self.group, request_id);
        self.survey.lock().known.forget(&claimed);
        Some(Taken::Done)
    }

    /// Deletes a claimed request, or gives it back its name.
    fn finish(&self, name: &str, claimed: &str, taken: Taken) {
        let finish = || {
            let tasks = self.folders.get(&self.group, TASKS)?;
            if taken == Taken::Done {
                // One that stays is read as a request again, and its outcome told once more.
                tasks.remove_for_good(claimed).map(drop)
            } else if taken == Taken::Waits || name == claimed {
                Ok(())
            } else {
                // Back to where it was; if the client has put another one there, it is taken as it is.
                tasks.rename_unless_there(claimed, name).map(drop)
            }
        };
        if let Err(error) = finish() {
            tracing::error!(group = %self.group, %error, "a claimed request could not be deleted");
        }
    }

    /// Renames a request to a name of ours and reads it, unless `read` is what is in it. From here on only what was read counts. `None`: it is not there any
    /// more, or not ours after all.
    fn claim(&self, from: &str, to: &str, read: Option<(String, Stamp, Vec<u8>)>) -> io::Result<Option<Claimed>> {
        let tasks = self.folders.get(&self.group, TASKS)?;
        if from != to {
            match tasks.rename(from, to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other?,
            }
        }
        crash_point("accept.claimed");
        let read = match read {
            // It is the file that was read a moment ago, and what was read then counts.
            Some((_, stamp, bytes)) if tasks.stat(to)?.is_some_and(|now| now.same_content(&stamp)) => Ok(bytes),
            _ => tasks.read(to, MAX_REQUEST_BYTES).map(|(bytes, _)| bytes),
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(ReadError::Gone) => return Ok(None),
            Err(error) => {
                tasks.rename_unless_there(to, from)?;
                return Err(io::Error::other(error));
            }
        };
        let peek = wire::peek(&bytes);
        if !peek.kind.as_ref().is_some_and(|kind| kind.starts_with(Kinds::PREFIX)) {
            // It was replaced between the look and the claim.
            tasks.rename_unless_there(to, from)?;
            return Ok(None);
        }
        Ok(Some((wire::parse(&bytes), peek, bytes)))
    }

    async fn submit(self: &Arc<Self>, request: wire::Request, bytes: Vec<u8>, name: &str) -> Taken {
        let (request_id, op_code) = (request.request_id.clone(), request.op_code.clone());
        match self.broker.submit(&self.group, request).await {
            Submitted::New(_) | Submitted::Joined(_) | Submitted::Known(_) => Taken::Done,
            Submitted::NotStored => Taken::Later,
            // If it is stored, it will be asked, so its agent must not be told that askd did not take it.
            Submitted::InDoubt | Submitted::NotYet => Taken::Waits,
            Submitted::Rejected(rejection) => {
                let keep = (rejection == Rejection::SetAside).then_some((name, bytes));
                self.reject(Some(request_id), op_code, rejection, keep).await
            }
            Submitted::OtherContent => {
                let why = "this request_id already belongs to another request; nothing is answered".to_owned();
                let rejection = Rejection::Wrong { field: "request_id".to_owned(), why };
                self.reject(None, None, rejection, Some((name, bytes))).await
            }
        }
    }
}
