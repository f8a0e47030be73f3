//! SIGTERM ends the daemon within 10 s, whatever hangs, and costs no ask a try. Each story hangs one thing: a channel
//! that is away, a post that waits its turn, a probe, a command, an Engine, a connection.

use crate::harness::{Agent, SOON, World, choice, until, within};
use crate::in_slack::{ALICE, CHANNEL, Mode, in_slack, write};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, happens, sim};
use askd_sim::slack::FaultKind;
use askd_sim::whatsapp::Fault;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The promise.
const WITHIN: Duration = Duration::from_secs(10);
const POST: &str = "chat.postMessage";
const HISTORY: &str = "conversations.history";

/// Terminates and expects a clean end in time.
fn stops(world: &mut World) {
    world.tell_to_stop();
    let status = within(WITHIN, "the daemon to end", || world.has_ended());
    assert!(status.success(), "{status}");
}

/// The same beside the stand-ins.
async fn stops_too(world: &mut World) {
    world.tell_to_stop();
    let status = until("the daemon to end", WITHIN, || world.has_ended()).await;
    assert!(status.success(), "{status}");
}

/// Runs a daemon that is broken in this way; an empty name is an honest one.
const HONEST: &str = "";

/// The promise can be broken: a stop that waits for what hangs, and one that drops what people have in hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_time_limits_and_one_without_patience_are_noticed() {
    async fn noticed(story: impl Future<Output = ()>) -> bool {
        AssertUnwindSafe(story).catch_unwind().await.is_err()
    }
    // Alone: it stops the daemon in the middle of a save, and the others block this task while they wait.
    assert!(noticed(a_webhook_in_flight("stopatonce")).await);
    let seen = tokio::join!(
        noticed(slack_is_away("stopwaits")),
        noticed(whatsapps_reply_is_lost("stopwaits")),
        noticed(a_hanging_probe("stopwaits")),
        noticed(a_hanging_start("stopwaits")),
    );
    assert_eq!(seen, (true, true, true, true));
}

/// One try only, so that a stop that costs one is seen.
fn once(mut request: Value) -> Value {
    request["maxRetries"] = json!(0);
    request
}

// Slack.

async fn slack_is_away(sabotage: &str) {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    world.begin_with(&[("ASKD_SABOTAGE", sabotage)]).await;
    world.slack.faults().next(POST, FaultKind::ResetBefore, 1);
    world.slack.faults().next(HISTORY, FaultKind::Status(503), 1_000);
    world.ask("r1", once(choice("Which?", &["a", "b"])));
    let looked = || world.slack.calls().iter().any(|call| call.method == HISTORY).then_some(());
    world.slack.wait_for(SOON, looked).await.expect("it looks");
    stops_too(&mut world).await;
}

#[tokio::test]
async fn slack_is_away_while_a_card_is_looked_for() {
    slack_is_away(HONEST).await;
}

/// The disk is slow, so that a click is being stored when the daemon is told to stop.
async fn a_webhook_in_flight(sabotage: &str) {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    let slow = world.dir.path().join("slow");
    world.set_env("ASKD_SLOW_CALL", &slow.display().to_string());
    world.begin_with(&[("ASKD_SABOTAGE", sabotage)]).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    write(&slow, b"fsync@journal:1500");
    let (click, ()) = tokio::join!(world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.tell_to_stop();
    });
    assert!(click.is_ok_and(|delivery| delivery.acknowledged), "the click is in hand");
    let status = until("the daemon to end", WITHIN, || world.has_ended()).await;
    assert!(status.success(), "{status}");
    std::fs::remove_file(&slow).unwrap();
    world.begin().await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    world.says(CHANNEL, &card.ts, "Answered: b").await;
}

#[tokio::test]
async fn a_webhook_is_in_flight() {
    a_webhook_in_flight(HONEST).await;
}

#[tokio::test]
async fn a_post_to_slack_that_a_stop_cuts_off_was_no_try() {
    let mut world = in_slack(Mode::Http).with_binary().start().await;
    world.slack.faults().next(POST, FaultKind::StallBefore(Duration::from_secs(3600)), 1);
    world.ask("r1", once(choice("Which?", &["a", "b"])));
    let sent = || world.store().values().any(|record| record.contains("\"sent\"")).then_some(());
    until("it to be sent", SOON, sent).await;
    stops_too(&mut world).await;
    world.slack.faults().clear();
    world.begin().await;
    let card = world.card(CHANNEL).await;
    assert!(!card.visible_text().contains("retry attempt"), "{}", card.visible_text());
    assert!(world.response_now("r1").is_none(), "nobody has answered");
}

#[tokio::test]
async fn slack_does_not_answer_over_the_socket() {
    let mut world = in_slack(Mode::Socket).with_binary().without_waiting().prepare().await;
    world.slack.faults().next("apps.connections.open", FaultKind::StallBefore(Duration::from_secs(3600)), 100);
    world.slack.faults().next("auth.test", FaultKind::StallBefore(Duration::from_secs(3600)), 100);
    world.begin().await;
    stops_too(&mut world).await;
}

// WhatsApp.

async fn whatsapps_reply_is_lost(sabotage: &str) {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.kill();
    world.begin_with(&[("ASKD_SABOTAGE", sabotage)]).await;
    world.writes(ADA, "hello").await;
    world.phone.fault(Fault::ResetBefore, 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    happens("the call to be lost", || record_says(&world, "\"unknown\"")).await;
    stops_too(&mut world).await;
    world.begin().await;
    stops_too(&mut world).await;
}

#[tokio::test]
async fn a_whatsapp_post_of_unknown_fate_is_waited_for_and_after_the_next_start_too() {
    whatsapps_reply_is_lost(HONEST).await;
}

#[tokio::test]
async fn a_whatsapp_post_that_was_under_way_at_a_crash_is_waited_for() {
    let mut config = sim();
    config.stall_ms = 60_000;
    let mut world = binary_on_whatsapp(config, TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.phone.fault(Fault::StallBefore, 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    happens("it to be sent", || record_says(&world, "\"name\": \"sent\"")).await;
    world.restart().await;
    stops_too(&mut world).await;
}

/// Forty-five at once: the first twenty leave on credit, the others wait for their turn.
#[tokio::test]
async fn whatsapp_posts_that_wait_for_their_turn_lose_no_try() {
    let mut world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    let all: Vec<String> = (0..45).map(|n| format!("r{n}")).collect();
    for id in &all {
        world.ask(id, once(choice(&format!("Which of {id}?"), &["a", "b"])));
    }
    for _ in 0..2 {
        happens("all to be asked", || world.records().len() == all.len()).await;
        happens("the credit to be used up", || world.phone.messages_to(ADA).len() >= 15).await;
        stops_too(&mut world).await;
        world.begin().await;
    }
    // If a stop had spoilt anything, the ask would say so at once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ended: Vec<_> = all.iter().filter_map(|id| world.response_now(id).map(|response| (id, response))).collect();
    assert!(ended.is_empty(), "{} ended: {:?}", ended.len(), ended.first());
    for (path, record) in world.records() {
        assert!(!record.contains("\"attempt\": 2"), "a try was used up: {}: {record}", path.display());
    }
}

fn record_says(world: &World, what: &str) -> bool {
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

/// A command that says that it runs, and never ends before the story does.
struct Hanging {
    program: PathBuf,
    ran: PathBuf,
    _folder: tempfile::TempDir,
}

impl Hanging {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (program, ran) = (folder.path().join("hangs"), folder.path().join("ran"));
        std::fs::write(&program, format!("#!/bin/sh\necho $$ >> {}\nexec sleep 3600\n", ran.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, ran, _folder: folder }
    }

    fn pids(&self) -> Vec<i32> {
        std::fs::read_to_string(&self.ran).unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Whether it was run so often.
    fn ran(&self, times: usize) -> Option<()> {
        (self.pids().len() == times).then_some(())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process};
        for pid in self.pids().into_iter().filter(|pid| runs(*pid)) {
            let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn a_hanging_probe(sabotage: &str) {
    let hanging = Hanging::new();
    let (mut world, _agent) = answered(
        &format!("probe = {{ command = [\"{}\"] }}", hanging.program.display()),
        &[("ASKD_SABOTAGE", sabotage)],
    );
    until("the probe to run", SOON, || hanging.ran(1)).await;
    stops_too(&mut world).await;
    until("the probe to be ended too", SOON, || (!hanging.pids().into_iter().any(runs)).then_some(())).await;
}

#[tokio::test]
async fn a_probe_hangs() {
    a_hanging_probe(HONEST).await;
}

async fn a_hanging_start(sabotage: &str) {
    let hanging = Hanging::new();
    let (mut world, _agent) = answered(
        &format!("start = {{ command = [\"{}\"] }}", hanging.program.display()),
        &[("ASKD_SABOTAGE", sabotage)],
    );
    until("the start to run", SOON, || hanging.ran(1)).await;
    stops_too(&mut world).await;
    let started = hanging.pids()[0];
    assert!(runs(started), "an agent that was started goes on");
    world.start();
    until("it to be started once more", SOON, || hanging.ran(2)).await;
}

#[tokio::test]
async fn a_start_command_is_under_way() {
    a_hanging_start(HONEST).await;
}

#[test]
fn a_stop_command_hangs() {
    let hanging = Hanging::new();
    let config = format!(
        "[groups.g]\nroutes = [{{ channel = \"web\" }}]\non_timeout = \"abort_task\"\n\
         session = {{ stop = {{ command = [\"{}\"] }} }}\n",
        hanging.program.display()
    );
    let mut world = World::empty().with_binary().config(&config).started();
    let agent = world.group("g");
    agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
    within(Duration::from_secs(10) + SOON, "the stop to run", || hanging.ran(1));
    stops(&mut world);
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
    std::fs::write(&slow, "fsync@journal:1500").unwrap();
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

/// A proxy notices only after a while that another daemon has to take its calls.
#[test]
fn calls_are_taken_for_a_while_after_readyz_has_said_that_askd_stops() {
    let delayed = "[http]\nstop_delay = \"3s\"\n";
    let mut world = World::empty().with_binary().config(delayed).started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    world.tell_to_stop();
    let told = Instant::now();
    within(SOON, "a proxy to be told", || {
        (world.raw("GET", "/readyz", "", "") == (503, "stopping\n".to_owned())).then_some(())
    });
    assert_eq!(world.answer(&ask, &json!({"r1_0": "React"})).0, 200);
    let status = within(WITHIN, "the daemon to end", || world.has_ended());
    assert!(status.success() && told.elapsed() >= Duration::from_secs(3), "{status} after {:?}", told.elapsed());
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React");
}
