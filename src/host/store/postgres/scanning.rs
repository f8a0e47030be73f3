//! Reads all rows of asks: those that are under way, and those of which nothing changes any more.

use super::asks::Row;
use super::database::{Failed, Work};
use super::nodes::ALONE;
use super::statement::statement;
use super::{InPostgres, NO_ID, Shared, failed};
use crate::host::store::StoreError;
use sqlx::Row as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How many records are read at a time.
pub(super) const SOME: i64 = 500;
/// How soon it reads again what could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// The rows of a part of a scan: the open asks, then outcomes, then those of which nothing changes any more. An ask that moves
/// meanwhile moves ahead of it, or is changed. Without its table, `id` in an order is the text of the row.
///
/// `$3` is the transaction since which outcomes of the last part may have changed that are not known; `0`: nothing is known. A move to
/// `askd.settled` changes no outcome that was known, and none that this daemon would have anything to do for.
const PARTS: [&str; 3] = [
    "select id::text, group_name, settled, revision, operations[1]::text, record::text from askd.asks
         where not settled and id > $1::uuid order by asks.id limit $2",
    "select id::text, group_name, settled, revision, operations[1]::text, record::text from askd.asks
         where settled and id > $1::uuid order by asks.id limit $2",
    "select id::text, group_name, true, revision, operations[1]::text, record::text from askd.settled
         where id > $1::uuid and changed >= $3::text::xid8
             and ($3 = '0' or changed < pg_snapshot_xmax(pg_current_snapshot()))
             and not exists (select from askd.gone where gone.id = settled.id and gone.forget_at is not null)
         order by settled.id limit $2",
];

impl Shared {
    /// Reads what may take long, as often as it takes: the database may be away for a while. A run that is alone gets the error instead.
    pub(super) fn read_patiently<T: Send + 'static>(&self, work: &Work<T>) -> Result<T, Failed> {
        let mut told = false;
        loop {
            let read = self.read_long(Arc::clone(work));
            let Err(error) = &read else { return read };
            let ends = self.ends.is_cancelled() || self.left.is_cancelled() || self.overtaken.is_cancelled();
            if ends || self.node == ALONE {
                return read;
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(%error, "cannot read the stored questions; trying again every second");
            }
            let (clock, ends) = (self.database.connections().clock().clone(), self.ends.clone());
            // If a stop cuts the pause short, the next try is the last.
            let _cut_short = self.database.wait(async move {
                ends.run_until_cancelled(clock.sleep(AGAIN)).await;
                Ok(())
            });
        }
    }
}

/// A whole list, read [`SOME`] rows at a time: each page has those after the last row so far.
pub(super) fn list<T>(page: impl Fn(Option<&T>) -> Result<Vec<T>, Failed>) -> Result<Vec<T>, Failed> {
    let mut all = Vec::new();
    loop {
        let some = page(all.last())?;
        let is_full = i64::try_from(some.len()).is_ok_and(|count| count >= SOME);
        all.extend(some);
        if !is_full {
            return Ok(all);
        }
    }
}

impl InPostgres {
    /// All rows, some at a time. While those are dealt with, the next ones are read.
    pub(super) fn scan_rows(&self, each: &mut dyn FnMut(Row) -> Result<(), StoreError>) -> Result<(), StoreError> {
        thread::scope(|threads| {
            let (read, some) = sync_channel(0);
            threads.spawn(move || self.read_rows(&read));
            some.into_iter()
                .try_for_each(|rows: Result<Vec<Row>, StoreError>| rows?.into_iter().try_for_each(&mut *each))
        })
    }

    /// Sends all rows, until nobody wants any more.
    fn read_rows(&self, read: &SyncSender<Result<Vec<Row>, StoreError>>) {
        let since = self.unknown_since();
        for part in PARTS {
            let mut after = NO_ID.to_owned();
            loop {
                let some = statement(part).bind(after.clone()).bind(SOME).bind(since.clone());
                let some =
                    self.shared.read_patiently(&some.rows(Row::of)).map_err(failed("cannot read the stored asks"));
                match some.as_deref().map(<[Row]>::last) {
                    Ok(None) => break,
                    Ok(Some(last)) => after.clone_from(&last.id),
                    Err(_) => {
                        let _told = read.send(some);
                        return;
                    }
                }
                if read.send(some).is_err() {
                    return;
                }
            }
        }
    }

    /// Since which transaction outcomes may have changed that are not known.
    fn unknown_since(&self) -> String {
        self.known_before.load(Ordering::Relaxed).to_string()
    }

    /// How many rows of each group a scan reads.
    pub(super) fn count(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let count = statement(
            "select group_name, count(*) from (
                 select group_name from askd.asks union all select group_name from askd.settled
                     where changed >= $1::text::xid8
                         and ($1 = '0' or changed < pg_snapshot_xmax(pg_current_snapshot()))
                         and not exists (select from askd.gone where gone.id = settled.id and gone.forget_at is not null)
             ) as kept group by group_name",
        );
        let count = count.bind(self.unknown_since()).rows(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        self.shared.read_patiently(&count).map_err(failed("cannot read the stored asks"))
    }
}
