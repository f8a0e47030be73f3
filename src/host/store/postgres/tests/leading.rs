//! Who takes the lead.

use super::*;
use crate::clock::Clock;
use std::time::Duration;

/// When the database comes back, a leader that was cut off like everybody else has the time to renew its lease.
#[test]
fn a_lapsed_lease_is_taken_by_a_daemon_that_is_in_touch_and_one_that_was_given_up_by_any() {
    let Some(server) = Server::found() else { return };
    let _first = server.opened("first");
    let leads = |waiting: &Waiting, limit: u64| {
        let (clock, limit) = (Clock::system(), Duration::from_secs(limit));
        let led = async { clock.timeout(limit, waiting.clone().lead()).await };
        server.runtime.block_on(led).is_some_and(|led| led.unwrap().leads())
    };
    // Nobody renews it, or comes back.
    let leaves = |until: &str| {
        server.sql(&format!(
            "update askd.groups set holder = gen_random_uuid(), home = gen_random_uuid(), node = 'gone', until = {until}"
        ));
    };
    let (_second, waiting) = server.joins("second");
    leaves("now() - interval '1 s'");
    assert!(!leads(&waiting, 2), "it has just come");
    assert!(leads(&waiting, 20));
    let (_third, waiting) = server.joins("third");
    leaves("'-infinity'");
    assert!(leads(&waiting, 2));
    let (_fourth, waiting) = server.joins("fourth");
    leaves("now() + interval '1 hour'");
    assert!(leads(&waiting, 40), "the server's clock was set back since");
    // Set forward, it ends all leases at once: this daemon has been in touch, and so was whoever leads.
    let (_fifth, waiting) = server.joins("fifth");
    leaves("now() + interval '10 s'");
    assert!(!leads(&waiting, 8));
    // The next renewal comes in 3 s.
    let renewed = || server.sql("select until::text from askd.runs where node = 'fifth'");
    let before = renewed();
    while renewed() == before {
        server.runtime.block_on(Clock::system().sleep(Duration::from_millis(50)));
    }
    server.sql("update askd.runs set until = now() - interval '1 s'");
    leaves("now() - interval '1 s'");
    assert!(!leads(&waiting, 2), "its own lease was over as well");
    assert!(leads(&waiting, 20));
}

/// Who starts while the database is away finds a leader that was cut off just as long.
#[test]
fn a_daemon_that_waited_for_the_database_does_not_take_the_lead_from_one_that_did() {
    let Some(server) = Server::found() else { return };
    let _first = server.opened("first");
    let name = server.url.rsplit('/').next().unwrap();
    let elsewhere = format!("{}/postgres", server.url.strip_suffix(name).unwrap().trim_end_matches('/'));
    let on = |url: &str, text: &str| {
        server.runtime.block_on(async {
            let mut connection = PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
        });
    };
    let waiting = server.waiting("second", false).unwrap();
    // Nobody gets in, the leader with its renewals included.
    on(
        &elsewhere,
        &format!(
            "alter database {name} allow_connections false; select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
        ),
    );
    let turn = server.runtime.spawn(waiting.turn());
    server.runtime.block_on(Clock::system().sleep(Duration::from_secs(2)));
    assert!(!turn.is_finished());
    on(&elsewhere, &format!("alter database {name} allow_connections true"));
    server.sql("update askd.groups set until = now() - interval '1 s' where until > '-infinity'");
    let turn = server.runtime.block_on(turn).unwrap().unwrap();
    assert!(matches!(turn, Turn::Joins(..)), "{turn:?}");
}

/// At the return of the database, the first daemon that comes finds that the others have said nothing for as long as it was away.
#[test]
fn who_joins_after_a_long_outage_ends_no_other_daemon() {
    let Some(server) = Server::found() else { return };
    let first = server.opened("first");
    server.sql(
        "update askd.runs set until = now() - interval '2 hours'; update askd.nodes set heard = now() - interval '2 hours'",
    );
    let _second = server.joins("second");
    first.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    assert!(!first.store.overtaken().is_cancelled());
}

/// One statement that fails, while a daemon takes the lead or reads what is stored, ends it no more: it tries again.
#[test]
fn a_database_that_is_away_for_a_moment_ends_no_daemon_that_begins() {
    let Some(server) = Server::found() else { return };
    let known = {
        let first = server.opened("first");
        let known = Arc::new(ask(1, "g"));
        first.store.save(&known, Save::Now).unwrap();
        first.store.close().unwrap();
        known
    };
    let url = server.url.clone();
    let away = move |from: &'static str, until: &'static str| {
        let url = url.clone();
        let (gone, is_gone) = std::sync::mpsc::channel();
        let back = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                sqlx::raw_sql(from).execute(&mut connection).await.unwrap();
                gone.send(()).unwrap();
                Clock::system().sleep(Duration::from_millis(2_200)).await;
                sqlx::raw_sql(until).execute(&mut connection).await.unwrap();
            });
        });
        is_gone.recv().unwrap();
        back
    };
    // The first thing that it writes waits for longer than a statement may take.
    let back = away("begin; select from askd.format for update", "rollback");
    let turn = server.runtime.block_on(server.waiting("second", false).unwrap().turn());
    let Ok(Turn::Leads(second)) = turn else { panic!("it has ended: {turn:?}") };
    back.join().unwrap();
    let back = away("alter table askd.asks rename to not_there", "alter table askd.not_there rename to asks");
    assert_eq!(scan(&*second.store).unwrap().0.remove(0).ask, *known);
    back.join().unwrap();
    // Whoever stops does not wait for it.
    let back = away("alter table askd.asks rename to not_there", "alter table askd.not_there rename to asks");
    assert!(second.store.close().is_ok());
    assert!(scan(&*second.store).is_err());
    back.join().unwrap();
}
