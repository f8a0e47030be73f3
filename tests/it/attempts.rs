//! The same question again and again: how often it may be asked, what the agent is told after that, and how people let
//! it be asked again.

use crate::command_line::{err, out};
use crate::harness::{Agent, SHORTEST, SOON, World, within};
use crate::mcp_client::Client;
use serde_json::{Value, json};
use std::time::Duration;

const TOO_OFTEN: &str = "Maximum retry attempts (5) exceeded for: 'Deploy now?'. Please wait for user guidance or \
                         manually mark as completed.";

pub(crate) fn deploy() -> Value {
    json!({"questions": [{"question": "Deploy now?", "options": ["yes", "no"]}]})
}

fn named(question: &str) -> Value {
    json!({"question": question, "options": ["yes", "no"]})
}

impl World {
    fn post(&self, ask: &Value, verb: &str) -> (u16, Value) {
        self.call("POST", &format!("/asks/{}/{verb}", ask["id"].as_str().unwrap()), Some(&json!({})))
    }

    /// Blocks that stand, as the inbox lists them.
    fn blocks(&self) -> Vec<Value> {
        let (status, list) = self.call("GET", "/asks?state=settled", None);
        assert_eq!(status, 200, "{list}");
        let stands = |ask: &&Value| ask["block"].is_object() && ask["block"]["allowed_again"].is_null();
        list["asks"].as_array().unwrap().iter().filter(stands).cloned().collect()
    }

    fn one_block(&self) -> Value {
        let blocks = self.blocks();
        assert_eq!(blocks.len(), 1, "{blocks:#?}");
        blocks[0].clone()
    }
}

/// Asks, and a person dismisses it: `ids` are asked one after the other.
fn dismissed(world: &World, agent: &Agent, ids: std::ops::RangeInclusive<u32>, request: &Value) {
    for number in ids {
        let id = format!("r{number}");
        agent.ask(&id, request);
        assert_eq!(world.post(&world.open_of(&id), "dismiss").0, 200);
        assert_eq!(agent.wait(&id)["result"]["reason"], "user", "{id}");
    }
}

fn status(response: &Value) -> &str {
    response["result"]["status"].as_str().unwrap()
}

#[test]
fn five_times_it_is_asked_and_the_sixth_is_blocked_until_somebody_allows_it() {
    let world = World::new();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=5, &deploy());
    let mut sixth = deploy();
    sixth["opCode"] = json!("op-6");
    agent.ask("r6", &sixth);
    let told = json!({
        "result": {
            "answers": {}, "status": "blocked", "reason": "system", "answered": false, "cancelled": false,
            "timedOut": false, "shouldRetry": false, "retryReason": null, "renderConfirmed": false, "details": [],
            "answered_by": null, "request_id": "r6", "opCode": "op-6", "answered_at": null,
        },
        "error": TOO_OFTEN,
    });
    assert_eq!(agent.wait("r6"), told);
    assert!(world.open().is_empty(), "nobody is asked");

    let block = world.one_block();
    assert_eq!((&block["group"], &block["block"]["times"]), (&json!("g"), &json!(6)));
    assert_eq!((&block["outcome"]["status"], &block["outcome"]["error"]), (&json!("blocked"), &json!(TOO_OFTEN)));
    // Further calls are told the same, and there is one card whose number grows.
    for number in 7..=9 {
        agent.ask(&format!("r{number}"), &deploy());
        assert_eq!(agent.wait(&format!("r{number}"))["error"], TOO_OFTEN);
    }
    let later = world.one_block();
    assert_eq!((&later["id"], &later["block"]["times"]), (&block["id"], &json!(9)));
    assert_eq!(later["outcome"]["line"], "Asked 9 times without an answer");
    assert_eq!(world.answer(&block, &json!({"Deploy now?": "yes"})).0, 409, "there is nothing to answer");
    agent.ask("other", &json!({"questions": [named("Something else?")]}));
    world.open_of("other");

    let (code, allowed) = world.post(&block, "reset");
    assert_eq!((code, &allowed["outcome"]["line"]), (200, &json!("Allowed again by operator")));
    assert!(world.blocks().is_empty());
    dismissed(&world, &agent, 10..=14, &deploy());
    agent.ask("r15", &deploy());
    assert_eq!(status(&agent.wait("r15")), "blocked", "five times, not for ever");
    assert_ne!(world.one_block()["id"], block["id"]);
    let line = |what: &str| world.audit().into_iter().filter(|line| line["what"] == what).count();
    assert_eq!((line("blocked"), line("allowed_again"), line("unblocked")), (2, 1, 1));
}

#[test]
fn stock_wording_about_another_thing_is_another_question() {
    let world = World::empty().config("[groups.g]\nmax_attempts = 2\n[defaults]\n").started();
    let agent = world.group("g");
    let about = |above: Value| {
        let mut request = json!({"questions": [named("Approve this diff?")]});
        request.as_object_mut().unwrap().extend(above.as_object().unwrap().clone());
        request
    };
    let first = about(json!({"title": "Release", "context": "- a\n+ b"}));
    dismissed(&world, &agent, 1..=2, &first);
    agent.ask("first", &first);
    assert_eq!(status(&agent.wait("first")), "blocked");
    let block = world.one_block();
    assert_eq!((&block["title"], &block["context"]), (&json!("Release"), &json!("- a\n+ b")), "people see about what");
    let others = [
        json!({}),
        json!({"title": "Release"}),
        json!({"context": "- a\n+ b"}),
        json!({"title": "Release", "context": "- a\n+ c"}),
    ];
    for (at, above) in others.into_iter().enumerate() {
        agent.ask(&format!("other{at}"), &about(above));
        let open = world.open_of(&format!("other{at}"));
        assert_eq!(world.post(&open, "dismiss").0, 200);
    }
    // Allow again allows only what was blocked.
    let plain = about(json!({}));
    dismissed(&world, &agent, 10..=10, &plain);
    assert_eq!(world.post(&block, "reset").0, 200);
    agent.ask("allowed", &first);
    world.open_of("allowed");
    agent.ask("plain", &plain);
    assert_eq!(status(&agent.wait("plain")), "blocked");
}

/// The first version counted a question under any title and context, and its blocks and Allow again still hold that
/// way.
#[test]
fn blocks_and_allow_again_of_before_hold_under_every_title_and_context() {
    let mut world = World::empty().with_binary().config("[groups.g]\nmax_attempts = 2\n[defaults]\n").started();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=2, &deploy());
    agent.ask("r3", &deploy());
    assert_eq!(status(&agent.wait("r3")), "blocked");
    let block = world.one_block();
    assert!(world.terminate().success());
    let id = block["id"].as_str().unwrap();
    let paths = ["pending_questions", "settled"].map(|folder| world.data().join(format!("state/{folder}/g/{id}.json")));
    let path = paths.iter().find(|path| path.exists()).unwrap();
    let mut record: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    record["stage"]["follow_up"]["block"]["any_context"] = json!(true);
    std::fs::write(path, record.to_string()).unwrap();
    world.start();

    let mut titled = deploy();
    titled["title"] = json!("Another title");
    agent.ask("r4", &titled);
    assert_eq!(agent.wait("r4")["error"], TOO_OFTEN.replace("(5)", "(2)"));
    assert_eq!(world.one_block()["id"], block["id"], "it is the same card");
    assert_eq!(world.post(&block, "reset").0, 200);
    dismissed(&world, &agent, 5..=6, &titled);
    agent.ask("r7", &titled);
    assert_eq!(status(&agent.wait("r7")), "blocked", "now on its own account");
    agent.ask("r8", &deploy());
    assert_eq!(world.post(&world.open_of("r8"), "dismiss").0, 200);
    world.kill();
    world.start();
    dismissed(&world, &agent, 9..=9, &deploy());
    agent.ask("r10", &deploy());
    assert_eq!(status(&agent.wait("r10")), "blocked", "twice since it was allowed again, before a restart and after");
}

#[test]
fn with_one_question_over_the_limit_nothing_is_asked_and_only_that_one_is_named() {
    let world = World::empty().config("[groups.g]\nmax_attempts = 2\n[defaults]\n").started();
    let agent = world.group("g");
    let asks = |names: &[&str]| json!({"questions": names.iter().map(|name| named(name)).collect::<Vec<_>>()});
    dismissed(&world, &agent, 1..=2, &asks(&["A?", "B?"]));
    // What a person sees of a question counts: not its id, and not the other questions beside it.
    let mut mixed = asks(&["New?", "B?", "A?"]);
    mixed["questions"][1]["id"] = json!("another-id");
    agent.ask("mixed", &mixed);
    let expected = "Maximum retry attempts (2) exceeded for: 'B?', 'A?'. Please wait for user guidance or manually mark \
                    as completed.";
    assert_eq!(agent.wait("mixed")["error"], expected);
    assert!(world.open().is_empty(), "all or nothing");
    let block = world.one_block();
    let texts: Vec<&str> =
        block["questions"].as_array().unwrap().iter().map(|q| q["question"].as_str().unwrap()).collect();
    assert_eq!(texts, ["B?", "A?"]);
    // Whatever stands beside them, it is the same card.
    agent.ask("again", &asks(&["A?", "Yet another?", "B?"]));
    assert!(agent.wait("again")["error"].as_str().unwrap().contains("for: 'B?', 'A?'."));
    assert_eq!((&world.one_block()["id"], &world.one_block()["block"]["times"]), (&block["id"], &json!(4)));
    // One of the two alone is another matter, and so is a question that reads differently.
    agent.ask("one", &asks(&["A?"]));
    assert!(agent.wait("one")["error"].as_str().unwrap().contains("for: 'A?'."));
    assert_eq!(world.blocks().len(), 2);
    agent.ask("worded", &json!({"questions": [{"question": "A?", "options": ["yes", "no", "later"]}]}));
    world.open_of("worded");
    agent.ask("new", &asks(&["New?"]));
    world.open_of("new");
    let elsewhere = world.group("elsewhere");
    elsewhere.ask("same", &asks(&["A?"]));
    world.open_of("same");
    // What ends the block of both ends that of one.
    assert_eq!(world.post(&block, "reset").0, 200);
    within(SOON, "no block to stand", || world.blocks().is_empty().then_some(()));
}

#[test]
fn open_timed_out_and_dismissed_ones_count_and_nothing_else_does() {
    let world = World::new();
    let agent = world.group("g");
    let mut short = deploy();
    short["timeoutMs"] = json!(10_000);
    agent.ask("timed-out", &short);
    dismissed(&world, &agent, 1..=2, &deploy());
    // Withdrawn by the agent, and by the operator.
    agent.ask("withdrawn", &deploy());
    world.open_of("withdrawn");
    agent.cancel("withdrawn");
    assert_eq!(agent.wait("withdrawn")["result"]["reason"], "system");
    agent.ask("cancelled", &deploy());
    assert_eq!(world.post(&world.open_of("cancelled"), "cancel").0, 200);
    // Refused for its form.
    let mut wrong = deploy();
    wrong["maxRetries"] = json!(99);
    agent.ask("rejected", &wrong);
    assert_eq!(status(&agent.wait("rejected")), "rejected");
    // An open one, and three calls that join it.
    let mut session = deploy();
    session["session_id"] = json!("s1");
    for number in 0..4 {
        agent.ask(&format!("joined{number}"), &session);
        world.open_of("joined0");
    }
    within(SOON, "the calls to join", || {
        (world.audit().iter().filter(|line| line["what"] == "joined").count() == 3).then_some(())
    });
    // So far four: one that will time out, two that were dismissed, one that is open.
    agent.ask("fifth", &deploy());
    world.open_of("fifth");
    world.later(SHORTEST);
    assert_eq!(status(&agent.wait("timed-out")), "timeout");
    agent.ask("sixth", &deploy());
    assert_eq!(agent.wait("sixth")["error"], TOO_OFTEN);
    // An open one of those that count is withdrawn after all: the block ends by itself.
    agent.cancel("fifth");
    within(SOON, "the block to end", || world.blocks().is_empty().then_some(()));
    within(SOON, "what has ended to be filed", || (!world.state_files("settled/g").is_empty()).then_some(()));
    agent.ask("seventh", &deploy());
    world.open_of("seventh");
}

#[test]
fn an_answer_starts_the_count_anew_and_ends_a_block() {
    let world = World::new();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=4, &deploy());
    agent.ask("open", &deploy());
    let open = world.open_of("open");
    agent.ask("blocked", &deploy());
    assert_eq!(status(&agent.wait("blocked")), "blocked");
    let block = world.one_block();
    assert_eq!(world.answer(&open, &json!({"Deploy now?": "no"})).0, 200);
    within(SOON, "the block to end", || world.blocks().is_empty().then_some(()));
    assert_eq!(world.details(block["id"].as_str().unwrap())["outcome"]["line"], "Unblocked");
    dismissed(&world, &agent, 11..=15, &deploy());
    agent.ask("blocked-again", &deploy());
    assert_eq!(status(&agent.wait("blocked-again")), "blocked");
}

#[test]
fn a_restart_keeps_the_count_the_block_and_what_was_allowed() {
    let mut world = World::process();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=3, &deploy());
    world.kill();
    world.start();
    dismissed(&world, &agent, 4..=5, &deploy());
    world.kill();
    world.start();
    agent.ask("r6", &deploy());
    assert_eq!(agent.wait("r6")["error"], TOO_OFTEN);
    world.kill();
    world.start();
    assert_eq!(world.one_block()["block"]["times"], 6);
    agent.ask("r7", &deploy());
    assert_eq!(agent.wait("r7")["error"], TOO_OFTEN);
    assert_eq!(world.one_block()["block"]["times"], 7, "the same card");
    let short = world.one_block()["short_id"].as_str().unwrap().to_owned();
    let command = format!("Allow it:   askd reset {short}\n");
    assert!(out(&world.run(&["show", &short])).contains(&command), "{}", out(&world.run(&["show", &short])));
    let reset = world.run(&["reset", &short]);
    assert!(!out(&world.run(&["show", &short])).contains(&command));
    assert_eq!((out(&reset).as_str(), reset.status.code()), ("Unblocked. The agent can ask again.\n", Some(0)));
    world.kill();
    world.start();
    assert!(world.blocks().is_empty());
    let kept = std::fs::read_to_string(world.data().join("state/groups/g.json")).unwrap();
    assert!(kept.contains("\"cli\"") && !kept.contains("Deploy"), "who and when, and no text: {kept}");
    dismissed(&world, &agent, 8..=12, &deploy());
    agent.ask("r13", &deploy());
    assert_eq!(status(&agent.wait("r13")), "blocked");
}

/// However often it was asked before: what counts are the newest.
#[test]
fn a_question_that_was_allowed_again_and_again_is_still_blocked() {
    let world = World::empty().config("[asks]\nmax_attempts = 10\nmax_per_hour_per_group = 1000\n").started();
    let agent = world.group("g");
    for round in 0..7 {
        let first = round * 11 + 1;
        dismissed(&world, &agent, first..=first + 9, &deploy());
        let blocked = format!("r{}", first + 10);
        agent.ask(&blocked, &deploy());
        assert_eq!(status(&agent.wait(&blocked)), "blocked", "{blocked}");
        assert_eq!(world.post(&world.one_block(), "reset").0, 200);
    }
}

#[test]
fn reset_takes_any_ask_by_the_beginning_of_its_id_or_its_code() {
    let world = World::new();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=4, &deploy());
    agent.ask("r5", &deploy());
    let open = world.open_of("r5");
    let code = world.run(&["reset", open["short_id"].as_str().unwrap()]);
    assert_eq!(code.status.code(), Some(0), "{}", err(&code));
    assert_eq!(out(&code), "The attempt count is reset. The agent can ask again.\n", "it was not blocked");
    assert_eq!(world.open_of("r5")["state"], "open", "it stays what it is");
    // Five more, since the open one does not count any more either.
    dismissed(&world, &agent, 6..=10, &deploy());
    agent.ask("r11", &deploy());
    assert_eq!(status(&agent.wait("r11")), "blocked");
    let settled = within(SOON, "a settled one to be kept", || world.state_files("settled/g").pop());
    let settled = settled.trim_end_matches(".json").to_owned();
    assert_eq!(world.run(&["reset", &settled[..12]]).status.code(), Some(0));
    within(SOON, "the block to end", || world.blocks().is_empty().then_some(()));
    let unknown = world.run(&["reset", "ffffffffffff"]);
    assert!(
        unknown.status.code() == Some(1) && err(&unknown).contains("No question has a code or an id that begins with"),
        "{}",
        err(&unknown)
    );
    within(SOON, "nothing but the open one to be pending", || {
        (world.state_files("pending_questions/g").len() == 1).then_some(())
    });
}

#[test]
fn blocked_calls_do_not_count_for_the_hour_and_do_not_fill_the_disk() {
    let world = World::empty().config("[asks]\nmax_attempts = 1\nmax_per_hour_per_group = 3\n").started();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=1, &deploy());
    for number in 0..70 {
        agent.ask(&format!("b{number}"), &deploy());
    }
    for number in 0..70 {
        assert_eq!(status(&agent.take(&format!("b{number}"))), "blocked");
    }
    let block = world.one_block();
    assert_eq!(block["block"]["times"], 71);
    let file = world.state().join(format!("pending_questions/g/{}.json", block["id"].as_str().unwrap()));
    let record: Value = serde_json::from_str(&world.store()[&file]).unwrap();
    assert!(record["waiters"].as_array().unwrap().len() <= 50);
    for number in 2..=3 {
        agent.ask(&format!("r{number}"), &json!({"questions": [named(&format!("Other {number}?"))]}));
        world.open_of(&format!("r{number}"));
    }
    agent.ask("r4", &json!({"questions": [named("Other 4?")]}));
    assert!(agent.wait("r4")["error"].as_str().unwrap().contains("max_per_hour_per_group"));
}

/// It remembers its last calls alone.
#[test]
fn responses_of_blocked_calls_that_nobody_collects_do_not_stay_for_good() {
    let world = World::empty().config("[asks]\nmax_attempts = 1\n").started();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=1, &deploy());
    agent.take("r1");
    for number in 0..70 {
        agent.ask(&format!("b{number}"), &deploy());
    }
    (0..70).for_each(|number| drop(agent.wait(&format!("b{number}"))));
    agent.put_response(
        "another",
        &json!({"result": {"status": "blocked", "request_id": "another"}, "error": "not ours"}),
    );
    let lying = || crate::harness::names(&agent.path.join("responses"));
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    world.later(hours(23));
    assert_eq!(status(&agent.take("b0")), "blocked", "who is late gets it all the same");
    assert_eq!(lying().len(), 70);
    world.later(hours(2));
    world.passing(hours(1), "what nobody collects to be removed", || (lying() == ["another.json"]).then_some(()));
}

#[test]
fn a_higher_limit_ends_blocks_at_a_reload() {
    let world = World::empty().with_binary().config("[asks]\nmax_attempts = 1\n").started();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=1, &deploy());
    agent.ask("r2", &deploy());
    assert_eq!(status(&agent.wait("r2")), "blocked");
    std::fs::write(world.dir.path().join("askd.toml"), "[asks]\nmax_attempts = 3\n").unwrap();
    world.signal(rustix::process::Signal::HUP);
    within(SOON, "the block to end", || world.blocks().is_empty().then_some(()));
    dismissed(&world, &agent, 3..=4, &deploy());
    agent.ask("r5", &deploy());
    assert!(agent.wait("r5")["error"].as_str().unwrap().starts_with("Maximum retry attempts (3) exceeded"));
}

#[test]
fn a_script_gets_exit_code_6_and_a_model_the_sentence_alone() {
    let world = World::empty().config("[asks]\nmax_attempts = 1\n").started();
    let sentence = TOO_OFTEN.replace("(5)", "(1)");
    let asked = ["ask", "Deploy now?", "--option", "yes", "--option", "no"];
    let child = world.cli(&asked).spawn().unwrap();
    assert_eq!(world.post(&world.one_open(), "dismiss").0, 200);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
    let blocked = world.run(&asked);
    assert_eq!((out(&blocked).as_str(), blocked.status.code()), ("", Some(6)));
    assert!(err(&blocked).contains(&sentence), "{}", err(&blocked));
    assert_eq!(world.run(&["list", "--settled"]).status.code(), Some(0));

    let agent = world.group("default");
    let mut client = Client::named("claude-code", &agent.path, &[]);
    let call = json!({"questions": [{"question": "Deploy now?", "options": ["yes", "no"]}]});
    for _ in 0..2 {
        client.call("ask_user", &call).assert_error("blocked", &sentence);
    }
    assert_eq!(world.one_block()["block"]["times"], 4);
    assert_eq!(world.post(&world.one_block(), "reset").0, 200);
    let begun = client.begin("ask_user", &call);
    assert_eq!(world.answer(&world.one_open(), &json!({"Deploy now?": "yes"})).0, 200);
    client.result(begun, SOON).assert_answered(&json!({"Deploy now?": "yes"}));
}

/// Stored, and not one step further; allowed, and not one step further.
#[test]
fn a_crash_at_any_step_of_a_block_loses_nothing() {
    for point in ["accept.stored", "deliver.ready"] {
        let mut world = World::process();
        let agent = world.group("g");
        dismissed(&world, &agent, 1..=5, &deploy());
        world.all_done("g");
        world.kill();
        world = world.env("ASKD_CRASH_AT", point);
        world.start();
        agent.ask("r6", &deploy());
        assert!(!world.ended().success(), "{point}: it crashed");
        world.without_env("ASKD_CRASH_AT");
        world.start();
        assert_eq!(agent.wait("r6")["error"], TOO_OFTEN, "{point}");
        within(SOON, "the request to be gone", || agent.task_names().is_empty().then_some(()));
        assert_eq!(world.one_block()["block"]["times"], 6, "{point}: counted once");
    }
    let mut world = World::process();
    let agent = world.group("g");
    dismissed(&world, &agent, 1..=5, &deploy());
    agent.ask("r6", &deploy());
    agent.wait("r6");
    world.kill();
    world = world.env("ASKD_CRASH_AT", "allow.stored");
    world.start();
    let block = world.one_block();
    let file = world.state().join(format!("pending_questions/g/{}.json", block["id"].as_str().unwrap()));
    let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.post(&block, "reset")));
    assert!(crashed.is_err(), "nobody was told that it worked");
    assert!(!world.ended().success(), "it crashed");
    let record = world.store().remove(&file).expect("its record");
    assert!(record.contains("\"lifted\": null"), "the card was not touched yet");
    world.without_env("ASKD_CRASH_AT");
    world.start();
    within(SOON, "the block to end", || world.blocks().is_empty().then_some(()));
    let ended = world.details(block["id"].as_str().unwrap());
    assert_eq!(ended["outcome"]["line"], "Allowed again by operator");
    agent.ask("r7", &deploy());
    world.open_of("r7");
}
