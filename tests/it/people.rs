//! People with tokens of their own: each is named beside what they answer, and one who is limited to some groups sees, hears and
//! answers nothing of the others, by any call or stream.

use crate::harness::{SOON, World, choice, exchange, sections, within};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const ANN: &str = "ann-0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef";
const SECRET: &str = "Sell the company?";
const GROUPS: [&str; 2] = ["writer", "board"];

fn with_people(more: &str) -> World {
    let people = format!(
        "[web]\npeople = [{{ name = \"ann\", token = \"{ANN}\", groups = [\"writer\"] }}, {{ name = \"bob\", token = \"{BOB}\" }}]\n{more}"
    );
    World::empty().config(&people).groups(&GROUPS).started()
}

/// A call with this token: its status and its body as a text.
fn call(world: &World, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    world.raw(method, &format!("/api/v1{path}"), &headers, body)
}

/// One open ask of the board, which ann does not see, and one of the writer, which she does.
fn asked(world: &World) -> (Value, Value) {
    world
        .group("board")
        .ask("hidden", &json!({"title": "Strategy", "questions": [{"question": SECRET, "options": ["Yes", "No"]}]}));
    world.group("writer").ask("seen", &choice("Which title?", &["One", "Two"]));
    (world.open_of("hidden"), world.open_of("seen"))
}

#[test]
fn who_answered_is_recorded_and_told() {
    let world = with_people("");
    let (hidden, seen) = asked(&world);
    let answer = |token, ask: &Value, by: &str, label: &str| {
        let question = ask["questions"][0]["id"].as_str().unwrap();
        let path = format!("/asks/{}/answer", ask["id"].as_str().unwrap());
        call(&world, token, "POST", &path, &json!({"answers": {question: label}, "by": by}).to_string())
    };
    assert_eq!(answer(ANN, &seen, "web", "One").0, 200);
    assert_eq!(
        world.group("writer").wait("seen")["result"]["answered_by"],
        json!({"channel": "web", "id": "ann", "name": null})
    );
    assert_eq!(world.details(seen["id"].as_str().unwrap())["outcome"]["line"], "Answered: One by ann");
    assert_eq!(answer(BOB, &hidden, "cli", "No").0, 200, "bob sees every group");
    assert_eq!(
        world.group("board").wait("hidden")["result"]["answered_by"],
        json!({"channel": "cli", "id": "bob", "name": null})
    );
    let by = |id: &str| world.audit().iter().any(|line| line["what"] == "answered" && line["by"] == id);
    assert!(by("ann") && by("bob"));
    let (_, list) = world.call("GET", "/asks?person=ann", None);
    assert_eq!((list["total"].as_u64(), &list["asks"][0]["id"]), (Some(1), &seen["id"]));
    assert_eq!(call(&world, "ann-0123456789abcdeX", "GET", "/asks", "").0, 401);
}

#[test]
fn who_withdrew_a_question_stands_in_its_trail_and_the_agent_is_told_what_it_was_told_before() {
    let world = with_people("");
    let (_, seen) = asked(&world);
    let id = seen["id"].as_str().unwrap();
    assert_eq!(call(&world, ANN, "POST", &format!("/asks/{id}/cancel"), "{\"by\":\"web\"}").0, 200);
    let result = world.group("writer").wait("seen")["result"].clone();
    assert_eq!(
        (&result["status"], &result["reason"], &result["answered_by"]),
        (&json!("cancelled"), &json!("system"), &json!(null))
    );
    let trail = world.trail(id);
    let line = trail.iter().find(|line| line["what"] == "withdrawn").unwrap();
    assert_eq!((&line["by"], &line["channel"]), (&json!("ann"), &json!("web")), "{line}");
}

#[test]
fn a_limited_person_sees_hears_and_answers_nothing_of_another_group() {
    let world = with_people("");
    // Ann follows the stream from the beginning.
    let mut stream = TcpStream::connect(world.address()).unwrap();
    let request =
        format!("GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {ANN}\r\n\r\n", world.address());
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();

    let (hidden, seen) = asked(&world);
    let (id, code) = (hidden["id"].as_str().unwrap(), hidden["short_id"].as_str().unwrap());
    let question = hidden["questions"][0]["id"].as_str().unwrap();
    let answer = json!({"answers": {question: "Yes"}}).to_string();
    let mut told = String::new();
    for name in [id, code, &id[..9]] {
        for (method, verb, body) in [
            ("GET", "", ""),
            ("GET", "/trail", ""),
            ("POST", "/answer", answer.as_str()),
            ("POST", "/dismiss", "{}"),
            ("POST", "/cancel", "{}"),
            ("POST", "/reset", "{}"),
            ("POST", "/shown", "{}"),
            ("POST", "/typing", "{}"),
        ] {
            let (status, body) = call(&world, ANN, method, &format!("/asks/{name}{verb}"), body);
            assert_eq!(status, 404, "{method} {verb} of {name}: {body}");
            told += &body;
        }
    }
    let total = |query: &str| {
        let (status, body) = call(&world, ANN, "GET", &format!("/asks{query}"), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["total"].as_u64().unwrap()
    };
    assert_eq!((total(""), total("?group=board"), total("?q=sell"), total("?q=title&channel=web")), (1, 0, 0, 1));
    for format in ["jsonl", "csv"] {
        let (status, body) = call(&world, ANN, "GET", &format!("/export?format={format}"), "");
        assert_eq!(status, 200);
        assert!(body.contains("Which title?"), "{body}");
        told += &body;
    }
    let (_, me) = call(&world, ANN, "GET", "/me", "");
    let me = serde_json::from_str::<Value>(&me).unwrap();
    assert_eq!((&me["name"], &me["groups"]), (&json!("ann"), &json!(["writer"])));
    let (status, nobody) = world.raw("GET", "/api/v1/me", "", "");
    assert_eq!((status, serde_json::from_str::<Value>(&nobody).unwrap()["name"].clone()), (200, json!(null)));
    assert_eq!(
        call(&world, "0123456789abcdef", "GET", "/me", "").0,
        401,
        "the page would keep that token as a good one"
    );
    assert_eq!((call(&world, ANN, "GET", "/status", "").0, call(&world, BOB, "GET", "/status", "").0), (403, 200));

    assert_eq!(world.details(id)["state"], "open", "nothing was done to it");
    assert_eq!(world.answer(&hidden, &json!({question: "No"})).0, 200);
    let own = seen["questions"][0]["id"].as_str().unwrap();
    assert_eq!(world.answer(&seen, &json!({own: "Two"})).0, 200);
    within(SOON, "ann to hear of her group", || {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap_or(0);
        told += &String::from_utf8_lossy(&piece[..read]);
        told.contains("Answered: Two").then_some(())
    });
    for hidden in [SECRET, "Strategy", "board", &format!("\"{id}\"")] {
        assert!(!told.contains(hidden), "{hidden} in {told}");
    }
}

#[test]
fn a_trusted_proxy_names_the_person_and_nobody_else_does() {
    let header = |name: &str| format!("x-remote-user: {name}\r\n");
    let proxied =
        |trusted: &str| with_people(&format!("proxy_header = \"X-Remote-User\"\ntrusted_proxies = [\"{trusted}\"]\n"));
    let world = proxied("127.0.0.0/8");
    let get = |headers: &str| world.raw("GET", "/api/v1/asks", headers, "").0;
    assert_eq!(get(&header("ann")), 200);
    for refused in [header("eve"), header("operator"), header(""), String::new(), header("bob") + &header("ann")] {
        assert_eq!(get(&refused), 401, "{refused}");
    }
    let (_, me) = world.raw("GET", "/api/v1/me", &header("ann"), "");
    let me = serde_json::from_str::<Value>(&me).unwrap();
    assert_eq!((&me["name"], &me["groups"]), (&json!("ann"), &json!(["writer"])));
    let elsewhere = proxied("10.0.0.1");
    assert_eq!(elsewhere.raw("GET", "/api/v1/asks", &header("ann"), "").0, 401, "it is not trusted");
}

#[test]
fn a_proxy_names_people_in_utf_8() {
    let proxy = "[web]\nproxy_header = \"X-Remote-User\"\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let world = |people: &str| World::empty().config(&format!("{proxy}{people}")).groups(&GROUPS).started();
    let me = |world: &World, name: &[u8]| {
        let head =
            format!("GET /api/v1/me HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-remote-user: ", world.address());
        let (_, me) = exchange(world.address(), &[head.as_bytes(), name, b"\r\n\r\n"].concat());
        serde_json::from_str::<Value>(&me).unwrap()["name"].clone()
    };
    let listed = world("people = [{ name = \"jörg\", groups = [\"writer\"] }]\n");
    assert_eq!(me(&listed, "jörg".as_bytes()), "jörg");
    // One sequence of bytes is one name: Latin-1 is nobody's.
    for nobody in [&b"j\xf6rg"[..], "jÃ¶rg".as_bytes()] {
        assert_eq!(me(&listed, nobody), Value::Null);
    }
    let anybody = world("");
    assert_eq!(me(&anybody, "李".as_bytes()), "李");
    assert_eq!(me(&anybody, "j\u{85}rg".as_bytes()), Value::Null, "a control character");
}

#[test]
fn people_are_read_again_on_hangup_and_one_who_is_removed_is_out() {
    let world = World::empty().with_binary();
    let groups = sections(&GROUPS);
    let people = |people: &str| format!("[web]\npeople = [{people}]\n{groups}");
    let ann = |groups: &str| format!("{{ name = \"ann\", token = \"{ANN}\", groups = [{groups}] }}");
    let bob = format!("{{ name = \"bob\", token = \"{BOB}\" }}");
    let world = world.config(&people(&format!("{}, {bob}", ann("\"writer\"")))).started();
    let (hidden, _seen) = asked(&world);
    let follow = |token: &str| {
        let mut stream = TcpStream::connect(world.address()).unwrap();
        let head = format!(
            "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
            world.address()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.any(|line| line.unwrap().contains("resync")), "the stream is open");
        lines
    };
    let (anns, bobs) = (follow(ANN), follow(BOB));
    let reload = |config: &str, times: usize| {
        std::fs::write(world.dir.path().join("askd.toml"), config).unwrap();
        world.signal(rustix::process::Signal::HUP);
        let told = || (world.log().matches("reloaded the settings: [web] changed").count() == times).then_some(());
        within(SOON, "the settings to be read", told);
    };
    reload(&people(&ann("\"board\"")), 1);
    // A stream ends with an empty chunk. Ann's page opens another one, and then knows what she may see now.
    for mut stream in [anns, bobs] {
        assert!(stream.any(|line| line.unwrap() == "0"), "the stream ends");
    }
    assert_eq!(call(&world, BOB, "GET", "/asks", "").0, 401);
    let (_, list) = call(&world, ANN, "GET", "/asks", "");
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((list["total"].as_u64(), &list["asks"][0]["id"]), (Some(1), &hidden["id"]));
    // The operator's own token can be another one, too.
    reload(&format!("[web]\ntoken = \"another-0123456789abcdef\"\n{groups}"), 2);
    assert_eq!(call(&world, ANN, "GET", "/asks", "").0, 401);
    assert_eq!(call(&world, &world.token(), "GET", "/asks", "").0, 401);
    assert_eq!(call(&world, "another-0123456789abcdef", "GET", "/asks", "").0, 200);
}

#[test]
fn a_token_that_a_reload_takes_out_of_the_settings_opens_nothing_any_more() {
    let world = World::empty().with_binary().config(&format!("[web]\ntoken = \"{ANN}\"\n")).started();
    assert_eq!(call(&world, ANN, "GET", "/asks", "").0, 200);
    std::fs::write(world.dir.path().join("askd.toml"), "").unwrap();
    world.signal(rustix::process::Signal::HUP);
    let told = || world.log().contains("reloaded the settings: [web] changed").then_some(());
    within(SOON, "the settings to be read", told);
    assert_eq!(call(&world, ANN, "GET", "/asks", "").0, 401);
    assert_eq!(call(&world, &world.token(), "GET", "/asks", "").0, 200);
}
