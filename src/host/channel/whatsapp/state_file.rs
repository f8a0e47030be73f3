//! A file in `state/channels/` that holds what has to be remembered of each number of the business. Several tasks
//! change it at once; changes that come together share one write. Its owner decides what stands in it.

use crate::ipc::files::{Access, Dir, ReadError};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The format that is written. A file in a newer format is not touched.
const VERSION: u32 = 1;
/// None of these files comes near this.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The state of one number, kept in a file.
#[derive(Debug)]
pub(super) struct StateFile<T> {
    folder: Arc<Dir>,
    name: &'static str,
    number: String,
    /// The state of other numbers, as it was found.
    others: BTreeMap<String, Value>,
    found: bool,
    kept: Mutex<Kept<T>>,
    /// The count of changes that are on stable storage.
    written: tokio::sync::Mutex<u64>,
}

#[derive(Debug)]
struct Kept<T> {
    state: T,
    changes: u64,
}

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    numbers: BTreeMap<String, Value>,
}

impl<T: Clone + Default + Serialize + DeserializeOwned + Send + 'static> StateFile<T> {
    /// Reads the file. A damaged file is moved aside; a file that a newer askd wrote stops the start.
    pub(super) fn open(state: &Path, name: &'static str, number: &str) -> io::Result<Self> {
        let folder = Arc::new(Dir::open(state)?.ensure("channels", Access::PRIVATE)?);
        let parsed = match folder.read(name, MAX_BYTES) {
            Ok((bytes, _)) => serde_json::from_slice::<Shape>(&bytes).map(Some),
            Err(ReadError::Gone) => Ok(None),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        if let Ok(Some(Shape { v, .. })) = &parsed
            && *v > VERSION
        {
            let why = format!(
                "{name} has format {v}, this askd knows {VERSION}: a newer askd wrote it; start that version again"
            );
            return Err(io::Error::other(why));
        }
        let parsed = parsed.and_then(|shape| {
            let found = shape.is_some();
            let mut numbers = shape.map(|shape| shape.numbers).unwrap_or_default();
            let ours = numbers.remove(number).map_or_else(|| Ok(T::default()), serde_json::from_value)?;
            Ok((ours, numbers, found))
        });
        let (ours, others, found) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                tracing::error!(file = name, %error, "the memory of the WhatsApp channel is damaged; it was moved aside (.corrupt)");
                folder.rename(name, &format!("{name}.corrupt"))?;
                folder.sync()?;
                (T::default(), BTreeMap::new(), false)
            }
        };
        let kept = Mutex::new(Kept { state: ours, changes: 0 });
        Ok(Self { folder, name, number: number.to_owned(), others, found, kept, written: tokio::sync::Mutex::new(0) })
    }

    /// Whether the file was there and whole.
    pub(super) fn was_found(&self) -> bool {
        self.found
    }

    /// The state, to look at.
    pub(super) fn get(&self) -> MappedMutexGuard<'_, T> {
        MutexGuard::map(self.kept.lock(), |kept| &mut kept.state)
    }

    /// The state, to change. The change counts once [`Self::save`] has returned.
    pub(super) fn change(&self) -> MappedMutexGuard<'_, T> {
        MutexGuard::map(self.kept.lock(), |kept| {
            kept.changes += 1;
            &mut kept.state
        })
    }

    /// Puts the state on stable storage; returns at once if another task has just done so. `forget` drops what is old.
    pub(super) async fn save(&self, forget: impl FnOnce(&mut T)) -> io::Result<()> {
        let wanted = self.kept.lock().changes;
        let mut written = self.written.lock().await;
        if *written >= wanted {
            return Ok(());
        }
        let (covers, state) = {
            let mut kept = self.kept.lock();
            forget(&mut kept.state);
            (kept.changes, kept.state.clone())
        };
        let (folder, name, number, mut numbers) =
            (Arc::clone(&self.folder), self.name, self.number.clone(), self.others.clone());
        let replace = move || {
            numbers.insert(number, serde_json::to_value(state)?);
            let bytes = serde_json::to_vec(&Shape { v: VERSION, numbers })?;
            folder.replace(&format!(".tmp-{name}"), name, &bytes, Access::PRIVATE)
        };
        tokio::task::spawn_blocking(replace).await.map_err(io::Error::other)??;
        *written = covers;
        Ok(())
    }
}
