//! What was posted on a route, as it stands in an ask's file. Knows the file's shape but no folders.

use super::after;
use super::phase::PhaseRecord;
use super::record::{BadRecord, is_false, time};
use crate::ipc::wire::time_text as text;
use askd_core::{Left, OneByOne, Remark, Sending, Trouble, Widget};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct WidgetRecord {
    attempt: u8,
    messages: Vec<String>,
    #[serde(default, skip_serializing_if = "PartsRecord::is_empty")]
    parts: PartsRecord,
    /// Without it askd does not know when the questions were sent: they are answered by quoting them or in the inbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sendings: Vec<SendingRecord>,
    /// What its card says beside the outcome; missing while that is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    said: Option<String>,
    /// Why the last try was not shown. Missing in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    #[serde(flatten)]
    phase: PhaseRecord,
}

/// Left out where a widget shows the whole ask at once.
#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(default)]
struct PartsRecord {
    index: usize,
    first_attempt: u8,
    to: Option<String>,
    of: Vec<usize>,
    repeated: bool,
    lapsed: bool,
    seen: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct SendingRecord {
    attempt: u8,
    question: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Our own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    called: Option<String>,
    /// The platform's clock, this and the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    failed: bool,
}

impl WidgetRecord {
    pub(super) fn of(widget: &Widget) -> Self {
        Self {
            attempt: widget.attempt,
            messages: widget.messages.clone(),
            parts: PartsRecord::of(&widget.one_by_one),
            sendings: widget.sendings.iter().map(SendingRecord::of).collect(),
            said: widget.said.map(after::remark_of),
            trouble: widget.trouble.map(|trouble| trouble.name().to_owned()),
            phase: PhaseRecord::of(&widget.state),
        }
    }

    pub(super) fn widget(self) -> Result<Widget, BadRecord> {
        let phase = self.phase.phase()?;
        let said: Option<Remark> = self.said.as_deref().map(after::remark).transpose()?;
        let sendings = self.sendings.into_iter().map(SendingRecord::sending).collect::<Result<_, _>>()?;
        let (attempt, messages, parts) = (self.attempt, self.messages, self.parts.parts());
        let trouble = self.trouble.as_deref().and_then(Trouble::named);
        Ok(Widget { attempt, state: phase, messages, one_by_one: parts, sendings, said, trouble })
    }
}

impl SendingRecord {
    fn of(sending: &Sending) -> Self {
        Self {
            attempt: sending.attempt,
            question: sending.question,
            to: sending.to.clone(),
            message: sending.message.clone(),
            called: sending.left.map(|left| text(left.called)),
            left_by: sending.left.map(|left| text(left.by)),
            sent: sending.sent.map(text),
            delivered: sending.delivered.map(text),
            failed: sending.failed,
        }
    }

    fn sending(self) -> Result<Sending, BadRecord> {
        let at = |text: Option<String>| text.map(|text| time(&text, "sendings")).transpose();
        let left = at(self.called)?.zip(at(self.left_by)?).map(|(called, by)| Left { called, by });
        Ok(Sending {
            attempt: self.attempt,
            question: self.question,
            to: self.to,
            message: self.message,
            left,
            sent: at(self.sent)?,
            delivered: at(self.delivered)?,
            failed: self.failed,
        })
    }
}

impl PartsRecord {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(parts: &OneByOne) -> Self {
        let OneByOne { index, first_attempt, to, of, repeated, lapsed, seen, waiting } = parts.clone();
        Self { index, first_attempt, to, of, repeated, lapsed, seen, waiting }
    }

    fn parts(self) -> OneByOne {
        let Self { index, first_attempt, to, of, repeated, lapsed, seen, waiting } = self;
        OneByOne { index, first_attempt, to, of, repeated, lapsed, seen, waiting }
    }
}
