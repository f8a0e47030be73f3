//! What all waiting calls of one process share: its name, its one file watch, and its sign of life
//! (`tasks/.alive-<process>`), by which the daemon knows that somebody still waits.
//!
//! It reads no responses and decides nothing. Made once by `askd ask` and `askd mcp`, before the
//! first request is written, so that no answer comes before the watch.

use super::{AgentError, Folder, SHARED};
use crate::clock::{Clock, Moment};
use crate::ipc::files::Stamp;
use crate::ipc::watch::{Hint, Watch};
use crate::ipc::{RESPONSES, alive_name, response_name};
use crate::random;
use askd_core::RequestId;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often the folder is looked at without any event: for file systems that have none. About 2 s, and a
/// power of two in milliseconds, because that costs `askd mcp` one wake-up instead of two.
const LOOK_EVERY: Duration = Duration::from_millis(2048);
/// The same where no watch is to be had, as long as a person may just be there.
const LOOK_OFTEN: Duration = Duration::from_millis(256);
/// How long that is, from the last question on: whoever has not answered by then will not mind a second.
const EAGER_FOR: Duration = Duration::from_secs(60);
/// How old the sign of life may be when it is given again. It is given at a look, so that it costs
/// no wake-up of its own, and at the latest every 5 s.
const BEAT_EVERY: Duration = Duration::from_millis(3500);

/// A process that waits for answers.
#[derive(Debug)]
pub struct Process {
    clock: Clock,
    name: RequestId,
    wake: Arc<Notify>,
    awaited: Arc<Mutex<HashSet<String>>>,
    watching: Mutex<Watching>,
    life: Mutex<Liveness>,
}

/// The one watch, and which folder it is on.
#[derive(Debug)]
struct Watching {
    watch: Option<Watch>,
    on: Option<Stamp>,
}

/// Who waits, and when that was last told.
#[derive(Debug, Default)]
struct Liveness {
    waiting: usize,
    told: Option<Moment>,
    /// When the last request was written.
    asked: Option<Moment>,
    left: bool,
}

/// A lock that a panic elsewhere does not take away.
impl Process {
    /// A process of a random name. The watch is made with the first request.
    pub fn new(clock: &Clock) -> Result<Arc<Self>, AgentError> {
        let name = random::unique().parse().map_err(|error| AgentError::NoFolder(format!("{error}")))?;
        Ok(Arc::new(Self {
            clock: clock.clone(),
            name,
            wake: Arc::default(),
            awaited: Arc::default(),
            watching: Mutex::new(Watching { watch: None, on: None }),
            life: Mutex::default(),
        }))
    }

    /// Its name, as requests carry it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Until something that is waited for may be new.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Makes whoever waits look at once.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// How often to look without being woken.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        let eager = || self.life.lock().asked.is_some_and(|asked| self.clock.monotonic().since(asked) < EAGER_FOR);
        if self.watching.lock().on.is_none() && eager() { LOOK_OFTEN } else { LOOK_EVERY }
    }

    /// A request is about to be written: watch and sign of life come first.
    pub(super) fn begin(&self, folder: &Folder, request_id: &RequestId) {
        self.awaited.lock().insert(response_name(request_id));
        self.watch(folder);
        let mut life = self.life.lock();
        life.waiting += 1;
        life.asked = Some(self.clock.monotonic());
        drop(life);
        self.tell(folder, true);
    }

    /// One waits no more. With the last one the sign of life goes.
    pub(super) fn end(&self, folder: &Folder, request_id: &RequestId) {
        self.awaited.lock().remove(&response_name(request_id));
        let mut life = self.life.lock();
        life.waiting = life.waiting.saturating_sub(1);
        if life.waiting == 0 && !life.left {
            life.told = None;
            // The daemon may have tidied up already.
            let _gone = folder.tasks.remove(&alive_name(self.name()));
        }
    }

    /// The process goes and leaves questions open: its sign of life stays behind and grows old.
    pub fn leave(&self) {
        self.life.lock().left = true;
    }

    /// Gives the sign of life, unless it was given just now.
    pub(super) fn beat(&self, folder: &Folder) {
        self.tell(folder, false);
    }

    fn tell(&self, folder: &Folder, at_once: bool) {
        let mut life = self.life.lock();
        if !at_once && life.told.is_some_and(|told| self.clock.monotonic().since(told) < BEAT_EVERY) {
            return;
        }
        match folder.tasks.touch(&alive_name(self.name()), SHARED) {
            Ok(()) => life.told = Some(self.clock.monotonic()),
            Err(error) => tracing::debug!(%error, "no sign of life could be given"),
        }
    }

    /// Watches this folder from now on.
    pub(super) fn watch(&self, folder: &Folder) {
        let mut watching = self.watching.lock();
        let Watching { watch, on } = &mut *watching;
        let now = folder.responses.stamp().ok();
        // A folder that was made anew is another folder, whatever it is called.
        if now.is_some_and(|now| on.is_some_and(|on| on.same_file(&now))) {
            return;
        }
        let watch = watch.get_or_insert_with(|| {
            let (wake, awaited) = (Arc::clone(&self.wake), Arc::clone(&self.awaited));
            Watch::new(move |hint| {
                let ours = match hint {
                    Hint::Everywhere => true,
                    Hint::At(path) => path
                        .file_name()
                        .and_then(|name| name.to_str())
                        .is_some_and(|name| awaited.lock().contains(name)),
                };
                if ours {
                    wake.notify_one();
                }
            })
        });
        *on = now.filter(|_| watch.add(&folder.path.join(RESPONSES)));
    }
}
