//! `chat.*`: posting, editing, deleting, private notes.
//!
//! Limits of text: 40,000 characters for a post, 4,000 for an edit (documentation of each method); the documentation also speaks of truncation, here both
//! are refused with `msg_too_long`. In an edit, blocks and metadata that are not given stay, an empty list or object takes them away (comments of the official
//! clients): text alone does not change what people see of a message with blocks. Called by the dispatcher and, for its common parts, by `response_url`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Args, Failure};
use crate::slack::blocks::{self, Refused, Surface};
use crate::slack::config::Channel;
use crate::slack::message::Message;
use crate::slack::shared::{Shared, State};

/// Most characters of `text` in a post.
const MAX_TEXT: usize = 40_000;
/// Most characters of `text` in an edit.
const MAX_UPDATE_TEXT: usize = 4_000;

/// Blocks of a call, checked. `None`: the argument is not there.
fn checked_blocks(args: &Args) -> Result<Option<Vec<Value>>, Failure> {
    let Some(value) = args.json("blocks") else {
        return Ok(None);
    };
    let list = match value {
        Ok(Value::Array(list)) if list.iter().all(Value::is_object) => list,
        _ => return Err(Failure::new("invalid_blocks_format")),
    };
    check_blocks(&list)?;
    Ok(Some(list))
}

/// Holds blocks against all limits of a message.
pub(in crate::slack) fn check_blocks(list: &[Value]) -> Result<(), Failure> {
    match blocks::check(list, Surface::Message, "/blocks") {
        Ok(()) => Ok(()),
        Err(Refused::TooLong) => Err(Failure::new("msg_blocks_too_long")),
        Err(Refused::Invalid(problems)) => {
            let messages = problems.iter().map(|problem| format!("[ERROR] {problem}"));
            Err(Failure::new("invalid_blocks").messages(messages).with("errors", json!(problems)))
        }
    }
}

fn checked_text(args: &Args, max: usize) -> Result<Option<String>, Failure> {
    let text = args.text("text");
    if text.as_ref().is_some_and(|text| text.chars().count() > max) {
        return Err(Failure::new("msg_too_long"));
    }
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// `{event_type, event_payload}`, else `metadata_must_be_sent_with_json`'s kin `invalid_metadata_format`.
fn checked_metadata(args: &Args) -> Result<Option<Value>, Failure> {
    let Some(value) = args.json("metadata") else {
        return Ok(None);
    };
    let value = value.map_err(|()| Failure::new("invalid_metadata_format"))?;
    if value["event_type"].as_str().is_none_or(str::is_empty) || !value["event_payload"].is_object() {
        return Err(Failure::new("invalid_metadata_schema"));
    }
    if value.to_string().len() > 16_000 {
        return Err(Failure::new("metadata_too_large"));
    }
    Ok(Some(value))
}

/// The channel, if the bot may write in it.
pub(in crate::slack) fn writable<'s>(state: &'s State, id: &str) -> Result<&'s Channel, Failure> {
    let channel = state
        .channel(id)
        .filter(|channel| !channel.private || channel.bot_invited)
        .ok_or_else(|| Failure::new("channel_not_found"))?;
    if channel.archived {
        return Err(Failure::new("is_archived"));
    }
    if !channel.bot_invited {
        return Err(Failure::new("not_in_channel"));
    }
    Ok(channel)
}

impl Shared {
    pub(super) fn post_message(self: &Arc<Self>, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let now = self.clock.monotonic();
        let message = {
            let mut state = self.state();
            writable(&state, &id)?;
            let key = format!("chat.postMessage {id}");
            state.pace.take(&key, self.config.pace, self.config.burst, now).map_err(Failure::limited)?;
            let blocks = checked_blocks(args)?.unwrap_or_default();
            let text = checked_text(args, MAX_TEXT)?;
            if text.is_none() && blocks.is_empty() {
                return Err(Failure::new("no_text"));
            }
            let metadata = checked_metadata(args)?;
            let thread_ts = Self::thread_of(&mut state, &id, args);
            let message = Message {
                channel: id.clone(),
                user: self.config.bot_user.clone(),
                by_app: true,
                text: text.unwrap_or_default(),
                blocks,
                metadata,
                broadcast: thread_ts.is_some() && args.flag("reply_broadcast"),
                thread_ts,
                ..Message::default()
            };
            self.store(&mut state, message)
        };
        self.announce(&message);
        Ok(json!({"channel": id, "ts": message.ts, "message": message.wire(&self.config, true)}))
    }

    /// The thread a post goes to. Slack takes a `ts` that is no message's, and posts to the channel. A thread goes on without its first message.
    fn thread_of(state: &mut State, channel: &str, args: &Args) -> Option<String> {
        let ts = args.text("thread_ts")?;
        match state.message(channel, &ts) {
            Some(parent) => Some(parent.thread_ts.clone().unwrap_or(ts)),
            None => state.has_replies(channel, &ts).then_some(ts),
        }
    }

    pub(super) fn update(self: &Arc<Self>, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let ts = args.required("ts")?;
        let blocks = checked_blocks(args)?;
        let text = checked_text(args, MAX_UPDATE_TEXT)?;
        let no_metadata = args.json("metadata") == Some(Ok(json!({})));
        let metadata = if no_metadata { None } else { checked_metadata(args)? };
        let (before, message) = {
            let mut state = self.state();
            writable(&state, &id)?;
            let message = state
                .message(&id, &ts)
                .filter(|message| message.only_for.is_none())
                .ok_or_else(|| Failure::new("message_not_found"))?;
            if !message.by_app {
                return Err(Failure::new("cant_update_message"));
            }
            if text.is_none() && blocks.as_ref().is_none_or(Vec::is_empty) {
                return Err(Failure::new("no_text"));
            }
            let before = message.wire(&self.config, true);
            self.edit(message, text, blocks);
            if metadata.is_some() || no_metadata {
                message.metadata = metadata;
            }
            (before, message.clone())
        };
        self.announce_change(&before, &message);
        Ok(json!({"channel": id, "ts": ts, "text": message.text, "message": message.wire(&self.config, true)}))
    }

    /// Puts new content into a message. What is `None` stays as it is: text alone changes only the fallback of a message with blocks.
    pub(in crate::slack) fn edit(&self, message: &mut Message, text: Option<String>, blocks: Option<Vec<Value>>) {
        if let Some(text) = text {
            message.text = text;
        }
        if let Some(mut blocks) = blocks {
            crate::slack::message::complete(&mut blocks, &self.chance);
            message.blocks = blocks;
        }
        message.edited = Some(format!("{}.000000", self.clock.now().as_secs()));
        message.edits += 1;
        message.warnings.clear();
    }

    pub(super) fn post_ephemeral(self: &Arc<Self>, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let user = args.required("user")?;
        let blocks = checked_blocks(args)?.unwrap_or_default();
        let text = checked_text(args, MAX_TEXT)?;
        let mut state = self.state();
        let channel = writable(&state, &id)?;
        if !channel.members.contains(&user) {
            return Err(Failure::new("user_not_in_channel"));
        }
        if text.is_none() && blocks.is_empty() {
            return Err(Failure::new("no_text"));
        }
        let message = Message {
            channel: id,
            user: self.config.bot_user.clone(),
            by_app: true,
            text: text.unwrap_or_default(),
            blocks,
            thread_ts: args.text("thread_ts"),
            only_for: Some(user),
            ..Message::default()
        };
        let message = self.store(&mut state, message);
        Ok(json!({"message_ts": message.ts}))
    }

    pub(super) fn delete(self: &Arc<Self>, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let ts = args.required("ts")?;
        let before = {
            let mut state = self.state();
            writable(&state, &id)?;
            let message = state
                .message(&id, &ts)
                .filter(|message| message.only_for.is_none())
                .ok_or_else(|| Failure::new("message_not_found"))?;
            if !message.by_app {
                return Err(Failure::new("cant_delete_message"));
            }
            message.deleted = true;
            message.wire(&self.config, true)
        };
        self.announce_deletion(&before, &id);
        Ok(json!({"channel": id, "ts": ts}))
    }

    /// A conversation by id, by `#name`, or the direct conversation with a person, which is made when first used.
    pub(in crate::slack) fn resolve(&self, name: &str) -> String {
        let mut state = self.state();
        if let Some(plain) = name.strip_prefix('#') {
            let found = state.channels.iter().find(|channel| channel.name == plain);
            return found.map_or_else(|| name.to_owned(), |channel| channel.id.clone());
        }
        let person = self.config.users.iter().find(|user| user.id == name);
        let Some(person) = person else {
            return name.to_owned();
        };
        let id = format!("D{}", person.id);
        if state.channel(&id).is_none() {
            state.channels.push(Channel {
                id: id.clone(),
                name: "directmessage".into(),
                members: vec![person.id.clone()],
                bot_invited: true,
                private: true,
                archived: false,
            });
        }
        id
    }
}
