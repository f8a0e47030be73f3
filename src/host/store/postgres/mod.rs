//! The store as tables in PostgreSQL (`schema.sql`, docs/cluster.md). Every daemon takes calls ([`shared`]); what steps ask
//! for is done by the one that is [`holding`] the group; what concerns a folder, by the host that is named in [`pins`]; what is done in one
//! place, by the one that has the [`lease`]. What is saved soon is committed without waiting for the disk, and saved again
//! if the server turns out to have lost it, which a new [`era`](opening::era) of the server shows.

mod asks;
mod audit;
mod batches;
mod calls;
mod columns;
mod database;
mod documents;
mod forgetting;
mod groups;
mod hints;
mod holding;
mod lease;
mod look;
mod memory;
mod news;
mod nodes;
mod opening;
mod pins;
mod rates;
mod runs;
mod saving;
mod scanning;
mod set_back;
mod settling;
mod shared;
mod statement;
mod tables;

pub use audit::lines_of;
pub use documents::document_of;
pub use look::{Seen, look};
pub use opening::{Turn, Waiting};
pub use pins::{Moved, move_group};

use super::cache::Cache;
use super::{Allowed, Along, BadRecord, Erased, Loading, Pin, Save, Sharing, Store, StoreError, Stored, Whom, record};
use askd_core::{Ask, AskId, Group, Time};
use asks::{Version, Write, uuid};
use batches::Line;
use database::{Database, Durable, Failed, LIMIT, LONG, LONG_STATEMENTS, Work, query};
use hints::Hints;
use holding::Holding;
use lease::Lease;
use news::Mark;
use parking_lot::Mutex;
use saving::{Attempt, Unflushed};
use statement::statement;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The most rejected requests kept for one group, and their bytes in all.
const REJECTED: i64 = 100;
const REJECTED_BYTES: i64 = 1024 * 1024;
/// What it is called where people read it.
const PLACE: &str = "the database";
/// Comes before every id.
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";
/// The document that a clean stop leaves: nothing of that era is missing.
const CLEAN: &str = "clean";

/// What the store and the documents share.
#[derive(Debug)]
struct Shared {
    database: Arc<Database>,
    /// The saves that wait.
    line: Arc<Line>,
    /// The leader has it.
    lease: Option<Lease>,
    /// The lease of this run, and its groups.
    holding: Holding,
    /// This run's id among the nodes, and what its host is called.
    run: String,
    node: String,
    /// The hosts that serve folders and do not answer, and when they were heard of last.
    silent: Arc<Mutex<Vec<(String, Time)>>>,
    /// How many standbys of the server have each `sync_state`.
    standbys: Arc<Mutex<Vec<(String, i64)>>>,
    /// Cancelled when this run begins to leave the others, and when it has left them.
    ends: CancellationToken,
    left: CancellationToken,
    /// Cancelled when another run has taken over what this one did.
    overtaken: CancellationToken,
}

impl Shared {
    /// Changes something, if this daemon still serves.
    fn change<T: Send + 'static>(&self, durable: Durable, work: Work<T>) -> Result<T, Failed> {
        self.change_within(LIMIT, "", durable, work)
    }

    /// The same of very much at once.
    fn change_long<T: Send + 'static>(&self, work: Work<T>) -> Result<T, Failed> {
        self.change_within(LONG, LONG_STATEMENTS, Durable::Yes, work)
    }

    fn change_within<T: Send + 'static>(
        &self,
        limit: Duration,
        statements: &str,
        durable: Durable,
        work: Work<T>,
    ) -> Result<T, Failed> {
        let (connections, check) = (self.database.connections().clone(), format!("{statements}{}", self.check()));
        let changed =
            self.database.wait(async move { connections.transact_within(limit, durable, &check, work).await });
        if let Err(Failed::Overtaken) = &changed {
            self.lose();
        }
        changed
    }

    /// What each transaction of this run begins with.
    fn check(&self) -> String {
        opening::checks(self.lease.as_ref(), &self.holding)
    }

    /// Another run has taken over.
    fn lose(&self) {
        self.overtaken.cancel();
    }

    fn read<T: Send + 'static>(&self, work: Work<T>) -> Result<T, Failed> {
        let connections = self.database.connections().clone();
        self.database.wait(async move { connections.read(false, work).await })
    }

    /// Reads what may take long.
    fn read_long<T: Send + 'static>(&self, work: Work<T>) -> Result<T, Failed> {
        let connections = self.database.connections().clone();
        self.database.wait(async move { connections.read(true, work).await })
    }
}

/// Asks in PostgreSQL.
#[derive(Debug)]
pub struct InPostgres {
    shared: Arc<Shared>,
    /// The server's era now, as far as this daemon knows.
    era: Mutex<String>,
    /// The server's era in which the last run stopped cleanly, if it did.
    clean: Option<String>,
    /// Asks that were used lately, and which versions they are.
    cache: Mutex<Cache<Version>>,
    /// What was saved without waiting for the disk since the last flush.
    unflushed: Mutex<HashMap<AskId, Unflushed>>,
    flushing: Mutex<()>,
    /// Saves of which nobody knows what became.
    doubts: Mutex<HashMap<AskId, Attempt>>,
    /// How many asks each group was given, as far as this daemon knows.
    given: Mutex<HashMap<Group, i64>>,
    /// Which host serves the folder of each group, as far as this daemon knows.
    pins: Mutex<HashMap<Group, Pin>>,
    mark: Mutex<Mark>,
    /// What was settled for good before this transaction is known from a run before this one; 0: nothing is.
    known_before: AtomicU64,
    /// The transaction of the last flush.
    flushed: Mutex<u64>,
    hints: Hints,
    closed: AtomicBool,
    last_save_failed: AtomicBool,
    last_flush_failed: AtomicBool,
    /// The lock of the state folder, whose files stay on this host.
    _held: Option<Arc<File>>,
}

fn damaged(id: AskId, source: BadRecord) -> StoreError {
    StoreError::Damaged { id, place: format!("the row {id} of askd.asks or askd.settled"), source }
}

fn failed(what: impl Into<String>) -> impl FnOnce(Failed) -> StoreError {
    let what = what.into();
    move |why| {
        let source = io::Error::other(why.to_string());
        match why {
            Failed::Unknown(_) => StoreError::InDoubt { what, source },
            Failed::Unchanged(_)
            | Failed::Overtaken
            | Failed::Conflict
            | Failed::Moved
            | Failed::NotHeld
            | Failed::Crashed => StoreError::Io { what, source },
        }
    }
}

impl Store for InPostgres {
    fn save(&self, ask: &Arc<Ask>, save: Save) -> Result<(), StoreError> {
        self.write_tracked(Attempt::new(ask, Write::Any, self.era(), None), Along::default(), save).map(drop)
    }

    fn cached(&self, id: AskId) -> Option<Arc<Ask>> {
        self.cache.lock().get(id).map(|(ask, _)| ask)
    }

    fn load(&self, _group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.cached(id) {
            return Ok(Some(ask));
        }
        // The server may have lost what this daemon saved last, so the daemon's copy goes first.
        let unflushed = self.unflushed.lock().get(&id).cloned();
        if let Some(Unflushed { ask, version, .. }) = unflushed {
            self.cache.lock().put(Arc::clone(&ask), version, record::USUAL_BYTES);
            return Ok(Some(ask));
        }
        let read = self.read_row(id)?;
        Ok(self.cached(id).or_else(|| read.map(|read| Arc::new(read.ask))))
    }

    fn read(&self, _group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.cached(id) {
            return Ok(Some(ask));
        }
        if let Some(unflushed) = self.unflushed.lock().get(&id) {
            return Ok(Some(Arc::clone(&unflushed.ask)));
        }
        let Some(row) = self.row(id)? else { return Ok(None) };
        Ok(Some(Arc::new(row.ask().map_err(|source| damaged(id, source))?.ask)))
    }

    fn find(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        self.read_row(id)
    }

    fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.flush_all().map_err(failed("cannot sync what was saved"));
        self.last_flush_failed.store(flushed.is_err(), Ordering::Relaxed);
        flushed
    }

    fn close(&self) -> Result<(), StoreError> {
        self.shared.ends.cancel();
        self.flush()?;
        self.closed.store(true, Ordering::SeqCst);
        self.leave().map_err(failed("cannot note that everything is stored"))
    }

    fn retire(&self, _group: &Group, id: AskId) -> Result<(), StoreError> {
        // If the server loses this, the next start finds a finished ask, and retires it again.
        let retire = "update askd.asks set settled = true where id = $1::uuid";
        self.change_row(Durable::No, id, retire).map_err(failed(format!("cannot keep the outcome of ask {id}")))
    }

    fn forget(&self, _group: &Group, id: AskId) -> Result<(), StoreError> {
        self.change_row(Durable::Yes, id, "select askd.forget($1::uuid)")
            .map_err(failed(format!("cannot drop ask {id}")))?;
        self.unflushed.lock().remove(&id);
        self.cache.lock().remove(id);
        Ok(())
    }

    fn set_aside(&self, _group: &Group, id: AskId) -> Result<String, StoreError> {
        let aside = "with aside as (select * from askd.take($1::uuid)),
                     told as (insert into askd.gone (id, record) select taken, what from aside
                         on conflict (id) do update
                             set record = excluded.record, changed = excluded.changed, forget_at = excluded.forget_at)
                     insert into askd.set_aside (id, group_name, record) select * from aside";
        self.change_row(Durable::Yes, id, aside).map_err(failed(format!("cannot set ask {id} aside")))?;
        self.unflushed.lock().remove(&id);
        self.cache.lock().remove(id);
        Ok(format!("the table askd.set_aside, id {}", uuid(id)))
    }

    fn scan(&self, loading: &Loading, each: &(dyn Fn(Stored) + Sync)) -> Result<Vec<(String, BadRecord)>, StoreError> {
        let groups = self.count()?;
        let all = usize::try_from(groups.iter().map(|(_, count)| count).sum::<i64>()).unwrap_or_default();
        loading.begin(all, groups.iter().map(|(group, _)| group.as_str()));
        let mut corrupt = Vec::new();
        self.scan_rows(&mut |row| {
            loading.count();
            match row.ask() {
                Ok(read) => each(self.stored(&self.era(), read, row.settled)),
                Err(source @ BadRecord::Newer { .. }) => {
                    return Err(StoreError::Newer { file: format!("the row {} of askd.asks", row.id), source });
                }
                Err(why) => corrupt.push((format!("the row {} of askd.asks", row.id), why)),
            }
            Ok(())
        })?;
        Ok(corrupt)
    }

    fn allow(&self, group: &Group, allowed: &[Allowed], oldest: Time) -> Result<(), StoreError> {
        let rows = allowed.iter().map(|known| {
            let by = serde_json::to_string(&known.by).unwrap_or_default();
            (known.question.to_string(), known.at.as_millis(), by)
        });
        let (rows, name): (Vec<_>, _) = (rows.collect(), group.to_string());
        let allowed = self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (rows, name) = (rows.clone(), name.clone());
                Box::pin(async move {
                    let old = "delete from askd.allowed where group_name = $1 and at < $2";
                    query(old).bind(&name).bind(oldest.as_millis()).execute(&mut *connection).await?;
                    for (question, at, by) in rows {
                        let new =
                            "insert into askd.allowed (group_name, question, at, by) values ($1, $2, $3, $4::jsonb)
                                   on conflict (group_name, question) do update
                                   set at = excluded.at, by = excluded.by, changed = excluded.changed
                                   where allowed.at <= excluded.at";
                        let new = query(new).bind(&name).bind(question).bind(at).bind(by);
                        new.execute(&mut *connection).await?;
                    }
                    Ok(())
                })
            }),
        );
        allowed.map_err(failed(format!("cannot keep what may be asked again in {group}")))
    }

    fn allowed(&self) -> Result<Vec<(Group, Vec<Allowed>)>, StoreError> {
        let rows = scanning::list(|last: Option<&news::AllowedRow>| {
            let some = statement(
                "select group_name, question, at, by::text from askd.allowed
                 where (group_name, question) > ($1, $2) order by group_name, question limit $3",
            );
            let (group, question) =
                last.map(|(group, question, ..)| (group.clone(), question.clone())).unwrap_or_default();
            self.shared.read_patiently(&some.bind(group).bind(question).bind(scanning::SOME).rows(news::allowed_row))
        });
        Ok(news::allowed_of(rows.map_err(failed("cannot read what may be asked again"))?))
    }

    fn learn(&self, whom: &mut Whom) -> Result<(), StoreError> {
        self.learn_all(whom)
    }

    fn erase(&self, whom: &Whom, first: &mut dyn FnMut(&Ask) -> io::Result<()>) -> Result<Erased, StoreError> {
        self.erase_all(whom, first)
    }

    fn keep_rejected(&self, group: &Group, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (of, name, bytes) = (group.to_string(), name.to_owned(), bytes.to_vec());
        let kept = self.shared.change(
            Durable::No,
            Arc::new(move |connection| {
                let (of, name, bytes) = (of.clone(), name.clone(), bytes.clone());
                Box::pin(async move {
                    let keep = "insert into askd.rejected (group_name, name, bytes) values ($1, $2, $3)
                                on conflict (group_name, name) do update set at = clock_timestamp(), bytes = excluded.bytes";
                    query(keep).bind(&of).bind(name).bind(bytes).execute(&mut *connection).await?;
                    let bound = "delete from askd.rejected r using (
                                     select name, row_number() over newest as place,
                                         sum(length(bytes)) over newest as bytes
                                     from askd.rejected where group_name = $1 window newest as (order by at desc, name desc)
                                 ) kept
                                 where r.group_name = $1 and r.name = kept.name and kept.place > 1
                                     and (kept.place > $2 or kept.bytes > $3)";
                    query(bound).bind(of).bind(REJECTED).bind(REJECTED_BYTES).execute(connection).await.map(drop)
                })
            }),
        );
        kept.map_err(failed(format!("cannot keep a rejected request of {group}")))
    }

    /// Writes a row and waits until it is on stable storage.
    fn probe(&self) -> Result<(), StoreError> {
        let (era, transaction) = self.sync().map_err(failed("cannot write in the database"))?;
        // A daemon that saves nothing has to look the less far back after a crash.
        if era == self.era() {
            *self.flushed.lock() = transaction;
        }
        Ok(())
    }

    fn last_save_failed(&self) -> bool {
        self.last_save_failed.load(Ordering::Relaxed) || self.last_flush_failed.load(Ordering::Relaxed)
    }

    fn place(&self) -> &'static str {
        PLACE
    }

    fn calls_for(&self) -> Duration {
        let lease = self.shared.lease.as_ref().map_or(Duration::MAX, Lease::calls_for);
        self.shared.holding.calls_for().min(lease)
    }

    fn shared(&self) -> Option<&(dyn Sharing + 'static)> {
        Some(self)
    }

    fn overtaken(&self) -> CancellationToken {
        self.shared.overtaken.clone()
    }
}

#[cfg(test)]
mod tests;
