//! A document that holds what has to be remembered of each number of the business. Several tasks
//! change it at once; changes that come together share one write. Its owner decides what stands in it.
//!
//! Where several daemons change it, it is no document but entries, each of which is stored by itself ([`super::together`]).

use super::entries::{self, Changes, Replaced, Values};
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
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Held while it is written. The count of changes that are on stable storage.
    writing: Arc<tokio::sync::Mutex<()>>,
    written: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Kept<T> {
    state: T,
    changes: u64,
    /// The entries as they are stored, if several daemons change them.
    stored: Values,
    /// How many of the changes those include.
    covers: u64,
    /// How many the write under way will include.
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
            file.document(file.get().clone())()?;
        }
        Ok(file)
    }

    /// A document that is not there yet.
    pub(super) fn new(documents: Arc<dyn Documents>, name: impl Into<Arc<str>>, number: &str) -> Self {
        let (name, number, others) = (name.into(), number.to_owned(), BTreeMap::new());
        let kept = Mutex::new(Kept::new(T::default()));
        Self { documents, name, number, others, whole: false, kept, writing: Arc::default(), written: Arc::default() }
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
        let is_written = || self.written.load(Ordering::SeqCst) >= wanted;
        if is_written() {
            return Ok(());
        }
        let alone = Arc::clone(&self.writing).lock_owned().await;
        if is_written() {
            return Ok(());
        }
        let (covers, state) = {
            let mut kept = self.kept.lock();
            forget(&mut kept.state);
            (kept.changes, kept.state.clone())
        };
        let (write, written) = (self.document(state), Arc::clone(&self.written));
        let writing = tokio::task::spawn_blocking(move || {
            let done = write().map(|()| written.store(covers, Ordering::SeqCst));
            drop(alone);
            done
        });
        writing.await.map_err(io::Error::other)?
    }

    /// The entries of each number, for a memory that has entries in place of the document. They are about to be stored.
    pub(super) fn entries(&self) -> io::Result<BTreeMap<String, Values>> {
        let mut numbers: BTreeMap<String, Values> =
            self.others.iter().map(|(number, state)| (number.clone(), entries::of(state.clone()))).collect();
        let mut kept = self.kept.lock();
        kept.covering = kept.changes;
        numbers.insert(self.number.clone(), entries::of(serde_json::to_value(&kept.state)?));
        Ok(numbers)
    }

    /// The entries that are not stored as they are now, with what is stored. `forget` drops what is old.
    pub(super) fn unstored(&self, forget: impl FnOnce(&mut T)) -> io::Result<Replaced> {
        let mut kept = self.kept.lock();
        kept.covering = kept.changes;
        if kept.covers == kept.changes {
            return Ok(Replaced::new());
        }
        forget(&mut kept.state);
        // Not what this version does not know of what a later one has stored.
        let (known, _damaged) = salvaged::<T>(entries::composed(kept.stored.clone()));
        let known = entries::of(serde_json::to_value(known)?);
        let mut replaced = entries::replaced(&known, entries::of(serde_json::to_value(&kept.state)?));
        for (place, (before, _)) in &mut replaced {
            *before = kept.stored.get(place).cloned();
        }
        Ok(replaced)
    }

    /// Whether that is stored, where several daemons store it.
    pub(super) fn has_stored(&self, place: &Place) -> bool {
        self.kept.lock().stored.contains_key(place)
    }

    /// These are stored now.
    pub(super) fn stored(&self, stored: Changes) {
        let mut kept = self.kept.lock();
        kept.covers = kept.covering;
        entries::put(&mut kept.stored, stored);
    }

    /// Takes in what other daemons have stored. It replaces even a change of this daemon that is not stored yet, because another daemon has had
    /// the turn since. Returns the places that were news.
    pub(super) fn take_in(&self, mut found: Changes) -> io::Result<Vec<Place>> {
        let mut kept = self.kept.lock();
        // An element of a list that was taken out does not come back, whether it was known or not.
        let is_news = |place: &Place, value: &Option<Value>| {
            kept.stored.get(place) != value.as_ref() || value.is_none() && entries::is_element(place)
        };
        found.retain(|place, value| is_news(place, value));
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let places = found.keys().cloned().collect();
        let mut now = entries::of(serde_json::to_value(&kept.state)?);
        entries::put(&mut kept.stored, found.clone());
        entries::put(&mut now, found);
        kept.state = read::<T>(now);
        Ok(places)
    }

    /// It is what is stored, and nothing else.
    pub(super) fn set(&self, stored: Values) {
        let mut kept = self.kept.lock();
        kept.state = read::<T>(stored.clone());
        kept.stored = stored;
        kept.covers = kept.changes;
    }

    /// The places of all entries that are stored.
    pub(super) fn places(&self) -> Vec<Place> {
        self.kept.lock().stored.keys().cloned().collect()
    }

    /// Writes the document with this state.
    fn document(&self, state: T) -> impl FnOnce() -> io::Result<()> + use<T> {
        let (documents, name) = (Arc::clone(&self.documents), Arc::clone(&self.name));
        let (number, mut numbers) = (self.number.clone(), self.others.clone());
        move || {
            numbers.insert(number, serde_json::to_value(state)?);
            let bytes = serde_json::to_vec(&Shape { v: CHANNELS_FORMAT, numbers })?;
            documents.store(&name, &bytes)
        }
    }
}

/// The state with these entries. Those that are damaged count as missing.
fn read<T: Default + DeserializeOwned>(entries: Values) -> T {
    let (state, damaged) = salvaged::<T>(entries::composed(entries));
    if !damaged.is_empty() {
        let places: Vec<_> = damaged.keys().collect();
        tracing::error!(?places, "entries of the memory of the WhatsApp channel are damaged; they count as missing");
    }
    state
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::InFiles;

    /// A turn that was lost leaves what it has changed. Whoever had the next one is right.
    #[test]
    fn what_another_daemon_has_stored_counts_and_only_what_is_new_is_stored() {
        let temp = tempfile::tempdir().unwrap();
        let documents = Arc::new(InFiles::open(temp.path()).unwrap());
        let file = StateFile::<BTreeMap<String, BTreeMap<String, u8>>>::new(documents, "x.json", "106");
        let place = |key: &str| ("wrote".to_owned(), key.to_owned());
        let write =
            |key: &str, value| file.change().entry("wrote".to_owned()).or_default().extend([(key.to_owned(), value)]);
        let value = |key: &str| file.get()["wrote"].get(key).copied();
        write("ada", 1);
        write("bob", 1);
        assert_eq!(file.take_in(Changes::from([(place("ada"), Some(json!(2)))])).unwrap(), [place("ada")]);
        assert_eq!((value("ada"), value("bob")), (Some(2), Some(1)));
        let unstored = file.unstored(|_| {}).unwrap();
        assert_eq!(unstored, Replaced::from([(place("bob"), (None, Some(json!(1))))]));
        file.stored(unstored.into_iter().map(|(place, (_, now))| (place, now)).collect());
        assert!(file.unstored(|_| {}).unwrap().is_empty());
        assert!(file.take_in(Changes::from([(place("bob"), Some(json!(1)))])).unwrap().is_empty(), "it is known");
        write("ada", 3);
        assert_eq!(file.unstored(|_| {}).unwrap()[&place("ada")], (Some(json!(2)), Some(json!(3))));
        file.take_in(Changes::from([(place("bob"), None)])).unwrap();
        assert_eq!((value("ada"), value("bob")), (Some(3), None));
    }

    #[derive(Debug, Default, Clone, Serialize, Deserialize)]
    #[serde(default)]
    struct Noted {
        notes: Vec<Value>,
    }

    #[test]
    fn a_note_that_is_gone_does_not_come_back_and_what_a_later_version_has_stored_stays() {
        let temp = tempfile::tempdir().unwrap();
        let documents = Arc::new(InFiles::open(temp.path()).unwrap());
        let file = StateFile::<Noted>::new(documents, "x.json", "106");
        let later = ("later".to_owned(), "x".to_owned());
        file.set(Values::from([(later.clone(), json!(1))]));
        file.change().notes.push(json!({"id": "1", "text": "a"}));
        // Another daemon has stored it, and it was sent.
        file.take_in(Changes::from([(entries::element("notes", "1"), None)])).unwrap();
        assert!(file.get().notes.is_empty());
        file.change().notes.push(json!({"id": "2", "text": "b"}));
        let unstored = file.unstored(|_| {}).unwrap();
        assert_eq!(unstored.keys().collect::<Vec<_>>(), [&entries::element("notes", "2")], "{unstored:?}");
        assert!(file.has_stored(&later) && !file.has_stored(&entries::element("notes", "2")));
    }
}
