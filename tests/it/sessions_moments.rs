//! The moments in which an answer that nobody took could be lost, or its agent started once too often.

use crate::harness::{Agent, SHORTEST, SOON, World, names, within};
use crate::said;
use crate::sessions::{Program, with_session};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Long enough for two looks, and for a start to be tried again.
const LOOKED: Duration = Duration::from_secs(30);

fn question() -> Value {
    json!({"questions": [{"question": "Go on?", "options": ["Yes", "No"]}]})
}

fn start(program: &Program) -> String {
    format!("start = {{ command = [\"{}\"] }}", program.path.display())
}

/// From now on it takes its time, and ends well.
fn slow_down(program: &Program) {
    let script = fs::read_to_string(&program.path).unwrap().replace("exit 1", "sleep 2\nexit 0");
    fs::write(&program.path, script).unwrap();
}

fn answered(world: &World, agent: &Agent) -> Value {
    agent.ask("r1", &question());
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go on?": "Yes"})).0, 200);
    ask
}

#[test]
fn a_start_that_is_owed_and_due_at_a_restart_happens_once() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let mut world = with_session(&start(&program), "pickup_timeout = \"1s\"").with_binary().started();
    let agent = world.group("g");
    let ask = answered(&world, &agent);
    program.run();
    let failed = || world.audit().iter().any(|line| line["what"] == "start_failed");
    within(SOON, "the first try to be recorded", || failed().then_some(()));
    world.kill();
    slow_down(&program);
    // Until the next try is due.
    std::thread::sleep(Duration::from_secs(5));
    world.start();
    let note = json!(said::STARTED);
    let id = ask["id"].as_str().unwrap();
    within(LOOKED, "the card to say so", || (world.details(id)["note"] == note).then_some(()));
    assert_eq!(program.runs().len(), 2, "the first try, and one more");
}

#[test]
fn a_probe_that_hangs_is_not_run_by_ever_more() {
    let dir = tempfile::tempdir().unwrap();
    let program = hanging(dir.path(), "probe");
    let world = with_session(&format!("probe = {{ command = [\"{}\"] }}", program.path.display()), "").started();
    let agent = world.group("g");
    let ask = answered(&world, &agent);
    let run = program.run();
    let id = ask["id"].as_str().unwrap();
    assert!(run.contains("ASKD_GROUP=g\n") && run.contains(&format!("ASKD_ASK_ID={id}\n")), "{run}");
    for _ in 0..14 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(program.runs().len(), 1, "nobody looks a second time before the first has ended");
    assert!(agent.response("r1").is_some());
}

fn hanging(dir: &Path, name: &str) -> Program {
    let program = Program::new(dir, name, 0);
    let script = fs::read_to_string(&program.path).unwrap().replace("exit 0", "exec sleep 60");
    fs::write(&program.path, script).unwrap();
    fs::set_permissions(&program.path, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Two agents would act on one answer. The command is the agent itself: it goes on, and counts as started after 30 s.
#[test]
fn who_asks_the_same_while_the_agent_is_started_with_the_answer_is_not_given_it_too() {
    let dir = tempfile::tempdir().unwrap();
    let program = hanging(dir.path(), "start");
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    let ask = answered(&world, &agent);
    program.run();
    agent.ask("r2", &question());
    let id = ask["id"].as_str().unwrap();
    let started = || (world.details(id)["note"] == said::STARTED).then_some(());
    world.passing(2 * LOOKED, "the card to say that the agent was started", started);
    assert_ne!(world.open_of("r2")["id"], ask["id"], "it is a question of its own");
    assert!(agent.response("r2").is_none() && program.runs().len() == 1);
}

#[test]
fn the_same_request_after_a_late_answer_is_told_that_answer() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let fields = {
        let mut fields = question();
        fields["timeoutMs"] = json!(10000);
        fields
    };
    agent.ask("r1", &fields);
    let ask = world.one_open();
    world.later(SHORTEST);
    assert_eq!(agent.take("r1")["result"]["status"], "timeout");
    assert_eq!(world.answer(&ask, &json!({"Go on?": "Yes"})).0, 200);
    program.run();
    // What is started fails; whoever asked comes back by itself.
    agent.ask("r1", &fields);
    let told = agent.wait("r1");
    assert_eq!(
        (&told["result"]["status"], &told["result"]["answers"]),
        (&json!("answered"), &json!({"Go on?": "Yes"}))
    );
}

#[test]
fn a_briefing_whose_reader_died_is_still_a_reason_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    let ask = answered(&world, &agent);
    program.run();
    let id = ask["id"].as_str().unwrap();
    let briefings = agent.path.join("briefings");
    fs::rename(briefings.join(format!("{id}.json")), briefings.join(format!(".taken-{id}.json"))).unwrap();
    let _repaired = Program::new(dir.path(), "start", 0);
    let note = json!(said::STARTED);
    world.passing(LOOKED, "the card to say so", || (world.details(id)["note"] == note).then_some(()));
    assert!(program.runs().iter().all(|run| run.contains("The user answered")), "{:?}", program.runs());
}

mod measures {
    use super::*;

    /// Twenty calls wait for one answer, and all of them are gone: putting their responses out of reach takes the disk's
    /// time and no pause. The quickest of three, on a busy machine.
    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn an_agent_that_is_awaited_by_many_is_started_at_once() {
        const CALLS: usize = 20;
        let took = (0..3).map(|_| {
            let dir = tempfile::tempdir().unwrap();
            let program = Program::new(dir.path(), "start", 0);
            let world = with_session(&start(&program), "pickup_timeout = \"1s\"\nmax_per_hour_per_group = 1000")
                .with_binary()
                .started();
            let agent = world.group("g");
            let mut asking = question();
            asking["idempotency_key"] = json!("the same");
            for n in 0..CALLS {
                agent.ask(&format!("r{n}"), &asking);
            }
            let ask = world.one_open();
            agent.tasks_gone();
            assert_eq!(world.open().len(), 1);
            assert_eq!(world.answer(&ask, &json!({"Go on?": "Yes"})).0, 200);
            let responses = agent.path.join("responses");
            // Looked for all the time: they are gone in a moment.
            let until = Instant::now() + LOOKED;
            while !names(&responses).iter().any(|name| name.starts_with(".withdrawn-")) {
                assert!(Instant::now() < until, "the first is not taken back");
                std::thread::sleep(Duration::from_millis(2));
            }
            let began = Instant::now();
            within(LOOKED, "the agent to be started", || program.runs().pop());
            assert!(names(&responses).iter().all(|name| !name.starts_with('r')), "all are out of reach");
            began.elapsed()
        });
        let took: Vec<Duration> = took.collect();
        assert!(took.iter().min().unwrap() <= &Duration::from_millis(300), "{took:?}");
    }
}
