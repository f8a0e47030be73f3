//! Rewrites the JSON of records of format 1, which askd wrote until commit b652487, into today's shape. askd never
//! writes that format again. Every default here is for a field that some version of that format did not have yet.
//!
//! Knows no type of the core but those whose defaults or names it needs. What fits neither format is left as it is, and
//! is refused when the ask is read.

use askd_core::{Capabilities, Reason, SessionRules, Time, Trouble};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The same record in the shape of today.
pub(super) fn in_todays_shape(mut record: Object) -> Value {
    let defaults = json!({"viewed": false, "reminders": 0, "escalations": 0, "so_far": [], "heard": [], "after": {}});
    default(&mut record, defaults);
    heard(&mut record);
    inside(&mut record, "rules", rules);
    each(&mut record, "waiters", waiter);
    each(&mut record, "widgets", widget);
    inside(&mut record, "stage", |stage| inside(stage, "outcome", outcome));
    inside(&mut record, "after", follow_up);
    // Format 1 held what follows the decision beside the stage.
    let after = record.remove("after");
    inside(&mut record, "stage", |stage| stage.extend(after.map(|after| ("follow_up".to_owned(), after))));
    // The blocks of the first version hold under every title and context.
    inside(&mut record, "block", |block| default(block, json!({"any_context": true})));
    Value::Object(record)
}

/// Format 1 held the ids of the messages that changed an ask beside each person's answers so far.
fn heard(record: &mut Object) {
    let mut heard = Vec::new();
    each(record, "so_far", |so_far| {
        if let Some(Value::Array(messages)) = so_far.remove("messages") {
            heard.extend(messages);
        }
    });
    if let Some(Value::Array(later)) = record.get_mut("heard") {
        later.splice(0..0, heard);
    }
}

fn rules(rules: &mut Object) {
    let session = SessionRules::default();
    default(rules, json!({"session": session, "remind_after_ms": null, "escalate_after_ms": null}));
    each(rules, "routes", |route| {
        let responders = match route.remove("responders") {
            None | Some(Value::Null) => json!("anyone"),
            Some(only) => json!({ "only": only }),
        };
        route.insert("responders".to_owned(), responders);
        let channel = route.get("channel").and_then(|name| name.as_str()?.parse().ok()).unwrap_or_default();
        default(route, json!({"capabilities": Capabilities::before_they_were_stored(channel)}));
    });
}

fn waiter(waiter: &mut Object) {
    default(waiter, json!({"late": false}));
    let published_at = waiter.remove("published_at");
    if let Some(state @ ("published" | "taken_back")) = waiter.get("response").and_then(Value::as_str) {
        let response = json!({ state: {"at": time(published_at)} });
        waiter.insert("response".to_owned(), response);
    }
    let asked_at = time(waiter.remove("asked_at"));
    waiter.insert("asked_at".to_owned(), asked_at);
}

/// A time that an early version did not write counts as long ago.
fn time(written: Option<Value>) -> Value {
    written.filter(|time| !time.is_null()).unwrap_or_else(|| json!(Time::from_millis(0)))
}

fn widget(widget: &mut Object) {
    default(widget, json!({"parts": {}, "sendings": []}));
    // Format 1 held the widget's state among its other fields.
    let mut state = std::mem::take(widget);
    for field in ["attempt", "messages", "parts", "sendings", "said", "trouble"] {
        if let Some(value) = state.remove(field) {
            widget.insert(field.to_owned(), value);
        }
    }
    let never = state.remove("never").is_some_and(|never| !never.is_null());
    default(&mut state, json!({"interrupted": false, "for_good": never}));
    rename(&mut state, "phase", "name");
    widget.insert("state".to_owned(), Value::Object(state));
    let trouble = widget.remove("trouble").and_then(|trouble| Trouble::named(trouble.as_str()?));
    widget.insert("trouble".to_owned(), json!(trouble));
    let defaults = json!({"index": 0, "first_attempt": 0, "of": [], "repeated": false, "lapsed": false, "seen": false,
        "waiting": []});
    inside(widget, "parts", |parts| default(parts, defaults));
    rename(widget, "parts", "one_by_one");
    each(widget, "sendings", |sending| {
        default(sending, json!({"attempt": 0, "question": 0, "failed": false}));
        if let (Some(called), Some(by)) = (sending.remove("called"), sending.remove("left_by")) {
            sending.insert("left".to_owned(), json!({"called": called, "by": by}));
        }
    });
}

fn outcome(outcome: &mut Object) {
    rename(outcome, "given", "answers");
    if outcome.get("how").is_some_and(|how| how == "retries_used_up" || how == "never_shown") {
        // In its place the first version has words that only the operator is told.
        let reason: Option<Reason> = outcome.remove("reason").and_then(|reason| reason.as_str()?.parse().ok());
        let cause = json!({"retries": outcome.remove("retries"), "reason": reason});
        *outcome = Object::from_iter([("how".to_owned(), json!("undelivered")), ("cause".to_owned(), cause)]);
    }
}

fn follow_up(after: &mut Object) {
    after.remove("briefings");
    default(after, json!({"late": {"name": "no"}, "stop": "no", "overdue": false}));
    inside(after, "late", |late| rename(late, "given", "answers"));
    default(after, json!({"wake": {"name": "idle"}}));
    let Some(Value::Object(mut start)) = after.remove("wake") else { return };
    let flag = |name| start.get(name).is_some_and(|value| value == true);
    let (accepted, before) = (flag("accepted"), flag("before"));
    let published = json!({"published": {"at": time(None)}});
    let name = start.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    // In format 1 one field said what became of both the briefing and the start.
    let (briefing, name) = match name.as_str() {
        "idle" => (json!("undecided"), "not_tried"),
        "briefing" => (json!("owed"), "not_tried"),
        "kept" => (published, "not_tried"),
        "started" if accepted => (json!("taken"), "started"),
        "started" if before => (published, "started_before"),
        "reclaiming" => (json!("taking_back"), "not_tried"),
        "reclaimed" => (json!({"taken_back": {"at": start.get("until")}}), "not_tried"),
        "read" => (json!("taken"), "not_tried"),
        other => (published, other),
    };
    start.insert("name".to_owned(), json!(name));
    after.insert("briefing".to_owned(), briefing);
    after.insert("start".to_owned(), Value::Object(start));
}

fn default(object: &mut Object, fields: Value) {
    let Value::Object(fields) = fields else { return };
    for (name, value) in fields {
        object.entry(name).or_insert(value);
    }
}

fn rename(object: &mut Object, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

fn inside(object: &mut Object, field: &str, change: impl FnOnce(&mut Object)) {
    if let Some(Value::Object(object)) = object.get_mut(field) {
        change(object);
    }
}

fn each(object: &mut Object, field: &str, mut change: impl FnMut(&mut Object)) {
    let Some(Value::Array(objects)) = object.get_mut(field) else { return };
    objects.iter_mut().filter_map(Value::as_object_mut).for_each(&mut change);
}
