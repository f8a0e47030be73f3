//! The audit log: one JSON object a line, append-only, never with question or answer text. With files a line is written after the
//! save, and what a crash kept from being noted is noted at the next start. Daemons that share a database store it with the save.
//!
//! It also says the same in the log, which is where operators look first. It decides nothing.

mod files;

pub use files::{Lines, leave_unnamed};

use crate::ipc::wire::status;
use askd_core::{Ask, AskId, Effect, Fact, Outcome, Person, Refusal, Stage, Time};
use files::Files;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    files: Files,
    keep: Duration,
    /// What daemons have that share a database. Then the files hold what was noted before.
    shared: Option<Together>,
    /// The day on which old lines were dropped last.
    tidied: Mutex<String>,
}

/// Where daemons keep their lines together, and what this one calls itself.
#[derive(Debug, Clone)]
pub struct Together {
    /// Where.
    pub lines: Arc<dyn SharedLines>,
    /// The daemon's name.
    pub node: String,
}

/// Lines of several daemons. What a step notes is not added here: it is stored with the step. Every call but the last blocks.
pub trait SharedLines: Debug + Send + Sync {
    /// Adds a line. A loss of power may undo it.
    fn add(&self, noted: &Noted) -> io::Result<()>;

    /// The lines about an ask, the oldest first.
    fn about(&self, ask: AskId) -> io::Result<Vec<String>>;

    /// Takes who it was out of the lines about this ask, or with one of these ids; the number of those lines. No daemon may run.
    fn leave_unnamed(&self, ask: Option<AskId>, ids: &[String]) -> io::Result<usize>;

    /// Drops lines from before this time, in the background.
    fn drop_before(&self, oldest: Time);
}

/// A line, and what it is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The ask that it is about.
    pub ask: AskId,
    /// When that happened.
    pub at: Time,
    /// The line.
    pub json: String,
}

/// One line.
#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    at: Time,
    what: &'a str,
    ask: String,
    group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    questions: Option<usize>,
    /// The daemon that did it, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
}

impl Audit {
    /// Opens `state/audit/`, made if need be.
    pub fn open(state: &Path, keep: Duration, shared: Option<Together>) -> io::Result<Self> {
        Ok(Self { files: Files::open(state)?, keep, shared, tidied: Mutex::default() })
    }

    /// Notes what a crash may have kept from being noted: not again, if it stands there already.
    pub fn fact_once(&self, lines: &Mutex<Lines>, ask: &Ask, fact: &Fact, now: Time) {
        if self.shared.is_some() {
            return;
        }
        if let Some((Line { what, .. }, at)) = line(ask, fact, now)
            && !self.files.has(lines, ask.id, what, at)
        {
            self.fact(ask, fact, now);
        }
    }

    /// The lines about an ask, in order. What stands in files is looked for only in the days in which it is likely to be.
    pub fn trail(&self, ask: &Ask, now: Time) -> Vec<Box<RawValue>> {
        let mut lines = self.files.trail(ask, now);
        if let Some(Together { lines: shared, .. }) = &self.shared {
            match shared.about(ask.id) {
                Ok(shared) => lines.extend(shared),
                Err(error) => tracing::error!(%error, "cannot read the audit log"),
            }
        }
        lines.into_iter().filter_map(|line| RawValue::from_string(line).ok()).collect()
    }

    /// What has to be stored together with a step; nothing if no other daemon shares the records.
    pub fn with_step(&self, ask: &Ask, effects: &[Effect], now: Time) -> Vec<Noted> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let facts = effects.iter().filter_map(|effect| if let Effect::Note(fact) = effect { Some(fact) } else { None });
        let lines = facts.filter_map(|fact| line(ask, fact, now));
        lines.filter_map(|(line, at)| noted(ask.id, &Line { at, node: Some(&shared.node), ..line }).ok()).collect()
    }

    /// Notes what happened to an ask, after it was stored.
    pub fn fact(&self, ask: &Ask, fact: &Fact, now: Time) {
        say(ask, fact);
        if self.shared.is_some() {
            return self.tidy(now);
        }
        if let Some((line, at)) = line(ask, fact, now) {
            self.write(ask.id, Line { at, ..line }, now);
        }
    }

    /// Notes a reply that was not taken.
    pub fn refused(&self, ask: &Ask, person: &Person, refusal: &Refusal, now: Time) {
        tracing::info!(
            ask = %ask.id, group = %ask.group, channel = person.via.as_str(), reason = refusal.code(), "Reply refused"
        );
        let line = Line {
            at: now,
            what: "refused",
            ask: ask.id.to_string(),
            group: ask.group.as_str(),
            channel: Some(person.via.as_str()),
            by: Some(&person.id),
            reason: Some(refusal.code()),
            ..Line::default()
        };
        self.write(ask.id, line, now);
    }

    fn write(&self, ask: AskId, line: Line<'_>, now: Time) {
        let written = match &self.shared {
            None => noted(ask, &line).and_then(|noted| self.files.append(&noted.json, now, self.keep)),
            Some(Together { lines, node }) => {
                noted(ask, &Line { node: Some(node), ..line }).and_then(|noted| lines.add(&noted))
            }
        };
        if let Err(error) = written {
            tracing::error!(%error, folder = %self.files.folder.display(), "cannot write the audit log");
        }
    }

    /// Drops what was kept long enough, once a day.
    fn tidy(&self, now: Time) {
        let (Some(Together { lines, .. }), today) = (&self.shared, date(now)) else { return };
        if std::mem::replace(&mut *self.tidied.lock(), today.clone()) == today {
            return;
        }
        lines.drop_before(now - self.keep);
        if let Err(error) = self.files.drop_old(now, self.keep) {
            tracing::error!(%error, folder = %self.files.folder.display(), "cannot drop old audit lines");
        }
    }
}

fn noted(ask: AskId, line: &Line<'_>) -> io::Result<Noted> {
    Ok(Noted { ask, at: line.at, json: serde_json::to_string(line)? })
}

/// The line about a fact, and when that happened.
fn line<'a>(ask: &'a Ask, fact: &'a Fact, now: Time) -> Option<(Line<'a>, Time)> {
    let channel = |route: &usize| ask.route(*route).map(|route| route.channel.as_str());
    let line = Line { ask: ask.id.to_string(), group: ask.group.as_str(), ..Line::default() };
    let line = match fact {
        Fact::Asked => {
            let first = ask.waiters.first().map(|waiter| waiter.request_id.as_str());
            let questions = Some(ask.content.questions.len());
            return Some((Line { what: "asked", request_id: first, questions, ..line }, ask.created_at));
        }
        Fact::Settled => return Some(settled_line(ask, line, now)),
        // It follows from what comes next, and would cost a write for each answer.
        Fact::Taken(_) => return None,
        Fact::Joined(id) => Line { what: "joined", request_id: Some(id.as_str()), ..line },
        Fact::WaiterWithdrawn(id) => Line { what: "call_withdrawn", request_id: Some(id.as_str()), ..line },
        Fact::Replaced(id) => Line { what: "call_replaced", request_id: Some(id.as_str()), ..line },
        Fact::Delivered(id) => Line { what: "delivered", request_id: Some(id.as_str()), ..line },
        Fact::TakenBack(id) => Line { what: "not_collected", request_id: Some(id.as_str()), ..line },
        Fact::Posted { route, attempt } => {
            Line { what: "posted", channel: channel(route), attempt: Some(nth_try(ask, *route, *attempt)), ..line }
        }
        Fact::NotShown { route, attempt } => {
            Line { what: "not_shown", channel: channel(route), attempt: Some(nth_try(ask, *route, *attempt)), ..line }
        }
        Fact::Shown { route } => Line { what: "shown", channel: channel(route), ..line },
        Fact::Escalated { route } => Line { what: "escalated", channel: channel(route), ..line },
        Fact::Closed { route } => Line { what: "closed", channel: channel(route), ..line },
        Fact::Reminded { route } => Line { what: "reminded", channel: channel(route), ..line },
        Fact::NotReminded { route } => Line { what: "not_reminded", channel: channel(route), ..line },
        Fact::Briefed => Line { what: "briefed", ..line },
        Fact::BriefingRead => Line { what: "briefing_read", ..line },
        Fact::Started => Line { what: "started", ..line },
        Fact::StartFailed { last, .. } => Line { what: if *last { "start_given_up" } else { "start_failed" }, ..line },
        Fact::LateAnswer => {
            let by = ask.answered_late_by();
            let (channel, by) = (by.map(|by| by.via.as_str()), by.map(|by| by.id.as_str()));
            Line { what: "answered_late", channel, by, ..line }
        }
        Fact::Stopped => Line { what: "stopped", reason: Some("ask_user_timeout"), ..line },
        Fact::AllowedAgain { by } => {
            Line { what: "allowed_again", channel: Some(by.via.as_str()), by: Some(&by.id), ..line }
        }
        Fact::Unblocked => Line { what: "unblocked", ..line },
    };
    Some((line, now))
}

/// Which try of its question an attempt was: each question of several that are asked one by one has tries of its own.
fn nth_try(ask: &Ask, route: usize, attempt: u8) -> u8 {
    ask.widgets.get(route).map_or(attempt, |widget| widget.nth_try(attempt))
}

/// Says a fact in the log, if operators look for it there.
fn say(ask: &Ask, fact: &Fact) {
    let first = ask.waiters.first().map(|waiter| waiter.request_id.as_str());
    match fact {
        Fact::Asked => tracing::info!(
            ask = %ask.id, group = %ask.group, source_group = %ask.group, short_id = %ask.short_id,
            request_id = first, "Pending question created"
        ),
        Fact::NotShown { route, attempt } => {
            let channel = ask.route(*route).map(|route| route.channel.as_str());
            // The first try, and the retries. Those that follow do not count.
            let tries = ask.rules.max_retries.saturating_add(1);
            let attempt = nth_try(ask, *route, *attempt).min(tries);
            tracing::warn!(
                ask = %ask.id, group = %ask.group, channel, "UI failed to render question (attempt {attempt}/{tries})"
            );
        }
        Fact::Settled => {
            let (line, _) = settled_line(ask, Line::default(), ask.created_at);
            tracing::info!(
                ask = %ask.id, group = %ask.group, request_id = first, channel = line.channel, status = line.status,
                reason = line.reason, "Pending question resolved"
            );
        }
        Fact::Started => tracing::info!(ask = %ask.id, group = %ask.group, "Agent started with its answer"),
        Fact::StartFailed { why, last } => {
            let again = if *last { "it is not tried again" } else { "trying again" };
            tracing::error!(ask = %ask.id, group = %ask.group, why, "the agent could not be started with its answer; {again}");
        }
        Fact::LateAnswer => {
            let channel = ask.answered_late_by().map(|by| by.via.as_str());
            tracing::info!(ask = %ask.id, group = %ask.group, channel, "Answered after the timeout");
        }
        Fact::Stopped => {
            tracing::info!(ask = %ask.id, group = %ask.group, reason = "ask_user_timeout", "Session stopped");
        }
        Fact::AllowedAgain { by } => {
            tracing::info!(ask = %ask.id, group = %ask.group, channel = by.via.as_str(), "Allowed again");
        }
        Fact::Joined(_)
        | Fact::WaiterWithdrawn(_)
        | Fact::Replaced(_)
        | Fact::Posted { .. }
        | Fact::Shown { .. }
        | Fact::Reminded { .. }
        | Fact::NotReminded { .. }
        | Fact::Escalated { .. }
        | Fact::Delivered(_)
        | Fact::Taken(_)
        | Fact::TakenBack(_)
        | Fact::Briefed
        | Fact::BriefingRead
        | Fact::Unblocked
        | Fact::Closed { .. } => {}
    }
}

/// The day a file is named after.
fn date(time: Time) -> String {
    time.to_string().chars().take(10).collect()
}

fn settled_line<'a>(ask: &'a Ask, line: Line<'a>, now: Time) -> (Line<'a>, Time) {
    let Stage::Settled { outcome, at, .. } = &ask.stage else { return (line, now) };
    let (status, reason) = status(outcome);
    let by = match outcome {
        Outcome::Answered { by, .. } | Outcome::Dismissed { by } => Some(by),
        Outcome::Withdrawn { by } => by.as_ref(),
        Outcome::TimedOut | Outcome::Undelivered { .. } | Outcome::Blocked { .. } => None,
    };
    let what = match outcome {
        Outcome::Answered { .. } => "answered",
        Outcome::Dismissed { .. } => "dismissed",
        Outcome::Withdrawn { .. } => "withdrawn",
        Outcome::TimedOut => "expired",
        Outcome::Undelivered { .. } => "undeliverable",
        Outcome::Blocked { .. } => "blocked",
    };
    let channel = by.map(|by| by.via.as_str());
    let by = by.map(|by| by.id.as_str());
    (Line { what, channel, by, status: Some(status), reason: Some(reason), ..line }, *at)
}
