//! Round trips on WhatsApp: asked by a file, shown on a phone, answered by what people write, read by the
//! agent.

use crate::harness::{SHORTEST, SOON, World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, binary_on_whatsapp, on_whatsapp, result, sim};
use askd_sim::whatsapp::{Config, Person};
use serde_json::{Value, json};

const QUESTION: &str = "Which auth strategy?";

fn auth() -> Value {
    choice(QUESTION, &["JWT tokens", "Session cookies", "OAuth 2.0"])
}

async fn world() -> World {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world
}

#[tokio::test]
async fn an_option_by_number_and_the_closing_line() {
    let world = world().await;
    world.ask("r1", auth());
    let question = world.shown(ADA, QUESTION).await;
    let block = "Agent: research\nThe agent is asking: Which auth strategy?\n1. JWT tokens\n2. Session cookies\n3. OAuth 2.0\n\n\
                 Reply with a number or type your own answer.\n\n";
    let until = question.text.strip_prefix(block).unwrap_or_else(|| panic!("{}", question.text));
    assert_eq!(until, "30 minutes left.");
    world.writes(ADA, "2").await;
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({QUESTION: "Session cookies"}));
    assert_eq!(response["result"]["answered_by"], json!({"channel": "whatsapp", "id": ADA, "name": "Ada"}));
    assert_eq!(response["result"]["renderConfirmed"], true);
    let closing = world.shown(ADA, "Answered: Session cookies by Ada").await;
    assert_eq!(closing.text, "Answered: Session cookies by Ada", "the receipt is one line");
    assert_eq!(closing.quotes.as_ref(), Some(&question.id));
    world.kept_the_pace();
}

#[tokio::test]
async fn by_quoted_reply_by_label_in_another_case_and_by_free_text() {
    let world = world().await;
    for (id, answer) in [("r1", "JWT tokens"), ("r2", "OAuth 2.0"), ("r3", "Passkeys, please")] {
        world.ask(id, choice(&format!("{QUESTION} {id}"), &["JWT tokens", "Session cookies", "OAuth 2.0"]));
        let question = world.shown(ADA, &format!("{QUESTION} {id}")).await;
        match id {
            "r1" => drop(world.phone.person_quotes(ADA, &question.id, "1")),
            "r2" => drop(world.phone.person_says(ADA, "oAUTH 2.0")),
            _ => drop(world.phone.person_says(ADA, answer)),
        }
        let response = world.response(id).await;
        assert_eq!(response["result"]["answers"][format!("{QUESTION} {id}")], json!(answer));
    }
    world.kept_the_pace();
}

#[tokio::test]
async fn several_options_in_every_spelling() {
    let world = world().await;
    for (n, said) in ["1,3", "1 3", "1 and 3"].iter().enumerate() {
        let (id, text) = (format!("r{n}"), format!("Targets {n}?"));
        world.ask(&id, json!({"questions": [{"question": text, "options": ["a", "b", "c"], "multiSelect": true}]}));
        world.shown(ADA, &text).await;
        world.writes(ADA, said).await;
        assert_eq!(world.response(&id).await["result"]["answers"][&text], json!(["a", "c"]), "{said}");
    }
    world.kept_the_pace();
}

/// What keeps words of the agent from being links or bold is no part of an answer that is copied from them.
#[tokio::test]
async fn words_copied_from_a_question_are_the_plain_words() {
    let world = world().await;
    let text = "Which registry: ghcr.io, https://npm.example.com or me@example.com?";
    world.ask("r1", json!({"questions": [{"question": text, "type": "text"}]}));
    let shown = world.shown(ADA, "Which registry").await.text;
    let (from, to) = (shown.find("ghcr").unwrap(), shown.rfind('?').unwrap());
    world.writes(ADA, &shown[from..to]).await;
    let answer = world.response("r1").await["result"]["answers"][text].clone();
    assert_eq!(answer, "ghcr.io, https://npm.example.com or me@example.com");
}

#[tokio::test]
async fn three_questions_in_a_row_with_a_restart_after_the_first_answer() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask(
        "r1",
        json!({"title": "Release", "questions": [
            {"question": "How?", "options": ["Canary", "At once"]},
            {"question": "Tell customers?", "type": "confirm"},
            {"question": "Anything else?", "required": false},
        ]}),
    );
    let first = world.shown(ADA, "Question 1 of 3").await;
    assert!(
        first.text.starts_with("Agent: research\nRelease\n\nQuestion 1 of 3\nThe agent is asking: How?"),
        "{}",
        first.text
    );
    let said = world.writes(ADA, "1").await;
    // `whatsapp_restarts` kills it while a question is being sent; here the next one is on its way at a plain restart.
    assert_eq!(world.stop().await, Some(0));
    world.begin().await;
    let second = world.shown(ADA, "Question 2 of 3").await;
    assert!(second.text.contains("Tell customers?\n1. Yes\n2. No\n\nReply with a number."), "{}", second.text);
    // What came before the restart.
    world.taken_again(&said).await;
    world.phone.person_quotes(ADA, &first.id, "2");
    world.shown(ADA, "has already been answered").await;
    // What is written in the second of the sending may be older than the question.
    world.time_passes(std::time::Duration::from_secs(2)).await;
    world.writes(ADA, "yes").await;
    let third = world.shown(ADA, "Question 3 of 3").await;
    assert!(third.text.contains("Reply with your answer. Reply 0 to skip.\n\n"));
    assert!(world.response_now("r1").is_none());
    world.time_passes(std::time::Duration::from_secs(2)).await;
    world.writes(ADA, "skip").await;
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answers"], json!({"How?": "Canary", "Tell customers?": "Yes"}));
    let closing = world.shown(ADA, "Answered: Canary; Yes by Ada").await;
    assert_eq!(closing.quotes.as_ref(), Some(&first.id), "a later question opens with a receipt");
    let asked = world.said_to(ADA).iter().filter(|text| text.contains("Question 2 of 3")).count();
    assert_eq!(asked, 1, "each question once: {:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn dismissal_withdrawal_and_timeout() {
    let world = world().await;
    world.ask("r1", auth());
    world.shown(ADA, QUESTION).await;
    world.writes(ADA, "Cancel").await;
    assert_eq!(result(&world.response("r1").await), ("cancelled", "user"));
    world.shown(ADA, "Cancelled").await;
    world.ask("r2", choice("Withdraw me?", &["a"]));
    world.shown(ADA, "Withdraw me?").await;
    world.group("research").cancel("r2");
    assert_eq!(result(&world.response("r2").await), ("cancelled", "system"));
    // On a slow machine her messages took longer than Meta's credit, which is paid back with 6 s for each of them.
    world.shown(ADA, "Cancelled").await;
    world.time_passes(std::time::Duration::from_secs(30)).await;
    let mut short = choice("In time?", &["a"]);
    short["timeoutMs"] = json!(10_000);
    world.ask("r3", short);
    let question = world.shown(ADA, "In time?").await;
    world.time_passes(SHORTEST).await;
    assert_eq!(result(&world.response("r3").await), ("timeout", "timeout"));
    world.shown(ADA, "Timed out").await;
    world.phone.person_quotes(ADA, &question.id, "1");
    world.shown(ADA, "This question has timed out").await;
}

#[tokio::test]
async fn people_without_a_number_are_known_by_their_other_id() {
    let hidden = Person::hidden(BOB, "Bob", "bob");
    let config = Config { people: vec![hidden.clone()], ..sim() };
    let route = format!("{{ channel = \"whatsapp\", chat = \"{}\" }}", hidden.user_id);
    let world = on_whatsapp(config, &route, "").await;
    world.writes(BOB, "hi").await;
    world.ask("r1", auth());
    let question = world.shown(BOB, QUESTION).await;
    assert!(question.by_user_id);
    world.writes(BOB, "3").await;
    let response = world.response("r1").await;
    assert_eq!(response["result"]["answered_by"]["id"], json!(hidden.user_id));
}

#[tokio::test]
async fn somebody_whose_number_gets_hidden_is_still_the_same_person() {
    let world = world().await;
    world.ask("r1", auth());
    world.shown(ADA, QUESTION).await;
    let statuses =
        |sim: &askd_sim::whatsapp::Whatsapp| sim.webhooks().iter().any(|post| post.body.contains("delivered"));
    assert!(world.phone.wait_until(statuses, SOON).await);
    world.phone.add_person(Person::hidden(ADA, "Ada", "ada"));
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r1").await["result"]["answers"][QUESTION], "JWT tokens");
}

#[tokio::test]
async fn two_open_asks_are_told_apart() {
    let world = world().await;
    world.ask("r1", choice("First thing?", &["a", "b"]));
    let first = world.shown(ADA, "First thing?").await;
    world.ask("r2", choice("Second thing?", &["c", "d"]));
    let second = world.shown(ADA, "Second thing?").await;
    let before = world.quiet(2).await;
    world.writes(ADA, "2").await;
    let which = world.shown(ADA, "Which question do you mean?").await;
    assert!(which.text.contains("First thing?") && which.text.contains("Second thing?"));
    assert!(before == world.records(), "a bare number consumes nothing");
    let code = |text: &str| {
        let line = which.text.lines().find(|line| line.contains(text)).unwrap();
        line.split(':').next().unwrap().to_owned()
    };
    assert!(second.text.contains(&code("Second thing?")), "the code stands in the question");
    world.writes(ADA, &format!("{} 2", code("Second thing?").to_uppercase())).await;
    assert_eq!(world.response("r2").await["result"]["answers"]["Second thing?"], "d");
    world.phone.person_quotes(ADA, &first.id, "1");
    assert_eq!(world.response("r1").await["result"]["answers"]["First thing?"], "a");
    world.writes(ADA, &format!("{} 1", code("Second thing?"))).await;
    world.shown(ADA, "Already answered").await;
}

#[tokio::test]
async fn what_is_long_arrives_whole() {
    let world = world().await;
    let words = |n: usize| (0..n).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    world.ask("r1", json!({"context": words(540), "questions": [{"question": words(550), "options": ["a", "b"]}]}));
    let last = world.shown(ADA, "Reply with a number").await;
    assert!(last.text.contains("1. a\n2. b"));
    world.phone.person_quotes(ADA, &world.phone.messages_to(ADA)[0].id, "2");
    let response = world.response("r1").await;
    assert_eq!(response["result"]["details"][0]["selected"], json!(["b"]));
    let said = world.said_to(ADA).join(" ");
    assert!((0..550).all(|n| said.contains(&format!("w{n} ")) || n == 549), "nothing is cut");
    world.kept_the_pace();
}

#[tokio::test]
async fn escalated_to_whatsapp_answered_anywhere_closed_everywhere() {
    let routes = format!("{{ channel = \"web\" }}, {TO_ADA}");
    let world = on_whatsapp(sim(), &routes, "[asks]\nescalate_after = \"2s\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", auth());
    world.shown(ADA, QUESTION).await;
    let open = world.open();
    let id = open[0]["id"].as_str().unwrap();
    let body = json!({"answers": {QUESTION: "OAuth 2.0"}});
    assert_eq!(world.call("POST", &format!("/asks/{id}/answer"), Some(&body)).0, 200);
    world.shown(ADA, "Answered: OAuth 2.0 by operator").await;
    world.ask("r2", choice("The other way?", &["x", "y"]));
    world.shown(ADA, "The other way?").await;
    world.writes(ADA, "1").await;
    assert_eq!(world.response("r2").await["result"]["answers"]["The other way?"], "x");
    assert!(world.open().is_empty());
}

#[tokio::test]
async fn a_phone_that_is_off_shows_the_next_route_too() {
    let routes = format!("{TO_ADA}, {{ channel = \"whatsapp\", chat = \"{BOB}\" }}");
    let world = on_whatsapp(sim(), &routes, "[asks]\nrender_timeout = \"10s\"").await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.phone.phone(ADA, false);
    world.ask("r1", auth());
    world.shown(BOB, QUESTION).await;
    world.writes(BOB, "2").await;
    assert_eq!(world.response("r1").await["result"]["answered_by"]["name"], "Bob");
    world.phone.phone(ADA, true);
    world.shown(ADA, "Answered: Session cookies by Bob").await;
}

#[tokio::test]
async fn a_question_of_two_days_says_until_when_by_the_clock_of_its_route() {
    let route = format!("{{ channel = \"whatsapp\", chat = \"{ADA}\", time_zone = \"Asia/Kolkata\" }}");
    let world = on_whatsapp(sim(), &route, "[asks]\ntimeout = \"48h\"").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", auth());
    let question = world.shown(ADA, QUESTION).await;
    let answer_by = || world.open_of("r1")["answer_by"].as_str().map(|text| text.parse::<jiff::Timestamp>().unwrap());
    world.until("its clock to start", || answer_by().is_some()).await;
    let until = answer_by().unwrap();
    // The text was written a moment before the clock started, which may have been another minute.
    let line =
        |at: jiff::Timestamp| at.in_tz("Asia/Kolkata").unwrap().strftime("\n\nAnswer by %a %-d %b, %H:%M.").to_string();
    let before = line(until - jiff::SignedDuration::from_secs(60));
    assert!([line(until), before].iter().any(|line| question.text.ends_with(line)), "{until}: {}", question.text);
}
