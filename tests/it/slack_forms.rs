//! Everything an ask can hold, answered in Slack: forms, texts of one's own, skipping, threads; and cards too long for one message.

use crate::harness::{SOON, World, choice, until};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, STRANGER, in_slack};
use crate::said;
use crate::timing::faketime;

use askd_sim::slack::{Act, FaultKind, Message, Raw};
use serde_json::{Value, json};
use std::time::Duration;

fn form() -> Value {
    json!({"title": "Release", "questions": [
        {"question": "Which framework?", "options": [{"label": "React", "description": "as before"}, "Vue"]},
        {"question": "Which targets?", "type": "multi-select", "options": ["staging", "prod EU", "prod US"]},
        {"question": "Mail the customers?", "type": "confirm"},
        {"question": "Why now?"},
        {"question": "Anything else?", "required": false},
    ]})
}

fn chosen(values: &[&str]) -> Act {
    Act::Choose(values.iter().map(ToString::to_string).collect())
}

fn typed(text: &str) -> Act {
    Act::Type(text.to_owned())
}

#[tokio::test]
async fn a_form_is_answered_in_one_go_and_what_is_missing_is_pointed_out() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = in_slack(mode).start().await;
        world.ask("r1", form());
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        let before = world.store();
        let half = [("choice:0", chosen(&["0"])), ("text:3", typed("because"))];
        let delivery = world.slack.submit(CHANNEL, &card.ts, &half, "submit", ALICE).await.expect("sent");
        assert!(delivery.acknowledged);
        let note = world.told(ALICE, "Please answer").await;
        assert!(note.text.contains("Which targets?") && note.text.contains("Mail the customers?"), "{}", note.text);
        assert!(!note.text.contains("Why now?") && !note.text.contains("Anything else?"), "{}", note.text);
        assert_eq!(world.store(), before, "nothing was changed");
        assert_eq!(world.slack.message(CHANNEL, &card.ts).expect("there").edits, 0, "what was typed is not lost");
        let rest = [("choice:1", chosen(&["0", "2"])), ("text:1", typed("the lab")), ("choice:2", chosen(&["1"]))];
        world.slack.submit(CHANNEL, &card.ts, &rest, "submit", ALICE).await.expect("sent");
        let response = world.response("r1").await;
        assert_eq!(
            response["result"]["answers"],
            json!({"Which framework?": "React", "Which targets?": ["staging", "prod US", "the lab"],
                "Mail the customers?": "No", "Why now?": "because"})
        );
        world.says(CHANNEL, &card.ts, "Answered: React; staging, prod US, the lab; No; because by").await;
    }
}

/// A click on "Other…" in this card; the modal is open when this returns.
async fn opened(world: &World, ts: &str, user: &str) -> Value {
    world.slack.click(CHANNEL, ts, "other:0", user).await.expect("sent");
    let modal = || world.slack.views().into_iter().find(|view| view["opened_for"] == user);
    world.slack.wait_for(SOON, modal).await.expect("a modal")
}

#[tokio::test]
async fn another_answer_is_given_in_a_modal() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = in_slack(mode).start().await;
        let asked = json!({"question": "Which?", "options": ["a", "b"], "placeholder": "c?"});
        world.ask("r1", json!({"questions": [asked]}));
        let card = world.card(CHANNEL).await;
        let row: Vec<String> = card.elements().into_iter().map(|(_, action_id, _)| action_id).collect();
        assert_eq!(row, ["pick:0:0", "pick:0:1", "other:0", "dismiss"]);
        let modal = opened(&world, &card.ts, ALICE).await;
        let field = &modal["blocks"][1];
        assert_eq!(
            (&field["label"]["text"], &field["element"]["placeholder"]["text"]),
            (&json!("Which?"), &json!("c?"))
        );
        assert!(
            world.slack.answer_in_modal(BOB, "c").await.is_err()
                && world.slack.answer_in_modal(ALICE, "").await.is_err()
        );
        let sent = world.slack.answer_in_modal(ALICE, " mine ").await.expect("sent");
        assert!(sent.acknowledged && world.slack.views().is_empty(), "{sent:?}");
        let result = world.response("r1").await["result"].clone();
        assert_eq!((&result["answers"], &result["answered_by"]["id"]), (&json!({"Which?": "mine"}), &json!(ALICE)));
        world.says(CHANNEL, &card.ts, ":white_check_mark: *mine* by <@U0ALICE>").await;
    }
}

/// Slack says of a modal which team its sender is of, and of a click which team the app is of.
#[tokio::test]
async fn a_guest_who_is_named_answers_in_a_modal_too() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = in_slack(mode).group("\"U0BOB\"", "\"U0BOB\", \"U0STRANGER\"").start().await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        opened(&world, &card.ts, STRANGER).await;
        let sent = world.slack.answer_in_modal(STRANGER, "mine").await.expect("sent");
        assert!(sent.acknowledged && world.slack.views().is_empty(), "{sent:?}");
        assert_eq!(sent.payload["team"]["id"], "T0OTHER");
        assert_eq!(world.response("r1").await["result"]["answered_by"]["id"], STRANGER);
    }
}

#[tokio::test]
async fn a_modal_that_comes_too_late_keeps_what_was_typed_and_changes_nothing() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = in_slack(mode).start().await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        opened(&world, &card.ts, ALICE).await;
        opened(&world, &card.ts, BOB).await;
        let replay = world.slack.payload_of_modal(ALICE, "mine").unwrap();
        world.slack.click(CHANNEL, &card.ts, "other:0", STRANGER).await.expect("sent");
        world.told(STRANGER, "You're not on the list").await;
        assert!(!world.slack.views().iter().any(|view| view["opened_for"] == STRANGER));
        assert!(world.slack.answer_in_modal(ALICE, "mine").await.expect("sent").acknowledged);
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "mine"}));
        world.all_closed(SOON).await;
        let before = world.store();
        let late = world.slack.answer_in_modal(BOB, "theirs").await.expect("sent");
        let answer: Value = serde_json::from_str(&late.answer).expect("what the modal says");
        let said =
            answer["errors"].as_object().and_then(|errors| errors.values().next()).expect("at its field").clone();
        assert_eq!(said, json!("Already answered \"mine\" by alice in Slack. Your answer was not used."));
        assert!(late.acknowledged && !world.slack.views().is_empty(), "the modal stays open: {late:?}");
        let mut forged = replay.clone();
        forged["user"]["id"] = json!(STRANGER);
        for payload in [replay, forged] {
            if mode == Mode::Socket {
                assert!(world.slack.send_over_socket(&payload).await);
            } else {
                let url = format!("{}/slack/interactions", world.url());
                assert_eq!(
                    world.slack.send_raw(Raw::interaction(&world.slack, &url, &payload)).await.status,
                    Some(200)
                );
            }
        }
        assert_eq!(world.store(), before, "nothing was changed");
    }
}

#[tokio::test]
async fn an_agent_marks_at_most_one_option_as_primary_and_one_as_danger() {
    let world = in_slack(Mode::Http).start().await;
    let styled = |styles: [&str; 3]| {
        let options = ["a", "b", "c"].iter().zip(styles).map(|(label, style)| json!({"label": label, "style": style}));
        json!({"questions": [{"question": "Which?", "options": options.collect::<Vec<_>>()}]})
    };
    for (n, (wrong, why)) in [
        (["primary", "primary", ""], "questions[0].options: only one option can have the style primary."),
        (["danger", "", "danger"], "questions[0].options: only one option can have the style danger."),
        (["green", "", ""], "unknown variant `green`, expected `primary` or `danger`"),
    ]
    .into_iter()
    .enumerate()
    {
        world.ask(&format!("wrong{n}"), styled(wrong));
        let response = world.response(&format!("wrong{n}")).await;
        let error = response["error"].as_str().unwrap_or_default();
        assert!(response["result"]["status"] == "rejected" && error.contains(why), "{error}");
    }
    world.ask("r1", styled(["primary", "", "danger"]));
    let card = world.card(CHANNEL).await;
    let row = card.blocks.iter().find(|block| block["type"] == "actions").unwrap();
    let drawn: Vec<&Value> = row["elements"].as_array().unwrap().iter().map(|button| &button["style"]).collect();
    assert_eq!(drawn[..3], [&json!("primary"), &Value::Null, &json!("danger")]);
    world.slack.click(CHANNEL, &card.ts, "pick:0:2", ALICE).await.expect("sent");
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "c"}));
}

/// Cards that an earlier askd posted: a field and Submit stood in the card itself.
#[tokio::test]
async fn a_card_from_before_the_modal_is_answered_as_it_was_drawn() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    let mut payload = world.slack.payload_of_click(CHANNEL, &card.ts, "dismiss", ALICE).unwrap();
    let row = payload["actions"][0]["block_id"].as_str().unwrap().to_owned();
    let block = |part: &str| row.replace(":q0:", &format!(":{part}:"));
    let button = json!({"type": "button", "action_id": "submit", "block_id": block("do"), "value": "submit"});
    payload["actions"] = json!([button]);
    payload["message"]["blocks"] = json!([
        {"type": "actions", "block_id": row, "elements": []},
        {"type": "input", "block_id": block("t0")}, {"type": "actions", "block_id": block("do"), "elements": [button]},
    ]);
    let url = format!("{}/slack/interactions", world.url());
    for (typed, trigger) in [(Value::Null, "one"), (json!("mine"), "two")] {
        payload["trigger_id"] = json!(trigger);
        payload["state"]["values"] = json!({block("t0"): {"text:0": {"type": "plain_text_input", "value": typed}}});
        assert_eq!(world.slack.send_raw(Raw::interaction(&world.slack, &url, &payload)).await.status, Some(200));
        if typed.is_null() {
            world.told(ALICE, "Please answer").await;
        }
    }
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "mine"}));
    world.says(CHANNEL, &card.ts, "*mine* by <@U0ALICE>").await;
}

#[tokio::test]
async fn skipping_is_an_answer() {
    let world = in_slack(Mode::Http).start().await;
    let optional = json!({"questions": [{"question": "Which?", "options": ["c"], "required": false}]});
    world.ask("r1", optional);
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "skip", BOB).await.expect("sent");
    let response = world.response("r1").await;
    assert_eq!((&response["result"]["status"], &response["result"]["answers"]), (&json!("answered"), &json!({})));
    world.says(CHANNEL, &card.ts, "Answered: (skipped) by").await;
}

#[tokio::test]
async fn a_choice_in_a_form_can_be_taken_back_for_a_text() {
    let world = in_slack(Mode::Http).start().await;
    let two = json!({"questions": [{"question": "One?", "options": ["a", "b"]}, {"question": "Two?", "options": ["c"], "required": false}]});
    world.ask("r1", two);
    let card = world.card(CHANNEL).await;
    let both = [("choice:0", chosen(&["1"])), ("text:0", typed("mine"))];
    world.slack.submit(CHANNEL, &card.ts, &both, "submit", ALICE).await.expect("sent");
    world.told(ALICE, "not both").await;
    // "Other" without words is no skip, though the question may be skipped.
    let blank = [("choice:0", chosen(&["other"])), ("choice:1", chosen(&["other"]))];
    world.slack.submit(CHANNEL, &card.ts, &blank, "submit", ALICE).await.expect("sent");
    let note = world.told(ALICE, "Please answer").await;
    assert!(note.text.contains("Two?") && !note.text.contains("One?"), "{}", note.text);
    assert!(world.response_now("r1").is_none());
    let other = [("choice:0", chosen(&["other"])), ("choice:1", chosen(&["skip"]))];
    world.slack.submit(CHANNEL, &card.ts, &other, "submit", ALICE).await.expect("sent");
    assert_eq!(world.response("r1").await["result"]["answers"], json!({"One?": "mine"}));
}

#[tokio::test]
async fn in_the_thread_a_label_a_number_or_a_text_answers() {
    for (mode, said, answer) in
        [(Mode::Http, "Vue", "Vue"), (Mode::Socket, " 2. ", "Vue"), (Mode::Http, "a\u{2060} &amp; <b>", "a & <b>")]
    {
        let world = in_slack(mode).start().await;
        let as_typed = said.replace("&amp;", "&");
        let asked = if answer == "Vue" {
            choice("Which?", &["React", "Vue"])
        } else {
            json!({"questions": [{"question": "Why?"}]})
        };
        world.ask("r1", asked);
        let card = world.card(CHANNEL).await;
        world.stored(&card.ts).await;
        if answer == "Vue" {
            world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "rather Svelte, I think").unwrap();
            let hint = world.told(ALICE, "not one of the options").await;
            assert!(hint.text.contains("React") && hint.thread_ts.as_deref() == Some(&card.ts), "{}", hint.text);
            // People agree with each other like that. It is no number.
            world.slack.reply_in_thread(CHANNEL, &card.ts, BOB, "+1").unwrap();
            world.told(BOB, "not one of the options").await;
        } else {
            // A file without words.
            let (seconds, micros) = card.ts.split_once('.').unwrap();
            let ts = format!("{}.{micros}", seconds.parse::<u64>().unwrap() + 1);
            let event = json!({"type": "message", "subtype": "file_share", "channel": CHANNEL, "user": ALICE, "text": "",
                "ts": ts, "thread_ts": card.ts});
            let url = format!("{}/slack/events", world.url());
            let payload = world.slack.event_payload(&event);
            world.slack.send_raw(Raw::event(&world.slack, &url, &payload)).await;
            let hint = world.told(ALICE, "").await;
            assert_eq!(hint.text, "Please answer in words: askd does not read files.");
        }
        world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, &as_typed).unwrap();
        let response = world.response("r1").await;
        let values: Vec<&Value> = response["result"]["answers"].as_object().unwrap().values().collect();
        assert_eq!(values, [&json!(answer)]);
        assert_eq!(response["result"]["answered_by"]["id"], ALICE);
        world.says(CHANNEL, &card.ts, "Answered:").await;
    }
}

#[tokio::test]
async fn what_is_no_answer_in_a_thread_or_channel_is_left_alone() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", form());
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    world.slack.say(CHANNEL, ALICE, "React").unwrap();
    let elsewhere = world.slack.say(CHANNEL, BOB, "another thread").unwrap();
    world.slack.reply_in_thread(CHANNEL, &elsewhere.ts, BOB, "React").unwrap();
    world.slack.reply_in_thread(CHANNEL, &card.ts, STRANGER, "what do you think?").unwrap();
    world.slack.reply_in_thread(CHANNEL, &card.ts, BOB, "React").unwrap();
    world.told(BOB, "Several questions").await;
    assert!(world.slack.ephemerals(STRANGER).is_empty(), "people may talk about it");
    assert_eq!(world.slack.ephemerals(BOB).len(), 1);
    assert!(world.slack.ephemerals(ALICE).is_empty());
    assert!(world.response_now("r1").is_none());
}

/// Everything at its limit.
pub(crate) fn longest() -> Value {
    let fill = |start: String, most: usize| start.clone() + &"word ".repeat(most / 5 + 1)[..most - start.len()];
    let questions: Vec<Value> = (0..10)
        .map(|n| {
            let options: Vec<Value> = (0..10)
                .map(
                    |c| json!({"label": fill(format!("{c} "), 75).trim_end(), "description": fill(String::new(), 300)}),
                )
                .collect();
            json!({"question": fill(format!("{n} "), 3000), "header": fill(String::new(), 30), "options": options,
                "type": if n % 2 == 0 { "select" } else { "multi-select" }, "required": n == 0})
        })
        .collect();
    json!({"title": fill(String::new(), 100), "context": fill(String::new(), 3000), "questions": questions})
}

#[tokio::test]
async fn ten_questions_at_their_limits_are_asked_and_answered() {
    let world = in_slack(Mode::Http).sim(|sim| sim.pace = Duration::from_millis(100)).key("0s", "100ms").start().await;
    world.slack.faults().next("chat.postMessage", FaultKind::RateLimited(1), 1);
    world.slack.faults().next("chat.postMessage", FaultKind::ResetAfter, 1);
    world.ask("r1", longest());
    let card = world.card(CHANNEL).await;
    let all = world.slack.messages(CHANNEL);
    assert!(all.len() > 5 && all.last().unwrap().ts == card.ts, "the texts first, then the form: {}", all.len());
    let shown = all.iter().map(Message::visible_text).collect::<String>();
    assert_eq!(shown.matches("· part 2 of").count(), 1, "a text whose reply was lost is not posted again");
    assert!(shown.contains("part 1 of") && shown.contains("10. 9 word"));
    // Only the last part is brought up to date, so only it says until when; and only it is answered.
    assert_eq!(shown.matches("answer until").count(), 1);
    assert_eq!(shown.matches("*research* asks · part").count(), all.len() - 1, "{shown}");
    world.slack.reply_in_thread(CHANNEL, &all[1].ts, ALICE, "the first one").unwrap();
    world.slack.reply_in_thread(CHANNEL, &all[1].ts, STRANGER, "which one?").unwrap();
    let hint = world.told(ALICE, "on the last part").await;
    assert_eq!(hint.thread_ts.as_deref(), Some(&*all[1].ts));
    assert!(world.slack.ephemerals(STRANGER).is_empty(), "people may talk about it");
    let fill = [("choice:0", chosen(&["9"])), ("choice:1", chosen(&["0", "9"]))];
    world.slack.submit(CHANNEL, &card.ts, &fill, "submit", ALICE).await.expect("sent");
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"].as_object().map(serde_json::Map::len), Some(2), "{response}");
    let closed = world.says(CHANNEL, &card.ts, "Answered:").await;
    assert!(closed.elements().is_empty());
    world.all_closed(SOON).await;
}

/// Without the scope for it, nobody can tell which of the texts are there.
#[tokio::test]
async fn a_question_of_many_messages_is_shown_though_the_history_cannot_be_read() {
    let world = in_slack(Mode::Http).sim(|sim| sim.pace = Duration::from_millis(100)).key("0s", "100ms").start().await;
    world.slack.faults().next("chat.postMessage", FaultKind::Error("internal_error".into()), 1);
    world.slack.faults().next("conversations.history", FaultKind::Error("missing_scope".into()), 1_000);
    world.ask("r1", longest());
    let card = world.card(CHANNEL).await;
    let fill = [("choice:0", chosen(&["9"]))];
    world.slack.submit(CHANNEL, &card.ts, &fill, "submit", ALICE).await.expect("sent");
    assert_eq!(world.response("r1").await["result"]["status"], "answered");
    world.all_closed(SOON).await;
}

/// A host without a clock of its own starts behind after a loss of power: the question seems to come from later than the start. A moment
/// later the clock may be set, and the question's times with it.
#[tokio::test]
async fn a_restart_with_the_clock_behind_posts_no_text_of_a_question_twice() {
    let Some([preload, real]) = faketime() else { return };
    for is_set in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let offset = dir.path().join("offset");
        std::fs::write(&offset, "-2h").unwrap();
        let mut world = in_slack(Mode::Socket).with_binary().key("0s", "100ms").start().await;
        world.ask("r1", longest());
        let texts = |world: &World| {
            let shown = world.slack.messages(CHANNEL).iter().map(Message::visible_text).collect::<String>();
            shown.matches("· part 1 of").count()
        };
        until("the first text", SOON, || (texts(&world) == 1).then_some(())).await;
        world.kill();
        let file = ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap());
        world.begin_with(&[preload, real, file, ("FAKETIME_NO_CACHE", "1"), ("NO_FAKE_STAT", "1")]).await;
        if is_set {
            let new = dir.path().join("new");
            std::fs::write(&new, "+0").unwrap();
            std::fs::rename(&new, &offset).unwrap();
        }
        world.card(CHANNEL).await;
        assert_eq!(texts(&world), 1, "set: {is_set}");
    }
}

/// A card of many messages takes longer than `renderTimeout` at Slack's pace: the clock of its display counts
/// from the last message that Slack took. Not with records in PostgreSQL: there the pace is kept by the server's clock, which no story moves.
#[tokio::test]
async fn a_card_of_many_messages_is_shown_however_long_its_posting_takes() {
    let world =
        in_slack(Mode::Http).sim(|sim| sim.pace = Duration::from_millis(1200)).key("0s", "1200ms").start().await;
    let mut request = longest();
    request["renderTimeout"] = json!(10_000);
    request["maxRetries"] = json!(0);
    world.ask("r1", request);
    let card = world.card(CHANNEL).await;
    let posted: Vec<Duration> =
        world.slack.calls().iter().filter(|call| call.method == "chat.postMessage").map(|call| call.at).collect();
    let took = posted.last().expect("posts").saturating_sub(posted[0]);
    assert!(took > Duration::from_secs(10), "posting it has to take longer than the render timeout: {took:?}");
    let shown = world.slack.messages(CHANNEL).iter().map(Message::visible_text).collect::<String>();
    assert_eq!(shown.matches("· part 1 of").count(), 1, "no second attempt");
    let fill = [("choice:0", chosen(&["9"]))];
    world.slack.submit(CHANNEL, &card.ts, &fill, "submit", ALICE).await.expect("sent");
    let response = world.response("r1").await;
    assert_eq!(response["result"]["status"], "answered");
    world.all_closed(SOON).await;
}

#[tokio::test]
async fn in_a_thread_only_what_is_later_than_the_card_answers_and_once() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["React", "Vue"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    let url = format!("{}/slack/events", world.url());
    let hear = async |ts: &str, text: &str| {
        let event =
            json!({"type": "message", "channel": CHANNEL, "user": ALICE, "text": text, "ts": ts, "thread_ts": card.ts});
        let payload = world.slack.event_payload(&event);
        let answer = world.slack.send_raw(Raw::event(&world.slack, &url, &payload)).await;
        assert_eq!(answer.status, Some(200));
    };
    for ts in ["1.000001", card.ts.as_str(), "soon", ""] {
        hear(ts, "React").await;
    }
    world.told(ALICE, said::FROM_BEFORE).await;
    assert!(
        world.slack.message(CHANNEL, &card.ts).unwrap().blocks.iter().any(|block| block["type"] == "actions"),
        "still open"
    );
    let (seconds, micros) = card.ts.split_once('.').unwrap();
    let later = format!("{}.{micros}", seconds.parse::<u64>().unwrap() + 1);
    hear(&later, "Vue").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "Vue");
    hear(&later, "Vue").await;
    assert!(
        !world.slack.ephemerals(ALICE).iter().any(|note| note.text.contains("already")),
        "a copy is no late answer"
    );
}
