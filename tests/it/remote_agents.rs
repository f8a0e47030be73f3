//! `askd mcp` and `askd briefing` with `ASKD_URL`: the real binaries of an agent that shares no folder with the daemon.

use crate::harness::{SOON, World, askd, within};
use crate::mcp_client::{Client, go};
use crate::remote::{Agent, Remote};
use crate::said;
use serde_json::json;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// `askd mcp` with the environment of an agent that has a token.
fn client(agent: &Agent) -> Client {
    Client::by_environment(&[("ASKD_URL", &format!("http://{}", agent.at)), ("ASKD_TOKEN", &agent.token)])
}

fn briefing_command(agent: &Agent, more: &[&str]) -> Command {
    let mut command = askd();
    command.arg("briefing").args(more).env("ASKD_URL", format!("http://{}", agent.at)).env("ASKD_TOKEN", &agent.token);
    command
}

fn briefing(agent: &Agent, more: &[&str]) -> Output {
    briefing_command(agent, more).output().unwrap()
}

/// Until the outcome of this request is another's to the token's other processes.
fn is_taken(agent: &Agent, request_id: &str) {
    within(SOON, "the outcome to be taken", || {
        (agent.call("GET", &format!("/asks/{request_id}"), "").0 == 410).then_some(())
    });
}

#[test]
fn askd_mcp_asks_and_takes_over_http_as_with_a_folder() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let mut client = client(&agent);
    let first = client.call("ask_user", &go(500));
    first.assert_pending();
    let id = first.question_id();
    // Meanwhile no call waits, and the answer comes.
    remote.answer(&id, "yes");
    thread::sleep(SECOND / 2);
    assert_eq!(agent.call("GET", &format!("/asks/{id}"), "").0, 409, "it is held for the process that asked");
    client.call("ask_user", &go(0)).assert_answered(&json!({"Go?": "yes"}));
    // The next message says that the client has it.
    client.tools();
    is_taken(&agent, &id);
    client.call("ask_user_wait", &json!({"question_id": id})).assert_answered(&json!({"Go?": "yes"}));
    // Answered while the call waits.
    let waiting = client.begin("ask_user", &go(60_000));
    let second = remote.world.one_open()["request_id"].as_str().unwrap().to_owned();
    assert_ne!(second, id);
    remote.answer(&second, "no");
    client.result(waiting, SOON).assert_answered(&json!({"Go?": "no"}));
    // The end of the process says so, too.
    client.close();
    assert_eq!(agent.call("GET", &format!("/asks/{second}"), "").0, 410);
}

#[test]
fn askd_mcp_withdraws_over_http_and_says_what_a_token_does_not_open() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let mut good = client(&agent);
    let waiting = good.begin("ask_user", &go(60_000));
    let id = remote.world.one_open()["request_id"].as_str().unwrap().to_owned();
    let told = good.call("ask_user_cancel", &json!({"question_id": id}));
    assert_eq!((told.is_error, told.status()), (false, "cancelled"), "{told:?}");
    assert_eq!(good.result(waiting, SOON).text, said::WITHDRAWN);
    assert!(remote.world.open().is_empty());
    let mut bad = client(&Agent { token: format!("{}0", agent.token), ..agent });
    let told = bad.call("ask_user", &go(60_000));
    assert!(told.status() == "undeliverable" && told.text.contains("refuses the token"), "{told:?}");
}

#[test]
fn a_killed_daemon_loses_no_question_of_askd_mcp() {
    let mut remote = Remote::of(World::empty().with_binary());
    let agent = remote.agent("research");
    let mut client = client(&agent);
    let waiting = client.begin("ask_user", &go(60_000));
    let id = remote.world.one_open()["request_id"].as_str().unwrap().to_owned();
    remote.world.kill();
    remote.world.start();
    remote.answer(&id, "yes");
    client.result(waiting, SOON).assert_answered(&json!({"Go?": "yes"}));
    // It is killed again before the client has said that it has the answer.
    remote.world.kill();
    client.tools();
    remote.world.start();
    // A daemon that was killed holds it for the first process that comes: this story looks after the client.
    thread::sleep(SECOND * 2);
    is_taken(&agent, &id);
    assert_eq!(remote.world.open().len(), 0, "no second card");
}

#[test]
fn what_a_killed_client_asked_becomes_a_briefing_that_askd_briefing_prints_once() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    assert_eq!(briefing(&agent, &["--json"]).stdout, b"[]\n");
    let mut client = client(&agent);
    let asked = client.call("ask_user", &go(500));
    asked.assert_pending();
    client.kill();
    remote.answer(&asked.question_id(), "yes");
    let printed = remote.world.passing(SECOND * 90, "the briefing", || {
        let said = briefing(&agent, &[]);
        assert!(said.status.success(), "{said:?}");
        (!said.stdout.is_empty()).then(|| String::from_utf8(said.stdout).unwrap())
    });
    assert!(printed.contains("Go?") && printed.contains("yes"), "{printed}");
    // What could not be printed is not taken.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = briefing_command(&agent, &["--take"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8(said.stderr).unwrap().contains("cannot be printed"));
    let json = String::from_utf8(briefing(&agent, &["--json", "--take"]).stdout).unwrap();
    assert!(json.contains("\"text\"") && json.contains(&asked.question_id()), "{json}");
    assert_eq!(briefing(&agent, &["--take"]).stdout, b"");
    let wrong = Agent { token: format!("{}0", agent.token), ..agent };
    let said = briefing(&wrong, &[]);
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8(said.stderr).unwrap().contains("refuses the token"));
}

#[test]
fn a_withdrawal_that_askd_has_not_heard_is_not_said_to_be_done_and_is_told_at_the_end_of_the_process() {
    let mut remote = Remote::new();
    let agent = remote.agent("research");
    let mut client = client(&agent);
    let asked = client.call("ask_user", &go(500));
    asked.assert_pending();
    assert!(remote.world.terminate().success());
    let told = client.call("ask_user_cancel", &json!({"question_id": asked.question_id()}));
    assert!(told.status() == "undeliverable" && told.text.contains("may still be open"), "{told:?}");
    remote.world.start();
    client.close();
    within(SOON, "the withdrawal", || remote.world.open().is_empty().then_some(()));
}

#[test]
fn of_two_that_take_a_briefing_at_one_moment_one_has_it() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let mut client = client(&agent);
    let asked = client.call("ask_user", &go(500));
    client.kill();
    remote.answer(&asked.question_id(), "yes");
    remote.world.passing(SECOND * 90, "the briefing", || (!briefing(&agent, &[]).stdout.is_empty()).then_some(()));
    // The first has been told of it and is just printing it.
    let (status, told) = agent.call("GET", "/briefings?take=true", "");
    let id = told["briefings"][0]["ask_id"].as_str().unwrap().to_owned();
    assert_eq!(status, 200, "{told}");
    let other = Agent { process: "p2", ..agent.clone() };
    assert_eq!(other.call("GET", "/briefings?take=true", "").0, 409);
    assert_eq!(other.call("POST", &format!("/briefings/{id}/taken"), "").0, 410);
    assert_eq!(other.call("DELETE", &format!("/briefings/{id}/taken"), "").0, 204, "it puts back nothing of another's");
    let second = briefing_command(&agent, &["--take"]).stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(SECOND / 2);
    assert_eq!(agent.call("POST", &format!("/briefings/{id}/taken"), "").0, 204);
    let second = second.wait_with_output().unwrap();
    assert!(second.status.success() && second.stdout.is_empty(), "{second:?}");
}

/// Puts a certificate for this host, which is its own authority, and its key where askd reads them. Both were made by openssl
/// for a hundred years; nothing else trusts them.
fn certify(folder: &Path, which: &str) {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls");
    for file in ["cert", "key"] {
        std::fs::copy(made.join(format!("{which}-{file}.pem")), folder.join(format!("{file}.pem"))).unwrap();
    }
}

#[test]
fn the_listener_has_tls_of_its_own_and_reads_its_certificate_anew() {
    a_reload_reads_the_certificate_anew(World::empty().with_binary());
}

pub(crate) fn a_reload_reads_the_certificate_anew(world: World) {
    let folder = world.dir.path().join("tls");
    std::fs::create_dir(&folder).unwrap();
    certify(&folder, "first");
    let files = ["cert", "key"].map(|file| format!("tls_{file} = \"{}/{file}.pem\"\n", folder.display())).concat();
    let remote = Remote::with(world, &files);
    let agent = remote.agent("research");
    let ask = |authority: &Path| {
        let mut command = askd();
        command.args(["ask", "Deploy?", "--option", "yes", "--option", "no", "--render-timeout", "10s"]);
        command.env("ASKD_URL", format!("https://{}", agent.at)).env("ASKD_TOKEN", &agent.token);
        command.env("ASKD_CA_FILE", authority).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let answered = |authority: &Path| {
        let asking = ask(authority);
        let id = remote.world.one_open()["request_id"].as_str().unwrap().to_owned();
        remote.answer(&id, "yes");
        let said = asking.wait_with_output().unwrap();
        assert_eq!(said.stdout, b"yes\n", "{said:?}");
    };
    let first = folder.join("first.pem");
    std::fs::copy(folder.join("cert.pem"), &first).unwrap();
    answered(&first);
    // Neither plain HTTP nor a client that says nothing gets anything, and a silent one keeps no other waiting.
    let _silent = TcpStream::connect(agent.at).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| agent.call("GET", "/briefings", ""))).is_err());
    // A certificate without its key stays away; the pair is taken.
    certify(&folder, "second");
    let second = folder.join("second.pem");
    std::fs::copy(folder.join("cert.pem"), &second).unwrap();
    let key = std::fs::read(folder.join("key.pem")).unwrap();
    std::fs::write(folder.join("key.pem"), "no key").unwrap();
    remote.world.signal(rustix::process::Signal::HUP);
    within(SOON, "the refusal", || remote.world.log().contains("stays as it was").then_some(()));
    answered(&first);
    std::fs::write(folder.join("key.pem"), key).unwrap();
    remote.world.signal(rustix::process::Signal::HUP);
    within(SOON, "the reload", || remote.world.log().contains("reloaded the certificate").then_some(()));
    answered(&second);
    let said = ask(&first).wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.code() == Some(5) && told.contains("no askd took the question"), "{told}");
    assert!(told.contains("ASKD_CA_FILE names the certificate"), "{told}");
}
