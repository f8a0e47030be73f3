//! The channel port for Slack: post, find, remind, update and close cards.

use super::client::{CALL_TIMEOUT, CallError};
use super::history::{CARD, PostedMessages, TEXT};
use super::pace::POST;
use super::payload::Posting;
use super::{Slack, render};
use crate::host::backoff::Backoff;
use crate::host::broker::WeakBroker;
use crate::host::port::{Channel, Progress, Reminded, Updated};
use crate::host::standing::Problem;
use askd_core::{
    Ask, Capabilities, ChannelName, Content, Found, Group, Posted, Rejection, Route, Stage, Trouble, WidgetState,
};
use async_trait::async_trait;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::time::Duration;

/// The first and the longest pause before askd reads a history again.
const HISTORY_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));
/// How long askd tries to read a history; after that nothing can be known. Longer than Slack ever asks us to wait for one.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(115);
/// The pause before askd tries again to change a card, after a refusal that an operator can mend.
const MENDING: Duration = Duration::from_secs(300);
/// How long askd tries to close a card in a channel that is gone for it: archived, deleted, or left by the bot.
const CLOSES_FOR: Duration = Duration::from_secs(24 * 3600);

#[async_trait]
impl Channel for Slack {
    fn name(&self) -> ChannelName {
        ChannelName::SLACK
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { edits: true, history: true, forms: true, lists_itself: false }
    }

    fn fits(&self, group: &Group, content: &Content) -> Result<(), Rejection> {
        render::fits(group, content)
    }

    fn takes_slot(&self, route: &Route) -> bool {
        self.0.pace.takes_turn(&route.chat)
    }

    async fn wait_for_slot(&self, route: &Route) {
        self.0.pace.turn(&route.chat).await;
    }

    fn return_slot(&self, route: &Route) {
        self.0.pace.give_back(&route.chat);
    }

    /// Posts the card, and before it the texts that do not fit into it.
    async fn post(&self, ask: &Ask, route: usize, attempt: u8, progress: Progress<'_>) -> Option<Posted> {
        let Some(place) = ask.route(route) else { return Some(nothing("no such route")) };
        let render = || {
            if let Some(blocked) = render::blocked(ask, attempt) {
                return vec![blocked];
            }
            render::card(&render::CardView::on(ask, route, attempt, self.clock().now()))
        };
        let mut messages = render();
        if messages.len() > 1 {
            messages.pop();
            if let Err(posted) = self.post_texts(ask, route, attempt, &messages, progress).await {
                return Some(posted);
            }
            // Rendered again: the texts took time, and the card says until when it can be answered.
            messages = render();
        }
        let Some(card) = messages.last() else { return Some(nothing("nothing to show")) };
        let payload = json!({"ask": ask.id.to_string(), "attempt": attempt.to_string()});
        Some(match self.send(&place.chat, card, CARD, &payload).await {
            Ok(ts) => Posted::Shown(ts),
            Err(error) => not_posted(&error),
        })
    }

    /// Looks for the card in the history of its channel.
    async fn find(&self, ask: &Ask, route: usize) -> Found {
        let Some(place) = ask.route(route) else { return Found::CannotKnow };
        let until = self.clock().monotonic() + HISTORY_TIMEOUT;
        let mut backoff = Backoff::new(HISTORY_PAUSES.0, HISTORY_PAUSES.1);
        loop {
            let wait = match self.posted_messages(ask, &place.chat).await {
                Ok(PostedMessages { cards, partly_read, rest_after, .. }) => match (cards.last(), rest_after) {
                    (Some(ts), _) => return Found::Widget(ts.clone()),
                    (None, Some(wait)) => wait,
                    (None, None) if !partly_read => return Found::Absent,
                    (None, None) => {
                        tracing::warn!(ask = %ask.id, "too many messages came after the card: it may appear twice");
                        return Found::CannotKnow;
                    }
                },
                Err(ref error @ CallError::Refused { ref code, .. }) if is_final(code) => {
                    tracing::warn!(ask = %ask.id, why = error.explain(), "cannot read the history: a card may appear twice");
                    return Found::CannotKnow;
                }
                Err(CallError::RateLimited(wait)) => wait,
                Err(CallError::Refused { .. } | CallError::NotSent(_) | CallError::Unknown(_)) => backoff.pause(),
            };
            if self.clock().monotonic() + wait > until {
                return Found::CannotKnow;
            }
            self.clock().sleep(wait).await;
        }
    }

    /// Posts a reminder in the thread of the card. Slack posts a reply to a message that was deleted into the channel itself,
    /// so askd looks first, and says nothing if it cannot see the card.
    async fn remind(&self, ask: &Ask, route: usize) -> Reminded {
        let card = ask.widgets.get(route).and_then(|widget| Some((&widget.route.chat, widget.messages().next_back()?)));
        let (Some((chat, ts)), Stage::Open { answer_by, .. }) = (card, &ask.stage) else {
            ask.route(route).inspect(|place| self.return_slot(place));
            return Reminded::LeftOut;
        };
        let unposted = |reminded| {
            self.0.pace.give_back(chat);
            reminded
        };
        match self.parent(chat, ts).await {
            Ok(Some(_)) => {}
            Ok(None) => return unposted(Reminded::Gone(ts.to_owned())),
            Err(error) => {
                let why = error.explain();
                tracing::warn!(ask = %ask.id, chat, why, "no reminder: askd cannot see whether the card is still there");
                return unposted(Reminded::LeftOut);
            }
        }
        let message = render::reminder(*answer_by);
        let mut body = body(chat, &message);
        body["thread_ts"] = json!(ts);
        match self.post_message(chat, &body).await {
            // The card went after that look: Slack has posted the reminder into the channel, where it belongs to nothing.
            Ok(Posting { ts: stray, message }) if message.thread_ts.is_none() => match self.parent(chat, ts).await {
                Ok(None) => {
                    let stray = json!({"channel": chat, "ts": stray});
                    if let Err(error) = self.0.client.post::<IgnoredAny>("chat.delete", chat, &stray).await {
                        tracing::warn!(ask = %ask.id, %error, "a reminder of a card that is gone could not be deleted");
                    }
                    Reminded::Gone(ts.to_owned())
                }
                _ => Reminded::Sent,
            },
            Ok(_) => Reminded::Sent,
            Err(error) => {
                tracing::warn!(ask = %ask.id, %error, "could not post a reminder");
                if let CallError::Unknown(_) = error { Reminded::Unknown } else { Reminded::LeftOut }
            }
        }
    }

    /// Updates every card of the ask in this chat.
    async fn update(&self, ask: &Ask, route: usize) -> Updated {
        if self.0.ctx.is_cut() {
            return Updated::Later(None);
        }
        Box::pin(self.update_now(ask, route)).await
    }

    fn problem(&self) -> Option<Problem> {
        self.0.client.standing.problem().or_else(|| self.0.socket.problem())
    }
}

impl Slack {
    /// Posts the texts that go before a card, except those that an earlier attempt posted.
    async fn post_texts(
        &self,
        ask: &Ask,
        route: usize,
        attempt: u8,
        texts: &[render::Message],
        progress: Progress<'_>,
    ) -> Result<(), Posted> {
        let widget = &ask.widgets[route];
        let chat = &widget.route.chat;
        let again = Posted::NotPosted { retry_after_millis: None, trouble: Trouble::Unknown };
        // After this time askd would search for messages that it has not sent yet. Each text that Slack takes extends it.
        let deadline = |left: Duration| self.clock().monotonic() + left.saturating_sub(Duration::from_secs(1));
        let render_by = if let WidgetState::Sent { render_by, .. } = widget.state { Some(render_by) } else { None };
        let left = render_by.map_or(ask.rules.render_timeout, |render_by| render_by.since(self.clock().now()));
        let mut until = deadline(left);
        // The daemon that ran before this one, or held the group, may have begun to post it.
        let broker = self.0.broker.get().and_then(WeakBroker::upgrade);
        let is_new = attempt == 1 && broker.is_some_and(|broker| broker.is_first_to_post(ask));
        let posted = if is_new {
            PostedMessages::default()
        } else {
            match self.posted_messages(ask, chat).await {
                Ok(PostedMessages { rest_after: Some(wait), .. }) => {
                    self.0.pace.give_back(chat);
                    return Err(not_posted(&CallError::RateLimited(wait)));
                }
                Ok(posted) => posted,
                // It will not be readable later, either.
                Err(ref error @ CallError::Refused { ref code, .. }) if is_final(code) => {
                    tracing::warn!(ask = %ask.id, why = error.explain(), "cannot read the history: texts may appear twice");
                    PostedMessages::default()
                }
                Err(error) => {
                    self.0.pace.give_back(chat);
                    return Err(if let CallError::RateLimited(_) = error { not_posted(&error) } else { again });
                }
            }
        };
        for (part, text) in texts.iter().enumerate().filter(|(part, _)| !posted.texts.contains(part)) {
            let payload = json!({"ask": ask.id.to_string(), "part": part.to_string()});
            loop {
                let result = self.send(chat, text, TEXT, &payload).await;
                if result.is_ok() {
                    progress();
                    until = deadline(ask.rules.render_timeout);
                }
                // A rate limit is waited for too, if it is short enough.
                let in_time = self.0.pace.another(chat, until).await;
                match result {
                    Ok(_) if in_time => break,
                    Err(CallError::RateLimited(_)) if in_time => {}
                    // The next attempt will see whether the text is there. The card certainly is not.
                    Ok(_) | Err(CallError::Unknown(_)) => return Err(again),
                    Err(error) => return Err(not_posted(&error)),
                }
            }
        }
        Ok(())
    }

    /// Posts a message that the history can be searched for; its `ts`.
    async fn send(
        &self,
        chat: &str,
        message: &render::Message,
        event_type: &str,
        event_payload: &Value,
    ) -> Result<String, CallError> {
        let mut body = body(chat, message);
        body["unfurl_links"] = json!(false);
        body["unfurl_media"] = json!(false);
        body["metadata"] = json!({"event_type": event_type, "event_payload": event_payload});
        let Posting { ts, .. } = self.post_message(chat, &body).await?;
        if ts.is_empty() { Err(CallError::Unknown("an answer without ts".to_owned())) } else { Ok(ts) }
    }

    async fn post_message(&self, chat: &str, body: &Value) -> Result<Posting, CallError> {
        // It fails only if the lease ends just now.
        self.0.ctx.until_calls_may_begin().await;
        self.0.pace.posting(chat, CALL_TIMEOUT);
        let posted = self.0.client.post(POST, chat, body).await;
        self.0.pace.posted(chat).await;
        posted
    }

    async fn update_now(&self, ask: &Ask, route: usize) -> Updated {
        let attempt = ask.widgets.get(route).map_or(1, |widget| widget.attempt);
        if ask.is_over() {
            let Some(closed) = render::closed(ask, route) else { return Updated::Done };
            self.update_cards(ask, route, &closed).await
        } else if let Some(blocked) = render::blocked(ask, attempt) {
            let updated = self.update_cards(ask, route, &blocked).await;
            // An agent may ask in a loop: the next number is shown a pace later.
            self.0.ctx.pause(self.0.settings.pace).await;
            updated
        } else {
            let messages = render::card(&render::CardView::on(ask, route, attempt, self.clock().now()));
            let Some(card) = messages.last() else { return Updated::Done };
            self.update_cards(ask, route, card).await
        }
    }

    async fn update_cards(&self, ask: &Ask, route: usize, message: &render::Message) -> Updated {
        let Some(widget) = ask.widgets.get(route) else { return Updated::Done };
        let chat = &widget.route.chat;
        let mut cards: Vec<String> = widget.messages().map(str::to_owned).collect();
        let mut rest_after = None;
        // A post that counted as lost may have appeared since.
        if widget.may_be_up_twice() || cards.is_empty() {
            match self.posted_messages(ask, chat).await {
                Ok(posted) => {
                    cards.extend(posted.cards);
                    rest_after = posted.rest_after;
                }
                Err(CallError::RateLimited(wait)) => return Updated::Later(Some(wait)),
                Err(CallError::Refused { code, .. }) if is_final(&code) => {}
                Err(_) => return Updated::Later(None),
            }
            cards.sort();
            cards.dedup();
        }
        for ts in cards {
            let mut body = body(chat, message);
            body["ts"] = json!(ts);
            match self.0.client.post::<IgnoredAny>("chat.update", chat, &body).await {
                Ok(_) => {}
                Err(CallError::Refused { code, .. }) if code == "message_not_found" => {}
                Err(ref error @ CallError::Refused { ref code, .. }) if is_about_the_message(code) => {
                    return Updated::Never(error.explain());
                }
                Err(ref error @ CallError::Refused { ref code, .. }) if is_final(code) => {
                    let why = error.explain();
                    let over = ask.last_word_at();
                    if is_gone(code) && over.is_some_and(|at| self.clock().now().since(at) >= CLOSES_FOR) {
                        return Updated::Never(why);
                    }
                    tracing::warn!(ask = %ask.id, chat, why, "Slack refused to change a card; askd keeps trying");
                    return Updated::Later(Some(MENDING));
                }
                Err(CallError::RateLimited(wait)) => return Updated::Later(Some(wait)),
                Err(_) => return Updated::Later(None),
            }
        }
        rest_after.map_or(Updated::Done, |wait| Updated::Later(Some(wait)))
    }
}

fn nothing(why: &str) -> Posted {
    Posted::Never { trouble: Trouble::Unknown, why: why.to_owned() }
}

/// A message as `chat.postMessage` and `chat.update` take it.
fn body(chat: &str, message: &render::Message) -> Value {
    json!({
        "channel": chat, "text": message.text, "blocks": message.blocks, "parse": "none", "link_names": false,
    })
}

fn not_posted(error: &CallError) -> Posted {
    match error {
        CallError::RateLimited(wait) => {
            let retry_after_millis = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            Posted::NotPosted { retry_after_millis, trouble: Trouble::RateLimited }
        }
        CallError::NotSent(why) => {
            tracing::warn!(why, "a card could not be sent to Slack; askd will post it again");
            Posted::NotPosted { retry_after_millis: None, trouble: Trouble::NoConnection }
        }
        CallError::Refused { code, .. } if is_final(code) => {
            let trouble = if is_gone(code) { Trouble::ChatNotFound } else { Trouble::Refused };
            Posted::Never { trouble, why: error.explain() }
        }
        CallError::Refused { code, .. } => {
            tracing::warn!(code, "Slack refused a card; askd will post it again");
            Posted::NotPosted { retry_after_millis: None, trouble: Trouble::Refused }
        }
        CallError::Unknown(why) => {
            tracing::warn!(why, "Slack's answer to a post was lost; looking for the card");
            Posted::Unknown(None)
        }
    }
}

/// Whether the channel is not there for the bot.
fn is_gone(code: &str) -> bool {
    matches!(code, "channel_not_found" | "is_archived" | "is_inactive")
}

/// Whether Slack refuses to change this message whatever an operator does about the app, the channel and the workspace.
fn is_about_the_message(code: &str) -> bool {
    const ABOUT: &str = "as_user_not_supported cant_update_message edit_window_closed invalid_arguments invalid_blocks \
        invalid_blocks_format invalid_metadata_format invalid_metadata_schema metadata_too_large msg_blocks_too_long \
        msg_too_long no_text unknown_method";
    ABOUT.split_whitespace().any(|known| known == code)
}

/// Whether a call that is repeated soon would be refused in the same way.
fn is_final(code: &str) -> bool {
    const MENDABLE: &str = "access_denied account_inactive channel_not_found ekm_access_denied \
        enterprise_is_restricted invalid_auth is_archived is_inactive messages_tab_disabled missing_scope \
        no_permission not_allowed_token_type not_authed not_in_channel org_login_required restricted_action \
        restricted_action_non_threadable_channel restricted_action_read_only_channel restricted_action_thread_locked \
        restricted_action_thread_only_channel team_access_not_granted token_expired token_revoked \
        two_factor_setup_required";
    is_about_the_message(code) || MENDABLE.split_whitespace().any(|known| known == code)
}
