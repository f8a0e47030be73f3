//! The audit log: one JSON object a line, `state/audit/<date>.jsonl`, append-only, never with question
//! or answer text. What a crash kept from being noted is noted at the next start.
//!
//! It also says the same in the log, which is where operators look first. It decides nothing.

use crate::ipc::files::{Access, Dir};
use crate::ipc::wire::status;
use askd_core::{Ask, AskId, Fact, Outcome, Person, Refusal, Stage, Time};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// For how long after an outcome a trail is followed, and how far back from there.
const TRAIL_AFTER: Duration = Duration::from_secs(8 * 24 * 3600);
const TRAIL_BEFORE: Duration = Duration::from_secs(20 * 24 * 3600);

/// No file of a day comes near this.
const MAX_BYTES: usize = 4 << 30;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    folder: PathBuf,
    keep: Duration,
    day: Mutex<Option<(String, File)>>,
}

/// What stands in the files of some days, read once: hashes of asks and what happened to them.
#[derive(Debug, Default)]
pub struct Lines {
    days: HashSet<String>,
    noted: HashSet<u64>,
    hash: RandomState,
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
}

impl Audit {
    /// Opens `state/audit/`, made if need be.
    pub fn open(state: &Path, keep: Duration) -> io::Result<Self> {
        let folder = state.join("audit");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder, keep, day: Mutex::new(None) })
    }

    /// Notes what a crash may have kept from being noted: not again, if it stands there already.
    pub fn fact_once(&self, lines: &Mutex<Lines>, ask: &Ask, fact: &Fact, now: Time) {
        let at = if let (Fact::Settled, Stage::Settled { at, .. }) = (fact, &ask.stage) { *at } else { ask.created_at };
        let what = if matches!(fact, Fact::Settled) { settled_line(ask, Line::default(), at).0.what } else { "asked" };
        let date = date(at);
        let mut lines = lines.lock();
        if !lines.days.contains(&date) {
            self.read(&date, &mut lines);
            lines.days.insert(date);
        }
        let noted = lines.noted.contains(&lines.hash.hash_one((ask.id, what)));
        drop(lines);
        if !noted {
            self.fact(ask, fact, now);
        }
    }

    /// Takes in what stands in a day's file.
    fn read(&self, date: &str, lines: &mut Lines) {
        #[derive(Deserialize)]
        struct Noted<'a> {
            ask: AskId,
            what: &'a str,
        }
        let Ok(file) = File::open(self.folder.join(format!("{date}.jsonl"))) else { return };
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            if let Ok(Noted { ask, what }) = serde_json::from_slice(&line) {
                lines.noted.insert(lines.hash.hash_one((ask, what)));
            }
        }
    }

    /// The lines about an ask, in order: those of the day it was asked and of the days that follow, as far as it is likely to
    /// be in them.
    pub fn trail(&self, ask: &Ask, now: Time) -> Vec<Box<RawValue>> {
        let id = ask.id.to_string();
        let end = ask.settled_at().map_or(now, |at| now.min(at + TRAIL_AFTER));
        let (mut lines, mut day) = (Vec::new(), ask.created_at.max(end - TRAIL_BEFORE));
        loop {
            if let Ok(file) = File::open(self.folder.join(format!("{}.jsonl", date(day)))) {
                let about = BufReader::new(file).lines().map_while(Result::ok).filter(|line| line.contains(&id));
                lines.extend(about.filter_map(|line| RawValue::from_string(line).ok()));
            }
            if date(day) == date(end) || day > end {
                return lines;
            }
            day = day + DAY;
        }
    }

    /// Notes what happened to an ask.
    pub fn fact(&self, ask: &Ask, fact: &Fact, now: Time) {
        let channel = |route: &usize| ask.route(*route).map(|route| route.channel.as_str());
        let line = Line { ask: ask.id.to_string(), group: ask.group.as_str(), ..Line::default() };
        let first = ask.waiters.first().map(|waiter| waiter.request_id.as_str());
        let (line, at) = match fact {
            Fact::Asked => {
                tracing::info!(
                    ask = %ask.id, group = %ask.group, source_group = %ask.group, short_id = %ask.short_id,
                    request_id = first, "Pending question created"
                );
                let questions = Some(ask.content.questions.len());
                (Line { what: "asked", request_id: first, questions, ..line }, ask.created_at)
            }
            Fact::Joined(id) => (Line { what: "joined", request_id: Some(id.as_str()), ..line }, now),
            Fact::WaiterWithdrawn(id) => (Line { what: "call_withdrawn", request_id: Some(id.as_str()), ..line }, now),
            Fact::Posted { route, attempt } => {
                (Line { what: "posted", channel: channel(route), attempt: Some(*attempt), ..line }, now)
            }
            Fact::Shown { route } => (Line { what: "shown", channel: channel(route), ..line }, now),
            Fact::NotShown { route, attempt } => {
                let retries = ask.rules.max_retries.max(1);
                tracing::warn!(
                    ask = %ask.id, group = %ask.group, channel = channel(route),
                    "UI failed to render question (attempt {attempt}/{retries})"
                );
                (Line { what: "not_shown", channel: channel(route), attempt: Some(*attempt), ..line }, now)
            }
            Fact::Reminded => (Line { what: "reminded", ..line }, now),
            Fact::Escalated { route } => (Line { what: "escalated", channel: channel(route), ..line }, now),
            Fact::Settled => {
                let (line, at) = settled_line(ask, line, now);
                tracing::info!(
                    ask = %ask.id, group = %ask.group, request_id = first, channel = line.channel, status = line.status,
                    reason = line.reason, "Pending question resolved"
                );
                (line, at)
            }
            Fact::Delivered(id) => (Line { what: "delivered", request_id: Some(id.as_str()), ..line }, now),
            // It follows from what comes next, and would cost a write for each answer.
            Fact::Taken(_) => return,
            Fact::TakenBack(id) => (Line { what: "not_collected", request_id: Some(id.as_str()), ..line }, now),
            Fact::Briefed => (Line { what: "briefed", ..line }, now),
            Fact::BriefingRead => (Line { what: "briefing_read", ..line }, now),
            Fact::Started => {
                tracing::info!(ask = %ask.id, group = %ask.group, "Agent started with its answer");
                (Line { what: "started", ..line }, now)
            }
            Fact::StartFailed { why, last } => {
                let again = if *last { "it is not tried again" } else { "trying again" };
                tracing::error!(ask = %ask.id, group = %ask.group, why, "the agent could not be started with its answer; {again}");
                (Line { what: if *last { "start_given_up" } else { "start_failed" }, ..line }, now)
            }
            Fact::LateAnswer => {
                let by = ask.answered_late_by();
                let channel = by.map(|by| by.via.as_str());
                tracing::info!(ask = %ask.id, group = %ask.group, channel, "Answered after the timeout");
                (Line { what: "answered_late", channel, by: by.map(|by| by.id.as_str()), ..line }, now)
            }
            Fact::Stopped => {
                tracing::info!(ask = %ask.id, group = %ask.group, reason = "ask_user_timeout", "Session stopped");
                (Line { what: "stopped", reason: Some("ask_user_timeout"), ..line }, now)
            }
            Fact::AllowedAgain { by } => {
                tracing::info!(ask = %ask.id, group = %ask.group, channel = by.via.as_str(), "Allowed again");
                (Line { what: "allowed_again", channel: Some(by.via.as_str()), by: Some(&by.id), ..line }, now)
            }
            Fact::Unblocked => (Line { what: "unblocked", ..line }, now),
            Fact::Closed { route } => (Line { what: "closed", channel: channel(route), ..line }, now),
        };
        self.write(line, at, now);
    }

    /// Notes a reply that was not taken.
    pub fn refused(&self, ask: &Ask, person: &Person, refusal: &Refusal, now: Time) {
        tracing::info!(
            ask = %ask.id, group = %ask.group, channel = person.via.as_str(), reason = refusal.code(), "Reply refused"
        );
        let line = Line {
            what: "refused",
            ask: ask.id.to_string(),
            group: ask.group.as_str(),
            channel: Some(person.via.as_str()),
            by: Some(&person.id),
            reason: Some(refusal.code()),
            ..Line::default()
        };
        self.write(line, now, now);
    }

    fn write(&self, mut line: Line<'_>, at: Time, now: Time) {
        line.at = at;
        let written = serde_json::to_string(&line).map_err(io::Error::from).and_then(|json| self.append(&json, now));
        if let Err(error) = written {
            tracing::error!(%error, folder = %self.folder.display(), "cannot write the audit log");
        }
    }

    fn append(&self, json: &str, now: Time) -> io::Result<()> {
        let date = date(now);
        let mut day = self.day.lock();
        let file = match &mut *day {
            Some((open, file)) if *open == date => file,
            other => {
                self.drop_old(now)?;
                let path = self.folder.join(format!("{date}.jsonl"));
                let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
                &mut other.insert((date, file)).1
            }
        };
        // One write a line: several lines never mix.
        file.write_all(format!("{json}\n").as_bytes())
    }

    fn drop_old(&self, now: Time) -> io::Result<()> {
        let oldest = date(now - self.keep);
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let old = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|date| date < oldest.as_str());
            if old && path.extension().is_some_and(|extension| extension == "jsonl") {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Takes who it was out of the lines whose ask and person `about` names; the number of those lines. For a time in which
/// no daemon runs. A line that a crash cut off goes if it may name one.
pub fn leave_unnamed(state: &Path, about: &dyn Fn(&str, &str) -> bool) -> io::Result<usize> {
    let folder = Dir::open(&state.join("audit"))?;
    let mut changed = 0;
    for name in folder.names()? {
        let (bytes, _) = folder.read_own(&name, MAX_BYTES).map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&bytes);
        let before = changed;
        let mut lines = String::with_capacity(text.len());
        for line in text.lines() {
            let fields = serde_json::from_str::<Map<String, Value>>(line);
            let word = |field: &str| fields.as_ref().ok()?.get(field)?.as_str();
            match (word("ask"), word("by")) {
                (Some(ask), Some(by)) if about(ask, by) => {
                    let mut fields = fields.unwrap_or_default();
                    fields.remove("by");
                    lines.push_str(&serde_json::to_string(&fields)?);
                    changed += 1;
                }
                (Some(_), _) => lines.push_str(line),
                (None, _) => changed += 1,
            }
            lines.push('\n');
        }
        if changed > before {
            folder.replace(".tmp-forget", &name, lines.as_bytes(), Access::PRIVATE)?;
        }
    }
    Ok(changed)
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
        _ => None,
    };
    let what = match outcome {
        Outcome::Answered { .. } => "answered",
        Outcome::Dismissed { .. } => "dismissed",
        Outcome::Withdrawn => "withdrawn",
        Outcome::TimedOut => "expired",
        Outcome::Undelivered { .. } => "undeliverable",
        Outcome::Blocked { .. } => "blocked",
    };
    let channel = by.map(|by| by.via.as_str());
    let by = by.map(|by| by.id.as_str());
    (Line { what, channel, by, status: Some(status), reason: Some(reason), ..line }, *at)
}
