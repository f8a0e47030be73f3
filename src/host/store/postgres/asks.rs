//! The rows of asks: writing one, finding out whether it was written, reading some.

use super::batches::{NewRow, Over};
use super::database::{Durable, Failed, Work, query, scalar};
use super::saving::Attempt;
use super::statement::statement;
use super::{InPostgres, NO_ID, failed, opening, pins};
use crate::host::audit::Noted;
use crate::host::store::{Along, BadRecord, LeftTo, StoreError, Stored, record};
use crate::sabotage::on;
use askd_core::{AskId, Group};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// A state of a row. Its operation names it for certain: after a crash of the server a revision may come twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) revision: i64,
    pub(super) operation: Uuid,
    /// Whether no crash of the server can have taken anything from it.
    pub(super) vouched: bool,
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

/// What a write does to the row that is there.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// It makes the row, if the group was given only so many asks before.
    New(i64),
    /// It replaces this version.
    Over(Version),
    /// It replaces whatever is there: no other daemon writes.
    Any,
    /// It is a version again that the server may have lost, with those that it may have lost with it: the row is made, or one
    /// of these is replaced.
    Again(i64, Steps),
}

/// What is stored together with a record, as `askd.save_along` takes it: what others have to do, and lines of the audit log.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    pub(super) effects: Vec<String>,
    pub(super) folders: Vec<Option<String>>,
    pub(super) times: Vec<i64>,
    pub(super) lines: Vec<String>,
    /// Only its outcome is kept from then on.
    pub(super) retired: bool,
    /// No host may serve the folder.
    unpinned: bool,
    /// Only the holder of the ask's group may save it.
    of_holder: bool,
}

impl Carried {
    pub(super) fn of(Along { left, noted, retired, of_holder }: Along<'_>, group: &Group) -> Result<Self, Failed> {
        let unfit = |error: serde_json::Error| Failed::Unchanged(error.to_string());
        let (effects, folders) = owed(left, group).map_err(unfit)?;
        let noted: &[Noted] = if on("unnoted") { &[] } else { noted };
        let (times, lines) = noted.iter().map(|it| (it.at.as_millis(), it.json.clone())).unzip();
        let unpinned = left.is_some_and(|left| left.unpinned);
        Ok(Self { effects, folders, times, lines, retired, unpinned, of_holder })
    }

    /// Stores it for the ask whose row has this id.
    pub(super) async fn store(self, connection: &mut PgConnection, id: String) -> Result<(), sqlx::Error> {
        let Self { effects, folders, times, lines, .. } = self;
        let store = query("select askd.save_along($1::uuid, $2, $3, $4, $5)").bind(id);
        store.bind(effects).bind(folders).bind(times).bind(lines).execute(connection).await.map(drop)
    }

    fn and(mut self, later: &Self) -> Self {
        self.effects.extend_from_slice(&later.effects);
        self.folders.extend_from_slice(&later.folders);
        self.times.extend_from_slice(&later.times);
        self.lines.extend_from_slice(&later.lines);
        self.retired |= later.retired;
        self
    }
}

/// Versions that a row had one after the other, each with what was stored along with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    /// The operation before them; none, if the row was made by the first one, or replaced whatever was there.
    before: Option<Uuid>,
    steps: Vec<(Uuid, Arc<Carried>)>,
}

impl Steps {
    pub(super) fn after(before: Option<Uuid>) -> Self {
        Self { before, steps: Vec::new() }
    }

    pub(super) fn and(mut self, operation: Uuid, along: Carried) -> Self {
        self.steps.push((operation, Arc::new(along)));
        self
    }

    /// Whether a row of this version lacks the last one.
    pub(super) fn lack(&self, operation: Uuid) -> bool {
        self.steps.last().is_some_and(|(last, _)| *last != operation) && self.has(operation)
    }

    fn has(&self, operation: Uuid) -> bool {
        self.before == Some(operation) || self.steps.iter().any(|(step, _)| *step == operation)
    }

    /// What went along with the versions after this one. `None`: the row is not there.
    fn missing_after(&self, operation: Option<Uuid>) -> Carried {
        let known = self.steps.iter().position(|(step, _)| Some(*step) == operation);
        let missing = self.steps.iter().skip(known.map_or(0, |known| known + 1));
        missing.fold(Carried::default(), |carried, (_, along)| carried.and(along))
    }
}

/// What [`Write::Any`] and [`Write::Again`] do. Both take the id, group, operation and record first, and return the new revision.
const ANY: &str = "insert into askd.asks as kept (id, group_name, operations, record, settled)
    values ($1::uuid, $2, array[$3::uuid], $4::jsonb, $5)
    on conflict (id) do update set revision = kept.revision + 1, record = excluded.record,
        operations = (array_prepend($3::uuid, kept.operations))[1:8], changed = pg_current_xact_id(),
        settled = kept.settled or $5
    returning revision";
const AGAIN: &str = "insert into askd.asks as kept (id, group_name, operations, record, settled, revision)
    values ($1::uuid, $2, array[$3::uuid], $4::jsonb, $5, $6)
    on conflict (id) do update set revision = excluded.revision, record = excluded.record,
        operations = (array_prepend($3::uuid, kept.operations))[1:8], changed = pg_current_xact_id(),
        settled = kept.settled or $5
    where kept.operations[1] = $7::uuid
    returning revision";

/// The columns of a [`Row`], in each of the tables where an ask may stand.
const ASKS: &str = "select id::text, group_name, settled, revision, operations[1]::text, record::text from askd.asks
    where id = any($1::uuid[])";
const SETTLED: &str = "select id::text, group_name, true, revision, operations[1]::text, record::text from askd.settled
    where id = any($1::uuid[])
        and not exists (select from askd.gone where gone.id = settled.id and gone.forget_at is not null)";

/// A row of `askd.asks` or `askd.settled`.
pub(super) struct Row {
    pub(super) id: String,
    group: String,
    pub(super) settled: bool,
    pub(super) revision: i64,
    pub(super) operation: Uuid,
    record: String,
}

impl Row {
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (id, group, settled) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let operation = row.try_get::<Option<String>, _>(4)?;
        let operation = operation.and_then(|text| Uuid::parse_str(&text).ok()).unwrap_or_default();
        Ok(Self { id, group, settled, revision: row.try_get(3)?, operation, record: row.try_get(5)? })
    }

    /// Those of these asks that are stored, as they are at one moment. `askd.settled` has a table for each week, so it is asked only for
    /// what stands nowhere else.
    pub(super) fn of_all(ids: Vec<String>) -> Work<Vec<Self>> {
        Arc::new(move |connection| {
            let ids = ids.clone();
            Box::pin(async move {
                let mut rows = Self::read(&mut *connection, ASKS, &ids).await?;
                if rows.len() < ids.len() {
                    let known: HashSet<&str> = rows.iter().map(|row| &*row.id).collect();
                    let elsewhere = ids.iter().filter(|id| !known.contains(id.as_str())).cloned().collect::<Vec<_>>();
                    rows.extend(Self::read(connection, SETTLED, &elsewhere).await?);
                }
                Ok(rows)
            })
        })
    }

    async fn read(connection: &mut PgConnection, from: &'static str, ids: &[String]) -> Result<Vec<Self>, sqlx::Error> {
        query(from).bind(ids).fetch_all(connection).await?.iter().map(Self::of).collect()
    }

    pub(super) fn ask(&self) -> Result<record::Record, BadRecord> {
        let read = record::read(self.record.as_bytes())?;
        let same = uuid(read.ask.id) == self.id && read.ask.group.as_str() == self.group;
        if same { Ok(read) } else { Err(BadRecord::Misnamed) }
    }

    pub(super) fn text(&self) -> &str {
        &self.record
    }
}

/// An id as PostgreSQL writes it.
pub(super) fn uuid(id: AskId) -> String {
    Uuid::parse_str(&id.to_string()).unwrap_or_default().to_string()
}

/// The id that PostgreSQL writes so.
pub(super) fn ask_id(text: &str) -> Option<AskId> {
    text.replace('-', "").parse().ok()
}

/// Takes the place of a folder where the leader does it, and no holder of a group.
const OF_LEADER: &str = "*";

/// The rows that ask for it: the effects of each, and whose folder they concern.
fn owed(left: Option<&LeftTo>, group: &Group) -> serde_json::Result<(Vec<String>, Vec<Option<String>>)> {
    let Some(LeftTo { holder, leader, host, unpinned: _ }) = left else { return Ok(Default::default()) };
    let rows = [(holder, None), (leader, Some(OF_LEADER.to_owned())), (host, Some(group.to_string()))];
    let rows = rows.into_iter().filter(|(left, _)| !left.is_empty());
    rows.map(|(left, folder)| Ok((serde_json::to_string(left)?, folder))).collect()
}

impl InPostgres {
    /// Stores the record of an ask, and what goes along with it. Returns the row's revision, and how many bytes the
    /// record has; `None`: the row is another than the attempt says.
    pub(super) fn write(
        &self,
        attempt: &Attempt,
        along: &Carried,
        durable: Durable,
    ) -> Result<Option<(i64, usize)>, Failed> {
        let Attempt { ask, write, operation, era, .. } = attempt;
        let unfit = |error: &dyn std::fmt::Display| Failed::Unchanged(error.to_string());
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failed::Unchanged("askd has stopped".to_owned()));
        }
        // Without spaces: the server keeps none.
        let record = record::entry(ask, Some(era)).map_err(|error| unfit(&error))?;
        let record = String::from_utf8(record).map_err(|error| unfit(&error))?;
        let bytes = record.len();
        let held = self.holds_folder(&ask.group).then(|| self.shared.run.clone());
        let over = match write {
            // Without the check a daemon would overwrite what another one has stored since.
            Write::Over(_) if on("norowlock") => None,
            Write::Over(version) => Some(Over::Replaces(version.operation.to_string())),
            Write::New(given) => Some(Over::Given(*given)),
            Write::Any | Write::Again(..) => None,
        };
        let saved = if let Some(over) = over {
            let row = NewRow {
                which: uuid(ask.id),
                of_group: ask.group.to_string(),
                made_by: operation.to_string(),
                what: record,
                held: if along.unpinned { Some(NO_ID.to_owned()) } else { held },
                holder: self.holder(along),
                code: ask.short_id.to_string(),
                over,
                in_era: era.clone(),
                along: along.clone(),
            };
            self.shared.save(row, durable)
        } else {
            self.write_over_anything(attempt, record, held, along, durable)
        };
        match saved {
            Err(Failed::Conflict) => Ok(None),
            Err(Failed::NotHeld) => {
                self.shared.holding.drop_group(&ask.group);
                Ok(None)
            }
            Err(Failed::Moved) => self.look_for_pin(&ask.group, !along.unpinned).map(|()| None),
            saved => Ok(saved?.map(|revision| (revision, bytes))),
        }
    }

    /// The run that has to hold the group of what goes along with this.
    fn holder(&self, along: &Carried) -> Option<String> {
        along.of_holder.then(|| self.shared.run.clone()).filter(|_| !on("nofence"))
    }

    /// Stores a record whatever version is there, or over one of those that the server may have lost.
    fn write_over_anything(
        &self,
        Attempt { ask, write, operation, .. }: &Attempt,
        record: String,
        held: Option<String>,
        along: &Carried,
        durable: Durable,
    ) -> Result<Option<i64>, Failed> {
        let (id, group, operation) = (uuid(ask.id), ask.group.to_string(), operation.to_string());
        let (retired, holder) = (along.retired, self.holder(along));
        let again = match write {
            Write::Again(revision, lost) => Some((*revision, Arc::new(lost.clone()))),
            Write::New(_) | Write::Over(_) | Write::Any => None,
        };
        self.shared.change(
            durable,
            Arc::new(move |connection| {
                let (id, group, operation) = (id.clone(), group.clone(), operation.clone());
                let (record, held, again) = (record.clone(), held.clone(), again.clone());
                let holder = holder.clone();
                Box::pin(async move {
                    if let Some(run) = held {
                        pins::hold(&mut *connection, &group, &run).await?;
                    }
                    // Not for what the server has lost: that was held when it was done.
                    if let Some(run) = holder {
                        let check = query("select askd.hold_group($1, $2::uuid)").bind(&group).bind(run);
                        check.execute(&mut *connection).await?;
                    }
                    // It may stand among those of which nothing was to change any more.
                    query("select askd.have_here($1::uuid)").bind(&id).execute(&mut *connection).await?;
                    let Some((revision, lost)) = again else {
                        let save = scalar(ANY).bind(id).bind(group).bind(operation).bind(record).bind(retired);
                        return save.fetch_optional(connection).await;
                    };
                    let there = "select operations[1]::text from askd.asks where id = $1::uuid for update";
                    let there = scalar::<Option<String>>(there).bind(&id).fetch_optional(&mut *connection).await?;
                    let there = there.flatten().and_then(|operation| Uuid::parse_str(&operation).ok());
                    if there.is_some_and(|operation| !lost.lack(operation)) {
                        return Ok(None);
                    }
                    let missing = lost.missing_after(there);
                    let save = scalar(AGAIN).bind(&id).bind(group).bind(operation).bind(record);
                    let save =
                        save.bind(missing.retired).bind(revision).bind(there.map(|operation| operation.to_string()));
                    let saved = save.fetch_optional(&mut *connection).await?;
                    if saved.is_some() {
                        missing.store(connection, id).await?;
                    }
                    Ok(saved)
                })
            }),
        )
    }

    /// Whether a write was stored, after its reply was lost. The lock waits for its transaction, if that still runs.
    pub(super) fn is_stored(&self, id: AskId, operation: Uuid) -> Result<Option<bool>, Failed> {
        let is_stored =
            statement("select askd.is_stored($1::uuid, $2::uuid)").bind(uuid(id)).bind(operation.to_string());
        self.shared.change(Durable::Yes, is_stored.optional())
    }

    pub(super) fn row(&self, id: AskId) -> Result<Option<Row>, StoreError> {
        let rows = self.shared.read(Row::of_all(vec![uuid(id)]));
        rows.map(|mut rows| rows.pop()).map_err(failed(format!("cannot read ask {id}")))
    }

    /// What a row says in the eyes of this era.
    pub(super) fn stored(&self, era: &str, read: record::Record, settled: bool) -> Stored {
        let written = read.boot.as_deref();
        // Without it a daemon would take for whole what a crash of the server has taken a card from.
        let vouched = written == Some(era) || written.is_some() && written == self.clean.as_deref() || on("sameera");
        Stored { ask: read.ask, settled, after_loss: !vouched }
    }

    /// Changes one ask's row by a statement with its id.
    pub(super) fn change_row(&self, durable: Durable, id: AskId, text: &'static str) -> Result<(), Failed> {
        self.shared.change(durable, statement(text).bind(uuid(id)).execute())
    }

    /// The server's era, and the number of a transaction that is on stable storage together with all that was committed before.
    pub(super) fn sync(&self) -> Result<(String, u64), Failed> {
        self.shared.change(Durable::Yes, Arc::new(|connection| Box::pin(opening::synced(connection))))
    }
}
