//! What `askd init` writes. Nothing is overwritten: a file that is there stays, or keeps its content under another name.

use anyhow::Context as _;
use std::fs::{DirBuilder, File, OpenOptions};
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

/// Writes another content into a file, which stays the same file: it may be a mount, or have rights of its own (an ACL, a label). What it
/// held is kept as `<name>.old1`, `<name>.old2`, ..., on stable storage before anything is written.
pub(super) fn rewrite(path: &Path, text: &str) -> anyhow::Result<()> {
    let (at, old) = (|| format!("cannot write {}", path.display()), free(path)?);
    std::fs::copy(path, &old).with_context(at)?;
    sync(&old).and_then(|()| sync_folder(&old)).with_context(at)?;
    // Cut off last, so that a full disk empties nothing.
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}; what it held is in {}", path.display(), old.display()))
}

fn sync(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

fn sync_folder(of: &Path) -> std::io::Result<()> {
    sync(of.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Adds to the end of a file, or makes it.
pub(super) fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let at = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(at)?;
    }
    write(path, OpenOptions::new().append(true).create(true), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, metadata, read_to_string, set_permissions};
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_file_that_is_written_anew_stays_the_same_file_and_what_it_held_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("askd.toml"), folder.path().join("link.toml"));
        write(&file, OpenOptions::new().write(true).create_new(true), "before").unwrap();
        set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("askd.toml", &link).unwrap();
        let mut mounted = File::open(&file).unwrap();
        rewrite(&link, "after").unwrap();
        let mut seen = String::new();
        mounted.read_to_string(&mut seen).unwrap();
        assert_eq!((seen.as_str(), read_to_string(&file).unwrap().as_str()), ("after", "after"));
        assert_eq!(read_to_string(folder.path().join("link.toml.old1")).unwrap(), "before");
        assert_eq!(metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["askd.toml", "link.toml", "link.toml.old1"]);
    }

    #[test]
    fn what_cannot_be_written_anew_keeps_what_it_held_and_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut runs = std::process::Command::new(&program).arg("60").spawn().unwrap();
        // Nobody writes into a program that runs.
        let refused = rewrite(&program, "after").unwrap_err().to_string();
        runs.kill().unwrap();
        runs.wait().unwrap();
        assert!(refused.contains("program.old1"), "{refused}");
        let held = |file: &str| std::fs::read(file).unwrap();
        assert!(
            held("/bin/sleep") == held(&program.display().to_string())
                && held("/bin/sleep") == held(&format!("{}.old1", program.display()))
        );
    }
}
