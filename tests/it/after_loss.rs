//! After a loss of power: what the records say may be older than what was done, so nothing is assumed.

use crate::command_line::script;
use crate::harness::{ASKD, World};
use serde_json::json;
use std::fs;

/// Makes every record of another boot of the computer.
fn boots_anew(world: &World) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = boot.trim().chars().rev().collect::<String>();
    let state = world.data().join("state");
    for folder in ["pending_questions/g", "settled/g", "journal", "."] {
        for name in world.state_files(folder) {
            let path = state.join(folder).join(name);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if text.contains(boot.trim()) {
                fs::write(&path, text.replace(boot.trim(), &other)).unwrap();
            }
        }
    }
}

/// An answered question whose response nobody has taken, and a daemon that was killed.
fn answered() -> World {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    agent.wait("r1");
    world.all_done("g");
    world.kill();
    world
}

#[test]
fn a_response_that_is_not_known_to_be_taken_is_written_again() {
    let mut world = answered();
    let agent = world.group("g");
    fs::remove_file(agent.response_path("r1")).unwrap();
    boots_anew(&world);
    world.start();
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "Vue");
}

#[test]
fn after_a_kill_a_response_that_is_gone_was_taken() {
    let mut world = answered();
    let agent = world.group("g");
    fs::remove_file(agent.response_path("r1")).unwrap();
    world.start();
    agent.ask_framework("r2");
    world.open_of("r2");
    assert!(agent.response("r1").is_none());
}

#[test]
fn after_a_clean_stop_nothing_is_in_doubt() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    agent.wait("r1");
    assert!(world.terminate().success());
    assert!(world.state_files(".").contains(&"clean".to_owned()));
    let is_empty = |part: &String| fs::metadata(world.state().join("journal").join(part)).unwrap().len() == 0;
    assert!(world.state_files("journal").iter().all(is_empty));
    fs::remove_file(agent.response_path("r1")).unwrap();
    boots_anew(&world);
    world.start();
    assert!(!world.state_files(".").contains(&"clean".to_owned()), "what follows may be lost again");
    agent.ask_framework("r2");
    world.open_of("r2");
    assert!(agent.response("r1").is_none());
}

#[test]
fn the_operator_can_say_that_something_was_lost() {
    let mut world = answered();
    let agent = world.group("g");
    fs::remove_file(agent.response_path("r1")).unwrap();
    world.after_loss(true);
    world.start();
    assert!(world.log().contains("started after a loss"));
    agent.wait("r1");
}

/// A copy of the folder that was made while askd ran.
#[test]
fn a_question_that_a_copy_has_both_open_and_closed_is_closed() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let file = format!("pending_questions/g/{}.json", ask["id"].as_str().unwrap());
    let open = fs::read(world.state().join(&file)).unwrap();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    agent.take("r1");
    world.all_done("g");
    world.kill();
    fs::write(world.state().join(&file), open).unwrap();
    world.after_loss(true);
    world.start();
    assert!(world.open().is_empty() && !world.state().join(&file).exists());
    assert_eq!(world.details(ask["id"].as_str().unwrap())["outcome"]["status"], "answered");
}

/// The file of a new question is not synced at once, because the journal has its record.
#[test]
fn a_torn_file_is_written_anew_from_the_journal() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    world.kill();
    let record = world.state().join(format!("pending_questions/g/{}.json", ask["id"].as_str().unwrap()));
    let bytes = fs::read(&record).unwrap();
    fs::write(&record, &bytes[..bytes.len() / 2]).unwrap();
    boots_anew(&world);
    world.start();
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    agent.wait("r1");
    assert!(world.terminate().success());
    assert!(world.state_files("pending_questions/g").iter().all(|name| !name.ends_with(".corrupt")));
}

/// As under systemd with `ProcSubset=pid`: no start knows whether the computer was switched off.
#[test]
fn a_boot_id_that_cannot_be_read_is_told_with_its_fix() {
    let world = World::empty();
    let hide = "mount -t proc -o subset=pid proc /proc && ! test -e /proc/sys/kernel/random/boot_id";
    let can = std::process::Command::new("unshare").args(["--mount", "sh", "-c", hide]).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIPPED a_boot_id_that_cannot_be_read_is_told_with_its_fix: /proc cannot be mounted here");
        return;
    }
    let program = world.dir.path().join("hidden");
    script(&program, &format!("exec unshare --mount sh -c '{hide} && exec \"$0\" \"$@\"' {ASKD} \"$@\""));
    let world = world.with_daemon(&program).started();
    let told = world.call("GET", "/status", None).1;
    let problem = &told["problems"][0];
    assert!(problem["line"].as_str().unwrap().contains("/proc/sys/kernel/random/boot_id"), "{told}");
    assert!(problem["fix"].as_str().unwrap().contains("ProcSubset=pid"), "{told}");
    assert!(world.log().contains("ProcSubset=pid"), "{}", world.log());
}
