//! Agents that are started and stopped by a signed call of an address: what it says, how often, and where it goes.

use crate::harness::{SHORTEST, SOON, World, within};
use crate::ports::free_port;
use crate::said;
use crate::sessions::{in_g, with_session};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// How long a start is tried anew for, in these stories.
const RETRIED: Duration = Duration::from_secs(30);

/// What was called, and how.
#[derive(Clone)]
struct Called {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Called {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// An address that takes calls. It answers with these statuses one after the other, then with 200.
struct Hook {
    at: SocketAddr,
    calls: Arc<Mutex<Vec<Called>>>,
    connections: Arc<AtomicUsize>,
}

impl Hook {
    fn new(statuses: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, calls) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let connections = Arc::new(AtomicUsize::new(0));
        let (noted, counted) = (Arc::clone(&calls), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                counted.fetch_add(1, Ordering::SeqCst);
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).is_err() || line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_owned());
                }
                // A call by TLS, which is not spoken here.
                let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else {
                    continue;
                };
                let headers: Vec<(String, String)> = lines
                    .iter()
                    .filter_map(|line| line.split_once(": "))
                    .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                    .collect();
                let mut called = Called { path, headers, body: String::new() };
                let mut body = vec![0; called.header("content-length").parse().unwrap_or(0)];
                stream.read_exact(&mut body).unwrap();
                called.body = String::from_utf8(body).unwrap();
                let mut calls = noted.lock().unwrap();
                let status = statuses.get(calls.len()).copied().unwrap_or("200 OK");
                calls.push(called);
                drop(calls);
                let reply = format!(
                    "HTTP/1.1 {status}\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                let _gone = stream.get_mut().write_all(reply.as_bytes());
            }
        });
        Self { at, calls, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn calls(&self) -> Vec<Called> {
        self.calls.lock().unwrap().clone()
    }
}

/// A secret file of the operator's.
fn secret(dir: &Path, keys: &str) -> String {
    let file = dir.join("webhook_secret");
    fs::write(&file, keys).unwrap();
    file.display().to_string()
}

/// The answer of the specification to what a key signs, by a program that askd did not write.
fn signature(key: &str, called: &Called) -> String {
    let code = "import base64,hashlib,hmac,sys\nkey=base64.b64decode(sys.argv[1].removeprefix('whsec_'))\n\
                print('v1,'+base64.b64encode(hmac.digest(key,sys.argv[2].encode(),hashlib.sha256)).decode(),end='')";
    let signed = format!("{}.{}.{}", called.header("webhook-id"), called.header("webhook-timestamp"), called.body);
    let output = Command::new("python3").args(["-c", code, key, &signed]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn asked_and_answered(world: &World) -> Value {
    world
        .group("g")
        .ask("r1", &json!({"session_id": "run-7", "questions": [{"question": "Go on?", "options": ["yes", "no"]}]}));
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Go on?": "yes"})).0, 200);
    ask
}

fn note(world: &World, ask: &Value) -> Value {
    world.details(ask["id"].as_str().unwrap())["note"].clone()
}

#[test]
fn an_agent_is_started_by_one_signed_call_that_is_retried_with_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Hook::new(&["500 Internal Server Error", "302 Found"]);
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let file = secret(dir.path(), &format!("{KEY}\n{other}\n"));
    let session = format!("start = {{ webhook = \"http://{}/continue?a=1\", secret_file = {file:?} }}", hook.at);
    let world = with_session(&session, "pickup_timeout = \"1s\"").started();
    let ask = asked_and_answered(&world);
    let calls = world.passing(RETRIED, "three calls", || Some(hook.calls()).filter(|calls| calls.len() == 3));
    let id = ask["id"].as_str().unwrap();
    for called in &calls {
        assert_eq!(called.path, "/continue?a=1", "no redirect is followed");
        assert_eq!(called.header("webhook-id"), format!("{id}.start.1"));
        assert_eq!(called.header("content-type"), "application/json");
        let both = format!("{} {}", signature(KEY, called), signature(other, called));
        assert_eq!(called.header("webhook-signature"), both, "each key signs");
    }
    assert!(calls[0].header("webhook-timestamp").parse::<u64>().unwrap() > 1_000_000_000);
    let told = calls[2].json();
    assert_eq!((&told["type"], &told["ask_id"], &told["group"]), (&json!("start"), &json!(id), &json!("g")));
    assert_eq!((&told["session_id"], &told["result"]["answers"]["Go on?"]), (&json!("run-7"), &json!("yes")));
    assert!(told["text"].as_str().unwrap().contains("The user answered: \"yes\""), "{told}");
    let started = json!(said::STARTED);
    within(SOON, "the card to say so", || (note(&world, &ask) == started).then_some(()));
    assert!(world.log().contains("it answered 302 Found"), "{}", world.log());
    assert_eq!(hook.calls().len(), 3);
}

/// The hook speaks no TLS, so that a call would fail in any case: whether anything connects is what counts.
pub(crate) fn a_private_address_is_not_called(world: World) {
    let dir = tempfile::tempdir().unwrap();
    let (hook, file) = (Hook::new(&[]), secret(dir.path(), KEY));
    let session = format!("start = {{ webhook = \"https://localhost:{}/\", secret_file = {file:?} }}", hook.at.port());
    let world = world.config(&in_g(&session, "pickup_timeout = \"1s\"")).started();
    asked_and_answered(&world);
    within(SOON, "the start to fail", || {
        assert_eq!(hook.connections(), 0, "the address is private");
        world.log().contains("leads to a private address").then_some(())
    });
}

#[test]
fn a_private_address_is_called_where_the_settings_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, file) = (Hook::new(&[]), secret(dir.path(), KEY));
    let address = format!("http://localhost:{}/", hook.at.port());
    let session = format!("start = {{ webhook = {address:?}, private = true, secret_file = {file:?} }}");
    let world = with_session(&session, "pickup_timeout = \"1s\"").started();
    asked_and_answered(&world);
    world.passing(RETRIED, "the call", || hook.calls().pop());
}

#[test]
fn under_abort_task_a_timeout_calls_the_webhook_that_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, file) = (Hook::new(&[]), secret(dir.path(), KEY));
    let session = format!("stop = {{ webhook = \"http://{}/stop\", secret_file = {file:?} }}", hook.at);
    let world = with_session(&session, "on_timeout = \"abort_task\"").started();
    world.group("g").ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go on?"}]}));
    let ask = world.one_open();
    world.later(SHORTEST);
    let called = world.passing(RETRIED, "the stop", || hook.calls().pop());
    let id = ask["id"].as_str().unwrap();
    assert_eq!(called.header("webhook-id"), format!("{id}.stop.1"));
    assert_eq!(called.header("webhook-signature"), signature(KEY, &called));
    let told = json!({"type": "stop", "ask_id": id, "group": "g", "reason": "ask_user_timeout"});
    assert_eq!(called.json(), told);
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[test]
fn the_receiver_of_the_document_takes_true_calls_alone_and_starts_an_agent_once() {
    let dir = tempfile::tempdir().unwrap();
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sessions.md")).unwrap();
    let code = document.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let (receiver, file) = (dir.path().join("receiver.py"), secret(dir.path(), KEY));
    fs::write(&receiver, code).unwrap();
    let (briefing, port) = (dir.path().join("briefing"), free_port());
    // At the first try there is no such command.
    let agent = dir.path().join("agent");
    let child = Command::new("python3")
        .arg(&receiver)
        .arg(port.to_string())
        .arg(&agent)
        .env("WEBHOOK_SECRET_FILE", &file)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _ends = Ends(child);
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    within(SOON, "the receiver", || std::net::TcpStream::connect(at).ok());
    let (forged, _) = crate::harness::exchange(
        at,
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nwebhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,AAAA\r\ncontent-length: 2\r\n\r\n{}",
    );
    assert_eq!(forged, 401);
    let session = format!("start = {{ webhook = \"http://{at}/\", secret_file = {file:?} }}");
    let world = with_session(&session, "pickup_timeout = \"1s\"").started();
    let ask = asked_and_answered(&world);
    let refused = || world.log().contains("500 Internal Server Error").then_some(());
    world.passing(RETRIED, "the first try", refused);
    let made = dir.path().join("made");
    fs::write(&made, format!("#!/bin/sh\ncat >> '{}'\n", briefing.display())).unwrap();
    fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&made, &agent).unwrap();
    let started = json!(said::STARTED);
    world.passing(RETRIED * 4, "the card to say so", || (note(&world, &ask) == started).then_some(()));
    let read = || fs::read_to_string(&briefing).ok().filter(|text| text.contains("Continue from where"));
    let text = within(SOON, "the agent to be started", read);
    assert_eq!(text.matches("The user answered").count(), 1, "{text}");
}
