//! Says how an ask ended in the chats where it was asked. What was sent cannot be changed, so this is another message. If
//! it fails after it was accepted, it is sent again, once, or when the person writes.

use super::Whatsapp;
use super::callback_data::{CallbackData, Kind};
use super::client::{Content, Outgoing};
use super::contacts::Contacts;
use super::errors::Verdict;
use super::messages::About;
use super::outbox::Sent;
use super::owed::{Note, Why};
use super::payload::Status;
use super::posting::LISTEN;
use super::text::{self, Audience};
use super::together::Turn;
use crate::host::backoff::Backoff;
use crate::host::channel::{NotStored, load};
use crate::host::port::Updated;
use crate::sabotage::on;
use askd_core::{Ask, AskId, ChannelName, Via, WidgetState, wording};
use jiff::Zoned;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// First and longest pause before a closing message is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// The pause before it is tried again, after a refusal that an operator can mend.
const MENDING: Duration = Duration::from_secs(300);

impl Whatsapp {
    /// Says how the ask ended, once the person can be reached.
    pub(super) async fn close(&self, ask: &Ask, route: usize) -> Updated {
        let Some(widget) = ask.widgets.get(route) else { return Updated::Done };
        let chat = &widget.route.chat;
        self.knows_windows().await;
        let reachable = self.0.contacts.window_is_open(chat);
        if matches!(widget.state, WidgetState::Closed { .. }) {
            // Only what is new is said, and only if the person can be reached.
            if !reachable {
                return Updated::Done;
            }
            return self.send_closing(ask, route, |ask, audience, _| text::update(ask, audience)).await;
        }
        if !reachable {
            return Updated::Held { person: chat.clone(), until: self.now() + ask.rules.keep };
        }
        let closed = self.send_closing(ask, route, text::closing).await;
        if matches!(closed, Updated::Done | Updated::Never(_)) && self.tell_others(ask, route, chat) {
            // If this fails, they are told unless the daemon is killed before.
            let _not_stored = self.0.contacts.save().await;
            self.0.outbox.resume();
        }
        closed
    }

    /// The same in a task of its own, which waits until the person can be reached.
    async fn close_once_open(&self, ask: &Ask, route: usize) -> Updated {
        let Some(place) = ask.route(route) else { return Updated::Done };
        let opens = self.0.contacts.window_opens(&place.chat, self.now() + ask.rules.keep);
        match self.0.ctx.unless_cut(opens).await {
            // The wait may have been long: the next try says what is true by then.
            Some(true) if self.has_changed(ask).await => Updated::Later(None),
            Some(true) => self.send_closing(ask, route, text::closing).await,
            Some(false) => Updated::Never(wording::NEVER_WROTE.to_owned()),
            None => Updated::Later(None),
        }
    }

    /// Tells the people besides the chat who had begun to answer here; `true` if there are any.
    fn tell_others(&self, ask: &Ask, route: usize, chat: &str) -> bool {
        let mut told = false;
        for so_far in ask.so_far.iter().filter(|so_far| so_far.route == route) {
            let person = &so_far.person.id;
            if !self.is_same_person(person, chat) && !self.has_ended(ask, person) {
                let why = Why::new(ask.settled_at().unwrap_or_default(), format!("{}-{person}", ask.id));
                let text = text::closing(ask, Audience::HadBegun, &self.now_in(chat)).join("\n");
                let (to, ask) = (person.clone(), Some(ask.id));
                self.0.contacts.owe(&Note { to, text, ask, question: 0, confirms: None }, &why);
                told = true;
            }
        }
        told
    }

    async fn send_closing(&self, ask: &Ask, route: usize, texts: fn(&Ask, Audience, &Zoned) -> Vec<String>) -> Updated {
        let Some(widget) = ask.widgets.get(route) else { return Updated::Done };
        let to = widget.route.chat.as_str();
        // Of several questions the first: a later one opens with the receipt of the answer before it.
        let first = widget.messages().rfind(|id| widget.question_of(id) == Some(0));
        let mut quotes = first.filter(|_| widget.one_by_one.to.is_none());
        let mut texts = texts(ask, self.audience(ask, to), &self.now_in(to));
        // Some people have seen an invitation at most.
        let was_asked = widget.messages().any(|id| widget.question_of(id).is_some());
        if let (Some(text), Some(question), false) = (texts.first_mut(), ask.content.questions.first(), was_asked) {
            text.insert_str(0, &format!("{}\n", wording::question_was(&text::in_short(question))));
        }
        for (part, text) in texts.iter().enumerate() {
            let callback = CallbackData { ask: ask.id, route, attempt: widget.attempt, part, kind: Kind::Closing };
            let mut message = Outgoing { to, content: Content::Text(text), callback: Some(callback), quotes };
            loop {
                let mut closings = self.0.closings.subscribe();
                let heard_of_it = async {
                    loop {
                        match closings.recv().await {
                            Ok(told) if told == callback => return true,
                            Ok(_) | Err(RecvError::Lagged(_)) => {}
                            Err(RecvError::Closed) => return false,
                        }
                    }
                };
                match self.0.outbox.send(&message, 1).await {
                    Sent::Accepted(id, _) => {
                        self.0.contacts.is_about(&id, About::Ask(ask.id));
                        // If this fails, the status says it again.
                        let _not_stored = self.0.contacts.save().await;
                        break;
                    }
                    Sent::Lost(_) => {
                        let heard_of_it = self.0.ctx.clock().timeout(LISTEN, heard_of_it);
                        if self.0.ctx.unless_cut(heard_of_it).await.flatten() != Some(true) {
                            return Updated::Later(None);
                        }
                        break;
                    }
                    Sent::NotBegun => return Updated::Later(None),
                    Sent::Refused(Verdict::WindowClosed) => {
                        self.window_closed(to).await;
                        return Updated::Later(None);
                    }
                    Sent::Refused(Verdict::Retry(after, _)) => return Updated::Later(after),
                    Sent::Refused(Verdict::Barred(_, why)) => {
                        tracing::warn!(ask = %ask.id, why, "WhatsApp refused to say how a question ended; askd keeps trying");
                        return Updated::Later(Some(MENDING));
                    }
                    // The quoted message may be gone.
                    Sent::Refused(Verdict::Never(..)) if quotes.is_some() => {
                        quotes = None;
                        message.quotes = None;
                    }
                    Sent::Refused(Verdict::Never(_, why)) => return Updated::Never(why),
                    Sent::Refused(Verdict::TemplateParameters) => return Updated::Never("132000".to_owned()),
                }
            }
        }
        self.0.begun.lock().retain(|(id, ..), _| *id != ask.id);
        Updated::Done
    }

    fn is_same_person(&self, one: &str, other: &str) -> bool {
        self.0.contacts.person(one) == self.0.contacts.person(other)
    }

    /// What that person has to do with how the ask ended.
    fn audience(&self, ask: &Ask, person: &str) -> Audience {
        if self.has_ended(ask, person) {
            Audience::Ender
        } else if ask.so_far.iter().any(|so_far| self.is_same_person(&so_far.person.id, person)) {
            Audience::HadBegun
        } else {
            Audience::Others
        }
    }

    /// Whether that person ended the ask here, or answered it late.
    pub(super) fn has_ended(&self, ask: &Ask, person: &str) -> bool {
        let by = ask
            .answered_late_by()
            .or_else(|| ask.ended_by())
            .filter(|by| by.via == Via::Channel(ChannelName::WHATSAPP));
        by.is_some_and(|by| self.is_same_person(&by.id, person))
    }

    async fn has_changed(&self, ask: &Ask) -> bool {
        let Some(broker) = self.broker() else { return false };
        matches!(load(&broker, ask.id).await, Ok(Some(now)) if now.remark() != ask.remark())
    }

    /// A status told of a closing message.
    pub(super) fn heard_of_closing(&self, closing: CallbackData) {
        self.0.contacts.heard_of_closing(closing);
        let _no_task_waits = self.0.closings.send(closing);
    }

    /// Deals with a closing message that was accepted and will not be displayed. `window`: because the window is closed.
    pub(super) async fn closing_failed(
        &self,
        turn: Turn<'_>,
        callback: &CallbackData,
        status: &Status,
        window: bool,
    ) -> Result<(), NotStored> {
        self.heard_of_closing(*callback);
        if self.0.contacts.has_seen(&status.id) || on("noreclose") {
            return turn.end().await;
        }
        let again = self.0.contacts.closing_failed(callback.ask, callback.route, window);
        self.0.contacts.saw(&status.id);
        turn.end().await?;
        match again {
            Some(true) => self.close_what_is_owed(),
            Some(false) => {}
            None => report(callback.ask, callback.route, "it failed again after it was accepted"),
        }
        Ok(())
    }

    /// Goes on with the closing messages that an earlier run still had to send again.
    pub(super) fn close_what_is_owed(&self) {
        for (ask, route) in self.0.contacts.closings_owed() {
            if self.0.contacts.sends() && self.0.closing_again.lock().insert((ask, route)) {
                self.close_again(ask, route);
            }
        }
    }

    /// The platform says that the window of that person is closed.
    pub(super) async fn window_closed(&self, person: &str) {
        let now = self.now();
        // If this fails, the platform says it again.
        let ((), _not_stored) = self.0.contacts.change_of(person, |contacts| contacts.window_closed(person, now)).await;
    }

    /// Tries in the background until the message is sent, or never can be.
    fn close_again(&self, id: AskId, route: usize) {
        let channel = self.clone();
        self.0.ctx.finish(async move {
            let (mut backoff, mut at_least) = (Backoff::new(AGAIN.0, AGAIN.1), Duration::ZERO);
            let mut chat = String::new();
            while channel.0.ctx.pause(backoff.pause().max(at_least)).await {
                let Some(broker) = channel.broker() else { return };
                let closed = match load(&broker, id).await {
                    Ok(Some(ask)) => {
                        chat = ask.route(route).map(|place| place.chat.clone()).unwrap_or_default();
                        channel.close_once_open(&ask, route).await
                    }
                    Ok(None) => Updated::Never("its outcome is not kept any more".to_owned()),
                    Err(NotStored) => Updated::Later(None),
                };
                match closed {
                    Updated::Held { .. } => continue,
                    Updated::Later(after) => {
                        at_least = after.unwrap_or_default();
                        continue;
                    }
                    Updated::Never(why) => report(id, route, &why),
                    Updated::Done => {}
                }
                let done = |contacts: &Contacts| contacts.closing_done(id, route);
                // If this fails, it is sent once more after a restart.
                let ((), _not_stored) = channel.0.contacts.change_of(&chat, done).await;
                channel.0.closing_again.lock().remove(&(id, route));
                // It may have failed once more meanwhile.
                return channel.close_what_is_owed();
            }
        });
    }
}

/// Tells the operator, who alone can help.
fn report(ask: AskId, route: usize, why: &str) {
    tracing::error!(%ask, route, why, "a card cannot be updated");
}
