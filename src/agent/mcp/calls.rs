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
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the end of the process waits for the folder.
const LAST_JOB: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Questions) + Send>;

/// Hands jobs to the thread.
#[derive(Debug)]
pub(super) struct Calls {
    settings: Settings,
    jobs: Sender<Job>,
}

impl Calls {
    /// Starts the thread. It ends with the process.
    pub(super) fn start(settings: Settings, clock: Clock) -> io::Result<Self> {
        let (jobs, received) = channel::<Job>();
        let wake = jobs.clone();
        let process = Process::waking(&clock, move || drop(wake.send(Box::new(Questions::look_at_all))));
        let questions = Questions::new(clock, process, settings.ipc.clone());
        thread::Builder::new().name("files".to_owned()).spawn(move || work(questions, &received))?;
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
        let (done, ended) = channel();
        self.queue(move |questions| {
            questions.end(read);
            let _process_ends = done.send(());
        });
        if ended.recv_timeout(LAST_JOB).is_err() {
            tracing::warn!("the folder does not respond; undelivered outcomes stay there as .taken- files");
        }
    }
}

fn work(mut questions: Questions, jobs: &Receiver<Job>) {
    let mut just_looked = false;
    loop {
        let left = questions.next_look();
        // A look that is due goes before queued jobs, because it gives the sign of life; but looks at a slow folder do not
        // follow each other while jobs wait.
        let job = match left {
            Some(Duration::ZERO) if !just_looked => Err(RecvTimeoutError::Timeout),
            Some(left) => jobs.recv_timeout(left),
            None => jobs.recv().map_err(RecvTimeoutError::from),
        };
        just_looked = job.is_err();
        match job {
            Ok(job) => job(&mut questions),
            Err(RecvTimeoutError::Timeout) => questions.look_at_all(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
