//! What holds for one group: the keys of `[asks]`, the group's own keys over them, its routes and its session.

use super::mistakes::{Mistakes, nearest};
use super::session::Session;
use super::values::{ANY, Table, number, or_off, or_zero, responders, seconds, time_zone, timeout_policy};
use super::{Settings, slack, whatsapp};
use askd_core::{ChannelName, Responders, SessionRules, TimeoutPolicy};
use config::ValueKind;
use jiff::tz::TimeZone;
use serde::Deserialize;
use std::time::Duration;

/// What holds for one group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// Where it is asked, in order.
    #[serde(default = "inbox_alone")]
    pub routes: Vec<RouteSettings>,
    /// How to reach the agent's session.
    #[serde(default)]
    pub session: Session,
    /// How long a person has.
    #[serde(deserialize_with = "seconds::<10, 604_800, _>")]
    pub timeout: Duration,
    /// How long to wait for proof of display.
    #[serde(deserialize_with = "seconds::<10, 60, _>")]
    pub render_timeout: Duration,
    /// How often an unshown ask is posted again.
    #[serde(deserialize_with = "number::<0, 5, _, _>")]
    pub max_retries: u8,
    /// How often a question may be asked without an answer.
    #[serde(deserialize_with = "number::<1, 10, _, _>")]
    pub max_attempts: u8,
    /// What happens at a timeout.
    #[serde(deserialize_with = "timeout_policy")]
    pub on_timeout: TimeoutPolicy,
    /// How long a drop-in client has to take a response before the agent is started.
    #[serde(deserialize_with = "seconds::<1, ANY, _>")]
    pub pickup_timeout: Duration,
    /// How long a response that no call takes stays.
    #[serde(deserialize_with = "seconds::<1, ANY, _>")]
    pub answer_retention: Duration,
    /// How long an answer is still taken after a timeout; zero: not at all.
    #[serde(deserialize_with = "or_zero")]
    pub late_answers: Duration,
    /// When an open ask is brought to mind first.
    #[serde(deserialize_with = "or_off")]
    pub remind_after: Option<Duration>,
    /// When an unanswered ask is shown on the next route too.
    #[serde(deserialize_with = "or_off")]
    pub escalate_after: Option<Duration>,
    /// Open asks at a time.
    #[serde(rename = "max_open_per_group", deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub max_open: u32,
    /// New asks within an hour.
    #[serde(rename = "max_per_hour_per_group", deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub max_per_hour: u32,
    /// How long an outcome is kept.
    #[serde(deserialize_with = "seconds::<60, ANY, _>")]
    pub keep_settled: Duration,
    /// How long audit lines are kept; they are not of one group, so only `[asks]` decides.
    #[serde(deserialize_with = "seconds::<0, ANY, _>")]
    pub keep_audit: Duration,
}

/// Where a group asks. What the platform can do is the channel's to say.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSettings {
    /// Which channel.
    pub channel: ChannelName,
    /// The channel's own name of the chat; empty for the inbox, which has one.
    #[serde(default)]
    pub chat: String,
    /// Who may answer there; `None`: nobody but the operator.
    #[serde(default, deserialize_with = "responders")]
    pub responders: Option<Responders>,
    /// By whose clock people there read times; `None`: the host's.
    #[serde(default, deserialize_with = "time_zone")]
    pub time_zone: Option<TimeZone>,
}

type CheckRoute = fn(&mut RouteSettings, &str, &Settings, &mut Mistakes);

/// How the routes of each channel are checked, and brought into the spelling that its platform uses. One line each.
const ROUTES: [(ChannelName, CheckRoute); 3] = [
    (ChannelName::SLACK, slack::check_route),
    (ChannelName::WHATSAPP, whatsapp::check_route),
    (ChannelName::WEB, check_inbox),
];

pub(super) fn inbox_alone() -> Vec<RouteSettings> {
    vec![RouteSettings { channel: ChannelName::WEB, chat: String::new(), responders: None, time_zone: None }]
}

fn check_inbox(route: &mut RouteSettings, at: &str, _settings: &Settings, mistakes: &mut Mistakes) {
    if !route.chat.is_empty() || route.responders.is_some() {
        let why = "the inbox has no chat and no responders (the holder of its token is the operator); write \
                   { channel = \"web\" }";
        mistakes.add(at, why);
    }
}

impl GroupSettings {
    /// The rules for an outcome that no call takes.
    pub fn session_rules(&self) -> SessionRules {
        SessionRules {
            pickup_timeout: self.pickup_timeout,
            answer_retention: self.answer_retention,
            late_answers: self.late_answers,
            probe: self.session.probe.is_some(),
            start: self.session.start.is_some(),
            stop: self.session.stop.is_some(),
        }
    }

    /// Each place is asked once: in a chat the first route to it would decide who may answer, and a second card would follow.
    fn check_places(&self, at: &str, mistakes: &mut Mistakes) {
        for (index, route) in self.routes.iter().enumerate() {
            let same = |other: &RouteSettings| other.channel == route.channel && other.chat == route.chat;
            if let Some(first) = self.routes[..index].iter().position(same) {
                let more = if route.chat.is_empty() { "" } else { ": name all responders in one route" };
                mistakes.add(format!("{at}.routes[{index}]"), format!("is the same place as routes[{first}]{more}"));
            }
        }
    }

    /// Checks what one key alone cannot show. The group stands under the key `at`.
    pub(super) fn check(&mut self, at: &str, settings: &Settings, mistakes: &mut Mistakes) {
        for (index, route) in self.routes.iter_mut().enumerate() {
            let at = format!("{at}.routes[{index}]");
            let channel = route.channel.as_str();
            if let Some((_, check)) = ROUTES.iter().find(|(known, _)| known.as_str() == channel) {
                if route.time_zone.is_some() && route.channel != ChannelName::WHATSAPP {
                    let why = "is for routes to WhatsApp: elsewhere everyone reads times in their own time zone";
                    mistakes.add(format!("{at}.time_zone"), why);
                }
                check(route, &at, settings, mistakes);
                continue;
            }
            let known = ROUTES.map(|(channel, _)| channel.to_string());
            let meant = nearest(channel, &known).map(|meant| format!(". Did you mean {meant:?}?")).unwrap_or_default();
            mistakes.add(format!("{at}.channel"), format!("{channel:?} is none of {}{meant}", known.join(", ")));
        }
        self.check_places(at, mistakes);
        // A group without routes needs no session.
        if self.on_timeout == TimeoutPolicy::AbortTask && self.session.stop.is_none() && !self.routes.is_empty() {
            let why = "abort_task needs a way to stop the session; add it to the group: \
                       session = { stop = { docker = \"<container>\" } }";
            mistakes.add(format!("{at}.on_timeout"), why);
        }
    }
}

/// Gives each group what `[asks]` says and the group does not.
pub(super) fn inherit(settings: &mut Table) {
    let Some(ValueKind::Table(asks)) = settings.get("asks").map(|asks| asks.kind.clone()) else { return };
    let fill = |group: &mut config::Value| {
        let ValueKind::Table(own) = &mut group.kind else { return };
        for (key, value) in &asks {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    };
    settings.get_mut("defaults").map(fill);
    if let Some(ValueKind::Table(groups)) = settings.get_mut("groups").map(|groups| &mut groups.kind) {
        groups.values_mut().for_each(fill);
    }
}

/// What only a group has, in `[asks]` or above all groups.
pub(super) fn refuse_misplaced(settings: &mut Table, mistakes: &mut Mistakes) {
    if let Some(ValueKind::Table(asks)) = settings.get_mut("asks").map(|asks| &mut asks.kind) {
        for key in ["routes", "session"] {
            if asks.remove(key).is_some() {
                let why = "belongs in [groups.<name>], or in [defaults] for all groups without a section";
                mistakes.add(format!("asks.{key}"), why);
            }
        }
    }
    if let Some(ValueKind::Table(groups)) = settings.get_mut("groups").map(|groups| &mut groups.kind) {
        for (key, _) in groups.extract_if(|_, group| !matches!(group.kind, ValueKind::Table(_))) {
            mistakes.add(format!("groups.{key}"), "belongs in [groups.<name>], the section of one group");
        }
    }
}
