//! Who gets in, and what a wrong call is told.

use crate::harness::{NOBODY, World, exchange};
use serde_json::{Value, json};

/// P7 for the inbox: every way in without the token, from elsewhere, or by the wrong method.
#[test]
fn nobody_gets_in_without_the_token_or_from_elsewhere() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let id = ask["id"].as_str().unwrap();
    let before = world.store();
    let token = world.token();
    let good = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    let body = json!({"answers": {"r1_0": "React"}}).to_string();
    let path = format!("/api/v1/asks/{id}/answer");
    let half = &token[..32];
    let refusals = [
        (401, "POST", String::new()),
        (401, "POST", "authorization: Bearer \r\n".to_owned()),
        (401, "POST", "authorization: Bearer wrong\r\n".to_owned()),
        (401, "POST", format!("authorization: Bearer {half}\r\n")),
        (401, "POST", format!("authorization: Bearer {token}x\r\n")),
        (401, "POST", format!("authorization: Basic {token}\r\n")),
        (401, "POST", format!("cookie: token={token}\r\n")),
        (403, "POST", format!("{good}host: evil.example\r\n")),
        (403, "POST", format!("{good}host: 127.0.0.1\r\n")),
        (403, "POST", format!("{good}host: localhost.evil.example:{}\r\n", world.address().port())),
        (403, "POST", format!("{good}origin: http://evil.example\r\n")),
        (403, "POST", format!("{good}origin: null\r\n")),
        (403, "POST", format!("{good}sec-fetch-site: cross-site\r\n")),
        (400, "POST", format!("{good}host: {0}\r\nhost: evil.example\r\n", world.address())),
        (400, "POST", format!("{good}host: {0}\r\nhost: {0}\r\n", world.address())),
        (400, "POST", format!("{good}origin: {0}\r\norigin: http://evil.example\r\n", world.url())),
        (400, "POST", format!("{good}sec-fetch-site: same-origin\r\nsec-fetch-site: cross-site\r\n")),
        (405, "GET", good.clone()),
        (405, "PUT", good.clone()),
        (415, "POST", format!("authorization: Bearer {token}\r\ncontent-type: text/plain\r\n")),
        (415, "POST", format!("authorization: Bearer {token}\r\ncontent-type: application/x-www-form-urlencoded\r\n")),
    ];
    for (status, method, headers) in refusals {
        let (got, text) = world.raw(method, &path, &headers, &body);
        assert_eq!(got, status, "{method} {headers} {text}");
        let problem: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        assert!(!text.contains(&token));
    }
    for path in ["/api/v1/asks", "/api/v1/events", &format!("/api/v1/asks/{id}"), "/api/v1/nothing"] {
        assert_eq!(world.raw("GET", path, "", "").0, 401, "{path}");
    }
    // A Host is needed; HTTP/1.0 may leave it out.
    let bare = format!("GET /api/v1/asks HTTP/1.0\r\nauthorization: Bearer {token}\r\n\r\n");
    assert_eq!(exchange(world.address(), bare.as_bytes()).0, 403);
    world.one_open();
    assert_eq!(world.store(), before, "a refused call changes not a byte");
    let from_page = format!("{good}origin: {}\r\nsec-fetch-site: same-origin\r\n", world.url());
    assert_eq!(world.raw("POST", &path, &from_page, &body).0, 200);
}

#[test]
fn wrong_bodies_and_names_are_told_what_is_wrong() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let id = world.one_open()["id"].as_str().unwrap().to_owned();
    let good = format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", world.token());
    let path = format!("/api/v1/asks/{id}/answer");
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("{}", 422),
        (r#"{"answers": 7}"#, 422),
        (r#"[{"r1_0": "React"}, "cli"]"#, 422),
        (r#"{"answers": [["r1_0", "React"]]}"#, 422),
        (r#"{"answers": {}, "extra": 1}"#, 422),
        (r#"{"answers": {}, "by": "alice"}"#, 422),
        (r#"{"answers": {"r1_0": "React", "Which framework?": "Vue"}}"#, 422),
    ] {
        let (got, text) = world.raw("POST", &path, &good, body);
        assert_eq!(got, status, "{body}: {text}");
    }
    for value in ["7", "null", "true", "{}", "[7]", r#"["React", null]"#] {
        let (got, text) = world.raw("POST", &path, &good, &format!(r#"{{"answers": {{"r1_0": {value}}}}}"#));
        let problem: Value = serde_json::from_str(&text).unwrap();
        let told = "The answer to \"Which framework?\" must be a text or a list of texts.";
        assert_eq!((got, &problem["detail"]), (422, &json!(told)), "{value}");
    }
    for call in ["dismiss", "cancel", "reset", "shown"] {
        let (got, text) = world.raw("POST", &format!("/api/v1/asks/{id}/{call}"), &good, r#"["cli"]"#);
        assert_eq!(got, 422, "{call}: {text}");
    }
    let huge = format!(r#"{{"answers": {{"r1_0": "{}"}}}}"#, "x".repeat(300 * 1024));
    assert_eq!(world.raw("POST", &path, &good, &huge).0, 413);
    for name in ["zzzz", "0123456789abcdef0123456789abcdef", "..%2f..%2fetc", "%00"] {
        assert_eq!(world.call("GET", &format!("/asks/{name}"), None).0, 404, "{name}");
    }
    assert_eq!(world.open().len(), 1, "still open");
    // The beginning of an id is enough, and so is the code; the beginning of several is not.
    let short = world.one_open()["short_id"].as_str().unwrap().to_owned();
    assert_eq!(world.call("GET", &format!("/asks/{}", &id[..6]), None).1["id"], id.as_str());
    assert_eq!(world.call("GET", &format!("/asks/{short}"), None).1["id"], id.as_str());
    for number in 0..17 {
        agent.ask_framework(&format!("more{number}"));
    }
    let (status, problem) = crate::harness::within(crate::harness::SOON, "two ids to begin alike", || {
        let ids: Vec<String> = world.open().iter().map(|ask| ask["id"].as_str().unwrap().to_owned()).collect();
        let first = |id: &String| id.chars().next().unwrap();
        let twice = ids.iter().find(|one| ids.iter().filter(|other| first(other) == first(one)).count() > 1)?;
        Some(world.call("GET", &format!("/asks/{}", first(twice)), None))
    });
    assert_eq!(status, 400, "{problem}");
    assert!(problem["candidates"].as_array().unwrap().len() > 1);
}

#[test]
fn the_page_carries_headers_that_let_nothing_else_in() {
    let world = World::new();
    for path in ["/", "/inbox.css", "/inbox.js", "/icon.svg"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", world.address());
        let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        let head = text.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        for header in
            ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "x-frame-options: deny"]
        {
            assert!(head.contains(header), "{path}: {header}");
        }
        assert!(!head.contains("set-cookie") && !head.contains("access-control-allow"), "{path}");
        assert!(!text.contains(&world.token()), "the page holds no secret");
    }
    assert_eq!(world.raw("GET", "/", "host: evil.example\r\n", "").0, 403, "no page for another name");
    assert_eq!(world.raw("GET", "/", "sec-fetch-site: cross-site\r\n", "").0, 200, "a link from elsewhere is fine");
    assert_eq!(world.raw("GET", "/nothing", "", "").0, 404);
}

#[test]
fn what_has_not_changed_is_not_sent_again() {
    let world = World::new();
    let head = |path: &str, headers: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}connection: close\r\n\r\n", world.address());
        let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    };
    for path in ["/", "/inbox.js", "/inbox.css", "/icon.svg"] {
        let whole = head(path, "");
        let tag = whole.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_else(|| panic!("{whole}"));
        for known in [tag.to_owned(), format!("W/{tag}"), format!("\"old\", {tag}"), "*".to_owned()] {
            let told = head(path, &format!("if-none-match: {known}\r\n"));
            assert!(
                told.starts_with("HTTP/1.1 304") && told.contains(tag) && told.ends_with("\r\n\r\n"),
                "{known}: {told}"
            );
        }
        let other = head(path, "if-none-match: \"old\"\r\n");
        assert!(other.starts_with("HTTP/1.1 200") && other.len() > 500, "{path}");
    }
}

#[test]
fn health_needs_no_token_and_readiness_tells_the_truth() {
    let mut world = World::process();
    let ready = |world: &World| world.raw("GET", "/readyz", "", "");
    assert_eq!(world.raw("GET", "/healthz", "host: anything\r\n", "").0, 200);
    assert_eq!(ready(&world), (200, "ready\n".to_owned()));
    let state = world.data().join("state");
    let aside = world.data().join("aside");
    std::fs::rename(&state, &aside).unwrap();
    // The open handle follows a rename: nothing is wrong yet.
    assert_eq!(ready(&world).0, 200);
    std::fs::rename(&aside, &state).unwrap();
    assert!(world.terminate().success());
}

/// Reading many records takes time; a caller meanwhile hears how far askd has come.
#[test]
fn readiness_says_how_far_the_loading_is() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], crate::ports::free_port()));
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let id = world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).1["id"].as_str().unwrap().to_owned();
    agent.take("r1");
    world.all_done("g");
    assert!(world.terminate().success());
    let kept = world.data().join("state/settled/g");
    let record = std::fs::read_to_string(kept.join(format!("{id}.json"))).unwrap();
    for number in 0..3000_u32 {
        let other = format!("{number:032x}");
        std::fs::write(kept.join(format!("{other}.json")), record.replace(&id, &other)).unwrap();
    }
    let (done, told) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        let mut said = Vec::new();
        while done_is_open(&told) {
            let Ok(mut stream) = std::net::TcpStream::connect(address) else { continue };
            let request = "GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let _refused = std::io::Write::write_all(&mut stream, request.as_bytes());
            let mut text = String::new();
            let _cut = std::io::Read::read_to_string(&mut stream, &mut text);
            said.push(text);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        said
    });
    let mut world = world.env("ASKD__HTTP__LISTEN", &address.to_string());
    world.start();
    crate::harness::within(crate::harness::SOON, "it to be ready", || {
        (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(())
    });
    drop(done);
    let said = asking.join().unwrap();
    let loading = said.iter().find(|text| text.contains("\r\n\r\nloading ")).expect("it was told while it loaded");
    assert!(loading.starts_with("HTTP/1.1 503") && loading.ends_with(" of 3001\n"), "{loading}");
}

/// Until the other end is dropped.
fn done_is_open(told: &std::sync::mpsc::Receiver<()>) -> bool {
    matches!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty))
}

/// A problem that does not stop the daemon is reported, without a name.
#[test]
fn a_channel_that_is_away_is_told_to_whoever_asks_for_health() {
    let world = World::empty()
        .config(&format!(
            "[slack]\nbot_token = \"xoxb-1-secret\"\nsigning_secret = \"0123456789abcdef0123456789abcdef\"\n\
             api_url = \"http://{NOBODY}/api\"\npace = \"0s\"\n[groups.g]\n\
             routes = [{{ channel = \"slack\", chat = \"C0PRIVATE\", responders = [\"U0ALICE\"] }}]\n"
        ))
        .started();
    world.group("g").ask_framework("r1");
    let said = crate::harness::within(crate::harness::SOON, "the trouble to be told", || {
        Some(world.raw("GET", "/readyz", "", "")).filter(|(_, body)| body != "ready\n")
    });
    assert_eq!(said, (200, "degraded: Slack is away\n".to_owned()));
}

#[test]
fn events_carry_the_whole_ask_and_begin_with_resync() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let world = World::process();
    let agent = world.group("g");
    let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
    stream.set_read_timeout(Some(crate::harness::SOON)).unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        world.address(),
        world.token()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "x-accel-buffering: no"), "nginx would hold the first event back");
    assert_eq!(lines.find(|line| line.starts_with("event:")).unwrap(), "event: resync");
    agent.ask_framework("r1");
    let mut next = |state: &str| {
        let line = lines.find(|line| line.starts_with("data: {\"")).unwrap();
        let ask: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!((&ask["request_id"], &ask["state"]), (&json!("r1"), &json!(state)));
        ask
    };
    let ask = next("open");
    world.answer(&ask, &json!({"r1_0": "Vue"}));
    let settled = next("settled");
    assert_eq!(settled["outcome"]["answers"], json!({"Which framework?": "Vue"}));
}

/// A proxy keeps its connection for the next request, and a busy machine may take seconds to send a head.
#[test]
fn a_connection_may_be_silent_for_seconds() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let world = World::process();
    let connect = || {
        let stream = std::net::TcpStream::connect(world.address()).unwrap();
        stream.set_read_timeout(Some(crate::harness::SOON)).unwrap();
        BufReader::new(stream)
    };
    let head = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n", world.address());
    let send = |to: &mut BufReader<std::net::TcpStream>, text: &str| to.get_mut().write_all(text.as_bytes()).unwrap();
    let status = |from: &mut BufReader<std::net::TcpStream>| {
        let mut said = String::new();
        while !said.ends_with("ok\n") {
            assert!(from.read_line(&mut said).unwrap() > 0, "cut off: {said}");
        }
        said[..15].to_owned()
    };
    let (mut kept, mut slow) = (connect(), connect());
    send(&mut kept, &format!("{head}\r\n"));
    assert_eq!(status(&mut kept), "HTTP/1.1 200 OK");
    send(&mut slow, &head);
    std::thread::sleep(std::time::Duration::from_secs(11));
    send(&mut kept, &format!("{head}\r\n"));
    send(&mut slow, "\r\n");
    assert_eq!([status(&mut kept), status(&mut slow)], ["HTTP/1.1 200 OK"; 2]);
}
