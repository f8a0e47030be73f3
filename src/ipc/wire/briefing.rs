//! Briefing files: what a newly started agent reads. Section 7 of the specification.

use super::ResponseResult;
use serde::{Deserialize, Serialize};

/// A briefing file, `briefings/<ask id>.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BriefingFile {
    /// What came of the ask, in words for the agent.
    pub text: String,
    /// Which run of the agent asked, as it said itself.
    #[serde(default)]
    pub session_id: Option<String>,
    /// What came of the ask, as the waiting call would have been told.
    pub result: ResponseResult,
}

impl BriefingFile {
    /// As it is written: readable, one line end at the end.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}
