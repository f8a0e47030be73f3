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
