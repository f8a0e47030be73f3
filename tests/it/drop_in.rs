//! Clients that know the files and nothing else: `type`, `request_id`, `questions`; no sign of life, no watch.

use crate::harness::{SOON, World, within};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

#[test]
fn a_client_that_looks_every_30_s_gets_its_answer() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    assert!(agent.response("r1").is_none(), "its first look");
    let ask = world.open_of("r1");
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    let written = agent.wait("r1");
    for _ in 0..30 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(agent.take("r1"), written, "its second look: as it was written");
    // What was taken is not written again, by itself or by what happens to others.
    agent.ask_framework("r2");
    assert_eq!(world.answer(&world.open_of("r2"), &json!({"r2_0": "React"})).0, 200);
    agent.take("r2");
    world.all_done("g");
    agent.responses_are(&[]);
    agent.tasks_gone();
}

#[test]
fn a_client_that_reads_and_deletes_at_once_gets_each_answer_once_and_whole() {
    const ASKS: usize = 100;
    let world = World::empty().config("[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000\n").started();
    let agent = world.group("g");
    let ids: Vec<String> = (0..ASKS).map(|number| format!("r{number}")).collect();
    for id in &ids {
        agent.ask_framework(id);
    }
    let asks = within(SOON, "all asks", || Some(world.open()).filter(|asks| asks.len() == ASKS));
    let taken = std::thread::scope(|scope| {
        // Looks without a pause, and takes whatever is there in the moment it is there.
        let client = scope.spawn(|| {
            let mut taken: Vec<(String, Value)> = Vec::new();
            within(SOON * 2, "all answers", || {
                for id in &ids {
                    if let Some(response) = agent.response(id) {
                        fs::remove_file(agent.response_path(id)).unwrap();
                        taken.push((id.clone(), response));
                    }
                }
                (taken.len() >= ASKS).then_some(())
            });
            taken
        });
        for ask in &asks {
            let id = ask["request_id"].as_str().unwrap();
            assert_eq!(world.answer(ask, &json!({(format!("{id}_0")): "Vue"})).0, 200);
        }
        client.join().unwrap()
    });
    for (id, response) in &taken {
        assert_eq!(
            (&response["result"]["request_id"], &response["result"]["status"]),
            (&json!(id), &json!("answered"))
        );
        assert_eq!(response["result"]["answers"], json!({"Which framework?": "Vue"}));
    }
    world.all_done("g");
    // None comes a second time.
    agent.responses_are(&[]);
    agent.tasks_gone();
    assert_eq!(taken.len(), ASKS);
}

/// It gives no sign of life, so that askd cannot tell whether it still looks: it keeps its answer for as long as any process may be
/// silent.
#[test]
fn a_client_keeps_its_answer_for_15_s_though_the_same_is_asked_again() {
    let world = World::new();
    let agent = world.group("g");
    let question = json!({"question": "Ship it?", "options": ["yes", "no"]});
    let fields = json!({"questions": [question], "idempotency_key": "release-2.4"});
    agent.ask("first", &fields);
    let ask = world.open_of("first");
    assert_eq!(world.answer(&ask, &json!({"first_0": "yes"})).0, 200);
    let written = agent.wait("first");
    agent.ask("again", &fields);
    for _ in 0..12 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(50));
        assert!(agent.response("first").is_some() && agent.response("again").is_none());
    }
    assert_eq!(agent.take("first"), written);
    // What one call took was taken: the other one asks anew.
    let anew = world.passing(SOON, "another question", || world.open().pop());
    assert_ne!(anew["id"], ask["id"]);
}
