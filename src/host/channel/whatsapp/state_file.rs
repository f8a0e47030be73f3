//! A document that holds what has to be remembered of each number of the business. Several tasks
//! change it at once; changes that come together share one write. Its owner decides what stands in it.
//!
//! Where several daemons change it, it is no document but entries, each of which is stored by itself ([`super::together`]).

use super::entries::{self, Changes, Values};
use crate::host::store::memory::Place;
use crate::host::store::{CHANNELS_FORMAT, Documents, aside};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_path_to_error::Segment;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A document with more damaged entries than this is not worth reading.
const MAX_DAMAGED: usize = 100;

/// The state of one number, kept in a document.
#[derive(Debug)]
pub(super) struct StateFile<T> {
    documents: Arc<dyn Documents>,
    name: Arc<str>,
    number: String,
    /// The state of other numbers, as it was found.
    others: BTreeMap<String, Value>,
    /// Whether the document was there, and nothing of it was damaged.
    pub(super) whole: bool,
    kept: Mutex<Kept<T>>,
    /// The count of changes that are on stable storage.
    written: Arc<tokio::sync::Mutex<u64>>,
}

#[derive(Debug)]
struct Kept<T> {
    state: T,
    changes: u64,
    /// The entries as they are stored, if several daemons change them; how many changes are in them, and in what is being stored.
    stored: Values,
    covers: u64,
    covering: u64,
}

impl<T> Kept<T> {
    const fn new(state: T) -> Self {
        Self { state, changes: 0, stored: Values::new(), covers: 0, covering: 0 }
    }
}

#[derive(Serialize, Deserialize)]
struct Shape {
    v: u32,
    numbers: BTreeMap<String, Value>,
}

impl<T: Clone + Default + Serialize + DeserializeOwned + Send + 'static> StateFile<T> {
    /// Reads the document. Damaged entries are moved aside, or all of it if it is damaged as a whole. The store has seen
    /// that no newer askd wrote it.
    pub(super) fn open(documents: Arc<dyn Documents>, name: impl Into<Arc<str>>, number: &str) -> io::Result<Self> {
        let name = name.into();
        let bytes = documents.read(&name)?;
        let (mut whole, mut others) = (bytes.is_some(), BTreeMap::new());
        match bytes.map(|bytes| serde_json::from_slice::<Shape>(&bytes)) {
            None => {}
            Some(Ok(shape)) => others = shape.numbers,
            Some(Err(error)) => {
                tracing::error!(file = &*name, %error, "the memory of the WhatsApp channel is damaged; it was moved aside (.corrupt)");
                documents.set_aside(&name)?;
                whole = false;
            }
        }
        let (state, damaged) = salvaged::<T>(others.remove(number).unwrap_or_else(|| json!({})));
        let kept = Mutex::new(Kept::new(state));
        let mut file = Self { others, whole, kept, ..Self::new(documents, name, number) };
        if !damaged.is_empty() {
            tracing::error!(
                file = &*file.name,
                entries = damaged.len(),
                "entries of the memory of the WhatsApp channel are damaged; they were moved aside (.corrupt)"
            );
            file.whole = false;
            let bytes = serde_json::to_vec_pretty(&damaged)?;
            file.documents.store(&aside(&file.name), &bytes)?;
            file.writing(file.get().clone())()?;
        }
        Ok(file)
    }

    /// A document that is not there yet.
    pub(super) fn new(documents: Arc<dyn Documents>, name: impl Into<Arc<str>>, number: &str) -> Self {
        let (name, number, others) = (name.into(), number.to_owned(), BTreeMap::new());
        let kept = Mutex::new(Kept::new(T::default()));
        Self { documents, name, number, others, whole: false, kept, written: Arc::default() }
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

    /// Puts the state on stable storage; returns at once if another task has just done so. `forget` drops what is old. Whoever gives up
    /// waiting ends no write: the next one begins after it.
    pub(super) async fn save(&self, forget: impl FnOnce(&mut T)) -> io::Result<()> {
        let wanted = self.kept.lock().changes;
        let mut written = Arc::clone(&self.written).lock_owned().await;
        if *written >= wanted {
            return Ok(());
        }
        let (covers, state) = {
            let mut kept = self.kept.lock();
            forget(&mut kept.state);
            (kept.changes, kept.state.clone())
        };
        let write = self.writing(state);
        let writing = tokio::task::spawn_blocking(move || write().map(|()| *written = covers));
        writing.await.map_err(io::Error::other)?
    }

    /// The entries of each number, for a memory that has entries in place of the document.
    pub(super) fn entries(&self) -> io::Result<BTreeMap<String, Values>> {
        let mut numbers: BTreeMap<String, Values> =
            self.others.iter().map(|(number, state)| (number.clone(), entries::of(state.clone()))).collect();
        numbers.insert(self.number.clone(), entries::of(serde_json::to_value(&*self.get())?));
        Ok(numbers)
    }

    /// The entries that are not stored as they are now. `forget` drops what is old.
    pub(super) fn unstored(&self, forget: impl FnOnce(&mut T)) -> io::Result<Changes> {
        let mut kept = self.kept.lock();
        kept.covering = kept.changes;
        if kept.covers == kept.changes {
            return Ok(Changes::new());
        }
        forget(&mut kept.state);
        Ok(entries::changed(&kept.stored, entries::of(serde_json::to_value(&kept.state)?)))
    }

    /// These are stored now.
    pub(super) fn stored(&self, stored: Changes) {
        let mut kept = self.kept.lock();
        kept.covers = kept.covering;
        entries::put(&mut kept.stored, stored);
    }

    /// Takes in what is stored, as other daemons may have changed it. What this one has changed and not stored yet is newer. Returns what
    /// it did not know.
    pub(super) fn take_in(&self, mut found: Changes) -> io::Result<Vec<Place>> {
        let mut kept = self.kept.lock();
        found.retain(|place, value| kept.stored.get(place) != value.as_ref());
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut now = entries::of(serde_json::to_value(&kept.state)?);
        let unstored = entries::changed(&kept.stored, now.clone());
        entries::put(&mut kept.stored, found.clone());
        found.retain(|place, _| !unstored.contains_key(place));
        let places = found.keys().cloned().collect();
        entries::put(&mut now, found);
        let (state, damaged) = salvaged::<T>(entries::composed(now));
        if !damaged.is_empty() {
            let places: Vec<_> = damaged.keys().collect();
            tracing::error!(
                ?places,
                "entries of the memory of the WhatsApp channel are damaged; they count as missing"
            );
        }
        kept.state = state;
        Ok(places)
    }

    /// The places of all entries that are stored.
    pub(super) fn places(&self) -> Vec<Place> {
        self.kept.lock().stored.keys().cloned().collect()
    }

    /// Writes the document with this state.
    fn writing(&self, state: T) -> impl FnOnce() -> io::Result<()> + use<T> {
        let (documents, name) = (Arc::clone(&self.documents), Arc::clone(&self.name));
        let (number, mut numbers) = (self.number.clone(), self.others.clone());
        move || {
            numbers.insert(number, serde_json::to_value(state)?);
            let bytes = serde_json::to_vec(&Shape { v: CHANNELS_FORMAT, numbers })?;
            documents.store(&name, &bytes)
        }
    }
}

/// The state without its damaged entries, and those entries by their place.
fn salvaged<T: Default + DeserializeOwned>(mut state: Value) -> (T, BTreeMap<String, Value>) {
    let mut damaged = BTreeMap::new();
    while damaged.len() < MAX_DAMAGED {
        let error = match serde_path_to_error::deserialize(&state) {
            Ok(state) => return (state, damaged),
            Err(error) => error,
        };
        let Some(entry) = take(&mut state, &mut error.path().iter().take(2)) else { break };
        damaged.insert(error.path().to_string(), entry);
    }
    damaged.insert(".".to_owned(), state);
    (T::default(), damaged)
}

/// Takes what stands at that place out of its map or list.
fn take<'a>(from: &mut Value, path: &mut impl Iterator<Item = &'a Segment>) -> Option<Value> {
    match (path.next()?, from) {
        (Segment::Map { key }, Value::Object(map)) => {
            let inner = map.get_mut(key).and_then(|inner| take(inner, path));
            inner.or_else(|| map.remove(key))
        }
        (Segment::Seq { index }, Value::Array(list)) if *index < list.len() => Some(list.remove(*index)),
        _ => None,
    }
}
