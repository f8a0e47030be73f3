//! What a channel remembers, as rows (`schema-18.sql`). A turn is a transaction that has the lock of a person: it ends with the turn, and
//! the server ends it if its daemon is paused or gone.

use super::Shared;
use super::database::{Durable, Failed, LIMIT, LONG, Open, Work, query, scalar};
use super::hints::Hints;
use super::news::{now, unseen};
use super::statement::{Statement, statement};
use crate::host::store::memory::{Changed, Entries, Known, Memory, Place, Shared as Begun, Turn, Write, Writes};
use crate::host::store::snapshot::Snapshot;
use crate::sabotage::on;
use async_trait::async_trait;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many turns of persons a daemon has at once: each has a connection, and what is done in it needs others.
const TURNS: usize = 3;

/// The memory in PostgreSQL.
#[derive(Debug)]
pub(super) struct InEntries {
    shared: Arc<Shared>,
    hints: Hints,
    turns: Arc<Semaphore>,
}

/// The turn of a person.
struct InTransaction {
    shared: Arc<Shared>,
    hints: Hints,
    number: String,
    /// None once a call has failed: the transaction is over then.
    open: Option<Open>,
    _place: OwnedSemaphorePermit,
}

/// A row of `askd.memory`: name, section, key, value.
type Row = (String, String, String, Option<String>);

/// What a look finds, before it is sorted.
#[derive(Deserialize)]
struct Seen {
    now: Snapshot,
    era: Option<String>,
    all: bool,
    rows: Vec<Row>,
}

/// `$1` is the number, `$2` the era in which the last look was, and `$3` and `$4` are the snapshot of that. It says nothing in another era:
/// after a crash of the server later numbers of transactions come again.
const LOOK: &str = concat!(
    "with known as materialized (
        select (select mark::text from askd.era) as mark, not exists (select from askd.era where mark::text = $2) as nothing
    )
    select json_build_object(
        'now', ", now!(), ",
        'era', (select mark from known),
        'all', (select nothing from known),
        'rows', (select coalesce(json_agg(json_build_array(name, section, key, value)), '[]') from (
            select name, section, key, value from askd.memory
                where number = $1 and value is not null and (select nothing from known)
            union all
            select name, section, key, value from askd.memory
                where number = $1 and not (select nothing from known) and ", unseen!("$3", "$4"), "
        ) as rows))::text"
);

fn look(number: &str, known: Option<&Known>) -> Work<String> {
    let look = statement(LOOK).bind(number.to_owned()).bind(known.map(|known| known.era.clone()));
    look.since(known.map_or(&Snapshot::default(), |known| &known.seen)).one()
}

fn sorted(seen: &str) -> io::Result<Changed> {
    let Seen { now, era, all, rows } = serde_json::from_str(seen)?;
    let known = era.map(|era| Known { seen: now, era });
    let entries = rows.into_iter().map(|(name, section, key, value)| ((name, (section, key)), value)).collect();
    Ok(Changed { entries, all, known })
}

fn remember(number: &str, writes: &Writes) -> Statement {
    let (mut names, mut sections, mut keys, mut known, mut values) = (vec![], vec![], vec![], vec![], vec![]);
    for ((name, (section, key)), Write { before, now }) in writes {
        names.push(name.clone());
        sections.push(section.clone());
        keys.push(key.clone());
        known.push(before.clone());
        values.push(now.clone());
    }
    let remember = statement("select askd.remember($1, $2, $3, $4, $5, $6)").bind(number.to_owned());
    remember.bind(names).bind(sections).bind(keys).bind(known).bind(values)
}

/// The number of the lock of a person.
fn lock_of(number: &str, person: &str) -> i64 {
    let hash = Sha256::digest(format!("whatsapp {number} {person}"));
    i64::from_le_bytes(hash[..8].try_into().unwrap_or_default())
}

impl InEntries {
    pub(super) fn new(shared: Arc<Shared>, hints: Hints) -> Self {
        Self { shared, hints, turns: Arc::new(Semaphore::new(TURNS)) }
    }

    async fn read<T: Send + 'static>(&self, long: bool, work: Work<T>) -> io::Result<T> {
        let connections = self.shared.database.connections().clone();
        self.shared.database.run(async move { connections.read(long, work).await }).await.map_err(io::Error::other)
    }
}

impl Shared {
    /// That run has been overtaken, if this says so.
    fn noted(&self, failed: Failed) -> io::Error {
        if let Failed::Overtaken = failed {
            self.lose();
        }
        io::Error::other(failed)
    }
}

#[async_trait]
impl Memory for InEntries {
    fn leads(&self) -> bool {
        self.shared.lease.is_some()
    }

    fn share(&self, number: &str, documents: &[String], entries: &[(String, Entries)]) -> io::Result<Option<Begun>> {
        let may = statement("select askd.may_share_memory()").one();
        if !self.shared.change(Durable::Yes, may).map_err(io::Error::other)? {
            return Ok(None);
        }
        let new = |(place, now): (&(String, Place), &Option<String>)| {
            (place.clone(), Write { before: None, now: now.clone() })
        };
        let moved =
            entries.iter().map(|(number, entries)| remember(number, &entries.iter().map(new).collect()).execute());
        let (moved, documents) = (moved.collect::<Vec<_>>(), documents.to_vec());
        // No other daemon does so: this one leads. All of them write to `askd.format`, so that comes last.
        let share: Work<bool> = Arc::new(move |connection| {
            let (moved, documents) = (moved.clone(), documents.clone());
            Box::pin(async move {
                if scalar::<bool>("select shares_memory from askd.format").fetch_one(&mut *connection).await? {
                    return Ok(false);
                }
                for entries in moved {
                    entries(&mut *connection).await?;
                }
                let gone = "delete from askd.documents where name = any($1)";
                query(gone).bind(documents).execute(&mut *connection).await?;
                query("update askd.format set shares_memory = true").execute(connection).await?;
                Ok(true)
            })
        });
        let moved = self.shared.change_long(share).map_err(io::Error::other)?;
        let found = sorted(&self.shared.read_long(look(number, None)).map_err(io::Error::other)?)?;
        Ok(Some(Begun { moved, found }))
    }

    async fn may_share(&self) -> io::Result<bool> {
        let (connections, check) = (self.shared.database.connections().clone(), self.shared.check());
        let may = statement("select askd.may_share_memory()").one();
        let may = async move { connections.transact(Durable::Yes, &check, may).await };
        self.shared.database.run(may).await.map_err(|failed| self.shared.noted(failed))
    }

    async fn is_shared(&self) -> io::Result<bool> {
        self.read(false, statement("select shares_memory from askd.format").one()).await
    }

    async fn changed(&self, number: &str, known: Option<&Known>) -> io::Result<Changed> {
        sorted(&self.read(known.is_none(), look(number, known)).await?)
    }

    async fn write(&self, number: &str, writes: &Writes) -> io::Result<()> {
        let (connections, check) = (self.shared.database.connections().clone(), self.shared.check());
        let remember = remember(number, writes).execute();
        let write = async move { connections.transact(Durable::Yes, &check, remember).await };
        self.shared.database.run(write).await.map_err(|failed| self.shared.noted(failed))?;
        self.hints.tell();
        Ok(())
    }

    async fn turn(&self, number: &str, person: &str) -> io::Result<Box<dyn Turn>> {
        let limit = if on("inturn") { LONG } else { LIMIT };
        let place = self.shared.database.connections().clock().timeout(limit, Arc::clone(&self.turns).acquire_owned());
        let place = place.await.ok_or_else(|| io::Error::other("others wait for the database before"))?;
        let place = place.map_err(io::Error::other)?;
        let (connections, check) = (self.shared.database.connections().clone(), self.shared.check());
        let lock = lock_of(number, person);
        let begin = async move {
            let lock: Work<()> = Arc::new(move |connection| {
                Box::pin(async move {
                    query("select pg_advisory_xact_lock($1)").bind(lock).execute(connection).await.map(drop)
                })
            });
            connections.open(&check, lock).await
        };
        let open = self.shared.database.run(begin).await.map_err(|failed| self.shared.noted(failed))?;
        let (shared, hints, number) = (Arc::clone(&self.shared), self.hints.clone(), number.to_owned());
        Ok(Box::new(InTransaction { shared, hints, number, open: Some(open), _place: place }))
    }
}

impl InTransaction {
    async fn work<T: Send + 'static>(&mut self, work: Work<T>) -> io::Result<T> {
        let over = || io::Error::other("the turn is over");
        let (open, connections) = (self.open.take().ok_or_else(over)?, self.shared.database.connections().clone());
        let work = async move { connections.within(open, work).await };
        let (open, done) = self.shared.database.run(work).await.map_err(io::Error::other)?;
        self.open = Some(open);
        Ok(done)
    }
}

#[async_trait]
impl Turn for InTransaction {
    async fn changed(&mut self, known: Option<&Known>) -> io::Result<Changed> {
        let look = look(&self.number, known);
        sorted(&self.work(look).await?)
    }

    async fn end(mut self: Box<Self>, writes: &Writes) -> io::Result<()> {
        if !writes.is_empty() {
            let remember = remember(&self.number, writes).execute();
            self.work(remember).await?;
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let connections = self.shared.database.connections().clone();
        self.shared.database.run(async move { connections.commit(open).await }).await.map_err(io::Error::other)?;
        if !writes.is_empty() {
            self.hints.tell();
        }
        Ok(())
    }
}
