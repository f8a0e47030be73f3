//! What askd asks people on WhatsApp to confirm: a `1` confirms the words that the request names, or askd asks once more. It
//! is never the first option of a question by accident.

use crate::harness::{SOON, World, choice};
use crate::on_whatsapp::{ADA, TO_ADA, on_whatsapp, sim};
use askd_sim::whatsapp::{Message, Sending, Stage};
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: &str = "[asks]\nremind_after = \"60s\"";

fn confirm(question: &str) -> Value {
    json!({"questions": [{"question": question, "type": "confirm"}]})
}

async fn with_ada(more: &str) -> World {
    let world = on_whatsapp(sim(), TO_ADA, more).await;
    world.writes(ADA, "hello").await;
    world
}

/// Asks these while the phone is off, and switches it on after that. The code of each.
async fn asked_while_off(world: &World, asks: &[(&str, &str)]) -> Vec<String> {
    let open = world.open().len();
    world.phone.phone(ADA, false);
    for (id, question) in asks {
        world.ask(id, confirm(question));
        let sent = |m: &Message| m.text.contains(question) && m.stage == Stage::Sent;
        let sent = || world.phone.messages_to(ADA).iter().any(sent);
        world.until("a question to be sent", sent).await;
    }
    world.phone.advance(Duration::from_secs(40));
    world.phone.phone(ADA, true);
    for (_, question) in asks {
        world.shown(ADA, question).await;
    }
    world.quiet(open + asks.len()).await;
    asks.iter().map(|(id, _)| world.open_of(id)["short_id"].as_str().unwrap().to_owned()).collect()
}

/// Ada writes this within the ten seconds in which it has to be confirmed. The request for that.
async fn says_too_soon(world: &World, text: &str, question: &str) -> Message {
    let shown = world.shown(ADA, question).await;
    let delivered = shown.reached(Stage::Delivered).unwrap() / 1000;
    world.taken(&world.phone.person_says_at(ADA, text, delivered + 5)).await;
    let request = asked_back(world, &format!("Did you mean this for: {question}"), 1).await;
    // Later than the ten seconds, and than the request.
    world.time_passes(Duration::from_secs(15)).await;
    request
}

/// Waits until a message was shown so often. The last of them.
async fn asked_back(world: &World, says: &str, times: usize) -> Message {
    let shown = |m: &Message| m.stage.shown() && m.text.contains(says);
    let all = || world.phone.messages_to(ADA).into_iter().filter(shown);
    world.passes(SOON, says, || all().nth(times - 1)).await
}

/// Ada writes this after what askd has sent last.
async fn then_says(world: &World, text: &str) {
    world.time_passes(Duration::from_secs(5)).await;
    world.writes(ADA, text).await;
}

async fn answer(world: &World, id: &str, question: &str) -> Value {
    world.response(id).await["result"]["answers"][question].clone()
}

/// Two of them at once: she says no to both.
async fn two_to_confirm() -> (World, [Message; 2], Vec<String>) {
    let world = with_ada("").await;
    let codes = asked_while_off(&world, &[("r1", "Delete?"), ("r2", "Rotate?")]).await;
    let shown = world.shown(ADA, "Rotate?").await;
    let delivered = shown.reached(Stage::Delivered).unwrap() / 1000;
    let mut requests = Vec::new();
    for (code, question) in codes.iter().zip(["Delete?", "Rotate?"]) {
        world.taken(&world.phone.person_says_at(ADA, &format!("{code} 2"), delivered + 5)).await;
        requests.push(asked_back(&world, &format!("Did you mean this for: {question}"), 1).await);
    }
    world.time_passes(Duration::from_secs(15)).await;
    (world, requests.try_into().unwrap(), codes)
}

#[tokio::test]
async fn a_second_one_does_not_say_yes_to_what_a_no_waits_for() {
    let (world, ..) = two_to_confirm().await;
    then_says(&world, "1").await;
    assert_eq!(answer(&world, "r2", "Rotate?").await, "No", "the last that was asked");
    then_says(&world, "1").await;
    asked_back(&world, "Did you mean this for: Delete?", 2).await;
    assert!(world.response_now("r1").is_none());
    then_says(&world, "1").await;
    assert_eq!(answer(&world, "r1", "Delete?").await, "No");
}

#[tokio::test]
async fn of_several_requests_a_quote_or_a_code_says_which_is_confirmed() {
    let (world, [delete, _], _) = two_to_confirm().await;
    world.phone.person_quotes(ADA, &delete.id, "1");
    assert_eq!(answer(&world, "r1", "Delete?").await, "No", "by quote");
    assert!(world.response_now("r2").is_none());

    let (world, _, codes) = two_to_confirm().await;
    for (id, question, code) in [("r1", "Delete?", &codes[0]), ("r2", "Rotate?", &codes[1])] {
        then_says(&world, &format!("{code} 1")).await;
        assert_eq!(answer(&world, id, question).await, "No", "by code");
    }
}

/// A sticker and unfit words answer nothing, so what waits to be confirmed still waits.
#[tokio::test]
async fn what_answers_nothing_leaves_what_waits_to_be_confirmed() {
    for quotes in [true, false] {
        let world = with_ada("").await;
        asked_while_off(&world, &[("r1", "Deploy?")]).await;
        let request = says_too_soon(&world, "no", "Deploy?").await;
        world.phone.person_sends(ADA, &Sending::Sticker);
        world.shown(ADA, "I can only read text").await;
        then_says(&world, "perhaps").await;
        world.shown(ADA, "Please reply 1 for Yes or 2 for No.").await;
        if quotes {
            world.phone.person_quotes(ADA, &request.id, "1");
        } else {
            // It may be meant for what askd has asked since.
            then_says(&world, "1").await;
            asked_back(&world, "Did you mean this for: Deploy?", 2).await;
            assert!(world.response_now("r1").is_none());
            then_says(&world, "1.").await;
        }
        assert_eq!(answer(&world, "r1", "Deploy?").await, "No");
    }
}

/// A request names the words that it is about: once others wait, it confirms neither.
#[tokio::test]
async fn a_quote_of_an_earlier_request_does_not_confirm_other_words() {
    let world = with_ada("").await;
    asked_while_off(&world, &[("r1", "Deploy?")]).await;
    let delivered = world.shown(ADA, "Deploy?").await.reached(Stage::Delivered).unwrap() / 1000;
    let mut requests = Vec::new();
    for (nth, text) in ["yes", "no"].iter().enumerate() {
        world.taken(&world.phone.person_says_at(ADA, text, delivered + 5)).await;
        requests.push(asked_back(&world, "Did you mean this for: Deploy?", nth + 1).await);
    }
    world.time_passes(Duration::from_secs(15)).await;
    world.phone.person_quotes(ADA, &requests[0].id, "1");
    asked_back(&world, "You wrote \"no\". Reply 1 to confirm it", 1).await;
    assert!(world.response_now("r1").is_none());
    world.phone.person_quotes(ADA, &requests[1].id, "1");
    assert_eq!(answer(&world, "r1", "Deploy?").await, "No");
}

/// Who answers a question otherwise is not held to what they were asked to confirm.
#[tokio::test]
async fn an_answer_by_quote_ends_the_request() {
    let world = with_ada("").await;
    world.ask("r2", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    asked_while_off(&world, &[("r1", "Deploy?")]).await;
    let code = world.open_of("r1")["short_id"].as_str().unwrap().to_owned();
    let request = says_too_soon(&world, &format!("{code} no"), "Deploy?").await;
    let question = world.shown(ADA, "Deploy?").await;
    world.phone.person_quotes(ADA, &question.id, "1");
    assert_eq!(answer(&world, "r1", "Deploy?").await, "Yes");
    then_says(&world, "1").await;
    assert_eq!(answer(&world, "r2", "Which?").await, "a");
    world.phone.person_quotes(ADA, &request.id, "1");
    world.shown(ADA, "Already answered \"Yes\"").await;
}

/// The question ends just before the `1` that confirms its answer: that is no answer to the other one.
#[tokio::test]
async fn what_confirms_an_answer_to_a_question_that_has_ended_answers_no_other() {
    for text in ["1", "yes"] {
        let world = with_ada("").await;
        world.ask("r2", confirm("Erase?"));
        world.shown(ADA, "Erase?").await;
        world.time_passes(Duration::from_secs(2)).await;
        let codes = asked_while_off(&world, &[("r1", "Send?")]).await;
        says_too_soon(&world, &format!("{} yes", codes[0]), "Send?").await;
        assert_eq!(world.answer(&world.open_of("r1"), &json!({"Send?": "No"})).0, 200);
        world.shown(ADA, "Answered: No by operator").await;
        then_says(&world, text).await;
        asked_back(&world, "Which question do you mean?", 1).await;
        assert!(world.response_now("r2").is_none(), "{text}");
        // That was it: the next one is about what is open.
        then_says(&world, "1").await;
        assert_eq!(answer(&world, "r2", "Erase?").await, "Yes");
    }
}

/// After another question has come, a `1` is about that one, whatever became of the request before.
#[tokio::test]
async fn a_request_whose_question_has_ended_does_not_hold_up_a_later_question() {
    let world = with_ada("").await;
    asked_while_off(&world, &[("r1", "Send?")]).await;
    says_too_soon(&world, "yes", "Send?").await;
    assert_eq!(world.answer(&world.open_of("r1"), &json!({"Send?": "No"})).0, 200);
    world.shown(ADA, "Answered: No by operator").await;
    world.time_passes(Duration::from_secs(5)).await;
    world.ask("r2", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.quiet(1).await;
    world.time_passes(Duration::from_secs(10)).await;
    then_says(&world, "1").await;
    assert_eq!(answer(&world, "r2", "Which?").await, "a");
}

/// A reminder quotes the question with its options, so a `1` after it may be the first of them.
#[tokio::test]
async fn a_one_after_a_reminder_is_asked_back() {
    let world = with_ada(MINUTE).await;
    asked_while_off(&world, &[("r1", "Deploy?")]).await;
    says_too_soon(&world, "no", "Deploy?").await;
    world.time_passes(Duration::from_secs(60)).await;
    world.shown(ADA, "Still open.").await;
    then_says(&world, "1").await;
    asked_back(&world, "Did you mean this for: Deploy?", 2).await;
    assert!(world.response_now("r1").is_none());
    then_says(&world, "1").await;
    assert_eq!(answer(&world, "r1", "Deploy?").await, "No");
}
