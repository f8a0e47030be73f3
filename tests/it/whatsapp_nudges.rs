//! What reminds people on WhatsApp of an open question, what does not, and until when they are told that
//! they can answer.

use crate::harness::{World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, TO_BOTH, on_whatsapp, result, sim};
use crate::said;
use askd_sim::whatsapp::{Sending, Stage, Whatsapp};
use serde_json::json;
use std::time::Duration;

const WAITS: &str = "Still open.";

fn reminders(sim: &Whatsapp) -> usize {
    sim.messages_to(ADA).iter().filter(|message| message.text.contains(WAITS)).count()
}

async fn reminded(world: &World, times: usize) {
    world.until("a reminder", || reminders(&world.phone) >= times).await;
}

/// What the audit log says of reminders.
fn of_reminders(world: &World) -> Vec<String> {
    let what = world.audit().into_iter().map(|line| line["what"].as_str().unwrap().to_owned());
    what.filter(|what| what.ends_with("reminded")).collect()
}

#[tokio::test]
async fn an_open_question_is_brought_to_mind_three_times_at_most() {
    let world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"1s\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    let nudge = world.shown(ADA, WAITS).await;
    assert_eq!(nudge.quotes.as_ref(), Some(&question.id), "it quotes the question");
    assert!(nudge.text.ends_with(" left."), "{}", nudge.text);
    reminded(&world, 3).await;
    world.until("that to be in the trail", || of_reminders(&world) == ["reminded"; 3]).await;
    // A reply to the reminder is a reply to the question.
    world.ask("r2", choice("Another one?", &["c", "d"]));
    world.shown(ADA, "Another one?").await;
    world.phone.person_quotes(ADA, &nudge.id, "2");
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    let of_r1 = |sim: &Whatsapp| {
        sim.messages_to(ADA)
            .iter()
            .filter(|m| m.text.contains(WAITS) && m.quotes.as_ref() == Some(&question.id))
            .count()
    };
    assert_eq!(of_r1(&world.phone), 3, "{:#?}", world.said_to(ADA));
    world.kept_the_pace();
}

#[tokio::test]
async fn a_reminder_is_of_the_question_that_is_next() {
    let world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"6s\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "First?"}, {"question": "Second?"}]}));
    world.shown(ADA, "First?").await;
    world.writes(ADA, "one").await;
    let second = world.shown(ADA, "Second?").await;
    let nudge = world.shown(ADA, WAITS).await;
    assert_eq!(nudge.quotes, Some(second.id));
}

/// Each of what they have to answer.
#[tokio::test]
async fn everyone_who_has_a_question_is_reminded_of_it() {
    let world = on_whatsapp(sim(), TO_BOTH, "[asks]\nremind_after = \"20s\"").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "First?"}, {"question": "Second?"}]}));
    let first = world.shown(ADA, "First?").await;
    world.quiet(1).await;
    world.phone.person_says_at(BOB, "mine", first.reached(Stage::Sent).unwrap() / 1000 + 1);
    let second = world.shown(BOB, "Second?").await;
    for (who, question) in [(BOB, second), (ADA, first)] {
        assert_eq!(world.shown(who, WAITS).await.quotes, Some(question.id), "{who}");
    }
    world.kept_the_pace();
}

#[tokio::test]
async fn nobody_is_reminded_outside_the_window() {
    let world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"12s\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    let sticker = world.phone.person_sends(ADA, &Sending::Sticker);
    world.taken(&sticker).await;
    let hint = world.shown(ADA, said::ONLY_TEXT).await;
    // Another message fails, because the chat is closed after all.
    world.phone.status(&hint.id, Stage::Failed, Some(131_047));
    world.until("the reminder to be left out", || world.log().contains("a reminder is left out")).await;
    assert_eq!(reminders(&world.phone), 0, "{:#?}", world.said_to(ADA));
    world.until("that to be in the trail", || of_reminders(&world) == ["not_reminded"]).await;
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b", "it stayed open");
}

#[tokio::test]
async fn nobody_is_reminded_of_what_is_not_displayed() {
    let world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"2s\"").await;
    world.writes(ADA, "hello").await;
    world.phone.phone(ADA, false);
    let mut off = choice("Phone off?", &["a"]);
    (off["timeoutMs"], off["renderTimeout"]) = (json!(25_000), json!(10_000));
    world.ask("r1", off);
    // Its clock runs from the acceptance, and so do the reminders.
    world.until("a reminder to be left out", || of_reminders(&world).contains(&"not_reminded".to_owned())).await;
    assert_eq!(result(&world.response("r1").await), ("timeout", "timeout"));
    world.phone.phone(ADA, true);
    world.shown(ADA, "Timed out").await;
    assert_eq!(reminders(&world.phone), 0, "a phone that was off has the question alone");
}

#[tokio::test]
async fn what_was_settled_while_it_waited_for_its_turn_is_not_brought_to_mind() {
    let world = on_whatsapp(sim(), TO_ADA, "[asks]\nremind_after = \"25s\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    // All this has to be paid back before the reminder can go: 42 seconds in all.
    world.chatters(ADA, 6).await;
    let is_due = || world.records().values().any(|record| record.contains("\"reminders\": 1"));
    world.until("a reminder to be due", is_due).await;
    assert_eq!(reminders(&world.phone), 0, "it waits for its turn");
    world.writes(ADA, "1").await;
    world.response("r1").await;
    // The closing line waits for its turn too, behind the reminder that is not sent any more.
    world.shown_within(ADA, "Answered: a by Ada", Duration::from_secs(150)).await;
    assert_eq!(reminders(&world.phone), 0, "{:#?}", world.said_to(ADA));
    world.kept_the_pace();
}
