//! From a request file to a stored ask, by every way a client may write one.

use crate::harness::{SOON, World, within};
use askd_core::Time;
use serde_json::{Value, json};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

#[test]
fn a_request_is_stored_before_it_is_deleted() {
    let world = World::new();
    let agent = world.group("research");
    agent.ask(
        "r1",
        &json!({
            "title": "T", "context": "C", "session_id": "s1", "opCode": "op", "timeoutMs": 60000,
            "questions": [{"question": "Which framework?", "options": ["React", {"label": "Vue", "description": "d"}]}]
        }),
    );
    let ask = world.one_open();
    let id = ask["id"].as_str().unwrap();
    let path = world.data().join(format!("state/pending_questions/research/{id}.json"));
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((record["source_group"].as_str(), record["request_id"].as_str()), (Some("research"), Some("r1")));
    assert_eq!((record["session_id"].as_str(), record["questions"].as_array().map(Vec::len)), (Some("s1"), Some(1)));
    agent.tasks_gone();
    let status = agent.status_of("r1");
    assert_eq!(status["state"], "open");
    assert_eq!(status["answer_by"], ask["answer_by"]);
    let log = within(SOON, "the log line", || world.log().contains("Pending question created").then(|| world.log()));
    assert!(log.contains("source_group=research") && log.contains("request_id=\"r1\""), "{log}");
    assert!(!log.contains("React"), "no question text in the log");
}

#[test]
fn the_same_request_again_is_the_same_ask() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    agent.ask_framework("r1");
    agent.tasks_gone();
    assert_eq!(world.open().len(), 1);
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    assert_eq!(agent.take("r1")["result"]["answers"]["Which framework?"], "Vue");
    world.all_done("g");
    // Taken, and asked for once more: written again.
    agent.ask_framework("r1");
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "Vue");
    assert!(world.open().is_empty());
}

#[test]
fn the_same_id_with_other_content_is_kept_and_answered_by_nobody() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    agent.ask("r1", &json!({"questions": [{"question": "Something else?"}]}));
    within(SOON, "the second request to be kept", || {
        (world.state_files("rejected/g").len() == 1 && agent.task_names().is_empty()).then_some(())
    });
    assert!(agent.response("r1").is_none(), "the first waiter would take it for its own");
    // Nor does a malformed one with its id get between the first waiter and its answer.
    agent.put("x.json", br#"{"type":"ask_user:ask","request_id":"r1","questions":7}"#);
    within(SOON, "the third request to be kept", || (world.state_files("rejected/g").len() == 2).then_some(()));
    assert!(agent.response("r1").is_none());
    assert_eq!(world.answer(&ask, &json!({"r1_0": "React"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React");
}

#[test]
fn a_call_with_the_key_of_an_open_ask_joins_it() {
    let world = World::new();
    let agent = world.group("g");
    let question = json!([{"question": "Go?", "options": ["yes", "no"]}]);
    agent.ask("r1", &json!({"idempotency_key": "k", "questions": question, "opCode": "one"}));
    let ask = world.one_open();
    agent.ask("r2", &json!({"idempotency_key": "k", "questions": question, "opCode": "two"}));
    agent.status_of("r2");
    assert_eq!(world.open().len(), 1, "one card for one question");
    // A yes to one thing is none to another, although both are asked in the same words.
    let about_another = json!({"idempotency_key": "k", "title": "Production", "questions": question});
    for (id, other) in [
        ("r3", json!({"idempotency_key": "k", "questions": [{"question": "Other?"}]})),
        ("r4", about_another.clone()),
        ("r5", json!({"idempotency_key": "k", "context": "Delete the database.", "questions": question})),
    ] {
        agent.ask(id, &other);
        let refused = agent.wait(id);
        assert_eq!(refused["result"]["status"], "rejected");
        assert!(refused["error"].as_str().unwrap().contains("idempotency_key"), "{refused}");
    }
    world.answer(&ask, &json!({"Go?": "yes"}));
    for (id, code) in [("r1", "one"), ("r2", "two")] {
        let response = agent.wait(id);
        assert_eq!(
            (response["result"]["answers"]["Go?"].as_str(), response["result"]["opCode"].as_str()),
            (Some("yes"), Some(code))
        );
    }
    // The answers are not taken yet, and none is given to another question.
    agent.ask("r6", &about_another);
    assert_eq!(world.open_of("r6")["title"], "Production");
}

/// The record says that a question is answered a moment before the index lists it among the answered ones.
#[test]
fn a_request_that_comes_while_an_answer_is_being_stored_is_given_that_answer() {
    let mut world = World::empty().in_files().with_binary();
    let gate = world.dir.path().join("gate");
    world.set_env("ASKD_GATE", &format!("saved={}", gate.display()));
    let world = world.started();
    let agent = world.group("g");
    let same = json!({"idempotency_key": "k", "questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    agent.ask("r1", &same);
    let ask = world.one_open();
    // What is saved of it must not meet the gate.
    agent.tasks_gone();
    within(SOON, "the deadline to be told", || agent.status_of("r1")["answer_by"].as_str().map(drop));
    fs::write(&gate, "").unwrap();
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| world.answer(&ask, &json!({"Go?": "yes"})).0);
        let id = ask["id"].as_str().unwrap();
        within(SOON, "the answer to be stored", || (world.details(id)["state"] == "settled").then_some(()));
        agent.ask("r2", &same);
        let is_claimed = || agent.task_names().iter().all(|name| name.starts_with(".claimed-")).then_some(());
        within(SOON, "the request to be claimed", is_claimed);
        // Time to decide on it.
        std::thread::sleep(Duration::from_millis(200));
        fs::remove_file(&gate).unwrap();
        assert_eq!(answering.join().unwrap(), 200);
    });
    // A client that gives no signs of life has 15 s to take its response.
    assert_eq!(agent.wait("r2")["result"]["answers"], json!({"Go?": "yes"}));
    assert_eq!(world.open(), [json!(null); 0]);
}

#[test]
fn only_so_many_calls_join_a_question_and_each_is_told_alone() {
    let world = World::new();
    let agent = world.group("g");
    let same = json!({"idempotency_key": "k", "questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    agent.ask("r1", &same);
    let ask = world.one_open();
    agent.status_of("r1");
    // The page starts the clock: from now on the status says the same.
    within(SOON, "the deadline to be told", || agent.status_of("r1")["answer_by"].as_str().map(drop));
    let file = || fs::metadata(agent.path.join("responses/r1.status")).unwrap().ino();
    let join = |numbers: RangeInclusive<u32>| {
        for number in numbers.clone() {
            agent.ask(&format!("r{number}"), &same);
        }
        within(SOON * 2, "all to be told", || {
            numbers
                .clone()
                .all(|number| agent.status_now(&format!("r{number}")) == agent.status_now("r1"))
                .then_some(())
        });
    };
    // While a call is alone its status is written without a look at what is there, perhaps just now.
    join(2..=20);
    let before = file();
    join(21..=100);
    assert_eq!(file(), before, "a status that says the same is not written again");
    agent.ask("more", &same);
    let refused = agent.wait("more");
    assert_eq!(refused["result"]["status"], "rejected");
    assert!(refused["error"].as_str().unwrap().contains("100 calls"), "{refused}");
    assert_eq!(world.open().len(), 1, "and no second card");
    world.answer(&ask, &json!({"Go?": "yes"}));
    assert_eq!(agent.wait("r100")["result"]["answers"]["Go?"], "yes");
}

#[test]
fn two_groups_do_not_see_each_other() {
    let world = World::new();
    let (one, two) = (world.group("one"), world.group("two"));
    one.ask_framework("same");
    two.ask("same", &json!({"questions": [{"question": "Which city?"}]}));
    let asks = within(SOON, "both asks", || Some(world.open()).filter(|asks| asks.len() == 2));
    for ask in &asks {
        let answer = if ask["questions"][0]["question"] == "Which framework?" { "React" } else { "Oslo" };
        assert_eq!(world.answer(ask, &json!({"same_0": answer})).0, 200);
    }
    assert_eq!(one.wait("same")["result"]["answers"]["Which framework?"], "React");
    assert_eq!(two.wait("same")["result"]["answers"]["Which city?"], "Oslo");
}

#[test]
fn more_than_is_allowed_is_rejected_as_rate_limited() {
    let world =
        World::empty().with_binary().config("[asks]\nmax_open_per_group = 2\nmax_per_hour_per_group = 3\n").started();
    let agent = world.group("g");
    for id in ["a", "b"] {
        agent.ask_framework(id);
        world.open_of(id);
    }
    agent.ask_framework("c");
    let refused = agent.wait("c");
    assert_eq!(refused["result"]["status"], "rejected");
    assert!(refused["error"].as_str().unwrap().contains("rate_limited"), "{refused}");
    assert!(
        refused["error"].as_str().unwrap().contains("2 questions open, the limit that max_open_per_group sets"),
        "{refused}"
    );
    world.answer(&world.open_of("a"), &json!({"a_0": "Vue"}));
    world.answer(&world.open_of("b"), &json!({"b_0": "Vue"}));
    agent.ask_framework("d");
    world.answer(&world.open_of("d"), &json!({"d_0": "Vue"}));
    agent.ask_framework("e");
    assert!(
        agent.wait("e")["error"]
            .as_str()
            .unwrap()
            .contains("3 questions asked within an hour, the limit that max_per_hour_per_group sets")
    );
    // A restart does not give another hour.
    let mut world = world;
    world.kill();
    world.start();
    agent.ask_framework("f");
    assert!(
        agent.wait("f")["error"]
            .as_str()
            .unwrap()
            .contains("3 questions asked within an hour, the limit that max_per_hour_per_group sets")
    );
}

/// A host whose clock was ahead until it was set by the network.
#[test]
fn what_was_asked_while_the_clock_was_ahead_counts_no_more_once_it_is_set_back() {
    let world = World::empty().config("[asks]\nmax_per_hour_per_group = 3\n").started();
    let agent = world.group("g");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = Time::from_millis(i64::try_from(now.as_millis()).unwrap());
    world.hand().set(now + Duration::from_secs(86_400));
    for id in ["a", "b", "c"] {
        agent.ask_framework(id);
        world.open_of(id);
    }
    world.hand().set(now);
    for id in ["d", "e", "f"] {
        agent.ask_framework(id);
        world.open_of(id);
    }
    agent.ask_framework("g");
    assert!(agent.wait("g")["error"].as_str().unwrap().contains("max_per_hour_per_group"));
}

#[test]
fn folders_and_files_are_for_agents_of_another_user_too() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::empty().env("ASKD__DIR_MODE", "0775").started();
    // A folder is made for nobody else first, and then given its mode.
    let has_mode = |path: &str, mode: u32| {
        let path = world.data().join(path);
        within(SOON, &format!("{} to have mode {mode:o}", path.display()), || {
            (fs::metadata(&path).ok()?.permissions().mode() & 0o7777 == mode).then_some(())
        });
    };
    has_mode("ipc/default/tasks", 0o775);
    has_mode("ipc/default/responses", 0o775);
    has_mode("state", 0o700);
    has_mode("state/web_token", 0o600);
    let agent = world.group("default");
    agent.ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    agent.wait("r1");
    has_mode("ipc/default/responses/r1.json", 0o664);
    agent.responses_are(&["r1.json"]);
}
