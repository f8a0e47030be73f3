//! What the store keeps of a group besides its asks: when a person pressed Allow again, who, and for which questions
//! (`state/groups/<group>.json`). The file names a question by its digest and holds no text of one.

use super::{Allowed, BadRecord, Files, StoreError, io_error, not_stored};
use crate::ipc::files::{Access, NotStored, ReadError};
use crate::ipc::is_json_file;
use askd_core::{Digest, Group, Person, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

pub(super) const GROUPS: &str = "groups";
/// The format that is written. A newer one stops the start.
pub(super) const VERSION: u32 = 1;
/// The most bytes of a file that are read. A group has far fewer.
const MAX_BYTES: usize = 16 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    #[serde(default)]
    allowed_again: BTreeMap<Digest, AllowedShape>,
}

#[derive(Serialize, Deserialize)]
struct AllowedShape {
    at: Time,
    by: Person,
}

fn file_name(group: &Group) -> String {
    format!("{group}.json")
}

fn read(bytes: &[u8]) -> Result<Vec<Allowed>, BadRecord> {
    let shape: Shape = serde_json::from_slice(bytes)?;
    let allowed = |(question, AllowedShape { at, by })| Allowed { question, at, by };
    Ok(shape.allowed_again.into_iter().map(allowed).collect())
}

impl Files {
    pub(super) fn keep_allowed(&self, group: &Group, allowed: &[Allowed], oldest: Time) -> Result<(), StoreError> {
        // Asks of one group are changed side by side and share this file.
        let _alone = self.groups.lock();
        let name = file_name(group);
        let write = || -> Result<(), NotStored> {
            let folder = self.root.sub(GROUPS)?;
            let mut kept = match folder.read_own(&name, MAX_BYTES) {
                Ok((bytes, _)) => read(&bytes).map_err(io::Error::other)?,
                Err(ReadError::Gone) => Vec::new(),
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(io::Error::other(error).into()),
            };
            kept.retain(|known| known.at >= oldest && allowed.iter().all(|new| new.question != known.question));
            let entries = kept
                .iter()
                .chain(allowed)
                .map(|known| (known.question, AllowedShape { at: known.at, by: known.by.clone() }));
            let shape = Shape { v: VERSION, allowed_again: entries.collect() };
            let mut bytes = serde_json::to_vec_pretty(&shape).map_err(io::Error::from)?;
            bytes.push(b'\n');
            folder.store(&format!(".tmp-{group}"), &name, &bytes, Access::PRIVATE)
        };
        write().map_err(not_stored(format!("cannot keep what may be asked again in {group}")))
    }

    /// A damaged file is moved aside by the scan, once that has met no newer record.
    pub(super) fn read_allowed(&self) -> Result<Vec<(Group, Vec<Allowed>)>, StoreError> {
        let at = || io_error(format!("cannot read {}", self.path.join(GROUPS).display()));
        let folder = self.root.sub(GROUPS).map_err(at())?;
        let mut all = Vec::new();
        for name in folder.names().map_err(at())?.into_iter().filter(|name| is_json_file(name)) {
            let Some(group) = name.strip_suffix(".json").and_then(|group| group.parse().ok()) else { continue };
            let (bytes, _) = folder.read_own(&name, MAX_BYTES).map_err(|error| at()(io::Error::other(error)))?;
            match read(&bytes) {
                Ok(allowed) => all.push((group, allowed)),
                Err(why) => {
                    tracing::error!(file = name, %why, "the list of what may be asked again is damaged; it is moved aside (.corrupt)");
                    self.groups.lock().push(name);
                }
            }
        }
        Ok(all)
    }

    /// Moves aside what was damaged.
    pub(super) fn set_groups_aside(&self) -> io::Result<()> {
        let damaged = std::mem::take(&mut *self.groups.lock());
        for name in damaged {
            let folder = self.root.sub(GROUPS)?;
            folder.rename(&name, &format!("{name}.corrupt"))?;
            folder.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::Store as _;
    use crate::host::store::conformance::scan;

    #[test]
    fn what_is_damaged_is_moved_aside_and_what_is_newer_stops_the_start() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        let store = Files::open(&path, false).unwrap();
        let folder = store.root.sub(GROUPS).unwrap();
        folder.create("g.json", b"{", Access::PRIVATE).unwrap();
        assert_eq!(store.allowed().unwrap(), []);
        assert!(folder.stat("g.json").unwrap().is_some(), "not before the scan");
        scan(&store).unwrap();
        assert!(folder.stat("g.json.corrupt").unwrap().is_some());
        folder.create("g.json", br#"{"v":9}"#, Access::PRIVATE).unwrap();
        drop(store);
        assert!(matches!(Files::open(&path, false), Err(StoreError::Newer { .. })));
    }
}
