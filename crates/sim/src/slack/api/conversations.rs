//! `conversations.*`: history, threads and what is known of a conversation.
//!
//! Changes nothing but membership (`join`). Called by the dispatcher.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Args, Failure};
use crate::slack::config::Channel;
use crate::slack::message::{Message, tombstone};
use crate::slack::shared::{Shared, State};

/// Most messages of one page (documentation: 999 for these methods, 1,000 in examples; 15 for apps outside the marketplace since 2025).
const MAX_PAGE: usize = 999;

/// The channel, if the bot may see it.
fn visible<'s>(state: &'s State, id: &str) -> Result<&'s Channel, Failure> {
    state
        .channel(id)
        .filter(|channel| !channel.private || channel.bot_invited)
        .ok_or_else(|| Failure::new("channel_not_found"))
}

/// The channel, if the bot may read it.
fn readable<'s>(state: &'s State, id: &str) -> Result<&'s Channel, Failure> {
    let channel = visible(state, id)?;
    if !channel.bot_invited {
        return Err(Failure::new("not_in_channel"));
    }
    Ok(channel)
}

/// A `ts` as a number that compares, in microseconds.
fn micros(ts: &str) -> Option<u128> {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, ""));
    let fraction = format!("{fraction:0<6}");
    Some(seconds.parse::<u128>().ok()? * 1_000_000 + fraction.get(..6)?.parse::<u128>().ok()?)
}

/// What part of a conversation is asked for.
struct Window {
    oldest: Option<u128>,
    latest: Option<u128>,
    inclusive: bool,
    limit: usize,
    offset: usize,
    metadata: bool,
}

impl Window {
    fn read(args: &Args, default_limit: usize) -> Result<Self, Failure> {
        let time = |key: &str, error: &str| match args.text(key) {
            None => Ok(None),
            Some(text) => micros(&text).map(Some).ok_or_else(|| Failure::new(error)),
        };
        let offset = match args.text("cursor") {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix("sim:")
                .and_then(|offset| offset.parse().ok())
                .ok_or_else(|| Failure::new("invalid_cursor"))?,
        };
        let limit = args.number("limit", default_limit)?;
        if limit == 0 {
            return Err(Failure::new("invalid_limit"));
        }
        Ok(Self {
            oldest: time("oldest", "invalid_ts_oldest")?,
            latest: time("latest", "invalid_ts_latest")?.filter(|latest| *latest > 0),
            inclusive: args.flag("inclusive"),
            limit: limit.min(MAX_PAGE),
            offset,
            metadata: args.flag("include_all_metadata"),
        })
    }

    fn holds(&self, message: &Message) -> bool {
        let Some(at) = micros(&message.ts) else { return false };
        let after = self.oldest.is_none_or(|oldest| at > oldest || (self.inclusive && at == oldest));
        let before = self.latest.is_none_or(|latest| at < latest || (self.inclusive && at == latest));
        after && before
    }

    /// The messages of this page, drawn by `draw`, and where the next begins.
    fn page<'m>(&self, messages: &[&'m Message], draw: impl Fn(&'m Message) -> Value) -> Value {
        let end = (self.offset + self.limit).min(messages.len());
        let more = end < messages.len();
        let page = messages.get(self.offset..end).unwrap_or_default();
        let page: Vec<Value> = page.iter().map(|message| draw(message)).collect();
        let cursor = if more { format!("sim:{end}") } else { String::new() };
        json!({"messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}})
    }
}

impl Shared {
    pub(super) fn history(&self, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let window = Window::read(args, 100)?;
        let state = self.state();
        readable(&state, &id)?;
        let in_channel = |message: &&Message| {
            let own = message.thread_ts.is_none() || message.broadcast;
            let there = !message.deleted || state.has_replies(&id, &message.ts);
            message.channel == id && message.only_for.is_none() && own && there
        };
        let messages: Vec<&Message> =
            state.messages.iter().rev().filter(in_channel).filter(|message| window.holds(message)).collect();
        let mut page = window.page(&messages, |message| {
            if message.deleted {
                return tombstone(&json!(message.ts));
            }
            self.with_thread(&state, message, window.metadata)
        });
        page["pin_count"] = json!(0);
        Ok(page)
    }

    pub(super) fn replies(&self, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let ts = args.required("ts")?;
        let window = Window::read(args, 1000)?;
        let state = self.state();
        readable(&state, &id)?;
        let alive = |message: &&Message| message.channel == id && !message.deleted && message.only_for.is_none();
        let named = state.messages.iter().filter(alive).find(|message| message.ts == ts);
        let named = named.ok_or_else(|| Failure::new("thread_not_found"))?;
        let parent = named.thread_ts.clone().unwrap_or(ts);
        // The parent is always there, the window holds for replies.
        let in_thread = |message: &&Message| {
            message.ts == parent || (message.thread_ts.as_deref() == Some(&parent) && window.holds(message))
        };
        let messages: Vec<&Message> = state.messages.iter().filter(alive).filter(in_thread).collect();
        Ok(window.page(&messages, |message| self.with_thread(&state, message, window.metadata)))
    }

    /// A message with what a parent knows of its thread.
    pub(in crate::slack) fn with_thread(&self, state: &State, message: &Message, metadata: bool) -> Value {
        let mut wire = message.wire(&self.config, metadata);
        let replies: Vec<&Message> = state
            .messages
            .iter()
            // First what is cheap and mostly false: few messages are replies.
            .filter(|reply| reply.thread_ts.as_deref() == Some(message.ts.as_str()))
            .filter(|reply| reply.channel == message.channel && !reply.deleted && reply.only_for.is_none())
            .collect();
        if let Some(last) = replies.last() {
            let mut users: Vec<&str> = replies.iter().map(|reply| reply.user.as_str()).collect();
            users.sort_unstable();
            users.dedup();
            wire["thread_ts"] = json!(message.ts);
            wire["reply_count"] = json!(replies.len());
            wire["reply_users_count"] = json!(users.len());
            wire["reply_users"] = json!(users);
            wire["latest_reply"] = json!(last.ts);
            wire["is_locked"] = json!(false);
            wire["subscribed"] = json!(false);
        }
        wire
    }

    fn channel_json(&self, channel: &Channel) -> Value {
        let direct = channel.id.starts_with('D');
        let mut json = json!({
            "id": channel.id, "created": 1_732_000_000, "creator": "U0ALICE", "is_archived": channel.archived, "is_im": direct,
            "is_channel": !channel.private, "is_group": channel.private && !direct, "is_mpim": false, "is_private": channel.private,
            "is_general": false, "is_shared": false, "is_org_shared": false, "is_ext_shared": false, "unlinked": 0,
            "is_member": channel.bot_invited, "context_team_id": self.config.team_id, "num_members": channel.members.len(),
        });
        if direct {
            json["user"] = json!(channel.members.first());
        } else {
            json["name"] = json!(channel.name);
            json["name_normalized"] = json!(channel.name);
        }
        json
    }

    pub(super) fn conversation_info(&self, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let state = self.state();
        Ok(json!({"channel": self.channel_json(visible(&state, &id)?)}))
    }

    pub(super) fn conversation_list(&self, args: &Args) -> Value {
        let types = args.text("types").unwrap_or_else(|| "public_channel".into());
        let archived = !args.flag("exclude_archived");
        let asked = |channel: &&Channel| {
            let kind = match (channel.id.starts_with('D'), channel.private) {
                (true, _) => "im",
                (false, true) => "private_channel",
                (false, false) => "public_channel",
            };
            types.split(',').any(|asked| asked.trim() == kind) && (archived || !channel.archived)
        };
        let state = self.state();
        let channels: Vec<Value> = state
            .channels
            .iter()
            .filter(|channel| !channel.private || channel.bot_invited)
            .filter(asked)
            .map(|channel| self.channel_json(channel))
            .collect();
        json!({"channels": channels, "response_metadata": {"next_cursor": ""}})
    }

    pub(super) fn conversation_members(&self, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let state = self.state();
        let channel = visible(&state, &id)?;
        let mut members = channel.members.clone();
        if channel.bot_invited {
            members.push(self.config.bot_user.clone());
        }
        Ok(json!({"members": members, "response_metadata": {"next_cursor": ""}}))
    }

    pub(super) fn conversation_join(self: &Arc<Self>, args: &Args) -> Answer {
        let id = self.resolve(&args.required("channel")?);
        let mut state = self.state();
        visible(&state, &id)?;
        let channel = state.channels.iter_mut().find(|channel| channel.id == id);
        let channel = channel.ok_or_else(|| Failure::new("channel_not_found"))?;
        if channel.archived {
            return Err(Failure::new("is_archived"));
        }
        if channel.private {
            return Err(Failure::new("method_not_supported_for_channel_type"));
        }
        channel.bot_invited = true;
        let channel = channel.clone();
        Ok(json!({"channel": self.channel_json(&channel)}))
    }
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn ts_compare_as_numbers() {
        assert_eq!(micros("1732104000.000100"), Some(1_732_104_000_000_100));
        assert_eq!(micros("1732104000"), Some(1_732_104_000_000_000));
        assert!(micros("999999999.9") < micros("1732104000.000100"));
        assert_eq!(micros("soon"), None);
    }
}
