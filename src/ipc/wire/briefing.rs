//! A briefing file: what an agent that is started again is to read. Section 7 of the specification. The
//! daemon writes it, `askd briefing` reads it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `briefings/<ask id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BriefingFile {
    /// What the agent reads: the question and its answer, in words.
    pub text: String,
    /// Which run of the agent had asked.
    #[serde(default)]
    pub session_id: Option<String>,
    /// The `result` of a response file. Passed on as it is, so that nothing of a newer daemon's gets lost.
    #[serde(default)]
    pub result: Value,
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
