//! Slack at its worst: limits, errors, broken connections before and after the deed. Every ask ends, with one card at
//! most.

use crate::harness::{SOON, World, choice, until};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, in_slack, write};
use askd::testing::Clock;
use askd_sim::slack::{Act, Fault, FaultKind, Goodbye, Message, Times, too_early};
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const POST: &str = "chat.postMessage";

/// Asks. Slack does not confirm the post of the card, and refuses the history so often.
async fn unconfirmed(world: &World, status: u16, refusals: u32) -> Message {
    world.slack.faults().next(POST, FaultKind::ResetAfter, 1);
    world.slack.faults().next("conversations.history", FaultKind::Status(status), refusals);
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.card(CHANNEL).await
}

/// Waits until askd misses the reply to the post.
async fn is_missed(world: &World) {
    let lost = || world.log().contains("looking for the card").then_some(());
    until("the lost reply to be noticed", SOON, lost).await;
}

#[tokio::test]
async fn a_lost_reply_gives_no_second_card() {
    for lost in [FaultKind::ResetAfter, FaultKind::Truncate] {
        let world = in_slack(Mode::Http).start().await;
        world.slack.faults().next(POST, lost.clone(), 1);
        world.slack.faults().next("conversations.history", FaultKind::Status(503), 2);
        world.slack.faults().next("conversations.history", FaultKind::Error("service_unavailable".into()), 1);
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        assert!(world.log().contains("looking for the card"), "{lost:?}");
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        world.response("r1").await;
        world.says(CHANNEL, &card.ts, "Answered: a").await;
        world.all_closed(SOON).await;
        assert_eq!(world.slack.messages(CHANNEL).len(), 1, "{lost:?}");
    }
}

/// A host whose time zone is wrong: by its clock, Slack took the card hours before it was posted.
#[tokio::test]
async fn a_lost_reply_gives_no_second_card_where_the_clock_is_ahead() {
    let world = in_slack(Mode::Socket).start().await;
    world.hand().set(Clock::system().now() + Duration::from_secs(9 * 3_600));
    let card = unconfirmed(&world, 503, 1).await;
    world.stored(&card.ts).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    world.all_closed(SOON).await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 1);
}

/// A busy channel writes thousands of messages while the history cannot be read. The card is still found among them.
#[tokio::test]
async fn a_card_that_lies_far_back_is_found() {
    let world = in_slack(Mode::Http).start().await;
    let card = unconfirmed(&world, 503, 2).await;
    for number in 0..2_100 {
        world.slack.say(CHANNEL, ALICE, &format!("message {number}")).expect("said");
    }
    world.stored(&card.ts).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    world.all_closed(SOON).await;
    assert_eq!(world.slack.select(|message| message.channel == CHANNEL && message.has_action("pick:0:0")).len(), 0);
    assert_eq!(world.slack.select(|message| message.metadata.is_some()).len(), 1);
}

/// Of some apps Slack takes one look into a history in a minute.
#[tokio::test]
async fn a_look_waits_for_as_long_as_slack_asks_for() {
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next(POST, FaultKind::ResetAfter, 1);
    world.slack.faults().next("conversations.history", FaultKind::RateLimited(60), 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    is_missed(&world).await;
    let known = || world.store().into_values().any(|file| file.contains(&card.ts)).then_some(());
    world.passes(Duration::from_secs(90), "the card to be found", known).await;
    assert_eq!(world.slack.select(|message| message.has_action("pick:0:0")).len(), 1, "no second card");
}

/// The newest messages come first, so a look that Slack breaks off has found the card.
#[tokio::test]
async fn a_card_is_found_though_slack_shows_no_second_page() {
    let world = in_slack(Mode::Http).start().await;
    for number in 0..300 {
        world.slack.say(CHANNEL, ALICE, &format!("message {number}")).expect("said");
    }
    world.slack.faults().next(POST, FaultKind::ResetAfter, 1);
    for kind in [FaultKind::Stall(Duration::ZERO), FaultKind::RateLimited(60)] {
        world.slack.faults().next("conversations.history", kind, 1);
    }
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    assert_eq!(world.slack.select(|message| message.has_action("pick:0:0")).len(), 1, "no second card");
}

/// The post got no reply, the history could not be read, and the tries were used up: nobody knows whether there is a card.
#[tokio::test]
async fn a_card_that_may_be_there_is_looked_for_until_it_is_closed() {
    let world = in_slack(Mode::Http).start().await;
    let mut ask = choice("Which?", &["a", "b"]);
    ask["maxRetries"] = json!(0);
    world.slack.faults().next(POST, FaultKind::ResetAfter, 1);
    world.slack.faults().next("conversations.history", FaultKind::Status(503), 1_000);
    world.ask("r1", ask);
    let card = world.card(CHANNEL).await;
    let response = world.response_within("r1", Duration::from_secs(300)).await;
    assert_eq!(response["result"]["status"], "undeliverable");
    world.slack.faults().clear();
    world.all_closed(Duration::from_secs(120)).await;
    let card = world.slack.message(CHANNEL, &card.ts).expect("the card");
    assert!(!card.has_action("pick:0:0"), "{}", card.visible_text());
}

/// Slack allows few calls for a history. One look is for all cards that are missed in the chat.
#[tokio::test]
async fn many_cards_whose_replies_were_lost_are_found_in_one_look() {
    const CARDS: usize = 12;
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next(POST, FaultKind::ResetAfter, 12);
    // The first look is a slow one. The others are asked for meanwhile.
    world.slack.faults().next("conversations.history", FaultKind::StallBefore(Duration::from_secs(3)), 1);
    for number in 0..CARDS {
        world.ask(&format!("r{number}"), choice(&format!("Number {number}?"), &["a", "b"]));
    }
    let live = || world.slack.select(|message| message.channel == CHANNEL && message.has_action("pick:0:0"));
    until("the cards", SOON, || (live().len() == CARDS).then_some(())).await;
    for card in live() {
        world.stored(&card.ts).await;
    }
    let looks = world.slack.calls().iter().filter(|call| call.method == "conversations.history").count();
    assert!((1..=4).contains(&looks), "{looks} looks");
    assert_eq!(live().len(), CARDS);
}

#[tokio::test]
async fn a_click_on_a_card_whose_reply_was_lost_is_taken() {
    let world = in_slack(Mode::Http).start().await;
    let card = unconfirmed(&world, 500, 20).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"Which?": "b"}));
    world.says(CHANNEL, &card.ts, "Answered: b").await;
    world.slack.faults().clear();
    world.all_closed(SOON).await;
}

/// Until the history can be read, nothing says what the thread is about: Slack has to send the reply again.
#[tokio::test]
async fn a_reply_in_the_thread_of_a_card_whose_reply_was_lost_is_taken() {
    let soon = vec![Duration::from_millis(200); 50];
    let world = in_slack(Mode::Http).sim(|sim| sim.event_retries = soon).start().await;
    let card = unconfirmed(&world, 500, 200).await;
    world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "b").expect("sent");
    let refused = || world.slack.deliveries().iter().any(|delivery| delivery.status == Some(503)).then_some(());
    until("the reply to be refused for now", SOON, refused).await;
    world.slack.faults().clear();
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"Which?": "b"}));
    world.says(CHANNEL, &card.ts, "Answered: b").await;
    world.all_closed(SOON).await;
}

/// While Slack has not said who the bot is, askd cannot tell whose thread it is: Slack has to send the reply again, but only
/// where an unconfirmed card may be.
#[tokio::test]
async fn a_reply_in_a_thread_is_taken_although_slack_has_not_said_who_the_bot_is() {
    let soon = vec![Duration::from_millis(200); 50];
    let mut world = in_slack(Mode::Http).sim(|sim| sim.event_retries = soon).prepare().await;
    world.slack.faults().next("auth.test", FaultKind::Status(503), 1_000);
    world.begin().await;
    let answered =
        |status| world.slack.deliveries().iter().any(|delivery| delivery.status == Some(status)).then_some(());
    let talk = world.slack.say(CHANNEL, ALICE, "Lunch?").expect("sent");
    world.slack.reply_in_thread(CHANNEL, &talk.ts, BOB, "b").expect("sent");
    until("talk to be acknowledged", SOON, || answered(200)).await;
    let card = unconfirmed(&world, 500, 200).await;
    assert!(answered(503).is_none(), "no card is unconfirmed while people talk");
    world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "b").expect("sent");
    until("the reply to be refused for now", SOON, || answered(503)).await;
    world.slack.faults().clear();
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"Which?": "b"}));
    world.all_closed(SOON).await;
}

/// A daemon that waits at this gate until the file is removed.
async fn held_up_at(name: &str) -> (World, PathBuf) {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    let gate = world.dir.path().join("gate");
    write(&gate, b"");
    world.set_env("ASKD_GATE", &format!("{name}={}", gate.display()));
    world.begin().await;
    (world, gate)
}

/// What follows each change of an ask runs beside what follows another one.
#[tokio::test]
async fn a_status_that_is_written_late_says_where_the_ask_is_then() {
    let (world, gate) = held_up_at("status.posting").await;
    // Long enough that waiters are told that it is being posted.
    world.slack.faults().next(POST, FaultKind::StallBefore(Duration::from_millis(800)), 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let told = || world.group("research").status_now("r1");
    let is_open = || told().is_some_and(|status| status["state"] == "open");
    // That is held up on its way, and with it all that its thread does next.
    until("the status that it is open", SOON, || is_open().then_some(())).await;
    std::fs::remove_file(&gate).unwrap();
    until("the status that it is open", SOON, || is_open().then_some(())).await;
    for _ in 0..100 {
        assert!(is_open(), "a person can see it: {:?}", told());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Who tells it may have read the ask before that, and writes after its response is there.
#[tokio::test]
async fn a_call_that_is_withdrawn_while_it_is_told_keeps_no_status() {
    let (world, gate) = held_up_at("status.read").await;
    world.slack.faults().next(POST, FaultKind::StallBefore(Duration::from_secs(4)), 1);
    for id in ["r1", "r2"] {
        let mut request = choice("Which?", &["a", "b"]);
        request["idempotency_key"] = json!("same");
        world.ask(id, request);
    }
    let agent = world.group("research");
    agent.tasks_gone();
    // Both are about to be told.
    tokio::time::sleep(Duration::from_millis(600)).await;
    agent.cancel("r1");
    until("the response", SOON, || agent.response("r1")).await;
    std::fs::remove_file(&gate).unwrap();
    until("the other one to be told", SOON, || agent.status_now("r2")).await;
    assert_eq!(agent.status_now("r2").unwrap()["state"], "posting");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(agent.status_now("r1"), None);
}

/// A daemon that was away for longer than a look into the history may take looks again before it posts.
#[tokio::test]
async fn a_card_whose_reply_was_lost_is_looked_for_after_a_long_absence() {
    let mut world = in_slack(Mode::Http).start().await;
    let card = unconfirmed(&world, 500, 200).await;
    is_missed(&world).await;
    world.stop().await;
    // As if a minute had passed since the look began.
    let (path, record) = world.records().into_iter().next().unwrap();
    let (before, after) = record.split_once("\"look_at\": \"").unwrap();
    let (_, after) = after.split_once('"').unwrap();
    world.rewrite(&path, &format!("{before}\"look_at\": \"2026-01-01T00:00:00.000Z\"{after}"));
    world.slack.faults().clear();
    world.begin().await;
    world.stored(&card.ts).await;
    let cards = world.slack.messages(CHANNEL).into_iter().filter(|message| message.text.contains("Which?")).count();
    assert_eq!(cards, 1);
    assert!(world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.unwrap().acknowledged);
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "b"}));
    world.all_closed(SOON).await;
}

/// Its time to answer begins when it is found.
#[tokio::test]
async fn a_card_that_is_found_late_says_until_when_it_can_be_answered_now() {
    let world = in_slack(Mode::Http).start().await;
    let card = unconfirmed(&world, 500, 200).await;
    is_missed(&world).await;
    world.time_passes(Duration::from_secs(20)).await;
    world.slack.faults().clear();
    world.stored(&card.ts).await;
    let said = card.visible_text();
    let anew = || world.slack.message(CHANNEL, &card.ts).filter(|card| card.visible_text() != said);
    let card = world.passes(SOON, "another deadline", anew).await;
    assert!(card.has_action("pick:0:0"), "{}", card.visible_text());
    world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
    world.says(CHANNEL, &card.ts, "Answered: b").await;
    world.all_closed(SOON).await;
}

/// Slack shows an error after 3 s. The disk takes 0.9 s for a sync, and the first click on such a card needs two saves.
#[tokio::test]
async fn a_slow_disk_keeps_no_click_waiting_longer_than_slack_does() {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    let slow = world.dir.path().join("slow");
    world.set_env("ASKD_SLOW_CALL", &slow.display().to_string());
    world.begin().await;
    let card = unconfirmed(&world, 500, 200).await;
    is_missed(&world).await;
    write(&slow, b"fsync:900ms");
    let delivery = world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
    assert!(delivery.took < Duration::from_secs(3), "{delivery:?}");
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"Which?": "b"}));
    world.slack.faults().clear();
    std::fs::remove_file(&slow).expect("removed");
    world.says(CHANNEL, &card.ts, "Answered: b").await;
    world.all_closed(SOON).await;
}

#[tokio::test]
async fn a_crash_between_post_and_record_gives_no_second_card() {
    let mut world = in_slack(Mode::Http).with_binary().start().await;
    world.slack.faults().next(POST, FaultKind::Stall(Duration::from_secs(3)), 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.kill();
    world.begin().await;
    world.stored(&card.ts).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
    world.response("r1").await;
    world.says(CHANNEL, &card.ts, "Answered: b").await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 1);
}

/// The card was posted, askd was killed before it knew, and then the history could not be read: a second card is posted, and both
/// are closed.
#[tokio::test]
async fn of_two_cards_after_a_crash_none_stays_open() {
    let mut world = in_slack(Mode::Http).start().await;
    let first = unconfirmed(&world, 500, 200).await;
    is_missed(&world).await;
    world.stop().await;
    let (path, record) = world.records().into_iter().next().unwrap();
    assert!(record.contains("\"interrupted\": false"));
    world.rewrite(&path, &record.replace("\"interrupted\": false", "\"interrupted\": true"));
    world.begin().await;
    let another = || world.slack.messages(CHANNEL).into_iter().find(|message| message.ts != first.ts);
    let second = world.passes(Duration::from_secs(120), "the second card", another).await;
    world.slack.faults().clear();
    world.stored(&second.ts).await;
    world.slack.click(CHANNEL, &second.ts, "pick:0:1", ALICE).await.expect("sent");
    for card in [&first, &second] {
        world.says(CHANNEL, &card.ts, "Answered: b").await;
    }
    world.all_closed(SOON).await;
}

#[tokio::test]
async fn a_definite_failure_is_tried_again_and_says_so() {
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next(POST, FaultKind::Error("service_unavailable".into()), 1);
    world.slack.faults().next(POST, FaultKind::RateLimited(2), 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    assert!(card.visible_text().contains("Previous attempt failed to display. This is retry attempt 2."));
    assert!(too_early(&world.slack.calls()).is_empty());
    let mut never = choice("Never?", &["a", "b"]);
    never["maxRetries"] = json!(0);
    world.slack.faults().next(POST, FaultKind::Error("service_unavailable".into()), 1);
    world.ask("r2", never);
    let response = world.response("r2").await;
    assert_eq!(response["error"], "Max retries exceeded");
    assert_eq!(response["result"]["retryReason"], "Max retries (0) exceeded");
    let mut once_more = choice("Once more?", &["a", "b"]);
    once_more["maxRetries"] = json!(1);
    world.slack.faults().next(POST, FaultKind::Error("service_unavailable".into()), 2);
    world.ask("r3", once_more);
    world.response("r3").await;
    for said in ["(attempt 1/4)", "(attempt 1/1)", "(attempt 2/2)"] {
        assert!(world.log().contains(&format!("UI failed to render question {said}")), "{said}: {}", world.log());
    }
}

#[tokio::test]
async fn a_closing_that_fails_is_tried_until_it_is_done_also_after_a_restart() {
    let mut world = in_slack(Mode::Http).with_binary().start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.faults().next("chat.update", FaultKind::Status(503), 3);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    world.kill();
    assert!(!world.slack.message(CHANNEL, &card.ts).unwrap().elements().is_empty());
    world.begin().await;
    world.says(CHANNEL, &card.ts, "Answered: a").await;
    world.all_closed(SOON).await;
}

/// The operator mends it; askd does not give the card up before, and a restart does not hide it.
#[tokio::test]
async fn a_closing_that_is_refused_is_tried_until_an_operator_has_mended_it_also_after_a_restart() {
    let mut world = in_slack(Mode::Http).start().await;
    let updates = |world: &World| world.slack.calls().iter().filter(|call| call.method == "chat.update").count();
    for (at, (code, restarts)) in
        [("invalid_auth", true), ("not_in_channel", true), ("is_archived", false)].into_iter().enumerate()
    {
        let (id, question) = (format!("r{at}"), format!("Number {at}?"));
        world.ask(&id, choice(&question, &["a", "b"]));
        let card = world.card(CHANNEL).await;
        world.slack.faults().next("chat.update", FaultKind::Error(code.into()), 1);
        let before = updates(&world);
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        world.response(&id).await;
        until("the refusal", SOON, || (updates(&world) > before).then_some(())).await;
        until("the refusal to be told", SOON, || world.log().contains(&format!("slack: {code}")).then_some(())).await;
        if restarts {
            assert_eq!(world.stop().await, Some(0));
            world.begin().await;
        } else {
            // The pause before the next try may begin a moment after the log says why.
            world.time_passes(Duration::from_secs(301)).await;
            world.step().await;
            world.time_passes(Duration::from_secs(301)).await;
        }
        world.says(CHANNEL, &card.ts, "Answered: a").await;
        world.all_closed(SOON).await;
    }
}

/// Its buttons lead nowhere, and its agent waits.
#[tokio::test]
async fn an_open_card_whose_channel_was_taken_out_of_the_settings_is_named_until_its_question_is_closed() {
    let mut world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.card(CHANNEL).await;
    assert_eq!(world.stop().await, Some(0));
    world.swap_config("[groups.research]\nroutes = [{ channel = \"web\" }]\n");
    world.start();
    let line = |part: &str| {
        let problem = world.problems("card").pop()?;
        problem["line"].as_str().unwrap().contains(part).then_some(problem)
    };
    let problem =
        world.passes(SOON, "the card to be named", || line("Answers on the card in Slack of the open question")).await;
    assert!(problem["fix"].as_str().unwrap().starts_with("put the channel back"), "{problem}");
    let ask = world.open_of("r1");
    assert_eq!(world.answer(&ask, &json!({"r1_0": "a"})).0, 200);
    world.passes(SOON, "the same of a closed one", || line("still shows the closed question")).await;
    assert_eq!(world.problems("card").len(), 1);
}

/// Until then it stands open in Slack, which the operator is told.
#[tokio::test]
async fn a_card_whose_channel_was_taken_out_of_the_settings_is_closed_once_it_is_back() {
    let mut world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.faults().next("chat.update", FaultKind::Status(503), 1_000);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    assert_eq!(world.stop().await, Some(0));
    world.slack.faults().clear();
    let with_slack = world.swap_config("[groups.research]\nroutes = [{ channel = \"web\" }]\n");
    world.start();
    let problem = world.passes(SOON, "the open card to be named", || world.problems("card").pop()).await;
    let line = problem["line"].as_str().unwrap();
    assert!(line.ends_with(": slack is not set up") && line.contains("still shows the closed question"), "{line}");
    assert!(problem["fix"].as_str().unwrap().starts_with("put the channel back"), "{problem}");
    assert_eq!(world.stop().await, Some(0));
    world.swap_config(&with_slack);
    world.begin().await;
    world.says(CHANNEL, &card.ts, "Answered: a").await;
    world.all_closed(SOON).await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let canary = in_slack(Mode::Http).start().await;
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next(POST, FaultKind::Redirect(format!("{}/chat.postMessage", canary.slack.api_url())), 1);
    let before = canary.slack.calls().len();
    world.ask("r1", choice("Which?", &["a", "b"]));
    // What follows a post of which nobody knows what became of it: it was not the redirect's target.
    let looked = || world.slack.calls().iter().any(|call| call.method == "conversations.history").then_some(());
    world.slack.wait_for(SOON, looked).await.expect("the answer to the post was read");
    assert_eq!(canary.slack.calls().len(), before, "no token goes where Slack's answer points");
}

#[tokio::test]
async fn posts_keep_their_pace_in_each_channel() {
    const PACE: Duration = Duration::from_millis(400);
    let groups = format!(
        "[groups.a]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = \"anyone\" }}]\n\
         [groups.b]\nroutes = [{{ channel = \"slack\", chat = \"C0RESEARCH\", responders = \"anyone\" }}]\n"
    );
    let world = in_slack(Mode::Http).groups(&groups).sim(|sim| sim.pace = PACE).key("0s", "400ms").start().await;
    for n in 0..5 {
        world.ask_as("a", &format!("a{n}"), choice(&format!("A{n}?"), &["x"]));
        world.ask_as("b", &format!("b{n}"), choice(&format!("B{n}?"), &["x"]));
    }
    let all = || (world.live(CHANNEL).len() == 5 && world.live("C0RESEARCH").len() == 5).then_some(());
    world.slack.wait_for(SOON, all).await.expect("all are up");
    let calls = world.slack.calls();
    assert!(calls.iter().all(|call| call.retry_after.is_none()), "never too early");
    let posts: Vec<Duration> = calls.iter().filter(|call| call.method == POST).map(|call| call.at).collect();
    let gaps: Vec<Duration> = posts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    // If a channel waited for the other, about the pace would lie between any two of the ten posts.
    assert!(gaps.iter().any(|gap| *gap < PACE / 2), "channels do not wait for each other: {gaps:?}");
}

/// More channels like the first one.
fn add_channels(sim: &mut askd_sim::slack::Config, ids: &[&str]) {
    let like = sim.channels[0].clone();
    sim.channels.extend(ids.iter().map(|id| askd_sim::slack::Channel { id: (*id).into(), ..like.clone() }));
}

/// Slack limits the posts to a workspace as a whole, too.
#[tokio::test]
async fn a_limit_that_two_channels_meet_holds_for_all_of_them() {
    let chats = ["C0AGENTS", "C0RESEARCH", "C0THREE", "C0FOUR", "C0FIVE", "C0SIX"];
    let group = |(n, chat): (usize, &&str)| {
        format!("[groups.g{n}]\nroutes = [{{ channel = \"slack\", chat = \"{chat}\", responders = \"anyone\" }}]\n")
    };
    let groups = chats.iter().enumerate().map(group).collect::<Vec<_>>().concat();
    let world = in_slack(Mode::Http).groups(&groups).sim(|sim| add_channels(sim, &chats[2..])).start().await;
    let ceiling = Fault { method: POST.into(), kind: FaultKind::RateLimited(30), times: Times::Percent(100) };
    world.slack.faults().push(ceiling);
    let ask = |n: usize| world.ask_as(&format!("g{n}"), &format!("r{n}"), choice(&format!("{n}?"), &["x"]));
    let posts = || world.slack.calls().into_iter().filter(|call| call.method == POST).count();
    (0..2).for_each(ask);
    world.slack.wait_for(SOON, || (posts() == 2).then_some(())).await.expect("two posts");
    let told = || world.log().matches("Slack asks us to wait").count() == 2;
    world.until("both limits to be known", told).await;
    (2..chats.len()).for_each(ask);
    world.time_passes(Duration::from_secs(10)).await;
    world.time_passes(Duration::from_secs(10)).await;
    assert_eq!(posts(), 2, "the others wait");
    world.slack.faults().clear();
    let shown = || {
        let cards: Vec<Message> = chats.iter().flat_map(|chat| world.live(chat)).collect();
        (cards.len() == chats.len()).then_some(cards)
    };
    let cards = world.passes(SOON * 2, "all cards", shown).await;
    let again = cards.iter().filter(|card| card.visible_text().contains("retry attempt")).count();
    assert_eq!((again, posts()), (2, 2 + chats.len()), "only the first two have used a try");
    assert!(too_early(&world.slack.calls()).is_empty());
}

#[tokio::test]
async fn sockets_come_and_go_without_a_hot_loop() {
    let world = in_slack(Mode::Socket).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    for how in [Goodbye::Refresh, Goodbye::Abrupt] {
        let before = world.slack.sockets_ever();
        world.slack.disconnect(how);
        let back = || (world.slack.sockets_ever() > before && world.slack.sockets() == 1).then_some(());
        world.slack.wait_for(SOON, back).await.expect("came back");
    }
    let opened = || world.slack.calls().iter().filter(|call| call.method == "apps.connections.open").count();
    let (before, began) = (opened(), Instant::now());
    for _ in 0..20 {
        world.slack.disconnect(Goodbye::Abrupt);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let (opened, flapped) = (opened() - before, began.elapsed());
    assert!(opened as u64 <= flapped.as_secs(), "{opened} connections in {flapped:?} of flapping");
    // No click comes in while none is there.
    let ready = || world.raw("GET", "/readyz", "", "").1;
    assert!(world.slack.sockets() > 0 || ready().starts_with("degraded: Slack"), "{}", ready());
    world
        .slack
        .wait_for(Duration::from_secs(30), || (world.slack.sockets() == 1).then_some(()))
        .await
        .expect("came back");
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
}

#[tokio::test]
async fn told_to_stop_it_stops_and_goes_on_later() {
    for mode in [Mode::Http, Mode::Socket] {
        let mut world = in_slack(mode).with_binary().start().await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        world.slack.faults().next("chat.update", FaultKind::Status(503), 1);
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        assert_eq!(world.stop().await, Some(0), "{mode:?}");
        world.slack.wait_for(SOON, || (world.slack.sockets() == 0).then_some(())).await.expect("no socket is left");
        world.begin().await;
        world.response("r1").await;
        world.says(CHANNEL, &card.ts, "Answered: a").await;
    }
}

#[tokio::test]
async fn a_wrong_app_token_is_said_to_the_operator() {
    let world = in_slack(Mode::Socket).key("xapp-askd-sim", "xapp-wrong").without_waiting().start().await;
    until("the operator to be told", SOON, || world.log().contains("cannot connect to Slack").then_some(())).await;
    assert!(world.log().contains("invalid_auth"));
    assert!(!world.log().contains("xapp-wrong"), "no token in the log");
}

#[tokio::test]
async fn a_wrong_bot_token_is_said_before_anything_is_ready() {
    let world = in_slack(Mode::Http).key("xoxb-askd-sim", "xoxb-wrong").start().await;
    let log = world.log();
    let (said, ready) = (log.find("Slack cannot be used"), log.find("askd is ready"));
    assert!(said.is_some() && said < ready, "{log}");
    assert!(log.contains("copy the Bot User OAuth Token") && !log.contains("xoxb-wrong"), "{log}");
}

/// `asks` asks in four channels while 30 % of the calls go wrong in every way there is.
async fn everything_goes_wrong(asks: usize) {
    let chats = ["C0AGENTS", "C0RESEARCH", "C0THREE", "C0FOUR", "C0FIVE", "C0SIX", "C0SEVEN", "C0EIGHT"];
    let group = |(n, chat): (usize, &&str)| {
        format!(
            "[groups.g{n}]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 10000\nmax_retries = 5\n\
             routes = [{{ channel = \"slack\", chat = \"{chat}\", responders = [\"{ALICE}\"] }}]\n"
        )
    };
    let groups = chats.iter().enumerate().map(group).collect::<Vec<_>>().concat();
    let world = in_slack(Mode::Http).groups(&groups).sim(|sim| add_channels(sim, &chats[2..])).start().await;
    let kinds = [
        (FaultKind::RateLimited(1), 6),
        (FaultKind::Status(500), 3),
        (FaultKind::Status(503), 3),
        (FaultKind::ResetBefore, 4),
        (FaultKind::ResetAfter, 6),
        (FaultKind::Truncate, 4),
        (FaultKind::Error("service_unavailable".into()), 2),
        (FaultKind::Error("internal_error".into()), 1),
        (FaultKind::Stall(Duration::from_secs(35)), 1),
    ];
    for (kind, percent) in kinds {
        world.slack.faults().push(Fault { method: "*".into(), kind, times: Times::Percent(percent) });
    }
    for n in 0..asks {
        let mut ask = choice(&format!("Question {n}?"), &["a", "b"]);
        ask["timeoutMs"] = json!(600_000);
        world.ask_as(&format!("g{}", n % chats.len()), &format!("r{n}"), ask);
    }
    // Not a figure of speed: the machine may be busy with others.
    let most = Duration::from_secs(120 + 5 * asks as u64);
    let people = async {
        loop {
            for chat in chats {
                for card in world.live(chat) {
                    // A person clicks once in a while; twice is nobody's concern.
                    let _sent = world.slack.act(ALICE, &at(chat, &card.ts), Act::Click).await;
                }
            }
            let left = (0..asks)
                .filter(|n| world.group(&format!("g{}", n % chats.len())).response(&format!("r{n}")).is_none())
                .count();
            if left == 0 {
                return;
            }
            world.step().await;
        }
    };
    tokio::time::timeout(most, people).await.expect("every ask ends");
    world.all_closed(most).await;
    let mut cards: HashMap<String, usize> = HashMap::new();
    for chat in chats {
        for message in world.slack.messages(chat) {
            assert!(message.elements().is_empty(), "a card is left open: {}", message.visible_text());
            let ask = message.metadata.as_ref().and_then(|metadata| metadata["event_payload"]["ask"].as_str()).unwrap();
            *cards.entry(ask.to_owned()).or_default() += 1;
        }
    }
    let (shown, twice) = (cards.len(), cards.values().filter(|count| **count > 1).count());
    let early = too_early(&world.slack.calls());
    assert!(early.is_empty(), "{} calls before a Retry-After had passed: {:?}", early.len(), early.first());
    assert_eq!(twice, 0, "no ask had two cards");
    let undelivered = asks - shown;
    assert!(undelivered * 100 <= asks, "{undelivered} of {asks} could not be shown");
}

fn at(channel: &str, ts: &str) -> askd_sim::slack::At {
    askd_sim::slack::At { channel: channel.into(), ts: ts.into(), block_id: None, action_id: "pick:0:0".into() }
}

#[tokio::test]
async fn of_a_hundred_asks_with_every_third_call_failing_all_end_closed() {
    everything_goes_wrong(100).await;
}

#[tokio::test]
#[ignore = "a long gate: the same with 1,000 asks"]
async fn of_a_thousand_asks_with_every_third_call_failing_all_end_closed() {
    everything_goes_wrong(1000).await;
}
