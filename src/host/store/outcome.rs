//! An outcome as it is kept in an ask's record.

use super::after;
use super::record::{BadRecord, GivenRecord, PersonRecord};
use askd_core::{Cause, Outcome, Questions};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub(super) enum OutcomeRecord {
    Answered {
        given: Vec<GivenRecord>,
        by: PersonRecord,
    },
    Dismissed {
        by: PersonRecord,
    },
    Withdrawn,
    TimedOut,
    RetriesUsedUp {
        retries: u8,
        /// Older records do not say why.
        #[serde(default)]
        reason: Option<String>,
    },
    /// `reason`: in older records these are words for the operator, which nobody else is told.
    NeverShown {
        reason: String,
    },
    Blocked {
        limit: u8,
    },
}

impl OutcomeRecord {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered { answers, by } => {
                Self::Answered { given: after::given_of(answers), by: PersonRecord::of(by) }
            }
            Outcome::Dismissed { by } => Self::Dismissed { by: PersonRecord::of(by) },
            Outcome::Withdrawn => Self::Withdrawn,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Undelivered { cause: Cause { retries: Some(retries), reason } } => {
                Self::RetriesUsedUp { retries: *retries, reason: reason.map(|reason| reason.to_string()) }
            }
            Outcome::Undelivered { cause: Cause { retries: None, reason } } => {
                Self::NeverShown { reason: reason.map(|reason| reason.to_string()).unwrap_or_default() }
            }
            Outcome::Blocked { limit } => Self::Blocked { limit: *limit },
        }
    }

    pub(super) fn outcome(self, questions: &Questions) -> Result<Outcome, BadRecord> {
        Ok(match self {
            Self::Answered { given, by } => {
                Outcome::Answered { answers: after::answers(given, questions)?, by: by.person()? }
            }
            Self::Dismissed { by } => Outcome::Dismissed { by: by.person()? },
            Self::Withdrawn => Outcome::Withdrawn,
            Self::TimedOut => Outcome::TimedOut,
            Self::RetriesUsedUp { retries, reason } => {
                let reason = reason.and_then(|reason| reason.parse().ok());
                Outcome::Undelivered { cause: Cause { retries: Some(retries), reason } }
            }
            Self::NeverShown { reason } => {
                Outcome::Undelivered { cause: Cause { retries: None, reason: reason.parse().ok() } }
            }
            Self::Blocked { limit } => Outcome::Blocked { limit },
        })
    }
}
