//! The log of Web API calls, and what it proves: pace and `Retry-After` kept or broken.
//!
//! Remembers times and outcomes, no tokens. Written by the Web API, read by tests.

use std::time::Duration;

use serde_json::Value;

/// How a call ended, as the client could see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `ok: true`.
    Ok,
    /// `ok: false` with this error.
    Error(String),
    /// An HTTP status other than 200.
    Status(u16),
    /// No or half an answer. `done`: the call had its effect all the same.
    Broken {
        /// Whether the effect took place.
        done: bool,
    },
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// When, since the stand-in started (monotonic).
    pub at: Duration,
    /// `chat.postMessage`, ...
    pub method: String,
    /// `GET` or `POST`.
    pub http: String,
    /// The channel it spoke of, if it did.
    pub channel: Option<String>,
    /// Arguments without the token.
    pub args: Value,
    /// How it ended.
    pub outcome: Outcome,
    /// Seconds of `Retry-After`, if it was limited.
    pub retry_after: Option<u64>,
}

/// Calls that came before an earlier `Retry-After` for the same method and channel had passed.
#[must_use]
pub fn too_early(calls: &[Call]) -> Vec<Call> {
    let forbids = |limit: &Call, call: &Call| {
        limit.retry_after.is_some_and(|seconds| {
            call.method == limit.method
                && call.channel == limit.channel
                && call.at > limit.at
                && call.at < limit.at + Duration::from_secs(seconds)
        })
    };
    calls.iter().filter(|call| calls.iter().any(|limit| forbids(limit, call))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_within_retry_after_is_noticed() {
        let call = |at: u64, channel: &str, retry_after| Call {
            at: Duration::from_millis(at),
            method: "chat.postMessage".into(),
            http: "POST".into(),
            channel: Some(channel.into()),
            args: Value::Null,
            outcome: Outcome::Ok,
            retry_after,
        };
        let calls = [call(0, "C1", Some(2)), call(1999, "C1", None), call(1999, "C2", None), call(2000, "C1", None)];
        let early = too_early(&calls);
        assert_eq!(early.len(), 1);
        assert_eq!((early[0].at.as_millis(), early[0].channel.as_deref()), (1999, Some("C1")));
    }
}
