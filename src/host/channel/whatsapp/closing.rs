//! How an ask ended, told in the chats where it was asked: nothing that was sent can be changed, so it is a
//! message. One that fails after it was taken is sent again, once, or held until the person writes.

use super::callback_data::{CallbackData, Kind};
use super::client::{Content, Outgoing, Sent};
use super::errors::Verdict;
use super::inbound::NotStored;
use super::payload::Status;
use super::posting::LISTEN;
use super::{Whatsapp, text};
use crate::host::port::Updated;
use crate::sabotage::on;
use askd_core::{Ask, AskId, ChannelName, Late, SoFar, Time, Via, WidgetState, wording};
use std::time::Duration;

/// First and longest pause before a closing line is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

impl Whatsapp {
    /// Says how the ask ended, in a message: nothing that was sent can be changed. Outside the window it
    /// waits until the person writes.
    pub(super) async fn close(&self, ask: &Ask, route: usize) -> Updated {
        if ask.widgets.get(route).is_some_and(|widget| widget.state == WidgetState::Closed) {
            return self.say_what_is_new(ask, route).await;
        }
        let closed = self.say(ask, route, text::closing).await;
        if !matches!(closed, Updated::Later(_)) {
            self.tell_others(ask, route);
        }
        closed
    }

    /// Closed before: only what is new is said, and only to whoever can be reached.
    async fn say_what_is_new(&self, ask: &Ask, route: usize) -> Updated {
        let Some(place) = ask.rules.routes.get(route) else { return Updated::Done };
        if !self.0.contacts.is_open(&place.chat, self.now()) {
            return Updated::Done;
        }
        self.say(ask, route, |ask, told, _| text::update(ask, told)).await
    }

    /// Whoever else had begun to answer here.
    fn tell_others(&self, ask: &Ask, route: usize) {
        let Some(place) = ask.rules.routes.get(route) else { return };
        let chat = self.0.contacts.one_name(&place.chat);
        for so_far in ask.so_far.iter().filter(|so_far| so_far.route == route) {
            let person = &so_far.person.id;
            if self.0.contacts.one_name(person) != chat && !self.ended_by(ask, person) {
                self.note(person, Some(ask), text::closing(ask, text::Audience::HadBegun, self.now()).join("\n"));
            }
        }
    }

    async fn say(&self, ask: &Ask, route: usize, texts: fn(&Ask, text::Audience, Time) -> Vec<String>) -> Updated {
        let (Some(place), Some(widget)) = (ask.rules.routes.get(route), ask.widgets.get(route)) else {
            return Updated::Done;
        };
        let (to, now) = (place.chat.as_str(), self.now());
        match self.0.ctx.unless_cut(self.window(to, now + ask.rules.keep)).await {
            Some(true) => {}
            Some(false) => return Updated::Never(wording::NEVER_WROTE.to_owned()),
            None => return Updated::Later(None),
        }
        // Something else is to be said by now: the wait may have been long.
        if self.has_changed(ask).await {
            return Updated::Later(None);
        }
        let now = self.now();
        let mut quotes = widget.messages.last().map(String::as_str).filter(|_| widget.one_by_one.to.is_none());
        for (part, text) in texts(ask, self.told(ask, to), now).iter().enumerate() {
            let tag = CallbackData { ask: ask.id, route, attempt: widget.attempt, part, kind: Kind::Closing };
            loop {
                let message = Outgoing { to, content: Content::Text(text), tag: tag.to_string(), quotes };
                match self.send(&message, 1).await.0 {
                    Sent::Id(id) => {
                        self.0.contacts.about(&id, ask.id, self.now());
                        break;
                    }
                    Sent::Lost if self.heard_of(&tag).await => break,
                    Sent::Lost | Sent::NotBegun | Sent::Refused(Verdict::Away) => return Updated::Later(None),
                    Sent::Refused(Verdict::Window) => {
                        self.0.contacts.lapsed(to, self.now());
                        return Updated::Later(None);
                    }
                    Sent::Refused(Verdict::Again(after)) => return Updated::Later(after),
                    // What it quotes may be gone.
                    Sent::Refused(Verdict::Never(..)) if quotes.is_some() => quotes = None,
                    Sent::Refused(Verdict::Never(_, why)) => return Updated::Never(why),
                    Sent::Refused(Verdict::Parameters) => return Updated::Never("132000".to_owned()),
                }
            }
        }
        self.0.begun.lock().retain(|(id, ..), _| *id != ask.id);
        Updated::Done
    }

    /// What that person has to do with how it ended.
    fn told(&self, ask: &Ask, person: &str) -> text::Audience {
        let began = |so_far: &SoFar| self.0.contacts.one_name(&so_far.person.id) == self.0.contacts.one_name(person);
        if self.ended_by(ask, person) {
            text::Audience::Ender
        } else if ask.so_far.iter().any(began) {
            text::Audience::HadBegun
        } else {
            text::Audience::Others
        }
    }

    async fn has_changed(&self, ask: &Ask) -> bool {
        let Some(broker) = self.broker() else { return false };
        matches!(broker.show(ask.id).await, Ok(Some(now)) if now.remark() != ask.remark())
    }

    /// Whether the person of that chat ended the ask here, or answered it late.
    fn ended_by(&self, ask: &Ask, chat: &str) -> bool {
        let late = if let Late::Answered { by, .. } = &ask.follow_up.late { Some(by) } else { None };
        let Some(by) = late.or_else(|| ask.ended_by()) else { return false };
        by.via == Via::Channel(ChannelName::WHATSAPP)
            && self.0.contacts.one_name(&by.id) == self.0.contacts.one_name(chat)
    }

    /// Whether a status told of a closing line whose call was lost.
    async fn heard_of(&self, tag: &CallbackData) -> bool {
        let key = (tag.ask, tag.route, tag.part);
        let end = self.ticks() + u64::try_from(LISTEN.as_millis()).unwrap_or(u64::MAX);
        while self.ticks() < end {
            if self.0.closed.lock().remove(&key) {
                return true;
            }
            if !self.until(self.ticks() + 250).await {
                return false;
            }
        }
        false
    }

    /// A status tells that a closing line is there.
    pub(super) fn told_closed(&self, tag: &CallbackData) {
        // Only somebody who lost the answer to the call looks for it, and at once.
        let mut closed = self.0.closed.lock();
        if closed.len() > 10_000 {
            closed.clear();
        }
        closed.insert((tag.ask, tag.route, tag.part));
    }

    /// A closing line that was taken will not be displayed: `window`, because the person has to write first.
    pub(super) async fn not_closed(&self, tag: &CallbackData, status: &Status, window: bool) -> Result<(), NotStored> {
        self.told_closed(tag);
        if self.0.contacts.has_seen(&status.id) || on("noreclose") {
            return Ok(());
        }
        let again = self.0.contacts.unclosed(tag.ask, tag.route, window, self.now());
        self.0.contacts.saw(&status.id, self.now());
        self.save().await?;
        match again {
            Some(true) => self.close_again(tag.ask, tag.route),
            // It is on its way again already.
            Some(false) => {}
            None => report(tag.ask, tag.route, "it failed again after it was taken"),
        }
        Ok(())
    }

    /// Goes on with what a stop or a crash left.
    pub(super) fn close_what_is_owed(&self) {
        for (ask, route) in self.0.contacts.owed() {
            self.close_again(ask, route);
        }
    }

    /// Tries in the background until it is said, or never can be.
    fn close_again(&self, id: AskId, route: usize) {
        let channel = self.clone();
        self.0.ctx.finish(async move {
            let mut pause = AGAIN.0;
            loop {
                if !channel.until(channel.ticks() + u64::try_from(pause.as_millis()).unwrap_or(2_000)).await {
                    return;
                }
                let Some(broker) = channel.broker() else { return };
                let closed = match broker.show(id).await {
                    Ok(Some(ask)) => channel.say(&ask, route, text::closing).await,
                    Ok(None) => Updated::Never("its outcome is not kept any more".to_owned()),
                    Err(_) => Updated::Later(None),
                };
                match closed {
                    Updated::Done => break,
                    Updated::Never(why) => {
                        report(id, route, &why);
                        break;
                    }
                    Updated::Later(after) => pause = (pause * 2).min(AGAIN.1).max(after.unwrap_or_default()),
                }
            }
            channel.0.contacts.said(id, route);
            // Else it is said once more after a restart.
            let _not_stored = channel.save().await;
        });
    }
}

/// To the operator: nobody else can do anything about it.
fn report(ask: AskId, route: usize, why: &str) {
    tracing::error!(%ask, route, why, "a card cannot be closed");
}
