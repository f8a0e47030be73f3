//! Which daemon leads: the holder of a lease, a row that it renews. It does what is done in one place, and takes the groups that nobody
//! holds ([`super::holding`]). The holder judges its lease by a clock that goes on while
//! the computer sleeps, counts from before it sent the renewal, and starts no call in the last seconds. Each write carries the lease's
//! fence, which every takeover raises: a daemon whose lease was taken over saves nothing.

use super::database::{Connections, Durable, Failed, query};
use super::hints::notify;
use super::nodes::{ALONE, Node};
use super::statement::statement;
use crate::clock::{Clock, Moment};
use crate::random;
use crate::sabotage::on;
use parking_lot::Mutex;
use sqlx::Row as _;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The leader's lease. Daemons that know of no other one take it for that of all groups.
const ALL: &str = "*";
/// How long a lease lasts after a renewal, and how often it is renewed.
pub(super) const LEASE: Duration = Duration::from_secs(15);
pub(super) const RENEWED_AFTER: Duration = Duration::from_secs(3);
/// How soon a renewal that failed is tried again: once the database is back, others wait only for so long.
const TRIED_AFTER: Duration = Duration::from_secs(1);
/// In a lease's last seconds no call begins: it would have too little time.
const LAST: Duration = Duration::from_secs(5);

/// How long a call may take that begins now, under a lease whose renewal was sent then.
pub(super) fn left_for_calls(renewed: Moment, clock: &Clock) -> Duration {
    let left = LEASE.saturating_sub(clock.monotonic().since(renewed));
    if left > LAST { left } else { Duration::ZERO }
}

/// How long it lasts for the others.
pub(super) fn lasts() -> Duration {
    if on("longlease") { 4 * LEASE } else { LEASE }
}

/// A daemon's right to do what steps ask for. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Lease(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: String,
    fence: i64,
    clock: Clock,
    /// When the last successful renewal was sent.
    renewed: Mutex<Moment>,
    /// Whether it was given up. Locked by a renewal that is under way.
    ended: tokio::sync::Mutex<bool>,
    /// The run's: it ends with its lead.
    lost: CancellationToken,
}

/// Who leads meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leading {
    /// What that daemon calls itself.
    pub node: String,
}

impl Lease {
    /// Takes the lease, if nobody holds it. The lease of an earlier run on the same host is over: the caller has the lock of the
    /// state folder. `patient`: after the database was away, its holder has the time to renew it.
    pub(super) async fn take(
        database: &Connections,
        node: &Node,
        patient: bool,
    ) -> Result<Result<Self, Leading>, Failed> {
        let in_touch = node.holding.is_in_touch();
        let (run, sent) = (random::unique(), database.clock().monotonic());
        let (holder, own) = (run.clone(), node.clone());
        let taken = database.transact(
            Durable::Yes,
            "",
            Arc::new(move |connection| {
                let (holder, Node { run, node, host, home, .. }) = (holder.clone(), own.clone());
                Box::pin(async move {
                    // Trying to take it would hold up the holder's writes.
                    let held = "select node from askd.groups where name = $1
                                    and (until >= now() or until > '-infinity' and $5 and not ($6 and exists (
                                        select from askd.runs where run = $7::uuid and until > now())))
                                    and not (home = $2::uuid and node in ($3, $4))";
                    // If this run's own lease is over as well, the server's clock was set.
                    let held = query(held).bind(ALL).bind(&home).bind(&host).bind(ALONE).bind(patient).bind(in_touch);
                    let held = held.bind(&run).fetch_optional(&mut *connection).await?;
                    if let Some(held) = held {
                        return Ok(Err(Leading { node: held.try_get(0)? }));
                    }
                    let taken = query(
                        "insert into askd.groups as g (name, holder, fence, until, node, home)
                         values ($1, $2::uuid, 1, now() + make_interval(secs => $3), $4, $5::uuid)
                         on conflict (name) do update set holder = excluded.holder, fence = g.fence + 1,
                             until = excluded.until, node = excluded.node, home = excluded.home
                         where g.until < now() or g.home = excluded.home and g.node in ($6, $7)
                         returning fence",
                    )
                    .bind(ALL)
                    .bind(&holder)
                    .bind(lasts().as_secs_f64())
                    .bind(&node)
                    .bind(&home)
                    .bind(&host)
                    .bind(ALONE)
                    .fetch_optional(&mut *connection)
                    .await?;
                    if let Some(taken) = taken {
                        return Ok(Ok(taken.try_get::<i64, _>(0)?));
                    }
                    let leads = query("select node from askd.groups where name = $1").bind(ALL);
                    Ok(Err(Leading { node: leads.fetch_one(connection).await?.try_get(0)? }))
                })
            }),
        );
        let lost = node.holding.lost().clone();
        Ok(taken.await?.map(|fence| {
            let clock = database.clock().clone();
            let (renewed, ended) = (Mutex::new(sent), tokio::sync::Mutex::default());
            Self(Arc::new(Inner { run, fence, clock, renewed, ended, lost }))
        }))
    }

    /// The statement that begins each transaction that only the holder may run.
    pub(super) fn check(&self) -> String {
        if on("nofence") {
            return String::new();
        }
        format!("select askd.hold('{ALL}', '{}', {});", self.0.run, self.0.fence)
    }

    /// How long a call may take that begins now: it ends before another daemon can take over.
    pub(super) fn calls_for(&self) -> Duration {
        if self.0.lost.is_cancelled() { Duration::ZERO } else { left_for_calls(*self.0.renewed.lock(), &self.0.clock) }
    }

    /// Cancelled when another daemon has taken over.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    /// Another daemon has taken over.
    pub(super) fn lose(&self) {
        self.0.lost.cancel();
    }

    /// Renews it for as long as it is held. While the database is away nobody else can take it, either.
    pub(super) async fn keep(self, database: Connections) {
        let mut pause = RENEWED_AFTER;
        while !self.0.lost.is_cancelled() {
            self.0.clock.sleep(pause).await;
            let ended = self.0.ended.lock().await;
            if *ended {
                return;
            }
            pause = RENEWED_AFTER;
            match self.renew(&database).await {
                Ok(()) => {}
                Err(Failed::Overtaken) => self.lose(),
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the lease; trying again");
                    pause = TRIED_AFTER;
                }
            }
        }
    }

    /// Gives it up, and tells the other daemons: one of them can take it at once.
    pub(super) async fn end(&self, database: &Connections) -> Result<(), Failed> {
        // A renewal after this would hold the others up.
        let mut ended = self.0.ended.lock().await;
        *ended = true;
        if on("keeplease") {
            return Ok(());
        }
        self.set(database, None).await?;
        notify(database).await
    }

    async fn renew(&self, database: &Connections) -> Result<(), Failed> {
        let sent = self.0.clock.monotonic();
        self.set(database, Some(lasts())).await?;
        *self.0.renewed.lock() = sent;
        Ok(())
    }

    /// It holds for so long from now on; `None`: it is given up.
    async fn set(&self, database: &Connections, holds: Option<Duration>) -> Result<(), Failed> {
        let set = statement(
            "update askd.groups set until = coalesce(now() + make_interval(secs => $2), '-infinity') where name = $1",
        );
        let set = set.bind(ALL).bind(holds.map(|holds| holds.as_secs_f64()));
        database.transact(Durable::No, &self.check(), set.execute()).await
    }
}
