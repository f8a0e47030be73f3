//! Deadlines: on the real clock where they are short, on one moved by hand where they are not.

use crate::harness::{SOON, World, within};
use askd::ask::Time;
use askd::clock::Clock;
use askd::host::Daemon;
use askd::host::settings::Settings;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[test]
fn nobody_answers_in_time() {
    let world = World::new();
    let agent = world.group("g");
    let begun = Instant::now();
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    let ask = world.one_open();
    let response = within(Duration::from_secs(10) + SOON, "the timeout", || agent.response("r1"));
    let took = begun.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(20)).contains(&took), "{took:?}");
    let result = &response["result"];
    assert_eq!(
        (&result["status"], &result["reason"], &result["timedOut"]),
        (&json!("timeout"), &json!("timeout"), &json!(true))
    );
    assert_eq!(
        response["error"],
        "ask_user timeout: no response. Please decide whether to retry when the user sends a new message."
    );
    assert_eq!(
        (&result["answered"], &result["answers"], &result["answered_by"]),
        (&json!(false), &json!({}), &Value::Null)
    );
    assert_eq!(result["renderConfirmed"], false, "no page displayed it");
    world.all_done("g");
    let (status, problem) = world.answer(&ask, &json!({"r1_0": "yes"}));
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().contains("timed out"), "{problem}");
    assert_eq!(agent.wait("r1")["result"]["status"], "timeout", "a late answer changes nothing");
    assert!(world.audit().iter().any(|line| line["what"] == "expired"));
}

#[test]
fn a_deadline_that_passed_while_the_daemon_was_down_is_a_timeout_at_the_start() {
    let mut world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    let ask = world.one_open();
    world.kill();
    // The record says that it was asked long ago.
    let path = world.data().join(format!("state/pending_questions/g/{}.json", ask["id"].as_str().unwrap()));
    let record = std::fs::read_to_string(&path).unwrap();
    let today = &ask["created_at"].as_str().unwrap()[..10];
    std::fs::write(&path, record.replace(today, "2026-01-01")).unwrap();
    world.start();
    assert_eq!(agent.wait("r1")["result"]["status"], "timeout");
    world.all_done("g");
}

/// A daemon within this process, on a clock that is moved by hand.
async fn by_hand(dir: &Path, story: impl AsyncFnOnce(&Path, askd::clock::Hand)) {
    let (clock, hand) = Clock::by_hand(Time::from_millis(1_790_000_000_000));
    let daemon = Daemon::open(Settings::for_demo(dir), clock).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(daemon.run(stop.clone()));
    let group = dir.join("ipc/research");
    until("the folders", || group.join("responses").is_dir()).await;
    story(&group, hand).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

async fn until(what: &str, there: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !there() {
        assert!(Instant::now() < end, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn half_an_hour_passes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    by_hand(dir.path(), async |group, hand| {
        let request = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
        std::fs::write(group.join(".tmp"), request).unwrap();
        std::fs::rename(group.join(".tmp"), group.join("tasks/r1.json")).unwrap();
        until("the status", || group.join("responses/r1.status").exists()).await;
        let status: Value = serde_json::from_slice(&std::fs::read(group.join("responses/r1.status")).unwrap()).unwrap();
        assert_eq!(status["answer_by"], "2026-09-21T14:43:20.000Z", "{status}");
        hand.advance(Duration::from_secs(1799));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!group.join("responses/r1.json").exists(), "not a second early");
        hand.advance(Duration::from_secs(1));
        until("the response", || group.join("responses/r1.json").exists()).await;
        let response = std::fs::read_to_string(group.join("responses/r1.json")).unwrap();
        assert!(response.contains("\"timeout\""), "{response}");
        until("the status to be gone", || !group.join("responses/r1.status").exists()).await;
    })
    .await;
}

#[tokio::test]
async fn an_outcome_is_forgotten_when_it_was_kept_long_enough() {
    let dir = tempfile::tempdir().unwrap();
    by_hand(dir.path(), async |group, hand| {
        let request = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
        std::fs::write(group.join("tasks/r1.json"), request).unwrap();
        until("the status", || group.join("responses/r1.status").exists()).await;
        hand.advance(Duration::from_secs(1800));
        let settled = dir.path().join("state/settled/research");
        let kept = || std::fs::read_dir(&settled).map_or(0, Iterator::count);
        until("the outcome to be kept", || kept() == 1).await;
        hand.advance(Duration::from_secs(3601));
        until("the outcome to be forgotten", || kept() == 0).await;
    })
    .await;
}

#[test]
fn a_torn_file_waits_no_longer_than_it_has_to() {
    let world = World::new();
    let agent = world.group("g");
    let begun = Instant::now();
    std::fs::write(agent.tasks().join("r1.json"), r#"{"type":"ask_user:ask","request_id":"r1""#).unwrap();
    // Unchanged for 5 s, seen at one of the looks that come every 5 s.
    within(Duration::from_secs(10) + SOON, "the rejection", || agent.response("r1"));
    let took = begun.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(15)).contains(&took), "{took:?}");
}
