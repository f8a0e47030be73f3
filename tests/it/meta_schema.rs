//! The limits of Meta's Cloud API as a JSON schema, written from its documentation (`tests/contract/meta`). It judges every
//! message that askd sends and every webhook that the stand-in sends, at the end of every story with a phone.

use askd_sim::whatsapp::Whatsapp;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::sync::LazyLock;

const SCHEMA: &str = include_str!("../contract/meta/cloud-api.schema.json");

static REQUEST: LazyLock<Validator> = LazyLock::new(|| judge_of("request"));
static WEBHOOK: LazyLock<Validator> = LazyLock::new(|| judge_of("webhook"));

fn judge_of(what: &str) -> Validator {
    let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
    schema["$ref"] = json!(format!("#/$defs/{what}"));
    jsonschema::validator_for(&schema).unwrap()
}

fn faults(judge: &Validator, instance: &Value) -> Vec<String> {
    judge.iter_errors(instance).map(|error| format!("{error} at {}", error.instance_path())).collect()
}

/// Judges all that went to and fro. Bytes that a story made by itself (attempt 0) are not the stand-in's.
pub(crate) fn judge(phone: &Whatsapp) {
    for call in phone.calls().iter().filter(|call| call.request.ends_with("/messages")) {
        let faults = faults(&REQUEST, &call.body);
        assert!(faults.is_empty(), "not as Meta takes it: {faults:?}\n{:#}", call.body);
    }
    for posted in phone.webhooks().iter().filter(|posted| posted.attempt > 0) {
        let body = serde_json::from_str(&posted.body).unwrap();
        let faults = faults(&WEBHOOK, &body);
        assert!(faults.is_empty(), "not as Meta sends it: {faults:?}\n{body:#}");
    }
}

fn sends(interactive: &Value) -> Value {
    json!({"messaging_product": "whatsapp", "recipient_type": "individual", "to": "15550001111", "type": "interactive",
        "interactive": interactive})
}

#[test]
fn the_schema_takes_the_documented_messages_and_refuses_what_goes_beyond_a_limit() {
    let card = |name: &str| -> Value {
        let file = format!("{}/docs/cards/whatsapp-{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    };
    let (buttons, list) = (sends(&card("buttons")), sends(&card("list")));
    for good in [&buttons, &list] {
        assert_eq!(faults(&REQUEST, good), [] as [String; 0]);
    }
    let changed = |good: &Value, at: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap_or_else(|| panic!("{at}")) = value;
        bad
    };
    let (reply, row) = ("/interactive/action/buttons/0/reply", "/interactive/action/sections/0/rows/0");
    let button = buttons["interactive"]["action"]["buttons"][0].clone();
    let a_row = |n: usize| json!({"id": n.to_string(), "title": n.to_string()});
    for bad in [
        changed(&buttons, &format!("{reply}/title"), json!("x".repeat(21))),
        changed(&buttons, &format!("{reply}/title"), json!("")),
        changed(&buttons, &format!("{reply}/id"), json!(" x")),
        changed(&buttons, &format!("{reply}/id"), json!("x".repeat(257))),
        changed(&buttons, "/interactive/action/buttons", json!([])),
        changed(&buttons, "/interactive/action/buttons", json!([button, button])),
        changed(&buttons, "/interactive/body/text", json!("x".repeat(1025))),
        changed(&list, &format!("{row}/title"), json!("x".repeat(25))),
        changed(&list, &format!("{row}/id"), json!("x".repeat(201))),
        changed(&list, &format!("{row}/description"), json!("x".repeat(73))),
        changed(&list, "/interactive/action/button", json!("x".repeat(21))),
        changed(&list, "/interactive/action/sections/0/title", json!("x".repeat(25))),
        changed(&list, "/interactive/action/sections/0/rows", json!((0..11).map(a_row).collect::<Vec<_>>())),
        changed(&list, "/to", json!("Ada")),
        changed(&list, "/type", json!("text")),
        json!({"messaging_product": "whatsapp", "type": "text", "text": {"body": "x"}}),
        json!({"messaging_product": "whatsapp", "to": "15550001111", "type": "text", "text": {"body": "x".repeat(4097)}}),
    ] {
        assert!(!faults(&REQUEST, &bad).is_empty(), "{bad:#}");
    }
}
