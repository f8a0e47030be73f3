//! A run that goes on from what the run before it had seen.

use super::edges::two;
use super::settling::{five_kept, keep, kept, numbers, pass};
use super::*;
use crate::host::store::sharing::Reached;
use parking_lot::Mutex;

/// The numbers of the asks that a scan hands over, and how many rows it has read, of how many.
fn scanned(opened: &Opened) -> (Vec<u128>, (usize, usize)) {
    let (loading, found) = (Loading::default(), Mutex::new(Vec::new()));
    opened.store.scan(&loading, &|stored| found.lock().push(stored.ask.id.to_bits())).unwrap();
    (found.into_inner(), loading.so_far())
}

#[test]
fn it_reads_what_is_under_way_and_of_what_is_settled_only_what_has_changed_since() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let asks = five_kept(&server, &one);
    let open = Arc::new(ask(6, "g"));
    one.store.shared().unwrap().save(&open, &Basis::New(0), Along::default(), Save::Now).unwrap();
    pass(&server);
    assert_eq!(numbers(&server, "settled"), ["1", "2", "3", "4", "5"]);
    let shared = other.store.shared().unwrap();
    shared.look().unwrap();
    let reached = shared.reached();
    drop(other);
    // One changes where it is, one changes and is under way again, one is forgotten, and one comes from another server.
    server.sql(&format!("update askd.settled set changed = pg_current_xact_id() where id = '{}'", uuid(asks[0].id)));
    server.sql(&format!("update askd.settled set changed = '9000000000' where id = '{}'", uuid(asks[3].id)));
    one.store.save(&asks[1], Save::Now).unwrap();
    one.store.forget(&asks[2].group, asks[2].id).unwrap();
    let follows = server.joins("other").0;
    assert!(follows.store.shared().unwrap().go_on_from(&reached));
    assert_eq!(scanned(&follows), (vec![6, 2, 1], (3, 3)));
    let news = follows.store.shared().unwrap().look().unwrap();
    let changed: Vec<u128> = news.changed.iter().map(|stored| stored.ask.id.to_bits()).collect();
    assert!([1, 2].iter().all(|number| changed.contains(number)) && !changed.contains(&5), "{changed:?}");
    // It has never read that one.
    assert_eq!(news.gone, [Ask::clone(&asks[2])]);
    assert_eq!(news.given, [("g".parse().unwrap(), 1)], "it has to know all of these");
    drop(follows);
    // Without a look before it, a run reads everything.
    assert_eq!(scanned(&server.joins("other").0).1, (5, 5));
}

/// It may have lost what was seen.
#[test]
fn after_a_crash_of_the_server_it_reads_everything() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    kept(&*one.store, conformance::done(1, keep(&server, 30)));
    pass(&server);
    other.store.shared().unwrap().look().unwrap();
    let reached = other.store.shared().unwrap().reached();
    drop(other);
    server.crash();
    one.store.flush().unwrap();
    let follows = server.joins("other").0;
    assert!(!follows.store.shared().unwrap().go_on_from(&reached));
    assert_eq!(scanned(&follows), (vec![1], (1, 1)));
    let era = server.sql("select mark::text from askd.era").concat();
    assert!(follows.store.shared().unwrap().go_on_from(&Reached { era, ..reached }), "it is the era that tells");
}
