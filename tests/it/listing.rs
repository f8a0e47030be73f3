//! Lists of asks: their order, their pages to the end, filters, and wrong parameters.

use crate::command_line::err;
use crate::harness::{SOON, World, askd, within};
use crate::on_postgres::Database;
use crate::remote::Remote;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

/// More finished asks than any page has by default.
const FINISHED: usize = 206;

/// All pages of a list, by their cursors. Each says how many there are in all.
fn pages(world: &World, query: &str) -> Vec<Value> {
    let (mut asks, mut next) = (Vec::new(), None::<String>);
    loop {
        let after = next.map(|next| format!("&after={next}")).unwrap_or_default();
        let (status, page) = world.call("GET", &format!("/asks?{query}{after}"), None);
        assert_eq!(status, 200, "{query}: {page}");
        let listed = page["asks"].as_array().unwrap().clone();
        assert!(!listed.is_empty() || page["next"].is_null(), "{page}");
        asks.extend(listed);
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            assert_eq!(page["total"], asks.len(), "{query}");
            return asks;
        }
    }
}

fn requests(asks: &[Value]) -> Vec<&str> {
    asks.iter().map(|ask| ask["request_id"].as_str().unwrap()).collect()
}

fn list(world: &World, arguments: &[&str]) -> String {
    let mut command = askd();
    command.arg("list").args(arguments).args(["--url", &world.url(), "--token", &world.token()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_can_still_be_answered_or_was_not_collected_is_listed_first() {
    let mut world = World::empty()
        .with_binary()
        .config(
            "[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000\n\
             [groups.late]\nroutes = [{ channel = \"web\" }]\nsession = { start = { command = [\"/bin/true\"] } }\n",
        )
        .started();
    let (late, agent) = (world.group("late"), world.group("g"));
    late.ask("late", &json!({"timeoutMs": 10_000, "questions": [{"question": "Which?", "options": ["React"]}]}));
    agent.ask_framework("lying");
    let lying = world.open_of("lying");
    assert_eq!(world.answer(&lying, &json!({"lying_0": "Vue"})).0, 200);
    within(SOON, "the timeout", || {
        world.call("GET", "/asks?state=open", None).1["asks"].as_array()?.is_empty().then_some(())
    });
    let names: Vec<String> = (0..FINISHED).map(|number| format!("r{number}")).collect();
    for name in &names {
        agent.ask_framework(name);
    }
    within(SOON, "all to be open", || (world.open().len() == FINISHED).then_some(()));
    for ask in world.open() {
        let name = ask["request_id"].as_str().unwrap();
        assert_eq!(world.answer(&ask, &json!({format!("{name}_0"): "React"})).0, 200);
    }
    for name in &names {
        agent.take(name);
    }
    let collected = |world: &World| {
        let settled = pages(world, "state=settled&limit=1000");
        (requests(&settled[..2]) == ["lying", "late"] || requests(&settled[..2]) == ["late", "lying"]).then_some(())
    };
    for round in ["running", "started again"] {
        if round == "started again" {
            world.kill();
            world.start();
        }
        // What was taken in the seconds before a kill is found out again.
        within(SOON, "all others to be collected", || collected(&world));
        let settled = pages(&world, "state=settled&limit=50");
        let ids: BTreeSet<&str> = settled.iter().map(|ask| ask["id"].as_str().unwrap()).collect();
        assert_eq!((settled.len(), ids.len()), (FINISHED + 2, FINISHED + 2), "{round}");
        let first: BTreeSet<&str> = requests(&settled[..2]).into_iter().collect();
        assert_eq!(first, BTreeSet::from(["late", "lying"]), "{round}");
        let at: Vec<&str> = settled[2..].iter().map(|ask| ask["outcome"]["at"].as_str().unwrap()).collect();
        assert!(at.is_sorted_by(|newer, older| newer >= older), "{round}: {at:?}");
        assert_eq!(pages(&world, "").len(), FINISHED + 2, "{round}: all of them");
        let json: Value = serde_json::from_str(&list(&world, &["--settled", "--json"])).unwrap();
        assert_eq!(json["asks"].as_array().unwrap().len(), FINISHED + 2, "{round}: --json");
        let text = list(&world, &["--settled"]);
        assert_eq!(text.lines().filter(|line| line.contains("Which")).count(), FINISHED + 2, "{round}: {text}");
    }
}

#[test]
fn lists_are_filtered() {
    let world = World::of(&["one", "two"]);
    let (one, two) = (world.group("one"), world.group("two"));
    one.ask_framework("a");
    let (_, answered) = world.answer(&world.open_of("a"), &json!({"a_0": "Vue"}));
    one.ask("b", &json!({"title": "Größe", "questions": [{"question": "How much is the fish?"}]}));
    let id = world.open_of("b")["id"].as_str().unwrap().to_owned();
    assert_eq!(world.call("POST", &format!("/asks/{id}/dismiss"), Some(&json!({"by": "cli"}))).0, 200);
    two.ask("c", &json!({"context": "Fish again", "questions": [{"question": "Which sea?"}]}));
    world.open_of("c");
    let at = answered["outcome"]["at"].as_str().unwrap();
    for (query, expected) in [
        ("group=one", vec!["b", "a"]),
        ("group=two", vec!["c"]),
        ("group=three", vec![]),
        ("state=open", vec!["c"]),
        ("q=fish", vec!["c", "b"]),
        ("q=FISH&state=settled", vec!["b"]),
        ("q=gr%C3%B6%C3%9Fe", vec!["b"]),
        ("q=vue", vec!["a"]),
        ("outcome=answered", vec!["a"]),
        ("outcome=cancelled", vec!["b"]),
        ("outcome=timeout", vec![]),
        ("channel=web", vec!["c", "b", "a"]),
        ("channel=cli", vec!["b"]),
        ("channel=slack", vec![]),
        ("person=Operator", vec!["b", "a"]),
        ("person=alice", vec![]),
        (&format!("since={at}"), vec!["c", "b", "a"]),
        (&format!("until={at}"), vec![]),
        ("since=2020-01-01T00:00:00%2B01:00&until=2021-01-01T00:00:00Z", vec![]),
        ("group=one&q=fish&limit=1&state=", vec!["b"]),
    ] {
        assert_eq!(requests(&pages(&world, query)), expected, "{query}");
        let paged = pages(&world, &format!("{}&limit=1", query.replace("&limit=1", "")));
        assert_eq!(requests(&paged), expected, "{query}, one by one");
    }
}

#[test]
fn a_wrong_parameter_of_a_list_is_named() {
    let world = World::new();
    for (query, name) in [
        ("state=strange", "state"),
        ("group=../etc", "group"),
        ("outcome=maybe", "outcome"),
        ("channel=pigeon", "channel"),
        ("since=yesterday", "since"),
        ("until=12", "until"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("after=here", "after"),
        ("sate=open", "sate"),
        ("state=open&state=settled", "state"),
    ] {
        let (status, problem) = world.call("GET", &format!("/asks?{query}"), None);
        assert_eq!(status, 400, "{query}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(name), "{query}: {problem}");
    }
    assert_eq!(world.call("GET", "/asks?limit=1000", None), (200, json!({"asks": [], "total": 0})));
}

/// D7: askd understands a code that `askd list --settled` prints, and says that the question is settled.
#[test]
fn the_code_of_a_settled_ask_names_the_newest_one() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let code = ask["short_id"].as_str().unwrap().to_owned();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    for round in ["running", "started again"] {
        assert_eq!(world.details(&code)["id"], ask["id"], "{round}");
        let (status, problem) =
            world.call("POST", &format!("/asks/{code}/answer"), Some(&json!({"answers": {"r1_0": "React"}})));
        assert_eq!(status, 409, "{round}: {problem}");
        world.kill();
        world.start();
    }
}

/// What is at hand can be listed; nothing looks as if it were all that there is.
#[test]
fn while_the_records_cannot_be_read_no_list_and_no_export_looks_complete() {
    /// Asks that an export reads at a time.
    const AT_ONCE: usize = 200;
    let Some(database) = Database::found() else { return };
    let limits = "[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000\n";
    let world = World::empty().in_files().with_binary().config(limits).more_config(&database.settings("host-a"));
    let mut host = Remote::ready(world);
    host.world.start();
    let agent = host.world.group("research");
    for number in 0..=AT_ONCE {
        agent.ask_framework(&format!("r{number}"));
    }
    within(SOON, "all to be open", || (host.world.open().len() > AT_ONCE).then_some(()));
    // Another run has none of them at hand.
    assert!(host.world.terminate().success());
    host.world.start();
    let world = &host.world;
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    let listed = pages(world, "limit=1000");
    assert_eq!(listed.len(), AT_ONCE + 1);
    database.away(true);
    let export = "/export?format=csv";
    for path in ["/asks?state=open&limit=1000", "/asks?q=framework", export] {
        let (status, told) = world.call("GET", path, None);
        assert_eq!((status, &told["title"]), (503, &json!("Not readable")), "{path}: {told}");
    }
    let mut list = askd();
    list.arg("list").args(["--url", &world.url(), "--token", &world.token()]);
    let list = list.output().unwrap();
    assert_eq!((list.status.code(), &*list.stdout), (Some(1), &b""[..]), "{}", err(&list));
    database.away(false);
    // What an export has of its first pages is at hand, and the rest is not.
    within(SOON, "the database", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    for ask in &listed[..AT_ONCE] {
        world.details(ask["id"].as_str().unwrap());
    }
    database.away(true);
    let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
    let request = format!(
        "GET /api/v1{export} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        world.address(),
        world.token()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut told = Vec::new();
    let _reset = stream.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("Which framework?"), "{told}");
    assert!(!told.ends_with("0\r\n\r\n"), "the end of a whole body");
    database.away(false);
}

/// SPEC 8: what is wrong with one file does not stop the others.
#[test]
fn one_record_that_cannot_be_read_hides_no_others() {
    let world = World::empty().in_files().with_binary();
    let fail = world.dir.path().join("fail");
    let mut world = world.env("ASKD_FAIL_CALL", fail.to_str().unwrap());
    world.start();
    let agent = world.group("research");
    for (request, answered) in [("r1", true), ("r2", true), ("r3", false), ("r4", false)] {
        agent.ask_framework(request);
        let open = within(SOON, "the question", || world.open().into_iter().find(|ask| ask["request_id"] == request));
        if answered {
            assert_eq!(world.answer(&open, &json!({format!("{request}_0"): "Vue"})).0, 200);
        }
    }
    let all = pages(&world, "limit=1000");
    assert_eq!(all.len(), 4);
    // Another run has none of them at hand.
    assert!(world.terminate().success());
    world.start();
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    for (state, unread, left) in [("settled", "r1", "r2"), ("open", "r3", "r4")] {
        let id = all.iter().find(|ask| ask["request_id"] == unread).unwrap()["id"].as_str().unwrap();
        std::fs::write(&fail, format!("openat2@{id}.json:1-:EIO")).unwrap();
        let (status, listed) = world.call("GET", &format!("/asks?state={state}"), None);
        assert_eq!((status, requests(listed["asks"].as_array().unwrap())), (200, vec![left]), "{listed}");
        let told = world.problems("record");
        assert!(told.len() == 1 && told[0]["line"].as_str().unwrap().contains(id), "{told:?}");
        // That nothing can be opened now says nothing of the file.
        std::fs::write(&fail, format!("openat2@{id}.json:1-:EMFILE")).unwrap();
        assert_eq!(world.call("GET", &format!("/asks?state={state}"), None).0, 503);
        std::fs::remove_file(&fail).unwrap();
    }
    assert_eq!(pages(&world, "limit=1000").len(), 4);
    assert_eq!(world.problems("record"), [json!(null); 0]);
}

/// A token that was replaced opens nothing any more, and what it had begun to read does not look whole.
#[test]
fn an_export_ends_once_its_token_was_replaced() {
    /// Asks that an export reads at a time.
    const AT_ONCE: usize = 200;
    let limits = "[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000\n";
    let world = World::empty().in_files().with_binary().config(limits);
    let slow = world.dir.path().join("slow");
    let mut world = world.env("ASKD_SLOW_CALL", slow.to_str().unwrap());
    world.start();
    let agent = world.group("research");
    for number in 0..=AT_ONCE {
        agent.ask_framework(&format!("r{number}"));
    }
    within(SOON, "all to be open", || (world.open().len() > AT_ONCE).then_some(()));
    let listed = pages(&world, "state=open&limit=1000");
    // Another run has none of them at hand.
    assert!(world.terminate().success());
    world.start();
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    let last = listed.last().unwrap()["id"].as_str().unwrap();
    std::fs::write(&slow, format!("openat2@{last}.json:5000")).unwrap();
    let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
    let (at, token) = (world.address(), world.token());
    let head = format!("host: {at}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("GET /api/v1/export?format=csv HTTP/1.1\r\n{head}").as_bytes()).unwrap();
    let mut told = vec![0; 1000];
    stream.read_exact(&mut told).unwrap();
    let begun = Instant::now();
    let mut new = askd();
    new.args(["link", "--new", "--url", &world.url()]).env("ASKD_TOKEN", &token);
    assert!(new.output().unwrap().status.success());
    let _reset = stream.read_to_end(&mut told);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("Which framework?"), "{told}");
    assert!(!told.ends_with("0\r\n\r\n") && !told.contains(last), "the end of a whole body");
}

/// A page is bounded by its size, too: long questions are listed in more pages, and none is left out.
#[test]
fn a_page_of_long_questions_ends_before_its_limit() {
    /// What a page ends with, and what the longest of these asks has.
    const PAGE: usize = 512 * 1024;
    const ONE: usize = 40_000;
    let world = World::empty().config("[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000\n").started();
    let agent = world.group("research");
    let names: Vec<String> = (0..60).map(|number| format!("r{number}")).collect();
    for name in &names {
        let question = |number: usize| json!({"question": format!("{name} {number} {}", "why ".repeat(700))});
        agent.ask(name, &json!({"questions": (0..10).map(question).collect::<Vec<_>>()}));
    }
    within(SOON, "all to be open", || (world.open().len() == names.len()).then_some(()));
    let (status, page) = world.call("GET", "/asks?state=open&limit=1000", None);
    assert_eq!((status, &page["total"]), (200, &json!(names.len())));
    assert!(page["next"].is_string(), "there are more of them");
    let bytes = page.to_string().len();
    assert!((PAGE..PAGE + ONE).contains(&bytes), "{bytes}");
    for query in ["state=open&limit=1000", "q=why&limit=1000", "limit=7"] {
        let listed = pages(&world, query);
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(requests(&listed).into_iter().collect::<BTreeSet<_>>(), names, "{query}");
    }
}
