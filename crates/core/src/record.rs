//! The record of an ask: one JSON object, whose fields are those of [`AskState`] and of its [`Head`]. What deriving does not
//! say stands here: the checks of an ask that is read, and the forms of names, times and durations.
//!
//! Reading and writing are functions without type parameters, so that they are compiled here, for speed, and once: a start
//! spends its time in them. Which versions there are, and what file a record is in, is the store's to say.

use crate::{
    AfterTimeout, Ask, AskId, AskState, ChannelName, Content, Digest, Group, Outcome, Questions, RequestId, Route,
    Rules, ShortId, SoFar, Stage, Time, Waiter, Widget,
};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Most records are smaller.
pub const USUAL_BYTES: usize = 4 * 1024;

/// A record that was read.
#[derive(Debug)]
pub struct Record {
    /// Its format; the first version did not say.
    pub v: Option<u32>,
    /// The boot of the computer in which it was written; earlier formats did not say.
    pub boot: Option<String>,
    /// What it has in it of the store's journal: no entry up to this one is newer.
    pub entry: Option<EntryId>,
    /// The ask.
    pub ask: Ask,
}

/// What is written about an ask beside itself: see [`Record`].
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The format.
    pub v: u32,
    /// The boot of the computer.
    pub boot: &'a str,
    /// What it has in it of the store's journal.
    pub entry: Option<&'a EntryId>,
}

/// Names an entry of the store's journal: the run of the daemon that appended it, and its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryId {
    /// The run.
    pub run: Arc<str>,
    /// The number.
    pub number: u64,
}

impl EntryId {
    /// Whether a record that has all entries up to `last` has this one.
    pub fn is_in(&self, last: &Self) -> bool {
        self.run == last.run && self.number <= last.number
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of run {}", self.number, self.run)
    }
}

/// A record as it is written. The fields between its head and its ask repeat what is in the ask: people and tools that look
/// into the folder find them by these names, and nobody reads them.
#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    boot: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a EntryId>,
    request_id: Option<&'a RequestId>,
    channel_name: Option<ChannelName>,
    chat: Option<&'a str>,
    message_id: Option<&'a str>,
    attempt: u8,
    shown_at: Option<Time>,
    answer_by: Option<Time>,
    #[serde(flatten)]
    ask: &'a AskState,
}

impl<'a> Written<'a> {
    fn of(ask: &'a Ask, head: Head<'a>) -> Self {
        let widget = ask.widgets.last();
        let route = widget.map(|widget| &widget.route);
        Self {
            v: head.v,
            boot: head.boot,
            entry: head.entry,
            request_id: ask.waiters.first().map(|waiter| &waiter.request_id),
            channel_name: route.map(|route| route.channel),
            chat: route.map(|route| route.chat.as_str()).filter(|chat| !chat.is_empty()),
            message_id: widget.and_then(|widget| widget.messages().next_back()),
            attempt: widget.map_or(0, |widget| widget.attempt),
            shown_at: ask.shown_at(),
            answer_by: if let Stage::Open { answer_by, .. } = ask.stage { Some(answer_by) } else { None },
            ask,
        }
    }
}

/// A record as it is read: [`AskState`] with the fields of its [`Content`] beside the others. Serde would keep and copy the
/// fields that it finds for a flattened one.
#[derive(Deserialize)]
struct Read {
    v: Option<u32>,
    boot: Option<String>,
    entry: Option<EntryId>,
    id: AskId,
    short_id: ShortId,
    source_group: Group,
    title: Option<String>,
    context: Option<String>,
    questions: Questions,
    rules: Rules,
    key: Option<Digest>,
    session_id: Option<String>,
    waiters: Vec<Waiter>,
    widgets: Vec<Widget>,
    next_routes: Vec<Route>,
    so_far: Vec<SoFar>,
    heard: Vec<String>,
    render_confirmed: bool,
    viewed: bool,
    #[serde(default)]
    extended: bool,
    stage: Stage,
    timestamp: Time,
}

impl Read {
    /// An error if its parts do not fit each other.
    fn whole<E: Error>(self) -> Result<Record, E> {
        let state = AskState {
            id: self.id,
            short_id: self.short_id,
            group: self.source_group,
            content: Content { title: self.title, context: self.context, questions: self.questions },
            rules: self.rules,
            key: self.key,
            session: self.session_id,
            waiters: self.waiters,
            widgets: self.widgets,
            next_routes: self.next_routes,
            so_far: self.so_far,
            heard: self.heard,
            confirmed: self.render_confirmed,
            viewed: self.viewed,
            extended: self.extended,
            stage: self.stage,
            created_at: self.timestamp,
        };
        let ask = fitting(state).map_err(E::custom)?;
        Ok(Record { v: self.v, boot: self.boot, entry: self.entry, ask })
    }
}

/// An ask that could have come to be: its parts fit each other.
fn fitting(mut ask: AskState) -> Result<Ask, String> {
    let AskState { stage, content, .. } = &mut ask;
    if let Stage::Settled { outcome, follow_up, .. } = stage {
        if follow_up.block.is_some() != matches!(outcome, Outcome::Blocked { .. }) {
            return Err("a block belongs to an ask that is blocked, and to no other".to_owned());
        }
        if let Outcome::Answered { answers, .. } = outcome {
            *answers = answers.fitting(&content.questions).map_err(|why| why.to_string())?;
        }
        if let AfterTimeout::Answered { answers, .. } = &mut follow_up.after_timeout {
            *answers = answers.fitting(&content.questions).map_err(|why| why.to_string())?;
        }
    }
    content.within_limits().map_err(|why| why.to_string())?;
    if ask.widgets.is_empty() || ask.waiters.is_empty() {
        return Err("an ask has a waiter and a route".to_owned());
    }
    Ok(Ask(ask))
}

/// The record that these bytes are.
pub fn read(bytes: &[u8]) -> serde_json::Result<Record> {
    // Checked once as a whole: serde_json would check each text in it.
    let text = str::from_utf8(bytes).map_err(serde_json::Error::custom)?;
    serde_json::from_str::<Read>(text)?.whole()
}

/// The record of an ask in one line.
pub fn write(ask: &Ask, head: Head<'_>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut bytes, &Written::of(ask, head))?;
    Ok(bytes)
}

/// The record of an ask as people read it, which ends with a newline.
pub fn write_pretty(ask: &Ask, head: Head<'_>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer_pretty(&mut bytes, &Written::of(ask, head))?;
    bytes.push(b'\n');
    Ok(bytes)
}

impl Serialize for Ask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Read::deserialize(deserializer)?.whole().map(|record| record.ask)
    }
}

/// A type that a record, and a debugger, show as the text that it prints.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use as_text;

/// A duration in whole milliseconds.
pub(crate) mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same, or nothing.
pub(crate) mod millis_if_any {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[expect(clippy::ref_option, reason = "what serde calls")]
    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::millis::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
