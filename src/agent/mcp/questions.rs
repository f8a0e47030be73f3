//! The questions of this process, between two calls too: what each one waits for, which call took what, and what the
//! client has. It reads and renames their files, so all of it runs on the thread that [`super::calls`] starts.
//!
//! An outcome goes one way: the daemon puts it into a file (`Ready`), a call takes it (`InFlight`), and once the client
//! has it, the file is deleted (`delivered` keeps it for a call that asks again by id). If the reply is lost, the
//! outcome goes back into its file.

use crate::agent::{AgentError, Look, OpenCall, Taken, Way};
use crate::clock::{Clock, Moment};
use crate::ipc::wire::ResponseFile;
use crate::mcp::AskArguments;
use crate::mcp::answer::{self, Report, failed};
use askd_core::{Digest, RequestId, wording};
use rmcp::model::{CallToolResult, RequestId as CallId};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot::Sender;

/// How long after the reply a response is kept for a client that says nothing more.
const DELIVERED_AFTER: Duration = Duration::from_secs(10);
/// How many outcomes are kept for calls that ask again by id.
const REMEMBERED: usize = 64;

/// All questions of this process.
pub(super) struct Questions {
    clock: Clock,
    pub(super) way: Way,
    /// The questions whose outcome the client does not have.
    open: HashMap<RequestId, Question>,
    delivered: VecDeque<(RequestId, Report)>,
    /// How often a request with these questions was not claimed, until one is.
    unclaimed: HashMap<Option<Digest>, u32>,
    /// Keeps up the signs of life for a moment after the last question: the next one may follow at once.
    last: Option<Box<dyn OpenCall>>,
    closed: bool,
    /// When to look at all of them next; `None` if there is nothing to look at.
    next_look: Option<Moment>,
}

struct Question {
    waiter: Box<dyn OpenCall>,
    key: Option<Digest>,
    retries: u8,
    note: Option<String>,
    state: State,
    withdrawn: bool,
    /// The calls that wait for the outcome.
    calls: Vec<(CallId, Sender<Report>)>,
}

#[derive(Debug)]
enum State {
    /// Waits for the daemon, at the latest until this moment.
    Waiting(Moment),
    /// The response lies in its file.
    Ready,
    /// It ended without a response.
    Over(ResponseFile),
    /// On its way to the client.
    InFlight(InFlight),
}

#[derive(Debug)]
struct InFlight {
    taken: Taken,
    /// The calls that return it, and when their replies were written.
    calls: Vec<(CallId, Option<Moment>)>,
}

impl InFlight {
    /// When the first reply with it was written.
    fn sent(&self) -> Option<Moment> {
        self.calls.iter().filter_map(|(_, sent)| *sent).min()
    }
}

/// A question of this process, as a call knows it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: RequestId,
    /// What the agent should know about it beside its outcome.
    pub(super) note: Option<String>,
}

impl Question {
    fn report(&self, response: &ResponseFile) -> Report {
        Report { response: response.clone(), note: self.note.clone() }
    }

    /// The outcome on its way to the client goes back into its file.
    fn put_back(&mut self) {
        if let State::InFlight(InFlight { taken, .. }) = std::mem::replace(&mut self.state, State::Ready)
            && let Err(error) = taken.put_back()
        {
            tracing::warn!(request_id = %self.waiter.request_id(), %error, "a response could not be put back");
        }
    }
}

impl Questions {
    pub(super) fn new(clock: Clock, way: Way) -> Self {
        Self {
            clock,
            way,
            open: HashMap::new(),
            delivered: VecDeque::new(),
            unclaimed: HashMap::new(),
            last: None,
            closed: false,
            next_look: None,
        }
    }

    /// Asks, or finds the question that is open already. One that was withdrawn is asked anew: its outcome is no answer to a call
    /// that came later.
    pub(super) fn ask(&mut self, arguments: AskArguments) -> Result<Asked, CallToolResult> {
        let AskArguments { request, key, retries, note, .. } = arguments;
        if let Some((id, question)) = self.open.iter().find(|(_, question)| question.key == key && !question.withdrawn)
        {
            return Ok(Asked { id: id.clone(), note: question.note.clone() });
        }
        let refused = |response| answer::result(&Report { response, note: note.clone() }, None);
        if self.closed {
            return Err(refused(failed("rejected", wording::CLIENT_GONE)));
        }
        let broken = |error: AgentError| refused(failed("undeliverable", error));
        let waiter = self.way.ask(request, |name: &str| std::env::var(name).ok()).map_err(broken)?;
        let id = waiter.request_id().clone();
        let asked = Asked { id: id.clone(), note: note.clone() };
        let state = State::Waiting(self.clock.monotonic());
        let question = Question { waiter, key, retries, note, state, withdrawn: false, calls: Vec::new() };
        self.open.insert(id, question);
        Ok(asked)
    }

    /// The question with that id, if this process has asked it.
    pub(super) fn find(&self, question_id: &str) -> Option<Asked> {
        let id: RequestId = question_id.trim().parse().ok()?;
        let note = self.open.get(&id).map(|question| question.note.clone());
        let delivered = || self.delivered.iter().any(|(delivered, _)| *delivered == id).then_some(None);
        note.or_else(delivered).map(|note| Asked { id, note })
    }

    /// Gives this call the outcome, at once or as soon as there is one.
    pub(super) fn await_outcome(&mut self, id: &RequestId, call: CallId, tell: Sender<Report>) {
        if let Some(question) = self.open.get_mut(id).filter(|_| !self.closed) {
            question.calls.push((call, tell));
            self.look(id);
        } else if let Some((_, report)) = self.delivered.iter().find(|(delivered, _)| delivered == id) {
            // A call that has ended meanwhile needs it no more.
            let _ended = tell.send(report.clone());
        }
        self.look_by(self.way.look_every());
    }

    /// Withdraws a question. What has an outcome keeps it.
    pub(super) fn withdraw(&mut self, question_id: &str) -> Result<Asked, CallToolResult> {
        let asked = self.find(question_id).ok_or_else(|| answer::unknown(wording::UNKNOWN_NOT_WITHDRAWN))?;
        self.look(&asked.id);
        if let Some(question) = self.open.get_mut(&asked.id)
            && let State::Waiting(_) = question.state
        {
            let taken_back = question.waiter.withdraw();
            let broken = |error| question.report(&failed("undeliverable", error));
            let taken_back = taken_back.map_err(|error| answer::result(&broken(error), Some(&asked.id)))?;
            question.withdrawn = true;
            if taken_back {
                question.state = State::Over(failed("cancelled", wording::WITHDRAWN));
                self.hand_out(&asked.id);
            }
        }
        Ok(asked)
    }

    /// The client has sent a message: it has every reply that was written before. But if the message cancels a call,
    /// the client dropped the reply to that call.
    pub(super) fn heard(&mut self, cancelled: Option<&CallId>) {
        if let Some(call) = cancelled {
            self.lost(call);
        }
        self.deliver(|_| true);
    }

    /// A reply was written, or could not be.
    pub(super) fn replied(&mut self, call: &CallId, written: bool) {
        if !written {
            return self.lost(call);
        }
        let now = self.clock.monotonic();
        for question in self.open.values_mut() {
            if let State::InFlight(InFlight { calls, .. }) = &mut question.state {
                calls.iter_mut().filter(|(known, _)| known == call).for_each(|(_, sent)| *sent = Some(now));
            }
        }
        self.look_by(DELIVERED_AFTER);
    }

    /// This call returns nothing. If it was the only one with an outcome, the outcome waits again.
    pub(super) fn lost(&mut self, call: &CallId) {
        let mut waits_again = Vec::new();
        for (id, question) in &mut self.open {
            question.calls.retain(|(known, _)| known != call);
            if let State::InFlight(InFlight { calls, .. }) = &mut question.state {
                calls.retain(|(known, _)| known != call);
                if calls.is_empty() {
                    question.put_back();
                    waits_again.push(id.clone());
                }
            }
        }
        for id in waits_again {
            self.hand_out(&id);
        }
    }

    /// The client has closed its end: no call waits any longer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for question in self.open.values_mut() {
            question.calls.clear();
        }
    }

    /// The process ends. Unless the client has `read` all that was written, what is in flight goes back into its file.
    /// Open questions stay open, and the signs of life grow old.
    pub(super) fn end(&mut self, read: bool) {
        if read {
            self.deliver(|_| true);
        }
        self.open.values_mut().for_each(Question::put_back);
        if !self.open.is_empty() {
            self.way.process.leave();
        }
        self.open.clear();
        self.last = None;
    }

    /// How long until [`Self::look_at_all`] is due; `None` if there is nothing to look at.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.next_look.map(|next| next.since(self.clock.monotonic()))
    }

    /// Looks at all of them after so long, unless that is due before.
    fn look_by(&mut self, at_the_latest: Duration) {
        let by = self.clock.monotonic() + at_the_latest;
        self.next_look = Some(self.next_look.map_or(by, |next| next.min(by)));
    }

    /// Looks at every question once.
    pub(super) fn look_at_all(&mut self) {
        // Before anything that a slow folder could hold up.
        if let Some(question) = self.open.values().next() {
            question.waiter.show_life();
        }
        let now = self.clock.monotonic();
        self.next_look = None;
        if self.open.is_empty() {
            self.last = None;
            return;
        }
        self.deliver(|sent| now >= sent + DELIVERED_AFTER);
        for id in self.open.keys().cloned().collect::<Vec<_>>() {
            self.look(&id);
            self.finish_withdrawn(&id);
        }
        let due = self.open.values().filter_map(|question| match &question.state {
            State::Waiting(give_up) => Some(*give_up),
            State::InFlight(in_flight) => Some(in_flight.sent()? + DELIVERED_AFTER),
            State::Ready | State::Over(_) => None,
        });
        self.next_look = Some(due.fold(now + self.way.look_every(), Moment::min));
    }

    /// Looks at one question, and gives what came of it to the calls that wait for it.
    pub(super) fn look(&mut self, id: &RequestId) {
        let Some(question) = self.open.get_mut(id) else { return };
        if let State::Waiting(_) = question.state {
            let look = question.waiter.look();
            if question.waiter.is_claimed() {
                self.unclaimed.remove(&question.key);
            }
            question.state = match look {
                Ok(Look::Waiting(give_up)) => State::Waiting(give_up),
                Ok(Look::Ready) => State::Ready,
                Err(AgentError::HostSilent) => State::Over(failed("timeout", wording::HOST_SILENT)),
                Err(AgentError::NotClaimed { .. } | AgentError::NotTaken { .. }) => {
                    let attempt = self.unclaimed.entry(question.key).or_default();
                    *attempt += 1;
                    State::Over(answer::not_claimed(*attempt, question.retries))
                }
                Err(error) => {
                    tracing::warn!(request_id = %id, %error, "cannot wait for this question any longer");
                    State::Over(failed("undeliverable", error))
                }
            };
        }
        self.hand_out(id);
    }

    /// Gives an outcome to the calls that wait for it. A call that has ended meanwhile does not take it.
    fn hand_out(&mut self, id: &RequestId) {
        let Some(question) = self.open.get_mut(id).filter(|question| !question.calls.is_empty()) else { return };
        if let State::Ready = question.state {
            question.state = match question.waiter.take() {
                Ok(Some(taken)) => State::InFlight(InFlight { taken, calls: Vec::new() }),
                // The daemon has taken it back, in this very moment or while no call waited.
                Ok(None) => {
                    question.state = State::Waiting(self.clock.monotonic());
                    return self.look_by(Duration::ZERO);
                }
                Err(error) => State::Over(failed("undeliverable", error)),
            };
        }
        let report = match &question.state {
            State::Waiting(_) | State::Ready => return,
            State::Over(response) => question.report(response),
            State::InFlight(in_flight) => question.report(&in_flight.taken.response),
        };
        let told = question.calls.drain(..).filter_map(|(call, tell)| tell.send(report.clone()).ok().map(|()| call));
        let told: Vec<CallId> = told.collect();
        match &mut question.state {
            State::InFlight(in_flight) => {
                in_flight.calls.extend(told.into_iter().map(|call| (call, None)));
                if in_flight.calls.is_empty() {
                    question.put_back();
                }
            }
            _ if !told.is_empty() => self.finish(id, report),
            _ => {}
        }
    }

    /// Ends a withdrawn question that no call waits for. If an answer came first, it stays.
    fn finish_withdrawn(&mut self, id: &RequestId) {
        let Some(question) = self.open.get_mut(id).filter(|question| question.withdrawn) else { return };
        let State::Ready = question.state else { return };
        let Ok(Some(taken)) = question.waiter.take() else { return };
        question.withdrawn = false;
        let report = question.report(&taken.response);
        let cancelled = report.response.result.status == "cancelled";
        question.state = State::InFlight(InFlight { taken, calls: Vec::new() });
        if cancelled {
            self.finish(id, report);
        } else {
            question.put_back();
        }
    }

    /// Deletes the responses whose replies have reached the client, judged by when they were sent.
    fn deliver(&mut self, reached: impl Fn(Moment) -> bool) {
        let delivered = self.open.iter().filter_map(|(id, question)| match &question.state {
            State::InFlight(in_flight) if in_flight.sent().is_some_and(&reached) => {
                Some((id.clone(), question.report(&in_flight.taken.response)))
            }
            _ => None,
        });
        for (id, report) in delivered.collect::<Vec<_>>() {
            self.finish(&id, report);
        }
    }

    /// The question is over, and the client knows. Its response is deleted.
    fn finish(&mut self, id: &RequestId, report: Report) {
        let Some(question) = self.open.remove(id) else { return };
        if let State::InFlight(InFlight { taken, .. }) = question.state {
            if let Err(error) = taken.done() {
                tracing::warn!(request_id = %id, %error, "a response that was delivered cannot be deleted");
            }
            self.last = Some(question.waiter);
        }
        self.delivered.push_front((id.clone(), report));
        self.delivered.truncate(REMEMBERED);
    }
}

#[cfg(feature = "remote")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::connection::tests::{replies, token};
    use crate::clock::Hand;
    use crate::ipc::wire::RequestFile;
    use askd_core::Time;
    use tokio::sync::oneshot::channel;

    /// A question over HTTP whose outcome this process holds, and no call has fetched. `then` is what the daemon says next.
    async fn held(then: &'static str) -> (Questions, RequestId, Hand) {
        let outcome = serde_json::to_string(&failed("cancelled", "No.")).unwrap();
        let outcome = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{outcome}");
        let url = replies(&*Box::leak(Box::new([
            "HTTP/1.1 201 Created\r\nconnection: close\r\n\r\n{\"state\": \"open\"}",
            &*Box::leak(outcome.into_boxed_str()),
            then,
        ])));
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let variable = |name: &str| if name == "ASKD_URL" { Some(url.clone()) } else { token(name) };
        let mut questions = Questions::new(clock.clone(), Way::new(None, variable, &clock).unwrap());
        let request = RequestFile::default();
        let asked = questions.ask(AskArguments { request, key: None, retries: 0, wait: None, note: None });
        let id = asked.unwrap().id;
        while !matches!(questions.open[&id].state, State::Ready) {
            Clock::system().sleep(Duration::from_millis(20)).await;
            questions.look_at_all();
        }
        (questions, id, hand)
    }

    #[tokio::test]
    async fn over_http_an_outcome_counts_as_taken_10_s_after_the_reply() {
        let (mut questions, id, hand) = held("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        let ((tell, told), call) = (channel(), CallId::Number(1));
        questions.await_outcome(&id, call.clone(), tell);
        assert_eq!(told.await.unwrap().response.result.status, "cancelled");
        questions.replied(&call, true);
        let next = questions.next_look();
        assert!(next.is_some_and(|next| next <= DELIVERED_AFTER), "{next:?}");
        hand.advance(DELIVERED_AFTER);
        questions.look_at_all();
        assert!(questions.open.is_empty());
    }

    #[tokio::test]
    async fn a_call_for_an_outcome_that_is_gone_is_told_so_at_once() {
        let (mut questions, id, hand) = held(
            "HTTP/1.1 410 Gone\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\r\n\
             {\"detail\": \"It became a briefing.\"}",
        )
        .await;
        while matches!(questions.open[&id].waiter.take(), Ok(Some(_))) {
            hand.advance(Duration::from_secs(1));
            Clock::system().sleep(Duration::from_millis(20)).await;
        }
        // As the news has it do.
        questions.look_at_all();
        let (tell, mut told) = channel();
        questions.await_outcome(&id, CallId::Number(1), tell);
        assert_eq!(questions.next_look(), Some(Duration::ZERO));
        questions.look_at_all();
        let told = told.try_recv().expect("an outcome at once").response;
        assert_eq!((&*told.result.status, told.error.as_deref()), ("undeliverable", Some("It became a briefing.")));
    }
}
