//! Which host serves the folder of a group, and what others save meanwhile.

use super::edges::two;
use super::*;
use crate::host::store::LeftTo;

/// What a host still finds in a folder that another one serves by now changes no record, whether it knows of that or not.
#[test]
fn after_a_group_has_moved_its_former_host_saves_nothing_unawares() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let shared = one.store.shared().unwrap();
    let asked = Arc::new(conformance::ask_in_slack(1, "g"));
    assert_eq!(shared.pin(&asked.group, "one").unwrap(), Pin { host: "one".to_owned(), strange: None });
    shared.save(&asked, &Basis::New(0), Along::default(), Save::Now).unwrap();
    let moved = server.runtime.block_on(move_group(&server.url, &asked.group, "two")).unwrap();
    assert!(matches!(moved, Moved::Unknown(hosts) if hosts == ["one"]));
    server.sql("insert into askd.hosts (node, heard) values ('two', now())");
    let moved = server.runtime.block_on(move_group(&server.url, &asked.group, "two")).unwrap();
    assert!(matches!(moved, Moved::From(Some(from)) if from == "one"));
    let answered = Arc::new(settled(Ask::clone(&asked)));
    let save = || {
        let before = one.store.cached(asked.id).unwrap();
        shared.save(&answered, &Basis::Ask(before), Along::default(), Save::Now)
    };
    assert_eq!(shared.pinned(&asked.group).unwrap().host, "one");
    assert!(matches!(save(), Err(StoreError::Stale)), "it took the folder for its own");
    let pin = shared.pinned(&asked.group).unwrap();
    assert_eq!((pin.host.as_str(), pin.strange.is_some(), shared.strange().len()), ("two", true, 0));
    one.store.find(asked.id).unwrap();
    save().unwrap();
}

/// Whoever knows of no host that serves the folder would do what is that host's, and leave nothing to it.
#[test]
fn a_daemon_that_has_not_heard_of_a_folders_host_saves_nothing_unawares() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let shared = one.store.shared().unwrap();
    let unawares = |ask: &Arc<Ask>, basis: &Basis| {
        let left = LeftTo { unpinned: shared.pinned(&ask.group).is_none(), ..LeftTo::default() };
        shared.save(ask, basis, Along { left: Some(&left), ..Along::default() }, Save::Now)
    };
    let (asked, own) = (Arc::new(ask(1, "g")), Arc::new(ask(2, "own")));
    unawares(&asked, &Basis::New(0)).unwrap();
    other.store.shared().unwrap().pin(&asked.group, "other").unwrap();
    let answered = Arc::new(settled(Ask::clone(&asked)));
    assert!(matches!(unawares(&answered, &Basis::Ask(Arc::clone(&asked))), Err(StoreError::Stale)));
    assert_eq!(shared.pinned(&asked.group).unwrap().host, "other");
    one.store.find(asked.id).unwrap();
    unawares(&answered, &Basis::Ask(one.store.cached(asked.id).unwrap())).unwrap();
    one.store.forget(&asked.group, asked.id).unwrap();
    // Its own host does, and nobody has told it yet: no other run has its name.
    server.runtime.block_on(move_group(&server.url, &own.group, "one")).unwrap();
    assert!(matches!(unawares(&own, &Basis::New(0)), Err(StoreError::Stale)));
    unawares(&own, &Basis::New(0)).unwrap();
    assert!(!one.store.overtaken().is_cancelled());
}

/// What a taker was sent before is still in its hands when it is refused something else.
#[test]
fn a_refused_taker_keeps_what_it_held_before() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let between = [10_000, 70_000].map(Time::from_millis);
    let hold = |taker: &str, what: &[&str]| {
        let what: Vec<String> = what.iter().map(|&what| what.to_owned()).collect();
        shared.hold_for(taker, &what, between).unwrap()
    };
    assert_eq!(hold("x", &["briefing a", "briefing b"]), None);
    server.sql("update askd.holds set taker = 'y' where what = 'briefing b'");
    let until = Some(between[1]);
    assert_eq!(hold("x", &["briefing a", "briefing b", "briefing c"]), until);
    assert_eq!(hold("z", &["briefing a"]), until, "it was x's");
    assert_eq!(hold("z", &["briefing c"]), None, "all or none");
    assert_eq!(
        server.sql("select what || ' ' || taker from askd.holds order by 1"),
        ["briefing a x", "briefing b y", "briefing c z"]
    );
}
