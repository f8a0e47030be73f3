//! The store as tables in PostgreSQL (`schema.sql`, docs/cluster.md). One daemon serves, by its [`lease`]; others wait until it
//! is gone. What is saved soon is committed without waiting for the disk, and saved again if the server turns out to have lost
//! it, which a new [`era`](opening::era) of the server shows.

mod asks;
mod database;
mod documents;
mod lease;
mod look;
mod opening;

pub use look::look;
pub use opening::Waiting;

use super::cache::{Cache, Kind};
use super::{Allowed, BadRecord, Loading, Save, Store, StoreError, Stored, record};
use askd_core::{Ask, AskId, Digest, Group, Time};
use asks::uuid;
use database::{Database, Durable, Failed, Work, query};
use lease::Lease;
use parking_lot::Mutex;
use sqlx::Row as _;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// The most rejected requests kept for one group, and their bytes in all.
const REJECTED: i64 = 100;
const REJECTED_BYTES: i64 = 1024 * 1024;
/// Comes before every id.
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";
/// The document that a clean stop leaves: nothing of that era is missing.
const CLEAN: &str = "clean";

/// What the store and the documents share.
#[derive(Debug)]
struct Shared {
    database: Database,
    lease: Lease,
}

impl Shared {
    /// Changes something, if this daemon still serves.
    fn change<T: Send + 'static>(&self, durable: Durable, work: Work<T>) -> Result<T, Failed> {
        let (connections, check) = (self.database.connections().clone(), self.lease.check());
        let changed = self.database.wait(async move { connections.transact(durable, &check, work).await });
        if matches!(changed, Err(Failed::Overtaken)) {
            self.lease.lose();
        }
        changed
    }

    fn read<T: Send + 'static>(&self, work: Work<T>) -> Result<T, Failed> {
        let connections = self.database.connections().clone();
        self.database.wait(async move { connections.read(false, work).await })
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
    cache: Mutex<Cache>,
    /// What was saved without waiting for the disk since the last flush.
    unflushed: Mutex<HashMap<AskId, Arc<Ask>>>,
    closed: AtomicBool,
    last_save_failed: AtomicBool,
    last_flush_failed: AtomicBool,
    /// The lock of the state folder, whose files stay on this host.
    _held: Option<File>,
}

fn failed(what: impl Into<String>) -> impl FnOnce(Failed) -> StoreError {
    let what = what.into();
    move |why| {
        let source = io::Error::other(why.to_string());
        match why {
            Failed::Unchanged(_) | Failed::Overtaken => StoreError::Io { what, source },
            Failed::Unknown(_) => StoreError::InDoubt { what, source },
        }
    }
}

impl Store for InPostgres {
    fn save(&self, ask: &Arc<Ask>, save: Save) -> Result<(), StoreError> {
        let durable = if save == Save::Now { Durable::Yes } else { Durable::No };
        // Before it is written: a flush that finds another era has to know of it.
        let replaced = match durable {
            Durable::Yes => None,
            Durable::No => Some(self.unflushed.lock().insert(ask.id, Arc::clone(ask))),
        };
        let saved = self.write(ask, durable).map_err(failed(format!("cannot store ask {}", ask.id)));
        self.last_save_failed.store(saved.is_err(), Ordering::Relaxed);
        match (&saved, replaced) {
            (Err(StoreError::Io { .. }), Some(Some(before))) => drop(self.unflushed.lock().insert(ask.id, before)),
            (Ok(_), None) | (Err(StoreError::Io { .. }), Some(None)) => drop(self.unflushed.lock().remove(&ask.id)),
            (Ok(_) | Err(_), _) => {}
        }
        self.cache.lock().put(Arc::clone(ask), Kind::Pending, saved?);
        Ok(())
    }

    fn cached(&self, id: AskId) -> Option<Arc<Ask>> {
        self.cache.lock().get(id).map(|(ask, _)| ask)
    }

    fn load(&self, group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        let read = self.read(group, id)?;
        if let Some(ask) = &read {
            self.cache.lock().put(Arc::clone(ask), Kind::Pending, record::USUAL_BYTES);
        }
        Ok(read)
    }

    fn read(&self, _group: &Group, id: AskId) -> Result<Option<Arc<Ask>>, StoreError> {
        if let Some(ask) = self.cached(id) {
            return Ok(Some(ask));
        }
        // The server may have lost what this daemon saved last, so the daemon's copy goes first.
        if let Some(ask) = self.unflushed.lock().get(&id) {
            return Ok(Some(Arc::clone(ask)));
        }
        Ok(self.read_stored(id)?.map(|stored| Arc::new(stored.ask)))
    }

    fn find(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        self.read_stored(id)
    }

    fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.flush_all().map_err(failed("cannot sync what was saved"));
        self.last_flush_failed.store(flushed.is_err(), Ordering::Relaxed);
        flushed
    }

    fn close(&self) -> Result<(), StoreError> {
        self.flush()?;
        self.closed.store(true, Ordering::SeqCst);
        let era = self.era.lock().clone();
        let clean: Work<()> = Arc::new(move |connection| {
            let era = era.clone();
            Box::pin(async move {
                let mark = "insert into askd.documents (name, bytes) values ($1, $2)
                            on conflict (name) do update set bytes = excluded.bytes";
                query(mark).bind(CLEAN).bind(era.into_bytes()).execute(connection).await.map(drop)
            })
        });
        let ended = self.shared.change(Durable::Yes, clean).and_then(|()| {
            let (lease, connections) = (self.shared.lease.clone(), self.shared.database.connections().clone());
            self.shared.database.wait(async move { lease.end(&connections).await })
        });
        ended.map_err(failed("cannot note that everything is stored"))
    }

    fn retire(&self, _group: &Group, id: AskId) -> Result<(), StoreError> {
        // If the server loses this, the next start finds a finished ask, and retires it again.
        let retire = "update askd.asks set settled = true where id = $1::uuid";
        self.change_row(Durable::No, id, retire).map_err(failed(format!("cannot keep the outcome of ask {id}")))
    }

    fn forget(&self, _group: &Group, id: AskId) -> Result<(), StoreError> {
        let forget = "delete from askd.asks where id = $1::uuid";
        self.change_row(Durable::Yes, id, forget).map_err(failed(format!("cannot drop ask {id}")))?;
        self.unflushed.lock().remove(&id);
        self.cache.lock().remove(id);
        Ok(())
    }

    fn set_aside(&self, _group: &Group, id: AskId) -> Result<String, StoreError> {
        let aside = "with gone as (delete from askd.asks where id = $1::uuid returning id, group_name, record)
                     insert into askd.set_aside (id, group_name, record) select * from gone";
        self.change_row(Durable::Yes, id, aside).map_err(failed(format!("cannot set ask {id} aside")))?;
        self.unflushed.lock().remove(&id);
        self.cache.lock().remove(id);
        Ok(format!("the table askd.set_aside, id {}", uuid(id)))
    }

    fn scan(&self, loading: &Loading, each: &(dyn Fn(Stored) + Sync)) -> Result<Vec<(String, BadRecord)>, StoreError> {
        let groups = self.count()?;
        let all = usize::try_from(groups.iter().map(|(_, count)| count).sum::<i64>()).unwrap_or_default();
        loading.begin(all, groups.iter().map(|(group, _)| group.as_str()));
        let (mut corrupt, mut after) = (Vec::new(), (false, NO_ID.to_owned()));
        loop {
            let part = self.scan_part(after.clone())?;
            let Some(last) = part.last() else { break };
            after = (last.settled, last.id.clone());
            for row in part {
                loading.count();
                match row.ask() {
                    Ok(read) => each(self.stored(read, row.settled)),
                    Err(source @ BadRecord::Newer { .. }) => {
                        return Err(StoreError::Newer { file: format!("the row {} of askd.asks", row.id), source });
                    }
                    Err(why) => corrupt.push((format!("the row {} of askd.asks", row.id), why)),
                }
            }
        }
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
                                   on conflict (group_name, question) do update set at = excluded.at, by = excluded.by";
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
        let rows = self.shared.read(Arc::new(|connection| {
            Box::pin(async move {
                let all = "select group_name, question, at, by::text from askd.allowed order by group_name, question";
                let rows = query(all).fetch_all(connection).await?;
                rows.iter()
                    .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)))
                    .collect::<Result<Vec<(String, String, i64, String)>, sqlx::Error>>()
            })
        }));
        let mut all: Vec<(Group, Vec<Allowed>)> = Vec::new();
        for (group, question, at, by) in rows.map_err(failed("cannot read what may be asked again"))? {
            let read = || -> Option<(Group, Allowed)> {
                let question: Digest = question.parse().ok()?;
                let allowed = Allowed { question, at: Time::from_millis(at), by: serde_json::from_str(&by).ok()? };
                Some((group.parse().ok()?, allowed))
            };
            match (read(), all.last_mut()) {
                (None, _) => tracing::error!("a row of askd.allowed is damaged; it counts as missing"),
                (Some((group, allowed)), Some((last, of_last))) if *last == group => of_last.push(allowed),
                (Some((group, allowed)), _) => all.push((group, vec![allowed])),
            }
        }
        Ok(all)
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
        self.sync().map(drop).map_err(failed("cannot write in the database"))
    }

    fn last_save_failed(&self) -> bool {
        self.last_save_failed.load(Ordering::Relaxed) || self.last_flush_failed.load(Ordering::Relaxed)
    }

    fn place(&self) -> &'static str {
        "the database"
    }

    fn is_ours(&self) -> bool {
        self.shared.lease.is_good()
    }

    fn overtaken(&self) -> CancellationToken {
        self.shared.lease.lost().clone()
    }
}

#[cfg(test)]
mod tests;
