//! Binaries of earlier versions beside today's: agents of one version, the daemon of the other. `tests/run --long` builds
//! them from the project's history (`tests/versions/build`); without them `goldens` replays the files that they wrote.

use crate::harness::{Agent, SOON, World, askd, within, without_environment};
use crate::mcp_client::{Client, go};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The binaries, separated by a colon.
const NAMED_BY: &str = "ASKD_OTHER_VERSIONS";

fn others() -> Vec<PathBuf> {
    let named = std::env::var_os(NAMED_BY).unwrap_or_else(|| panic!("{NAMED_BY} names no binary"));
    let others: Vec<PathBuf> = std::env::split_paths(&named).collect();
    assert!(others.iter().all(|other| other.is_file()) && !others.is_empty(), "{others:?}");
    others
}

fn ends(mut child: Child) -> (Option<i32>, String) {
    let ended = within(SOON, "askd ask to end", || child.try_wait().unwrap());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    (ended.code(), said.trim().to_owned())
}

/// All that an agent does: asks on the command line, is answered, is interrupted, asks through MCP, is answered between two
/// calls, withdraws, is told of a timeout.
fn an_agent_gets_along(world: &World, agent: &Agent, askd: impl Fn() -> Command) {
    let ask = |question: &str| {
        let mut command = askd();
        command.args(["ask", question, "--option", "yes", "--option", "no=not today", "--ipc"]).arg(&agent.path);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let answer = |answers: Value| assert_eq!(world.answer(&world.one_open(), &answers).0, 200);
    let asking = ask("Deploy?");
    answer(json!({"Deploy?": "no"}));
    assert_eq!(ends(asking), (Some(0), "no".to_owned()));
    let asking = ask("Really?");
    world.one_open();
    let pid = rustix::process::Pid::from_raw(i32::try_from(asking.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(ends(asking).0, Some(3));
    within(SOON, "the withdrawal", || world.open().is_empty().then_some(()));

    let mut client = Client::of(askd(), "story", &agent.path, &[]);
    let waiting = client.begin("ask_user", &go(60_000));
    answer(json!({"Go?": "yes"}));
    client.result(waiting, SOON).assert_answered(&json!({"Go?": "yes"}));
    let pending = client.call("ask_user", &go(500));
    pending.assert_pending();
    answer(json!({"Go?": "no"}));
    agent.wait(&pending.question_id());
    client.call("ask_user_wait", &json!({"question_id": pending.question_id()})).assert_answered(&json!({"Go?": "no"}));
    let pending = client.call("ask_user", &go(500));
    let withdrawn = client.call("ask_user_cancel", &json!({"question_id": pending.question_id()}));
    assert_eq!((withdrawn.is_error, withdrawn.status()), (false, "cancelled"));
    within(SOON, "the withdrawal", || world.open().is_empty().then_some(()));
    let mut short = go(60_000);
    short["timeoutMs"] = json!(10_000);
    assert_eq!(client.call("ask_user", &short).status(), "timeout");
    client.tools();
    agent.responses_are(&[]);
    client.close();
    agent.tasks_gone();
}

#[test]
#[ignore = "needs binaries of earlier versions: tests/run --long builds them"]
fn agents_of_earlier_versions_get_along_with_todays_daemon() {
    for other in others() {
        let world = World::process();
        an_agent_gets_along(&world, &world.group("g"), || without_environment(&other));
    }
}

#[test]
#[ignore = "needs binaries of earlier versions: tests/run --long builds them"]
fn todays_agents_get_along_with_daemons_of_earlier_versions() {
    for other in others() {
        let world = World::empty().with_daemon(&other).started();
        an_agent_gets_along(&world, &world.group("g"), askd);
    }
}
