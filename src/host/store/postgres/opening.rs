//! Opens the store: connects, makes the tables or refuses those of a newer askd, and waits for its turn.

use super::database::{Connections, Database, Durable, Failed, query, scalar};
use super::documents::InTables;
use super::lease::{Lease, Serving};
use super::{CLEAN, InPostgres, Shared};
use crate::host::store::{BadRecord, Documents as _, InFiles, Opened, StoreError, hold, record};
use crate::ipc::files::{Access, Dir};
use crate::random;
use parking_lot::Mutex;
use sqlx::{Executor as _, PgConnection, Row as _};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::watch;

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    let what = what.into();
    move |source| StoreError::Io { what, source }
}

/// The tables, and their version.
const SCHEMA: &str = include_str!("schema.sql");
const TABLES: i32 = 1;
/// The oldest server whose documentation has all that is used here.
const OLDEST: i32 = 140_000;
/// How often a daemon that waits looks whether it is its turn.
const LOOK: Duration = Duration::from_secs(1);
/// Keeps two daemons from making the tables at once.
const MAKING_TABLES: i64 = 7_161_073;
/// The document of the state folder that names it.
const HOME: &str = "home";

/// Why it is not a daemon's turn.
enum Later {
    /// It never will be.
    Refused(StoreError),
    /// This node serves.
    Serves(String),
    /// The database does not answer.
    Away(String),
}

/// A daemon's place in the line for the database.
#[derive(Debug)]
pub struct Waiting {
    database: Database,
    node: String,
    home: String,
    after_loss: bool,
    why: watch::Sender<String>,
    held: Option<File>,
}

impl Waiting {
    /// Takes the state folder, whose files stay on this host, and connects to nothing yet. `thread`: what the thread of the
    /// database is called.
    pub fn new(url: &str, node: &str, state: &Path, after_loss: bool, thread: &str) -> Result<Self, StoreError> {
        let cannot = |error| io_error(format!("cannot use {}", state.display()))(error);
        let parent = state.parent().unwrap_or(state);
        std::fs::create_dir_all(parent).map_err(cannot)?;
        Dir::open(parent).and_then(|parent| parent.ensure("state", Access::PRIVATE)).map_err(cannot)?;
        let held = hold(state)?;
        Self::beside(url, node, state, after_loss, thread).map(|waiting| Self { held: Some(held), ..waiting })
    }

    /// The same for a caller that has the lock of the state folder already.
    pub fn beside(url: &str, node: &str, state: &Path, after_loss: bool, thread: &str) -> Result<Self, StoreError> {
        let cannot = |error| io_error(format!("cannot use {}", state.display()))(error);
        let home = || -> io::Result<String> {
            let files = InFiles::open(state)?;
            let known = files.read(HOME)?.and_then(|bytes| String::from_utf8(bytes).ok());
            let home = known.filter(|home| uuid::Uuid::parse_str(home).is_ok());
            if let Some(home) = home {
                return Ok(home);
            }
            let home = random::unique();
            files.store(HOME, home.as_bytes())?;
            Ok(home)
        };
        let home = home().map_err(cannot)?;
        let database = Database::new(url, thread).map_err(io::Error::other).map_err(io_error("[postgres]"))?;
        let (node, why) = (node.to_owned(), watch::Sender::new("connecting to the database".to_owned()));
        Ok(Self { database, node, home, after_loss, why, held: None })
    }

    /// Why this daemon does not serve yet.
    pub fn why(&self) -> watch::Receiver<String> {
        self.why.subscribe()
    }

    /// Waits until no other daemon serves, and takes its place.
    pub async fn turn(self) -> Result<Opened, StoreError> {
        let clock = self.database.connections().clock().clone();
        loop {
            match self.try_turn().await {
                Ok(lease) => return self.serve(lease).await,
                Err(Later::Refused(refused)) => return Err(refused),
                Err(Later::Serves(node)) => {
                    if self.waits(&format!("standing by: {node} serves")) {
                        tracing::info!("standing by: {node} serves");
                    }
                }
                Err(Later::Away(cause)) => {
                    if self.waits("the database cannot be reached") {
                        tracing::warn!(cause, "cannot reach the database; trying again every second");
                    }
                }
            }
            clock.sleep(LOOK).await;
        }
    }

    /// The same at once, or not at all.
    pub async fn now(self) -> Result<Opened, StoreError> {
        let unusable = |what: String| io_error("[postgres]")(io::Error::other(what));
        match self.try_turn().await {
            Ok(lease) => self.serve(lease).await,
            Err(Later::Refused(refused)) => Err(refused),
            Err(Later::Serves(node)) => Err(StoreError::Held(format!("the database ({node} is serving)"))),
            Err(Later::Away(why)) => Err(unusable(why)),
        }
    }

    async fn try_turn(&self) -> Result<Lease, Later> {
        let (connections, node, home) = (self.database.connections().clone(), self.node.clone(), self.home.clone());
        let attempt = async move {
            if let Err(refused) = prepare(&connections).await? {
                return Ok(Err(refused));
            }
            Ok(Ok(Lease::take(&connections, &node, &home).await?))
        };
        match self.database.run(attempt).await {
            Ok(Ok(Ok(lease))) => Ok(lease),
            Ok(Ok(Err(Serving { node }))) => Err(Later::Serves(node)),
            Ok(Err(refused)) => Err(Later::Refused(refused)),
            Err(error) => {
                let connections = self.database.connections().clone();
                let cause = self.database.run(async move { Ok(connections.cause().await) }).await.ok().flatten();
                Err(Later::Away(cause.unwrap_or_else(|| error.to_string())))
            }
        }
    }

    async fn serve(self, lease: Lease) -> Result<Opened, StoreError> {
        let (connections, after_loss) = (self.database.connections().clone(), self.after_loss);
        let shared = Arc::new(Shared { database: self.database, lease });
        let begin = shared.begin(after_loss).await.map_err(|error| io::Error::other(error.to_string()));
        let (era, clean) = begin.map_err(io_error("cannot find out how the last run ended"))?;
        shared.database.spawn(shared.lease.clone().keep(connections));
        let documents = Arc::new(InTables(Arc::clone(&shared)));
        let store = Box::new(InPostgres {
            shared,
            era: Mutex::new(era),
            clean,
            cache: Mutex::default(),
            unflushed: Mutex::default(),
            _held: self.held,
            closed: AtomicBool::new(false),
            last_save_failed: AtomicBool::new(false),
            last_flush_failed: AtomicBool::new(false),
        });
        Ok(Opened { store, documents })
    }

    /// Says why this daemon waits; `true` if it is another reason than before.
    fn waits(&self, why: &str) -> bool {
        self.why.send_if_modified(|known| {
            let changed = *known != why;
            why.clone_into(known);
            changed
        })
    }
}

impl Shared {
    /// Reads and deletes the mark of the last clean stop, so that no later start relies on it. Returns the server's era and the one in
    /// which the last run stopped cleanly.
    async fn begin(self: &Arc<Self>, after_loss: bool) -> Result<(String, Option<String>), Failed> {
        let (connections, check) = (self.database.connections().clone(), self.lease.check());
        let begin = async move {
            connections
                .transact(
                    Durable::Yes,
                    &check,
                    Arc::new(move |connection| {
                        Box::pin(async move {
                            if after_loss {
                                query("delete from askd.era").execute(&mut *connection).await?;
                            }
                            let era = era(&mut *connection).await?;
                            let clean = "delete from askd.documents where name = $1 returning bytes";
                            let clean = scalar::<Vec<u8>>(clean).bind(CLEAN);
                            let clean = clean.fetch_optional(connection).await?;
                            let clean = clean.filter(|_| !after_loss).and_then(|bytes| String::from_utf8(bytes).ok());
                            Ok((era, clean))
                        })
                    }),
                )
                .await
        };
        self.database.run(begin).await
    }
}

/// Names the time since which the server lost nothing that it had committed.
pub(super) async fn era(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let begin = "insert into askd.era (mark) values ($1::uuid) on conflict do nothing";
    query(begin).bind(random::unique()).execute(&mut *connection).await?;
    scalar("select mark::text from askd.era").fetch_one(connection).await
}

/// Looks at the server, and makes the tables if they are missing.
async fn prepare(database: &Connections) -> Result<Result<(), StoreError>, Failed> {
    let refused = |what: String| Ok(Err(io_error("[postgres]")(io::Error::other(what))));
    let prepared = database.transact(
        Durable::Yes,
        "",
        Arc::new(|connection| {
            Box::pin(async move {
                let server = "select current_setting('server_version_num')::integer, current_setting('fsync')";
                let server = query(server).fetch_one(&mut *connection).await?;
                let (version, fsync): (i32, String) = (server.try_get(0)?, server.try_get(1)?);
                if version < OLDEST || fsync == "off" {
                    return Ok((version, fsync, TABLES, 0));
                }
                let lock = "select pg_advisory_xact_lock($1)";
                query(lock).bind(MAKING_TABLES).execute(&mut *connection).await?;
                let made = "select to_regclass('askd.format') is not null";
                if !scalar::<bool>(made).fetch_one(&mut *connection).await? {
                    connection.execute(SCHEMA).await?;
                }
                let format = query("select tables, records from askd.format").fetch_one(&mut *connection).await?;
                let (tables, records): (i32, i32) = (format.try_get(0)?, format.try_get(1)?);
                let written = i32::try_from(record::VERSION).unwrap_or(i32::MAX);
                if tables <= TABLES && records < written {
                    let mark = "update askd.format set records = $1";
                    query(mark).bind(written).execute(connection).await?;
                }
                Ok((version, fsync, tables, records))
            })
        }),
    );
    let (version, fsync, tables, records) = prepared.await?;
    let newer = |what: &str, found: i32, known: u32| {
        let found = u32::try_from(found).unwrap_or_default();
        let source = BadRecord::Newer { found, known };
        Ok(Err(StoreError::Newer { file: what.to_owned(), source }))
    };
    if version < OLDEST {
        return refused(format!("the server is PostgreSQL {}; askd needs 14 or newer", version / 10_000));
    }
    if fsync == "off" {
        return refused(
            "fsync is off, so the server loses answers that it has acknowledged; set fsync = on".to_owned(),
        );
    }
    if tables > TABLES {
        return newer("the tables of the database", tables, TABLES.unsigned_abs());
    }
    if u32::try_from(records).unwrap_or_default() > record::VERSION {
        return newer("the records in the database", records, record::VERSION);
    }
    Ok(Ok(()))
}
