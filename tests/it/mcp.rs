//! The agent's side through MCP: the real `askd mcp`, a real daemon, a person who is HTTP.

use crate::harness::{Agent, SOON, World, names, within};
use crate::mcp_client::{Client, go};
use crate::mcp_url::TAKES_TASKS;
use crate::said;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TIMED_OUT: &str = said::TIMED_OUT;
const WITHDRAWN: &str = said::WITHDRAWN;
const RETRY_NOW: &str = "Retry this exact call now, in this session, with the same parameters.";

/// How most stories open: a group's folder, and a client that has introduced itself.
pub(crate) fn opening(world: World) -> (World, Agent, Client) {
    let agent = world.group("g");
    let client = Client::new(&agent.path, &[]);
    (world, agent, client)
}

#[test]
fn answered_while_the_call_waits() {
    let world = World::new();
    let agent = world.group("g");
    let mut client = Client::named("claude-code", &agent.path, &[]);
    let call = client.begin(
        "ask_user",
        &json!({
            "title": "Release", "context": "All tests pass.",
            "questions": [
                {"question": "Which targets?", "options": ["staging", {"label": "prod", "description": "all of it"}],
                 "multiSelect": true},
                {"question": "Anything to add?", "required": false},
            ],
        }),
    );
    let ask = world.one_open();
    let answers = json!({"Which targets?": ["staging", "prod"], "Anything to add?": "Use the night."});
    assert_eq!(world.answer(&ask, &answers).0, 200);
    let told = client.result(call, SOON);
    told.assert_answered(&answers);
    assert_eq!(told.structured["answered_by"]["id"], "operator");
    assert_eq!(told.structured["request_id"], ask["request_id"]);
    client.tools();
    // Taken, told, deleted; and the sign of life goes with the last question.
    agent.responses_are(&[]);
    agent.tasks_gone();
    // Calls that are not done would be waited for 5 s.
    assert!(client.close() < Duration::from_millis(4_500));
}

#[test]
fn a_slice_then_the_same_call_again_and_nothing_is_asked_twice() {
    let (world, agent, mut client) = opening(World::new());
    let first = client.call("ask_user", &go(1500));
    first.assert_pending();
    let ask = world.one_open();
    // Meanwhile nobody calls, and the answer comes.
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    agent.wait(&first.question_id());
    std::thread::sleep(Duration::from_secs(1));
    assert!(agent.response(&first.question_id()).is_some(), "it stays in place until a call returns it");
    // At once: this call does not wait at all.
    let second = client.call("ask_user", &go(0));
    second.assert_answered(&json!({"Go?": "yes"}));
    assert_eq!(second.question_id(), first.question_id());
    world.all_done("g");
    assert!(world.open().is_empty(), "no second card");
    // The outcome was returned: the same question is a new one now.
    let third = client.call("ask_user", &go(500));
    third.assert_pending();
    assert_ne!(third.question_id(), first.question_id());
}

/// A client of the newest revision calls again by itself: no turn of its model is spent on waiting.
#[test]
fn a_client_of_the_new_revision_waits_on_without_its_model() {
    let world = World::new();
    let agent = world.group("g");
    let mut client = Client::new(&agent.path, &[("ASKD_MAX_WAIT", "1")]);
    let mut call = |state: Option<&Value>| {
        let mut params = json!({
            "name": "ask_user", "arguments": {"questions": [{"question": "Go?", "options": ["yes", "no"]}]},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        if let Some(state) = state {
            params["requestState"] = state.clone();
        }
        let call = client.request("tools/call", &params);
        client.reply_to(call, SOON)
    };
    let first = call(None);
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let again = call(Some(&first["result"]["requestState"]));
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
    assert_eq!(call(Some(&json!("rs1.made.up")))["error"]["code"], -32602);
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let told = call(Some(&again["result"]["requestState"]));
    assert_eq!(told["result"]["structuredContent"]["answers"], json!({"Go?": "yes"}), "{told}");
}

#[test]
fn a_client_that_takes_tasks_asks_what_has_become_of_its_question() {
    let (world, agent, mut client) = opening(World::new());
    let mut send = |method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": TAKES_TASKS.parse::<Value>().unwrap(),
        });
        let call = client.request(method, &params);
        client.reply_to(call, SOON)
    };
    let arguments = json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    let begun = send("tools/call", json!({"name": "ask_user", "arguments": arguments}));
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let task = json!({"taskId": begun["result"]["taskId"]});
    let ask = world.one_open();
    assert_eq!(send("tasks/get", task.clone())["result"]["status"], "working");
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    for _ in 0..2 {
        let state = within(SOON, "the end", || {
            let state = send("tasks/get", task.clone())["result"].clone();
            (state["status"] == "completed").then_some(state)
        });
        assert_eq!(state["result"]["structuredContent"]["answers"], json!({"Go?": "yes"}), "{state}");
    }
    agent.responses_are(&[]);
    let begun = send("tools/call", json!({"name": "ask_user", "arguments": arguments}));
    let task = json!({"taskId": begun["result"]["taskId"]});
    world.one_open();
    assert!(send("tasks/cancel", task.clone())["error"].is_null());
    within(SOON, "the withdrawal", || {
        (send("tasks/get", task.clone())["result"]["status"] == "cancelled").then_some(())
    });
    assert_eq!(send("tasks/get", json!({"taskId": "none.1"}))["error"]["code"], -32602);
}

#[test]
fn a_pending_question_is_waited_on_by_its_id_and_can_be_looked_at_without_waiting() {
    let world = World::process();
    let agent = world.group("g");
    let mut client = Client::new(&agent.path, &[("ASKD_MAX_WAIT", "1")]);
    let first = client.call("ask_user", &json!({"questions": [{"question": "Go?"}]}));
    first.assert_pending();
    let id = first.question_id();
    client.call("ask_user_wait", &json!({"question_id": id, "waitMs": 0})).assert_pending();
    let ask = world.one_open();
    let waiting = client.begin("ask_user_wait", &json!({"question_id": id, "waitMs": 60000}));
    assert_eq!(world.answer(&ask, &json!({"Go?": "now"})).0, 200);
    client.result(waiting, SOON).assert_answered(&json!({"Go?": "now"}));
    // Whoever asks again by id is told again, and not that it is unknown.
    client.call("ask_user_wait", &json!({"question_id": id})).assert_answered(&json!({"Go?": "now"}));
}

#[test]
fn an_unknown_question_is_said_to_be_unknown() {
    let (_world, _, mut client) = opening(World::new());
    client.call("ask_user_wait", &json!({"question_id": "r-of-another-process"})).assert_error(
        "rejected",
        "Unknown here: repeat the ask_user call with the same arguments; if it was answered it returns at once.",
    );
    let told = client.call("ask_user_cancel", &json!({"question_id": "../../etc/passwd"}));
    assert!(told.is_error && told.text.starts_with("Unknown here:"), "{told:?}");
}

#[test]
fn a_question_is_withdrawn_and_every_call_on_it_hears_so() {
    let (world, agent, mut client) = opening(World::new());
    let waiting = client.begin("ask_user", &go(60_000));
    let ask = world.one_open();
    let id = ask["request_id"].as_str().unwrap();
    let told = client.call("ask_user_cancel", &json!({"question_id": id}));
    assert!(!told.is_error, "what was wanted is no error: {told:?}");
    assert_eq!((told.status(), told.text.as_str()), ("cancelled", WITHDRAWN));
    client.result(waiting, SOON).assert_error("cancelled", WITHDRAWN);
    world.all_done("g");
    client.tools();
    agent.responses_are(&[]);
    let again = client.call("ask_user_cancel", &json!({"question_id": id}));
    assert_eq!((again.is_error, again.status()), (false, "cancelled"), "withdrawing twice is as once");
}

#[test]
fn a_question_that_nobody_took_yet_is_withdrawn_without_a_daemon() {
    let (_world, agent, mut client) = opening(World::empty());
    let first = client.call("ask_user", &go(300));
    first.assert_pending();
    let told = client.call("ask_user_cancel", &json!({"question_id": first.question_id()}));
    assert_eq!((told.is_error, told.status()), (false, "cancelled"));
    within(SOON, "all to be taken back", || agent.task_names().is_empty().then_some(()));
}

#[test]
fn a_client_that_cuts_the_call_gets_the_answer_by_calling_again() {
    let (world, _, mut client) = opening(World::new());
    let cut = client.begin("ask_user", &go(60_000));
    let ask = world.one_open();
    client.cancel(cut);
    assert!(client.reply_within(cut, Duration::from_secs(1)).is_none(), "a cancelled call has no reply");
    assert_eq!(world.open().len(), 1, "out of patience is not withdrawn");
    assert_eq!(world.answer(&ask, &json!({"Go?": "no"})).0, 200);
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
}

#[test]
fn an_answer_whose_reply_was_cancelled_in_flight_goes_back_into_its_file() {
    let (world, agent, mut client) = opening(World::new());
    let cut = client.begin("ask_user", &go(60_000));
    let ask = world.one_open();
    let id = ask["request_id"].as_str().unwrap().to_owned();
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    // The reply is written; the client gives up in the same moment and throws it away.
    client.reply_to(cut, SOON);
    agent.responses_are(&[&format!(".taken-{id}.json")]);
    client.cancel(cut);
    agent.wait(&id);
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    client.tools();
    agent.responses_are(&[]);
}

#[test]
fn an_answer_is_deleted_ten_seconds_after_its_reply_if_the_client_says_nothing_more() {
    let (world, agent, mut client) = opening(World::new());
    let call = client.begin("ask_user", &go(60_000));
    assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
    client.reply_to(call, SOON);
    let begun = Instant::now();
    agent.responses_are(&[]);
    let took = begun.elapsed();
    assert!((Duration::from_millis(9_500)..Duration::from_secs(20)).contains(&took), "{took:?}");
    // And nobody waits.
    agent.tasks_gone();
}

#[test]
fn a_client_that_closes_after_it_has_read_the_answer_leaves_nothing_behind() {
    let (world, agent, mut client) = opening(World::new());
    let call = client.begin("ask_user", &go(60_000));
    assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
    client.reply_to(call, SOON);
    client.close();
    agent.responses_are(&[]);
}

#[test]
fn a_timeout_reaches_the_next_call_and_only_then_it_is_asked_anew() {
    let (_world, agent, mut client) = opening(World::new());
    let mut arguments = go(500);
    arguments["timeoutMs"] = json!(10_000);
    let first = client.call("ask_user", &arguments);
    first.assert_pending();
    agent.wait(&first.question_id());
    let second = client.call("ask_user", &arguments);
    second.assert_error("timeout", TIMED_OUT);
    assert_eq!((&second.structured["timedOut"], &second.structured["reason"]), (&json!(true), &json!("timeout")));
    let third = client.call("ask_user", &arguments);
    third.assert_pending();
    assert_ne!(third.question_id(), first.question_id());
}

#[test]
fn a_dismissal_is_an_error_in_words() {
    let (world, _, mut client) = opening(World::new());
    let call = client.begin("ask_user", &go(60_000));
    let ask = world.one_open();
    assert_eq!(world.call("POST", &format!("/asks/{}/dismiss", ask["id"].as_str().unwrap()), None).0, 200);
    let told = client.result(call, SOON);
    told.assert_error("cancelled", said::DISMISSED);
    assert_eq!(told.structured["reason"], "user");
}

#[test]
fn two_sessions_that_ask_the_same_get_their_own_answers() {
    let world = World::process();
    let agent = world.group("g");
    let mut one = Client::new(&agent.path, &[("ASKD_SESSION_ID", "one")]);
    let mut two = Client::new(&agent.path, &[("ASKD_SESSION_ID", "two")]);
    let first = one.call("ask_user", &go(500));
    let second = two.call("ask_user", &go(500));
    let (ask_one, ask_two) = (world.open_of(&first.question_id()), world.open_of(&second.question_id()));
    assert_eq!(world.answer(&ask_two, &json!({"Go?": "no"})).0, 200);
    assert_eq!(world.answer(&ask_one, &json!({"Go?": "yes"})).0, 200);
    one.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    two.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
}

#[test]
fn a_new_process_of_the_same_session_joins_by_repeating_the_call() {
    let world = World::process();
    let agent = world.group("g");
    let session = [("ASKD_SESSION_ID", "run-1")];
    let mut before = Client::new(&agent.path, &session);
    before.call("ask_user", &go(500)).assert_pending();
    let ask = world.one_open();
    before.kill();
    let mut after = Client::new(&agent.path, &session);
    let call = after.begin("ask_user", &go(60_000));
    within(SOON, "the call to have joined", || {
        names(&agent.path.join("responses")).iter().filter(|name| name.ends_with(".status")).nth(1).map(drop)
    });
    assert_eq!(world.open().len(), 1, "no second card");
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    after.result(call, SOON).assert_answered(&json!({"Go?": "yes"}));
}

#[test]
fn two_calls_of_the_same_in_one_process_both_get_the_answer() {
    let (world, _, mut client) = opening(World::new());
    let calls = [client.begin("ask_user", &go(60_000)), client.begin("ask_user", &go(50_000))];
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let mut told = calls.map(|call| client.result(call, SOON));
    for told in &mut told {
        told.assert_answered(&json!({"Go?": "yes"}));
    }
    assert_eq!(told[0].question_id(), told[1].question_id());
}

/// Takes about 45 s: the least `renderTimeout` is 10 s, and four calls have to fail.
#[test]
fn a_daemon_that_is_away_is_tried_again_three_times_and_the_fourth_call_says_so() {
    let (_world, agent, mut client) = opening(World::empty());
    let arguments = json!({
        "questions": [{"question": "Go?"}], "renderTimeout": 10_000, "maxRetries": 3, "waitMs": 60_000,
    });
    for attempt in 1..=3 {
        let begun = Instant::now();
        let told = client.call("ask_user", &arguments);
        let took = begun.elapsed();
        assert!((Duration::from_secs(10)..Duration::from_secs(20)).contains(&took), "{took:?}");
        let reason = format!("UI failed to render question within timeout (attempt {attempt}/3)");
        told.assert_error("undeliverable", &format!("{reason}. {RETRY_NOW}"));
        assert_eq!(told.structured["shouldRetry"], true);
        assert_eq!(told.structured["retryReason"], reason);
        // The sign of life goes a moment after the request.
        within(SOON, "all to be taken back", || agent.task_names().is_empty().then_some(()));
    }
    let told = client.call("ask_user", &arguments);
    told.assert_error("undeliverable", "Max retries exceeded");
    assert_eq!(told.structured["shouldRetry"], false);
    assert_eq!(told.structured["retryReason"], "Max retries (3) exceeded");
}

#[test]
fn wrong_arguments_are_told_with_field_and_limit() {
    let (world, agent, mut client) = opening(World::new());
    let question = |fields: Value| {
        let mut question = json!({"question": "Go?"});
        question.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"questions": [question]})
    };
    let with = |fields: Value| {
        let mut arguments = json!({"questions": [{"question": "Go?"}]});
        arguments.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        arguments
    };
    let many: Vec<Value> = (0..11).map(|n| json!({"question": format!("{n}?")})).collect();
    for (arguments, text) in [
        (json!({}), "Error: No questions provided"),
        (json!({"questions": []}), "Error: No questions provided"),
        (json!({"questions": many}), "Error: questions has 11 entries; the limit is 10. Shorten it and ask again."),
        (json!({"questions": {"question": "Go?"}}), "Error: questions: must be a list, not an object."),
        (json!({"questions": ["Go?"]}), "Error: questions[0]: must be an object, not the string \"Go?\"."),
        (question(json!({"question": "  "})), "Error: questions[0].question is empty."),
        (
            question(json!({"question": "x".repeat(3001)})),
            "Error: questions[0].question has 3001 characters; the limit is 3000. Shorten it and ask again.",
        ),
        (
            question(json!({"options": ["yes", "Yes"]})),
            "Error: questions[0].options[1].label is the same as questions[0].options[0].label; they must differ.",
        ),
        (
            question(json!({"options": ["y".repeat(76)]})),
            "Error: questions[0].options[0].label has 76 characters; the limit is 75. Shorten it and ask again.",
        ),
        (
            question(json!({"type": "radio"})),
            "Error: questions[0].type: \"radio\" is none of text, select, multi-select, confirm.",
        ),
        (
            question(json!({"type": "select"})),
            "Error: questions[0].options: a select question needs at least 1 option; use type text for a typed answer.",
        ),
        (
            with(json!({"title": "t".repeat(101)})),
            "Error: title has 101 characters; the limit is 100. Shorten it and ask again.",
        ),
        (with(json!({"maxRetries": 6})), "Error: maxRetries is 6; it must be between 0 and 5."),
        (with(json!({"renderTimeout": 5})), "Error: renderTimeout is 5; it must be between 10000 and 60000."),
        (with(json!({"timeoutMs": 9999})), "Error: timeoutMs is 9999; it must be between 10000 and 604800000."),
        (with(json!({"timeoutMs": "1h"})), "Error: timeoutMs: must be an integer, not the string \"1h\"."),
        (with(json!({"waitMs": -1})), "Error: waitMs is -1; it must be between 0 and 604800000."),
        (
            with(json!({"timeoutPolicy": "wait"})),
            "Error: timeoutPolicy: \"wait\" is neither return_cancel nor abort_task.",
        ),
    ] {
        client.call("ask_user", &arguments).assert_error("rejected", text);
    }
    let told = client.call("ask_user_wait", &json!({}));
    told.assert_error("rejected", "Error: question_id is empty.");
    assert!(agent.task_names().is_empty() && world.open().is_empty(), "nothing was asked");
    let unknown = client.begin("ask_human", &json!({}));
    assert_eq!(client.reply_to(unknown, SOON)["error"]["code"], -32602);
}

#[test]
fn what_only_the_daemon_can_refuse_is_told_as_it_says_it() {
    let world = World::new();
    let mut client = Client::new(&world.group("g").path, &[("ASK_USER_TIMEOUT_POLICY", "abort_task")]);
    let told = client.call("ask_user", &go(60_000));
    assert!(told.is_error && told.text.starts_with("Error: timeoutPolicy: abort_task needs a way"), "{told:?}");
    assert_eq!(told.status(), "rejected");
    let mut arguments = go(500);
    arguments["timeoutPolicy"] = json!("return_cancel");
    client.call("ask_user", &arguments).assert_pending();
}

#[test]
fn too_little_time_is_raised_with_a_note() {
    let world = World::process();
    let mut client = Client::new(&world.group("g").path, &[("ASKD_MIN_TIMEOUT", "5m")]);
    let mut arguments = go(60_000);
    arguments["timeoutMs"] = json!(20_000);
    let call = client.begin("ask_user", &arguments);
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let told = client.result(call, SOON);
    told.assert_answered(&json!({"Go?": "yes"}));
    let note = "timeoutMs 20000 was raised to 300000:";
    assert!(told.structured["note"].as_str().unwrap().starts_with(note), "{told:?}");
    assert!(told.text.contains(note), "{}", told.text);
}

#[test]
fn a_folder_that_is_not_there_is_told_to_the_agent_and_found_once_it_is() {
    let world = World::new();
    let path = world.data().join("ipc/late");
    let mut client = Client::new(&path, &[]);
    let told = client.call("ask_user", &go(60_000));
    assert!(told.is_error && told.text.contains("ipc/late/tasks") && told.text.contains("mount it"), "{told:?}");
    assert_eq!(told.status(), "undeliverable");
    let late = world.group("late");
    let first = client.call("ask_user", &go(1_000));
    first.assert_pending();
    late.status_of(&first.question_id());
    // `askd mcp` knows that it was claimed once it has looked.
    client.call("ask_user_wait", &json!({"question_id": first.question_id(), "waitMs": 100})).assert_pending();
    // Another folder takes its name, without a moment in which there is none. The answer comes through that one.
    late.exchange_folder(&world.data().join("anew"));
    let call = client.begin("ask_user", &go(60_000));
    assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
    client.result(call, SOON).assert_answered(&json!({"Go?": "yes"}));
    // Gone for good: told, not waited for.
    let second = client.call("ask_user", &json!({"questions": [{"question": "And now?"}], "waitMs": 300}));
    second.assert_pending();
    late.status_of(&second.question_id());
    late.remove_folder();
    let told = client.call("ask_user", &json!({"questions": [{"question": "And now?"}], "waitMs": 60_000}));
    assert!(told.is_error && told.text.contains("ipc/late/tasks"), "{told:?}");
}

#[test]
fn a_folder_that_cannot_be_written_is_told_with_what_to_do() {
    let world = World::empty();
    let agent = world.group("g");
    // A plain file where a folder has to be refuses root too, as a read-only mount would.
    fs::remove_dir(agent.tasks()).unwrap();
    fs::write(agent.tasks(), "").unwrap();
    let mut client = Client::new(&agent.path, &[]);
    let told = client.call("ask_user", &go(60_000));
    assert!(told.is_error && told.text.contains("ipc/g/tasks"), "{told:?}");
    assert_eq!(told.status(), "undeliverable");
}

#[test]
fn a_response_that_is_not_whole_is_read_again_and_never_deleted() {
    let (_world, agent, mut client) = opening(World::empty());
    let first = client.call("ask_user", &go(300));
    let id = first.question_id();
    // A drop-in host: claims by deleting, writes in place.
    fs::remove_file(agent.tasks().join(format!("{id}.json"))).unwrap();
    let whole = json!({"result": {
        "answers": {"Go?": "yes"}, "status": "answered", "reason": "user", "answered": true, "cancelled": false,
        "timedOut": false, "shouldRetry": false, "retryReason": null, "renderConfirmed": true, "details": [],
        "answered_by": null, "request_id": id, "opCode": null, "answered_at": null,
    }})
    .to_string();
    let path = agent.response_path(&id);
    for garbage in ["", "{", "\0\0\0", "[1]", "{\"result\": 7}", &whole[..whole.len() / 2]] {
        fs::write(&path, garbage).unwrap();
        client.call("ask_user", &go(300)).assert_pending();
        assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
    }
    fs::write(&path, &whole).unwrap();
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

#[test]
fn the_sign_of_life_is_given_while_somebody_waits() {
    let (_world, agent, mut client) = opening(World::new());
    client.call("ask_user", &go(300)).assert_pending();
    let signs = || fs::read_dir(agent.tasks().join(".alive")).ok()?.next()?.ok();
    let sign = within(SOON, "the sign", signs).path();
    let told = || fs::metadata(&sign).unwrap().modified().unwrap();
    let mut last = told();
    for _ in 0..2 {
        let begun = Instant::now();
        last = within(SOON, "a newer sign", || Some(told()).filter(|now| *now > last));
        // Every 5 s on a quiet machine; whoever gives none for 15 s is taken for dead.
        assert!(begun.elapsed() <= Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    client.close();
    let beside = format!(".alive-{}", sign.file_name().unwrap().to_str().unwrap());
    assert_eq!(agent.task_names(), std::slice::from_ref(&beside), "the question stays open, and the sign grows old");
    // Touched in tasks/, it would wake the daemon each time.
    let file = |path: PathBuf| fs::metadata(path).unwrap().ino();
    assert_eq!(file(sign), file(agent.tasks().join(beside)), "a second name for earlier daemons, not a second file");
}

#[test]
fn a_client_that_wants_progress_hears_some() {
    let (_world, _, mut client) = opening(World::new());
    let call = client.request(
        "tools/call",
        &json!({"name": "ask_user", "arguments": go(15_000), "_meta": {"progressToken": "t-1"}}),
    );
    client.result(call, Duration::from_secs(15) + SOON).assert_pending();
    let heard: Vec<&Value> =
        client.notifications.iter().filter(|told| told["method"] == "notifications/progress").collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["params"]["progressToken"], "t-1");
}

#[test]
fn the_tools_and_their_schemas_are_sound() {
    let (_world, _, mut client) = opening(World::empty());
    let tools = client.tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ask_user", "ask_user_wait", "ask_user_cancel"]);
    for tool in &tools {
        jsonschema::meta::validate(&tool["inputSchema"]).unwrap();
        jsonschema::meta::validate(&tool["outputSchema"]).unwrap();
        assert!(tool["description"].as_str().unwrap().len() > 100);
    }
    let says = tools[0]["description"].as_str().unwrap();
    for word in ["shouldRetry", "stillPending", "timeout", "blocked", "rejected", "cancelled", "Ask only when"] {
        assert!(says.contains(word), "{word}");
    }
    let input = jsonschema::validator_for(&tools[0]["inputSchema"]).unwrap();
    assert!(input.is_valid(&go(5)));
    for wrong in
        [json!({}), json!({"questions": []}), json!({"questions": [{"question": ""}]}), json!({"questions": 7})]
    {
        assert!(!input.is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn settings_that_make_no_sense_end_it_with_a_sentence() {
    let output = crate::harness::askd().arg("mcp").env("ASKD_MAX_WAIT", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ASKD_MAX_WAIT=\"soon\": not a duration"), "{said}");
}
