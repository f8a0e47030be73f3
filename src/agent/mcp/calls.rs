//! The thread that does all the file work of `askd mcp`. A folder on a slow mount holds up the calls that need it, never
//! a ping or another reply. One thread looks after all questions, so that a process with ten of them wakes as rarely as
//! a process with one.
//!
//! Jobs run one at a time, in the order in which they come. Called by `mcp` (the tools) and `transport` (what passes
//! through the pipe); what the jobs do is in `questions`.

use super::questions::Questions;
use super::settings::Settings;
use crate::agent::Way;
use crate::clock::Clock;
use rmcp::ErrorData;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// How long the end of the process waits for the folder.
const LAST_JOB: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Questions) + Send>;

/// Hands jobs to the thread.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) settings: Settings,
    /// Whether the questions go over HTTP.
    pub(super) is_remote: bool,
    jobs: UnboundedSender<Job>,
}

impl Calls {
    /// Starts the thread. It ends with the process.
    pub(super) fn start(settings: Settings, way: Way, clock: &Clock) -> io::Result<Self> {
        let (jobs, received) = unbounded_channel::<Job>();
        let is_remote = way.is_remote();
        let questions = Questions::new(clock.clone(), way);
        let bell = Arc::new(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        thread::Builder::new().name("files".to_owned()).spawn(move || work(questions, received, &bell))?;
        Ok(Self { settings, is_remote, jobs })
    }

    /// Queues a job.
    pub(super) fn queue(&self, job: impl FnOnce(&mut Questions) + Send + 'static) {
        // The thread ends only if one of its jobs panics; the next call of a tool says so.
        let _ended = self.jobs.send(Box::new(job));
    }

    /// Runs a job and waits for its result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Questions) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let (done, result) = oneshot::channel();
        self.queue(move |questions| drop(done.send(job(questions))));
        result.await.map_err(|_| ErrorData::internal_error("askd mcp has stopped working; start it again", None))
    }

    /// The last job of the process. `read`: the client has read all that was written.
    pub(super) fn end(&self, read: bool) {
        let (done, ended) = std::sync::mpsc::channel();
        self.queue(move |questions| {
            questions.end(read);
            let _process_ends = done.send(());
        });
        if ended.recv_timeout(LAST_JOB).is_err() {
            tracing::warn!("the folder does not respond; undelivered outcomes stay there as .taken- files");
        }
    }
}

/// Rung for a job: a thread that waits for events of files hears it, too.
#[derive(Debug)]
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // If it cannot be written, it has been rung often enough.
        let _rung = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Bell {
    /// Sleeps until it is rung, `events` can be read (`true`), or the time is up.
    fn sleep(&self, events: Option<BorrowedFd<'_>>, left: Option<Duration>) -> bool {
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        // The bell twice, if there are no events.
        let mut both = [readable(self.0.as_fd()), readable(events.unwrap_or(self.0.as_fd()))];
        // If it is interrupted, nothing can be read, and the caller begins again.
        let _woken = poll(&mut both, left.as_ref());
        let [rung, told] = both.map(|fd| !fd.revents().is_empty());
        if rung {
            let _reset = rustix::io::read(&self.0, &mut [0; 8]);
        }
        told && events.is_some()
    }
}

/// Sleeps in `poll`, on jobs and events at once: another thread for the events would cost a hand-off for each answer, and the
/// runtime's timer would wake this one twice for each look.
fn work(mut questions: Questions, mut jobs: UnboundedReceiver<Job>, bell: &Arc<Bell>) {
    let (waker, process) = (Waker::from(Arc::clone(bell)), Arc::clone(&questions.way.process));
    let (mut just_looked, mut news) = (false, false);
    loop {
        let left = questions.next_look();
        // A look that is due goes before queued jobs, because it gives the sign of life; but looks at a slow folder do not
        // follow each other while jobs wait.
        if std::mem::take(&mut news) || (left == Some(Duration::ZERO) && !just_looked) {
            questions.look_at_all();
            just_looked = true;
            continue;
        }
        just_looked = false;
        match jobs.poll_recv(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(job)) => job(&mut questions),
            Poll::Ready(None) => return,
            Poll::Pending => news = bell.sleep(process.events(), left) && process.has_news(),
        }
    }
}
