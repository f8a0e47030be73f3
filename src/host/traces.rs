//! One trace for each question, for an OpenTelemetry collector (OTLP over HTTP, as JSON): `ask` from the request to the moment
//! its outcome is taken, and in it `show` until a person could see it, `answer` until it was decided, and `deliver` until it
//! was taken. A trace has the id of its question, so it goes on after a restart, and needs nothing in memory. It names groups,
//! channels and outcomes, and holds no text and no name.
//!
//! The three kinds of objects that are sent are written here: the crates of OpenTelemetry bring a second HTTP client.

use super::ctx::Ctx;
use super::outgoing::client_for;
use crate::ipc::wire::status;
use askd_core::{Ask, Fact, Outcome, Time};
use reqwest::Client;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Spans that wait to be sent; more are dropped, because nothing may wait for a collector.
const WAITING: usize = 4096;
/// Most spans of one call, and how long they are gathered.
const AT_A_TIME: usize = 512;
const GATHERED: Duration = Duration::from_secs(1);
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where spans go; nowhere without the setting.
#[derive(Debug, Default)]
pub struct Traces(Option<Sender<Value>>);

impl Traces {
    /// Sends spans to the collector at this address, in the background.
    pub fn open(endpoint: Option<&str>, ctx: &Ctx) -> io::Result<Self> {
        let Some(endpoint) = endpoint else { return Ok(Self::default()) };
        let client = client_for(endpoint).timeout(TIMEOUT).build().map_err(io::Error::other)?;
        let (to, spans) = channel(WAITING);
        ctx.spawn(send(client, format!("{endpoint}/v1/traces"), spans, ctx.clone()));
        Ok(Self(Some(to)))
    }

    /// Tells of what happened to an ask, where it ends a span.
    pub fn fact(&self, ask: &Ask, fact: &Fact, now: Time) {
        let Some(to) = &self.0 else { return };
        let tell = |span: Value| drop(to.try_send(span));
        match fact {
            Fact::Shown { route } => {
                let channel = ask.route(*route).map_or("", |route| route.channel.as_str());
                tell(span(ask, "show", ask.created_at, now, &[("askd.channel", channel)]));
            }
            Fact::Settled => {
                if let (Some(shown), Some(at), Some(outcome)) = (ask.shown_at(), ask.settled_at(), ask.outcome()) {
                    tell(span(ask, "answer", shown, at, &how(outcome)));
                }
            }
            Fact::Taken(_) | Fact::BriefingRead => {
                let taken = ask.waiters.iter().filter(|waiter| waiter.response.is_taken()).count();
                let first = taken + usize::from(*fact == Fact::BriefingRead) == 1;
                if let (true, Some(at), Some(outcome)) = (first, ask.settled_at(), ask.outcome()) {
                    tell(span(ask, "deliver", at, now, &[]));
                    tell(span(ask, ROOT, ask.created_at, now, &how(outcome)));
                }
            }
            Fact::Asked
            | Fact::Joined(_)
            | Fact::WaiterWithdrawn(_)
            | Fact::Replaced(_)
            | Fact::Posted { .. }
            | Fact::NotShown { .. }
            | Fact::Delivered(_)
            | Fact::TakenBack(_)
            | Fact::Briefed
            | Fact::Started
            | Fact::StartFailed { .. }
            | Fact::LateAnswer
            | Fact::Stopped
            | Fact::Reminded { .. }
            | Fact::NotReminded { .. }
            | Fact::Escalated { .. }
            | Fact::AllowedAgain { .. }
            | Fact::Unblocked
            | Fact::Closed { .. } => {}
        }
    }
}

/// The span that all others of an ask are in.
const ROOT: &str = "ask";

fn how(outcome: &Outcome) -> [(&'static str, &str); 3] {
    let (status, reason) = status(outcome);
    let by = match outcome {
        Outcome::Answered { by, .. } | Outcome::Dismissed { by } => by.via.as_str(),
        _ => "",
    };
    [("askd.status", status), ("askd.reason", reason), ("askd.channel", by)]
}

/// The same for the same part of the same ask.
fn span_id(ask: &Ask, name: &str, from: Time) -> String {
    let mut hash = DefaultHasher::new();
    (ask.id, name, from).hash(&mut hash);
    format!("{:016x}", hash.finish().max(1))
}

fn span(ask: &Ask, name: &str, from: Time, to: Time, attributes: &[(&str, &str)]) -> Value {
    let nanos = |time: Time| (i128::from(time.as_millis()) * 1_000_000).to_string();
    let group = [("askd.group", ask.group.as_str())];
    let attributes = group.iter().chain(attributes).filter(|(_, value)| !value.is_empty());
    let attributes = attributes.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
    let parent = if name == ROOT { String::new() } else { span_id(ask, ROOT, ask.created_at) };
    json!({
        "traceId": ask.id.to_string(), "spanId": span_id(ask, name, from), "parentSpanId": parent, "name": name, "kind": 1,
        "startTimeUnixNano": nanos(from), "endTimeUnixNano": nanos(to.max(from)),
        "attributes": attributes.collect::<Vec<_>>(),
    })
}

async fn send(client: Client, url: String, mut spans: Receiver<Value>, ctx: Ctx) {
    let (mut some, mut failed) = (Vec::new(), false);
    while spans.recv_many(&mut some, AT_A_TIME).await > 0 {
        ctx.clock().sleep(GATHERED).await;
        while some.len() < AT_A_TIME
            && let Ok(span) = spans.try_recv()
        {
            some.push(span);
        }
        let name = json!({"key": "service.name", "value": {"stringValue": "askd"}});
        let scope = json!({"name": "askd", "version": env!("CARGO_PKG_VERSION")});
        let spans = std::mem::take(&mut some);
        let body = json!({"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"scope": scope, "spans": spans}]}]});
        let sent = client.post(&url).json(&body).send().await.and_then(reqwest::Response::error_for_status);
        if let (Err(error), false) = (&sent, failed) {
            tracing::warn!(%error, "traces.endpoint takes no traces; they are dropped until it does");
        }
        failed = sent.is_err();
    }
}
