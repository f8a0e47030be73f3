//! The database is away, or hangs: who waits for it, and who leads afterwards.

use crate::harness::{SOON, within};
use crate::on_postgres::{Database, host};
use crate::several_daemons::{Cluster, meanwhile};
use serde_json::json;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a webhook may wait for the database, and what a busy machine adds.
const TOLD: Duration = Duration::from_secs(4);
/// Longer than a lease lasts.
const LAPSED: Duration = Duration::from_secs(18);

/// The database hangs, and so many call at once.
pub(crate) fn all_are_told_in_time(database: &Database, count: usize, call: &(dyn Fn(usize) -> u16 + Sync)) {
    let hang = "begin; lock table askd.asks, askd.runs, askd.memory in access exclusive mode; select pg_sleep(60)";
    let mut hanging =
        Command::new("psql").args(["-Xq", &database.url(), "-c", hang]).stderr(Stdio::null()).spawn().unwrap();
    let locked = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = 'askd.memory'::regclass and granted";
    within(SOON, "the database to hang", || (database.query(locked) != ["0"]).then_some(()));
    let all: Vec<(u16, Duration)> = thread::scope(|scope| {
        let begin = |number: usize| {
            scope.spawn(move || {
                let since = Instant::now();
                (call(number), since.elapsed())
            })
        };
        let all: Vec<_> = (0..count).map(begin).collect();
        all.into_iter().map(|call| call.join().unwrap()).collect()
    });
    database.query("select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(60)' and pid <> pg_backend_pid() and datname = current_database()");
    hanging.wait().unwrap();
    assert!(all.iter().all(|(status, took)| *status == 503 && *took < TOLD), "{all:?}");
}

/// Whoever waits for the same thing while the database hangs is told at once with the first one, and not in turn.
fn nobody_waits_in_turn(sabotage: Option<&'static str>) {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    if let Some(name) = sabotage {
        host.world.set_env("ASKD_SABOTAGE", name);
    }
    host.world.start();
    let agent = host.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let ask = host.world.open_of("r1");
    let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"});
    let answer = |_: usize| host.world.answer(&ask, &answers).0;
    let asks = |number: usize| agent.ask(&format!("new-{number}"), "And this?").0;
    let looks = |number: usize| agent.call("GET", &format!("/asks/unknown-{number}"), "").0;
    let calls: [&(dyn Fn(usize) -> u16 + Sync); 3] = [&answer, &asks, &looks];
    all_are_told_in_time(&database, 18, &|number| calls[number % calls.len()](number));
    within(SOON, "the daemon to go on", || (host.world.answer(&ask, &answers).0 == 200).then_some(()));
}

#[test]
fn while_the_database_hangs_all_who_wait_for_it_are_told_in_time() {
    nobody_waits_in_turn(None);
}

#[test]
fn calls_that_wait_for_a_hanging_database_in_turn_are_noticed() {
    if Database::found().is_some() {
        let noticed = thread::spawn(|| nobody_waits_in_turn(Some("inturn"))).join().is_err();
        assert!(noticed, "inturn: nobody noticed");
    }
}

/// All daemons were cut off alike. Whoever took the lead from a living leader would end it, and all calls that wait there.
#[tokio::test(flavor = "multi_thread")]
async fn after_the_database_was_away_the_same_daemon_leads() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let leader = || cluster.database.query("select holder from askd.groups where name = '*'");
    let before = leader();
    cluster.database.away(true);
    tokio::time::sleep(LAPSED).await;
    cluster.database.away(false);
    for host in &cluster.hosts {
        let ready = || (host.world.raw("GET", "/readyz", "", "").0 == 200).then_some(());
        meanwhile(|| within(SOON, "each daemon to be ready again", ready));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(leader(), before);
}
