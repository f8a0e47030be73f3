//! What people write in the threads of cards: an answer in words, or talk. And cards that people delete.

use super::client::CallError;
use super::history::Parent;
use super::inbound::{Actor, Inbound, route};
use super::payload::{MessageEvent, Payload};
use super::{emoji, text};
use crate::host::channel::{NotStored, apply};
use askd_core::{
    Ask, AskId, ChannelName, Event, Given, Heard, Kind, Names, Person, Reply, Source, Via, WidgetEvent, numbered,
    wording,
};

/// What somebody wrote in the thread of a card.
struct Words {
    /// Names the message.
    message: String,
    /// With names of emoji as Slack spells them, and with the signs themselves.
    named: String,
    typed: String,
    is_edit: bool,
    /// It was written after the card came up.
    is_later: bool,
    has_files: bool,
}

impl Inbound {
    /// Takes a message in the thread of a card as the answer, if it is one.
    pub(super) async fn hear(&self, callback: Payload) -> Result<(), NotStored> {
        let Payload { team_id, event_id, event, .. } = callback;
        if let Some((channel, ts)) = event.deleted() {
            return self.lose_card(team_id.as_ref(), channel, ts).await;
        }
        let (event, before) = event.unfold();
        let is_edit = before.is_some();
        // Slack reports a preview of a link as a change, too.
        let is_changed = before.is_none_or(|before| event.text.as_ref() != Some(&before));
        if !event.is_reply() || !is_changed || self.was_seen(event_id.as_deref()) {
            return Ok(());
        }
        let (is_later, has_files) = (event.is_later(), event.has_files());
        let MessageEvent {
            ts,
            user: Some(user),
            user_team,
            source_team,
            team,
            channel: Some(channel),
            thread_ts: Some(thread_ts),
            parent_user_id,
            text: Some(typed),
            blocks,
            ..
        } = event
        else {
            return Ok(());
        };
        let Some(parent) = self.parent(&channel, &thread_ts, parent_user_id.as_ref()).await? else { return Ok(()) };
        if !self.is_our_team(team_id.as_ref().or(team.as_ref())).await? {
            return Ok(());
        }
        let named = text::typed(&typed);
        let words = Words {
            message: format!("{channel}:{}", ts.unwrap_or_default()),
            typed: emoji::spelt(&named, &blocks),
            named,
            is_edit,
            is_later,
            has_files,
        };
        let person = Person { via: Via::Channel(ChannelName::SLACK), id: user, name: None };
        let team = user_team.or(source_team).or(team);
        let actor = Actor { person, team, channel, thread_ts: Some(thread_ts), modal: None };
        self.hear_under(&parent, &actor, &words, event_id.as_deref()).await
    }

    /// The same of words whose thread is known.
    async fn hear_under(
        &self,
        parent: &Parent,
        actor: &Actor,
        words: &Words,
        event_id: Option<&str>,
    ) -> Result<(), NotStored> {
        if let Some(ask) = self.load(parent.ask, &actor.channel).await? {
            let Some(route) = route(&ask, &actor.channel) else { return Ok(()) };
            let is_responder = ask.widgets[route].route.responders.includes(&actor.person.id)
                && !self.is_of_another_team(&ask, route, actor).await;
            if !parent.is_text {
                self.adopt_card(&ask, route, actor.thread_ts.as_deref().unwrap_or_default());
                self.take_words(&ask, (route, is_responder), actor, words, event_id).await?;
            } else if is_responder && can_be_answered(&ask) {
                self.tell(actor, wording::SLACK_LAST_PART);
            }
        } else if parent.is_open {
            // Under a closed card people may go on talking.
            self.unknown_question(actor, parent.ask);
        }
        self.remember(event_id);
        Ok(())
    }

    /// Takes words in the thread of a card, or tells who wrote them why they are none.
    async fn take_words(
        &self,
        ask: &Ask,
        (route, is_responder): (usize, bool),
        actor: &Actor,
        Words { message, named, typed, is_edit, is_later, has_files }: &Words,
        event_id: Option<&str>,
    ) -> Result<(), NotStored> {
        let may_answer = is_responder && can_be_answered(ask);
        let was_told = ask.was_told(message);
        let heard = Heard { message: message.clone(), at: None, names: Names::Message };
        match understood(ask, named.trim(), typed.trim(), heard) {
            // Under a closed card, what neither was an answer nor looks like one is talk.
            reply if *is_edit => {
                if may_answer || is_responder && (was_told || reply.is_some()) {
                    self.tell(actor, &wording::slack_edited(ask));
                }
            }
            Some(reply) if *is_later => {
                let event = Event::Replied { source: Source::Route(route), person: actor.person.clone(), reply };
                if self.act(ask, route, actor, event, event_id).await? && *has_files {
                    self.tell(actor, wording::SLACK_WORDS_TAKEN);
                }
            }
            // A message older than the card is not about it.
            Some(_) if may_answer => self.tell(actor, wording::FROM_BEFORE),
            // People may discuss the answer in the thread. Only those who may answer are told how.
            None if may_answer => {
                let question = if let [question] = &*ask.content.questions { Some(question) } else { None };
                self.tell(actor, &wording::thread_hint(question, typed.trim(), *has_files));
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Lets the card of an open question be shown again, if that is what was deleted.
    async fn lose_card(&self, team: Option<&String>, channel: &str, ts: &str) -> Result<(), NotStored> {
        let Some(id) = self.ask_of(channel, ts).await? else { return Ok(()) };
        if !self.is_our_team(team).await? {
            return Ok(());
        }
        let ask = self.load(id, channel).await?;
        if let Some(route) = ask.and_then(|ask| route(&ask, channel)) {
            apply(&self.broker, id, WidgetEvent::Gone(ts.to_owned()).on(route)).await?;
        }
        Ok(())
    }

    /// The ask of a card that askd knows. Slack sends an event again if that takes too long.
    async fn ask_of(&self, channel: &str, ts: &str) -> Result<Option<AskId>, NotStored> {
        self.broker.loaded().await;
        self.broker.find_anywhere(|broker| broker.by_message(channel, ts)).await.map_err(|_| NotStored)
    }

    /// The card, or the text before it, in whose thread something was written. The reply to its post may have been lost, so that only
    /// Slack knows it.
    async fn parent(&self, channel: &str, ts: &str, by: Option<&String>) -> Result<Option<Parent>, NotStored> {
        if let Some(ask) = self.ask_of(channel, ts).await? {
            return Ok(Some(Parent { ask, is_text: false, is_open: false }));
        }
        let true = self.slack.is_bots(&self.broker, channel, by).await? else { return Ok(None) };
        match self.slack.parent(channel, ts).await {
            Ok(parent) => Ok(parent),
            Err(CallError::Refused { .. }) => Ok(None),
            // Slack sends the reply again.
            Err(_) => Err(NotStored),
        }
    }
}

/// What a message in the thread answers. A question that stands alone is answered by an exact label or a number, and
/// one without choices by any text. `named` is what was typed, with the names of emoji.
fn understood(ask: &Ask, named: &str, typed: &str, heard: Heard) -> Option<Reply> {
    let [question] = &*ask.content.questions else { return None };
    let given = if question.kind == Kind::Text {
        Given { picks: Vec::new(), text: Some(typed.to_owned()).filter(|text| !text.is_empty()) }
    } else {
        let label = question.choice(typed).or_else(|| question.choice(&emoji::toneless(typed)));
        // An agent may write an emoji as its name, too.
        let by_name = question.choice(named);
        let number = numbered(typed.trim_end_matches('.'), question.choices.len());
        // The label of one option may be the number of another.
        let mut meanings = [label, by_name, number].into_iter().flatten();
        let first = meanings.next();
        let two_meanings = meanings.any(|meaning| Some(meaning) != first);
        Given { picks: vec![first.filter(|_| !two_meanings)?], text: None }
    };
    (given.text.is_some() || !given.picks.is_empty()).then_some(Reply::Told { index: 0, given, heard })
}

fn can_be_answered(ask: &Ask) -> bool {
    ask.outcome().is_none() || ask.is_late_open()
}
