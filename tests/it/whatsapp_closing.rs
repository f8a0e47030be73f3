//! Every question that was shown on WhatsApp is told how it ended, also when that message fails after it was
//! taken.

use crate::whatsapp_world::{ADA, SOON, TO_ADA, World, select, sim, until};
use askd_sim::whatsapp::{Message, Stage, Whatsapp};
use serde_json::json;
use std::time::Duration;

fn closings(sim: &Whatsapp) -> Vec<Message> {
    sim.messages_to(ADA).into_iter().filter(|message| message.text.contains("Answered: ")).collect()
}

fn arrived(world: &World) -> usize {
    closings(&world.sim).iter().filter(|message| message.stage >= Stage::Delivered).count()
}

async fn closed(world: &World, times: usize) -> Message {
    world.until("a closing line", || arrived(world) >= times).await;
    closings(&world.sim).pop().unwrap()
}

async fn failed(world: &World, message: &Message, code: i64) {
    let told = |sim: &Whatsapp| {
        let id = message.id.replace('/', "\\/");
        let status = |body: &str| body.contains(&id) && body.contains("\"failed\"");
        sim.webhooks().iter().filter(|post| post.status == 200 && status(&post.body)).count()
    };
    let before = told(&world.sim);
    for _ in 0..3 {
        world.sim.status(&message.id, Stage::Failed, Some(code));
    }
    assert!(world.sim.wait_until(|sim| told(sim) >= before + 3, SOON).await, "the statuses were not taken");
}

#[tokio::test]
async fn a_closing_line_that_fails_late_is_sent_again_once_and_then_reported() {
    let world = World::start(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", select("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    world.writes(ADA, "1").await;
    let first = closed(&world, 1).await;
    failed(&world, &first, 131_000).await;
    let second = closed(&world, 2).await;
    assert_eq!((&second.text, second.quotes.as_ref()), (&first.text, Some(&question.id)));
    assert!(!world.log().contains("a card cannot be updated"));
    until("it to be on record that it was said", || {
        let memory = std::fs::read_to_string(world.folder.path().join("state/channels/whatsapp.json"));
        memory.is_ok_and(|text| text.contains("\"owed\":false"))
    })
    .await;
    failed(&world, &second, 131_000).await;
    until("the operator to be told", || world.log().contains("a card cannot be updated")).await;
    // What would have been said goes before what is said now.
    world.ask("r2", select("And now?", &["c"]));
    world.shown(ADA, "And now?").await;
    assert_eq!(closings(&world.sim).len(), 2, "{:#?}", world.said_to(ADA));
    world.kept_the_pace();
}

#[tokio::test]
async fn a_closing_line_that_came_too_late_waits_for_the_person_over_a_restart() {
    let routes = format!("{TO_ADA}, {{ channel = \"web\" }}");
    let mut world = World::process(sim(), &routes, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", select("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    // The platform's day is over; ours is not.
    world.sim.advance(Duration::from_secs(25 * 3600));
    let id = world.open().await[0]["id"].as_str().unwrap().to_owned();
    let body = json!({"answers": {"Which?": "b"}});
    assert_eq!(world.api(reqwest::Method::POST, &format!("/asks/{id}/answer"), Some(body)).await.0, 200);
    let gone = |sim: &Whatsapp| closings(sim).iter().any(|message| message.stage == Stage::Failed);
    assert!(world.sim.wait_until(gone, SOON).await);
    until("it to be on record", || {
        let memory = std::fs::read_to_string(world.folder.path().join("state/channels/whatsapp.json"));
        memory.is_ok_and(|text| text.contains("\"owed\":true"))
    })
    .await;
    world.restart();
    assert_eq!(closings(&world.sim).len(), 1, "nothing is sent while the chat is closed");
    world.writes(ADA, "anything new?").await;
    // The platform repeats what it told before the person wrote.
    let told = world.sim.webhooks().into_iter().find(|post| post.body.contains("\"failed\"")).unwrap();
    assert_eq!(world.sim.webhook_raw(told.body.as_bytes(), None).await, Some(200));
    world.shown(ADA, "Answered: b by operator").await;
    assert_eq!(closings(&world.sim).len(), 2, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn a_closing_line_that_stays_away_is_noticed() {
    let mut world = World::process(sim(), TO_ADA, "").await;
    world.kill();
    world.begin_with(&[("ASKD_SABOTAGE", "noreclose")]);
    world.writes(ADA, "hello").await;
    world.ask("r1", select("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "1").await;
    let first = closed(&world, 1).await;
    failed(&world, &first, 131_000).await;
    let twice = |_: &Whatsapp| arrived(&world) >= 2;
    assert!(!world.sim.wait_until(twice, Duration::from_secs(8)).await, "nobody noticed");
}
