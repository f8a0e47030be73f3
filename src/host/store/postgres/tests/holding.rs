//! Which run holds which group.

use super::edges::two;
use super::*;
use crate::host::store::{LeftTo, Tended};
use askd_core::Effect;

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
    let mut new = shared.tend().unwrap().new;
    new.retain(|group| shared.begin(group));
    let mut names: Vec<String> = new.iter().map(Group::to_string).collect();
    names.sort();
    names
}

fn owed(of: &Opened) -> usize {
    of.store.shared().unwrap().owed().unwrap().len()
}

fn fails(server: &Server, text: &'static str) -> bool {
    server.runtime.block_on(async {
        let mut connection = PgConnection::connect(&server.url).await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.is_err()
    })
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
    // The other one takes it up as soon as nothing keeps it here.
    let run = server.sql("select run::text from askd.runs where node = 'other'").remove(0);
    let kept = of_one.tenure(&group("a")).unwrap();
    of_one.end(&group("a"));
    assert!(!of_one.holds(&group("a")) && of_one.tenure(&group("a")).is_none() && !of_one.is_idle(&group("a")));
    assert_eq!(owed(&one), 1, "what the leader does");
    drop(kept);
    assert!(of_one.is_idle(&group("a")) && begins(&other).is_empty());
    assert!(of_one.hand_over(Some(&run), &[group("a")]).unwrap());
    assert_eq!((begins(&one), begins(&other)), (vec![], vec!["a".to_owned()]));
    assert_eq!((owed(&one), owed(&other)), (1, 0));
    of_one.learned(vec![(group("b"), 1)]);
    asked(&one, 5, "b", false);
    assert_eq!((owed(&one), owed(&other)), (2, 0));
    let nobody = "00000000-0000-0000-0000-000000000000";
    of_one.end(&group("b"));
    assert!(!of_one.hand_over(Some(nobody), &[group("b")]).unwrap(), "it is not there");
    assert!(of_one.hand_over(None, &[group("b")]).unwrap());
    assert_eq!(begins(&one), ["b"]);
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
    let of_one = one.store.shared().unwrap();
    assert_eq!(begins(&one).len(), 12);
    let Tended { new, surplus } = of_one.tend().unwrap();
    let surplus = surplus.unwrap();
    let to = surplus.to.unwrap();
    assert_eq!((new.len(), surplus.most), (0, 6));
    assert_eq!(server.sql(&format!("select node from askd.runs where run::text = '{to}'")), ["other"]);
    let six: Vec<Group> = of_one.held().into_iter().map(|(group, _)| group).take(6).collect();
    for group in &six {
        of_one.end(group);
    }
    assert!(of_one.hand_over(Some(&to), &six).unwrap());
    assert_eq!(begins(&other).len(), 6);
    assert!(
        of_one.tend().unwrap().surplus.is_none() && other.store.shared().unwrap().tend().unwrap().surplus.is_none()
    );
}

/// A run that is silent loses its groups, and whatever it would save. Not so when the database was away, or its clock was set.
#[test]
fn a_silent_run_loses_its_groups_and_saves_nothing_more() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    asked(&one, 1, "a", false);
    assert_eq!(begins(&one), ["a"]);
    let run = server.sql("select run::text from askd.runs where node = 'other'").remove(0);
    of_one.end(&group("a"));
    assert!(of_one.hand_over(Some(&run), &[group("a")]).unwrap());
    assert_eq!(begins(&other), ["a"]);
    let silent = || {
        let until = "update askd.runs set until = now() - interval '1 s' where node = 'other'";
        server.sql(until);
    };
    silent();
    assert!(begins(&one).is_empty(), "it has only just come");
    // The clock was set: nobody has had the time to renew a lease.
    server.sql("update askd.runs set until = now() - interval '1 s'");
    let mut looks = 0;
    while of_one.tend().unwrap().new.is_empty() {
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

/// A daemon that knows of one lease only takes it for that of all groups.
#[test]
fn beside_an_earlier_version_the_leader_holds_all_groups() {
    let Some(server) = Server::found() else { return };
    let [one, other] = daemons(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    asked(&one, 1, "a", false);
    assert_eq!(begins(&one), ["a"]);
    let run = server.sql("select run::text from askd.runs where node = 'other'").remove(0);
    of_one.end(&group("a"));
    assert!(of_one.hand_over(Some(&run), &[group("a")]).unwrap());
    assert_eq!(begins(&other), ["a"]);
    server.sql(
        "insert into askd.nodes (run, node, home, version, reads, knows, heard)
         values (gen_random_uuid(), 'old-host', gen_random_uuid(), '0', 3, 12, now())",
    );
    let surplus = of_other.tend().unwrap().surplus.unwrap();
    let leader = server.sql("select run::text from askd.runs where node = 'one'").remove(0);
    assert_eq!((surplus.to.as_deref(), surplus.most), (Some(leader.as_str()), 1));
    asked(&one, 2, "b", false);
    assert!(of_other.take(&[group("b")]).unwrap().is_empty(), "only the leader takes any");
    assert_eq!(begins(&one), ["b"]);
    assert!(of_one.tend().unwrap().surplus.is_none());
    let takes = "update askd.groups set holder = gen_random_uuid(), fence = fence + 1, node = 'old-host', home = gen_random_uuid(),
                     until = now() + interval '15 s' where name = '*'";
    assert!(fails(&server, takes), "live runs hold groups");
    server.sql("update askd.runs set until = now() - interval '1 s'");
    assert!(!fails(&server, takes));
    let late = Arc::new(ask(7, "late"));
    for of in [of_one, of_other] {
        assert!(matches!(of.save(&late, &Basis::New(0), Along::default(), Save::Now), Err(StoreError::Io { .. })));
    }
}
