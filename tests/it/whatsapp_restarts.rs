//! What a restart must not break on WhatsApp: the pair limit; that a question which never left is asked at once, and
//! once; and that no reply goes nowhere, whatever askd does not know yet.

use crate::harness::{SOON, World, choice};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, happens, on_whatsapp, sim};
use askd_sim::whatsapp::{Config, Fault, Ladder, Message, Sending, Stage, Whatsapp};
use serde_json::json;
use std::time::{Duration, Instant};

/// Longer than a debt of a few messages takes to be paid back, on a busy machine.
const PAID: Duration = Duration::from_secs(100);

/// A burst, a crash, a start with these variables, and one more question as soon as it may be asked.
async fn asked_after_a_burst(env: &[(&str, &str)]) -> World {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.chatters(ADA, 3).await;
    // Meta's credit is for 6 seconds; after that the whole debt has to be paid.
    let burst = Instant::now();
    happens("the credit to be over", || burst.elapsed() > Duration::from_millis(6_500)).await;
    world.kill();
    world.begin_with(env).await;
    world.ask("r2", choice("And now?", &["c", "d"]));
    world.shown_within(ADA, "And now?", PAID).await;
    world
}

#[tokio::test]
async fn a_restart_in_a_burst_keeps_the_pair_limit() {
    let world = asked_after_a_burst(&[]).await;
    world.kept_the_pace();
    let question = world.shown(ADA, "And now?").await;
    world.phone.person_quotes(ADA, &question.id, "1");
    assert_eq!(world.response("r2").await["result"]["answers"]["And now?"], "c");
}

/// A message that Meta was slow to take has used up the credit: the question stays in askd's own queue for longer than its render
/// timeout, which counts from when it leaves.
#[tokio::test]
async fn what_has_not_left_yet_has_not_failed_to_be_shown() {
    let world = on_whatsapp(Config { stall_ms: 5_000, ..sim() }, TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r0", choice("Before?", &["a"]));
    world.shown(ADA, "Before?").await;
    world.phone.fault(Fault::StallAfter, 1);
    world.phone.person_sends(ADA, &Sending::Sticker);
    let hint = || world.said_to(ADA).iter().any(|text| text.contains("I can only read text"));
    happens("the slow message", hint).await;
    let mut ask = choice("Which?", &["a", "b"]);
    (ask["maxRetries"], ask["renderTimeout"]) = (json!(0), json!(10_000));
    world.ask("r1", ask);
    let question = world.shown_within(ADA, "Which?", PAID).await;
    world.phone.person_quotes(ADA, &question.id, "2");
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    world.kept_the_pace();
}

#[tokio::test]
async fn a_forgotten_burst_is_noticed() {
    let world = asked_after_a_burst(&[("ASKD_SABOTAGE", "norates")]).await;
    assert!(!world.too_fast().is_empty(), "nobody noticed");
}

#[tokio::test]
async fn what_had_not_begun_to_leave_is_sent_at_once_and_once() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "[asks]\nrender_timeout = \"60s\"").await;
    world.writes(ADA, "hello").await;
    // Something leaves first, so that there is a memory of what left.
    world.ask("r0", choice("Before?", &["a"]));
    world.shown(ADA, "Before?").await;
    world.writes(ADA, "1").await;
    world.shown(ADA, "Answered: a by Ada").await;
    world.kill();
    world.begin_with(&[("ASKD_CRASH_AT", "post.before")]).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.ends().await;
    world.begin().await;
    let began = Instant::now();
    let question = world.shown(ADA, "Which?").await;
    assert!(began.elapsed() < Duration::from_secs(40), "it waited for word of what never left: {:?}", began.elapsed());
    assert!(!question.text.contains("(repeat)"), "{}", question.text);
    world.writes(ADA, "2").await;
    world.response("r1").await;
    assert_eq!(world.said_to(ADA).iter().filter(|text| text.contains("Which?")).count(), 1);
}

#[tokio::test]
async fn what_may_have_left_is_asked_again_only_without_word_of_it() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.kill();
    world.begin_with(&[("ASKD_CRASH_AT", "post.after")]).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.ends().await;
    // Its statuses come when the daemon listens again: they say that it is there.
    world.begin().await;
    world.quiet(1).await;
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    assert_eq!(world.said_to(ADA).iter().filter(|text| text.contains("Which?")).count(), 1);
}

/// Two questions are on the phone, and no reply and no status has told askd the ids of their messages.
async fn two_without_a_name() -> (World, Message) {
    let world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.phone.ladder(Ladder { told: false, ..Ladder::default() });
    world.phone.fault(Fault::ResetAfter, 2);
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    world.ask("r2", choice("And now?", &["c", "d"]));
    let second = world.shown(ADA, "And now?").await;
    (world, second)
}

/// The reply names a message that askd does not know yet: Meta has to send it again until the status tells its question.
#[tokio::test]
async fn a_quote_of_a_message_that_nothing_has_named_yet_waits_for_its_status() {
    let (world, second) = two_without_a_name().await;
    let said = world.phone.person_quotes(ADA, &second.id, "2").replace('/', "\\/");
    let refused = |sim: &Whatsapp| sim.webhooks().iter().any(|post| post.status == 503 && post.body.contains(&said));
    assert!(world.phone.wait_until(refused, SOON).await, "askd took a reply and did not know what it is about");
    world.phone.ladder(Ladder::default());
    assert!(world.phone.status(&second.id, Stage::Sent, None));
    assert_eq!(world.response("r2").await["result"]["answers"]["And now?"], "d");
    assert!(world.response_now("r1").is_none());
}

/// Without a status for a minute, askd asks which one.
#[tokio::test]
async fn a_quote_that_nothing_explains_is_asked_back() {
    let (world, second) = two_without_a_name().await;
    let minute_ago = second.at / 1000 - 61;
    let old = json!({"from": ADA, "id": "wamid.old", "timestamp": minute_ago.to_string(), "type": "text",
        "text": {"body": "2"}, "context": {"from": "1", "id": second.id}});
    assert_eq!(world.webhook(&old).await, 200);
    world.shown(ADA, "Which question do you mean").await;
    assert!(world.response_now("r1").is_none() && world.response_now("r2").is_none());
}

/// A reminder names its question after a restart, too, whether the reply to its call or its status told the id.
#[tokio::test]
async fn a_reply_to_a_reminder_reaches_its_question_after_a_plain_restart() {
    for told in ["by the reply", "by the status"] {
        let mut world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"30s\"").await;
        world.writes(ADA, "hello").await;
        world.ask("r1", choice("First?", &["a", "b"]));
        let first = world.shown(ADA, "First?").await;
        world.phone.fault(Fault::Code(131_000), 1);
        world.ask("r2", choice("Second?", &["c", "d"]));
        world.shown(ADA, "Second?").await;
        world.quiet(2).await;
        if told == "by the reply" {
            world.phone.ladder(Ladder { told: false, ..Ladder::default() });
        } else {
            world.phone.fault(Fault::TruncatedBody, 1);
        }
        let of_first = |m: &Message| m.stage.shown() && m.quotes.as_ref() == Some(&first.id);
        let reminder = || world.phone.messages_to(ADA).into_iter().find(of_first);
        let reminder = world.passes(SOON, "a reminder", reminder).await;
        if told == "by the status" {
            world.taken(&reminder.id).await;
        }
        assert_eq!(world.stop().await, Some(0));
        world.begin().await;
        world.phone.person_quotes(ADA, &reminder.id, "2");
        assert_eq!(world.response("r1").await["result"]["answers"]["First?"], "b", "{told}");
        assert!(world.response_now("r2").is_none(), "{told}");
    }
}

/// A reply that does not say which of two questions it means is acknowledged, and the daemon dies before WhatsApp lets it
/// ask back.
async fn asked_back_after_a_kill(env: &[(&str, &str)]) -> bool {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    for (id, text) in [("r1", "Which?"), ("r2", "And now?")] {
        world.ask(id, choice(text, &["a", "b"]));
        world.shown(ADA, text).await;
    }
    world.quiet(2).await;
    world.kill();
    world.begin_with(env).await;
    world.phone.account(Some(130_429));
    // Nobody reads and answers within the second in which it was sent.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.writes(ADA, "1").await;
    // Else a call that it had made before it died could be accepted after all.
    world.until("the refusal", || world.phone.calls().iter().any(|call| call.code == Some(130_429))).await;
    world.kill();
    world.phone.account(None);
    world.begin_with(env).await;
    let asked = |m: &Message| m.wa_id == ADA && m.text.contains("Which question do you mean");
    // With PostgreSQL the lease of the run that was killed lasts for 15 s.
    world.phone.wait_for_message(asked, Duration::from_secs(30)).await.is_some()
}

#[tokio::test]
async fn what_a_person_has_to_be_told_is_told_after_a_kill() {
    assert!(asked_back_after_a_kill(&[]).await);
}

#[tokio::test]
async fn forgetting_what_a_person_has_to_be_told_is_noticed() {
    assert!(!asked_back_after_a_kill(&[("ASKD_SABOTAGE", "forgetnotes")]).await, "nobody noticed");
}
