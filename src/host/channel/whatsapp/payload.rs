//! Webhooks as Meta sends them, read tolerantly: what is unknown is ignored, and one malformed message does not spoil the
//! others. Knows nothing of asks.

use super::text::copied;
use askd_core::Time;
use serde_json::Value;

/// Something that a webhook tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notification {
    Message(Message),
    Status(Status),
    ChangedIds(ChangedIds),
}

impl Notification {
    /// The ids of whoever wrote it, or has others now. Our own messages are written by nobody.
    pub(super) fn writers(&self) -> Vec<String> {
        match self {
            Self::Message(message) => message.ids.all(),
            Self::ChangedIds(ChangedIds { before, after, .. }) => [&before[..], after].concat(),
            Self::Status(_) => Vec::new(),
        }
    }
}

/// A person has a new number or business-scoped user id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangedIds {
    /// The old ids that the platform names.
    pub(super) before: Vec<String>,
    pub(super) after: Vec<String>,
    /// Since when, by the platform's clock.
    pub(super) at: Option<Time>,
}

/// A message of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// `wamid...`
    pub(super) id: String,
    pub(super) ids: UserIds,
    /// The person's own name for themselves.
    pub(super) name: Option<String>,
    /// When the platform received it, in whole seconds; `None`: it cannot be read.
    pub(super) at: Option<Time>,
    pub(super) body: Body,
    /// The message it quotes, if that is not one of the person's own.
    pub(super) quotes: Option<String>,
    /// It was written in a group, to everybody there.
    pub(super) in_group: bool,
    /// It was forwarded, so it was written for another reader.
    pub(super) forwarded: bool,
}

/// The ids of one person, as far as they are told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UserIds {
    /// The number.
    pub(super) wa_id: Option<String>,
    /// The business-scoped user id.
    pub(super) user_id: Option<String>,
}

impl UserIds {
    /// The id to write to.
    pub(super) fn any(&self) -> Option<&String> {
        self.wa_id.as_ref().or(self.user_id.as_ref())
    }

    /// The id to write to first.
    pub(super) fn all(&self) -> Vec<String> {
        [&self.wa_id, &self.user_id].into_iter().flatten().cloned().collect()
    }
}

/// What there is to read in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Text(String),
    /// A button of a template: the person writes, and says nothing.
    Tap,
    /// An option of a question was tapped.
    Chosen(Chosen),
    /// Anything else without words.
    Wordless,
    /// An emoji put on a message or taken off again. Does not open the window.
    Reaction,
    /// An edit of an earlier message.
    Edited(Option<String>),
    /// An earlier message was deleted.
    Deleted,
    /// Not meant for any reader: a change of number, an order.
    Nothing,
}

/// The option that was tapped: its id, and what the person saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) id: String,
    pub(super) title: String,
}

/// What became of a message of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) id: String,
    pub(super) progress: Progress,
    /// When it happened, in whole seconds by the platform's clock.
    pub(super) at: Option<Time>,
    /// The recipient.
    pub(super) ids: UserIds,
    /// `biz_opaque_callback_data`
    pub(super) callback: Option<String>,
}

/// How far a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// With the platform.
    Sent,
    /// On the person's device.
    Delivered,
    /// It will never be displayed.
    Failed { code: u64, title: String },
}

/// Everything that is told about that number of the business. `None`: this is not a webhook of the right shape.
pub(super) fn read(body: &[u8], phone_number_id: &str) -> Option<Vec<Notification>> {
    let webhook: Value = serde_json::from_slice(body).ok()?;
    let mut told = Vec::new();
    webhook.as_object()?;
    for change in list(&webhook, "entry").iter().flat_map(|entry| list(entry, "changes")) {
        let value = &change["value"];
        let list = |key| list(value, key);
        let ours = text(&value["metadata"]["phone_number_id"]).as_deref() == Some(phone_number_id);
        if change["field"] == "user_id_update" {
            told.extend(list("user_id_update").iter().map(|update| {
                Notification::ChangedIds(ChangedIds {
                    before: texts([&update["wa_id"], &update["user_id"]["previous"]]),
                    after: texts([&update["user_id"]["current"]]),
                    at: seconds(&update["timestamp"]),
                })
            }));
        } else if change["field"] == "messages" && ours {
            told.extend(list("statuses").iter().filter_map(status).map(Notification::Status));
            told.extend(list("messages").iter().filter_map(changed_ids).map(Notification::ChangedIds));
            let mut messages: Vec<Message> =
                list("messages").iter().filter_map(|value| message(value, list("contacts"))).collect();
            messages.sort_by_key(|message| message.at);
            told.extend(messages.into_iter().map(Notification::Message));
        }
    }
    Some(told)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text, or a number as one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn texts<const N: usize>(values: [&Value; N]) -> Vec<String> {
    let mut texts: Vec<String> = values.into_iter().filter_map(text).collect();
    texts.dedup();
    texts
}

/// Seconds since the Unix epoch.
fn seconds(value: &Value) -> Option<Time> {
    let seconds = text(value)?.parse::<i64>().ok().filter(|seconds| *seconds > 0)?;
    Some(Time::from_millis(seconds.checked_mul(1000)?))
}

fn message(value: &Value, contacts: &[Value]) -> Option<Message> {
    let mut ids = UserIds { wa_id: text(&value["from"]), user_id: text(&value["from_user_id"]) };
    let same = |contact: &&Value| {
        let both = |id: &Option<String>, key: &str| id.is_some() && *id == text(&contact[key]);
        both(&ids.wa_id, "wa_id") || both(&ids.user_id, "user_id")
    };
    let contact = contacts.iter().find(same).unwrap_or(&Value::Null);
    ids.wa_id = ids.wa_id.or_else(|| text(&contact["wa_id"]));
    ids.user_id = ids.user_id.or_else(|| text(&contact["user_id"]));
    ids.any()?;
    let context = &value["context"];
    // A person's own message is about no question of ours.
    let own = text(&context["from"]).is_some_and(|from| ids.all().contains(&from));
    Some(Message {
        id: text(&value["id"])?,
        ids,
        name: text(&contact["profile"]["name"]),
        at: seconds(&value["timestamp"]),
        body: body(value),
        quotes: text(&context["id"]).filter(|_| !own),
        in_group: text(&value["group_id"]).is_some(),
        forwarded: ["forwarded", "frequently_forwarded"].iter().any(|key| context[key] == Value::Bool(true)),
    })
}

/// A system message that says that its sender has another number or id.
fn changed_ids(value: &Value) -> Option<ChangedIds> {
    let system = &value["system"];
    let before = match system["type"].as_str()? {
        "user_changed_number" | "customer_changed_number" => texts([&value["from"], &value["from_user_id"]]),
        "user_changed_user_id" => texts([&value["from"], &system["previous_user_id"], &value["from_user_id"]]),
        _ => return None,
    };
    let after = texts([&system["wa_id"], &system["new_wa_id"], &system["user_id"]]);
    Some(ChangedIds { before, after, at: seconds(&value["timestamp"]) })
}

fn body(value: &Value) -> Body {
    let words = |text: Option<String>| match text {
        Some(text) if !text.trim().is_empty() => Body::Text(copied(&text)),
        _ => Body::Wordless,
    };
    match value["type"].as_str().unwrap_or_default() {
        "text" => words(text(&value["text"]["body"])),
        kind @ ("image" | "video" | "document") => words(text(&value[kind]["caption"])),
        "interactive" => {
            let reply = ["button_reply", "list_reply"].map(|key| &value["interactive"][key]);
            let chosen = reply.into_iter().find_map(|reply| text(&reply["id"]).zip(text(&reply["title"])));
            chosen.map_or(Body::Wordless, |(id, title)| Body::Chosen(Chosen { id, title }))
        }
        "button" => Body::Tap,
        "reaction" => Body::Reaction,
        "edit" => Body::Edited(text(&value["edit"]["original_message_id"])),
        "revoke" => Body::Deleted,
        "system" | "order" | "request_welcome" => Body::Nothing,
        _ => Body::Wordless,
    }
}

fn status(value: &Value) -> Option<Status> {
    let error = &value["errors"][0];
    let progress = match value["status"].as_str()? {
        "sent" => Progress::Sent,
        "delivered" | "read" | "played" => Progress::Delivered,
        "failed" => Progress::Failed {
            code: error["code"].as_u64().unwrap_or(0),
            title: text(&error["title"]).unwrap_or_default(),
        },
        _ => return None,
    };
    Some(Status {
        id: text(&value["id"])?,
        progress,
        at: seconds(&value["timestamp"]),
        ids: UserIds { wa_id: text(&value["recipient_id"]), user_id: text(&value["recipient_user_id"]) },
        callback: text(&value["biz_opaque_callback_data"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn hook(value: &Value) -> Vec<u8> {
        let mut value = value.clone();
        value["metadata"] = json!({"phone_number_id": "106"});
        serde_json::to_vec(&json!({"entry": [{"changes": [{"field": "messages", "value": value}]}]})).unwrap()
    }

    #[test]
    fn people_are_known_by_either_id_and_contacts_by_id_not_by_place() {
        let body = hook(&json!({
            "contacts": [
                {"user_id": "US.2", "profile": {"name": "Bob"}},
                {"wa_id": "1555", "user_id": "US.1", "profile": {"name": "Ada"}},
            ],
            "messages": [
                {"from_user_id": "US.2", "id": "m2", "timestamp": "20", "type": "text", "text": {"body": "2"}},
                {"from": "1555", "id": "m1", "timestamp": "10", "type": "sticker", "sticker": {}},
                {"id": "m3", "timestamp": "1", "type": "text"},
                {"from": 7, "type": "text"},
                "odd",
            ],
        }));
        let told = read(&body, "106").unwrap();
        let [Notification::Message(first), Notification::Message(second)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((first.ids.user_id.as_deref(), first.name.as_deref()), (Some("US.1"), Some("Ada")));
        assert_eq!(first.body, Body::Wordless);
        assert_eq!((second.ids.wa_id.as_deref(), second.name.as_deref()), (None, Some("Bob")));
        assert_eq!(read(&body, "107"), Some(vec![]), "another number of the business");
        assert_eq!(read(b"{", "106"), None);
    }

    #[test]
    fn only_words_can_be_an_answer() {
        for (message, expected) in [
            (json!({"type": "image", "image": {"caption": "  "}}), Body::Wordless),
            (json!({"type": "image", "image": {"caption": "2"}}), Body::Text("2".to_owned())),
            (json!({"type": "audio"}), Body::Wordless),
            (json!({"type": "unsupported"}), Body::Wordless),
            (json!({"type": "button", "button": {"payload": "x", "text": "Show it"}}), Body::Tap),
            (json!({"type": "reaction", "reaction": {"message_id": "x"}}), Body::Reaction),
            (json!({"type": "revoke", "revoke": {"original_message_id": "x"}}), Body::Deleted),
            (json!({"type": "edit", "edit": {"original_message_id": "x"}}), Body::Edited(Some("x".to_owned()))),
            (json!({"type": "text"}), Body::Wordless),
        ] {
            assert_eq!(body(&message), expected, "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_body_breaks_it(body in "\\PC{0,200}", odd in "[\\[\\]{}\":,a-z0-9]{0,60}") {
            let _ = read(body.as_bytes(), "106");
            let _ = read(format!("{{\"entry\":[{{\"changes\":[{{\"field\":\"messages\",\"value\":{odd}}}]}}]}}").as_bytes(), "106");
        }
    }
}
