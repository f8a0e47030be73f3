//! Faulty calls, doubled and shuffled webhooks: every ask ends, none is answered twice, and the rates are
//! never broken. Gate G7.

use crate::harness::{World, choice};
use crate::on_whatsapp::on_whatsapp;
use askd_sim::whatsapp::{Config, Fault, FaultMix, Message, Person, Sending, Traffic, Whatsapp};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// What is refused for certain, and what was taken although it looks lost: both are settled in seconds.
const QUICK: [Fault; 8] = [
    Fault::Code(131_056),
    Fault::Code(130_429),
    Fault::Code(131_016),
    Fault::Code(131_000),
    Fault::Http(429),
    Fault::ResetAfter,
    Fault::TruncatedBody,
    Fault::WrongJson,
];
/// What nobody can tell from a success whose answer was lost: a status is waited for, for a minute.
const SLOW: [Fault; 4] = [Fault::ResetBefore, Fault::StallBefore, Fault::StallAfter, Fault::Http(503)];

/// How often a question is tried on a route.
const ATTEMPTS: usize = 4;

fn person(n: usize) -> String {
    format!("1666{n:07}")
}

/// P6: for every ask that was shown it is told once how it ended, or the operator is told that it cannot be;
/// and for none twice, unless the answer to the call was lost and no status came in time. How many were shown.
async fn closed_once(world: &World, people: usize, patience: Duration) -> usize {
    let started = Instant::now();
    let pending = world.data().join("state/pending_questions");
    let owed = || {
        let groups = std::fs::read_dir(&pending).into_iter().flatten().map(|group| group.unwrap().path());
        groups.map(|group| std::fs::read_dir(group).unwrap().count()).sum::<usize>()
    };
    while owed() > 0 {
        assert!(started.elapsed() < patience, "{} asks are not closed", owed());
        world.step().await;
    }
    let all = || (0..people).flat_map(|n| world.phone.messages_to(&person(n))).collect::<Vec<Message>>();
    let is = |message: &Message, kind: &str| message.opaque.as_deref().is_some_and(|tag| tag.ends_with(kind));
    let arrived = |_: &Whatsapp| all().iter().all(|message| !is(message, ":c") || message.stage.shown());
    assert!(world.phone.wait_until(arrived, Duration::from_secs(60)).await, "closing lines are on their way");
    let (mut shown, mut told) = (HashSet::new(), HashMap::new());
    for message in all().into_iter().filter(|message| message.stage.shown()) {
        let Some(ask) = message.opaque.as_deref().and_then(|tag| tag.split(':').nth(1)).map(str::to_owned) else {
            continue;
        };
        if is(&message, ":q") {
            shown.insert(ask);
        } else if is(&message, ":c") {
            *told.entry(ask).or_insert(0) += 1;
        }
    }
    let log = world.log();
    let reported = |ask: &str| log.lines().any(|line| line.contains("a card cannot be updated") && line.contains(ask));
    let known: HashSet<&String> = shown.iter().chain(told.keys()).collect();
    let lost = |ask: &str| {
        world.phone.calls().iter().any(|call| {
            let tag = call.body["biz_opaque_callback_data"].as_str().unwrap_or_default();
            tag.ends_with(":c") && tag.contains(ask) && call.fault.is_some_and(Fault::commits)
        })
    };
    let twice = told.iter().filter(|(_, times)| **times > 1).count();
    eprintln!("{twice} were told twice");
    let wrong: Vec<(&String, Option<&usize>)> = known
        .into_iter()
        .map(|ask| (ask, told.get(ask)))
        .filter(|(ask, times)| match times {
            Some(1) => false,
            Some(_) => !lost(ask),
            None => !reported(ask),
        })
        .collect();
    assert!(wrong.is_empty(), "not closed once: {wrong:?}");
    shown.len()
}

/// `asks` asks to `people` people, who answer all they see; how long it took.
async fn storm(asks: usize, people: usize, kinds: &[Fault], patience: Duration) -> Duration {
    let mut groups = String::new();
    for n in 0..people {
        let chat = person(n);
        writeln!(groups, "[groups.p{n}]\nroutes = [{{ channel = \"whatsapp\", chat = \"{chat}\" }}]").unwrap();
    }
    let traffic = Traffic { gather_ms: 20, batch: 5, shuffle: true, duplicate: 0.3, lanes: 4, ..Traffic::default() };
    let config = Config {
        people: (0..people).map(|n| Person::new(&person(n), &format!("P{n}"))).collect(),
        traffic,
        stall_ms: 15_000,
        ..Config::default()
    };
    let world = on_whatsapp(config, "{ channel = \"web\" }", &groups).await;
    for n in 0..people {
        world.phone.person_says(&person(n), "hello");
    }
    // Some come twice, so it is not enough to count them.
    let heard = |sim: &Whatsapp| {
        let taken: Vec<_> = sim.webhooks().into_iter().filter(|post| post.status == 200).collect();
        (0..people).all(|n| taken.iter().any(|post| post.body.contains("hello") && post.body.contains(&person(n))))
    };
    assert!(world.phone.wait_until(heard, Duration::from_secs(120)).await);
    world.phone.faults(FaultMix { share: 0.3, kinds: kinds.to_vec() });
    let started = Instant::now();
    for n in 0..asks {
        world.ask_as(&format!("p{}", n % people), &format!("r{n}"), choice(&format!("Which {n}?"), &["a", "b", "c"]));
    }
    let mut open: HashSet<usize> = (0..asks).collect();
    let (mut said, mut asked_back, mut ended) = (HashMap::new(), HashSet::new(), HashMap::new());
    while !open.is_empty() {
        assert!(started.elapsed() < patience, "{} of {asks} are still open", open.len());
        for n in 0..people {
            let who = person(n);
            for message in world.phone.messages_to(&who).iter().filter(|message| message.stage.shown()) {
                // A quote of what the daemon does not know yet is asked back.
                for line in message.text.lines().filter(|_| message.text.starts_with("Which question do you mean?")) {
                    let Some((code, text)) = line.split_once(": Which ") else { continue };
                    let Ok(ask) = text.trim_end_matches('?').parse::<usize>() else { continue };
                    if asked_back.insert((message.id.clone(), ask)) && open.contains(&ask) {
                        world.phone.person_says(&who, &format!("{code} {}", ask % 3 + 1));
                    }
                }
                let Some(rest) = message.text.split("Which ").nth(1) else { continue };
                let Ok(ask) = rest.split('?').next().unwrap_or_default().parse::<usize>() else { continue };
                // Whoever hears nothing for a while writes again.
                let again = said.get(&ask).is_some_and(|at: &Instant| at.elapsed() > Duration::from_secs(10));
                if message.text.contains("Reply with") && open.contains(&ask) && (again || !said.contains_key(&ask)) {
                    said.insert(ask, Instant::now());
                    world.phone.person_quotes(&who, &message.id, &(ask % 3 + 1).to_string());
                    world.phone.person_sends(&who, &Sending::Reaction { on: message.id.clone(), emoji: String::new() });
                }
            }
        }
        open.retain(|ask| match world.group(&format!("p{}", ask % people)).response(&format!("r{ask}")) {
            Some(response) => {
                ended.insert(*ask, response);
                false
            }
            None => true,
        });
        world.step().await;
    }
    let took = started.elapsed();
    for (ask, response) in &ended {
        match response["result"]["status"].as_str().unwrap() {
            "answered" => {
                let expected = ["a", "b", "c"][ask % 3];
                assert_eq!(response["result"]["answers"][format!("Which {ask}?")], expected, "{response}");
            }
            "undeliverable" => {}
            other => panic!("{other}: {response}"),
        }
    }
    let (mut decided, mut undelivered): (HashMap<String, usize>, HashSet<String>) = Default::default();
    for line in world.audit() {
        if matches!(line["what"].as_str(), Some("answered" | "undeliverable" | "expired" | "dismissed" | "withdrawn")) {
            let ask = line["ask"].as_str().unwrap().to_owned();
            if line["what"] == "undeliverable" {
                undelivered.insert(ask.clone());
            }
            *decided.entry(ask).or_default() += 1;
        }
    }
    assert_eq!(decided.len(), asks, "every ask is decided");
    assert!(decided.values().all(|count| *count == 1), "none is decided twice");
    let all_closed = closed_once(&world, people, patience).await;
    world.kept_the_pace();
    eprintln!(
        "{asks} asks to {people} people: answered after {took:?}, closed after {:?}; {} undeliverable; \
         {all_closed} closed once; {} calls",
        started.elapsed(),
        undelivered.len(),
        world.phone.calls().len()
    );
    // Each fault of the mix is as good as the next one: it is luck how many asks meet one with every attempt.
    for ask in &undelivered {
        let calls = world.phone.calls().into_iter();
        let of_it = calls.filter(|call| {
            call.body["biz_opaque_callback_data"].as_str().is_some_and(|tag| tag.ends_with(":q") && tag.contains(ask))
        });
        let faults: Vec<Option<Fault>> = of_it.map(|call| call.fault).collect();
        assert!(faults.len() >= ATTEMPTS && faults.iter().all(Option::is_some), "{ask} was given up after {faults:?}");
    }
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_calls_and_shuffled_webhooks() {
    storm(60, 20, &QUICK, Duration::from_secs(180)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a long gate: minutes"]
async fn a_thousand_asks_to_two_hundred_people_with_every_fault() {
    let kinds: Vec<Fault> = QUICK.into_iter().chain(SLOW).collect();
    storm(1000, 200, &kinds, Duration::from_secs(900)).await;
}
