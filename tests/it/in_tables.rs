//! Stories about what the database holds beside the questions. `tests/postgres/run` starts the server; without it these stories
//! say that they were skipped.

use crate::harness::{SOON, World, askd, within};
use crate::on_postgres::{Database, host, joins};
use crate::remote::Remote;
use serde_json::Value;
use std::thread;

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
    let trail = second.world.call("GET", &format!("/asks/{id}/trail"), None).1;
    assert_eq!(trail["trail"].as_array().unwrap(), &log(&first.world, &id));
    assert!(first.world.log().contains("Pending question created"), "operators look there first");
    let text = database.query("select string_agg(line::text, ' ') from askd.audit").concat();
    assert!(!text.contains("Deploy?"), "{text}");
}

fn world(database: &Database, node: &str) -> World {
    World::empty().in_files().with_binary().more_config(&database.settings(node, false))
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
