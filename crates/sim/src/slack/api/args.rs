//! Arguments of a Web API call, from query, form or JSON body, and the token that came with it.
//!
//! Reads only; what an argument means is the methods' matter. Called by the dispatcher beside it.

use axum::http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::Failure;

/// Arguments by name.
#[derive(Debug, Clone, Default)]
pub(in crate::slack) struct Args {
    map: Map<String, Value>,
}

/// Arguments that may come as JSON inside a string.
const JSON_ARGS: &[&str] = &["blocks", "attachments", "metadata", "view"];

impl Args {
    /// Arguments and token of a request. A token in a JSON body does not count, as in Slack.
    pub(super) fn read(headers: &HeaderMap, query: &str, body: &[u8]) -> (Option<String>, Result<Self, Failure>) {
        let mut map = Map::new();
        let mut form = |text: &[u8]| {
            for (key, value) in url::form_urlencoded::parse(text) {
                map.insert(key.into_owned(), Value::String(value.into_owned()));
            }
        };
        form(query.as_bytes());
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let json = content_type.starts_with("application/json");
        if !json && !body.is_empty() {
            form(body);
        }
        let in_args = match map.remove("token") {
            Some(Value::String(token)) => Some(token),
            _ => None,
        };
        let in_header = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(|token| token.trim().to_owned());
        let token = in_header.or(in_args);
        if json && !body.is_empty() {
            match serde_json::from_slice(body) {
                Ok(Value::Object(fields)) => map.extend(fields),
                Ok(_) => return (token, Err(Failure::new("json_not_object"))),
                Err(_) => return (token, Err(Failure::new("invalid_json"))),
            }
        }
        map.retain(|_, value| !value.is_null());
        (token, Ok(Self { map }))
    }

    /// Everything, for the log.
    pub(super) fn all(&self) -> Value {
        Value::Object(self.map.clone())
    }

    /// A text; numbers count as their digits. Empty is absent.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.map.get(key)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// A text that must be there.
    pub(super) fn required(&self, key: &str) -> Result<String, Failure> {
        self.text(key).ok_or_else(|| {
            Failure::new("invalid_arguments").messages([format!("[ERROR] missing required field: {key}")])
        })
    }

    /// A switch: `true`, `"true"`, `1`, `"1"`.
    pub(super) fn flag(&self, key: &str) -> bool {
        match self.map.get(key) {
            Some(Value::Bool(on)) => *on,
            Some(Value::String(text)) => text == "true" || text == "1",
            Some(Value::Number(number)) => number.as_u64() == Some(1),
            _ => false,
        }
    }

    /// A whole number, with what holds if it is absent.
    pub(super) fn number(&self, key: &str, default: usize) -> Result<usize, Failure> {
        match self.text(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                Failure::new("invalid_arguments")
                    .messages([format!("[ERROR] must provide an integer [json-pointer:/{key}]")])
            }),
        }
    }

    /// A structure, given as such or as JSON in a string. `Some(Err(()))`: a string that is no JSON.
    pub(super) fn json(&self, key: &str) -> Option<Result<Value, ()>> {
        match self.map.get(key)? {
            Value::String(text) if JSON_ARGS.contains(&key) && !text.is_empty() => {
                Some(serde_json::from_str(text).map_err(drop))
            }
            Value::String(_) => None,
            other => Some(Ok(other.clone())),
        }
    }
}
