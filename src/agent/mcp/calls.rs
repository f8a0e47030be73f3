//! The questions of this process, also between two calls: who waits for them, what came of them, and
//! whether it has reached the client. One task looks after all of them, so that a process wakes as
//! rarely with ten questions as with one.
//!
//! An outcome goes one way: it lies in its file (`open`), is taken for a call (`handing`), and is gone
//! once the client has heard it (`told`, kept only for who asks again by id). If it did not get
//! through, it goes back into its file. Called by `mcp` (calls) and `handover` (what passes the pipe).

use super::answer::{Outcome, Said};
use super::arguments::AskArguments;
use super::settings::Settings;
use crate::agent::process::lock;
use crate::agent::{AgentError, Look, Process, Taken, Waiter, find};
use crate::ask::{Digest, RequestId, wording};
use crate::clock::Clock;
use rmcp::model::RequestId as CallId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long after the reply an answer is kept for a client that says nothing more.
const HANDED_OVER_AFTER: Duration = Duration::from_secs(10);
/// How many outcomes are kept for who asks again by id.
const REMEMBERED: usize = 64;

/// The questions of this process.
#[derive(Debug)]
pub(super) struct Calls {
    settings: Settings,
    process: Arc<Process>,
    clock: Clock,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
    rouse: Notify,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<RequestId, Open>,
    handing: HashMap<RequestId, Handing>,
    told: VecDeque<(RequestId, Said)>,
    /// How often the request of these questions was not claimed, until one is.
    unclaimed: HashMap<Digest, u32>,
    /// The calls that are not replied to yet.
    calls: HashSet<CallId>,
    closed: bool,
}

/// A question whose outcome no call has returned yet.
#[derive(Debug)]
struct Open {
    waiter: Waiter,
    key: Digest,
    retries: u8,
    note: Option<String>,
    stage: Stage,
    withdrawn: bool,
}

#[derive(Debug)]
enum Stage {
    /// Look again at this moment at the latest.
    Waiting(Instant),
    /// The response lies in its file.
    Ready,
    /// It ended without a response.
    Over(Outcome),
}

/// An outcome on its way to the client.
#[derive(Debug)]
struct Handing {
    open: Open,
    taken: Taken,
    /// The calls that return it.
    calls: Vec<CallId>,
    /// When a reply with it was written.
    sent: Option<Instant>,
}

impl Calls {
    pub(super) fn new(settings: Settings, clock: Clock) -> Result<Self, AgentError> {
        Ok(Self {
            settings,
            process: Process::new()?,
            clock,
            table: Mutex::default(),
            changed: watch::Sender::new(()),
            rouse: Notify::new(),
        })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Says that something came of a question.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.table).closed
    }

    /// Asks, or finds the question that is open already.
    pub(super) fn ask(&self, arguments: AskArguments) -> Result<RequestId, Said> {
        let mut table = lock(&self.table);
        let same = |key: Digest| key == arguments.key;
        let open = table.open.iter().find(|(_, open)| same(open.key)).map(|(id, _)| id);
        let handing = || table.handing.iter().find(|(_, handing)| same(handing.open.key)).map(|(id, _)| id);
        if let Some(id) = open.or_else(handing) {
            return Ok(id.clone());
        }
        let said = |outcome| Said { outcome, note: arguments.note.clone() };
        if table.closed {
            return Err(said(Outcome::Rejected(wording::CLIENT_GONE.to_owned())));
        }
        let broken = |error: AgentError| said(Outcome::Broken(error.to_string()));
        // Found anew each time: it may have been missing before, or been made anew.
        let environment = |name: &str| std::env::var(name).ok();
        let folder = find(self.settings.ipc.as_deref(), environment).map_err(broken)?;
        let asking = arguments.asking.clone();
        let waiter = Waiter::ask(Arc::new(folder), asking, self.clock.clone(), &self.process).map_err(broken)?;
        let id = waiter.request_id().clone();
        let open = Open {
            waiter,
            key: arguments.key,
            retries: arguments.retries,
            note: arguments.note,
            stage: Stage::Waiting(Instant::now()),
            withdrawn: false,
        };
        table.open.insert(id.clone(), open);
        self.rouse.notify_one();
        Ok(id)
    }

    /// The question of that id, if this process has asked it.
    pub(super) fn known(&self, question_id: &str) -> Option<RequestId> {
        let id: RequestId = question_id.trim().parse().ok()?;
        let table = lock(&self.table);
        let known = table.open.contains_key(&id)
            || table.handing.contains_key(&id)
            || table.told.iter().any(|(told, _)| *told == id);
        known.then_some(id)
    }

    /// What the agent should know about a question beside its outcome.
    pub(super) fn note(&self, id: &RequestId) -> Option<String> {
        lock(&self.table).open.get(id).and_then(|open| open.note.clone())
    }

    /// Takes the outcome for this call, if there is one.
    pub(super) fn poll(&self, id: &RequestId, call: &CallId) -> Option<Said> {
        let mut table = lock(&self.table);
        if table.closed || !table.calls.contains(call) {
            return None;
        }
        if let Some(handing) = table.handing.get_mut(id) {
            handing.calls.push(call.clone());
            return Some(handing.said());
        }
        if let Some((_, said)) = table.told.iter().find(|(told, _)| told == id) {
            return Some(said.clone());
        }
        table.look(id);
        table.take(id, call)
    }

    /// Withdraws a question. What has an outcome keeps it.
    pub(super) fn withdraw(&self, id: &RequestId) -> Result<(), AgentError> {
        let mut table = lock(&self.table);
        table.look(id);
        let Some(open) = table.open.get_mut(id) else { return Ok(()) };
        if let Stage::Waiting(_) = open.stage {
            if open.waiter.withdraw()? {
                open.stage = Stage::Over(Outcome::Withdrawn);
            } else {
                open.withdrawn = true;
            }
        }
        self.changed.send_replace(());
        Ok(())
    }

    /// A call has come.
    pub(super) fn began(&self, call: CallId) {
        lock(&self.table).calls.insert(call);
    }

    /// The client has said something: what was replied before has arrived. Unless it takes back the very
    /// call: then that reply is lost on it.
    pub(super) fn heard(&self, cancelled: Option<&CallId>) {
        let mut table = lock(&self.table);
        if let Some(call) = cancelled {
            table.calls.remove(call);
            table.unsent(call);
        }
        table.hand_over(|_| true);
        self.changed.send_replace(());
    }

    /// A reply was written, or could not be.
    pub(super) fn replied(&self, call: &CallId, written: bool) {
        let mut table = lock(&self.table);
        table.calls.remove(call);
        if written {
            for handing in table.handing.values_mut().filter(|handing| handing.calls.contains(call)) {
                handing.sent = Some(Instant::now());
            }
        } else {
            table.unsent(call);
        }
        self.rouse.notify_one();
    }

    /// The client has closed its end.
    pub(super) fn close(&self) {
        lock(&self.table).closed = true;
        self.changed.send_replace(());
    }

    /// The process ends. What may not have been read goes back into its file; what is open stays open,
    /// and the sign of life stays to grow old.
    pub(super) fn end(&self) {
        let mut table = lock(&self.table);
        if super::handover::has_been_read() {
            table.hand_over(|_| true);
        }
        for (id, handing) in std::mem::take(&mut table.handing) {
            table.put_back(id, handing);
        }
        if !table.open.is_empty() {
            self.process.leave();
        }
        table.open.clear();
    }

    /// Looks after all questions for ever.
    pub(super) async fn look_after(self: Arc<Self>) {
        loop {
            match self.look_at_all() {
                None => self.rouse.notified().await,
                Some(next) => tokio::select! {
                    () = self.rouse.notified() => {}
                    () = self.process.woken() => {}
                    () = tokio::time::sleep_until(next) => {}
                },
            }
        }
    }

    /// Looks at every question once; says when to look again, if there is anything to look after.
    fn look_at_all(&self) -> Option<Instant> {
        let mut table = lock(&self.table);
        let now = Instant::now();
        table.hand_over(|sent| now >= sent + HANDED_OVER_AFTER);
        let waiting: Vec<RequestId> = table.open.keys().cloned().collect();
        let mut changed = false;
        for id in &waiting {
            changed |= table.look(id);
            table.finish_withdrawn(id);
        }
        let regular = now + self.process.look_every();
        let next = table.open.values().filter_map(Open::give_up).fold(regular, Instant::min);
        let next = table.handing.values().filter_map(Handing::over).fold(next, Instant::min);
        table.beat();
        if changed {
            self.changed.send_replace(());
        }
        (!table.open.is_empty() || !table.handing.is_empty()).then_some(next)
    }
}

impl Open {
    fn give_up(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting(give_up) => Some(give_up),
            Stage::Ready | Stage::Over(_) => None,
        }
    }
}

impl Handing {
    fn said(&self) -> Said {
        let outcome = Outcome::Response(Box::new(self.taken.response.clone()));
        Said { outcome, note: self.open.note.clone() }
    }

    fn over(&self) -> Option<Instant> {
        self.sent.map(|sent| sent + HANDED_OVER_AFTER)
    }
}

impl Table {
    /// Says that whoever waits here lives.
    fn beat(&self) {
        let waiters = self.open.values().chain(self.handing.values().map(|handing| &handing.open));
        if let Some(open) = waiters.into_iter().next() {
            open.waiter.beat();
        }
    }

    /// Looks at one question; `true` if something has come of it.
    fn look(&mut self, id: &RequestId) -> bool {
        let Some(open) = self.open.get_mut(id) else { return false };
        if !matches!(open.stage, Stage::Waiting(_)) {
            return false;
        }
        let look = open.waiter.look();
        if open.waiter.is_claimed() {
            self.unclaimed.remove(&open.key);
        }
        open.stage = match look {
            Ok(Look::Waiting(give_up)) => Stage::Waiting(give_up),
            Ok(Look::Ready) => Stage::Ready,
            Ok(Look::NotClaimed) => {
                let attempt = self.unclaimed.entry(open.key).or_default();
                *attempt += 1;
                Stage::Over(Outcome::NotClaimed { attempt: *attempt, retries: open.retries })
            }
            Ok(Look::HostSilent) => Stage::Over(Outcome::HostSilent),
            Err(error) => {
                tracing::warn!(request_id = %id, %error, "a question is waited for no more");
                Stage::Over(Outcome::Broken(error.to_string()))
            }
        };
        !matches!(open.stage, Stage::Waiting(_))
    }

    /// Takes what came of a question for a call.
    fn take(&mut self, id: &RequestId, call: &CallId) -> Option<Said> {
        let open = self.open.get_mut(id)?;
        let taken = match &open.stage {
            Stage::Waiting(_) => return None,
            Stage::Ready => open.waiter.take(),
            Stage::Over(outcome) => {
                let said = Said { outcome: outcome.clone(), note: open.note.clone() };
                self.open.remove(id);
                self.remember(id.clone(), said.clone());
                return Some(said);
            }
        };
        match taken {
            Ok(Some(taken)) => {
                let open = self.open.remove(id)?;
                let handing = Handing { open, taken, calls: vec![call.clone()], sent: None };
                let said = handing.said();
                self.handing.insert(id.clone(), handing);
                Some(said)
            }
            // Withdrawn by the daemon in this very moment.
            Ok(None) => {
                open.stage = Stage::Waiting(Instant::now());
                None
            }
            Err(error) => {
                open.stage = Stage::Over(Outcome::Broken(error.to_string()));
                self.take(id, call)
            }
        }
    }

    /// What was withdrawn ends without anybody waiting for it; an answer that came first stays.
    fn finish_withdrawn(&mut self, id: &RequestId) {
        let Some(open) = self.open.get_mut(id).filter(|open| open.withdrawn) else { return };
        let Stage::Ready = open.stage else { return };
        let Ok(Some(taken)) = open.waiter.take() else { return };
        open.withdrawn = false;
        if taken.response.result.status == "cancelled" {
            let outcome = Outcome::Response(Box::new(taken.response.clone()));
            let note = open.note.take();
            self.open.remove(id);
            self.remember(id.clone(), Said { outcome, note });
            tidy_up(id, taken);
        } else if let Err(error) = taken.put_back() {
            tracing::warn!(request_id = %id, %error, "a response could not be put back");
        }
    }

    /// What was replied long enough ago has arrived.
    fn hand_over(&mut self, arrived: impl Fn(Instant) -> bool) {
        let ids: Vec<RequestId> = self
            .handing
            .iter()
            .filter(|(_, handing)| handing.sent.is_some_and(&arrived))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            if let Some(handing) = self.handing.remove(&id) {
                let said = handing.said();
                tidy_up(&id, handing.taken);
                self.remember(id, said);
            }
        }
    }

    /// This call's reply was lost. If it was the only one, the response waits again.
    fn unsent(&mut self, call: &CallId) {
        let lost: Vec<RequestId> = self
            .handing
            .iter_mut()
            .filter_map(|(id, handing)| {
                let before = handing.calls.len();
                handing.calls.retain(|known| known != call);
                (before > 0 && handing.calls.is_empty()).then(|| id.clone())
            })
            .collect();
        for id in lost {
            if let Some(handing) = self.handing.remove(&id) {
                self.put_back(id, handing);
            }
        }
    }

    fn put_back(&mut self, id: RequestId, handing: Handing) {
        let Handing { mut open, taken, .. } = handing;
        if let Err(error) = taken.put_back() {
            tracing::warn!(request_id = %id, %error, "a response could not be put back");
        }
        open.stage = Stage::Ready;
        self.open.insert(id, open);
    }

    fn remember(&mut self, id: RequestId, said: Said) {
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((id, said));
    }
}

/// It was handed over; nothing is left behind.
fn tidy_up(id: &RequestId, taken: Taken) {
    if let Err(error) = taken.done() {
        tracing::warn!(request_id = %id, %error, "a response that was handed over could not be deleted");
    }
}
