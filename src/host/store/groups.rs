//! What is remembered of a group besides its asks: when Allow again was pressed, for which questions and by whom.
//! `state/groups/<group>.json`; a question is named by its digest, and no text of one stands there.

use super::person::PersonRecord;
use super::{BadRecord, Store, StoreError, io_error, not_stored};
use crate::ipc::files::{Access, Dir, NotStored, ReadError};
use crate::ipc::is_json_file;
use crate::ipc::wire::{time_from, time_text};
use askd_core::{Digest, Group, Person, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

pub(super) const GROUPS: &str = "groups";
/// The format that is written. What is newer is not touched.
const VERSION: u32 = 1;
/// No group comes near this.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A question that may be asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Which.
    pub question: Digest,
    /// Since when its attempts count.
    pub at: Time,
    /// Who said so.
    pub by: Person,
}

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    /// By digest of the question.
    #[serde(default)]
    allowed_again: BTreeMap<String, AllowedShape>,
}

#[derive(Serialize, Deserialize)]
struct AllowedShape {
    at: String,
    by: PersonRecord,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn file_name(group: &Group) -> String {
    format!("{group}.json")
}

fn read(bytes: &[u8]) -> Result<Vec<Allowed>, BadRecord> {
    let Version { v } = serde_json::from_slice(bytes)?;
    if v > VERSION {
        return Err(BadRecord::Newer(v));
    }
    let shape: Shape = serde_json::from_slice(bytes)?;
    let allowed = shape.allowed_again.into_iter().map(|(question, AllowedShape { at, by })| {
        let question = question.parse().map_err(|_| BadRecord::Field("allowed_again"))?;
        Ok(Allowed { question, at: time_from(&at).ok_or(BadRecord::Field("at"))?, by: by.person()? })
    });
    allowed.collect()
}

impl Store {
    /// Keeps that these questions may be asked again, and drops what was said before `oldest`: no ask of that
    /// time is kept any more.
    pub fn allow(&self, group: &Group, allowed: &[Allowed], oldest: Time) -> Result<(), StoreError> {
        // Asks of one group are changed side by side, and share this file.
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
            let entries = kept.iter().chain(allowed).map(|known| {
                let shape = AllowedShape { at: time_text(known.at), by: PersonRecord::of(&known.by) };
                (known.question.to_string(), shape)
            });
            let shape = Shape { v: VERSION, allowed_again: entries.collect() };
            let mut bytes = serde_json::to_vec_pretty(&shape).map_err(io::Error::from)?;
            bytes.push(b'\n');
            folder.store(&format!(".tmp-{group}"), &name, &bytes, Access::PRIVATE)
        };
        write().map_err(not_stored(format!("cannot keep what may be asked again in {group}")))
    }

    /// What may be asked again, of every group: for the start. A damaged file is moved aside; what is from a newer
    /// version stops the start.
    pub fn allowed(&self) -> Result<Vec<(Group, Vec<Allowed>)>, StoreError> {
        let at = || io_error(format!("cannot read {}", self.path.join(GROUPS).display()));
        let folder = self.root.sub(GROUPS).map_err(at())?;
        let mut all = Vec::new();
        for name in folder.names().map_err(at())?.into_iter().filter(|name| is_json_file(name)) {
            let Some(group) = name.strip_suffix(".json").and_then(|group| group.parse().ok()) else { continue };
            let (bytes, _) = folder.read_own(&name, MAX_BYTES).map_err(|error| at()(io::Error::other(error)))?;
            match read(&bytes) {
                Ok(allowed) => all.push((group, allowed)),
                Err(why @ BadRecord::Newer(_)) => {
                    return Err(StoreError::Newer { file: self.path.join(GROUPS).join(name), why });
                }
                Err(why) => {
                    tracing::error!(file = name, %why, "what may be asked again is damaged; it was moved aside (.corrupt)");
                    set_aside(&folder, &name).map_err(at())?;
                }
            }
        }
        Ok(all)
    }
}

fn set_aside(folder: &Dir, name: &str) -> io::Result<()> {
    folder.rename(name, &format!("{name}.corrupt"))?;
    folder.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::Via;
    use std::time::Duration;

    const NOW: Time = Time::from_millis(1_790_000_000_000);

    fn allowed(number: u8, at: Time) -> Allowed {
        Allowed { question: Digest::from_bytes([number; 32]), at, by: Person::operator(Via::Cli) }
    }

    #[test]
    fn what_was_allowed_is_there_after_a_restart_and_old_news_is_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        let group: Group = "g".parse().unwrap();
        let later = NOW + Duration::from_secs(60);
        {
            let store = Store::open(&path).unwrap();
            store.allow(&group, &[allowed(1, NOW), allowed(2, NOW)], NOW).unwrap();
            store.allow(&group, &[allowed(2, later)], NOW).unwrap();
            assert_eq!(store.allowed().unwrap(), [(group.clone(), vec![allowed(1, NOW), allowed(2, later)])]);
            store.allow(&group, &[allowed(3, later)], later).unwrap();
        }
        let store = Store::open(&path).unwrap();
        assert_eq!(store.allowed().unwrap(), [(group, vec![allowed(2, later), allowed(3, later)])]);
    }

    #[test]
    fn what_is_damaged_is_moved_aside_and_what_is_newer_stops_the_start() {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::open(&temp.path().join("state")).unwrap();
        let folder = store.root.sub(GROUPS).unwrap();
        folder.create("g.json", b"{", Access::PRIVATE).unwrap();
        assert_eq!(store.allowed().unwrap(), []);
        assert!(folder.look("g.json.corrupt").unwrap().is_some());
        folder.create("g.json", br#"{"v":9}"#, Access::PRIVATE).unwrap();
        assert!(matches!(store.allowed(), Err(StoreError::Newer { .. })));
    }
}
