//! What a daemon does while it is still reading its stored asks, and how many of them it keeps. A story holds up the
//! reading of one folder, looks at what goes on and what waits, and lets it go.

use crate::harness::{SOON, World, choice, until, within};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, in_slack};
use crate::stored::{Kind, fill};
use askd_core::Time;
use serde_json::json;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long something that has to wait is watched.
const A_WHILE: Duration = Duration::from_millis(400);

/// A click names its ask, so it goes through at once; a reply in words waits, and Slack sends it again.
#[tokio::test]
async fn a_click_is_answered_before_all_asks_are_read_and_a_reply_in_words_waits() {
    let mut world = in_slack(Mode::Http).with_binary().start().await;
    for (request_id, question) in [("r1", "First?"), ("r2", "Second?")] {
        world.ask(request_id, choice(question, &["a", "b"]));
        let card =
            until("the card", SOON, || world.live(CHANNEL).into_iter().find(|card| card.text.contains(question)));
        let card = card.await;
        world.stored(&card.ts).await;
    }
    let card = |question: &str| world.live(CHANNEL).into_iter().find(|card| card.text.contains(question)).unwrap();
    let (first, second) = (card("First?"), card("Second?"));
    world.kill();
    world.start_held("pending_questions/research");
    world.connect_slack().await;
    assert!(world.raw("GET", "/readyz", "", "").1.starts_with("loading "));
    let click = world.slack.click(CHANNEL, &first.ts, "pick:0:1", ALICE).await.expect("sent");
    assert!(click.acknowledged);
    let answered = world.response("r1").await;
    assert_eq!(answered["result"]["answers"], json!({"First?": "b"}));
    world.says(CHANNEL, &first.ts, "Answered: b by").await;
    world.slack.reply_in_thread(CHANNEL, &second.ts, BOB, "a").unwrap();
    let refused = || world.slack.deliveries().into_iter().find(|delivery| !delivery.acknowledged);
    until("Slack to be told to send the words again", SOON, refused).await;
    assert_eq!(world.response_now("r2"), None);
    assert!(world.raw("GET", "/readyz", "", "").1.starts_with("loading "), "still");
    world.let_go();
    world.slack.reply_in_thread(CHANNEL, &second.ts, BOB, "a").unwrap();
    assert_eq!(world.response("r2").await["result"]["answers"], json!({"Second?": "a"}));
    world.all_closed(SOON).await;
    assert_eq!(world.slack.messages(CHANNEL).iter().filter(|message| message.thread_ts.is_none()).count(), 2);
}

/// The inbox's page and a whole id need no other asks; lists and searches say when to come again.
#[test]
fn lists_and_codes_say_when_to_come_again_until_everything_is_read() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let (id, code) = (ask["id"].as_str().unwrap(), ask["short_id"].as_str().unwrap());
    world.kill();
    world.start_held("pending_questions/g");
    assert_eq!(world.raw("GET", "/", "", "").0, 200);
    for path in ["/asks", &format!("/asks/{code}"), &format!("/asks/{}", &id[..8])] {
        let (status, problem) = world.call("GET", path, None);
        assert_eq!((status, &problem["title"]), (503, &json!("Starting")), "{path}");
    }
    assert_eq!(world.call("GET", &format!("/asks/{id}"), None).1["short_id"], code);
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["answers"], json!({"Which framework?": "Vue"}));
    world.let_go();
    assert_eq!(world.open(), [json!(null); 0]);
    assert_eq!(world.call("GET", &format!("/asks/{code}"), None).1["id"], id);
}

/// Only a running daemon's timer lets a question time out, and after a start a click can come before the timer does.
#[test]
fn an_answer_after_the_deadline_is_late_although_the_stored_questions_are_still_being_read() {
    let mut world = World::empty().in_files().with_binary().started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    assert!(world.terminate().success());
    let answer_by = ask["answer_by"].as_str().unwrap();
    for (path, record) in world.store() {
        fs::write(path, record.replace(answer_by, "2026-01-01T00:00:00.000Z")).unwrap();
    }
    world.start_held("pending_questions/g");
    let (status, problem) = world.answer(&ask, &json!({"r1_0": "Vue"}));
    assert_eq!((status, &problem["ask"]["outcome"]["status"]), (409, &json!("timeout")), "{problem}");
    assert_eq!(agent.wait("r1")["result"]["status"], "timeout");
    world.let_go();
}

/// Whether a request is new shows only when all asks of its group are known. Its agent is told that it was seen, and other
/// groups do not wait.
#[test]
fn a_request_waits_for_its_own_group_alone_and_its_agent_knows() {
    let mut world = World::process();
    // No code of an ask has a hyphen, so a record that contains one of these names has that request.
    let (agent, other) = (world.group("g"), world.group("other"));
    agent.ask_framework("r-1");
    assert_eq!(world.answer(&world.one_open(), &json!({"r-1_0": "Vue"})).0, 200);
    agent.take("r-1");
    world.all_done("g");
    world.kill();
    agent.ask_framework("r-1");
    agent.ask_framework("r-2");
    other.ask_framework("r-3");
    world.start_held("settled/g");
    for request_id in ["r-1", "r-2"] {
        assert_eq!(agent.status_of(request_id)["state"], "posting");
    }
    assert!(agent.task_names().iter().all(|name| name.starts_with(".claimed-")), "no client takes it back");
    let is_asked = || {
        within(SOON, "the request of the other group", || {
            world.store().into_values().find(|record| record.contains("\"r-3\""))
        })
    };
    is_asked();
    std::thread::sleep(A_WHILE);
    assert!(!world.store().into_values().any(|record| record.contains("\"r-2\"")), "it waits");
    world.let_go();
    agent.tasks_gone();
    assert_eq!(agent.wait("r-1")["result"]["answers"], json!({"Which framework?": "Vue"}), "it is told again");
    let mut open: Vec<_> = world.open().into_iter().map(|ask| ask["request_id"].clone()).collect();
    open.sort_by_key(ToString::to_string);
    assert_eq!(open, [json!("r-2"), json!("r-3")]);
}

/// Of many outcomes a group keeps the newest 5,000, however young they are; an answer that its agent has not read stays.
#[test]
fn a_group_keeps_the_newest_outcomes_only() {
    let world = World::empty();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let at =
        |ago: u64| Time::from_millis(i64::try_from(now.as_millis()).unwrap() - i64::try_from(ago).unwrap() * 1_000);
    fill(&world.state(), &Kind::settled("C1", at(3_600)), 1, 0..3);
    fill(&world.state(), &Kind::settled("C1", at(60)), 1, 3..5_003);
    fill(&world.state(), &Kind::briefed("C1", at(7_200)), 1, 5_003..5_004);
    let unread = format!("{}.json", crate::stored::id(5_003));
    let briefings = world.group("group-0").path.join("briefings");
    std::fs::create_dir(&briefings).unwrap();
    std::fs::write(briefings.join(&unread), "{}").unwrap();
    let world = world.with_binary().started();
    let kept = world.state().join("settled/group-0");
    within(SOON, "the oldest to be forgotten", || (crate::harness::names(&kept).len() == 5_001).then_some(()));
    for number in 0..3 {
        assert!(!kept.join(format!("{}.json", crate::stored::id(number))).exists(), "{number} is old");
    }
    assert!(kept.join(&unread).exists() && briefings.join(&unread).exists(), "the agent has not read it yet");
    // A file goes before the list knows of it.
    let total = || world.call("GET", "/asks?state=settled&limit=1", None).1["total"] == 5_001;
    within(SOON, "the list to be as long", || total().then_some(()));
    // Once it is read, it is the oldest.
    std::fs::remove_file(briefings.join(&unread)).unwrap();
    within(SOON, "it to be forgotten", || (!kept.join(&unread).exists()).then_some(()));
    let agent = world.group("group-0");
    agent.ask_framework("one more");
}
