//! The rows of asks: writing one, finding out whether it was written, reading some.

use super::database::{Durable, Failed, Work, query, scalar};
use super::{InPostgres, failed, opening};
use crate::host::store::{BadRecord, StoreError, Stored, record};
use crate::sabotage::on;
use askd_core::{Ask, AskId, Effect};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many records a scan reads at a time.
const SOME: i64 = 500;

/// What a write does to the row that is there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Write {
    /// It makes the row, if the group was given only so many asks before.
    New(i64),
    /// It replaces this revision.
    Over(i64),
    /// It replaces whatever is there: no other daemon writes.
    Any,
    /// It is this revision again, which the server may have lost: a later one stays.
    Again(i64),
}

impl Write {
    /// The revision that it makes, as far as that is known before.
    pub(super) fn makes(self) -> i64 {
        match self {
            Self::New(_) | Self::Any => 1,
            Self::Over(revision) => revision + 1,
            Self::Again(revision) => revision,
        }
    }

    /// Takes the id, group, operation and record first. Returns the new revision.
    fn statement(self) -> &'static str {
        match self {
            Self::New(_) => {
                "with counted as (
                     insert into askd.counts as c (group_name, accepted) values ($2, 1)
                     on conflict (group_name) do update set accepted = c.accepted + 1 where c.accepted = $5
                     returning 1
                 ), owed as (
                     insert into askd.owed (ask, effects) select $1::uuid, $7::jsonb from counted where $7 is not null
                 )
                 insert into askd.asks (id, group_name, operations, record, short_id)
                 select $1::uuid, $2, array[$3::uuid], $4::jsonb, $6 from counted
                 returning revision"
            }
            Self::Over(_) => {
                "with saved as (
                     update askd.asks set revision = revision + 1, record = $4::jsonb, changed = pg_current_xact_id(),
                         operations = (array_prepend($3::uuid, operations))[1:8]
                     where id = $1::uuid and group_name = $2 and revision = $5
                     returning revision
                 ), owed as (
                     insert into askd.owed (ask, effects) select $1::uuid, $6::jsonb from saved where $6 is not null
                 )
                 select revision from saved"
            }
            Self::Any => {
                "insert into askd.asks as kept (id, group_name, operations, record)
                 values ($1::uuid, $2, array[$3::uuid], $4::jsonb)
                 on conflict (id) do update set revision = kept.revision + 1, record = excluded.record,
                     operations = (array_prepend($3::uuid, kept.operations))[1:8], changed = pg_current_xact_id()
                 returning revision"
            }
            Self::Again(_) => {
                "insert into askd.asks as kept (id, group_name, operations, record, revision)
                 values ($1::uuid, $2, array[$3::uuid], $4::jsonb, $5)
                 on conflict (id) do update set revision = $5, record = excluded.record,
                     operations = (array_prepend($3::uuid, kept.operations))[1:8], changed = pg_current_xact_id()
                 where kept.revision < $5
                 returning revision"
            }
        }
    }
}

/// A row of `askd.asks`: `id::text, group_name, settled, revision, record::text`.
pub(super) struct Row {
    pub(super) id: String,
    group: String,
    pub(super) settled: bool,
    pub(super) revision: i64,
    record: String,
}

impl Row {
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (id, group, settled) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Self { id, group, settled, revision: row.try_get(3)?, record: row.try_get(4)? })
    }

    pub(super) fn ask(&self) -> Result<record::Read, BadRecord> {
        let read = record::read(self.record.as_bytes())?;
        let same = uuid(read.ask.id) == self.id && read.ask.group.as_str() == self.group;
        if same { Ok(read) } else { Err(BadRecord::Misnamed) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.record.len()
    }
}

/// An id as PostgreSQL writes it.
pub(super) fn uuid(id: AskId) -> String {
    uuid::Uuid::parse_str(&id.to_string()).unwrap_or_default().to_string()
}

/// The id that PostgreSQL writes so.
pub(super) fn ask_id(text: &str) -> Option<AskId> {
    text.replace('-', "").parse().ok()
}

impl InPostgres {
    /// Stores the record of an ask with this operation's id, and with it what the leader has to do. Returns the row's
    /// revision, and how many bytes the record has; `None`: the row is another than `write` says.
    pub(super) fn write(
        &self,
        ask: &Ask,
        write: Write,
        operation: &str,
        owed: &[Effect],
        durable: Durable,
    ) -> Result<Option<(i64, usize)>, Failed> {
        let unfit = |error: &dyn std::fmt::Display| Failed::Unchanged(error.to_string());
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failed::Unchanged("askd has stopped".to_owned()));
        }
        let record = record::write(ask, &self.era.lock()).map_err(|error| unfit(&error))?;
        let record = String::from_utf8(record).map_err(|error| unfit(&error))?;
        let effects = if owed.is_empty() { None } else { Some(serde_json::to_string(owed).map_err(|e| unfit(&e))?) };
        let bytes = record.len();
        // Without the check a daemon would overwrite what another one has stored since.
        let write = if on("norowlock") && matches!(write, Write::Over(_)) { Write::Any } else { write };
        let (id, group, code) = (uuid(ask.id), ask.group.to_string(), ask.short_id.to_string());
        let operation = operation.to_owned();
        let saved = self.shared.change(
            durable,
            Arc::new(move |connection| {
                let (id, group, operation) = (id.clone(), group.clone(), operation.clone());
                let (record, code, effects) = (record.clone(), code.clone(), effects.clone());
                Box::pin(async move {
                    let save = scalar::<i64>(write.statement()).bind(id).bind(group).bind(operation).bind(record);
                    let save = match write {
                        Write::New(given) => save.bind(given).bind(code).bind(effects),
                        Write::Over(revision) => save.bind(revision).bind(effects),
                        Write::Again(revision) => save.bind(revision),
                        Write::Any => save,
                    };
                    save.fetch_optional(connection).await
                })
            }),
        );
        match saved {
            Ok(revision) => Ok(revision.map(|revision| (revision, bytes))),
            Err(Failed::Conflict) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Whether a write was stored, after its reply was lost. The lock waits for its transaction, if that still runs.
    pub(super) fn is_stored(&self, id: AskId, operation: &str) -> Result<Option<bool>, Failed> {
        let operation = operation.to_owned();
        self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (id, operation) = (uuid(id), operation.clone());
                Box::pin(async move {
                    scalar::<bool>("select $2::uuid = any(operations) from askd.asks where id = $1::uuid for update")
                        .bind(id)
                        .bind(operation)
                        .fetch_optional(connection)
                        .await
                })
            }),
        )
    }

    pub(super) fn row(&self, id: AskId) -> Result<Option<Row>, StoreError> {
        let read = self.shared.read(Arc::new(move |connection| {
            let id = uuid(id);
            Box::pin(async move {
                let read =
                    "select id::text, group_name, settled, revision, record::text from askd.asks where id = $1::uuid";
                query(read).bind(id).fetch_optional(connection).await?.as_ref().map(Row::of).transpose()
            })
        }));
        read.map_err(failed(format!("cannot read ask {id}")))
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
        for (ask, revision) in saved {
            if lost {
                // Nothing to do if another daemon has stored a later one.
                self.write(&ask, Write::Again(revision), &crate::random::unique(), &[], Durable::Yes)?;
            }
            let mut unflushed = self.unflushed.lock();
            if unflushed.get(&ask.id).is_some_and(|(newest, _)| Arc::ptr_eq(newest, &ask)) {
                unflushed.remove(&ask.id);
            }
        }
        Ok(())
    }

    fn unflushed(&self) -> Vec<(Arc<Ask>, i64)> {
        self.unflushed.lock().values().cloned().collect()
    }

    pub(super) fn scan_part(&self, after: (bool, String)) -> Result<Vec<Row>, StoreError> {
        let connections = self.shared.database.connections().clone();
        let part: Work<Vec<Row>> = Arc::new(move |connection| {
            let (settled, id) = after.clone();
            Box::pin(async move {
                let part = "select id::text, group_name, settled, revision, record::text from askd.asks
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
