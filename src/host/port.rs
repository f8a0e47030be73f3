//! The port of a channel: what the broker asks of a place where people can be asked. Channels implement it in rooms
//! above the broker, and report what people do as events. A channel knows nothing of files, deadlines or who may answer.

use crate::host::settings::RouteSettings;
use crate::host::standing::Problem;
use askd_core::{
    Ask, Capabilities, ChannelName, Content, Found, Group, Posted, Rejection, Responders, Route, Time, Trouble,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Called for each message of a card that the channel took before the last one.
pub type Progress<'a> = &'a (dyn Fn() + Send + Sync);

/// A place where people can be asked. Every call may be repeated.
#[async_trait]
pub trait Channel: fmt::Debug + Send + Sync {
    /// The channel that routes name.
    fn name(&self) -> ChannelName;

    /// What the platform can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether a card with this content is within the platform's limits.
    fn fits(&self, _group: &Group, _content: &Content) -> Result<(), Rejection> {
        Ok(())
    }

    /// Takes the turn to post to the chat of this route, if it is free now.
    fn takes_slot(&self, _route: &Route) -> bool {
        false
    }

    /// Waits until another message may be posted to the chat of this route.
    async fn wait_for_slot(&self, _route: &Route) {}

    /// Gives back a turn that nothing will be posted in.
    fn return_slot(&self, _route: &Route) {}

    /// Posts the card. `None`: the daemon stops before all of it has left.
    async fn post(&self, ask: &Ask, route: usize, attempt: u8, progress: Progress<'_>) -> Option<Posted>;

    /// Looks for a card whose post got no reply.
    async fn find(&self, _ask: &Ask, _route: usize) -> Found {
        Found::CannotKnow
    }

    /// Waits until the person for whom something is held has written; `false` if that does not happen.
    async fn wait_for_person(&self, _person: &str, _until: Time) -> bool {
        false
    }

    /// Makes a card that is up show what the ask is now: its deadline, how often it was asked, or how it ended.
    async fn update(&self, ask: &Ask, route: usize) -> Updated;

    /// Brings an open ask to people's minds.
    async fn remind(&self, _ask: &Ask, _route: usize) -> Reminded {
        Reminded::LeftOut
    }

    /// What keeps it from its platform.
    fn problem(&self) -> Option<Problem> {
        None
    }
}

/// What came of bringing an ask to people's minds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reminded {
    /// They were reminded.
    Sent,
    /// Nobody knows whether they were.
    Unknown,
    /// They were not.
    LeftOut,
    /// They were not, because the card of this id is not there any more.
    Gone(String),
}

/// What came of changing a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// It shows what it should, or is gone.
    Done,
    /// Not now; not sooner than after this, if the platform said so.
    Later(Option<Duration>),
    /// Not before this person has written; after that time it never will.
    Held {
        /// Who.
        person: String,
        /// Until when to wait.
        until: Time,
    },
    /// It never will. The operator is told why.
    Never(String),
}

/// The channels that are set up. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Channels(Arc<[Arc<dyn Channel>]>);

impl FromIterator<Arc<dyn Channel>> for Channels {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Channel>>>(channels: I) -> Self {
        Self(channels.into_iter().collect())
    }
}

impl Channels {
    /// Where a group asks, with what each channel can do.
    pub(super) fn fix(&self, routes: &[RouteSettings]) -> Vec<Route> {
        let fix = |route: &RouteSettings| Route {
            channel: route.channel,
            chat: route.chat.clone(),
            responders: route.responders.clone().unwrap_or(Responders::Only(Vec::new())),
            capabilities: self.named(route.channel).capabilities(),
        };
        routes.iter().map(fix).collect()
    }

    /// Whether a card with this content can be shown on each of these routes.
    pub(super) fn fit(&self, routes: &[RouteSettings], group: &Group, content: &Content) -> Result<(), Rejection> {
        routes.iter().try_for_each(|route| self.named(route.channel).fits(group, content))
    }

    /// The channel that an ask is shown in by this route.
    pub(super) fn of(&self, ask: &Ask, route: usize) -> &dyn Channel {
        ask.route(route).map_or(&NotSetUp, |route| self.named(route.channel))
    }

    pub(super) fn named(&self, name: ChannelName) -> &dyn Channel {
        self.0.iter().find(|channel| channel.name() == name).map_or(&NotSetUp, AsRef::as_ref)
    }

    pub(super) fn has(&self, name: ChannelName) -> bool {
        self.0.iter().any(|channel| channel.name() == name)
    }

    /// Each channel that is set up, and what keeps it from its platform.
    pub(super) fn standing(&self) -> impl Iterator<Item = (ChannelName, Option<Problem>)> {
        self.0.iter().map(|channel| (channel.name(), channel.problem()))
    }
}

/// Takes the place of a channel that the settings do not set up any more.
#[derive(Debug)]
struct NotSetUp;

#[async_trait]
impl Channel for NotSetUp {
    fn name(&self) -> ChannelName {
        ChannelName::default()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn post(&self, ask: &Ask, route: usize, _attempt: u8, _progress: Progress<'_>) -> Option<Posted> {
        Some(Posted::Never { trouble: Trouble::NotConfigured, why: not_set_up(channel_of(ask, route)) })
    }

    async fn update(&self, ask: &Ask, route: usize) -> Updated {
        Updated::Never(not_set_up(channel_of(ask, route)))
    }
}

fn channel_of(ask: &Ask, route: usize) -> ChannelName {
    ask.route(route).map(|route| route.channel).unwrap_or_default()
}

/// Why nothing of this channel can be shown or changed.
pub(super) fn not_set_up(channel: ChannelName) -> String {
    format!("{channel} is not set up")
}
