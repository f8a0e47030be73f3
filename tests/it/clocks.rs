//! The clocks of several daemons: each goes by the database's, and says so if that and its own are far apart.

use crate::doctor::doctor;
use crate::harness::{SOON, World, within};
use crate::on_postgres::Database;
use crate::remote::Remote;
use crate::several_daemons::meanwhile;
use crate::timing::faketime;
use serde_json::{Value, json};
use std::thread;

/// The clock of one host is an hour fast. The daemons go by the database's.
#[test]
fn the_clock_of_a_host_makes_no_difference() {
    a_host_is_an_hour_ahead(None);
}

fn a_host_is_an_hour_ahead(sabotage: Option<&'static str>) {
    let (Some(database), Some(faketime)) = (Database::found(), faketime()) else { return };
    let text = "[asks]\ntimeout = \"30m\"\n[groups.research]\nroutes = [{ channel = \"web\" }]\n";
    let host = |number: usize| {
        let settings = database.settings(&format!("host-{number}"));
        let world = World::empty().in_files().with_binary().config(text).more_config(&settings);
        let world = sabotage.into_iter().fold(world, |world, name| world.env("ASKD_SABOTAGE", name));
        let ahead = faketime.into_iter().chain([("FAKETIME", "+3600")]).filter(|_| number == 1);
        Remote::ready(ahead.fold(world, |world, (name, value)| world.env(name, value)))
    };
    let mut hosts = [host(0), host(1)];
    for host in &mut hosts {
        host.world.start_waiting();
        within(SOON, "a daemon to be well", || (host.world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    }
    for (request, asks) in [("r1", 0), ("r2", 1)] {
        let agent = hosts[asks].agent("research");
        assert_eq!(agent.ask(request, "Deploy?").0, 201);
        hosts[1 - asks].answer(request, "yes");
        assert_eq!(agent.outcome(request)["result"]["answers"], json!({"Deploy?": "yes"}));
    }
    let ages = "select abs(extract(epoch from (record -> 'waiters' -> 0 ->> 'asked_at')::timestamptz - clock_timestamp()))::integer::text from askd.asks";
    let ages = database.query(ages);
    assert!(ages.len() == 2 && ages.iter().all(|age| age.parse::<u32>().unwrap() < 60), "{ages:?}");
}

#[test]
fn a_daemon_that_goes_by_its_own_clock_is_noticed() {
    if Database::found().is_some() && faketime().is_some() {
        let noticed = thread::spawn(|| a_host_is_an_hour_ahead(Some("ownclock"))).join().is_err();
        assert!(noticed, "ownclock: nobody noticed");
    }
}

/// Has the server tell a time of day that is so far ahead.
fn set(database: &Database, ahead: &str) {
    database.query(&format!("update fake.clock set ahead = '{ahead}'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_far_behind_the_databases_is_told() {
    const OFF: &str = "clock is 5 s behind the database's";
    let Some(database) = Database::found() else { return };
    database.query(
        "create schema fake;
         create table fake.clock as select interval '0 s' as ahead;
         create function fake.clock_timestamp() returns timestamptz language sql
             as 'select pg_catalog.clock_timestamp() + ahead from fake.clock';
         do 'begin execute format(''alter database %I set search_path = fake, pg_catalog, public'', current_database()); end'",
    );
    let mut world = World::empty().in_files().with_binary().config(&database.settings("host-0"));
    world.start();
    let ready = |world: &World| world.raw("GET", "/readyz", "", "").1;
    let is = |world: &World, told: &str| ready(world).contains(told).then_some(());
    meanwhile(|| within(SOON, "the daemon to be well", || is(&world, "ready\n")));
    // It follows the database's clock in small steps.
    set(&database, "5.5 s");
    meanwhile(|| within(SOON, "the clock to be noticed", || is(&world, OFF)));
    let (_, status): (_, Value) = meanwhile(|| world.call("GET", "/status", None));
    let problem =
        status["problems"].as_array().unwrap().iter().find(|problem| problem["line"] == format!("askd's {OFF}"));
    assert!(problem.unwrap()["fix"].as_str().unwrap().contains("timedatectl set-ntp true"), "{status}");
    let (faults, told) = doctor(&world, "").await;
    assert!(faults.iter().any(|(check, _)| check == "database clock"), "{told}");
    assert!(told.contains("this host's clock and the database's differ by 5 s"), "{told}");
    set(&database, "0 s");
    meanwhile(|| within(SOON, "the daemon to be well again", || is(&world, "ready\n")));
}
