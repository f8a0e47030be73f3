//! Takes in what webhooks tell: who wrote, what they were asked, and whether the same message came before.
//! [`super::answering`] deals with what a message means.
//!
//! An answer is on disk before the webhook is acknowledged. Strangers get no reply, and messages that answer nothing are
//! left alone.

use super::messages::About;
use super::owed::{Note, Why};
use super::payload::{Body, ChangedIds, Chosen, Message, Notification};
use super::reader::{Asked, Reader};
use super::resolve::TOLERANCE;
use super::{Whatsapp, contacts, words};
use crate::host::broker::{Broker, Named};
use crate::host::channel::{NotStored, apply, load};
use crate::sabotage::{crash_point, on};
use askd_core::{
    Ask, AskId, ChannelName, Event, Given, Heard, Names, Outcome, Person, Reply, Responders, ShortId, Source, Time, Via,
};
use std::sync::Arc;
use std::time::Duration;

/// Meta repeats webhooks for up to 7 days, so a new message cannot be about a question that was settled before that.
const REPEATED: Duration = Duration::from_secs(8 * 86_400);
/// How long a webhook waits for a status before Meta is told to send it again.
const A_MOMENT: Duration = Duration::from_secs(2);
/// After that time without a status, what waits may be too old to wait any longer.
const A_SECOND: Duration = Duration::from_secs(1);
/// How long a webhook waits until all stored asks are known.
const LOADED_WITHIN: Duration = Duration::from_millis(2_500);

/// Why a message was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untaken {
    NotStored,
    /// A status may still say what it can be about.
    Unsure,
}

impl From<NotStored> for Untaken {
    fn from(NotStored: NotStored) -> Self {
        Self::NotStored
    }
}

/// A message of a person who is, or was, asked.
pub(super) struct Incoming<'a> {
    pub(super) channel: &'a Whatsapp,
    pub(super) broker: &'a Broker,
    pub(super) message: &'a Message,
    /// All ids of the person.
    pub(super) ids: Vec<String>,
    /// The id to reply to.
    pub(super) reply_to: String,
    /// One name for the person, the same for all their ids.
    pub(super) person: String,
    /// When the platform received the message.
    pub(super) at: Option<Time>,
    /// The window was closed before this message: we could not write to the person.
    pub(super) opened: bool,
    /// A message of this person that the platform received no earlier has been dealt with already.
    overtaken: bool,
    /// Gives the notes to the sender their ids.
    why: Why,
}

impl Whatsapp {
    /// Takes in what a webhook told: first the statuses, because a message may quote what they name. `Ok`: all of it is on stable
    /// storage or needs nothing, but for these messages, which have to wait for a status.
    pub(super) async fn take(&self, mut told: Vec<Notification>) -> Result<Vec<Notification>, NotStored> {
        let Some(broker) = self.broker() else { return Err(NotStored) };
        // Whom a message means depends on all that was asked. Meta sends it again.
        self.0.ctx.clock().timeout(LOADED_WITHIN, broker.loaded()).await.ok_or(NotStored)?;
        let mut waits = Vec::new();
        told.sort_by_key(|told| !matches!(told, Notification::Status(_)));
        for told in told {
            match told {
                Notification::Status(status) => {
                    self.status(&broker, status).await?;
                    self.0.statuses.send_replace(());
                }
                Notification::Message(message) => match self.message(&broker, &message).await {
                    Ok(()) => {}
                    Err(Untaken::Unsure) => waits.push(Notification::Message(message)),
                    Err(Untaken::NotStored) => return Err(NotStored),
                },
                Notification::ChangedIds(changed) => self.changed_ids(&broker, &changed).await?,
            }
        }
        Ok(waits)
    }

    /// The same while Meta waits for our answer. If a message still waits after a moment, Meta is told to send the webhook again, because
    /// nobody knows how many it has under way at once, nor when it will, and askd goes on with the message by itself. What Meta repeats
    /// after that has been dealt with. If this daemon ends before, nothing has.
    pub(super) async fn take_when_sure(&self, told: Vec<Notification>) -> Result<(), NotStored> {
        let mut statuses = self.0.statuses.subscribe();
        let mut waits = self.take(told).await?;
        if waits.is_empty() {
            return Ok(());
        }
        let place = Arc::clone(&self.0.places).try_acquire_owned().map_err(|_full| NotStored)?;
        let (channel, ctx) = (self.clone(), self.0.ctx.clone());
        let goes_on = self.0.ctx.serve(async move {
            let _place = place;
            while !waits.is_empty() {
                tokio::select! {
                    _heard = ctx.clock().timeout(A_SECOND, statuses.changed()) => {}
                    () = channel.others_may_have_learned() => {}
                    () = ctx.stopping() => return Err(NotStored),
                }
                waits = channel.take(waits).await?;
            }
            Ok(())
        });
        let taken = self.0.ctx.clock().timeout(A_MOMENT, goes_on).await;
        taken.and_then(Result::ok).unwrap_or(Err(NotStored))
    }

    /// Other daemons may have stored something that a message waits for.
    async fn others_may_have_learned(&self) {
        match self.broker().filter(|_| self.0.contacts.has_company()) {
            Some(broker) => {
                // They store something all the time, and many messages may wait.
                self.0.ctx.clock().sleep(A_MOMENT / 4).await;
                broker.news().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Learns what other daemons have stored of asks, where they may have dealt with messages, too.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), NotStored> {
        if !self.0.contacts.has_company() || on("blindreads") {
            return Ok(());
        }
        broker.catch_up().await.map_err(|error| {
            tracing::error!(%error, "a WhatsApp message waits: what other daemons have stored cannot be read");
            NotStored
        })
    }

    async fn message(&self, broker: &Broker, message: &Message) -> Result<(), Untaken> {
        let told = message.ids.all();
        let Some(reply_to) = told.first().filter(|_| !message.in_group) else { return Ok(()) };
        let turn = self.0.contacts.turn(reply_to).await?;
        self.catch_up(broker).await?;
        let read = self.read_in_turn(broker, message, reply_to.clone(), &told).await;
        if read != Err(Untaken::NotStored) {
            turn.end().await?;
            crash_point("inbound.saved");
            self.0.outbox.resume();
        }
        read
    }

    async fn read_in_turn(
        &self,
        broker: &Broker,
        message: &Message,
        reply_to: String,
        told: &[String],
    ) -> Result<(), Untaken> {
        let (contacts, now) = (&self.0.contacts, self.now());
        let person = contacts.person(&reply_to);
        // Never later than now: a message from the future must not keep a window open for ever.
        let written = message.at.map(|at| at.min(now));
        if contacts.has_seen(&message.id) || written.is_some_and(|at| at + contacts::KEEP < now) {
            // Another daemon may have dealt with it.
            self.waits_no_more(&message.id);
            return Ok(());
        }
        let ids = contacts.ids_of_sender(told, message.at);
        if !is_known(broker, &ids) && broker.ended_since(&ids, now - REPEATED).is_empty() {
            if broker.asks_in_chats() && contacts.is_new_today(&reply_to) {
                tracing::info!(
                    number = last_four(&reply_to),
                    "an unknown person wrote on WhatsApp while a question waits for an answer there; they got no reply \
                     (the last four characters of their number or id are given; list a person as chat or responder)"
                );
            }
            return Ok(refuse_stranger(broker, message, &ids).await?);
        }
        self.same_person(&message.ids);
        let opened = !contacts.window_is_open(&reply_to);
        let overtaken = written.is_some_and(|at| contacts.has_written_since(&ids, at));
        let at = if on("notimerule") { Some(Time::MAX) } else { message.at };
        let why = Why::new(message.at.unwrap_or_default(), message.id.clone());
        let incoming = Incoming { channel: self, broker, message, ids, reply_to, person, at, opened, overtaken, why };
        // The ask itself knows the messages that changed it, even if a crash kept our file from being written.
        let read = match counted(broker, &message.id).await? {
            Some(ask) => {
                incoming.send_receipt_again(&ask);
                Ok(())
            }
            None => incoming.read().await,
        };
        if read == Err(Untaken::Unsure) {
            self.waits(&incoming);
        }
        read?;
        crash_point("inbound.counted");
        let writes = !matches!(message.body, Body::Reaction | Body::Deleted | Body::Edited(_) | Body::Nothing);
        if let Some(at) = written.filter(|_| writes) {
            self.0.invited.lock().remove(&incoming.person);
            contacts.wrote(&incoming.ids, at);
        }
        contacts.saw(&message.id);
        self.waits_no_more(&message.id);
        Ok(())
    }

    fn waits_no_more(&self, message: &str) {
        if self.0.waiting.remove(message) {
            // Another message may be behind it.
            self.0.statuses.send_replace(());
        }
    }

    /// That message waits for a status.
    fn waits(&self, Incoming { person, message, .. }: &Incoming<'_>) {
        let tells = self.0.waiting.add(person, &message.id, self.0.ctx.clock().monotonic());
        if let Some(webhooks) = self.0.webhooks.get().filter(|_| tells) {
            webhooks.warn("a reply on WhatsApp waits: Meta has not yet sent the status of its question");
        }
    }

    /// Follows a person to a new number or id, if the platform says which one was theirs before.
    async fn changed_ids(&self, broker: &Broker, changed: &ChangedIds) -> Result<(), NotStored> {
        let any = changed.before.iter().chain(&changed.after).next();
        let turn = self.0.contacts.turn(any.map_or("", String::as_str)).await?;
        self.catch_up(broker).await?;
        self.follow_ids(broker, changed);
        turn.end().await
    }

    fn follow_ids(&self, broker: &Broker, ChangedIds { before, after, at }: &ChangedIds) {
        let known = is_known(broker, &self.0.contacts.all_ids(before));
        match before.first() {
            Some(old) if !after.is_empty() => {
                for other in before.iter().chain(after) {
                    self.0.contacts.learn(old, other);
                }
                self.0.contacts.moved(before, after, at.unwrap_or_else(|| self.now()));
                if known {
                    let before = last_four(old);
                    tracing::info!(
                        before,
                        "a person who is asked on WhatsApp has another number or id; askd follows them"
                    );
                }
            }
            old if old.is_none() || known => tracing::warn!(
                id = before.iter().chain(after).next().map_or("", |id| last_four(id)),
                "a person has another number or id on WhatsApp, and Meta does not name both the old and the new one: \
                 the person of a route may not be known any more; set the route's chat or responders to the new one"
            ),
            _ => {}
        }
    }
}

/// Whether a person with one of these ids may be asked, or is asked.
pub(super) fn is_known(broker: &Broker, ids: &[String]) -> bool {
    broker.settings().names(ChannelName::WHATSAPP, ids) || !broker.asked_of(ids).is_empty()
}

/// The ask that this message has already changed.
async fn counted(broker: &Broker, message: &str) -> Result<Option<Arc<Ask>>, NotStored> {
    let Some(id) = broker.heard(message) else { return Ok(None) };
    Ok(load(broker, id).await?.filter(|ask| ask.was_told(message)))
}

/// Records that an unknown person tried to answer an ask. The core refuses; nothing changes, and nothing is sent.
async fn refuse_stranger(broker: &Broker, message: &Message, ids: &[String]) -> Result<(), NotStored> {
    let (Body::Text(said) | Body::Chosen(Chosen { title: said, .. })) = &message.body else { return Ok(()) };
    let code = words::first_word(said);
    let named = || match broker.named(&code, |_| true) {
        Named::One(id) if code.parse::<ShortId>().is_ok() => Some(id),
        _ => None,
    };
    let quoted = message.quotes.as_deref().and_then(|quoted| broker.by_message("", quoted));
    let Some(id) = quoted.or_else(named) else { return Ok(()) };
    let Some(ask) = load(broker, id).await? else { return Ok(()) };
    let Some(route) = ask.shown_on(ChannelName::WHATSAPP) else { return Ok(()) };
    // To the core, anyone includes a stranger. On WhatsApp a chat is one person, and this is not that one.
    if ask.route(route).is_none_or(|route| route.responders == Responders::Anyone) {
        return Ok(());
    }
    let id = ids.first().cloned().unwrap_or_default();
    let person = Person { via: Via::Channel(ChannelName::WHATSAPP), id, name: None };
    let heard = Heard { message: message.id.clone(), at: message.at, names: Names::Nothing };
    let reply = Reply::Told { index: 0, given: Given::default(), heard };
    apply(broker, ask.id, Event::Replied { source: Source::Route(route), person, reply }).await.map(drop)
}

/// The part of an id that a log may show.
fn last_four(id: &str) -> &str {
    let from = id.char_indices().rev().nth(3).map_or(0, |(at, _)| at);
    &id[from..]
}

impl Incoming<'_> {
    /// The reader of this message.
    pub(super) fn reader(&self) -> Reader<'_> {
        let said = if let Body::Text(said) = &self.message.body { said } else { "" };
        let quoted = self.message.quotes.as_deref();
        let contacts = &self.channel.0.contacts;
        let post_of = quoted.and_then(|quoted| self.broker.by_message("", quoted));
        let about = quoted.and_then(|quoted| contacts.about(quoted));
        let (message, at, overtaken) = (self.message, self.at, self.overtaken);
        Reader { message, at, overtaken, said, post_of, about, clock_ahead: contacts.clock_ahead() }
    }

    /// All asks that the sender may mean: the open ones, oldest first; those that the message names; and those that
    /// ended since the platform received it.
    pub(super) async fn asked(&self, reader: &Reader<'_>) -> Result<Vec<Asked>, NotStored> {
        let mut asked = self.find(self.broker.asked_of(&self.ids), |ask| !ask.is_blocked()).await?;
        let since = asked.iter().filter_map(|asked| reader.times(asked).called).chain(self.at).min();
        let mut ended = Vec::from_iter(reader.subject());
        if let Ok(code) = words::first_word(reader.said).parse::<ShortId>() {
            ended.extend(self.broker.ended_with(&self.ids, &code));
        }
        if let Some(since) = since {
            let since = since - TOLERANCE - Duration::from_millis(reader.clock_ahead.unsigned_abs());
            ended.extend(self.broker.ended_since(&self.ids, since.max(self.channel.now() - REPEATED)));
        }
        ended.sort_unstable();
        ended.dedup();
        ended.retain(|id| asked.iter().all(|asked| asked.ask.id != *id));
        asked.extend(self.find(ended, |ask| !ask.is_blocked()).await?);
        let code = words::first_word(reader.said);
        for asked in asked.iter_mut().filter(|asked| asked.is_open() || asked.ask.short_id.as_str() == code) {
            // Who was not sent the question knows of it from elsewhere, perhaps by its code.
            asked.code_seen = !asked.was_sent() || self.may_have_seen_code(&asked.ask).await?;
        }
        asked.sort_by_key(|asked| (!asked.is_open(), asked.ask.created_at, asked.ask.id));
        Ok(asked)
    }

    /// Whether the sender may have seen the code of an ask. Codes are shown while several asks are open, and with an ask that can be
    /// answered late.
    async fn may_have_seen_code(&self, ask: &Ask) -> Result<bool, NotStored> {
        let mut others = self.broker.asked_of(&self.ids);
        others.extend(self.broker.ended_since(&self.ids, ask.created_at));
        others.retain(|id| *id != ask.id);
        let Some(ended) = ask.settled_at() else { return Ok(!others.is_empty()) };
        for id in others {
            let beside = |other: Arc<Ask>| other.created_at < ended;
            if load(self.broker, id).await?.is_some_and(beside) {
                return Ok(true);
            }
        }
        Ok(matches!(ask.outcome(), Some(Outcome::TimedOut)))
    }

    /// Those of these asks that the sender may answer.
    pub(super) async fn find(&self, ids: Vec<AskId>, wanted: fn(&Ask) -> bool) -> Result<Vec<Asked>, NotStored> {
        let mut found = Vec::new();
        for id in ids {
            let ask = load(self.broker, id).await?.filter(|ask| wanted(ask));
            let quotes = self.message.quotes.as_deref();
            let Some(mut asked) = ask.and_then(|ask| Asked::find(Arc::unwrap_or_clone(ask), &self.ids, quotes)) else {
                continue;
            };
            asked.invites = asked.goes_to().is_some_and(|to| !self.channel.0.contacts.window_is_open(to));
            found.push(asked);
        }
        Ok(found)
    }

    pub(super) fn sender(&self, asked: &Asked) -> Person {
        let name = self.message.name.clone();
        Person { via: Via::Channel(ChannelName::WHATSAPP), id: asked.person.clone(), name }
    }

    /// The sender has to be told this, once the message counts as dealt with.
    pub(super) fn owe(&self, note: &Note) {
        self.channel.0.contacts.owe(note, &self.why);
    }

    /// Replies to the sender, in the background.
    pub(super) fn tell(&self, about: About, text: String) {
        let (ask, question) = (about.ask(), about.question().unwrap_or(0));
        self.owe(&Note { to: self.reply_to.clone(), text, ask, question, confirms: None });
    }
}
