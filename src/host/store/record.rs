//! An ask as it is kept: one readable JSON file. Knows the shape and nothing of folders.
//!
//! Fields that repeat others (`channel_name`, `chat`, `message_id`, `attempt`, `shown_at`, `answer_by`) are there for
//! people and tools that look into the folder; they are written and never read.

use super::after::{self, AfterRecord, SessionRecord};
use super::blocks::BlockRecord;
use super::outcome::OutcomeRecord;
pub(super) use super::person::PersonRecord;
use super::widgets::WidgetRecord;
use crate::ipc::wire::{time_from, time_text as text};
use crate::sabotage::on;
use askd_core::{
    Ask, Choice, Content, Draft, Given, Kind, Outcome, Questions, Responders, Route, Rules, SoFar, Stage, Time,
    TimeoutPolicy, Waiter,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The format that is written. What is newer is not touched.
pub(super) const VERSION: u32 = 1;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// Written by a newer askd.
    #[error("it has format {0}, this askd knows {VERSION}: a newer askd wrote it")]
    Newer(u32),
    /// Not JSON of the right shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It cannot be read at all.
    #[error("{0}")]
    Unreadable(String),
    /// The right shape, but not an ask.
    #[error("{0} does not fit")]
    Field(&'static str),
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct Record {
    v: u32,
    id: String,
    request_id: String,
    short_id: String,
    source_group: String,
    channel_name: String,
    chat: Option<String>,
    session_id: Option<String>,
    title: Option<String>,
    context: Option<String>,
    questions: Vec<QuestionRecord>,
    message_id: Option<String>,
    timestamp: String,
    stage: StageRecord,
    attempt: u8,
    shown_at: Option<String>,
    answer_by: Option<String>,
    render_confirmed: bool,
    /// Missing in older records: askd did not yet record that a page displayed an ask of another route.
    #[serde(default)]
    viewed: bool,
    #[serde(default)]
    reminders: u8,
    #[serde(default)]
    escalations: u8,
    key: Option<String>,
    rules: RulesRecord,
    waiters: Vec<WaiterRecord>,
    widgets: Vec<WidgetRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    so_far: Vec<SoFarRecord>,
    /// In records of earlier versions these ids are in `so_far`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    heard: Vec<String>,
    #[serde(default, skip_serializing_if = "AfterRecord::is_empty")]
    after: AfterRecord,
    block: Option<BlockRecord>,
}

#[derive(Serialize, Deserialize)]
struct QuestionRecord {
    id: String,
    question: String,
    header: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    options: Vec<ChoiceRecord>,
    custom: bool,
    required: bool,
    placeholder: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ChoiceRecord {
    label: String,
    description: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
enum StageRecord {
    Posting,
    Open { shown_at: String, answer_by: String },
    Settled { at: String, shown_at: Option<String>, outcome: OutcomeRecord },
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
pub(super) struct GivenRecord {
    pub(super) picks: Vec<usize>,
    pub(super) text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RulesRecord {
    timeout_ms: u64,
    render_timeout_ms: u64,
    max_retries: u8,
    keep_ms: u64,
    #[serde(default)]
    remind_after_ms: Option<u64>,
    #[serde(default)]
    escalate_after_ms: Option<u64>,
    #[serde(default)]
    session: SessionRecord,
    routes: Vec<RouteRecord>,
}

#[derive(Serialize, Deserialize)]
struct RouteRecord {
    channel: String,
    chat: String,
    /// `None`: anyone in the chat.
    responders: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct WaiterRecord {
    request_id: String,
    digest: String,
    op_code: Option<String>,
    timeout_policy: String,
    process: Option<String>,
    #[serde(default)]
    asked_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    late: bool,
    withdrawn: bool,
    response: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_at: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct SoFarRecord {
    route: usize,
    person: PersonRecord,
    given: Vec<Option<GivenRecord>>,
    /// Only earlier versions wrote it: now it is in `heard` of the whole ask.
    #[serde(default, skip_serializing)]
    messages: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn time(text: &str, field: &'static str) -> Result<Time, BadRecord> {
    time_from(text).ok_or(BadRecord::Field(field))
}

fn parsed<T: std::str::FromStr>(text: &str, field: &'static str) -> Result<T, BadRecord> {
    text.parse().map_err(|_| BadRecord::Field(field))
}

/// The bytes of an ask's file.
pub(super) fn write(ask: &Ask) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(&Record::of(ask))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The ask of such bytes.
pub(super) fn read(bytes: &[u8]) -> Result<Ask, BadRecord> {
    let Version { v } = serde_json::from_slice(bytes)?;
    if v > VERSION {
        return Err(BadRecord::Newer(v));
    }
    serde_json::from_slice::<Record>(bytes)?.ask()
}

impl Record {
    fn of(ask: &Ask) -> Self {
        let answer_by = match ask.stage {
            Stage::Open { answer_by, .. } => Some(text(answer_by)),
            _ => None,
        };
        let route = ask.rules.routes.get(ask.widgets.len().saturating_sub(1));
        Self {
            v: VERSION,
            id: ask.id.to_string(),
            request_id: ask.waiters.first().map(|waiter| waiter.request_id.to_string()).unwrap_or_default(),
            short_id: ask.short_id.to_string(),
            source_group: ask.group.to_string(),
            channel_name: route.map(|route| route.channel.to_string()).unwrap_or_default(),
            chat: route.map(|route| route.chat.clone()).filter(|chat| !chat.is_empty()),
            session_id: ask.session.clone(),
            title: ask.content.title.clone(),
            context: ask.content.context.clone(),
            questions: ask.content.questions.iter().map(QuestionRecord::of).collect(),
            message_id: ask.widgets.last().and_then(|widget| widget.messages.last().cloned()),
            timestamp: text(ask.created_at),
            stage: StageRecord::of(&ask.stage),
            attempt: ask.widgets.last().map_or(0, |widget| widget.attempt),
            shown_at: ask.shown_at().map(text),
            answer_by,
            render_confirmed: ask.confirmed,
            viewed: ask.viewed,
            reminders: ask.reminders,
            escalations: ask.escalations,
            key: ask.key.map(|key| key.to_string()),
            rules: RulesRecord::of(&ask.rules),
            waiters: ask.waiters.iter().map(WaiterRecord::of).collect(),
            widgets: ask.widgets.iter().map(WidgetRecord::of).collect(),
            so_far: ask.so_far.iter().map(SoFarRecord::of).collect(),
            heard: if on("noseen") { Vec::new() } else { ask.heard.clone() },
            after: AfterRecord::of(&ask.follow_up),
            block: ask.block.as_ref().map(BlockRecord::of),
        }
    }

    fn ask(self) -> Result<Ask, BadRecord> {
        let drafts = self.questions.into_iter().map(QuestionRecord::draft).collect();
        let questions = Questions::new(&self.request_id, drafts).map_err(|_| BadRecord::Field("questions"))?;
        let stage = self.stage.stage(&questions)?;
        let blocked = matches!(stage, Stage::Settled { outcome: Outcome::Blocked { .. }, .. });
        let after = self.after.after(&questions)?;
        let heard = self.so_far.iter().flat_map(|so_far| so_far.messages.iter().cloned()).chain(self.heard).collect();
        let ask = Ask {
            id: parsed(&self.id, "id")?,
            short_id: parsed(&self.short_id, "short_id")?,
            group: parsed(&self.source_group, "source_group")?,
            content: Content::new(self.title, self.context, questions).map_err(|_| BadRecord::Field("content"))?,
            rules: self.rules.rules()?,
            key: self.key.map(|key| parsed(&key, "key")).transpose()?,
            session: self.session_id,
            waiters: self.waiters.into_iter().map(WaiterRecord::waiter).collect::<Result<_, _>>()?,
            widgets: self.widgets.into_iter().map(WidgetRecord::widget).collect::<Result<_, _>>()?,
            so_far: self.so_far.into_iter().map(SoFarRecord::so_far).collect::<Result<_, _>>()?,
            heard,
            confirmed: self.render_confirmed,
            viewed: self.viewed,
            reminders: self.reminders,
            escalations: self.escalations,
            stage,
            follow_up: after,
            block: BlockRecord::of_stage(self.block, blocked)?,
            created_at: time(&self.timestamp, "timestamp")?,
        };
        if ask.widgets.len() > ask.rules.routes.len() || ask.waiters.is_empty() {
            return Err(BadRecord::Field("widgets"));
        }
        Ok(ask)
    }
}

impl QuestionRecord {
    fn of(question: &askd_core::Question) -> Self {
        let choice =
            |choice: &Choice| ChoiceRecord { label: choice.label.clone(), description: choice.description.clone() };
        Self {
            id: question.id.clone(),
            question: question.text.clone(),
            header: question.header.clone(),
            kind: question.kind.name().to_owned(),
            options: question.choices.iter().map(choice).collect(),
            custom: question.custom,
            required: question.required,
            placeholder: question.placeholder.clone(),
        }
    }

    fn draft(self) -> Draft {
        let choice = |choice: ChoiceRecord| Choice { label: choice.label, description: choice.description };
        let custom = matches!(Kind::from_name(&self.kind), Some(Kind::Select | Kind::MultiSelect));
        Draft {
            id: Some(self.id),
            text: self.question,
            header: self.header,
            kind: Some(self.kind),
            multiple: false,
            choices: self.options.into_iter().map(choice).collect(),
            required: Some(self.required),
            placeholder: self.placeholder,
            custom: custom.then_some(self.custom),
        }
    }
}

impl StageRecord {
    fn of(stage: &Stage) -> Self {
        match stage {
            Stage::Posting => Self::Posting,
            Stage::Open { shown_at, answer_by } => {
                Self::Open { shown_at: text(*shown_at), answer_by: text(*answer_by) }
            }
            Stage::Settled { outcome, at, shown_at } => {
                Self::Settled { at: text(*at), shown_at: shown_at.map(text), outcome: OutcomeRecord::of(outcome) }
            }
        }
    }

    fn stage(self, questions: &Questions) -> Result<Stage, BadRecord> {
        Ok(match self {
            Self::Posting => Stage::Posting,
            Self::Open { shown_at, answer_by } => {
                Stage::Open { shown_at: time(&shown_at, "shown_at")?, answer_by: time(&answer_by, "answer_by")? }
            }
            Self::Settled { at, shown_at, outcome } => Stage::Settled {
                outcome: outcome.outcome(questions)?,
                at: time(&at, "at")?,
                shown_at: shown_at.map(|text| time(&text, "shown_at")).transpose()?,
            },
        })
    }
}

impl GivenRecord {
    pub(super) fn given(self) -> Given {
        Given { picks: self.picks, text: self.text }
    }
}

impl RulesRecord {
    fn of(rules: &Rules) -> Self {
        let route = |route: &Route| RouteRecord {
            channel: route.channel.to_string(),
            chat: route.chat.clone(),
            responders: match &route.responders {
                Responders::Anyone => None,
                Responders::Only(ids) => Some(ids.clone()),
            },
        };
        Self {
            timeout_ms: millis(rules.timeout),
            render_timeout_ms: millis(rules.render_timeout),
            max_retries: rules.max_retries,
            keep_ms: millis(rules.keep),
            remind_after_ms: rules.remind_after.map(millis),
            escalate_after_ms: rules.escalate_after.map(millis),
            session: SessionRecord::of(&rules.session),
            routes: rules.routes.iter().map(route).collect(),
        }
    }

    fn rules(self) -> Result<Rules, BadRecord> {
        let route = |route: RouteRecord| {
            let responders = route.responders.map_or(Responders::Anyone, Responders::Only);
            Ok(Route { channel: parsed(&route.channel, "channel")?, chat: route.chat, responders })
        };
        Ok(Rules {
            timeout: Duration::from_millis(self.timeout_ms),
            render_timeout: Duration::from_millis(self.render_timeout_ms),
            max_retries: self.max_retries,
            keep: Duration::from_millis(self.keep_ms),
            remind_after: self.remind_after_ms.map(Duration::from_millis),
            escalate_after: self.escalate_after_ms.map(Duration::from_millis),
            session: self.session.rules(),
            routes: self.routes.into_iter().map(route).collect::<Result<_, BadRecord>>()?,
        })
    }
}

impl WaiterRecord {
    fn of(waiter: &Waiter) -> Self {
        let (response, published_at) = after::response_of(waiter.response);
        Self {
            request_id: waiter.request_id.to_string(),
            digest: waiter.digest.to_string(),
            op_code: waiter.op_code.clone(),
            timeout_policy: waiter.on_timeout.name().to_owned(),
            process: waiter.process.clone(),
            asked_at: Some(text(waiter.asked_at)),
            run: waiter.run.clone(),
            late: waiter.late,
            withdrawn: waiter.withdrawn,
            response: response.to_owned(),
            published_at,
        }
    }

    fn waiter(self) -> Result<Waiter, BadRecord> {
        Ok(Waiter {
            request_id: parsed(&self.request_id, "request_id")?,
            digest: parsed(&self.digest, "digest")?,
            op_code: self.op_code,
            on_timeout: TimeoutPolicy::from_name(&self.timeout_policy).ok_or(BadRecord::Field("timeout_policy"))?,
            process: self.process,
            asked_at: self.asked_at.map_or(Ok(Time::from_millis(0)), |at| time(&at, "asked_at"))?,
            run: self.run,
            late: self.late,
            withdrawn: self.withdrawn,
            response: after::response(&self.response, self.published_at.as_deref())?,
        })
    }
}

impl SoFarRecord {
    fn of(so_far: &SoFar) -> Self {
        let given = |given: &Option<Given>| {
            given.as_ref().map(|given| GivenRecord { picks: given.picks.clone(), text: given.text.clone() })
        };
        Self {
            route: so_far.route,
            person: PersonRecord::of(&so_far.person),
            given: so_far.given.iter().map(given).collect(),
            messages: Vec::new(),
        }
    }

    fn so_far(self) -> Result<SoFar, BadRecord> {
        let given = |given: Option<GivenRecord>| given.map(GivenRecord::given);
        Ok(SoFar {
            route: self.route,
            person: self.person.person()?,
            given: self.given.into_iter().map(given).collect(),
        })
    }
}
