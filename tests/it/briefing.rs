//! What an agent's entry point gets from `askd briefing`, and what becomes of it when something goes wrong.

use crate::harness::{Agent, SOON, World, askd, holds, within};
use crate::remote::Remote;
use crate::sessions::{Program, start, with_session};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

const FIRST: &str = "You previously asked the user: \"Which auth strategy?\"\nOptions: 1. JWT tokens, 2. Session cookies\n\
                     The user answered: \"JWT tokens\"\nContinue from where you left off.\n";
const SECOND: &str = "You previously asked the user: \"Ship it?\"\nThe user dismissed the question.\nContinue from where \
                      you left off.\n";

/// A group's folder without a daemon, and its briefings.
struct Entrance {
    _world: World,
    agent: Agent,
}

impl Entrance {
    fn new() -> Self {
        let world = World::empty();
        let agent = world.group("g");
        fs::create_dir(agent.path.join("briefings")).unwrap();
        Self { _world: world, agent }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.agent.path.join("briefings").join(name)
    }

    /// As the daemon would write it, so many seconds ago.
    fn put(&self, name: &str, text: &str, seconds_ago: u64) -> Value {
        let briefing = json!({
            "text": text, "session_id": "run-1", "result": {"status": "answered", "answers": {"Go?": "yes"}}, "later": 7,
        });
        fs::write(self.path(name), briefing.to_string()).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 - seconds_ago);
        fs::File::options().write(true).open(self.path(name)).unwrap().set_modified(written).unwrap();
        briefing
    }

    fn two(&self) -> Value {
        let second = self.put("0aa.json", SECOND, 10);
        let first = self.put("0bb.json", FIRST, 20);
        json!([first, second])
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = askd();
        command.arg("briefing").arg("--ipc").arg(&self.agent.path).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What is printed, by a run that goes well and complains of nothing.
    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn holds(&self, expected: &[&str]) {
        holds(&self.agent.path.join("briefings"), expected);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn briefings_are_printed_oldest_first_and_stay_until_they_are_taken() {
    let entrance = Entrance::new();
    let files = entrance.two();
    let both = format!("{FIRST}\n{SECOND}");
    assert_eq!(entrance.says(&[]), both);
    assert_eq!(serde_json::from_str::<Value>(&entrance.says(&["--json"])).unwrap(), files, "with what is not known");
    entrance.holds(&["0aa.json", "0bb.json"]);
    assert_eq!(entrance.says(&["--take"]), both);
    entrance.holds(&[]);
    assert_eq!((entrance.says(&["--take"]), entrance.says(&[])), (String::new(), String::new()));
    let files = entrance.two();
    assert_eq!(serde_json::from_str::<Value>(&entrance.says(&["--take", "--json"])).unwrap(), files);
    entrance.holds(&[]);
}

#[test]
fn where_there_is_none_nothing_is_printed() {
    let entrance = Entrance::new();
    for _ in 0..2 {
        assert_eq!((entrance.says(&[]), entrance.says(&["--take"])), (String::new(), String::new()));
        assert_eq!(entrance.says(&["--json"]), "[]\n");
        // Nor where the daemon has never made the folder.
        let _gone = fs::remove_dir(entrance.agent.path.join("briefings"));
    }
    let output = askd().args(["briefing", "--ipc", "/does/not/exist"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/does/not/exist/tasks") && said(&output).contains("mount it"), "{}", said(&output));
}

#[test]
fn what_cannot_be_printed_stays() {
    let entrance = Entrance::new();
    entrance.two();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for output in [Stdio::from(full), Stdio::from(closed)] {
        let output = entrance.command(&["--take"]).stdout(output).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("the briefings stay where they were"), "{}", said(&output));
        entrance.holds(&["0aa.json", "0bb.json"]);
    }
    // An output that was closed before the start is none at all; one that is thrown away on purpose is one.
    let shell = |redirected: &str| {
        let mut shell = Command::new("sh");
        let run = format!("exec \"$0\" briefing --take --ipc \"$1\" {redirected}");
        shell.args(["-c", &run, crate::harness::ASKD]).arg(&entrance.agent.path).output().unwrap()
    };
    let output = shell(">&-");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("standard output is closed"), "{}", said(&output));
    entrance.holds(&["0aa.json", "0bb.json"]);
    assert!(shell(">/dev/null").status.success());
    entrance.holds(&[]);
}

#[test]
fn what_a_killed_run_had_taken_is_printed_again() {
    let entrance = Entrance::new();
    // More than a pipe holds: nobody reads, so that it stays in the middle of printing.
    let long = "word ".repeat(60_000);
    entrance.put("1.json", &long, 10);
    let mut killed = entrance.command(&["--take"]).stdout(Stdio::piped()).spawn().unwrap();
    entrance.holds(&[".taken-1.json"]);
    entrance.put("2.json", SECOND, 5);
    assert_eq!(entrance.says(&[]), SECOND, "what another is printing is not printed twice");
    let mut waiting = entrance.command(&["--take"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(waiting.try_wait().unwrap().is_none());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(
        String::from_utf8(waiting.wait_with_output().unwrap().stdout).unwrap(),
        format!("{}\n\n{SECOND}", long.trim_end()),
        "the one of the killed run, too"
    );
    entrance.holds(&[]);
    // Without anybody else it is there for whoever looks, and goes with the next who takes.
    entrance.put(".taken-3.json", FIRST, 5);
    assert_eq!((entrance.says(&[]), entrance.says(&["--take"])), (FIRST.to_owned(), FIRST.to_owned()));
    entrance.holds(&[]);
}

#[test]
fn a_run_that_never_ends_is_not_waited_for_for_ever() {
    let entrance = Entrance::new();
    entrance.put("1.json", &"word ".repeat(60_000), 10);
    let mut stuck = entrance.command(&["--take"]).stdout(Stdio::piped()).spawn().unwrap();
    entrance.holds(&[".taken-1.json"]);
    let output = entrance.run(&["--take"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(said(&output).contains("is at work here"), "{}", said(&output));
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}

#[test]
fn what_is_no_briefing_is_left_alone_and_said() {
    let entrance = Entrance::new();
    entrance.put("good.json", FIRST, 5);
    entrance.put(".tmp-1", SECOND, 5);
    entrance.put("note.txt", SECOND, 5);
    fs::write(entrance.path("torn.json"), "{\"text\": \"You prev").unwrap();
    fs::write(entrance.path("other.json"), "{\"text\": 7}").unwrap();
    fs::create_dir(entrance.path("folder.json")).unwrap();
    let secret = entrance.agent.path.join("secret");
    fs::write(&secret, json!({"text": "secret"}).to_string()).unwrap();
    std::os::unix::fs::symlink(&secret, entrance.path("link.json")).unwrap();
    let left = [".tmp-1", "folder.json", "link.json", "note.txt", "other.json", "torn.json"];
    for args in [&[][..], &["--take"]] {
        let output = entrance.run(args);
        assert_eq!(
            (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap().as_str()),
            (Some(0), FIRST)
        );
        for name in ["torn.json", "other.json", "folder.json", "link.json"] {
            assert!(said(&output).contains(&format!("was left alone: {name}: ")), "{name}: {}", said(&output));
        }
        assert_eq!(said(&output).lines().count(), 4, "{}", said(&output));
    }
    entrance.holds(&left);
}

#[test]
fn two_that_take_at_once_get_each_briefing_once() {
    let entrance = Entrance::new();
    for round in 0..10 {
        for number in 0..20 {
            entrance.put(&format!("{round}-{number}.json"), &format!("<{number}>"), 5);
        }
        let children: Vec<_> =
            (0..3).map(|_| entrance.command(&["--take"]).stdout(Stdio::piped()).spawn().unwrap()).collect();
        let printed: String =
            children.into_iter().map(|c| String::from_utf8(c.wait_with_output().unwrap().stdout).unwrap()).collect();
        for number in 0..20 {
            assert_eq!(printed.matches(&format!("<{number}>")).count(), 1, "{number}: {printed}");
        }
        entrance.holds(&[]);
    }
}

/// The entry point of `docs/agents.md`, with an agent that only says what it was told.
#[test]
fn the_entry_point_of_the_document_works() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/agents.md")).unwrap();
    let script = document.split("```sh\n").find(|block| block.contains("askd briefing")).unwrap();
    let script = script.split("```").next().unwrap().replace("my-agent", "printf %s");
    let entrance = Entrance::new();
    entrance.put("1.json", FIRST, 5);
    let folder = PathBuf::from(crate::harness::ASKD).parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let run = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("PATH", &path).env("ASKD_IPC_DIR", &entrance.agent.path);
        let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
        within(SOON, "the entry point to end", || child.try_wait().unwrap());
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert!(run().starts_with(FIRST.trim_end()), "{}", run());
    assert!(!run().is_empty() && !run().contains("Which auth strategy?"), "an agent starts without one, too");
}

/// Else the agent would wait minutes for the next try.
#[test]
fn an_agent_is_started_although_a_call_that_got_nothing_held_its_outcome_when_the_next_try_was_due() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let mut remote = Remote::ready(with_session(&start(&program), "").with_binary());
    let gate = remote.world.dir.path().join("gate");
    remote.world.set_env("ASKD_GATE", &format!("call.holds={}", gate.display()));
    remote.world.start();
    let agent = remote.agent("g");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    remote.answer("r1", "yes");
    let runs = |n: usize| (program.runs().len() >= n).then_some(());
    remote.world.passing(Duration::from_secs(90), "the first try", || runs(1));
    fs::write(&gate, "").unwrap();
    let call = agent.send("GET", "/asks/r1?wait=60", "");
    // It waits there with the outcome in its hands. Until then, on a busy machine another try may have been due.
    within(SOON, "the call at the gate", || gate.with_extension("reached").exists().then_some(()));
    let before = program.runs().len();
    remote.world.later(Duration::from_secs(30));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(program.runs().len(), before, "the agent was started while a call was given its outcome");
    drop(call);
    within(SOON, "the next try", || runs(before + 1));
}

/// Its platform has started it again by itself, and it reads the briefing over HTTP.
#[test]
fn an_agent_is_not_started_while_its_briefing_is_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 1);
    let remote = Remote::of(with_session(&start(&program), ""));
    let agent = remote.agent("g");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    remote.answer("r1", "yes");
    remote.world.passing(Duration::from_secs(90), "the first try", || program.runs().pop());
    let tried = || program.runs().len();
    let briefings = agent.call("GET", "/briefings?take=true", "").1["briefings"].clone();
    // A try that began before that.
    thread::sleep(Duration::from_secs(1));
    let before = tried();
    // The next try is due, and the reader has some seconds left to say that it has it.
    remote.world.later(Duration::from_secs(11));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(tried(), before, "the agent was started while another one reads its briefing");
    let path = format!("/briefings/{}/taken", briefings[0]["ask_id"].as_str().unwrap());
    assert_eq!(agent.call("POST", &path, "").0, 204);
    remote.world.later(Duration::from_secs(3_600));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(tried(), before, "the agent was started with what another one had read");
}
