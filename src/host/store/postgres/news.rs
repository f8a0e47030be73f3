//! What other daemons have changed: each look lists the rows that were changed by transactions which had not ended at the one before, and
//! reads those that this daemon does not know. So a transaction that runs for long, in any database of the server, has nothing listed again.

use super::asks::{Row, Version, ask_id, uuid};
use super::database::{Failed, Work, scalar};
use super::pins::PinRow;
use super::statement::{Statement, statement};
use super::{InPostgres, NO_ID, damaged, failed};
use crate::host::store::snapshot::Snapshot;
use crate::host::store::{Allowed, BadRecord, News, Store, StoreError, Stored, record};
use askd_core::{Ask, AskId, Digest, Group, Time};
use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// How many rows are read at a time.
const SOME: usize = 500;
/// How many rows of a kind a look lists, but for the rest of what one transaction has changed.
macro_rules! some {
    () => {
        1000
    };
}

/// Where a look begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    /// What was seen.
    seen: Snapshot,
    /// The same of how many asks each group was given. The first look of all reads every number.
    counted: Snapshot,
    /// Whatever is open after this id may have become older than it was seen.
    open: Option<String>,
}

impl Mark {
    /// As if a look had been made then. The next one reads how many asks each group was given.
    pub(super) fn at(seen: Snapshot) -> Self {
        Self { seen, ..Self::default() }
    }

    /// What was seen.
    pub(super) fn seen(&self) -> &Snapshot {
        &self.seen
    }

    /// After a crash of the server. Its transactions go on from the last one that is on stable storage, so later numbers come
    /// again.
    pub(super) fn after_crash(self, flushed: u64) -> Self {
        let [seen, counted] = [self.seen, self.counted].map(|seen| seen.before(flushed));
        Self { seen, counted, open: Some(NO_ID.to_owned()) }
    }
}

/// What a look finds, before it is parsed.
#[derive(Debug, Deserialize)]
struct Seen {
    now: Snapshot,
    /// Some list is full: of what later transactions than this one have changed, something may be missing.
    last: Option<u64>,
    /// The server's era; none after a crash, until a daemon names one.
    era: Option<String>,
    /// Each ask that was changed, or is open after the mark's, with its last operation.
    rows: Vec<(String, Option<String>)>,
    /// The last one of a full list of what is open.
    open: Option<String>,
    gone: Vec<String>,
    allowed: Vec<AllowedRow>,
    documents: Vec<String>,
    given: Vec<(String, i64)>,
    pins: Vec<PinRow>,
    /// How many runs have a lease.
    runs: usize,
}

/// A [`Snapshot`] of now. To a transaction its own changes are over: here they are not.
macro_rules! now {
    () => {
        "json_build_object('next', pg_snapshot_xmax(pg_current_snapshot())::text::bigint, 'running', array(
             select running::text::bigint from (
                 select pg_snapshot_xip(pg_current_snapshot()) union all select pg_current_xact_id_if_assigned()
             ) as known (running) where running < pg_snapshot_xmax(pg_current_snapshot())))"
    };
}
pub(super) use now;

/// What a transaction has changed that was not over in the snapshot of these values.
macro_rules! unseen {
    ($next:literal, $running:literal) => {
        concat!("(changed = any(", $running, "::text[]::xid8[]) or ", unseen!($next), ")")
    };
    // One that had not begun. A number that this server has not reached came with a row from another server, and says nothing here: such a
    // row has not changed since.
    ($next:literal) => {
        concat!("changed >= ", $next, "::text::xid8 and changed < pg_snapshot_xmax(pg_current_snapshot())")
    };
}
pub(super) use unseen;

/// The rows of a table that were not seen in the snapshot of `$1` and `$2`: all of transactions that were running then, and the first ones of
/// later transactions, but never a part of what one has changed.
macro_rules! listed {
    ($table:literal) => {
        concat!(
            "(select * from ",
            $table,
            " where changed = any($2::text[]::xid8[])
             union all (select * from ",
            $table,
            " where ",
            unseen!("$1"),
            " order by changed fetch first ",
            some!(),
            " rows with ties))"
        )
    };
}

/// The last transaction of such a list, if it is full.
macro_rules! last {
    ($listed:literal) => {
        concat!(
            "(select max(changed::text::bigint) from ",
            $listed,
            " where changed >= $1::text::xid8 having count(*) >= ",
            some!(),
            ")"
        )
    };
}

/// Such a list, without what the next look lists because another list is full.
macro_rules! told {
    ($listed:literal) => {
        concat!("from ", $listed, ", until where last is null or changed::text::bigint <= last")
    };
}

/// One statement, because each takes a round trip or two. `$1` and `$2` are the snapshot since which it looks, `$3` and `$4` the same for how
/// many asks each group was given, and `$5` is the id after which it lists what is open, if it does.
const LOOK: &str = concat!(
    "with kept as ", listed!("(select id, operations, changed from askd.asks
         union all select id, operations, changed from askd.settled) as kept"), ",
    open as (select id, operations from askd.asks where not settled and id > $5::uuid order by id limit ", some!(), "),
    gone as ", listed!("askd.gone"), ",
    allowed as ", listed!("askd.allowed"), ",
    documents as ", listed!("askd.documents"), ",
    pins as ", listed!("askd.pins"), ",
    until as (select least(", last!("kept"), ", ", last!("gone"), ", ", last!("allowed"), ", ", last!("documents"), ", ", last!("pins"), ") as last)
    select json_build_object(
    'now', ", now!(), ",
    'last', (select last from until),
    'era', (select mark from askd.era),
    'rows', (select coalesce(json_agg(json_build_array(id, operations[1])), '[]')
             from (select id, operations ", told!("kept"), " union select id, operations from open) as rows),
    'open', (select (array_agg(id order by id desc))[1] from open having count(*) >= ", some!(), "),
    'gone', (select coalesce(json_agg(id), '[]') ", told!("gone"), "),
    'allowed', (select coalesce(json_agg(json_build_array(group_name, question, at, by::text) order by group_name, question), '[]')
                from allowed),
    'documents', (select coalesce(json_agg(name), '[]') ", told!("documents"), "),
    'given', (select coalesce(json_agg(json_build_array(group_name, accepted)), '[]') from askd.counts
              where $3 = '0' or ", unseen!("$3", "$4"), "),
    'pins', (select coalesce(json_agg(json_build_array(group_name, node, strange)), '[]') from pins),
    'runs', (select count(*) from askd.runs)
)::text"
);

/// A row of `askd.allowed`: group, question, time, person.
pub(super) type AllowedRow = (String, String, i64, String);

pub(super) fn allowed_row(row: &PgRow) -> Result<AllowedRow, sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
}

/// The rows by group. They are in the order of their groups.
pub(super) fn allowed_of(rows: Vec<AllowedRow>) -> Vec<(Group, Vec<Allowed>)> {
    let mut all: Vec<(Group, Vec<Allowed>)> = Vec::new();
    for (group, question, at, by) in rows {
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
    all
}

/// Which transactions are over.
pub(super) async fn snapshot(connection: &mut PgConnection) -> Result<Snapshot, sqlx::Error> {
    let now = scalar::<String>(concat!("select ", now!(), "::text")).fetch_one(connection).await?;
    serde_json::from_str(&now).map_err(|error| sqlx::Error::Decode(error.into()))
}

impl Statement {
    /// With the two values of a snapshot.
    pub(super) fn since(self, seen: &Snapshot) -> Self {
        self.bind(seen.next.to_string()).bind(seen.running.iter().map(u64::to_string).collect::<Vec<_>>())
    }
}

/// What was changed since `mark`, as it is at one moment.
fn look(mark: &Mark) -> Work<String> {
    statement(LOOK).since(&mark.seen).since(&mark.counted).bind(mark.open.clone()).one()
}

impl InPostgres {
    /// Reads a row anew, and keeps it at hand.
    pub(super) fn read_row(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        let before = self.cache.lock().record_of(id).map(|(known, _)| known);
        let Some(row) = self.row(id)? else {
            self.cache.lock().remove(id);
            return Ok(None);
        };
        self.keep(&row, before).map(Some).map_err(|source| damaged(id, source))
    }

    /// Keeps a row at hand, unless what is at hand is newer. `before` was at hand when the row was read, so it is not.
    fn keep(&self, row: &Row, before: Option<Version>) -> Result<Stored, BadRecord> {
        let read = row.ask()?;
        // Until it is at hand: a new era takes away all that is.
        let era = self.era.lock();
        let mut stored = self.stored(&era, read, row.settled);
        let id = stored.ask.id;
        let mut version = Version { revision: row.revision, operation: row.operation, vouched: !stored.after_loss };
        let mut unflushed = self.unflushed.lock();
        match unflushed.get(&id).cloned() {
            // It is being written: the row is as it was before.
            Some(save) if save.is_under_way() => {}
            // The server has lost what this daemon has stored since, and gets it again.
            Some(lost) if lost.steps.lack(version.operation) => {
                (stored.ask, stored.after_loss, version) = (Ask::clone(&lost.ask), false, lost.version);
            }
            Some(old) if old.version != version => drop(unflushed.remove(&id)),
            Some(_) | None => {}
        }
        drop(unflushed);
        let mut cache = self.cache.lock();
        // Nothing is missing meanwhile: another thread may be about to load it.
        let gives_way = |known: Version| match before {
            Some(before) if before == known => known != version || known.vouched != version.vouched,
            Some(_) | None => known.revision <= version.revision && known != version,
        };
        if cache.record_of(id).is_none_or(|(known, _)| gives_way(known)) {
            cache.put(Arc::new(stored.ask.clone()), version, row.text().len());
        }
        Ok(stored)
    }

    /// The rows of these asks.
    fn rows(&self, ids: &[String]) -> Result<Vec<Row>, Failed> {
        let mut rows = Vec::with_capacity(ids.len());
        for some in ids.chunks(SOME) {
            rows.extend(self.shared.read(Row::of_all(some.to_vec()))?);
        }
        Ok(rows)
    }

    /// These asks as they are stored, read anew.
    pub(super) fn read_again(&self, ids: &[AskId]) -> Result<Vec<Stored>, StoreError> {
        let before: HashMap<AskId, Version> = {
            let cache = self.cache.lock();
            ids.iter().filter_map(|id| Some((*id, cache.record_of(*id)?.0))).collect()
        };
        let ids: Vec<String> = ids.iter().map(|id| uuid(*id)).collect();
        let rows = self.rows(&ids).map_err(failed("cannot read the questions of a group"))?;
        let kept = |row: Row| {
            let before = ask_id(&row.id).and_then(|id| before.get(&id).copied());
            self.keep(&row, before)
                .inspect_err(|why| tracing::error!(row = row.id, %why, "a row of askd.asks is damaged"))
                .ok()
        };
        Ok(rows.into_iter().filter_map(kept).collect())
    }

    /// What asks were that are gone.
    fn records_of_gone(&self, ids: Vec<String>) -> Result<Vec<String>, Failed> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = statement(
            "select coalesce(settled.record, gone.record)::text from askd.gone
             left join askd.settled on settled.id = gone.id and gone.forget_at is not null
             where gone.id = any($1::uuid[])",
        );
        self.shared.read(records.bind(ids).all())
    }

    /// What has changed since the last look, as this daemon does not know it yet.
    pub(super) fn read_news(&self) -> Result<News, StoreError> {
        let what = "cannot read what other daemons have changed";
        // An era and its mark belong together: another thread may find out that the server has crashed.
        let see = || -> Result<(String, Mark, Seen), StoreError> {
            let known = self.era.lock();
            let (era, since) = (known.clone(), self.mark.lock().clone());
            drop(known);
            let seen = self.shared.read(look(&since)).map_err(failed(what))?;
            let wrong = |error: serde_json::Error| StoreError::Io { what: what.to_owned(), source: error.into() };
            Ok((era, since, serde_json::from_str(&seen).map_err(wrong)?))
        };
        let (mut of_era, mut since, mut seen) = see()?;
        if seen.era.as_ref() != Some(&of_era) {
            // The server has crashed.
            Store::flush(self)?;
            (of_era, since, seen) = see()?;
        }
        let Seen { now, last, era, rows, open, gone, allowed, documents, given, pins, runs } = seen;
        let is_all = last.is_none() && open.is_none();
        let mark = match last {
            None => Mark { seen: now.clone(), counted: now, open },
            Some(last) => Mark { seen: now.before(last + 1), counted: since.counted, open },
        };
        let foreign: Vec<String> = {
            let cache = self.cache.lock();
            let is_known = |(id, operation): &(String, Option<String>)| {
                let known = ask_id(id).and_then(|id| cache.record_of(id));
                known.is_some_and(|(known, _)| operation.as_deref() == Some(&known.operation.to_string()))
            };
            rows.into_iter().filter(|row| !is_known(row)).map(|(id, _)| id).collect()
        };
        let rows = self.rows(&foreign).map_err(failed(what))?;
        let records = self.records_of_gone(gone).map_err(failed(what))?;
        // Nothing can fail from here on: what counts as seen has to be told.
        self.know_pins(pins);
        let mut news = News { allowed: allowed_of(allowed), documents, runs, is_all, ..News::default() };
        for row in rows {
            match self.keep(&row, None) {
                Ok(stored) => news.changed.push(stored),
                Err(why) => {
                    tracing::error!(row = row.id, %why, "a row of askd.asks is damaged");
                    // What is at hand is from before.
                    ask_id(&row.id).map(|id| self.cache.lock().remove(id));
                }
            }
        }
        news.gone.extend(records.iter().filter_map(|record| record::read(record.as_bytes()).ok()).map(|read| read.ask));
        for ask in &news.gone {
            self.cache.lock().remove(ask.id);
            self.unflushed.lock().remove(&ask.id);
        }
        // Whoever goes by these numbers has to know the asks.
        let given = given.into_iter().filter(|_| last.is_none());
        news.given.extend(given.filter_map(|(group, count)| Some((group.parse().ok()?, count))));
        let now = self.era.lock();
        if era.as_ref() == Some(&of_era) && *now == of_era {
            *self.mark.lock() = mark;
        } else {
            // The server has crashed meanwhile: the next look begins further back.
            news.is_all = false;
            news.given.clear();
        }
        drop(now);
        Ok(news)
    }
}
