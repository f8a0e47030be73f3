//! A disk whose power can be cut: ext4 on a loop device. The cut is `EXT4_IOC_SHUTDOWN` without a flush of
//! the journal, so unsynced data is lost. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH` on the folder named. Rust's `rustix` has no such call, and no
/// unsafe code is allowed here.
const CUT: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// A file with a file system in it, mounted.
pub(crate) struct Disk {
    image: PathBuf,
    mounted: PathBuf,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _late = run("umount", &[&self.mounted]);
    }
}

impl Disk {
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let disk = Self { image: folder.join("disk"), mounted: folder.join("mounted") };
        let file = std::fs::File::create(&disk.image).map_err(|error| error.to_string())?;
        file.set_len(128 << 20).map_err(|error| error.to_string())?;
        std::fs::create_dir(&disk.mounted).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &[Path::new("-q"), &disk.image])?;
        disk.mount()?;
        Ok(disk)
    }

    pub(crate) fn mounted(&self) -> &Path {
        &self.mounted
    }

    fn mount(&self) -> Result<(), String> {
        // By default `auto_da_alloc` writes a file out when it is renamed over another; askd must not count on that
        // help.
        run("mount", &[Path::new("-o"), Path::new("loop,noauto_da_alloc"), &self.image, &self.mounted])
    }

    /// Cuts the power: from now on nothing reaches the disk, and unsynced data is lost.
    pub(crate) fn cut(&self) -> Result<(), String> {
        run("python3", &[Path::new("-c"), Path::new(CUT), &self.mounted])
    }

    /// Turns the power back on. Nothing may use the disk during this call.
    pub(crate) fn again(&mut self) -> Result<(), String> {
        run("umount", &[&self.mounted])?;
        self.mount()
    }
}

/// The reason why this machine cannot cut the power, if there is one.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount a disk whose power is cut".to_owned());
    }
    let tried = tempfile::tempdir().map_err(|error| error.to_string());
    let tried = tried.and_then(|folder| Disk::new(folder.path())?.cut());
    tried.err().map(|error| format!("no disk can be made whose power is cut: {error}"))
}

fn run(program: &str, args: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
