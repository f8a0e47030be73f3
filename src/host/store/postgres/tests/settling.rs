//! Asks of which nothing can change any more stand in a table of their own, and are lost neither on the way there nor on the way back.

use super::edges::two;
use super::*;
use crate::host::store::copy;
use crate::host::store::postgres::settling::Settling;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const DAY: u64 = 24 * 3600;

/// For how long an ask of the tests is kept that may be forgotten in so many days.
pub(super) fn keep(server: &Server, days: u64) -> Duration {
    let now = server.sql("select extract(epoch from now())::bigint::text").concat().parse::<u64>().unwrap();
    let until = Time::from_millis(0) + Duration::from_secs(now + days * DAY);
    until.since(conformance::START)
}

/// Stored as an outcome.
pub(super) fn kept(store: &dyn Store, ask: Ask) -> Arc<Ask> {
    let ask = Arc::new(ask);
    store.save(&ask, Save::Now).unwrap();
    store.retire(&ask.group, ask.id).unwrap();
    ask
}

/// Five outcomes, which are kept for a month.
pub(super) fn five_kept(server: &Server, one: &Opened) -> Vec<Arc<Ask>> {
    (1..6).map(|number| kept(&*one.store, conformance::done(number, keep(server, 30)))).collect()
}

pub(super) fn settling(server: &Server) -> (Database, Settling) {
    let database = Database::new(&server.url, "test-postgres").unwrap();
    let check = server.sql("select format('select askd.hold(''*'', %L, %s)', holder, fence) from askd.groups").concat();
    let settling = Settling::new(database.connections().clone(), check);
    (database, settling)
}

/// Passes, as if nothing had changed for long.
pub(super) fn pass(server: &Server) {
    // Until no transaction of another test keeps it from being sure.
    let is_behind = "select 'behind' from (select changed from askd.asks union all select 0::text::xid8) as known
         having max(changed::text::bigint) >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
    while !server.sql(is_behind).is_empty() {
        std::thread::yield_now();
    }
    let (database, mut settling) = settling(server);
    let passed = database.wait(async move {
        settling.pass().await?;
        settling.pass().await
    });
    passed.unwrap();
}

/// The numbers of the asks that stand in a table.
pub(super) fn numbers(server: &Server, table: &str) -> Vec<String> {
    server.sql(&format!("select ltrim(right(id::text, 4), '0') from askd.{table} order by 1"))
}

/// Puts the moved ask of this number, which was kept for 30 days, into a week that is over since `weeks`.
fn age(server: &Server, number: u128, weeks: u32) {
    let id = uuid(AskId::from_bits(number));
    server.sql(&format!(
        "do $$ declare monday date := date_trunc('week', now() at time zone 'UTC')::date - 7 * ({weeks} + 1);
         begin
             execute format('create table if not exists askd.%I partition of askd.settled for values from (%L) to (%L)',
                 to_char(monday, '\"settled_\"YYYYMMDD'), monday || ' 00:00+00', monday + 7 || ' 00:00+00');
             update askd.settled set forget_at = monday + time '12:00' where id = '{id}';
         end $$"
    ));
}

fn weeks(server: &Server) -> usize {
    server.sql("select week from askd.weeks()").len()
}

#[test]
fn an_ask_moves_once_nobody_is_owed_anything_and_is_found_where_it_is() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let for_days = |number, days| conformance::done(number, keep(&server, days));
    let done = kept(&*one.store, for_days(1, 30));
    // It lies where its waiter may take it.
    kept(&*one.store, settled(ask(2, "g")));
    // It goes on.
    one.store.save(&Arc::new(ask(3, "g")), Save::Now).unwrap();
    // Its record is finished, and was not noted as an outcome yet.
    one.store.save(&Arc::new(for_days(4, 30)), Save::Now).unwrap();
    // It is forgotten at once, and far away.
    kept(&*one.store, for_days(5, 0));
    kept(&*one.store, for_days(6, 365));
    pass(&server);
    assert_eq!(numbers(&server, "settled"), ["1", "6"]);
    assert_eq!(numbers(&server, "settled_rest"), ["6"]);
    assert_eq!(numbers(&server, "asks"), ["2", "3", "4", "5"]);
    assert_eq!(weeks(&server), 9);
    // The other one has not looked before, and hears of it all the same.
    let news = other.store.shared().unwrap().look().unwrap();
    let changed: BTreeSet<AskId> = news.changed.iter().map(|stored| stored.ask.id).collect();
    assert_eq!(changed, (1..7).map(AskId::from_bits).collect());
    assert!(news.gone.is_empty());
    assert_eq!(
        other.store.find(done.id).unwrap().map(|stored| (stored.ask, stored.settled)),
        Some((Ask::clone(&done), true))
    );
    let (found, corrupt) = scan(&*other.store).unwrap();
    assert!(corrupt.is_empty());
    let settled: Vec<u128> = found.iter().filter(|found| found.settled).map(|found| found.ask.id.to_bits()).collect();
    assert_eq!((found.len(), settled), (6, vec![2, 5, 1, 6]));
    // What was moved is no news.
    assert!(one.store.shared().unwrap().look().unwrap().gone.is_empty());
    // The next start finds it, too.
    drop(one);
    drop(other);
    let again = server.opened("one");
    assert_eq!(again.store.load(&done.group, done.id).unwrap(), Some(done));
}

#[test]
fn what_has_changed_since_the_last_pass_stays() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let (database, settling) = settling(&server);
    let settling = Arc::new(tokio::sync::Mutex::new(settling));
    let pass_once = || {
        let settling = Arc::clone(&settling);
        database.wait(async move { settling.lock().await.pass().await }).unwrap();
    };
    pass_once();
    kept(&*opened.store, conformance::done(1, keep(&server, 30)));
    pass_once();
    assert_eq!(numbers(&server, "asks"), ["1"]);
    // A move of another version than the one that was judged.
    let time = "array[(extract(epoch from now() + interval '9 days') * 1000)::bigint]";
    let moves = format!("select askd.settle(array[id], array[gen_random_uuid()], {time})::text from askd.asks");
    assert_eq!(server.sql(&moves), ["0"]);
    // Until no transaction of another test is older than it.
    while !numbers(&server, "asks").is_empty() {
        pass_once();
    }
    assert_eq!(numbers(&server, "settled"), ["1"]);
}

#[test]
fn a_save_of_an_ask_that_was_moved_changes_it_and_an_old_one_changes_nothing() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let done = kept(&*one.store, conformance::done(1, keep(&server, 30)));
    let known = |opened: &Opened| {
        opened.store.find(done.id).unwrap().unwrap();
        opened.store.cached(done.id).unwrap()
    };
    let save = |opened: &Opened, to: &Arc<Ask>, from: Arc<Ask>, save| {
        opened.store.shared().unwrap().save(to, &Basis::Ask(from), Along::default(), save)
    };
    let (of_one, of_other) = (known(&one), known(&other));
    pass(&server);
    assert_eq!(numbers(&server, "asks"), Vec::<String>::new());
    let late = |ask: &Ask, run: &str| {
        let event = askd_core::WaiterEvent::Identified { run: run.to_owned() };
        let event = Event::Waiter { request_id: "r1".parse().unwrap(), event };
        Arc::new(ask.clone().step(event, conformance::START).unwrap().unwrap().ask)
    };
    let changed = late(&of_one, "one");
    save(&one, &changed, of_one, Save::Soon).unwrap();
    assert_eq!((numbers(&server, "asks").len(), numbers(&server, "settled").len()), (1, 0));
    assert!(matches!(save(&other, &late(&of_other, "two"), of_other, Save::Now), Err(StoreError::Stale)));
    assert_eq!(other.store.shared().unwrap().look().unwrap().changed.remove(0).ask, *changed);
    // It stays an outcome, and goes back.
    assert_eq!(server.sql("select settled::text from askd.asks"), ["true"]);
    pass(&server);
    assert_eq!((numbers(&server, "asks").len(), numbers(&server, "settled").len()), (0, 1));
    assert_eq!(known(&other), changed);
    // A save that asks for no version finds it, too.
    one.store.save(&done, Save::Now).unwrap();
    assert_eq!((numbers(&server, "asks").len(), numbers(&server, "settled").len()), (1, 0));
    assert_eq!(known(&other), done);
}

/// The server may have lost a save that had brought the row back, and the move of another one it may have kept.
#[test]
fn what_a_crash_has_taken_from_an_ask_that_was_moved_is_stored_again() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let done = kept(&*opened.store, conformance::done(1, keep(&server, 30)));
    pass(&server);
    server.sql("create table before as select * from askd.settled");
    let (changed, known) = (Arc::new(Ask::clone(&done)), opened.store.cached(done.id).unwrap());
    let shared = opened.store.shared().unwrap();
    shared.save(&changed, &Basis::Ask(known), Along::default(), Save::Soon).unwrap();
    let of_change = server.sql("select operations[1]::text from askd.asks");
    server.crash();
    server.sql("delete from askd.asks; insert into askd.settled select * from before");
    opened.store.flush().unwrap();
    assert_eq!(server.sql("select operations[1]::text from askd.asks"), of_change);
    assert_eq!(numbers(&server, "settled"), Vec::<String>::new());
}

/// Each save names the version before it; however often the row goes to and fro meanwhile, all of them come through, once.
#[test]
fn saves_and_moves_at_once_lose_nothing() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let asks: Vec<Arc<Ask>> =
        (1..4).map(|number| kept(&*opened.store, conformance::done(number, keep(&server, 30)))).collect();
    server.sql("select askd.make_weeks(8)");
    let (moved, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let saved = std::thread::scope(|scope| {
        let saves = asks.iter().map(|ask| {
            scope.spawn(|| {
                let mut count = 0;
                while count < 40 || count < 10_000 && moved.load(Ordering::SeqCst) < 20 {
                    let known = opened.store.cached(ask.id).unwrap();
                    let next = Arc::new(Ask::clone(&known));
                    shared.save(&next, &Basis::Ask(known), Along::default(), Save::Soon).unwrap();
                    count += 1;
                }
                count
            })
        });
        let saves: Vec<_> = saves.collect();
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let count = server.sql(
                    "select askd.settle(array_agg(id), array_agg(operations[1]), array_agg(
                         (extract(epoch from now() + interval '9 days') * 1000)::bigint))::text from askd.asks",
                );
                moved.fetch_add(count.concat().parse().unwrap_or_default(), Ordering::SeqCst);
            }
        });
        let ended: Vec<_> = saves.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        ended.into_iter().map(|count| (count.unwrap() + 1).to_string()).collect::<Vec<String>>()
    });
    assert!(moved.into_inner() >= 20);
    let revisions = "select revision::text from (
                         select id, revision from askd.asks union all select id, revision from askd.settled
                     ) as kept order by id";
    assert_eq!(server.sql(revisions), saved);
}

#[test]
fn forgetting_is_dropping_the_table_of_a_week_that_is_over_and_no_other() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let asks = five_kept(&server, &one);
    let far = kept(&*one.store, conformance::done(6, keep(&server, 365)));
    other.store.shared().unwrap().look().unwrap();
    pass(&server);
    // The first two may be forgotten since last week; of the week before it, one is not forgotten yet; the fifth one has weeks left.
    for (number, weeks) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
        age(&server, number, weeks);
    }
    let forget = |ask: &Arc<Ask>| one.store.forget(&ask.group, ask.id).unwrap();
    asks[..3].iter().for_each(forget);
    let ids = |found: Vec<Stored>| found.into_iter().map(|found| found.ask.id.to_bits()).collect::<Vec<_>>();
    // Their rows are still there, and nobody finds them.
    assert_eq!(numbers(&server, "settled"), ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(ids(scan(&*one.store).unwrap().0), [4, 5, 6]);
    assert_eq!(
        (one.store.load(&asks[0].group, asks[0].id).unwrap(), one.store.find(asks[1].id).unwrap().is_none()),
        (None, true)
    );
    let gone = other.store.shared().unwrap().look().unwrap().gone;
    assert_eq!(gone.iter().map(|ask| ask.id.to_bits()).collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
    assert!(asks.contains(&Arc::new(gone[0].clone())), "as it was");
    // Somebody may still have to read what they were.
    pass(&server);
    assert_eq!(weeks(&server), 11);
    server.sql("update askd.gone set at = at - interval '11 minutes'");
    pass(&server);
    assert_eq!(
        (weeks(&server), numbers(&server, "settled")),
        (10, vec!["3".to_owned(), "4".to_owned(), "5".to_owned(), "6".to_owned()])
    );
    // The marks stay as long as a table of that time or an earlier one is there.
    assert_eq!(ids(scan(&*one.store).unwrap().0), [4, 5, 6]);
    forget(&asks[3]);
    server.sql("update askd.gone set at = at - interval '11 minutes'");
    pass(&server);
    assert_eq!((weeks(&server), numbers(&server, "gone").len()), (9, 0));
    // What is forgotten before its time is deleted: there are too many of its group. So is what has no table of its own.
    forget(&asks[4]);
    forget(&far);
    assert_eq!(numbers(&server, "settled"), Vec::<String>::new());
    assert_eq!(other.store.shared().unwrap().look().unwrap().gone.len(), 2);
    assert!(scan(&*one.store).unwrap().0.is_empty());
}

/// A daemon of the version before would not find them.
#[test]
fn nothing_moves_beside_a_daemon_that_would_not_find_it_and_none_may_come_afterwards() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    kept(&*opened.store, conformance::done(1, keep(&server, 30)));
    let old = |heard: &str| {
        format!(
            "insert into askd.nodes (run, node, home, version, reads, heard)
             values (gen_random_uuid(), 'old-host', gen_random_uuid(), '0', 3, now() - interval '{heard}')"
        )
    };
    for heard in ["0", "50 minutes"] {
        server.sql(&old(heard));
        pass(&server);
        assert_eq!(numbers(&server, "settled"), Vec::<String>::new());
        server.sql("delete from askd.nodes where node = 'old-host'");
    }
    assert_eq!(server.sql("select needs::text from askd.format"), ["7"]);
    server.sql(&old("2 hours"));
    pass(&server);
    assert_eq!(numbers(&server, "settled"), ["1"]);
    assert_eq!(server.sql("select needs::text from askd.format"), ["10"]);
    let joins = server.runtime.block_on(async {
        let mut connection = PgConnection::connect(&server.url).await.unwrap();
        sqlx::raw_sql(&old("0")).execute(&mut connection).await
    });
    assert!(joins.unwrap_err().to_string().contains("too old"));
    drop(opened);
    drop(server.opened("here"));
}

#[test]
fn what_was_moved_is_copied_both_ways_and_set_aside() {
    let Some(server) = Server::found() else { return };
    let files = Opened::files(&server.folders.path().join("files/state"), false).unwrap();
    let [first, second] = [1, 2].map(|number| conformance::done(number, keep(&server, 30)));
    let first = kept(&*files.store, first);
    files.store.flush().unwrap();
    let tables = server.opened("here");
    assert_eq!(copy(&files, &tables, "here").unwrap().settled, 1);
    let second = kept(&*tables.store, second);
    pass(&server);
    assert_eq!(numbers(&server, "settled"), ["1", "2"]);
    age(&server, 1, 0);
    assert_eq!(copy(&tables, &files, "here").unwrap().settled, 2);
    // Back again: what the tables had before goes, also what would stay there until its week is dropped.
    assert_eq!(copy(&files, &tables, "here").unwrap().settled, 2);
    assert_eq!((numbers(&server, "asks"), numbers(&server, "settled")), (vec!["1".to_owned(), "2".to_owned()], vec![]));
    pass(&server);
    assert_eq!(numbers(&server, "settled"), ["1", "2"]);
    let found = scan(&*tables.store).unwrap().0.into_iter().map(|found| found.ask).collect::<Vec<_>>();
    assert_eq!(found, [Ask::clone(&first), Ask::clone(&second)]);
    tables.store.set_aside(&second.group, second.id).unwrap();
    assert_eq!(
        (numbers(&server, "settled"), numbers(&server, "set_aside")),
        (vec!["1".to_owned()], vec!["2".to_owned()])
    );
}

#[test]
fn askd_forget_takes_out_what_was_moved_and_what_was_forgotten() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let asks: Vec<Arc<Ask>> =
        (1..4).map(|number| kept(&*opened.store, conformance::done(number, keep(&server, 30)))).collect();
    pass(&server);
    age(&server, 1, 0);
    opened.store.forget(&asks[0].group, asks[0].id).unwrap();
    // The second one goes as a whole; the third one has the person in a list.
    let mut whom = Whom::Ask(asks[1].short_id.to_string());
    assert!(
        opened.store.learn(&mut whom).unwrap_err().to_string().contains(&asks[2].id.to_string()),
        "they have one code"
    );
    let erased = opened.store.erase(&Whom::Ask(asks[1].id.to_string()), &mut |_| Ok(())).unwrap();
    assert_eq!(erased.asks, [Ask::clone(&asks[1])]);
    assert_eq!(numbers(&server, "settled"), ["3"], "and what was forgotten is gone for good");
    assert_eq!(numbers(&server, "gone").len(), 0);
    server.sql(
        "update askd.settled set record = jsonb_set(record, '{widgets,0,route,responders}', '{\"only\": [\"U1\", \"U2\"]}')",
    );
    let erased = opened.store.erase(&Whom::Person(BTreeSet::from(["U1".to_owned()])), &mut |_| Ok(())).unwrap();
    assert_eq!((erased.asks.len(), erased.unfinished.len(), erased.lists), (0, 0, 1));
    let who = "select record #>> '{widgets,0,route,responders,only}' from askd.settled";
    assert_eq!(server.sql(who), ["[\"U2\"]"]);
}
