//! Reading again what another daemon may just have changed, because somebody came with a token that is not known here.

use crate::clock::{Clock, Moment};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// One read for each of these, and so many at once.
pub(super) const PACE: Duration = Duration::from_millis(200);
pub(super) const BURST: u32 = 20;

/// The reads so far. Held by one while it goes on.
#[derive(Debug, Default)]
pub(super) struct Rereads(Arc<Mutex<Reads>>);

#[derive(Debug, Default)]
struct Reads {
    /// When all of them so far would have come at the even pace.
    paced: Moment,
    /// When the last one began, and whether it failed.
    begun: Moment,
    failed: bool,
}

impl Rereads {
    /// Has `read` run for one caller at a time, and once for all who wait. It may block on the disk. Whoever guesses tokens has it run no
    /// faster than at a pace: `false` says that it was too soon.
    pub(super) async fn reread(
        &self,
        clock: &Clock,
        read: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<bool> {
        let came = clock.monotonic();
        let mut reads = Arc::clone(&self.0).lock_owned().await;
        if reads.begun > came {
            // A database that hangs holds none of them up twice.
            return if reads.failed { Err(io::Error::other("it could not be read")) } else { Ok(true) };
        }
        let now = clock.monotonic();
        let next = reads.paced.max(now);
        if next.since(now) + PACE > PACE * BURST {
            return Ok(false);
        }
        *reads = Reads { paced: next + PACE, begun: now, failed: true };
        // A caller who hangs up does not end it: those who wait are judged by what it finds.
        let read = tokio::task::spawn_blocking(move || {
            let read = read();
            reads.failed = read.is_err();
            read
        });
        read.await.unwrap_or_else(|panic| Err(io::Error::other(panic))).map(|()| true)
    }
}
