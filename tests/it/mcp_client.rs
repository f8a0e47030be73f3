//! An MCP client that is nothing but lines: the real `askd mcp` over its standard input and output.
//! Every result is held against the schema that its tool has declared.

use crate::harness::{SOON, askd, within};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A client and its server.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    replies: HashMap<u64, Value>,
    pub(crate) notifications: Vec<Value>,
    output_schema: Option<Value>,
    next: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A question that many stories ask.
pub(crate) fn go(wait_ms: u64) -> Value {
    json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}], "waitMs": wait_ms})
}

impl Client {
    /// A server on this folder, introduced to.
    pub(crate) fn new(ipc: &Path, env: &[(&str, &str)]) -> Self {
        Self::named("story", ipc, env)
    }

    /// The same for a client that calls itself so.
    pub(crate) fn named(name: &str, ipc: &Path, env: &[(&str, &str)]) -> Self {
        Self::of(askd(), name, ipc, env)
    }

    /// The same with this binary.
    pub(crate) fn of(mut command: Command, name: &str, ipc: &Path, env: &[(&str, &str)]) -> Self {
        command.arg("mcp").arg("--ipc").arg(ipc);
        Self::run(command, name, env)
    }

    /// A server without a folder: this environment names the way.
    pub(crate) fn by_environment(env: &[(&str, &str)]) -> Self {
        let mut command = askd();
        command.arg("mcp");
        Self::run(command, "story", env)
    }

    fn run(mut command: Command, name: &str, env: &[(&str, &str)]) -> Self {
        command.env("ASKD_MIN_TIMEOUT", "10s").envs(env.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                let message = serde_json::from_str(&line).expect("standard output is the protocol and nothing else");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let mut client = Self {
            child,
            input,
            lines,
            replies: HashMap::new(),
            notifications: Vec::new(),
            output_schema: None,
            next: 1,
        };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"},
        });
        let id = client.request("initialize", &hello);
        let welcome = client.reply_to(id, SOON);
        assert_eq!(welcome["result"]["serverInfo"]["name"], "askd", "{welcome}");
        client.tell("notifications/initialized", &json!({}));
        client
    }

    pub(crate) fn write(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        // One write, so that nothing is read in between.
        input.write_all(format!("{message}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn tell(&mut self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Begins a call of a tool.
    pub(crate) fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Takes a call back, as a client does that is out of patience.
    pub(crate) fn cancel(&mut self, call: u64) {
        self.tell("notifications/cancelled", &json!({"requestId": call, "reason": "timed out"}));
    }

    /// The whole reply.
    pub(crate) fn reply_to(&mut self, id: u64, bound: Duration) -> Value {
        self.reply_within(id, bound).unwrap_or_else(|| panic!("no reply to call {id} within {bound:?}"))
    }

    /// The whole reply, if it comes.
    pub(crate) fn reply_within(&mut self, id: u64, bound: Duration) -> Option<Value> {
        let end = Instant::now() + bound;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return Some(reply);
            }
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => match message["id"].as_u64() {
                    Some(id) => drop(self.replies.insert(id, message)),
                    None => self.notifications.push(message),
                },
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the server has gone"),
            }
        }
    }

    /// The result of a call, held against the declared schema.
    pub(crate) fn result(&mut self, call: u64, bound: Duration) -> Told {
        let reply = self.reply_to(call, bound);
        Told::of(&reply, &self.schema())
    }

    fn schema(&mut self) -> Value {
        if self.output_schema.is_none() {
            let list = self.tools();
            self.output_schema = Some(list[0]["outputSchema"].clone());
        }
        self.output_schema.clone().unwrap()
    }

    pub(crate) fn tools(&mut self) -> Vec<Value> {
        let id = self.request("tools/list", &json!({}));
        self.reply_to(id, SOON)["result"]["tools"].as_array().unwrap().clone()
    }

    /// A call and its result, which has to come soon.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Told {
        let call = self.begin(tool, arguments);
        self.result(call, SOON)
    }

    /// Closes the client's end and waits until the server has gone.
    pub(crate) fn close(mut self) -> Duration {
        let begun = Instant::now();
        drop(self.input.take());
        let status = within(SOON, "the server to go", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        begun.elapsed()
    }

    /// As `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What a model sees of a result.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    pub(crate) structured: Value,
}

impl Told {
    /// A reply with the result of a call, held against the declared schema.
    pub(crate) fn of(reply: &Value, schema: &Value) -> Self {
        let result = reply.get("result").unwrap_or_else(|| panic!("not a result: {reply}"));
        let validator = jsonschema::validator_for(schema).unwrap();
        let structured = result["structuredContent"].clone();
        let faults: Vec<String> = validator.iter_errors(&structured).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{structured} does not fit: {faults:?}");
        let content = result["content"].as_array().unwrap();
        assert_eq!(content.len(), 1, "one text: {result}");
        Self { text: content[0]["text"].as_str().unwrap().to_owned(), is_error: result["isError"] == true, structured }
    }

    pub(crate) fn question_id(&self) -> String {
        self.structured["question_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn status(&self) -> &str {
        self.structured["status"].as_str().unwrap()
    }

    /// An open question, in the words of the specification.
    pub(crate) fn assert_pending(&self) {
        self.assert_pending_says(
            "Retry this exact call, or call ask_user_wait with this question_id; if the user already answered, it returns at once.",
        );
    }

    /// The same for a caller without a session, whose same call would ask again.
    pub(crate) fn assert_pending_alone(&self) {
        self.assert_pending_says(
            "Call ask_user_wait with this question_id; if the user already answered, it returns at once. Do not repeat the ask_user call: \
             without a session it would ask again.",
        );
    }

    fn assert_pending_says(&self, how: &str) {
        assert!(!self.is_error, "{self:?}");
        assert_eq!(self.text, format!("⏳ Waiting for user confirmation... The question is still open. {how}"));
        assert_eq!(self.status(), "pending");
        assert_eq!(self.structured["stillPending"], true);
        for flag in ["answered", "cancelled", "timedOut", "shouldRetry", "renderConfirmed"] {
            assert_eq!(self.structured[flag], false, "{flag}");
        }
    }

    /// An answer: the result as JSON.
    pub(crate) fn assert_answered(&self, answers: &Value) {
        assert!(!self.is_error, "{self:?}");
        let result: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(&result["answers"], answers);
        assert_eq!(&self.structured["answers"], answers);
        assert_eq!((self.status(), &self.structured["error"]), ("answered", &Value::Null));
        assert!(self.text.starts_with("{\n  \"answers\": {\n"), "indented by two: {}", self.text);
        assert!(result.get("error").is_none(), "the text is the result alone");
    }

    /// Anything else: one sentence, marked as an error.
    pub(crate) fn assert_error(&self, status: &str, text: &str) {
        assert_eq!((self.is_error, self.status(), self.text.as_str()), (true, status, text), "{self:?}");
        assert_eq!(self.structured["answered"], false);
        let error = self.structured["error"].as_str().unwrap();
        assert!(!error.starts_with("Error: ") && !error.is_empty(), "the prefix is the text's alone: {self:?}");
        assert!(text.trim_start_matches("Error: ").starts_with(error.trim_end_matches('.')), "{self:?}");
    }
}
