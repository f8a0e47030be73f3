//! Who is at it: of the same work one is done at a time. Nothing is decided here, and nothing is kept.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// What is being done.
#[derive(Debug)]
pub(super) struct Busy<T>(Arc<Mutex<HashSet<T>>>);

/// Until this is dropped, nobody else does it.
#[derive(Debug)]
pub(super) struct Alone<T: Eq + Hash>(Arc<Mutex<HashSet<T>>>, T);

impl<T> Default for Busy<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Eq + Hash + Clone> Busy<T> {
    /// `None`: somebody is at it.
    pub(super) fn begin(&self, what: T) -> Option<Alone<T>> {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(what.clone());
        new.then(|| Alone(Arc::clone(&self.0), what))
    }
}

impl<T: Eq + Hash> Drop for Alone<T> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}
