//! What the broker asks of a channel: post, look, close.

use super::client::{CALL_TIMEOUT, CallError};
use super::history::{CARD, Shown, TEXT};
use super::pace::POST;
use super::{Slack, render};
use crate::host::channel::Closed;
use askd_core::{Ask, Found, Posted, Stage, Trouble, WidgetState, wording};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Pauses between two looks into a history that cannot be read.
const LOOK_PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));
/// How long it is tried; then nothing can be known.
const LOOK_FOR: Duration = Duration::from_secs(55);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    ts: String,
}

impl Slack {
    /// Waits for a turn to post to this chat.
    pub async fn turn(&self, chat: &str) {
        self.0.pace.turn(chat).await;
    }

    /// Posts the card, and before it the texts that do not fit into it.
    pub async fn post(&self, ask: &Ask, route: usize, attempt: u8, progress: impl Fn() + Send + Sync) -> Posted {
        let Some(place) = ask.rules.routes.get(route) else { return nothing("no such route") };
        let render = || {
            if let Some(blocked) = render::blocked(ask, attempt) {
                return vec![blocked];
            }
            let sight = render::Sight::of(ask, attempt, self.clock().now());
            render::card(&render::Sight { numbered: ask.counts(route), ..sight })
        };
        let mut messages = render();
        if messages.len() > 1 {
            messages.pop();
            if let Err(posted) = self.post_texts(ask, route, attempt, &messages, progress).await {
                return posted;
            }
            // Drawn again, because the texts took time and the card says until when it can be answered.
            messages = render();
        }
        let Some(card) = messages.last() else { return nothing("nothing to show") };
        let said = json!({"ask": ask.id.to_string(), "attempt": attempt.to_string()});
        match self.say(&place.chat, card, CARD, &said).await {
            Ok(ts) => Posted::Shown(ts),
            Err(error) => posted(&error),
        }
    }

    /// The texts in front of a card, but for those that are there from an earlier try.
    async fn post_texts(
        &self,
        ask: &Ask,
        route: usize,
        attempt: u8,
        texts: &[render::Message],
        progress: impl Fn() + Send + Sync,
    ) -> Result<(), Posted> {
        let chat = &ask.rules.routes[route].chat;
        let again = Posted::NotPosted { retry_after_millis: None, trouble: Trouble::Unknown };
        // After this time askd would search for messages that are not sent yet; each text that Slack takes moves it.
        let patience = |left: Duration| self.clock().monotonic() + left.saturating_sub(Duration::from_secs(1));
        let mut until = patience(match ask.widgets.get(route).map(|widget| &widget.state) {
            Some(WidgetState::Sent { render_by, .. }) => render_by.since(self.clock().now()),
            _ => ask.rules.render_timeout,
        });
        // A daemon before this one may have begun to post it.
        let first = attempt == 1 && ask.created_at >= self.0.started;
        let shown = if first { Shown::default() } else { self.shown(ask, chat).await.map_err(|_| again.clone())? };
        for (part, text) in texts.iter().enumerate().filter(|(part, _)| !shown.texts.contains(part)) {
            let said = json!({"ask": ask.id.to_string(), "part": part.to_string()});
            loop {
                let said = self.say(chat, text, TEXT, &said).await;
                if said.is_ok() {
                    progress();
                    until = patience(ask.rules.render_timeout);
                }
                // Waits for what Slack asks for, too, if that is not too long.
                let in_time = self.0.pace.after(chat, until).await.is_ok();
                match said {
                    Ok(_) if in_time => break,
                    Err(CallError::RateLimited(_)) if in_time => {}
                    // Whether this text is there will be seen; the card certainly is not.
                    Ok(_) | Err(CallError::Unknown(_)) => return Err(again),
                    Err(error) => return Err(posted(&error)),
                }
            }
        }
        Ok(())
    }

    async fn say(&self, chat: &str, message: &render::Message, kind: &str, said: &Value) -> Result<String, CallError> {
        let body = json!({
            "channel": chat, "text": message.text, "blocks": message.blocks, "parse": "none", "link_names": false,
            "unfurl_links": false, "unfurl_media": false, "metadata": {"event_type": kind, "event_payload": said},
        });
        self.0.pace.posting(chat, CALL_TIMEOUT);
        let said = self.0.client.post::<Message>(POST, chat, &body).await;
        self.0.pace.posted(chat);
        match said {
            Ok(Message { ts }) if ts.is_empty() => Err(CallError::Unknown("an answer without ts".to_owned())),
            Ok(Message { ts }) => Ok(ts),
            Err(error) => Err(error),
        }
    }

    /// Looks whether the card is there, as long as it takes to read the history.
    pub async fn find(&self, ask: &Ask, route: usize) -> Found {
        let Some(place) = ask.rules.routes.get(route) else { return Found::CannotKnow };
        let until = self.clock().monotonic() + LOOK_FOR;
        let mut pause = LOOK_PAUSE.0;
        loop {
            let wait = match self.shown(ask, &place.chat).await {
                Ok(shown) => return shown.cards.last().map_or(Found::Absent, |ts| Found::Widget(ts.clone())),
                Err(CallError::Refused { code, needed }) => {
                    let why = wording::slack_refuses(&code, needed.as_deref());
                    tracing::warn!(ask = %ask.id, why, "the history cannot be read: a card may come twice");
                    return Found::CannotKnow;
                }
                Err(CallError::RateLimited(wait)) => wait,
                Err(CallError::NotSent | CallError::Unknown(_)) => pause,
            };
            if self.clock().monotonic() + wait > until {
                return Found::CannotKnow;
            }
            self.clock().sleep(wait).await;
            pause = (pause * 2).min(LOOK_PAUSE.1);
        }
    }

    /// A line in the card's thread.
    pub async fn remind(&self, ask: &Ask, route: usize) {
        let (Some(place), Some(ts)) =
            (ask.rules.routes.get(route), ask.widgets.get(route).and_then(|widget| widget.messages.last()))
        else {
            return;
        };
        let Stage::Open { answer_by, .. } = ask.stage else { return };
        let message = render::reminder(ask.short_id.as_str(), answer_by);
        let body = json!({
            "channel": place.chat, "thread_ts": ts, "text": message.text, "blocks": message.blocks, "parse": "none",
            "link_names": false,
        });
        self.0.pace.posting(&place.chat, CALL_TIMEOUT);
        let said = self.0.client.post::<Message>(POST, &place.chat, &body).await;
        self.0.pace.posted(&place.chat);
        if let Err(error) = said {
            tracing::warn!(ask = %ask.id, %error, "a reminder could not be posted");
        }
    }

    /// Makes every card of the ask in this chat say how it ended.
    pub async fn close(&self, ask: &Ask, route: usize) -> Closed {
        let Some(message) = render::closed(ask, route) else { return Closed::Done };
        self.rewrite(ask, route, &message).await
    }

    /// Makes every card of a block in this chat say how often it was asked by now.
    pub async fn recount(&self, ask: &Ask, route: usize) -> Closed {
        let attempt = ask.widgets.get(route).map_or(1, |widget| widget.attempt);
        let Some(message) = render::blocked(ask, attempt) else { return Closed::Done };
        let rewritten = self.rewrite(ask, route, &message).await;
        // An agent may ask in a loop: the next number is shown a pace later.
        self.clock().sleep(self.0.settings.pace).await;
        rewritten
    }

    /// Makes every open card of the ask in this chat show its current deadline.
    pub async fn redraw(&self, ask: &Ask, route: usize) -> Closed {
        let attempt = ask.widgets.get(route).map_or(1, |widget| widget.attempt);
        let messages = render::card(&render::Sight::of(ask, attempt, self.clock().now()));
        let Some(card) = messages.last() else { return Closed::Done };
        self.rewrite(ask, route, card).await
    }

    async fn rewrite(&self, ask: &Ask, route: usize, message: &render::Message) -> Closed {
        let (Some(place), Some(widget)) = (ask.rules.routes.get(route), ask.widgets.get(route)) else {
            return Closed::Done;
        };
        let mut cards = widget.messages.clone();
        // A post that counted as lost may have turned up since.
        if widget.attempt > 1 || cards.is_empty() {
            match self.shown(ask, &place.chat).await {
                Ok(shown) => cards.extend(shown.cards),
                Err(CallError::Refused { .. }) => {}
                Err(CallError::RateLimited(wait)) => return Closed::Later(Some(wait)),
                Err(_) => return Closed::Later(None),
            }
            cards.sort();
            cards.dedup();
        }
        for ts in cards {
            let body = json!({
                "channel": place.chat, "ts": ts, "text": message.text, "blocks": message.blocks, "parse": "none",
                "link_names": false,
            });
            match self.0.client.post::<Value>("chat.update", &place.chat, &body).await {
                Ok(_) => {}
                Err(CallError::Refused { code, .. }) if code == "message_not_found" => {}
                Err(CallError::Refused { code, needed }) if is_final(&code) => {
                    return Closed::Never(wording::slack_refuses(&code, needed.as_deref()));
                }
                Err(CallError::RateLimited(wait)) => return Closed::Later(Some(wait)),
                Err(_) => return Closed::Later(None),
            }
        }
        Closed::Done
    }
}

fn nothing(why: &str) -> Posted {
    Posted::Never { trouble: Trouble::Unknown, why: why.to_owned() }
}

fn posted(error: &CallError) -> Posted {
    match error {
        CallError::RateLimited(wait) => {
            let retry_after_millis = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            Posted::NotPosted { retry_after_millis, trouble: Trouble::RateLimited }
        }
        CallError::NotSent => {
            tracing::warn!("Slack cannot be reached; a card will be tried again");
            Posted::NotPosted { retry_after_millis: None, trouble: Trouble::NoConnection }
        }
        CallError::Refused { code, needed } if is_final(code) => {
            let gone = matches!(code.as_str(), "channel_not_found" | "is_archived" | "is_inactive");
            let trouble = if gone { Trouble::ChatNotFound } else { Trouble::Refused };
            Posted::Never { trouble, why: wording::slack_refuses(code, needed.as_deref()) }
        }
        CallError::Refused { code, .. } => {
            tracing::warn!(code, "Slack did not take a card; it will be tried again");
            Posted::NotPosted { retry_after_millis: None, trouble: Trouble::Refused }
        }
        CallError::Unknown(why) => {
            tracing::warn!(why, "it is not known whether a card was posted; looking for it");
            Posted::Unknown(None)
        }
    }
}

/// What Slack will say again, however often it is asked.
fn is_final(code: &str) -> bool {
    const NEVER: &[&str] = &[
        "access_denied",
        "account_inactive",
        "as_user_not_supported",
        "cant_update_message",
        "channel_not_found",
        "edit_window_closed",
        "ekm_access_denied",
        "enterprise_is_restricted",
        "invalid_arguments",
        "invalid_auth",
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "is_archived",
        "is_inactive",
        "messages_tab_disabled",
        "metadata_too_large",
        "missing_scope",
        "msg_blocks_too_long",
        "msg_too_long",
        "no_permission",
        "no_text",
        "not_allowed_token_type",
        "not_authed",
        "not_in_channel",
        "org_login_required",
        "restricted_action",
        "restricted_action_non_threadable_channel",
        "restricted_action_read_only_channel",
        "restricted_action_thread_locked",
        "restricted_action_thread_only_channel",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
        "unknown_method",
    ];
    NEVER.contains(&code)
}
