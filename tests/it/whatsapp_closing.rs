//! Every question that was shown on WhatsApp is told how it ended, also when that message fails after it was
//! taken.

use crate::harness::{SOON, World, choice};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, happens, on_whatsapp, sim};
use crate::whatsapp_window::{TEMPLATE, with_template};
use askd_sim::whatsapp::{Fault, Message, Stage, Whatsapp};
use serde_json::json;
use std::time::Duration;

fn closings(sim: &Whatsapp) -> Vec<Message> {
    sim.messages_to(ADA).into_iter().filter(|message| message.text.contains("Answered: ")).collect()
}

fn arrived(world: &World) -> usize {
    closings(&world.phone).iter().filter(|message| message.stage >= Stage::Delivered).count()
}

async fn closed(world: &World, times: usize) -> Message {
    world.until("a closing line", || arrived(world) >= times).await;
    closings(&world.phone).pop().unwrap()
}

async fn failed(world: &World, message: &Message, code: i64) {
    let told = |sim: &Whatsapp| {
        let id = message.id.replace('/', "\\/");
        let status = |body: &str| body.contains(&id) && body.contains("\"failed\"");
        sim.webhooks().iter().filter(|post| post.status == 200 && status(&post.body)).count()
    };
    let before = told(&world.phone);
    for _ in 0..3 {
        world.phone.status(&message.id, Stage::Failed, Some(code));
    }
    assert!(world.phone.wait_until(|sim| told(sim) >= before + 3, SOON).await, "the statuses were not taken");
}

#[tokio::test]
async fn a_closing_line_that_fails_late_is_sent_again_once_and_then_reported() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    world.writes(ADA, "1").await;
    let first = closed(&world, 1).await;
    failed(&world, &first, 131_000).await;
    let second = closed(&world, 2).await;
    assert_eq!((&second.text, second.quotes.as_ref()), (&first.text, Some(&question.id)));
    assert!(!world.log().contains("a card cannot be updated"));
    happens("it to be on record that it was said", || world.remembered().contains("\"owed\":false")).await;
    failed(&world, &second, 131_000).await;
    happens("the operator to be told", || world.log().contains("a card cannot be updated")).await;
    // What would have been said goes before what is said now.
    world.ask("r2", choice("And now?", &["c"]));
    world.shown(ADA, "And now?").await;
    assert_eq!(closings(&world.phone).len(), 2, "{:#?}", world.said_to(ADA));
    world.kept_the_pace();
}

/// A token that has run out keeps it back until somebody has made another one.
#[tokio::test]
async fn a_closing_line_that_an_operator_has_to_let_through_is_sent_once_it_can_be() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.phone.fault(Fault::Code(190), 1);
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "a");
    let refused = "WhatsApp refused to say how a question ended; askd keeps trying";
    happens("the operator to be told", || world.log().contains(refused)).await;
    assert!(!world.log().contains("a card cannot be updated"));
    world.restart().await;
    closed(&world, 1).await;
    assert_eq!(closings(&world.phone).len(), 1, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn a_closing_line_that_came_too_late_waits_for_the_person_over_a_restart() {
    let routes = format!("{TO_ADA}, {{ channel = \"web\" }}");
    let mut world = binary_on_whatsapp(sim(), &routes, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    // The platform's day is over; ours is not.
    world.phone.advance(Duration::from_secs(25 * 3600));
    let id = world.open()[0]["id"].as_str().unwrap().to_owned();
    let body = json!({"answers": {"Which?": "b"}});
    assert_eq!(world.call("POST", &format!("/asks/{id}/answer"), Some(&body)).0, 200);
    let gone = |sim: &Whatsapp| closings(sim).iter().any(|message| message.stage == Stage::Failed);
    assert!(world.phone.wait_until(gone, SOON).await);
    let failed = closings(&world.phone)[0].id.clone();
    happens("it to be on record", || world.remembered().contains("\"owed\":true")).await;
    // The day's file comes after that. Without it a repetition would count as news, by a clock that is a day ahead of ours.
    let seen = format!("\"{failed}\":\"");
    happens("the status to be on record", || world.remembered().replace(' ', "").contains(&seen)).await;
    world.restart().await;
    assert_eq!(closings(&world.phone).len(), 1, "nothing is sent while the chat is closed");
    world.writes(ADA, "anything new?").await;
    // The platform repeats what it told before the person wrote.
    let told = world.phone.webhooks().into_iter().find(|post| post.body.contains("\"failed\"")).unwrap();
    assert_eq!(world.phone.webhook_raw(told.body.as_bytes(), None).await, Some(200));
    world.shown(ADA, "Answered: b by operator").await;
    assert_eq!(closings(&world.phone).len(), 2, "{:#?}", world.said_to(ADA));
}

/// Each of them gets a message that says how it ended once they write, and holds up nobody until then.
#[tokio::test]
async fn closings_that_wait_for_silent_people_hold_nobody_up() {
    let silent = ["15550003001", "15550003002", "15550003003", "15550003004"];
    let group = |who: &str| {
        let route = format!("routes = [{{ channel = \"whatsapp\", chat = \"{who}\" }}]");
        format!("\n[groups.of-{who}]\n{route}\nmax_open_per_group = 100\nmax_per_hour_per_group = 1000")
    };
    let more = format!("{TEMPLATE}{}", silent.map(group).concat());
    let world = on_whatsapp(with_template(), TO_ADA, &more).await;
    world.writes(ADA, "hello").await;
    for who in silent {
        for nth in 0..18 {
            world.ask_as(&format!("of-{who}"), &format!("r{nth}"), choice(&format!("Away {nth}?"), &["a", "b"]));
        }
    }
    let held = || world.store().iter().filter(|(_, record)| record.contains("\"name\": \"held\"")).count();
    let all = || (held() == 4 * 18).then_some(());
    world.passes(Duration::from_secs(300), "all of them to be held", all).await;
    world.time_passes(Duration::from_secs(31 * 60)).await;
    for who in silent {
        for nth in 0..18 {
            world.response_to(&format!("of-{who}"), &format!("r{nth}"), SOON).await;
        }
    }
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.time_passes(Duration::from_secs(2)).await;
    world.writes(ADA, "1").await;
    closed(&world, 1).await;
    let told = || world.said_to(silent[0]).len();
    assert_eq!(told(), 1, "the invitation: {:#?}", world.said_to(silent[0]));
    world.writes(silent[0], "I am back").await;
    let all = || (told() == 1 + 18).then_some(());
    world.passes(Duration::from_secs(300), "each of theirs", all).await;
}

#[tokio::test]
async fn a_closing_line_that_stays_away_is_noticed() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.kill();
    world.begin_with(&[("ASKD_SABOTAGE", "noreclose")]).await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "1").await;
    let first = closed(&world, 1).await;
    failed(&world, &first, 131_000).await;
    let twice = |_: &Whatsapp| arrived(&world) >= 2;
    assert!(!world.phone.wait_until(twice, Duration::from_secs(8)).await, "nobody noticed");
}
