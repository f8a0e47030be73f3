//! What one call of `ask_user` costs through files, beside the bare floor: the same request and response,
//! by a client that is nothing but one kept watch. The host answers at once and syncs nothing, so that only
//! the agent's side is measured. Both in one run, round about; medians.
//!
//!     cargo bench --profile dist --bench mcp_round [--no-default-features]
#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "it measures and says so")]

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const CALLS: usize = 100;

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

fn place(folder: &Path, name: &str, content: &str) {
    let temporary = folder.join(format!(".tmp-{name}"));
    fs::write(&temporary, content).unwrap();
    fs::rename(temporary, folder.join(name)).unwrap();
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
        let response = json!({"result": {
            "answers": {"Go?": "yes"}, "status": "answered", "reason": "user", "answered": true, "cancelled": false,
            "timedOut": false, "shouldRetry": false, "retryReason": null, "renderConfirmed": true,
            "details": [{"id": format!("{id}_0"), "question": "Go?", "selected": ["yes"], "text": null}],
            "answered_by": {"channel": "web", "id": "operator", "name": null},
            "request_id": id, "opCode": null, "answered_at": "2026-11-20T10:00:00.000Z",
        }});
        place(responses, &format!("{id}.json"), &response.to_string());
        false
    });
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
    place(tasks, &format!("{id}.json"), &request.to_string());
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_askd"));
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

    fn exchange(&mut self, id: usize, method: &str, params: &Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.input.write_all(format!("{call}\n").as_bytes()).unwrap();
        self.line.clear();
        self.output.read_line(&mut self.line).unwrap();
        serde_json::from_str(&self.line).unwrap()
    }

    fn call(&mut self, number: usize) {
        let arguments = json!({
            "title": number.to_string(), "context": "All tests pass.", "questions": questions(), "waitMs": 30_000,
        });
        let reply = self.exchange(number, "tools/call", &json!({"name": "ask_user", "arguments": arguments}));
        assert_eq!(reply["result"]["structuredContent"]["answers"]["Go?"], "yes", "{reply}");
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn median<T: PartialOrd + Copy>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
    sorted[sorted.len() / 2]
}

fn round(mut call: impl FnMut(usize)) -> Duration {
    let took: Vec<Duration> = (1..=CALLS)
        .map(|number| {
            let begun = Instant::now();
            call(number);
            begun.elapsed()
        })
        .collect();
    median(&took)
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let (tasks, responses) = (folder.path().join("tasks"), folder.path().join("responses"));
    fs::create_dir(&tasks).unwrap();
    fs::create_dir(&responses).unwrap();
    let (watched, answers) = (Watched::new(&tasks), responses.clone());
    std::thread::spawn(move || host(&watched, &answers));
    let kept = Watched::new(&responses);
    let mut mcp = Mcp::start(folder.path());
    let (mut floors, mut calls, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for number in 0..=ROUNDS {
        let first = number * CALLS;
        let floor = round(|call| bare_call(&tasks, &kept, first + call));
        let call = round(|call| mcp.call(first + call));
        if number > 0 {
            println!("round {number}: floor {floor:?}, askd mcp {call:?}");
            floors.push(floor);
            calls.push(call);
            ratios.push(call.as_secs_f64() / floor.as_secs_f64());
        }
    }
    let (least, most) =
        ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
    println!(
        "p50 of {CALLS} calls, median of {ROUNDS} rounds: floor {:?}, askd mcp {:?}, ratio {:.2} ({least:.2} to {most:.2})",
        median(&floors),
        median(&calls),
        median(&ratios)
    );
}
