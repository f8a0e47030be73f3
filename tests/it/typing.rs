//! A person types an answer into a page: the daemon gives two minutes more, once, and everybody who waits is told.

use crate::harness::{SOON, World};
use crate::in_slack::{CHANNEL, Mode, in_slack};
use askd_sim::slack::FaultKind;
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// An ask of one minute in Slack, its card, and when it ends.
async fn asked(world: &World) -> (Value, String, i64) {
    world.ask("r1", json!({"questions": [{"question": "What should the note say?"}], "timeoutMs": 60000}));
    let card = world.card(CHANNEL).await;
    let ask =
        world.passes(SOON, "its clock", || Some(world.open_of("r1")).filter(|ask| ask["answer_by"].is_string())).await;
    let ends = ends(&ask);
    (ask, card.ts, ends)
}

fn ends(ask: &Value) -> i64 {
    let time: askd_core::Time = ask["answer_by"].as_str().unwrap().parse().unwrap();
    time.as_millis() / 1000
}

#[tokio::test]
async fn two_minutes_are_given_once_and_everybody_who_waits_follows() {
    let world = in_slack(Mode::Http).start().await;
    let (ask, card, end) = asked(&world).await;
    let path = format!("/asks/{}/typing", ask["id"].as_str().unwrap());
    let (status, after) = world.call("POST", &path, None);
    assert_eq!((status, ends(&after)), (200, end + 120), "{after}");
    assert_eq!(world.call("POST", &path, None), (200, after.clone()), "once for each ask");

    world.says(CHANNEL, &card, &format!("<!date^{}^", end + 120)).await;
    let told = || (world.group("research").status_of("r1")["answer_by"] == after["answer_by"]).then_some(());
    world.passes(SOON, "the agent to be told", told).await;
    assert!(world.store().into_values().any(|record| record.contains(after["answer_by"].as_str().unwrap())));

    world.time_passes(MINUTE + MINUTE).await;
    world.step().await;
    assert!(world.response_now("r1").is_none(), "not at its first end");
    let response = world.response_within("r1", MINUTE * 2).await;
    assert_eq!(response["result"]["status"], "timeout");
    assert_eq!(world.call("POST", &path, None).0, 409, "nothing is given after the end");
}

/// The card was made before the time was given.
#[tokio::test]
async fn a_card_that_is_on_its_way_meanwhile_names_the_later_end() {
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next("chat.postMessage", FaultKind::Stall(Duration::from_secs(5)), 1);
    world.ask("r1", json!({"questions": [{"question": "What should the note say?"}], "timeoutMs": 60000}));
    let ask = world.open_of("r1");
    let path = |what: &str| format!("/asks/{}/{what}", ask["id"].as_str().unwrap());
    assert_eq!(world.call("POST", &path("shown"), None).0, 204);
    let (status, after) = world.call("POST", &path("typing"), None);
    assert_eq!(status, 200, "{after}");
    let card = world.card(CHANNEL).await;
    world.says(CHANNEL, &card.ts, &format!("<!date^{}^", ends(&after))).await;
}
