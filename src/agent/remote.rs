//! Waiting calls over HTTP, for an agent that shares no folder with the daemon. A task for each call asks, waits, and does what
//! its [`RemoteWaiter`] wishes, through restarts, until its own deadline. It renews what the daemon holds for it until the outcome
//! is taken, as a file would lie there. [`super::way`] makes them.

use super::AgentError;
use super::connection::{Connection, Failed, PAUSES, WAIT, detail, done};
use super::waiter::{BLIND_PATIENCE, Look, PATIENCE, TIMEOUT_MS, millis};
use super::way::{OpenCall, Taken, Work};
use crate::clock::Moment;
use crate::ipc::wire::{RENDER_TIMEOUT_MS, RequestFile, ResponseFile, StatusFile, unanswered};
use crate::random;
use askd_core::{RequestId, Time, wording};
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::{Method, Response, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How long a question that may have been taken is taken back.
const WITHDRAWAL: Duration = Duration::from_secs(10);
/// How long a daemon may have a question in hand that it does not know yet: until then it may say that there is none.
const IN_HAND: Duration = Duration::from_secs(2);
/// How often an outcome that is not taken yet is fetched again: the daemon holds it for a minute.
const RENEW_EVERY: Duration = Duration::from_secs(20);
/// How long an outcome that was fetched is certainly held for this process. After that the daemon may have given it to another one.
const HELD_FOR: Duration = Duration::from_secs(50);

impl Connection {
    /// Asks. The task that does it runs on `runtime`.
    pub(super) fn ask(
        self: &Arc<Self>,
        mut request: RequestFile,
        runtime: &Handle,
    ) -> Result<RemoteWaiter, AgentError> {
        let request_id = random::request_id();
        request.request_id = request_id.to_string();
        let call = Arc::new(Call {
            at: Arc::clone(self),
            request_id,
            wish: watch::Sender::new(Wish::Wait),
            seen: Mutex::default(),
            until_asked: self.clock.monotonic() + millis(request.render_timeout, RENDER_TIMEOUT_MS),
            timeout: millis(request.timeout_ms, TIMEOUT_MS),
        });
        let body = serde_json::to_vec(&request)?;
        self.tasks.spawn_on(Arc::clone(&call).run(body, request.op_code), runtime);
        Ok(RemoteWaiter(call))
    }
}

/// What the task of a call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Wait,
    Withdraw,
    /// The same while nobody waits any more, for a moment.
    WithdrawAtLast,
    Take,
    /// Nothing: the daemon ends the lease.
    Leave,
}

/// What is known of a call so far.
#[derive(Debug, Default)]
struct Seen {
    claimed: bool,
    /// It may have been sent, and no reply says what has come of it.
    may_be_claimed: bool,
    /// The daemon has heard that the question is withdrawn.
    withdrawn: bool,
    answer_by: Option<Moment>,
    end: Option<Result<ResponseFile, AgentError>>,
    /// Until when the daemon certainly holds the outcome for this process.
    held_until: Option<Moment>,
}

/// A call, as its task and its waiter know it.
#[derive(Debug)]
pub(super) struct Call {
    at: Arc<Connection>,
    request_id: RequestId,
    wish: watch::Sender<Wish>,
    seen: Mutex<Seen>,
    until_asked: Moment,
    timeout: Duration,
}

/// One waiting call. Without it nobody waits.
#[derive(Debug)]
pub struct RemoteWaiter(Arc<Call>);

impl Drop for RemoteWaiter {
    fn drop(&mut self) {
        let withdrawn = self.is_withdrawn();
        self.0.wish.send_if_modified(|wish| {
            let next = match wish {
                // The daemon does not know yet what the agent was promised.
                Wish::Withdraw if !withdrawn => Wish::WithdrawAtLast,
                Wish::Take | Wish::WithdrawAtLast | Wish::Leave => return false,
                Wish::Wait | Wish::Withdraw => Wish::Leave,
            };
            *wish = next;
            true
        });
    }
}

impl OpenCall for RemoteWaiter {
    fn request_id(&self) -> &RequestId {
        &self.0.request_id
    }

    fn is_claimed(&self) -> bool {
        self.0.seen.lock().claimed
    }

    fn stays(&self) -> bool {
        self.is_claimed()
    }

    fn left(&self) -> Option<Duration> {
        self.0.seen.lock().answer_by.map(|end| end.since(self.0.at.clock.monotonic()))
    }

    /// What the task has come to.
    fn look(&self) -> Result<Look, AgentError> {
        let mut seen = self.0.seen.lock();
        match seen.end.take_if(|end| end.is_err()) {
            Some(Err(error)) => return Err(error),
            _ if seen.end.is_some() => return Ok(Look::Ready),
            _ => {}
        }
        // The task says when it is time to give up.
        Ok(Look::Waiting(self.0.at.clock.monotonic() + BLIND_PATIENCE))
    }

    fn take(&self) -> Result<Option<Taken>, AgentError> {
        let mut seen = self.0.seen.lock();
        if seen.held_until.take_if(|until| *until <= self.0.at.clock.monotonic()).is_some() {
            // Only the daemon knows whether it still is this process's.
            let _doubted = seen.end.take_if(|end| end.is_ok());
            self.0.wish.send_modify(|_| {});
            return Ok(None);
        }
        let response = seen.end.as_ref().and_then(|end| end.as_ref().ok()).cloned();
        Ok(response.map(|response| Taken::recorded(response, Arc::clone(&self.0))))
    }

    fn woken(&self, _give_up: Moment) -> Work<'_, ()> {
        Box::pin(self.0.at.news())
    }

    /// Tells the daemon that this call no longer waits, for as long as it takes.
    fn withdraw(&self) -> Result<bool, AgentError> {
        self.0.wish.send_replace(Wish::Withdraw);
        Ok(false)
    }

    fn is_withdrawn(&self) -> bool {
        self.0.seen.lock().withdrawn
    }

    fn finish(&self) -> Work<'_, Result<(), AgentError>> {
        Box::pin(async {
            self.0.at.finish(PATIENCE * 2).await;
            self.look().map(drop)
        })
    }
}

impl Call {
    /// The outcome has reached its caller.
    pub(super) fn done(&self) {
        self.wish.send_replace(Wish::Take);
    }

    fn path(&self, rest: &str) -> String {
        format!("/asks/{}{rest}", self.request_id)
    }

    fn end(&self, end: Result<ResponseFile, AgentError>) {
        self.seen.lock().end = Some(end);
        self.at.news.notify_one();
    }

    fn unanswered(&self, op_code: Option<String>, status: &str, error: String) -> ResponseFile {
        let result = unanswered(self.request_id.as_str(), op_code, status, "system");
        ResponseFile { result, error: Some(error) }
    }

    async fn run(self: Arc<Self>, body: Vec<u8>, op_code: Option<String>) {
        let mut wishes = self.wish.subscribe();
        let asked = tokio::select! {
            // A call that is withdrawn before it began asks nothing.
            biased;
            _ = wishes.wait_for(|wish| *wish != Wish::Wait) => Ok(None),
            asked = self.ask(&body, op_code.clone()) => asked,
        };
        match asked {
            Ok(None) => {}
            Ok(Some(rejected)) => return self.end(Ok(rejected)),
            Err(error) => return self.end(Err(error)),
        }
        let blind = self.at.clock.monotonic() + self.timeout * 2 + BLIND_PATIENCE;
        loop {
            let wish = *wishes.borrow_and_update();
            let step = async {
                match wish {
                    Wish::Withdraw if !self.seen.lock().withdrawn => self.take_back(op_code.clone()).await,
                    Wish::Wait | Wish::Withdraw => self.wait(blind).await,
                    Wish::WithdrawAtLast => {
                        if self.withdraw(WITHDRAWAL).await.is_none() {
                            tracing::warn!(request_id = %self.request_id, "a withdrawn question may stay open: askd could not be told");
                        }
                        Ok(Next::Over)
                    }
                    Wish::Take => self.taken_at_last().await,
                    Wish::Leave => Ok(Next::Over),
                }
            };
            let next = tokio::select! {
                next = step => next,
                _ = wishes.changed() => continue,
            };
            match next {
                Ok(Next::Again) => {}
                Ok(Next::Renew) => tokio::select! {
                    () = self.at.clock.sleep(RENEW_EVERY) => {}
                    _ = wishes.changed() => {}
                },
                Ok(Next::Over) => return,
                Err(error) => return self.end(Err(error)),
            }
        }
    }

    /// Asks; `Some` is a rejection.
    async fn ask(&self, body: &[u8], op_code: Option<String>) -> Result<Option<ResponseFile>, AgentError> {
        let url = || self.at.url.clone();
        let op_code = &op_code;
        self.seen.lock().may_be_claimed = true;
        let read = |reply: Response| async move {
            if reply.status().is_success() {
                return self.note(reply).await.then_some(None);
            }
            Some(Some(self.unanswered(op_code.clone(), "rejected", detail(reply).await)))
        };
        match self.at.try_until(Method::POST, "/asks", body, || self.until_asked, read).await {
            Ok(rejected) => {
                self.seen.lock().claimed = rejected.is_none();
                Ok(rejected)
            }
            Err(Failed::Refused) => Err(self.at.refused()),
            // Its reply may have been lost, not the question.
            Err(Failed::Late { why, heard: true }) if self.withdraw(WITHDRAWAL).await.is_none() => {
                Err(AgentError::Unclear { url: url(), why })
            }
            Err(Failed::Late { why, .. }) => Err(AgentError::NotTaken { url: url(), why }),
        }
    }

    /// Waits for the outcome once, at most until `blind` unless the daemon says a deadline.
    async fn wait(&self, blind: Moment) -> Result<Next, AgentError> {
        let path = self.path(&format!("?wait={WAIT}"));
        let heard = self.at.clock.monotonic();
        let until = || self.seen.lock().answer_by.map_or(blind, |end| end + PATIENCE).max(heard + PATIENCE);
        let read = |reply: Response| async move {
            match reply.status() {
                StatusCode::OK => {
                    let response = reply.json::<ResponseFile>().await.ok()?;
                    self.seen.lock().held_until = Some(self.at.clock.monotonic() + HELD_FOR);
                    if !self.has_outcome() {
                        self.end(Ok(response.with_bare_error()));
                    }
                    Some(Ok(Next::Renew))
                }
                StatusCode::ACCEPTED => self.note(reply).await.then_some(Ok(Next::Again)),
                _ => Some(Err(AgentError::Gone(detail(reply).await))),
            }
        };
        match self.at.try_until(Method::GET, &path, b"", until, read).await {
            Ok(next) => next,
            // The outcome is here, and the daemon holds it from its next start on, or once the file has the new token.
            Err(Failed::Refused | Failed::Late { .. }) if self.has_outcome() => Ok(Next::Renew),
            Err(Failed::Refused) => Err(self.at.refused()),
            Err(Failed::Late { .. }) => Err(AgentError::HostSilent),
        }
    }

    fn has_outcome(&self) -> bool {
        self.seen.lock().end.as_ref().is_some_and(Result::is_ok)
    }

    /// Until the daemon knows, the outcome is owed to the next process that asks.
    async fn taken(&self) -> Result<(), AgentError> {
        let until = self.at.clock.monotonic() + PATIENCE;
        match self.at.try_until(Method::POST, &self.path("/taken"), b"", || until, done).await {
            Ok(reply) if reply.status() == StatusCode::NO_CONTENT => Ok(()),
            Ok(reply) => Err(AgentError::Gone(detail(reply).await)),
            Err(Failed::Refused) => Err(self.at.refused()),
            Err(Failed::Late { .. }) => Err(AgentError::HostSilent),
        }
    }

    /// The same for as long as this process lives: a daemon may be away for longer than one that asks has patience.
    async fn taken_at_last(&self) -> Result<Next, AgentError> {
        let told = self.taken().await;
        if let Err(error) = &told {
            let request_id = &self.request_id;
            let what = "askd does not know that an outcome was taken: it may give it to another call, or start the agent with it";
            tracing::warn!(%request_id, %error, "{what}");
        }
        match told {
            Err(error @ AgentError::HostSilent) => {
                self.end(Err(error));
                Ok(Next::Again)
            }
            told => {
                // It knows at last.
                self.seen.lock().end.take_if(|end| end.is_err());
                told.map(|()| Next::Over)
            }
        }
    }

    /// Takes the question back. An answer may have come first.
    async fn take_back(&self, op_code: Option<String>) -> Result<Next, AgentError> {
        let Some(is_there) = self.withdraw(self.timeout).await else { return Err(AgentError::HostSilent) };
        let mut seen = self.seen.lock();
        seen.withdrawn = true;
        if is_there || seen.claimed {
            return Ok(Next::Again);
        }
        drop(seen);
        self.end(Ok(self.unanswered(op_code, "cancelled", wording::WITHDRAWN.to_owned())));
        Ok(Next::Over)
    }

    /// Withdraws the question, and says whether there was one; `None` if no daemon has said so.
    async fn withdraw(&self, at_most: Duration) -> Option<bool> {
        let (clock, path) = (&self.at.clock, self.path(""));
        let (began, until) = (clock.monotonic(), clock.monotonic() + at_most);
        loop {
            let reply = self.at.try_until(Method::DELETE, &path, b"", || until, done).await.ok()?;
            match reply.status() {
                StatusCode::NO_CONTENT => return Some(true),
                StatusCode::NOT_FOUND if self.may_be_in_hand(began) => clock.sleep(PAUSES.0).await,
                StatusCode::NOT_FOUND => return Some(false),
                _ => return None,
            }
        }
    }

    /// Whether a daemon that knows no such question may still be taking it in.
    fn may_be_in_hand(&self, since: Moment) -> bool {
        let seen = self.seen.lock();
        seen.may_be_claimed && !seen.claimed && self.at.clock.monotonic().since(since) < IN_HAND
    }

    /// Notes until when it can be answered, by the daemon's clock: this host's may be wrong. `false` if the reply says nothing.
    async fn note(&self, reply: Response) -> bool {
        let date = reply.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let now = date.map(|date| Time::from_millis(date.as_millisecond()));
        let Ok(status) = reply.json::<StatusFile>().await else { return false };
        if let Some(end) = status.answer_by {
            let clock = &self.at.clock;
            let left = end.since(now.unwrap_or_else(|| clock.now()));
            self.seen.lock().answer_by = Some(clock.monotonic() + left);
        }
        true
    }
}

/// How the task of a call goes on.
enum Next {
    Again,
    /// The outcome is here and was not taken yet.
    Renew,
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::connection::tests::{replies, token};
    use crate::clock::{Clock, Hand};

    /// What answers every call, and is not askd.
    const PORTAL: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<html>Sign in";
    /// What the daemon says of a question that it does not know.
    const UNKNOWN: &str =
        "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\r\n{}";
    /// What it says once the question is over.
    const OVER: &str = "HTTP/1.1 410 Gone\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\r\n{\"detail\": \"over\"}";

    #[tokio::test]
    async fn what_is_left_is_told_by_the_daemons_clock_and_a_portal_is_no_reply() {
        // This host is hours ahead.
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_020_000_000));
        let url = replies(&[
            PORTAL,
            "HTTP/1.1 201 Created\r\ndate: Thu, 09 Oct 2025 08:53:20 GMT\r\nconnection: close\r\n\r\n\
             {\"state\": \"open\", \"answer_by\": \"2025-10-09T08:54:20.000Z\"}",
            PORTAL,
            "HTTP/1.1 302 Found\r\nlocation: /sign-in\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n<html>No site here",
            "HTTP/1.1 410 Gone\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\r\n\
             {\"detail\": \"over\"}",
        ]);
        let connection = Arc::new(Connection::new(&url, token, clock.clone()).unwrap());
        let began = clock.monotonic();
        let waiter = connection.ask(RequestFile::default(), &Handle::current()).unwrap();
        let passing = async {
            loop {
                Clock::system().sleep(Duration::from_millis(20)).await;
                hand.advance(Duration::from_millis(50));
            }
        };
        tokio::select! {
            () = waiter.woken(clock.monotonic()) => {}
            () = passing => {}
        }
        assert!(matches!(waiter.look(), Err(AgentError::Gone(why)) if why == "over"));
        assert!(clock.monotonic().since(began) >= PAUSES.0 * 2, "it pauses after a portal");
        assert!(waiter.left().is_some_and(|left| left > Duration::from_secs(30)), "{:?}", waiter.left());
    }

    #[tokio::test]
    async fn a_portal_that_answers_every_call_has_not_taken_the_question() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let url = replies(&[PORTAL; 30]);
        let connection = Arc::new(Connection::new(&url, token, clock).unwrap());
        let waiter = connection.ask(RequestFile::default(), &Handle::current()).unwrap();
        for _ in 0..200 {
            Clock::system().sleep(Duration::from_millis(20)).await;
            hand.advance(Duration::from_millis(200));
            match waiter.look() {
                Ok(_) => {}
                Err(AgentError::NotTaken { why, .. }) => return assert_eq!(why, "it answers 200 OK"),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it still waits");
    }

    #[tokio::test]
    async fn a_portal_does_not_hear_that_an_outcome_was_taken() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let url = replies(&[PORTAL, PORTAL, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"]);
        let connection = Arc::new(Connection::new(&url, token, clock.clone()).unwrap());
        let began = clock.monotonic();
        let passing = async {
            loop {
                Clock::system().sleep(Duration::from_millis(20)).await;
                hand.advance(Duration::from_millis(50));
            }
        };
        let request_id = random::request_id();
        let (wish, until_asked) = (watch::Sender::new(Wish::Take), began);
        let call = Call { at: connection, request_id, wish, seen: Mutex::default(), until_asked, timeout: PATIENCE };
        tokio::select! {
            taken = call.taken() => assert!(taken.is_ok(), "{taken:?}"),
            () = passing => {}
        }
        assert!(clock.monotonic().since(began) >= PAUSES.0 * 3);
    }

    /// A question whose outcome is here, before the daemon says the rest.
    async fn with_an_outcome(rest: &[&'static str]) -> (RemoteWaiter, Hand) {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let response = ResponseFile { result: unanswered("r1", None, "cancelled", "user"), error: None };
        let response = serde_json::to_string(&response).unwrap();
        let response = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{response}");
        let asked = "HTTP/1.1 201 Created\r\nconnection: close\r\n\r\n{\"state\": \"open\"}";
        let url = replies([[asked, response.leak()].as_slice(), rest].concat().leak());
        let connection = Arc::new(Connection::new(&url, token, clock).unwrap());
        let waiter = connection.ask(RequestFile::default(), &Handle::current()).unwrap();
        for _ in 0..200 {
            if matches!(waiter.take(), Ok(Some(_))) {
                break;
            }
            Clock::system().sleep(Duration::from_millis(20)).await;
        }
        assert!(matches!(waiter.take(), Ok(Some(_))), "{:?}", waiter.look());
        (waiter, hand)
    }

    /// Its token is revoked while nobody calls: the next call gets what the process has.
    #[tokio::test]
    async fn an_outcome_that_is_here_stays_when_the_token_is_refused() {
        let refused = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n";
        let (waiter, hand) = with_an_outcome(&[refused, OVER]).await;
        let system = Clock::system();
        hand.advance(RENEW_EVERY);
        for _ in 0..20 {
            system.sleep(Duration::from_millis(20)).await;
            assert!(matches!(waiter.take(), Ok(Some(_))) && waiter.look().is_ok());
        }
        // The next renewal may have another token.
        let is_over = || matches!(waiter.look(), Err(AgentError::Gone(why)) if why == "over");
        for _ in 0..200 {
            hand.advance(RENEW_EVERY);
            system.sleep(Duration::from_millis(20)).await;
            if is_over() {
                return;
            }
        }
        panic!("it does not hold the outcome any more");
    }

    /// The network was cut, or the host slept, for longer than the daemon holds an outcome for a process.
    #[tokio::test]
    async fn an_outcome_that_may_be_another_ones_by_now_is_fetched_again() {
        let (waiter, hand) = with_an_outcome(&[OVER]).await;
        let system = Clock::system();
        hand.advance(HELD_FOR);
        assert!(matches!(waiter.take(), Ok(None)), "another process may have it");
        for _ in 0..200 {
            system.sleep(Duration::from_millis(20)).await;
            match waiter.look() {
                Ok(Look::Waiting(_)) => {}
                Ok(Look::Ready) => panic!("it is ready again"),
                Err(error) => return assert!(matches!(error, AgentError::Gone(why) if why == "over")),
            }
        }
        panic!("it still waits");
    }

    /// It was withdrawn while the daemon took it in.
    #[tokio::test]
    async fn a_question_that_is_not_known_yet_is_withdrawn_once_it_is() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let url = replies(&[
            "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n",
            UNKNOWN,
            UNKNOWN,
            "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
            OVER,
        ]);
        let connection = Arc::new(Connection::new(&url, token, clock).unwrap());
        let waiter = connection.ask(RequestFile::default(), &Handle::current()).unwrap();
        let system = Clock::system();
        system.sleep(Duration::from_millis(100)).await;
        waiter.withdraw().unwrap();
        for _ in 0..500 {
            system.sleep(Duration::from_millis(20)).await;
            hand.advance(Duration::from_millis(20));
            match waiter.look() {
                Ok(Look::Waiting(_)) => {}
                Ok(Look::Ready) => panic!("it counts as withdrawn: {:?}", waiter.0.seen.lock().end),
                Err(error) => return assert!(matches!(error, AgentError::Gone(why) if why == "over")),
            }
        }
        panic!("it still waits");
    }

    #[tokio::test]
    async fn a_question_is_withdrawn_only_once_the_daemon_says_so() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let proxy = [
            "HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n<html>No site here",
        ];
        let url = replies([proxy.as_slice(), [UNKNOWN; 30].as_slice()].concat().leak());
        let connection = Arc::new(Connection::new(&url, token, clock.clone()).unwrap());
        let waiter = connection.ask(RequestFile::default(), &Handle::current()).unwrap();
        // The first POST meets a proxy whose daemon may have gone on; the question is withdrawn before the second.
        let system = Clock::system();
        let a_moment = || system.sleep(Duration::from_millis(100));
        a_moment().await;
        assert!(!waiter.withdraw().unwrap());
        a_moment().await;
        assert!(!waiter.is_withdrawn(), "a proxy's 404 says nothing");
        let passing = async {
            loop {
                a_moment().await;
                hand.advance(PAUSES.0);
            }
        };
        tokio::select! {
            () = waiter.woken(clock.monotonic()) => {}
            () = passing => {}
        }
        assert!(waiter.look().is_ok() && waiter.is_withdrawn());
    }
}
