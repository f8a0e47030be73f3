//! What was asked and answered, to be looked up: exports, and the trail of each ask.

use crate::harness::{SOON, World, choice, within};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn what_was_answered_is_exported_and_formulas_are_text() {
    let world = World::of(&["g"]);
    let agent = world.group("g");
    agent.ask("r1", &json!({"title": "Sums", "questions": [{"question": "=1+1?"}, {"question": "Where, \"exactly\"?", "options": ["Here", "There"]}]}));
    let ask = world.open_of("r1");
    let (first, second) = (ask["questions"][0]["id"].as_str().unwrap(), ask["questions"][1]["id"].as_str().unwrap());
    assert_eq!(world.answer(&ask, &json!({first: "@two", second: "Here"})).0, 200);
    agent.ask("r2", &choice("Next?", &["a"]));
    world.open_of("r2");

    let export = |query: &str| {
        let token = format!("authorization: Bearer {}\r\n", world.token());
        world.raw("GET", &format!("/api/v1/export?{query}"), &token, "")
    };
    let (status, csv) = export("format=csv&state=settled");
    let (id, asked, settled) = (
        ask["id"].as_str().unwrap(),
        ask["created_at"].as_str().unwrap(),
        world.details(ask["id"].as_str().unwrap())["outcome"]["at"].clone(),
    );
    let settled = settled.as_str().unwrap();
    let row = |rest: &str| format!("{id},g,{asked},{settled},answered,Sums,{rest},api,operator,\r\n");
    let expected = row("\"'=1+1?\",\"'@two\"") + &row("\"Where, \"\"exactly\"\"?\",Here");
    assert_eq!(
        (status, csv),
        (200, format!("id,group,asked_at,settled_at,status,title,question,answer,channel,by,late_at\r\n{expected}"))
    );
    let (_, lines) = export("format=jsonl");
    let asks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(asks.len(), 2);
    assert_eq!(asks[1], world.details(id));
    for (wrong, why) in [
        ("", "format has to be"),
        ("format=xml", "format has to be"),
        ("format=csv&state=shut", "state="),
        ("format=csv&format=csv", "format is given twice."),
        ("format=csv&limit=1", "Leave out limit: an export contains everything that matches."),
        ("format=jsonl&after=x", "Leave out after: "),
    ] {
        let (status, problem) = export(wrong);
        assert!(status == 400 && problem.contains(why), "{wrong}: {status} {problem}");
    }
}

#[test]
fn the_trail_of_an_ask_says_what_happened_to_it() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &choice("Which?", &["a", "b"]));
    agent.ask("r2", &choice("And?", &["c"]));
    let (ask, other) = (world.open_of("r1"), world.open_of("r2"));
    assert_eq!(world.answer(&ask, &json!({"r1_0": "b"})).0, 200);
    agent.wait("r1");
    let trail = world.trail(ask["id"].as_str().unwrap());
    let what: Vec<&str> = trail.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert!(what.starts_with(&["asked"]) && what.contains(&"answered"), "{what:?}");
    assert!(!json!(trail).to_string().contains(other["id"].as_str().unwrap()), "of this ask alone");
}

/// What was done long after the outcome is in the trail like all before it.
#[test]
fn what_is_allowed_again_after_weeks_is_in_the_trail() {
    let world = World::empty().config("[asks]\nmax_attempts = 1\n").started();
    let agent = world.group("g");
    agent.ask("r1", &choice("Which?", &["a", "b"]));
    world.open_of("r1");
    agent.ask("r2", &choice("Which?", &["a", "b"]));
    agent.wait("r2");
    let block = world.call("GET", "/asks?state=settled", None).1["asks"][0]["id"].as_str().unwrap().to_owned();
    world.later(Duration::from_secs(25 * 24 * 3600));
    let (status, body) = world.call("POST", &format!("/asks/{block}/reset"), Some(&json!({})));
    assert_eq!(status, 200, "{body}");
    let trail = world.trail(&block);
    let has = |what: &str| trail.iter().any(|line| line["what"] == what);
    assert!(has("blocked") && has("allowed_again"), "{trail:?}");
}

/// Time flies while the daemon reads: two seconds are over after a few of the asks.
#[test]
fn a_search_that_takes_too_long_ends_and_goes_on_where_it_stopped() {
    const ASKS: usize = 40;
    let world = World::empty().config("[asks]\nmax_open_per_group = 100\nremind_after = \"\"\n").started();
    for number in 0..ASKS {
        // So much text that even a fast machine needs milliseconds to look through all of it.
        let long = json!({
            "questions": [{"question": format!("Part {number}?")}], "context": "x".repeat(2_900), "timeoutMs": 604_800_000
        });
        world.group("g").ask(&format!("r{number}"), &long);
    }
    within(SOON, "all of them", || (world.open().len() == ASKS).then_some(()));
    let (hand, over) = (world.hand(), AtomicBool::new(false));
    let search = || {
        let (mut found, mut pages, mut next) = (BTreeSet::new(), 0, String::new());
        loop {
            let (_, page) = world.call("GET", &format!("/asks?q=part{next}"), None);
            found.extend(page["asks"].as_array()?.iter().map(|ask| ask["id"].to_string()));
            pages += 1;
            match page["next"].as_str() {
                Some(after) => next = format!("&after={after}"),
                None => return Some((found.len(), pages)),
            }
        }
    };
    let searches: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The pause leaves the processor to the search, and the deadlines, 200,000 steps away, out of it.
            while !over.load(Ordering::SeqCst) {
                hand.advance(Duration::from_secs(3));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        // Until one of them was stopped.
        let mut stopped = false;
        let searches =
            (0..100).map_while(|_| search().filter(|(_, pages)| !std::mem::replace(&mut stopped, *pages > 1)));
        let searches = searches.collect();
        over.store(true, Ordering::SeqCst);
        searches
    });
    assert!(searches.iter().all(|(found, _)| *found == ASKS), "nothing is lost: {searches:?}");
    assert!(searches.last().is_some_and(|(_, pages)| *pages > 1), "it stopped at no time: {searches:?}");
}
