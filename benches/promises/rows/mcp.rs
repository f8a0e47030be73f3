//! The agent's side: how long `askd mcp` takes to start, what it costs while it waits, and one call through files beside
//! a client that is nothing but one kept watch. The host answers at once and syncs nothing, so that only the agent's side
//! is measured.

use super::median;
use crate::Bench;
use crate::floor::place;
use crate::load::Times;
use crate::report::{Goal, Unit};
use crate::system;
use crate::world::{askd_binary, fresh};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A question with this title gets no answer.
const UNANSWERED: &str = "unanswered";

/// The in-container binary, if one is named; else the daemon's, which is the same program with more in it.
fn binary() -> PathBuf {
    std::env::var_os("ASKD_AGENT_BIN").map_or_else(askd_binary, PathBuf::from)
}

/// A watch on one folder, kept.
struct Watched {
    folder: PathBuf,
    events: OwnedFd,
}

impl Watched {
    fn new(folder: &Path) -> Self {
        let events = inotify::init(CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, folder, WatchFlags::MOVED_TO).unwrap();
        Self { folder: folder.to_owned(), events }
    }

    /// Calls `each` with the name of every file that is renamed into place, until it says that this is it.
    fn until(&self, mut each: impl FnMut(&str) -> bool) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.events, &mut buffer);
        loop {
            let event = reader.next().unwrap();
            if event.file_name().is_some_and(|name| each(name.to_str().unwrap())) {
                return;
            }
        }
    }
}

/// Answers every request at once, for ever.
fn host(tasks: &Watched, responses: &Path) {
    tasks.until(|name| {
        if name.starts_with('.') {
            return false;
        }
        let path = tasks.folder.join(name);
        let request: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        fs::remove_file(path).unwrap();
        let id = request["request_id"].as_str().unwrap();
        if request["title"] == UNANSWERED {
            return false;
        }
        let response = json!({"result": {
            "answers": {"Go?": "yes"}, "status": "answered", "reason": "user", "answered": true, "cancelled": false,
            "timedOut": false, "shouldRetry": false, "retryReason": null, "renderConfirmed": true,
            "details": [{"id": format!("{id}_0"), "question": "Go?", "selected": ["yes"], "text": null}],
            "answered_by": {"channel": "web", "id": "operator", "name": null},
            "request_id": id, "opCode": null, "answered_at": "2026-11-20T10:00:00.000Z",
        }});
        place(responses, &format!("{id}.json"), response.to_string().as_bytes()).unwrap();
        false
    });
}

/// A group's folder with such a host, and those of requests and responses in it.
fn served(bench: &Bench, name: &str) -> [PathBuf; 3] {
    let folder = fresh(&bench.base, name);
    let (tasks, responses) = (folder.join("tasks"), folder.join("responses"));
    fs::create_dir(&tasks).unwrap();
    fs::create_dir(&responses).unwrap();
    let (watched, answers) = (Watched::new(&tasks), responses.clone());
    std::thread::spawn(move || host(&watched, &answers));
    [folder, tasks, responses]
}

fn questions() -> Value {
    json!([{"question": "Go?", "options": [{"label": "yes", "description": "roll it out"}, "no"]}])
}

/// The floor: write, wait for the event, read, delete.
fn bare_call(tasks: &Path, responses: &Watched, number: usize) {
    let id = format!("bare{number}");
    let request = json!({
        "type": "ask_user:ask", "request_id": id, "title": number.to_string(), "context": "All tests pass.",
        "questions": questions(),
    });
    place(tasks, &format!("{id}.json"), request.to_string().as_bytes()).unwrap();
    let wanted = format!("{id}.json");
    responses.until(|name| name == wanted);
    let path = responses.folder.join(wanted);
    let response: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(response["result"]["answers"]["Go?"], "yes");
    fs::remove_file(path).unwrap();
}

/// The real `askd mcp` and its client.
struct Mcp {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Mcp {
    fn start(ipc: &Path) -> Self {
        let mut command = Command::new(binary());
        command.arg("mcp").arg("--ipc").arg(ipc).env("RUST_LOG", "warn");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut mcp = Self { child, input, output, line: String::new() };
        let client = json!({"name": "bench", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        mcp.exchange(0, "initialize", &hello);
        writeln!(mcp.input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        mcp
    }

    fn send(&mut self, id: usize, method: &str, params: &Value) {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.input.write_all(format!("{call}\n").as_bytes()).unwrap();
    }

    fn exchange(&mut self, id: usize, method: &str, params: &Value) -> Value {
        self.send(id, method, params);
        self.line.clear();
        self.output.read_line(&mut self.line).unwrap();
        serde_json::from_str(&self.line).unwrap()
    }

    fn arguments(title: &str) -> Value {
        let arguments =
            json!({"title": title, "context": "All tests pass.", "questions": questions(), "waitMs": 300_000});
        json!({"name": "ask_user", "arguments": arguments})
    }

    fn call(&mut self, number: usize) {
        let reply = self.exchange(number, "tools/call", &Self::arguments(&number.to_string()));
        assert_eq!(reply["result"]["structuredContent"]["answers"]["Go?"], "yes", "{reply}");
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

pub(crate) fn measure(bench: &mut Bench) {
    let [folder, tasks, responses] = served(bench, "mcp");
    if bench.wants(&[14]) {
        let starts = (0..15).map(|_| {
            let begun = Instant::now();
            let _mcp = Mcp::start(&folder);
            begun.elapsed().as_secs_f64()
        });
        let what = "askd mcp: exec -> initialize";
        bench.report.row(14, what, Unit::Seconds, None, median(starts.collect()), Goal::AtMost(5e-3));
    }
    if bench.wants(&[15]) {
        calls(bench, &folder, &tasks, &responses);
    }
    if std::env::var_os("ASKD_AGENT_BIN").is_none() {
        bench.report.note("askd mcp is the daemon's binary here; ASKD_AGENT_BIN names the in-container one".into());
    }
}

/// A call that waits, while other rows are measured: it costs nothing that they would notice.
pub(crate) struct Waiting {
    mcp: Mcp,
    /// Once it has settled.
    before: JoinHandle<system::Activity>,
}

impl Waiting {
    /// In a folder of its own, whose host takes the request and does not answer it.
    pub(crate) fn start(bench: &Bench) -> Self {
        let [folder, ..] = served(bench, "mcp-waits");
        let mut mcp = Mcp::start(&folder);
        mcp.send(1, "tools/call", &Mcp::arguments(UNANSWERED));
        let pid = mcp.child.id();
        let settled = move || {
            std::thread::sleep(Duration::from_secs(3));
            system::activity(pid)
        };
        Self { mcp, before: std::thread::spawn(settled) }
    }

    #[expect(clippy::cast_precision_loss, reason = "a size and a count")]
    pub(crate) fn measure(self, bench: &mut Bench) {
        let (window, before) = (Duration::from_secs(if bench.quick { 6 } else { 30 }), self.before.join().unwrap());
        std::thread::sleep(window.saturating_sub(before.at.elapsed()));
        let after = system::activity(self.mcp.child.id());
        let woken = after.switches.saturating_sub(before.switches) as f64 / (after.at - before.at).as_secs_f64();
        let memory = system::memory(self.mcp.child.id()).0 as f64;
        bench.report.row(14, "askd mcp: memory while a call waits", Unit::Bytes, None, memory, Goal::AtMost(5e6));
        bench.report.row(14, "askd mcp: wake-ups a second meanwhile", Unit::Count, None, woken, Goal::AtMost(1.0));
    }
}

fn calls(bench: &mut Bench, folder: &Path, tasks: &Path, responses: &Path) {
    let (kept, mut mcp) = (Watched::new(responses), Mcp::start(folder));
    let (mut floors, mut calls) = (Vec::new(), Vec::new());
    let each = 100;
    let time = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64()
    };
    // The first round warms up.
    for round in 0..=bench.rounds {
        let numbers = round * each + 1..(round + 1) * each + 1;
        let floor: Vec<f64> = numbers.clone().map(|number| time(&mut || bare_call(tasks, &kept, number))).collect();
        let call: Vec<f64> = numbers.map(|number| time(&mut || mcp.call(number))).collect();
        if round > 0 {
            floors.push(Times::new(floor).p50());
            calls.push(Times::new(call).p50());
        }
    }
    let what = "askd mcp: one call through files, p50 (floor: one kept watch)";
    bench.report.row(15, what, Unit::Seconds, Some(median(floors)), median(calls), Goal::Within(2.0));
}
