//! The shapes of the files, and nothing else: bytes to requests, outcomes to bytes. Tolerant of
//! fields it does not know, strict about those it does. Sections 4 and 5 of the specification.

mod briefing;
mod draft;
mod object;
mod peek;
mod plainly;
mod request;
mod response;

pub use briefing::BriefingFile;
pub use draft::{Draft, DraftChoice};
pub use object::{Object, objects};
pub use peek::{Peek, peek};
pub use plainly::plainly;
pub use request::{Kinds, MAX_TIMEOUT_MS, Message, RENDER_TIMEOUT_MS, Request, RequestFile, parse, parse_ask};
pub use response::{
    AnswerValue, AnsweredBy, Detail, Pairs, ResponseFile, ResponseResult, STATUSES, StatusFile, answers, details,
    outcome_of, refused, response_for, status, unanswered, withdrawn,
};

use askd_core::Digest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// What a response or a briefing file holds: readable JSON and one line end.
pub fn file_bytes(content: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(content)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// One digest over several parts, each set off by its length.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Digest::from_bytes(hash.finalize().into())
}
