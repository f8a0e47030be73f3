//! The leader moves asks of which nothing can change any more from `askd.asks` to `askd.settled`, which has a table for each week in
//! which they may be forgotten: so the table of what is under way stays small, and forgetting costs no work for each row.
//!
//! An ask is moved if it owes nobody anything, can no longer be answered late, and has not changed for one pass. That is judged from its
//! record, and holds for the version that was judged: the move names it. A click may still change such an ask, or a crash of the
//! server: a save that does not find its row brings it back first (`askd.bring_back`). `changed` moves along, so a move is no news to
//! other daemons, and none misses what was changed before it. Ids, codes and numbers of asks need no table of their own: a code is unique among open
//! asks, which stand in `askd.asks`, and `askd.counts` has each request judged by a daemon that knows all others of its group.
//!
//! Only the steps of asks forget. What is forgotten when its time has come stays in the table of its week, marked by a row of
//! `askd.gone`, and nobody reads it any more; once all of a week is, its table is dropped. What goes earlier, because its group keeps
//! too much, or stands in `settled_rest`, is deleted.
//!
//! A daemon of an earlier version would not find what was moved. So nothing is while one is there (`askd.may_settle`), and none may come
//! afterwards.

use super::asks::Row;
use super::database::{Connections, Durable, Failed};
use super::news;
use super::statement::statement;
use askd_core::{Effect, Time};
use sqlx::Row as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How often there is a pass. What changed since the last one stays.
const PASS: Duration = Duration::from_secs(600);
/// How many weeks there are tables for, after this one.
const AHEAD: i32 = 8;
/// How many rows are listed at a time, moved at a time, and how many marks are dropped, with a pause after each: saves come first.
const LISTED: i64 = 1_000;
const MOVED: usize = 100;
const MARKS: i32 = 1_000;
const PAUSE: Duration = Duration::from_millis(100);
/// A table is made or dropped once nobody uses any of them for a moment. Others wait as long as it does.
const BRIEFLY: &str = "set local lock_timeout = 100";
/// How long it may take to find out that all of a week was forgotten.
const LONG: Duration = Duration::from_secs(60);
const LONG_BRIEFLY: &str = "set local statement_timeout = 60000; set local lock_timeout = 100";
/// Comes after whatever PostgreSQL takes for a time.
const NEVER: Time = Time::from_millis(253_402_300_799_000);

/// Versions of rows: the id of each, and its last operation.
type Versions = Vec<(Uuid, Uuid)>;

/// See the module.
#[derive(Debug)]
pub(super) struct Settling {
    database: Connections,
    /// What each transaction begins with that moves something.
    check: String,
    /// The oldest transaction that still ran at the last pass.
    before: Option<u64>,
    /// The kept outcomes of which something may still change, by the version that was judged.
    unfit: HashMap<Uuid, Uuid>,
}

impl Settling {
    pub(super) fn new(database: Connections, check: String) -> Self {
        Self { database, check, before: None, unfit: HashMap::new() }
    }

    /// Goes on until this daemon leaves, or leads no more.
    pub(super) async fn keep(mut self, left: CancellationToken, lost: CancellationToken) {
        loop {
            match self.pass().await {
                Ok(()) => {}
                Err(Failed::Overtaken) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot move old questions to askd.settled; retrying in 10 minutes");
                }
            }
            tokio::select! {
                () = self.database.clock().sleep(PASS) => {}
                () = left.cancelled() => return,
                () = lost.cancelled() => return,
            }
        }
    }

    /// Makes and drops tables, and moves what has not changed since the pass before.
    pub(super) async fn pass(&mut self) -> Result<(), Failed> {
        // Somebody may use them for long: the next pass tries again.
        if let Err(error) = self.make_weeks().await {
            tracing::debug!(%error, "cannot make the tables of the next weeks");
        }
        if let Err(error) = self.drop_weeks().await {
            tracing::debug!(%error, "cannot drop the tables of past weeks");
        }
        let now =
            self.database.read(false, Arc::new(|connection| Box::pin(news::snapshot(connection)))).await?.oldest();
        let Some(before) = self.before.replace(now) else { return Ok(()) };
        if self.may_settle().await? { self.move_all(before).await } else { Ok(()) }
    }

    async fn make_weeks(&self) -> Result<(), Failed> {
        let make = statement("select askd.make_weeks($1)").bind(AHEAD);
        self.database.transact(Durable::No, BRIEFLY, make.execute()).await
    }

    async fn drop_weeks(&self) -> Result<(), Failed> {
        loop {
            let past = statement("select askd.drop_week()").optional::<String>();
            let past = self.database.transact_within(LONG, Durable::No, LONG_BRIEFLY, past).await?;
            let Some(past) = past else { break };
            tracing::info!("dropped the table askd.{past}: all its questions were forgotten");
        }
        loop {
            let marks = statement("select askd.drop_marks($1)").bind(MARKS).one::<i64>();
            if self.database.transact(Durable::No, "", marks).await? == 0 {
                return Ok(());
            }
            self.database.clock().sleep(PAUSE).await;
        }
    }

    async fn may_settle(&self) -> Result<bool, Failed> {
        self.database.transact(Durable::Yes, &self.check, statement("select askd.may_settle()").one()).await
    }

    /// Moves what was changed by no transaction from this one on.
    async fn move_all(&mut self, before: u64) -> Result<(), Failed> {
        let (mut after, mut unfit) = (Uuid::nil(), HashMap::new());
        loop {
            let listed = self.list(after, before).await?;
            let Some((last, _)) = listed.last() else { break };
            after = *last;
            let (known, new): (Versions, Versions) =
                listed.into_iter().partition(|(id, operation)| self.unfit.get(id) == Some(operation));
            unfit.extend(known);
            for some in new.chunks(MOVED) {
                let ids = some.iter().map(|(id, _)| id.to_string()).collect();
                unfit.extend(self.move_some(ids).await?);
                self.database.clock().sleep(PAUSE).await;
            }
        }
        // Those that are gone meanwhile are not in it.
        self.unfit = unfit;
        Ok(())
    }

    async fn list(&self, after: Uuid, before: u64) -> Result<Versions, Failed> {
        // What came from another server has not changed here.
        let list = statement(
            "select id::text, coalesce(operations[1]::text, '') from askd.asks
             where settled and id > $1::uuid
                 and (changed < $2::text::xid8 or changed >= pg_snapshot_xmax(pg_current_snapshot()))
             order by asks.id limit $3",
        );
        let list = list.bind(after.to_string()).bind(before.to_string()).bind(LISTED);
        self.database.read(false, list.rows(|row| Ok((named(row.try_get(0)?), named(row.try_get(1)?))))).await
    }

    /// Moves those of these asks of which nothing can change any more. Returns the others.
    async fn move_some(&self, ids: Vec<String>) -> Result<Versions, Failed> {
        let read = statement(
            "select id::text, group_name, settled, revision, operations[1]::text, record::text
             from askd.asks where id = any($1::uuid[])",
        );
        let rows = self.database.read(false, read.bind(ids).rows(Row::of)).await?;
        let (mut unfit, mut ids, mut operations, mut times) = (Versions::new(), vec![], vec![], vec![]);
        for row in rows {
            match forgotten_at(&row) {
                Some(at) => {
                    operations.push(row.operation.to_string());
                    ids.push(row.id);
                    times.push(at.as_millis());
                }
                None => unfit.push((named(&row.id), row.operation)),
            }
        }
        if ids.is_empty() {
            return Ok(unfit);
        }
        let settle = statement("select askd.settle($1::uuid[], $2::uuid[], $3)").bind(ids).bind(operations).bind(times);
        // A crash of the server undoes the move as a whole.
        self.database.transact(Durable::No, &self.check, settle.execute()).await?;
        Ok(unfit)
    }
}

fn named(text: &str) -> Uuid {
    Uuid::parse_str(text).unwrap_or_default()
}

/// When the ask of this row is forgotten, if nothing else can happen to it before by itself.
fn forgotten_at(row: &Row) -> Option<Time> {
    let ask = row.ask().ok()?.ask;
    let at = ask.forgotten_at()?;
    let is_over = ask.resume() == [Effect::Retire] && ask.deadline() == at;
    (row.settled && is_over && at < NEVER).then_some(at)
}
