//! Several people answer one ask on WhatsApp at once: each goes through the questions by themselves, the
//! first who is through wins, and the others are told.

use crate::harness::{SOON, choice};
use crate::on_whatsapp::{ADA, BOB, TO_BOTH, happens, on_whatsapp, sim};
use askd_sim::whatsapp::{Message, Stage, Whatsapp};
use serde_json::json;

fn asked(sim: &Whatsapp, who: &str, number: usize) -> Vec<Message> {
    let head = format!("Question {number} of 3");
    sim.messages_to(who).into_iter().filter(|m| m.stage.shown() && m.text.contains(&head)).collect()
}

#[tokio::test]
async fn two_people_who_answer_at_once_are_each_asked_their_own_next_question() {
    let world = on_whatsapp(sim(), TO_BOTH, "").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.ask(
        "r1",
        json!({"questions": [
            {"question": "First?", "options": ["a", "b"]},
            {"question": "Second?", "options": ["c", "d"]},
            {"question": "Third?", "options": ["e", "f"]},
        ]}),
    );
    let first = world.shown(ADA, "Question 1 of 3").await;
    world.quiet(1).await;
    // Bob hears of it from Ada.
    let heard = first.reached(Stage::Sent).unwrap() / 1000 + 1;
    for (number, (ada, bob)) in [("1", "2"), ("2", "1")].into_iter().enumerate() {
        world.phone.person_says(ADA, ada);
        if number == 0 {
            world.phone.person_says_at(BOB, bob, heard)
        } else {
            world.phone.person_says(BOB, bob)
        };
        for who in [ADA, BOB] {
            let next = |sim: &Whatsapp| !asked(sim, who, number + 2).is_empty();
            assert!(world.phone.wait_until(next, SOON).await, "{who}: {:#?}", world.said_to(who));
        }
        happens("both answers to be stored", || {
            let records = world.records();
            records.iter().any(|(_, record)| record.matches("\"picks\": [").count() >= 2 * (number + 1))
        })
        .await;
    }
    assert!(world.response_now("r1").is_none());
    world.writes(BOB, "2").await;
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"First?": "b", "Second?": "c", "Third?": "f"}));
    assert_eq!(response["result"]["answered_by"]["id"], BOB);
    world.shown(BOB, "Answered: b; c; f by Bob").await;
    world.shown(ADA, "Answered: b; c; f by Bob\nYour answers were not used.").await;
    for (who, number) in [(ADA, 1), (ADA, 2), (ADA, 3), (BOB, 2), (BOB, 3)] {
        assert_eq!(asked(&world.phone, who, number).len(), 1, "{who}, question {number}: {:#?}", world.said_to(who));
    }
    world.kept_the_pace();
}

/// Both may answer on both routes, and only the second one could be shown: Bob answers what he was sent.
#[tokio::test]
async fn an_answer_counts_on_the_route_that_its_sender_was_sent() {
    let both = format!("responders = [\"{ADA}\", \"{BOB}\"]");
    let route = |chat| format!("{{ channel = \"whatsapp\", chat = \"{chat}\", {both} }}");
    let world = on_whatsapp(sim(), &format!("{}, {}", route(ADA), route(BOB)), "").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.phone.reachable(ADA, false);
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(BOB, "Which?").await;
    world.writes(BOB, "2").await;
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"]["Which?"], "b");
    assert_eq!(response["result"]["answered_by"]["id"], BOB);
}

#[tokio::test]
async fn whoever_has_begun_and_is_not_the_chat_is_told_too() {
    let world = on_whatsapp(sim(), TO_BOTH, "").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "First?"}, {"question": "Second?"}]}));
    let first = world.shown(ADA, "Question 1 of 2").await;
    world.quiet(1).await;
    world.phone.person_says_at(BOB, "mine", first.reached(Stage::Sent).unwrap() / 1000 + 1);
    world.shown(BOB, "Question 2 of 2").await;
    world.writes(ADA, "hers").await;
    world.shown(ADA, "Question 2 of 2").await;
    world.writes(ADA, "hers too").await;
    assert_eq!(world.response("r1").await["result"]["answered_by"]["id"], ADA);
    world.shown(ADA, "Answered: hers; hers too by Ada").await;
    world.shown(BOB, "Answered: hers; hers too by Ada\nYour answers were not used.").await;
    world.kept_the_pace();
}

/// Whoever was sent the question can answer it, whatever becomes of it on another phone.
#[tokio::test]
async fn a_question_that_one_person_cannot_be_sent_waits_for_who_has_it() {
    let world = on_whatsapp(sim(), TO_BOTH, "").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    let ask = |id: &str| {
        world.ask(
            id,
            json!({"questions": [{"question": format!("{id} first?")}, {"question": format!("{id} second?")}]}),
        );
    };
    ask("r1");
    let first = world.shown(ADA, "r1 first?").await;
    world.quiet(1).await;
    world.phone.person_says_at(BOB, "mine", first.reached(Stage::Sent).unwrap() / 1000 + 1);
    world.shown(BOB, "r1 second?").await;
    world.phone.reachable(ADA, false);
    world.phone.person_says(ADA, "hers");
    let failed = |times| world.log().matches("UI failed to render question").count() == times;
    happens("her question to fail", || failed(1)).await;
    world.quiet(1).await;
    assert_eq!(world.response_now("r1"), None);
    world.writes(BOB, "mine too").await;
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"r1 first?": "mine", "r1 second?": "mine too"}));
    world.shown(BOB, "Answered: mine; mine too by Bob").await;

    // Where nobody has it any more, the agent is told at once.
    world.phone.reachable(ADA, true);
    world.phone.reachable(BOB, false);
    ask("r2");
    let first = world.shown(ADA, "r2 first?").await;
    world.quiet(1).await;
    world.phone.person_says_at(BOB, "mine", first.reached(Stage::Sent).unwrap() / 1000 + 1);
    happens("his question to fail", || failed(2)).await;
    world.quiet(1).await;
    assert_eq!(world.response_now("r2"), None, "she has the first one");
    world.phone.reachable(ADA, false);
    world.phone.person_says(ADA, "hers");
    assert_eq!(world.response("r2").await["result"]["status"], "undeliverable");
}
