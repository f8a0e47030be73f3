//! Takes in what people do in Slack, whichever way it arrives: checks the team and the channel, lets the broker store
//! it, and only then lets it be acknowledged. A person reads in private why something was refused.

use super::payload::{Action, Message, Payload};
use super::{Slack, render};
use crate::host::broker::Broker;
use crate::host::channel::signed::ACKNOWLEDGE_WITHIN;
use crate::host::channel::{NotStored, apply, load_fitting};
use askd_core::{Ask, AskId, ChannelName, Event, Person, Refusal, Responders, Source, Via, WidgetEvent, wording};
use futures_util::future::OptionFuture;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

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
pub(super) struct Actor {
    pub(super) person: Person,
    pub(super) team: Option<String>,
    pub(super) channel: String,
    pub(super) thread_ts: Option<String>,
    /// The modal in which they did it.
    pub(super) modal: Option<Modal>,
}

/// A modal that was sent, and what Slack is to show in it. It stays open then, with what was typed.
pub(super) struct Modal {
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
            Action::Allow => Some(Event::Allow { source, person, heard: None }),
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
    pub(super) async fn load(&self, id: AskId, chat: &str) -> Result<Option<Arc<Ask>>, NotStored> {
        load_fitting(&self.broker, id, |ask| route(ask, chat).is_some()).await
    }

    /// Lets the broker settle or lift what this action is about; `false` if it refuses. When this returns, the result is on
    /// stable storage.
    pub(super) async fn act(
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
                // A second copy of a reply that was taken is not late, and of one that was refused people know. Nor is who gives the
                // answer that counts once more told that it was not used: Slack may have said that the first one did not arrive.
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
    pub(super) async fn is_of_another_team(&self, ask: &Ask, route: usize, actor: &Actor) -> bool {
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
            return self.tell(actor, &wording::ended(outcome, &ask.content.questions));
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
    pub(super) fn adopt_card(&self, ask: &Ask, route: usize, ts: &str) {
        let known = ask.widgets.get(route).is_some_and(|widget| widget.question_of(ts).is_some());
        if !known && !ts.is_empty() {
            self.broker.apply_later(ask.id, WidgetEvent::Spotted(ts.to_owned()).on(route));
        }
    }

    pub(super) fn unknown_question(&self, actor: &Actor, ask: AskId) {
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
    pub(super) fn tell(&self, actor: &Actor, sentence: &str) {
        if let Some(modal) = &actor.modal {
            let _says_one_thing = modal.says.set(sentence.to_owned());
            return;
        }
        self.slack.post_ephemeral(&actor.channel, &actor.person.id, actor.thread_ts.as_deref(), sentence);
    }

    /// Whether the people of this team are listened to. Fails while Slack has not said which team the bot belongs to.
    pub(super) async fn is_our_team(&self, team: Option<&String>) -> Result<bool, NotStored> {
        let Some(team) = team else { return Ok(false) };
        self.slack.is_our_team(team).await.ok_or(NotStored)
    }

    pub(super) fn was_seen(&self, key: Option<&str>) -> bool {
        key.is_some_and(|key| self.seen.lock().contains(key))
    }

    pub(super) fn remember(&self, key: Option<&str>) {
        if let Some(key) = key {
            self.seen.lock().put(key.to_owned(), ());
        }
    }
}

/// The route on which this chat shows the ask.
pub(super) fn route(ask: &Ask, chat: &str) -> Option<usize> {
    let mut routes = ask.widgets.iter().map(|widget| &widget.route);
    routes.position(|route| route.channel == ChannelName::SLACK && route.chat == chat)
}
