//! The threads on which asks are loaded, stepped and saved. They are the store's alone, so that no hung folder of a group
//! takes them all. What promises something goes first: the rest waits behind a small gate.

use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tracing::dispatcher;

/// Enough for a disk that syncs many files at a time.
const THREADS: usize = 32;
/// How many of them what promises nothing may use.
const BEHIND_THE_GATE: usize = 4;
/// How long a thread waits for more work before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The threads, and the gate.
#[derive(Debug)]
pub(super) struct Saves {
    /// Only its blocking threads are used.
    threads: Option<Runtime>,
    gate: Arc<Semaphore>,
}

impl Saves {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let builder = builder.max_blocking_threads(THREADS).thread_keep_alive(KEEP_ALIVE).thread_name("askd-save");
        Ok(Self { threads: Some(builder.build()?), gate: Arc::new(Semaphore::new(BEHIND_THE_GATE)) })
    }

    /// Runs work that blocks on the disk. It runs to its end even if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        promises: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The gate is never closed.
        let passed = if promises { None } else { Arc::clone(&self.gate).acquire_owned().await.ok() };
        // What the work spawns and logs goes where the caller's does: nobody drives the runtime of these threads.
        let (caller, log) = (Handle::current(), dispatcher::get_default(Clone::clone));
        let work = move || {
            let (_passed, _caller) = (passed, caller.enter());
            dispatcher::with_default(&log, work)
        };
        match &self.threads {
            Some(threads) => threads.spawn_blocking(work).await,
            None => tokio::task::spawn_blocking(work).await,
        }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}
