//! A daemon that begins: beside a copy of its host, and with tables that it has to change.

use super::*;
use crate::clock::Clock;
use sqlx::Executor as _;
use std::path::PathBuf;
use std::time::Duration;

/// Another state folder that calls itself that of the host `one`.
fn copy_of_one(server: &Server) -> PathBuf {
    let other = server.state("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::copy(server.state("one").join("home"), other.join("home")).unwrap();
    other
}

/// Whoever sets a host up from a copy of another one copies what names its state folder, too.
#[test]
fn a_host_with_a_copy_of_anothers_state_folder_takes_nothing_over() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let other = copy_of_one(&server);
    let beside = server.joins("other");
    one.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    assert!(one.store.is_ours() && !one.store.overtaken().is_cancelled());
    assert_eq!(server.sql("select node from askd.nodes order by 1"), ["one", "other"]);
    drop(beside);
    let alone = || {
        let beside = Waiting::beside(&server.url, "other", &other, false, "test-postgres").unwrap();
        server.runtime.block_on(beside.alone())
    };
    assert!(matches!(alone(), Err(StoreError::Held(_))), "one is there");
    drop(one);
    // An earlier run of the same host holds nobody up, and neither does a command on it.
    let beside = || Waiting::beside(&server.url, "one", &server.state("one"), false, "test-postgres").unwrap();
    server.sql("delete from askd.nodes where node = 'other'");
    drop(server.runtime.block_on(beside().alone()).unwrap());
    drop(server.opened("one"));
}

/// A virtual machine that is copied while it runs has the name of the first, too.
#[test]
fn a_copy_of_a_whole_host_is_a_namesake() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let other = copy_of_one(&server);
    let starts = || {
        let waiting = Waiting::new(&server.url, "one", &other, false, "test-postgres").unwrap();
        server.runtime.block_on(waiting.now())
    };
    server.sql("update askd.hosts set boot = 'of the first machine'");
    assert!(matches!(starts(), Err(StoreError::Namesake(_))));
    one.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    assert!(one.store.is_ours());
    // The machine was started anew, and took longer for that.
    server.sql("update askd.nodes set heard = now() - interval '20 s'; update askd.groups set until = now()");
    drop(starts().unwrap());
}

/// Whoever came after a daemon that waits to change the tables would wait with it.
#[test]
fn a_daemon_that_has_to_change_the_tables_waits_for_nobody() {
    let Some(server) = Server::found() else { return };
    let mut other = server.runtime.block_on(PgConnection::connect(&server.url)).unwrap();
    server.runtime.block_on(other.execute("begin; create schema askd")).unwrap();
    let (clock, began) = (Clock::system(), Clock::system().monotonic());
    let told = server.runtime.block_on(server.waiting("here", false).unwrap().now());
    assert!(matches!(&told, Err(error) if error.to_string().contains("another session uses them")), "{told:?}");
    assert!(clock.monotonic().since(began) < Duration::from_secs(10));
    server.runtime.block_on(other.close()).unwrap();
    drop(server.opened("here"));
    assert_eq!(server.sql("select tables::text from askd.format"), [super::tables::TABLES.to_string()]);
}
