//! Reads what a message means for its question, and tells the sender what came of it.

use super::contacts::Confirmation;
use super::inbound::{Asked, NotStored, Sender};
use super::payload::Body;
use super::reading::{self, Open, Reading};
use super::resolve::{self, Target};
use super::{Whatsapp, text};
use crate::host::broker::{Broker, Failure};
use askd_core::wording::{self, Unfit};
use askd_core::{Ask, AskId, ChannelName, Event, Heard, Names, Outcome, Person, Refusal, Reply, Source, Time, Via};

impl Whatsapp {
    /// Reads a message from a person who is, or was, asked.
    pub(super) async fn read(&self, broker: &Broker, sender: &Sender<'_>) -> Result<(), NotStored> {
        let said = match &sender.message.said {
            Body::Text(said) => said.as_str(),
            Body::Wordless => "",
            Body::Edited(original) => {
                self.edited(broker, sender, original.as_deref());
                return Ok(());
            }
            Body::Tap | Body::Nothing | Body::Reaction | Body::Deleted => return Ok(()),
        };
        let asked = self.asked(broker, sender).await?;
        let open = asked.iter().any(|asked| asked.ask.outcome().is_none() && self.times(asked).since.is_some());
        if self.allowed(broker, sender, open).await? || self.confirms(broker, sender, &asked).await? {
            return Ok(());
        }
        let code = reading::first_word(said);
        let quotes = sender.message.quotes.as_deref();
        let subject = quotes.and_then(|quoted| self.subject(broker, quoted));
        let message = resolve::Message {
            quotes,
            quotes_another: subject.is_some_and(|id| asked.iter().all(|asked| asked.ask.id != id)),
            code: Some(code.as_str()).filter(|code| !code.is_empty()),
            at: sender.at,
        };
        let candidates: Vec<_> = asked.iter().map(|asked| self.candidate(asked, sender, said)).collect();
        let target = resolve::resolve(&message, &candidates);
        if sender.message.forwarded {
            self.forwarded(sender, &asked, &target);
            return Ok(());
        }
        match target {
            Target::Nothing => Ok(()),
            Target::Which(which) => {
                self.which(sender, &which.into_iter().map(|at| &asked[at]).collect::<Vec<_>>());
                Ok(())
            }
            Target::Before(before) => {
                self.tell_from_before(sender, said, &before.into_iter().map(|at| &asked[at]).collect::<Vec<_>>());
                Ok(())
            }
            Target::One(at) | Target::Confirm(at) if asked[at].ask.outcome().is_some() => {
                self.words_late(broker, sender, said, &asked[at]).await
            }
            Target::One(at) => self.words(broker, sender, said, &asked[at]).await,
            Target::Confirm(at) => self.ask_to_confirm(broker, sender, said, &asked[at]).await,
        }
    }

    /// What the person says of that question.
    fn meaning(sender: &Sender<'_>, said: &str, asked: &Asked) -> Reading {
        let open = [Open { code: asked.ask.short_id.as_str(), question: asked.question() }];
        reading::read(said, sender.message.quotes.as_ref().map(|_| 0), &open)
    }

    async fn words(&self, broker: &Broker, sender: &Sender<'_>, said: &str, asked: &Asked) -> Result<(), NotStored> {
        if let Some(quoted) = &sender.message.quotes
            && asked.dealt_with(quoted)
        {
            self.back(sender, asked, &Unfit::AnsweredAlready);
            return Ok(());
        }
        match Self::meaning(sender, said, asked) {
            Reading::Answer(_, given) => {
                let reply = Reply::Told { index: asked.next(), given, heard: heard(sender, said, asked) };
                self.reply(broker, sender, asked, reply).await?;
            }
            Reading::Dismiss(_) => {
                self.reply(broker, sender, asked, Reply::ToldDismiss(heard(sender, said, asked))).await?;
            }
            Reading::Show(_) => self.show(sender, asked),
            Reading::Back(_, unfit) => self.back(sender, asked, &unfit),
            Reading::Which | Reading::Nothing => {}
        }
        Ok(())
    }

    /// Handles words about a question that has ended: if it timed out and can still be answered, they may answer it.
    async fn words_late(
        &self,
        broker: &Broker,
        sender: &Sender<'_>,
        said: &str,
        late: &Asked,
    ) -> Result<(), NotStored> {
        if late.ask.content.questions.len() == 1 && late.ask.is_late_open() {
            match Self::meaning(sender, said, late) {
                Reading::Answer(_, given) => {
                    let reply = Reply::Told { index: 0, given, heard: heard(sender, said, late) };
                    return self.reply(broker, sender, late, reply).await;
                }
                Reading::Back(_, unfit) => {
                    self.back(sender, late, &unfit);
                    return Ok(());
                }
                Reading::Show(_) => {
                    let how = text::closing(&late.ask, text::Audience::Others, self.now());
                    self.note(&sender.reply_to, Some(&late.ask), how.join("\n"));
                    return Ok(());
                }
                Reading::Dismiss(_) => {
                    self.too_late(sender, &late.ask, None);
                    return Ok(());
                }
                Reading::Which | Reading::Nothing => {}
            }
        }
        if !said.is_empty() {
            self.too_late(sender, &late.ask, Some(said));
        }
        Ok(())
    }

    /// Tells the sender, once, that the message came before the question, if it would have answered the question.
    fn tell_from_before(&self, sender: &Sender<'_>, said: &str, before: &[&Asked]) {
        if sender.opened {
            return;
        }
        let fits =
            |asked: &&&Asked| matches!(Self::meaning(sender, said, asked), Reading::Answer(..) | Reading::Dismiss(_));
        if let Some(asked) = before.iter().find(fits)
            && self.0.contacts.tell_before(&sender.name, asked.ask.id, asked.next(), self.now())
        {
            self.note(&sender.reply_to, Some(&asked.ask), wording::FROM_BEFORE.to_owned());
        }
    }

    /// Asks whether the sender meant this question: they may have written before their phone showed it.
    async fn ask_to_confirm(
        &self,
        broker: &Broker,
        sender: &Sender<'_>,
        said: &str,
        asked: &Asked,
    ) -> Result<(), NotStored> {
        if !matches!(Self::meaning(sender, said, asked), Reading::Answer(..) | Reading::Dismiss(_)) {
            return self.words(broker, sender, said, asked).await;
        }
        let confirmation = Confirmation {
            ask: asked.ask.id.to_string(),
            question: asked.next(),
            said: said.to_owned(),
            nth: self.now().as_millis().to_le_bytes()[1],
            note: None,
            since: None,
            at: self.now().as_millis(),
        };
        let nth = confirmation.nth;
        self.0.contacts.ask_to_confirm(&sender.name, confirmation);
        self.note_confirm(sender, asked, nth);
        Ok(())
    }

    fn note_confirm(&self, sender: &Sender<'_>, asked: &Asked, nth: u8) {
        let question = text::in_short(asked.question());
        let told = text::tame(&wording::did_you_mean(&question));
        self.note_to_confirm(&sender.reply_to, &asked.ask, told, (sender.name.clone(), nth));
    }

    /// Whether the message was a `1` that confirms earlier words; if so, those words have been handled.
    async fn confirms(&self, broker: &Broker, sender: &Sender<'_>, asked: &[Asked]) -> Result<bool, NotStored> {
        let Some(pending) = self.0.contacts.to_confirm(&sender.name) else { return Ok(false) };
        let ours = |asked: &&Asked| {
            let same = pending.ask.parse::<AskId>().is_ok_and(|id| id == asked.ask.id);
            same && asked.ask.outcome().is_none() && asked.next() == pending.question
        };
        let quotes_it = sender.message.quotes.is_none() || sender.message.quotes == pending.note;
        let one = matches!(&sender.message.said, Body::Text(said) if said.trim().trim_end_matches('.') == "1");
        let Some(asked) = asked.iter().find(ours).filter(|_| quotes_it && one) else {
            self.0.contacts.confirmed(&sender.name);
            return Ok(false);
        };
        let quoted = sender.message.quotes.is_some();
        let since = pending.since.map(Time::from_millis);
        let after = since.zip(sender.at).is_some_and(|(since, at)| at > since);
        if !quoted && !after {
            // The message may be about the question or about our request to confirm.
            self.note_confirm(sender, asked, pending.nth);
            return Ok(true);
        }
        // It confirms our own message, and that named the question.
        let heard = Heard { message: sender.message.id.clone(), at: sender.at, names: Names::Message };
        let reply = match reading::read(
            &pending.said,
            None,
            &[Open { code: asked.ask.short_id.as_str(), question: asked.question() }],
        ) {
            Reading::Answer(_, given) => Reply::Told { index: asked.next(), given, heard },
            Reading::Dismiss(_) => Reply::ToldDismiss(heard),
            _ => return Ok(false),
        };
        self.reply(broker, sender, asked, reply).await?;
        self.0.contacts.confirmed(&sender.name);
        Ok(true)
    }

    /// Handles a forwarded message: it was written for somebody else.
    fn forwarded(&self, sender: &Sender<'_>, asked: &[Asked], target: &Target) {
        if let Target::One(at) | Target::Confirm(at) = target
            && let Some(asked) =
                asked.get(*at).filter(|asked| asked.ask.outcome().is_none() || asked.ask.is_late_open())
        {
            let told = format!("{} {}", wording::FORWARDED, asked.how_to_reply());
            self.note(&sender.reply_to, Some(&asked.ask), text::tame(&told));
        } else if let Target::Which(which) = target {
            self.which(sender, &which.iter().map(|at| &asked[*at]).collect::<Vec<_>>());
        }
    }

    /// Handles an edited message: the edit changes nothing.
    fn edited(&self, broker: &Broker, sender: &Sender<'_>, original: Option<&str>) {
        let answered = original.is_some_and(|original| broker.heard(original).is_some());
        if answered || !broker.asked_of(&sender.ids).is_empty() {
            self.note(&sender.reply_to, None, wording::NOT_EDITED.to_owned());
        }
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

    async fn reply(&self, broker: &Broker, sender: &Sender<'_>, asked: &Asked, reply: Reply) -> Result<(), NotStored> {
        let person = Person {
            via: Via::Channel(ChannelName::WHATSAPP),
            id: asked.person.clone(),
            name: sender.message.name.clone(),
        };
        let event = Event::Replied { source: Source::Route(asked.route), person, reply };
        match broker.happen(asked.ask.id, event).await {
            Ok(ask) => self.receipt(sender, asked, &ask),
            Err(Failure::NotStored | Failure::InDoubt) => return Err(NotStored),
            Err(Failure::Unknown | Failure::Broken) => {}
            Err(Failure::Refused(refusal, ask)) => match *refusal {
                Refusal::Settled { said, .. } => self.too_late(sender, &ask, said.as_deref()),
                Refusal::NotResponder { .. } => {}
                refusal => {
                    let told = format!("{refusal} {}", asked.how_to_reply());
                    self.note(&sender.reply_to, Some(&ask), text::tame(&told));
                }
            },
        }
        Ok(())
    }

    /// Tells a person who answered from outside the chat; the chat itself has its closing line.
    fn receipt(&self, sender: &Sender<'_>, asked: &Asked, ask: &Ask) {
        let chat = &ask.rules.routes[asked.route].chat;
        let ended = matches!(ask.outcome(), Some(Outcome::Answered { .. } | Outcome::Dismissed { .. }));
        let late = ask.late_outcome().is_some();
        if (late || ended && !sender.ids.contains(chat))
            && let Some(line) = ask.closing_line()
        {
            // After a timeout the chat already has its closing line.
            self.note(&sender.reply_to, Some(ask), wording::receipt(&text::tame(&line)));
        }
    }

    fn back(&self, sender: &Sender<'_>, asked: &Asked, unfit: &Unfit) {
        let told = if asked.ask.is_late_open() {
            wording::unfit_late(unfit, asked.question(), asked.ask.short_id.as_str())
        } else {
            wording::unfit(unfit, asked.question())
        };
        self.note(&sender.reply_to, Some(&asked.ask), text::tame(&told));
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

/// How the message names its question, and when the platform received it.
fn heard(sender: &Sender<'_>, said: &str, asked: &Asked) -> Heard {
    let names = if sender.message.quotes.is_some() {
        Names::Message
    } else if reading::first_word(said) == asked.ask.short_id.as_str() {
        Names::Code
    } else {
        Names::Nothing
    };
    Heard { message: sender.message.id.clone(), at: sender.at, names }
}
