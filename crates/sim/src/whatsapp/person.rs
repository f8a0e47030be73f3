//! What people do: write, tap, react, switch the phone off, open the chat. Called by the page, the
//! control API and the handle in `mod`.

use super::clock::UnixMs;
use super::event::{self, Sending};
use super::message::{Message, Person, Stage};
use super::state::{Chat, Hub, State};

impl Hub {
    /// Somebody sends something; it waits while the phone is off. The id of the message.
    pub(super) fn person_sends(&self, who: &str, sending: &Sending, quotes: Option<&str>) -> String {
        self.person_sends_at(who, sending, quotes, None)
    }

    /// The same, but the platform received it at that time, whatever its clock says.
    pub(super) fn person_sends_at(
        &self,
        who: &str,
        sending: &Sending,
        quotes: Option<&str>,
        at: Option<UnixMs>,
    ) -> String {
        let (id, event) = {
            let mut state = self.lock();
            let wa_id = state.key_or_new(who);
            let id = state.new_id();
            let message = self.bubble(&state, id.clone(), &wa_id, sending, quotes);
            if let Sending::Reaction { on, emoji } = sending
                && let Some(target) = state.message_mut(on)
            {
                target.reaction = Some(emoji.clone()).filter(|e| !e.is_empty());
            }
            state.keep(message);
            let phone_on = state.chats.get(&wa_id).is_some_and(|c| c.phone_on);
            let event = if phone_on { self.leave(&mut state, &wa_id, &id, sending, at) } else { None };
            if !phone_on && let Some(chat) = state.chats.get_mut(&wa_id) {
                chat.unsent.push((id.clone(), sending.clone()));
            }
            (id, event)
        };
        if let Some(event) = event {
            self.tell(event);
        }
        self.bump();
        id
    }

    fn bubble(&self, state: &State, id: String, wa_id: &str, sending: &Sending, quotes: Option<&str>) -> Message {
        let (kind, text, mut on) = match sending {
            Sending::Text(text) => ("text", text.clone(), None),
            Sending::Sticker => ("sticker", String::new(), None),
            Sending::Voice => ("audio", String::new(), None),
            Sending::Image(caption) => ("image", caption.clone().unwrap_or_default(), None),
            Sending::Reaction { emoji, .. } => ("reaction", emoji.clone(), None),
            Sending::Unsupported => ("unsupported", String::new(), None),
            Sending::Tap { on, id } => {
                let tap = state.message(on).and_then(|m| m.taps.iter().find(|t| t.id == *id));
                ("button", tap.map_or_else(|| id.clone(), |t| t.title.clone()), Some(on.clone()))
            }
        };
        on = on.or_else(|| quotes.map(str::to_owned));
        Message {
            id,
            wa_id: wa_id.to_owned(),
            outgoing: false,
            kind: kind.to_owned(),
            text,
            taps: Vec::new(),
            list_label: None,
            quotes: on,
            stage: Stage::Accepted,
            error: None,
            opaque: None,
            reaction: None,
            at: self.clock.now(),
            reached: Vec::new(),
            by_user_id: false,
        }
    }

    /// The message leaves the phone: it opens the window and becomes a webhook.
    fn leave(
        &self,
        state: &mut State,
        wa_id: &str,
        id: &str,
        sending: &Sending,
        at: Option<UnixMs>,
    ) -> Option<event::Event> {
        let now = self.clock.now();
        let at = at.unwrap_or_else(|| now.max(state.chats.get(wa_id).map_or(now, Chat::has_read_until)));
        let sent = state.message_mut(id)?;
        (sent.stage, sent.at) = (Stage::Sent, at);
        let message = sent.clone();
        let on = match sending {
            Sending::Tap { on, .. } => state.message(on).cloned(),
            _ => message.quotes.as_deref().and_then(|q| state.message(q)).cloned(),
        };
        let chat = state.chats.get_mut(wa_id)?;
        if !matches!(sending, Sending::Reaction { .. }) {
            chat.last_inbound = Some(now);
        }
        Some(event::message(&self.config, &chat.person, &message, sending, on.as_ref()))
    }

    /// Switches somebody's phone. On again, what was written meanwhile leaves it.
    pub(super) fn phone(&self, who: &str, on: bool) {
        let events: Vec<event::Event> = {
            let mut state = self.lock();
            let wa_id = state.key_or_new(who);
            let waiting = match state.chats.get_mut(&wa_id) {
                Some(chat) => {
                    chat.phone_on = on;
                    if on { std::mem::take(&mut chat.unsent) } else { Vec::new() }
                }
                None => Vec::new(),
            };
            waiting
                .into_iter()
                .filter_map(|(id, sending)| self.leave(&mut state, &wa_id, &id, &sending, None))
                .collect()
        };
        for event in events {
            self.tell(event);
        }
        self.bump();
    }

    /// Somebody opens the chat: what is on the phone becomes read.
    pub(super) fn opens_chat(&self, who: &str) {
        let unread: Vec<String> = {
            let state = self.lock();
            let chat = state.key(who).and_then(|k| state.chats.get(&k)).filter(|c| c.phone_on);
            let delivered = |m: &&Message| m.outgoing && m.stage == Stage::Delivered;
            chat.map(|c| c.messages.iter().filter(delivered).map(|m| m.id.clone()).collect()).unwrap_or_default()
        };
        for id in unread {
            self.set_stage(&id, Stage::Read, None);
        }
    }

    /// The business marks a message of a person as read, and with it all before. False: no such message.
    pub(super) fn business_reads(&self, id: &str, typing: bool) -> bool {
        let now = self.clock.now();
        let known = {
            let mut state = self.lock();
            let wa_id = state.message(id).filter(|m| !m.outgoing).map(|m| m.wa_id.clone());
            let chat = wa_id.and_then(|w| state.chats.get_mut(&w));
            if let Some(chat) = chat {
                let until = chat.messages.iter().position(|m| m.id == id).unwrap_or(0);
                chat.messages[..=until].iter_mut().filter(|m| !m.outgoing).for_each(|m| m.stage = Stage::Read);
                if typing {
                    // Meta: gone with the next message, or after 25 seconds.
                    chat.typing_until = now + 25_000;
                }
                true
            } else {
                false
            }
        };
        self.bump();
        known
    }

    /// Whether a number has WhatsApp at all; without it messages fail late with 131026.
    pub(super) fn reachable(&self, who: &str, on: bool) {
        let mut state = self.lock();
        let wa_id = state.key_or_new(who);
        if let Some(chat) = state.chats.get_mut(&wa_id) {
            chat.on_whatsapp = on;
        }
    }

    pub(super) fn add_person(&self, person: Person) {
        self.lock().add(person);
        self.bump();
    }
}
