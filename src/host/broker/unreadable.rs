//! Records that cannot be read while the daemon runs: for an operator, who is told of each until it can be read again or is gone, and
//! for readers that must not take a disk that fails for a moment for a record that is damaged. A start moves damaged records aside.

use super::Broker;
use crate::clock::Moment;
use crate::host::store::{BadRecord, StoreError};
use askd_core::{Ask, AskId, Group, Time};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A file that cannot be read counts as damaged once it could not be read for this long.
const PASSING: Duration = Duration::from_secs(60);
/// How many are looked at again at a time.
const MOST: usize = 100;

/// A record that cannot be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Whose ask it is.
    pub group: Arc<Group>,
    /// When that was noticed.
    pub since: Time,
    /// Where it is.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
    noticed: Moment,
}

impl Broker {
    /// The records that cannot be read, as far as they were looked for.
    pub(in crate::host) async fn unread_records(&self) -> Vec<Unreadable> {
        if self.0.unreadable.lock().is_empty() {
            return Vec::new();
        }
        let broker = self.clone();
        let look = move || {
            let known: Vec<AskId> = broker.0.unreadable.lock().keys().copied().take(MOST).collect();
            for id in known {
                // What comes of it is noted.
                let _read = broker.load(id);
            }
            broker.0.unreadable.lock().values().cloned().collect()
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// Notes what came of reading a record.
    pub(super) fn note_read(&self, id: AskId, read: &Result<Option<Arc<Ask>>, StoreError>) {
        match read {
            Err(StoreError::Damaged { place, source, .. }) => {
                let Some(group) = self.index().group(id) else { return };
                let (since, noticed) = (self.clock().now(), self.clock().monotonic());
                self.0.unreadable.lock().entry(id).or_insert_with(|| {
                    tracing::error!(ask = %id, %group, file = place, error = %source, "an ask cannot be read");
                    Unreadable { group, since, place: place.clone(), why: source.to_string(), noticed }
                });
            }
            Ok(_) => drop(self.0.unreadable.lock().remove(&id)),
            Err(_) => {}
        }
    }

    /// The same error, unless it may pass: then it says that the record cannot be read now.
    pub(in crate::host) fn if_it_lasts(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Damaged { id, source: BadRecord::Unreadable(why), .. } if self.may_pass(id) => {
                StoreError::Io { what: format!("cannot read ask {id}"), source: io::Error::other(why) }
            }
            error => error,
        }
    }

    fn may_pass(&self, id: AskId) -> bool {
        let noticed = self.0.unreadable.lock().get(&id).map(|record| record.noticed);
        noticed.is_none_or(|noticed| self.clock().monotonic().since(noticed) < PASSING)
    }
}
