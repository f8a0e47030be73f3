//! Agents over HTTP: the same ask and the same outcomes as with files, for the holder of a group's token and for nobody else.

use crate::harness::{SOON, World, askd, choice, exchange, within};
use crate::ports::free_port;
use crate::said;
use crate::sessions::{Alive, with_session};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A world whose daemon listens for agents.
pub(crate) struct Remote {
    pub(crate) world: World,
    pub(crate) agents: SocketAddr,
}

/// An agent that has a token and nothing else.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) at: SocketAddr,
    pub(crate) token: String,
    pub(crate) process: &'static str,
}

/// A world that is not started yet, and where its daemon will listen for agents.
fn listening(world: World, more: &str) -> (World, SocketAddr) {
    let agents = SocketAddr::from(([127, 0, 0, 1], free_port()));
    (world.more_config(&format!("[agents]\nlisten = \"{agents}\"\n{more}")), agents)
}

impl Remote {
    pub(crate) fn new() -> Self {
        Self::of(World::empty())
    }

    pub(crate) fn of(world: World) -> Self {
        Self::with(world, "")
    }

    /// The same with more in `[agents]`.
    pub(crate) fn with(world: World, more: &str) -> Self {
        let (world, agents) = listening(world, more);
        Self { world: world.started(), agents }
    }

    /// Ready to be started.
    pub(crate) fn ready(world: World) -> Self {
        let (world, agents) = listening(world, "");
        Self { world, agents }
    }

    pub(crate) fn agent(&self, group: &str) -> Agent {
        self.agent_until(group, &Value::Null)
    }

    pub(crate) fn agent_until(&self, group: &str, expires_in: &Value) -> Agent {
        let body = json!({"group": group, "name": "ci", "expires_in": expires_in});
        let (status, made) = self.world.call("POST", "/tokens", Some(&body));
        assert_eq!(status, 201, "{made}");
        Agent { at: self.agents, token: made["token"].as_str().unwrap().to_owned(), process: "p1" }
    }

    /// An agent whose question `r1` was answered with yes.
    fn answered(self) -> (Self, Agent) {
        let agent = self.agent("research");
        assert_eq!(agent.ask("r1", "Deploy?").0, 201);
        self.answer("r1", "yes");
        (self, agent)
    }

    /// Answers what is open, if anything is.
    pub(crate) fn answer_any(&self, label: &str) {
        let open = self.world.open().pop();
        if let Some(ask) = open {
            let question = ask["questions"][0]["id"].as_str().unwrap();
            assert_eq!(self.world.answer(&ask, &json!({question: label})).0, 200);
        }
    }

    pub(crate) fn answer(&self, request_id: &str, label: &str) {
        let ask = self.world.open_of(request_id);
        let question = ask["questions"][0]["id"].as_str().unwrap();
        assert_eq!(self.world.answer(&ask, &json!({question: label})).0, 200);
    }
}

impl Agent {
    /// Revokes its token; the status.
    pub(crate) fn revoked(&self, world: &World) -> u16 {
        let id = self.token.split('_').nth(1).unwrap();
        world.call("DELETE", &format!("/tokens/{id}"), None).0
    }

    /// Waits for a briefing of its group; the id of the ask.
    fn briefed(&self, world: &World) -> String {
        let listed = || self.call("GET", "/briefings", "").1["briefings"][0]["ask_id"].as_str().map(str::to_owned);
        world.passing(SECOND * 120, "the briefing", listed)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.raw(method, path, body);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn raw(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        exchange(self.at, self.request(method, path, body).as_bytes())
    }

    /// Sends a call and does not read what comes of it.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.write_all(self.request(method, path, body).as_bytes()).unwrap();
        stream
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        format!(
            "{method} /agent/v1{path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naskd-process: {}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.at,
            self.token,
            self.process,
            body.len()
        )
    }

    pub(crate) fn ask(&self, request_id: &str, question: &str) -> (u16, Value) {
        self.ask_with(request_id, choice(question, &["yes", "no"]))
    }

    /// The same with all that is asked.
    pub(crate) fn ask_with(&self, request_id: &str, mut request: Value) -> (u16, Value) {
        request["request_id"] = request_id.into();
        self.call("POST", "/asks", &request.to_string())
    }

    /// The outcome, once it is there.
    pub(crate) fn outcome(&self, request_id: &str) -> Value {
        within(SOON, "the outcome", || {
            let (status, outcome) = self.call("GET", &format!("/asks/{request_id}"), "");
            assert!(matches!(status, 200 | 202), "{status} {outcome}");
            (status == 200).then_some(outcome)
        })
    }

    pub(crate) fn taken(&self, request_id: &str) -> u16 {
        self.call("POST", &format!("/asks/{request_id}/taken"), "").0
    }

    /// The same agent in another process.
    pub(crate) fn other(&self) -> Self {
        Self { process: "p2", ..self.clone() }
    }
}

#[test]
fn an_agent_with_a_token_asks_waits_and_takes_its_answer_once() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let (status, asked) = agent.ask("r1", "Deploy?");
    assert_eq!((status, &asked["request_id"]), (201, &json!("r1")), "{asked}");
    let waiting = {
        let agent = agent.clone();
        thread::spawn(move || agent.call("GET", "/asks/r1?wait=55", ""))
    };
    let (status, open) = agent.other().call("GET", "/asks/r1", "");
    assert_eq!((status, &open["request_id"]), (202, &json!("r1")), "{open}");
    assert_eq!(agent.taken("r1"), 409, "there is nothing to take yet");
    remote.answer("r1", "yes");
    let (status, outcome) = waiting.join().unwrap();
    assert_eq!((status, &outcome["result"]["answers"]), (200, &json!({"Deploy?": "yes"})), "{outcome}");
    assert_eq!(outcome["result"]["status"], "answered");
    // It is held for its taker, and taken once.
    assert_eq!(agent.outcome("r1"), outcome, "the same taker gets it again");
    assert_eq!(agent.other().call("GET", "/asks/r1", "").0, 409);
    assert_eq!(agent.other().taken("r1"), 410);
    assert_eq!((agent.taken("r1"), agent.taken("r1"), agent.other().taken("r1")), (204, 204, 410));
    assert_eq!(agent.other().call("GET", "/asks/r1", "").0, 410);
    // The group has no folder: nothing was written there.
    assert!(!remote.world.data().join("ipc/research/responses").exists());
}

/// What was sent to one process is not taken by another.
pub(crate) fn only_its_holder_takes_an_outcome(world: World) {
    let (_remote, agent) = Remote::of(world).answered();
    agent.outcome("r1");
    assert_eq!(agent.other().taken("r1"), 410);
}

/// An operator replaces a token while its process runs: what was sent to the process stays its own.
#[test]
fn a_process_takes_with_another_token_what_it_was_sent_with_the_one_before() {
    let (remote, agent) = Remote::new().answered();
    let outcome = agent.outcome("r1");
    assert_eq!(agent.revoked(&remote.world), 204);
    let renewed = remote.agent("research");
    assert_ne!(renewed.token, agent.token);
    assert_eq!(renewed.outcome("r1"), outcome);
    assert_eq!((renewed.other().taken("r1"), renewed.taken("r1")), (410, 204));
}

/// A call that waits with a token ends when the token is revoked.
pub(crate) fn revoking_ends_open_calls(world: World) {
    let remote = Remote::of(world);
    let agent = remote.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let waiting = thread::spawn({
        let agent = agent.clone();
        move || agent.call("GET", "/asks/r1?wait=4", "").0
    });
    thread::sleep(Duration::from_millis(300));
    assert_eq!(agent.revoked(&remote.world), 204);
    assert_eq!(waiting.join().unwrap(), 401);
}

#[test]
fn a_request_is_told_by_its_id_and_what_is_wrong_is_a_sentence() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    assert_eq!((agent.ask("r1", "Deploy?").0, agent.ask("r1", "Deploy?").0), (201, 200));
    let (status, problem) = agent.ask("r1", "Something else?");
    assert_eq!((status, &problem["title"]), (409, &json!("Another request")));
    let (status, problem) = agent.call("POST", "/asks", "{}");
    assert_eq!((status, &problem["detail"]), (422, &json!("No questions provided")));
    let (_, problem) = agent.call("POST", "/asks", "{");
    assert!(problem["detail"].as_str().unwrap().starts_with("the request is malformed: "), "{problem}");
    let (status, minted) = agent.call("POST", "/asks", &choice("And this?", &["a", "b"]).to_string());
    assert_eq!((status, minted["request_id"].as_str().map(str::len)), (201, Some(32)), "{minted}");
    assert_eq!(agent.call("DELETE", "/asks/r1", "").0, 204);
    assert_eq!(agent.outcome("r1")["result"]["reason"], "system");
    for (method, path) in [("GET", "/asks/nothing"), ("DELETE", "/asks/nothing"), ("POST", "/asks/nothing/taken")] {
        assert_eq!(agent.call(method, path, "").0, 404, "{method} {path}");
    }
}

/// It would hold the outcome for a caller that gets none.
#[test]
fn a_call_without_a_body_gives_nobody_an_outcome() {
    let (_remote, agent) = Remote::new().answered();
    for path in ["/asks/r1", "/briefings?take=true", "/events"] {
        assert_eq!(agent.other().raw("HEAD", path, "").0, 405, "{path}");
    }
    assert_eq!(agent.outcome("r1")["result"]["answers"], json!({"Deploy?": "yes"}));
}

#[test]
fn each_error_is_a_problem_in_json() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let large = "x".repeat(600_000);
    let wrong = Agent { token: "askd_1_2".to_owned(), ..agent.clone() };
    let nameless = Agent { process: "a process", ..agent.clone() };
    for (agent, method, path, body, expected) in [
        (&wrong, "GET", "/asks/r1", "", 401),
        (&nameless, "GET", "/asks/r1", "", 400),
        (&agent, "GET", "/asks/r1?wait=301", "", 400),
        (&agent, "GET", "/asks/r1?wait=abc", "", 400),
        (&agent, "GET", "/asks/r1?wait=1&wait=2", "", 400),
        (&agent, "GET", "/asks/%ff", "", 400),
        (&agent, "DELETE", "/asks/%ff", "", 400),
        (&agent, "POST", "/asks/%ff/taken", "", 400),
        (&agent, "GET", "/asks/unknown", "", 404),
        (&agent, "PUT", "/asks/r1", "", 405),
        (&agent, "POST", "/asks", &large, 413),
        (&agent, "POST", "/asks", "[]", 422),
        (&agent, "POST", "/asks", "{", 422),
        (&agent, "POST", "/asks/r1/taken", "", 409),
        (&agent, "GET", "/briefings?take=maybe", "", 400),
        (&agent, "POST", "/briefings/nothing/taken", "", 410),
        (&agent, "POST", "/briefings/%ff/taken", "", 400),
        (&agent, "DELETE", "/briefings/nothing/taken", "", 400),
        (&agent, "GET", "/nothing", "", 404),
        (&agent, "GET", "/", "", 404),
        (&agent, "GET", "/../..", "", 404),
        (&agent, "POST", "/mcp", &large, 413),
        (&agent, "GET", "/mcp", "", 405),
    ] {
        let (status, problem) = agent.call(method, path, body);
        let what = format!("{method} {path}: {problem}");
        assert_eq!(status, expected, "{what}");
        assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(status)), "{what}");
        assert!(problem["title"].is_string() && problem["detail"].as_str().is_some_and(|it| it.len() > 10), "{what}");
    }
}

#[test]
fn a_token_opens_its_own_group_and_no_other_door() {
    let remote = Remote::new();
    let (mine, other) = (remote.agent("research"), remote.agent("writer"));
    assert_eq!(mine.ask("r1", "Deploy?").0, 201);
    for (method, path) in [("GET", "/asks/r1"), ("DELETE", "/asks/r1"), ("POST", "/asks/r1/taken")] {
        assert_eq!(other.call(method, path, "").0, 404, "{method} {path}");
    }
    let with = |token: String| Agent { token, ..mine.clone() };
    let inbox = with(remote.world.token());
    assert_eq!(inbox.call("GET", "/asks/r1", "").0, 401, "the inbox token");
    assert_eq!(with(format!("{}0", mine.token)).call("GET", "/asks/r1", "").0, 401);
    let headers = format!("authorization: Bearer {}\r\n", mine.token);
    assert_eq!(remote.world.raw("GET", "/api/v1/asks", &headers, "").0, 401, "this token at the inbox");
    let elsewhere = exchange(mine.at, format!("GET /api/v1/asks HTTP/1.1\r\nhost: {}\r\n\r\n", mine.at).as_bytes());
    assert_eq!(elsewhere.0, 404, "nothing of the inbox is here");
    // A name that was pointed at our address, and a page of another site.
    for header in ["host: evil.example\r\n".to_owned(), format!("host: {}\r\norigin: http://evil.example\r\n", mine.at)]
    {
        let call = format!("GET /agent/v1/asks/r1 HTTP/1.1\r\n{header}{headers}connection: close\r\n\r\n");
        assert_eq!(exchange(mine.at, call.as_bytes()).0, 403, "{header}");
    }
    assert_eq!(remote.world.call("POST", "/tokens", Some(&json!({"group": "no group!"}))).0, 422);
}

#[test]
fn a_revoked_or_expired_token_ends_open_calls_at_once() {
    let remote = Remote::new();
    let (revoked, expiring) = (remote.agent("research"), remote.agent_until("research", &json!(200)));
    assert_eq!(revoked.ask("r1", "Deploy?").0, 201);
    let wait = |agent: &Agent, path: &'static str| {
        let agent = agent.clone();
        thread::spawn(move || agent.raw("GET", path, ""))
    };
    let waits = [wait(&revoked, "/asks/r1?wait=300"), wait(&expiring, "/asks/r1?wait=300")];
    let stream = wait(&revoked, "/events");
    let used = |token: &Value| token["last_used"].is_string();
    let tokens = within(SOON, "both tokens to be used", || {
        let tokens = remote.world.call("GET", "/tokens", None).1["tokens"].as_array().unwrap().clone();
        tokens.iter().all(used).then_some(tokens)
    });
    thread::sleep(Duration::from_millis(100));
    let id = tokens[0]["id"].as_str().unwrap();
    assert_eq!(remote.world.call("DELETE", &format!("/tokens/{id}"), None).0, 204);
    assert_eq!(remote.world.call("DELETE", &format!("/tokens/{id}"), None).0, 404);
    let [first, second] = waits;
    assert_eq!(first.join().unwrap().0, 401);
    let (status, seen) = stream.join().unwrap();
    assert!(status == 200 && seen.contains("event: reset") && seen.contains("r1"), "{seen}");
    assert_eq!(revoked.call("GET", "/asks/r1", "").0, 401);
    assert!(!second.is_finished());
    remote.world.later(SECOND * 201);
    assert_eq!((second.join().unwrap().0, expiring.call("GET", "/asks/r1", "").0), (401, 401));
    // No secret is in a log or in a record.
    let log = remote.world.log();
    let kept = std::fs::read_to_string(remote.world.state().join("agent_tokens.json")).unwrap();
    for Agent { token, .. } in [&revoked, &expiring] {
        let (_, secret) = token.rsplit_once('_').unwrap();
        assert!(!log.contains(secret) && !kept.contains(secret));
    }
}

/// What a stream of events begins with, up to an event about this request; and the id of that one.
fn followed(agent: &Agent, last: Option<&str>, until: &str) -> (String, String) {
    let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
    let call = format!(
        "GET /agent/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{last}\r\n",
        agent.at, agent.token
    );
    let mut stream = TcpStream::connect(agent.at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(call.as_bytes()).unwrap();
    let (mut seen, mut id, mut about) = (String::new(), String::new(), false);
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        seen.push_str(&line);
        seen.push('\n');
        if let Some(read) = line.strip_prefix("id: ") {
            read.clone_into(&mut id);
        }
        about |= line.starts_with("data:") && line.contains(&format!("\"request_id\":\"{until}\""));
        if about && line.is_empty() {
            return (id, seen);
        }
    }
    panic!("the stream has ended: {seen}");
}

#[test]
fn a_stream_of_events_goes_on_after_the_last_one_that_its_client_has() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    for id in ["r1", "r2"] {
        assert_eq!(agent.ask(id, &format!("Deploy {id}?")).0, 201);
        remote.world.open_of(id);
    }
    let (_, all) = followed(&agent, None, "r1");
    assert!(all.contains("event: reset"), "{all}");
    // The first of several that tell the state: who has only that one begins anew.
    let (_, all) = followed(&agent, None, "r2");
    let first = all.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let (last, other) = if all.contains("\"r1\"") { ("r2", "r1") } else { ("r1", "r2") };
    assert!(followed(&agent, Some(&first), "r1").1.contains("event: reset"), "{all}");
    let (id, _) = followed(&agent, None, last);
    assert_eq!(agent.ask("r3", "Deploy r3?").0, 201);
    let (id, new) = followed(&agent, Some(&id), "r3");
    assert!(!new.contains("event: reset") && !new.contains(other), "{new}");
    remote.answer("r1", "yes");
    let (_, new) = followed(&agent, Some(&id), "r1");
    assert!(!new.contains("event: reset") && new.contains("event: outcome") && !new.contains("\"r2\""), "{new}");
    for unknown in ["nonsense", "0.0", "00000000000000000000000000000000.0-7"] {
        assert!(followed(&agent, Some(unknown), "r2").1.contains("event: reset"), "{unknown}");
    }
}

/// A record that cannot be read for a moment is not one that is damaged: the stream ends, and its client calls again.
#[test]
fn no_stream_of_events_tells_the_state_without_a_question_that_cannot_be_read_now() {
    let world = World::empty().in_files();
    let fail = world.dir.path().join("fail");
    let mut remote = Remote::ready(world.env("ASKD_FAIL_CALL", fail.to_str().unwrap()));
    remote.world.start();
    let agent = remote.agent("research");
    for id in ["r1", "r2"] {
        assert_eq!(agent.ask(id, &format!("Deploy {id}?")).0, 201);
    }
    let ask = remote.world.open_of("r1");
    // Another run has none of them at hand.
    assert!(remote.world.terminate().success());
    remote.world.start();
    within(SOON, "both to be read", || (remote.world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    fs::write(&fail, format!("openat2@{}.json:1-:EIO", ask["id"].as_str().unwrap())).unwrap();
    let mut stream = TcpStream::connect(agent.at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let call =
        format!("GET /agent/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n", agent.at, agent.token);
    stream.write_all(call.as_bytes()).unwrap();
    let (mut told, mut part) = (String::new(), [0; 1000]);
    while !told.ends_with("0\r\n\r\n") && !told.contains("\"r2\"") {
        let read = stream.read(&mut part).unwrap();
        told.push_str(&String::from_utf8_lossy(&part[..read]));
        if read == 0 {
            break;
        }
    }
    assert!(!told.contains("event: reset") && !told.contains("\"r2\""), "{told}");
    fs::remove_file(&fail).unwrap();
    assert!(followed(&agent, None, "r1").1.contains("event: reset"));
}

#[test]
fn an_outcome_that_nobody_waits_for_becomes_a_briefing_and_comes_back_unless_it_was_read() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let is_briefed = |id: &str| {
        let briefings = agent.call("GET", "/briefings", "").1["briefings"].as_array().unwrap().clone();
        briefings.into_iter().find(|briefing| briefing["result"]["request_id"] == id)
    };
    for id in ["back", "read"] {
        assert_eq!(agent.ask(id, &format!("Deploy {id}?")).0, 201);
        remote.answer(id, "yes");
    }
    // The call that asked holds its lease for a minute.
    remote.world.later(SECOND * 50);
    thread::sleep(Duration::from_millis(200));
    assert!(is_briefed("back").is_none());
    let briefing = remote
        .world
        .passing(SECOND * 60, "the briefings", || is_briefed("read").filter(|_| is_briefed("back").is_some()));
    assert!(briefing["text"].as_str().unwrap().contains("The user answered: \"yes\""), "{briefing}");
    assert_eq!(agent.outcome("back")["result"]["status"], "answered");
    assert!(is_briefed("back").is_none());
    assert_eq!(agent.taken("back"), 204);
    let path = format!("/briefings/{}/taken", briefing["ask_id"].as_str().unwrap());
    assert_eq!((agent.call("POST", &path, "").0, agent.call("POST", &path, "").0), (204, 410));
    remote.world.passing(SECOND * 30, "the briefing to count as read", || {
        (agent.call("GET", "/asks/read", "").0 == 410).then_some(())
    });
}

#[test]
fn a_briefing_that_another_one_is_just_taking_does_not_come_back() {
    let (remote, agent) = Remote::new().answered();
    let id = agent.briefed(&remote.world);
    let reader = agent.other();
    assert_eq!(reader.call("GET", "/briefings?take=true", "").0, 200);
    let refused = agent.raw("GET", "/asks/r1", "");
    assert!(refused.0 == 409 && refused.1.contains("Another taker was sent the briefing"), "{refused:?}");
    assert_eq!(reader.call("POST", &format!("/briefings/{id}/taken"), "").0, 204);
    remote.world.passing(SECOND * 30, "the briefing to count as read", || {
        let (status, told) = agent.call("GET", "/asks/r1", "");
        assert!(matches!(status, 409 | 410), "{status} {told}");
        (status == 410).then_some(())
    });
}

/// A process that lives again gets nothing of what somebody else was just sent.
#[test]
fn a_briefing_that_was_just_sent_over_http_does_not_come_back_to_a_file() {
    let remote = Remote::of(World::empty().groups(&["research"]));
    let (reader, folder, world) = (remote.agent("research"), remote.world.group("research"), &remote.world);
    let alive = Alive::new(&folder, "p");
    folder.ask("r1", &json!({"process": "p", "questions": [{"question": "Deploy?"}]}));
    let ask = world.one_open();
    drop(alive);
    assert_eq!(world.answer(&ask, &json!({"Deploy?": "yes"})).0, 200);
    let id = reader.briefed(world);
    assert_eq!(reader.call("GET", "/briefings?take=true", "").0, 200);
    let _alive = Alive::new(&folder, "p");
    for _look in 0..2 {
        world.later(SECOND * 6);
        thread::sleep(SECOND / 2);
        assert!(folder.response("r1").is_none(), "two runs of the agent have the answer");
    }
    assert_eq!(reader.call("POST", &format!("/briefings/{id}/taken"), "").0, 204);
}

/// Its outcome goes one way, so that the second one would wait for nothing.
#[test]
fn a_request_id_that_came_by_a_file_is_anothers_over_http_and_the_other_way_round() {
    let remote = Remote::of(World::empty().groups(&["research"]));
    let (agent, folder) = (remote.agent("research"), remote.world.group("research"));
    assert_eq!(agent.ask("http", "Deploy?").0, 201);
    folder.ask("http", &choice("Deploy?", &["yes", "no"]));
    let log = within(SOON, "the file to be refused", || {
        Some(remote.world.log()).filter(|log| log.contains("Request rejected"))
    });
    assert!(log.contains("this request_id already belongs to another request"), "{log}");
    folder.ask("file", &choice("Merge?", &["yes", "no"]));
    remote.world.open_of("file");
    assert_eq!(agent.ask("file", "Merge?").0, 409);
    assert_eq!(remote.world.open().len(), 2);
}

#[test]
fn what_an_agent_was_started_with_does_not_come_back() {
    let remote = Remote::of(with_session("start = { command = [\"/bin/true\"] }", ""));
    let agent = remote.agent("g");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let id = remote.world.one_open()["id"].as_str().unwrap().to_owned();
    remote.answer("r1", "yes");
    let started = json!(said::STARTED);
    remote.world.passing(SECOND * 90, "the start", || (remote.world.details(&id)["note"] == started).then_some(()));
    let (status, told) = agent.call("GET", "/asks/r1", "");
    assert!(status == 410 && told["detail"].as_str().unwrap().contains("started"), "{status} {told}");
    assert_eq!(agent.call("GET", "/briefings", "").1["briefings"][0]["ask_id"], json!(id));
}

/// Workers of one session may ask the same at the same moment, and so may a client that lost its connection.
#[test]
fn what_is_asked_several_times_at_the_same_moment_is_one_question() {
    let remote = Remote::of(with_session("start = { command = [\"/bin/true\"] }", ""));
    let agent = remote.agent("g");
    let mut request = choice("Deploy?", &["yes", "no"]);
    (request["idempotency_key"], request["timeoutMs"]) = ("deploy".into(), 10_000.into());
    // The second time there is a card that can still be answered late.
    for time in ["first", "second"] {
        let together = Barrier::new(4);
        let ask = |n: usize| {
            let mut request = request.clone();
            request["request_id"] = format!("{time}-{n}").into();
            together.wait();
            agent.call("POST", "/asks", &request.to_string()).0
        };
        let asked: Vec<u16> = thread::scope(|scope| {
            let calls: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn({
                        let ask = &ask;
                        move || ask(n)
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert_eq!((asked, remote.world.open().len()), (vec![201; 4], 1), "{time}");
        remote.world.later(SECOND * 11);
        for request_id in (0..4).map(|n| format!("{time}-{n}")) {
            assert_eq!(agent.outcome(&request_id)["result"]["timedOut"], json!(true));
            assert_eq!(agent.taken(&request_id), 204);
        }
    }
}

/// A client that was silent for longer than its lease is replaced by one that asks the same, and waits again as soon as it is back.
#[test]
fn a_call_that_was_replaced_and_is_back_keeps_its_question() {
    let remote = Remote::new();
    let (first, second) = (remote.agent("research"), Agent { process: "p2", ..remote.agent("research") });
    let ask = |agent: &Agent, id: &str| {
        let mut request = choice("Deploy?", &["yes", "no"]);
        (request["request_id"], request["idempotency_key"]) = (id.into(), "deploy".into());
        assert!(matches!(agent.call("POST", "/asks", &request.to_string()).0, 200 | 201));
    };
    ask(&first, "a");
    for again in [true, false] {
        let noted = || remote.world.audit().iter().filter(|line| line["what"] == "call_replaced").count();
        let before = noted();
        remote.world.later(SECOND * 63);
        ask(&second, if again { "b" } else { "c" });
        remote.world.passing(SECOND * 200, "it to be replaced", || (noted() > before).then_some(()));
        if again {
            ask(&first, "a");
        } else {
            assert_eq!(first.call("GET", "/asks/a?wait=0", "").0, 202);
        }
        for id in if again { vec!["b"] } else { vec!["b", "c"] } {
            second.call("DELETE", &format!("/asks/{id}"), "");
        }
        assert_eq!(remote.world.open().len(), 1, "the first one waits for it");
    }
    remote.answer("a", "no");
    assert_eq!(first.outcome("a")["result"]["answers"], json!({"Deploy?": "no"}));
}

#[test]
fn a_sent_outcome_that_is_not_taken_is_still_owed() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    remote.answer("r1", "no");
    agent.outcome("r1");
    assert_eq!(agent.other().call("GET", "/asks/r1", "").0, 409);
    remote.world.later(SECOND * 40);
    assert_eq!(agent.other().call("GET", "/asks/r1", "").0, 409);
    remote.world.later(SECOND * 21);
    // Another taker may have it now, and the first one lost it.
    agent.other().outcome("r1");
    assert_eq!((agent.taken("r1"), agent.other().taken("r1")), (410, 204));
}

#[test]
fn a_restart_keeps_what_was_asked_answered_and_taken() {
    let mut remote = Remote::new();
    let agent = remote.agent("research");
    for id in ["open", "answered", "taken"] {
        assert_eq!(agent.ask(id, &format!("Deploy {id}?")).0, 201);
    }
    for id in ["answered", "taken"] {
        remote.answer(id, "yes");
        agent.outcome(id);
    }
    assert_eq!(agent.taken("taken"), 204);
    assert!(remote.world.terminate().success());
    remote.world.start();
    assert_eq!(agent.other().taken("taken"), 410);
    assert_eq!((agent.taken("taken"), agent.ask("open", "Deploy open?").0), (204, 200));
    // Its lease has its whole time anew.
    remote.world.later(SECOND * 40);
    assert_eq!((agent.outcome("answered")["result"]["answered"].clone(), agent.taken("answered")), (json!(true), 204));
    remote.answer("open", "no");
    assert_eq!(agent.outcome("open")["result"]["answers"], json!({"Deploy open?": "no"}));
}

#[test]
fn a_token_has_limits_of_its_own() {
    let remote = Remote::new();
    let (busy, calm) = (remote.agent("research"), remote.agent("writer"));
    let statuses: Vec<u16> = (0..40).map(|n| busy.ask(&format!("r{n}"), &format!("Go {n}?")).0).collect();
    assert_eq!(statuses.iter().position(|status| *status != 201), Some(16), "the group's own limit: {statuses:?}");
    assert!(statuses.contains(&422) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(calm.ask("r", "Deploy?").0, 201);
    remote.world.later(SECOND);
    assert_eq!(busy.call("GET", "/asks/r0", "").0, 202);
    assert_ne!(busy.ask("r99", "Deploy?").0, 429);
    let wait = |_| {
        let busy = busy.clone();
        thread::spawn(move || busy.call("GET", "/asks/r0?wait=300", "").0)
    };
    let waits: Vec<_> = (0..70).map(wait).collect();
    within(SOON, "six waits too many to be refused", || {
        (waits.iter().filter(|wait| wait.is_finished()).count() == 6).then_some(())
    });
    remote.world.later(SECOND * 300);
    let statuses: Vec<u16> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 6, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 202 | 429)), "{statuses:?}");
}

#[test]
fn tokens_are_made_listed_and_revoked_with_and_without_a_daemon() {
    let (mut world, agents) = listening(World::empty(), "");
    let file = world.dir.path().join("settings.toml");
    std::fs::write(&file, format!("data_dir = \"{}\"\n", world.data().display())).unwrap();
    std::fs::create_dir_all(world.state()).unwrap();
    let run = |more: &[&str]| {
        let done = askd().arg("token").args(more).arg("--config").arg(&file).output().unwrap();
        assert!(done.status.success(), "{more:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let token = run(&["new", "research", "--name", "ci", "--expires", "90d"]).trim().to_owned();
    let id = token.split('_').nth(1).unwrap().to_owned();
    let listed = run(&["list"]);
    assert!(listed.contains(&id) && listed.contains("research") && listed.contains("ci"), "{listed}");
    assert!(listed.contains("in 89d") || listed.contains("in 90d"), "{listed}");
    world.start();
    let agent = Agent { at: agents, token, process: "p1" };
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    // The daemon holds the folder now, and does not answer at the address of these settings.
    let refused = askd().args(["token", "list", "--config"]).arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let url = world.url();
    let revoke = |what: &str| {
        let call = ["token", "revoke", what, "--url", &url, "--token", &world.token()];
        let done = askd().args(call).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    // A secret that leaked is not to be printed once more.
    let (code, told) = revoke(&agent.token.replace('_', "-"));
    assert!(code == Some(2) && told.contains("`askd token list` shows the ids") && !told.contains(&id), "{told}");
    // The whole token does, too.
    assert_eq!(revoke(&agent.token), (Some(0), String::new()));
    assert_eq!(agent.call("GET", "/asks/r1", "").0, 401);
}

/// The files hold no token that counts.
#[test]
#[cfg(feature = "postgres")]
fn without_a_daemon_no_token_is_made_or_revoked_in_files_that_are_not_where_the_tokens_are() {
    let dir = tempfile::tempdir().unwrap();
    let (file, state) = (dir.path().join("askd.toml"), dir.path().join("state"));
    std::fs::create_dir_all(&state).unwrap();
    let refused = |more: &str, told: &str| {
        let listen = crate::ports::free_port();
        let text = format!("data_dir = \"{}\"\nhttp.listen = \"127.0.0.1:{listen}\"\n{more}", dir.path().display());
        std::fs::write(&file, text).unwrap();
        for args in [&["new", "research"][..], &["list"], &["revoke", "0123456789ab"]] {
            let done = askd().arg("token").args(args).arg("--config").arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(1) && said.contains(told), "{args:?}: {said}");
        }
        assert!(!state.join("agent_tokens.json").exists());
    };
    let database = "[postgres]\nurl = \"postgres://askd:x@127.0.0.1:1/askd\"\nnode = \"host-a\"\n";
    refused(database, "The tokens are in the database: run this on a host where askd runs");
    std::fs::write(state.join("copy"), "moved").unwrap();
    refused("", "the records of the state folder were moved");
}

/// A file of root's would keep the daemon from starting.
#[test]
fn root_makes_no_token_that_the_daemon_cannot_read_and_the_doctor_finds_such_a_file() {
    let world = World::empty();
    let story = "root_makes_no_token_that_the_daemon_cannot_read_and_the_doctor_finds_such_a_file";
    let Some(program) = crate::command_line::as_another(world.dir.path(), story) else { return };
    crate::command_line::of_another(&world.data(), 12345, 0o751);
    let mut world = world.with_daemon(&program).started();
    assert!(world.terminate().success());
    let file = world.dir.path().join("settings.toml");
    std::fs::write(&file, format!("data_dir = \"{}\"\n", world.data().display())).unwrap();
    let made = askd().args(["token", "new", "research", "--config"]).arg(&file).output().unwrap();
    let told = format!(
        "askd: {} belongs to user id 12345; run this as askd's own user: sudo -u '#12345' askd token ...\n",
        world.state().display()
    );
    assert_eq!((made.status.code(), &*String::from_utf8_lossy(&made.stderr)), (Some(1), &*told));
    let tokens = world.state().join("agent_tokens.json");
    assert!(!tokens.exists());
    std::fs::write(&tokens, "{}").unwrap();
    let doctor = || {
        let done = std::process::Command::new(&program).args(["doctor", "--json", "--config"]).arg(&file).output();
        let told: Value = serde_json::from_slice(&done.unwrap().stdout).unwrap();
        let findings = told["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["check"] == "state folder").unwrap()
    };
    let fault = doctor();
    assert!(fault["what"].as_str().unwrap().contains("agent_tokens.json belongs to user id 0"), "{fault}");
    let fix = fault["fix"].as_str().unwrap();
    assert!(std::process::Command::new("sh").args(["-c", fix]).status().unwrap().success());
    assert_eq!(doctor()["verdict"], "ok");
}

/// `askd ask` with the environment of an agent that has a token.
fn asks(agent: &Agent, more: &[&str]) -> std::process::Child {
    let mut command = askd();
    command.args(["ask", "Deploy now?", "--option", "yes", "--option", "no"]).args(more);
    command.env("ASKD_URL", format!("http://{}", agent.at)).env("ASKD_TOKEN", &agent.token);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(asking: &std::process::Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(asking.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn a_question_that_could_not_be_withdrawn_is_not_said_to_be() {
    let mut remote = Remote::new();
    let asking = asks(&remote.agent("research"), &[]);
    remote.world.one_open();
    assert!(remote.world.terminate().success());
    interrupt(&asking);
    let said = asking.wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.code() == Some(1) && told.contains("may stay open"), "{told}");
}

#[test]
fn a_question_that_never_reached_askd_is_not_said_to_stay_open() {
    let mut remote = Remote::new();
    let agent = remote.agent("research");
    assert!(remote.world.terminate().success());
    let asking = asks(&agent, &["--keep"]);
    thread::sleep(Duration::from_millis(500));
    interrupt(&asking);
    let said = asking.wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.code() == Some(1) && told.contains("may not have the question"), "{told}");
}

#[test]
fn askd_ask_needs_no_folder_and_goes_on_through_a_restart() {
    let mut remote = Remote::new();
    let agent = remote.agent("research");
    let asking = asks(&agent, &[]);
    let ask = remote.world.one_open();
    assert!(remote.world.terminate().success());
    remote.world.start();
    let question = ask["questions"][0]["id"].as_str().unwrap();
    assert_eq!(remote.world.answer(&ask, &json!({question: "yes"})).0, 200);
    let said = asking.wait_with_output().unwrap();
    assert_eq!((said.status.code(), &*said.stdout), (Some(0), &b"yes\n"[..]), "{said:?}");
    let path = format!("/asks/{}", ask["request_id"].as_str().unwrap());
    assert_eq!(agent.call("GET", &path, "").0, 410, "it was taken");
}

#[test]
fn askd_ask_ends_over_http_as_it_does_with_files() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let asking = asks(&agent, &[]);
    let id = remote.world.one_open()["id"].as_str().unwrap().to_owned();
    assert_eq!(remote.world.call("POST", &format!("/asks/{id}/dismiss"), None).0, 200);
    assert_eq!(asking.wait_with_output().unwrap().status.code(), Some(3));
    // Told to stop, it withdraws the question.
    let asking = asks(&agent, &["--title", "Another"]);
    let other = within(SOON, "the question", || remote.world.open().pop());
    interrupt(&asking);
    assert_eq!(asking.wait_with_output().unwrap().status.code(), Some(3));
    assert_eq!(remote.world.details(other["id"].as_str().unwrap())["state"], "settled");
    // A token that is refused is an error at once.
    let wrong = Agent { token: format!("{}0", agent.token), ..agent.clone() };
    let said = asks(&wrong, &[]).wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.status.code() == Some(1) && told.contains("refuses the token") && !told.contains(&agent.token),
        "{told}"
    );
    // What the group rejects is told as with files.
    let said = asks(&agent, &["--timeout", "10s", "--context", &"x".repeat(3001)]).wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
}

/// The inbox's port is the one that people see first.
#[test]
fn an_agent_that_asks_at_the_inbox_is_told_where_agents_ask() {
    let remote = Remote::new();
    let at = remote.world.address();
    let said = asks(&Agent { at, ..remote.agent("research") }, &[]).wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.code() == Some(6) && told.contains("Agents ask at the one of [agents] listen"), "{told}");
}

#[test]
fn a_token_that_its_file_replaces_serves_the_next_call_and_the_wait_in_hand() {
    let remote = Remote::new();
    let (old, new) = (remote.agent("research"), remote.agent("research"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, &old.token).unwrap();
    let mut command = askd();
    command.args(["ask", "Go?"]).env("ASKD_URL", format!("http://{}", old.at)).env("ASKD_TOKEN_FILE", &file);
    let asking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ask = remote.world.one_open();
    fs::write(&file, format!("{}\n", new.token)).unwrap();
    assert_eq!(old.revoked(&remote.world), 204);
    assert_eq!(remote.world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let said = asking.wait_with_output().unwrap();
    assert_eq!((said.status.code(), &*said.stdout), (Some(0), &b"yes\n"[..]), "{said:?}");
    assert_eq!(new.revoked(&remote.world), 204);
    let said = command.output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    let names = format!("refuses the token in ASKD_TOKEN_FILE={}: ", file.display());
    assert!(said.status.code() == Some(1) && told.contains(&names), "{told}");
}

#[test]
fn an_answer_that_askd_ask_cannot_print_is_kept_and_the_same_call_prints_it() {
    let remote = Remote::new();
    let agent = remote.agent("research");
    let mut command = askd();
    command.args(["ask", "Go?"]).env("ASKD_SESSION_ID", "s1");
    command.env("ASKD_URL", format!("http://{}", agent.at)).env("ASKD_TOKEN", &agent.token);
    let child = command.stdout(std::io::pipe().unwrap().1).stderr(Stdio::piped()).spawn().unwrap();
    let ask = remote.world.one_open();
    assert_eq!(remote.world.answer(&ask, &json!({"Go?": "yes"})).0, 200);
    let unread = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&unread.stderr);
    assert!(unread.status.code() == Some(1) && said.contains("askd keeps it for the next call"), "{unread:?}");
    let again = command.stdout(Stdio::piped()).output().unwrap();
    assert_eq!((again.status.code(), &*again.stdout), (Some(0), &b"yes\n"[..]), "{again:?}");
    assert!(remote.world.open().is_empty(), "nothing is asked twice");
}

#[test]
fn a_daemon_that_is_killed_at_each_step_brings_every_outcome_to_its_caller_once() {
    let mut remote = Remote::of(World::empty().with_binary());
    let agent = remote.agent("research");
    let mut crashes = 0;
    for step in ["accept.stored", "settle.saved", "deliver.ready", "saved", "close.saved"] {
        remote.world.kill();
        remote.world.set_env("ASKD_CRASH_AT", step);
        remote.world.start();
        let mut asking = asks(&agent, &["--title", step]);
        within(SOON, "askd ask to end", || {
            if remote.world.has_ended().is_some() {
                crashes += 1;
                remote.world.without_env("ASKD_CRASH_AT");
                remote.world.start();
            }
            // The daemon may die of the click, or still be reading what it has stored.
            drop(catch_unwind(AssertUnwindSafe(|| remote.answer_any("yes"))));
            thread::sleep(Duration::from_millis(20));
            asking.try_wait().unwrap()
        });
        let said = asking.wait_with_output().unwrap();
        assert_eq!((said.status.code(), &*said.stdout), (Some(0), &b"yes\n"[..]), "{step}: {said:?}");
        let settled = remote.world.call("GET", "/asks?state=settled&limit=1", None).1;
        let request = settled["asks"][0]["request_id"].as_str().unwrap();
        assert_eq!((agent.call("GET", &format!("/asks/{request}"), "").0, agent.taken(request)), (410, 410), "{step}");
    }
    assert!(crashes >= 4, "{crashes}");
    assert!(agent.call("GET", "/briefings", "").1["briefings"].as_array().unwrap().is_empty());
}
