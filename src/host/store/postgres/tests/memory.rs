//! What the WhatsApp channel remembers: entries that every daemon changes, and documents for whoever knows no others.

use super::*;
use crate::clock::Clock;
use crate::host::store::memory::{Changed, Entries, Memory, Place, Write, Writes};
use std::time::Duration;

const NUMBER: &str = "106";
const NAME: &str = "channels/whatsapp.json";

fn memory(opened: &Opened) -> Arc<dyn Memory> {
    opened.documents.memory().unwrap()
}

fn entries(of: &[(&str, &str, Option<&str>)]) -> Entries {
    let entry = |(section, key, value): &(&str, &str, Option<&str>)| {
        ((NAME.to_owned(), ((*section).to_owned(), (*key).to_owned())), value.map(str::to_owned))
    };
    of.iter().map(entry).collect()
}

/// Where the daemon knows of no entry yet.
fn new(of: &Entries) -> Writes {
    let write = |(place, now): (&(String, Place), &Option<String>)| {
        let before = if now.is_none() { known().get(place).cloned().flatten() } else { None };
        (place.clone(), Write { before, now: now.clone() })
    };
    of.iter().map(write).collect()
}

fn known() -> Entries {
    entries(&[
        ("clock_ahead_ms", "=", Some("7")),
        ("last_inbound", "1555", Some("\"2026-11-29T00:00:00Z\"")),
        ("notes", "[]1", Some(r#"{"id":"1","text":"a \u0000"}"#)),
        ("notes", "[]2", Some(r#"{"id":"2","text":"b"}"#)),
    ])
}

fn share(opened: &Opened) -> Option<Changed> {
    let shared = memory(opened).share(NUMBER, &[NAME.to_owned()], &[(NUMBER.to_owned(), known())]).unwrap();
    shared.map(|shared| shared.found)
}

#[test]
fn documents_become_entries_once_and_documents_again_for_whoever_is_alone() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    leader.documents.store(NAME, b"{}").unwrap();
    let (other, _waiting) = server.joins("other");
    assert!(!server.runtime.block_on(memory(&other).is_shared()).unwrap());
    let found = share(&leader).expect("all daemons know entries");
    assert!(found.all && found.entries == known(), "{found:?}");
    assert!(server.runtime.block_on(memory(&other).is_shared()).unwrap());
    assert_eq!(leader.documents.read(NAME).unwrap(), None);
    let more = entries(&[("last_inbound", "1666", Some("5"))]);
    server.runtime.block_on(memory(&other).write(NUMBER, &new(&more))).unwrap();
    assert_eq!(share(&leader).unwrap().entries.len(), 5, "what stands there is not replaced");
    for opened in [leader, other] {
        opened.store.close().unwrap();
    }
    let alone = server.runtime.block_on(server.waiting("alone", false).unwrap().alone()).unwrap();
    let folded: serde_json::Value = serde_json::from_slice(&alone.documents.read(NAME).unwrap().unwrap()).unwrap();
    let expected = serde_json::json!({"v": 2, "numbers": {NUMBER: {"clock_ahead_ms": 7,
        "last_inbound": {"1555": "2026-11-29T00:00:00Z", "1666": 5},
        "notes": [{"id": "1", "text": "a \u{0}"}, {"id": "2", "text": "b"}]}}});
    assert_eq!(folded, expected);
    assert_eq!(server.sql("select 'here' from askd.memory"), Vec::<String>::new());
}

#[test]
fn nothing_is_shared_beside_a_daemon_that_would_miss_it_and_none_may_come_afterwards() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    let earlier = "insert into askd.nodes (run, node, home, version, reads, knows, heard)
        values (gen_random_uuid(), 'earlier', gen_random_uuid(), '0', 3, 17, now())";
    server.sql(earlier);
    assert!(share(&leader).is_none());
    server.sql("update askd.nodes set heard = now() - interval '61 minutes' where node = 'earlier'");
    assert!(share(&leader).is_some());
    let late = server.runtime.block_on(async {
        let mut connection = PgConnection::connect(&server.url).await.unwrap();
        sqlx::raw_sql(earlier).execute(&mut connection).await
    });
    assert!(late.unwrap_err().to_string().contains("too old"));
}

#[test]
fn one_daemon_at_a_time_has_the_turn_of_a_person_and_sees_what_the_one_before_has_stored() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    let (other, _waiting) = server.joins("other");
    share(&leader).unwrap();
    let [one, two] = [&leader, &other].map(memory);
    server.runtime.block_on(async {
        let mut first = one.turn(NUMBER, "1555").await.unwrap();
        // What a later transaction has stored does not make the turn one of those that are over.
        one.write(NUMBER, &new(&entries(&[("told_before", "y", Some("1"))]))).await.unwrap();
        let known = first.changed(None).await.unwrap().known;
        let waits = two.turn(NUMBER, "1555");
        assert!(Clock::system().timeout(Duration::from_millis(300), waits).await.is_none(), "two have the turn");
        let beside = two.turn(NUMBER, "1666").await.unwrap();
        let more = entries(&[("last_inbound", "1555", None), ("told_before", "x", Some("1"))]);
        first.end(&new(&more)).await.unwrap();
        let mut second = two.turn(NUMBER, "1555").await.unwrap();
        let seen = second.changed(known.as_ref()).await.unwrap();
        assert!(!seen.all && more.iter().all(|(at, value)| seen.entries.get(at) == Some(value)), "{seen:?}");
        // Dropped, a turn changes nothing, and the next one comes.
        drop((second, beside));
        two.turn(NUMBER, "1555").await.unwrap().end(&Writes::new()).await.unwrap();
        let all = two.changed(NUMBER, None).await.unwrap();
        assert!(
            all.all && !all.entries.contains_key(&(NAME.to_owned(), ("last_inbound".to_owned(), "1555".to_owned())))
        );
    });
    // After a crash of the server transactions may have the numbers of others, which were lost.
    let before = server.runtime.block_on(two.changed(NUMBER, None)).unwrap().known;
    server.crash();
    leader.store.flush().unwrap();
    assert!(server.runtime.block_on(two.changed(NUMBER, before.as_ref())).unwrap().all);
}

/// A daemon that comes late does not know what another one has stored.
#[test]
fn what_another_daemon_has_stored_meanwhile_stays() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    share(&leader).unwrap();
    let write = |before: Option<&str>, now: Option<&str>| {
        let place = (NAME.to_owned(), ("last_inbound".to_owned(), "1777".to_owned()));
        let writes = Writes::from([(place, Write { before: before.map(str::to_owned), now: now.map(str::to_owned) })]);
        server.runtime.block_on(memory(&leader).write(NUMBER, &writes)).unwrap();
        server.sql("select coalesce(value, 'none') from askd.memory where key = '1777'").concat()
    };
    assert_eq!(write(None, Some("1")), "1");
    assert_eq!(write(None, Some("2")), "1");
    assert_eq!(write(Some("1"), Some("3")), "3");
    assert_eq!(write(Some("1"), None), "3");
    assert_eq!(write(Some("3"), None), "none");
    assert_eq!(write(Some("3"), Some("4")), "none");
    assert_eq!(write(None, Some("5")), "5", "it was taken out");
    let note = (NAME.to_owned(), ("notes".to_owned(), "[]1".to_owned()));
    for (before, now) in [(known()[&note].clone(), None), (None, known()[&note].clone())] {
        let writes = Writes::from([(note.clone(), Write { before, now })]);
        server.runtime.block_on(memory(&leader).write(NUMBER, &writes)).unwrap();
    }
    assert_eq!(
        server.sql("select coalesce(value, 'none') from askd.memory where key = '[]1'"),
        ["none"],
        "it was sent"
    );
}

/// The server ends the turn of a daemon that is paused, which then stores nothing.
#[test]
fn a_turn_that_takes_too_long_is_over() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    share(&leader).unwrap();
    server.runtime.block_on(async {
        let paused = memory(&leader).turn(NUMBER, "1555").await.unwrap();
        Clock::system().sleep(Duration::from_secs(3)).await;
        assert!(paused.end(&new(&entries(&[("told_before", "x", Some("1"))]))).await.is_err());
        let all = memory(&leader).changed(NUMBER, None).await.unwrap().entries;
        assert_eq!(all, known());
        memory(&leader).turn(NUMBER, "1555").await.unwrap().end(&Writes::new()).await.unwrap();
    });
}
