//! What `askd init` writes. Nothing is overwritten: a file that is there stays, or keeps its content under another name.

use anyhow::Context as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Writes a secret that only this user can read. Another secret of that name is kept beside it.
pub(super) fn secret(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    put(&path, &format!("{text}\n"), 0o600)?;
    Ok(std::path::absolute(&path)?)
}

/// Writes a file. One with another content is kept as `<name>.old1`, `<name>.old2`, ...
pub(super) fn put(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let at = || format!("cannot write {}", path.display());
    if path.try_exists().with_context(at)? {
        if std::fs::read_to_string(path).with_context(at)? == text {
            return Ok(());
        }
        std::fs::rename(path, free(path)?).with_context(at)?;
    }
    write(path, OpenOptions::new().write(true).create_new(true).mode(mode), text)
}

/// On stable storage when it returns.
fn write(path: &Path, how: &OpenOptions, text: &str) -> anyhow::Result<()> {
    let written = how.open(path).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A name for what a file held before.
fn free(path: &Path) -> anyhow::Result<PathBuf> {
    let mut names = (1..100).map(|number| PathBuf::from(format!("{}.old{number}", path.display())));
    names.find(|old| !old.exists()).with_context(|| format!("too many {}.old files", path.display()))
}

/// Writes another content into a file, which stays the same file with its owner and mode: it may be a mount. What it held is
/// kept as `<name>.old1`, `<name>.old2`, ...
pub(super) fn rewrite(path: &Path, text: &str) -> anyhow::Result<()> {
    let at = || format!("cannot write {}", path.display());
    std::fs::copy(path, free(path)?).with_context(at)?;
    write(path, OpenOptions::new().write(true).truncate(true), text)
}

/// Adds to the end of a file, or makes it.
pub(super) fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let at = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(at)?;
    }
    write(path, OpenOptions::new().append(true).create(true), text)
}
