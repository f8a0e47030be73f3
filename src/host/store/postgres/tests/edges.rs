//! What calls that fail half-way, and crashes of the server, must not leave behind.

use super::*;
use crate::host::audit::Noted;
use crate::host::store::LeftTo;
use askd_core::{Effect, Time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Takes back what was written since `before` was made, as a crash of the server may.
fn crash_back(server: &Server) {
    server.crash();
    server.sql(
        "update askd.asks a set revision = b.revision, operations = b.operations, record = b.record, settled = b.settled
         from before b; delete from askd.owed; delete from askd.audit",
    );
}

/// It would keep the lease's row, and no other daemon could take over.
#[test]
fn a_daemon_that_is_paused_in_a_transaction_holds_nobody_up_for_long() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let database = Database::new(&server.url, "test-postgres").unwrap();
    let check = server.sql("select format('select askd.hold(''*'', %L, %s)', holder, fence) from askd.groups").concat();
    let (connections, clock) = (database.connections().clone(), database.connections().clock().clone());
    let paused = std::thread::spawn(move || {
        let sleeps: Work<()> = Arc::new(move |_| {
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep(Duration::from_secs(5)).await;
                Ok(())
            })
        });
        database.wait(async move {
            connections.transact_within(Duration::from_secs(10), Durable::Yes, &check, sleeps).await
        })
    });
    while server
        .sql("select 'idle' from pg_stat_activity where datname = current_database() and state = 'idle in transaction'")
        .is_empty()
    {}
    server.sql("set statement_timeout = 4000; update askd.groups set fence = fence + 1");
    assert!(paused.join().unwrap().is_err());
    assert!(opened.store.save(&Arc::new(ask(1, "g")), Save::Now).is_err());
}

/// The next transaction on that connection would begin within the one that was given up.
#[test]
fn a_transaction_that_is_given_up_while_it_begins_leaves_no_trace() {
    let Some(server) = Server::found() else { return };
    let database = Database::new(&server.url, "test-postgres").unwrap();
    let connections = database.connections().clone();
    let nothing: Work<()> = Arc::new(|_| Box::pin(async { Ok(()) }));
    let read: Work<i32> = Arc::new(|connection| Box::pin(query_one(connection)));
    let told = database.wait(async move {
        let short = Duration::from_millis(50);
        let given_up = connections.transact_within(short, Durable::Yes, "select pg_sleep(0.2)", nothing).await;
        connections.clock().sleep(Duration::from_millis(400)).await;
        let mut reads = Vec::new();
        for _ in 0..5 {
            reads.push(connections.read(false, Arc::clone(&read)).await.map_err(|error| error.to_string()));
        }
        Ok((given_up.is_err(), reads))
    });
    assert_eq!(told.unwrap(), (true, vec![Ok(1); 5]));
}

async fn query_one(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    database::scalar("select 1").fetch_one(connection).await
}

/// Two daemons, and what each has of the port.
pub(super) fn two(server: &Server) -> [Opened; 2] {
    let one = server.opened("one");
    [one, server.joins("other").0]
}

/// What it has read counts as known, so the next look would not tell it.
#[test]
fn a_look_that_fails_half_way_has_seen_nothing() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    let (first, second) = (Arc::new(ask(1, "g")), Arc::new(ask(2, "g")));
    of_one.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    of_other.look().unwrap();
    one.store.forget(&first.group, first.id).unwrap();
    of_one.save(&second, &Basis::New(1), Along::default(), Save::Now).unwrap();
    server.sql("alter table askd.gone rename column record to elsewhere");
    of_other.look().unwrap_err();
    server.sql("alter table askd.gone rename column elsewhere to record");
    let news = of_other.look().unwrap();
    let changed: Vec<AskId> = news.changed.iter().map(|stored| stored.ask.id).collect();
    let gone: Vec<AskId> = news.gone.iter().map(|ask| ask.id).collect();
    assert!(changed.contains(&second.id) && gone == [first.id], "{changed:?} {gone:?}");
    // Whoever goes by the number knows the asks.
    assert_eq!(of_other.given(&first.group), 0);
    of_other.learned(news.given);
    assert_eq!(of_other.given(&first.group), 2);
}

/// Others would never hear of what the ask needs from them, and the audit log would lack a line.
#[test]
fn what_went_along_with_a_save_that_a_crash_took_is_stored_again_with_it() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let first = Arc::new(ask(1, "g"));
    shared.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    server.sql("create table before as select * from askd.asks");
    let left = LeftTo { host: vec![Effect::Status], ..LeftTo::default() };
    let noted =
        |what: &str| [Noted { ask: first.id, at: Time::from_millis(7), json: format!("{{\"what\":\"{what}\"}}") }];
    let viewed = step(&first, Event::Viewed);
    let save = |ask: &Arc<Ask>, from: Arc<Ask>, what, retired| {
        let along = Along { left: Some(&left), noted: &noted(what), retired, ..Along::default() };
        shared.save(ask, &Basis::Ask(from), along, Save::Soon).unwrap();
    };
    save(&viewed, first.clone(), "viewed", false);
    // The server keeps the first one of the two.
    server.sql("drop table before; create table before as select * from askd.asks");
    let answered = Arc::new(settled(Ask::clone(&viewed)));
    save(&answered, viewed, "answered", true);
    crash_back(&server);
    opened.store.flush().unwrap();
    assert_eq!(server.sql("select settled::text from askd.asks"), ["true"]);
    assert_eq!(server.sql("select line ->> 'what' from askd.audit"), ["answered"]);
    assert_eq!(server.sql("select folder from askd.owed"), ["g"]);
    // What is there is not stored twice.
    server.crash();
    opened.store.flush().unwrap();
    assert_eq!(server.sql("select line ->> 'what' from askd.audit"), ["answered"]);
}

/// Those that come after the one that failed were lost for good.
#[test]
fn a_flush_after_a_crash_that_fails_half_way_is_done_again() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    // These have one code.
    server.sql("drop index askd.asks_short");
    let asks: Vec<Arc<Ask>> = (1..4).map(|number| Arc::new(ask(number, "g"))).collect();
    for (given, ask) in (0..).zip(&asks) {
        shared.save(ask, &Basis::New(given), Along::default(), Save::Now).unwrap();
    }
    server.sql("create table before as select * from askd.asks");
    let viewed: Vec<Arc<Ask>> = asks.iter().map(|ask| step(ask, Event::Viewed)).collect();
    for (ask, viewed) in asks.iter().zip(&viewed) {
        shared.save(viewed, &Basis::Ask(Arc::clone(ask)), Along::default(), Save::Soon).unwrap();
    }
    server.crash();
    server.sql(
        "update askd.asks a set revision = b.revision, operations = b.operations, record = b.record from before b
         where a.id = b.id; alter function askd.save_along rename to elsewhere",
    );
    for _ in 0..2 {
        opened.store.flush().unwrap_err();
    }
    server.sql("alter function askd.elsewhere rename to save_along");
    opened.store.flush().unwrap();
    let mut stored: Vec<Ask> = scan(&*opened.store).unwrap().0.into_iter().map(|stored| stored.ask).collect();
    stored.sort_by_key(|ask| ask.id);
    assert_eq!(stored, viewed.iter().map(|ask| Ask::clone(ask)).collect::<Vec<_>>());
}

/// Else what another daemon asks for would be done as if its step had not been.
#[test]
fn what_a_look_cannot_read_is_not_at_hand_as_it_was() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    let first = Arc::new(ask(1, "g"));
    of_one.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    assert_eq!(of_other.look().unwrap().changed.len(), 1);
    assert!(other.store.cached(first.id).is_some());
    server.sql(
        "update askd.asks set record = '{}', revision = revision + 1, changed = pg_current_xact_id(),
             operations = array_prepend(gen_random_uuid(), operations)",
    );
    assert!(of_other.look().unwrap().changed.is_empty());
    assert_eq!(other.store.cached(first.id), None);
    assert!(matches!(other.store.load(&first.group, first.id), Err(StoreError::Damaged { .. })));
}

#[test]
fn what_is_to_be_told_in_the_pause_after_a_notice_is_told_after_it() {
    let Some(server) = Server::found() else { return };
    let (database, hints) = (Database::new(&server.url, "test-postgres").unwrap(), Hints::default());
    let (connections, left, mut heard) = (database.connections().clone(), CancellationToken::new(), hints.heard());
    let mut is_told = || {
        let told = connections.clock().timeout(Duration::from_secs(10), heard.changed());
        server.runtime.block_on(told).is_some()
    };
    database.spawn(hints.clone().listen(server.url.clone(), connections.clock().clone(), left.clone()));
    assert!(is_told(), "it listens");
    database.spawn(hints.clone().notify(connections.clone(), left.clone()));
    for _ in 0..3 {
        hints.tell();
        assert!(is_told());
    }
    left.cancel();
}

/// A database may know very many groups, and each daemon looks every second.
#[test]
fn a_look_reads_how_many_asks_a_group_was_given_if_that_has_changed() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let of_one = one.store.shared().unwrap();
    let [g, h] = ["g", "h"].map(|name| name.parse::<Group>().unwrap());
    server.sql("drop index askd.asks_short");
    let saves = |number, group: &Group, given| {
        let ask = Arc::new(ask(number, group.as_str()));
        of_one.save(&ask, &Basis::New(given), Along::default(), Save::Now).unwrap();
    };
    saves(1, &g, 0);
    let (other, _waiting) = server.joins("other");
    let of_other = other.store.shared().unwrap();
    let given = || of_other.look().unwrap().given;
    assert_eq!(given(), [(g.clone(), 1)], "the first look reads those from before it, too");
    // Until no transaction of another test keeps it from being sure.
    while !given().is_empty() {
        std::thread::yield_now();
    }
    saves(2, &h, 0);
    assert_eq!(given(), [(h, 1)]);
}

#[test]
fn so_many_daemons_have_a_seat_and_the_next_one_takes_over() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let [other, third] = ["other", "third"].map(|host| server.joins(host).0);
    let seats = |opened: &Opened| opened.documents.rates().unwrap().seat("socket", 2).unwrap();
    for _ in 0..2 {
        assert_eq!([&one, &other, &third].map(seats), [true, true, false]);
    }
    server.sql("update askd.seats set until = now() - interval '1 s' where seat = 1");
    assert_eq!([&third, &one, &other].map(seats), [true, false, true]);
    other.store.close().unwrap();
    assert_eq!([&one, &third].map(seats), [true, true], "it was given up");
}

/// Another thread's look must not take away what a thread is about to load: what was asked of it would never be done.
#[test]
fn an_ask_that_several_threads_read_anew_is_always_there() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let known = Arc::new(ask(1, "g"));
    opened.store.save(&known, Save::Now).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    assert!(opened.store.find(known.id).unwrap().is_some());
                }
            });
        }
        // One in a million was missing.
        let missing = (0..2_000_000).find(|_| opened.store.load(&known.group, known.id).unwrap().is_none());
        over.store(true, Ordering::SeqCst);
        assert_eq!(missing, None);
    });
}

/// The daemon would go by what was before its own save, and the next look would not tell it: it has heard of that version.
#[test]
fn a_row_that_was_read_before_a_save_does_not_take_its_place() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let first = Arc::new(ask(1, "g"));
    shared.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    // Whoever only reads waits with what it has read.
    server.sql(
        "create function askd.slowly() returns boolean language plpgsql as
             'begin if current_setting(''transaction_read_only'') = ''on'' then perform pg_sleep(1); end if; return true; end';
         alter table askd.asks rename to hidden;
         create view askd.asks as select * from askd.hidden where askd.slowly()",
    );
    let viewed = step(&first, Event::Viewed);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| opened.store.find(first.id).unwrap().unwrap().ask);
        while server
            .sql("select 'reads' from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()")
            .is_empty()
        {}
        shared.save(&viewed, &Basis::Ask(first.clone()), Along::default(), Save::Now).unwrap();
        assert_eq!(reads.join().unwrap(), *first);
    });
    assert_eq!(opened.store.cached(first.id), Some(viewed));
}
