//! What Meta does otherwise than most stories have it: statuses come seconds later, after replies, doubled and in any order;
//! the `Date` of an answer and the times of messages differ by seconds; people reply at once; numbers have no WhatsApp.

use crate::harness::{SOON, World, choice};
use crate::on_whatsapp::{ADA, BOB, TO_ADA, binary_on_whatsapp, happens, on_whatsapp, result, sim};
use crate::said;
use askd_sim::whatsapp::{Config, Fault, Ladder, Message, Person, Stage, Template, Traffic};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

const BEFORE: &str = said::FROM_BEFORE;
/// A person reads and writes no faster.
const A_SECOND: Duration = Duration::from_secs(1);
/// A number that nobody has.
const TYPO: &str = "15550003333";

/// Statuses come two and a half seconds after what they tell, and `Date` is so many seconds ahead.
async fn late(ahead: i64) -> World {
    let ladder = Ladder { told_after_ms: [2_500; 2], ..Ladder::default() };
    let traffic = Traffic { lanes: 4, ..Traffic::default() };
    let config = Config { date_ahead_s: ahead, ladder, traffic, stall_ms: 8_000, ..sim() };
    let world = binary_on_whatsapp(config, TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world
}

fn delete() -> Value {
    json!({"questions": [{"question": "Delete the production database?", "type": "confirm"}]})
}

/// When the platform sent it, in seconds.
fn sent(message: &Message) -> i64 {
    message.reached(Stage::Sent).unwrap() / 1000
}

#[tokio::test]
async fn a_quick_reply_counts_whatever_the_date_of_the_answer_says() {
    for ahead in [0, 3, -3] {
        let world = late(ahead).await;
        world.ask("r1", delete());
        world.shown(ADA, "Delete the production database?").await;
        tokio::time::sleep(A_SECOND).await;
        world.phone.person_says_now(ADA, "no");
        let answers = world.response("r1").await["result"]["answers"].clone();
        assert_eq!(answers["Delete the production database?"], "No", "{ahead}");
        world.shown(ADA, "Answered: No by Ada").await;
        assert!(!world.said_to(ADA).iter().any(|text| text == BEFORE), "{ahead}: {:#?}", world.said_to(ADA));
    }
}

#[tokio::test]
async fn what_was_written_before_answers_nothing_whatever_the_date_of_the_answer_says() {
    for ahead in [0, 3, -3] {
        let world = late(ahead).await;
        world.ask("r1", delete());
        let question = world.shown(ADA, "Delete the production database?").await;
        for ago in [1, 0] {
            world.taken(&world.phone.person_says_at(ADA, "yes", sent(&question) - ago)).await;
        }
        world.shown(ADA, BEFORE).await;
        assert!(world.response_now("r1").is_none(), "{ahead}");
        world.phone.person_says_now(ADA, "no");
        let answers = world.response("r1").await["result"]["answers"].clone();
        assert_eq!(answers["Delete the production database?"], "No", "{ahead}");
    }
}

#[tokio::test]
async fn trusting_the_date_of_the_answer_alone_is_noticed() {
    let mut world = late(-3).await;
    world.kill();
    world.begin_with(&[("ASKD_SABOTAGE", "datealone")]).await;
    world.ask("r1", delete());
    let question = world.shown(ADA, "Delete the production database?").await;
    let answered = || world.records().iter().any(|(_, record)| record.contains("\"left\": {"));
    happens("the answer to the call", answered).await;
    world.phone.person_says_at(ADA, "yes", sent(&question) - 1);
    let answers = world.response("r1").await["result"]["answers"].clone();
    assert_eq!(answers["Delete the production database?"], "Yes", "the other stories would notice");
}

/// Both questions are on the phone. askd knows of the second one only what its call said, if anything.
#[tokio::test]
async fn a_reply_to_a_question_without_a_status_is_not_taken_for_one_to_another_question() {
    for (ahead, fault) in [(0, None), (3, None), (0, Some(Fault::StallAfter))] {
        let world = late(ahead).await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        world.shown(ADA, "Which?").await;
        world.quiet(1).await;
        if let Some(fault) = fault {
            world.phone.fault(fault, 1);
        }
        world.ask("r2", delete());
        world.shown(ADA, "Delete the production database?").await;
        tokio::time::sleep(A_SECOND).await;
        world.phone.person_says_now(ADA, "2");
        world.shown(ADA, "Which question do you mean?").await;
        assert!(world.response_now("r1").is_none() && world.response_now("r2").is_none(), "{ahead} {fault:?}");
    }
}

/// A `1` from before the request to confirm is no confirmation of it, and one after it is.
#[tokio::test]
async fn what_was_written_before_a_request_to_confirm_confirms_nothing() {
    let world = late(-3).await;
    world.phone.phone(ADA, false);
    world.ask("r1", delete());
    let there = |m: &Message| m.stage == Stage::Sent && m.text.contains("Delete the production database?");
    assert!(world.phone.wait_for_message(there, SOON).await.is_some());
    // The status has come, and the phone is on forty seconds later by the platform's clock.
    tokio::time::sleep(3 * A_SECOND).await;
    world.phone.advance(Duration::from_secs(40));
    world.phone.phone(ADA, true);
    world.shown(ADA, "Delete the production database?").await;
    world.quiet(1).await;
    world.phone.person_says_now(ADA, "no");
    let request = world.shown(ADA, "Did you mean this for").await;
    world.taken(&world.phone.person_says_at(ADA, "1", sent(&request) - 1)).await;
    let again = world.shown(ADA, "You wrote \"no\". Did you mean this for").await;
    assert!(world.response_now("r1").is_none());
    tokio::time::sleep(A_SECOND).await;
    world.phone.person_quotes(ADA, &again.id, "1");
    let answers = world.response("r1").await["result"]["answers"].clone();
    assert_eq!(answers["Delete the production database?"], "No");
}

/// Everything that Meta does not promise at once. Whoever replies is heard, and told once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_that_come_late_twice_and_in_any_order_change_nothing() {
    let people: Vec<Person> = (0..8).map(|n| Person::new(&format!("1666000{n:04}"), &format!("P{n}"))).collect();
    let mut groups = String::new();
    for (n, Person { wa_id, .. }) in people.iter().enumerate() {
        writeln!(groups, "[groups.p{n}]\nroutes = [{{ channel = \"whatsapp\", chat = \"{wa_id}\" }}]").unwrap();
    }
    let ladder = Ladder { told_after_ms: [0, 6_000], read_ms: Some(300), ..Ladder::default() };
    let traffic = Traffic { gather_ms: 50, batch: 3, shuffle: true, duplicate: 0.5, lanes: 4, ..Traffic::default() };
    let config = Config { people: people.clone(), ladder, traffic, date_ahead_s: 2, ..Config::default() };
    let world = binary_on_whatsapp(config, "{ channel = \"web\" }", &groups).await;
    for person in &people {
        world.writes(&person.wa_id, "hello").await;
    }
    for round in 0..3 {
        let text = |n: usize| format!("Which {round} of {n}?");
        for n in 0..people.len() {
            world.ask_as(&format!("p{n}"), &format!("r{round}"), choice(&text(n), &["a", "b", "c"]));
        }
        for (n, person) in people.iter().enumerate() {
            world.shown(&person.wa_id, &text(n)).await;
        }
        tokio::time::sleep(A_SECOND).await;
        for (n, person) in people.iter().enumerate() {
            world.phone.person_says_now(&person.wa_id, &(n % 3 + 1).to_string());
        }
        for n in 0..people.len() {
            let response = world.response_to(&format!("p{n}"), &format!("r{round}"), SOON).await;
            assert_eq!(response["result"]["answers"][text(n)], ["a", "b", "c"][n % 3], "{response}");
        }
    }
    world.all_closed(SOON).await;
    for person in &people {
        let told = world.said_to(&person.wa_id);
        let count = |says: &str| told.iter().filter(|text| text.contains(says)).count();
        assert_eq!((count("Which "), count("Answered: "), told.len()), (3, 3, 6), "{told:#?}");
    }
    world.kept_the_pace();
}

fn with_template() -> Config {
    let template = Template {
        name: "agent_question".to_owned(),
        language: "en".to_owned(),
        body: "The agent \"{{1}}\" has a question for you. Reply to this message to see it.".to_owned(),
        buttons: Vec::new(),
    };
    Config { templates: vec![template], only_known: true, ..sim() }
}

const TEMPLATE: &str = "template = \"agent_question\"";

/// A number with a slip of the finger: Meta takes the template and says only later that nobody has that number.
#[tokio::test]
async fn a_number_without_whatsapp_goes_on_to_the_next_route_or_tells_the_agent() {
    let typo = format!("{{ channel = \"whatsapp\", chat = \"{TYPO}\" }}");
    for next in [true, false] {
        let ladder = Ladder { failed_ms: 3_000, ..Ladder::default() };
        let routes = if next { format!("{typo}, {TO_ADA}") } else { typo.clone() };
        let world = binary_on_whatsapp(Config { ladder, ..with_template() }, &routes, TEMPLATE).await;
        world.writes(ADA, "hello").await;
        world.ask("r1", choice("Which?", &["a", "b"]));
        if next {
            world.shown(ADA, "Which?").await;
            tokio::time::sleep(A_SECOND).await;
            world.phone.person_says_now(ADA, "2");
            assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
        } else {
            let response = world.response("r1").await;
            assert_eq!(
                (result(&response).0, &response["result"]["cause"]),
                ("undeliverable", &json!("whatsapp: chat not found"))
            );
        }
        let log = world.log();
        assert!(log.contains("(131026)") && log.contains("check the number of the route"), "{log}");
    }
}

/// A test number writes only to the numbers on its list, and says so at once.
#[tokio::test]
async fn a_number_that_is_not_on_a_test_numbers_list_goes_on_to_the_next_route_at_once() {
    let config = Config { allowed: Some(vec![BOB.to_owned()]), ..with_template() };
    let routes = format!("{TO_ADA}, {{ channel = \"whatsapp\", chat = \"{BOB}\" }}");
    let world = binary_on_whatsapp(config, &routes, TEMPLATE).await;
    world.writes(ADA, "hello").await;
    world.writes(BOB, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.shown(BOB, "Which?").await;
    assert_eq!(world.said_to(ADA), Vec::<String>::new());
    let refused = world.phone.calls().iter().filter(|call| call.code == Some(131_030)).count();
    assert_eq!(refused, 1, "it is not tried again");
    assert!(world.log().contains("the number is not in the test number's list of recipients"), "{}", world.log());
}

/// The phone's account was deleted after its owner wrote. That comes when the question counts as asked already.
#[tokio::test]
async fn a_failure_that_comes_after_the_clock_has_started_ends_the_question() {
    let ladder = Ladder { failed_ms: 13_000, ..Ladder::default() };
    let world = binary_on_whatsapp(Config { ladder, ..sim() }, TO_ADA, "[asks]\nrender_timeout = \"10s\"").await;
    world.writes(ADA, "hello").await;
    world.phone.reachable(ADA, false);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let response = world.response("r1").await;
    assert_eq!(
        (result(&response).0, &response["result"]["cause"]),
        ("undeliverable", &json!("whatsapp: chat not found"))
    );
    assert!(world.open().is_empty());
}

async fn nth_of_second(world: &World, nth: usize) -> Message {
    let all = || world.phone.messages_to(ADA).into_iter().filter(|message| message.text.contains("Second?"));
    world.passes(SOON, "the second question", || all().nth(nth - 1)).await
}

/// What was taken and could not be delivered for now is asked again, as often as the agent wants it to be.
#[tokio::test]
async fn a_question_that_fails_for_now_after_it_was_taken_is_asked_again_and_keeps_its_answers() {
    let ladder = Ladder { delivered_ms: None, ..Ladder::default() };
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    let mut both = choice("First?", &["a", "b"]);
    both["questions"].as_array_mut().unwrap().push(json!({"question": "Second?", "options": ["c", "d"]}));
    both["maxRetries"] = json!(1);
    world.ask("r1", both);
    world.shown(ADA, "First?").await;
    world.phone.ladder(ladder);
    world.writes(ADA, "1").await;
    let first = nth_of_second(&world, 1).await;
    world.phone.status(&first.id, Stage::Failed, Some(130_429));
    let again = nth_of_second(&world, 2).await;
    world.phone.status(&again.id, Stage::Delivered, None);
    world.writes(ADA, "2").await;
    let answers = &world.response("r1").await["result"]["answers"];
    assert_eq!(answers, &json!({"First?": "a", "Second?": "d"}));
}
