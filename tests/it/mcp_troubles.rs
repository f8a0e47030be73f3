//! What goes wrong around `askd mcp`: folders that cannot be written, hosts that fall silent, something else
//! where a response belongs. A clear result, no hang, nothing lost.

use crate::harness::{Agent, SOON, World, within};
use crate::mcp::opening;
use crate::mcp_client::{Client, go};
use crate::mcp_url::TAKES_TASKS;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A folder that is mounted for reading alone, as a container may have it.
struct ReadOnly(PathBuf);

impl ReadOnly {
    /// A folder, seen from another place (or its own); `None` where nothing can be mounted.
    fn mount(folder: &Path, path: &Path) -> Option<Self> {
        let bound =
            Command::new("mount").arg("--bind").args([folder, path]).output().is_ok_and(|run| run.status.success());
        let mounted = bound.then(|| Self(path.to_owned()))?;
        let remounted = Command::new("mount").args(["-o", "remount,ro,bind"]).arg(path).output();
        remounted.is_ok_and(|run| run.status.success()).then_some(mounted)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A call that a host has claimed, and a host that is this test.
fn claimed(agent: &Agent, client: &mut Client, wait_ms: u64) -> String {
    let id = client.call("ask_user", &go(wait_ms)).question_id();
    fs::remove_file(agent.tasks().join(format!("{id}.json"))).unwrap();
    id
}

fn answer(id: &str) -> Value {
    json!({"result": {
        "answers": {"Go?": "yes"}, "status": "answered", "reason": "user", "answered": true, "cancelled": false,
        "timedOut": false, "shouldRetry": false, "retryReason": null, "renderConfirmed": true, "details": [],
        "answered_by": null, "request_id": id, "opCode": null, "answered_at": null,
    }})
}

#[test]
fn a_question_that_was_withdrawn_is_asked_anew_by_the_next_call() {
    let (_world, agent, mut client) = opening(World::empty());
    let first = claimed(&agent, &mut client, 0);
    // No daemon hears it, so the file waits for one.
    let told = client.call("ask_user_cancel", &json!({"question_id": first}));
    assert_eq!(told.status(), "cancelled");
    let second = claimed(&agent, &mut client, 0);
    assert_ne!(first, second);
    agent.put_response(&second, &answer(&second));
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

#[test]
fn a_folder_for_reading_alone_is_told_with_what_to_do_and_loses_no_answer() {
    let world = World::empty();
    let agent = world.group("g");
    let Some(tasks) = ReadOnly::mount(&agent.tasks(), &agent.tasks()) else {
        println!(
            "SKIPPED a_folder_for_reading_alone_is_told_with_what_to_do_and_loses_no_answer: nothing can be mounted here"
        );
        return;
    };
    let mut client = Client::new(&agent.path, &[]);
    let told = client.call("ask_user", &go(60_000));
    assert_eq!((told.is_error, told.status(), &told.structured["shouldRetry"]), (true, "undeliverable", &json!(false)));
    assert!(told.text.contains("ipc/g/tasks: ") && told.text.contains("must be writable"), "{told:?}");
    drop(tasks);
    // And where the answer lies: it cannot be taken, so it stays.
    let host = world.group("host");
    let responses = ReadOnly::mount(&host.path.join("responses"), &agent.path.join("responses")).unwrap();
    let id = claimed(&agent, &mut client, 0);
    host.put_response(&id, &answer(&id));
    let told = client.call("ask_user_wait", &json!({"question_id": id}));
    assert_eq!((told.is_error, told.status()), (true, "undeliverable"));
    assert!(told.text.contains("ipc/g/responses: ") && told.text.contains("writable"), "{told:?}");
    drop(responses);
    assert_eq!(host.response(&id), Some(answer(&id)), "nothing is lost");
}

#[test]
fn a_folder_in_place_of_the_response_is_told_and_left_alone() {
    let (_world, agent, mut client) = opening(World::empty());
    let id = claimed(&agent, &mut client, 0);
    fs::create_dir(agent.response_path(&id)).unwrap();
    // Not at once: it may be a host that publishes in two steps.
    client.call("ask_user", &go(1_000)).assert_pending();
    let told = client.call("ask_user", &go(60_000));
    assert_eq!((told.is_error, told.status()), (true, "undeliverable"));
    assert!(told.text.contains(&format!("responses/{id}.json")) && told.text.contains("remove it and ask"), "{told:?}");
    assert!(agent.response_path(&id).is_dir(), "nothing is deleted");
}

/// A host that publishes by a second name: for a moment the response has two.
#[test]
fn a_response_with_a_second_name_is_taken_once_it_has_one() {
    let (_world, agent, mut client) = opening(World::empty());
    let id = claimed(&agent, &mut client, 0);
    let aside = agent.path.join("responses/.aside");
    fs::write(&aside, answer(&id).to_string()).unwrap();
    fs::hard_link(&aside, agent.response_path(&id)).unwrap();
    client.call("ask_user", &go(500)).assert_pending();
    fs::remove_file(aside).unwrap();
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

/// Takes about 32 s: so long a host may be silent after its own deadline.
#[test]
fn a_host_that_dies_after_the_claim_is_given_up_30_s_after_its_deadline() {
    let (_world, agent, mut client) = opening(World::empty());
    let call = client.begin("ask_user", &go(600_000));
    let name = within(SOON, "the request", || agent.task_names().into_iter().find(|name| !name.starts_with('.')));
    let id = name.trim_end_matches(".json").to_owned();
    fs::remove_file(agent.tasks().join(name)).unwrap();
    let now = jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap();
    let (shown_at, answer_by) = (now - jiff::SignedDuration::from_secs(9), now + jiff::SignedDuration::from_secs(1));
    let status = json!({"state": "open", "shown_at": shown_at.to_string(), "answer_by": answer_by.to_string()});
    let temporary = agent.path.join("responses/.tmp-status");
    fs::write(&temporary, status.to_string()).unwrap();
    fs::rename(temporary, agent.path.join(format!("responses/{id}.status"))).unwrap();
    let begun = Instant::now();
    let told = client.result(call, Duration::from_secs(30) + SOON);
    let took = begun.elapsed();
    assert!((Duration::from_secs(30)..Duration::from_secs(50)).contains(&took), "{took:?}");
    told.assert_error("timeout", "Error: Request timed out waiting for host response");
    assert_eq!((&told.structured["reason"], &told.structured["shouldRetry"]), (&json!("system"), &json!(false)));
    agent.tasks_gone();
}

/// Begins a call about the task of this question.
fn of_task(client: &mut Client, method: &str, id: &str) -> u64 {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": TAKES_TASKS.parse::<Value>().unwrap(),
    });
    client.request(method, &json!({"taskId": format!("{id}.1"), "_meta": meta}))
}

#[test]
fn a_task_that_could_not_be_cancelled_is_not_unknown() {
    let world = World::empty();
    let agent = world.group("g");
    let fail = world.data().join("failing-calls");
    let mut client = Client::new(&agent.path, &[("ASKD_FAIL_CALL", fail.to_str().unwrap())]);
    let id = claimed(&agent, &mut client, 0);
    let mut cancel = |id: &str| {
        let call = of_task(&mut client, "tasks/cancel", id);
        client.reply_to(call, SOON)["error"].clone()
    };
    assert_eq!(cancel("none")["code"], -32602);
    fs::write(&fail, "renameat2:1-:EIO").unwrap();
    let error = cancel(&id);
    assert!(error["code"] == -32603 && error["message"].as_str().unwrap().contains("ipc/g/tasks: "), "{error}");
    fs::remove_file(fail).unwrap();
    assert!(cancel(&id).is_null());
}

/// No call was told, because no host had the question yet.
#[test]
fn a_question_that_was_cancelled_as_a_task_is_asked_anew_by_the_next_call() {
    let (_world, agent, mut client) = opening(World::empty());
    let first = client.call("ask_user", &go(0)).question_id();
    let call = of_task(&mut client, "tasks/cancel", &first);
    assert!(client.reply_to(call, SOON)["error"].is_null());
    let second = claimed(&agent, &mut client, 0);
    assert_ne!(first, second);
    agent.put_response(&second, &answer(&second));
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

/// A folder that hangs keeps no call longer than it may wait, and what comes of the question reaches the next call.
#[test]
fn a_call_on_a_folder_that_hangs_ends_at_its_limit_as_pending() {
    let world = World::empty();
    let agent = world.group("g");
    let slow = world.data().join("slow-calls");
    let mut client = Client::new(&agent.path, &[("ASKD_SLOW_CALL", slow.to_str().unwrap())]);
    let id = claimed(&agent, &mut client, 0);
    fs::write(&slow, "openat2:6000").unwrap();
    agent.put_response(&id, &answer(&id));
    let begun = Instant::now();
    let other = json!({"questions": [{"question": "And now?"}], "waitMs": 500});
    let calls = [
        client.begin("ask_user_wait", &json!({"question_id": id, "waitMs": 500})),
        client.begin("ask_user", &go(500)),
        client.begin("ask_user", &other),
        client.begin("ask_user_cancel", &json!({"question_id": id})),
    ];
    let task = of_task(&mut client, "tasks/get", &id);
    let told = calls.map(|call| client.result(call, SOON));
    assert_eq!(client.reply_to(task, SOON)["result"]["status"], "working");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    for told in &told[..3] {
        told.assert_pending();
    }
    assert!(told[3].is_error && told[3].text.contains("does not respond"), "{:?}", told[3]);
    fs::remove_file(slow).unwrap();
    // The withdrawal came too late, and no call has lost the answer.
    client.call("ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    // The question that the folder held up is asked, and asked once.
    let requests = || agent.task_names().into_iter().filter(|name| !name.starts_with('.')).collect::<Vec<_>>();
    let asked = within(SOON, "the other request", || Some(requests()).filter(|requests| !requests.is_empty()));
    let told = client.call("ask_user", &other);
    told.assert_pending();
    assert_eq!(asked, [format!("{}.json", told.question_id())]);
    assert_eq!(requests(), asked);
}
