//! What a client hears about a line that is not a message, and batches in the revision that has them.

use crate::harness::{SOON, World, askd};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

struct Server {
    child: Child,
    lines: Receiver<Value>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Server {
    /// Introduced to under this revision of the protocol.
    fn new(world: &World, revision: &str) -> Self {
        let mut command = askd();
        command.arg("mcp").arg("--ipc").arg(&world.group("g").path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("standard output is the protocol and nothing else");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut server = Self { child, lines };
        let hello =
            json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        server.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).to_string());
        assert_eq!(server.next()["result"]["protocolVersion"], revision);
        server.write(r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#);
        server
    }

    fn write(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn next(&self) -> Value {
        self.lines.recv_timeout(SOON).unwrap()
    }
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

#[test]
fn a_line_that_is_no_message_is_told_what_is_wrong_with_it() {
    let world = World::new();
    let mut server = Server::new(&world, "2025-06-18");
    for (line, code, id) in [
        ("no json", -32700, json!(null)),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7,", -32700, json!(null)),
        // Half of an emoji, as JavaScript writes it.
        (
            r#"{"jsonrpc": "2.0", "id": 11, "method": "tools/call", "params": {"name": "Ship it \ud83d?"}}"#,
            -32700,
            json!(11),
        ),
        (r#"{"jsonrpc": "2.0", "id": 8, "method": "tools/call"}"#, -32602, json!(8)),
        (r#"{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"arguments": {}}}"#, -32602, json!(8)),
        (
            r#"{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "ask_user", "arguments": "Go?"}}"#,
            -32602,
            json!(8),
        ),
        (r#"[{"jsonrpc": "2.0", "id": 9, "method": "ping"}]"#, -32600, json!(null)),
        ("7", -32600, json!(null)),
    ] {
        server.write(line);
        let told = server.next();
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(code), &id), "{line}: {told}");
    }
    // No arguments are a call all the same: the tool says what it needs.
    server.write(r#"{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "ask_user_wait", "arguments": null}}"#);
    assert_eq!(server.next()["result"]["isError"], true);
    // Blank lines and unknown notifications get no reply, and the server goes on.
    for line in ["", "\r", r#"{"jsonrpc": "2.0", "method": "notifications/of/others", "params": {}}"#] {
        server.write(line);
    }
    server.write("\u{feff}{\"jsonrpc\": \"2.0\", \"id\": 10, \"method\": \"ping\"}\r");
    assert_eq!((&server.next()["id"], server.lines.try_recv().ok()), (&json!(10), None));
}

#[test]
fn a_batch_is_taken_under_the_revision_that_has_them_and_replied_to_as_one() {
    let world = World::new();
    let mut server = Server::new(&world, "2025-03-26");
    server.write("[]");
    assert_eq!(server.next()["error"]["code"], -32600);
    let question = json!({"questions": [{"question": "Go?"}], "waitMs": 60_000});
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        call(2, "ask_user", &question),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call"},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/list"},
    ]);
    server.write(&batch.to_string());
    let ask = world.one_open();
    server.write(r#"{"jsonrpc": "2.0", "id": 5, "method": "ping"}"#);
    assert_eq!(server.next()["id"], 5, "others are replied to meanwhile");
    assert_eq!(server.lines.recv_timeout(Duration::from_millis(300)).ok(), None, "one reply, when all is there");
    assert_eq!(world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let mut replies = server.next().as_array().unwrap().clone();
    replies.sort_by_key(|reply| reply["id"].as_u64());
    let ids: Vec<u64> = replies.iter().filter_map(|reply| reply["id"].as_u64()).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert_eq!(replies[1]["result"]["structuredContent"]["answers"], json!({"Go?": "yes"}));
    assert_eq!(replies[2]["error"]["code"], -32602);
    // A batch of notifications has no reply. A batch with a cancelled call is complete without that reply.
    server.write(r#"[{"jsonrpc": "2.0", "method": "notifications/initialized"}]"#);
    let second = json!({"questions": [{"question": "And now?"}], "waitMs": 60_000});
    server.write(&json!([call(6, "ask_user", &second), {"jsonrpc": "2.0", "id": 7, "method": "ping"}]).to_string());
    world.one_open();
    server.write(r#"{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}}"#);
    let replies = server.next();
    assert_eq!(replies[0]["id"], 7, "{replies}");
    assert_eq!(world.open().len(), 1, "out of patience is not withdrawn");
}
