//! The Events API: `url_verification` and `message` events in their `event_callback` envelopes.
//!
//! Builds and starts them; sending and retrying is `deliver`'s. Only `message` events exist here: posts, edits and deletions, by people and by the app itself,
//! since Slack tells an app of its own messages too. Called by the Web API and the handle.

use std::sync::Arc;

use serde_json::{Value, json};

use super::deliver::Post;
use super::message::{Message, tombstone};
use super::shared::Shared;

impl Shared {
    /// Tells the app of a new message.
    pub(super) fn announce(self: &Arc<Self>, message: &Message) {
        let mut event = message.wire(&self.config, true);
        event["channel"] = json!(message.channel);
        event["event_ts"] = json!(message.ts);
        event["channel_type"] = json!(self.channel_type(&message.channel));
        if let (Some(thread_ts), false) = (&message.thread_ts, message.by_app) {
            let parent = self.state().message(&message.channel, thread_ts).map(|parent| parent.user.clone());
            event["parent_user_id"] = json!(parent);
        }
        if !message.by_app {
            event["client_msg_id"] = json!(self.chance.word(16).to_lowercase());
        }
        self.send_event(&event);
    }

    /// Tells the app of an edit.
    pub(super) fn announce_change(self: &Arc<Self>, before: &Value, message: &Message) {
        let event = json!({
            "type": "message", "subtype": "message_changed", "hidden": true, "channel": message.channel,
            "message": message.wire(&self.config, true), "previous_message": before, "ts": message.edited,
            "event_ts": message.edited, "channel_type": self.channel_type(&message.channel),
        });
        self.send_event(&event);
    }

    /// Tells the app of a deletion.
    pub(super) fn announce_deletion(self: &Arc<Self>, before: &Value, channel: &str) {
        let event = json!({
            "type": "message", "subtype": "message_deleted", "hidden": true, "channel": channel, "deleted_ts": before["ts"],
            "previous_message": before, "ts": before["ts"], "event_ts": before["ts"], "channel_type": self.channel_type(channel),
        });
        self.send_event(&event);
    }

    /// Tells the app of the deletion of a message with replies: Slack leaves a mark in its place.
    pub(super) fn announce_tombstone(self: &Arc<Self>, before: &Value, channel: &str) {
        let ts = &before["ts"];
        let mark = tombstone(ts);
        let event = json!({
            "type": "message", "subtype": "message_changed", "hidden": true, "channel": channel, "message": mark,
            "previous_message": before, "ts": ts, "event_ts": ts, "channel_type": self.channel_type(channel),
        });
        self.send_event(&event);
    }

    fn send_event(self: &Arc<Self>, event: &Value) {
        // An app in Socket Mode without a socket is not nowhere: its events are tried again.
        let nowhere = {
            let state = self.state();
            state.events_url.is_none() && state.sockets.ever() == 0
        };
        if !self.config.message_events || nowhere {
            return;
        }
        let payload = self.event_callback(event);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = shared.stop.cancelled() => {}
                () = shared.event(&payload) => {}
            }
        });
    }

    fn channel_type(&self, id: &str) -> &'static str {
        self.state().channel(id).map_or("channel", |channel| channel.kind().1)
    }

    /// The envelope of an event, with a fresh `event_id`.
    pub(super) fn event_callback(&self, event: &Value) -> Value {
        let config = &self.config;
        json!({
            "token": "sim-verification-token", "team_id": config.team_id, "context_team_id": config.team_id,
            "context_enterprise_id": config.enterprise_install, "api_app_id": config.app_id, "event": event, "type": "event_callback",
            "event_id": format!("Ev{}", self.chance.word(9)), "event_time": self.clock.now().as_secs(),
            "authorizations": [{
                "enterprise_id": config.enterprise_install, "team_id": config.team_id, "user_id": config.bot_user, "is_bot": true,
                "is_enterprise_install": config.enterprise_install.is_some(),
            }],
            "is_ext_shared_channel": false, "event_context": format!("4-{}", self.chance.word(24)),
        })
    }

    /// What Slack does when an events address is entered: it must echo the challenge within the time for an answer.
    pub(super) async fn verify_url(&self, url: &str) -> Result<(), String> {
        let challenge = self.chance.word(40);
        let payload = json!({"token": "sim-verification-token", "challenge": challenge, "type": "url_verification"});
        let attempt = self
            .signed(Post {
                url: url.into(),
                content_type: "application/json",
                body: payload.to_string().into_bytes(),
                headers: Vec::new(),
            })
            .await;
        let as_json =
            serde_json::from_str::<Value>(&attempt.answer).is_ok_and(|answer| answer["challenge"] == challenge);
        let as_form = attempt.answer == format!("challenge={challenge}");
        if attempt.acknowledged && (attempt.answer.trim() == challenge || as_json || as_form) {
            return Ok(());
        }
        Err(format!("the challenge was not echoed: status {:?}, body {:?}", attempt.status, attempt.answer))
    }
}
