//! What people write: which ask it is about, what it means, and what they are told.
//!
//! An answer is on disk before the webhook is acknowledged. Strangers get nothing; chat that answers
//! nothing is left alone.

use super::reading::{self, Open, Reading};
use super::shapes::{Message, Said, Told};
use super::{Whatsapp, lock, memory, text};
use crate::ask::wording::Unfit;
use crate::ask::{
    Ask, Channel, Event, Given, Outcome, Person, Phase, Refusal, Reply, Responders, ShortId, Source, Time, Via, wording,
};
use crate::host::broker::{Broker, Failure, Named};

/// It could not be stored: it has to come again.
#[derive(Debug)]
pub(super) struct NotStored;

/// An ask that a person may answer on a route, and who they are there.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) route: usize,
    pub(super) person: String,
    /// Somebody has seen its question.
    posted: bool,
    /// It was sent, and its message's id is not known yet.
    nameless: bool,
}

/// A message, and who sent it.
pub(super) struct Sender<'a> {
    pub(super) message: &'a Message,
    pub(super) ids: Vec<String>,
    /// Where to write to.
    pub(super) reply_to: String,
}

impl Whatsapp {
    /// Takes in what a webhook told, in order. `Ok`: all of it is on stable storage or needs nothing.
    pub(super) async fn take(&self, told: Vec<Told>) -> Result<(), NotStored> {
        let Some(broker) = self.broker() else { return Err(NotStored) };
        let mut wrote = false;
        for told in told {
            match told {
                Told::Status(status) => self.status(&broker, status).await?,
                Told::Message(message) => {
                    self.message(&broker, &message).await?;
                    wrote = true;
                }
            }
        }
        if wrote { self.save().await } else { Ok(()) }
    }

    pub(super) async fn save(&self) -> Result<(), NotStored> {
        self.0.memory.save(self.now()).await.map_err(|error| {
            tracing::error!(%error, "cannot write state/channels/whatsapp.json");
            NotStored
        })
    }

    async fn message(&self, broker: &Broker, message: &Message) -> Result<(), NotStored> {
        let memory = &self.0.memory;
        let told: Vec<String> =
            [&message.people.number, &message.people.scoped].into_iter().flatten().cloned().collect();
        let (Some(reply_to), now) = (told.first().cloned(), self.now()) else { return Ok(()) };
        let _one_at_a_time = self.0.reading.enter(&memory.one_name(&reply_to)).await;
        let at = Time::from_millis(message.at.saturating_mul(1000)).min(now);
        if memory.has_seen(&message.id) || at + memory::KEEP < now {
            return Ok(());
        }
        let ids = memory.person(&told);
        let asked = self.asked(broker, &ids).await?;
        if asked.is_empty() && !broker.settings().may_write_on_whatsapp(&ids) && broker.asked_of(&ids).is_empty() {
            return self.stranger(broker, message, &ids).await;
        }
        if let (Some(number), Some(scoped)) = (&message.people.number, &message.people.scoped) {
            memory.learn(number, scoped);
        }
        let sender = Sender { message, ids, reply_to };
        self.read(broker, &sender, &asked).await?;
        if !matches!(message.said, Said::Reaction(_) | Said::Nothing) {
            lock(&self.0.invited).remove(&memory.one_name(&sender.reply_to));
            memory.wrote(&sender.ids, at);
        }
        memory.saw(&message.id, now);
        Ok(())
    }

    /// The open asks of a person, oldest first.
    async fn asked(&self, broker: &Broker, ids: &[String]) -> Result<Vec<Asked>, NotStored> {
        let mut asked = Vec::new();
        for id in broker.asked_of(ids) {
            match broker.show(id).await {
                Ok(Some(ask)) if ask.outcome().is_none() => asked.extend(place(ask, ids)),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot read an ask");
                    return Err(NotStored);
                }
            }
        }
        asked.sort_by_key(|asked| (asked.ask.created_at, asked.ask.id));
        Ok(asked)
    }

    /// Somebody nobody knows: gets nothing, and changes nothing. A try at an ask is noted.
    async fn stranger(&self, broker: &Broker, message: &Message, ids: &[String]) -> Result<(), NotStored> {
        let Said::Text(said) = &message.said else { return Ok(()) };
        let quoted = message.quotes.as_deref().and_then(|quoted| broker.of_message(quoted));
        let code = || match broker.named(&reading::first_word(said)) {
            Named::One(id) if reading::first_word(said).parse::<ShortId>().is_ok() => Some(id),
            _ => None,
        };
        let Some(id) = quoted.or_else(code) else { return Ok(()) };
        let Ok(Some(ask)) = broker.show(id).await else { return Ok(()) };
        let Some(route) = ask.rules.routes.iter().take(ask.widgets.len()).position(|r| r.channel == Channel::Whatsapp)
        else {
            return Ok(());
        };
        let person = Person { via: Via::Whatsapp, id: ids.first().cloned().unwrap_or_default(), name: None };
        let reply = Reply::Told { index: 0, given: Given::default(), message: message.id.clone() };
        match broker.happen(id, Event::Replied { source: Source::Route(route), person, reply }).await {
            Err(Failure::NotStored) => Err(NotStored),
            _ => Ok(()),
        }
    }

    async fn read(&self, broker: &Broker, sender: &Sender<'_>, asked: &[Asked]) -> Result<(), NotStored> {
        let message = sender.message;
        if self.allowed(broker, sender, asked.iter().any(|asked| asked.posted)).await? {
            return Ok(());
        }
        let quoted = message.quotes.as_deref();
        let on =
            quoted.and_then(|quoted| asked.iter().position(|a| a.ask.widgets[a.route].question_of(quoted).is_some()));
        let on = on.or_else(|| {
            let subject = quoted.and_then(|quoted| self.0.memory.subject(quoted))?;
            asked.iter().position(|a| a.ask.id == subject)
        });
        // Nothing has told yet what our own message is called: it is the one that is quoted.
        let on = on.or_else(|| {
            quoted.filter(|quoted| broker.of_message(quoted).is_none())?;
            let mut nameless = asked.iter().enumerate().filter(|(_, asked)| asked.nameless).map(|(at, _)| at);
            nameless.next().filter(|_| nameless.next().is_none())
        });
        match &message.said {
            Said::Tap | Said::Nothing | Said::Reaction(false) => Ok(()),
            Said::Wordless | Said::Reaction(true) => {
                self.wordless(sender, asked, on);
                Ok(())
            }
            Said::Text(said) => {
                if on.is_none()
                    && let Some(late) = self.late(broker, sender, said, asked).await?
                {
                    return self.words_late(broker, sender, said, &late).await;
                }
                self.words(broker, sender, said, asked, on).await
            }
        }
    }

    /// No usable text: what is possible, if something is open.
    fn wordless(&self, sender: &Sender<'_>, asked: &[Asked], on: Option<usize>) {
        let posted: Vec<&Asked> = asked.iter().filter(|asked| asked.posted).collect();
        let one = on.and_then(|on| asked.get(on)).or_else(|| posted.first().copied().filter(|_| posted.len() == 1));
        if let Some(asked) = one {
            self.back(sender, asked, &Unfit::NoText);
        } else if !posted.is_empty() {
            self.which(sender, &posted);
        }
    }

    /// The settled ask that a quote or a code is about.
    async fn late(
        &self,
        broker: &Broker,
        sender: &Sender<'_>,
        said: &str,
        asked: &[Asked],
    ) -> Result<Option<Asked>, NotStored> {
        let quoted = sender.message.quotes.as_deref();
        let by_quote = quoted.and_then(|quoted| broker.of_message(quoted).or_else(|| self.0.memory.subject(quoted)));
        let word = reading::first_word(said);
        let open = asked.iter().any(|asked| asked.ask.short_id.as_str() == word);
        let by_code = || word.parse::<ShortId>().ok().filter(|_| !open).and_then(|code| broker.closed_with(&code));
        let Some(id) = by_quote.or_else(by_code) else { return Ok(None) };
        let ask = broker.show(id).await.map_err(|_| NotStored)?;
        Ok(ask.filter(|ask| ask.outcome().is_some()).and_then(|ask| place(ask, &sender.ids)))
    }

    /// Words about a question that has ended: an answer after all, if it timed out and can still be answered.
    async fn words_late(
        &self,
        broker: &Broker,
        sender: &Sender<'_>,
        said: &str,
        late: &Asked,
    ) -> Result<(), NotStored> {
        if let [question] = &*late.ask.content.questions
            && late.ask.is_late_open()
        {
            let open = [Open { code: late.ask.short_id.as_str(), question }];
            match reading::read(said, Some(0), &open) {
                Reading::Answer(_, given) => {
                    let reply = Reply::Told { index: 0, given, message: sender.message.id.clone() };
                    return self.reply(broker, sender, late, reply).await;
                }
                Reading::Back(_, unfit) => {
                    self.back(sender, late, &unfit);
                    return Ok(());
                }
                Reading::Nothing => return Ok(()),
                Reading::Which | Reading::Show(_) | Reading::Dismiss(_) => {}
            }
        }
        self.too_late(sender, &late.ask, Some(said));
        Ok(())
    }

    fn too_late(&self, sender: &Sender<'_>, ask: &Ask, said: Option<&str>) {
        let late = ask.late_outcome().map(|(outcome, _)| outcome);
        if let Some(outcome) = late.as_ref().or_else(|| ask.outcome())
            && !ask.was_told(&sender.message.id)
        {
            tracing::warn!(ask = %ask.id, group = %ask.group, channel = "whatsapp", "Answer for a question that is settled");
            let told = match said.filter(|_| *outcome == Outcome::TimedOut) {
                Some(said) => wording::too_late(said),
                None => wording::already(outcome, &ask.content.questions),
            };
            self.note(&sender.reply_to, Some(ask), text::tame(&told));
        }
    }

    async fn words(
        &self,
        broker: &Broker,
        sender: &Sender<'_>,
        said: &str,
        asked: &[Asked],
        on: Option<usize>,
    ) -> Result<(), NotStored> {
        // A question that nobody can have seen is answered only by name.
        let code = reading::first_word(said);
        let meant =
            |(at, asked): &(usize, &Asked)| asked.posted || on == Some(*at) || asked.ask.short_id.as_str() == code;
        let (places, candidates): (Vec<usize>, Vec<&Asked>) = asked.iter().enumerate().filter(meant).unzip();
        let mut open = Vec::new();
        for asked in &candidates {
            let next = asked.ask.next_question(asked.route, &asked.person).unwrap_or(0);
            let Some(question) = asked.ask.content.questions.get(next) else { return Ok(()) };
            open.push(Open { code: asked.ask.short_id.as_str(), question });
        }
        let on = on.and_then(|on| places.iter().position(|place| *place == on));
        if let (Some(asked), Some(quoted)) = (on.and_then(|on| candidates.get(on)), &sender.message.quotes)
            && asked.dealt_with(quoted)
        {
            self.back(sender, asked, &Unfit::AnsweredAlready);
            return Ok(());
        }
        // It quotes something that is not known: it may be about anything.
        let lost = sender.message.quotes.is_some() && on.is_none() && !open.iter().any(|open| open.code == code);
        let reading = if lost && !open.is_empty() { Reading::Which } else { reading::read(said, on, &open) };
        match reading {
            Reading::Nothing => Ok(()),
            Reading::Which => {
                self.which(sender, &candidates);
                Ok(())
            }
            Reading::Show(at) => {
                self.show(sender, candidates[at]);
                Ok(())
            }
            Reading::Back(at, unfit) => {
                self.back(sender, candidates[at], &unfit);
                Ok(())
            }
            Reading::Dismiss(at) => self.reply(broker, sender, candidates[at], Reply::Dismiss).await,
            Reading::Answer(at, given) => {
                let asked = candidates[at];
                let index = asked.ask.next_question(asked.route, &asked.person).unwrap_or(0);
                let reply = Reply::Told { index, given, message: sender.message.id.clone() };
                self.reply(broker, sender, asked, reply).await
            }
        }
    }

    async fn reply(&self, broker: &Broker, sender: &Sender<'_>, asked: &Asked, reply: Reply) -> Result<(), NotStored> {
        let person = Person { via: Via::Whatsapp, id: asked.person.clone(), name: sender.message.name.clone() };
        let event = Event::Replied { source: Source::Route(asked.route), person, reply };
        match broker.happen(asked.ask.id, event).await {
            Ok(ask) => self.receipt(sender, asked, &ask),
            Err(Failure::NotStored) => return Err(NotStored),
            Err(Failure::Unknown) => {}
            Err(Failure::Refused(refusal, ask)) => match *refusal {
                Refusal::Settled { said, .. } => self.too_late(sender, &ask, said.as_deref()),
                Refusal::NotResponder { .. } => {}
                refusal => {
                    let told = format!("{refusal} {}", wording::how_to_reply(asked.question()));
                    self.note(&sender.reply_to, Some(&ask), text::tame(&told));
                }
            },
        }
        Ok(())
    }

    /// Whoever answers from elsewhere than the chat is told here; the chat has its closing line.
    fn receipt(&self, sender: &Sender<'_>, asked: &Asked, ask: &Ask) {
        let chat = &ask.rules.routes[asked.route].chat;
        let ended = matches!(ask.outcome(), Some(Outcome::Answered { .. } | Outcome::Dismissed { .. }));
        let late = ask.late_outcome().is_some();
        if (late || ended && !sender.ids.contains(chat))
            && let Some(line) = ask.closing_line()
        {
            // After a timeout the chat has had its closing line already.
            self.note(&sender.reply_to, Some(ask), wording::receipt(&text::tame(&line)));
        }
    }

    fn back(&self, sender: &Sender<'_>, asked: &Asked, unfit: &Unfit) {
        self.note(&sender.reply_to, Some(&asked.ask), text::tame(&wording::unfit(unfit, asked.question())));
    }

    fn show(&self, sender: &Sender<'_>, asked: &Asked) {
        for text in self.texts(&asked.ask, asked.route, asked.next(), &sender.reply_to, false) {
            self.note(&sender.reply_to, Some(&asked.ask), text);
        }
    }

    fn which(&self, sender: &Sender<'_>, asked: &[&Asked]) {
        let list: Vec<(String, String)> =
            asked.iter().map(|a| (a.ask.short_id.to_string(), text::in_short(a.question()))).collect();
        self.note(&sender.reply_to, None, wording::which_one(&list));
    }
}

impl Asked {
    fn next(&self) -> usize {
        self.ask.next_question(self.route, &self.person).unwrap_or(0)
    }

    fn question(&self) -> &crate::ask::Question {
        &self.ask.content.questions[self.next()]
    }

    /// Whether the question of a quoted message is behind this person.
    fn dealt_with(&self, quoted: &str) -> bool {
        let of = self.ask.widgets[self.route].question_of(quoted);
        of.is_some_and(|of| of < self.next())
    }
}

/// On which route a person was asked, and by which of their ids.
pub(super) fn place(ask: Ask, ids: &[String]) -> Option<Asked> {
    let shown = ask.rules.routes.iter().take(ask.widgets.len()).enumerate();
    let (route, person) = shown.filter(|(_, route)| route.channel == Channel::Whatsapp).find_map(|(at, route)| {
        let known = ids.iter().find(|id| match &route.responders {
            Responders::Anyone => **id == route.chat,
            responders @ Responders::Only(_) => responders.includes(id),
        });
        // The id of the chat comes first: it is the one that is written to.
        let known = ids.iter().find(|id| **id == route.chat && route.responders.includes(id)).or(known);
        known.map(|id| (at, id.clone()))
    })?;
    let widget = &ask.widgets[route];
    let theirs = ids.contains(widget.parts.to.as_ref().unwrap_or(&ask.rules.routes[route].chat));
    let posted = match widget.phase {
        // Somebody else is asked at the moment: what counts is whether this one's question was.
        _ if !theirs => {
            let next = ask.next_question(route, &person);
            let asked = widget.messages.iter().any(|message| widget.question_of(message) == next);
            asked && !widget.parts.waiting.contains(&person)
        }
        Phase::Up { .. } | Phase::Sent { .. } | Phase::Unknown { .. } => true,
        // The question before this one is answered, and this one is not on its way yet.
        Phase::Queued { .. } | Phase::Held { .. } | Phase::Failed { .. } | Phase::Closed => false,
    };
    // One that was sent again may be there twice, under a name that nothing has told.
    let again = widget.attempt > widget.parts.first_attempt.max(1);
    let nameless = theirs && (again || matches!(widget.phase, Phase::Sent { .. } | Phase::Unknown { .. }));
    Some(Asked { ask, route, person, posted, nameless })
}
