//! SIGTERM ends the daemon within 10 s, whatever hangs, and costs no ask a try. Each story hangs one thing: a channel
//! that is away, a post that waits its turn, a probe, a command, an Engine, a connection.

use crate::harness::{Agent, SOON, World, within};
use crate::slack_world::{self, CHANNEL, Make, Mode, choice};
use crate::whatsapp_world::{self, ADA, TO_ADA, select, sim, until};
use askd_sim::slack::FaultKind;
use askd_sim::whatsapp::Fault;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// The promise.
const WITHIN: Duration = Duration::from_secs(10);
const POST: &str = "chat.postMessage";
const HISTORY: &str = "conversations.history";

/// Terminates and expects a clean end in time.
fn stops(world: &mut World) -> Duration {
    let told = Instant::now();
    let status = world.terminate();
    let took = told.elapsed();
    assert!(status.success(), "{status}");
    assert!(took < WITHIN, "it took {took:?}");
    took
}

async fn stops_slack(world: &mut slack_world::World) {
    let told = Instant::now();
    let code = world.stop().await;
    let took = told.elapsed();
    assert_eq!(code, Some(0));
    assert!(took < WITHIN, "it took {took:?}");
}

async fn stops_whatsapp(world: &mut whatsapp_world::World) {
    let told = Instant::now();
    let code = world.terminate().await;
    let took = told.elapsed();
    assert_eq!(code, Some(0));
    assert!(took < WITHIN, "it took {took:?}");
}

/// One try only, so that a stop that costs one is seen.
fn once(mut request: Value) -> Value {
    request["maxRetries"] = json!(0);
    request
}

// Slack.

#[tokio::test]
async fn slack_is_away_while_a_card_is_looked_for() {
    let mut world = Make::new(Mode::Http).with_binary().start().await;
    world.slack.faults().next(POST, FaultKind::ResetBefore, 1);
    world.slack.faults().next(HISTORY, FaultKind::Status(503), 1_000);
    world.ask("research", "r1", once(choice("Which?", &["a", "b"])));
    let looked = || world.slack.calls().iter().any(|call| call.method == HISTORY).then_some(());
    world.slack.wait_for(slack_world::SOON, looked).await.expect("it looks");
    stops_slack(&mut world).await;
}

#[tokio::test]
async fn a_post_to_slack_that_a_stop_cuts_off_was_no_try() {
    let mut world = slack_world::Make::new(Mode::Http).with_binary().start().await;
    world.slack.faults().next(POST, FaultKind::StallBefore(Duration::from_secs(3600)), 1);
    world.ask("research", "r1", once(choice("Which?", &["a", "b"])));
    let sent = || world.store().values().any(|record| record.contains("\"sent\"")).then_some(());
    slack_world::until("it to be sent", slack_world::SOON, sent).await;
    stops_slack(&mut world).await;
    world.slack.faults().clear();
    world.serve().await;
    let card = world.card(CHANNEL).await;
    assert!(!card.visible_text().contains("retry attempt"), "{}", card.visible_text());
    assert!(!world.answered("research", "r1"), "nobody has answered");
}

#[tokio::test]
async fn slack_does_not_answer_over_the_socket() {
    let mut make = Make::new(Mode::Socket).with_binary();
    make.waits = false;
    let mut world = make.prepare().await;
    world.slack.faults().next("apps.connections.open", FaultKind::StallBefore(Duration::from_secs(3600)), 100);
    world.slack.faults().next("auth.test", FaultKind::StallBefore(Duration::from_secs(3600)), 100);
    world.serve().await;
    stops_slack(&mut world).await;
}

// WhatsApp.

#[tokio::test]
async fn a_whatsapp_post_of_unknown_fate_is_waited_for_and_after_the_next_start_too() {
    let mut world = whatsapp_world::World::process(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.sim.fault(Fault::ResetBefore, 1);
    world.ask("r1", select("Which?", &["a", "b"]));
    until("the call to be lost", || record_says(&world, "\"unknown\"")).await;
    stops_whatsapp(&mut world).await;
    world.begin();
    stops_whatsapp(&mut world).await;
}

#[tokio::test]
async fn a_whatsapp_post_that_was_under_way_at_a_crash_is_waited_for() {
    let mut config = sim();
    config.stall_ms = 60_000;
    let mut world = whatsapp_world::World::process(config, TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.sim.fault(Fault::StallBefore, 1);
    world.ask("r1", select("Which?", &["a", "b"]));
    until("it to be sent", || record_says(&world, "\"name\": \"sent\"")).await;
    world.restart();
    stops_whatsapp(&mut world).await;
}

/// Forty-five at once: the first twenty leave on credit, the others wait for their turn.
#[tokio::test]
async fn whatsapp_posts_that_wait_for_their_turn_lose_no_try() {
    let mut world = whatsapp_world::World::process(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    let all: Vec<String> = (0..45).map(|n| format!("r{n}")).collect();
    for id in &all {
        world.ask(id, once(select(&format!("Which of {id}?"), &["a", "b"])));
    }
    for _ in 0..2 {
        until("all to be asked", || world.records().len() == all.len()).await;
        until("the credit to be used up", || world.sim.messages_to(ADA).len() >= 15).await;
        stops_whatsapp(&mut world).await;
        world.begin();
    }
    // If a stop had spoilt anything, the ask would say so at once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ended: Vec<_> = all.iter().filter_map(|id| world.response_now(id).map(|response| (id, response))).collect();
    assert!(ended.is_empty(), "{} ended: {:?}", ended.len(), ended.first());
    for (path, record) in world.records() {
        assert!(!record.contains("\"attempt\": 2"), "a try was used up: {}: {record}", path.display());
    }
}

fn record_says(world: &whatsapp_world::World, what: &str) -> bool {
    world.records().iter().any(|(_, record)| record.contains(what))
}

// Sessions.

/// A world whose group `g` has this session, and an answer that nobody takes.
fn answered(session: &str, env: &[(&str, &str)]) -> (World, Agent) {
    let config = format!(
        "[groups.g]\nroutes = [{{ channel = \"web\" }}]\nsession = {{ {session} }}\npickup_timeout = \"10s\"\n"
    );
    let mut world = World::empty().with_binary().config(&config);
    for (name, value) in env {
        world = world.env(name, value);
    }
    let world = world.started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "React"})).0, 200);
    agent.wait("r1");
    (world, agent)
}

/// A command that says that it runs, and never ends.
fn hanging(dir: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let (program, ran) = (dir.join("hangs"), dir.join("ran"));
    std::fs::write(&program, format!("#!/bin/sh\necho $$ >> {}\nexec sleep 3600\n", ran.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, ran)
}

fn pids(ran: &std::path::Path) -> Vec<i32> {
    std::fs::read_to_string(ran).unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
}

fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn end(pid: i32) {
    use rustix::process::{Pid, Signal, kill_process};
    let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

#[test]
fn a_probe_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, ran) = hanging(dir.path());
    let (mut world, _agent) = answered(&format!("probe = {{ command = [\"{}\"] }}", program.display()), &[]);
    within(SOON, "the probe to run", || (!pids(&ran).is_empty()).then_some(()));
    stops(&mut world);
    within(SOON, "the probe to be ended too", || (!pids(&ran).into_iter().any(runs)).then_some(()));
}

#[test]
fn a_start_command_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let (program, ran) = hanging(dir.path());
    let (mut world, _agent) = answered(&format!("start = {{ command = [\"{}\"] }}", program.display()), &[]);
    within(SOON, "the start to run", || (!pids(&ran).is_empty()).then_some(()));
    stops(&mut world);
    let started = pids(&ran)[0];
    assert!(runs(started), "an agent that was started goes on");
    world.start();
    within(SOON, "it to be started once more", || (pids(&ran).len() == 2).then_some(()));
    pids(&ran).into_iter().for_each(end);
}

#[test]
fn a_stop_command_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, ran) = hanging(dir.path());
    let config = format!(
        "[groups.g]\nroutes = [{{ channel = \"web\" }}]\non_timeout = \"abort_task\"\n\
         session = {{ stop = {{ command = [\"{}\"] }} }}\n",
        program.display()
    );
    let mut world = World::empty().with_binary().config(&config).started();
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    within(Duration::from_secs(10) + SOON, "the stop to run", || (!pids(&ran).is_empty()).then_some(()));
    stops(&mut world);
    pids(&ran).into_iter().for_each(end);
}

#[test]
fn the_engine_takes_calls_and_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (called, calls) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            held.push(stream);
            let _over = called.send(());
        }
    });
    let container = "{ docker = \"agent\" }";
    let session = format!("probe = {container}, start = {container}, stop = {container}");
    let host = format!("unix://{}", socket.display());
    let (mut world, _agent) = answered(&session, &[("DOCKER_HOST", &host)]);
    calls.recv_timeout(SOON).unwrap();
    stops(&mut world);
}

// Connections.

fn connect(world: &World) -> TcpStream {
    let stream = TcpStream::connect(world.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

#[test]
fn a_page_a_slow_reader_and_half_a_request_are_connected() {
    let mut world = World::process();
    let agent = world.group("g");
    for n in 0..16 {
        let text = "long ".repeat(500);
        agent.ask(&format!("r{n}"), &json!({"questions": [{"question": format!("{n} {text}")}]}));
    }
    within(SOON, "all to be open", || (world.open().len() == 16).then_some(()));
    let authorised = format!("host: {}\r\nauthorization: Bearer {}\r\n", world.address(), world.token());
    let mut events = connect(&world);
    write!(events, "GET /api/v1/events HTTP/1.1\r\n{authorised}\r\n").unwrap();
    let mut some = [0; 64];
    assert!(events.read(&mut some).unwrap() > 0);
    // Clients ask for lists and never read them.
    let mut slow = connect(&world);
    for _ in 0..200 {
        write!(slow, "GET /api/v1/asks HTTP/1.1\r\n{authorised}\r\n").unwrap();
    }
    let mut half = connect(&world);
    write!(half, "POST /api/v1/asks/x/dismiss HTTP/1.1\r\n{authorised}content-length: 100\r\n\r\nhalf").unwrap();
    let mut head = connect(&world);
    write!(head, "POST /api/v1/asks/x/dismiss HTTP/1.1\r\nhost:").unwrap();
    stops(&mut world);
}

/// The rest of the body comes after the daemon was told to stop: the answer is taken all the same.
#[test]
fn an_answer_whose_body_is_slow_is_taken() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let body = json!({"answers": {"r1_0": "React"}}).to_string();
    let (first, rest) = body.split_at(10);
    let mut stream = connect(&world);
    write!(
        stream,
        "POST /api/v1/asks/{}/answer HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{first}",
        ask["id"].as_str().unwrap(),
        world.address(),
        world.token(),
        body.len()
    )
    .unwrap();
    // The clients are served and not only connected: another request on another connection has been answered since.
    assert_eq!(world.open().len(), 1);
    let told = Instant::now();
    world.signal(rustix::process::Signal::TERM);
    within(SOON, "the daemon to be stopping", || world.log().contains("stopping").then_some(()));
    stream.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    let _cut = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(world.ended().success());
    assert!(told.elapsed() < WITHIN, "{:?}", told.elapsed());
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React", "it is told before the end");
}

// The disk.

/// A world whose disk can be made slow, with an open ask.
fn on_a_disk() -> (World, Agent, std::path::PathBuf) {
    let world = World::empty().with_binary();
    let slow = world.dir.path().join("slow");
    let world = world.env("ASKD_SLOW_CALL", &slow.display().to_string()).started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    world.one_open();
    (world, agent, slow)
}

/// Answers from another thread, and gives the daemon time to begin to save it.
fn answering(world: &World) -> std::thread::JoinHandle<String> {
    let ask = world.one_open();
    let body = json!({"answers": {"r1_0": "React"}}).to_string();
    let request = format!(
        "POST /api/v1/asks/{}/answer HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        ask["id"].as_str().unwrap(),
        world.address(),
        world.token(),
        body.len()
    );
    let mut stream = connect(world);
    let answering = std::thread::spawn(move || {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _cut = stream.read_to_string(&mut answer);
        answer
    });
    std::thread::sleep(Duration::from_millis(500));
    answering
}

#[test]
fn an_answer_whose_save_is_slow_is_taken() {
    let (mut world, agent, slow) = on_a_disk();
    std::fs::write(&slow, "fsync@file:1500").unwrap();
    let answering = answering(&world);
    stops(&mut world);
    let answer = answering.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    std::fs::remove_file(&slow).unwrap();
    world.start();
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React");
}

#[test]
fn the_disk_hangs() {
    let (mut world, agent, slow) = on_a_disk();
    std::fs::write(&slow, "fsync:3600000").unwrap();
    let answering = answering(&world);
    stops(&mut world);
    let answer = answering.join().unwrap();
    assert!(!answer.starts_with("HTTP/1.1 200"), "acknowledged, and not stored: {answer}");
    std::fs::remove_file(&slow).unwrap();
    world.start();
    // The answer may or may not be stored; the ask has one outcome either way.
    if let Some(ask) = world.open().first() {
        assert_eq!(world.answer(ask, &json!({"r1_0": "React"})).0, 200);
    }
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React");
}
