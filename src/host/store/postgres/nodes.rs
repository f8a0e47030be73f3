//! The daemons that are there: each run is a row that it renews. A second run with the name of a live one is refused, and a
//! clean end is noted only by the last one.

use super::database::{Connections, Durable, Failed, LIMIT, LONG, LONG_STATEMENTS, Work, query, scalar};
use super::hints::notify;
use super::holding::{Holding, Renewed};
use super::lease::{LEASE, Lease, RENEWED_AFTER};
use super::look::standbys;
use super::set_back::{Heard, forget_rates, shorten};
use super::statement::statement;
use super::tables::{READS, TABLES};
use super::{CLEAN, InPostgres, PLACE, Shared, pins};
use crate::clock::Clock;
use crate::host::store::marks::{MARK, check_read};
use crate::host::store::{StoreError, boot_id, no_boot_id};
use crate::sabotage::on;
use askd_core::Time;
use parking_lot::Mutex;
use sqlx::PgConnection;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A run of a daemon.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) run: String,
    pub(super) node: String,
    /// What its host is called: the same, unless it wants to be alone.
    pub(super) host: String,
    /// Names the state folder. A host that was set up from a copy of another one has the same.
    pub(super) home: String,
    /// The daemon's. It follows the database's.
    pub(super) clock: Clock,
    pub(super) heard: Arc<Mutex<Option<Heard>>>,
    pub(super) holding: Holding,
    /// The hosts that serve folders and do not answer, and when they were heard of last.
    pub(super) silent: Arc<Mutex<Vec<(String, Time)>>>,
    /// How many standbys of the server have each `sync_state`.
    pub(super) standbys: Arc<Mutex<Vec<(String, i64)>>>,
}

/// What came of joining.
pub(super) enum Joined {
    Yes,
    /// This one is there, and one of the two wants to be alone.
    Beside(String),
    /// Another live daemon has the name.
    Namesake,
    /// A daemon of this host's name and state folder was heard of just now, in another boot of a computer: of this one, and then it is over, or
    /// of a copy of it.
    Copied,
    /// The records are elsewhere, or on their way.
    Moved(StoreError),
}

/// What was found out on joining.
#[derive(Debug, Clone)]
pub(super) struct Joining {
    /// The server's era in which the last run stopped cleanly, if it did.
    pub(super) clean: Option<String>,
}

/// What a run is called that wants to be alone.
pub(super) const ALONE: &str = "askd store copy";
/// After so many signs of life a run drops what all others have heard of, and rates and holds that hold nothing up.
const TIDIED_AFTER: u32 = 100;
/// After so many it looks at the server's standbys.
const LOOKS_AFTER: u32 = 5;
/// How soon a run looks again whether another one of its host has been silent for as long as a lease lasts.
const AGAIN: Duration = Duration::from_secs(1);
/// Runs join one at a time.
const JOINING: i64 = 7_161_074;

/// Whether a daemon of this host's name and state folder was heard of just now, in another boot of a computer.
async fn is_copied(connection: &mut PgConnection, host: &str, home: &str, boot: &str) -> Result<bool, sqlx::Error> {
    if no_boot_id().is_some() {
        return Ok(false);
    }
    let copied = "select exists (select from askd.nodes join askd.hosts using (node)
                      where node = $1 and home = $2::uuid and boot <> $3
                          and nodes.heard > now() - make_interval(secs => $4))";
    let copied = scalar::<bool>(copied).bind(host.to_owned()).bind(home.to_owned()).bind(boot.to_owned());
    copied.bind(LEASE.as_secs_f64()).fetch_one(connection).await
}

impl Node {
    /// The same for a run beside which there is no other.
    pub(super) fn alone(self) -> Self {
        Self { node: ALONE.to_owned(), ..self }
    }

    /// Enters it, unless another live daemon has its name. The caller has the lock of the state folder: an earlier run on it, in this
    /// boot of the computer, is over. What it saves from now on, no earlier clean end vouches for.
    pub(super) async fn join(&self, database: &Connections) -> Result<Joined, Failed> {
        let began = database.clock().monotonic();
        loop {
            match self.try_to_join(database).await? {
                Joined::Copied if database.clock().monotonic().since(began) < LEASE + AGAIN => {
                    database.clock().sleep(AGAIN).await;
                }
                joined => return Ok(joined),
            }
        }
    }

    async fn try_to_join(&self, database: &Connections) -> Result<Joined, Failed> {
        let (own, boot, sent) = (self.clone(), boot_id(), database.clock().monotonic());
        // Whoever is alone makes documents of very many entries.
        let (limit, statements) = if self.node == ALONE { (LONG, LONG_STATEMENTS) } else { (LIMIT, "") };
        let joined = database
            .transact_within(
                limit,
                Durable::Yes,
                statements,
                Arc::new(move |connection| {
                    let (Node { run, node, host, home, .. }, boot) = (own.clone(), boot.clone());
                    Box::pin(async move {
                        query("select pg_advisory_xact_lock($1)").bind(JOINING).execute(&mut *connection).await?;
                        shorten(&mut *connection).await?;
                        if is_copied(&mut *connection, &host, &home, &boot).await? {
                            return Ok(Joined::Copied);
                        }
                        let over = "delete from askd.nodes where home = $1::uuid and node in ($2, $3)";
                        query(over).bind(&home).bind(&host).bind(ALONE).execute(&mut *connection).await?;
                        let live = "select node from askd.nodes where heard > now() - make_interval(secs => $1)";
                        let live = scalar::<String>(live).bind(LEASE.as_secs_f64()).fetch_all(&mut *connection).await?;
                        if let Some(other) = live.iter().find(|other| node == ALONE || *other == ALONE) {
                            return Ok(Joined::Beside(other.clone()));
                        }
                        if live.contains(&node) {
                            return Ok(Joined::Namesake);
                        }
                        if live.is_empty() {
                            // Nobody knows whether the server's clock was set back since.
                            query("delete from askd.rates").execute(&mut *connection).await?;
                        }
                        if node == ALONE {
                            // Whoever is alone changes documents.
                            query("select askd.fold_memory()").execute(&mut *connection).await?;
                        } else {
                            // A daemon that will not serve them holds up nobody who brings them back.
                            let mark = scalar::<Vec<u8>>("select bytes from askd.documents where name = $1").bind(MARK);
                            let mark = mark.fetch_optional(&mut *connection).await?.unwrap_or_default();
                            if let Err(moved) = check_read(&mark, PLACE) {
                                return Ok(Joined::Moved(moved));
                            }
                            pins::begin(&mut *connection, &node, &boot).await?;
                        }
                        Holding::join(&mut *connection, (&run, &node), (&host, &home), ALONE).await?;
                        let join = "insert into askd.nodes (run, node, home, version, reads, knows, heard)
                                    values ($1::uuid, $2, $3::uuid, $4, $5, $6, now())";
                        let join = query(join).bind(run).bind(node).bind(home).bind(env!("CARGO_PKG_VERSION"));
                        let join = join.bind(READS).bind(TABLES);
                        join.execute(connection).await?;
                        Ok(Joined::Yes)
                    })
                }),
            )
            .await?;
        if let Joined::Yes = joined {
            self.holding.renewed(sent, Renewed::InTime);
            self.read_clock(database).await?;
        }
        Ok(joined)
    }

    /// Says that it is there, until it has left.
    pub(super) async fn keep(self, database: Connections, left: CancellationToken) {
        let clock = database.clock().clone();
        for times in 1_u32.. {
            tokio::select! {
                () = clock.sleep(RENEWED_AFTER) => {}
                () = left.cancelled() => return,
            }
            // After the database was away, the others have the time to say that they are there.
            let tidies = times % TIDIED_AFTER == 0 && self.holding.is_in_touch();
            let (run, node) = (self.run.clone(), self.node.clone());
            let heard = database.transact(
                Durable::No,
                "",
                Arc::new(move |connection| {
                    let (run, node) = (run.clone(), node.clone());
                    Box::pin(async move {
                        if tidies {
                            let told =
                                "delete from askd.gone where at < now() - interval '10 minutes' and forget_at is null";
                            query(told).execute(&mut *connection).await?;
                            let over = "delete from askd.rates where next_at < now() - interval '10 minutes'";
                            query(over).execute(&mut *connection).await?;
                            let over = "delete from askd.holds where until < now() - interval '10 minutes'";
                            query(over).execute(&mut *connection).await?;
                            // A call that was cancelled may wait for as long as a question can.
                            let over = "delete from askd.calls where at < now() - case
                                            when request_id is null then interval '30 days' else interval '1 day' end";
                            query(over).execute(&mut *connection).await?;
                            let over = "delete from askd.ended where at < now() - interval '30 days'";
                            query(over).execute(&mut *connection).await?;
                            // In touch with the database, they would say something every few seconds.
                            let over = "delete from askd.runs where until < now() - interval '1 hour'";
                            query(over).execute(&mut *connection).await?;
                            let over = "delete from askd.nodes where heard < now() - interval '1 hour'";
                            query(over).execute(&mut *connection).await?;
                            // Each pod has a name of its own, and most serve no folder.
                            let past = "delete from askd.hosts as hosts where heard < now() - interval '7 days'
                                        and not exists (select from askd.pins as pins where pins.node = hosts.node)";
                            query(past).execute(&mut *connection).await?;
                        }
                        let host = "update askd.hosts set heard = now() where node = $1";
                        query(host).bind(node).execute(&mut *connection).await?;
                        let heard = "update askd.nodes set heard = now() where run = $1::uuid";
                        query(heard).bind(&run).execute(&mut *connection).await?;
                        let silent = pins::silent_for(&mut *connection, LEASE).await?;
                        shorten(connection).await?;
                        Ok(silent)
                    })
                }),
            );
            match heard.await {
                Ok(silent) => *self.silent.lock() = silent,
                Err(error) => tracing::debug!(%error, "cannot say in the database that this daemon is there"),
            }
            if times % LOOKS_AFTER == 1 {
                let standbys = database.read(false, Arc::new(|connection| Box::pin(standbys(connection)))).await;
                // What is not known any more is not told.
                *self.standbys.lock() = standbys.unwrap_or_default();
            }
            if let Err(error) = self.read_clock(&database).await {
                tracing::debug!(%error, "cannot read the time of day in the database");
            }
        }
    }

    /// Has the daemon's clock follow the database's. All daemons judge by that, however their computers' clocks are set.
    async fn read_clock(&self, database: &Connections) -> Result<(), Failed> {
        let asked = self.clock.monotonic();
        let now = statement("select (extract(epoch from clock_timestamp()) * 1000)::bigint").one();
        let told = database.read(false, now).await?;
        let heard = Heard { told, asked, at: self.clock.monotonic() };
        if !on("ownclock") {
            self.clock.follow(Time::from_millis(told), heard.asked, heard.at);
        }
        let before = *self.heard.lock();
        if before.is_some_and(|before| heard.is_set_back(before)) {
            forget_rates(database).await?;
            tracing::warn!("the clock of the database's server was set back");
        }
        *self.heard.lock() = Some(heard);
        Ok(())
    }
}

/// Reads and deletes the mark of the last clean stop, so that no later start relies on it.
pub(super) async fn begin(connections: &Connections, after_loss: bool) -> Result<Joining, Failed> {
    connections
        .transact(
            Durable::Yes,
            "",
            Arc::new(move |connection| {
                Box::pin(async move {
                    if after_loss {
                        query("delete from askd.era").execute(&mut *connection).await?;
                        pins::lose(&mut *connection).await?;
                    }
                    let clean = "delete from askd.documents where name = $1 returning bytes";
                    let clean = scalar::<Vec<u8>>(clean).bind(CLEAN);
                    let clean = clean.fetch_optional(connection).await?;
                    let clean = clean.filter(|_| !after_loss).and_then(|bytes| String::from_utf8(bytes).ok());
                    Ok(Joining { clean })
                })
            }),
        )
        .await
}

/// A run that ends before it has used the lead that it has won.
pub(super) async fn abandon(database: &Connections, run: String, lease: &Lease) -> Result<(), Failed> {
    let gone: Work<()> = Arc::new(move |connection| {
        let run = run.clone();
        Box::pin(async move {
            query("delete from askd.nodes where run = $1::uuid").bind(&run).execute(&mut *connection).await?;
            let_go(connection, &run).await
        })
    });
    database.transact(Durable::No, "", gone).await?;
    lease.end(database).await
}

/// A run lets all its groups go, and its lease.
async fn let_go(connection: &mut PgConnection, run: &str) -> Result<(), sqlx::Error> {
    if on("keeplease") {
        return Ok(());
    }
    query("delete from askd.held where run = $1::uuid").bind(run).execute(&mut *connection).await?;
    query("delete from askd.runs where run = $1::uuid").bind(run).execute(connection).await.map(drop)
}

impl InPostgres {
    /// Notes the end of this run. The last daemon notes that nothing is missing, and the leader gives its lease up.
    pub(super) fn leave(&self) -> Result<(), Failed> {
        let Shared { run, node, left, .. } = &*self.shared;
        left.cancel();
        let (era, run, node) = (self.era.lock().clone(), run.clone(), node.clone());
        self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (era, run, node) = (era.clone(), run.clone(), node.clone());
                Box::pin(async move {
                    let whole = "update askd.hosts set boot = null where node = $1";
                    query(whole).bind(node).execute(&mut *connection).await?;
                    let seats = "delete from askd.seats where run = $1::uuid";
                    query(seats).bind(&run).execute(&mut *connection).await?;
                    let gone = "delete from askd.nodes where run = $1::uuid";
                    query(gone).bind(&run).execute(&mut *connection).await?;
                    let_go(&mut *connection, &run).await?;
                    // Also one that has died: it may have saved something without waiting for the disk.
                    let others: i64 = scalar("select count(*) from askd.nodes").fetch_one(&mut *connection).await?;
                    if others > 0 {
                        return Ok(());
                    }
                    let mark = "insert into askd.documents (name, bytes) values ($1, $2)
                                on conflict (name) do update set bytes = excluded.bytes";
                    query(mark).bind(CLEAN).bind(era.into_bytes()).execute(connection).await.map(drop)
                })
            }),
        )?;
        self.end_lead()
    }

    /// Lets all groups go, and the lead, before this run ends without noting an end.
    pub(super) fn give_up(&self) -> Result<(), Failed> {
        self.shared.left.cancel();
        let run = self.shared.run.clone();
        let gone: Work<()> = Arc::new(move |connection| {
            let run = run.clone();
            Box::pin(async move { let_go(connection, &run).await })
        });
        self.shared.change(Durable::Yes, gone)?;
        self.end_lead()
    }

    /// Gives the lease up, if it is the leader's, and tells the others that there is something for them.
    fn end_lead(&self) -> Result<(), Failed> {
        let Shared { lease, holding, database, .. } = &*self.shared;
        let connections = database.connections().clone();
        match lease.clone() {
            Some(lease) => database.wait(async move { lease.end(&connections).await }),
            // The leader takes at once what this one held.
            None if holding.count() > 0 => database.wait(async move { notify(&connections).await }),
            None => Ok(()),
        }
    }
}
