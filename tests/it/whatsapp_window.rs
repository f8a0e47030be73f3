//! The 24-hour window: a template asks the person to write, the ask is held; without a template the next
//! route is used, or the agent is told at once. And what fails late.

use crate::harness::{SHORTEST, SOON, World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, binary_on_whatsapp, on_whatsapp, result, sim};
use askd_sim::whatsapp::{Config, Message, Stage, Template};
use serde_json::json;
use std::time::Duration;

/// On a busy machine, and sooner than what is only accepted would be given up.
const AT_ONCE: Duration = Duration::from_secs(25);
pub(crate) const TEMPLATE: &str = "template = \"agent_question\"\ntemplate_language = \"en_US\"";

pub(crate) fn with_template() -> Config {
    let template = Template {
        name: "agent_question".into(),
        language: "en_US".into(),
        body: "The agent \"{{1}}\" has a question for you. Reply to this message to see it.".into(),
        buttons: vec!["Show it".into()],
    };
    Config { templates: vec![template], ..sim() }
}

async fn invited(world: &World) -> Message {
    world.shown(ADA, "The agent \"research\" has a question for you.").await
}

#[tokio::test]
async fn silent_for_a_day_a_template_opens_the_chat_and_the_question_follows() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.ask("r2", choice("And what?", &["c", "d"]));
    let template = invited(&world).await;
    assert_eq!(template.kind, "template");
    assert!(world.phone.person_taps(&template, "Show it").is_some());
    let question = world.shown(ADA, "Which?").await;
    world.shown(ADA, "And what?").await;
    assert!(world.response_now("r1").is_none(), "the tap is not an answer");
    world.phone.person_quotes(ADA, &question.id, "2");
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    let templates = world.phone.messages_to(ADA).iter().filter(|message| message.kind == "template").count();
    assert_eq!(templates, 1, "one invitation is enough for all that waits");
}

/// The invitation asks nothing: a swipe on it is no answer to the question that is held back.
#[tokio::test]
async fn a_quote_of_the_invitation_opens_the_chat_and_answers_nothing() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.ask("r1", json!({"questions": [{"question": "Delete it?", "type": "confirm"}]}));
    let template = invited(&world).await;
    world.taken(&world.phone.person_quotes(ADA, &template.id, "yes")).await;
    let question = world.shown(ADA, "Delete it?").await;
    assert!(world.response_now("r1").is_none(), "nobody answers a question that was not shown");
    let sent = question.reached(Stage::Sent).unwrap() / 1000;
    world.phone.person_says_at(ADA, "no", sent + 1);
    assert_eq!(world.response("r1").await["result"]["answers"]["Delete it?"], "No");
}

/// Whoever replies to the invitation too late is told what it was about.
#[tokio::test]
async fn a_person_who_has_seen_only_the_invitation_is_told_what_was_asked_and_how_it_ended() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    invited(&world).await;
    assert_eq!(world.answer(&world.one_open(), &json!({"Which?": "a"})).0, 200);
    world.response("r1").await;
    world.writes(ADA, "show it").await;
    let told = world.shown(ADA, "Answered: a by ").await;
    assert!(told.text.starts_with("The question was: Which?\nAnswered: a by "), "{}", told.text);
}

/// An invitation that fails after it has done its work takes nothing back.
#[tokio::test]
async fn a_late_failure_of_the_invitation_leaves_a_question_that_is_shown_alone() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let template = invited(&world).await;
    world.phone.person_taps(&template, "Show it").unwrap();
    world.shown(ADA, "Which?").await;
    assert!(world.phone.status(&template.id, Stage::Failed, Some(131_026)));
    let failed = |post: &askd_sim::whatsapp::Posted| post.status == 200 && post.body.contains("131026");
    assert!(world.phone.wait_until(|sim| sim.webhooks().iter().any(failed), SOON).await);
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
}

/// An invitation that got no reply does not stand for a question that comes after the one it was sent for.
#[tokio::test]
async fn after_an_unanswered_invitation_the_next_question_invites_again() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    let mut first = choice("Which?", &["a", "b"]);
    first["timeoutMs"] = json!(10_000);
    world.ask("r1", first);
    invited(&world).await;
    world.time_passes(SHORTEST).await;
    assert_eq!(result(&world.response("r1").await).0, "undeliverable");
    world.ask("r2", choice("And now?", &["c", "d"]));
    let templates =
        || world.phone.messages_to(ADA).into_iter().filter(|m| m.stage.shown() && m.kind == "template").count();
    world.until("another invitation", || templates() == 2).await;
    world.writes(ADA, "yes?").await;
    world.shown(ADA, "And now?").await;
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r2").await["result"]["answers"]["And now?"], "c");
}

#[tokio::test]
async fn what_is_held_survives_a_restart_and_any_message_opens_it() {
    let mut world = binary_on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    invited(&world).await;
    let held = |world: &World| world.records().iter().any(|(_, record)| record.contains("\"name\": \"held\""));
    let started = std::time::Instant::now();
    while !held(&world) {
        assert!(started.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.restart().await;
    world.writes(ADA, "1").await;
    world.shown(ADA, "Which?").await;
    assert!(world.response_now("r1").is_none(), "nobody answers a question that was not shown");
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "a");
}

#[tokio::test]
async fn a_template_without_parameters_does_too() {
    let mut config = with_template();
    config.templates[0].body = "An agent has a question for you.".into();
    let world = on_whatsapp(config, TO_ADA, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(ADA, "An agent has a question for you.").await;
    world.writes(ADA, "yes?").await;
    world.shown(ADA, "Which?").await;
}

#[tokio::test]
async fn without_a_template_the_agent_is_told_at_once_or_the_next_route_is_used() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.ask("r1", choice("Which?", &["a"]));
    let response = world.response_within("r1", AT_ONCE).await;
    assert_eq!(result(&response), ("undeliverable", "system"));
    assert_eq!(response["error"], "Could not be shown: whatsapp: window closed");
    assert_eq!(response["result"]["cause"], "whatsapp: window closed");
    assert!(world.said_to(ADA).is_empty(), "nothing was sent that could not arrive");

    let routes = format!("{TO_ADA}, {{ channel = \"whatsapp\", chat = \"{BOB}\" }}");
    let world = on_whatsapp(sim(), &routes, "").await;
    world.writes(BOB, "hello").await;
    world.ask("r1", choice("Which?", &["a"]));
    world.shown(BOB, "Which?").await;
    world.writes(BOB, "1").await;
    assert_eq!(world.response("r1").await["result"]["answered_by"]["id"], BOB);
}

/// The next route is shown too; the question still follows as soon as the person writes.
#[tokio::test]
async fn what_is_held_is_shown_there_too_once_the_person_writes_after_the_next_route_was_used() {
    let routes = format!("{TO_ADA}, {{ channel = \"web\" }}");
    let world = on_whatsapp(with_template(), &routes, TEMPLATE).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    invited(&world).await;
    let in_the_inbox = || world.open().first().is_some_and(|ask| ask["channel"] == "web").then_some(());
    world.passes(Duration::from_secs(60), "the inbox to show it", in_the_inbox).await;
    world.writes(ADA, "hello").await;
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
}

#[tokio::test]
async fn a_late_131047_is_met_with_the_template_once() {
    let world = on_whatsapp(with_template(), TO_ADA, TEMPLATE).await;
    world.writes(ADA, "hello").await;
    // The platform's day is over; ours is not.
    world.phone.advance(Duration::from_secs(25 * 3600));
    world.ask("r1", choice("Which?", &["a", "b"]));
    let template = invited(&world).await;
    let failed = world.phone.messages_to(ADA).into_iter().find(|message| message.stage == Stage::Failed).unwrap();
    assert_eq!(failed.error, Some(131_047));
    for _ in 0..3 {
        world.phone.status(&failed.id, Stage::Failed, Some(131_047));
    }
    assert!(world.response_now("r1").is_none());
    world.phone.person_taps(&template, "Show it");
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    let sent: Vec<String> = world.phone.messages_to(ADA).into_iter().map(|message| message.kind).collect();
    assert_eq!(sent.iter().filter(|kind| *kind == "template").count(), 1, "{sent:?}");
}

#[tokio::test]
async fn a_late_131047_without_a_template_goes_to_the_next_route() {
    let routes = format!("{TO_ADA}, {{ channel = \"web\" }}");
    let world = on_whatsapp(sim(), &routes, "").await;
    world.writes(ADA, "hello").await;
    world.phone.advance(Duration::from_secs(25 * 3600));
    world.ask("r1", choice("Which?", &["a", "b"]));
    let on_the_web = async {
        loop {
            let open = world.open();
            if open.first().is_some_and(|ask| ask["channel"] == "web") {
                return open[0]["id"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let id = tokio::time::timeout(SOON, on_the_web).await.expect("the inbox shows it");
    let body = json!({"answers": {"Which?": "a"}});
    assert_eq!(world.call("POST", &format!("/asks/{id}/answer"), Some(&body)).0, 200);
    world.response("r1").await;
    assert_eq!(world.phone.messages_to(ADA).len(), 1, "sent once, and not closed where it was never seen");

    let alone = on_whatsapp(sim(), TO_ADA, "").await;
    alone.writes(ADA, "hello").await;
    alone.phone.advance(Duration::from_secs(25 * 3600));
    alone.ask("r1", choice("Which?", &["a"]));
    let response = alone.response_within("r1", AT_ONCE).await;
    assert_eq!(result(&response), ("undeliverable", "system"));
}

#[tokio::test]
async fn a_number_without_whatsapp_is_undeliverable() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.phone.reachable(ADA, false);
    world.ask("r1", choice("Which?", &["a"]));
    let response = world.response("r1").await;
    assert_eq!(response["error"], "Could not be shown: whatsapp: chat not found");
}

#[tokio::test]
async fn a_closing_line_waits_for_the_person_outside_the_window() {
    let routes = format!("{TO_ADA}, {{ channel = \"whatsapp\", chat = \"{BOB}\" }}");
    let world = on_whatsapp(with_template(), &routes, &format!("{TEMPLATE}\n[asks]\nrender_timeout = \"10s\"")).await;
    world.writes(BOB, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    invited(&world).await;
    world.shown(BOB, "Which?").await;
    world.writes(BOB, "1").await;
    world.response("r1").await;
    world.shown(BOB, "Answered: a by Bob").await;
    assert_eq!(world.phone.messages_to(ADA).len(), 1, "only the template");
    world.writes(ADA, "what is it?").await;
    world.shown(ADA, "Answered: a by Bob").await;
    let started = std::time::Instant::now();
    while !world.records().iter().all(|(path, _)| path.to_string_lossy().contains("/settled/")) {
        assert!(started.elapsed() < SOON, "every card is closed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
