//! Bad input: a clear error that says what, where and how to mend it, and nothing lost by it.

use crate::harness::{SOON, World, within};
use serde_json::{Value, json};

fn options(count: usize) -> Value {
    (0..count).map(|n| json!(format!("option {n}"))).collect()
}

/// Asks each of these and holds the answer against the words it has to contain.
#[test]
fn every_mistake_is_named_with_its_field_and_limit() {
    let world = World::new();
    let agent = world.group("g");
    let question = |extra: Value| {
        let mut question = json!({"question": "Which?"});
        question.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({ "questions": [question] })
    };
    let long = |size: usize| "x".repeat(size);
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("none", json!({"questions": []}), &["No questions provided"]),
        ("missing", json!({}), &["No questions provided"]),
        (
            "eleven",
            json!({"questions": (0..11).map(|n| json!({"question": format!("q{n}")})).collect::<Value>()}),
            &["questions has 11 entries; the limit is 10"],
        ),
        (
            "eleven-options",
            question(json!({"options": options(11)})),
            &["questions[0].options has 11 entries; the limit is 10"],
        ),
        (
            "equal-labels",
            question(json!({"options": ["Yes", "yes"]})),
            &["questions[0].options[1].label is the same as questions[0].options[0].label"],
        ),
        (
            "equal-texts",
            json!({"questions": [{"question": "same"}, {"question": "same"}]}),
            &["questions[1].question is the same as questions[0].question"],
        ),
        (
            "long-question",
            json!({"questions": [{"question": long(3001)}]}),
            &["questions[0].question has 3001 characters; the limit is 3000"],
        ),
        (
            "long-label",
            question(json!({"options": [long(76)]})),
            &["questions[0].options[0].label has 76 characters; the limit is 75"],
        ),
        (
            "long-description",
            question(json!({"options": [{"label": "a", "description": long(301)}]})),
            &["options[0].description has 301", "the limit is 300"],
        ),
        (
            "long-title",
            json!({"title": long(101), "questions": [{"question": "q"}]}),
            &["title has 101 characters; the limit is 100"],
        ),
        ("long-context", json!({"context": long(3001), "questions": [{"question": "q"}]}), &["context has 3001"]),
        ("long-header", question(json!({"header": long(31)})), &["questions[0].header has 31"]),
        ("long-placeholder", question(json!({"placeholder": long(151)})), &["placeholder has 151"]),
        (
            "kind",
            question(json!({"type": "slider"})),
            &["questions[0].type", "\"slider\" is none of text, select, multi-select, confirm"],
        ),
        ("select-without", question(json!({"type": "select"})), &["questions[0].options", "at least 1 option"]),
        ("text-with", question(json!({"type": "text", "options": ["a"]})), &["a text question has no options"]),
        ("confirm-three", question(json!({"type": "confirm", "options": ["a", "b", "c"]})), &["exactly two, not 3"]),
        (
            "retries",
            json!({"maxRetries": 6, "questions": [{"question": "q"}]}),
            &["maxRetries is 6; it must be between 0 and 5"],
        ),
        (
            "render",
            json!({"renderTimeout": 9999, "questions": [{"question": "q"}]}),
            &["renderTimeout is 9999", "between 10000 and 60000"],
        ),
        ("timeout", json!({"timeoutMs": 604_800_001, "questions": [{"question": "q"}]}), &["timeoutMs is 604800001"]),
        ("negative", json!({"timeoutMs": -1, "questions": [{"question": "q"}]}), &["timeoutMs is -1"]),
        (
            "fraction",
            json!({"timeoutMs": 10000.5, "questions": [{"question": "q"}]}),
            &["must be an integer, not 10000.5"],
        ),
        ("wrong-type", json!({"questions": "none"}), &["questions: must be a list, not the string \"none\"", "line 1"]),
        ("positional", json!({"questions": [["Which?"]]}), &["questions[0]: must be an object, not a list"]),
        ("wrong-inner", json!({"questions": [{"question": 7}]}), &["must be a string, not 7"]),
        (
            "policy",
            json!({"timeoutPolicy": "wait", "questions": [{"question": "q"}]}),
            &["neither return_cancel nor abort_task"],
        ),
        ("no-stop", json!({"timeoutPolicy": "abort_task", "questions": [{"question": "q"}]}), &["timeoutPolicy", "no"]),
        ("process", json!({"process": "../x", "questions": [{"question": "q"}]}), &["process", "1-64 of"]),
        (
            "alike",
            question(json!({"options": ["Yes", "No", "Yes\u{200b}"]})),
            &["questions[0].options[2].label is the same as questions[0].options[0].label"],
        ),
        ("unseen", question(json!({"options": ["Yes", "\u{200b}"]})), &["questions[0].options[1].label is empty"]),
        ("nul-question", json!({"questions": [{"question": "a\0b"}]}), &["questions[0].question", "U+0000"]),
        ("nul-title", json!({"title": "a\0", "questions": [{"question": "q"}]}), &["title", "U+0000"]),
        ("nul-context", json!({"context": "\0", "questions": [{"question": "q"}]}), &["context", "U+0000"]),
        ("nul-header", question(json!({"header": "\0"})), &["questions[0].header", "U+0000"]),
        ("nul-label", question(json!({"options": ["a", "b\0"]})), &["questions[0].options[1].label", "U+0000"]),
        ("nul-key", json!({"idempotency_key": "\0", "questions": [{"question": "q"}]}), &["idempotency_key", "U+0000"]),
        ("op-code", json!({"opCode": long(129), "questions": [{"question": "q"}]}), &["opCode has 129"]),
    ];
    for (id, fields, _) in &cases {
        agent.ask(id, fields);
    }
    for (id, _, words) in &cases {
        let response = agent.wait(id);
        let error = response["error"].as_str().unwrap_or_else(|| panic!("{id}: {response}"));
        assert!(!error.starts_with("Error: "), "{id}: {error}");
        for word in *words {
            assert!(error.contains(word), "{id}: {error}");
        }
        let result = &response["result"];
        assert_eq!((&result["status"], &result["reason"]), (&json!("rejected"), &json!("system")), "{id}");
        assert_eq!(
            (&result["answered"], &result["cancelled"], &result["timedOut"]),
            (&json!(false), &json!(false), &json!(false))
        );
    }
    assert!(world.open().is_empty(), "none of them is asked");
    agent.tasks_gone();
}

#[test]
fn a_refusal_repeats_the_op_code_that_its_request_can_be_read_to_have() {
    let world = World::new();
    let agent = world.group("g");
    for (id, rest, expected) in [
        ("none", r#""opCode":"o","questions":[]"#, json!("o")),
        ("shape", r#""questions":"text?","op_code":"o""#, json!("o")),
        ("broken", r#""opCode":"o",,"questions":[{"question":"q"}]"#, json!("o")),
        ("twice", r#""opCode":"o","opCode":"p","questions":[{"question":"q"}]"#, json!("o")),
        ("number", r#""opCode":7,"questions":[]"#, json!(null)),
        ("long", &format!(r#""opCode":"{}","questions":[]"#, "x".repeat(129)), json!(null)),
    ] {
        agent.put(&format!("{id}.json"), format!(r#"{{"type":"ask_user:ask","request_id":"{id}",{rest}}}"#).as_bytes());
        let result = agent.wait(id)["result"].clone();
        assert_eq!((&result["status"], &result["opCode"]), (&json!("rejected"), &expected), "{id}: {result}");
    }
}

#[test]
fn malformed_files_of_ours_are_answered_if_they_can_be_and_kept() {
    let world = World::new();
    let agent = world.group("g");
    agent.put(
        "double.json",
        br#"{"type":"ask_user:ask","request_id":"double","title":"a","title":"b","questions":[{"question":"q"}]}"#,
    );
    agent.put("path.json", br#"{"type":"ask_user:ask","request_id":"../../x","questions":[{"question":"q"}]}"#);
    agent.put("other.json", br#"{"type":"ask_user:shout","request_id":"shout"}"#);
    agent.put("noid.json", br#"{"type":"ask_user:ask","questions":[{"question":"q"}]}"#);
    agent.put(
        "deep.json",
        format!(r#"{{"type":"ask_user:ask","request_id":"deep","questions":{}1{}}}"#, "[".repeat(200), "]".repeat(200))
            .as_bytes(),
    );
    for (id, words) in [("double", "duplicate field `title`"), ("shout", "neither ask_user:ask nor ask_user:cancel")] {
        let response = agent.wait(id);
        assert!(response["error"].as_str().unwrap().contains(words), "{response}");
    }
    within(SOON, "all five to be kept", || (world.state_files("rejected/g").len() == 5).then_some(()));
    assert!(!world.data().join("x.json").exists() && !world.data().join("ipc/x.json").exists());
    let log = world.log();
    assert!(log.contains("Request rejected") && log.contains("request_id: 1-64 of A-Z a-z 0-9 _ -"), "{log}");
}

#[test]
fn texts_at_their_limits_are_asked_and_answered() {
    let world = World::new();
    let agent = world.group("g");
    let wide = |size: usize| "é".repeat(size);
    let questions: Value = (0..10)
        .map(|n| {
            let options: Value = (0..10)
                .map(|o| json!({"label": format!("{o}{}", wide(74)), "description": wide(300)}))
                .collect();
            json!({"question": format!("{n}{}", wide(2999)), "header": wide(30), "placeholder": wide(150), "options": options,
                "multiSelect": n % 2 == 0})
        })
        .collect();
    agent.ask("r1", &json!({"title": wide(100), "context": wide(3000), "questions": questions}));
    let ask = world.one_open();
    let answers: serde_json::Map<String, Value> =
        (0..10).map(|n| (format!("r1_{n}"), json!(format!("{n}{}", wide(74))))).collect();
    let (status, problem) = world.answer(&ask, &Value::Object(answers));
    assert_eq!(status, 200, "{problem}");
    assert_eq!(agent.wait("r1")["result"]["answers"].as_object().unwrap().len(), 10);
}

#[test]
fn both_spellings_of_every_field_are_read() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask(
        "snake",
        &json!({"max_retries": 1, "render_timeout": 10000, "timeout_ms": 20000, "op_code": "o",
        "questions": [{"question": "q", "options": ["a"], "multi_select": true}]}),
    );
    agent.put(
        "camel.json",
        json!({"type": "ask_user:ask", "requestId": "camel", "maxRetries": 1, "renderTimeout": 10000,
        "timeoutMs": 20000, "opCode": "o", "sessionId": "s", "idempotencyKey": "k",
        "questions": [{"question": "q", "options": ["a"], "multiple": true}]})
        .to_string()
        .as_bytes(),
    );
    for id in ["snake", "camel"] {
        let ask = world.open_of(id);
        assert_eq!(ask["questions"][0]["type"], "multi-select", "{id}");
        world.answer(&ask, &json!({"q": "a"}));
        assert_eq!(agent.wait(id)["result"]["opCode"], "o");
    }
}

/// Models behind a strict schema fill every field: with `""` if they have nothing to say, and with `custom` on a
/// confirm.
#[test]
fn what_is_filled_with_nothing_counts_as_left_out() {
    let world = World::new();
    let agent = world.group("g");
    let question = json!({"question": "Go on?", "id": "", "header": "", "type": "confirm", "placeholder": "",
        "custom": true, "required": true, "multiSelect": false, "options": []});
    agent.ask(
        "r1",
        &json!({"questions": [question], "title": "", "context": "", "timeoutPolicy": "", "session_id": "",
            "idempotency_key": "", "opCode": "", "process": ""}),
    );
    let ask = world.open_of("r1");
    assert_eq!((&ask["title"], &ask["context"]), (&json!(null), &json!(null)));
    let asked = &ask["questions"][0];
    assert_eq!((&asked["id"], &asked["header"], &asked["custom"]), (&json!("r1_0"), &json!(null), &json!(false)));
    assert_eq!(world.answer(&ask, &json!({"r1_0": "maybe"})).0, 422, "two answers, and no other");
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Yes"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["opCode"], json!(null));
}

#[test]
fn what_steers_a_terminal_is_not_kept_of_an_answer() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &json!({"questions": [{"question": "Why?"}]}));
    let ask = world.open_of("r1");
    let (status, problem) = world.answer(&ask, &json!({"Why?": "a\0b"}));
    assert_eq!(status, 422, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("The answer to \"Why?\" contains U+0000. Remove it."),
        "{problem}"
    );
    assert_eq!(world.answer(&ask, &json!({"Why?": "red\u{1b}[31m\r\n\u{9b}2Jline two\u{7}"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["answers"]["Why?"], "red[31m\n2Jline two");
}
