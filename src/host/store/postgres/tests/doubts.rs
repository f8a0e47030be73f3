//! Saves of which it is not known whether the server has committed them.

use super::*;

/// The flush that finds the crash stores it again, so whoever then saves it for good has not come too late.
#[test]
fn a_save_in_doubt_that_a_crash_took_is_no_rivals_when_it_is_saved_again() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let asked = Arc::new(ask(1, "g"));
    shared.save(&asked, &Basis::New(0), Along::default(), Save::Now).unwrap();
    let viewed = step(&asked, Event::Viewed);
    let save = |how| shared.save(&viewed, &Basis::Ask(Arc::clone(&asked)), Along::default(), how);
    server.sql(
        "create sequence tries;
         create function doubt() returns trigger language plpgsql as
             'begin if nextval(''tries'') = 1 then perform pg_sleep(4); raise exception ''on purpose''; end if; return null; end';
         create constraint trigger doubt after update on askd.asks deferrable initially deferred for each row
             execute function doubt()",
    );
    assert!(matches!(save(Save::Soon), Err(StoreError::InDoubt { .. })));
    let commits =
        "select 'commits' from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    while !server.sql(commits).is_empty() {}
    server.crash();
    save(Save::Now).unwrap();
    assert_eq!(scan(&*opened.store).unwrap().0.remove(0).ask, *viewed);
}
