//! A disk whose power can be cut: ext4 or XFS on a loop device. The cut is `EXT4_IOC_SHUTDOWN` (XFS has the same call)
//! without a flush of the journal, so unsynced data is lost. Needs root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::agent::lock;
use crate::files;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH` on the folder named, as soon as a line comes in. Rust's `rustix`
/// has no such call, and no unsafe code is allowed here.
const CUT: &str = "import fcntl, os, struct, sys\n\
    disk = os.open(sys.argv[1], os.O_RDONLY)\n\
    if sys.stdin.readline(): fcntl.ioctl(disk, 0x8004587d, struct.pack('I', 2))";

/// File systems that lose different things: by default ext4 writes a file out when it is renamed over another
/// (`auto_da_alloc`), which hides a missing sync.
pub(crate) const FILE_SYSTEMS: [FileSystem; 3] = [
    FileSystem { name: "ext4 without auto_da_alloc", kind: "ext4", options: "loop,noauto_da_alloc" },
    FileSystem { name: "xfs", kind: "xfs", options: "loop" },
    FileSystem { name: "ext4", kind: "ext4", options: "loop" },
];

/// How a disk is made and mounted.
#[derive(Clone, Copy)]
pub(crate) struct FileSystem {
    pub(crate) name: &'static str,
    kind: &'static str,
    options: &'static str,
}

impl FileSystem {
    pub(crate) fn can_be_made(&self) -> bool {
        run(&format!("mkfs.{}", self.kind), &[Path::new("-V")]).is_ok()
    }
}

/// A file with a file system in it, mounted.
pub(crate) struct Disk {
    system: FileSystem,
    image: PathBuf,
    mounted: PathBuf,
    /// Waits for the order to cut.
    cutter: Mutex<Option<Child>>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.put_down();
        let _late = run("umount", &[&self.mounted]);
    }
}

impl Disk {
    pub(crate) fn new(folder: &Path, system: FileSystem) -> Result<Self, String> {
        let (image, mounted) = (folder.join("disk"), folder.join("mounted"));
        let disk = Self { system, image, mounted, cutter: Mutex::default() };
        let file = std::fs::File::create(&disk.image).map_err(|error| error.to_string())?;
        file.set_len(320 << 20).map_err(|error| error.to_string())?;
        std::fs::create_dir(&disk.mounted).map_err(|error| error.to_string())?;
        run(&format!("mkfs.{}", system.kind), &[Path::new("-q"), &disk.image])?;
        disk.mount()?;
        Ok(disk)
    }

    pub(crate) fn mounted(&self) -> &Path {
        &self.mounted
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &[Path::new("-o"), Path::new(self.system.options), &self.image, &self.mounted])?;
        let mut python = Command::new("python3");
        let cutter = python.arg("-c").arg(CUT).arg(&self.mounted).stdin(Stdio::piped()).spawn();
        *lock(&self.cutter) = Some(cutter.map_err(|error| format!("python3: {error}"))?);
        Ok(())
    }

    /// Cuts the power: from now on nothing reaches the disk, and unsynced data is lost.
    pub(crate) fn cut(&self) -> Result<(), String> {
        let mut cutter = lock(&self.cutter).take().ok_or("the power is off")?;
        let told = cutter.stdin.take().map_or(Ok(()), |mut order| order.write_all(b"cut\n"));
        let ended = told.and_then(|()| cutter.wait()).map_err(|error| format!("python3: {error}"))?;
        if ended.success() { Ok(()) } else { Err(format!("the power cannot be cut: {ended}")) }
    }

    /// Turns the power back on. Nothing may use the disk during this call.
    pub(crate) fn again(&mut self) -> Result<(), String> {
        self.put_down();
        run("umount", &[&self.mounted])?;
        self.mount()
    }

    /// Sends the cutter away: it would keep the disk in use.
    fn put_down(&self) {
        let cutter = lock(&self.cutter).take();
        if let Some(mut cutter) = cutter {
            drop(cutter.stdin.take());
            let _gone = cutter.wait();
        }
    }
}

/// The reason why this machine cannot cut the power, if there is one.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount a disk whose power is cut".to_owned());
    }
    let tried = tempfile::tempdir().map_err(|error| error.to_string());
    let tried = tried.and_then(|folder| Disk::new(folder.path(), FILE_SYSTEMS[0])?.cut());
    tried.err().map(|error| format!("no disk can be made whose power is cut: {error}"))
}

fn run(program: &str, args: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Makes every record of another boot: the computer did not really restart.
pub(crate) fn another_boot(state: &Path) -> Result<(), String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| error.to_string())?;
    let boot = boot.trim();
    let other: String = boot.chars().rev().collect();
    files::each_below(state, &mut |path, text| {
        if !text.contains(boot) {
            return Ok(());
        }
        // The next cut must not undo this.
        files::write(path, text.replace(boot, &other).as_bytes())?;
        std::fs::File::open(path)?.sync_all()
    })
    .map_err(|error| error.to_string())
}
