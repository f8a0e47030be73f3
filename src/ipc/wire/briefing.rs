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
