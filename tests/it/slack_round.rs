//! The round trip in both modes: asked, posted, clicked, stored, answered, closed; and the other ways an ask ends.

use crate::harness::{SHORTEST, SOON, choice};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, in_slack};
use crate::said;
use askd_sim::slack::FaultKind;
use serde_json::json;
use std::time::Duration;

const BOTH: [Mode; 2] = [Mode::Http, Mode::Socket];

#[tokio::test]
async fn a_click_answers_and_the_card_says_so() {
    for mode in BOTH {
        let world = in_slack(mode).start().await;
        world.ask("r1", choice("Which framework?", &["React", "Vue"]));
        let card = world.card(CHANNEL).await;
        assert!(card.text.contains("research asks: Which framework?"), "{}", card.text);
        let shown = card.visible_text();
        assert!(shown.contains("*research* asks") && shown.contains("Which framework?"), "{shown}");
        let delivery = world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        assert!(delivery.acknowledged && delivery.took < Duration::from_secs(3), "{delivery:?}");
        assert_eq!((delivery.socket, delivery.answer.as_str()), (mode == Mode::Socket, ""));
        let response = world.response("r1").await;
        let result = &response["result"];
        assert_eq!(result["answers"], json!({"Which framework?": "React"}));
        assert_eq!(result["answered_by"], json!({"channel": "slack", "id": ALICE, "name": "alice"}));
        assert_eq!((&result["status"], &result["renderConfirmed"]), (&json!("answered"), &json!(true)));
        let closed = world.says(CHANNEL, &card.ts, ":white_check_mark: *React* by <@U0ALICE> · ").await;
        assert_eq!(closed.text, "Answered: React by alice");
        assert!(closed.elements().is_empty() && closed.visible_text().contains("Which framework?"));
        world.all_closed(SOON).await;
        assert_eq!(world.slack.messages(CHANNEL).len(), 1, "one card, nothing else");
    }
}

/// Settings with which so many can be asked at once, and their questions.
fn many(many: usize) -> (String, Vec<String>) {
    let limits = format!("[asks]\nmax_open_per_group = {many}\nmax_per_hour_per_group = {many}\n");
    (limits, (0..many).map(|number| format!("Deploy {number}?")).collect())
}

/// Many requests lie there when it looks, so that cards wait for each other in many threads.
#[tokio::test]
async fn cards_come_in_the_order_of_their_requests() {
    const MANY: usize = 300;
    let (limits, asked) = many(MANY);
    let world = in_slack(Mode::Http).with_binary().pace("10ms").more(&limits).start().await;
    for (number, question) in asked.iter().enumerate() {
        world.ask(&format!("r{number:03}"), choice(question, &["yes", "no"]));
    }
    let all = || Some(world.slack.messages(CHANNEL)).filter(|cards| cards.len() == MANY);
    let cards = world.passes(SOON, "all cards", all).await;
    let shown: Vec<usize> = cards
        .iter()
        .map(|card| asked.iter().position(|question| card.text.contains(question.as_str())).unwrap())
        .collect();
    let overtaken: Vec<_> = shown.windows(2).filter(|two| two[0] > two[1]).collect();
    assert!(overtaken.is_empty(), "{overtaken:?}");
}

/// Beside more names of others than one look takes.
#[tokio::test]
async fn the_order_of_requests_is_kept_in_a_folder_that_is_full_of_other_files() {
    const MANY: usize = 100;
    let (limits, asked) = many(MANY);
    let mut world = in_slack(Mode::Http).with_binary().more(&limits).start().await;
    world.kill();
    let tasks = world.group("research").path.join("tasks");
    for (number, question) in asked.iter().enumerate() {
        world.ask(&format!("r{number:03}"), choice(question, &["yes", "no"]));
        for other in 0..500 {
            std::fs::write(tasks.join(format!("{number}-{other}.note")), "").unwrap();
        }
    }
    world.begin().await;
    let all = || Some(world.slack.messages(CHANNEL)).filter(|cards| cards.len() == MANY);
    let cards = world.passes(SOON, "all cards", all).await;
    for (question, card) in asked.iter().zip(&cards) {
        assert!(card.text.contains(question), "{question} {}", card.text);
    }
}

/// Its id looks like that of a public one. What people write there, and its history, need a scope of their own.
#[tokio::test]
async fn a_private_channel_is_like_a_public_one() {
    for mode in BOTH {
        let world = in_slack(mode).group(CHANNEL, "C0PRIVATE").start().await;
        world.slack.faults().next("chat.postMessage", FaultKind::ResetAfter, 1);
        world.ask("r1", choice("Which framework?", &["React", "Vue"]));
        let card = world.card("C0PRIVATE").await;
        world.stored(&card.ts).await;
        world.slack.reply_in_thread("C0PRIVATE", &card.ts, ALICE, "Vue").expect("sent");
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which framework?": "Vue"}));
        world.says("C0PRIVATE", &card.ts, "Answered: Vue by").await;
        world.all_closed(SOON).await;
        let cards = world.slack.messages("C0PRIVATE").into_iter().filter(|message| message.by_app).count();
        assert_eq!(cards, 1, "the history said that it is there");
    }
}

#[tokio::test]
async fn it_is_stored_before_it_is_acknowledged() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Now?", &["yes", "no"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:1", BOB).await.expect("sent");
    let stored: String = world.store().into_values().collect();
    assert!(stored.contains("\"answered\""), "settled on disk when the click returns");
}

#[tokio::test]
async fn a_restart_between_post_and_click_changes_nothing() {
    for mode in BOTH {
        let mut world = in_slack(mode).with_binary().start().await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        world.kill();
        let lost = world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
        assert!(!lost.acknowledged, "nobody listens");
        world.begin().await;
        if mode == Mode::Socket {
            world.slack.wait_for(SOON, || (world.slack.sockets() > 0).then_some(())).await.expect("a socket");
        }
        let second = world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
        assert!(second.acknowledged);
        let response = world.response("r1").await;
        assert_eq!(response["result"]["answers"], json!({"Which?": "b"}));
        world.says(CHANNEL, &card.ts, "Answered: b by").await;
        assert_eq!(world.slack.messages(CHANNEL).len(), 1, "no second card");
    }
}

#[tokio::test]
async fn the_other_ends_are_said_on_the_card_too() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("First?", &["a", "b"]));
    let first = world.card(CHANNEL).await;
    world.group("research").cancel("r1");
    assert_eq!(world.response("r1").await["result"]["reason"], "system");
    world.says(CHANNEL, &first.ts, "Cancelled").await;

    world.ask("r2", choice("Second?", &["a", "b"]));
    let second = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &second.ts, "dismiss", ALICE).await.expect("sent");
    let response = world.response("r2").await;
    assert_eq!(response["error"], said::DISMISSED);
    world.says(CHANNEL, &second.ts, ":no_entry_sign: Dismissed by <@U0ALICE> · ").await;

    let mut third = choice("Third?", &["a", "b"]);
    third["timeoutMs"] = json!(10_000);
    world.ask("r3", third);
    let third = world.card(CHANNEL).await;
    world.time_passes(SHORTEST).await;
    let response = world.response("r3").await;
    assert_eq!(response["result"]["status"], "timeout");
    let closed = world.says(CHANNEL, &third.ts, "Timed out").await;
    assert!(closed.elements().is_empty());
    world.slack.wait_for(SOON, || world.live(CHANNEL).is_empty().then_some(())).await.expect("no card is left open");
}

#[tokio::test]
async fn what_cannot_be_shown_is_told_at_once_and_the_operator_reads_what_to_mend() {
    for (chat, token, cause, mend) in [
        ("C0UNINVITED", "xoxb-askd-sim", "refused", "invite the bot with /invite @askd"),
        ("C0NOWHERE", "xoxb-askd-sim", "chat not found", "check the route's chat"),
        ("C0ARCHIVED", "xoxb-askd-sim", "chat not found", "unarchive"),
        (CHANNEL, "xoxb-wrong", "refused", "Bot User OAuth Token"),
        (CHANNEL, "xoxb-poor", "refused", "the app lacks chat:write"),
    ] {
        let mut make = in_slack(Mode::Http).sim(|sim| {
            let poor = askd_sim::slack::Token { secret: "xoxb-poor".into(), scopes: vec!["users:read".into()] };
            sim.bot_tokens.push(poor);
        });
        make = make.key("xoxb-askd-sim", token);
        make = make.group(CHANNEL, chat);
        let world = make.start().await;
        world.ask("r1", choice("Anybody?", &["yes", "no"]));
        // Sooner than a post of which nothing is known would be given up.
        let response = world.response_within("r1", Duration::from_secs(25)).await;
        assert_eq!(response["error"], format!("Could not be shown: slack: {cause}"));
        assert_eq!(response["result"]["cause"], format!("slack: {cause}"));
        assert_eq!(response["result"]["status"], "undeliverable");
        assert!(world.log().contains(mend), "the operator reads what to mend");
        let posts = world.slack.calls().iter().filter(|call| call.method == "chat.postMessage").count();
        assert_eq!(posts, 1, "no retries for what cannot succeed");
    }
}

#[tokio::test]
async fn what_nobody_answers_is_brought_to_mind_and_shown_elsewhere_too() {
    let groups = format!(
        "[groups.research]\nremind_after = \"1s\"\nescalate_after = \"2s\"\nroutes = [\
         {{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }}, \
         {{ channel = \"slack\", chat = \"C0RESEARCH\", responders = [\"{BOB}\"] }}]\n"
    );
    let world = in_slack(Mode::Http).groups(&groups).start().await;
    world.ask("r1", choice("Anybody?", &["yes", "no"]));
    let first = world.card(CHANNEL).await;
    let nudge = |message: &askd_sim::slack::Message| message.thread_ts.as_deref() == Some(&first.ts);
    let nudge = world.slack.wait_for_message(nudge, SOON).await.expect("a reminder in the thread");
    assert!(nudge.visible_text().contains("Still open. "), "{}", nudge.visible_text());
    let second = world.card("C0RESEARCH").await;
    world.slack.click("C0RESEARCH", &second.ts, "pick:0:1", BOB).await.expect("sent");
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"Anybody?": "no"}));
    world.says(CHANNEL, &first.ts, "Answered: no by").await;
    world.says("C0RESEARCH", &second.ts, "Answered: no by").await;
    world.all_closed(SOON).await;
}

#[tokio::test]
async fn what_slack_refuses_goes_to_the_next_route() {
    let groups = format!(
        "[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"C0UNINVITED\", responders = [\"{ALICE}\"] }}, \
         {{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }}]\n"
    );
    let world = in_slack(Mode::Http).groups(&groups).start().await;
    world.ask("r1", choice("Anybody?", &["yes", "no"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    assert_eq!(world.response("r1").await["result"]["status"], "answered");
}
