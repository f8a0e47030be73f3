//! Stories about what the database holds beside the questions. `tests/postgres/run` starts the server; without it these stories
//! say that they were skipped.

use crate::command_line::{err, out};
use crate::forgetting::{forget, run};
use crate::harness::{SOON, World, askd, choice, within};
use crate::on_postgres::{Database, host, joins};
use crate::remote::Remote;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// What `askd log` says of a question on this host.
fn log(world: &World, id: &str) -> Vec<Value> {
    let mut command = askd();
    command.args(["log", id, "--json", "--config"]).arg(world.dir.path().join("askd.toml"));
    let told = command.env("ASKD__DATA_DIR", world.data()).output().unwrap();
    let lines = String::from_utf8(told.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn did(lines: &[Value]) -> Vec<String> {
    let word = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    lines.iter().map(|line| format!("{} {}", word(line, "node"), word(line, "what"))).collect()
}

/// A question asked at one daemon and answered at another: each knows what both did.
fn each_knows_what_all_did(database: &Database, first: World, second: World) {
    let (mut first, mut second) = (Remote::ready(first), Remote::ready(second));
    first.world.start();
    let agent = first.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let id = first.world.open_of("r1")["id"].as_str().unwrap().to_owned();
    joins(&mut second);
    second.answer("r1", "yes");
    agent.outcome("r1");
    within(SOON, "both to be noted", || {
        let noted = did(&log(&first.world, &id[..9]));
        ["host-a asked", "host-b answered"].iter().all(|line| noted.contains(&(*line).to_owned())).then_some(())
    });
    assert_eq!(log(&first.world, &id), log(&second.world, &id));
    assert_eq!(second.world.trail(&id), log(&first.world, &id));
    assert!(first.world.log().contains("Pending question created"), "operators look there first");
    let text = database.query("select string_agg(line::text, ' ') from askd.audit").concat();
    assert!(!text.contains("Deploy?"), "{text}");
}

fn world(database: &Database, node: &str) -> World {
    World::empty().in_files().with_binary().more_config(&database.settings(node))
}

#[test]
fn what_one_daemon_did_the_log_of_every_other_tells() {
    let Some(database) = Database::found() else { return };
    each_knows_what_all_did(&database, world(&database, "host-a"), world(&database, "host-b"));
}

#[test]
fn a_step_that_is_stored_without_its_audit_line_is_noticed() {
    let Some(database) = Database::found() else { return };
    let check = move || {
        let second = world(&database, "host-b").env("ASKD_SABOTAGE", "unnoted");
        each_knows_what_all_did(&database, world(&database, "host-a"), second);
    };
    assert!(thread::spawn(check).join().is_err(), "unnoted: nobody noticed");
}

/// Others store something all the time, and all of them share the server.
#[test]
fn many_notices_lead_to_few_looks() {
    let Some(database) = Database::found() else { return };
    let listens = format!("{}listen_url = \"{}\"\n", database.settings("host-a"), database.url());
    let mut host = Remote::ready(World::empty().in_files().with_binary().more_config(&listens));
    host.world.start();
    // Only looks read this table.
    let looks = || -> u64 {
        let scans =
            "select seq_scan + coalesce(idx_scan, 0) from pg_stat_user_tables where relid = 'askd.gone'::regclass";
        database.query(scans).concat().parse().unwrap()
    };
    let (before, begun) = (looks(), Instant::now());
    let notice = "perform pg_notify('askd', ''); commit; perform pg_sleep(0.01);";
    database.query(&format!("do $$ begin for n in 1..300 loop {notice} end loop; end $$"));
    // The server tells with a delay.
    thread::sleep(Duration::from_secs(2));
    let (looks, seconds) = (looks() - before, begun.elapsed().as_secs() + 1);
    assert!(looks <= seconds * 5 + 1, "{looks} looks in {seconds} s");
}

/// A daemon that does not look by itself.
#[test]
fn a_notice_soon_after_a_look_leads_to_another_look() {
    let Some(database) = Database::found() else { return };
    let listens = format!("{}listen_url = \"{}\"\n", database.settings("host-a"), database.url());
    let world = World::empty().in_files().with_binary().more_config(&listens);
    let mut host = Remote::ready(world.env("ASKD_SABOTAGE", "nopoll"));
    host.world.start();
    assert_eq!(host.agent("research").ask("r1", "Deploy?").0, 201);
    host.world.open_of("r1");
    // Longer than what it has stored itself has it look.
    thread::sleep(Duration::from_secs(2));
    database.query(
        "do $$ begin
             perform pg_notify('askd', ''); commit; perform pg_sleep(0.1);
             with gone as (delete from askd.asks returning id, record)
                 insert into askd.gone (id, record) select * from gone;
             perform pg_notify('askd', '');
         end $$",
    );
    // It looks once it has heard nothing for 30 s.
    within(Duration::from_secs(20), "the question to be gone", || host.world.open().is_empty().then_some(()));
}

#[test]
fn audit_lines_are_dropped_when_they_were_kept_long_enough() {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    host.world.start();
    let old = "insert into askd.audit (ask, at, line) select gen_random_uuid(),
                   (extract(epoch from now() - interval '366 days') * 1000)::bigint, '{}' from generate_series(1, 2500)";
    database.query(old);
    let recent = old.replace("366", "364").replace("2500", "1");
    database.query(&recent);
    assert_eq!(host.agent("research").ask("r1", "Deploy?").0, 201);
    let kept = "select line::text from askd.audit where line::text = '{}'";
    within(SOON, "what is too old to be gone", || (database.query(kept).len() == 1).then_some(()));
}

/// Two questions that Ann answered at one of two daemons; the second one is open, and what else may name her.
fn ann_was_here(database: &Database) -> [Remote; 2] {
    let people = "[web]\npeople = [{ name = \"annabel\", token = \"annabel-0123456789abcdef\" }]\n";
    let [mut first, mut second] =
        ["host-a", "host-b"].map(|node| Remote::ready(world(database, node).more_config(people)));
    first.world.start();
    joins(&mut second);
    let agent = first.agent("research");
    for (request, question) in [("r1", "Fire Bob?"), ("r2", "Hire Eve?")] {
        assert_eq!(agent.ask(request, question).0, 201);
    }
    let ask = within(SOON, "the question", || second.world.open().into_iter().find(|ask| ask["request_id"] == "r1"));
    let answer = json!({"answers": {ask["questions"][0]["id"].as_str().unwrap(): "yes"}}).to_string();
    let headers = "authorization: Bearer annabel-0123456789abcdef\r\ncontent-type: application/json\r\n";
    let path = format!("/api/v1/asks/{}/answer", ask["id"].as_str().unwrap());
    assert_eq!(second.world.raw("POST", &path, headers, &answer).0, 200);
    agent.outcome("r1");
    assert_eq!(agent.taken("r1"), 204);
    within(SOON, "the first to be filed", || {
        (database.query("select count(*) from askd.asks where settled") == ["1"]).then_some(())
    });
    let device = r#"{"v": 1, "devices": [{"person": "annabel"}, {"person": "bob"}]}"#;
    database.query(&format!(
        "insert into askd.documents (name, bytes) values ('push.json', '{device}'), ('channels/old.json.corrupt', 'annabel')
             on conflict (name) do update set bytes = excluded.bytes;
         insert into askd.rejected (group_name, name, bytes) values ('g', 'x.json', '{{\"title\": \"ask annabel\"}}');
         insert into askd.set_aside (id, group_name, record) values (gen_random_uuid(), 'g', '{{\"by\": \"annabel\"}}');
         insert into askd.allowed (group_name, question, at, by)
             values ('g', repeat('0', 64), 7, '{{\"via\": \"web\", \"id\": \"annabel\", \"name\": \"annabel\"}}')"
    ));
    [first, second]
}

fn forgets_ann(database: &Database, sabotage: Option<&str>) {
    let [mut first, mut second] = ann_was_here(database);
    // The second one first: it would begin to lead, and move aside what is damaged.
    assert!(second.world.terminate().success());
    let refused = run(forget(&first.world, &["--person", "annabel"]));
    assert!(err(&refused).contains("stop every daemon that uses the database"), "{}", err(&refused));
    assert!(first.world.terminate().success());
    database.query("insert into askd.webhooks (channel, body) values ('whatsapp', 'from annabel')");
    let waits = run(forget(&first.world, &["--person", "annabel"]));
    assert!(err(&waits).contains("messages about that wait to be read"), "{}", err(&waits));
    database.query("delete from askd.webhooks");
    let mut command = forget(&first.world, &["--person", "annabel"]);
    sabotage.map(|step| command.env("ASKD_SABOTAGE", step));
    let told = run(command);
    assert_eq!(told.status.code(), Some(0), "{}{}", out(&told), err(&told));
    assert!(out(&told).starts_with("Erased: 1 question, 1 line of the audit log, 5 other files."), "{}", out(&told));
    assert_eq!(database.with(&["annabel", "Fire Bob"]), Vec::<String>::new());
    assert_eq!(database.with(&["Hire Eve"]).len(), 1, "the open question stays");
    assert_eq!(database.with(&["bob"]), ["push.json"], "and his browser");
    let again = run(forget(&second.world, &["--person", "annabel"]));
    assert!(out(&again).starts_with("Nothing in the records names that person or question."), "{}", out(&again));
    first.world.start();
    assert_eq!(first.world.open().len(), 1);
}

#[test]
fn a_person_is_forgotten_in_the_database_while_no_daemon_runs() {
    let Some(database) = Database::found() else { return };
    forgets_ann(&database, None);
}

/// The name of such a group says its host, and its folder's name does not.
#[test]
fn what_lies_in_a_folder_that_the_settings_do_not_name_is_forgotten_too() {
    let Some(database) = Database::found() else { return };
    let mut world = world(&database, "host-a").more_config("[defaults]\nroutes = [{ channel = \"web\" }]\n");
    world.start();
    let agent = world.group("default");
    agent.ask("r1", &choice("Fire Bob?", &["yes", "no"]));
    let ask = world.one_open();
    assert_eq!(ask["group"], "default@host-a");
    assert_eq!(world.answer(&ask, &json!({"Fire Bob?": "yes"})).0, 200);
    agent.wait("r1");
    assert!(world.terminate().success());
    let told = run(forget(&world, &["--ask", ask["id"].as_str().unwrap()]));
    assert!(out(&told).starts_with("Erased: 1 question, 1 answer that nobody had collected, "), "{}", out(&told));
    assert_eq!(agent.response("r1"), None);
}

#[test]
fn a_person_whom_the_audit_log_in_the_database_still_names_is_noticed() {
    let Some(database) = Database::found() else { return };
    let check = move || forgets_ann(&database, Some("keepname"));
    assert!(thread::spawn(check).join().is_err(), "keepname: nobody noticed");
}
