//! Reading and writing in folders that a hostile container can write too.
//!
//! Names are opened relative to held folders, never through links, mounts or `..`. A file that is read is pinned, checked
//! to be a plain file of one link and bounded size, and only then opened (`read`). A file that is written is synced before
//! it gets its name, and the folder after. Both sides and the daemon's own state use it. It knows no shapes.

mod in_place;
mod read;
mod renaming;
mod stamp;
#[cfg(feature = "host")]
mod whole;

pub use in_place::InPlace;
pub use read::{MORE_FILES, ReadError, is_of_the_process};
pub use stamp::{Listing, Stamp};

use super::{calls, names};
use rustix::fs::{
    self as sys, AtFlags, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, fchmod, fchown,
    fstat, statat, utimensat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How often an interrupted look-up (a rename racing with it) is begun again.
const TRIES: usize = 16;

/// The present time, told by the kernel.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };

/// A folder, held open.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Why we do not know that a file is stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStored {
    /// Nothing was changed.
    #[error(transparent)]
    Unchanged(#[from] io::Error),
    /// The file has its name, but may lose it if the power fails.
    #[error("{0} (after the rename)")]
    InDoubt(#[source] io::Error),
}

impl From<NotStored> for io::Error {
    fn from(error: NotStored) -> Self {
        match error {
            NotStored::Unchanged(error) | NotStored::InDoubt(error) => error,
        }
    }
}

/// Mode and group of what is created, so that an agent of another user id can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Mode of folders, for example `0o770`; files get the same without the execute bits.
    pub dir_mode: u32,
    /// Group id of both; `None` leaves it as it comes.
    pub gid: Option<u32>,
}

impl Access {
    /// For the daemon alone.
    pub const PRIVATE: Self = Self { dir_mode: 0o700, gid: None };

    fn file_mode(self) -> Mode {
        Mode::from_raw_mode(self.dir_mode & 0o666)
    }

    /// What is the daemon's alone is made so.
    fn give(self, fd: impl AsFd, mode: Mode) -> io::Result<()> {
        if self == Self::PRIVATE {
            return Ok(());
        }
        if let Some(gid) = self.gid {
            fchown(&fd, None, Some(sys::Gid::from_raw(gid)))?;
        }
        // After the group: changing it may clear bits. Explicitly, because of the umask.
        Ok(fchmod(fd, mode)?)
    }
}

fn resolve(flags: ResolveFlags) -> ResolveFlags {
    flags | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn open(dir: &OwnedFd, name: &str, flags: OFlags, mode: Mode, how: ResolveFlags) -> io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        match calls::openat2(dir, name, flags | OFlags::CLOEXEC, mode, resolve(how)) {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            Err(Errno::NOSYS) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this kernel has no openat2 (Linux 5.6 or newer is needed to read containers' folders safely)",
                ));
            }
            other => return Ok(other?),
        }
    }
}

/// Whether a name is one step within a folder.
fn plain(name: &str) -> io::Result<&str> {
    let has = |byte| name.as_bytes().contains(&byte);
    if matches!(name, "" | "." | "..") || has(b'/') || has(b'\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a file name")));
    }
    Ok(name)
}

impl Dir {
    /// Opens a folder of our own by its path, links in it followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = sys::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(fd))
    }

    /// Opens the folder at `path` below this one; no step of it may be a link.
    pub fn sub(&self, path: &str) -> io::Result<Self> {
        // A mount is allowed here and not below: only the host can mount.
        open(&self.0, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::empty()).map(Self)
    }

    /// Opens a folder of our own only to go on from there, or to look at files in it by name. No watch reports that.
    pub fn pinned(path: &Path) -> io::Result<Self> {
        let fd = sys::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(fd))
    }

    /// The same of the folder at `path` below this one; no step of it may be a link.
    pub fn pin(&self, path: &str) -> io::Result<Self> {
        open(&self.0, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::empty()).map(Self)
    }

    /// Whether the way to `path` below this folder leads into another file system. Nothing of that one is looked at.
    pub fn leads_elsewhere(&self, path: &str) -> bool {
        let found = open(&self.0, path, OFlags::PATH, Mode::empty(), ResolveFlags::NO_XDEV);
        found.is_err_and(|error| error.raw_os_error() == Some(Errno::XDEV.raw_os_error()))
    }

    /// Opens a folder right below this one, made with `access` if it was not there.
    pub fn ensure(&self, name: &str, access: Access) -> io::Result<Self> {
        match self.sub(plain(name)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match calls::mkdirat(&self.0, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                let made = self.finish(name, access);
                if made.is_err() {
                    // Half-made, it would look complete the next time. If it holds a file already, it stays.
                    let _used = calls::unlinkat(&self.0, name, AtFlags::REMOVEDIR);
                }
                made
            }
            Err(Errno::EXIST) => self.sub(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a folder that was just made its mode and its group, and makes its name durable.
    fn finish(&self, name: &str, access: Access) -> io::Result<Self> {
        let dir = self.sub(name)?;
        access.give(&dir.0, Mode::from_raw_mode(access.dir_mode))?;
        self.sync()?;
        Ok(dir)
    }

    /// Which folder it is.
    pub fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp::of(&fstat(&self.0)?))
    }

    /// Owner, group and mode.
    pub fn owner(&self) -> io::Result<(u32, u32, u32)> {
        let stat = fstat(&self.0)?;
        Ok((stat.st_uid, stat.st_gid, stat.st_mode & 0o7777))
    }

    /// Whether files can be made and removed in it. Leaves no trace.
    pub fn usable(&self) -> io::Result<()> {
        Ok(sys::accessat(
            &self.0,
            ".",
            sys::Access::READ_OK | sys::Access::WRITE_OK | sys::Access::EXEC_OK,
            AtFlags::empty(),
        )?)
    }

    /// The names in it, in no order, without `.` and `..`. Names that are not UTF-8 are left out:
    /// nothing of ours is called so. For folders of our own: others may put any number of names into theirs.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.list()?.part(usize::MAX, |name| {
            names.extend((!names::is_odd(name)).then(|| name.to_owned()));
            Ok(())
        })?;
        Ok(names)
    }

    /// Begins to list it, in parts.
    pub fn list(&self) -> io::Result<Listing> {
        Ok(Listing::new(sys::Dir::read_from(&self.0)?, self.stamp()?))
    }

    /// How the file of that name was left; `None` if there is none.
    pub fn stat(&self, name: &str) -> io::Result<Option<Stamp>> {
        match statat(&self.0, &*names::name(plain(name)?), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How what is at `path` below this folder was left. Links on the way there are followed. Opens nothing.
    pub fn stat_below(&self, path: &str) -> io::Result<Stamp> {
        Ok(Stamp::of(&statat(&self.0, path, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Creates a file and syncs it; there must be none of that name.
    pub fn create(&self, name: &str, bytes: &[u8], access: Access) -> io::Result<()> {
        let mut file = self.begin(name)?;
        let written = access
            .give(&file, access.file_mode())
            .and_then(|()| calls::write(&mut file, bytes))
            .and_then(|()| Ok(calls::fsync("file", &file)?));
        self.unless_done(name, written)
    }

    /// Removes a file that was begun under a name of our own if that failed, and returns the failure.
    fn unless_done<T, E>(&self, name: &str, done: Result<T, E>) -> Result<T, E> {
        if done.is_err() {
            // If this fails too, the next write under that name or the next start removes it.
            let _left = self.remove(name);
        }
        done
    }

    /// A new file, for its maker alone.
    fn begin(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        open(&self.0, plain(name)?, flags, Mode::from_raw_mode(0o600), ResolveFlags::NO_XDEV).map(File::from)
    }

    /// Gives a file the present time, and makes an empty one if there is none. Nothing is synced: it is a
    /// sign of life, and after a crash of the machine no process lives.
    pub fn touch(&self, name: &str, access: Access) -> io::Result<()> {
        let now = Timestamps { last_access: NOW, last_modification: NOW };
        match utimensat(&self.0, plain(name)?, &now, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
                let fd = open(&self.0, name, flags, Mode::from_raw_mode(0o600), ResolveFlags::NO_XDEV)?;
                access.give(&fd, access.file_mode())
            }
            other => Ok(other?),
        }
    }

    /// Writes a whole file: absent or the old content before, the new content after, never torn.
    /// `temporary` is a name of our own that no reader looks at.
    pub fn replace(&self, temporary: &str, name: &str, bytes: &[u8], access: Access) -> io::Result<()> {
        Ok(self.store(temporary, name, bytes, access)?)
    }

    /// The same for callers that have to know, after a failure, whether anything was changed.
    pub fn store(&self, temporary: &str, name: &str, bytes: &[u8], access: Access) -> Result<(), NotStored> {
        self.stage(temporary, bytes, access)?;
        self.put_in_place(temporary, name)?;
        self.sync().map_err(NotStored::InDoubt)
    }

    /// The first step of [`Self::store`]: writes and syncs a file under a name of our own, whatever was left there.
    pub fn stage(&self, temporary: &str, bytes: &[u8], access: Access) -> io::Result<()> {
        self.write(temporary, bytes, access, |file| Ok(calls::fsync("file", file)?))
    }

    /// The second step: gives it its name. Then the folder has to be synced.
    pub fn put_in_place(&self, temporary: &str, name: &str) -> Result<(), NotStored> {
        self.rename(temporary, name).map_err(|error| {
            // If the temporary name is gone, the file was renamed, whatever the disk says.
            match self.remove(temporary) {
                Ok(false) => NotStored::InDoubt(error),
                Ok(true) | Err(_) => NotStored::Unchanged(error),
            }
        })
    }

    /// The same as [`Self::stage`] without a sync: after a crash of the machine the file may be gone, or empty.
    pub fn stage_unsynced(&self, temporary: &str, bytes: &[u8], access: Access) -> io::Result<()> {
        self.write(temporary, bytes, access, |_| Ok(()))
    }

    /// Stages it without a sync and gives it its name.
    pub fn place(&self, temporary: &str, name: &str, bytes: &[u8], access: Access) -> io::Result<()> {
        self.stage_unsynced(temporary, bytes, access)?;
        let named = self.rename(temporary, name);
        self.unless_done(temporary, named)
    }

    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        access: Access,
        finish: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = match self.begin(name) {
            // Somebody may be about to give it its name: it is replaced, and not gone for a moment.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let beside = format!(".tmp-{}", crate::random::unique());
                self.write(&beside, bytes, access, finish)?;
                return self.unless_done(&beside, self.rename(&beside, name));
            }
            begun => begun?,
        };
        let written = access
            .give(&file, access.file_mode())
            .and_then(|()| calls::write(&mut file, bytes))
            .and_then(|()| finish(&file));
        self.unless_done(name, written)
    }

    /// Syncs the content of a file.
    pub fn sync_file(&self, name: &str) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let file = open(&self.0, plain(name)?, flags, Mode::empty(), ResolveFlags::NO_XDEV)?;
        Ok(calls::fsync("written", file)?)
    }

    /// Gives a file a second name, in another folder of the same file system.
    pub fn link(&self, name: &str, other: &Self, to: &str) -> io::Result<()> {
        Ok(calls::link(&self.0, plain(name)?, &other.0, plain(to)?)?)
    }

    /// Moves a file to another folder of the same file system, without a sync.
    pub fn rename_to(&self, name: &str, other: &Self) -> io::Result<()> {
        Ok(calls::rename(&self.0, plain(name)?, &other.0, name)?)
    }

    /// Removes a file; `Ok(false)` if there was none.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        match calls::unlinkat(&self.0, plain(name)?, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, tried three times: for a file that would mislead its reader if it stayed, and that nothing checks again.
    pub fn remove_for_good(&self, name: &str) -> io::Result<bool> {
        self.remove(name).or_else(|_| self.remove(name)).or_else(|_| self.remove(name))
    }

    /// Locks the folder until this is dropped, against all others that lock it; `false` if another has the lock.
    pub fn claim(&self) -> io::Result<bool> {
        match sys::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts renames and removals in it on stable storage.
    pub fn sync(&self) -> io::Result<()> {
        Ok(calls::fsync("folder", &self.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const SHARED: Access = Access { dir_mode: 0o770, gid: None };

    fn folder() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    /// Two daemons' steps may have the same response written at once: one gives it its name while the other one stages it.
    #[test]
    fn a_file_that_is_staged_again_is_there_all_the_time() {
        let (temp, dir) = folder();
        dir.stage("r.json", b"{}", SHARED).unwrap();
        let (staged, path) = (std::sync::atomic::AtomicBool::new(false), temp.path().join("r.json"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..500).for_each(|_| dir.stage("r.json", b"{}", SHARED).unwrap());
                staged.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !staged.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(std::fs::read(&path).unwrap(), b"{}");
            }
        });
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_plain_files_of_bounded_size_are_read() {
        let (temp, dir) = folder();
        dir.create("plain.json", b"{}", SHARED).unwrap();
        assert_eq!(dir.read("plain.json", 2).unwrap().0, b"{}");
        assert!(matches!(dir.read("plain.json", 1), Err(ReadError::TooLarge { bytes: 2, limit: 1 })));
        assert!(matches!(dir.read("none.json", 9), Err(ReadError::Gone)));

        symlink("/etc/passwd", temp.path().join("link.json")).unwrap();
        std::fs::hard_link(temp.path().join("plain.json"), temp.path().join("second.json")).unwrap();
        std::fs::create_dir(temp.path().join("folder.json")).unwrap();
        sys::mknodat(sys::CWD, temp.path().join("fifo.json"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for name in ["link.json", "second.json", "plain.json", "folder.json", "fifo.json"] {
            assert!(matches!(dir.read(name, 1 << 20), Err(ReadError::NotPlain(_))), "{name}");
        }
        let sparse = File::create(temp.path().join("huge.json")).unwrap();
        sparse.set_len(10 << 40).unwrap();
        assert!(matches!(dir.read("huge.json", 1 << 19), Err(ReadError::TooLarge { .. })));
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let (temp, dir) = folder();
        std::fs::create_dir(temp.path().join("inner")).unwrap();
        let inner = dir.sub("inner").unwrap();
        dir.create("secret", b"x", SHARED).unwrap();
        for name in ["../secret", "..", ".", "/etc/passwd", "a/b", "", "a\0b"] {
            assert!(inner.read(name, 100).is_err(), "{name:?}");
            assert!(inner.create(name, b"", SHARED).is_err(), "{name:?}");
            assert!(inner.publish("secret", name).is_err(), "{name:?}");
        }
        symlink(temp.path(), temp.path().join("inner/away")).unwrap();
        assert!(inner.sub("away").is_err(), "a link is not a folder");
        assert!(dir.sub("inner/../inner").is_ok(), "steps that stay inside are harmless");
        assert!(inner.sub("../inner").is_err());
    }

    #[test]
    fn a_squatted_name_is_replaced_and_its_link_not_followed() {
        let (temp, dir) = folder();
        let outside = temp.path().join("outside");
        File::create(&outside).unwrap();
        symlink(&outside, temp.path().join("r1.json")).unwrap();
        dir.create(".new-r1", b"answer", SHARED).unwrap();
        assert!(dir.publish(".new-r1", "r1.json").unwrap());
        assert_eq!(dir.read("r1.json", 100).unwrap().0, b"answer");
        assert_eq!(std::fs::read(&outside).unwrap(), b"");
        assert!(dir.create("r1.json", b"", SHARED).is_err(), "creating never replaces");
    }

    #[test]
    fn modes_are_given_whatever_the_umask_says() {
        let (temp, dir) = folder();
        let shared = dir.ensure("shared", SHARED).unwrap();
        shared.create("file", b"", SHARED).unwrap();
        let mode = |path: &str| std::fs::metadata(temp.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("shared"), mode("shared/file")), (0o770, 0o660));
        let again = dir.ensure("shared", Access::PRIVATE).unwrap();
        assert_eq!(again.owner().unwrap().2, 0o770, "what is there is left as it is");
    }

    #[test]
    fn a_stamp_tells_whether_anything_was_written() {
        let (_temp, dir) = folder();
        dir.create("a", b"1", SHARED).unwrap();
        let first = dir.stat("a").unwrap().unwrap();
        assert_eq!(dir.stat("a").unwrap(), Some(first));
        dir.replace(".tmp", "a", b"2", SHARED).unwrap();
        assert_ne!(dir.stat("a").unwrap(), Some(first));
        assert_eq!(dir.stat("none").unwrap(), None);
    }

    #[test]
    fn a_touch_makes_a_file_and_changes_it_each_time() {
        let (temp, dir) = folder();
        dir.touch(".alive-p", SHARED).unwrap();
        let first = dir.stat(".alive-p").unwrap().unwrap();
        assert_eq!(first.bytes, 0);
        std::fs::File::open(temp.path().join(".alive-p")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        dir.touch(".alive-p", SHARED).unwrap();
        let second = dir.stat(".alive-p").unwrap().unwrap();
        assert!(first.same_file(&second) && second.modified >= first.modified);
    }
}
