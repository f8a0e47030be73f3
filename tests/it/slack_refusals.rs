//! What is refused changes nothing, and whoever can be told is told why, privately.

use crate::harness::{SOON, World, choice};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, STRANGER, client, in_slack, write};
use askd_sim::slack::{Raw, RawAnswer, Slack};
use serde_json::{Value, json};

async fn asked(mode: Mode) -> (World, askd_sim::slack::Message) {
    let world = in_slack(mode).with_binary().start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    settled_down(&world, &card.ts).await;
    (world, card)
}

/// Waits until the card is stored, so that the store can be compared.
async fn settled_down(world: &World, ts: &str) {
    world.stored(ts).await;
}

fn click(world: &World, ts: &str, user: &str) -> Value {
    world.slack.payload_of_click(CHANNEL, ts, "pick:0:0", user).expect("a payload")
}

/// Changes a payload that was genuine.
type Forge = fn(&mut Value);

async fn send(slack: &Slack, raw: Raw) -> RawAnswer {
    slack.send_raw(raw).await
}

#[tokio::test]
async fn what_is_not_signed_by_slack_now_gets_nowhere() {
    let (world, card) = asked(Mode::Http).await;
    let before = world.store();
    let url = format!("{}/slack/interactions", world.url());
    let honest = Raw::interaction(&world.slack, &url, &click(&world, &card.ts, ALICE));
    let mut flipped = honest.clone();
    *flipped.body.last_mut().unwrap() ^= 1;
    let signed = askd_sim::slack::sign(&world.slack.config().signing_secret, 1, &honest.body);
    for (what, raw) in [
        ("another secret", Raw { secret: Some("another".into()), ..honest.clone() }),
        ("no signature", Raw { secret: None, ..honest.clone() }),
        ("nonsense", Raw { signature: Some("v0=00".into()), ..honest.clone() }),
        ("another version", Raw { signature: Some(signed.replace("v0=", "v1=")), ..honest.clone() }),
        ("a changed body", Raw { signature: Some(signed.clone()), ..flipped }),
        ("too old", Raw { skew: -301, ..honest.clone() }),
        ("from the future", Raw { skew: 302, ..honest.clone() }),
    ] {
        assert_eq!(send(&world.slack, raw.clone()).await.status, Some(401), "{what}");
        let events = Raw { url: format!("{}/slack/events", world.url()), ..raw };
        assert_eq!(send(&world.slack, events).await.status, Some(401), "{what}, as an event");
    }
    assert_eq!(world.store(), before);
    assert!(world.slack.ephemerals(ALICE).is_empty());
    let got = client().get(&url).send().await.unwrap().status();
    assert_eq!(got.as_u16(), 405);
    assert_eq!(send(&world.slack, honest).await, RawAnswer { status: Some(200), body: String::new() });
    assert_eq!(world.response("r1").await["result"]["status"], "answered");
}

/// While a slow disk stores the first click, the others wait on connections of their own. The disk is that of the journal, which records
/// in PostgreSQL do not have.
#[tokio::test]
async fn a_burst_of_clicks_on_many_connections_is_turned_away_nowhere() {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    let slow = world.dir.path().join("slow");
    world.set_env("ASKD_SLOW_CALL", slow.to_str().unwrap());
    world.begin().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    settled_down(&world, &card.ts).await;
    write(&slow, b"fsync@journal:500");
    let url = format!("{}/slack/interactions", world.url());
    let clicks = (0..256).map(|n| {
        let mut payload = click(&world, &card.ts, ALICE);
        payload["trigger_id"] = json!(format!("click {n}"));
        world.slack.send_raw(Raw::interaction(&world.slack, &url, &payload))
    });
    for answer in futures_util::future::join_all(clicks).await {
        assert_eq!(answer, RawAnswer { status: Some(200), body: String::new() }, "{}", world.log());
    }
    assert_eq!(world.response("r1").await["result"]["status"], "answered");
}

#[tokio::test]
async fn a_body_over_the_limit_is_stopped_before_it_is_kept() {
    let (world, _) = asked(Mode::Http).await;
    let before = world.store();
    let pid = world.pid();
    let url = format!("{}/slack/interactions", world.url());
    let large = Raw::new(&world.slack, &url, "application/x-www-form-urlencoded", vec![b'x'; 64 << 20]);
    let memory = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        peak.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let at_first = memory();
    for chunks in [None, Some(64 * 1024)] {
        let status = send(&world.slack, Raw { chunks, ..large.clone() }).await.status;
        assert!(matches!(status, Some(413) | None), "{status:?}: refused, or cut off while it was sent");
    }
    assert!(memory() < at_first + 16 * 1024, "{} KiB at first, {} KiB at most", at_first, memory());
    assert_eq!(world.store(), before);
}

#[tokio::test]
async fn strangers_other_teams_and_other_channels_are_told_and_change_nothing() {
    for mode in [Mode::Http, Mode::Socket] {
        let (world, card) = asked(mode).await;
        let before = world.store();
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", STRANGER).await.expect("sent");
        let note = world.told(STRANGER, "this id: U0STRANGER").await;
        assert!(note.text.contains("not on the list"), "{}", note.text);
        let forged: [(&str, Forge); 5] = [
            ("workspace", |payload| payload["team"]["id"] = json!("T0OTHER")),
            ("belongs to another channel", |payload| payload["container"]["channel_id"] = json!("C0RESEARCH")),
            ("Choose from", |payload| {
                payload["actions"][0]["value"] = json!("7");
                payload["actions"][0]["action_id"] = json!("pick:0:7");
            }),
            ("Choose from", |payload| payload["actions"][0]["value"] = json!("Vue")),
            ("no longer active", |payload| {
                let other =
                    payload["actions"][0]["block_id"].as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "0");
                payload["actions"][0]["block_id"] = json!(other.replace("q0:0", "q0:1"));
            }),
        ];
        for (told, forge) in forged {
            let mut payload = click(&world, &card.ts, BOB);
            forge(&mut payload);
            deliver(&world, mode, &payload).await;
            world.told(BOB, told).await;
            assert_eq!(world.store(), before, "{told}");
        }
        assert!(world.log().contains("Answer for unknown question"));
        assert!(world.response_now("r1").is_none());
        let refused = world.audit().into_iter().filter(|line| line["what"] == "refused");
        let reasons: Vec<Value> = refused.map(|line| line["reason"].clone()).collect();
        assert_eq!(reasons, ["not_responder", "other_team", "other_chat", "not_offered", "not_offered"]);
    }
}

async fn deliver(world: &World, mode: Mode, payload: &Value) {
    if mode == Mode::Socket {
        assert!(world.slack.send_over_socket(payload).await, "acknowledged: {payload}");
    } else {
        let raw = Raw::interaction(&world.slack, &format!("{}/slack/interactions", world.url()), payload);
        assert_eq!(send(&world.slack, raw).await.status, Some(200), "{payload}");
    }
}

#[tokio::test]
async fn a_button_of_another_ask_answers_neither() {
    let (world, first) = asked(Mode::Http).await;
    world.ask("r2", choice("Other?", &["c", "d"]));
    let second =
        world.slack.wait_for(SOON, || world.live(CHANNEL).into_iter().find(|live| live.ts != first.ts)).await.unwrap();
    settled_down(&world, &second.ts).await;
    let before = world.store();
    let mut payload = click(&world, &first.ts, ALICE);
    payload["actions"] = click(&world, &second.ts, ALICE)["actions"].clone();
    deliver(&world, Mode::Http, &payload).await;
    world.told(ALICE, "no longer active").await;
    assert_eq!(world.store(), before);
}

#[tokio::test]
async fn what_is_not_understood_is_taken_and_ignored() {
    for mode in [Mode::Http, Mode::Socket] {
        let (world, card) = asked(mode).await;
        let before = world.store();
        let mut odd = click(&world, &card.ts, ALICE);
        odd["actions"] = json!([]);
        for payload in [
            json!({"type": "workflow_step_edit"}),
            json!({"type": "view_submission", "view": {}, "user": {"id": ALICE}}),
            json!({"type": 7}),
            json!([]),
            json!({"type": "block_actions"}),
            odd,
        ] {
            deliver(&world, mode, &payload).await;
        }
        if mode == Mode::Http {
            let url = format!("{}/slack/interactions", world.url());
            for body in ["", "payload=", "payload={", "x=y", "\u{0}"] {
                let raw = Raw::new(&world.slack, &url, "application/x-www-form-urlencoded", body.as_bytes().to_vec());
                assert_eq!(send(&world.slack, raw).await.status, Some(200), "{body:?}");
            }
        }
        assert_eq!(world.store(), before);
        world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.expect("sent");
        world.response("r1").await;
    }
}

#[tokio::test]
async fn an_org_wide_install_is_judged_by_the_user_s_team() {
    for mode in [Mode::Http, Mode::Socket] {
        let world = in_slack(mode)
            .sim(|sim| sim.enterprise_install = Some("E0ASKD".into()))
            .group("\"U0BOB\"", "\"U0BOB\", \"U0STRANGER\"")
            .key("bot_token", "team_ids = [\"T0ASKD\"]\nbot_token")
            .start()
            .await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        let card = world.card(CHANNEL).await;
        settled_down(&world, &card.ts).await;
        let before = world.store();
        world.slack.click(CHANNEL, &card.ts, "pick:0:0", STRANGER).await.expect("sent");
        world.told(STRANGER, "workspace").await;
        assert_eq!(world.store(), before, "of another team, though named");
        let delivery = world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        assert!(delivery.payload["team"].is_null());
        assert_eq!(world.response("r1").await["result"]["answered_by"]["id"], ALICE);
    }
}

#[tokio::test]
async fn with_anyone_that_is_anyone_of_the_team() {
    let groups =
        format!("[defaults]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = \"anyone\" }}]\n");
    let world = in_slack(Mode::Http).groups(&groups).start().await;
    world.ask_as("new", "r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", STRANGER).await.expect("sent");
    world.told(STRANGER, "workspace").await;
    // Slack names the author's team in more than one way.
    world.slack.reply_in_thread(CHANNEL, &card.ts, STRANGER, "1").expect("sent");
    let refused = || (world.slack.ephemerals(STRANGER).len() == 2).then_some(());
    world.passes(SOON, "the words to be refused, too", refused).await;
    // Who cannot answer is not told how.
    let talk = |user| world.slack.reply_in_thread(CHANNEL, &card.ts, user, "hm").expect("sent").ts;
    let (theirs, ours) = (talk(STRANGER), talk(BOB));
    world.told(BOB, "not one of the options").await;
    for ts in [theirs, ours] {
        world.slack.edit(CHANNEL, &ts, "b").expect("edited");
    }
    world.told(BOB, "Edits are not read").await;
    assert_eq!(world.slack.ephemerals(STRANGER).len(), 2);
    assert!(world.group("new").response("r1").is_none());
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", BOB).await.expect("sent");
    assert_eq!(world.response_to("new", "r1", SOON).await["result"]["answered_by"]["id"], BOB);
}

#[tokio::test]
async fn late_clicks_are_told_what_happened_and_copies_are_not() {
    for mode in [Mode::Http, Mode::Socket] {
        let (world, card) = asked(mode).await;
        let (mine, late) = (click(&world, &card.ts, ALICE), click(&world, &card.ts, BOB));
        let again = click(&world, &card.ts, ALICE);
        let other = world.slack.payload_of_click(CHANNEL, &card.ts, "other:0", BOB).expect("a payload");
        deliver(&world, mode, &mine).await;
        world.response("r1").await;
        world.says(CHANNEL, &card.ts, "Answered: a").await;
        world.all_closed(SOON).await;
        let before = world.store();
        for _ in 0..10 {
            deliver(&world, mode, &mine).await;
        }
        deliver(&world, mode, &late).await;
        let note = world.told(BOB, "Already answered").await;
        assert!(note.text.contains("Already answered \"a\" by alice in Slack."), "{}", note.text);
        deliver(&world, mode, &other).await;
        let notes = || (world.slack.ephemerals(BOB).len() == 2).then(|| world.slack.ephemerals(BOB).remove(1));
        let note = world.passes(SOON, "who wanted to type to be told", notes).await;
        assert_eq!(note.text, "Already answered \"a\" by alice in Slack.", "Bob gave no answer");
        assert!(world.slack.ephemerals(ALICE).is_empty(), "a copy is no late answer");
        deliver(&world, mode, &again).await;
        // Whatever was to be said to her would have been said before this.
        world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "b").expect("sent");
        world.told(ALICE, "Already answered").await;
        assert_eq!(world.slack.ephemerals(ALICE).len(), 1, "the same answer once more was used");
        assert_eq!(world.store(), before);
    }
}

/// As under a card of another daemon's with the same app, or one from before the data folder was lost.
#[tokio::test]
async fn words_under_an_open_card_of_an_ask_that_is_not_known_get_a_note() {
    let mut world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    settled_down(&world, &card.ts).await;
    world.stop().await;
    world.without_records();
    world.begin().await;
    world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "a").expect("sent");
    world.told(ALICE, "no longer active").await;
}

#[tokio::test]
async fn a_click_that_was_lost_works_the_second_time() {
    let (world, card) = asked(Mode::Http).await;
    world.slack.faults().next(askd_sim::slack::INTERACTIONS, askd_sim::slack::FaultKind::Lost, 1);
    assert!(!world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent").acknowledged);
    world.slack.faults().next(askd_sim::slack::INTERACTIONS, askd_sim::slack::FaultKind::Duplicate, 1);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    world.says(CHANNEL, &card.ts, "Answered: a").await;
    assert!(world.slack.ephemerals(ALICE).is_empty());
}

#[tokio::test]
async fn webhooks_alone_can_be_published() {
    let port = crate::ports::free_port();
    let world = in_slack(Mode::Http).webhooks_at(port).start().await;
    assert!(world.log().contains("Slack has checked the address for events"), "for people who press Retry there");
    let status = |url: String| async move { client().get(url).send().await.unwrap().status().as_u16() };
    assert_eq!(status(format!("http://127.0.0.1:{port}/")).await, 404, "no inbox there");
    assert_eq!(status(format!("http://127.0.0.1:{port}/api/v1/asks")).await, 404);
    assert_eq!(status(format!("http://127.0.0.1:{port}/healthz")).await, 200);
    assert_eq!(status(format!("{}/slack/events", world.url())).await, 404, "and no webhooks beside the inbox");
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
}
