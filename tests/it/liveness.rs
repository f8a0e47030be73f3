//! Races of liveness: the agent dies just before, while and just after it takes its response. The answer reaches
//! it by exactly one of response and start; by both only if it died between handing the result over and deleting
//! it. Many asks at a time, each with an agent of its own, on the real daemon.

use crate::harness::{Agent, within};
use crate::sessions::{Program, with_session};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// How many agents: `ASKD_RACES` asks for more (the gate is 1,000).
fn rounds() -> usize {
    std::env::var("ASKD_RACES").ok().and_then(|count| count.parse().ok()).unwrap_or(50)
}

/// How an agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    /// Before it looks for its response.
    Before,
    /// Between the rename and handing the result over: nobody has it.
    Renamed,
    /// Between handing it over and deleting it.
    Handed,
    /// After all of it.
    Done,
    /// It has no sign of life, and takes its response at the moment at which patience with it ends.
    DropIn,
}

const ENDS: [End; 5] = [End::Before, End::Renamed, End::Handed, End::Done, End::DropIn];

/// What an agent does once its response is there; whether the result was handed over.
fn take(agent: &Agent, id: &str, end: End) -> bool {
    let (lies, taken) = (agent.response_path(id), agent.path.join(format!("responses/.taken-{id}.json")));
    match end {
        End::Before => false,
        End::DropIn => {
            let read = fs::read(&lies).is_ok();
            // Only whoever deleted it has it for certain; one that was withdrawn in between was read all the same.
            read && fs::remove_file(&lies).is_ok()
        }
        End::Renamed | End::Handed | End::Done => {
            if fs::rename(&lies, &taken).is_err() {
                return false;
            }
            if end == End::Renamed {
                return false;
            }
            let handed = fs::read(&taken).is_ok();
            if end == End::Done {
                let _gone = fs::remove_file(&taken);
            }
            handed
        }
    }
}

#[test]
fn whenever_an_agent_dies_its_answer_reaches_it_by_one_way() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let session = format!("start = {{ command = [\"{}\"] }}", program.path.display());
    let rules = "pickup_timeout = \"6s\"\nmax_open_per_group = 100000\nmax_per_hour_per_group = 100000";
    let world = with_session(&session, rules).started();
    let agent = world.group("g");
    let mut handed: HashMap<String, (End, bool)> = HashMap::new();
    for (round, end) in ENDS.iter().cycle().take(rounds()).enumerate() {
        let id = format!("r{round}");
        let mut fields = json!({"questions": [{"question": format!("Go {round}?")}]});
        if *end != End::DropIn {
            fs::write(agent.tasks().join(format!(".alive-{id}")), "1").unwrap();
            fields["process"] = json!(id);
        }
        agent.ask(&id, &fields);
        let ask = world.open_of(&id);
        assert_eq!(world.answer(&ask, &json!({(format!("{id}_0")): id})).0, 200);
        if *end != End::DropIn {
            agent.wait(&id);
            // Its last sign of life lies behind it: from here on it is dead, at once or in the middle of this.
            handed.insert(id.clone(), (*end, take(&agent, &id, *end)));
        }
    }
    // Drop-in clients look when the daemon's patience with them ends, about.
    let drop_ins: Vec<String> = (0..rounds()).map(|n| format!("r{n}")).filter(|id| !handed.contains_key(id)).collect();
    for (number, id) in drop_ins.iter().enumerate() {
        if number % 8 == 0 {
            std::thread::sleep(Duration::from_millis(200));
        }
        handed.insert(id.clone(), (End::DropIn, take(&agent, id, End::DropIn)));
    }
    let wanted = handed.values().filter(|(end, handed)| !handed || *end == End::Handed).count();
    within(Duration::from_secs(180), "every agent that did not get its answer to be started", || {
        (program.runs().len() >= wanted).then_some(())
    });
    let mut started: HashMap<String, usize> = HashMap::new();
    for run in program.runs() {
        let id = handed.keys().find(|id| run.contains(&format!("\"request_id\": \"{id}\""))).unwrap();
        assert!(run.contains(&format!("The user answered: \\\"{id}\\\"")), "its own answer: {run}");
        *started.entry(id.clone()).or_default() += 1;
    }
    for (id, (end, handed)) in &handed {
        let starts = started.get(id).copied().unwrap_or_default();
        match end {
            End::Handed => assert_eq!(starts, 1, "{id}: it died before it could say that it has the answer"),
            _ => assert_eq!(starts, usize::from(!handed), "{id} {end:?}: by exactly one way"),
        }
    }
    let by_response = handed.values().filter(|(_, handed)| *handed).count();
    println!("{} asks: {by_response} by response, {} by start", rounds(), started.len());
}
