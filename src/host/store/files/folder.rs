//! A folder of asks that many threads save into at a time: one sync of it is enough for all that was renamed before it began.

use crate::ipc::files::Dir;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::ops::Deref;

#[derive(Debug)]
pub(super) struct Folder {
    dir: Dir,
    syncs: Mutex<Syncs>,
    ended: Condvar,
}

/// Syncs by their numbers, from 1 on. One is under way at a time.
#[derive(Debug, Default)]
struct Syncs {
    begun: u64,
    ended: u64,
    /// The last that failed. What it should have synced may be lost, whatever a later one says.
    failed: u64,
}

impl From<Dir> for Folder {
    fn from(dir: Dir) -> Self {
        Self { dir, syncs: Mutex::default(), ended: Condvar::new() }
    }
}

impl Deref for Folder {
    type Target = Dir;
    fn deref(&self) -> &Dir {
        &self.dir
    }
}

impl Folder {
    /// Puts what was renamed in it on stable storage, with the next sync that begins.
    pub(super) fn sync_together(&self) -> io::Result<()> {
        self.next_sync(|| self.dir.sync())
    }

    fn next_sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut syncs = self.syncs.lock();
        // The one that is under way may have begun before the rename.
        let own = syncs.begun + 1;
        self.ended.wait_while(&mut syncs, |syncs| syncs.ended < own && syncs.ended < syncs.begun);
        if syncs.ended >= own {
            let why = "a sync of the folder that other saves waited for, too, has failed";
            return if syncs.failed >= own { Err(io::Error::other(why)) } else { Ok(()) };
        }
        syncs.begun = own;
        drop(syncs);
        let synced = sync();
        let mut syncs = self.syncs.lock();
        syncs.ended = own;
        if synced.is_err() {
            syncs.failed = own;
        }
        self.ended.notify_all();
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn those_that_come_during_a_sync_share_the_next_one_and_its_failure() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::from(Dir::open(temp.path()).unwrap());
        let (synced, (go_on, wait)) = (AtomicUsize::new(0), channel::<()>());
        let wait = Mutex::new(wait);
        let begun = || folder.syncs.lock().begun;
        let fails = || {
            synced.fetch_add(1, Ordering::Relaxed);
            wait.lock().recv().unwrap();
            Err(io::Error::other("the disk"))
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| folder.next_sync(|| wait.lock().recv().map_err(io::Error::other)));
            while begun() < 1 {
                std::thread::yield_now();
            }
            let others: Vec<_> = (0..3).map(|_| scope.spawn(|| folder.next_sync(fails))).collect();
            go_on.send(()).unwrap();
            assert!(first.join().unwrap().is_ok());
            while begun() < 2 {
                std::thread::yield_now();
            }
            // Whoever is late has a sync of its own, which fails, too.
            (0..3).for_each(|_| go_on.send(()).unwrap());
            assert!(others.into_iter().all(|other| other.join().unwrap().is_err()));
        });
        assert!((1..=3).contains(&synced.load(Ordering::Relaxed)));
        assert!(folder.sync_together().is_ok(), "what comes later is judged by its own sync");
    }
}
