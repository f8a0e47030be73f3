//! Which groups this run holds: it alone does what the steps of their asks ask for. A run has one lease, a row that it renews, and holds
//! its groups as long as that is there: so one statement renews all of them, and each transaction of the run begins by holding that row.
//! A run that is silent for longer than its lease loses the row to whoever takes its groups. From then on it saves nothing, and ends.
//!
//! The leader takes every group that nobody holds. A daemon that has much more groups than another one hands some over of which nothing
//! is in hand: their rows name the other run then. That one finds them there, and takes up what their asks need. What the tables say
//! counts: what they do not give to a run it drops, and a save of what came of a step's work says which run has to hold the group.

use super::database::{Connections, Durable, Failed, Work, scalar};
use super::lease::{LEASE, RENEWED_AFTER, left_for_calls};
use super::runs::begin_with;
use super::statement::statement;
use crate::clock::{Clock, Moment};
use crate::host::store::{Surplus, Tended};
use crate::sabotage::on;
use askd_core::Group;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
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
/// It was away if this run could not renew its lease for so long. Others may have renewed theirs for the last time [`RENEWED_AFTER`] before,
/// and need as long again until they try. So one renewal that fails says nothing.
const AWAY: Duration = Duration::from_secs(LEASE.as_secs() - 2 * RENEWED_AFTER.as_secs());

/// The lease of a run, and its groups. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Holding(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: String,
    clock: Clock,
    lost: CancellationToken,
    /// When the last successful renewal was sent, and since when they have come in time.
    renewed: Mutex<Option<(Moment, Moment)>>,
    groups: Mutex<Groups>,
    /// What the last look at them has found.
    found: Mutex<Found>,
    /// One change of what the tables say of this run's groups at a time.
    turn: tokio::sync::Mutex<()>,
}

/// The groups of a run, each with what a [`Tenure`](crate::host::store::Tenure) shares.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) held: HashMap<Group, Arc<()>>,
    /// Another run is to have them.
    pub(super) ending: HashSet<Group>,
    /// Nobody held them when this run took them.
    pub(super) first: HashSet<Group>,
}

/// What a look has found.
#[derive(Debug, Default)]
struct Found {
    /// The server's era when the names were compared last: after a failover the tables can give other groups to this run, as many as before.
    era: Option<String>,
    /// How many groups the tables give to this run.
    mine: usize,
    /// How many of the others nobody serves, as far as the leader knows.
    unserved: usize,
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
    /// The server's era; none after a crash, until a daemon names one.
    era: Option<String>,
    /// How many this run holds.
    mine: usize,
    /// Whether it may be given any.
    takes: bool,
    /// Some that nobody holds, for the leader.
    free: Vec<String>,
    /// How many nobody serves, for the leader.
    unserved: usize,
    /// The other runs that work, and how many each of them holds.
    runs: Vec<(String, usize)>,
    /// A daemon is there that knows of one lease only.
    older: bool,
    /// The leader's run.
    leader: Option<String>,
}

/// `$1` is this run, `$2` whether it leads, `$3` for how long a daemon counts as live, and `$4` whether silent runs lose their groups. First
/// come the groups that nobody ever held: those of silent runs may have to wait.
const LOOK: &str = "with by_run as materialized (select run, count(*) as number from askd.held group by run),
free as materialized (
    select group_name, 1 as place from askd.counts
        where $2 and not exists (select from askd.held where held.group_name = counts.group_name)
    union all
    select group_name, 2 from askd.held
        where $2 and run <> $1::uuid
            and not exists (select from askd.runs where runs.run = held.run and (until > now() or not $4))
)
select json_build_object(
    'era', (select mark from askd.era),
    'mine', (select coalesce(sum(number), 0) from by_run where run = $1::uuid),
    'takes', coalesce((select takes from askd.runs where run = $1::uuid), false),
    'free', (select coalesce(json_agg(group_name), '[]') from (select group_name from free order by place limit 500) as first),
    'unserved', (select count(*) from free where place = 1)
        + (select coalesce(sum(number), 0) from by_run left join askd.runs using (run)
           where $2 and run <> $1::uuid and not coalesce(takes and until > now(), false)),
    'runs', (select coalesce(json_agg(json_build_array(run, coalesce(number, 0))), '[]') from askd.runs left join by_run using (run)
             where takes and until > now() + interval '5 seconds' and run <> $1::uuid),
    'older', askd.has_older($3),
    'leader', (select run from askd.groups join askd.runs on runs.node = groups.node
               where name = '*' and groups.until > now() and runs.until > now() and takes limit 1)
)::text";

fn parsed(groups: &[String]) -> Vec<Group> {
    groups.iter().filter_map(|group| group.parse().ok()).collect()
}

fn names(groups: &[Group]) -> Vec<String> {
    groups.iter().map(Group::to_string).collect()
}

impl Holding {
    pub(super) fn new(run: String, clock: Clock) -> Self {
        let (lost, renewed, groups) = (CancellationToken::new(), Mutex::default(), Mutex::default());
        let (found, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { run, clock, lost, renewed, groups, found, turn }))
    }

    pub(super) fn run(&self) -> &str {
        &self.0.run
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The statement that begins each transaction of the run.
    pub(super) fn check(&self) -> String {
        if on("nofence") { String::new() } else { format!("select askd.hold_run('{}');", self.0.run) }
    }

    /// How long a call may take that begins now: it ends before another daemon can take the groups over.
    pub(super) fn calls_for(&self) -> Duration {
        let renewed = self.0.renewed.lock().filter(|_| !self.0.lost.is_cancelled());
        renewed.map_or(Duration::ZERO, |(sent, _)| left_for_calls(sent, &self.0.clock))
    }

    /// Cancelled when other daemons have taken over what this run did.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    /// What came of the renewal that was sent then.
    pub(super) fn renewed(&self, sent: Moment, renewed: Renewed) {
        let mut known = self.0.renewed.lock();
        match renewed {
            Renewed::InTime => {
                let before = known.filter(|(last, _)| sent.since(*last) < AWAY);
                *known = Some((sent, before.map_or(sent, |(_, since)| since)));
            }
            Renewed::Late => *known = Some((sent, sent)),
            Renewed::Unknown => {}
            Renewed::Gone => self.0.lost.cancel(),
        }
    }

    /// Whether other runs have had the time to renew their leases.
    pub(super) fn is_in_touch(&self) -> bool {
        let (renewed, now) = (*self.0.renewed.lock(), self.0.clock.monotonic());
        renewed.is_some_and(|(last, since)| now.since(last) < AWAY && now.since(since) >= IN_TOUCH)
    }

    /// Nothing else changes which groups the tables give this run, until it is dropped.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// It holds these groups, and no others.
    pub(super) fn set(&self, groups: &[String]) {
        let held = parsed(groups).into_iter().map(|group| (group, Arc::default())).collect();
        *self.0.groups.lock() = Groups { held, ..Groups::default() };
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

    /// How many groups nobody serves, as far as this run knows: it has not begun with them, or nobody holds them.
    pub(super) fn unserved(&self) -> usize {
        let found = self.0.found.lock();
        found.unserved + found.mine.saturating_sub(self.count())
    }

    /// The tables do not give it this group.
    pub(super) fn drop_group(&self, group: &Group) {
        let mut groups = self.0.groups.lock();
        groups.first.remove(group);
        if groups.held.remove(group).is_some() {
            tracing::warn!(%group, "another daemon holds this group now, and this one does no more for it");
        }
    }

    /// Has this run hold these groups, unless others do. Returns those that it did not hold before: it has to begin with them.
    pub(super) async fn take(
        &self,
        database: &Connections,
        check: &str,
        groups: &[Group],
        leads: bool,
    ) -> Result<Vec<Group>, Failed> {
        let mut taken = Vec::new();
        for some in groups.chunks(SOME) {
            let (run, groups, revokes) = (self.0.run.clone(), names(some), self.is_in_touch());
            let take: Work<(Vec<String>, Vec<String>)> = Arc::new(move |connection| {
                let (run, groups) = (run.clone(), groups.clone());
                Box::pin(async move {
                    let first = "select name from unnest($1::text[]) as new (name)
                                 where not exists (select from askd.held where group_name = name)";
                    let mut first: Vec<String> = scalar(first).bind(&groups).fetch_all(&mut *connection).await?;
                    let take = scalar("select * from askd.take_groups($1::uuid, $2, $3, $4, $5)").bind(&run);
                    let take = take.bind(groups).bind(leads).bind(revokes).bind(LEASE.as_secs_f64());
                    let taken: Vec<String> = take.fetch_all(&mut *connection).await?;
                    let taken = begin_with(connection, run, taken).await?;
                    first.retain(|group| taken.contains(group));
                    Ok((taken, first))
                })
            });
            // If it is lost with a failover of the server, another one may hold a group, too, until this one looks again.
            let (new, first) = database.transact(Durable::Yes, check, take).await?;
            self.0.groups.lock().first.extend(parsed(&first));
            taken.extend(parsed(&new));
        }
        Ok(taken)
    }

    /// Drops what the tables do not give to this run. Returns what they give, and with which it has to begin: also what it was to hand over,
    /// and still holds.
    async fn compare(&self, database: &Connections, check: &str) -> Result<Vec<Group>, Failed> {
        let all = statement("select group_name from askd.held where run = $1::uuid").bind(self.0.run.clone());
        let given: HashSet<Group> = parsed(&database.read(false, all.all()).await?).into_iter().collect();
        let (new, lost) = {
            let mut known = self.0.groups.lock();
            known.ending.clear();
            let lost: Vec<Group> = known.held.keys().filter(|group| !given.contains(*group)).cloned().collect();
            let new: Vec<Group> = given.into_iter().filter(|group| !known.held.contains_key(group)).collect();
            (new, lost)
        };
        for group in &lost {
            self.drop_group(group);
        }
        if new.is_empty() {
            return Ok(new);
        }
        let (run, new) = (self.0.run.clone(), names(&new));
        let begin: Work<Vec<String>> = Arc::new(move |connection| {
            let (run, new) = (run.clone(), new.clone());
            Box::pin(begin_with(connection, run, new))
        });
        database.transact(Durable::Yes, check, begin).await.map(|begun| parsed(&begun))
    }

    /// Whether the tables give other groups to this run than it knows of, as far as their number says.
    fn differs(&self, seen: &Seen) -> bool {
        let known_era = self.0.found.lock().era.clone();
        let known = self.0.groups.lock();
        !known.ending.is_empty() || known.held.len() != seen.mine || seen.era.is_none() || seen.era != known_era
    }

    async fn look(&self, database: &Connections, leads: bool) -> Result<Seen, Failed> {
        let look =
            statement(LOOK).bind(self.0.run.clone()).bind(leads).bind(LEASE.as_secs_f64()).bind(self.is_in_touch());
        let seen: String = database.read(false, look.one()).await?;
        serde_json::from_str(&seen).map_err(|error| Failed::Unchanged(error.to_string()))
    }

    /// Has a leader that opens hold what nobody holds, so that it begins with all of it at once. What it cannot take now, it takes later.
    /// The caller has the turn.
    pub(super) async fn take_free(&self, database: &Connections, check: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let taken = match self.look(database, true).await {
                Ok(seen) => self.take(database, check, &parsed(&seen.free), true).await,
                Err(error) => Err(error),
            };
            let many = taken.as_ref().map_or(0, Vec::len);
            all.extend(names(&taken.unwrap_or_default()));
            if many < SOME {
                return all;
            }
        }
    }

    pub(super) async fn tend(
        self,
        database: Connections,
        check: String,
        leads: bool,
        takes: bool,
    ) -> Result<Tended, Failed> {
        let _turn = self.0.turn.lock().await;
        let mut seen = self.look(&database, leads).await?;
        if self.differs(&seen) {
            let new = self.compare(&database, &check).await?;
            {
                let mut found = self.0.found.lock();
                (found.era, found.mine) = (seen.era.take(), seen.mine);
            }
            if !new.is_empty() {
                // Its questions wait: whatever else there is to do, and may fail, comes after it.
                return Ok(Tended { new, more: true, surplus: None });
            }
        }
        if takes && !seen.takes {
            self.may_be_given(&database, &check, true).await?;
        }
        let new = self.take(&database, &check, &parsed(&seen.free), leads).await?;
        {
            let mut found = self.0.found.lock();
            (found.mine, found.unserved) = (seen.mine + new.len(), seen.unserved.saturating_sub(new.len()));
        }
        Ok(Tended { more: new.len() == SOME, new, surplus: self.surplus(seen, leads) })
    }

    fn surplus(&self, seen: Seen, leads: bool) -> Option<Surplus> {
        let held = self.count();
        if seen.older {
            // Whoever leads then does everything.
            return seen.leader.filter(|_| !leads && held > 0).map(|to| Surplus { to, most: SOME });
        }
        let (to, least) = seen.runs.into_iter().min_by_key(|(_, number)| *number)?;
        (held >= least + LEVEL).then(|| Surplus { to, most: ((held - least) / 2).min(SOME) })
    }

    /// Hands over groups that are to go, unless that was called off. `false`: that run cannot have them.
    pub(super) async fn hand_over(
        self,
        database: Connections,
        check: String,
        to: String,
        mut groups: Vec<Group>,
    ) -> Result<bool, Failed> {
        let _turn = self.0.turn.lock().await;
        groups.retain(|group| self.0.groups.lock().ending.contains(group));
        let hand = statement("select askd.hand_over($1::uuid, $2::uuid, $3)");
        let hand = hand.bind(self.0.run.clone()).bind(to.clone()).bind(names(&groups));
        let handed: bool = database.transact(Durable::Yes, &check, hand.one()).await?;
        if handed {
            self.0.groups.lock().ending.retain(|group| !groups.contains(group));
            let mut found = self.0.found.lock();
            found.mine = found.mine.saturating_sub(groups.len());
        }
        Ok(handed)
    }
}
