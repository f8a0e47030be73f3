//! How far a widget is, as it is stored.

use super::record::{BadRecord, time};
use crate::ipc::wire::time_text as text;
use askd_core::WidgetState;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(super) enum PhaseRecord {
    Queued {
        not_before: String,
        until: String,
    },
    Sent {
        at: String,
        render_by: String,
    },
    Unknown {
        at: String,
        looks: u8,
        look_at: String,
        /// Missing in records of daemons that counted such a post as a try.
        #[serde(default)]
        interrupted: bool,
    },
    Up {
        at: String,
        proven: bool,
        fall_back_at: Option<String>,
    },
    Held {
        at: String,
        until: String,
        fall_back_at: Option<String>,
    },
    Failed {
        /// Only there if no retry can help. In older records: words for the operator.
        never: Option<String>,
    },
    Closed,
}

impl PhaseRecord {
    pub(super) fn of(phase: &WidgetState) -> Self {
        match phase {
            WidgetState::Queued { not_before, until } => {
                Self::Queued { not_before: text(*not_before), until: text(*until) }
            }
            WidgetState::Sent { at, render_by } => Self::Sent { at: text(*at), render_by: text(*render_by) },
            WidgetState::Unknown { at, looks, look_at, interrupted } => {
                let (looks, interrupted) = (*looks, *interrupted);
                Self::Unknown { at: text(*at), looks, look_at: text(*look_at), interrupted }
            }
            WidgetState::Up { at, proven, fall_back_at } => {
                Self::Up { at: text(*at), proven: *proven, fall_back_at: fall_back_at.map(text) }
            }
            WidgetState::Held { at, until, fall_back_at } => {
                Self::Held { at: text(*at), until: text(*until), fall_back_at: fall_back_at.map(text) }
            }
            WidgetState::Failed { for_good } => {
                Self::Failed { never: for_good.then(|| "no retry can mend it".to_owned()) }
            }
            WidgetState::Closed => Self::Closed,
        }
    }

    pub(super) fn phase(self) -> Result<WidgetState, BadRecord> {
        let at = |text: &str| time(text, "widgets");
        Ok(match self {
            Self::Queued { not_before, until } => {
                WidgetState::Queued { not_before: at(&not_before)?, until: at(&until)? }
            }
            Self::Sent { at: sent, render_by } => WidgetState::Sent { at: at(&sent)?, render_by: at(&render_by)? },
            Self::Unknown { at: sent, looks, look_at, interrupted } => {
                WidgetState::Unknown { at: at(&sent)?, looks, look_at: at(&look_at)?, interrupted }
            }
            Self::Up { at: up, proven, fall_back_at } => {
                let fall_back_at = fall_back_at.map(|text| at(&text)).transpose()?;
                WidgetState::Up { at: at(&up)?, proven, fall_back_at }
            }
            Self::Held { at: held, until, fall_back_at } => {
                let fall_back_at = fall_back_at.map(|text| at(&text)).transpose()?;
                WidgetState::Held { at: at(&held)?, until: at(&until)?, fall_back_at }
            }
            Self::Failed { never } => WidgetState::Failed { for_good: never.is_some() },
            Self::Closed => WidgetState::Closed,
        })
    }
}
