//! Every way an ask can end, and who is told what.

use crate::harness::{SOON, World, within};
use crate::said;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::thread;

fn whats(world: &World) -> Vec<String> {
    world.audit().iter().map(|line| line["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_answer_by_the_api_has_every_field_and_leaves_nothing_behind() {
    let world = World::new();
    let agent = world.group("research");
    let questions = json!([
        {"question": "Which framework?", "options": ["React", "Vue"]},
        {"question": "Which targets?", "type": "multi-select", "options": ["staging", "prod"]},
        {"question": "Why?", "required": false},
    ]);
    agent.ask("r1", &json!({"questions": questions, "opCode": "op-7"}));
    let ask = world.one_open();
    let (status, settled) =
        world.answer(&ask, &json!({"Which framework?": "react", "r1_1": ["prod", "staging", "my own"]}));
    assert_eq!(status, 200, "{settled}");
    assert_eq!(settled["outcome"]["line"], "Answered: React; staging, prod, my own by operator");
    let response = agent.wait("r1");
    let at = response["result"]["answered_at"].clone();
    assert!(at.as_str().unwrap().ends_with('Z'));
    assert_eq!(
        response,
        json!({"result": {
            "answers": {"Which framework?": "React", "Which targets?": ["staging", "prod", "my own"]},
            "status": "answered", "reason": "user",
            "answered": true, "cancelled": false, "timedOut": false,
            "shouldRetry": false, "retryReason": null, "renderConfirmed": true,
            "details": [
                {"id": "r1_0", "question": "Which framework?", "selected": ["React"], "text": null},
                {"id": "r1_1", "question": "Which targets?", "selected": ["staging", "prod"], "text": "my own"},
            ],
            "answered_by": {"channel": "api", "id": "operator", "name": null},
            "request_id": "r1", "opCode": "op-7", "answered_at": at,
        }})
    );
    world.all_done("research");
    world.kept("research", 1);
    within(SOON, "the log", || world.log().contains("Pending question resolved").then_some(()));
    assert_eq!(whats(&world), ["asked", "posted", "answered", "delivered"]);
    let audit = serde_json::to_string(&world.audit()).unwrap();
    for text in ["framework", "React", "my own"] {
        assert!(!audit.contains(text), "no question or answer text in the audit log: {text}");
    }
}

#[test]
fn a_dismissal_tells_the_agent_that_the_user_dismissed_it() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let id = world.one_open()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.call("POST", &format!("/asks/{id}/dismiss"), Some(&json!({"by": "web"}))).0, 200);
    let response = agent.wait("r1");
    assert_eq!(response["error"], said::DISMISSED);
    let result = &response["result"];
    assert_eq!(
        (&result["status"], &result["reason"], &result["cancelled"]),
        (&json!("cancelled"), &json!("user"), &json!(true))
    );
    assert_eq!((&result["answers"], &result["details"]), (&json!({}), &json!([])));
    assert_eq!(result["answered_by"], json!({"channel": "web", "id": "operator", "name": null}));
    world.all_done("g");
    assert_eq!(whats(&world), ["asked", "posted", "dismissed", "delivered"]);
}

#[test]
fn a_withdrawal_by_the_agent_or_an_operator_is_told_as_such() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    world.open_of("r1");
    agent.cancel("r1");
    agent.ask_framework("r2");
    let id = world.open_of("r2")["id"].as_str().unwrap().to_owned();
    assert_eq!(world.call("POST", &format!("/asks/{id}/cancel"), None).0, 200);
    for id in ["r1", "r2"] {
        let response = world.passing(SOON, "the response", || agent.response(id));
        assert_eq!(response["error"], said::WITHDRAWN);
        assert_eq!(
            (&response["result"]["status"], &response["result"]["reason"]),
            (&json!("cancelled"), &json!("system"))
        );
    }
    world.all_done("g");
    // Of something unknown: ignored, and nothing is left of it.
    agent.cancel("nobody");
    agent.tasks_gone();
    assert!(agent.response("nobody").is_none());
}

#[test]
fn a_withdrawn_call_leaves_the_others_waiting() {
    let world = World::new();
    let agent = world.group("g");
    let question = json!([{"question": "Go?"}]);
    for id in ["r1", "r2"] {
        agent.ask(id, &json!({"idempotency_key": "k", "questions": question}));
        agent.status_of(id);
    }
    agent.cancel("r1");
    assert_eq!(agent.wait("r1")["result"]["status"], "cancelled");
    let ask = world.one_open();
    world.answer(&ask, &json!({"Go?": "yes"}));
    assert_eq!(agent.wait("r2")["result"]["answers"]["Go?"], "yes");
    assert_eq!(agent.wait("r1")["result"]["status"], "cancelled", "what it was told stays");
    world.all_done("g");
}

#[test]
fn an_ask_and_its_withdrawal_in_one_listing_are_read_in_that_order() {
    let mut world = World::process();
    world.kill();
    let agent = world.group("g");
    agent.cancel("r1");
    agent.ask_framework("r1");
    world.start();
    assert_eq!(agent.wait("r1")["result"]["status"], "cancelled");
}

#[test]
fn whoever_comes_late_is_told_what_it_was_answered_with_and_where() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    world.answer(&ask, &json!({"r1_0": "Vue"}));
    world.all_done("g");
    for answers in [json!({"r1_0": "React"}), json!({"nonsense": "React"})] {
        let (status, problem) = world.answer(&ask, &answers);
        assert_eq!(status, 409);
        assert_eq!(problem["ask"]["outcome"]["answers"], json!({"Which framework?": "Vue"}));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("Vue") && detail.contains("by the operator through the API"), "{detail}");
    }
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "Vue");
    assert!(whats(&world).contains(&"refused".to_owned()));
}

#[test]
fn what_does_not_fit_changes_nothing_and_says_why() {
    let world = World::new();
    let agent = world.group("g");
    let questions = json!([
        {"question": "Which?", "options": ["a", "b"], "custom": false},
        {"question": "Sure?", "type": "confirm"},
    ]);
    agent.ask("r1", &json!({"questions": questions}));
    let ask = world.one_open();
    let before = world.store();
    for (answers, words) in [
        (json!({"Which?": "c", "Sure?": "yes"}), "\"c\" is not an option of \"Which?\". Choose from: \"a\", \"b\"."),
        (json!({"Which?": "a"}), "Please answer: Sure?"),
        (json!({}), "Please answer: Which?; Sure?"),
        (json!({"Which?": "a", "Sure?": "perhaps"}), "\"Yes\", \"No\""),
        (json!({"Which?": ["a", "b"], "Sure?": "no"}), "takes one answer."),
        (
            json!({"Which?": "a", "Sure?": "no", "Else?": "x"}),
            "No question \"Else?\" here. Use its id or its whole text.",
        ),
    ] {
        let (status, problem) = world.answer(&ask, &answers);
        assert_eq!(status, 422, "{answers}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    assert_eq!(world.store(), before, "byte for byte");
    assert_eq!(world.answer(&ask, &json!({"Which?": "B", "r1_1": "no"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["answers"], json!({"Which?": "b", "Sure?": "No"}));
    // Who gave no answer is not told that it was not used.
    for (call, told) in
        [("dismiss", "Already answered"), ("cancel", "Already answered"), ("answer", "Your answer was not used.")]
    {
        let body = json!({"answers": {"Which?": "a", "Sure?": "yes"}});
        let path = format!("/asks/{}/{call}", ask["id"].as_str().unwrap());
        let (status, problem) = world.call("POST", &path, (call == "answer").then_some(&body));
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!((status, detail.contains("Your answer was not used.")), (409, call == "answer"), "{problem}");
        assert!(detail.contains(told), "{problem}");
    }
}

#[test]
fn one_answer_in_words_is_enough_beside_the_options() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &json!({"questions": [{"question": "Tags?", "options": ["a", "b"], "multiple": true}]}));
    let (status, problem) = world.answer(&world.one_open(), &json!({"Tags?": ["a", "z", "y"]}));
    let told = "\"Tags?\" takes only one answer in your own words, besides its options.";
    assert!(status == 422 && problem["detail"].as_str().unwrap().contains(told), "{status} {problem}");
}

/// How often two people answer at the same moment, in fifties: `ASKD_RIVALS` asks for more (the gate is 1,000).
fn rounds() -> usize {
    std::env::var("ASKD_RIVALS").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

/// P2, P3: of two people who answer at the same moment one wins, and the other is told so.
#[test]
fn of_two_people_who_answer_at_the_same_moment_one_wins() {
    let world =
        World::empty().config("[asks]\nmax_open_per_group = 100000\nmax_per_hour_per_group = 100000\n").started();
    let agent = world.group("g");
    let mut winners = BTreeSet::new();
    for batch in 0..rounds() / 50 {
        let ids: Vec<String> = (0..50).map(|n| format!("r{}", batch * 50 + n)).collect();
        for id in &ids {
            agent.ask_framework(id);
        }
        let asks = within(SOON, "the batch", || Some(world.open()).filter(|asks| asks.len() == 50));
        for ask in asks {
            let request_id = ask["request_id"].as_str().unwrap().to_owned();
            let (react, vue) = thread::scope(|scope| {
                let answer = |label: &'static str| {
                    let (world, ask, key) = (&world, &ask, format!("{request_id}_0"));
                    scope.spawn(move || world.answer(ask, &json!({ key: label })))
                };
                let (react, vue) = (answer("React"), answer("Vue"));
                (react.join().unwrap(), vue.join().unwrap())
            });
            let (won, lost, winner) = match (react.0, vue.0) {
                (200, 409) => (react.1, vue.1, "React"),
                (409, 200) => (vue.1, react.1, "Vue"),
                other => panic!("{other:?}"),
            };
            winners.insert(winner);
            let expected = json!({"Which framework?": winner});
            assert_eq!(won["outcome"]["answers"], expected);
            assert_eq!(lost["ask"]["outcome"]["answers"], expected, "the loser is told what won");
            assert!(lost["detail"].as_str().unwrap().contains(winner), "{lost}");
            assert_eq!(agent.take(&request_id)["result"]["answers"], expected);
        }
    }
    world.all_done("g");
    let answered = world.audit().iter().filter(|line| line["what"] == "answered").count();
    assert_eq!(answered, rounds() / 50 * 50, "one outcome each");
    println!("winners: {winners:?}");
}

#[test]
fn the_beacon_of_the_page_is_the_proof_of_display() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    assert_eq!(ask["render_confirmed"], false);
    let id = ask["id"].as_str().unwrap();
    for _ in 0..2 {
        assert_eq!(world.call("POST", &format!("/asks/{id}/shown"), None).0, 204);
    }
    let seen = world.details(id);
    assert_eq!(seen["render_confirmed"], true);
    assert_eq!(seen["answer_by"], ask["answer_by"], "a proof never restarts a clock");
    let (status, _) = world.call("POST", &format!("/asks/{id}/cancel"), None);
    assert_eq!(status, 200);
    assert_eq!(agent.wait("r1")["result"]["renderConfirmed"], true);
    assert_eq!(whats(&world).iter().filter(|what| *what == "shown").count(), 1);
}

#[test]
fn a_response_name_that_is_squatted_is_replaced_without_following_links() {
    let world = World::new();
    let agent = world.group("g");
    let outside = world.dir.path().join("outside");
    std::fs::write(&outside, "precious").unwrap();
    std::os::unix::fs::symlink(&outside, agent.response_path("r1")).unwrap();
    agent.ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    let response = within(SOON, "the response in place of the link", || {
        let link = std::fs::symlink_metadata(agent.response_path("r1")).ok()?.is_symlink();
        if link { None } else { agent.response("r1") }
    });
    assert_eq!(response["result"]["status"], "answered");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "precious");
}

#[test]
fn what_cannot_be_written_now_is_written_when_it_can() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    agent.status_of("r1");
    // The agent puts a file where its responses belong.
    agent.squat_responses();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    within(SOON, "the complaint", || world.log().contains("a response could not be written").then_some(()));
    // Beside a file that a flush is writing.
    let mut kept = world.state_files("pending_questions/g");
    kept.retain(|name| !name.starts_with(".tmp-"));
    assert_eq!(kept.len(), 1, "still owed");
    agent.free_responses();
    assert_eq!(agent.wait("r1")["result"]["status"], "answered");
    world.all_done("g");
}

#[test]
fn settled_asks_are_listed_newest_first() {
    let world = World::new();
    let agent = world.group("g");
    for id in ["r1", "r2", "r3"] {
        agent.ask_framework(id);
        let ask = world.open_of(id);
        assert_eq!(world.answer(&ask, &json!({(format!("{id}_0")): "Vue"})).0, 200);
        // Settled in different milliseconds.
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let settled = now();
        within(SOON, "the next millisecond", || (now() > settled).then_some(()));
    }
    let (_, list) = world.call("GET", "/asks?state=settled", None);
    let order: Vec<&str> =
        list["asks"].as_array().unwrap().iter().map(|ask| ask["request_id"].as_str().unwrap()).collect();
    assert_eq!(order, ["r3", "r2", "r1"]);
    let (_, both) = world.call("GET", "/asks", None);
    assert_eq!(both["asks"].as_array().unwrap().len(), 3);
    let strange: Value = world.call("GET", "/asks?state=strange", None).1;
    assert_eq!(strange["status"], 400);
}
