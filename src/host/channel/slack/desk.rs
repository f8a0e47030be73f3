//! Where what people do in Slack is taken in, whichever way it came: who and where is checked, the reply is stored, and
//! only then is anything acknowledged. What did not fit is told to the person, and to nobody else.

use super::payload::{Callback, Container, Event as Said, Interaction, Part, User};
use super::{Slack, text};
use crate::host::broker::{Broker, Failure};
use askd_core::{
    Ask, AskId, ChannelName, Event, Given, Heard, Kind, Names, Person, Refusal, Reply, Responders, Source, Via,
    WidgetEvent, wording,
};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long everything may take that Slack waits for: it wants an answer within 3 s.
const TAKEN_WITHIN: Duration = Duration::from_millis(2_500);
/// Interactions and events of which it is remembered that they came.
const REMEMBERED: usize = 4_096;

/// What came of something that Slack sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Stored, refused or ignored: nothing to send again.
    Done,
    /// It could not be stored: the person may try again.
    NotStored,
}

/// What somebody does with a card.
enum Deed {
    Reply(Reply),
    /// Lets it be asked again.
    Allow,
}

/// Takes in what people do.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    slack: Slack,
    broker: Broker,
    seen: Arc<Mutex<Seen>>,
}

/// What came before, so that a second copy of it does not tell people twice. The decision itself does not hang on it.
#[derive(Debug, Default)]
struct Seen {
    order: VecDeque<String>,
    keys: HashSet<String>,
}

impl Seen {
    fn add(&mut self, key: &str) {
        if self.keys.insert(key.to_owned()) {
            self.order.push_back(key.to_owned());
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
    }
}

/// Who did something, and where a private note reaches them.
struct Somebody {
    person: Person,
    team: Option<String>,
    channel: String,
    thread: Option<String>,
}

impl Somebody {
    fn of(user: User, container: &Container) -> Self {
        let person = Person { via: Via::Channel(ChannelName::SLACK), id: user.id, name: user.username.or(user.name) };
        let (channel, thread) = (container.channel_id.clone(), container.thread_ts.clone());
        Self { person, team: user.team_id, channel, thread }
    }
}

impl Desk {
    pub(super) fn new(slack: Slack, broker: Broker) -> Self {
        Self { slack, broker, seen: Arc::default() }
    }

    pub(super) fn slack(&self) -> &Slack {
        &self.slack
    }

    /// Takes an interaction in. Slack hears the result in time, even if it is still being stored.
    pub(super) async fn interaction(&self, payload: Interaction) -> Taken {
        self.in_time(self.interact(payload)).await
    }

    /// The same for an event.
    pub(super) async fn event(&self, callback: Callback) -> Taken {
        self.in_time(self.hear(callback)).await
    }

    /// Waits as long as Slack does. Work that takes longer still goes on: it is stored and the card says so, but no
    /// reply waits for it.
    async fn in_time(&self, taking: impl Future<Output = Taken>) -> Taken {
        self.slack.clock().timeout(TAKEN_WITHIN, taking).await.unwrap_or_else(|| {
            tracing::error!("something done in Slack could not be stored in time; the person was told to try again");
            Taken::NotStored
        })
    }

    async fn interact(&self, mut payload: Interaction) -> Taken {
        if payload.kind != "block_actions" {
            tracing::debug!(kind = payload.kind, "an interaction of a kind that is not used was ignored");
            return Taken::Done;
        }
        let user = std::mem::take(&mut payload.user);
        let who = Somebody::of(user, &payload.container);
        let team = payload.team.as_ref().map(|team| team.id.clone()).or_else(|| who.team.clone());
        match self.of_our_team(team.as_deref()).await {
            None => return Taken::NotStored,
            Some(false) => return self.refuse(&who, wording::OTHER_TEAM, "another team"),
            Some(true) => {}
        }
        let Some((action, part)) = payload.part() else { return Taken::Done };
        let deed = if action.id == "allow" {
            Deed::Allow
        } else if let Some(reply) = payload.reply(action, &part) {
            Deed::Reply(reply)
        } else {
            return Taken::Done;
        };
        let elsewhere =
            payload.message.as_ref().and_then(super::payload::Message::ask).is_some_and(|ask| ask != part.ask);
        if elsewhere {
            return self.unknown(&who, &part);
        }
        let ask = match self.broker.show(part.ask).await {
            Ok(Some(ask)) => ask,
            Ok(None) => return self.unknown(&who, &part),
            Err(_) => return Taken::NotStored,
        };
        let Some(route) = route(&ask, &payload.container.channel_id) else {
            return self.refuse(&who, wording::NOT_ASKED_HERE, "another channel");
        };
        let key = payload.key();
        let taken = self.done(&ask, route, who, deed, key.as_deref());
        // In this order, so that the reply does not wait until the card is recorded.
        let spotted = async { self.spot(&ask, route, &payload.container.message_ts) };
        tokio::join!(taken, spotted).0
    }

    /// A text in a card's thread may be the answer.
    async fn hear(&self, callback: Callback) -> Taken {
        let Callback { kind, team_id, event_id, event, .. } = callback;
        if kind != "event_callback" || !event.is_reply() || self.seen(event_id.as_deref()) {
            return Taken::Done;
        }
        let team = team_id.or_else(|| event.team.clone());
        let later = event.is_later();
        let Said {
            ts,
            user: Some(user),
            user_team,
            channel: Some(channel),
            thread_ts: Some(thread),
            text: Some(said),
            ..
        } = event
        else {
            return Taken::Done;
        };
        let Some(id) = self.broker.by_message(&channel, &thread) else { return Taken::Done };
        match self.of_our_team(team.as_deref()).await {
            None => return Taken::NotStored,
            Some(false) => return Taken::Done,
            Some(true) => {}
        }
        let ask = match self.broker.show(id).await {
            Ok(Some(ask)) => ask,
            Ok(None) => return Taken::Done,
            Err(_) => return Taken::NotStored,
        };
        let Some(route) = route(&ask, &channel) else { return Taken::Done };
        let person = Person { via: Via::Channel(ChannelName::SLACK), id: user, name: None };
        let who = Somebody { person, team: user_team, channel, thread: Some(thread) };
        let heard =
            Heard { message: format!("{}:{}", who.channel, ts.unwrap_or_default()), at: None, names: Names::Message };
        let taken = match understood(&ask, &text::typed(&said), heard) {
            // The thread names its card; a message older than the card is not about it.
            Some(_) if !later => {
                if may_be_answered(&ask) && ask.rules.routes[route].responders.includes(&who.person.id) {
                    self.slack.note(&who.channel, &who.person.id, who.thread.as_deref(), wording::FROM_BEFORE);
                }
                Taken::Done
            }
            Some(reply) => self.done(&ask, route, who, Deed::Reply(reply), event_id.as_deref()).await,
            // People may talk there about what to answer; only those who would be listened to are told how.
            None if may_be_answered(&ask) && ask.rules.routes[route].responders.includes(&who.person.id) => {
                let question = if let [question] = &*ask.content.questions { Some(question) } else { None };
                self.slack.note(&who.channel, &who.person.id, who.thread.as_deref(), &wording::thread_hint(question));
                Taken::Done
            }
            None => Taken::Done,
        };
        if taken == Taken::Done {
            self.remember(event_id.as_deref());
        }
        taken
    }

    /// Lets it happen. When this returns, what it says is on stable storage.
    async fn done(&self, ask: &Ask, route: usize, who: Somebody, deed: Deed, key: Option<&str>) -> Taken {
        // With "anyone", that is anyone of the team: not the guests of a channel that is shared with others.
        let anyone = ask.rules.routes[route].responders == Responders::Anyone;
        if anyone && self.of_our_team(who.team.as_deref()).await == Some(false) && who.team.is_some() {
            return self.refuse(&who, wording::OTHER_TEAM, "another team");
        }
        let person = who.person.clone();
        let source = Source::Route(route);
        let event = match deed {
            Deed::Reply(reply) => Event::Replied { source, person, reply },
            Deed::Allow => Event::Allow { source, person },
        };
        let happening = self.broker.happen(ask.id, event);
        match happening.await {
            Ok(_) => {
                self.remember(key);
                Taken::Done
            }
            Err(Failure::Refused(refusal, _)) => {
                // A second copy of what was taken is no late answer.
                let late = matches!(*refusal, Refusal::Settled { .. } | Refusal::NotBlocked { .. });
                if !(late && self.seen(key)) {
                    let text = wording::refusal(&refusal);
                    self.slack.note(&who.channel, &who.person.id, who.thread.as_deref(), &text);
                }
                Taken::Done
            }
            Err(Failure::Unknown | Failure::Broken) => self.forgotten(&who, ask.id),
            Err(Failure::NotStored | Failure::InDoubt) => {
                tracing::error!(ask = %ask.id, "an answer from Slack could not be stored; the person was told to try again");
                Taken::NotStored
            }
        }
    }

    /// A card that is not known to be this ask's is noted, so that it is closed too.
    fn spot(&self, ask: &Ask, route: usize, message: &str) {
        let known = ask.widgets.get(route).is_some_and(|widget| widget.messages.iter().any(|known| known == message));
        if !known && !message.is_empty() {
            self.broker.tell(ask.id, WidgetEvent::Spotted(message.to_owned()).on(route));
        }
    }

    fn unknown(&self, who: &Somebody, part: &Part) -> Taken {
        self.forgotten(who, part.ask)
    }

    fn forgotten(&self, who: &Somebody, ask: AskId) -> Taken {
        tracing::warn!(ask = %ask, "Answer for unknown question");
        self.slack.note(&who.channel, &who.person.id, who.thread.as_deref(), wording::UNKNOWN_QUESTION);
        Taken::Done
    }

    fn refuse(&self, who: &Somebody, sentence: &str, why: &str) -> Taken {
        tracing::warn!(person = who.person.id, channel = who.channel, why, "something done in Slack was refused");
        self.slack.note(&who.channel, &who.person.id, who.thread.as_deref(), sentence);
        Taken::Done
    }

    /// Whether a team's people are listened to; `None` while that is not known.
    async fn of_our_team(&self, team: Option<&str>) -> Option<bool> {
        let ours = self.slack.teams().await?;
        Some(team.is_some_and(|team| ours.iter().any(|our| our == team)))
    }

    fn seen(&self, key: Option<&str>) -> bool {
        let seen = self.seen.lock();
        key.is_some_and(|key| seen.keys.contains(key))
    }

    fn remember(&self, key: Option<&str>) {
        if let Some(key) = key {
            self.seen.lock().add(key);
        }
    }
}

/// Whether an answer is still taken, after the timeout too.
fn may_be_answered(ask: &Ask) -> bool {
    ask.outcome().is_none() || ask.is_late_open()
}

/// The route of this chat on which the ask is shown.
fn route(ask: &Ask, chat: &str) -> Option<usize> {
    let mut routes = ask.rules.routes.iter().take(ask.widgets.len());
    routes.position(|route| route.channel == ChannelName::SLACK && route.chat == chat)
}

/// What a text in the thread answers: an exact label or number a question that stands alone, any text one that is
/// answered by typing.
fn understood(ask: &Ask, said: &str, heard: Heard) -> Option<Reply> {
    let [question] = &*ask.content.questions else { return None };
    let said = said.trim();
    if question.kind == Kind::Text {
        let text = Some(said.to_owned()).filter(|text| !text.is_empty())?;
        return Some(Reply::Told { index: 0, given: Given { picks: Vec::new(), text: Some(text) }, heard });
    }
    let number =
        || said.trim_end_matches('.').parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < question.choices.len());
    let pick = question.choice(said).or_else(number)?;
    Some(Reply::Told { index: 0, given: Given { picks: vec![pick], text: None }, heard })
}
