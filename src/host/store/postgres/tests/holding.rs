//! Which run holds which group.

use super::super::holding::Renewed;
use super::edges::two;
use super::*;
use crate::clock::Clock;
use crate::host::store::{LeftTo, Surplus, Tended};
use askd_core::Effect;
use std::time::Duration;

/// Two daemons. All questions have the same code.
fn daemons(server: &Server) -> [Opened; 2] {
    let both = two(server);
    server.sql("drop index askd.asks_short");
    both
}

fn group(name: &str) -> Group {
    name.parse().unwrap()
}

/// Asks something in a group, and leaves something to its holder, or to the leader.
fn asked(of: &Opened, number: u128, name: &str, of_leader: bool) {
    let effects = vec![Effect::Status];
    let left = if of_leader {
        LeftTo { leader: effects, unpinned: true, ..LeftTo::default() }
    } else {
        LeftTo { holder: effects, unpinned: true, ..LeftTo::default() }
    };
    let (ask, shared) = (Arc::new(ask(number, name)), of.store.shared().unwrap());
    let given = shared.given(&ask.group);
    shared.save(&ask, &Basis::New(given), Along { left: Some(&left), ..Along::default() }, Save::Now).unwrap();
}

fn begins(of: &Opened) -> Vec<String> {
    let shared = of.store.shared().unwrap();
    let mut new = shared.tend(true).unwrap().new;
    new.retain(|group| shared.begin(group));
    let mut names: Vec<String> = new.iter().map(Group::to_string).collect();
    names.sort();
    names
}

fn owed(of: &Opened) -> usize {
    of.store.shared().unwrap().owed().unwrap().len()
}

/// The run of the daemon of that name.
fn run_of(server: &Server, node: &str) -> String {
    server.sql(&format!("select run::text from askd.runs where node = '{node}'")).remove(0)
}

/// The first daemon asks something in a group, takes it, and hands it to the other one, which begins with it.
fn handed(server: &Server, [one, other]: &[Opened; 2], number: u128, name: &str) {
    asked(one, number, name, false);
    assert_eq!(begins(one), [name]);
    begins(other);
    assert!(one.store.shared().unwrap().end(&group(name)));
    assert!(one.store.shared().unwrap().hand_over(&run_of(server, "other"), &[group(name)]).unwrap());
    assert_eq!(begins(other), [name]);
}

#[test]
fn the_leader_holds_what_nobody_holds_and_hands_a_group_over_once_nothing_keeps_it() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    asked(&other, 1, "a", false);
    asked(&other, 2, "b", false);
    assert_eq!((owed(&one), owed(&other)), (0, 0), "nobody holds the group, or has begun with it");
    assert!(begins(&other).is_empty(), "it does not lead");
    assert_eq!(begins(&one), ["a", "b"]);
    assert!(of_one.holds(&group("a")) && !of_other.holds(&group("a")) && begins(&one).is_empty());
    assert_eq!(server.sql("select count(*)::text from askd.owed"), ["0"], "a holder finds that out from the asks");
    assert!(of_other.take(&[group("a")]).unwrap().is_empty(), "another one holds it");
    of_other.learned(vec![(group("a"), 1), (group("b"), 1)]);
    asked(&other, 3, "a", false);
    asked(&other, 4, "a", true);
    assert_eq!((owed(&one), owed(&other)), (2, 0));
    // It goes only while nothing keeps it here.
    let run = run_of(&server, "other");
    let kept = of_one.tenure(&group("a")).unwrap();
    assert!(!of_one.end(&group("a")) && of_one.holds(&group("a")), "something keeps it here");
    drop(kept);
    assert!(of_one.end(&group("a")) && !of_one.holds(&group("a")) && of_one.tenure(&group("a")).is_none());
    assert_eq!(owed(&one), 1, "what the leader does");
    assert!(begins(&other).is_empty());
    assert!(of_one.hand_over(&run, &[group("a")]).unwrap());
    assert_eq!((begins(&one), begins(&other)), (vec![], vec!["a".to_owned()]));
    assert_eq!((owed(&one), owed(&other)), (1, 0));
    of_one.learned(vec![(group("b"), 1)]);
    asked(&one, 5, "b", false);
    assert_eq!((owed(&one), owed(&other)), (2, 0));
    let nobody = "00000000-0000-0000-0000-000000000000";
    assert!(of_one.end(&group("b")));
    assert!(!of_one.hand_over(nobody, &[group("b")]).unwrap(), "it is not there");
    assert_eq!((begins(&one), owed(&one)), (vec!["b".to_owned()], 1), "it still holds it, and begins with it anew");
    assert!(of_one.hand_over(&run, &[group("b")]).unwrap() && of_one.holds(&group("b")), "that was called off");
    assert!(begins(&other).is_empty());
    // A planned stop lets them go.
    other.store.close().unwrap();
    assert_eq!(begins(&one), ["a"]);
}

#[test]
fn groups_go_to_a_daemon_that_has_much_fewer() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    for number in 1..13 {
        asked(&one, number, &format!("g{number}"), false);
    }
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    assert_eq!(begins(&one).len(), 12);
    // Not before that works, and not once it stops.
    let six: Vec<Group> = of_one.held().into_iter().take(6).collect();
    let surplus = || of_one.tend(true).unwrap().surplus;
    assert!(surplus().is_none(), "it may never work");
    assert!(begins(&other).is_empty() && surplus().is_some());
    of_other.rest().unwrap();
    assert!(surplus().is_none() && six.iter().all(|group| of_one.end(group)));
    assert!(!of_one.hand_over(&run_of(&server, "other"), &six).unwrap(), "it stops");
    assert_eq!(begins(&one).len(), 6);
    begins(&other);
    let Tended { new, surplus, .. } = of_one.tend(true).unwrap();
    let Surplus { to, most } = surplus.unwrap();
    assert_eq!((new.len(), most, &to), (0, 6, &run_of(&server, "other")));
    assert!(six.iter().all(|group| of_one.end(group)));
    assert!(of_one.hand_over(&to, &six).unwrap());
    assert_eq!((of_one.unserved(), of_other.unserved()), (0, 0));
    of_other.tend(true).unwrap();
    assert_eq!(of_other.unserved(), 6, "it has not begun with them");
    assert_eq!(begins(&other).len(), 6);
    assert_eq!(of_other.unserved(), 0);
    assert!(
        of_one.tend(true).unwrap().surplus.is_none()
            && other.store.shared().unwrap().tend(true).unwrap().surplus.is_none()
    );
}

/// A run that is silent loses its groups, and whatever it would save. Not so when the database was away, or its clock was set.
#[test]
fn a_silent_run_loses_its_groups_and_saves_nothing_more() {
    let Some(server) = Server::found() else { return };
    let both = daemons(&server);
    let [one, other] = &both;
    let [of_one, of_other] = [one, other].map(|opened| opened.store.shared().unwrap());
    handed(&server, &both, 1, "a");
    let silent = || {
        let until = "update askd.runs set until = now() - interval '1 s' where node = 'other'";
        server.sql(until);
    };
    silent();
    assert!(begins(one).is_empty(), "it has only just come");
    // The clock was set: nobody has had the time to renew a lease.
    server.sql("update askd.runs set until = now() - interval '1 s'");
    let mut looks = 0;
    while of_one.tend(true).unwrap().new.is_empty() {
        looks += 1;
        assert!(looks < 100, "it does not take the group");
        silent();
        server.sql("select pg_sleep(0.2)::text");
    }
    assert!(looks > 5, "{looks} looks");
    assert!(of_one.begin(&group("a")));
    of_other.learned(vec![(group("a"), 1)]);
    let late = Arc::new(ask(7, "a"));
    assert!(matches!(of_other.save(&late, &Basis::New(1), Along::default(), Save::Now), Err(StoreError::Io { .. })));
    assert!(other.store.overtaken().is_cancelled() && !other.store.is_ours() && one.store.is_ours());
}

/// Whatever a run has begun to save is saved before anybody overtakes it, and nothing after.
#[test]
fn a_run_that_is_saving_is_not_overtaken_meanwhile() {
    let Some(server) = Server::found() else { return };
    let both = daemons(&server);
    handed(&server, &both, 1, "a");
    let (run, other) = (run_of(&server, "other"), run_of(&server, "one"));
    let hold = format!("begin; select askd.hold_run('{run}')");
    let take = format!(
        "update askd.runs set until = now() - interval '1 s' where run = '{run}';
         select * from askd.take_groups('{other}', array['a'], true, true, 15)"
    );
    let end = format!("set statement_timeout = 300; delete from askd.runs where run = '{run}'");
    let holder = || server.sql("select run::text from askd.held where group_name = 'a'").remove(0);
    server.runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(PgConnection::connect(&server.url).await.unwrap());
        }
        let [one, another, third] = connections.get_disjoint_mut([0, 1, 2]).unwrap();
        for writer in [&mut *one, &mut *another] {
            sqlx::raw_sql(&hold).execute(writer).await.unwrap();
        }
        sqlx::raw_sql("commit").execute(one).await.unwrap();
        sqlx::raw_sql(&take).execute(&mut *third).await.unwrap();
        assert!(sqlx::raw_sql(&end).execute(&mut *third).await.is_err(), "it waits for the writer");
        sqlx::raw_sql("commit").execute(another).await.unwrap();
    });
    assert_eq!(holder(), run);
    server.sql(&take);
    assert_eq!(holder(), other);
    let late = server.runtime.block_on(async {
        let mut writer = PgConnection::connect(&server.url).await.unwrap();
        sqlx::raw_sql(&hold).execute(&mut writer).await
    });
    assert!(late.unwrap_err().to_string().contains("another askd has taken over"));
}

/// A daemon that knows of one lease only takes it for that of all groups.
#[test]
fn beside_an_earlier_version_the_leader_holds_all_groups() {
    let Some(server) = Server::found() else { return };
    let both = daemons(&server);
    let [one, other] = &both;
    let [of_one, of_other] = [one, other].map(|opened| opened.store.shared().unwrap());
    handed(&server, &both, 1, "a");
    server.sql(
        "insert into askd.nodes (run, node, home, version, reads, knows, heard)
         values (gen_random_uuid(), 'old-host', gen_random_uuid(), '0', 3, 12, now())",
    );
    let surplus = of_other.tend(true).unwrap().surplus.unwrap();
    assert_eq!(surplus.to, run_of(&server, "one"));
    asked(one, 2, "b", false);
    assert!(of_other.take(&[group("b")]).unwrap().is_empty(), "only the leader takes any");
    assert_eq!(begins(one), ["b"]);
    assert!(of_one.tend(true).unwrap().surplus.is_none());
    let takes = "update askd.groups set holder = gen_random_uuid(), fence = fence + 1, node = 'old-host', home = gen_random_uuid(),
                     until = now() + interval '15 s' where name = '*' returning node";
    assert!(server.sql(takes).is_empty(), "live runs hold groups");
    server.sql("update askd.runs set until = now() - interval '1 s'");
    assert_eq!(server.sql(takes), ["old-host"]);
    let late = Arc::new(ask(7, "late"));
    for of in [of_one, of_other] {
        assert!(matches!(of.save(&late, &Basis::New(0), Along::default(), Save::Now), Err(StoreError::Io { .. })));
    }
}

/// Its lease is over after the database was away, and nobody has taken anything: it begins with nothing anew.
#[test]
fn a_leader_whose_lease_is_late_keeps_what_others_ask_for() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    asked(&other, 1, "a", false);
    assert_eq!(begins(&one), ["a"]);
    other.store.shared().unwrap().learned(vec![(group("a"), 1)]);
    asked(&other, 2, "a", false);
    server.sql("update askd.runs set until = now() - interval '1 s'");
    assert_eq!((begins(&one).len(), owed(&one)), (0, 1));
    let of_one = one.store.shared().unwrap();
    assert!(of_one.take(&[group("a")]).unwrap().is_empty() && owed(&one) == 1);
}

/// A failover has lost that a group was handed over, or that it was taken.
#[test]
fn what_the_tables_give_to_another_run_is_dropped_and_nothing_is_saved_for_it() {
    let Some(server) = Server::found() else { return };
    let both = daemons(&server);
    let [of_one, of_other] = [&both[0], &both[1]].map(|opened| opened.store.shared().unwrap());
    handed(&server, &both, 1, "a");
    let back = |name: &str| {
        server.sql(&format!("update askd.held set run = '{}' where group_name = '{name}'", run_of(&server, "one")));
    };
    back("a");
    let known = of_other.look().unwrap().changed.remove(0).ask;
    let (known, later) = (Arc::new(known.clone()), Arc::new(settled(known)));
    let known = both[1].store.load(&known.group, known.id).unwrap().unwrap();
    let save = |of_holder| {
        of_other.save(&later, &Basis::Ask(Arc::clone(&known)), Along { of_holder, ..Along::default() }, Save::Now)
    };
    assert!(of_other.holds(&group("a")), "it does not know yet");
    assert!(matches!(save(true), Err(StoreError::Stale)), "what it has done");
    assert!(!of_other.holds(&group("a")) && !both[1].store.overtaken().is_cancelled());
    // Any daemon takes an answer.
    of_other.look().unwrap();
    let known = both[1].store.load(&known.group, known.id).unwrap().unwrap();
    of_other.save(&later, &Basis::Ask(known), Along::default(), Save::Now).unwrap();
    assert_eq!(begins(&both[0]), ["a"]);
    // As many as before, and others.
    for (number, name) in [(2, "b"), (3, "c")] {
        handed(&server, &both, number, name);
    }
    back("b");
    asked(&both[0], 4, "d", false);
    server.sql(&format!("insert into askd.held (group_name, run) values ('d', '{}')", run_of(&server, "other")));
    assert!(begins(&both[1]).is_empty() && of_other.holds(&group("b")), "nobody expects it");
    server.crash();
    assert_eq!(begins(&both[1]), ["d"]);
    assert_eq!(["b", "c", "d"].map(|name| of_other.holds(&group(name))), [false, true, true]);
    assert_eq!(begins(&both[0]), ["b"]);
    assert!(of_one.holds(&group("b")));
}

/// The groups of a silent run have to wait. What nobody ever held does not.
#[test]
fn a_new_group_does_not_wait_for_many_of_a_silent_run() {
    let Some(server) = Server::found() else { return };
    let [one, _other] = daemons(&server);
    server.sql(
        "with silent as (insert into askd.runs (run, node, home, until)
             values (gen_random_uuid(), 'silent', gen_random_uuid(), now() - interval '1 s') returning run)
         insert into askd.held (group_name, run) select 'of-silent-' || number, run from silent, generate_series(1, 5000) as number",
    );
    asked(&one, 1, "new", false);
    assert_eq!(begins(&one), ["new"]);
    let of_one = one.store.shared().unwrap();
    assert_eq!(of_one.unserved(), 5_000);
    server.sql("delete from askd.runs where node = 'silent'");
    let Tended { new, more, .. } = of_one.tend(true).unwrap();
    assert_eq!((new.len(), more, of_one.unserved()), (500, true, 5_000), "it has not begun with them");
}

/// A late leader keeps the row of its lease while it waits for the lock.
#[test]
fn who_takes_the_lead_waits_for_nobody_who_takes_groups() {
    let Some(server) = Server::found() else { return };
    let [one, _other] = daemons(&server);
    asked(&one, 1, "a", false);
    server.sql("update askd.groups set until = now() - interval '1 s'");
    server.runtime.block_on(async {
        let mut busy = PgConnection::connect(&server.url).await.unwrap();
        sqlx::raw_sql("begin; select pg_advisory_xact_lock(7161075)").execute(&mut busy).await.unwrap();
        let mut leader = PgConnection::connect(&server.url).await.unwrap();
        let takes = "set statement_timeout = 1000;
                     update askd.groups set holder = gen_random_uuid(), fence = fence + 1, node = 'other' where name = '*'";
        sqlx::raw_sql(takes).execute(&mut leader).await.unwrap();
    });
}

/// What was copied has no count, and a holder that stops lets all its groups go.
#[test]
fn a_group_that_was_copied_is_held_again_after_its_holder_has_stopped() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    let (of_one, copied) = (one.store.shared().unwrap(), [group("copied")]);
    assert!(begins(&one).is_empty() && begins(&other).is_empty());
    // As the leader does that has read everything.
    assert_eq!(of_one.take(&copied).unwrap(), copied);
    assert!(of_one.begin(&copied[0]) && of_one.end(&copied[0]));
    assert!(of_one.hand_over(&run_of(&server, "other"), &copied).unwrap());
    assert_eq!(begins(&other), ["copied"]);
    other.store.close().unwrap();
    assert_eq!(begins(&one), ["copied"]);
}

/// The daemon may say nothing any more, or take nothing. It begins all the same with what it holds already.
#[test]
fn what_a_look_has_found_is_begun_with_though_what_follows_fails() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    let of_one = one.store.shared().unwrap();
    asked(&one, 1, "a", false);
    assert_eq!(begins(&one), ["a"]);
    begins(&other);
    assert!(of_one.end(&group("a")) && of_one.hand_over(&run_of(&server, "other"), &[group("a")]).unwrap());
    server.sql(
        "update askd.runs set takes = false;
         create function askd.fail() returns trigger language plpgsql as 'begin raise ''failed''; end';
         create trigger fails before update of takes on askd.runs for each row execute function askd.fail()",
    );
    assert_eq!(begins(&other), ["a"]);
    assert!(other.store.shared().unwrap().tend(true).is_err(), "that comes later");
}

/// Else one slow statement would add some seconds to each takeover.
#[test]
fn one_renewal_that_fails_does_not_keep_a_run_from_taking_groups() {
    let (clock, hand) = Clock::by_hand(conformance::START);
    let holding = Holding::new("run".to_owned(), clock.clone());
    let after = |seconds: u64, renewed: Renewed| {
        hand.advance(Duration::from_secs(seconds));
        holding.renewed(clock.monotonic(), renewed);
        holding.is_in_touch()
    };
    assert_eq!([0, 3, 3].map(|seconds| after(seconds, Renewed::InTime)), [false, false, true]);
    assert!(after(3, Renewed::Unknown) && after(3, Renewed::InTime), "one has failed");
    // The database is away for longer: then others may be late.
    assert!(after(3, Renewed::Unknown));
    after(3, Renewed::Unknown);
    assert!(!after(3, Renewed::Unknown), "it may be about to come back");
    assert_eq!([3, 3, 3].map(|seconds| after(seconds, Renewed::InTime)), [false, false, true]);
    assert!(!after(1, Renewed::Late), "its own lease was over");
}

/// It could not read what is stored. What it has saved may not be on stable storage, so that is no clean end.
#[test]
fn a_daemon_that_ends_early_lets_its_groups_and_the_lead_go() {
    let Some(server) = Server::found() else { return };
    let [one, _other] = daemons(&server);
    asked(&one, 1, "a", false);
    assert_eq!(begins(&one), ["a"]);
    one.store.shared().unwrap().let_go().unwrap();
    assert!(server.sql("select node from askd.groups where until > now()").is_empty());
    assert!(server.sql("select group_name from askd.held").is_empty());
    assert_eq!(server.sql("select node from askd.nodes order by 1"), ["one", "other"]);
}
