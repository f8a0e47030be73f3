//! Against a real server: `tests/postgres/run` starts one. Without it these tests say that they were skipped.

mod batches;
mod carried;
mod copies;
mod doubts;
mod edges;
mod holding;
mod hosts;
mod joining;
mod leading;
mod looks;
mod memory;
mod restored;
mod settling;

use super::*;
use crate::host::store::conformance::{self, ask, scan, settled};
use crate::host::store::{Basis, Opened};
use askd_core::Event;
use sqlx::{Connection as _, PgConnection, Row as _};
use std::path::Path;
use tokio::runtime::Runtime;

/// A database of its own, and a state folder for each host.
struct Server {
    runtime: Runtime,
    url: String,
    folders: tempfile::TempDir,
}

impl Server {
    fn found() -> Option<Self> {
        let Ok(server) = std::env::var("ASKD_TEST_POSTGRES") else {
            println!("SKIPPED the store in PostgreSQL: ASKD_TEST_POSTGRES names no server (tests/postgres/run)");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = format!("test_{}", crate::random::unique());
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        let made = Self { runtime, url: server, folders: tempfile::tempdir().unwrap() };
        made.sql(&format!("create database {name}"));
        Some(Self { url, ..made })
    }

    fn sql(&self, text: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let rows = sqlx::raw_sql(text).fetch_all(&mut connection).await.unwrap();
            rows.iter().map(|row| row.try_get::<String, _>(0).unwrap_or_default()).collect()
        })
    }

    fn state(&self, host: &str) -> std::path::PathBuf {
        self.folders.path().join(host).join("state")
    }

    fn waiting(&self, host: &str, after_loss: bool) -> Result<Waiting, StoreError> {
        Waiting::new(&self.url, host, &self.state(host), after_loss, "test-postgres")
    }

    fn opened(&self, host: &str) -> Opened {
        self.runtime.block_on(self.waiting(host, false).unwrap().now()).unwrap()
    }

    /// A daemon beside the one that leads, and what waits for the lead.
    fn joins(&self, host: &str) -> (Opened, Waiting) {
        match self.runtime.block_on(self.waiting(host, false).unwrap().turn()) {
            Ok(Turn::Joins(opened, waiting)) => (opened, waiting),
            turn => panic!("two daemons lead: {turn:?}"),
        }
    }

    /// As if the server had crashed and recovered.
    fn crash(&self) {
        self.sql("delete from askd.era");
    }
}

fn step(ask: &Ask, event: Event) -> Arc<Ask> {
    Arc::new(ask.clone().step(event, conformance::START).unwrap().unwrap().ask)
}

#[test]
fn it_does_what_every_engine_does() {
    let Some(server) = Server::found() else { return };
    conformance::holds(|| server.opened("here").store);
}

#[test]
fn one_host_serves_and_the_next_one_takes_over_when_its_lease_is_over() {
    let Some(server) = Server::found() else { return };
    let first = server.opened("first");
    let known = Arc::new(ask(1, "g"));
    first.store.save(&known, Save::Now).unwrap();
    assert!(first.store.is_ours() && !first.store.overtaken().is_cancelled());
    let second = server.runtime.block_on(server.waiting("second", false).unwrap().now());
    assert!(matches!(&second, Err(StoreError::Held(who)) if who.contains("first")), "{second:?}");
    assert!(matches!(server.waiting("first", false), Err(StoreError::Held(_))), "two daemons on one state folder");
    server.sql("update askd.groups set until = now() - interval '1 s'");
    let second = server.opened("second");
    assert_eq!(second.store.load(&known.group, known.id).unwrap(), Some(Arc::clone(&known)));
    // What was overtaken saves nothing, and learns of it.
    let answered = Arc::new(settled(Ask::clone(&known)));
    assert!(matches!(first.store.save(&answered, Save::Now), Err(StoreError::Io { .. })));
    assert!(first.documents.store("web_token", b"secret").is_err());
    assert!(first.store.overtaken().is_cancelled() && !first.store.is_ours());
    assert!(second.store.is_ours() && second.documents.read("web_token").unwrap().is_none());
    let stored = |store: &dyn Store| scan(store).unwrap().0.into_iter().map(|found| found.ask).collect::<Vec<_>>();
    assert_eq!(stored(&*second.store), [Ask::clone(&known)]);
    // A clean end hands the lease over at once.
    second.store.close().unwrap();
    drop(second);
    drop(first);
    let third = server.opened("third");
    assert_eq!(stored(&*third.store), [Ask::clone(&known)]);
}

/// A daemon that was paused comes late with what it allowed; the block must not come back.
#[test]
fn what_another_daemon_has_allowed_later_stays() {
    let Some(server) = Server::found() else { return };
    let store = server.opened("here").store;
    let group: Group = "g".parse().unwrap();
    let allowed = |at| {
        let (question, by) = (askd_core::Digest::from_bytes([1; 32]), askd_core::Person::operator(askd_core::Via::Cli));
        [Allowed { question, at: Time::from_millis(at), by }]
    };
    for at in [1_000, 3_000, 2_000] {
        store.allow(&group, &allowed(at), Time::from_millis(0)).unwrap();
    }
    assert_eq!(store.allowed().unwrap(), [(group, allowed(3_000).to_vec())]);
}

#[test]
fn a_takeover_waits_for_the_write_that_is_under_way() {
    let Some(server) = Server::found() else { return };
    let first = server.opened("first");
    first.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    let (holder, fence) = {
        let row = server.sql("select holder || ' ' || fence from askd.groups").remove(0);
        let (holder, fence) = row.split_once(' ').unwrap();
        (holder.to_owned(), fence.to_owned())
    };
    server.runtime.block_on(async {
        let mut writer = PgConnection::connect(&server.url).await.unwrap();
        let begin = format!("begin; select askd.hold('*', '{holder}', {fence})");
        sqlx::raw_sql(&begin).execute(&mut writer).await.unwrap();
        let mut other = PgConnection::connect(&server.url).await.unwrap();
        let renewal = "set statement_timeout = 300; update askd.groups set until = now() - interval '1 s'";
        sqlx::raw_sql(renewal).execute(&mut other).await.unwrap();
        let takeover = "update askd.groups set fence = fence + 1 where until < now()";
        assert!(sqlx::raw_sql(takeover).execute(&mut other).await.is_err(), "it waits for the writer");
        sqlx::raw_sql("commit").execute(&mut writer).await.unwrap();
        sqlx::raw_sql(takeover).execute(&mut other).await.unwrap();
    });
    assert!(first.store.save(&Arc::new(ask(2, "g")), Save::Now).is_err());
}

#[test]
fn what_a_crash_of_the_server_may_have_lost_is_stored_again_or_looked_at_again() {
    let Some(server) = Server::found() else { return };
    let lost = |store: &dyn Store| scan(store).unwrap().0.into_iter().filter(|found| found.after_loss).count();
    let opened = server.opened("here");
    let known = Arc::new(ask(1, "g"));
    opened.store.save(&known, Save::Now).unwrap();
    let later = Arc::new(settled(Ask::clone(&known)));
    opened.store.save(&later, Save::Soon).unwrap();
    server.crash();
    server.sql("delete from askd.asks");
    opened.store.flush().unwrap();
    assert_eq!(lost(&*opened.store), 0);
    assert_eq!(scan(&*opened.store).unwrap().0.remove(0).ask, *later);
    // While no daemon ran it is not known what is missing; after a clean end nothing is.
    drop(opened);
    server.crash();
    let opened = server.opened("here");
    assert_eq!(lost(&*opened.store), 1);
    opened.store.save(&later, Save::Now).unwrap();
    opened.store.close().unwrap();
    drop(opened);
    server.crash();
    let opened = server.opened("here");
    assert_eq!(lost(&*opened.store), 0);
    drop(opened);
    let opened = server.runtime.block_on(server.waiting("here", true).unwrap().now()).unwrap();
    assert_eq!(lost(&*opened.store), 1, "the operator says so");
}

/// A crash of the server takes what was saved without waiting for the disk. Nobody may then store over what another daemon has
/// acknowledged since, even if both count the same revision.
#[test]
fn after_a_crash_of_the_server_the_answer_of_another_daemon_stays() {
    let Some(server) = Server::found() else { return };
    let one = server.opened("one");
    let (other, _waiting) = server.joins("other");
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    assert!(of_one.leads() && !of_other.leads());
    let asked = Arc::new(conformance::ask_in_slack(1, "g"));
    of_one.save(&asked, &Basis::New(0), Along::default(), Save::Now).unwrap();
    assert!(
        matches!(of_other.save(&asked, &Basis::New(0), Along::default(), Save::Now), Err(StoreError::Stale)),
        "it has been given one"
    );
    server.sql("create table before as select * from askd.asks");
    let viewed = |ask: &Ask| {
        let step = ask.clone().step(Event::Viewed, conformance::START);
        Arc::new(step.unwrap().map_or_else(|| panic!("nothing was stepped"), |step| step.ask))
    };
    let later = viewed(&asked);
    of_one.save(&later, &Basis::Ask(Arc::clone(&asked)), Along::default(), Save::Soon).unwrap();
    let crash = || {
        server.crash();
        server.sql(
            "update askd.asks a set revision = b.revision, operations = b.operations, record = b.record from before b",
        );
    };
    crash();
    // The other one has not seen what was lost, and stores an answer: not before it knows of the crash, and has taken into
    // account what that may have taken.
    let open = || {
        let found = other.store.find(asked.id).unwrap().unwrap();
        (other.store.cached(asked.id).unwrap(), found.after_loss)
    };
    let answers = |basis: fn(Arc<Ask>) -> Basis| {
        let (open, after_loss) = open();
        let answered = Arc::new(settled(Ask::clone(&open)));
        (of_other.save(&answered, &basis(open), Along::default(), Save::Now).map(|()| answered), after_loss)
    };
    assert!(matches!(answers(Basis::Ask), (Err(StoreError::Stale), false)), "it was told of no crash");
    assert!(matches!(answers(Basis::Ask), (Err(StoreError::Stale), true)));
    let answered = answers(Basis::Lost).0.unwrap();
    assert!(!open().1, "it was taken into account");
    let revisions = server.sql("select revision::text from askd.asks");
    assert_eq!(revisions, ["2"], "as many as the one that was lost");
    let last = Arc::new(settled(Ask::clone(&later)));
    assert!(matches!(of_one.save(&last, &Basis::Ask(later), Along::default(), Save::Now), Err(StoreError::Stale)));
    one.store.flush().unwrap();
    assert_eq!(scan(&*other.store).unwrap().0.remove(0).ask, *answered);
    assert_eq!(one.store.find(asked.id).unwrap().unwrap().ask, *answered);
}

/// A daemon that saves nothing learns of a crash, too: the numbers of transactions that it has seen may come again.
#[test]
fn a_look_finds_that_the_server_has_crashed() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let over = Arc::new(ask(1, "g"));
    shared.save(&over, &Basis::New(0), Along::default(), Save::Now).unwrap();
    let settled = Arc::new(settled(Ask::clone(&over)));
    shared.save(&settled, &Basis::Ask(over), Along::default(), Save::Now).unwrap();
    opened.store.retire(&settled.group, settled.id).unwrap();
    let asked = Arc::new(ask(2, "g"));
    shared.save(&asked, &Basis::New(1), Along::default(), Save::Now).unwrap();
    opened.store.flush().unwrap();
    let changed = || shared.look().unwrap().changed.iter().map(|stored| stored.ask.id).collect::<Vec<_>>();
    // As long as a transaction of another test has run since before these saves, each look lists their rows again.
    let is_behind = "select 'behind' from askd.asks
         having max(changed::text::bigint) >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
    while !server.sql(is_behind).is_empty() {
        std::thread::yield_now();
    }
    assert!(changed().is_empty(), "they are its own");
    server.crash();
    assert_eq!(changed(), [asked.id], "what is open may have been lost, and what is kept besides may be very much");
    assert!(changed().is_empty());
}

/// What a crash has taken is stored again with the next save, too.
#[test]
fn a_save_after_a_crash_of_the_server_stores_what_came_before_it() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let asked = Arc::new(ask(1, "g"));
    shared.save(&asked, &Basis::New(0), Along::default(), Save::Now).unwrap();
    server.sql("create table before as select * from askd.asks");
    let viewed = step(&asked, Event::Viewed);
    shared.save(&viewed, &Basis::Ask(Arc::clone(&asked)), Along::default(), Save::Soon).unwrap();
    server.crash();
    server.sql(
        "update askd.asks a set revision = b.revision, operations = b.operations, record = b.record from before b",
    );
    let answers = |viewed: Arc<Ask>| {
        let answered = Arc::new(settled(Ask::clone(&viewed)));
        shared.save(&answered, &Basis::Ask(viewed), Along::default(), Save::Now).map(|()| answered)
    };
    assert!(matches!(answers(viewed), Err(StoreError::Stale)));
    let viewed = opened.store.load(&asked.group, asked.id).unwrap().unwrap();
    let answered = answers(viewed).unwrap();
    assert_eq!(scan(&*opened.store).unwrap().0.remove(0).ask, *answered);
}

/// A flush that begins before a save has ended says nothing about it.
#[test]
fn a_save_that_was_under_way_during_a_flush_is_stored_again_after_a_crash_of_the_server() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let shared = opened.store.shared().unwrap();
    let asked = Arc::new(ask(1, "g"));
    shared.save(&asked, &Basis::New(0), Along::default(), Save::Now).unwrap();
    server.sql("create table before as select * from askd.asks");
    let viewed = step(&asked, Event::Viewed);
    let mut other = server.runtime.block_on(PgConnection::connect(&server.url)).unwrap();
    let mut other = |text: &'static str| server.runtime.block_on(sqlx::raw_sql(text).execute(&mut other)).unwrap();
    std::thread::scope(|scope| {
        other("begin; select from askd.asks for update");
        let save = scope.spawn(|| shared.save(&viewed, &Basis::Ask(asked), Along::default(), Save::Soon));
        while server.sql("select 'waits' from pg_locks where not granted").is_empty() {}
        opened.store.flush().unwrap();
        other("commit");
        save.join().unwrap().unwrap();
    });
    server.crash();
    server.sql(
        "update askd.asks a set revision = b.revision, operations = b.operations, record = b.record from before b",
    );
    opened.store.flush().unwrap();
    assert_eq!(scan(&*opened.store).unwrap().0.remove(0).ask, *viewed);
}

#[test]
fn what_is_unfit_is_refused_before_anything_is_changed() {
    let Some(server) = Server::found() else { return };
    drop(server.opened("here"));
    let refused = |host| server.runtime.block_on(server.waiting(host, false).unwrap().now()).unwrap_err();
    // A later version that only adds changes nothing for this one.
    server.sql("update askd.format set tables = 1000");
    drop(server.opened("here"));
    server.sql("update askd.format set needs = 1000");
    assert!(matches!(refused("here"), StoreError::Newer { .. }));
    server.sql(&format!("update askd.format set tables = {}, needs = 7, records = 99", tables::TABLES));
    assert!(matches!(refused("here"), StoreError::Newer { .. }));
    server.sql("update askd.format set records = 2");
    server.sql(
        "insert into askd.nodes (run, node, home, version, reads, heard)
         values (gen_random_uuid(), 'old-host', gen_random_uuid(), '0', 2, now())",
    );
    let why = refused("here").to_string();
    assert!(why.contains("the daemon on old-host cannot read records of format 3 yet"), "{why}");
    server.sql("delete from askd.nodes where node = 'old-host'");
    let opened = server.opened("here");
    opened.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    server.sql(
        "insert into askd.asks (id, group_name, record)
                values ('00000000-0000-0000-0000-000000000009', 'g', '{\"v\": 3}')",
    );
    let (found, damaged) = scan(&*opened.store).unwrap();
    assert_eq!((found.len(), damaged.len()), (1, 1));
    server.sql("update askd.asks set record = '{\"v\": 99}' where group_name = 'g' and record ->> 'v' = '3'");
    assert!(matches!(opened.store.scan(&Loading::default(), &|_| ()), Err(StoreError::Newer { .. })));
    let nowhere = Waiting::new("postgres://askd@127.0.0.1:1/x", "h", &server.state("away"), false, "test-postgres");
    let away = server.runtime.block_on(nowhere.unwrap().now());
    assert!(matches!(away, Err(StoreError::Io { .. })));
}

#[test]
fn the_newest_rejected_requests_are_kept_within_bounds() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    let group: Group = "g".parse().unwrap();
    for number in 0..105 {
        opened.store.keep_rejected(&group, &format!("{number:03}.json"), b"{").unwrap();
    }
    let names = || server.sql("select name from askd.rejected order by name");
    assert_eq!((names().len(), names()[0].as_str()), (100, "005.json"));
    let large = vec![b' '; 700 * 1024];
    opened.store.keep_rejected(&group, "large.json", &large).unwrap();
    opened.store.keep_rejected(&group, "larger.json", &large).unwrap();
    assert_eq!(names(), ["larger.json"]);
}

#[test]
fn all_of_it_moves_from_files_and_back() {
    let Some(server) = Server::found() else { return };
    let files = |at: &Path| Opened::files(at, false).unwrap();
    let state = server.state("here");
    let from = files(&state);
    let many: Vec<Arc<Ask>> = (1..600).map(|number| Arc::new(ask(number, "g"))).collect();
    for ask in &many {
        from.store.save(ask, Save::Now).unwrap();
    }
    from.documents.store("channels/whatsapp.json", b"{}").unwrap();
    let beside = || Waiting::beside(&server.url, "here", &state, false, "test-postgres").unwrap();
    let to = server.runtime.block_on(beside().now()).unwrap();
    let copied = crate::host::store::copy(&from, &to, "here").unwrap();
    assert_eq!((copied.open, copied.settled, copied.documents), (599, 0, 1));
    assert!(from.check().is_err() && to.check().is_ok());
    to.store.forget(&many[0].group, many[0].id).unwrap();
    assert_eq!(crate::host::store::copy(&to, &from, "here").unwrap().open, 598);
    assert!(from.check().is_ok() && to.check().is_err());
    assert_eq!(from.store.load(&many[1].group, many[1].id).unwrap().as_deref(), Some(&*many[1]));
}
