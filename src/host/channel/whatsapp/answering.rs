//! Deals with a message of a person who is, or was, asked, and tells the sender what came of it.

use super::inbound::{Incoming, Untaken};
use super::messages::About;
use super::payload::{Body, Chosen};
use super::posting::LISTEN;
use super::reader::{Asked, Reader};
use super::resolve::Target;
use super::taps::Tap;
use super::text;
use super::words::Meaning;
use crate::host::channel::{NotStored, apply};
use crate::sabotage::on;
use askd_core::wording::{self, Unfit};
use askd_core::{Ask, AskId, ChannelName, Event, Given, Heard, Names, Outcome, Refusal, Reply, Source};
use std::time::Duration;

/// How long a reply waits for the status that says when WhatsApp sent a question. Meta promises no time. If none comes, the
/// date of the answer to our call decides, unless another question can be meant.
const SAID_WITHIN: Duration = Duration::from_secs(10);

/// For so long words without a quote are taken for an answer that was meant for what has timed out.
const JUST_TIMED_OUT: Duration = Duration::from_secs(600);

impl Incoming<'_> {
    /// Reads the message and does what it means.
    pub(super) async fn read(&self) -> Result<(), Untaken> {
        match &self.message.body {
            Body::Text(_) | Body::Wordless => {}
            Body::Edited(original) => {
                self.refuse_edit(original.as_deref());
                return Ok(());
            }
            Body::Chosen(chosen) => return Ok(self.take_tap(chosen).await?),
            Body::Tap | Body::Nothing | Body::Reaction | Body::Deleted => return Ok(()),
        }
        let reader = self.reader();
        let asked = self.asked(&reader).await?;
        if self.may_wait(SAID_WITHIN) && !on("datealone") {
            let requests = self.channel.0.contacts.to_confirm(&self.person);
            let unsure = reader.may_learn(&asked, &requests) || self.may_learn_to_allow(&reader).await?;
            if unsure || reader.names_nothing() && self.is_behind() {
                return Err(Untaken::Unsure);
            }
        }
        if self.allows(&reader, &asked).await? || self.confirms(&reader, &asked).await? {
            return Ok(());
        }
        match reader.target(&asked) {
            Target::Nothing => self.tell_how_to_answer_late(&reader).await?,
            // The status that names it is on its way.
            Target::Unnamed(_) if self.may_wait(LISTEN) => return Err(Untaken::Unsure),
            Target::Which(which) | Target::Unnamed(which) => {
                self.ask_which(which.into_iter().map(|at| &asked[at]));
            }
            Target::Overtaken(_) if self.message.forwarded => {}
            Target::One(at) | Target::Confirm(at) if self.message.forwarded => {
                // It was written for another reader.
                let asked = &asked[at];
                if asked.is_open() || text::takes_late(&asked.ask) {
                    self.tell_tamely(asked, &format!("{} {}", wording::FORWARDED, asked.how_to_reply()));
                }
            }
            Target::Overtaken(at) => {
                let asked = &asked[at];
                if reader.would_answer(asked) {
                    self.tell_too_late(&asked.ask, Some(reader.said));
                }
            }
            Target::Before(before) => {
                let before = before.into_iter().map(|at| &asked[at]);
                self.tell_from_before(&reader, before, |asked| reader.would_answer(asked));
            }
            Target::One(at) => self.deal_with(&reader, &asked[at]).await?,
            Target::Confirm(at) => {
                let asked = &asked[at];
                if asked.is_open() && reader.would_answer(asked) {
                    self.ask_to_confirm(&reader, asked);
                } else {
                    self.deal_with(&reader, asked).await?;
                }
            }
        }
        Ok(())
    }

    /// Nothing is open, and words that would answer what has just timed out do not reach it: the sender may take them for an answer.
    async fn tell_how_to_answer_late(&self, reader: &Reader<'_>) -> Result<(), NotStored> {
        let since = self.channel.now() - JUST_TIMED_OUT;
        if self.message.quotes.is_some() || self.message.forwarded || self.at.is_none_or(|at| at < since) {
            return Ok(());
        }
        let ended = self.broker.ended_since(&self.ids, since);
        let late = self.find(ended, |ask| ask.is_late_open()).await?;
        let meant = late.iter().filter(|asked| text::takes_late(&asked.ask) && reader.would_answer(asked));
        if let Some(asked) = meant.max_by_key(|asked| asked.ask.settled_at())
            && self.channel.0.contacts.tell_late(&self.person, asked.ask.id)
        {
            self.tell_tamely(asked, &format!("{} {}", wording::NOT_TAKEN_LATE, asked.how_to_reply()));
        }
        Ok(())
    }

    /// Takes the option that was tapped. The tap names its question; an id that askd did not make changes nothing, and the sender is told
    /// how to answer: it may be from before the app secret was replaced.
    async fn take_tap(&self, chosen: &Chosen) -> Result<(), NotStored> {
        let Some(tap) = Tap::read(&chosen.id, self.channel.app_secrets().all()) else {
            tracing::warn!(
                "a tap on WhatsApp has an id that askd did not make with this app secret; it changes nothing"
            );
            let quoted = Vec::from_iter(self.reader().subject());
            let asked = self.find(quoted, |ask| !ask.is_blocked()).await?.pop();
            if let Some(asked) = asked.filter(|asked| asked.is_open() || text::takes_late(&asked.ask)) {
                self.tell_tamely(&asked, &format!("{} {}", wording::NO_BUTTON, asked.how_to_reply()));
            }
            return Ok(());
        };
        let Some(asked) = self.find(vec![tap.ask], |ask| !ask.is_blocked()).await?.pop() else {
            return self.unknown_question(tap.ask).await;
        };
        let (ask, open) = (&asked.ask, asked.is_open());
        if open && tap.question != asked.next() {
            self.ask_back(&asked, &Unfit::AnsweredAlready);
        } else if open || text::takes_late(&asked.ask) {
            let given = Given { picks: vec![tap.option], text: None };
            let heard = Heard { message: self.message.id.clone(), at: self.at, names: Names::Message };
            self.reply(&asked, Reply::Told { index: tap.question, given, heard }).await?;
        } else {
            self.tell_too_late(ask, Some(&chosen.title));
        }
        Ok(())
    }

    /// A button of a question that is not there any more was tapped by a person who is asked here.
    async fn unknown_question(&self, ask: AskId) -> Result<(), NotStored> {
        let settings = self.broker.settings();
        let is_asked = settings.routes_to(ChannelName::WHATSAPP).iter().any(|route| self.ids.contains(&route.chat));
        if is_asked && matches!(self.broker.get(ask).await, Ok(None)) {
            tracing::warn!(%ask, channel = "whatsapp", "Answer for unknown question");
            self.tell(About::Nothing(()), wording::UNKNOWN_QUESTION.to_owned());
        }
        Ok(())
    }

    /// Whether the platform received it less than that ago, so that a status may still come. Nothing waits for longer, whatever the
    /// clocks say.
    fn may_wait(&self, age: Duration) -> bool {
        let (inner, behind) = (&self.channel.0, -self.channel.0.contacts.clock_ahead());
        self.at.is_some_and(|at| self.channel.now() < at.moved(behind) + age)
            && inner.waiting.waited(&self.message.id, inner.ctx.clock().monotonic()) < age
    }

    /// Whether another message of this person waits that came before it.
    fn is_behind(&self) -> bool {
        let inner = &self.channel.0;
        inner.waiting.is_behind(&self.person, &self.message.id, inner.ctx.clock().monotonic())
    }

    /// Does what the words say about that ask.
    async fn deal_with(&self, reader: &Reader<'_>, asked: &Asked) -> Result<(), NotStored> {
        let (ask, open) = (&asked.ask, asked.is_open());
        if open && reader.quoted_question(asked).is_some_and(|question| question < asked.next()) {
            self.ask_back(asked, &Unfit::AnsweredAlready);
            return Ok(());
        }
        let answerable = open || text::takes_late(&asked.ask);
        if !answerable {
            if !reader.said.is_empty() {
                self.tell_too_late(ask, Some(reader.said));
            }
            return Ok(());
        }
        if reader.quoted_request().is_some() {
            // What it would confirm is not kept any more.
            self.tell_tamely(asked, &asked.how_to_reply());
            return Ok(());
        }
        match reader.meaning(asked) {
            Meaning::Given(given) => {
                let reply = Reply::Told { index: asked.next(), given, heard: reader.heard(asked) };
                self.reply(asked, reply).await?;
            }
            Meaning::Dismiss if open => self.reply(asked, Reply::ToldDismiss(reader.heard(asked))).await?,
            Meaning::Dismiss => self.tell_too_late(ask, None),
            Meaning::Unfit(unfit) => self.ask_back(asked, &unfit),
            Meaning::Show if open => {
                let texts = self.channel.question_texts(ask, asked.route, asked.next(), &self.reply_to, false);
                for text in texts {
                    self.tell(asked.about(), text);
                }
            }
            Meaning::Show => {
                self.tell(
                    asked.about(),
                    text::closing(ask, text::Audience::Others, &self.channel.now_in(&self.reply_to)).join("\n"),
                );
            }
        }
        Ok(())
    }

    /// Tells the sender, once, that the message came before the question that it would have answered. Who opens the window had been
    /// asked nothing, unless that is not known for certain.
    pub(super) fn tell_from_before<'a>(
        &self,
        reader: &Reader<'_>,
        mut before: impl Iterator<Item = &'a Asked>,
        fits: impl Fn(&Asked) -> bool,
    ) {
        if !self.message.forwarded
            && let Some(asked) = before.find(|asked| fits(asked) && (!self.opened || reader.doubts(asked)))
            && self.channel.0.contacts.tell_before(&self.person, asked.ask.id, asked.next())
        {
            self.tell(asked.about(), wording::FROM_BEFORE.to_owned());
        }
    }

    /// Asks which of these the sender means.
    pub(super) fn ask_which<'a>(&self, which: impl IntoIterator<Item = &'a Asked>) {
        let list = which.into_iter().map(|a| (a.ask.short_id.to_string(), text::in_short(a.question())));
        self.tell(About::Nothing(()), wording::which_one(&list.collect::<Vec<_>>()));
    }

    /// Says that an edit changes nothing, if the sender is asked or the message was an answer.
    fn refuse_edit(&self, original: Option<&str>) {
        let answered = original.is_some_and(|original| self.broker.heard(original).is_some());
        if answered || !self.broker.asked_of(&self.ids).is_empty() {
            self.tell(About::Nothing(()), wording::NOT_EDITED.to_owned());
        }
    }

    fn tell_too_late(&self, ask: &Ask, said: Option<&str>) {
        let late = ask.late_outcome().map(|(outcome, _)| outcome);
        let Some(outcome) = late.as_ref().or_else(|| ask.outcome()) else { return };
        if ask.was_told(&self.message.id) {
            return;
        }
        tracing::warn!(ask = %ask.id, group = %ask.group, channel = "whatsapp", "Answer for a question that is settled");
        let told = match said.filter(|_| *outcome == Outcome::TimedOut) {
            Some(said) => wording::too_late(said),
            None => wording::already(outcome, &ask.content.questions),
        };
        self.tell(About::Ask(ask.id), text::tame(&told));
    }

    pub(super) async fn reply(&self, asked: &Asked, reply: Reply) -> Result<(), NotStored> {
        let event = Event::Replied { source: Source::Route(asked.route), person: self.sender(asked), reply };
        match apply(self.broker, asked.ask.id, event).await? {
            Some((ask, None)) => {
                self.channel.0.contacts.confirmed(&self.person, ask.id);
                self.send_receipt(asked.route, &ask);
            }
            Some((ask, Some(Refusal::Settled { said, .. }))) => self.tell_too_late(&ask, said.as_deref()),
            Some((_, Some(Refusal::NotResponder { .. }))) | None => {}
            Some((_, Some(refusal))) => {
                self.tell(asked.about(), text::tame(&format!("{refusal} {}", asked.how_to_reply())));
            }
        }
        Ok(())
    }

    /// Tells a person who ended it from outside the chat. The chat itself gets the closing message, except after a
    /// timeout: then it has had one.
    pub(super) fn send_receipt(&self, route: usize, ask: &Ask) {
        let elsewhere = !self.ids.contains(&ask.widgets[route].route.chat);
        if (ask.late_outcome().is_some() || ask.ended_by().is_some() && elsewhere)
            && let Some(line) = ask.closing_line()
        {
            self.tell(About::Ask(ask.id), text::tame(&line));
        }
    }

    /// The message has changed this ask already, and askd has forgotten whether it said so.
    pub(super) fn send_receipt_again(&self, ask: &Ask) {
        let is_last = ask.heard.last() == Some(&self.message.id);
        if is_last
            && self.channel.has_ended(ask, &self.reply_to)
            && let Some(route) = ask.shown_on(ChannelName::WHATSAPP)
        {
            self.send_receipt(route, ask);
        }
    }

    /// Says why the message is no answer.
    fn ask_back(&self, asked: &Asked, unfit: &Unfit) {
        let others = || self.broker.asked_of(&self.ids).into_iter().any(|id| id != asked.ask.id);
        let told = if asked.ask.is_late_open() || others() {
            wording::unfit_by_code(unfit, asked.question(), asked.ask.short_id.as_str())
        } else {
            wording::unfit(unfit, asked.question())
        };
        self.tell_tamely(asked, &told);
    }

    fn tell_tamely(&self, asked: &Asked, told: &str) {
        self.tell(asked.about(), text::tame(told));
    }
}
