//! The bare floor: nothing but the calls that make a file durable, or that read it.

use crate::load::Times;
use serde::de::IgnoredAny;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Writes, syncs, renames, and syncs the folder.
pub(crate) fn store(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = folder.join(format!(".tmp-{name}"));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Writes and renames: whole or not there, and not synced.
pub(crate) fn place(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = folder.join(format!(".tmp-{name}"));
    fs::write(&temporary, bytes)?;
    fs::rename(temporary, folder.join(name))
}

/// Durable files, by so many writers in so many folders.
pub(crate) fn durable(base: &Path, writers: usize, folders: usize, count: usize) -> (f64, Times) {
    let folders: Vec<PathBuf> = (0..folders).map(|number| base.join(format!("f{number}"))).collect();
    for folder in &folders {
        fs::create_dir_all(folder).unwrap();
    }
    let (bytes, next) = (vec![b'x'; 1024], AtomicUsize::new(0));
    let begun = Instant::now();
    let times: Vec<f64> = std::thread::scope(|scope| {
        let work = || {
            let mut own = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return own;
                }
                let from = Instant::now();
                store(&folders[index % folders.len()], &format!("{index}.json"), &bytes).unwrap();
                own.push(from.elapsed().as_secs_f64());
            }
        };
        let writers: Vec<_> = (0..writers).map(|_| scope.spawn(work)).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    #[expect(clippy::cast_precision_loss, reason = "a count of files")]
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    (rate, Times::new(times))
}

/// Reads and parses every file below these folders, on so many threads.
pub(crate) fn read_all(folders: &[PathBuf], threads: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for entry in fs::read_dir(folder).unwrap() {
                        let bytes = fs::read(entry.unwrap().path()).unwrap();
                        let record: IgnoredAny = serde_json::from_slice(&bytes).unwrap();
                        std::hint::black_box(record);
                    }
                }
            });
        }
    });
    begun.elapsed()
}
