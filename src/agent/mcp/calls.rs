//! The thread that does all the file work of `askd mcp`. A folder on a slow mount holds up the calls that need it, never
//! a ping or another reply. One thread looks after all questions, so that a process with ten of them wakes as rarely as
//! a process with one.
//!
//! Jobs run one at a time, in the order in which they come. Called by `mcp` (the tools) and `transport` (what passes
//! through the pipe); what the jobs do is in `questions`.

use super::questions::Questions;
use super::settings::Settings;
use crate::agent::Process;
use crate::clock::Clock;
use rmcp::ErrorData;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// How long the end of the process waits for the folder.
const LAST_JOB: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Questions) + Send>;

/// Hands jobs to the thread.
#[derive(Debug)]
pub(super) struct Calls {
    settings: Settings,
    jobs: UnboundedSender<Job>,
}

impl Calls {
    /// Starts the thread. It ends with the process.
    pub(super) fn start(settings: Settings, clock: Clock) -> io::Result<Self> {
        let (jobs, received) = unbounded_channel::<Job>();
        let wake = jobs.clone();
        let process = Process::waking(&clock, move || drop(wake.send(Box::new(Questions::look_at_all))));
        let questions = Questions::new(clock, process, settings.ipc.clone());
        thread::Builder::new().name("files".to_owned()).spawn(move || work(questions, received))?;
        Ok(Self { settings, jobs })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
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

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks itself: the runtime's timer would wake it twice for each look, and the standard library's channel spins.
fn work(mut questions: Questions, mut jobs: UnboundedReceiver<Job>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut just_looked = false;
    loop {
        let left = questions.next_look();
        // A look that is due goes before queued jobs, because it gives the sign of life; but looks at a slow folder do not
        // follow each other while jobs wait.
        if left == Some(Duration::ZERO) && !just_looked {
            questions.look_at_all();
            just_looked = true;
            continue;
        }
        just_looked = false;
        match (jobs.poll_recv(&mut Context::from_waker(&waker)), left) {
            (Poll::Ready(Some(job)), _) => job(&mut questions),
            (Poll::Ready(None), _) => return,
            (Poll::Pending, Some(left)) => thread::park_timeout(left),
            (Poll::Pending, None) => thread::park(),
        }
    }
}
