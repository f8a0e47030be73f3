//! An agent's own files: always whole, and on stable storage if the caller asks for it.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::File::create(path)?.write_all(bytes)
}

/// Writes under a name that nobody looks at, then renames; `durable`: with the syncs.
pub(crate) fn publish(folder: &Path, name: &str, bytes: &[u8], durable: bool) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{name}.tmp"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&temporary, folder.join(name))?;
    if durable {
        sync(folder)?;
        // XFS may call a folder synced after its power was cut, and a file never.
        file.sync_all()?;
    }
    Ok(())
}

/// Puts renames and removals in a folder on stable storage.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Names in a folder; none if there is no such folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// How many JSON files lie below a folder.
pub(crate) fn below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => below(&path),
            path => usize::from(path.extension().is_some_and(|extension| extension == "json")),
        })
        .sum()
}

/// Calls `what` with each file below a folder that is a text.
pub(crate) fn each_below(folder: &Path, what: &mut impl FnMut(&Path, &str) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_below(&path, what)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            what(&path, &text)?;
        }
    }
    Ok(())
}
