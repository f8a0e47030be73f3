//! What all waiting calls of one process share: its id, its one file watch, and the signs of life by which the daemon
//! knows that the process still waits.
//!
//! It reads no responses and decides nothing. `askd ask` and `askd mcp` make it once. The watch and the first sign of
//! life start before the first request is written, so that no answer is missed.

use super::{Folder, SHARED};
use crate::clock::{Clock, Moment};
use crate::ipc::files::{Dir, Stamp};
use crate::ipc::watch::{Hint, Watch};
use crate::ipc::{RESPONSES, alive_name, response_name};
use crate::random;
use askd_core::RequestId;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often to look into the folder without any event: some file systems have none.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The same without a watch, while a person may just be reading the question.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
/// How long after the last question that is. A person who takes longer does not notice another second.
const EAGER_FOR: Duration = Duration::from_secs(60);
/// How old a sign of life may get. The process renews it at a look, which costs no wake-up, and so at least every 5 s.
const RENEW_AFTER: Duration = Duration::from_millis(3500);

/// A process that waits for answers.
pub struct Process {
    clock: Clock,
    id: RequestId,
    /// Told when a response may be new.
    wake: Arc<dyn Fn() + Send + Sync>,
    woken: Arc<Notify>,
    awaited: Arc<Mutex<HashSet<String>>>,
    watching: Mutex<Watching>,
    life: Mutex<Liveness>,
}

/// The one watch, and the folder it is on.
#[derive(Debug, Default)]
struct Watching {
    watch: Option<Watch>,
    on: Option<Stamp>,
}

/// How many calls wait, and when the process last showed that it lives.
#[derive(Debug, Default)]
struct Liveness {
    waiting: usize,
    shown: Option<Moment>,
    /// When the last request was written.
    asked: Option<Moment>,
    left: bool,
    /// Its sign of life has both names.
    is_linked: bool,
}

impl Process {
    /// A process with a random id, whose one call awaits [`Process::woken`]. The first request starts the watch.
    #[must_use]
    pub fn new(clock: &Clock) -> Arc<Self> {
        let woken = Arc::<Notify>::default();
        let wake = Arc::clone(&woken);
        Self::with(clock, woken, move || wake.notify_one())
    }

    /// The same for a process that looks after many calls by itself: `wake` is called from the watch's thread.
    pub(super) fn waking(clock: &Clock, wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Self::with(clock, Arc::default(), wake)
    }

    fn with(clock: &Clock, woken: Arc<Notify>, wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            id: random::request_id(),
            wake: Arc::new(wake),
            woken,
            awaited: Arc::default(),
            watching: Mutex::default(),
            life: Mutex::default(),
        })
    }

    /// Its id, as requests carry it.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Waits until a response may be new.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// How often to look without being woken.
    pub fn look_every(&self) -> Duration {
        let eager = || self.life.lock().asked.is_some_and(|asked| self.clock.monotonic().since(asked) < EAGER_FOR);
        if self.watching.lock().on.is_none() && eager() { LOOK_OFTEN } else { LOOK_EVERY }
    }

    /// Prepares for a request that is written next: the watch and the sign of life come first.
    pub(super) fn begin(&self, folder: &Folder, request_id: &RequestId) {
        self.awaited.lock().insert(response_name(request_id));
        self.watch(folder);
        let mut life = self.life.lock();
        life.waiting += 1;
        life.asked = Some(self.clock.monotonic());
        drop(life);
        self.show_life(folder);
    }

    /// One call waits no more. After the last one, the signs of life are removed.
    pub(super) fn end(&self, folder: &Folder, request_id: &RequestId) {
        self.awaited.lock().remove(&response_name(request_id));
        let mut life = self.life.lock();
        life.waiting = life.waiting.saturating_sub(1);
        if life.waiting == 0 && !life.left {
            (life.shown, life.is_linked) = (None, false);
            // The daemon may have tidied up already.
            let _gone = folder.tasks.remove(&alive_name(self.id()));
            let _gone = folder.alive().map(|alive| alive.remove(self.id()));
        }
    }

    /// The process ends and leaves questions open: its signs of life stay behind and grow old.
    pub fn leave(&self) {
        self.life.lock().left = true;
    }

    /// Shows the daemon that this process lives, unless it has just done so.
    pub(super) fn show_life(&self, folder: &Folder) {
        let mut life = self.life.lock();
        if life.shown.is_some_and(|shown| self.clock.monotonic().since(shown) < RENEW_AFTER) {
            return;
        }
        let Liveness { is_linked, shown, .. } = &mut *life;
        match self.touch(folder, is_linked) {
            Ok(()) => *shown = Some(self.clock.monotonic()),
            Err(error) => tracing::debug!(%error, "cannot show the daemon that this process lives"),
        }
    }

    /// Touches the file in `tasks/.alive`, which wakes nobody. Earlier daemons look only beside it in `tasks/`, where it gets a
    /// second name. If it cannot have both, a file of its own is touched there, which wakes the daemon's watch each time.
    fn touch(&self, folder: &Folder, is_linked: &mut bool) -> io::Result<()> {
        let beside = alive_name(self.id());
        let touch = |alive: &Dir| {
            alive.touch(self.id(), SHARED)?;
            if !*is_linked {
                alive.link(self.id(), &folder.tasks, &beside)?;
                *is_linked = true;
            }
            Ok(())
        };
        match folder.alive().map(touch) {
            Some(Ok(())) => Ok(()),
            None | Some(Err::<(), io::Error>(_)) => folder.tasks.touch(&beside, SHARED),
        }
    }

    /// Watches this folder from now on.
    pub(super) fn watch(&self, folder: &Folder) {
        let mut watching = self.watching.lock();
        let Watching { watch, on } = &mut *watching;
        let now = folder.responses.stamp().ok();
        // A folder that was removed and made again is another folder with the same name.
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
                    wake();
                }
            })
        });
        *on = now.filter(|_| watch.add_anew(&folder.path.join(RESPONSES)));
    }
}
