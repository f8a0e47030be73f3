//! Stories with records in PostgreSQL: those here, most with several hosts; and all others if `ASKD_STORIES_ON=postgres`.
//! `tests/postgres/run` starts the server that `ASKD_TEST_POSTGRES` names; without it these stories say that they were skipped.

#[cfg(feature = "postgres")]
use crate::command_line::{as_another, of_another};
use crate::daemon::{Beside, Others};
use crate::harness::{SOON, World, askd, choice, names, within};
use crate::ports::free_port;
use crate::remote::{Agent, Remote};
use crate::sessions::{JUDGED, in_g};
use crate::sql::Sql;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How soon another host serves after a daemon has died, and after a planned stop.
const DEATH: Duration = Duration::from_secs(20);
const PLANNED: Duration = Duration::from_millis(2_500);

/// A database of its own.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    server: Sql,
    own: Sql,
    name: String,
    others: Arc<Others>,
}

/// While the server works, the daemon waits, and no time may pass for it.
impl Beside for Database {
    fn url(&self) -> Option<String> {
        None
    }

    /// As the titles of the server's processes say. One that waits for a lock may wait for good.
    fn is_idle(&self) -> bool {
        self.others.all_idle("/proc", |process| {
            let read = |what: &str| fs::read(process.join(what)).unwrap_or_default();
            let title = String::from_utf8_lossy(&read("cmdline")).into_owned();
            if title.contains(&format!(" {} ", self.name)) {
                let stat = String::from_utf8_lossy(&read("stat")).into_owned();
                let works = stat.contains(") R ") || stat.contains(") D ");
                // A story may have stopped it.
                return Some(
                    !works && (title.contains(" idle") || title.contains(" waiting") || stat.contains(") T ")),
                );
            }
            // One that has just begun has no title yet.
            (title.contains("postgres") && !title.contains(" story_")).then_some(true)
        })
    }

    fn advance(&self, _by: Duration) {}
}

impl Database {
    /// The one for a story that needs it; `None` without a server.
    pub(crate) fn found() -> Option<Self> {
        let made = std::env::var("ASKD_TEST_POSTGRES").ok().map(Self::make);
        if made.is_none() {
            eprintln!("SKIPPED hosts that share a database: ASKD_TEST_POSTGRES names no server (tests/postgres/run)");
        }
        made
    }

    /// The one of a world whose records would be files.
    pub(crate) fn of_a_story() -> Option<Self> {
        let wanted = std::env::var("ASKD_STORIES_ON").is_ok_and(|on| on == "postgres");
        wanted.then(|| Self::make(std::env::var("ASKD_TEST_POSTGRES").expect("tests/postgres/run starts the server")))
    }

    fn make(server: String) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("story_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let own = Sql::new(format!("{}/{name}", server.rsplit_once('/').unwrap().0));
        let server = Sql::new(server);
        server.query(&format!("create database {name}"));
        Self { server, own, name, others: Arc::default() }
    }

    pub(crate) fn url(&self) -> String {
        self.own.url.clone()
    }

    /// `[postgres]` for a daemon of that name.
    pub(crate) fn settings(&self, node: &str) -> String {
        format!("\n[postgres]\nurl = \"{}\"\nnode = \"{node}\"\n", self.url())
    }

    /// The lines that a query gives.
    pub(crate) fn query(&self, text: &str) -> Vec<String> {
        self.own.query(text)
    }

    /// Where one of these words stands: each row by its table and key, those of questions by the names that files would have.
    pub(crate) fn with(&self, words: &[&str]) -> Vec<String> {
        let rows = "
            select case when settled then 'settled/' else 'pending_questions/' end || group_name || '/'
                || replace(id::text, '-', '') || '.json', record::text from askd.asks
            union all select 'settled/' || group_name || '/' || replace(id::text, '-', '') || '.json', record::text from askd.settled
            union all select name, convert_from(bytes, 'UTF8') from askd.documents where name <> 'clean'
            union all select distinct name, askd.remembered(name) from askd.memory where value is not null
            union all select 'rejected/' || group_name || '/' || name, encode(bytes, 'escape') from askd.rejected
            union all select 'groups/' || question, by::text from askd.allowed
            union all select 'audit/' || to_timestamp(at / 1000)::date || '.jsonl', string_agg(line::text, '') from askd.audit
                group by to_timestamp(at / 1000)::date
            union all select 'set_aside/' || id, record::text from askd.set_aside
            union all select 'gone/' || id, record::text from askd.gone
            union all select 'owed/' || number, effects::text from askd.owed
            union all select 'webhooks/' || number, encode(body, 'escape') from askd.webhooks";
        let one_of: Vec<String> = words.iter().map(|word| format!("position('{word}' in text) > 0")).collect();
        self.query(&format!("select place from ({rows}) kept (place, text) where {}", one_of.join(" or ")))
    }

    /// As if it were lost, and an empty one were made in its place.
    pub(crate) fn anew(&self) {
        self.server.query(&format!("drop database {} with (force)", self.name));
        self.server.query(&format!("create database {}", self.name));
    }

    /// As if the server were away: it ends all connections to this database, and takes no more.
    pub(crate) fn away(&self, away: bool) {
        let allowed = format!("alter database {} allow_connections {}", self.name, !away);
        self.server.query(&allowed);
        if away {
            let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'", self.name);
            self.server.query(&end);
        }
    }
}

/// A host that agents reach over HTTP.
pub(crate) fn host(database: &Database, node: &str) -> Remote {
    Remote::ready(World::empty().in_files().with_binary().more_config(&database.settings(node)))
}

fn readyz(host: &Remote) -> (u16, String) {
    host.world.raw("GET", "/readyz", "", "")
}

/// It takes calls beside the leader.
pub(crate) fn joins(host: &mut Remote) {
    host.world.start_waiting();
    within(SOON, "the host to take calls", || (readyz(host).0 == 200).then_some(()));
}

/// Whether it says that it leads, for alarms.
fn tells_that_it_leads(host: &Remote) -> bool {
    let (_, text) = host.world.raw("GET", "/metrics", "", "");
    assert!(text.contains("\naskd_leads 0\n") != text.contains("\naskd_leads 1\n"), "{text}");
    text.contains("\naskd_leads 1\n")
}

fn leads_within(database: &Database, host: &Remote, node: &str, limit: Duration) {
    let since = Instant::now();
    let leads = "select node from askd.groups where until > now()";
    within(SOON, "the other host to lead", || {
        (database.query(leads) == [node] && readyz(host).0 == 200 && host.world.log().contains("leads from now on"))
            .then_some(())
    });
    assert!(since.elapsed() < limit, "it took {:?}", since.elapsed());
}

#[test]
fn when_a_host_dies_the_next_one_does_what_it_left() {
    let Some(database) = Database::found() else { return };
    let (mut first, mut second) = (host(&database, "host-a"), host(&database, "host-b"));
    first.world.start();
    let agent = first.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    joins(&mut second);
    assert!(tells_that_it_leads(&first) && !tells_that_it_leads(&second));
    first.world.kill();
    leads_within(&database, &second, "host-b", DEATH);
    assert!(tells_that_it_leads(&second));
    // The token, the question and the inbox's token are known there, too.
    let agent = Agent { at: second.agents, ..agent };
    assert_eq!(agent.call("GET", "/asks/r1", "").0, 202);
    second.answer("r1", "yes");
    assert_eq!(agent.outcome("r1")["result"]["answers"], json!({"Deploy?": "yes"}));
    // What comes back takes calls beside it, until a planned stop of the other.
    joins(&mut first);
    assert_eq!(second.world.terminate().code(), Some(0));
    leads_within(&database, &first, "host-a", PLANNED);
    let agent = Agent { at: first.agents, ..agent };
    assert_eq!(agent.taken("r1"), 204, "it was held for its taker");
}

/// A daemon that resumes after a pause longer than its lease must acknowledge nothing: its successor would not know of it.
pub(crate) fn a_paused_daemon_acknowledges_nothing(database: &Database, first: World, second: World) {
    let (mut first, mut second) = (Remote::ready(first), Remote::ready(second));
    first.world.start();
    let agent = first.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    joins(&mut second);
    let ask = first.world.open_of("r1");
    let paused = Pid::from_raw(first.world.pid().cast_signed()).unwrap();
    kill_process(paused, Signal::STOP).unwrap();
    leads_within(database, &second, "host-b", DEATH);
    second.answer("r1", "no");
    let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"});
    let acknowledged = thread::scope(|scope| {
        // It lies in the paused daemon's socket, and is the first thing that it sees.
        let late = scope.spawn(|| first.world.answer(&ask, &answers).0 == 200);
        thread::sleep(Duration::from_secs(1));
        kill_process(paused, Signal::CONT).unwrap();
        late.join().unwrap_or(false)
    });
    assert!(!acknowledged, "the question was answered elsewhere");
    assert_eq!(first.world.ended().code(), Some(1), "it does not go on:\n{}", first.world.log());
    assert!(first.world.log().contains("another askd has taken over"));
    let agent = Agent { at: second.agents, ..agent };
    assert_eq!(agent.outcome("r1")["result"]["answers"], json!({"Deploy?": "no"}));
}

/// What `askd doctor` says.
fn examined_whole(world: &World) -> String {
    let mut command = askd();
    command.args(["doctor", "--config"]).arg(world.dir.path().join("askd.toml"));
    let told = command.env("ASKD__DATA_DIR", world.data()).output().unwrap();
    String::from_utf8(told.stdout).unwrap()
}

/// What it says of the database.
fn examined(world: &World) -> String {
    let told = examined_whole(world);
    told.lines().skip_while(|line| !line.contains("database")).take(3).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_doctor_looks_at_the_database() {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    host.world.start();
    let told = examined(&host.world);
    assert!(told.contains("PostgreSQL 1") && told.contains("; host-a leads"), "{told}");
    assert!(!told.contains("standby") && !told.contains("database notices"), "{told}");
    let settings = host.world.dir.path().join("askd.toml");
    let known = fs::read_to_string(&settings).unwrap();
    let notices = |listen_url: &str| {
        let listens = format!("[postgres]\nlisten_url = \"{listen_url}\"");
        fs::write(&settings, known.replace("[postgres]", &listens)).unwrap();
        let told = examined_whole(&host.world);
        fs::write(&settings, &known).unwrap();
        told
    };
    let told = notices(&database.url());
    assert!(told.contains("listen_url hears at once what other daemons store"), "{told}");
    let told = notices("postgres://askd@127.0.0.1:9/askd");
    assert!(told.contains("listen_url: ") && told.contains("Connection refused"), "{told}");
    // A base backup that is being taken is no standby.
    let (copied, log) = (host.world.dir.path().join("backup"), host.world.dir.path().join("backup.log"));
    let mut backup = Command::new("pg_basebackup");
    backup
        .args(["--checkpoint=fast", "--max-rate=32k", "--dbname"])
        .arg(&database.server.url)
        .arg("--pgdata")
        .arg(copied);
    let mut backup = backup.stderr(fs::File::create(log).unwrap()).spawn().unwrap();
    let backs_up = || database.query("select 'yes' from pg_stat_replication where state = 'backup'").pop();
    within(SOON, "a base backup", backs_up);
    let told = examined(&host.world);
    backup.kill().unwrap();
    backup.wait().unwrap();
    assert!(!told.contains("standby"), "{told}");
    let (wal, log) = (host.world.dir.path().join("wal"), host.world.dir.path().join("standby.log"));
    fs::create_dir(&wal).unwrap();
    let mut standby = Command::new("pg_receivewal");
    standby
        .arg("--no-loop")
        .arg("--dbname")
        .arg(&database.server.url)
        .arg("--directory")
        .arg(wal)
        .stderr(fs::File::create(log).unwrap());
    let mut standby = standby.spawn().unwrap();
    let receives =
        "select 'yes' from pg_stat_replication where state = 'streaming' and application_name = 'pg_receivewal'";
    let streams = || database.query(receives).pop();
    within(SOON, "a standby", streams);
    let told = examined(&host.world);
    assert!(told.contains("a failover to one of 1 asynchronous standbys can lose acknowledged answers"), "{told}");
    assert!(told.contains("; host-a leads"), "{told}");
    let counts = || host.world.raw("GET", "/metrics", "", "").1.contains("\naskd_standbys{sync_state=\"async\"} 1\n");
    within(2 * SOON, "the metric to count it", || counts().then_some(()));
    // Its own user sees that there is one, and no more.
    let user = format!("{}_owner", database.name);
    database.query(&format!("create role {user} login; grant usage, create on schema askd to {user}; grant select on all tables in schema askd to {user}"));
    fs::write(&settings, known.replace("postgres://askd@", &format!("postgres://{user}@"))).unwrap();
    let told = examined(&host.world);
    standby.kill().unwrap();
    standby.wait().unwrap();
    assert!(told.contains("; host-a leads"), "{told}");
    let hidden = format!(
        "not checked: the user {user} is not allowed to see whether the server's standbys are synchronous; GRANT pg_read_all_stats TO {user} allows it"
    );
    assert!(told.contains(&hidden), "{told}");
    // One who could look, and change nothing.
    database.query(&format!("revoke create on schema askd from {user}"));
    let told = examined(&host.world);
    assert!(
        told.contains("its user may not make askd's tables") && told.contains(&format!("have {user} own")),
        "{told}"
    );
    let read_only = |is: &str| {
        database.server.query(&format!("alter database {} set default_transaction_read_only = {is}", database.name))
    };
    read_only("on");
    let told = examined(&host.world);
    assert!(told.contains("it takes no changes: default_transaction_read_only is on"), "{told}");
    read_only("off");
    database.away(true);
    let told = examined(&host.world);
    assert!(told.contains("not currently accepting connections") && told.contains("pg_hba.conf"), "{told}");
    database.away(false);
}

/// What is remembered of people stands in the database, too.
#[test]
fn the_doctor_knows_from_the_database_who_has_written() {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    host.world.start();
    let remembered =
        r#"{"v": 1, "numbers": {"106": {"last_inbound": {"US.1": "NOW"}, "same": {"US.1": "15550009999"}}}}"#;
    let now = database.query("select to_char(now() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')").remove(0);
    let remembered = remembered.replace("NOW", &now);
    database.query(&format!(
        "insert into askd.documents (name, bytes) values ('channels/whatsapp.json', convert_to('{remembered}', 'UTF8'))"
    ));
    let settings = host.world.dir.path().join("askd.toml");
    let known = fs::read_to_string(&settings).unwrap();
    let closed = free_port();
    let whatsapp = format!(
        "\n[whatsapp]\naccess_token = \"a\"\napp_secret = \"b\"\nverify_token = \"c\"\nphone_number_id = \"106\"\n\
         api_url = \"http://127.0.0.1:{closed}\"\n[groups.ada]\nroutes = [{{ channel = \"whatsapp\", chat = \"15550009999\" }}]\n"
    );
    fs::write(&settings, known + &whatsapp).unwrap();
    let told = || {
        let told = examined_whole(&host.world);
        told.lines().find(|line| line.contains("whatsapp window")).unwrap_or(&told).to_owned()
    };
    assert!(told().contains("open for 23 more hours"), "{}", told());
    database.away(true);
    assert!(told().contains("not checked"), "{}", told());
    database.away(false);
}

/// A daemon that waits for its database, which is away.
fn standing_by(database: &Database) -> Remote {
    let mut host = host(database, "host-a");
    database.away(true);
    host.world.start_waiting();
    within(SOON, "the daemon to stand by", || (readyz(&host).0 == 503).then_some(()));
    host
}

#[test]
fn a_daemon_that_waits_for_its_database_outlives_a_reload() {
    let Some(database) = Database::found() else { return };
    let host = standing_by(&database);
    host.world.signal(Signal::HUP);
    within(SOON, "word of it", || host.world.log().contains("got SIGHUP before askd was ready").then_some(()));
    database.away(false);
    within(SOON, "the daemon to serve", || (readyz(&host).0 == 200).then_some(()));
}

#[test]
fn a_connection_to_a_daemon_that_stands_by_gets_an_answer() {
    let Some(database) = Database::found() else { return };
    let host = standing_by(&database);
    let mut early = TcpStream::connect(host.world.address()).unwrap();
    // It is accepted before this one, which is answered.
    assert_eq!(readyz(&host).0, 503);
    let status = host.world.cli(&["status"]).env("ASKD__WEB__TOKEN", "a-token-of-the-settings").output().unwrap();
    let told = String::from_utf8(status.stderr).unwrap();
    assert!(told.ends_with(" is not ready: the database cannot be reached\n"), "{told}");
    database.away(false);
    within(SOON, "the daemon to serve", || (readyz(&host).0 == 200).then_some(()));
    early.set_read_timeout(Some(SOON)).unwrap();
    early.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    let mut said = String::new();
    early.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("connection: close"), "{said:?}");
}

#[test]
fn while_the_database_is_away_nothing_is_acknowledged_and_nothing_is_lost() {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    host.world.start();
    let agent = host.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let ask = host.world.open_of("r1");
    let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"});
    database.away(true);
    let since = Instant::now();
    let (status, told) = host.world.answer(&ask, &answers);
    assert_eq!(status, 503, "{told}");
    assert!(since.elapsed() < Duration::from_millis(2_500), "Slack would not wait: {:?}", since.elapsed());
    assert_eq!(agent.ask("r2", "And this?").0, 503);
    assert_eq!(readyz(&host).0, 503);
    database.away(false);
    within(SOON, "the daemon to go on", || (readyz(&host).0 == 200).then_some(()));
    assert_eq!(host.world.answer(&ask, &answers).0, 200);
    assert_eq!(agent.outcome("r1")["result"]["answers"], json!({"Deploy?": "yes"}));
    assert_eq!(agent.ask("r2", "And this?").0, 201);
    assert_eq!(database.query("select count(*) from askd.asks"), ["2"]);
}

/// The log names what cannot be reached, and never the password.
#[test]
fn a_database_that_is_not_there_is_named() {
    let settings = "[postgres]\nurl = \"postgres://askd:x@127.0.0.1:1/askd\"\nnode = \"host-a\"\n";
    let mut world = World::empty().in_files().with_binary().more_config(settings);
    world.start_waiting();
    let told =
        within(SOON, "the warning", || Some(world.log()).filter(|log| log.contains("trying again every second")));
    assert!(told.contains("127.0.0.1:1: ") && !told.contains("askd:x@"), "{told}");
}

/// A proxy sends it nothing before it is ready, so nothing else is saved there.
#[test]
fn a_daemon_that_could_not_store_an_answer_is_ready_again_without_another_one() {
    let Some(database) = Database::found() else { return };
    let (mut first, mut second) = (host(&database, "host-1"), host(&database, "host-2"));
    joins(&mut first);
    joins(&mut second);
    assert_eq!(first.agent("research").ask("r1", "Deploy?").0, 201);
    let ask = within(SOON, "the question", || second.world.open().into_iter().next());
    database.away(true);
    let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"});
    assert_eq!(second.world.answer(&ask, &answers).0, 503);
    database.away(false);
    within(SOON, "it to be ready", || (readyz(&second).0 == 200).then_some(()));
    let told = second.world.log();
    assert_eq!(told.matches("a save that failed before has succeeded").count(), 1, "{told}");
    assert_eq!(second.world.answer(&ask, &answers).0, 200);
}

#[test]
fn a_new_inbox_token_holds_at_every_daemon_and_the_one_before_at_none() {
    let Some(database) = Database::found() else { return };
    let (mut first, mut second) = (host(&database, "host-1"), host(&database, "host-2"));
    joins(&mut first);
    joins(&mut second);
    let before = first.world.token();
    assert_eq!(second.world.token(), before, "they share it");
    let status = |host: &Remote, token: &str| {
        host.world.raw("GET", "/api/v1/me", &format!("authorization: Bearer {token}\r\n"), "").0
    };
    // The one that does not lead makes it.
    let made = second.world.run(&["link", "--new"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout).unwrap().trim().rsplit_once('=').unwrap().1.to_owned();
    within(Duration::from_secs(3), "the other daemon to take it", || (status(&first, &before) == 401).then_some(()));
    assert_eq!([status(&first, &token), status(&second, &token), status(&second, &before)], [200, 200, 401]);
    within(SOON, "the commands of its host to find it", || (first.world.token() == token).then_some(()));
    // As the guide said: that file is only a copy.
    fs::remove_file(first.world.state().join("web_token")).unwrap();
    first.world.kill();
    joins(&mut first);
    assert_eq!((first.world.token(), status(&first, &token)), (token.clone(), 200));
}

/// `askd store copy`, as an operator runs it.
pub(crate) fn copy(world: &World, to: &[&str]) -> (Option<i32>, String) {
    copy_until(world, to, "")
}

/// The same, which ends as by `kill -9` at this point.
pub(crate) fn copy_until(world: &World, to: &[&str], point: &str) -> (Option<i32>, String) {
    let settings = world.dir.path().join("askd.toml");
    let mut command = askd();
    command.args(["store", "copy", "--to"]).args(to).arg("--config").arg(&settings).env("ASKD_CRASH_AT", point);
    let done = command.env("ASKD__DATA_DIR", world.data()).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.code(), text)
}

#[test]
fn the_records_move_to_the_database_and_back_with_an_open_question() {
    let Some(database) = Database::found() else { return };
    let mut world = World::empty().in_files().with_binary().started();
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.one_open();
    std::fs::write(world.dir.path().join("askd.toml"), database.settings("host-a")).unwrap();
    let (code, told) = copy(&world, &["postgres"]);
    assert_eq!(code, Some(75), "a daemon serves: {told}");
    assert_eq!(world.terminate().code(), Some(0));
    let (code, told) = copy(&world, &["postgres"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("Moved to the database: 1 open and 0 closed questions"), "{told}");
    // Where the records were, no daemon starts.
    assert!(
        !world.try_start() && world.log().contains("the records of the state folder were moved"),
        "{}",
        world.log()
    );
    let mut moved = world.config(&database.settings("host-a")).started();
    let ask = moved.one_open();
    assert_eq!(moved.answer(&ask, &json!({ask["questions"][0]["id"].as_str().unwrap(): "b"})).0, 200);
    assert_eq!(within(SOON, "the response", || moved.response_now("r1"))["result"]["answers"]["Which?"], "b");
    assert_eq!(moved.terminate().code(), Some(0));
    let (code, told) = copy(&moved, &["files"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("Moved to the state folder: 0 open and 1 closed questions"), "{told}");
    let (code, told) = copy(&moved, &["files", "--abort"]);
    assert_eq!((code, told.contains("no copy is under way")), (Some(1), true), "{told}");
    // Nor does one where they were then, and it holds up nobody who moves them once more.
    let mut elsewhere = World::empty().in_files().with_binary().config(&database.settings("host-b"));
    assert!(!elsewhere.try_start(), "it started");
    assert!(elsewhere.log().contains("the records of the database were moved"), "{}", elsewhere.log());
    let (code, told) = copy(&moved, &[&database.url()]);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = copy(&moved, &["postgres://nobody@127.0.0.1:1/other"]);
    assert_eq!((code, told.contains("the settings name another database")), (Some(2), true), "{told}");
    let (code, told) = copy(&moved, &["files"]);
    assert_eq!(code, Some(0), "{told}");
    let back = moved.config("").started();
    assert_eq!(back.open(), Vec::<serde_json::Value>::new());
    assert!(Path::new(&back.state()).join("settled").exists());
}

/// As after a boot of the host: a kept outcome still names the boot in which it was written.
#[test]
fn kept_outcomes_of_an_earlier_boot_move_once_askd_was_started_and_stopped() {
    let Some(database) = Database::found() else { return };
    let mut world = World::empty().in_files().with_binary().started();
    world.ask("r1", choice("Which?", &["a", "b"]));
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({ask["questions"][0]["id"].as_str().unwrap(): "b"})).0, 200);
    world.group("research").take("r1");
    world.noted_as_taken("research");
    assert_eq!(world.terminate().code(), Some(0));
    world.after_loss(true);
    world.start();
    assert_eq!(world.terminate().code(), Some(0));
    std::fs::write(world.dir.path().join("askd.toml"), database.settings("host-a")).unwrap();
    let (code, told) = copy(&world, &["postgres"]);
    assert!(code == Some(0) && told.contains(": 0 open and 1 closed questions"), "{told}");
}

/// It would write files there that the daemon could not read.
#[test]
#[cfg(feature = "postgres")]
fn root_copies_no_records_that_are_another_users() {
    let world = World::empty().in_files();
    if as_another(world.dir.path(), "root_copies_no_records_that_are_another_users").is_none() {
        return;
    }
    of_another(&world.state(), 12345, 0o700);
    let settings = "[postgres]\nurl = \"postgres://askd:x@127.0.0.1:1/askd\"\nnode = \"host-a\"\n";
    std::fs::write(world.dir.path().join("askd.toml"), settings).unwrap();
    let (code, told) = copy(&world, &["postgres"]);
    assert!(code == Some(1) && told.contains("sudo -u '#12345' askd store copy ..."), "{told}");
    assert_eq!(names(&world.state()), Vec::<String>::new());
}

/// The database is slow to end the hold of the first start, and the briefing of the next session is there before that.
#[test]
fn the_agent_is_started_for_the_next_session_as_soon_as_the_start_before_is_over() {
    let Some(database) = Database::found() else { return };
    let dir = tempfile::tempdir().unwrap();
    let slow =
        "-c 'begin; lock table askd.holds in exclusive mode' -c '\\! touch slow' -c 'select pg_sleep(1)' -c commit";
    let script = format!(
        "cd '{}' && cat >$$.briefing && {{ [ -e slow ] || psql -Xq '{}' {slow} >psql.log 2>&1 & }} && until [ -e slow ]; do sleep 0.01; done",
        dir.path().display(),
        database.url()
    );
    let start = format!("start = {{ command = [\"/bin/sh\", \"-c\", {}] }}", json!(script));
    let world = World::empty().config(&in_g(&start, "pickup_timeout = \"1s\"")).in_database(database).started();
    let agent = world.group("g");
    for (id, session) in [("a1", "run-A"), ("b1", "run-B")] {
        let question = json!([{"question": "Go?"}]);
        agent.ask(id, &json!({"idempotency_key": "k", "session_id": session, "questions": question}));
        agent.status_of(id);
    }
    assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
    let started = || names(dir.path()).iter().filter(|name| name.ends_with(".briefing")).count();
    world.passing(3 * JUDGED, "both starts", || (started() == 2).then_some(()));
}

#[test]
fn a_daemon_that_was_paused_and_overtaken_acknowledges_nothing() {
    let Some(database) = Database::found() else { return };
    let world = |node| World::empty().in_files().with_binary().more_config(&database.settings(node));
    a_paused_daemon_acknowledges_nothing(&database, world("host-a"), world("host-b"));
}

/// Without the fence a daemon that was overtaken would save what its successor does not know of.
#[test]
fn a_daemon_without_a_fence_is_noticed() {
    let Some(database) = Database::found() else { return };
    let check = move || {
        let world = |node| World::empty().in_files().with_binary().more_config(&database.settings(node));
        let first = world("host-a").env("ASKD_SABOTAGE", "nofence");
        a_paused_daemon_acknowledges_nothing(&database, first, world("host-b"));
    };
    assert!(thread::spawn(check).join().is_err(), "nofence: nobody noticed");
}
