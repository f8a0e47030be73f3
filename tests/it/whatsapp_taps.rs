//! Options that people tap instead of typing their number.

use crate::harness::{World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, on_whatsapp, sim};
use askd_sim::whatsapp::{Message, Sending};
use serde_json::json;

async fn world() -> World {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world
}

fn titles(message: &Message) -> Vec<&str> {
    message.taps.iter().map(|tap| tap.title.as_str()).collect()
}

/// A tap with any id on a message.
async fn taps(world: &World, who: &str, on: &Message, id: &str) {
    let tap = world.phone.person_sends(who, &Sending::Tap { on: on.id.clone(), id: id.to_owned() });
    world.taken(&tap).await;
}

#[tokio::test]
async fn an_option_is_tapped_on_a_button_or_in_a_list_and_the_numbers_stay() {
    let world = world().await;
    for (id, labels, listed) in [("r1", &["a", "b"][..], false), ("r2", &["a", "b", "c", "d"], true)] {
        let text = format!("Which {id}?");
        world.ask(id, choice(&text, labels));
        let question = world.shown(ADA, &text).await;
        assert!(question.text.contains("1. a\n2. b\n") && question.text.contains("\n\nReply with a number"));
        assert_eq!((titles(&question), question.list_label.is_some()), (labels.to_vec(), listed));
        let tap = world.phone.person_taps(&question, "b").unwrap();
        let response = world.response(id).await;
        assert_eq!(response["result"]["answers"][&text], "b");
        assert_eq!(response["result"]["answered_by"], json!({"channel": "whatsapp", "id": ADA, "name": "Ada"}));
        world.all_closed(crate::harness::SOON).await;
        let before = world.records();
        world.taken_again(&tap).await;
        taps(&world, ADA, &question, &question.taps[0].id).await;
        world.shown(ADA, "Already answered \"b\"").await;
        assert!(before == world.records(), "neither counts");
    }
    let long = "a label that is far too long for a row of a list";
    world.ask("r3", choice("Which r3?", &[long, "b"]));
    assert!(world.shown(ADA, "Which r3?").await.taps.is_empty(), "where a label does not fit there are numbers alone");
}

#[tokio::test]
async fn a_forged_tap_and_a_stranger_s_tap_change_nothing() {
    let world = world().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    let before = world.quiet(1).await;
    let genuine = question.taps[0].id.clone();
    taps(&world, BOB, &question, &genuine).await;
    let (said, mac) = genuine.rsplit_once(':').unwrap();
    let other_option = format!("{}1:{mac}", said.strip_suffix('0').unwrap());
    let nobody = format!("askd:{}:0:0:{mac}", "0".repeat(32));
    for forged in [other_option.as_str(), nobody.as_str(), said, "askd", "1", "b"] {
        taps(&world, ADA, &question, forged).await;
    }
    assert!(world.response_now("r1").is_none() && before == world.records());
    assert!(world.said_to(BOB).is_empty(), "strangers get nothing");
    // So would be a button from before the app secret was replaced.
    world.shown(ADA, "This button does not work any more. Reply with a number").await;
    world.phone.person_taps(&question, "a").unwrap();
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "a");
}

#[tokio::test]
async fn of_several_questions_a_tap_answers_its_own() {
    let world = world().await;
    let two = json!({"questions": [{"question": "One?", "options": ["a", "b"]}, {"question": "Two?", "options": ["c", "d"]}]});
    world.ask("r1", two);
    let first = world.shown(ADA, "One?").await;
    world.phone.person_taps(&first, "b").unwrap();
    let second = world.shown(ADA, "Two?").await;
    taps(&world, ADA, &first, &first.taps[0].id).await;
    world.shown(ADA, "That question has already been answered.").await;
    world.phone.person_taps(&second, "c").unwrap();
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"One?": "b", "Two?": "c"}));
}

/// An operator has had the question forgotten; the button is still on the phone.
#[tokio::test]
async fn a_tap_on_a_question_that_was_forgotten_is_told_so_and_a_strangers_is_not() {
    let world = world().await;
    let mut asked = choice("Which?", &["a", "b"]);
    asked["timeoutMs"] = json!(10_000);
    world.ask("r1", asked);
    let question = world.shown(ADA, "Which?").await;
    world.phone.person_taps(&question, "b").unwrap();
    world.response("r1").await;
    world.all_closed(crate::harness::SOON).await;
    world.time_passes(std::time::Duration::from_secs(40 * 24 * 3600)).await;
    world.until("the outcome to be forgotten", || world.records().is_empty()).await;
    taps(&world, BOB, &question, &question.taps[0].id).await;
    taps(&world, ADA, &question, &question.taps[0].id).await;
    world.shown(ADA, "This question is no longer active.").await;
    assert!(world.phone.messages_to(BOB).is_empty(), "nobody asked him");
    assert!(world.log().contains("Answer for unknown question"), "{}", world.log());
}
