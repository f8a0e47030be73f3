//! Row 19: the same trip by each way an agent can take to one askd: files, HTTP, MCP by URL. From the request to its post, and
//! from the click to the outcome in the hand of an agent that waits.

use super::Agents;
use super::median;
use crate::Bench;
use crate::load::{Connection, Times, click, receive};
use crate::report::{Goal, Unit};
use crate::world::{Host, TOKEN, World, button, free_port, fresh, request, spread};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// A token has so many questions at once.
const BURST: u64 = 20;
/// Until a call that waits is waited with.
const PARKED: Duration = Duration::from_millis(5);

#[derive(Clone, Copy)]
enum Way {
    Files,
    Http,
    Mcp,
}

/// An agent's connection.
struct Agent<'a> {
    port: u16,
    token: &'a str,
    stream: TcpStream,
    left: Vec<u8>,
}

impl Agent<'_> {
    fn send(&mut self, what: &str, headers: &str, body: &str) {
        let request = format!(
            "{what} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.port,
            self.token,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// The reply, when it is whole.
    fn reply(&mut self) -> (String, Instant) {
        let reply = receive(&mut self.stream, &mut self.left).unwrap();
        let at = Instant::now();
        (reply.head + &String::from_utf8_lossy(&reply.body), at)
    }
}

/// `tools/call` of the revision without sessions.
fn call(mut arguments: Value) -> (String, &'static str) {
    for field in ["type", "request_id", "process"] {
        arguments.as_object_mut().unwrap().remove(field);
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "ask_user", "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    (message.to_string(), "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: ask_user\r\n")
}

/// One trip: until the post, and from the click to the outcome.
fn trip(bench: &Bench, world: &World, agents: &Agents, agent: &mut Agent<'_>, way: Way, number: u64) -> [f64; 2] {
    let before = bench.chat.posts();
    let mut begun = Instant::now();
    match way {
        Way::Files => begun = world.ask(number, 0),
        Way::Http => {
            agent.send("POST /agent/v1/asks", "", &request(number, None).to_string());
            let (said, _) = agent.reply();
            assert!(said.starts_with("HTTP/1.1 201"), "{said}");
        }
        Way::Mcp => {
            let (message, headers) = call(request(number, None));
            agent.send("POST /agent/v1/mcp", headers, &message);
        }
    }
    assert!(bench.chat.wait_for_posts(before + 1, PATIENCE), "no post of {number}");
    let posted = bench.chat.posts_from(before)[0].1 - begun;
    let id = crate::chat::marker(number);
    if let Way::Http = way {
        agent.send(&format!("GET /agent/v1/asks/{id}?wait=60"), "", "");
    }
    std::thread::sleep(PARKED);
    let card: Value = serde_json::from_slice(&bench.chat.last_post()).unwrap();
    let click = click(number, 0, &button(&card).unwrap(), world.port, true);
    let begun = Instant::now();
    assert_eq!(Connection::new(world.port).call(&click.request).unwrap().0, 200, "the click");
    let reached = match way {
        Way::Files => agents.see(number),
        Way::Http | Way::Mcp => {
            let (said, at) = agent.reply();
            assert!(said.starts_with("HTTP/1.1 200") && said.contains("answered"), "{said}");
            at
        }
    };
    match way {
        Way::Files => assert_eq!(world.take(&[(number, 0)]), 1),
        Way::Http => {
            agent.send(&format!("POST /agent/v1/asks/{id}/taken"), "", "");
            assert!(agent.reply().0.starts_with("HTTP/1.1 204"));
        }
        Way::Mcp => {}
    }
    [posted.as_secs_f64(), (reached - begun).as_secs_f64()]
}

pub(crate) fn measure(bench: &mut Bench) {
    let mut world = World::new(Host::Askd, fresh(&bench.base, "ways"), 1, &bench.chat);
    let port = free_port();
    world.write_settings(&format!("[agents]\nlisten = \"127.0.0.1:{port}\"\n"));
    world.start();
    let agents = Agents::watch(&world);
    let (count, rounds) = if bench.quick { (BURST, 1) } else { (100, bench.rounds) };
    let mut times = [const { [const { Vec::new() }; 2] }; 3];
    for round in 0..=rounds {
        let played = bench.round(&[world.pid()], |bench| {
            let mut trips = [const { [const { Vec::new() }; 2] }; 3];
            let tokens: Vec<String> = (0..2 * count / BURST).map(|_| token(&world)).collect();
            for (index, (number, _)) in spread(bench.numbers(3 * count), 1).into_iter().enumerate() {
                let way = [Way::Files, Way::Http, Way::Mcp][index % 3];
                let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nodelay(true).unwrap();
                let token = &tokens[index % tokens.len()];
                let mut agent = Agent { port, token, stream, left: Vec::new() };
                let figures = trip(bench, &world, &agents, &mut agent, way, number);
                for (all, figure) in trips[index % 3].iter_mut().zip(figures) {
                    all.push(figure);
                }
            }
            trips.map(|way| way.map(|trips| Times::new(trips).p50()))
        });
        // The first warms up.
        for (all, figures) in times.iter_mut().zip(played).filter(|_| round > 0) {
            for (all, figure) in all.iter_mut().zip(figures) {
                all.push(figure);
            }
        }
    }
    world.stop();
    let [files, http, mcp] = times.map(|way| way.map(median));
    for (trip, what) in ["request -> post", "click -> outcome"].into_iter().enumerate() {
        for (way, figures) in [("over HTTP", http), ("by MCP's URL", mcp)] {
            let what = format!("{what} {way}: p50 (floor: with files)");
            bench.report.row(19, &what, Unit::Seconds, Some(files[trip]), figures[trip], Goal::Within(2.0));
        }
    }
}

/// A new token of the group.
fn token(world: &World) -> String {
    let body = json!({"group": crate::world::group(0)}).to_string();
    let request = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        world.port,
        body.len()
    );
    let (status, made) = Connection::new(world.port).call(request.as_bytes()).unwrap();
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&made));
    let made: Value = serde_json::from_slice(&made).unwrap();
    made["token"].as_str().unwrap().to_owned()
}
