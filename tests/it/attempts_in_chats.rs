//! A question that was asked too often, in Slack and on WhatsApp: one card with the number, who may allow it again, and
//! what is left of it after a crash.

use crate::attempts::deploy;
use crate::harness::{SOON, World, choice, until};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, STRANGER, in_slack};
use crate::on_whatsapp::{ADA, BOB as BEN, MALLORY, TO_ADA, binary_on_whatsapp, on_whatsapp, result, sim};
use askd_sim::slack::{FaultKind, Message};
use askd_sim::whatsapp::Message as Told;
use serde_json::json;
use std::time::Duration;

const ONCE: &str = "[asks]\nmax_attempts = 1\n";

/// One group whose questions may be asked once, and one whose channel the bot is not in.
fn groups() -> String {
    format!(
        "[asks]\nmax_attempts = 1\n[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", \
         responders = [\"{ALICE}\", \"{BOB}\"] }}]\n[groups.mute]\nroutes = [{{ channel = \"slack\", chat = \
         \"C0UNINVITED\", responders = [\"{ALICE}\"] }}]\n"
    )
}

async fn limited(mode: Mode) -> World {
    in_slack(mode).groups(&groups()).with_binary().start().await
}

/// Asked once and dismissed, then asked again: the card of the block.
async fn blocked(world: &World) -> Message {
    world.ask("r1", deploy());
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "dismiss", BOB).await.expect("sent");
    world.response("r1").await;
    world.says(CHANNEL, &card.ts, "Dismissed by").await;
    world.ask("r2", deploy());
    assert_eq!(world.response("r2").await["result"]["status"], "blocked");
    let card = world.card(CHANNEL).await;
    world.says(CHANNEL, &card.ts, "asked this 2 times").await
}

#[tokio::test]
async fn slack_shows_one_card_and_counts_on_it_until_a_responder_allows_it() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = limited(mode).await;
        let card = blocked(&world).await;
        let shown = card.visible_text();
        for part in
            ["*research* asked this 2 times without an answer", "Deploy now?", "was told to wait", "Allow again"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(card.text.contains("research asked too often: Deploy now?"), "{}", card.text);
        assert_eq!(card.elements().len(), 1, "one button");
        for (request, times) in [("r3", 3), ("r4", 4)] {
            world.ask(request, deploy());
            assert_eq!(world.response(request).await["result"]["status"], "blocked");
            let card = world.says(CHANNEL, &card.ts, &format!("asked this {times} times")).await;
            assert!(!card.elements().is_empty(), "still with its button");
        }
        assert_eq!(world.slack.messages(CHANNEL).len(), 2, "the card of the question, and one of the block");

        world.slack.click(CHANNEL, &card.ts, "allow", STRANGER).await.expect("sent");
        let told = world.told(STRANGER, "who can allow this").await;
        assert!(told.text.contains(STRANGER) && told.text.contains("not on the list"), "{}", told.text);
        assert!(!world.state().join("groups/research.json").exists(), "a stranger changes nothing");
        assert!(world.store().values().any(|file| file.contains("\"lifted\": null")));

        let click = world.slack.click(CHANNEL, &card.ts, "allow", ALICE).await.expect("sent");
        assert!(click.acknowledged, "{click:?}");
        assert!(
            std::fs::read_to_string(world.state().join("groups/research.json")).unwrap().contains(ALICE),
            "on disk"
        );
        let closed = world.says(CHANNEL, &card.ts, "Allowed again by <@U0ALICE>").await;
        assert!(closed.elements().is_empty() && closed.visible_text().contains("Deploy now?"));
        assert_eq!(closed.text, "Allowed again by alice");
        world.ask("r5", deploy());
        let card = world.card(CHANNEL).await;
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        assert_eq!(world.response("r5").await["result"]["answers"]["Deploy now?"], "yes");
        world.all_closed(SOON).await;
    }
}

#[tokio::test]
async fn a_card_of_a_block_survives_crashes_and_bad_days_of_slack() {
    let mut world = limited(Mode::Http).await;
    world.ask("r1", deploy());
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "dismiss", BOB).await.expect("sent");
    world.says(CHANNEL, &card.ts, "Dismissed by").await;
    // Stored, and killed while the post of its card hangs: it comes up all the same, once.
    world.slack.faults().next("chat.postMessage", FaultKind::Stall(Duration::from_secs(3)), 1);
    world.ask("r2", deploy());
    world.response("r2").await;
    let card = world.card(CHANNEL).await;
    world.kill();
    world.begin().await;
    world.stored(&card.ts).await;
    // Counted while the card cannot be rewritten, and killed.
    world.slack.faults().next("chat.update", FaultKind::Status(503), 1_000);
    world.ask("r3", deploy());
    assert_eq!(world.response("r3").await["result"]["status"], "blocked");
    world.kill();
    world.slack.faults().clear();
    world.begin().await;
    world.says(CHANNEL, &card.ts, "asked this 3 times").await;
    // Allowed while the card cannot be closed, and killed.
    world.slack.faults().next("chat.update", FaultKind::Status(503), 1_000);
    world.slack.click(CHANNEL, &card.ts, "allow", BOB).await.expect("sent");
    world.kill();
    world.slack.faults().clear();
    world.begin().await;
    world.says(CHANNEL, &card.ts, "Allowed again by <@U0BOB>").await;
    world.all_closed(SOON).await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 2, "one card for the question, one for the block");
}

#[tokio::test]
async fn a_card_of_a_block_comes_however_long_slack_was_away() {
    let world = in_slack(Mode::Http).groups(&groups()).start().await;
    world.ask("r1", deploy());
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "dismiss", BOB).await.expect("sent");
    world.says(CHANNEL, &card.ts, "Dismissed by").await;
    world.slack.faults().next("chat.postMessage", FaultKind::Error("service_unavailable".into()), 1_000);
    world.ask("r2", deploy());
    assert_eq!(world.response("r2").await["result"]["status"], "blocked");
    let posts = || world.slack.calls().iter().filter(|call| call.method == "chat.postMessage").count();
    world.passes(Duration::from_secs(600), "one more try than a question gets", || (posts() > 5).then_some(())).await;
    world.ask("r3", deploy());
    assert_eq!(world.response("r3").await["result"]["status"], "blocked");
    world.slack.faults().clear();
    let block = || world.slack.messages(CHANNEL).into_iter().find(|message| message.has_action("allow"));
    let block = world.passes(Duration::from_secs(120), "the card of the block", block).await;
    world.says(CHANNEL, &block.ts, "asked this 3 times").await;
    world.slack.click(CHANNEL, &block.ts, "allow", BOB).await.expect("sent");
    world.all_closed(SOON).await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 2, "one card for the question, one for the block");
}

#[tokio::test]
async fn what_could_not_be_shown_does_not_count() {
    let world = limited(Mode::Http).await;
    for number in 0..3 {
        let id = format!("r{number}");
        world.ask_as("mute", &id, deploy());
        assert_eq!(world.response_to("mute", &id, SOON).await["result"]["status"], "undeliverable", "{id}");
    }
}

/// A question that Ada was asked too often: the message that says so, and its code.
async fn blocked_on_whatsapp() -> (World, Told, String) {
    blocked_in(on_whatsapp(sim(), TO_ADA, ONCE).await).await
}

async fn blocked_in(world: World) -> (World, Told, String) {
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Deploy now?", &["yes", "no"]));
    world.shown(ADA, "The agent is asking: Deploy now?").await;
    world.writes(ADA, "cancel").await;
    world.response("r1").await;
    world.ask("r2", choice("Deploy now?", &["yes", "no"]));
    assert_eq!(result(&world.response("r2").await), ("blocked", "system"));
    let message = world.shown(ADA, "The agent \"research\" has asked this question 2 times").await;
    assert!(message.text.contains("Deploy now?") && message.text.contains("told to wait"), "{}", message.text);
    let code = message.text.split("reply \"allow ").nth(1).unwrap().split('"').next().unwrap().to_owned();
    (world, message, code)
}

fn is_blocked(world: &World) -> bool {
    world.records().iter().any(|(_, record)| record.contains("\"lifted\": null"))
}

/// Killed before WhatsApp's own memory was saved, askd gets the message again: it answers no other question.
#[tokio::test]
async fn on_whatsapp_an_allow_counts_once_over_a_kill() {
    let (mut world, _, code) = blocked_in(binary_on_whatsapp(sim(), TO_ADA, ONCE).await).await;
    world.ask("r3", json!({"questions": [{"question": "Why?"}]}));
    world.shown(ADA, "Why?").await;
    let proven = || world.open().iter().any(|ask| ask["render_confirmed"] == json!(true)).then_some(());
    until("the question to be proven", SOON, proven).await;
    world.kill();
    world.begin_with(&[("ASKD_CRASH_AT", "inbound.counted")]).await;
    let said = world.phone.person_says(ADA, &format!("allow {code}"));
    world.ends().await;
    world.begin().await;
    world.taken(&said).await;
    world.shown(ADA, "Allowed again by Ada").await;
    world.quiet(1).await;
    assert_eq!(world.response_now("r3"), None);
    world.writes(ADA, "because").await;
    assert_eq!(world.response("r3").await["result"]["answers"]["Why?"], "because");
}

#[tokio::test]
async fn on_whatsapp_it_is_allowed_with_its_code_or_by_a_reply_to_its_message() {
    let (world, message, code) = blocked_on_whatsapp().await;
    // Strangers get nothing and change nothing.
    world.writes(MALLORY, &format!("allow {code}")).await;
    world.writes(BEN, &format!("allow {code}")).await;
    assert!(world.said_to(MALLORY).is_empty() && world.said_to(BEN).is_empty());
    assert!(is_blocked(&world));
    assert!(!world.data().join("state/groups/research.json").exists());
    // Something else in reply to it is told what can be done.
    let other = world.phone.person_quotes(ADA, &message.id, "ok then");
    world.taken(&other).await;
    world.shown(ADA, &format!("To allow it again, reply \"allow {code}\"")).await;
    world.writes(ADA, &format!("Allow {code}")).await;
    world.shown(ADA, "Allowed again by Ada").await;

    world.ask("r3", choice("Deploy now?", &["yes", "no"]));
    let asked = |m: &askd_sim::whatsapp::Message| m.text.contains("is asking: Deploy now?");
    let twice = |sim: &askd_sim::whatsapp::Whatsapp| sim.messages_to(ADA).iter().filter(|m| asked(m)).count() == 2;
    assert!(world.phone.wait_until(twice, SOON).await, "it is asked again");
    world.quiet(1).await;
    world.writes(ADA, "cancel").await;
    world.response("r3").await;
    world.ask("r4", choice("Deploy now?", &["yes", "no"]));
    assert_eq!(result(&world.response("r4").await), ("blocked", "system"));
    let new = |sim: &askd_sim::whatsapp::Whatsapp| {
        let blocks = sim.messages_to(ADA).into_iter().filter(|m| m.stage.shown() && m.text.contains("has asked this"));
        blocks.count() == 2
    };
    assert!(world.phone.wait_until(new, SOON).await, "a message of its own");
    let message = world.phone.messages_to(ADA).into_iter().rfind(|m| m.text.contains("has asked this")).unwrap();
    let quoted = world.phone.person_quotes(ADA, &message.id, "allow");
    world.taken(&quoted).await;
    let ended = |sim: &askd_sim::whatsapp::Whatsapp| {
        sim.messages_to(ADA).iter().filter(|m| m.text.contains("Allowed again by Ada")).count() == 2
    };
    assert!(world.phone.wait_until(ended, SOON).await, "{:#?}", world.said_to(ADA));
    let (_, list) = world.call("GET", "/asks?state=settled", None);
    let by: Vec<_> =
        list["asks"].as_array().unwrap().iter().map(|ask| &ask["block"]["allowed_again"]["by"]["id"]).collect();
    assert!(by.contains(&&json!(ADA)), "{list}");
    world.kept_the_pace();
}

/// Words beside `allow` that are no code of a block refuse it, or answer an open question.
#[tokio::test]
async fn on_whatsapp_only_the_code_of_a_block_allows_it_and_an_option_answers_its_question() {
    let (world, message, code) = blocked_on_whatsapp().await;
    for refusal in ["don't allow", "never allow", "allow once"] {
        world.writes(ADA, refusal).await;
        world.taken(&world.phone.person_quotes(ADA, &message.id, refusal)).await;
        assert!(is_blocked(&world), "{refusal}");
    }
    world.shown(ADA, &format!("To allow it again, reply \"allow {code}\"")).await;
    let allow_it = format!("Allow {code}");
    for (request, said, option) in
        [("r3", "allow once", "Allow once"), ("r4", "CODE allow", "Allow"), ("r5", &allow_it, &allow_it)]
    {
        let mut question = choice(&format!("{request}, run it?"), &[option, "Deny"]);
        question["questions"][0]["custom"] = json!(false);
        world.ask(request, question);
        world.shown(ADA, &format!("{request}, run it?")).await;
        world.until("proof", || world.open_of(request)["render_confirmed"] == json!(true)).await;
        let open = world.open_of(request)["short_id"].as_str().unwrap().to_owned();
        // Later than in the second in which it was sent.
        world.time_passes(Duration::from_secs(15)).await;
        world.writes(ADA, &said.replace("CODE", &open)).await;
        assert_eq!(world.response(request).await["result"]["answers"][format!("{request}, run it?")], option);
        assert!(is_blocked(&world), "{said}");
    }
    world.writes(ADA, &format!("allow {code}")).await;
    world.shown(ADA, "Allowed again by Ada").await;
}

/// It fits both, and the block came last.
#[tokio::test]
async fn on_whatsapp_a_bare_allow_beside_an_open_question_is_asked_back() {
    let (world, _, code) = blocked_on_whatsapp().await;
    world.ask("r3", json!({"questions": [{"question": "What shall I name it?"}]}));
    let question = world.shown(ADA, "What shall I name it?").await;
    world.until("proof", || world.open_of("r3")["render_confirmed"] == json!(true)).await;
    // Later than in the second in which it was sent.
    world.time_passes(Duration::from_secs(15)).await;
    world.writes(ADA, "Allow").await;
    let told = world.shown(ADA, "Do you want to allow this, or to answer the open question?").await;
    assert!(told.text.contains(&format!("{code}: Deploy now?")), "{}", told.text);
    assert!(is_blocked(&world) && world.response_now("r3").is_none());
    world.taken(&world.phone.person_quotes(ADA, &question.id, "Allow")).await;
    assert_eq!(world.response("r3").await["result"]["answers"], json!({"What shall I name it?": "Allow"}));
    assert!(is_blocked(&world));
    world.writes(ADA, "allow").await;
    world.shown(ADA, "Allowed again by Ada").await;
}
