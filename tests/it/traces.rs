//! A collector of OpenTelemetry, played by a socket: each question is one trace, from the request to the moment that the agent
//! took the answer, also over a restart; and without a collector nothing waits.

use crate::harness::{SOON, World, within};
use crate::remote::Remote;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// Where spans are sent, and the spans.
fn collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (to, spans) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut length, mut line) = (0, String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                assert!(!line.starts_with("POST") || line.starts_with("POST /v1/traces "), "{line}");
                if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = told.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let resource = &body["resourceSpans"][0];
            assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "askd");
            for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
                let _over = to.send(span.clone());
            }
            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _gone = reader.get_mut().write_all(reply);
        }
    });
    (url, spans)
}

#[test]
fn each_question_is_one_trace_from_the_request_to_taken() {
    let (url, spans) = collector();
    let settings = format!("[traces]\nendpoint = \"{url}/\"\n");
    let mut world = World::empty().config(&settings).groups(&["g"]).with_binary().started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let next = || spans.recv_timeout(SOON).expect("a span");
    assert_eq!(world.call("POST", &format!("/asks/{}/shown", ask["id"].as_str().unwrap()), Some(&json!({}))).0, 204);
    let show = next();
    world.kill();
    world.start();
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    let answer = next();
    agent.take("r1");
    let (deliver, whole) = (next(), next());
    for span in [&show, &answer, &deliver, &whole] {
        assert_eq!(span["traceId"], ask["id"], "{span}");
        assert!(!span.to_string().contains("Vue") && !span.to_string().contains("framework"), "{span}");
    }
    let text = |span: &Value, field: &str| span[field].as_str().unwrap().to_owned();
    let names = [&show, &answer, &deliver, &whole].map(|span| text(span, "name"));
    assert_eq!(names, ["show", "answer", "deliver", "ask"]);
    let parents = [&show, &answer, &deliver, &whole].map(|span| text(span, "parentSpanId"));
    let root = text(&whole, "spanId");
    assert_eq!(parents, [root.clone(), root.clone(), root, String::new()]);
    let moments = |span: &Value| [text(span, "startTimeUnixNano"), text(span, "endTimeUnixNano")];
    let all = [&show, &answer, &deliver, &whole].map(moments);
    let [begin, end] = &all[3];
    assert!(all.iter().all(|[from, to]| from.len() == 19 && begin <= from && from <= to && to <= end), "{all:?}");
    assert!(all[1][1] == all[2][0] && all[2][1] == *end, "answered, then delivered: {all:?}");
    let attributes = |span: &Value| {
        let each = span["attributes"].as_array().unwrap().iter();
        each.map(|it| format!("{}={}", text(it, "key"), text(&it["value"], "stringValue"))).collect::<Vec<_>>()
    };
    assert_eq!(attributes(&show), ["askd.group=g", "askd.channel=web"]);
    assert_eq!(attributes(&whole), ["askd.group=g", "askd.status=answered", "askd.reason=user", "askd.channel=api"]);
}

/// The same for an agent that has no folder.
#[test]
fn a_question_over_http_is_one_trace_too() {
    let (url, spans) = collector();
    let remote = Remote::of(World::empty().config(&format!("[traces]\nendpoint = \"{url}/\"\n")));
    let agent = remote.agent("g");
    assert_eq!(agent.ask("r1", "Deploy?").0, 201);
    let ask = remote.world.open_of("r1");
    let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"});
    assert_eq!(remote.world.answer(&ask, &answers).0, 200);
    agent.outcome("r1");
    assert_eq!(agent.taken("r1"), 204);
    let names: Vec<Value> = (0..3).map(|_| spans.recv_timeout(SOON).expect("a span")["name"].clone()).collect();
    assert_eq!(names, ["answer", "deliver", "ask"]);
}

#[test]
fn a_collector_that_is_away_is_told_once_and_holds_nothing_up() {
    let url = format!("http://127.0.0.1:{}", crate::ports::free_port());
    let world = World::empty().config(&format!("[traces]\nendpoint = \"{url}\"\n")).started();
    let agent = world.group("g");
    for request in ["r1", "r2"] {
        agent.ask_framework(request);
        assert_eq!(world.answer(&world.open_of(request), &json!({"Which framework?": "Vue"})).0, 200);
        agent.take(request);
    }
    let told = || world.log().matches("traces.endpoint takes no traces").count();
    world.passing(SOON, "the warning", || (told() > 0).then_some(()));
    within(SOON, "nothing but that", || (told() == 1).then_some(()));
}
