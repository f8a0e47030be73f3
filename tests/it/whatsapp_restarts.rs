//! What a restart must not break on WhatsApp: the pair limit, and that a question which never left is asked
//! at once, and once.

use crate::harness::{World, choice};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, happens, sim};
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
