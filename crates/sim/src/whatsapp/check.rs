//! Reads the body of `POST …/messages` the strict way: what Meta's limits forbid is refused here, and
//! unknown keys too, so that a typing error of the sender is noticed.
//!
//! Limits: Meta's OpenAPI description of the Cloud API (v23, 2025-11; the table in the project's
//! platform notes). Lengths count UTF-16 units: how Meta counts is not published, and this is the
//! strictest reading that clients in JavaScript agree with. That a list's body may have 4096 is said by
//! newer documents only; 1024 is enforced. Refusing unknown keys at the top level is this stand-in's
//! own strictness. Media, contacts, locations and outgoing reactions are not done (131051).
//! Called by `graph`.

use serde_json::{Map, Value};

use super::error::GraphError;
use super::message::Tap;

type Checked<T> = Result<T, GraphError>;

/// Message types Meta knows and this stand-in does not.
const OTHER_TYPES: &[&str] =
    &["audio", "contacts", "document", "image", "location", "reaction", "sticker", "video", "order", "pin"];

/// A well-formed call.
#[derive(Debug)]
pub(super) enum Request {
    Send(Outgoing),
    /// Mark an incoming message (and what came before it) as read; `typing` shows "typing…" for 25 s.
    Read {
        message_id: String,
        typing: bool,
    },
}

#[derive(Debug)]
pub(super) struct Outgoing {
    /// As given, in `to` or `recipient`.
    pub(super) input: String,
    /// `recipient` was used: the person is named by a business-scoped id.
    pub(super) by_user_id: bool,
    pub(super) quotes: Option<String>,
    pub(super) opaque: Option<String>,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Text { body: String },
    Interactive { body: String, taps: Vec<Tap>, list_label: Option<String> },
    Template { name: String, language: String, parameters: Vec<String>, payloads: Vec<(usize, String)> },
}

pub(super) fn request(body: &[u8]) -> Checked<Request> {
    let value: Value =
        serde_json::from_slice(body).map_err(|e| GraphError::parameter(format!("The body is not JSON: {e}")))?;
    let map = value.as_object().ok_or_else(|| GraphError::parameter("The body must be a JSON object"))?;
    let top = At { map, path: String::new() };
    if top.text("messaging_product", 1, 20)? != "whatsapp" {
        return Err(GraphError::parameter("Param messaging_product must be one of {WHATSAPP}"));
    }
    if map.contains_key("status") { read(&top) } else { send(&top).map(Request::Send) }
}

fn read(top: &At<'_>) -> Checked<Request> {
    top.only(&["messaging_product", "status", "message_id", "typing_indicator"])?;
    if top.text("status", 1, 20)? != "read" {
        return Err(GraphError::parameter("Param status must be one of {READ}"));
    }
    let typing = match top.object_if_there("typing_indicator")? {
        None => false,
        Some(typing) if typing.text("type", 1, 20)? == "text" => true,
        Some(_) => return Err(GraphError::parameter("Param typing_indicator['type'] must be one of {TEXT}")),
    };
    Ok(Request::Read { message_id: top.text("message_id", 1, 512)?, typing })
}

fn send(top: &At<'_>) -> Checked<Outgoing> {
    let kind = if top.map.contains_key("type") { top.text("type", 1, 40)? } else { "text".to_owned() };
    let mut known = vec!["messaging_product", "recipient_type", "to", "recipient", "type", "context"];
    known.extend(["biz_opaque_callback_data", kind.as_str()]);
    if top.map.contains_key("recipient_type") && top.text("recipient_type", 1, 20)? != "individual" {
        return Err(GraphError::new(131_051, "Only recipient_type individual is supported here, no groups"));
    }
    let content = match kind.as_str() {
        "text" => text(&top.object("text")?)?,
        "interactive" => interactive(&top.object("interactive")?)?,
        "template" => template(&top.object("template")?)?,
        other if OTHER_TYPES.contains(&other) => {
            return Err(GraphError::new(131_051, format!("Message type {other} is not supported by this stand-in")));
        }
        other => return Err(GraphError::parameter(format!("Param type has an unknown value: {other}"))),
    };
    top.only(&known)?;
    let quotes = match top.object_if_there("context")? {
        None => None,
        Some(quote) => {
            quote.only(&["message_id"])?;
            let id = quote.text("message_id", 1, 512)?;
            if !id.starts_with("wamid.") {
                return Err(GraphError::new(131_009, "context['message_id'] is not a message id"));
            }
            Some(id)
        }
    };
    // Meta: where both are given the phone number counts.
    let (input, by_user_id) = match (top.text_if_there("to", 1, 64)?, top.text_if_there("recipient", 1, 140)?) {
        (Some(to), _) => (to, false),
        (None, Some(recipient)) => (recipient, true),
        (None, None) => return Err(GraphError::parameter("The parameter to is required.")),
    };
    Ok(Outgoing { input, by_user_id, quotes, opaque: top.text_if_there("biz_opaque_callback_data", 0, 512)?, content })
}

fn text(text: &At<'_>) -> Checked<Content> {
    text.only(&["body", "preview_url"])?;
    if text.map.get("preview_url").is_some_and(|v| !v.is_boolean()) {
        return Err(GraphError::parameter("Param text['preview_url'] must be a boolean"));
    }
    Ok(Content::Text { body: text.text("body", 1, 4096)? })
}

fn interactive(it: &At<'_>) -> Checked<Content> {
    it.only(&["type", "header", "body", "footer", "action"])?;
    if let Some(header) = it.object_if_there("header")? {
        if header.text("type", 1, 20)? != "text" {
            return Err(GraphError::new(131_051, "Only text headers are supported by this stand-in"));
        }
        header.text("text", 1, 60)?;
    }
    if let Some(footer) = it.object_if_there("footer")? {
        footer.text("text", 1, 60)?;
    }
    let body = it.object("body")?.text("text", 1, 1024)?;
    let action = it.object("action")?;
    match it.text("type", 1, 40)?.as_str() {
        "button" => {
            action.only(&["buttons"])?;
            Ok(Content::Interactive { body, taps: buttons(&action)?, list_label: None })
        }
        "list" => {
            action.only(&["button", "sections"])?;
            let label = action.text("button", 1, 20)?;
            Ok(Content::Interactive { body, taps: rows(&action)?, list_label: Some(label) })
        }
        other => {
            Err(GraphError::new(131_051, format!("interactive['type'] {other} is not supported by this stand-in")))
        }
    }
}

fn buttons(action: &At<'_>) -> Checked<Vec<Tap>> {
    let mut taps: Vec<Tap> = Vec::new();
    for button in action.list("buttons", 1, 3)? {
        button.only(&["type", "reply"])?;
        if button.text("type", 1, 20)? != "reply" {
            return Err(GraphError::parameter(format!("Param {}['type'] must be one of {{REPLY}}", button.path)));
        }
        let reply = button.object("reply")?;
        reply.only(&["id", "title"])?;
        let tap = Tap { id: reply.id(256)?, title: reply.text("title", 1, 20)?, description: None };
        if taps.iter().any(|t| t.title == tap.title || t.id == tap.id) {
            return Err(GraphError::parameter(format!("{}: id and title must be unique", button.path)));
        }
        taps.push(tap);
    }
    Ok(taps)
}

fn rows(action: &At<'_>) -> Checked<Vec<Tap>> {
    let sections = action.list("sections", 1, 10)?;
    let mut taps: Vec<Tap> = Vec::new();
    for section in &sections {
        section.only(&["title", "rows"])?;
        if section.text_if_there("title", 1, 24)?.is_none() && sections.len() > 1 {
            return Err(GraphError::parameter(format!("{}['title'] is required with several sections", section.path)));
        }
        for row in section.list("rows", 1, 10)? {
            row.only(&["id", "title", "description"])?;
            let description = row.text_if_there("description", 0, 72)?;
            let tap = Tap { id: row.id(200)?, title: row.text("title", 1, 24)?, description };
            if taps.iter().any(|t| t.id == tap.id) {
                return Err(GraphError::parameter(format!("{}['id'] must be unique", row.path)));
            }
            taps.push(tap);
        }
    }
    if taps.len() > 10 {
        return Err(GraphError::parameter("Total row count exceeds max allowed count: 10"));
    }
    Ok(taps)
}

fn template(it: &At<'_>) -> Checked<Content> {
    it.only(&["name", "language", "components"])?;
    let language = it.object("language")?;
    language.only(&["code", "policy"])?;
    let (mut parameters, mut payloads) = (Vec::new(), Vec::new());
    if it.map.contains_key("components") {
        for component in it.list("components", 0, 20)? {
            component.only(&["type", "sub_type", "index", "parameters"])?;
            let given = component.list("parameters", 0, 20)?;
            match component.text("type", 1, 20)?.to_lowercase().as_str() {
                "body" => {
                    for parameter in given {
                        parameters.push(parameter.text("text", 1, 1024)?);
                    }
                }
                "button" => {
                    let index = component.index()?;
                    if let Some(parameter) = given.first() {
                        payloads.push((index, parameter.text("payload", 1, 128)?));
                    }
                }
                "header" => {}
                other => return Err(GraphError::new(132_012, format!("Unknown component type {other}"))),
            }
        }
    }
    Ok(Content::Template {
        name: it.text("name", 1, 512)?,
        language: language.text("code", 2, 20)?,
        parameters,
        payloads,
    })
}

/// An object of the request and where it stands in it.
struct At<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> At<'a> {
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}['{key}']", self.path) }
    }

    fn only(&self, known: &[&str]) -> Checked<()> {
        match self.map.keys().find(|k| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some(key) => Err(GraphError::parameter(format!("Unexpected key \"{key}\" on param \"{}\"", self.path))),
        }
    }

    fn text_if_there(&self, key: &str, min: usize, max: usize) -> Checked<Option<String>> {
        let name = self.name(key);
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                let length = text.encode_utf16().count();
                if length > max {
                    return Err(GraphError::parameter(format!("Param {name} must be at most {max} characters long.")));
                }
                if length < min {
                    return Err(GraphError::parameter(format!("Param {name} must be at least {min} characters long.")));
                }
                Ok(Some(text.clone()))
            }
            Some(_) => Err(GraphError::parameter(format!("Param {name} must be a string"))),
        }
    }

    fn text(&self, key: &str, min: usize, max: usize) -> Checked<String> {
        self.text_if_there(key, min, max)?
            .ok_or_else(|| GraphError::parameter(format!("The parameter {} is required.", self.name(key))))
    }

    /// A button's or row's id: no spaces at its edges.
    fn id(&self, max: usize) -> Checked<String> {
        let id = self.text("id", 1, max)?;
        if id.trim() != id {
            return Err(GraphError::parameter(format!("Param {} has spaces at its edges", self.name("id"))));
        }
        Ok(id)
    }

    /// A button's place, written as a number or as its digits.
    fn index(&self) -> Checked<usize> {
        let index = self.map.get("index").and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok()));
        index
            .and_then(|i| usize::try_from(i).ok())
            .ok_or_else(|| GraphError::parameter(format!("Param {} must be an integer", self.name("index"))))
    }

    fn object_if_there(&self, key: &str) -> Checked<Option<At<'a>>> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(At { map, path: self.name(key) })),
            Some(_) => Err(GraphError::parameter(format!("Param {} must be a JSON object.", self.name(key)))),
        }
    }

    fn object(&self, key: &str) -> Checked<At<'a>> {
        self.object_if_there(key)?
            .ok_or_else(|| GraphError::parameter(format!("The parameter {} is required.", self.name(key))))
    }

    fn list(&self, key: &str, min: usize, max: usize) -> Checked<Vec<At<'a>>> {
        let name = self.name(key);
        let items = match self.map.get(key) {
            Some(Value::Array(items)) => items.as_slice(),
            None => &[],
            Some(_) => return Err(GraphError::parameter(format!("Param {name} must be an array."))),
        };
        if items.len() < min || items.len() > max {
            return Err(GraphError::parameter(format!("Param {name} must have {min} to {max} elements.")));
        }
        let object = |(i, item): (usize, &'a Value)| match item {
            Value::Object(map) => Ok(At { map, path: format!("{name}[{i}]") }),
            _ => Err(GraphError::parameter(format!("Param {name}[{i}] must be a JSON object."))),
        };
        items.iter().enumerate().map(object).collect()
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
