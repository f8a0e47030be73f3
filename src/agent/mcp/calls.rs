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
    settings: Settings,
    jobs: UnboundedSender<Job>,
}

impl Calls {
    /// Starts the thread. It ends when the last handle is dropped.
    pub(super) fn start(settings: Settings, clock: Clock) -> io::Result<Self> {
        let named = settings.ipc.clone();
        let (jobs, received) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let work = move || runtime.block_on(work(clock, named, received));
        thread::Builder::new().name("files".to_owned()).spawn(work)?;
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

async fn work(clock: Clock, named: Option<std::path::PathBuf>, mut jobs: UnboundedReceiver<Job>) {
    let process = Process::new(&clock);
    let mut questions = Questions::new(clock.clone(), Arc::clone(&process), named);
    loop {
        let next_look = questions.next_look();
        let due = async {
            match next_look {
                Some(moment) => clock.sleep_to(moment).await,
                None => std::future::pending().await,
            }
        };
        // Chance decides which goes first, so that looks at a slow folder and jobs do not hold up each other for long.
        tokio::select! {
            () = process.woken() => questions.look_at_all(),
            () = due => questions.look_at_all(),
            job = jobs.recv() => match job {
                Some(job) => job(&mut questions),
                None => return,
            },
        }
    }
}
