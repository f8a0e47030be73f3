//! The rows of asks: writing one, finding out whether it was written, reading some.

use super::database::{Durable, Failed, Work, query, scalar};
use super::{InPostgres, failed, opening};
use crate::host::store::{BadRecord, StoreError, Stored, record};
use askd_core::{Ask, AskId};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many records a scan reads at a time.
const SOME: i64 = 500;

/// A row of `askd.asks`: `id::text, group_name, settled, record::text`.
pub(super) struct Row {
    pub(super) id: String,
    group: String,
    pub(super) settled: bool,
    record: String,
}

impl Row {
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { id: row.try_get(0)?, group: row.try_get(1)?, settled: row.try_get(2)?, record: row.try_get(3)? })
    }

    pub(super) fn ask(&self) -> Result<record::Read, BadRecord> {
        let read = record::read(self.record.as_bytes())?;
        let same = uuid(read.ask.id) == self.id && read.ask.group.as_str() == self.group;
        if same { Ok(read) } else { Err(BadRecord::Misnamed) }
    }
}

/// An id as PostgreSQL writes it.
pub(super) fn uuid(id: AskId) -> String {
    uuid::Uuid::parse_str(&id.to_string()).unwrap_or_default().to_string()
}

impl InPostgres {
    /// Stores the record of an ask; returns how many bytes it has.
    pub(super) fn write(&self, ask: &Ask, durable: Durable) -> Result<usize, Failed> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failed::Unchanged("askd has stopped".to_owned()));
        }
        let record = record::write(ask, &self.era.lock()).map_err(|error| Failed::Unchanged(error.to_string()))?;
        let record = String::from_utf8(record).map_err(|error| Failed::Unchanged(error.to_string()))?;
        let bytes = record.len();
        let (id, group, operation) = (uuid(ask.id), ask.group.to_string(), crate::random::unique());
        let saving = operation.clone();
        let saved = self.shared.change(
            durable,
            Arc::new(move |connection| {
                let (id, group, operation, record) = (id.clone(), group.clone(), saving.clone(), record.clone());
                Box::pin(async move {
                    let save = "insert into askd.asks as kept (id, group_name, operation, record)
                                values ($1::uuid, $2, $3::uuid, $4::jsonb)
                                on conflict (id) do update set revision = kept.revision + 1,
                                    operation = excluded.operation, record = excluded.record";
                    query(save).bind(id).bind(group).bind(operation).bind(record).execute(connection).await.map(drop)
                })
            }),
        );
        match saved {
            Err(Failed::Unknown(why)) => self.look_up(ask.id, operation, why)?,
            saved => saved?,
        }
        Ok(bytes)
    }

    /// Finds out what came of a commit. The lock waits for the transaction, if that still runs.
    fn look_up(&self, id: AskId, operation: String, why: String) -> Result<(), Failed> {
        let stored = self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (id, operation) = (uuid(id), operation.clone());
                Box::pin(async move {
                    scalar::<bool>("select operation = $2::uuid from askd.asks where id = $1::uuid for update")
                        .bind(id)
                        .bind(operation)
                        .fetch_optional(connection)
                        .await
                })
            }),
        );
        match stored {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(Failed::Unchanged(why)),
            // A row that is not there yet cannot be waited for.
            Ok(None) | Err(_) => Err(Failed::Unknown(why)),
        }
    }

    fn row(&self, id: AskId) -> Result<Option<Row>, StoreError> {
        let read = self.shared.read(Arc::new(move |connection| {
            let id = uuid(id);
            Box::pin(async move {
                let read = "select id::text, group_name, settled, record::text from askd.asks where id = $1::uuid";
                query(read).bind(id).fetch_optional(connection).await?.as_ref().map(Row::of).transpose()
            })
        }));
        read.map_err(failed(format!("cannot read ask {id}")))
    }

    pub(super) fn read_stored(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        let Some(row) = self.row(id)? else { return Ok(None) };
        let read = row.ask().map_err(|source| StoreError::Damaged { id, source })?;
        Ok(Some(self.stored(read, row.settled)))
    }

    pub(super) fn stored(&self, read: record::Read, settled: bool) -> Stored {
        let boot = read.boot.as_deref();
        let vouched = boot == Some(self.era.lock().as_str()) || boot.is_some() && boot == self.clean.as_deref();
        Stored { ask: read.ask, settled, after_loss: !vouched }
    }

    /// Changes one ask's row by a statement with its id.
    pub(super) fn change_row(&self, durable: Durable, id: AskId, statement: &'static str) -> Result<(), Failed> {
        self.shared.change(
            durable,
            Arc::new(move |connection| {
                let id = uuid(id);
                Box::pin(async move { query(statement).bind(id).execute(connection).await.map(drop) })
            }),
        )
    }

    /// The server's era, on stable storage together with all that was committed before.
    pub(super) fn sync(&self) -> Result<String, Failed> {
        self.shared.change(
            Durable::Yes,
            Arc::new(|connection| {
                Box::pin(async move {
                    // What writes nothing does not wait for the disk.
                    query("update askd.format set tables = tables").execute(&mut *connection).await?;
                    opening::era(connection).await
                })
            }),
        )
    }

    pub(super) fn flush_all(&self) -> Result<(), Failed> {
        let before = self.unflushed();
        let era = self.sync()?;
        let lost = std::mem::replace(&mut *self.era.lock(), era.clone()) != era;
        // In the same era, everything committed before is on stable storage now. In a new era, every unflushed ask may be lost.
        let saved = if lost { self.unflushed() } else { before };
        for ask in saved {
            if lost {
                self.write(&ask, Durable::Yes)?;
            }
            let mut unflushed = self.unflushed.lock();
            if unflushed.get(&ask.id).is_some_and(|newest| Arc::ptr_eq(newest, &ask)) {
                unflushed.remove(&ask.id);
            }
        }
        Ok(())
    }

    fn unflushed(&self) -> Vec<Arc<Ask>> {
        self.unflushed.lock().values().cloned().collect()
    }

    pub(super) fn scan_part(&self, after: (bool, String)) -> Result<Vec<Row>, StoreError> {
        let connections = self.shared.database.connections().clone();
        let part: Work<Vec<Row>> = Arc::new(move |connection| {
            let (settled, id) = after.clone();
            Box::pin(async move {
                let part = "select id::text, group_name, settled, record::text from askd.asks
                            where (settled, id) > ($1, $2::uuid) order by settled, id limit $3";
                let rows = query(part).bind(settled).bind(id).bind(SOME).fetch_all(connection).await?;
                rows.iter().map(Row::of).collect()
            })
        });
        let part = self.shared.database.wait(async move { connections.read(true, part).await });
        part.map_err(failed("cannot read the stored asks"))
    }

    pub(super) fn count(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let connections = self.shared.database.connections().clone();
        let count: Work<Vec<(String, i64)>> = Arc::new(|connection| {
            Box::pin(async move {
                let count = "select group_name, count(*) from askd.asks group by group_name";
                let rows = query(count).fetch_all(connection).await?;
                rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
            })
        });
        let count = self.shared.database.wait(async move { connections.read(true, count).await });
        count.map_err(failed("cannot read the stored asks"))
    }
}
