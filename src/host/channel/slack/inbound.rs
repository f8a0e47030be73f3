//! Takes in what people do in Slack, whichever way it arrives: checks the team and the channel, lets the broker store
//! it, and only then lets it be acknowledged. A person reads in private why something was refused.

use super::client::CallError;
use super::history::Parent;
use super::payload::{Action, Message, MessageEvent, Payload};
use super::{Slack, emoji, render, text};
use crate::host::broker::Broker;
use crate::host::channel::{NotStored, apply, load_fitting};
use askd_core::{
    Ask, AskId, ChannelName, Event, Given, Heard, Kind, Names, Person, Refusal, Reply, Responders, Source, Via,
    WidgetEvent, numbered, wording,
};
use futures_util::future::OptionFuture;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Slack waits 3 s for an acknowledgement.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(2_500);
/// How many interactions and events are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// Takes in what people do. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Inbound {
    pub(super) slack: Slack,
    pub(super) broker: Broker,
    /// The interactions and events that came before, so that a second copy tells nobody twice. Decisions do not depend on it.
    seen: Arc<Mutex<LruCache<String, ()>>>,
}

/// A person who did something, and where a private message reaches them.
struct Actor {
    person: Person,
    team: Option<String>,
    channel: String,
    thread_ts: Option<String>,
    /// The modal in which they did it.
    modal: Option<Modal>,
}

/// A modal that was sent, and what Slack is to show in it. It stays open then, with what was typed.
struct Modal {
    block_id: String,
    says: OnceLock<String>,
}

impl Modal {
    /// The acknowledgement.
    fn answer(self) -> Option<Value> {
        let (block_id, says) = (self.block_id, self.says.into_inner()?);
        Some(json!({"response_action": "errors", "errors": {block_id: says}}))
    }
}

impl Inbound {
    pub(super) fn new(slack: Slack, broker: Broker) -> Self {
        Self { slack, broker, seen: Arc::new(Mutex::new(LruCache::new(REMEMBERED))) }
    }

    /// Takes in an interaction or an event, and says what the acknowledgement holds. Returns in time for Slack, even if it
    /// is still being stored: the broker goes on with what takes longer, and the card says what came of it.
    pub(super) async fn take_in(&self, payload: Payload) -> Result<Option<Value>, NotStored> {
        let is_event = payload.kind == "event_callback";
        let taking_in = Box::pin(async {
            match payload.kind.as_str() {
                "block_actions" | "view_submission" => self.interact(payload).await,
                "event_callback" => self.hear(payload).await.map(|()| None),
                kind => {
                    tracing::debug!(kind, "ignored something of a kind that askd does not use");
                    Ok(None)
                }
            }
        });
        self.slack.clock().timeout(ACKNOWLEDGE_WITHIN, taking_in).await.unwrap_or_else(|| {
            let then = if is_event { "Slack sends it again" } else { "its sender is told to try again" };
            tracing::error!("a reply in Slack could not be stored in time; {then}");
            Err(NotStored)
        })
    }

    async fn interact(&self, mut interaction: Payload) -> Result<Option<Value>, NotStored> {
        let modal = interaction.unfold().map(|block_id| Modal { block_id, says: OnceLock::new() });
        let (user, container) = (&interaction.user, &interaction.container);
        let name = user.username.clone().or_else(|| user.name.clone());
        let actor = Actor {
            person: Person { via: Via::Channel(ChannelName::SLACK), id: user.id.clone(), name },
            team: user.team_id.clone(),
            channel: container.channel_id.clone(),
            thread_ts: container.thread_ts.clone(),
            modal,
        };
        self.use_card(&interaction, &actor).await?;
        Ok(actor.modal.and_then(Modal::answer))
    }

    async fn use_card(&self, interaction: &Payload, actor: &Actor) -> Result<(), NotStored> {
        let container = &interaction.container;
        let team = interaction.team.as_ref().map(|team| &team.id).or(actor.team.as_ref());
        if !self.is_our_team(team).await? {
            let asked = interaction.action().map(|(id, _)| self.load(id, &container.channel_id));
            let asked = OptionFuture::from(asked).await.and_then(Result::ok).flatten();
            self.refuse(actor, asked.as_deref(), &Refusal::OtherTeam);
            return Ok(());
        }
        let Some((id, action)) = interaction.action() else { return Ok(()) };
        let of_another_card = interaction.message.as_ref().and_then(Message::ask).is_some_and(|ask| ask != id);
        let ask = if of_another_card { None } else { self.load(id, &container.channel_id).await? };
        let Some(ask) = ask else {
            self.unknown_question(actor, id);
            return Ok(());
        };
        let Some(route) = route(&ask, &container.channel_id) else {
            self.refuse(actor, Some(&ask), &Refusal::NotAskedHere);
            return Ok(());
        };
        let key = interaction.key();
        let (source, person) = (Source::Route(route), actor.person.clone());
        let event = match action {
            Action::Reply(reply) => Some(Event::Replied { source, person, reply }),
            Action::Allow => Some(Event::Allow { source, person }),
            Action::Other => None,
        };
        let acting = async {
            let Some(event) = event else {
                self.offer_modal(&ask, route, actor, interaction);
                return Ok(());
            };
            self.act(&ask, route, actor, event, key.as_deref()).await.map(drop)
        };
        // In this order, so that the reply does not wait until the card is recorded.
        let adopting = async { self.adopt_card(&ask, route, &container.message_ts) };
        tokio::join!(acting, adopting).0
    }

    /// The ask of a card in this chat. The leader may have shown it there just now.
    async fn load(&self, id: AskId, chat: &str) -> Result<Option<Arc<Ask>>, NotStored> {
        load_fitting(&self.broker, id, |ask| route(ask, chat).is_some()).await
    }

    /// Takes a message in the thread of a card as the answer, if it is one.
    async fn hear(&self, callback: Payload) -> Result<(), NotStored> {
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
        // Slack sends it again if that takes too long.
        self.broker.loaded().await;
        let found = self.broker.find_anywhere(|broker| broker.by_message(&channel, &thread_ts));
        let parent = match found.await.map_err(|_| NotStored)? {
            Some(ask) => Some(Parent { ask, is_text: false, is_open: false }),
            None => self.parent(&channel, &thread_ts, parent_user_id.as_ref()).await?,
        };
        let Some(parent) = parent else { return Ok(()) };
        if !self.is_our_team(team_id.as_ref().or(team.as_ref())).await? {
            return Ok(());
        }
        let person = Person { via: Via::Channel(ChannelName::SLACK), id: user, name: None };
        let actor = Actor {
            person,
            team: user_team.or(source_team).or(team),
            channel,
            thread_ts: Some(thread_ts.clone()),
            modal: None,
        };
        let Some(ask) = self.load(parent.ask, &actor.channel).await? else {
            // Under a closed card people may go on talking.
            if parent.is_open {
                self.unknown_question(&actor, parent.ask);
            }
            self.remember(event_id.as_deref());
            return Ok(());
        };
        let Some(route) = route(&ask, &actor.channel) else { return Ok(()) };
        let is_responder = ask.widgets[route].route.responders.includes(&actor.person.id)
            && !self.is_of_another_team(&ask, route, &actor).await;
        let may_answer = (ask.outcome().is_none() || ask.is_late_open()) && is_responder;
        if parent.is_text {
            if may_answer {
                self.tell(&actor, wording::SLACK_LAST_PART);
            }
            self.remember(event_id.as_deref());
            return Ok(());
        }
        self.adopt_card(&ask, route, &thread_ts);
        let message = format!("{}:{}", actor.channel, ts.unwrap_or_default());
        let was_told = ask.was_told(&message);
        let heard = Heard { message, at: None, names: Names::Message };
        let named = text::typed(&typed);
        let typed = emoji::spelt(&named, &blocks);
        match understood(&ask, named.trim(), typed.trim(), heard) {
            // Under a closed card, what neither was an answer nor looks like one is talk.
            reply if is_edit => {
                if may_answer || is_responder && (was_told || reply.is_some()) {
                    self.tell(&actor, &wording::slack_edited(&ask));
                }
            }
            Some(reply) if is_later => {
                let event = Event::Replied { source: Source::Route(route), person: actor.person.clone(), reply };
                if self.act(&ask, route, &actor, event, event_id.as_deref()).await? && has_files {
                    self.tell(&actor, wording::SLACK_WORDS_TAKEN);
                }
            }
            // A message older than the card is not about it.
            Some(_) if may_answer => self.tell(&actor, wording::FROM_BEFORE),
            // People may discuss the answer in the thread. Only those who may answer are told how.
            None if may_answer => {
                let question = if let [question] = &*ask.content.questions { Some(question) } else { None };
                self.tell(&actor, &wording::thread_hint(question, typed.trim(), has_files));
            }
            Some(_) | None => {}
        }
        self.remember(event_id.as_deref());
        Ok(())
    }

    /// Lets the card of an open question be shown again, if that is what was deleted.
    async fn lose_card(&self, team: Option<&String>, channel: &str, ts: &str) -> Result<(), NotStored> {
        // Slack sends it again if that takes too long.
        self.broker.loaded().await;
        let found = self.broker.find_anywhere(|broker| broker.by_message(channel, ts));
        let Some(id) = found.await.map_err(|_| NotStored)? else { return Ok(()) };
        if !self.is_our_team(team).await? {
            return Ok(());
        }
        let ask = self.load(id, channel).await?;
        if let Some(route) = ask.and_then(|ask| route(&ask, channel)) {
            apply(&self.broker, id, WidgetEvent::Gone(ts.to_owned()).on(route)).await?;
        }
        Ok(())
    }

    /// Of a card that askd does not know yet, because the reply to its post was lost.
    async fn parent(&self, channel: &str, ts: &str, by: Option<&String>) -> Result<Option<Parent>, NotStored> {
        let true = self.slack.is_bots(&self.broker, channel, by).await? else { return Ok(None) };
        match self.slack.parent(channel, ts).await {
            Ok(parent) => Ok(parent),
            Err(CallError::Refused { .. }) => Ok(None),
            // Slack sends the reply again.
            Err(_) => Err(NotStored),
        }
    }

    /// Lets the broker settle or lift what this action is about; `false` if it refuses. When this returns, the result is on
    /// stable storage.
    async fn act(
        &self,
        ask: &Ask,
        route: usize,
        actor: &Actor,
        event: Event,
        key: Option<&str>,
    ) -> Result<bool, NotStored> {
        if self.is_of_another_team(ask, route, actor).await {
            self.refuse(actor, Some(ask), &Refusal::OtherTeam);
            return Ok(false);
        }
        match apply(&self.broker, ask.id, event).await? {
            Some((_, None)) => {
                self.remember(key);
                return Ok(true);
            }
            Some((_, Some(refusal))) => {
                // A second copy of a reply that was taken is not late, and of one that was refused people know. Another daemon may
                // have had the first one.
                if !self.was_seen(key) && !refusal.is_of_what_counts(&actor.person) {
                    self.tell(actor, &wording::refusal(&refusal));
                }
                self.remember(key);
            }
            None => self.unknown_question(actor, ask.id),
        }
        Ok(false)
    }

    /// Whether this is a guest of a shared channel: "anyone" means anyone of the team.
    async fn is_of_another_team(&self, ask: &Ask, route: usize, actor: &Actor) -> bool {
        let anyone = ask.widgets[route].route.responders == Responders::Anyone;
        anyone && actor.team.is_some() && self.is_our_team(actor.team.as_ref()).await == Ok(false)
    }

    /// Opens the modal for an answer in words. Whether such an answer is taken is decided when it is sent.
    fn offer_modal(&self, ask: &Ask, route: usize, actor: &Actor, interaction: &Payload) {
        let widget = &ask.widgets[route];
        if !widget.route.responders.includes(&actor.person.id) {
            return self.refuse(actor, Some(ask), &Refusal::NotResponder { id: actor.person.id.clone() });
        }
        if let Some(outcome) = ask.outcome().filter(|_| !ask.is_late_open()) {
            return self.tell(actor, &wording::already(outcome, &ask.content.questions));
        }
        let (key, Some(trigger_id)) = (interaction.key(), &interaction.trigger_id) else { return };
        let card = serde_json::to_value(&interaction.container).unwrap_or_default();
        let view = render::CardView::now(ask, widget.attempt, self.slack.clock().now());
        // A second copy of a click opens no second modal.
        if let Some(view) = render::modal(&view, &card).filter(|_| !self.was_seen(key.as_deref())) {
            self.remember(key.as_deref());
            let thread_ts = actor.thread_ts.as_deref();
            self.slack.open_modal(trigger_id, &view, &actor.channel, &actor.person.id, thread_ts);
        }
    }

    /// Records a card that the ask does not know yet, so that it is closed too.
    fn adopt_card(&self, ask: &Ask, route: usize, ts: &str) {
        let known = ask.widgets.get(route).is_some_and(|widget| widget.question_of(ts).is_some());
        if !known && !ts.is_empty() {
            self.broker.apply_later(ask.id, WidgetEvent::Spotted(ts.to_owned()).on(route));
        }
    }

    fn unknown_question(&self, actor: &Actor, ask: AskId) {
        tracing::warn!(ask = %ask, "Answer for unknown question");
        self.tell(actor, wording::UNKNOWN_QUESTION);
    }

    /// Refuses what comes to no step of the ask.
    fn refuse(&self, actor: &Actor, ask: Option<&Ask>, refusal: &Refusal) {
        let why = refusal.code();
        tracing::warn!(person = actor.person.id, channel = actor.channel, why, "refused a reply in Slack");
        self.broker.refused(ask, &actor.person, refusal, self.slack.clock().now());
        self.tell(actor, &wording::refusal(refusal));
    }

    /// Tells a person something in private.
    fn tell(&self, actor: &Actor, sentence: &str) {
        if let Some(modal) = &actor.modal {
            let _says_one_thing = modal.says.set(sentence.to_owned());
            return;
        }
        self.slack.post_ephemeral(&actor.channel, &actor.person.id, actor.thread_ts.as_deref(), sentence);
    }

    /// Whether the people of this team are listened to. Fails while Slack has not said which team the bot belongs to.
    async fn is_our_team(&self, team: Option<&String>) -> Result<bool, NotStored> {
        let Some(team) = team else { return Ok(false) };
        self.slack.is_our_team(team).await.ok_or(NotStored)
    }

    fn was_seen(&self, key: Option<&str>) -> bool {
        key.is_some_and(|key| self.seen.lock().contains(key))
    }

    fn remember(&self, key: Option<&str>) {
        if let Some(key) = key {
            self.seen.lock().put(key.to_owned(), ());
        }
    }
}

/// The route on which this chat shows the ask.
fn route(ask: &Ask, chat: &str) -> Option<usize> {
    let mut routes = ask.widgets.iter().map(|widget| &widget.route);
    routes.position(|route| route.channel == ChannelName::SLACK && route.chat == chat)
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
