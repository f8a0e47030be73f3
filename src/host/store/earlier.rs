//! Rewrites the JSON of records of earlier formats into today's shape, one format after the other: format 1 was written
//! until commit b652487, format 2 until commit 4b65f53. askd never writes those formats again. Every default here is for a
//! field that some version of its format did not have yet.
//!
//! Knows no type of the core but those whose defaults or names it needs. What fits no format is left as it is, and is
//! refused when the ask is read.

use askd_core::{Capabilities, Reason, SessionRules, Time, Trouble};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// A record of this format in the shape of today.
pub(super) fn in_todays_shape(mut record: Object, format: u32) -> Value {
    if format == 1 {
        in_the_shape_of_2(&mut record);
    }
    in_the_shape_of_3(&mut record);
    Value::Object(record)
}

fn in_the_shape_of_2(record: &mut Object) {
    let defaults = json!({"viewed": false, "so_far": [], "heard": [], "after": {}});
    default(record, defaults);
    heard(record);
    inside(record, "rules", rules);
    each(record, "waiters", waiter);
    each(record, "widgets", widget);
    inside(record, "stage", |stage| inside(stage, "outcome", outcome));
    inside(record, "after", follow_up);
    // Format 1 held what follows the decision beside the stage.
    let after = record.remove("after");
    inside(record, "stage", |stage| stage.extend(after.map(|after| ("follow_up".to_owned(), after))));
    // The blocks of the first version hold under every title and context.
    inside(record, "block", |block| default(block, json!({"any_context": true})));
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
    default(after, json!({"overdue": false, "wake": {"name": "idle"}}));
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

fn in_the_shape_of_3(record: &mut Object) {
    routes(record);
    each(record, "widgets", posts);
    cards(record);
    each(record, "waiters", told);
    inside(record, "block", |block| rename(block, "told", "first"));
    // Format 2 held these beside the stage, at every stage.
    let [reminders, escalations, block] =
        ["reminders", "escalations", "block"].map(|field| record.remove(field).unwrap_or_default());
    inside(record, "stage", |stage| {
        let mut follow_up = stage.remove("follow_up").unwrap_or_else(|| json!({}));
        let name = stage.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_settled = name == "settled";
        if name == "open" {
            let number = |count: Value| count.as_u64().unwrap_or(0);
            default(stage, json!({"reminders": number(reminders), "escalations": number(escalations)}));
        }
        // A block belongs to a settled ask; beside any other stage it makes the record unreadable.
        if is_settled || !block.is_null() {
            follow_up["block"] = block;
            stage.insert("follow_up".to_owned(), follow_up);
            inside(stage, "follow_up", after_timeout);
        }
    });
}

/// In format 2 two flags said what a waiter is told.
fn told(waiter: &mut Object) {
    let [late, withdrawn] = ["late", "withdrawn"].map(|flag| waiter.remove(flag).is_some_and(|value| value == true));
    let told = if withdrawn {
        "withdrawal"
    } else if late {
        "late_answer"
    } else {
        "outcome"
    };
    waiter.insert("told".to_owned(), json!(told));
}

/// In format 2 the routes stood among the rules, the first ones beside the widgets that were posted by them.
fn routes(record: &mut Object) {
    let mut routes = Vec::new().into_iter();
    inside(record, "rules", |rules| {
        if let Some(Value::Array(all)) = rules.remove("routes") {
            routes = all.into_iter();
        }
    });
    each(record, "widgets", |widget| widget.extend(routes.next().map(|route| ("route".to_owned(), route))));
    record.insert("next_routes".to_owned(), routes.collect());
}

/// In format 2 the ids of messages and the questions that they asked were two lists, the second one possibly shorter.
fn posts(widget: &mut Object) {
    let mut questions = Value::Null;
    inside(widget, "one_by_one", |one_by_one| questions = one_by_one.remove("of").unwrap_or_default());
    let messages = widget.remove("messages").unwrap_or_default();
    let ids = messages.as_array().into_iter().flatten().enumerate();
    let posts = ids.map(|(at, id)| json!({"message_id": id, "question": questions[at].as_u64().unwrap_or(0)}));
    let posts: Value = posts.collect();
    widget.insert("posts".to_owned(), posts);
}

/// In format 2 a closed card had its remark, a block the lowest number that a card showed, and an open card nothing.
fn cards(record: &mut Object) {
    let settled = record.get("stage").is_some_and(|stage| stage["name"] == "settled");
    let block = record.get("block").filter(|block| block.is_object() && block["lifted"].is_null());
    let changing = json!({"changing": {"again": false}});
    let up = match block {
        Some(block) if block["telling"] == false => json!({"shows": {"blocked": {"times": block["told"]}}}),
        None if !settled => json!({"shows": "open"}),
        _ => changing.clone(),
    };
    each(record, "widgets", |widget| {
        let has_messages = widget.get("posts").is_some_and(|posts| *posts != json!([]));
        let closed = match widget.remove("said") {
            _ if !has_messages => Value::Null,
            None | Some(Value::Null) => changing.clone(),
            Some(said) => json!({"shows": {"closed": said}}),
        };
        inside(widget, "state", |state| match state.get("name").and_then(Value::as_str) {
            Some("up") => default(state, json!({"card": up})),
            Some("closed") => default(state, json!({"card": closed})),
            _ => {}
        });
    });
}

/// In format 2 a late answer and a stop were two fields, though an ask never had both.
fn after_timeout(after: &mut Object) {
    let (late, stop) = (after.remove("late").unwrap_or_default(), after.remove("stop").unwrap_or_default());
    let mut after_timeout = if let Value::Object(late) = late { late } else { Object::new() };
    rename(&mut after_timeout, "given", "answers");
    let late = after_timeout.get("name").and_then(Value::as_str).unwrap_or("no");
    let name = match (stop.as_str().unwrap_or("no"), late) {
        ("no", "no") => "nothing",
        ("no", "open") => "answerable",
        ("no", late) => late,
        ("owed", _) => "stop_owed",
        ("done", _) => "stopped",
        (stop, _) => stop,
    };
    after_timeout.insert("name".to_owned(), json!(name));
    after.insert("after_timeout".to_owned(), Value::Object(after_timeout));
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

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::FollowUp;

    /// What follows the decision, as format 1 wrote it, in today's shape.
    fn read(after: Value) -> (Object, FollowUp) {
        let Value::Object(mut after) = after else { panic!("{after}") };
        follow_up(&mut after);
        after_timeout(&mut after);
        let read = serde_json::from_value(Value::Object(after.clone()));
        (after.clone(), read.unwrap_or_else(|error| panic!("{error}: {after:?}")))
    }

    #[test]
    fn what_became_of_the_briefing_and_the_start_had_one_name() {
        let (time, never) = ("2026-11-20T10:00:00.000Z", json!(Time::from_millis(0)));
        let published = json!({"published": {"at": never}});
        for (wake, briefing, start) in [
            (json!({"name": "idle"}), json!("undecided"), "not_tried"),
            (json!({"name": "briefing"}), json!("owed"), "not_tried"),
            (json!({"name": "kept"}), published.clone(), "not_tried"),
            (json!({"name": "started", "accepted": true, "before": false}), json!("taken"), "started"),
            (json!({"name": "started", "accepted": false, "before": true}), published.clone(), "started_before"),
            (json!({"name": "started", "accepted": false, "before": false}), published.clone(), "started"),
            (json!({"name": "reclaiming"}), json!("taking_back"), "not_tried"),
            (json!({"name": "reclaimed", "until": time}), json!({"taken_back": {"at": time}}), "not_tried"),
            (json!({"name": "read"}), json!("taken"), "not_tried"),
            (json!({"name": "given_up", "why": "away"}), published.clone(), "given_up"),
            (
                json!({"name": "starting", "since": time, "tries": 2, "next": time, "running": false}),
                published.clone(),
                "starting",
            ),
        ] {
            let (after, _) = read(json!({"wake": wake}));
            assert_eq!((&after["briefing"], &after["start"]["name"]), (&briefing, &json!(start)), "{wake}");
        }
    }

    #[test]
    fn a_late_answer_and_a_stop_were_two_fields() {
        let by = json!({"channel": "web", "id": "operator", "name": null});
        let time = "2026-11-20T10:00:00.000Z";
        let answered = json!({"name": "answered", "given": [null], "by": by, "at": time});
        for (late, stop, name) in [
            (json!({"name": "no"}), "no", "nothing"),
            (json!({"name": "open", "until": time}), "no", "answerable"),
            (json!({"name": "asked_again"}), "no", "asked_again"),
            (answered, "no", "answered"),
            (json!({"name": "no"}), "owed", "stop_owed"),
            (json!({"name": "no"}), "stopping", "stopping"),
            (json!({"name": "no"}), "done", "stopped"),
        ] {
            let (after, _) = read(json!({"late": late, "stop": stop}));
            assert_eq!(after["after_timeout"]["name"], name, "{late} {stop}");
        }
    }
}
