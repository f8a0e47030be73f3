//! Takes in what people write: who wrote it, what they were asked, and whether the same message came before.
//! [`super::answering`] reads what it means.
//!
//! An answer is on disk before the webhook is acknowledged. Strangers get no reply, and chat that answers nothing is
//! left alone.

use super::payload::{Body, ChangedIds, Message, Notification};
use super::reading;
use super::resolve::{Candidate, State, Times};
use super::{Whatsapp, contacts};
use crate::host::broker::{Broker, Failure, Named};
use crate::sabotage::{crash_point, on};
use askd_core::{
    Ask, AskId, ChannelName, Event, Given, Heard, Names, Person, Reply, Responders, ShortId, Source, Time, Via,
    WidgetState, wording,
};
use std::time::Duration;

/// Meta repeats webhooks for up to 7 days: a new message cannot be about a question that was settled before that.
const REPEATED: Duration = Duration::from_secs(8 * 86_400);

/// It could not be stored: it has to come again.
#[derive(Debug)]
pub(super) struct NotStored;

/// An ask that a person may answer on a route, and who they are there.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) route: usize,
    pub(super) person: String,
    /// It may have a message in the chat whose id we do not know yet.
    nameless: bool,
}

/// A message, and who sent it.
pub(super) struct Sender<'a> {
    pub(super) message: &'a Message,
    pub(super) ids: Vec<String>,
    /// Where to write to.
    pub(super) reply_to: String,
    /// One name for the person, the same for all their ids.
    pub(super) name: String,
    /// When the platform received the message.
    pub(super) at: Option<Time>,
    /// Before this message the chat was closed: we could not write to the person.
    pub(super) opened: bool,
}

impl Whatsapp {
    /// Takes in what a webhook told, in order. `Ok`: all of it is on stable storage or needs nothing.
    pub(super) async fn take(&self, told: Vec<Notification>) -> Result<(), NotStored> {
        let Some(broker) = self.broker() else { return Err(NotStored) };
        let mut wrote = false;
        for told in told {
            match told {
                Notification::Status(status) => self.status(&broker, status).await?,
                Notification::Message(message) => {
                    self.message(&broker, &message).await?;
                    wrote = true;
                }
                Notification::ChangedIds(renamed) => {
                    self.renamed(&broker, &renamed);
                    wrote = true;
                }
            }
        }
        if wrote {
            self.save().await?;
            crash_point("inbound.saved");
        }
        Ok(())
    }

    pub(super) async fn save(&self) -> Result<(), NotStored> {
        self.0.contacts.save(self.now()).await.map_err(|error| {
            tracing::error!(%error, "cannot write state/channels/whatsapp.json");
            NotStored
        })
    }

    async fn message(&self, broker: &Broker, message: &Message) -> Result<(), NotStored> {
        let contacts = &self.0.contacts;
        let told: Vec<String> = [&message.ids.wa_id, &message.ids.user_id].into_iter().flatten().cloned().collect();
        let (Some(reply_to), now) = (told.first().cloned(), self.now()) else { return Ok(()) };
        if message.in_group {
            return Ok(());
        }
        let name = contacts.one_name(&reply_to);
        let _one_at_a_time = self.0.reading.lock(name.clone()).await;
        // Never later than now: a message from the future must not keep a chat open for ever.
        let written = message.at.map(|at| at.min(now));
        if contacts.has_seen(&message.id) || written.is_some_and(|at| at + contacts::KEEP < now) {
            return Ok(());
        }
        let ids = contacts.person(&told);
        let knows = broker.settings().may_write_on_whatsapp(&ids) || !broker.asked_of(&ids).is_empty();
        if !knows && broker.ended_since(&ids, now - REPEATED).is_empty() {
            self.note_stranger(broker, &reply_to);
            return self.stranger(broker, message, &ids).await;
        }
        if let (Some(number), Some(scoped)) = (&message.ids.wa_id, &message.ids.user_id) {
            contacts.learn(number, scoped);
        }
        let opened = !contacts.is_open(&reply_to, now);
        let at = if on("notimerule") { Some(Time::MAX) } else { message.at };
        let sender = Sender { message, ids, reply_to, name, at, opened };
        // The ask itself knows the messages that changed it, even if a crash kept this file from being written.
        if !self.has_counted(broker, &message.id).await? {
            self.read(broker, &sender).await?;
        }
        crash_point("inbound.counted");
        let writes = !matches!(message.said, Body::Reaction | Body::Deleted | Body::Edited(_) | Body::Nothing);
        if let Some(at) = written.filter(|_| writes) {
            self.0.invited.lock().remove(&sender.name);
            contacts.wrote(&sender.ids, at);
        }
        contacts.saw(&message.id, now);
        Ok(())
    }

    /// Whether this message has already changed an ask.
    async fn has_counted(&self, broker: &Broker, message: &str) -> Result<bool, NotStored> {
        let Some(id) = broker.heard(message) else { return Ok(false) };
        let ask = broker.show(id).await.map_err(|_| NotStored)?;
        Ok(ask.is_some_and(|ask| ask.was_told(message)))
    }

    /// All asks that the sender may mean: the open ones, oldest first; those that the message names; and those that
    /// ended since it was received.
    pub(super) async fn asked(&self, broker: &Broker, sender: &Sender<'_>) -> Result<Vec<Asked>, NotStored> {
        let mut asked = self.placed(broker, &broker.asked_of(&sender.ids), &sender.ids).await?;
        let since = asked.iter().filter_map(|asked| self.times(asked).called).chain(sender.at).min();
        let mut ended: Vec<AskId> = Vec::new();
        ended.extend(sender.message.quotes.as_deref().and_then(|quoted| self.subject(broker, quoted)));
        if let Body::Text(said) = &sender.message.said
            && let Ok(code) = reading::first_word(said).parse::<ShortId>()
        {
            ended.extend(broker.ended_with(&sender.ids, &code));
        }
        if let Some(since) = since.filter(|_| !asked.is_empty()) {
            let since = since - Duration::from_secs(5) - self.0.contacts.clocks_differ_by();
            ended.extend(broker.ended_since(&sender.ids, since.max(self.now() - REPEATED)));
        }
        ended.sort_unstable();
        ended.dedup();
        ended.retain(|id| asked.iter().all(|asked| asked.ask.id != *id));
        asked.extend(self.placed(broker, &ended, &sender.ids).await?);
        asked.sort_by_key(|asked| (asked.ask.outcome().is_some(), asked.ask.created_at, asked.ask.id));
        Ok(asked)
    }

    /// The asks among these that the person may answer on WhatsApp.
    async fn placed(&self, broker: &Broker, asks: &[AskId], ids: &[String]) -> Result<Vec<Asked>, NotStored> {
        let mut placed = Vec::new();
        for id in asks {
            let ask = broker.show(*id).await.map_err(|error| {
                tracing::error!(%error, "cannot read an ask");
                NotStored
            })?;
            placed.extend(ask.filter(|ask| !ask.is_blocked()).and_then(|ask| place(ask, ids)));
        }
        Ok(placed)
    }

    /// The ask that a message of ours is about.
    pub(super) fn subject(&self, broker: &Broker, message: &str) -> Option<AskId> {
        broker.of_message(message).or_else(|| self.0.contacts.subject(message))
    }

    /// When that person's next question was sent.
    pub(super) fn times(&self, asked: &Asked) -> Times {
        let Some(sending) = asked.ask.sending(asked.route, &asked.person, asked.next()) else {
            return Times::default();
        };
        Times {
            called: sending.left.map(|left| self.0.contacts.by_their_clock(left.called)),
            since: sending.since(),
            sent: sending.sent,
            delivered: sending.delivered,
        }
    }

    /// The ask as [`super::resolve`] sees it. `said`: the whole text of the message.
    pub(super) fn candidate<'a>(&self, asked: &'a Asked, sender: &Sender<'a>, said: &str) -> Candidate<'a> {
        let ask = &asked.ask;
        let mut messages: Vec<&str> = ask.widgets[asked.route].messages.iter().map(String::as_str).collect();
        messages
            .extend(sender.message.quotes.as_deref().filter(|quoted| self.0.contacts.subject(quoted) == Some(ask.id)));
        let at = ask.settled_at().map(|at| self.0.contacts.by_their_clock(at));
        let state = match at {
            None => State::Open,
            Some(at) if ask.is_late_open() => State::Late { at },
            Some(at) => State::Ended { at, theirs: ask.ended_by().is_some_and(|by| by.id == asked.person) },
        };
        Candidate {
            code: ask.short_id.as_str(),
            messages,
            nameless: asked.nameless,
            begun: ask.sending(asked.route, &asked.person, asked.next()).is_some(),
            label: asked.question().choice(said.trim()).is_some(),
            times: self.times(asked),
            state,
        }
    }

    /// Logs that an unknown person wrote while a question is open: it may be the person asked, under another id.
    fn note_stranger(&self, broker: &Broker, id: &str) {
        if broker.asks_on_whatsapp() && self.0.contacts.is_new_today(id, self.now()) {
            tracing::info!(
                number = last_four(id),
                "somebody unknown wrote on WhatsApp while a question waits for a person there; they got no reply \
                 (the last four characters of their number or id are given; a person is listed as chat or responder)"
            );
        }
    }

    /// Follows a person to a new number or id, if the platform says which one was theirs before.
    fn renamed(&self, broker: &Broker, renamed: &ChangedIds) {
        let contacts = &self.0.contacts;
        let known = |ids: &[String]| {
            let ids = contacts.person(ids);
            broker.settings().may_write_on_whatsapp(&ids) || !broker.asked_of(&ids).is_empty()
        };
        match renamed.before.first() {
            Some(before) if !renamed.now.is_empty() => {
                for other in renamed.before.iter().chain(&renamed.now) {
                    contacts.learn(before, other);
                }
                if known(&renamed.before) {
                    tracing::info!(
                        before = last_four(before),
                        "somebody who is asked on WhatsApp has another number or id; they stay who they are"
                    );
                }
            }
            before if before.is_none() || known(&renamed.before) => {
                let id = renamed.before.iter().chain(&renamed.now).next().map_or("", |id| last_four(id));
                tracing::warn!(
                    id,
                    "somebody has another number or id on WhatsApp, and it is not told both what it was and what it is: \
                     the person of a route may not be known any more; set the route's chat or responders to the new one"
                );
            }
            _ => {}
        }
    }

    /// Handles a message from an unknown person: it gets no reply and changes nothing. A try at an ask is recorded.
    async fn stranger(&self, broker: &Broker, message: &Message, ids: &[String]) -> Result<(), NotStored> {
        let Body::Text(said) = &message.said else { return Ok(()) };
        let quoted = message.quotes.as_deref().and_then(|quoted| broker.of_message(quoted));
        let code = || match broker.named(&reading::first_word(said)) {
            Named::One(id) if reading::first_word(said).parse::<ShortId>().is_ok() => Some(id),
            _ => None,
        };
        let Some(id) = quoted.or_else(code) else { return Ok(()) };
        let Ok(Some(ask)) = broker.show(id).await else { return Ok(()) };
        let Some(route) =
            ask.rules.routes.iter().take(ask.widgets.len()).position(|r| r.channel == ChannelName::WHATSAPP)
        else {
            return Ok(());
        };
        let person = Person {
            via: Via::Channel(ChannelName::WHATSAPP),
            id: ids.first().cloned().unwrap_or_default(),
            name: None,
        };
        let heard = Heard { message: message.id.clone(), at: message.at, names: Names::Nothing };
        let reply = Reply::Told { index: 0, given: Given::default(), heard };
        match broker.happen(id, Event::Replied { source: Source::Route(route), person, reply }).await {
            Err(Failure::NotStored | Failure::InDoubt) => Err(NotStored),
            _ => Ok(()),
        }
    }
}

/// The part of an id that a log may show.
fn last_four(id: &str) -> &str {
    let from = id.char_indices().rev().nth(3).map_or(0, |(at, _)| at);
    &id[from..]
}

impl Asked {
    /// The number of this person's next question.
    pub(super) fn next(&self) -> usize {
        self.ask.next_question(self.route, &self.person).unwrap_or(0)
    }

    pub(super) fn question(&self) -> &askd_core::Question {
        &self.ask.content.questions[self.next()]
    }

    pub(super) fn how_to_reply(&self) -> String {
        if self.ask.is_late_open() {
            wording::how_to_reply_late(self.question(), self.ask.short_id.as_str())
        } else {
            wording::how_to_reply(self.question())
        }
    }

    /// Whether the question of a quoted message is behind this person.
    pub(super) fn dealt_with(&self, quoted: &str) -> bool {
        let of = self.ask.widgets[self.route].question_of(quoted);
        of.is_some_and(|of| of < self.next())
    }
}

/// On which route a person was asked, and by which of their ids.
pub(super) fn place(ask: Ask, ids: &[String]) -> Option<Asked> {
    let shown = ask.rules.routes.iter().take(ask.widgets.len()).enumerate();
    let (route, person) =
        shown.filter(|(_, route)| route.channel == ChannelName::WHATSAPP).find_map(|(at, route)| {
            let known = ids.iter().find(|id| match &route.responders {
                Responders::Anyone => **id == route.chat,
                responders @ Responders::Only(_) => responders.includes(id),
            });
            // The id of the chat comes first: it is the one that is written to.
            let known = ids.iter().find(|id| **id == route.chat && route.responders.includes(id)).or(known);
            known.map(|id| (at, id.clone()))
        })?;
    let widget = &ask.widgets[route];
    let theirs = ids.contains(widget.one_by_one.to.as_ref().unwrap_or(&ask.rules.routes[route].chat));
    // One that was sent again may be there twice, under a name that nothing has told.
    let again = widget.attempt > widget.one_by_one.first_attempt.max(1);
    let nameless = theirs && (again || matches!(widget.state, WidgetState::Sent { .. } | WidgetState::Unknown { .. }));
    Some(Asked { ask, route, person, nameless })
}
