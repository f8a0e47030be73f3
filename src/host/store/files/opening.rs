//! Opens the store: one process at a time, in a folder that no newer askd wrote to.

use super::boot::Boot;
use super::journal::Journal;
use super::record::{self, BadRecord, Version};
use super::unfiled::AllUnfiled;
use super::{CHANNELS, CHANNELS_FORMAT, Files, JOURNAL, PENDING, REJECTED, SETTLED, StoreError, groups, io_error};
use crate::host::store::MAX_FILE_BYTES;
use crate::ipc::files::{Access, Dir};
use crate::ipc::is_json_file;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The newest format of a record that was ever written here. Records are read only after the start, so this is what stops
/// an older askd before it changes anything.
const FORMAT: &str = "format.json";
/// Which settings files the daemon reads.
const SETTINGS: &str = "settings.json";
/// The format of a folder whose journal may hold records. An askd that knows no journal must not change anything there. A
/// clean stop empties the journal and leaves the format of the records.
pub(super) const WITH_JOURNAL: u32 = record::VERSION + 1;

impl Files {
    /// Opens `state/`, and makes it if it is missing. Only one process can hold it. `after_loss`: the operator says that
    /// the disk may have lost what was written last.
    pub fn open(path: &Path, after_loss: bool) -> Result<Self, StoreError> {
        let at = |what: &str| io_error(format!("{what} {}", path.display()));
        let parent = path.parent().unwrap_or(path);
        std::fs::create_dir_all(parent).map_err(|error| io_error(cannot_create(parent, &error))(error))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("state");
        let parent = Dir::open(parent).map_err(at("cannot open the parent of"))?;
        let root = parent.ensure(name, Access::PRIVATE).map_err(at("cannot use"))?;
        let lock = hold(path)?;
        let stamp = root.touch("lock", Access::PRIVATE).and_then(|()| root.stat("lock")).map_err(at("cannot use"))?;
        for name in [PENDING, SETTLED, REJECTED, groups::GROUPS] {
            root.ensure(name, Access::PRIVATE).map_err(at("cannot use"))?;
        }
        refuse_newer(path, &root, groups::GROUPS, groups::VERSION)?;
        refuse_newer(path, &root, CHANNELS, CHANNELS_FORMAT)?;
        if check_format(path, &root)?.is_none_or(|found| found < record::VERSION) {
            // Records are read while the daemon works already. One that a newer askd wrote stops the start before that. Where this
            // version has written, no newer one has: it would have noted that.
            refuse_newer_records(path, &root)?;
        }
        let boot = Boot::begin(&root, after_loss)?;
        let journal = root.ensure(JOURNAL, Access::PRIVATE).and_then(|folder| Journal::open(folder, &boot.id));
        let (journal, entries) = journal.map_err(at("cannot use the journal of"))?;
        let syncs_as_one = || root.shares_a_file_system_to_sync(&[root.sub(PENDING)?, root.sub(SETTLED)?]);
        let syncs_as_one = AtomicBool::new(syncs_as_one().unwrap_or(false));
        let mut store = Self {
            path: path.to_owned(),
            boot,
            began: stamp.map_or((0, 0), |stamp| stamp.modified),
            writable: RwLock::new(true),
            root,
            folders: Default::default(),
            journal,
            marked: Mutex::default(),
            unfiled: AllUnfiled::default(),
            syncs_as_one,
            adopted: HashSet::new(),
            cache: Mutex::default(),
            groups: Mutex::default(),
            last_save_failed: AtomicBool::new(false),
            last_flush_failed: AtomicBool::new(false),
            _lock: lock,
        };
        store.adopt(entries)?;
        Ok(store)
    }
}

/// Takes the lock of a state folder: only one process can hold it.
pub fn hold(path: &Path) -> Result<File, StoreError> {
    let at = || io_error(format!("cannot lock {}", path.display()));
    let mut options = File::options();
    let lock = options.create(true).truncate(false).write(true).open(path.join("lock")).map_err(at())?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Held(path.display().to_string())),
        Err(error) => Err(at()(error.into())),
    }
}

/// Notes which settings files the process reads that holds a state folder.
pub fn note_settings(path: &Path, files: &[PathBuf]) -> io::Result<()> {
    Dir::open(path)?.place(".tmp-settings", SETTINGS, &serde_json::to_vec(files)?, Access::PRIVATE)
}

/// Those files; `None` if that is not known.
pub fn noted_settings(path: &Path) -> Option<Vec<PathBuf>> {
    serde_json::from_slice(&std::fs::read(path.join(SETTINGS)).ok()?).ok()
}

/// Says which user could not make the data folder, and how to fix it.
fn cannot_create(data_dir: &Path, error: &io::Error) -> String {
    let folder = data_dir.display();
    if error.kind() != io::ErrorKind::PermissionDenied {
        return format!("cannot create {folder}");
    }
    let uid = rustix::process::geteuid().as_raw();
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    let user = user.map_or_else(|| format!("user id {uid}"), |user| format!("user {user} ({uid})"));
    if !std::fs::symlink_metadata(data_dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        // It may be there, and another user's.
        return format!(
            "cannot use {folder} as {user}; run askd as the user whom it belongs to, or set another data_dir"
        );
    }
    format!(
        "cannot create {folder} as {user}; make it with: sudo install -d -o {uid} {folder}, or leave data_dir out of the \
         settings to use ~/.local/state/askd"
    )
}

/// Stops a start, before it changes anything, if a newer askd wrote one of these files beside the asks.
fn refuse_newer(path: &Path, root: &Dir, folder: &str, known: u32) -> Result<(), StoreError> {
    let path = path.join(folder);
    let at = || io_error(format!("cannot read {}", path.display()));
    let folder = match root.sub(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder.map_err(at())?,
    };
    for name in folder.names().map_err(at())?.into_iter().filter(|name| is_json_file(name)) {
        // A file that cannot be read is its reader's to judge.
        let Ok((bytes, _)) = folder.read_own(&name, MAX_FILE_BYTES) else { continue };
        if let Err(source @ BadRecord::Newer { .. }) = Version::at_most(known, &bytes) {
            return Err(StoreError::Newer { file: path.join(name).display().to_string(), source });
        }
    }
    Ok(())
}

/// The same for the records of asks.
fn refuse_newer_records(path: &Path, root: &Dir) -> Result<(), StoreError> {
    for kind in [PENDING, SETTLED] {
        let groups = root.sub(kind).and_then(|folder| folder.names());
        for group in groups.map_err(io_error(format!("cannot read {}", path.join(kind).display())))? {
            match refuse_newer(path, root, &format!("{kind}/{group}"), record::VERSION) {
                // What cannot be read is judged when it is read.
                Ok(()) | Err(StoreError::Io { .. }) => {}
                newer => return newer,
            }
        }
    }
    Ok(())
}

/// Stops a start if a newer askd wrote here, and returns the format that is noted.
fn check_format(path: &Path, root: &Dir) -> Result<Option<u32>, StoreError> {
    match root.read_own(FORMAT, MAX_FILE_BYTES).map(|(bytes, _)| Version::at_most(WITH_JOURNAL, &bytes)) {
        Ok(Err(source @ BadRecord::Newer { .. })) => {
            Err(StoreError::Newer { file: path.join(FORMAT).display().to_string(), source })
        }
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

/// Notes the format of what is written from now on, unless it already is that.
pub(super) fn mark_format(path: &Path, root: &Dir, format: u32) -> Result<(), StoreError> {
    if check_format(path, root)? == Some(format) {
        return Ok(());
    }
    root.replace(".tmp-format", FORMAT, format!("{{\"v\":{format}}}\n").as_bytes(), Access::PRIVATE)
        .map_err(io_error(format!("cannot write {}", path.join(FORMAT).display())))
}
