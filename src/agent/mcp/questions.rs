//! The questions of this process, between two calls too: what each one waits for, which call took what, and what the
//! client has. It reads and renames their files, so all of it runs on the thread that [`super::calls`] starts.
//!
//! An outcome goes one way: the daemon puts it into a file (`open`), a call takes it (`in_flight`), and once the client
//! has it, the file is deleted (`delivered` keeps it for a call that asks again by id). If the reply is lost, the
//! outcome goes back into its file.

use super::answer::{Outcome, Report};
use super::arguments::AskArguments;
use crate::agent::{AgentError, Folder, Look, Process, Taken, Waiter, find};
use crate::clock::{Clock, Moment};
use askd_core::{Digest, RequestId, wording};
use rmcp::model::RequestId as CallId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;

/// How long after the reply a response is kept for a client that says nothing more.
const DELIVERED_AFTER: Duration = Duration::from_secs(10);
/// How many outcomes are kept for calls that ask again by id.
const REMEMBERED: usize = 64;

/// All questions of this process.
#[derive(Debug)]
pub(super) struct Questions {
    clock: Clock,
    process: Arc<Process>,
    /// The folder that the command line names.
    named: Option<PathBuf>,
    /// The folder of the last question.
    folder: Option<Arc<Folder>>,
    open: HashMap<RequestId, Open>,
    in_flight: HashMap<RequestId, InFlight>,
    delivered: VecDeque<(RequestId, Report)>,
    /// How often a request with these questions was not claimed, until one is.
    unclaimed: HashMap<Digest, u32>,
    /// The calls that have no reply yet.
    calls: HashSet<CallId>,
    closed: bool,
    /// When to look at all of them next; `None` if there is nothing to look at.
    next_look: Option<Moment>,
    /// Tells the calls that wait to poll again.
    changed: watch::Sender<()>,
}

/// A question whose outcome no call has returned yet.
#[derive(Debug)]
struct Open {
    waiter: Waiter,
    key: Digest,
    retries: u8,
    note: Option<String>,
    state: State,
    withdrawn: bool,
}

#[derive(Debug)]
enum State {
    /// Waits for the daemon, at the latest until this moment.
    Waiting(Moment),
    /// The response lies in its file.
    Ready,
    /// It ended without a response.
    Over(Outcome),
}

/// An outcome on its way to the client.
#[derive(Debug)]
struct InFlight {
    open: Open,
    taken: Taken,
    /// The calls that return it.
    calls: Vec<CallId>,
    /// When a reply with it was written.
    sent: Option<Moment>,
}

impl InFlight {
    fn report(&self) -> Report {
        let outcome = Outcome::Response(Box::new(self.taken.response.clone()));
        Report { outcome, note: self.open.note.clone() }
    }
}

impl Questions {
    pub(super) fn new(clock: Clock, process: Arc<Process>, named: Option<PathBuf>) -> Self {
        Self {
            clock,
            process,
            named,
            folder: None,
            open: HashMap::new(),
            in_flight: HashMap::new(),
            delivered: VecDeque::new(),
            unclaimed: HashMap::new(),
            calls: HashSet::new(),
            closed: false,
            next_look: None,
            changed: watch::Sender::new(()),
        }
    }

    /// Says that there may be something new for a call.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Asks, or finds the question that is open already.
    pub(super) fn ask(&mut self, arguments: AskArguments) -> Result<RequestId, Report> {
        let mut known = self.open.iter().map(|(id, open)| (id, open.key));
        let mut taken = self.in_flight.iter().map(|(id, in_flight)| (id, in_flight.open.key));
        let same = |(_, key): &(&RequestId, Digest)| *key == arguments.key;
        if let Some((id, _)) = known.find(same).or_else(|| taken.find(same)) {
            return Ok(id.clone());
        }
        let report = |outcome| Report { outcome, note: arguments.note.clone() };
        if self.closed {
            return Err(report(Outcome::Rejected(wording::CLIENT_GONE.to_owned())));
        }
        let broken = |error: AgentError| report(Outcome::Broken(error.to_string()));
        let folder = self.folder().map_err(broken)?;
        let waiter =
            Waiter::ask(folder, arguments.request.clone(), self.clock.clone(), &self.process).map_err(broken)?;
        let id = waiter.request_id().clone();
        let AskArguments { key, retries, note, .. } = arguments;
        let state = State::Waiting(self.clock.monotonic());
        self.open.insert(id.clone(), Open { waiter, key, retries, note, state, withdrawn: false });
        self.look_soon();
        Ok(id)
    }

    /// The folder to ask through. Each question looks for it anew: it may have been missing before, or been made again.
    fn folder(&mut self) -> Result<Arc<Folder>, AgentError> {
        if let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_current()) {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(find(self.named.as_deref(), |name: &str| std::env::var(name).ok())?);
        Ok(Arc::clone(self.folder.insert(folder)))
    }

    /// The question with that id, if this process has asked it.
    pub(super) fn find(&self, question_id: &str) -> Option<RequestId> {
        let id: RequestId = question_id.trim().parse().ok()?;
        let known = self.open.contains_key(&id)
            || self.in_flight.contains_key(&id)
            || self.delivered.iter().any(|(delivered, _)| *delivered == id);
        known.then_some(id)
    }

    /// What the agent should know about a question beside its outcome.
    pub(super) fn note(&self, id: &RequestId) -> Option<String> {
        self.open.get(id).and_then(|open| open.note.clone())
    }

    /// Takes the outcome for this call. `Ready(None)`: the client has gone, and there will be none.
    pub(super) fn poll(&mut self, id: &RequestId, call: &CallId) -> Poll<Option<Report>> {
        if self.closed {
            return Poll::Ready(None);
        }
        if !self.calls.contains(call) {
            return Poll::Pending;
        }
        if let Some(in_flight) = self.in_flight.get_mut(id) {
            in_flight.calls.push(call.clone());
            return Poll::Ready(Some(in_flight.report()));
        }
        if let Some((_, report)) = self.delivered.iter().find(|(delivered, _)| delivered == id) {
            return Poll::Ready(Some(report.clone()));
        }
        self.look(id);
        let Some(report) = self.take(id, call) else { return Poll::Pending };
        // Other calls may wait for the same question.
        self.changed.send_replace(());
        Poll::Ready(Some(report))
    }

    /// Withdraws a question. What has an outcome keeps it.
    pub(super) fn withdraw(&mut self, id: &RequestId) -> Result<(), AgentError> {
        self.look(id);
        let Some(open) = self.open.get_mut(id) else { return Ok(()) };
        if let State::Waiting(_) = open.state {
            open.withdrawn = !open.waiter.withdraw()?;
            if !open.withdrawn {
                open.state = State::Over(Outcome::Withdrawn);
            }
        }
        self.changed.send_replace(());
        Ok(())
    }

    /// A call has come.
    pub(super) fn began(&mut self, call: CallId) {
        self.calls.insert(call);
    }

    /// The client has sent a message: it has every reply that was written before. But if the message cancels a call,
    /// the client dropped the reply to that call.
    pub(super) fn heard(&mut self, cancelled: Option<&CallId>) {
        if let Some(call) = cancelled {
            self.calls.remove(call);
            self.lost(call);
        }
        self.deliver(|_| true);
        self.changed.send_replace(());
    }

    /// A reply was written, or could not be.
    pub(super) fn replied(&mut self, call: &CallId, written: bool) {
        self.calls.remove(call);
        if written {
            let now = self.clock.monotonic();
            for in_flight in self.in_flight.values_mut().filter(|in_flight| in_flight.calls.contains(call)) {
                in_flight.sent = Some(now);
            }
        } else {
            self.lost(call);
        }
        self.look_soon();
    }

    /// The client has closed its end.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.changed.send_replace(());
    }

    /// The process ends. Unless the client has `read` all that was written, what is in flight goes back into its file.
    /// Open questions stay open, and the signs of life grow old.
    pub(super) fn end(&mut self, read: bool) {
        if read {
            self.deliver(|_| true);
        }
        for (id, in_flight) in std::mem::take(&mut self.in_flight) {
            self.put_back(id, in_flight);
        }
        if !self.open.is_empty() {
            self.process.leave();
        }
        self.open.clear();
    }

    /// How long until [`Self::look_at_all`] is due; `None` if there is nothing to look at.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.next_look.map(|next| next.since(self.clock.monotonic()))
    }

    /// Something may be new: look before anything else is waited for.
    pub(super) fn look_soon(&mut self) {
        self.next_look = Some(self.clock.monotonic());
    }

    /// Looks at every question once.
    pub(super) fn look_at_all(&mut self) {
        // Before anything that a slow folder could hold up.
        let all = self.open.values().chain(self.in_flight.values().map(|in_flight| &in_flight.open));
        if let Some(open) = all.into_iter().next() {
            open.waiter.show_life();
        }
        let now = self.clock.monotonic();
        self.deliver(|sent| now >= sent + DELIVERED_AFTER);
        let open: Vec<RequestId> = self.open.keys().cloned().collect();
        let mut changed = false;
        for id in &open {
            changed |= self.look(id);
            self.finish_withdrawn(id);
        }
        let give_ups = self.open.values().filter_map(|open| match open.state {
            State::Waiting(give_up) => Some(give_up),
            State::Ready | State::Over(_) => None,
        });
        let deliveries = self.in_flight.values().filter_map(|in_flight| Some(in_flight.sent? + DELIVERED_AFTER));
        let idle = self.open.is_empty() && self.in_flight.is_empty();
        let regular = now + self.process.look_every();
        self.next_look = (!idle).then(|| give_ups.chain(deliveries).fold(regular, Moment::min));
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Looks at one question; `true` if there is something for a call.
    fn look(&mut self, id: &RequestId) -> bool {
        let Some(open) = self.open.get_mut(id) else { return false };
        if !matches!(open.state, State::Waiting(_)) {
            return false;
        }
        let look = open.waiter.look();
        if open.waiter.is_claimed() {
            self.unclaimed.remove(&open.key);
        }
        open.state = match look {
            Ok(Look::Waiting(give_up)) => State::Waiting(give_up),
            Ok(Look::Ready) => State::Ready,
            Ok(Look::NotClaimed) => {
                let attempt = self.unclaimed.entry(open.key).or_default();
                *attempt += 1;
                State::Over(Outcome::NotClaimed { attempt: *attempt, retries: open.retries })
            }
            Ok(Look::HostSilent) => State::Over(Outcome::HostSilent),
            Err(error) => {
                tracing::warn!(request_id = %id, %error, "cannot wait for this question any longer");
                State::Over(Outcome::Broken(error.to_string()))
            }
        };
        !matches!(open.state, State::Waiting(_))
    }

    /// Takes the outcome of a question for a call.
    fn take(&mut self, id: &RequestId, call: &CallId) -> Option<Report> {
        let open = self.open.get_mut(id)?;
        let taken = match &open.state {
            State::Waiting(_) => return None,
            State::Ready => open.waiter.take(),
            State::Over(outcome) => {
                let report = Report { outcome: outcome.clone(), note: open.note.clone() };
                self.open.remove(id);
                remember(&mut self.delivered, id.clone(), report.clone());
                return Some(report);
            }
        };
        match taken {
            Ok(Some(taken)) => {
                let open = self.open.remove(id)?;
                let in_flight = InFlight { open, taken, calls: vec![call.clone()], sent: None };
                let report = in_flight.report();
                self.in_flight.insert(id.clone(), in_flight);
                Some(report)
            }
            // The daemon withdrew it in this very moment.
            Ok(None) => {
                open.state = State::Waiting(self.clock.monotonic());
                None
            }
            Err(error) => {
                open.state = State::Over(Outcome::Broken(error.to_string()));
                self.take(id, call)
            }
        }
    }

    /// Ends a withdrawn question that no call waits for. If an answer came first, it stays.
    fn finish_withdrawn(&mut self, id: &RequestId) {
        let Some(open) = self.open.get_mut(id).filter(|open| open.withdrawn) else { return };
        let State::Ready = open.state else { return };
        let Ok(Some(taken)) = open.waiter.take() else { return };
        open.withdrawn = false;
        if taken.response.result.status == "cancelled" {
            let outcome = Outcome::Response(Box::new(taken.response.clone()));
            remember(&mut self.delivered, id.clone(), Report { outcome, note: open.note.take() });
            self.open.remove(id);
            delete(id, taken);
        } else {
            put_back(id, taken);
        }
    }

    /// Deletes the responses whose replies have reached the client, judged by when they were sent.
    fn deliver(&mut self, reached: impl Fn(Moment) -> bool) {
        for (id, in_flight) in self.in_flight.extract_if(|_, in_flight| in_flight.sent.is_some_and(&reached)) {
            let report = in_flight.report();
            delete(&id, in_flight.taken);
            remember(&mut self.delivered, id, report);
        }
    }

    /// The reply to this call was lost. If it was the only one with that outcome, the outcome waits again.
    fn lost(&mut self, call: &CallId) {
        let lost = self.in_flight.extract_if(|_, in_flight| {
            let before = in_flight.calls.len();
            in_flight.calls.retain(|known| known != call);
            before > 0 && in_flight.calls.is_empty()
        });
        for (id, in_flight) in lost.collect::<Vec<_>>() {
            self.put_back(id, in_flight);
        }
    }

    fn put_back(&mut self, id: RequestId, in_flight: InFlight) {
        let InFlight { mut open, taken, .. } = in_flight;
        put_back(&id, taken);
        open.state = State::Ready;
        self.open.insert(id, open);
    }
}

fn remember(delivered: &mut VecDeque<(RequestId, Report)>, id: RequestId, report: Report) {
    delivered.push_front((id, report));
    delivered.truncate(REMEMBERED);
}

fn delete(id: &RequestId, taken: Taken) {
    if let Err(error) = taken.done() {
        tracing::warn!(request_id = %id, %error, "a response that was delivered cannot be deleted");
    }
}

fn put_back(id: &RequestId, taken: Taken) {
    if let Err(error) = taken.put_back() {
        tracing::warn!(request_id = %id, %error, "a response could not be put back");
    }
}
