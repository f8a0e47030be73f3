//! Sessions in containers, with an Engine that is nothing but a socket: what is asked of it, and what the daemon
//! makes of its answers. The real Engine has its turn in `tests/docker`.

use crate::harness::{Agent, SHORTEST, SOON, World, within};
use crate::said;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const JUDGED: Duration = Duration::from_secs(60);
const LONG_AGO: &str = "2020-01-01T00:00:00Z";
const RUNNING: &str = "The agent is running but no longer waits; it gets the answer when it asks again or next starts.";
const STARTED: &str = said::STARTED;

/// An Engine with one container, `agent`.
struct Engine {
    socket: PathBuf,
    container: Arc<Mutex<Container>>,
}

struct Container {
    there: bool,
    running: bool,
    started_at: String,
    /// What the Engine says to a start, if it does not do it.
    refuses: Option<&'static str>,
    calls: Vec<String>,
}

impl Engine {
    fn new(dir: &Path, running: bool, started_at: &str) -> Self {
        let engine = Self {
            socket: dir.join("docker.sock"),
            container: Arc::new(Mutex::new(Container {
                there: true,
                running,
                started_at: started_at.to_owned(),
                refuses: None,
                calls: Vec::new(),
            })),
        };
        engine.listen();
        engine
    }

    fn listen(&self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let container = Arc::clone(&self.container);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), container) = (stream, Arc::clone(&container)) else { return };
                std::thread::spawn(move || serve(stream, &container));
            }
        });
    }

    fn set(&self, change: impl FnOnce(&mut Container)) {
        change(&mut self.container.lock().unwrap());
    }

    fn starts(&self) -> usize {
        self.calls("POST /containers/agent/start")
    }

    fn calls(&self, begin: &str) -> usize {
        self.container.lock().unwrap().calls.iter().filter(|call| call.starts_with(begin)).count()
    }

    fn world(&self, session: &str, rules: &str) -> World {
        let routes = "routes = [{ channel = \"web\" }]";
        World::empty()
            .config(&format!("[groups.g]\n{rules}\n{routes}\nsession = {{ {session} }}\n"))
            .docker(&self.socket)
            .started()
    }
}

fn serve(mut stream: UnixStream, container: &Mutex<Container>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    while reader.read_line(&mut first).is_ok_and(|read| read > 0) {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = told.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let (status, body) = answer(&first, &mut container.lock().unwrap());
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
        first.clear();
    }
}

fn answer(call: &str, container: &mut Container) -> (&'static str, String) {
    container.calls.push(call.to_owned());
    if !container.there {
        return ("404 Not Found", json!({"message": "No such container: agent"}).to_string());
    }
    if call.starts_with("GET /containers/agent/json") {
        let state = json!({"Running": container.running, "StartedAt": container.started_at});
        return ("200 OK", json!({"Id": "c0ffee", "State": state}).to_string());
    }
    let starting = call.starts_with("POST /containers/agent/start");
    match container.refuses {
        Some(why) if starting => return ("500 Internal Server Error", json!({"message": why}).to_string()),
        _ => {}
    }
    container.running = starting;
    if starting {
        "2099-01-01T00:00:00Z".clone_into(&mut container.started_at);
    }
    ("204 No Content", String::new())
}

fn note(world: &World, ask: &Value, wanted: &str) {
    let id = ask["id"].as_str().unwrap();
    world.passing(JUDGED, wanted, || (world.details(id)["note"] == wanted).then_some(()));
}

fn asked_and_answered(world: &World, agent: &Agent, more: &Value) -> Value {
    let mut fields = json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.ask("r1", &fields);
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    ask
}

#[test]
fn a_stopped_container_is_started_and_finds_its_briefing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), false, LONG_AGO);
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    let ask = asked_and_answered(&world, &agent, &json!({}));
    note(&world, &ask, STARTED);
    assert_eq!(engine.starts(), 1);
    let told = std::fs::read_to_string(agent.briefing(&ask)).unwrap();
    assert!(told.contains("Continue from where you left off."), "{told}");
    // The agent reads it. What was said stays true.
    std::fs::remove_file(agent.briefing(&ask)).unwrap();
    let read = || world.audit().iter().any(|line| line["what"] == "briefing_read");
    world.passing(SOON, "that it was read to be noticed", || read().then_some(()));
    note(&world, &ask, STARTED);
    assert_eq!(engine.starts(), 1, "once");
}

#[test]
fn one_that_runs_since_it_asked_is_started_when_it_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    let ask = asked_and_answered(&world, &agent, &json!({}));
    note(&world, &ask, RUNNING);
    assert_eq!(engine.starts(), 0);
    engine.set(|container| container.running = false);
    note(&world, &ask, STARTED);
    assert_eq!(engine.starts(), 1);
}

#[test]
fn one_that_runs_since_later_than_it_asked_counts_as_started() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, "2099-01-01T00:00:00Z");
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    let ask = asked_and_answered(&world, &agent, &json!({}));
    note(&world, &ask, "The agent has been started since it asked; the answer is kept for it.");
    assert_eq!(engine.starts(), 0);
    assert!(agent.briefing(&ask).exists());
}

/// The run that was started between the timeout and the late answer has not read that answer.
#[test]
fn a_late_answer_starts_a_container_that_was_started_between_the_timeout_and_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?", "options": ["yes", "no"]}]}));
    let ask = world.one_open();
    world.later(SHORTEST);
    agent.take("r1");
    let timed_out = world.details(ask["id"].as_str().unwrap())["outcome"]["at"].as_str().unwrap().to_owned();
    engine.set(|container| container.started_at = timed_out);
    world.later(Duration::from_secs(2));
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    note(&world, &ask, RUNNING);
    engine.set(|container| container.running = false);
    note(&world, &ask, STARTED);
    assert_eq!(engine.starts(), 1);
}

#[test]
fn an_engine_that_is_away_a_container_that_is_gone_and_a_start_that_is_refused_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), false, LONG_AGO);
    std::fs::remove_file(&engine.socket).unwrap();
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    let ask = asked_and_answered(&world, &agent, &json!({}));
    let says = |what: &str| world.passing(JUDGED, what, || world.log().contains(what).then_some(()));
    says("there is no Docker Engine at");
    engine.set(|container| container.there = false);
    engine.listen();
    says("there is no container \\\"agent\\\"");
    engine.set(|container| (container.there, container.refuses) = (true, Some("port is already allocated")));
    says("port is already allocated");
    assert!(agent.briefing(&ask).exists());
    engine.set(|container| container.refuses = None);
    note(&world, &ask, STARTED);
}

#[test]
fn a_probe_tells_who_lives_by_the_run_of_its_container() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let both = "probe = { docker = \"agent\" }, start = { docker = \"agent\" }";
    let world = engine.world(both, "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    // It gives no sign of life; but its container runs as it did when it asked.
    let ask = asked_and_answered(&world, &agent, &json!({"process": "p1"}));
    let looked = |times| world.passing(JUDGED, "the probe", || (engine.calls("GET") >= times).then_some(()));
    looked(3);
    assert!(agent.response("r1").is_some(), "alive: with a sign of life and a probe, dead needs both");
    assert!(!agent.briefing(&ask).exists());
    engine.set(|container| container.running = false);
    note(&world, &ask, STARTED);
    assert!(agent.response("r1").is_none());
    assert_eq!(engine.starts(), 1);
}

#[test]
fn under_abort_task_the_container_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let world = engine.world("stop = { docker = \"agent\" }", "on_timeout = \"abort_task\"");
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    let ask = world.one_open();
    note(&world, &ask, "Timed out, cancelled.");
    assert_eq!(engine.calls("POST /containers/agent/stop"), 1);
    assert!(agent.response("r1").is_some(), "the response was written first");
}

#[test]
fn a_container_that_was_started_anew_since_it_asked_is_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let world = engine.world("stop = { docker = \"agent\" }", "on_timeout = \"abort_task\"");
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    let ask = world.one_open();
    engine.set(|container| "2099-01-01T00:00:00Z".clone_into(&mut container.started_at));
    note(&world, &ask, "Timed out, cancelled.");
    assert_eq!(engine.calls("POST /containers/agent/stop"), 0, "it is another session");
}

#[test]
fn another_run_of_the_container_is_another_session() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let both = "probe = { docker = \"agent\" }, start = { docker = \"agent\" }";
    let world = engine.world(both, "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    agent.ask("r1", &json!({"process": "p1", "questions": [{"question": "Go?", "options": ["yes", "no"]}]}));
    let ask = world.one_open();
    let record = world.data().join(format!("state/pending_questions/g/{}.json", ask["id"].as_str().unwrap()));
    let run = format!("\"run\": \"c0ffee@{LONG_AGO}\"");
    let known = || std::fs::read_to_string(&record).is_ok_and(|text| text.contains(&run));
    within(SOON, "the run that asked to be known", || known().then_some(()));
    // By its times it could be the same one; it is not.
    engine.set(|container| "2020-01-02T00:00:00Z".clone_into(&mut container.started_at));
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    note(&world, &ask, RUNNING);
    assert!(agent.response("r1").is_none());
}

/// askd itself has started the container since it asked, for the first session.
#[test]
fn the_container_is_started_for_each_session_that_waited() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), false, LONG_AGO);
    let world = engine.world("start = { docker = \"agent\" }", "pickup_timeout = \"1s\"");
    let agent = world.group("g");
    for (id, session) in [("a1", "run-A"), ("b1", "run-B")] {
        let questions = json!([{"question": "Go?", "options": ["yes", "no"]}]);
        agent.ask(id, &json!({"idempotency_key": "k", "session_id": session, "questions": questions}));
        agent.status_of(id);
    }
    let ask = world.one_open();
    world.later(Duration::from_secs(2));
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    note(&world, &ask, STARTED);
    let answered = world.details(ask["id"].as_str().unwrap())["outcome"]["at"].as_str().unwrap().to_owned();
    engine.set(|container| container.started_at = answered);
    let told = || serde_json::from_slice::<Value>(&std::fs::read(agent.briefing(&ask)).unwrap()).unwrap();
    let first = told()["session_id"].clone();
    world.later(Duration::from_secs(2));
    std::fs::remove_file(agent.briefing(&ask)).unwrap();
    note(&world, &ask, RUNNING);
    assert_eq!(engine.starts(), 1);
    engine.set(|container| container.running = false);
    note(&world, &ask, STARTED);
    assert_eq!(engine.starts(), 2);
    assert_ne!(told()["session_id"], first);
}

/// Between the writing of a request and the start that reads it.
#[test]
fn a_container_that_was_restarted_while_its_request_lay_there_is_another_session() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::new(dir.path(), true, LONG_AGO);
    let mut world = engine.world("probe = { docker = \"agent\" }, start = { docker = \"agent\" }", "");
    let agent = world.group("g");
    world.terminate();
    agent.ask("r1", &json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]}));
    engine.set(|container| "2099-01-01T00:00:00Z".clone_into(&mut container.started_at));
    world.start();
    let ask = world.one_open();
    within(SOON, "the Engine to be asked who asks", || (engine.calls("GET") > 0).then_some(()));
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    note(&world, &ask, "The agent has been started since it asked; the answer is kept for it.");
    assert!(agent.response("r1").is_none() && agent.briefing(&ask).exists());
}
