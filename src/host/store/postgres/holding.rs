//! Which groups this run holds: it alone does what the steps of their asks ask for. A run has one lease, a row that it renews, and holds
//! its groups as long as that is there: so one statement renews all of them, and each transaction of the run begins by holding that row.
//! A run that is silent for longer than its lease loses the row to whoever takes its groups. From then on it saves nothing, and ends.
//!
//! The leader takes every group that nobody holds. A daemon that has much more groups than another one hands some over: once nothing of
//! them is in hand, their rows name the other run. That one finds them there, and takes up what their asks need.

use super::database::{Connections, Durable, Failed, Work, query, scalar};
use super::lease::{LAST, LEASE, RENEWED_AFTER, lasts};
use crate::clock::{Clock, Moment};
use crate::host::store::{Surplus, Tended};
use crate::sabotage::on;
use askd_core::Group;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use sqlx::PgConnection;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A daemon hands groups over to another one that has at least so many fewer: to move a few costs more than it brings.
const LEVEL: usize = 8;
/// How many groups are taken or handed over at a time.
const SOME: usize = 500;
/// How long the database has to be reachable before a silent run loses its groups: when it has been away, others may not have had the time
/// to renew their leases.
const IN_TOUCH: Duration = Duration::from_secs(2 * RENEWED_AFTER.as_secs());

/// The lease of a run, and its groups. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Holding(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: String,
    clock: Clock,
    lost: CancellationToken,
    /// When the last successful renewal was sent, and since when all of them succeeded.
    renewed: Mutex<Option<(Moment, Option<Moment>)>>,
    groups: Mutex<Groups>,
    /// One change of what the tables say of this run's groups at a time.
    turn: tokio::sync::Mutex<()>,
}

/// The groups of a run, each with what a [`Tenure`](crate::host::store::Tenure) shares.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) held: HashMap<Group, Arc<()>>,
    /// They are to go.
    pub(super) ending: HashMap<Group, Arc<()>>,
}

/// What came of a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewed {
    InTime,
    /// The lease was over, and nobody had taken anything: this run was silent, or the server's clock was set.
    Late,
    /// It is not there any more.
    Gone,
    Unknown,
}

/// What a look at the groups finds.
#[derive(Debug, Deserialize)]
struct Seen {
    /// How many this run holds.
    mine: usize,
    /// Some that nobody holds, for the leader.
    free: Vec<String>,
    /// The other live runs, and how many each of them holds.
    runs: Vec<(String, usize)>,
    /// A daemon is there that knows of one lease only.
    older: bool,
    /// The leader's run.
    leader: Option<String>,
}

/// `$1` is this run, `$2` whether it leads, `$3` for how long a daemon counts as live.
const LOOK: &str = "select json_build_object(
    'mine', (select count(*) from askd.held where run = $1::uuid),
    'free', (select coalesce(json_agg(name), '[]') from (
                 select name from (select group_name as name from askd.counts union select group_name from askd.held) as every
                 where $2 and not exists (select from askd.held join askd.runs on runs.run = held.run
                                          where held.group_name = name and until > now())
                 limit 500
             ) as free),
    'runs', (select coalesce(json_agg(json_build_array(run, (select count(*) from askd.held where held.run = runs.run))), '[]')
             from askd.runs where until > now() + interval '5 seconds' and run <> $1::uuid),
    'older', askd.has_older($3),
    'leader', (select runs.run from askd.groups join askd.runs on runs.node = groups.node
               where name = '*' and groups.until > now() and runs.until > now() limit 1)
)::text";

/// Has the leader hold all groups that nobody holds, and drops what others have asked for of what it holds: it finds that out from the asks.
/// Returns what this run holds.
pub(super) async fn open(
    connection: &mut PgConnection,
    (run, node): (&str, &str),
    leads: bool,
    revokes: bool,
) -> Result<Vec<String>, sqlx::Error> {
    let take = "select count(*) from askd.take_groups($1::uuid, array(select group_name from askd.counts
                                                                      union select group_name from askd.held), $2, $3, $4)";
    if leads {
        let take = scalar::<i64>(take).bind(run).bind(leads).bind(revokes).bind(LEASE.as_secs_f64());
        take.fetch_one(&mut *connection).await?;
    }
    let known = "delete from askd.owed
                 where folder is null and (group_name is null and $1 or group_name in (select group_name from askd.held where run = $3::uuid))
                     or folder in (select group_name from askd.pins where node = $2)";
    query(known).bind(leads).bind(node).bind(run).execute(&mut *connection).await?;
    scalar("select group_name from askd.held where run = $1::uuid").bind(run).fetch_all(connection).await
}

/// Drops what others have asked for of these groups, as far as this run holds them. Returns those.
async fn begin_with(
    connection: &mut PgConnection,
    run: String,
    groups: Vec<String>,
) -> Result<Vec<String>, sqlx::Error> {
    let mine = "select group_name from askd.held where run = $1::uuid and group_name = any($2)";
    let mine: Vec<String> = scalar(mine).bind(run).bind(groups).fetch_all(&mut *connection).await?;
    let known = "delete from askd.owed where folder is null and group_name = any($1)";
    query(known).bind(&mine).execute(connection).await?;
    Ok(mine)
}

fn parsed(groups: &[String]) -> Vec<Group> {
    groups.iter().filter_map(|group| group.parse().ok()).collect()
}

impl Holding {
    pub(super) fn new(run: String, clock: Clock) -> Self {
        let (lost, renewed, groups) = (CancellationToken::new(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { run, clock, lost, renewed, groups, turn: tokio::sync::Mutex::default() }))
    }

    /// The statement that begins each transaction of the run.
    pub(super) fn check(&self) -> String {
        if on("nofence") { String::new() } else { format!("select askd.hold_run('{}');", self.0.run) }
    }

    /// Whether a call may be begun now: it ends before another daemon can take the groups over.
    pub(super) fn is_good(&self) -> bool {
        let renewed = self.0.renewed.lock().map(|(sent, _)| self.0.clock.monotonic().since(sent));
        !self.0.lost.is_cancelled() && renewed.is_some_and(|held| held + LAST < LEASE)
    }

    /// Cancelled when other daemons have taken over what this run did.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    /// Begins the lease of a run, which has just entered the nodes. The caller has made sure that an earlier one is over.
    pub(super) async fn join(
        connection: &mut PgConnection,
        (run, node): (&str, &str),
        (host, home): (&str, &str),
        alone: &str,
    ) -> Result<(), sqlx::Error> {
        let over = "delete from askd.runs where home = $1::uuid and node in ($2, $3) or node = $4
                        or until < now() - interval '1 hour'";
        query(over).bind(home).bind(host).bind(alone).bind(node).execute(&mut *connection).await?;
        let begin = "insert into askd.runs (run, node, home, until)
                     values ($1::uuid, $2, $3::uuid, now() + make_interval(secs => $4))";
        query(begin).bind(run).bind(node).bind(home).bind(lasts().as_secs_f64()).execute(connection).await.map(drop)
    }

    /// Renews it.
    pub(super) async fn renew(connection: &mut PgConnection, run: &str) -> Result<Renewed, sqlx::Error> {
        let renew = "update askd.runs as runs set until = now() + make_interval(secs => $2)
                     from (select run, until < now() as over from askd.runs where run = $1::uuid) as before
                     where runs.run = before.run returning before.over";
        let over = scalar::<bool>(renew).bind(run).bind(lasts().as_secs_f64()).fetch_optional(connection).await?;
        Ok(match over {
            Some(false) => Renewed::InTime,
            Some(true) => Renewed::Late,
            None if on("nofence") => Renewed::Late,
            None => Renewed::Gone,
        })
    }

    /// What came of the renewal that was sent then.
    pub(super) fn renewed(&self, sent: Moment, renewed: Renewed) {
        let mut known = self.0.renewed.lock();
        match renewed {
            Renewed::InTime => *known = Some((sent, known.and_then(|(_, since)| since).or(Some(sent)))),
            Renewed::Late => *known = Some((sent, Some(sent))),
            Renewed::Unknown => *known = known.map(|(last, _)| (last, None)),
            Renewed::Gone => self.0.lost.cancel(),
        }
    }

    /// Whether other runs have had the time to renew their leases.
    pub(super) fn is_in_touch(&self) -> bool {
        let since = self.0.renewed.lock().and_then(|(_, since)| since);
        since.is_some_and(|since| self.0.clock.monotonic().since(since) >= IN_TOUCH)
    }

    /// Nothing else changes which groups the tables give this run, until it is dropped.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// It holds these groups, and no others.
    pub(super) fn set(&self, groups: &[String]) {
        let held = parsed(groups).into_iter().map(|group| (group, Arc::default())).collect();
        *self.0.groups.lock() = Groups { held, ending: HashMap::new() };
    }

    /// The groups as this run knows them.
    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        self.0.groups.lock()
    }

    /// How many groups it holds.
    pub(super) fn count(&self) -> usize {
        self.0.groups.lock().held.len()
    }

    pub(super) fn holds(&self, group: &Group) -> bool {
        self.0.groups.lock().held.contains_key(group)
    }

    fn unknown(&self, mut groups: Vec<Group>) -> Vec<Group> {
        let known = self.0.groups.lock();
        groups.retain(|group| !known.held.contains_key(group) && !known.ending.contains_key(group));
        groups
    }

    /// Has this run hold these groups, unless others do. Returns those with which it has to begin.
    pub(super) async fn take(
        &self,
        database: &Connections,
        check: &str,
        groups: Vec<String>,
        leads: bool,
    ) -> Result<Vec<Group>, Failed> {
        let (run, revokes) = (self.0.run.clone(), self.is_in_touch());
        let take: Work<Vec<String>> = Arc::new(move |connection| {
            let (run, groups) = (run.clone(), groups.clone());
            Box::pin(async move {
                let take = scalar("select * from askd.take_groups($1::uuid, $2, $3, $4, $5)").bind(&run).bind(groups);
                let taken: Vec<String> =
                    take.bind(leads).bind(revokes).bind(LEASE.as_secs_f64()).fetch_all(&mut *connection).await?;
                begin_with(connection, run, taken).await
            })
        });
        // If it is lost with a crash of the server, two may hold a group.
        database.transact(Durable::Yes, check, take).await.map(|taken| self.unknown(parsed(&taken)))
    }

    /// The groups that the tables give this run, and that it does not know of.
    async fn received(&self, database: &Connections, check: &str) -> Result<Vec<Group>, Failed> {
        let run = self.0.run.clone();
        let all: Work<Vec<String>> = Arc::new(move |connection| {
            let run = run.clone();
            Box::pin(async move {
                scalar("select group_name from askd.held where run = $1::uuid").bind(run).fetch_all(connection).await
            })
        });
        let new = self.unknown(parsed(&database.read(false, all).await?));
        let (run, names) = (self.0.run.clone(), new.iter().map(Group::to_string).collect::<Vec<_>>());
        let begin: Work<Vec<String>> = Arc::new(move |connection| {
            let (run, names) = (run.clone(), names.clone());
            Box::pin(begin_with(connection, run, names))
        });
        database.transact(Durable::Yes, check, begin).await.map(|begun| parsed(&begun))
    }

    pub(super) async fn tend(self, database: Connections, check: String, leads: bool) -> Result<Tended, Failed> {
        let _turn = self.0.turn.lock().await;
        let run = self.0.run.clone();
        let look: Work<String> = Arc::new(move |connection| {
            let run = run.clone();
            Box::pin(
                async move { scalar(LOOK).bind(run).bind(leads).bind(LEASE.as_secs_f64()).fetch_one(connection).await },
            )
        });
        let seen = database.read(false, look).await?;
        let seen: Seen = serde_json::from_str(&seen).map_err(|error| Failed::Unchanged(error.to_string()))?;
        let known = {
            let groups = self.0.groups.lock();
            groups.held.len() + groups.ending.len()
        };
        let mut new = if seen.mine == known { Vec::new() } else { self.received(&database, &check).await? };
        if !seen.free.is_empty() {
            new.extend(self.take(&database, &check, seen.free.clone(), leads).await?);
        }
        Ok(Tended { new, surplus: self.surplus(seen, leads) })
    }

    fn surplus(&self, seen: Seen, leads: bool) -> Option<Surplus> {
        let held = self.count();
        if seen.older {
            // Whoever leads then does everything.
            return (!leads && held > 0).then_some(Surplus { to: seen.leader, most: held });
        }
        let (to, least) = seen.runs.into_iter().min_by_key(|(_, count)| *count)?;
        (held >= least + LEVEL).then(|| Surplus { to: Some(to), most: ((held - least) / 2).min(SOME) })
    }

    pub(super) async fn hand_over(
        self,
        database: Connections,
        check: String,
        to: Option<String>,
        groups: Vec<Group>,
    ) -> Result<bool, Failed> {
        let _turn = self.0.turn.lock().await;
        let (run, names) = (self.0.run.clone(), groups.iter().map(Group::to_string).collect::<Vec<_>>());
        let hand: Work<bool> = Arc::new(move |connection| {
            let (run, to, names) = (run.clone(), to.clone(), names.clone());
            Box::pin(async move {
                let hand = scalar("select askd.hand_over($1::uuid, $2::uuid, $3)").bind(run).bind(to).bind(names);
                hand.fetch_one(connection).await
            })
        });
        let handed = database.transact(Durable::Yes, &check, hand).await?;
        if handed {
            self.0.groups.lock().ending.retain(|group, _| !groups.contains(group));
        }
        Ok(handed)
    }
}
