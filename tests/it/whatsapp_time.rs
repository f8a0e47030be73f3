//! Time decides what a message can mean: only a question that the platform had sent to that person before it received
//! the message.

use crate::harness::{SHORTEST, SOON, World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, TO_BOTH, on_whatsapp, result, sim};
use crate::said;
use askd_sim::whatsapp::{Fault, Ladder, Message, Stage};
use serde_json::{Value, json};

const BEFORE: &str = said::FROM_BEFORE;

/// When the platform sent it, in seconds.
fn sent(message: &Message) -> i64 {
    message.reached(Stage::Sent).unwrap() / 1000
}

fn delete() -> Value {
    json!({"questions": [{"question": "Delete the production database?", "type": "confirm"}]})
}

async fn world() -> World {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world
}

async fn says_at(world: &World, who: &str, text: &str, seconds: i64) -> String {
    let id = world.phone.person_says_at(who, text, seconds);
    world.taken(&id).await;
    id
}

#[tokio::test]
async fn a_yes_that_was_held_back_does_not_meet_the_next_question() {
    let world = world().await;
    let mut first = choice("Keep the old backups?", &["yes", "no"]);
    first["timeoutMs"] = json!(10_000);
    world.ask("r1", first);
    let backups = world.shown(ADA, "Keep the old backups?").await;
    world.time_passes(SHORTEST).await;
    assert_eq!(result(&world.response("r1").await), ("timeout", "timeout"));
    world.ask("r2", delete());
    world.shown(ADA, "Delete the production database?").await;
    let before = world.quiet(1).await;
    says_at(&world, ADA, "yes", sent(&backups) + 2).await;
    world.shown(ADA, BEFORE).await;
    assert!(before == world.records(), "a yes to the one is no yes to the other");
    world.writes(ADA, "no").await;
    assert_eq!(world.response("r2").await["result"]["answers"]["Delete the production database?"], "No");
}

#[tokio::test]
async fn nothing_from_before_or_from_the_same_second_answers_skips_or_dismisses() {
    let world = world().await;
    world.ask("r1", json!({"questions": [{"question": "Which?", "options": ["a", "b"], "required": false}]}));
    let question = world.shown(ADA, "Which?").await;
    let before = world.quiet(1).await;
    let code = world.open()[0]["short_id"].as_str().unwrap().to_owned();
    for text in ["2", "b", "good morning", "skip", "cancel", &format!("{code} 2"), &format!("{code} cancel")] {
        for ago in [0, 1, 30, 3_600, 90_000] {
            says_at(&world, ADA, text, sent(&question) - ago).await;
        }
    }
    world.shown(ADA, BEFORE).await;
    world.ask("r2", choice("And now?", &["c"]));
    world.shown(ADA, "And now?").await;
    let told = world.said_to(ADA);
    assert_eq!(told.iter().filter(|text| *text == BEFORE).count(), 1, "once for a question: {told:#?}");
    assert!(
        before.iter().all(|(path, record)| world.records().get(path) == Some(record)),
        "nothing of it changed anything"
    );
    says_at(&world, ADA, &format!("{code} 2"), sent(&question) + 1).await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b", "the second after is after");
}

#[tokio::test]
async fn a_quote_proves_itself_whenever_it_was_written() {
    let world = world().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    let raw = json!({"from": ADA, "id": "wamid.quote", "timestamp": (sent(&question) - 60).to_string(), "type": "text",
        "text": {"body": "2"}, "context": {"from": "1", "id": question.id}});
    assert_eq!(world.webhook(&raw).await, 200);
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
}

/// A quote of what askd does not know may be of a question whose message nothing has named yet. It is of none that was
/// sent later, and of none whose post WhatsApp refused.
#[tokio::test]
async fn a_quote_of_an_unknown_message_proves_nothing_from_before() {
    for fault in [Fault::Code(131_000), Fault::ResetAfter] {
        let world = world().await;
        world.phone.ladder(Ladder { told: fault != Fault::ResetAfter, ..Ladder::default() });
        world.phone.fault(fault, 1);
        world.ask("r1", delete());
        let question = world.shown(ADA, "Delete the production database?").await;
        let before = if fault == Fault::ResetAfter { world.records() } else { world.quiet(1).await };
        let accepted = question.reached(Stage::Accepted).unwrap() / 1000;
        let quotes = |id: &str, seconds: i64| {
            json!({"from": ADA, "id": format!("wamid.of.{id}.{seconds}"), "timestamp": seconds.to_string(), "type": "text",
                "text": {"body": "yes"}, "context": {"from": "1", "id": id}})
        };
        for ago in [7, 3_600] {
            assert_eq!(world.webhook(&quotes("wamid.elsewhere", accepted - ago)).await, 200);
        }
        assert!(before == world.records(), "{fault:?}");
        assert_eq!(world.webhook(&quotes(&question.id, accepted + 1)).await, 200);
        assert_eq!(world.response("r1").await["result"]["answers"]["Delete the production database?"], "Yes");
    }
}

#[tokio::test]
async fn a_message_without_a_readable_time_is_from_before() {
    let world = world().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    let before = world.quiet(1).await;
    for (n, time) in [json!("soon"), json!(null), json!({}), json!(-1)].iter().enumerate() {
        let raw =
            json!({"from": ADA, "id": format!("wamid.{n}"), "timestamp": time, "type": "text", "text": {"body": "2"}});
        assert_eq!(world.webhook(&raw).await, 200);
    }
    assert!(before == world.records());
    world.phone.person_quotes(ADA, &question.id, "1");
    world.response("r1").await;
}

#[tokio::test]
async fn the_responder_who_is_not_the_chat_is_judged_by_the_sending_to_the_chat() {
    let world = on_whatsapp(sim(), TO_BOTH, "").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "First?"}, {"question": "Second?"}]}));
    let first = world.shown(ADA, "First?").await;
    let before = world.quiet(1).await;
    says_at(&world, BOB, "too early", sent(&first)).await;
    world.shown(BOB, BEFORE).await;
    assert!(before == world.records());
    says_at(&world, BOB, "one", sent(&first) + 1).await;
    let second = world.shown(BOB, "Second?").await;
    says_at(&world, BOB, "again", sent(&second)).await;
    let told = |sim: &askd_sim::whatsapp::Whatsapp| {
        sim.messages_to(BOB).iter().filter(|message| message.text == BEFORE).count() == 2
    };
    assert!(world.phone.wait_until(told, SOON).await, "{:#?}", world.said_to(BOB));
    says_at(&world, BOB, "two", sent(&second) + 1).await;
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"First?": "one", "Second?": "two"}));
}

#[tokio::test]
async fn of_two_questions_only_the_one_that_was_there_is_meant() {
    let world = world().await;
    world.ask("r1", choice("Old?", &["a", "b"]));
    let old = world.shown(ADA, "Old?").await;
    // A second later, by the platform's clock.
    world.phone.advance(std::time::Duration::from_secs(5));
    world.ask("r2", choice("New?", &["c", "d"]));
    let new = world.shown(ADA, "New?").await;
    world.quiet(2).await;
    assert!(sent(&new) > sent(&old) + 3);
    says_at(&world, ADA, "2", sent(&old) + 2).await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Old?"], "b");
    assert!(world.response_now("r2").is_none());
}

#[tokio::test]
async fn what_was_open_when_it_was_written_still_makes_it_doubtful() {
    let world = world().await;
    world.ask("r1", choice("Old?", &["a", "b"]));
    world.shown(ADA, "Old?").await;
    world.ask("r2", choice("New?", &["c", "d"]));
    let new = world.shown(ADA, "New?").await;
    // Both are open when it is written, but only one is open when it arrives.
    let written = sent(&new) + 1;
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    let id = world.open().iter().find(|ask| ask["request_id"] == "r1").unwrap()["id"].clone();
    let path = format!("/asks/{}/answer", id.as_str().unwrap());
    assert_eq!(world.call("POST", &path, Some(&json!({"answers": {"Old?": "a"}}))).0, 200);
    world.shown(ADA, "Answered: a by operator").await;
    let before = world.quiet(1).await;
    says_at(&world, ADA, "2", written).await;
    world.shown(ADA, "Which question do you mean?").await;
    assert!(before == world.records());
}

/// They wrote while both were open and ended one of them afterwards; what they wrote arrives last.
#[tokio::test]
async fn what_is_overtaken_by_the_end_of_another_question_is_asked_back() {
    let world = world().await;
    world.ask("r1", choice("Old?", &["a", "b"]));
    let old = world.shown(ADA, "Old?").await;
    world.ask("r2", choice("New?", &["c", "d"]));
    let new = world.shown(ADA, "New?").await;
    let written = sent(&new) + 1;
    world.time_passes(std::time::Duration::from_secs(5)).await;
    world.phone.person_quotes(ADA, &old.id, "1");
    assert_eq!(world.response("r1").await["result"]["answers"]["Old?"], "a");
    world.shown(ADA, "Answered: a by Ada").await;
    let before = world.quiet(1).await;
    says_at(&world, ADA, "2", written).await;
    world.shown(ADA, "Which question do you mean?").await;
    assert!(before == world.records());
    // What they write once they know is about the other one.
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r2").await["result"]["answers"]["New?"], "d");
}
