//! What other daemons have changed: each look lists the rows that were changed since the mark of the one before, and reads those that
//! this daemon does not know.

use super::asks::{Row, Version, ask_id, uuid};
use super::database::{Failed, scalar};
use super::pins::PinRow;
use super::statement::statement;
use super::{InPostgres, damaged, failed};
use crate::host::store::{Allowed, BadRecord, News, Store, StoreError, Stored, record};
use askd_core::{Ask, AskId, Digest, Group, Time};
use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// How many rows are read at a time.
const SOME: usize = 500;

/// Where a look begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// The oldest transaction that still ran at the last look: what it or a later one changed was not seen for certain.
    since: u64,
    /// The same for how many asks each group was given. The first look of all reads every number.
    counted: u64,
    /// Whatever is open may have become older than it was seen.
    open: bool,
}

impl Mark {
    /// As if a look had been made then. The next one reads how many asks each group was given.
    pub(super) const fn at(since: u64) -> Self {
        Self { since, counted: 0, open: false }
    }

    /// The oldest transaction that still ran.
    pub(super) fn since(self) -> u64 {
        self.since
    }

    /// After a crash of the server. Its transactions go on from the last one that is on stable storage, so later numbers come
    /// again.
    pub(super) fn after_crash(self, flushed: u64) -> Self {
        Self { since: self.since.min(flushed), counted: self.counted.min(flushed), open: true }
    }
}

/// What a look finds, before it is parsed.
#[derive(Debug, Deserialize)]
struct Seen {
    /// The oldest transaction that still runs.
    since: String,
    /// The server's era; none after a crash, until a daemon names one.
    era: Option<String>,
    /// Each row that was changed, with its last operation.
    rows: Vec<(String, Option<String>)>,
    gone: Vec<String>,
    allowed: Vec<AllowedRow>,
    documents: Vec<String>,
    given: Vec<(String, i64)>,
    pins: Vec<PinRow>,
    /// How many runs have a lease.
    runs: usize,
}

/// What has changed since `$1`. A number that this server has not reached came with a row from another server, and says nothing here: such
/// a row has not changed since.
macro_rules! changed {
    () => {
        "changed >= $1::text::xid8 and changed < pg_snapshot_xmax(pg_current_snapshot())"
    };
}

/// One statement, because each takes a round trip or two: `$1` is the transaction since which it looks, `$2` the same for how many asks
/// each group was given, and `$3` whether it lists all that is open.
const LOOK: &str = concat!(
    "select json_build_object(
    'since', pg_snapshot_xmin(pg_current_snapshot())::text,
    'era', (select mark from askd.era),
    'rows', (select coalesce(json_agg(json_build_array(id, operations[1])), '[]') from (
                 select id, operations from askd.asks
                     where ", changed!(), " or $3 and not settled
                 union all select id, operations from askd.settled
                     where ", changed!(), "
             ) as kept),
    'gone', (select coalesce(json_agg(id), '[]') from askd.gone
             where ", changed!(), "),
    'allowed', (select coalesce(json_agg(json_build_array(group_name, question, at, by::text) order by group_name, question), '[]')
                from askd.allowed where ", changed!(), "),
    'documents', (select coalesce(json_agg(name), '[]') from askd.documents
                  where ", changed!(), "),
    'given', (select coalesce(json_agg(json_build_array(group_name, accepted)), '[]') from askd.counts
              where changed >= $2::text::xid8 and (changed < pg_snapshot_xmax(pg_current_snapshot()) or $2 = '0')),
    'pins', (select coalesce(json_agg(json_build_array(group_name, node, strange)), '[]') from askd.pins
             where ", changed!(), "),
    'runs', (select count(*) from askd.runs)
)::text"
);

/// A row of `askd.allowed`: group, question, time, person.
type AllowedRow = (String, String, i64, String);

pub(super) fn allowed_rows(rows: &[PgRow]) -> Result<Vec<AllowedRow>, sqlx::Error> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))).collect()
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

/// Which transaction is the oldest that still runs.
pub(super) async fn mark(connection: &mut PgConnection) -> Result<Mark, sqlx::Error> {
    let since = scalar::<String>("select pg_snapshot_xmin(pg_current_snapshot())::text").fetch_one(connection).await?;
    Ok(Mark::at(since.parse().unwrap_or_default()))
}

/// All that was changed since `mark`, as it is at one moment.
async fn changed_since(connection: &mut PgConnection, mark: Mark) -> Result<Seen, sqlx::Error> {
    let look = scalar::<String>(LOOK).bind(mark.since.to_string()).bind(mark.counted.to_string()).bind(mark.open);
    let seen = look.fetch_one(connection).await?;
    serde_json::from_str(&seen).map_err(|error| sqlx::Error::Decode(error.into()))
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
        let see = || {
            let since = *self.mark.lock();
            let seen = self
                .shared
                .read(Arc::new(move |connection| Box::pin(async move { changed_since(connection, since).await })));
            seen.map_err(failed(what))
        };
        let mut seen = see()?;
        if seen.era.as_ref() != Some(&self.era()) {
            // The server has crashed.
            Store::flush(self)?;
            seen = see()?;
        }
        let Seen { since, era, rows, gone, allowed, documents, given, pins, runs } = seen;
        let since = since.parse().unwrap_or_default();
        let foreign: Vec<String> = {
            let (listed, cache) = (self.listed.lock(), self.cache.lock());
            let is_known = |(id, operation): &(String, Option<String>)| {
                let known = ask_id(id).and_then(|id| cache.record_of(id));
                listed.get(id) == Some(operation)
                    || known.is_some_and(|(known, _)| operation.as_deref() == Some(&known.operation.to_string()))
            };
            rows.iter().filter(|row| !is_known(row)).map(|(id, _)| id.clone()).collect()
        };
        let listed = rows.into_iter().collect();
        let unheard = {
            let heard = self.gone.lock();
            gone.iter().filter(|id| !heard.contains(*id)).cloned().collect()
        };
        let rows = self.rows(&foreign).map_err(failed(what))?;
        let records = self.records_of_gone(unheard).map_err(failed(what))?;
        // Nothing can fail from here on: what counts as seen has to be told.
        self.know_pins(pins);
        *self.gone.lock() = gone.into_iter().collect();
        *self.listed.lock() = listed;
        let mut news = News { allowed: allowed_of(allowed), documents, runs, ..News::default() };
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
        news.given.extend(given.into_iter().filter_map(|(group, count)| Some((group.parse().ok()?, count))));
        // The server may have crashed meanwhile.
        let now = self.era.lock();
        if era.as_ref() == Some(&*now) {
            *self.mark.lock() = Mark { since, counted: since, open: false };
        }
        drop(now);
        Ok(news)
    }
}
