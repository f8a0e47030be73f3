//! Each limit from both sides.

use serde_json::{Value, json};

use super::*;

fn code(extra: Value) -> Option<i64> {
    let mut body = json!({"messaging_product": "whatsapp", "to": "15550001111"});
    let Value::Object(extra) = extra else { panic!("not an object") };
    body.as_object_mut().unwrap().extend(extra);
    request(body.to_string().as_bytes()).err().map(|e| e.code)
}

fn text_of(body: &str) -> Value {
    json!({"type": "text", "text": {"body": body}})
}

fn button(i: usize, title: &str) -> Value {
    json!({"type": "reply", "reply": {"id": format!("b{i}"), "title": title}})
}

fn buttons_of(list: Vec<Value>) -> Value {
    json!({"type": "interactive", "interactive": {"type": "button", "body": {"text": "?"}, "action": {"buttons": Value::Array(list)}}})
}

fn list_of(sections: &[usize], title: Option<&str>) -> Value {
    let sections: Vec<Value> = sections
        .iter()
        .enumerate()
        .map(|(s, n)| {
            let rows: Vec<Value> = (0..*n).map(|r| json!({"id": format!("{s}-{r}"), "title": "row"})).collect();
            let mut section = json!({"rows": rows});
            if let Some(title) = title {
                section["title"] = json!(title);
            }
            section
        })
        .collect();
    json!({"type": "interactive", "interactive":
        {"type": "list", "body": {"text": "?"}, "action": {"button": "Choose", "sections": sections}}})
}

#[test]
fn text_has_1_to_4096_units() {
    assert_eq!(code(text_of("")), Some(100));
    assert_eq!(code(text_of(&"x".repeat(4096))), None);
    assert_eq!(code(text_of(&"x".repeat(4097))), Some(100));
    assert_eq!(code(text_of(&"\u{1f600}".repeat(2049))), Some(100), "an emoji counts as two");
    assert_eq!(code(json!({"type": "text", "text": {"body": "x", "preview_url": "no"}})), Some(100));
    assert_eq!(code(json!({"type": "text", "text": {"body": 5}})), Some(100));
    assert_eq!(code(json!({"type": "text", "txt": {"body": "x"}})), Some(100));
    assert_eq!(code(json!({"type": "text", "text": {"body": "x", "boddy": "y"}})), Some(100));
    assert_eq!(code(json!({"type": "text", "text": {"body": "x"}, "priority": 1})), Some(100));
}

#[test]
fn reply_buttons_are_1_to_3_short_and_different() {
    assert_eq!(code(buttons_of(vec![])), Some(100));
    assert_eq!(code(buttons_of(vec![button(1, "Yes"), button(2, "No"), button(3, "Later")])), None);
    assert_eq!(code(buttons_of((0..4).map(|i| button(i, &format!("b{i}"))).collect())), Some(100));
    assert_eq!(code(buttons_of(vec![button(1, &"x".repeat(20))])), None);
    assert_eq!(code(buttons_of(vec![button(1, &"x".repeat(21))])), Some(100));
    assert_eq!(code(buttons_of(vec![button(1, "Yes"), button(2, "Yes")])), Some(100));
    assert_eq!(code(buttons_of(vec![button(1, "Yes"), button(1, "No")])), Some(100));
    assert_eq!(code(buttons_of(vec![json!({"type": "reply", "reply": {"id": " a", "title": "x"}})])), Some(100));
}

#[test]
fn lists_have_at_most_ten_rows_in_all() {
    assert_eq!(code(list_of(&[10], None)), None);
    assert_eq!(code(list_of(&[11], None)), Some(100));
    assert_eq!(code(list_of(&[5, 5], Some("part"))), None);
    assert_eq!(code(list_of(&[5, 6], Some("part"))), Some(100));
    assert_eq!(code(list_of(&[5, 5], None)), Some(100), "several sections need titles");
    assert_eq!(code(list_of(&[5, 5], Some(&"x".repeat(25)))), Some(100));
    assert_eq!(code(list_of(&[], None)), Some(100));
}

#[test]
fn who_is_written_to_and_what_rides_along() {
    assert_eq!(code(json!({"to": null, "type": "text", "text": {"body": "x"}})), Some(100));
    assert_eq!(code(json!({"to": null, "recipient": "US.1", "type": "text", "text": {"body": "x"}})), None);
    assert_eq!(code(json!({"recipient_type": "group", "type": "text", "text": {"body": "x"}})), Some(131_051));
    let opaque = |n: usize| json!({"biz_opaque_callback_data": "x".repeat(n), "text": {"body": "x"}});
    assert_eq!((code(opaque(512)), code(opaque(513))), (None, Some(100)));
    assert_eq!(code(json!({"context": {"message_id": "7"}, "text": {"body": "x"}})), Some(131_009));
    assert_eq!(code(json!({"context": {"message_id": "wamid.x"}, "text": {"body": "x"}})), None);
    assert_eq!(code(json!({"type": "image", "image": {"link": "https://x"}})), Some(131_051));
    assert_eq!(code(json!({"type": "hologram", "hologram": {}})), Some(100));
}

#[test]
fn marking_as_read_is_its_own_call() {
    let read = json!({"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.x",
        "typing_indicator": {"type": "text"}});
    assert!(matches!(request(read.to_string().as_bytes()), Ok(Request::Read { typing: true, .. })));
    let wrong = json!({"messaging_product": "whatsapp", "status": "seen", "message_id": "wamid.x"});
    assert_eq!(request(wrong.to_string().as_bytes()).err().map(|e| e.code), Some(100));
    assert!(request(b"{").is_err() && request(b"[]").is_err() && request(b"{}").is_err());
}
