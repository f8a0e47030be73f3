//! What all waiting calls of one process share: its id, its one file watch, and the signs of life by which the daemon
//! knows that the process still waits.
//!
//! It reads no responses and decides nothing. `askd ask` and `askd mcp` make it once. The watch and the first sign of
//! life start before the first request is written, so that no answer is missed.

use super::{Folder, SHARED};
use crate::clock::{Clock, Moment};
use crate::ipc::files::{Dir, Stamp};
use crate::ipc::{RESPONSES, WATCH_SWITCH, alive_name, response_name};
use crate::random;
use askd_core::RequestId;
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::collections::HashSet;
use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often to look into the folder without any event: some file systems have none.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The same without a watch, while a person may just be reading the question.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
/// How long after the last question that is. A person who takes longer does not notice another second.
const EAGER_FOR: Duration = Duration::from_secs(60);
/// How old a sign of life may get. The process renews it at a look, which costs no wake-up, and so at least every 5 s.
const RENEW_AFTER: Duration = Duration::from_millis(3500);

/// A response gets its name by a rename, or a host that knows no better writes it in place.
const EVENTS: WatchFlags = WatchFlags::MOVED_TO.union(WatchFlags::CLOSE_WRITE);
/// What is read of them at a time.
const MOST_EVENTS: usize = 4096;

/// A process that waits for answers.
#[derive(Debug)]
pub struct Process {
    clock: Clock,
    id: RequestId,
    /// The one inotify instance, made for the first request; `None` in it if there is none to be had.
    events: OnceLock<Option<OwnedFd>>,
    /// The watch, and the folder it is on.
    watched: Mutex<Option<(i32, Stamp)>>,
    awaited: Mutex<HashSet<String>>,
    life: Mutex<Liveness>,
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
    /// A process with a random id.
    #[must_use]
    pub fn new(clock: &Clock) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            id: random::request_id(),
            events: OnceLock::new(),
            watched: Mutex::default(),
            awaited: Mutex::default(),
            life: Mutex::default(),
        })
    }

    /// Its id, as requests carry it.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// What can be read as soon as a response may be new. [`Self::has_news`] reads it.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.get()?.as_ref().map(|events| events.as_fd())
    }

    /// Waits until a response may be new.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; this descriptor stays open as long as the process waits"
    )]
    pub async fn woken(&self) {
        let events = self.events().map(|events| AsyncFd::with_interest(events, Interest::READABLE));
        let Some(Ok(events)) = events else { return pending().await };
        while let Ok(mut ready) = events.readable().await {
            if self.has_news() {
                return;
            }
            ready.clear_ready();
        }
        pending::<()>().await;
    }

    /// Whether an event since the last call says that a response may be new.
    pub(super) fn has_news(&self) -> bool {
        let Some(events) = self.events() else { return false };
        let awaited = self.awaited.lock();
        let mut buffer = [MaybeUninit::uninit(); MOST_EVENTS];
        let mut reader = Reader::new(events, &mut buffer);
        let mut news = false;
        while let Ok(event) = reader.next() {
            // Without a name it is about the whole folder, or about events that were lost.
            let name = event.file_name().map(|name| name.to_str().unwrap_or_default());
            news |= name.is_none_or(|name| awaited.contains(name));
        }
        news
    }

    /// How often to look without being woken.
    pub fn look_every(&self) -> Duration {
        let eager = || self.life.lock().asked.is_some_and(|asked| self.clock.monotonic().since(asked) < EAGER_FOR);
        if self.watched.lock().is_none() && eager() { LOOK_OFTEN } else { LOOK_EVERY }
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

    /// A call follows its folder: this one is watched from now on, and shows that the process lives.
    pub(super) fn moves(&self, to: &Folder) {
        self.watch(to);
        let mut life = self.life.lock();
        (life.shown, life.is_linked) = (None, false);
    }

    /// Watches this folder from now on.
    pub(super) fn watch(&self, folder: &Folder) {
        let Some(events) = self.events.get_or_init(open_events) else { return };
        let mut watched = self.watched.lock();
        // A folder that was removed and made again is another folder with the same name.
        if watched.is_some_and(|(_, on)| on.same_file(&folder.responses_are)) {
            return;
        }
        if let Some((watch, _)) = watched.take() {
            // It may have gone with its folder.
            let _gone = inotify::remove_watch(events, watch);
        }
        match inotify::add_watch(events, folder.path.join(RESPONSES), EVENTS) {
            Ok(watch) => *watched = Some((watch, folder.responses_are)),
            Err(error) => {
                let why =
                    "cannot watch the folder (see fs.inotify.max_user_watches); looking every few seconds instead";
                tracing::warn!(folder = %folder.path.display(), %error, "{why}");
            }
        }
    }
}

/// `None` if there is no watch to be had.
fn open_events() -> Option<OwnedFd> {
    if std::env::var(WATCH_SWITCH).is_ok_and(|value| value == "off") {
        return None;
    }
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    events
        .inspect_err(|error| {
            let why = "no file watch to be had (see fs.inotify.max_user_instances); looking every few seconds instead";
            tracing::warn!(%error, "{why}");
        })
        .ok()
}
