//! What people do around a card in Slack that is no click: edits and files in its thread, and its deletion.

use crate::harness::{SOON, World, choice, until};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, STRANGER, in_slack};
use askd_sim::slack::{EVENTS, FaultKind, Message, Raw};
use serde_json::{Value, json};
use std::time::Duration;

/// For what comes after a look into the history, and after a reminder.
const PATIENCE: Duration = Duration::from_secs(60);

async fn asked(mode: Mode) -> (World, Message) {
    let world = in_slack(mode).start().await;
    let card = asked_in(&world).await;
    (world, card)
}

async fn asked_in(world: &World) -> Message {
    world.ask("r1", choice("Which?", &["React", "Vue"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    card
}

#[tokio::test]
async fn who_edits_a_reply_is_told_once_that_edits_are_not_read() {
    for mode in [Mode::Http, Mode::Socket] {
        let (world, card) = asked(mode).await;
        let reply = |user, text| world.slack.reply_in_thread(CHANNEL, &card.ts, user, text).expect("sent").ts;
        let edit = |ts: &str, text| world.slack.edit(CHANNEL, ts, text).expect("edited");
        let (wrong, chat) = (reply(ALICE, "Svelte"), reply(STRANGER, "hm"));
        world.told(ALICE, "not one of the options").await;
        edit(&chat, "Vue");
        // Slack has found a link in it.
        edit(&wrong, "Svelte");
        world.slack.faults().next(EVENTS, FaultKind::Duplicate, 1);
        edit(&wrong, "Vue");
        let note = world.told(ALICE, "Edits").await;
        assert_eq!(note.text, "Edits are not read. Please send a new reply.");
        assert_eq!(note.thread_ts.as_deref(), Some(&*card.ts));
        let answer = reply(BOB, "React");
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "React"}));
        world.says(CHANNEL, &card.ts, "Answered: React").await;
        // Under a closed card people talk. What was no answer, and is none now, needs no note.
        edit(&wrong, "Svelte it is not, then");
        edit(&answer, "Vue, sorry");
        let note = world.told(BOB, "Edits").await;
        assert_eq!(note.text, "Edits are not read. The first answer stands: \"React\".");
        assert_eq!(world.slack.ephemerals(ALICE).len(), 2, "the hint, and one note for the edit");
        assert!(world.slack.ephemerals(STRANGER).is_empty());
    }
}

/// Where the only open ask is, as it is stored.
fn stage(world: &World) -> Value {
    let records = world.records().into_values().map(|record| serde_json::from_str::<Value>(&record).unwrap());
    records.map(|record| record["stage"].clone()).find(|stage| stage["name"] == "open").unwrap()
}

/// The card that people use, once it is another one than this.
async fn another(world: &World, gone: &str) -> Message {
    let another = || world.live(CHANNEL).into_iter().find(|card| card.ts != gone);
    world.passes(PATIENCE, "the card to be there again", another).await
}

#[tokio::test]
async fn a_card_that_is_deleted_while_its_question_is_open_is_posted_again() {
    for (mode, talked) in [(Mode::Http, false), (Mode::Socket, true)] {
        let (world, card) = asked(mode).await;
        if talked {
            world.slack.reply_in_thread(CHANNEL, &card.ts, STRANGER, "hm").expect("sent");
        }
        let clock = stage(&world);
        world.slack.delete(CHANNEL, &card.ts).expect("deleted");
        let again = another(&world, &card.ts).await;
        assert!(
            !again.visible_text().contains("Previous attempt failed"),
            "it was displayed: {}",
            again.visible_text()
        );
        world.stored(&again.ts).await;
        assert_eq!(stage(&world), clock, "the clock was running");
        assert_eq!(world.live(CHANNEL).len(), 1);
        world.slack.click(CHANNEL, &again.ts, "pick:0:1", ALICE).await.expect("sent");
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "Vue"}));
        world.all_closed(SOON).await;
        world.slack.delete(CHANNEL, &again.ts).expect("deleted");
        world.ask("r2", choice("Next?", &["a", "b"]));
        assert!(another(&world, &again.ts).await.visible_text().contains("Next?"), "a closed card is not missed");
    }
}

/// A card that is brought to mind after 30 s, then after 90 s, and Slack sends no events.
async fn without_events(scopes: &[&str]) -> (World, Message) {
    let soon = "[groups.research]\nremind_after = \"30s\"";
    let make = in_slack(Mode::Http).sim(|sim| {
        sim.message_events = false;
        sim.bot_tokens[0].scopes = scopes.iter().map(ToString::to_string).collect();
    });
    let world = make.group("[groups.research]", soon).start().await;
    let card = asked_in(&world).await;
    (world, card)
}

const ENOUGH: [&str; 2] = ["chat:write", "channels:history"];

#[tokio::test]
async fn a_reminder_finds_out_that_the_card_is_gone() {
    for talked in [false, true] {
        let (world, card) = without_events(&ENOUGH).await;
        if talked {
            world.slack.reply_in_thread(CHANNEL, &card.ts, STRANGER, "hm").expect("sent");
        }
        world.slack.delete(CHANNEL, &card.ts).expect("deleted");
        world.time_passes(Duration::from_secs(31)).await;
        let again = another(&world, &card.ts).await;
        let other = |message: &Message| message.by_app && message.ts != again.ts && message.ts != card.ts;
        assert!(world.slack.messages(CHANNEL).iter().all(|message| !other(message)), "no reminder without its card");
        world.slack.click(CHANNEL, &again.ts, "pick:0:0", ALICE).await.expect("sent");
        world.response("r1").await;
    }
}

/// It went after askd had looked: Slack posts the reminder into the channel.
#[tokio::test]
async fn a_reminder_of_a_card_that_is_gone_by_then_does_not_stay_in_the_channel() {
    let (world, card) = without_events(&ENOUGH).await;
    world.slack.faults().next("conversations.history", FaultKind::Stall(Duration::from_secs(2)), 1);
    let looks = || world.slack.calls().iter().filter(|call| call.method == "conversations.history").count();
    let before = looks();
    world.time_passes(Duration::from_secs(31)).await;
    until("the look", SOON, || (looks() > before).then_some(())).await;
    world.slack.delete(CHANNEL, &card.ts).expect("deleted");
    let deleted = || world.slack.calls().iter().any(|call| call.method == "chat.delete");
    until("the reminder to be deleted", SOON, || deleted().then_some(())).await;
    let again = another(&world, &card.ts).await;
    let other = |message: &Message| message.by_app && message.ts != again.ts && message.ts != card.ts;
    assert!(world.slack.messages(CHANNEL).iter().all(|message| !other(message)), "no reminder without its card");
    world.slack.click(CHANNEL, &again.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
}

/// How many messages askd has posted, also those that are gone.
fn posts(world: &World) -> usize {
    world.slack.calls().iter().filter(|call| call.method == "chat.postMessage").count()
}

/// Waits until so many reminders were left out, for this reason.
async fn left_out(world: &World, times: usize, why: &str) {
    let left_out = |line: &&str| line.contains("no reminder") && line.contains(why);
    let told = || world.log().lines().filter(left_out).count() == times;
    world.until("a reminder to be left out", told).await;
}

/// Slack posts a reply to a message that is gone into the channel, where it belongs to nothing.
#[tokio::test]
async fn a_reminder_that_cannot_see_its_card_is_left_out_and_the_next_one_brings_the_card_back() {
    for fault in [FaultKind::Error("fatal_error".into()), FaultKind::RateLimited(1), FaultKind::Status(503)] {
        let (world, card) = without_events(&ENOUGH).await;
        world.slack.delete(CHANNEL, &card.ts).expect("deleted");
        world.slack.faults().next("conversations.history", fault, 1);
        world.time_passes(Duration::from_secs(31)).await;
        left_out(&world, 1, "").await;
        assert_eq!(posts(&world), 1, "the card that was deleted");
        world.time_passes(Duration::from_secs(60)).await;
        let again = another(&world, &card.ts).await;
        world.slack.click(CHANNEL, &again.ts, "pick:0:0", ALICE).await.expect("sent");
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "React"}));
        world.all_closed(SOON).await;
        assert_eq!(posts(&world), 2, "the card, and the card again");
    }
}

/// Without the right scope nobody can say whether the card is there, so nothing is posted at all.
#[tokio::test]
async fn without_a_history_there_is_neither_a_reminder_nor_a_second_card() {
    for deleted in [false, true] {
        let (world, card) = without_events(&["chat:write"]).await;
        if deleted {
            world.slack.delete(CHANNEL, &card.ts).expect("deleted");
        }
        world.time_passes(Duration::from_secs(31)).await;
        left_out(&world, 1, "the app lacks channels:history").await;
        world.time_passes(Duration::from_secs(60)).await;
        left_out(&world, 2, "the app lacks channels:history").await;
        assert_eq!(posts(&world), 1, "the card");
        assert_eq!(world.live(CHANNEL).len(), usize::from(!deleted));
    }
}

/// Sends a reply with a file.
async fn with_a_file(world: &World, card: &Message, text: &str) {
    let (seconds, micros) = card.ts.split_once('.').unwrap();
    let ts = format!("{}.{micros}", seconds.parse::<u64>().unwrap() + 1);
    let event = json!({"type": "message", "subtype": "file_share", "channel": CHANNEL, "user": ALICE, "text": text,
        "ts": ts, "thread_ts": card.ts, "files": [{"id": "F1", "name": "plan.pdf"}]});
    let payload = world.slack.event_payload(&event);
    let url = format!("{}/slack/events", world.url());
    assert_eq!(world.slack.send_raw(Raw::event(&world.slack, &url, &payload)).await.status, Some(200));
}

#[tokio::test]
async fn who_sends_a_file_with_words_is_told_that_only_the_words_were_taken() {
    let world = in_slack(Mode::Http).start().await;
    let ask = async |id: &str, ask| {
        world.ask(id, ask);
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        card
    };
    let card = ask("r1", choice("Which?", &["React", "Vue"])).await;
    with_a_file(&world, &card, "see the plan").await;
    let hint = world.told(ALICE, "not one of the options").await;
    assert!(hint.text.starts_with("askd does not read files. "), "{}", hint.text);
    with_a_file(&world, &card, "2").await;
    let note = world.told(ALICE, "taken").await;
    assert_eq!(note.text, "askd does not read files. Your words were taken.");
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "Vue"}));
    world.all_closed(SOON).await;
    let two = json!({"questions": [{"question": "Why?"}, {"question": "When?"}]});
    let card = ask("r2", two).await;
    with_a_file(&world, &card, "because").await;
    let hint = world.told(ALICE, "Several questions").await;
    assert_eq!(hint.text, "askd does not read files. Several questions: please answer them on the card.");
    assert!(world.response_now("r2").is_none());
}

#[tokio::test]
async fn a_number_that_is_the_label_of_another_option_is_asked_back() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("How many?", &["2", "1", "more"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    let reply = |text| world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, text).expect("sent");
    reply("2");
    let hint = world.told(ALICE, "One option has that name").await;
    assert!(hint.text.contains("1. 2\n2. 1\n3. more\nWrite the number with a dot"), "{}", hint.text);
    assert!(world.response_now("r1").is_none());
    reply("2.");
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"How many?": "1"}));
}

/// Slack delivers an emoji by its name, and says in the blocks of the message which characters that are.
#[tokio::test]
async fn an_emoji_in_a_reply_is_the_one_that_was_typed() {
    let world = in_slack(Mode::Http).start().await;
    let ask = async |id: &str, ask: Value| {
        world.ask(id, ask);
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        card.ts
    };
    let reply = |card: &str, text: &str| world.slack.reply_in_thread(CHANNEL, card, ALICE, text).expect("sent");
    for (id, labels, typed, label) in [
        ("r1", ["🚀 Deploy", "❌ Deploy"], "❌ deploy", "❌ Deploy"),
        ("r2", ["👍", "👀"], "👍🏽", "👍"),
        ("r3", ["\u{26a0} Stop", "No"], "\u{26a0}\u{fe0f} stop", "\u{26a0} Stop"),
        ("r4", [":rocket:", "No"], "🚀", ":rocket:"),
        ("r5", ["👍🏿 dark", "👍🏻 light"], "👍🏻 light", "👍🏻 light"),
    ] {
        let question = format!("Which of {id}?");
        let card = ask(id, choice(&question, &labels)).await;
        reply(&card, typed);
        assert_eq!(world.response(id).await["result"]["answers"], json!({question: label}), "{typed}");
        world.all_closed(SOON).await;
    }
    let card = ask("r6", choice("Which one?", &["🚀 Deploy", ":rocket: Deploy", "👍🏿"])).await;
    for wrong in ["👀 Deploy", ":shipit: Deploy", "🚀 Deploy", "👍🏽", "Deploy"] {
        let told = world.slack.ephemerals(ALICE).len();
        reply(&card, wrong);
        let hint = || world.slack.ephemerals(ALICE).into_iter().nth(told);
        let hint = world.passes(SOON, "a hint", hint).await;
        assert!(hint.text.contains("not one of the options") || hint.text.contains("that name"), "{}", hint.text);
        assert!(world.response_now("r6").is_none(), "{wrong}");
    }
    reply(&card, "1");
    assert_eq!(world.response("r6").await["result"]["answers"], json!({"Which one?": "🚀 Deploy"}));
    world.all_closed(SOON).await;
    let card = ask("r7", json!({"questions": [{"question": "How was it?"}]})).await;
    reply(&card, "great 🎉 & :shipit: at 12:30:15");
    let said = json!({"How was it?": "great 🎉 & :shipit: at 12:30:15"});
    assert_eq!(world.response("r7").await["result"]["answers"], said);
}
