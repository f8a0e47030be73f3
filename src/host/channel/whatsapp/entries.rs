//! A state as entries: what stands in it, each with its place, so that several daemons can change different ones at once. Pure.

use crate::host::store::memory::Place;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Entries by their place: the name of a field, and the key in it.
pub(super) type Values = BTreeMap<Place, Value>;

/// What is another entry than before, or new; without a value it was taken out.
pub(super) type Changes = BTreeMap<Place, Option<Value>>;

/// The same with what was there before.
pub(super) type Replaced = BTreeMap<Place, (Option<Value>, Option<Value>)>;

/// The key of a field that has no entries.
const WHOLE: &str = "=";
/// Begins the key of an element of a list. The rest is its `id`.
const ELEMENT: &str = "[]";

/// Where an element of a list stands.
pub(super) fn element(field: &str, id: &str) -> Place {
    (field.to_owned(), format!("{ELEMENT}{id}"))
}

/// Whether an element of a list stands there. Another one never does.
pub(super) fn is_element((_, key): &Place) -> bool {
    key.starts_with(ELEMENT)
}

/// The entries of a state. Of a list, each element is one.
pub(super) fn of(state: Value) -> Values {
    let Value::Object(fields) = state else { return Values::new() };
    let mut entries = Values::new();
    for (field, value) in fields {
        match value {
            Value::Object(map) => entries.extend(map.into_iter().map(|(key, value)| ((field.clone(), key), value))),
            Value::Array(list) => entries.extend(list.into_iter().map(|value| {
                let id = value["id"].as_str().map_or_else(|| value.to_string(), str::to_owned);
                (element(&field, &id), value)
            })),
            value => drop(entries.insert((field, WHOLE.to_owned()), value)),
        }
    }
    entries
}

/// The state with these entries.
pub(super) fn composed(entries: Values) -> Value {
    let mut fields = Map::new();
    for ((field, key), value) in entries {
        if key == WHOLE {
            fields.insert(field, value);
        } else if key.starts_with(ELEMENT) {
            if let Value::Array(list) = fields.entry(field).or_insert_with(|| Value::Array(Vec::new())) {
                list.push(value);
            }
        } else if let Value::Object(map) = fields.entry(field).or_insert_with(|| Value::Object(Map::new())) {
            map.insert(key, value);
        }
    }
    Value::Object(fields)
}

/// What has changed since `before`.
pub(super) fn replaced(before: &Values, now: Values) -> Replaced {
    let gone = before.iter().filter(|(place, _)| !now.contains_key(*place));
    let gone: Vec<_> = gone.map(|(place, value)| (place.clone(), (Some(value.clone()), None))).collect();
    let new = now.into_iter().filter(|(place, value)| before.get(place) != Some(value));
    let new = new.map(|(place, value)| {
        let known = before.get(&place).cloned();
        (place, (known, Some(value)))
    });
    new.chain(gone).collect()
}

/// Puts entries where they belong.
pub(super) fn put(into: &mut Values, entries: Changes) {
    for (place, value) in entries {
        match value {
            Some(value) => drop(into.insert(place, value)),
            None => drop(into.remove(&place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_is_the_same_after_it_was_taken_apart_and_each_change_is_one_entry() {
        let before = json!({"ahead": 5, "inbound": {"1": "then", "2": "now"}, "notes": [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}]});
        assert_eq!(composed(of(before.clone())), before);
        let after = json!({"ahead": 6, "inbound": {"2": "now", "3": "later"}, "notes": [{"id": "2", "text": "b"}]});
        let changes = replaced(&of(before.clone()), of(after.clone()));
        let place = |field: &str, key: &str| (field.to_owned(), key.to_owned());
        let expected = BTreeMap::from([
            (place("ahead", "="), (Some(json!(5)), Some(json!(6)))),
            (place("inbound", "1"), (Some(json!("then")), None)),
            (place("inbound", "3"), (None, Some(json!("later")))),
            (place("notes", "[]1"), (Some(json!({"id": "1", "text": "a"})), None)),
        ]);
        assert_eq!(changes, expected);
        let mut entries = of(before);
        put(&mut entries, changes.into_iter().map(|(place, (_, now))| (place, now)).collect());
        assert_eq!(composed(entries), after);
    }
}
