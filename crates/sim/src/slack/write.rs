//! What people write, change and delete.
//!
//! Stores it and has the app told (see `events`). Called by the handle and the page.

use std::sync::Arc;

use super::emoji;
use super::message::Message;
use super::shared::Shared;

impl Shared {
    /// A person writes something.
    pub(super) fn say(
        self: &Arc<Self>,
        channel: &str,
        thread: Option<&str>,
        user: &str,
        text: &str,
    ) -> Result<Message, String> {
        let message = {
            let mut state = self.state();
            let known = state.channel(channel).ok_or("channel_not_found")?;
            if known.archived {
                return Err("is_archived".into());
            }
            if !known.members.iter().any(|member| member == user) {
                return Err("user_not_in_channel".into());
            }
            if text.trim().is_empty() {
                return Err("no_text".into());
            }
            let thread_ts = match thread {
                None => None,
                Some(ts) => {
                    let parent = state.message(channel, ts).ok_or("message_not_found")?;
                    Some(parent.thread_ts.clone().unwrap_or_else(|| ts.into()))
                }
            };
            let message = Message {
                channel: channel.into(),
                user: user.into(),
                text: escaped(text),
                thread_ts,
                ..Message::default()
            };
            self.store(&mut state, message)
        };
        self.touch();
        self.announce(&message);
        Ok(message)
    }

    /// A person changes what they wrote.
    pub(super) fn change(self: &Arc<Self>, channel: &str, ts: &str, text: &str) -> Result<(), String> {
        let (before, message) = {
            let mut state = self.state();
            let message = state.message(channel, ts).ok_or("message_not_found")?;
            let before = message.wire(&self.config, true);
            self.edit(message, Some(escaped(text)), None);
            (before, message.clone())
        };
        self.touch();
        self.announce_change(&before, &message);
        Ok(())
    }

    /// An admin deletes a message.
    pub(super) fn delete_message(self: &Arc<Self>, channel: &str, ts: &str) -> Result<(), String> {
        let (before, has_replies) = {
            let mut state = self.state();
            let message = state.message(channel, ts).ok_or("message_not_found")?;
            message.deleted = true;
            (message.wire(&self.config, true), state.has_replies(channel, ts))
        };
        self.touch();
        if has_replies {
            self.announce_tombstone(&before, channel);
        } else {
            self.announce_deletion(&before, channel);
        }
        Ok(())
    }
}

/// Slack escapes these three in what people type, and names emoji.
fn escaped(text: &str) -> String {
    emoji::named(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
