//! Questions, invitations to write and notes on their way to a person.

use super::callback_data::{CallbackData, Kind};
use super::client::{Content, Outgoing, Sent};
use super::errors::Verdict;
use super::send_log::Attempt;
use super::text::{self, How};
use super::{Whatsapp, deadline_text};
use askd_core::{Ask, ChannelName, Found, Left, Posted, Time, Trouble, wording};
use std::time::Duration;

/// How long a status is waited for that says what became of a message whose call was lost.
pub(super) const LISTEN: Duration = Duration::from_secs(60);
/// How often a note is tried.
const NOTE_TRIES: u8 = 3;

impl Whatsapp {
    /// Posts the next question of a route. `None`: the daemon stops before all of it has left.
    pub(super) async fn post_question(&self, ask: &Ask, route: usize, attempt: u8) -> Option<Posted> {
        let (Some(place), Some(widget)) = (ask.rules.routes.get(route), ask.widgets.get(route)) else {
            return Some(Posted::Never { trouble: Trouble::Unknown, why: "the route is gone".to_owned() });
        };
        let to = widget.one_by_one.to.as_deref().unwrap_or(&place.chat);
        if !self.0.contacts.is_open(to, self.now()) {
            return self.invite(ask, route, attempt, to).await;
        }
        let part = widget.one_by_one.index;
        let key = (ask.id, route, part);
        let texts = self.texts(ask, route, part, to, widget.one_by_one.repeated);
        // A repetition says everything again; after a refusal only the rest is owed.
        let mut up =
            if widget.one_by_one.repeated { Vec::new() } else { self.0.begun.lock().remove(&key).unwrap_or_default() };
        let mut left = None;
        for (at, text) in texts.iter().enumerate().skip(up.len()) {
            let kind = if at + 1 == texts.len() { Kind::Question } else { Kind::Part };
            let tag = CallbackData { ask: ask.id, route, attempt, part, kind }.to_string();
            let message = Outgoing { to, content: Content::Text(text), tag, quotes: None };
            let (sent, when) = self.send(&message, attempt).await;
            let posted = match sent {
                Sent::Id(id) => {
                    up.push(id);
                    left = when;
                    continue;
                }
                Sent::NotBegun => return None,
                // Only the last part counts.
                Sent::Lost => Posted::Unknown(when.filter(|_| kind == Kind::Question)),
                Sent::Refused(Verdict::Window) => {
                    self.0.contacts.lapsed(to, self.now());
                    return self.invite(ask, route, attempt, to).await;
                }
                Sent::Refused(verdict) => refused(verdict),
            };
            if !up.is_empty() {
                self.0.begun.lock().insert(key, up);
            }
            return Some(posted);
        }
        Some(Posted::Accepted(up, left))
    }

    /// A question as the person is to read it.
    pub(super) fn texts(&self, ask: &Ask, route: usize, part: usize, to: &str, repeat: bool) -> Vec<String> {
        let broker = self.broker();
        let chat = ask.rules.routes.get(route).map_or("", |place| &place.chat);
        let shared = broker.as_ref().is_some_and(|broker| broker.settings().shares(ChannelName::WHATSAPP, chat));
        let ids = self.0.contacts.person(&[to.to_owned()]);
        let several = broker.is_some_and(|broker| broker.asked_of(&ids).iter().any(|id| *id != ask.id));
        if ask.is_blocked() {
            return text::blocked(ask);
        }
        let until = deadline_text::line(ask, self.now());
        let how = How {
            group: shared.then_some(ask.group.as_str()),
            code: several.then_some(ask.short_id.as_str()),
            repeat,
            until: Some(&until),
        };
        text::question(&ask.content, part, how)
    }

    /// The chat is closed for us: an approved template asks the person to write.
    async fn invite(&self, ask: &Ask, route: usize, attempt: u8, to: &str) -> Option<Posted> {
        let settings = self.0.client.settings();
        let Some(template) = settings.template.as_deref() else {
            return Some(refused(Verdict::Window));
        };
        let person = self.0.contacts.one_name(to);
        let _one_at_a_time = self.0.reading.lock(format!("invite {person}")).await;
        if let Some(invited) = self.0.invited.lock().get(&person) {
            // One invitation is enough for all that waits.
            return Some(Posted::Held(invited.clone()));
        }
        let tag = CallbackData { ask: ask.id, route, attempt, part: 0, kind: Kind::Template }.to_string();
        let with = |group| Content::Template(template, &settings.template_language, group);
        let message = Outgoing { to, content: with(Some(ask.group.as_str())), tag, quotes: None };
        let sent = match self.send(&message, attempt).await.0 {
            // A template without a place for the name of the group.
            Sent::Refused(Verdict::Parameters) => {
                self.send(&Outgoing { content: with(None), ..message.clone() }, attempt).await.0
            }
            sent => sent,
        };
        match sent {
            Sent::Id(id) => {
                self.0.invited.lock().insert(person, id.clone());
                Some(Posted::Held(id))
            }
            Sent::NotBegun => None,
            Sent::Lost => Some(Posted::Unknown(None)),
            Sent::Refused(verdict) => Some(refused(verdict)),
        }
    }

    /// Waits until the person has written; `false` if that did not happen by `until`.
    pub(super) async fn wait_for_window(&self, ask: &Ask, route: usize, until: Time) -> bool {
        let (Some(place), Some(widget)) = (ask.rules.routes.get(route), ask.widgets.get(route)) else { return false };
        let to = widget.one_by_one.to.as_deref().unwrap_or(&place.chat);
        self.window(to, until).await
    }

    pub(super) async fn window(&self, to: &str, until: Time) -> bool {
        let mut inbound = self.0.contacts.inbound();
        // What is left is counted once, because the clock may be set during the wait.
        let over = self.0.ctx.clock().sleep_until(until);
        tokio::pin!(over);
        loop {
            inbound.borrow_and_update();
            if self.0.contacts.is_open(to, self.now()) {
                return true;
            }
            tokio::select! {
                changed = inbound.changed() => if changed.is_err() { return false },
                () = &mut over => return false,
            }
        }
    }

    /// There is no history to look into. What did not begin to leave before a restart is not there; of the
    /// rest a status tells, which reaches the ask by itself: within a minute or not at all. (Half of that
    /// was too short for a thousand asks at once: what was there was asked again.)
    pub(super) async fn find_sent(&self, ask: &Ask, route: usize) -> Found {
        if let Some(widget) = ask.widgets.get(route)
            && !self.0.send_log.may_have_left(Attempt { ask: ask.id, route, number: widget.attempt })
        {
            return Found::Absent;
        }
        self.0.ctx.clock().sleep(LISTEN).await;
        Found::CannotKnow
    }

    /// Sends something that nothing depends on, in the background.
    pub(super) fn note(&self, to: &str, ask: Option<&Ask>, text: String) {
        self.send_aside(to, ask, text, None);
    }

    /// The same for a request for confirmation. `confirms` names the person and the request.
    pub(super) fn note_to_confirm(&self, to: &str, ask: &Ask, text: String, confirms: (String, u8)) {
        self.send_aside(to, Some(ask), text, Some(confirms));
    }

    fn send_aside(&self, to: &str, ask: Option<&Ask>, text: String, confirms: Option<(String, u8)>) {
        // Each request for confirmation is about other words, so one on its way does not stand for the next.
        let key = (to.to_owned(), text, confirms.as_ref().map(|(_, nth)| *nth));
        if !self.0.notes.lock().insert(key.clone()) {
            return;
        }
        let (channel, ask) = (self.clone(), ask.map(|ask| ask.id));
        self.0.ctx.finish(async move {
            let (to, text, _) = &key;
            for text in text::note(text) {
                let (attempt, kind) = confirms.as_ref().map_or((0, Kind::Note), |(_, nth)| (*nth, Kind::Confirmation));
                let tag = ask.map(|ask| CallbackData { ask, route: 0, attempt, part: 0, kind });
                let sent = channel.send_note(to, &text, tag).await;
                if let (Some((id, left)), Some((person, nth))) = (sent, &confirms) {
                    channel.0.contacts.confirmation_left(person, *nth, &id, left.by, false);
                    // In doubt, askd asks once more.
                    let _not_stored = channel.save().await;
                }
            }
            channel.0.notes.lock().remove(&key);
        });
    }

    /// The id of what was sent, and when it left.
    async fn send_note(&self, to: &str, text: &str, tag: Option<CallbackData>) -> Option<(String, Left)> {
        let named = tag.map(|tag| tag.to_string()).unwrap_or_default();
        for attempt in 1..=NOTE_TRIES {
            let message = Outgoing { to, content: Content::Text(text), tag: named.clone(), quotes: None };
            let (sent, left) = self.send(&message, attempt).await;
            match sent {
                Sent::Id(id) => {
                    if let Some(tag) = tag {
                        self.0.contacts.about(&id, tag.ask, self.now());
                    }
                    return left.map(|left| (id, left));
                }
                Sent::Refused(verdict @ (Verdict::Again(_) | Verdict::Away)) => {
                    let after = if let Verdict::Again(after) = verdict { after } else { None };
                    let wait = after.unwrap_or(Duration::from_secs(2));
                    if !self.until(self.ticks() + u64::try_from(wait.as_millis()).unwrap_or(2_000)).await {
                        return None;
                    }
                }
                // Rather twice than not at all: somebody waits for a word.
                Sent::Lost => {}
                Sent::Refused(_) | Sent::NotBegun => return None,
            }
        }
        None
    }
}

fn refused(verdict: Verdict) -> Posted {
    let never = |trouble, why: &str| Posted::Never { trouble, why: why.to_owned() };
    match verdict {
        Verdict::Again(after) => {
            let trouble = if after.is_some() { Trouble::RateLimited } else { Trouble::Unknown };
            let retry_after_millis = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            Posted::NotPosted { retry_after_millis, trouble }
        }
        Verdict::Away => Posted::NotPosted { retry_after_millis: None, trouble: Trouble::NoConnection },
        Verdict::Never(trouble, why) => Posted::Never { trouble, why },
        Verdict::Window => never(Trouble::WindowClosed, wording::NO_TEMPLATE),
        Verdict::Parameters => never(Trouble::Refused, wording::TEMPLATE_PARAMETERS),
    }
}
