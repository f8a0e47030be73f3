//! Who is still waiting? Outcomes that nobody took, agents that are started with them, late answers, sessions
//! that are stopped. The agent is files and, where it is started, a command that writes down what it was given.

use crate::harness::{Agent, SHORTEST, SOON, World, names, within};
use crate::said;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Long enough for a process to be judged: 15 s without a sign, looked at every 5 s, twice.
pub(crate) const JUDGED: Duration = Duration::from_secs(60);

/// A program that notes that it was run, with what it was given.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    notes: PathBuf,
}

impl Program {
    pub(crate) fn new(dir: &Path, name: &str, status: i32) -> Self {
        let (path, notes) = (dir.join(name), dir.join(format!("{name}.ran")));
        fs::create_dir_all(&notes).unwrap();
        let script = format!(
            "#!/bin/sh\nn=$(mktemp {0}/.XXXXXX)\n(env; echo; echo \"arguments: $*\"; cat) >$n\nmv $n {0}/$(basename $n | tr -d .)\nexit {status}\n",
            notes.display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { path, notes }
    }

    /// What it was given, each time it was run.
    pub(crate) fn runs(&self) -> Vec<String> {
        let runs = names(&self.notes).into_iter().filter(|name| !name.starts_with('.'));
        runs.map(|name| fs::read_to_string(self.notes.join(name)).unwrap()).collect()
    }

    pub(crate) fn run(&self) -> String {
        within(JUDGED, "the program to run", || self.runs().into_iter().next())
    }
}

/// A world whose group `g` has this session, and these rules.
pub(crate) fn with_session(session: &str, rules: &str) -> World {
    World::empty().config(&in_g(session, rules))
}

pub(crate) fn in_g(session: &str, rules: &str) -> String {
    format!("[groups.g]\n{rules}\nroutes = [{{ channel = \"web\" }}]\nsession = {{ {session} }}\n")
}

pub(crate) fn start(program: &Program) -> String {
    format!("start = {{ command = [\"{}\", \"research agent\"] }}", program.path.display())
}

fn question() -> Value {
    json!({"questions": [
        {"question": "Which auth strategy?", "options": ["JWT tokens", "Session cookies", "OAuth 2.0"]},
    ]})
}

fn and(mut fields: Value, more: &Value) -> Value {
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

const JWT: &str = "You previously asked the user: \"Which auth strategy?\"\n\
                   Options: 1. JWT tokens, 2. Session cookies, 3. OAuth 2.0\n\
                   The user answered: \"JWT tokens\"\n\
                   Continue from where you left off.";

/// The briefing in what a program was given.
fn briefing(run: &str) -> Value {
    serde_json::from_str(&run[run.find("\n{").unwrap()..]).unwrap()
}

fn note(world: &World, ask: &Value) -> Value {
    world.details(ask["id"].as_str().unwrap())["note"].clone()
}

fn whats(world: &World) -> Vec<String> {
    world.audit().iter().map(|line| line["what"].as_str().unwrap().to_owned()).collect()
}

/// Asks `r1`, which nobody answers in time; the agent takes the timeout.
fn timed_out(world: &World, agent: &Agent, fields: Value) -> Value {
    agent.ask("r1", &and(fields, &json!({"timeoutMs": 10000})));
    let ask = world.one_open();
    world.later(SHORTEST);
    assert_eq!(agent.take("r1")["result"]["status"], "timeout");
    ask
}

/// Gives signs of life until it is dropped.
pub(crate) struct Alive(Arc<AtomicBool>);

impl Alive {
    /// As clients of the version before do.
    pub(crate) fn new(agent: &Agent, process: &str) -> Self {
        Self::at(agent.tasks().join(format!(".alive-{process}")))
    }

    fn at(path: PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        fs::write(&path, "").unwrap();
        let told = Arc::clone(&over);
        std::thread::spawn(move || {
            let mut beat = 0_u32;
            while !told.load(Ordering::SeqCst) {
                beat += 1;
                fs::write(&path, beat.to_string()).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self(over)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_drop_in_client_that_does_not_collect_its_answer_is_started_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    agent.ask("r1", &and(question(), &json!({"session_id": "run-7"})));
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let run = program.run();
    assert!(run.contains("arguments: research agent\n"), "argv, never a shell: {run}");
    assert!(run.contains(&format!("ASKD_ASK_ID={}\n", ask["id"].as_str().unwrap())) && run.contains("ASKD_GROUP=g\n"));
    assert!(!run.contains("CARGO"), "a small environment: {run}");
    let told = briefing(&run);
    assert_eq!(told["text"], JWT);
    assert_eq!((&told["session_id"], &told["result"]["status"]), (&json!("run-7"), &json!("answered")));
    assert_eq!(told["result"]["request_id"], "r1");
    let started = json!(said::STARTED);
    within(SOON, "the card to say so", || (note(&world, &ask) == started).then_some(()));
    within(SOON, "nothing to be left in responses", || names(&agent.path.join("responses")).is_empty().then_some(()));
    assert_eq!(program.runs().len(), 1);
    let whats = whats(&world);
    for what in ["not_collected", "briefed", "started"] {
        assert_eq!(whats.iter().filter(|line| *line == what).count(), 1, "{what}: {whats:?}");
    }
}

#[test]
fn who_takes_the_answer_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "pickup_timeout = \"6s\"").started();
    let agent = world.group("g");
    agent.ask("r1", &question());
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    agent.take("r1");
    let path = format!("settled/g/{}.json", ask["id"].as_str().unwrap());
    let taken =
        || fs::read_to_string(world.data().join("state").join(&path)).is_ok_and(|text| text.contains("\"taken\""));
    within(SOON, "that it was taken to be noticed", || taken().then_some(()));
    assert!(names(&agent.path.join("briefings")).is_empty() && program.runs().is_empty());
    assert_eq!(note(&world, &ask), Value::Null);
}

#[test]
fn a_dead_process_is_told_apart_from_one_that_lives() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    let _alive = Alive::new(&agent, "lives");
    agent.ask("alive", &and(question(), &json!({"process": "lives"})));
    let inside = agent.tasks().join(".alive");
    fs::create_dir(&inside).unwrap();
    let _alive_inside = Alive::at(inside.join("inside"));
    agent.ask("inside", &and(json!({"questions": [{"question": "In the folder?"}]}), &json!({"process": "inside"})));
    // The folder for signs is in nobody's reach: a file lies in its place, or a link that the daemon does not follow.
    let in_the_way = world.group("in-the-way");
    fs::write(in_the_way.tasks().join(".alive"), "").unwrap();
    let _alive_beside = Alive::new(&in_the_way, "beside");
    in_the_way.ask("beside", &and(json!({"questions": [{"question": "Beside it?"}]}), &json!({"process": "beside"})));
    let hidden = world.group("hidden");
    std::os::unix::fs::symlink(dir.path(), hidden.tasks().join(".alive")).unwrap();
    hidden.ask("hidden", &and(json!({"questions": [{"question": "Where?"}]}), &json!({"process": "hidden"})));
    for (id, question) in [("inside", "In the folder?"), ("beside", "Beside it?"), ("hidden", "Where?")] {
        assert_eq!(world.answer(&world.open_of(id), &json!({question: "here"})).0, 200);
    }
    fs::write(agent.tasks().join(".alive-died"), "").unwrap();
    agent.ask("dead", &and(json!({"questions": [{"question": "And now?"}]}), &json!({"process": "died"})));
    assert_eq!(world.answer(&world.open_of("alive"), &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    assert_eq!(world.answer(&world.open_of("dead"), &json!({"And now?": "go on"})).0, 200);
    world.passing(JUDGED, "the one that died to be judged", || program.runs().pop());
    let told = briefing(&program.run());
    assert_eq!(
        told["text"],
        "You previously asked the user: \"And now?\"\nThe user answered: \"go on\"\nContinue from where you left off."
    );
    assert_eq!(program.runs().len(), 1);
    assert!(agent.response("alive").is_some(), "a process that lives may take it at any time");
    assert!(agent.response("inside").is_some() && in_the_way.response("beside").is_some());
    assert!(hidden.response("hidden").is_some(), "askd cannot see whether it lives");
    assert!(world.log().contains("tasks/.alive cannot be read"), "{}", world.log());
    assert!(agent.response("dead").is_none());
}

#[test]
fn a_start_that_fails_is_tried_again_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let world = with_session(&start(&program), "pickup_timeout = \"1s\"").started();
    let agent = world.group("g");
    agent.ask("r1", &question());
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    world.passing(JUDGED, "a second try", || (program.runs().len() > 1).then_some(()));
    let briefing = agent.briefing(&ask);
    assert!(briefing.exists());
    let _repaired = Program::new(dir.path(), "start", 0);
    let started = json!(said::STARTED);
    world.passing(JUDGED, "the card to say so", || (note(&world, &ask) == started).then_some(()));
    assert!(whats(&world).contains(&"start_failed".to_owned()));
}

#[test]
fn without_a_start_the_answer_is_kept_for_the_agents_next_start() {
    let world = with_session("", "answer_retention = \"1s\"").started();
    let agent = world.group("g");
    agent.ask("r1", &question());
    let ask = world.one_open();
    assert_eq!(world.call("POST", &format!("/asks/{}/dismiss", ask["id"].as_str().unwrap()), None).0, 200);
    let path = agent.briefing(&ask);
    let told = world.passing(JUDGED, "the briefing", || fs::read(&path).ok());
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert!(told["text"].as_str().unwrap().contains("\nThe user dismissed the question.\nContinue"), "{told}");
    assert_eq!((&told["result"]["status"], &told["result"]["reason"]), (&json!("cancelled"), &json!("user")));
    let kept = json!(said::KEPT);
    within(SOON, "the card to say so", || (note(&world, &ask) == kept).then_some(()));
    // The agent starts, and reads it.
    fs::remove_file(&path).unwrap();
    world.passing(SOON, "the card to say nothing of it any more", || (note(&world, &ask) == Value::Null).then_some(()));
}

#[test]
fn who_asks_the_same_again_is_given_the_answer_that_nobody_took() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "pickup_timeout = \"1h\"").started();
    let agent = world.group("g");
    let fields = and(question(), &json!({"session_id": "s"}));
    agent.ask("before", &fields);
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let first = agent.wait("before");
    agent.ask("after", &and(fields.clone(), &json!({"opCode": "op-2"})));
    let again = world.passing(JUDGED, "the answer", || agent.response("after"));
    agent.take("after");
    assert!(agent.response("before").is_none(), "it can be taken once");
    assert_eq!(again["result"]["answers"], first["result"]["answers"]);
    assert_eq!(again["result"]["answered_at"], first["result"]["answered_at"]);
    assert_eq!(again["result"]["opCode"], "op-2");
    assert!(world.open().is_empty(), "no second card");
    // Taken: from now on the same is a new question.
    agent.ask("third", &fields);
    assert_ne!(world.one_open()["id"], ask["id"]);
    assert!(program.runs().is_empty());
}

/// Asks `before` in a session, and has it answered; nobody takes that. What was asked, and the answers.
fn left_behind(world: &World, agent: &Agent) -> (Value, Value) {
    let fields = and(question(), &json!({"session_id": "s"}));
    agent.ask("before", &fields);
    let answers = json!({"Which auth strategy?": "JWT tokens"});
    assert_eq!(world.answer(&world.one_open(), &answers).0, 200);
    assert_eq!(agent.wait("before")["result"]["answers"], answers);
    (fields, answers)
}

#[test]
fn of_two_calls_that_wait_for_one_answer_neither_is_asked_anew() {
    both_are_told(with_session("", ""));
}

/// One of the two may be dead by then: asked anew, its question would have no agent that waits for it.
pub(crate) fn both_are_told(world: World) {
    let world = world.started();
    let agent = world.group("g");
    let (fields, answer) = left_behind(&world, &agent);
    let both = ["one", "other"];
    for id in both {
        agent.ask(id, &and(fields.clone(), &json!({"renderTimeout": 10000, "maxRetries": 0})));
    }
    // Their agents see that askd has them, however long that takes.
    let stay_claimed = || {
        let names = agent.task_names();
        names.iter().all(|name| name.starts_with(".claimed-")).then_some(())
    };
    within(SOON, "both to be claimed", stay_claimed);
    for id in both {
        assert_eq!(agent.status_of(id)["state"], "posting");
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((stay_claimed(), agent.task_names().len()), (Some(()), 2));
    let told = |id| agent.response(id).map(|_| id);
    let first = world.passing(JUDGED, "the answer for one of them", || both.into_iter().find_map(told));
    assert_eq!(agent.take(first)["result"]["answers"], answer);
    let second = both.into_iter().find(|id| *id != first).unwrap();
    let told = world.passing(SHORTEST * 2, "the answer for the other one", || agent.response(second));
    assert_eq!(told["result"]["answers"], answer);
    agent.take(second);
    assert_eq!(world.open(), [Value::Null; 0], "no second card");
    // From now on the same is a new question, even of an agent that has waited before.
    agent.ask("third", &fields);
    world.one_open();
}

/// Who waits at that moment is told the outcome that another call is given; who comes after it asks something new.
#[test]
fn a_call_that_comes_while_a_repeat_takes_the_answer_is_a_new_question() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let (fields, _) = left_behind(&world, &agent);
    let all = ["r1", "r2", "r3", "r4"];
    for id in all {
        agent.ask(id, &fields);
    }
    let first = world.passing(JUDGED, "the answer", || all.into_iter().find(|id| agent.response(id).is_some()));
    // As our own client does before it hands the answer over.
    let responses = agent.path.join("responses");
    let taken = responses.join(format!(".taken-{first}.json"));
    fs::rename(responses.join(format!("{first}.json")), &taken).unwrap();
    agent.ask("later", &fields);
    let others = || all.into_iter().filter(|id| agent.response(id).is_some()).count() == 3;
    world.passing(SHORTEST * 2, "all others to be told", || others().then_some(()));
    fs::remove_file(&taken).unwrap();
    let new = world.passing(JUDGED, "the new question", || world.open().pop());
    assert_eq!((new["request_id"].as_str(), world.open().len()), (Some("later"), 1));
    assert!(agent.response("later").is_none());
}

#[test]
fn a_call_that_waits_for_an_answer_can_be_withdrawn_and_takes_nothing() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let (fields, answer) = left_behind(&world, &agent);
    agent.ask("again", &and(fields, &json!({"opCode": "op"})));
    assert_eq!(agent.status_of("again")["state"], "posting");
    agent.cancel("again");
    let told = agent.wait("again");
    assert_eq!(told["result"]["opCode"], "op");
    assert_eq!((&told["result"]["status"], &told["result"]["reason"]), (&json!("cancelled"), &json!("system")));
    within(SOON, "nothing to be left of it", || agent.task_names().is_empty().then_some(()));
    for _ in 0..20 {
        world.later(Duration::from_secs(1));
    }
    assert_eq!(agent.take("before")["result"]["answers"], answer);
    assert_eq!(world.open(), [Value::Null; 0]);
}

#[test]
fn a_briefing_that_nobody_read_goes_to_who_asks_the_same_again() {
    let world = with_session("", "answer_retention = \"6s\"").started();
    let agent = world.group("g");
    let fields = and(question(), &json!({"session_id": "s", "process": "gone"}));
    agent.ask("before", &fields);
    let ask = world.one_open();
    world.later(Duration::from_secs(1));
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let path = agent.briefing(&ask);
    world.passing(JUDGED, "the briefing", || path.exists().then_some(()));
    // Past the retention it is a new question, and the briefing stays.
    agent.ask("late", &and(question(), &json!({"session_id": "s"})));
    let new = world.one_open();
    assert_ne!(new["id"], ask["id"]);
    assert!(path.exists());
}

/// A container that was paused, or a computer that slept.
#[test]
fn a_process_that_was_suspended_while_it_was_answered_gets_its_answer_unless_it_was_read() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let briefed = |ask: &Value| agent.briefing(ask);
    let suspended = |id: &str| {
        let alive = Alive::new(&agent, id);
        agent.ask(id, &json!({"process": id, "questions": [{"question": format!("{id}?")}]}));
        let ask = world.open_of(id);
        drop(alive);
        assert_eq!(world.answer(&ask, &json!({format!("{id}_0"): "yes"})).0, 200);
        world.passing(JUDGED, "the briefing", || briefed(&ask).exists().then_some(()));
        ask
    };
    let (_, read) = (suspended("back"), suspended("read"));
    fs::remove_file(briefed(&read)).unwrap();
    let _alive = (Alive::new(&agent, "back"), Alive::new(&agent, "read"));
    let told = world.passing(JUDGED, "the answer", || agent.response("back"));
    assert_eq!(told["result"]["answers"], json!({"back?": "yes"}));
    let briefings = || names(&agent.path.join("briefings"));
    within(SOON, "nothing to be left of its briefing", || briefings().is_empty().then_some(()));
    let told = world.passing(JUDGED, "where the answer went", || agent.response("read"));
    assert_eq!((&told["error"], &told["result"]["answers"]), (&json!(said::TOLD_ELSEWHERE), &json!({})));
    // Told once, however long the process lives.
    agent.take("read");
    for _ in 0..20 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(agent.response("read").is_none());
}

/// The agent was started with the answer, so that it is not told a second time to a process that comes back.
#[test]
fn a_process_that_was_suspended_while_its_agent_was_started_anew_is_told_where_the_answer_went() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let alive = Alive::new(&agent, "p");
    agent.ask("r1", &and(question(), &json!({"process": "p"})));
    let ask = world.one_open();
    drop(alive);
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let started = json!(said::STARTED);
    world.passing(JUDGED, "the start", || (note(&world, &ask) == started).then_some(()));
    let _alive = Alive::new(&agent, "p");
    let told = world.passing(JUDGED, "where the answer went", || agent.response("r1"));
    assert_eq!((&told["error"], &told["result"]["status"]), (&json!(said::TOLD_ELSEWHERE), &json!("undeliverable")));
    assert_eq!(note(&world, &ask), started);
}

/// What a process that was suspended is told when it withdraws its question as soon as it goes on.
#[test]
fn who_withdraws_after_it_was_suspended_is_told_what_came_of_its_question() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    for (id, read) in [("back", false), ("read", true)] {
        let alive = Alive::new(&agent, id);
        agent.ask(id, &json!({"process": id, "questions": [{"question": format!("{id}?")}]}));
        let ask = world.open_of(id);
        drop(alive);
        assert_eq!(world.answer(&ask, &json!({format!("{id}_0"): "yes"})).0, 200);
        let path = agent.briefing(&ask);
        world.passing(JUDGED, "the briefing", || path.exists().then_some(()));
        if read {
            fs::remove_file(&path).unwrap();
            world.passing(JUDGED, "the reading", || whats(&world).contains(&"briefing_read".to_owned()).then_some(()));
        }
        agent.cancel(id);
        let told = within(SOON, "what came of it", || agent.response(id));
        let expected = if read { json!(said::TOLD_ELSEWHERE) } else { Value::Null };
        assert_eq!(told["error"], expected);
        assert_eq!(told["result"]["answered"], json!(!read));
    }
}

/// Its outcome went to another call, which asked the same while it was suspended.
#[test]
fn a_call_that_was_suspended_while_another_took_its_place_gets_the_answer_too() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let asking = |process: &str| and(question(), &json!({"process": process, "idempotency_key": "k"}));
    let first = Alive::new(&agent, "first");
    agent.ask("one", &asking("first"));
    world.one_open();
    let _second = Alive::new(&agent, "second");
    agent.ask("two", &asking("second"));
    agent.status_of("two");
    drop(first);
    let replaced = || whats(&world).contains(&"call_replaced".to_owned());
    world.passing(3 * JUDGED, "the second to take its place", || replaced().then_some(()));
    assert_eq!(world.answer(&world.one_open(), &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    agent.take("two");
    let withdrawn = || agent.response("one").is_none();
    world.passing(JUDGED, "the response of the first to be taken back", || withdrawn().then_some(()));
    let _first = Alive::new(&agent, "first");
    let told = world.passing(JUDGED, "the answer of the first", || agent.response("one"));
    assert_eq!(told["result"]["answers"], json!({"Which auth strategy?": "JWT tokens"}));
}

#[test]
fn all_suspended_calls_of_a_question_get_its_answer_whichever_goes_on_first() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let alive = ["one", "two"].map(|id| {
        let alive = Alive::new(&agent, id);
        agent.ask(id, &and(question(), &json!({"process": id, "idempotency_key": "k"})));
        world.one_open();
        alive
    });
    within(SOON, "the second to join", || whats(&world).contains(&"joined".to_owned()).then_some(()));
    let ask = world.one_open();
    drop(alive);
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let path = agent.briefing(&ask);
    world.passing(JUDGED, "the briefing", || path.exists().then_some(()));
    let _one = Alive::new(&agent, "one");
    world.passing(JUDGED, "the answer of the one", || agent.response("one"));
    let _two = Alive::new(&agent, "two");
    world.passing(JUDGED, "the answer of the other", || agent.response("two"));
    assert!(!path.exists(), "nobody else gets it");
}

#[test]
fn the_same_request_once_more_gets_its_answer_once_more() {
    let world = with_session("", "answer_retention = \"1s\"").started();
    let agent = world.group("g");
    agent.ask("r1", &question());
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let path = agent.briefing(&ask);
    world.passing(JUDGED, "the briefing", || path.exists().then_some(()));
    agent.ask("r1", &question());
    assert_eq!(agent.wait("r1")["result"]["answers"], json!({"Which auth strategy?": "JWT tokens"}));
    within(SOON, "the briefing to be gone", || (!path.exists()).then_some(()));
}

#[test]
fn a_late_answer_starts_the_agent_with_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let ask = timed_out(&world, &agent, question());
    let id = ask["id"].as_str().unwrap();
    let shown = world.details(id);
    assert!(shown["late_until"].is_string(), "{shown}");
    assert_eq!(shown["note"], said::STILL_ANSWERABLE);
    assert!(program.runs().is_empty(), "nobody is started for a timeout");
    let (status, told) = world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"}));
    assert_eq!(status, 200, "{told}");
    assert_eq!((&told["late"], &told["outcome"]["status"]), (&json!(true), &json!("timeout")));
    assert_eq!(told["outcome"]["line"], "Answered after the timeout: JWT tokens by operator");
    assert_eq!(briefing(&program.run())["text"], JWT);
    assert_eq!(briefing(&program.run())["result"]["status"], "answered");
    let (status, problem) = world.answer(&ask, &json!({"Which auth strategy?": "OAuth 2.0"}));
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().contains("JWT tokens"), "{problem}");
    let started = json!(said::STARTED);
    within(SOON, "the card to say so", || (note(&world, &ask) == started).then_some(()));
    assert!(whats(&world).contains(&"answered_late".to_owned()));
    let token = format!("authorization: Bearer {}\r\n", world.token());
    let (_, csv) = world.raw("GET", "/api/v1/export?format=csv&outcome=timeout", &token, "");
    let shown = world.details(id);
    let [asked, settled, late] =
        [&shown["created_at"], &shown["outcome"]["at"], &shown["late_answer"]["at"]].map(|at| at.as_str().unwrap());
    let row = format!("{id},g,{asked},{settled},timeout,,Which auth strategy?,JWT tokens,api,operator,{late}");
    assert_eq!(csv.lines().nth(1), Some(row.as_str()));
}

#[test]
fn a_late_answer_of_weeks_later_is_in_the_trail() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "late_answers = \"14d\"").started();
    let agent = world.group("g");
    let ask = timed_out(&world, &agent, question());
    world.later(Duration::from_secs(12 * 24 * 3600));
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    program.run();
    let trail = world.trail(ask["id"].as_str().unwrap());
    let has = |what: &str| trail.iter().any(|line| line["what"] == what);
    assert!(has("asked") && has("expired") && has("answered_late"), "{trail:?}");
}

#[test]
fn asking_again_ends_the_time_for_a_late_answer() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let fields = and(question(), &json!({"session_id": "s"}));
    let ask = timed_out(&world, &agent, fields.clone());
    agent.ask("r2", &fields);
    let new = world.open_of("r2");
    assert_ne!(new["id"], ask["id"]);
    // Never both: who saw the new one cannot answer the old one, not even while the new one is being stored.
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 409);
    within(SOON, "the old card to say so", || (note(&world, &ask) == "Asked again.").then_some(()));
    assert_eq!(world.answer(&new, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    agent.take("r2");
}

#[test]
fn without_a_start_a_late_answer_is_refused_and_given_back() {
    let world = World::new();
    let agent = world.group("g");
    let ask = timed_out(&world, &agent, question());
    let (status, problem) = world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"}));
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().ends_with("Your answer was not used: JWT tokens"), "{problem}");
    assert_eq!(world.details(ask["id"].as_str().unwrap())["late_until"], Value::Null);
}

#[test]
fn under_abort_task_a_timeout_stops_the_session_after_its_response() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "stop", 0);
    let world = with_session(
        &format!("stop = {{ command = [\"{}\"] }}", program.path.display()),
        "on_timeout = \"abort_task\"",
    )
    .started();
    let agent = world.group("g");
    agent.ask("r1", &and(question(), &json!({"timeoutMs": 10000})));
    let ask = world.one_open();
    world.later(SHORTEST);
    let run = program.run();
    assert!(agent.response("r1").is_some(), "the response comes first");
    assert!(run.contains("ASKD_REASON=ask_user_timeout\n") && run.contains("\"reason\":\"ask_user_timeout\""), "{run}");
    within(SOON, "the card to say so", || {
        (world.details(ask["id"].as_str().unwrap())["outcome"]["line"] == "Timed out, cancelled.").then_some(())
    });
    // The audit log is written after what the API shows was stored.
    let stopped = |whats: &Vec<String>| whats.iter().any(|what| what == "stopped");
    let whats = within(SOON, "the stop to be noted", || Some(whats(&world)).filter(stopped));
    assert!(whats.iter().position(|what| what == "delivered") < whats.iter().position(|what| what == "stopped"));
    // A call may say otherwise for itself.
    agent.ask("r2", &and(question(), &json!({"timeoutMs": 10000, "timeoutPolicy": "return_cancel"})));
    let other = world.open_of("r2");
    world.later(SHORTEST);
    assert_eq!(agent.wait("r2")["result"]["status"], "timeout");
    world.all_done("g");
    assert_eq!(world.details(other["id"].as_str().unwrap())["outcome"]["line"], "Timed out");
    assert_eq!(program.runs().len(), 1);
}

#[test]
fn a_session_that_nothing_stops_is_not_said_to_be_stopped() {
    let mut world = with_session("stop = { command = [\"/bin/false\"] }", "on_timeout = \"abort_task\"").started();
    let agent = world.group("g");
    agent.ask("r1", &and(question(), &json!({"timeoutMs": 10000})));
    let ask = world.one_open();
    world.terminate();
    let mut world = world.config(&in_g("", ""));
    world.start();
    world.later(SHORTEST);
    assert_eq!(agent.take("r1")["result"]["status"], "timeout");
    world.all_done("g");
    assert_eq!(world.details(ask["id"].as_str().unwrap())["outcome"]["line"], "Timed out");
    assert!(world.log().contains("the settings no longer say how to stop it"), "{}", world.log());
    assert!(!whats(&world).iter().any(|what| what == "stopped"));
}

/// The call of the process that died would have the session stopped in which its successor works.
#[test]
fn a_call_of_a_dead_process_that_another_one_replaces_stops_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "stop", 0);
    let world = with_session(&format!("stop = {{ command = [\"{}\"] }}", program.path.display()), "").started();
    let agent = world.group("g");
    let call = |id: &str, process: &str, policy: &str| {
        let fields = json!({"session_id": "s", "process": process, "timeoutPolicy": policy, "timeoutMs": 1_200_000});
        agent.ask(id, &and(question(), &fields));
        agent.status_of(id);
    };
    let _alive = (Alive::new(&agent, "lives"), Alive::new(&agent, "beside"));
    let dying = Alive::new(&agent, "died");
    call("dead", "died", "abort_task");
    call("lives", "beside", "return_cancel");
    call("successor", "lives", "return_cancel");
    let noted = |what: &str| world.audit().into_iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let replaced = || noted("call_replaced");
    // It lives for a while longer.
    agent.ask("while", &json!({"questions": [{"question": "How long?"}], "timeoutMs": 10_000}));
    world.passing(JUDGED, "ten seconds", || agent.response("while"));
    agent.take("while");
    drop(dying);
    let gone =
        world.passing(3 * JUDGED, "the dead one to be replaced", || Some(replaced()).filter(|it| !it.is_empty()));
    assert_eq!(gone[0]["request_id"], "dead");
    // Its container was only paused.
    let joined = noted("joined").len();
    let back = Alive::new(&agent, "died");
    world.passing(3 * JUDGED, "it to wait again", || (noted("joined").len() > joined).then_some(()));
    drop(back);
    world.passing(3 * JUDGED, "it to be replaced again", || (replaced().len() == 2).then_some(()));
    world.later(Duration::from_secs(1_200));
    for id in ["dead", "lives", "successor"] {
        assert_eq!(agent.wait(id)["result"]["status"], "timeout", "who only seemed dead is told, too");
    }
    world.all_done("g");
    assert_eq!((replaced().len(), program.runs().len()), (2, 0));
    assert!(!whats(&world).iter().any(|what| what == "stopped"));
}

/// Whoever drives the runs finds the one to go on with by its session.
#[test]
fn the_agent_is_started_with_the_session_of_the_call_that_replaced_a_dead_one() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let dying = [("a3", "run-A"), ("b3", "run-B")].map(|(id, session)| {
        let alive = Alive::new(&agent, id);
        let fields = json!({"process": id, "idempotency_key": "k", "session_id": session, "timeoutMs": 600_000});
        agent.ask(id, &and(question(), &fields));
        agent.status_of(id);
        alive
    });
    let [first, second] = dying;
    drop(first);
    let replaced = || whats(&world).contains(&"call_replaced".to_owned());
    world.passing(3 * JUDGED, "the second to take its place", || replaced().then_some(()));
    drop(second);
    assert_eq!(world.answer(&world.one_open(), &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let told = briefing(&world.passing(JUDGED, "the start", || program.runs().pop()));
    assert_eq!((&told["session_id"], &told["result"]["request_id"]), (&json!("run-B"), &json!("b3")));
    assert_eq!(program.runs().len(), 1);
}

/// askd tells each run of an agent separately: what one run has taken tells the others nothing.
#[test]
fn a_session_whose_call_died_is_started_with_the_answer_that_another_session_has_taken() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let calls = [("a4", "run-A"), ("b4", "run-B"), ("c4", "run-C"), ("a5", "run-A")];
    let mut alive = calls.map(|(id, session)| {
        let alive = Alive::new(&agent, id);
        let fields = json!({"process": id, "idempotency_key": "k", "session_id": session, "timeoutMs": 600_000});
        agent.ask(id, &and(question(), &fields));
        agent.status_of(id);
        Some(alive)
    });
    assert_eq!(world.answer(&world.one_open(), &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    for (id, _) in calls {
        assert_eq!(agent.wait(id)["result"]["status"], "answered");
    }
    agent.take("a4");
    // All but the one that has its answer.
    alive[1..].fill_with(|| None);
    world.passing(3 * JUDGED, "both starts", || (program.runs().len() == 2).then_some(()));
    let back = || ["a5", "b4", "c4"].iter().all(|id| agent.response(id).is_none());
    world.passing(JUDGED, "the other call of the first session to be judged", || back().then_some(()));
    let mut told: Vec<Value> = program.runs().iter().map(|run| briefing(run)).collect();
    told.sort_by_key(|told| told["session_id"].to_string());
    let whose = |told: &Value| (told["session_id"].clone(), told["result"]["request_id"].clone());
    let wanted = [("run-B", "b4"), ("run-C", "c4")].map(|(session, id)| (json!(session), json!(id)));
    assert_eq!(told.iter().map(whose).collect::<Vec<_>>(), wanted);
}

/// The briefing of another session is not taken back for it.
#[test]
fn a_process_whose_session_has_read_its_briefing_is_told_so_while_another_sessions_briefing_lies_there() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let alive = [("a6", "run-A"), ("b6", "run-B")].map(|(id, session)| {
        let alive = Alive::new(&agent, id);
        agent.ask(id, &and(question(), &json!({"process": id, "idempotency_key": "k", "session_id": session})));
        agent.status_of(id);
        alive
    });
    let ask = world.one_open();
    drop(alive);
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    let id = ask["id"].as_str().unwrap();
    let path = agent.path.join("briefings").join(format!("{id}.json"));
    let whose = || {
        let told = fs::read(&path).ok().and_then(|told| serde_json::from_slice::<Value>(&told).ok());
        told.map(|told| told["session_id"].clone())
    };
    let first = world.passing(3 * JUDGED, "the first briefing", whose);
    fs::remove_file(&path).unwrap();
    let second = world.passing(JUDGED, "the second briefing", whose);
    assert_ne!(first, second);
    let back = if first == "run-A" { "a6" } else { "b6" };
    let _alive = Alive::new(&agent, back);
    let told = world.passing(JUDGED, "where the answer went", || agent.response(back));
    assert_eq!((&told["error"], &told["result"]["answers"]), (&json!(said::TOLD_ELSEWHERE), &json!({})));
    for _ in 0..20 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(whose().as_ref(), Some(&second), "it was taken back");
    }
    let briefings = whats(&world).iter().filter(|what| *what == "briefed").count();
    assert_eq!(briefings, 2, "one for each session");
}

/// Nothing shows whether the calls live: askd takes the response of the first one back for the second.
#[test]
fn a_session_that_did_not_take_its_answer_gets_it_when_it_asks_again_although_another_one_has_it() {
    let world = with_session("", "").started();
    let agent = world.group("g");
    let asks = |id: &str, session: &str| {
        agent.ask(id, &and(question(), &json!({"idempotency_key": "k", "session_id": session})));
    };
    for (id, session) in [("a1", "run-A"), ("b1", "run-B")] {
        asks(id, session);
        agent.status_of(id);
    }
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which auth strategy?": "JWT tokens"})).0, 200);
    agent.wait("b1");
    agent.take("a1");
    world.noted_as_taken("g");
    world.later(Duration::from_secs(16));
    asks("b2", "run-B");
    let told = world.passing(JUDGED, "the answer", || agent.response("b2"));
    assert_eq!(told["result"]["answers"], json!({"Which auth strategy?": "JWT tokens"}));
    assert!(world.open().is_empty() && agent.response("b1").is_none(), "no second card, and no second answer");
}

/// What a call is replaced by came before the restart.
#[test]
fn a_call_of_a_process_that_died_around_a_restart_is_replaced() {
    let mut world = with_session("", "").started();
    let agent = world.group("g");
    let _lives = Alive::new(&agent, "lives");
    let dying = Alive::new(&agent, "died");
    for (id, process) in [("dead", "died"), ("successor", "lives")] {
        agent.ask(id, &and(question(), &json!({"session_id": "s", "process": process})));
        agent.status_of(id);
    }
    drop(dying);
    // Longer than askd looks after a call.
    world.later(Duration::from_secs(1_500));
    world.terminate();
    world.start();
    let replaced = || world.audit().into_iter().find(|line| line["what"] == "call_replaced");
    let gone = world.passing(3 * JUDGED, "the dead one to be replaced", replaced);
    assert_eq!(gone["request_id"], "dead");
}

#[test]
fn a_session_that_makes_no_sense_is_named() {
    for (session, rules, key) in [
        ("start = { docker = \"a b\" }", "", "groups.g.session.start.docker"),
        ("start = { command = [\"start.sh\"] }", "", "groups.g.session.start.command"),
        ("start = { command = [] }", "", "groups.g.session.start.command"),
        ("stop = { docker = \"a\", command = [\"/bin/true\"] }", "", "groups.g.session.stop"),
        ("probe = {}", "", "groups.g.session.probe"),
        ("end = { docker = \"a\" }", "", "end"),
        ("start = { docker = \"a\" }", "on_timeout = \"abort_task\"", "groups.g.on_timeout"),
        ("", "late_answers = \"soon\"", "groups.g.late_answers"),
        ("", "pickup_timeout = \"0s\"", "groups.g.pickup_timeout"),
    ] {
        let mut world = with_session(session, rules).with_binary();
        assert!(!world.try_start(), "{session} {rules}");
        assert!(world.log().contains(key), "{session} {rules}: {}", world.log());
    }
}
