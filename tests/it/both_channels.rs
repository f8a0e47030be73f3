//! One group that is asked in Slack and on WhatsApp: first here, then there, answered anywhere, closed
//! everywhere.

use crate::harness::{SOON, World, choice};
use crate::in_slack::{ALICE, CHANNEL, Mode, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, sim};
use askd_sim::slack::{Act, Message};
use serde_json::{Value, json};

/// Asked in that channel of Slack, and after two seconds on WhatsApp too.
async fn on_both(chat: &str) -> World {
    let routes = format!("{{ channel = \"slack\", chat = \"{chat}\", responders = [\"{ALICE}\"] }}, {TO_ADA}");
    let escalates = "[asks]\nescalate_after = \"2s\"\n";
    let world = in_slack(Mode::Http).groups(escalates).prepare().await.on_whatsapp(sim(), &routes, "").await;
    world.writes(ADA, "hello").await;
    world
}

/// Waits until the card says this, and can be used no more.
async fn card_says(world: &World, card: &Message, text: &str) {
    assert!(world.says(CHANNEL, &card.ts, text).await.elements().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_in_slack_and_then_on_whatsapp_answered_anywhere_closed_everywhere() {
    let world = on_both(CHANNEL).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "2").await;
    let result = world.response("r1").await["result"].clone();
    assert_eq!((&result["answers"]["Which?"], &result["answered_by"]["channel"]), (&json!("b"), &json!("whatsapp")));
    card_says(&world, &card, "Answered: b by Ada").await;
    world.shown(ADA, "Answered: b by Ada").await;

    world.ask("r2", choice("And now?", &["c", "d"]));
    let card = world.card(CHANNEL).await;
    world.shown(ADA, "And now?").await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.unwrap();
    let result = world.response("r2").await["result"].clone();
    assert_eq!((&result["answers"]["And now?"], &result["answered_by"]["channel"]), (&json!("c"), &json!("slack")));
    card_says(&world, &card, "Answered: c by").await;
    world.shown(ADA, "Answered: c by alice").await;
    world.all_closed(SOON).await;
    let said = world.said_to(ADA);
    assert_eq!(said.iter().filter(|text| text.contains("Answered: ")).count(), 2, "each closed once: {said:#?}");
    assert_eq!((listed_as_on(&world, "slack"), listed_as_on(&world, "whatsapp")), (json!(2), json!(2)));
    world.kept_the_pace();
}

/// How many questions the inbox lists as shown or answered there.
fn listed_as_on(world: &World, channel: &str) -> Value {
    world.call("GET", &format!("/asks?channel={channel}"), None).1["total"].clone()
}

#[tokio::test]
async fn what_slack_cannot_show_is_asked_on_whatsapp() {
    let world = on_both("C0NOWHERE").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    let on = || (listed_as_on(&world, "slack"), listed_as_on(&world, "whatsapp"));
    world.until("it to be on record", || on() == (json!(0), json!(1))).await;
    assert!(world.log().contains("channel_not_found"), "the operator is told why");
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "a");
    world.shown(ADA, "Answered: a by Ada").await;
    world.all_closed(SOON).await;
    assert_eq!(on(), (json!(0), json!(1)));
    assert!(world.slack.messages(CHANNEL).is_empty());
}

#[tokio::test]
async fn answers_so_far_belong_to_one_person_and_one_card() {
    let world = on_both(CHANNEL).await;
    world.ask("r1", json!({"questions": [{"question": "First?", "options": ["a", "b"]}, {"question": "Second?"}]}));
    let card = world.card(CHANNEL).await;
    world.shown(ADA, "Question 1 of 2").await;
    world.writes(ADA, "1").await;
    world.shown(ADA, "Question 2 of 2").await;
    // The other half, on the other card, by another person: that is not the whole.
    let half = [("text:1", Act::Type("because".to_owned()))];
    world.slack.submit(CHANNEL, &card.ts, &half, "submit", ALICE).await.unwrap();
    let told = || world.slack.ephemerals(ALICE).into_iter().rfind(|note| note.text.contains("Please answer"));
    let note = world.slack.wait_for(SOON, told).await.expect("a private note");
    assert!(note.text.contains("First?"), "{}", note.text);
    assert!(world.response_now("r1").is_none());
    let rest = [("choice:0", Act::Choose(vec!["1".to_owned()]))];
    world.slack.submit(CHANNEL, &card.ts, &rest, "submit", ALICE).await.unwrap();
    let result = world.response("r1").await["result"].clone();
    assert_eq!(result["answers"], json!({"First?": "b", "Second?": "because"}));
    assert_eq!(result["answered_by"]["id"], ALICE);
    world.shown(ADA, "Answered: b; because by alice\nYour answers were not used.").await;
    card_says(&world, &card, "Answered: b; because by").await;
    world.all_closed(SOON).await;
}
