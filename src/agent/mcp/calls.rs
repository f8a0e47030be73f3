//! The questions of this process, also between two calls: who waits for them, what came of them, and
//! whether it has reached the client. One task looks after all of them, so that a process wakes as
//! rarely with ten questions as with one.
//!
//! An outcome goes one way: it lies in its file (`open`), is taken for a call (`handing`), and is gone
//! once the client has heard it (`told`, kept only for who asks again by id). If it did not get
//! through, it goes back into its file. Called by `mcp` (calls) and `handover` (what passes the pipe).
#![expect(
    clippy::disallowed_methods,
    reason = "when to look is a matter of the runtime's timer; what has passed, of the clock"
)]

use super::answer::{Outcome, Said};
use super::arguments::AskArguments;
use super::settings::Settings;
use super::table::{HANDED_OVER_AFTER, Handing, Open, Stage, Table};
use crate::agent::{AgentError, Folder, Process, Waiter, find};
use crate::clock::Clock;
use askd_core::{Digest, RequestId, wording};
use parking_lot::Mutex;
use rmcp::model::RequestId as CallId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What the runtime's timer sorts as one (64 slots of 1 ms).
const WHEEL_TURN: Duration = Duration::from_millis(64);

/// The questions of this process.
#[derive(Debug)]
pub(super) struct Calls {
    /// The runtime's first moment.
    origin: Instant,
    settings: Settings,
    process: Arc<Process>,
    clock: Clock,
    /// The one of the last question.
    folder: Mutex<Option<Arc<Folder>>>,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
    rouse: Notify,
}

impl Calls {
    pub(super) fn new(settings: Settings, clock: Clock, origin: Instant) -> Result<Self, AgentError> {
        Ok(Self {
            origin,
            settings,
            process: Process::new(&clock)?,
            clock,
            folder: Mutex::default(),
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
        self.table.lock().closed
    }

    /// Asks, or finds the question that is open already.
    pub(super) fn ask(&self, arguments: AskArguments) -> Result<RequestId, Said> {
        let mut table = self.table.lock();
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
        let folder = self.folder().map_err(broken)?;
        let asking = arguments.asking.clone();
        let waiter = Waiter::ask(folder, asking, self.clock.clone(), &self.process).map_err(broken)?;
        let id = waiter.request_id().clone();
        let open = Open {
            waiter,
            key: arguments.key,
            retries: arguments.retries,
            note: arguments.note,
            stage: Stage::Waiting(self.clock.monotonic()),
            withdrawn: false,
        };
        table.open.insert(id.clone(), open);
        self.rouse.notify_one();
        Ok(id)
    }

    /// The folder to ask through. Looked for each time: it may have been missing before, or been made anew.
    fn folder(&self) -> Result<Arc<Folder>, AgentError> {
        let mut kept = self.folder.lock();
        if let Some(folder) = kept.as_ref().filter(|folder| folder.is_current()) {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(find(self.settings.ipc.as_deref(), |name: &str| std::env::var(name).ok())?);
        *kept = Some(Arc::clone(&folder));
        Ok(folder)
    }

    /// The question of that id, if this process has asked it.
    pub(super) fn known(&self, question_id: &str) -> Option<RequestId> {
        let id: RequestId = question_id.trim().parse().ok()?;
        let table = self.table.lock();
        let known = table.open.contains_key(&id)
            || table.handing.contains_key(&id)
            || table.told.iter().any(|(told, _)| *told == id);
        known.then_some(id)
    }

    /// What the agent should know about a question beside its outcome.
    pub(super) fn note(&self, id: &RequestId) -> Option<String> {
        self.table.lock().open.get(id).and_then(|open| open.note.clone())
    }

    /// Takes the outcome for this call, if there is one.
    pub(super) fn poll(&self, id: &RequestId, call: &CallId) -> Option<Said> {
        let mut table = self.table.lock();
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
        let mut table = self.table.lock();
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
        self.table.lock().calls.insert(call);
    }

    /// The client has said something: what was replied before has arrived. Unless it takes back the very
    /// call: then that reply is lost on it.
    pub(super) fn heard(&self, cancelled: Option<&CallId>) {
        let mut table = self.table.lock();
        if let Some(call) = cancelled {
            table.calls.remove(call);
            table.unsent(call);
        }
        table.hand_over(|_| true);
        self.changed.send_replace(());
    }

    /// A reply was written, or could not be.
    pub(super) fn replied(&self, call: &CallId, written: bool) {
        let mut table = self.table.lock();
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
        self.table.lock().closed = true;
        self.changed.send_replace(());
    }

    /// The process ends. What may not have been read goes back into its file; what is open stays open,
    /// and the sign of life stays to grow old.
    pub(super) fn end(&self) {
        let mut table = self.table.lock();
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
        let mut table = self.table.lock();
        let now = Instant::now();
        table.hand_over(|sent| now >= sent + HANDED_OVER_AFTER);
        let waiting: Vec<RequestId> = table.open.keys().cloned().collect();
        let mut changed = false;
        for id in &waiting {
            changed |= table.look(id);
            table.finish_withdrawn(id);
        }
        let regular = self.regular_look(now);
        let moment = self.clock.monotonic();
        let give_ups = table.open.values().filter_map(Open::give_up).map(|give_up| now + give_up.since(moment));
        let next = give_ups.fold(regular, Instant::min);
        let next = table.handing.values().filter_map(Handing::over).fold(next, Instant::min);
        table.beat();
        if changed {
            self.changed.send_replace(());
        }
        (!table.open.is_empty() || !table.handing.is_empty()).then_some(next)
    }
}

impl Calls {
    /// When to look next if nothing happens. The runtime's timer sorts what is further away into slots of 64
    /// and 4096 ms from its own beginning, and wakes to sort a slot anew before it wakes for what is in it.
    /// A whole multiple of a power of two is always the first moment of its slot: one wake-up for a look.
    fn regular_look(&self, now: Instant) -> Instant {
        let every = self.process.look_every();
        let passed = now.saturating_duration_since(self.origin).as_nanos() / every.as_nanos();
        self.origin + every * u32::try_from(passed + 1).unwrap_or(u32::MAX)
    }

    /// The last moment up to this one that the timer does not have to sort among 64 others.
    pub(super) fn on_the_wheel(&self, moment: Instant) -> Instant {
        let since = moment.saturating_duration_since(self.origin).as_nanos();
        let turns = u32::try_from(since / WHEEL_TURN.as_nanos()).unwrap_or(u32::MAX);
        self.origin + WHEEL_TURN * turns
    }
}
