//! Saves that share a transaction: what becomes of each.

use super::*;
use crate::clock::{Clock, Moment};
use crate::host::audit::Noted;
use crate::host::store::LeftTo;
use crate::host::store::postgres::asks::Carried;
use crate::host::store::postgres::batches::{Batches, GATHERS, NewRow, Over, Verdict, Waiting};
use askd_core::{Effect, Time};
use std::mem;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// What stores them, and the database that it does so in.
struct Bench<'a> {
    server: &'a Server,
    database: Arc<Database>,
    era: String,
}

impl<'a> Bench<'a> {
    fn of(server: &'a Server) -> Self {
        drop(server.opened("here"));
        let era = server.sql("insert into askd.era (mark) values (gen_random_uuid()) on conflict (one) do update set mark = excluded.mark returning mark::text");
        Self { server, database: Arc::new(Database::new(&server.url, "test-postgres").unwrap()), era: era.concat() }
    }

    fn row(&self, number: u128, group: &str, over: Over) -> NewRow {
        NewRow {
            which: uuid(AskId::from_bits(number)),
            of_group: group.to_owned(),
            made_by: operation(number),
            what: "{}".to_owned(),
            held: None,
            holder: None,
            code: format!("k{number}"),
            over,
            in_era: self.era.clone(),
            along: Carried::default(),
        }
    }

    fn first(&self, number: u128, group: &str) -> NewRow {
        self.row(number, group, Over::Given(0))
    }

    /// Over the row with this number, which was stored before.
    fn over(&self, number: u128, group: &str) -> NewRow {
        let row = self.row(number, group, Over::Replaces(operation(number)));
        NewRow { made_by: crate::random::unique(), ..row }
    }

    fn batches(&self) -> Batches {
        Batches { line: Arc::default(), database: Arc::clone(&self.database), check: String::new() }
    }

    fn waits(&self, row: &NewRow, durable: Durable) -> (Waiting, Receiver<Verdict>) {
        let (tell, told) = sync_channel(1);
        (Waiting::new(row.clone(), durable, self.database.connections().clock().monotonic(), tell), told)
    }

    /// Stores these in one transaction, and tells what came of each.
    fn stores(&self, rows: &[NewRow], durable: impl Fn(usize) -> Durable) -> Vec<Receiver<Verdict>> {
        let waits = rows.iter().enumerate().map(|(place, row)| self.waits(row, durable(place)));
        let (waiting, told): (Vec<_>, Vec<_>) = waits.unzip();
        let batches = self.batches();
        let stored = self.database.run(async move {
            batches.store(waiting).await;
            Ok(())
        });
        self.server.runtime.block_on(stored).unwrap();
        told
    }

    fn verdicts(&self, rows: &[NewRow], durable: impl Fn(usize) -> Durable) -> Vec<Verdict> {
        self.stores(rows, durable).into_iter().map(|told| told.recv().unwrap()).collect()
    }

    /// Which transactions wrote the rows.
    fn transactions(&self) -> Vec<String> {
        self.server.sql("select distinct changed::text from askd.asks order by 1")
    }
}

/// What makes the row with this number.
fn operation(number: u128) -> String {
    uuid::Uuid::from_u128(number).to_string()
}

#[test]
fn many_share_a_transaction_and_if_one_waits_for_the_disk_all_do() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    server.sql(
        "create table waited (commits text);
         create function waits() returns trigger language plpgsql as
             'begin insert into waited values (current_setting(''synchronous_commit'')); return null; end';
         create trigger waits after insert or update on askd.asks execute function waits()",
    );
    let waited = || server.sql("with gone as (delete from waited returning commits) select distinct commits from gone");
    // Five of each group, the last one first.
    let given = |number: u128| Over::Given(i64::try_from(4 - number / 4).unwrap());
    let new: Vec<NewRow> =
        (0..20).map(|number| bench.row(number, &format!("g{}", number % 4), given(number))).collect();
    let stored = bench.verdicts(&new, |place| if place == 7 { Durable::Yes } else { Durable::No });
    assert!(stored.iter().all(|verdict| matches!(verdict, Ok(Some(1)))), "{stored:?}");
    assert_eq!((bench.transactions().len(), waited()), (1, vec!["on".to_owned()]));
    let over: Vec<NewRow> = (0..20).map(|number| bench.over(number, &format!("g{}", number % 4))).collect();
    let stored = bench.verdicts(&over, |_| Durable::No);
    assert!(stored.iter().all(|verdict| matches!(verdict, Ok(Some(2)))), "{stored:?}");
    assert_eq!((bench.transactions().len(), waited()), (1, vec!["off".to_owned()]));
}

/// One that is only stale fails nothing. One with an error fails the transaction, and each of the others is stored in one of its own.
#[test]
fn each_gets_a_verdict_of_its_own() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    let all = |rows: &[NewRow]| bench.verdicts(rows, |_| Durable::Yes);
    let first: Vec<NewRow> = (1..=4).map(|number| bench.first(number, &format!("g{number}"))).collect();
    assert!(all(&first).iter().all(|verdict| matches!(verdict, Ok(Some(1)))));
    let stale = bench.row(1, "g1", Over::Replaces(operation(99)));
    let late = bench.first(5, "g1");
    let crashed = NewRow { in_era: operation(99), ..bench.over(2, "g2") };
    let verdicts = all(&[bench.over(3, "g3"), stale, late, crashed]);
    assert!(matches!(&verdicts[..], [Ok(Some(2)), Ok(None), Ok(None), Err(Failed::Crashed)]), "{verdicts:?}");
    // One replaces what another one of them makes.
    let before = bench.over(4, "g4");
    let after = NewRow { over: Over::Replaces(before.made_by.clone()), ..bench.over(4, "g4") };
    let verdicts = all(&[before, after]);
    assert!(matches!(&verdicts[..], [Ok(Some(2)), Ok(Some(3))]), "{verdicts:?}");
    let moved = NewRow { held: Some(operation(99)), ..bench.over(1, "g1") };
    let conflict = NewRow { code: "k1".to_owned(), ..bench.first(6, "g6") };
    let unfit = NewRow { what: r#""\u0000""#.to_owned(), ..bench.first(7, "g7") };
    let verdicts = all(&[bench.over(2, "g2"), moved, conflict, unfit, bench.first(8, "g8")]);
    let own =
        [Ok(Some(2)), Err(Failed::Moved), Err(Failed::Conflict), Err(Failed::Unchanged(String::new())), Ok(Some(1))];
    for (verdict, own) in verdicts.iter().zip(&own) {
        match (verdict, own) {
            (Ok(revision), Ok(own)) => assert_eq!(revision, own, "{verdicts:?}"),
            (Err(why), Err(own)) => assert_eq!(mem::discriminant(why), mem::discriminant(own), "{verdicts:?}"),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => panic!("{verdicts:?}"),
        }
    }
    let ids = server.sql("select ltrim(right(id::text, 2), '0') from askd.asks order by id");
    assert_eq!(ids, ["1", "2", "3", "4", "8"]);
}

/// What goes along is one statement for all of them, and only for those that are stored.
#[test]
fn what_goes_along_is_stored_with_what_is_stored() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    let along = |row: NewRow| {
        let (group, ask) = (row.of_group.parse().unwrap(), row.which.replace('-', "").parse().unwrap());
        let holder = vec![Effect::Status, Effect::Retire];
        let left = LeftTo { holder, leader: vec![Effect::Retire], host: vec![Effect::Status], unpinned: false };
        let noted = Noted { ask, at: Time::from_millis(7), json: format!("{{\"made\":\"{}\"}}", row.made_by) };
        let along = Along { left: Some(&left), noted: &[noted], ..Along::default() };
        NewRow { along: Carried::of(along, &group).unwrap(), ..row }
    };
    let all = |rows: Vec<NewRow>| {
        let verdicts = bench.verdicts(&rows, |_| Durable::Yes);
        verdicts.iter().map(|verdict| matches!(verdict, Ok(Some(_)))).collect::<Vec<_>>()
    };
    let owed = || {
        server.sql(
            "with gone as (delete from askd.owed returning *) select concat_ws(' ', right(ask::text, 1),
                 jsonb_array_length(effects), coalesce(folder, '-'), coalesce(group_name, '-')) from gone order by number",
        )
    };
    assert_eq!(all(vec![along(bench.first(1, "g1")), bench.first(2, "g2")]), [true, true]);
    assert_eq!(owed(), ["1 2 - g1", "1 1 - -", "1 1 g1 -"]);
    let stale = bench.row(1, "g1", Over::Replaces(operation(99)));
    let crashed = NewRow { in_era: operation(99), ..bench.over(1, "g1") };
    let rows = [bench.over(2, "g2"), stale, crashed, bench.first(3, "g1")].map(along);
    let made = rows[0].made_by.clone();
    assert_eq!(all(rows.into()), [true, false, false, false]);
    assert_eq!(owed(), ["2 2 - g2", "2 1 - -", "2 1 g2 -"]);
    let lines = server
        .sql("select right(ask::text, 1) || ' ' || at || ' ' || (line ->> 'made') from askd.audit order by number");
    assert_eq!(lines, [format!("1 7 {}", operation(1)), format!("2 7 {made}")]);
}

#[test]
fn a_neighbour_that_fails_the_others_is_noticed() {
    if Server::found().is_none() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let name = "host::store::postgres::tests::batches::each_gets_a_verdict_of_its_own";
    let played = |sabotage| {
        let mut test = std::process::Command::new(&this);
        test.args(["--exact", name]).env("ASKD_SABOTAGE", sabotage).output().unwrap()
    };
    let (whole, broken) = (played(""), played("onefate"));
    assert!(whole.status.success() && String::from_utf8_lossy(&whole.stdout).contains("1 passed"), "{whole:?}");
    assert!(!broken.status.success(), "onefate: nobody noticed");
}

/// Nor does one hold up the others for long, because somebody else holds its row or because it has waited in line.
#[test]
fn who_has_to_wait_waits_alone_and_not_for_long() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    let told = bench.verdicts(&[bench.first(1, "g1"), bench.first(2, "g2")], |_| Durable::Yes);
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    let mut other = server.runtime.block_on(PgConnection::connect(&server.url)).unwrap();
    let mut other = |text: &'static str| server.runtime.block_on(sqlx::raw_sql(text).execute(&mut other)).unwrap();
    other("begin; update askd.asks set settled = settled where group_name = 'g1'");
    let told = bench.stores(&[bench.over(1, "g1"), bench.over(2, "g2")], |_| Durable::Yes);
    assert!(matches!(told[1].recv().unwrap(), Ok(Some(2))));
    assert!(told[0].try_recv().is_err());
    other("commit");
    assert!(matches!(told[0].recv().unwrap(), Ok(Some(2))));
    // A few milliseconds may be enough otherwise.
    other("begin; insert into askd.counts (group_name, accepted) values ('g3', 0)");
    let (tell, told) = sync_channel(1);
    let (long, (fresh, stored)) = (bench.first(3, "g3"), bench.waits(&bench.first(4, "g4"), Durable::Yes));
    let long = Waiting::new(long, Durable::Yes, Moment::default(), tell);
    let batches = bench.batches();
    bench.database.spawn(async move { batches.store(vec![long, fresh]).await });
    assert!(matches!(stored.recv().unwrap(), Ok(Some(1))));
    let told = told.recv().unwrap();
    assert!(matches!(&told, Err(Failed::Unchanged(why)) if why.contains("did not answer")), "{told:?}");
}

#[test]
fn one_goes_at_once_and_the_next_ones_together() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    let (line, row) = (batches::Line::default(), bench.first(1, "g"));
    let joins = || line.join(bench.waits(&row, Durable::Yes).0);
    assert!(joins(), "it waits for nobody");
    assert_eq!(line.take().unwrap().len(), 1);
    let next: Vec<bool> = (0..20).map(|_| joins()).collect();
    assert_eq!(next.iter().position(|goes| *goes), Some(15), "a second one is worth it");
    assert!(next[16..].iter().all(|goes| !goes), "while two are at work, the others wait");
    assert_eq!(line.take().unwrap().len(), 20);
    assert!(!joins());
    assert!(line.take().is_none(), "the other one will take it");
    assert_eq!(line.take().unwrap().len(), 1);
    assert!(line.take().is_none());
    assert!(joins());
}

/// Else one or two would go, and all the others after them: twice as many transactions.
#[test]
fn after_many_the_next_ones_gather_but_not_for_long() {
    let Some(server) = Server::found() else { return };
    let bench = Bench::of(&server);
    let (line, row, clock) = (batches::Line::default(), bench.first(1, "g"), Clock::of_tokio());
    let join = |many: usize| (0..many).filter(|_| line.join(bench.waits(&row, Durable::Yes).0)).count();
    let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let gathers = async || {
        let begun = clock.monotonic();
        line.gather(&clock).await;
        clock.monotonic().since(begun)
    };
    paused.block_on(async {
        join(1);
        assert_eq!(gathers().await, Duration::ZERO, "alone it waits for nobody");
        join(5);
        assert_eq!(line.take().unwrap().len(), 6);
        join(1);
        let others = async { join(5) };
        assert_eq!(tokio::join!(gathers(), others).0, Duration::ZERO);
        assert_eq!(line.take().unwrap().len(), 6);
        join(1);
        assert_eq!(gathers().await, GATHERS, "there may be no others");
        assert_eq!(line.take().unwrap().len(), 1);
        join(1);
        assert_eq!(gathers().await, Duration::ZERO);
    });
}

/// The same by the store's own door, from many threads.
#[test]
fn saves_from_many_threads_take_fewer_transactions() {
    const MANY: u128 = 32;
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let asked: Vec<Arc<Ask>> = (1..=MANY).map(|number| Arc::new(ask(number, "g"))).collect();
    for ask in &asked {
        opened.store.save(ask, Save::Soon).unwrap();
    }
    // While one is under way, the others come, on a busy machine too.
    server.sql(
        "create function takes_long() returns trigger language plpgsql as 'begin
             if current_setting(''story.slept'', true) is distinct from ''yes'' then perform pg_sleep(0.2); end if;
             perform set_config(''story.slept'', ''yes'', true); return new; end';
         create trigger takes_long before update on askd.asks for each row execute function takes_long()",
    );
    let begin = std::sync::Barrier::new(asked.len());
    std::thread::scope(|scope| {
        for before in &asked {
            let begin = &begin;
            scope.spawn(move || {
                let answered = Arc::new(settled(Ask::clone(before)));
                begin.wait();
                shared.save(&answered, &Basis::Ask(Arc::clone(before)), Along::default(), Save::Now).unwrap();
            });
        }
    });
    let stored = scan(&*opened.store).unwrap().0;
    assert!(stored.len() == asked.len() && stored.iter().all(|stored| stored.ask.outcome().is_some()), "{stored:?}");
    let transactions = server.sql("select distinct changed::text from askd.asks").len();
    assert!(transactions < asked.len() / 2, "{transactions}");
}
