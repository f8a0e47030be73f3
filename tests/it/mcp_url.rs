//! MCP by URL: a client that has a token and no folder, in both eras of the protocol. It is nothing but lines over TCP.

use crate::harness::{SOON, World, exchange, within};
use crate::mcp_client::{Told, go};
use crate::remote::{Agent, Remote};
use crate::sessions::Alive;
use serde_json::{Value, json};
use socket2::{SockFilter, SockRef};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const NEW: &str = "2026-07-28";
pub(crate) const TAKES_TASKS: &str = r#"{"extensions": {"io.modelcontextprotocol/tasks": {}}}"#;

/// A client at the URL.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) agent: Agent,
    /// Further headers of each message.
    headers: String,
    /// `Mcp-Session-Id`, where it was introduced.
    is_new: bool,
}

/// A response that is read as it comes.
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    lines: BufReader<TcpStream>,
}

impl Client {
    /// Of the new era: no session, and each message says everything.
    pub(crate) fn modern(agent: Agent) -> Self {
        Self { agent, headers: format!("mcp-protocol-version: {NEW}\r\n"), is_new: true }
    }

    /// Introduced, with a session.
    pub(crate) fn introduced(agent: Agent) -> Self {
        Self::introduced_with(agent, "")
    }

    /// The same with further lines in the head of each message.
    fn introduced_with(agent: Agent, headers: &str) -> Self {
        let client = Self { agent, headers: headers.to_owned(), is_new: false };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "story", "version": "1"},
        });
        let mut welcome = client.send(1, "initialize", hello);
        let id = welcome.header("mcp-session-id");
        let headers = format!("{headers}mcp-protocol-version: 2025-06-18\r\nmcp-session-id: {id}\r\n");
        assert_eq!(welcome.message().unwrap()["result"]["serverInfo"]["name"], "askd");
        let client = Self { headers, ..client };
        assert_eq!(client.tell("notifications/initialized", &json!({})).status, 202);
        client
    }

    /// The same client, whose messages come to another daemon.
    pub(crate) fn at(&self, at: SocketAddr) -> Self {
        Self { agent: Agent { at, ..self.agent.clone() }, ..self.clone() }
    }

    pub(crate) fn with(&self, header: &str) -> Self {
        Self { headers: format!("{}{header}\r\n", self.headers), ..self.clone() }
    }

    pub(crate) fn send(&self, id: u64, method: &str, mut params: Value) -> Reply {
        let mut headers = self.headers.clone();
        if self.is_new {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEW.into();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "story", "version": "1"});
            if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            }
            headers = format!("{headers}mcp-method: {method}\r\n");
            if let Some(name) = params["name"].as_str().or(params["taskId"].as_str()) {
                headers = format!("{headers}mcp-name: {name}\r\n");
            }
        }
        self.post(&headers, &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
    }

    pub(crate) fn tell(&self, method: &str, params: &Value) -> Reply {
        self.post(&self.headers, &json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
    }

    /// Ends the session that its headers name.
    pub(crate) fn end(&self) {
        let ended = format!(
            "DELETE /agent/v1/mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{}connection: close\r\n\r\n",
            self.agent.at, self.agent.token, self.headers
        );
        assert_eq!(exchange(self.agent.at, ended.as_bytes()).0, 204);
    }

    fn post(&self, headers: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.agent.at).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let request = format!(
            "POST /agent/v1/mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            self.agent.at,
            self.agent.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        Reply { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, lines }
    }

    /// Begins a call of a tool.
    pub(crate) fn begin(&self, id: u64, tool: &str, arguments: &Value) -> Reply {
        let reply =
            self.send(id, "tools/call", json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}));
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"), "{}", reply.head);
        reply
    }

    pub(crate) fn call(&self, id: u64, tool: &str, arguments: &Value) -> Told {
        self.begin(id, tool, arguments).told()
    }

    pub(crate) fn tools(&self) -> Value {
        self.send(9, "tools/list", json!({})).message().unwrap()["result"]["tools"].clone()
    }
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        let value = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name}: {}", self.head))
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits for a comment.
    pub(crate) fn comment(&mut self) {
        while self.line().expect("a comment") != ":" {}
    }

    /// Waits until the result has come, and reads nothing of it.
    pub(crate) fn leaves_unread(&self) {
        let mut bytes = vec![0; 65_536];
        within(SOON, "the result", || {
            let here = self.lines.get_ref().peek(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..here]).contains("\"result\"").then_some(())
        });
    }

    /// From now on nothing reaches its client, whose kernel therefore acknowledges nothing.
    fn falls_silent(&self) {
        /// `ret 0` of the classic filters: none of a packet's bytes is let through.
        const NOTHING: SockFilter = SockFilter::new(0x06, 0, 0, 0);
        SockRef::from(self.lines.get_ref()).attach_filter(&[NOTHING]).unwrap();
    }

    /// The next message of the stream; `None` at its end. Lines between are those of the chunks.
    pub(crate) fn message(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            if line == "0" {
                return None;
            }
            if let Some(data) = line.strip_prefix("data:") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The result of the call, whatever comes before it, and the end of the stream after it.
    pub(crate) fn told(mut self) -> Told {
        let known: Value = serde_json::from_str(include_str!("../contract/mcp_tools.json")).unwrap();
        loop {
            let message = self.message().expect("a result");
            if message["id"].is_u64() {
                assert_eq!(self.message(), None, "the result is the last event");
                return Told::of(&message, &known[0]["outputSchema"]);
            }
        }
    }

    fn problem(mut self) -> Value {
        let mut body = vec![0; self.header("content-length").parse().unwrap()];
        self.lines.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

impl Remote {
    /// The answer to what is open.
    pub(crate) fn says(&self, label: &str) -> String {
        let ask = self.world.one_open();
        let question = ask["questions"][0]["id"].as_str().unwrap();
        assert_eq!(self.world.answer(&ask, &json!({question: label})).0, 200);
        ask["request_id"].as_str().unwrap().to_owned()
    }
}

/// What a client reads while second after second passes.
fn while_time_passes<T: Send>(world: &World, read: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let reading = scope.spawn(read);
        while !reading.is_finished() {
            world.later(SECOND);
            thread::sleep(Duration::from_millis(20));
        }
        reading.join().unwrap()
    })
}

#[test]
fn a_client_with_a_token_asks_hears_of_progress_comes_back_and_has_its_answer() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let client = Client::introduced(agent.clone());
    let known: Value = serde_json::from_str(include_str!("../contract/mcp_tools.json")).unwrap();
    assert!(client.tools() == known, "the tools are those of askd mcp");
    let mut call = client.begin(2, "ask_user", &go(40_000));
    assert_eq!(call.header("x-accel-buffering"), "no");
    call.comment();
    remote.world.one_open();
    remote.world.later(SECOND * 15);
    call.comment();
    // It begins to wait a moment after its question is there.
    let progress = while_time_passes(&remote.world, || call.message()).unwrap();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(2))
    );
    assert_eq!(progress["params"]["message"], "waiting for a person to answer");
    let pending = while_time_passes(&remote.world, || call.told());
    pending.assert_pending();
    // The exact call again is the same question.
    let mut again = client.begin(3, "ask_user", &go(60_000));
    again.comment();
    assert_eq!(remote.says("yes"), pending.question_id());
    let answered = again.told();
    answered.assert_answered(&json!({"Go?": "yes"}));
    assert_eq!(answered.structured["request_id"], json!(pending.question_id()));
    // It has reached the client when the client says something more.
    let path = format!("/asks/{}", pending.question_id());
    assert_eq!(agent.call("GET", &path, "").0, 409, "held for the session");
    client.tools();
    assert_eq!(agent.call("GET", &path, "").0, 410, "taken");
    // The session hears it again; the same question is a new one.
    client
        .call(5, "ask_user_wait", &json!({"question_id": pending.question_id()}))
        .assert_answered(&json!({"Go?": "yes"}));
    let mut last = client.begin(6, "ask_user", &go(60_000));
    last.comment();
    remote.says("no");
    assert!(last.message().is_some());
    // At once, before its stream has ended.
    client.call(7, "ask_user", &go(0)).assert_pending();
    assert_ne!(remote.world.one_open()["request_id"], json!(pending.question_id()));
}

#[test]
fn a_client_of_the_new_revision_needs_no_session_and_its_headers_are_held_against_its_message() {
    let remote = Remote::new();
    let client = Client::modern(remote.agent("research"));
    let found = client.send(1, "server/discover", json!({})).message().unwrap();
    assert!(found["result"]["supportedVersions"].as_array().unwrap().contains(&json!(NEW)), "{found}");
    let mut call = client.begin(2, "ask_user", &go(60_000));
    call.comment();
    let id = remote.says("no");
    call.told().assert_answered(&json!({"Go?": "no"}));
    // Its last event was written, and the connection holds.
    let agent = &client.agent;
    remote.world.passing(SECOND * 30, "it to count as taken", || {
        (agent.call("GET", &format!("/asks/{id}"), "").0 == 410).then_some(())
    });
    let message = |method: &str, name: &str| {
        let headers = format!("{}mcp-method: {method}\r\nmcp-name: {name}\r\n", client.headers);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
        });
        let params = json!({"name": "ask_user", "arguments": go(0), "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
        client.post(&headers, &body.to_string())
    };
    for (method, name) in [("tools/list", "ask_user"), ("tools/call", "ask_user_wait")] {
        let refused = message(method, name);
        assert_eq!(refused.status, 400);
        assert_eq!(refused.problem()["error"]["code"], -32020, "{method} {name}");
    }
    assert!(remote.world.open().is_empty());
    message("tools/call", "ask_user").told().assert_pending_alone();
}

/// A call that waits on without its model: each round repeats what the one before said, and nothing else goes on with it.
#[test]
fn a_client_of_the_new_revision_waits_on_by_itself() {
    let mut remote = Remote::new();
    let client = Client::modern(remote.agent("research"));
    let question = |text: &str| json!({"questions": [{"question": text, "options": ["yes", "no"]}]});
    let call = |client: &Client, arguments: &Value, state: &Value| {
        let mut params = json!({"name": "ask_user", "arguments": arguments});
        if state.is_string() {
            params["requestState"] = state.clone();
        }
        client.send(7, "tools/call", params)
    };
    let round = |remote: &Remote, state: &Value| {
        let mut open = call(&client, &question("Go?"), state);
        open.comment();
        within(SOON, "the question", || remote.world.open().pop());
        remote.world.later(SECOND * 45);
        let told = open.message().unwrap();
        assert_eq!(told["result"]["resultType"], "input_required", "{told}");
        assert!(told["result"].get("inputRequests").is_none(), "{told}");
        told["result"]["requestState"].clone()
    };
    let first = round(&remote, &Value::Null);
    // It outlives a restart, and without a session it is one question all the same.
    assert!(remote.world.terminate().success());
    remote.world.start();
    let second = round(&remote, &first);
    assert_eq!(remote.world.open().len(), 1);
    let other = Client::modern(remote.agent("research"));
    for (client, text) in [(&client, "Stop?"), (&other, "Go?")] {
        let refused = call(client, &question(text), &second).message().unwrap();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let mut open = call(&client, &question("Go?"), &second);
    open.comment();
    remote.says("yes");
    open.told().assert_answered(&json!({"Go?": "yes"}));
    assert_eq!(remote.world.open().len(), 0);
    // Its client did not hear the end of it: who has what was signed for that question is the same taker.
    call(&client, &question("Go?"), &second).told().assert_answered(&json!({"Go?": "yes"}));
}

/// A client that declares tasks on a call has one at once, and asks what has become of it, with or without a session.
#[test]
fn a_client_that_takes_tasks_asks_what_has_become_of_its_question() {
    let remote = Remote::new();
    let client = Client::modern(remote.agent("research"));
    let takes = json!({"io.modelcontextprotocol/clientCapabilities": TAKES_TASKS.parse::<Value>().unwrap()});
    let send = |method: &str, mut params: Value| {
        params["_meta"] = takes.clone();
        client.send(7, method, params).message().unwrap()
    };
    let begin = || {
        let arguments = json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]});
        let task = send("tools/call", json!({"name": "ask_user", "arguments": arguments}))["result"].clone();
        assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
        json!({"taskId": task["taskId"]})
    };
    let ended = |task: &Value, status: &str| {
        within(SOON, status, || {
            let state = send("tasks/get", task.clone())["result"].clone();
            (state["status"] == status).then_some(state)
        })
    };
    let task = begin();
    assert_eq!(send("tasks/get", task.clone())["result"]["status"], "working");
    let refused = client.send(8, "tasks/get", task.clone());
    assert_eq!(refused.status, 400);
    assert_eq!(refused.problem()["error"]["code"], -32021, "not declared");
    remote.says("yes");
    // An id that is no task takes nothing.
    let (question, _) = task["taskId"].as_str().unwrap().split_once('.').unwrap();
    assert_eq!(send("tasks/get", json!({"taskId": format!("{question}.x")}))["error"]["code"], -32602);
    for _ in 0..2 {
        let state = ended(&task, "completed");
        assert_eq!(state["result"]["structuredContent"]["answers"], json!({"Go?": "yes"}), "{state}");
    }
    // While another taker may have it, and is not known to, it is not over.
    let held = begin();
    client.agent.outcome(&remote.says("no"));
    assert_eq!(send("tasks/get", held.clone())["result"]["status"], "working");
    remote.world.later(SECOND * 60);
    assert_eq!(ended(&held, "completed")["result"]["structuredContent"]["answers"], json!({"Go?": "no"}));
    let withdrawn = begin();
    assert!(send("tasks/cancel", withdrawn.clone())["error"].is_null());
    ended(&withdrawn, "cancelled");
    assert!(remote.world.open().is_empty());
    for id in ["", "mcp-none.1", "mcp-none"] {
        assert_eq!(send("tasks/get", json!({"taskId": id}))["error"]["code"], -32602, "{id}");
    }
}

/// Two jobs with one token each have their question.
pub(crate) fn nothing_is_joined_without_a_session(world: World) {
    let remote = Remote::of(world);
    let client = Client::modern(remote.agent("research"));
    let mut pending = None;
    for id in 1..=2 {
        let told = client.call(id, "ask_user", &go(0));
        told.assert_pending_alone();
        pending = Some(told.question_id());
    }
    assert_eq!(remote.world.open().len(), 2);
    // What the model is told to do instead.
    let wait = json!({"question_id": pending, "waitMs": 0});
    client.call(3, "ask_user_wait", &wait).assert_pending_alone();
    let unknown = client.call(4, "ask_user_wait", &json!({"question_id": "mcp-none"}));
    assert!(unknown.text.contains("no question of this token has this question_id any more"), "{unknown:?}");
}

#[test]
fn what_one_session_asks_again_is_one_question_and_nothing_is_joined_without_one() {
    nothing_is_joined_without_a_session(World::empty());
    let remote = Remote::new();
    let client = Client::modern(remote.agent("research")).with("askd-session: run-7");
    let first = client.call(1, "ask_user", &go(0));
    assert_eq!(client.call(2, "ask_user", &go(0)).question_id(), first.question_id());
    let introduced = Client::introduced(client.agent.clone());
    introduced.with("askd-session: run-7").call(3, "ask_user", &go(0)).assert_pending();
    assert_eq!(remote.world.open().len(), 1, "a run can have several clients");
    introduced.call(4, "ask_user", &go(0)).assert_pending();
    assert_eq!(remote.world.open().len(), 2);
    for (header, status) in [(format!("askd-session: {}", "x".repeat(129)), 400), ("mcp-session-id: mine".into(), 404)]
    {
        assert_eq!(client.with(&header).send(5, "tools/list", json!({})).status, status, "{header}");
    }
}

/// A client that is killed before it has read its answer did not have it.
pub(crate) fn what_a_reset_connection_carried_is_still_owed(world: World) {
    what_is_sent_is_still_owed(world, |remote, client| {
        reset_unread(remote, client);
        None
    });
}

/// Nor did one whose host lost its network: its kernel says nothing any more.
pub(crate) fn what_nobody_acknowledged_is_still_owed(world: World) {
    what_is_sent_is_still_owed(world, |remote, client| {
        let mut lost = client.begin(1, "ask_user", &go(60_000));
        lost.comment();
        lost.falls_silent();
        remote.says("yes");
        Some(lost)
    });
}

fn what_is_sent_is_still_owed(world: World, is_sent: impl FnOnce(&Remote, &Client) -> Option<Reply>) {
    let remote = Remote::of(world);
    let client = Client::introduced(remote.agent("research"));
    let _silent = is_sent(&remote, &client);
    let id =
        remote.world.call("GET", "/asks?state=settled", None).1["asks"][0]["request_id"].as_str().unwrap().to_owned();
    thread::sleep(Duration::from_millis(10_500));
    assert_eq!(client.agent.call("GET", &format!("/asks/{id}"), "").0, 200);
}

/// The result of a call whose connection its client resets unread.
fn reset_unread(remote: &Remote, client: &Client) {
    let mut cut = client.begin(1, "ask_user", &go(60_000));
    cut.comment();
    remote.says("yes");
    cut.leaves_unread();
    drop(cut);
    thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_client_that_comes_back_anew_or_after_a_reset_has_not_read_what_was_sent_before() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    for comes in ["initialize", "server/discover", "tools/list", "ping"] {
        let named = format!("askd-session: {comes}\r\n");
        let client = Client::introduced_with(agent.clone(), &named);
        reset_unread(&remote, &client);
        let client = match comes {
            "initialize" => Client::introduced_with(agent.clone(), &named),
            "server/discover" => {
                let client = Client::modern(agent.clone()).with(named.trim_end());
                client.send(2, "server/discover", json!({})).message().unwrap();
                client
            }
            method => {
                client.send(2, method, json!({})).message().unwrap();
                client
            }
        };
        client.call(3, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
        // Its next message shows that it has read this one.
        client.tools();
        client.call(4, "ask_user", &go(0)).assert_pending();
        remote.says("no");
        client.call(5, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
    }
}

#[test]
fn an_outcome_goes_to_one_session_and_comes_back_if_its_stream_was_cut() {
    let remote = Remote::new();
    let (one, other) = (Client::introduced(remote.agent("research")), Client::introduced(remote.agent("research")));
    let pending = one.call(1, "ask_user", &go(0));
    let asked = json!({"question_id": pending.question_id(), "waitMs": 60_000});
    let mut first = one.begin(2, "ask_user_wait", &asked);
    first.comment();
    remote.says("yes");
    first.told().assert_answered(&json!({"Go?": "yes"}));
    // While the first one may still say that it has it, nothing is decided for another one.
    let briefly = json!({"question_id": pending.question_id(), "waitMs": 100});
    other.call(3, "ask_user_wait", &briefly).assert_pending();
    let mut waiting = other.begin(4, "ask_user_wait", &asked);
    waiting.comment();
    one.tools();
    thread::sleep(SECOND / 5);
    remote.world.later(SECOND);
    let refused = waiting.told();
    assert!(refused.is_error && refused.text.contains("Another taker has it. If you still need"), "{refused:?}");
}

/// A call that its client cancels has no outcome, even if it was written already.
pub(crate) fn what_a_client_cancels_is_still_owed(world: World) {
    let remote = Remote::of(world);
    let client = Client::introduced(remote.agent("research"));
    let mut cancelled = client.begin(5, "ask_user", &go(60_000));
    cancelled.comment();
    remote.says("no");
    assert!(cancelled.message().is_some());
    assert_eq!(client.tell("notifications/cancelled", &json!({"requestId": 5})).status, 202);
    client.call(6, "ask_user", &go(500)).assert_answered(&json!({"Go?": "no"}));
}

#[test]
fn a_call_that_is_cancelled_after_its_result_was_written_has_no_outcome() {
    what_a_client_cancels_is_still_owed(World::empty());
}

#[test]
fn a_stream_that_is_closed_or_cancelled_withdraws_nothing_and_the_session_outlives_a_restart() {
    let mut remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let mut closed = client.begin(1, "ask_user", &go(60_000));
    closed.comment();
    let ask = remote.world.one_open();
    drop(closed);
    let mut cancelled = client.begin(2, "ask_user", &go(60_000));
    cancelled.comment();
    client.tell("notifications/cancelled", &json!({"requestId": 2}));
    assert_eq!(cancelled.message(), None, "it ends without a result");
    let mut open = client.begin(3, "ask_user", &go(60_000));
    open.comment();
    let told = thread::spawn(move || open.told());
    assert!(remote.world.terminate().success());
    told.join().unwrap().assert_pending();
    remote.world.start();
    // A model may work for minutes before it comes back, and the restart gives it its whole time anew.
    remote.world.later(SECOND * 800);
    assert_eq!(remote.says("yes"), ask["request_id"].as_str().unwrap());
    client.call(4, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

#[test]
fn an_answer_for_which_no_session_comes_back_becomes_a_briefing() {
    let remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let briefed = || client.agent.call("GET", "/briefings", "").1["briefings"].as_array().unwrap().len();
    client.call(1, "ask_user", &go(0)).assert_pending();
    remote.says("yes");
    remote.world.later(SECOND * 600);
    client.tools();
    remote.world.later(SECOND * 600);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(briefed(), 0, "each call of the session renews its lease");
    remote.world.passing(SECOND * 900, "the briefing", || (briefed() == 1).then_some(()));
    // The same call takes it back.
    client.call(2, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    client.tools();
    within(SOON, "the briefing to go", || (briefed() == 0).then_some(()));
    // A session that its client ends waits for nothing.
    client.call(3, "ask_user", &go(0)).assert_pending();
    remote.says("no");
    client.end();
    assert_eq!(client.send(4, "tools/list", json!({})).status, 404, "it is over");
    remote.world.passing(SECOND * 20, "the briefing at once", || (briefed() == 1).then_some(()));
}

/// Two clients of one run, as a program and its helper may be. Each counts its calls from 1.
#[test]
fn of_several_clients_in_a_session_each_cancels_and_ends_its_own_alone() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let named = "askd-session: run-7\r\n";
    let (one, other) = (Client::introduced_with(agent.clone(), named), Client::introduced_with(agent.clone(), named));
    let mut first = one.begin(5, "ask_user", &go(60_000));
    remote.world.one_open();
    let mut second = other.begin(5, "ask_user", &go(60_000));
    first.comment();
    second.comment();
    let cancel = || assert_eq!(one.tell("notifications/cancelled", &json!({"requestId": 5})).status, 202);
    cancel();
    assert_eq!(first.message(), None, "it ends without a result");
    let id = remote.says("yes");
    second.told().assert_answered(&json!({"Go?": "yes"}));
    // Nor does it drop the result of the other client's call.
    cancel();
    other.tools();
    assert_eq!(agent.call("GET", &format!("/asks/{id}"), "").0, 410, "taken");
    let briefed = || agent.call("GET", "/briefings", "").1["briefings"].as_array().unwrap().len();
    other.call(6, "ask_user", &go(0)).assert_pending();
    one.end();
    remote.says("no");
    for _ in 0..6 {
        remote.world.later(SECOND * 5);
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(briefed(), 0, "the other client is still there");
    other.call(7, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
    other.tools();
    // The run is over.
    other.call(8, "ask_user", &go(0)).assert_pending();
    Client::modern(agent.clone()).with(named.trim_end()).end();
    remote.says("yes");
    remote.world.passing(SECOND * 20, "the briefing at once", || (briefed() == 1).then_some(()));
}

#[test]
fn a_session_that_comes_again_after_a_restart_still_waits_for_all_it_has_asked() {
    let mut remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let briefed = || client.agent.call("GET", "/briefings", "").1["briefings"].as_array().unwrap().len();
    client.call(1, "ask_user", &go(0)).assert_pending();
    remote.says("yes");
    assert!(remote.world.terminate().success());
    remote.world.start();
    remote.world.later(SECOND * 600);
    // Whatever it comes for.
    client.tools();
    remote.world.later(SECOND * 600);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(briefed(), 0);
    client.call(2, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
}

#[test]
fn an_answer_of_which_it_is_not_clear_yet_who_gets_it_is_waited_for_and_not_called_unstored() {
    // Configured, so that the folder and the token are of one group whatever keeps the records.
    let remote = Remote::of(World::empty().groups(&["research"]));
    let client = Client::modern(remote.agent("research")).with("askd-session: s");
    // A process of the same session that has a folder is just taking it.
    let folder = remote.world.group("research");
    let alive = Alive::new(&folder, "p");
    let mut asked = go(0);
    (asked["session_id"], asked["process"]) = ("s".into(), "p".into());
    folder.ask("r1", &asked);
    remote.world.open_of("r1");
    remote.says("yes");
    folder.wait("r1");
    std::fs::rename(folder.path.join("responses/r1.json"), folder.path.join("responses/.taken-r1.json")).unwrap();
    let mut call = client.begin(1, "ask_user", &go(60_000));
    call.comment();
    thread::sleep(SECOND);
    remote.world.later(SECOND * 30);
    let told = call.told();
    assert!(told.is_error && told.text.starts_with("The same question was asked before"), "{told:?}");
    // It dies of it.
    drop(alive);
    client.call(2, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    assert!(remote.world.open().is_empty());
}

#[test]
fn a_question_can_be_withdrawn_and_what_is_unknown_is_said() {
    let remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let pending = client.call(1, "ask_user", &go(0));
    let elsewhere = Client::introduced(remote.agent("writer"));
    let id = json!({"question_id": pending.question_id()});
    for (tool, says) in [("ask_user_wait", "Unknown here: repeat"), ("ask_user_cancel", "nothing was withdrawn")] {
        let unknown = elsewhere.call(2, tool, &id);
        assert!(unknown.is_error && unknown.text.contains(says), "{unknown:?}");
    }
    let withdrawn = client.call(3, "ask_user_cancel", &id);
    assert!(!withdrawn.is_error && withdrawn.status() == "cancelled", "{withdrawn:?}");
    assert!(remote.world.open().is_empty());
    client.call(4, "ask_user", &json!({"questions": []})).assert_error("rejected", "Error: No questions provided");
    for (body, status) in [("{", 400), ("[]", 400), ("{\"jsonrpc\": \"2.0\", \"id\": 1}", 415)] {
        assert_eq!(client.post(&client.headers, body).status, status, "{body}");
    }
}

#[test]
fn a_question_can_be_withdrawn_while_as_many_calls_wait_as_may() {
    let remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let id = json!({"question_id": client.call(1, "ask_user", &go(0)).question_id()});
    let waiting: Vec<Reply> = (2..66).map(|number| client.begin(number, "ask_user_wait", &id)).collect();
    let one_more = client.send(66, "tools/call", json!({"name": "ask_user_wait", "arguments": id}));
    assert_eq!((one_more.status, one_more.header("retry-after")), (429, "1"), "{}", one_more.head);
    assert_eq!(client.call(67, "ask_user_cancel", &id).status(), "cancelled");
    for reply in waiting {
        assert_eq!(reply.told().status(), "cancelled");
    }
}

#[test]
fn only_a_good_token_opens_the_url_and_a_revocation_closes_it() {
    let remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    let wrong =
        Client { agent: Agent { token: format!("{}0", client.agent.token), ..client.agent.clone() }, ..client.clone() };
    let refused = wrong.send(1, "tools/list", json!({}));
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"));
    assert_eq!(client.with("origin: http://evil.example").send(1, "tools/list", json!({})).status, 403);
    let get = client.agent.raw("GET", "/mcp", "");
    assert_eq!(get.0, 405, "{}", get.1);
    let elsewhere = b"GET /agent/v1/mcp HTTP/1.1\r\nhost: askd.example\r\nconnection: close\r\n\r\n";
    let (status, said) = exchange(client.agent.at, elsewhere);
    assert!(status == 403 && said.contains("[agents] allowed_hosts"), "{said}");
    let mut call = client.begin(2, "ask_user", &go(60_000));
    call.comment();
    assert_eq!(client.agent.revoked(&remote.world), 204);
    assert_eq!(call.message(), None, "the stream ends");
    assert_eq!(client.send(3, "tools/list", json!({})).status, 401);
    within(SOON, "the question to stay", || remote.world.open().pop());
}

/// They wait for their turn, as `askd mcp` does: a model would take a refusal for its own mistake.
#[test]
fn more_questions_than_a_token_may_ask_at_once_wait_for_their_turn() {
    let limits = "[asks]\nmax_open_per_group = 100\nmax_per_hour_per_group = 100\n";
    let remote = Remote::of(World::empty().with_binary().config(limits));
    let client = Client::introduced(remote.agent("research"));
    let begun = Instant::now();
    for id in 1..=30 {
        let question = json!({"questions": [{"question": format!("Go {id}?")}], "waitMs": 0});
        client.call(id, "ask_user", &question).assert_pending();
    }
    // 20 at once, and 5 more each second.
    assert!(begun.elapsed() >= Duration::from_millis(1_800), "{:?}", begun.elapsed());
}

/// The client has read the answer, and its next message comes to the next run of askd.
#[test]
fn what_was_sent_before_a_stop_is_not_sent_again_after_it() {
    what_was_sent_before_a_stop_is_taken(World::empty());
}

pub(crate) fn what_was_sent_before_a_stop_is_taken(world: World) {
    let mut remote = Remote::of(world.with_binary());
    let client = Client::introduced(remote.agent("research"));
    let call = client.begin(1, "ask_user", &go(60_000));
    remote.says("yes");
    call.told().assert_answered(&json!({"Go?": "yes"}));
    assert!(remote.world.terminate().success());
    remote.world.start();
    client.tools();
    client.call(2, "ask_user", &go(0)).assert_pending();
}

#[test]
fn what_is_no_call_of_a_tool_is_told_in_words_that_a_client_can_act_on() {
    let remote = Remote::new();
    let client = Client::introduced(remote.agent("research"));
    for params in [json!({}), json!({"arguments": {}}), json!({"name": "ask_user", "arguments": "Go?"})] {
        let told = client.send(4, "tools/call", params.clone()).problem();
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(-32602), &json!(4)), "{params}: {told}");
        assert!(told["error"]["message"].as_str().unwrap().contains("arguments that are an object"), "{told}");
    }
    let batch = client.post("", r#"[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]"#);
    assert_eq!(batch.status, 400);
    let told = batch.problem();
    assert!(told["error"]["message"].as_str().unwrap().ends_with("send each message by itself"), "{told}");
}
