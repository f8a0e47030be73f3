//! Deadlines: on the real clock where they are short, on one moved by hand where they are not.

use crate::harness::{SHORTEST, SOON, World, choice, within};
use crate::in_slack::{CHANNEL, Mode, in_slack};
use crate::said;
use askd::testing::{Clock, Daemon, Hand, Settings};
use askd_core::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
    agent.status_of("r1");
    // What the machine takes for these lines passes on the clock too.
    world.later(Duration::from_secs(8));
    std::thread::sleep(Duration::from_millis(100));
    assert!(agent.response("r1").is_none(), "not early: {:?}", begun.elapsed());
    world.later(Duration::from_secs(2));
    let response = agent.wait("r1");
    let result = &response["result"];
    assert_eq!(
        (&result["status"], &result["reason"], &result["timedOut"]),
        (&json!("timeout"), &json!("timeout"), &json!(true))
    );
    assert_eq!(response["error"], said::TIMED_OUT);
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
    let mut world = World::process();
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

/// A daemon within this process that is asked `Go?`, on a clock that is moved by hand.
async fn by_hand(dir: &Path, story: impl AsyncFnOnce(&Path, Hand)) {
    let (clock, hand) = Clock::by_hand(Time::from_millis(1_790_000_000_000));
    let settings = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[asks]\nremind_after = \"\"\nlate_answers = \"\"\n\
         keep_settled = \"1h\"\nanswer_retention = \"1h\"\n\
         [groups.research]\n",
        dir.display()
    );
    let group = dir.join("ipc/research");
    // It lies there before the first look: the next one comes only when the clock is moved.
    std::fs::create_dir_all(group.join("tasks")).unwrap();
    let request = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
    std::fs::write(group.join("tasks/r1.json"), request).unwrap();
    let daemon = Daemon::open(Settings::from_toml(&settings).unwrap(), clock).await.unwrap();
    let stop = CancellationToken::new();
    // A story that fails would wait for the daemon's threads for ever.
    let _stops = stop.clone().drop_guard();
    let running = tokio::spawn(daemon.run(stop.clone(), || ()));
    story(&group, hand).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

pub(crate) async fn until(what: &str, there: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !there() {
        assert!(Instant::now() < end, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the agent is told while it waits; null before that.
fn status(group: &Path) -> Value {
    std::fs::read(group.join("responses/r1.status"))
        .map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
}

/// It was posted, so that its time has begun.
fn is_asked(group: &Path) -> bool {
    !status(group)["answer_by"].is_null()
}

#[tokio::test]
async fn half_an_hour_passes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    by_hand(dir.path(), async |group, hand| {
        until("the question to be asked", || is_asked(group)).await;
        let status = status(group);
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
        until("the question to be asked", || is_asked(group)).await;
        hand.advance(Duration::from_secs(1800));
        let settled = dir.path().join("state/settled/research");
        let kept = || std::fs::read_dir(&settled).map_or(0, Iterator::count);
        let files_it = || {
            hand.advance(Duration::from_millis(100));
            kept() == 1
        };
        until("the outcome to be kept", files_it).await;
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
    // What came later was seen, and so was the file.
    agent.ask_framework("r2");
    agent.status_of("r2");
    // Unchanged for a minute, seen at one of the looks that come every 5 s.
    world.later(Duration::from_secs(50));
    std::thread::sleep(Duration::from_millis(200));
    assert!(agent.response("r1").is_none(), "it may still be written: {:?}", begun.elapsed());
    world.passing(Duration::from_secs(15), "the rejection", || agent.response("r1"));
}

/// A time as files and the API tell it.
fn time(text: &str) -> Time {
    Time::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

/// What `.status` says of the deadline.
fn answer_by(group: &Path) -> Option<String> {
    let status = std::fs::read(group.join("responses/r1.status")).ok()?;
    let status: Value = serde_json::from_slice(&status).ok()?;
    status["answer_by"].as_str().map(str::to_owned)
}

/// An ask of half an hour; a minute later the clock is set. What is left of it stays as it was.
async fn set_to(set: &str, answer_until: &str) {
    let dir = tempfile::tempdir().unwrap();
    by_hand(dir.path(), async |group, hand| {
        until("the deadline", || answer_by(group).as_deref() == Some("2026-09-21T14:43:20.000Z")).await;
        hand.advance(Duration::from_secs(60));
        hand.set(time(set));
        // Looked at within 5 s.
        hand.advance(Duration::from_secs(5));
        until("the new deadline", || answer_by(group).as_deref() == Some(answer_until)).await;
        assert!(!group.join("responses/r1.json").exists(), "nothing is decided by it");
        // No flush has filed it: the clock stands still.
        let stored = crate::journal::overlaid(&dir.path().join("state"), BTreeMap::new);
        assert!(stored.values().any(|record| record.contains(answer_until)), "{stored:?}");
        hand.advance(Duration::from_secs(1734));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!group.join("responses/r1.json").exists(), "not a second early");
        hand.advance(Duration::from_secs(1));
        until("the response", || group.join("responses/r1.json").exists()).await;
        let response = std::fs::read_to_string(group.join("responses/r1.json")).unwrap();
        assert!(response.contains("\"timeout\""), "{response}");
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_forward_ends_no_ask_early() {
    set_to("2026-09-21T16:14:20.000Z", "2026-09-21T16:43:20.000Z").await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_no_ask_open_longer() {
    set_to("2026-09-21T13:14:20.000Z", "2026-09-21T13:43:20.000Z").await;
}

/// The library that shows a process another time of day and leaves the monotonic clocks alone.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// What such a process has in its environment; `None`, and a line about it, if the library is not there.
#[expect(clippy::print_stdout, reason = "a story says that it is skipped")]
pub(crate) fn faketime() -> Option<[(&'static str, &'static str); 2]> {
    if !Path::new(FAKETIME).exists() {
        println!("SKIPPED the real binary on a clock that is set: {FAKETIME} is not there (apt-get install faketime)");
        return None;
    }
    Some([("LD_PRELOAD", FAKETIME), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")])
}

/// On the real binary: an ask of 10 s is shown, then the clock is set by two hours, forward and back.
#[test]
fn a_clock_that_is_set_changes_nothing_about_how_long_an_ask_waits() {
    if faketime().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for (set, by) in [("+2h", 7_200_000), ("-2h", -7_200_000)] {
            scope.spawn(move || clock_is_set(set, by));
        }
    });
}

fn clock_is_set(set: &str, by: i64) {
    let dir = tempfile::tempdir().unwrap();
    let offset = dir.path().join("offset");
    let shift = |to: &str| {
        std::fs::write(dir.path().join("new"), to).unwrap();
        std::fs::rename(dir.path().join("new"), &offset).unwrap();
    };
    shift("+0");
    let mut world = World::empty();
    for (name, value) in [
        ("LD_PRELOAD", FAKETIME),
        ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("NO_FAKE_STAT", "1"),
    ] {
        world = world.env(name, value);
    }
    let world = world.started();
    let agent = world.group("g");
    let begun = Instant::now();
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    let until = || {
        let status = std::fs::read(agent.path.join("responses/r1.status")).ok()?;
        let status: Value = serde_json::from_slice(&status).ok()?;
        Some(time(status["answer_by"].as_str()?).as_millis())
    };
    let before = within(SOON, "the deadline", until);
    shift(set);
    let after = within(SOON, "the new deadline", || until().filter(|after| *after != before));
    assert!((after - before - by).abs() < 100, "{set}: {before} {after}");
    let ask = world.one_open();
    assert_eq!(time(ask["answer_by"].as_str().unwrap()).as_millis(), after, "{ask}");
    let response = within(SHORTEST + SOON, "the timeout", || agent.response("r1"));
    let took = begun.elapsed();
    assert_eq!(response["result"]["status"], "timeout");
    assert!((SHORTEST..2 * SHORTEST).contains(&took), "{set}: {took:?}");
}

#[tokio::test]
async fn a_card_in_slack_shows_the_deadline_by_the_clock_that_was_set() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    let shown = || -> i64 {
        let card = json!(world.slack.message(CHANNEL, &card.ts).unwrap().blocks).to_string();
        card.split("<!date^").nth(1).unwrap().split('^').next().unwrap().parse().unwrap()
    };
    let before = shown();
    world.stored(&card.ts).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    world.hand().set(Time::from_millis(i64::try_from(now.as_millis()).unwrap()) + Duration::from_secs(7_200));
    world.time_passes(Duration::from_secs(5)).await;
    until("the card to be drawn anew", || shown() != before).await;
    let moved = shown() - before;
    assert!((7_190..7_260).contains(&moved), "{moved}");
    assert_eq!(world.live(CHANNEL).len(), 1, "it is the same card, and can be used");
}
