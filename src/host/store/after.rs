//! What happens after the decision, as it is kept in an ask's file. Knows the shape and nothing of folders.

use super::record::{BadRecord, GivenRecord, PersonRecord, millis, time};
use crate::ipc::wire::time_text as text;
use askd_core::{AgentStart, Answers, FollowUp, Given, Late, Questions, Remark, Response, SessionRules, Stop, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(default)]
pub(super) struct AfterRecord {
    wake: WakeRecord,
    late: LateRecord,
    stop: StopRecord,
    overdue: bool,
    briefings: u32,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(tag = "name", rename_all = "snake_case")]
enum WakeRecord {
    #[default]
    Idle,
    Briefing,
    Starting {
        since: String,
        tries: u32,
        next: String,
        running: bool,
    },
    Started {
        accepted: bool,
        before: bool,
    },
    Kept,
    GivenUp {
        why: String,
    },
    Reclaiming,
    Reclaimed {
        until: String,
    },
    Read,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(tag = "name", rename_all = "snake_case")]
enum LateRecord {
    #[default]
    No,
    Open {
        until: String,
    },
    AskedAgain,
    Answered {
        given: Vec<GivenRecord>,
        by: PersonRecord,
        at: String,
    },
}

#[derive(Serialize, Deserialize, Default, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum StopRecord {
    #[default]
    No,
    Owed,
    Stopping,
    Done,
}

/// By which rules an outcome that nobody takes is handled; without it, as where no agent can be started.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionRecord {
    pickup_timeout_ms: u64,
    answer_retention_ms: u64,
    late_answers_ms: u64,
    probe: bool,
    start: bool,
    stop: bool,
}

impl Default for SessionRecord {
    fn default() -> Self {
        Self::of(&SessionRules::default())
    }
}

impl AfterRecord {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn of(after: &FollowUp) -> Self {
        Self {
            wake: WakeRecord::of(&after.start),
            late: LateRecord::of(&after.late),
            stop: match after.stop {
                Stop::No => StopRecord::No,
                Stop::Owed => StopRecord::Owed,
                Stop::Stopping => StopRecord::Stopping,
                Stop::Done => StopRecord::Done,
            },
            overdue: after.overdue,
            briefings: after.briefings,
        }
    }

    pub(super) fn after(self, questions: &Questions) -> Result<FollowUp, BadRecord> {
        Ok(FollowUp {
            start: self.wake.wake()?,
            late: self.late.late(questions)?,
            stop: match self.stop {
                StopRecord::No => Stop::No,
                StopRecord::Owed => Stop::Owed,
                StopRecord::Stopping => Stop::Stopping,
                StopRecord::Done => Stop::Done,
            },
            overdue: self.overdue,
            briefings: self.briefings,
        })
    }
}

impl WakeRecord {
    fn of(wake: &AgentStart) -> Self {
        match wake {
            AgentStart::Idle => Self::Idle,
            AgentStart::Briefing => Self::Briefing,
            AgentStart::Starting { since, tries, next, running } => {
                Self::Starting { since: text(*since), tries: *tries, next: text(*next), running: *running }
            }
            AgentStart::Started { accepted, before } => Self::Started { accepted: *accepted, before: *before },
            AgentStart::Kept => Self::Kept,
            AgentStart::GivenUp { why } => Self::GivenUp { why: why.clone() },
            AgentStart::Reclaiming => Self::Reclaiming,
            AgentStart::Reclaimed { until } => Self::Reclaimed { until: text(*until) },
            AgentStart::Read => Self::Read,
        }
    }

    fn wake(self) -> Result<AgentStart, BadRecord> {
        let at = |text: &str| time(text, "after");
        Ok(match self {
            Self::Idle => AgentStart::Idle,
            Self::Briefing => AgentStart::Briefing,
            Self::Starting { since, tries, next, running } => {
                AgentStart::Starting { since: at(&since)?, tries, next: at(&next)?, running }
            }
            Self::Started { accepted, before } => AgentStart::Started { accepted, before },
            Self::Kept => AgentStart::Kept,
            Self::GivenUp { why } => AgentStart::GivenUp { why },
            Self::Reclaiming => AgentStart::Reclaiming,
            Self::Reclaimed { until } => AgentStart::Reclaimed { until: at(&until)? },
            Self::Read => AgentStart::Read,
        })
    }
}

impl LateRecord {
    fn of(late: &Late) -> Self {
        match late {
            Late::No => Self::No,
            Late::Open { until } => Self::Open { until: text(*until) },
            Late::AskedAgain => Self::AskedAgain,
            Late::Answered { answers, by, at } => {
                Self::Answered { given: given_of(answers), by: PersonRecord::of(by), at: text(*at) }
            }
        }
    }

    fn late(self, questions: &Questions) -> Result<Late, BadRecord> {
        Ok(match self {
            Self::No => Late::No,
            Self::Open { until } => Late::Open { until: time(&until, "after")? },
            Self::AskedAgain => Late::AskedAgain,
            Self::Answered { given, by, at } => {
                Late::Answered { answers: answers(given, questions)?, by: by.person()?, at: time(&at, "after")? }
            }
        })
    }
}

/// Answers as they are kept: one entry a question.
pub(super) fn given_of(answers: &Answers) -> Vec<GivenRecord> {
    let given = answers.entries().iter().map(|answer| {
        answer.as_ref().map_or_else(GivenRecord::default, |answer| GivenRecord {
            picks: answer.picks().to_vec(),
            text: answer.text().map(str::to_owned),
        })
    });
    given.collect()
}

/// The answers of such entries.
pub(super) fn answers(given: Vec<GivenRecord>, questions: &Questions) -> Result<Answers, BadRecord> {
    let given: Vec<(usize, Given)> = given.into_iter().map(GivenRecord::given).enumerate().collect();
    questions.answer(&given).map_err(|_| BadRecord::Field("given"))
}

impl SessionRecord {
    pub(super) fn of(rules: &SessionRules) -> Self {
        Self {
            pickup_timeout_ms: millis(rules.pickup_timeout),
            answer_retention_ms: millis(rules.answer_retention),
            late_answers_ms: millis(rules.late_answers),
            probe: rules.probe,
            start: rules.start,
            stop: rules.stop,
        }
    }

    pub(super) fn rules(self) -> SessionRules {
        SessionRules {
            pickup_timeout: Duration::from_millis(self.pickup_timeout_ms),
            answer_retention: Duration::from_millis(self.answer_retention_ms),
            late_answers: Duration::from_millis(self.late_answers_ms),
            probe: self.probe,
            start: self.start,
            stop: self.stop,
        }
    }
}

/// The name of how far a response is, and since when it lies there.
pub(super) fn response_of(response: Response) -> (&'static str, Option<String>) {
    match response {
        Response::Undecided => ("undecided", None),
        Response::Owed => ("owed", None),
        Response::Ready => ("ready", None),
        Response::Published { at } => ("published", Some(text(at))),
        Response::TakingBack => ("taking_back", None),
        Response::TakenBack => ("taken_back", None),
        Response::Taken => ("taken", None),
    }
}

/// How far a response of that name is. Where it does not say since when it lies there, it lies there for long.
pub(super) fn response(name: &str, at: Option<&str>) -> Result<Response, BadRecord> {
    let at = at.map_or(Ok(Time::from_millis(0)), |at| time(at, "published_at"))?;
    let all = [
        Response::Undecided,
        Response::Owed,
        Response::Ready,
        Response::Published { at },
        Response::TakingBack,
        Response::TakenBack,
        Response::Taken,
    ];
    all.into_iter().find(|response| response_of(*response).0 == name).ok_or(BadRecord::Field("response"))
}

const REMARKS: [(Remark, &str); 10] = [
    (Remark::Plain, "plain"),
    (Remark::Late, "late"),
    (Remark::AskedAgain, "asked_again"),
    (Remark::Overdue, "overdue"),
    (Remark::Running, "running"),
    (Remark::Started, "started"),
    (Remark::StartedBefore, "started_before"),
    (Remark::Kept, "kept"),
    (Remark::NotStarted, "not_started"),
    (Remark::Stopped, "stopped"),
];

/// The name of what a closed card says.
pub(super) fn remark_of(remark: Remark) -> String {
    REMARKS.iter().find(|(known, _)| *known == remark).map(|(_, name)| (*name).to_owned()).unwrap_or_default()
}

/// What a closed card of that name says.
pub(super) fn remark(name: &str) -> Result<Remark, BadRecord> {
    REMARKS.iter().find(|(_, known)| *known == name).map(|(remark, _)| *remark).ok_or(BadRecord::Field("said"))
}
