//! Every form a card can take, as the daemon really sends it: written to a folder, where the checks of `tests/contract` have
//! Slack's own libraries judge it.

use crate::harness::{SOON, World, choice, until};
use crate::in_slack::{ALICE, CHANNEL, Mode, in_slack, write};
use crate::said;
use askd_sim::slack::FaultKind;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// For what takes a timeout, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// An ask of each form.
fn asks() -> Vec<Value> {
    let described = |label: &str, description: &str| json!({"label": label, "description": description});
    let all = |required: bool| {
        json!({"title": "All *kinds* & more", "context": "Background with `code`, a <tag> and https://example.com.", "questions": [
            {"question": "One?", "header": "First", "options": [described("a", "the first"), "b"], "required": required},
            {"question": "Any?", "type": "multi-select", "options": [described("c", &"long ".repeat(60)), "d"], "required": required},
            {"question": "Sure?", "type": "confirm", "required": required},
            {"question": "Why?", "placeholder": "a few words", "required": required},
            {"question": "Ten?", "options": ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"], "required": required},
        ]})
    };
    let long = "word ".repeat(599);
    let many: Vec<Value> = (0..10)
        .map(|n| {
            let labels: Vec<Value> = (0..10).map(|c| described(&format!("{c} {}", "y".repeat(70)), &"z".repeat(300))).collect();
            json!({"question": format!("{n} {long}"), "type": if n % 2 == 0 { "select" } else { "multi-select" }, "options": labels})
        })
        .collect();
    vec![
        choice("Plain?", &["React", "Vue"]),
        json!({"questions": [{"question": "Yes or no?", "type": "confirm"}]}),
        json!({"questions": [{"question": "Named?", "type": "confirm", "options": ["Ship it", "Hold"], "required": false}]}),
        json!({"questions": [{"question": "Typed?"}]}),
        json!({"questions": [{"question": "Typed or not?", "required": false, "placeholder": "x".repeat(150)}]}),
        json!({"questions": [{"question": "Several?", "type": "multi-select", "options": ["a", "b"], "custom": false}]}),
        json!({"questions": [{"question": "No other?", "options": ["a"], "custom": false, "required": false}]}),
        json!({"questions": [{"question": "Ten buttons?", "options": (0..10).map(|n| format!("{n} {}", "x".repeat(73))).collect::<Vec<_>>()}]}),
        json!({"questions": [{"question": "Emoji \u{1f600}?", "options": ["\u{1f600}".repeat(75), "\u{1f468}\u{200d}\u{1f469}".to_owned()]}]}),
        json!({"questions": [{"question": long, "options": [described("a", "b")]}], "context": long}),
        json!({"questions": [{"question": "&<>".repeat(1000)}]}),
        all(true),
        all(false),
        json!({"questions": many, "title": "t".repeat(100), "context": long}),
    ]
}

#[tokio::test]
async fn every_form_is_written_down_for_slack_s_own_libraries() {
    let world =
        in_slack(Mode::Http).group("[groups.research]", "[groups.research]\nmax_open_per_group = 100").start().await;
    let asks = asks();
    // One that is posted again, for its heading.
    world.slack.faults().next("chat.postMessage", FaultKind::Error("service_unavailable".into()), 1);
    for (n, ask) in asks.iter().enumerate() {
        world.ask(&format!("r{n}"), ask.clone());
    }
    let all_up = || (world.live(CHANNEL).len() == asks.len()).then_some(());
    world
        .slack
        .wait_for(SOON, all_up)
        .await
        .unwrap_or_else(|| panic!("{} of {} are up\n{}", world.live(CHANNEL).len(), asks.len(), world.log()));
    for (n, card) in world.live(CHANNEL).iter().enumerate() {
        let clicked = if card.has_action("pick:0:0") && n % 2 == 0 { "pick:0:0" } else { "dismiss" };
        world.slack.click(CHANNEL, &card.ts, clicked, ALICE).await.expect("sent");
    }
    until("every card to be closed", SOON, || world.live(CHANNEL).is_empty().then_some(())).await;
    write_down(&world, "cards.json", 2 * asks.len());
}

/// The cards that can be answered after their timeout, and what they say then.
#[tokio::test]
async fn every_late_card_is_written_down_too() {
    let start = format!(
        "[groups.research]\nmax_open_per_group = 100\ntimeout = \"15s\"\nsession = {{ start = {{ command = [{:?}] }} }}",
        "/bin/true"
    );
    let world = in_slack(Mode::Http).group("[groups.research]", &start).start().await;
    let asks = asks();
    for (n, ask) in asks.iter().enumerate() {
        world.ask(&format!("r{n}"), ask.clone());
    }
    let late = || {
        let cards = world.slack.messages(CHANNEL).into_iter();
        Some(cards.filter(|card| card.text.contains("You can still answer") && !card.elements().is_empty()).collect())
            .filter(|cards: &Vec<_>| cards.len() == asks.len())
    };
    let late = world.passes(PATIENCE, "every card to be late", late).await;
    for card in &late {
        assert!(!card.has_action("dismiss"));
    }
    let clicked: Vec<_> = late.iter().filter(|card| card.has_action("pick:0:0")).collect();
    for card in &clicked {
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    }
    let said = || {
        let cards = world.slack.messages(CHANNEL).into_iter();
        let started = cards.filter(|card| card.visible_text().contains(said::STARTED));
        (started.count() == clicked.len()).then_some(())
    };
    world.passes(PATIENCE, "every start to be told of", said).await;
    write_down(&world, "late.json", 2 * asks.len());
}

/// Everything that was posted or changed, for the judges: more than so many messages.
fn write_down(world: &World, name: &str, more_than: usize) {
    let calls = world.slack.calls();
    let sent = calls.iter().filter(|call| matches!(call.method.as_str(), "chat.postMessage" | "chat.update"));
    let payloads: Vec<Value> =
        sent.map(|call| json!({"text": call.args["text"], "blocks": call.args["blocks"]})).collect();
    assert!(payloads.len() > more_than);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slack-payloads");
    std::fs::create_dir_all(&folder).expect("a folder");
    write(&folder.join(name), serde_json::to_string_pretty(&payloads).expect("JSON").as_bytes());
}
