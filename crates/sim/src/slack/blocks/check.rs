//! The small parts of which every Block Kit rule is made: fields, strings, numbers, text objects, options, confirmation dialogs.
//!
//! Collects every problem with its JSON pointer in the wording Slack is known to use; stops at nothing. Knows no block and no element.
//! Called by the block and element rules beside it.
//!
//! Lengths are counted in UTF-16 units. Slack does not say what it counts; this is the larger of the likely counts, so what fits here fits there.

use serde_json::{Map, Value};

/// Which text objects a field takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `plain_text` only.
    Plain,
    /// `plain_text` or `mrkdwn`.
    Any,
}

/// Collects problems.
#[derive(Default)]
pub(super) struct Check {
    problems: Vec<String>,
}

/// Characters as Slack's limits are held against them here.
pub(super) fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

impl Check {
    /// All problems found, in order of appearance.
    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems
    }

    /// Notes one problem.
    pub(super) fn problem(&mut self, at: &str, text: impl AsRef<str>) {
        self.problems.push(format!("{} [json-pointer:{at}]", text.as_ref()));
    }

    /// The value as an object, else a problem.
    pub(super) fn object<'v>(&mut self, at: &str, value: &'v Value) -> Option<&'v Map<String, Value>> {
        let object = value.as_object();
        if object.is_none() {
            self.problem(at, "must provide an object");
        }
        object
    }

    /// Unknown properties are refused by Slack, not ignored.
    pub(super) fn only(&mut self, at: &str, map: &Map<String, Value>, known: &[&str]) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            self.problem(at, format!("invalid additional property: {key}"));
        }
    }

    /// A field that must be there.
    pub(super) fn required<'v>(&mut self, at: &str, map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
        let value = map.get(key);
        if value.is_none() {
            self.problem(at, format!("missing required field: {key}"));
        }
        value
    }

    /// A string of `1..=max` characters; absent is fine.
    pub(super) fn string<'v>(
        &mut self,
        at: &str,
        map: &'v Map<String, Value>,
        key: &str,
        max: usize,
    ) -> Option<&'v str> {
        let value = map.get(key)?;
        let at = format!("{at}/{key}");
        let Some(text) = value.as_str() else {
            self.problem(&at, "must provide a string");
            return None;
        };
        self.length(&at, text, 1, max);
        Some(text)
    }

    /// As [`Self::string`], and must be there.
    pub(super) fn required_string<'v>(
        &mut self,
        at: &str,
        map: &'v Map<String, Value>,
        key: &str,
        max: usize,
    ) -> Option<&'v str> {
        self.required(at, map, key)?;
        self.string(at, map, key, max)
    }

    /// A string that may be empty, of at most `max` characters.
    pub(super) fn string_or_empty(&mut self, at: &str, map: &Map<String, Value>, key: &str, max: usize) {
        let at_key = format!("{at}/{key}");
        match map.get(key) {
            None => {}
            Some(Value::String(text)) => self.length(&at_key, text, 0, max),
            Some(_) => self.problem(&at_key, "must provide a string"),
        }
    }

    fn length(&mut self, at: &str, text: &str, min: usize, max: usize) {
        let length = length(text);
        if length < min {
            self.problem(at, format!("must be more than {} characters", min - 1));
        }
        if length > max {
            self.problem(at, format!("must be less than {} characters", max + 1));
        }
    }

    /// A boolean, if there.
    pub(super) fn boolean(&mut self, at: &str, map: &Map<String, Value>, key: &str) {
        if map.get(key).is_some_and(|value| !value.is_boolean()) {
            self.problem(&format!("{at}/{key}"), "must provide a boolean");
        }
    }

    /// A whole number within `min..=max`, if there.
    pub(super) fn integer(&mut self, at: &str, map: &Map<String, Value>, key: &str, min: u64, max: u64) -> Option<u64> {
        let value = map.get(key)?;
        let at = format!("{at}/{key}");
        let Some(number) = value.as_u64() else {
            self.problem(&at, "must provide an integer");
            return None;
        };
        if number < min {
            self.problem(&at, format!("must be greater than or equal to {min}"));
        }
        if number > max {
            self.problem(&at, format!("must be less than or equal to {max}"));
        }
        Some(number)
    }

    /// One of the listed words, if there.
    pub(super) fn word(&mut self, at: &str, map: &Map<String, Value>, key: &str, words: &[&str]) {
        let Some(value) = map.get(key) else { return };
        if !value.as_str().is_some_and(|word| words.contains(&word)) {
            self.problem(&format!("{at}/{key}"), "must be a valid enum value");
        }
    }

    /// A list of `min..=max` items, which must be there.
    pub(super) fn list<'v>(
        &mut self,
        at: &str,
        map: &'v Map<String, Value>,
        key: &str,
        min: usize,
        max: usize,
    ) -> &'v [Value] {
        let Some(value) = self.required(at, map, key) else {
            return &[];
        };
        let at = format!("{at}/{key}");
        let Some(items) = value.as_array() else {
            self.problem(&at, "must provide an array");
            return &[];
        };
        if items.len() < min {
            self.problem(&at, format!("no fewer than {min} items allowed"));
        }
        if items.len() > max {
            self.problem(&at, format!("no more than {max} items allowed"));
        }
        items
    }

    /// A text object in a field, if there.
    pub(super) fn text(&mut self, at: &str, map: &Map<String, Value>, key: &str, kind: Kind, max: usize) {
        if let Some(value) = map.get(key) {
            self.text_object(&format!("{at}/{key}"), value, kind, max);
        }
    }

    /// A text object in a field that must be there.
    pub(super) fn required_text(&mut self, at: &str, map: &Map<String, Value>, key: &str, kind: Kind, max: usize) {
        if self.required(at, map, key).is_some() {
            self.text(at, map, key, kind, max);
        }
    }

    /// A text object: its type where it stands, 1..=max characters, only its own properties.
    pub(super) fn text_object(&mut self, at: &str, value: &Value, kind: Kind, max: usize) {
        let Some(map) = self.object(at, value) else {
            return;
        };
        match (map.get("type").and_then(Value::as_str), kind) {
            (Some("plain_text"), _) => self.only(at, map, &["type", "text", "emoji"]),
            (Some("mrkdwn"), Kind::Any) => self.only(at, map, &["type", "text", "verbatim"]),
            (Some(other), _) => self.problem(&format!("{at}/type"), format!("unsupported type: {other}")),
            (None, _) => self.problem(at, "missing required field: type"),
        }
        let text = self.required_string(at, map, "text", max);
        // Users report that spaces alone count as nothing.
        if text.is_some_and(|text| !text.is_empty() && text.trim().is_empty()) {
            self.problem(&format!("{at}/text"), "must be more than 0 characters");
        }
        self.boolean(at, map, "emoji");
        self.boolean(at, map, "verbatim");
    }

    /// Confirmation dialog: title 100, text 300, buttons 30 (`@slack/types`).
    pub(super) fn confirm(&mut self, at: &str, map: &Map<String, Value>) {
        let Some(value) = map.get("confirm") else { return };
        let at = format!("{at}/confirm");
        let Some(confirm) = self.object(&at, value) else {
            return;
        };
        self.only(&at, confirm, &["title", "text", "confirm", "deny", "style"]);
        self.text(&at, confirm, "title", Kind::Plain, 100);
        self.required_text(&at, confirm, "text", Kind::Any, 300);
        self.text(&at, confirm, "confirm", Kind::Plain, 30);
        self.text(&at, confirm, "deny", Kind::Plain, 30);
        self.word(&at, confirm, "style", &["primary", "danger"]);
    }

    /// One option: text 75, value 75, description 75 (`@slack/types`; `slack_sdk` lets a value have 150, the smaller is held here).
    pub(super) fn option(&mut self, at: &str, value: &Value, kind: Kind, with_url: bool) {
        let Some(option) = self.object(at, value) else {
            return;
        };
        let known: &[&str] =
            if with_url { &["text", "value", "description", "url"] } else { &["text", "value", "description"] };
        self.only(at, option, known);
        self.required_text(at, option, "text", kind, 75);
        self.required_string(at, option, "value", 75);
        // `@slack/types` has plain text only; some documentation pages show mrkdwn in checkboxes.
        self.text(at, option, "description", Kind::Plain, 75);
        self.string(at, option, "url", 3000);
    }

    /// `initial_option(s)` must be among the options, whole.
    pub(super) fn initial(&mut self, at: &str, map: &Map<String, Value>, options: &[&Value]) {
        if let Some(value) = map.get("initial_option")
            && !options.iter().any(|option| same_option(option, value))
        {
            self.problem(&format!("{at}/initial_option"), "must match one of the options");
        }
        let Some(values) = map.get("initial_options") else {
            return;
        };
        let known = values.as_array().is_some_and(|values| {
            !values.is_empty() && values.iter().all(|value| options.iter().any(|option| same_option(option, value)))
        });
        if !known {
            self.problem(&format!("{at}/initial_options"), "must match one or more of the options");
        }
    }
}

fn same_option(one: &Value, other: &Value) -> bool {
    let part = |option: &Value| (option["value"].clone(), option["text"]["text"].clone());
    part(one) == part(other)
}
