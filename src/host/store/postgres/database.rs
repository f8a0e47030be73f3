//! The connections to PostgreSQL, and transactions with a time limit. All of it runs on a thread of its own: calls to the
//! store are blocking, and some come from a thread of the daemon's runtime.

use crate::clock::Clock;
use crate::sabotage::on;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::{Query, QueryScalar};
use sqlx::{Connection as _, Executor as _, FromRow, PgConnection, PgPool, Postgres};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How many connections a daemon has at most.
const CONNECTIONS: u32 = 8;
/// How long a transaction may take before its commit, and the commit. Slack waits for 3 s.
pub(super) const LIMIT: Duration = Duration::from_millis(1_500);
const COMMIT_LIMIT: Duration = Duration::from_millis(700);
/// How long reading everything may take, which nobody waits for.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Lets each statement of a transaction take so long, too.
pub(super) const LONG_STATEMENTS: &str = "set local statement_timeout = 60000; ";
/// How long the server waits for a daemon in the middle of a transaction. One that is paused, or whose host is gone, would
/// hold its rows for ever, the lease among them.
const IDLE: Duration = Duration::from_millis(2_500);
/// A connection that was idle for longer is tested before it is used.
const TEST_AFTER: Duration = Duration::from_millis(200);
/// How many times a transaction is tried if it conflicts with others.
const TRIES: u32 = 3;
/// What `askd.hold` raises.
const OVERTAKEN: &str = "AK001";
/// What `askd.hold_folder` raises.
const MOVED: &str = "AK002";
/// What `askd.hold_group` raises.
const NOT_HELD: &str = "AK003";
/// A row with that key is there.
const CONFLICT: &str = "23505";

/// Why a transaction failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Failed {
    /// Nothing was changed.
    #[error("{0}")]
    Unchanged(String),
    /// The commit was sent, and what came of it is not known.
    #[error("{0}")]
    Unknown(String),
    /// Another daemon leads now. Nothing was changed.
    #[error("another askd has taken over")]
    Overtaken,
    /// Another daemon has stored what this one would have. Nothing was changed.
    #[error("another daemon was faster")]
    Conflict,
    /// Another host serves the folder of the group. Nothing was changed.
    #[error("another host serves the folder")]
    Moved,
    /// Another daemon holds the group. Nothing was changed.
    #[error("another daemon holds the group")]
    NotHeld,
    /// The server has crashed since this daemon looked, and may have lost something. Nothing was changed.
    #[error("the database has crashed")]
    Crashed,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        match code(&error).as_deref() {
            Some(OVERTAKEN) => Self::Overtaken,
            Some(MOVED) => Self::Moved,
            Some(NOT_HELD) => Self::NotHeld,
            Some(CONFLICT) => Self::Conflict,
            _ => Self::Unchanged(error.to_string()),
        }
    }
}

fn late() -> Failed {
    Failed::Unchanged(format!("the database did not answer within {} ms", LIMIT.as_millis()))
}

pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether a retry may succeed: after a serialization failure or a deadlock.
fn is_passing(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("40001" | "40P01"))
}

/// Whether the server has rolled a transaction back instead of committing it. Any other error may come after the commit: a pooler
/// reports a server that it has lost in the same way, and a server a synchronous standby that does not answer.
fn is_refused(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| {
        code.starts_with("23") || code.starts_with("40") || [OVERTAKEN, MOVED, NOT_HELD].contains(&&*code)
    })
}

/// Work within a transaction. It may be done again after it was rolled back.
pub(super) type Work<T> =
    Arc<dyn for<'a> Fn(&'a mut PgConnection) -> BoxFuture<'a, Result<T, sqlx::Error>> + Send + Sync>;

/// A statement that the server does not keep: behind a pooler the next one may come to another server process.
pub(super) fn query<'q>(text: &'static str) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(text).persistent(false)
}

/// The same for a statement with one value.
pub(super) fn scalar<'q, T>(text: &'static str) -> QueryScalar<'q, Postgres, T, PgArguments>
where
    (T,): for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_scalar(text).persistent(false)
}

/// Whether a commit waits until it is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    Yes,
    No,
}

/// A connection in a transaction. It is closed, unless the transaction was ended: what comes of a call that was given up is not
/// known, and the next transaction must not begin within this one.
pub(super) struct Open {
    connection: PoolConnection<Postgres>,
    ended: bool,
}

impl Open {
    async fn begin(pool: &PgPool, begin: &str) -> Result<Self, sqlx::Error> {
        let mut open = Self { connection: pool.acquire().await?, ended: false };
        open.connection.execute(begin).await?;
        Ok(open)
    }

    async fn end(mut self, how: &str) -> Result<(), sqlx::Error> {
        self.connection.execute(how).await?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}

/// How to connect. PgBouncer refuses a setting that sqlx would make.
fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    let options = PgConnectOptions::from_str(url)?;
    Ok(options.extra_float_digits(None).application_name("askd").statement_cache_capacity(0))
}

/// A database. Cheap to clone, once it is connected.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    pool: PgPool,
    clock: Clock,
}

impl Connections {
    /// Begins a transaction. `first` is done in the same round trip.
    async fn begin(&self, durable: Durable, first: &str) -> Result<Open, sqlx::Error> {
        let commit = if durable == Durable::Yes && !on("nosync") { "on" } else { "off" };
        let (limit, idle) = (LIMIT.as_millis(), IDLE.as_millis());
        let begin = format!(
            "begin isolation level read committed; set local statement_timeout = {limit};
             set local idle_in_transaction_session_timeout = {idle};
             set local synchronous_commit = {commit}; {first}"
        );
        Open::begin(&self.pool, &begin).await
    }

    /// Does work in a transaction, and commits it.
    pub(super) async fn transact<T>(&self, durable: Durable, first: &str, work: Work<T>) -> Result<T, Failed> {
        self.transact_within(LIMIT, durable, first, work).await
    }

    /// The same for a caller that has waited for a part of the time already. `left` is what remains of it before the commit.
    pub(super) async fn transact_within<T>(
        &self,
        left: Duration,
        durable: Durable,
        first: &str,
        work: Work<T>,
    ) -> Result<T, Failed> {
        if left.is_zero() {
            return Err(late());
        }
        let prepare = async {
            let mut count = 1;
            loop {
                let tried = async {
                    let mut open = self.begin(durable, first).await?;
                    match work(&mut open.connection).await {
                        Ok(done) => Ok::<_, sqlx::Error>((open, done)),
                        Err(error) => {
                            let _or_closed = open.end("rollback").await;
                            Err(error)
                        }
                    }
                };
                match tried.await {
                    Err(error) if is_passing(&error) && count < TRIES => count += 1,
                    tried => return tried,
                }
            }
        };
        let (open, done) = self.clock.timeout(left, prepare).await.ok_or_else(late)??;
        self.commit(open).await.map(|()| done)
    }

    /// Commits a transaction.
    pub(super) async fn commit(&self, open: Open) -> Result<(), Failed> {
        match self.clock.timeout(COMMIT_LIMIT, open.end("commit")).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if is_refused(&error) => Err(error.into()),
            Some(Err(error)) => Err(Failed::Unknown(error.to_string())),
            None => Err(Failed::Unknown("the database did not say whether it has committed".to_owned())),
        }
    }

    /// A connection of its own, to this address if there is one.
    pub(super) async fn connect(&self, url: Option<&str>) -> Result<PgConnection, sqlx::Error> {
        let options = url.map_or_else(|| Ok((*self.pool.connect_options()).clone()), options)?;
        PgConnection::connect_with(&options).await
    }

    /// Begins a transaction that stays open between calls. The server ends it if none comes for a while.
    pub(super) async fn open(&self, first: &str, work: Work<()>) -> Result<Open, Failed> {
        let begun = async {
            let mut open = self.begin(Durable::Yes, first).await?;
            work(&mut open.connection).await?;
            Ok::<_, sqlx::Error>(open)
        };
        Ok(self.clock.timeout(LIMIT, begun).await.ok_or_else(late)??)
    }

    /// Does work in it. If that fails, the transaction is over, and has changed nothing.
    pub(super) async fn within<T>(&self, mut open: Open, work: Work<T>) -> Result<(Open, T), Failed> {
        let done = self.clock.timeout(LIMIT, work(&mut open.connection)).await.ok_or_else(late)??;
        Ok((open, done))
    }

    /// Reads in a transaction: behind a pooler its statements come to one server process.
    pub(super) async fn read<T>(&self, long: bool, work: Work<T>) -> Result<T, Failed> {
        let limit = if long { LONG } else { LIMIT };
        // All of it is read as it is at one moment.
        let begin = format!(
            "begin isolation level repeatable read, read only; set local statement_timeout = {limit};
             set local idle_in_transaction_session_timeout = {limit}",
            limit = limit.as_millis()
        );
        let read = async {
            let mut open = Open::begin(&self.pool, &begin).await?;
            let read = work(&mut open.connection).await;
            let ended = open.end(if read.is_ok() { "commit" } else { "rollback" }).await;
            let read = read?;
            ended.map(|()| read)
        };
        let read = self.clock.timeout(limit, read).await;
        let late = || Failed::Unchanged(format!("the database did not answer within {} ms", limit.as_millis()));
        Ok(read.ok_or_else(late)??)
    }

    /// Why no connection can be made, and where; `None` if one can. The pool only says that it waited.
    pub(super) async fn cause(&self) -> Option<String> {
        let options = self.pool.connect_options();
        let why = match self.clock.timeout(LIMIT, PgConnection::connect_with(&options)).await {
            Some(Ok(_)) => return None,
            Some(Err(error)) => error.to_string(),
            None => format!("no answer within {} ms", LIMIT.as_millis()),
        };
        let tcp = format!("{}:{}", options.get_host(), options.get_port());
        let place = options.get_socket().map_or(tcp, |socket| socket.display().to_string());
        Some(format!("{place}: {why}"))
    }

    /// The clock of leases and time limits: the computer's, whatever clock the daemon runs by.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The connections and the thread that serves them.
pub(super) struct Database {
    connections: Connections,
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for Database {
    /// Not where it is: the address may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

impl Database {
    /// Connects to nothing yet. `thread`: its thread's name.
    pub(super) fn new(url: &str, thread: &str) -> Result<Self, String> {
        let unusable = |error: &dyn fmt::Display| format!("postgres.url cannot be used: {error}");
        let options = options(url).map_err(|error| unusable(&error))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name(thread).enable_all().build();
        let runtime = runtime.map_err(|error| unusable(&error))?;
        let pool = {
            // The pool's own tasks are spawned here.
            let _here = runtime.enter();
            let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(LIMIT);
            // A connection that was used just now needs no test.
            let pool = pool.test_before_acquire(false).before_acquire(|connection, used| {
                Box::pin(async move {
                    if used.idle_for > TEST_AFTER {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            });
            pool.connect_lazy_with(options)
        };
        Ok(Self { connections: Connections { pool, clock: Clock::system() }, runtime: Mutex::new(Some(runtime)) })
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Runs work on the database's thread, in the background. Nothing happens after [`Drop`].
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    /// Because it is boxed, the compiler makes the machinery of a task once: otherwise it would be 0.4 MB.
    fn spawn_boxed(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(work);
        }
    }

    /// Runs work on the database's thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Result<T, Failed> {
        let (done, told) = tokio::sync::oneshot::channel();
        self.spawn(async move {
            let _told = done.send(work.await);
        });
        told.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// The same, and blocks until it is done.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Result<T, Failed> {
        let (done, told) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            // Nobody waits any more only if the caller's thread is gone.
            let _told = done.send(work.await);
        });
        told.recv().unwrap_or_else(|_| Err(stopped()))
    }
}

pub(super) fn stopped() -> Failed {
    Failed::Unchanged("askd has stopped".to_owned())
}
