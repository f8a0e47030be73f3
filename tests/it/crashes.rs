//! `kill -9` at every step of an ask's life, and at random: it goes on, with one outcome and one
//! response, and nothing happens twice.

use crate::harness::{SOON, World, names, within};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is killed at random: `ASKD_KILLS` asks for more.
fn rounds() -> usize {
    std::env::var("ASKD_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(30)
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn answered_lines(world: &World) -> HashMap<String, usize> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut seen = HashSet::new();
    for line in world.audit() {
        // A line may be repeated after a crash; it is the same line then.
        let (ask, at) = (line["ask"].as_str().unwrap().to_owned(), line["at"].to_string());
        if line["what"] == "answered" && seen.insert((ask.clone(), at)) {
            *lines.entry(ask).or_default() += 1;
        }
    }
    lines
}

/// P1-P4: what was acknowledged is what the agent gets, whenever the daemon dies.
#[test]
fn killed_at_random_nothing_is_lost_torn_or_decided_twice() {
    let mut world = World::empty()
        .with_binary()
        .config("[asks]\nmax_open_per_group = 100000\nmax_per_hour_per_group = 100000\n")
        .started();
    let agent = world.group("g");
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    let mut asked = Vec::new();
    for round in 0..rounds() {
        for number in 0..3 {
            let id = format!("r{round}-{number}");
            agent.ask_framework(&id);
            asked.push(id);
        }
        let until = Instant::now() + Duration::from_millis(3 + dice.roll(60));
        let answers: Vec<(String, String)> = thread::scope(|scope| {
            let rivals = ["React", "Vue"].map(|label| {
                let world = &world;
                scope.spawn(move || answer_while_it_lives(world, label, until))
            });
            rivals.into_iter().flat_map(|rival| rival.join().unwrap()).collect()
        });
        world.kill();
        for (id, label) in answers {
            let before = acknowledged.insert(id.clone(), label.clone());
            assert!(before.is_none(), "{id} was acknowledged twice: {before:?} and {label}");
        }
        world.start();
    }
    // No more trouble: everything comes to its end, also what had not been accepted yet.
    within(Duration::from_secs(60), "every request to be answered", || {
        for ask in world.open() {
            let id = ask["request_id"].as_str().unwrap().to_owned();
            let (status, settled) = world.answer(&ask, &json!({ (format!("{id}_0")): "React" }));
            assert_eq!(status, 200, "{settled}");
            acknowledged.insert(id, "React".to_owned());
        }
        asked.iter().all(|id| agent.response_path(id).exists()).then_some(())
    });
    for id in &asked {
        let response = agent.take(id);
        let got = response["result"]["answers"]["Which framework?"].as_str();
        assert_eq!(got, acknowledged.get(id).map(String::as_str).or(got), "{id}: the acknowledged answer");
        assert!(got.is_some(), "{id}: {response}");
    }
    world.all_done("g");
    let twice: Vec<_> = answered_lines(&world).into_iter().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    agent.tasks_gone();
    println!("{} asks, {} answers acknowledged, {} kills", asked.len(), acknowledged.len(), rounds());
}

/// Answers whatever is open until the time is up; the request ids whose answer was acknowledged.
fn answer_while_it_lives(world: &World, label: &str, until: Instant) -> Vec<(String, String)> {
    let mut won = Vec::new();
    while Instant::now() < until {
        for ask in world.open() {
            let id = ask["request_id"].as_str().unwrap().to_owned();
            let (status, _) = world.answer(&ask, &json!({ (format!("{id}_0")): label }));
            if status == 200 {
                won.push((id, label.to_owned()));
            }
            if Instant::now() >= until {
                break;
            }
        }
    }
    won
}

/// Each named step of accept, settle, deliver and close, and what is true right after the crash.
#[test]
fn killed_at_every_step_it_goes_on() {
    for point in [
        "accept.claimed",
        "accept.stored",
        "settle.saved",
        "deliver.written",
        "deliver.ready",
        "deliver.published",
        "close.saved",
        "close.retired",
    ] {
        println!("crash at {point}");
        let mut world = World::empty().env("ASKD_CRASH_AT", point).started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        let accepting = point.starts_with("accept");
        if accepting {
            assert!(!world.ended().success(), "it crashed");
            assert!(agent.task_names()[0].starts_with(".claimed-"), "{point}: the request is claimed, not deleted");
        } else {
            let ask = world.one_open();
            // The crash may come before the reply does.
            let answered = thread::scope(|scope| {
                let answer = scope.spawn(|| {
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        world.answer(&ask, &json!({"r1_0": "Vue"})).0
                    }))
                });
                answer.join().unwrap()
            });
            assert!(answered.is_err() || answered.is_ok_and(|status| status == 200), "{point}");
            assert!(!world.ended().success(), "it crashed");
        }
        world.without_env("ASKD_CRASH_AT");
        // As a crash leaves it between the two steps of a write, at whichever of them this one came.
        std::fs::write(agent.path.join("responses/.tmp-half"), "{").unwrap();
        world.start();
        if accepting {
            let ask = world.one_open();
            agent.tasks_gone();
            assert_eq!(world.open().len(), 1, "{point}: one card");
            assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
        }
        assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "Vue", "{point}");
        world.all_done("g");
        // What was being written when it crashed is removed.
        within(SOON, "the response alone", || (names(&agent.path.join("responses")) == ["r1.json"]).then_some(()));
        world.kept("g", 1);
        assert!(answered_lines(&world).values().all(|count| *count == 1), "{point}");
        // Taken, and started once more: it does not come back.
        agent.take("r1");
        world.kill();
        world.start();
        agent.ask_framework("r2");
        world.open_of("r2");
        assert!(agent.response("r1").is_none(), "{point}: delivered once");
    }
}

/// P1: a crash may leave the file of a request that was taken in. Whoever made it has asked once.
#[test]
fn a_request_that_a_crash_has_left_is_not_told_its_outcome_again() {
    let mut world = World::empty().env("ASKD_CRASH_AT", "accept.stored").started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    assert!(!world.ended().success(), "it crashed");
    let left = agent.task_names().remove(0);
    let request = std::fs::read(agent.tasks().join(&left)).unwrap();
    world.without_env("ASKD_CRASH_AT");
    world.start();
    agent.tasks_gone();
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    agent.take("r1");
    world.noted_as_taken("g");
    let comes = |world: &mut World, name: &str| {
        world.kill();
        std::fs::write(agent.tasks().join(name), &request).unwrap();
        world.start();
        agent.tasks_gone();
        // What comes later is taken in later.
        agent.ask_framework(&format!("after-{}", name.len()));
        world.open_of(&format!("after-{}", name.len()));
    };
    comes(&mut world, &left);
    assert!(agent.response("r1").is_none(), "it was taken in before the crash");
    // Another file with the same content is the agent that asks once more.
    comes(&mut world, ".claimed-another.json");
    agent.take("r1");
    comes(&mut world, ".claimed-another.json");
    assert!(agent.response("r1").is_none(), "that was taken in, too");
}

#[test]
fn a_second_daemon_on_the_same_folder_ends_with_75_before_it_looks_at_the_port() {
    let world = World::process();
    let output = world.command().env("ASKD__HTTP__LISTEN", world.address().to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(75));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("another askd holds") && error.contains("data_dir"), "{error}");
    assert_eq!(world.raw("GET", "/healthz", "", "").0, 200, "the first goes on");
}

#[test]
fn told_to_stop_it_finishes_what_is_in_flight() {
    let mut world = World::process();
    let agent = world.group("g");
    for number in 0..10 {
        agent.ask_framework(&format!("r{number}"));
    }
    let asks = within(crate::harness::SOON, "all ten", || Some(world.open()).filter(|asks| asks.len() == 10));
    for ask in &asks {
        let key = format!("{}_0", ask["request_id"].as_str().unwrap());
        assert_eq!(world.answer(ask, &json!({ key: "Vue" })).0, 200);
    }
    // A page is looking, and its stream must not keep the daemon from stopping.
    let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        world.address(),
        world.token()
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    assert!(world.terminate().success());
    for number in 0..10 {
        assert!(agent.response(&format!("r{number}")).is_some(), "r{number} was delivered before the end");
    }
}

/// The same for what comes after: an outcome that nobody took is put out of reach, briefed, and the agent started.
#[test]
fn killed_at_every_step_of_waking_an_agent_it_is_started_with_the_answer() {
    use crate::sessions::{Program, with_session};
    for point in ["wake.withdrawn", "wake.briefed", "wake.started"] {
        println!("crash at {point}");
        let dir = tempfile::tempdir().unwrap();
        let program = Program::new(dir.path(), "start", 0);
        let session = format!("start = {{ command = [\"{}\"] }}", program.path.display());
        let mut world = with_session(&session, "pickup_timeout = \"1s\"").env("ASKD_CRASH_AT", point).started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
        assert!(!world.ended().success(), "it crashed");
        assert!(agent.response("r1").is_none(), "{point}: out of reach");
        world.without_env("ASKD_CRASH_AT");
        world.start();
        assert!(program.run().contains("The user answered: \\\"Vue\\\""), "{point}");
        let started = || world.audit().iter().any(|line| line["what"] == "started");
        within(crate::harness::SOON, "that it was started to be recorded", || started().then_some(()));
        within(crate::harness::SOON, "nothing to be left in responses", || {
            crate::harness::names(&agent.path.join("responses")).is_empty().then_some(())
        });
        // At least once: only a crash after the start itself leads to a second one.
        let most = if point == "wake.started" { 2 } else { 1 };
        assert!(program.runs().len() <= most, "{point}: {}", program.runs().len());
        assert!(answered_lines(&world).values().all(|count| *count == 1), "{point}");
    }
}
