//! A group's folder that another one takes the place of: somebody renamed or removed it, or its disk is not mounted yet.

use crate::harness::{Agent, SOON, World, within};
use crate::sessions::{JUDGED, Program, start, with_session};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Another folder is at the place of this one.
fn replace(world: &World, path: &str) {
    let path = world.data().join("ipc").join(path);
    fs::rename(&path, world.dir.path().join(format!("old-{}", path.file_name().unwrap().display()))).unwrap();
    fs::create_dir(&path).unwrap();
}

fn answered(world: &World, agent: &Agent, id: &str) -> Value {
    agent.ask_framework(id);
    let ask = world.open_of(id);
    assert_eq!(world.answer(&ask, &json!({format!("{id}_0"): "Vue"})).0, 200);
    within(SOON, "the response", || agent.response(id));
    ask
}

pub(crate) fn a_response_that_went_with_its_folder_is_written_again(world: World, soon: Duration) {
    let world = world.started();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    replace(&world, "g");
    within(soon, "the response to be there again", || agent.response("r1"));
}

#[test]
fn what_lay_in_a_folder_that_was_replaced_is_there_again_until_it_is_taken() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    replace(&world, "g");
    world.passing(JUDGED, "the response to be there again", || agent.response("r1"));
    agent.take("r1");
    world.noted_as_taken("g");
    assert!(agent.response("r1").is_none());

    // Somebody makes the folder itself, too.
    answered(&world, &agent, "r2");
    replace(&world, "g/responses");
    world.passing(JUDGED, "the response to be there again", || agent.response("r2"));
    assert!(agent.response("r1").is_none());
}

/// Nobody is there to see it. In a world of its own: the clock of the next run must not be behind that of the first one.
#[test]
fn what_lay_in_a_folder_that_was_replaced_while_askd_was_stopped_is_there_again() {
    let mut world = with_session("", "").started();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    assert!(world.terminate().success());
    fs::remove_dir_all(&agent.path).unwrap();
    fs::create_dir(&agent.path).unwrap();
    world.start();
    world.passing(JUDGED, "the response to be there again", || agent.response("r1"));
}

/// Nor has the run before noted that it was there.
#[test]
fn what_a_killed_run_had_published_in_a_folder_that_was_replaced_is_there_again() {
    what_a_killed_run_had_published_is_there_again(with_session("", ""));
}

pub(crate) fn what_a_killed_run_had_published_is_there_again(world: World) {
    let mut world = world.env("ASKD_CRASH_AT", "deliver.published").started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let answers = json!({"r1_0": "Vue"});
    let ask = world.open_of("r1");
    let answer = || world.answer(&ask, &answers).0;
    // The crash may come before the reply does.
    let _cut_off = std::thread::scope(|scope| scope.spawn(answer).join());
    assert!(!world.ended().success(), "it crashed");
    assert!(agent.response("r1").is_some());
    fs::remove_dir_all(&agent.path).unwrap();
    fs::create_dir(&agent.path).unwrap();
    world.without_env("ASKD_CRASH_AT");
    world.start();
    world.passing(JUDGED, "the response to be there again", || agent.response("r1"));
}

#[test]
fn a_briefing_that_went_with_its_folder_is_written_again() {
    let world = with_session("", "answer_retention = \"1s\"").started();
    let agent = world.group("g");
    let ask = answered(&world, &agent, "r1");
    let lies = || fs::read(agent.briefing(&ask)).ok();
    world.passing(JUDGED, "the briefing", lies);
    replace(&world, "g");
    let again = world.passing(JUDGED, "the briefing to be there again", lies);
    assert!(String::from_utf8(again).unwrap().contains("Vue"));
}

/// All at once: a response that goes before its folder counts as taken. askd may write into it meanwhile.
fn removed(agent: &Agent) {
    let aside = agent.path.ancestors().nth(2).unwrap().join("removed");
    fs::rename(&agent.path, &aside).unwrap();
    within(SOON, "the folder to be removed", || fs::remove_dir_all(&aside).ok());
}

fn is_started(world: &World, program: &Program, times: usize) {
    let last = world.passing(2 * JUDGED, "the agent to be started", || program.runs().into_iter().nth(times - 1));
    assert!(last.contains("The user answered: \\\"Vue\\\""), "{last}");
}

/// Nobody took it: the agent is started with it, or reads it at its next start.
#[test]
fn a_response_that_went_with_its_folder_before_it_is_taken_back_is_briefed() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    removed(&agent);
    is_started(&world, &program, 1);
    assert_eq!(program.runs().len(), 1);

    let world = with_session("", "answer_retention = \"60s\"").started();
    let agent = world.group("g");
    let ask = answered(&world, &agent, "r1");
    removed(&agent);
    world.passing(2 * JUDGED, "the briefing", || agent.briefing(&ask).exists().then_some(()));
}

#[test]
fn an_agent_is_started_although_its_briefing_went_with_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    is_started(&world, &program, 1);
    removed(&agent);
    is_started(&world, &program, 3);
}

/// The rename that puts a response out of reach hangs, and meanwhile its client writes the same request again: the response that this
/// one gets is not put out of reach in its place.
#[test]
fn a_response_that_is_written_again_while_it_is_taken_back_stays() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let mut world = with_session(&start(&program), "pickup_timeout = \"8s\"").with_binary();
    let (slow, calls) = (world.dir.path().join("slow"), world.dir.path().join("calls"));
    fs::write(&slow, "renameat2@.withdrawn-r1.json:3000").unwrap();
    world.set_env("ASKD_SLOW_CALL", slow.to_str().unwrap());
    world.set_env("ASKD_CALLS", calls.to_str().unwrap());
    world.start();
    let agent = world.group("g");
    answered(&world, &agent, "r1");
    let withdraws = |line: &str| line.starts_with("renameat2 ") && line.ends_with(" .withdrawn-r1.json");
    world.passing(JUDGED, "the response to be taken back", || {
        fs::read_to_string(&calls).ok()?.lines().any(withdraws).then_some(())
    });
    fs::remove_file(&slow).unwrap();
    agent.ask_framework("r1");
    within(SOON, "the second request to be taken in", || {
        crate::harness::names(&agent.tasks()).is_empty().then_some(())
    });
    within(SOON, "the response to be there again", || agent.response("r1").is_some().then_some(()));
    is_started(&world, &program, 1);
}

/// A look finds the loss, too, and the briefing is written again while the try that missed it still goes on.
#[test]
fn an_agent_is_started_although_its_lost_briefing_is_back_before_a_try_knows() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let mut world = with_session(&start(&program), "pickup_timeout = \"1s\"").with_binary();
    let gate = world.dir.path().join("gate");
    fs::write(&gate, "").unwrap();
    world.set_env("ASKD_GATE", &format!("wake.read={}", gate.display()));
    world.start();
    let agent = world.group("g");
    let ask = answered(&world, &agent, "r1");
    is_started(&world, &program, 1);
    removed(&agent);
    world.passing(JUDGED, "the briefing to be there again", || agent.briefing(&ask).exists().then_some(()));
    fs::remove_file(&gate).unwrap();
    is_started(&world, &program, 2);
}

#[test]
fn a_call_that_asks_again_gets_the_answer_that_went_with_the_folder() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let same = json!({"idempotency_key": "k", "questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    agent.ask("r1", &same);
    assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
    agent.wait("r1");
    removed(&agent);
    world.later(Duration::from_secs(6));
    fs::create_dir_all(agent.tasks()).unwrap();
    agent.ask("r2", &same);
    let response = world.passing(JUDGED, "the answer", || agent.response("r2"));
    assert_eq!(response["result"]["answers"], json!({"Go?": "yes"}));
    assert_eq!(world.open(), [json!(null); 0]);
}
