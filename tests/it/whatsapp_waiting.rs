//! Replies that only a status can place, while Meta's statuses are late or never come: such a reply reaches no other question, is
//! not lost, and nobody else waits for it.

use crate::harness::{SOON, World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, TO_BOTH, on_whatsapp, result, sim};
use crate::said;
use askd_sim::whatsapp::{Config, Ladder, Message, Stage, Traffic};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;

/// Longer than any reply waits for a status.
const TOO_LONG: Duration = Duration::from_secs(12);
/// As long as a webhook waits.
const A_MOMENT: Duration = Duration::from_secs(2);

fn confirm(question: &str) -> Value {
    json!({"questions": [{"question": question, "type": "confirm"}]})
}

/// Ada has written, and `Date` is so many seconds ahead. From now on Meta sends no status by itself.
async fn untold(ahead: i64, routes: &str, more: &str) -> World {
    let traffic = Traffic { lanes: 4, ..Traffic::default() };
    let world = on_whatsapp(Config { date_ahead_s: ahead, traffic, ..sim() }, routes, more).await;
    world.writes(ADA, "hello").await;
    world.phone.ladder(Ladder { told: false, ..Ladder::default() });
    world
}

/// Asks, and waits until the answer to the call is known. What is on the phone.
async fn asks(world: &World, id: &str, question: &str) -> Message {
    let left = || world.records().iter().filter(|(_, record)| record.contains("\"left\": {")).count();
    let before = left();
    world.ask(id, confirm(question));
    let message = world.shown(ADA, question).await;
    world.until("the answer to the call", || left() > before).await;
    message
}

/// Production's question is on the phone, and eight seconds later the test server's, of which Meta says nothing.
async fn a_second_question(ahead: i64) -> (World, Message) {
    let world = untold(ahead, TO_ADA, "").await;
    let production = asks(&world, "r1", "Delete the production database?").await;
    says(&world, &production);
    world.quiet(1).await;
    world.time_passes(Duration::from_secs(8)).await;
    let test = asks(&world, "r2", "Restart the test server?").await;
    (world, test)
}

/// Meta says what became of that message.
fn says(world: &World, message: &Message) {
    world.phone.ladder(Ladder::default());
    assert!(world.phone.status(&message.id, Stage::Sent, None));
    assert!(world.phone.status(&message.id, Stage::Delivered, None));
    world.phone.ladder(Ladder { told: false, ..Ladder::default() });
}

fn sent(message: &Message) -> i64 {
    message.reached(Stage::Sent).unwrap() / 1000
}

fn text(who: &str, id: &str, at: i64, text: &str) -> Value {
    json!({"from": who, "id": id, "timestamp": at.to_string(), "type": "text", "text": {"body": text}})
}

/// What askd answers to a webhook with these messages, while time passes.
async fn answers(world: &World, messages: &[Value]) -> u16 {
    let phone = &world.phone.config().phone_number_id;
    let value = json!({"messaging_product": "whatsapp", "metadata": {"phone_number_id": phone}, "messages": messages});
    let mut answer = pin!(world.webhook_of("messages", &value));
    loop {
        tokio::select! {
            biased;
            status = &mut answer => return status,
            () = world.step() => {}
        }
    }
}

async fn answer(world: &World, id: &str, question: &str) -> Value {
    world.response(id).await["result"]["answers"][question].clone()
}

fn was_told(world: &World, who: &str, text: &str) -> usize {
    world.said_to(who).iter().filter(|said| *said == text).count()
}

#[tokio::test]
async fn a_reply_reaches_no_other_question_if_no_status_comes() {
    for (ahead, later) in [(0, 1), (3, 4)] {
        let (world, test) = a_second_question(ahead).await;
        let yes = [text(ADA, "wamid.yes", sent(&test) + later, "yes")];
        assert_eq!(answers(&world, &yes).await, 503, "{ahead}");
        world.time_passes(TOO_LONG).await;
        assert_eq!(answers(&world, &yes).await, 200, "{ahead}");
        world.shown(ADA, "Which question do you mean?").await;
        assert!(world.response_now("r1").is_none() && world.response_now("r2").is_none(), "{ahead}");
    }
}

#[tokio::test]
async fn a_reply_to_a_question_that_has_ended_meanwhile_reaches_no_other_one() {
    for ahead in [0, 3, -3] {
        let (world, test) = a_second_question(ahead).await;
        let ended = world.answer(&world.open_of("r2"), &json!({"Restart the test server?": "No"}));
        assert_eq!(ended.0, 200);
        let yes = [text(ADA, "wamid.yes", sent(&test) + 1, "yes")];
        assert_eq!(answers(&world, &yes).await, 503, "{ahead}");
        world.shown(ADA, "Which question do you mean?").await;
        assert!(world.response_now("r1").is_none(), "{ahead}");
    }
}

/// The question reaches all through the chat, so Bob's first message of the day may be the answer.
#[tokio::test]
async fn a_reply_that_opens_the_window_waits_if_a_question_may_have_left() {
    for (ahead, ago, comes) in [(0, -1, true), (3, -1, true), (-3, 1, true), (3, -1, false)] {
        let world = untold(ahead, TO_BOTH, "").await;
        let question = asks(&world, "r1", "Delete?").await;
        let no = [text(BOB, "wamid.no", sent(&question) - ago, "no")];
        assert_eq!(answers(&world, &no).await, 503, "{ahead} {ago}");
        if comes {
            says(&world, &question);
        }
        if comes && ago < 0 {
            assert_eq!(answer(&world, "r1", "Delete?").await, "No", "{ahead}");
        } else {
            world.time_passes(TOO_LONG).await;
            assert_eq!(answers(&world, &no).await, 200);
            assert!(world.response_now("r1").is_none(), "{ahead} {ago}");
            if !comes {
                // The stand-in does not know that he wrote, and delivers nothing.
                world.until("him to be told", || was_told(&world, BOB, said::FROM_BEFORE) == 1).await;
            }
        }
    }
}

#[tokio::test]
async fn an_allow_waits_for_the_status_of_its_block() {
    for comes in [true, false] {
        let world = untold(3, TO_ADA, "[asks]\nmax_attempts = 1\n").await;
        let question = asks(&world, "r1", "Deploy now?").await;
        says(&world, &question);
        world.quiet(1).await;
        world.time_passes(Duration::from_secs(8)).await;
        world.phone.person_quotes(ADA, &question.id, "cancel");
        world.response("r1").await;
        world.time_passes(Duration::from_secs(8)).await;
        world.ask("r2", confirm("Deploy now?"));
        assert_eq!(result(&world.response("r2").await), ("blocked", "system"));
        let block = world.shown(ADA, "has asked this question 2 times").await;
        let is_out = || {
            world.records().iter().any(|(_, record)| record.contains("\"lifted\": null") && record.contains(&block.id))
        };
        world.until("the answer to the call", is_out).await;
        let allow = [text(ADA, "wamid.allow", sent(&block) + 1, "allow")];
        assert_eq!(answers(&world, &allow).await, 503);
        if comes {
            says(&world, &block);
            world.shown(ADA, "Allowed again by").await;
        } else {
            world.shown(ADA, said::FROM_BEFORE).await;
        }
    }
}

/// Meta may not send the webhook again before the question times out. What it does send again has been dealt with.
#[tokio::test]
async fn a_reply_is_dealt_with_when_its_status_comes_and_not_when_meta_sends_it_again() {
    let world = untold(0, TO_ADA, "").await;
    let two = json!({"questions": [{"question": "First?", "options": ["a", "b"]}, {"question": "Second?", "options": ["c", "d"]}]});
    world.ask("r1", two);
    let first = world.shown(ADA, "First?").await;
    let reply = [text(ADA, "wamid.first", sent(&first) + 1, "2")];
    assert_eq!(answers(&world, &reply).await, 503);
    world
        .until("the operator to be told", || {
            world.log().contains("a reply on WhatsApp waits: Meta has not yet sent the status of its question")
        })
        .await;
    says(&world, &first);
    let second = world.shown(ADA, "Second?").await;
    says(&world, &second);
    world.time_passes(A_MOMENT).await;
    assert_eq!(answers(&world, &reply).await, 200);
    world.writes(ADA, "1").await;
    let answers = world.response("r1").await["result"]["answers"].clone();
    assert_eq!(answers, json!({"First?": "b", "Second?": "c"}));
    assert_eq!(was_told(&world, ADA, said::FROM_BEFORE), 0, "{:#?}", world.said_to(ADA));
}

/// What she writes next does not overtake what waits.
#[tokio::test]
async fn the_replies_of_a_person_keep_their_order() {
    let world = untold(0, TO_ADA, "").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    assert_eq!(answers(&world, &[text(ADA, "wamid.1", sent(&question) + 1, "1")]).await, 503);
    assert_eq!(answers(&world, &[text(ADA, "wamid.2", sent(&question) + 7, "2")]).await, 503);
    says(&world, &question);
    assert_eq!(answer(&world, "r1", "Which?").await, "a");
}

#[tokio::test]
async fn one_persons_wait_holds_up_nobody_else() {
    let bobs = format!("[groups.bob]\nroutes = [{{ channel = \"whatsapp\", chat = \"{BOB}\" }}]\n");
    let world = untold(0, TO_ADA, &bobs).await;
    world.phone.ladder(Ladder::default());
    world.writes(BOB, "hello").await;
    world.ask_as("bob", "r1", confirm("Rotate?"));
    let rotate = world.shown(BOB, "Rotate?").await;
    world.until("proof", || world.open_of("r1")["render_confirmed"] == json!(true)).await;
    world.time_passes(Duration::from_secs(20)).await;
    world.phone.ladder(Ladder { told: false, ..Ladder::default() });
    let delete = asks(&world, "r1", "Delete?").await;
    let body = [text(ADA, "wamid.a", sent(&delete) + 1, "no"), text(BOB, "wamid.b", sent(&rotate) + 15, "no")];
    assert_eq!(answers(&world, &body).await, 503, "Ada's waits");
    let response = world.response_to("bob", "r1", SOON).await;
    assert_eq!(response["result"]["answers"]["Rotate?"], "No");
    assert!(world.response_now("r1").is_none());
    says(&world, &delete);
    assert_eq!(answer(&world, "r1", "Delete?").await, "No");
}
