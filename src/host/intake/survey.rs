//! One look at a group's folder, on its disk: making, checking and watching it, listing `tasks/` in parts, telling
//! requests from other people's files, and noting signs of life. Everything here blocks, and may hang for as long as
//! that disk does. Claims nothing; the scanner does.

use super::group_scanner::{CLAIMED, Candidate, GroupScanner};
use super::hints::Wanted;
use super::known::{Known, Verdict};
use super::watching::Change;
use crate::ipc::files::{Dir, ReadError, Stamp};
use crate::ipc::wire::{self, Kinds};
use crate::ipc::{ALIVE, MAX_REQUEST_BYTES, TASKS, alive_name, is_json_file};
use crate::sabotage::on;
use askd_core::RequestId;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

/// A file that ends early is read again until it has not changed for this long.
const HALF_WRITTEN: Duration = Duration::from_secs(60);
/// The same for a file that does not end early but is not a request.
const SETTLE: Duration = Duration::from_secs(5);
/// Names that one look takes.
const LOOK: usize = 20_000;
/// How many signs of life that no caller asked about are looked at in one group.
const MOST_HEARTBEATS: usize = 1_000;

/// What is known of a group's folder.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) known: Known,
    /// Requests that can be taken, in their order.
    pub(super) queue: BTreeMap<Candidate, Option<RequestId>>,
    /// The `tasks` folder that is watched: one that was replaced needs a new watch.
    watched: Option<Stamp>,
    /// What is wrong with the folders, as last said: said again when it changes.
    trouble: Option<String>,
    /// The log has said that askd does not serve this group.
    unserved: bool,
    /// The log has said that there is more than one look takes.
    crowded: bool,
}

impl Survey {
    pub(super) fn new(known: Known) -> Self {
        Self { known, queue: BTreeMap::new(), watched: None, trouble: None, unserved: false, crowded: false }
    }
}

/// How long a file must stay unchanged before it is judged for good.
fn patience(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::CutOff | Verdict::Untyped => HALF_WRITTEN,
        Verdict::Garbled | Verdict::NotOurs => SETTLE,
    }
}

impl GroupScanner {
    /// Looks, and queues what can be taken.
    pub(super) fn survey(&self, wanted: &Wanted) -> io::Result<()> {
        if on("hang") && self.group.as_str() == "hung" {
            crate::sabotage::hang();
        }
        let mut survey = self.lock();
        let survey = &mut *survey;
        if wanted.folder || wanted.make {
            self.take_up(survey, wanted.make);
        }
        let tasks = self.folders.get(&self.group, TASKS)?;
        let mut names = survey.known.due(self.ctx.clock().monotonic());
        names.extend(wanted.names.iter().cloned());
        for name in &names {
            self.judge(&tasks, name, survey)?;
        }
        if wanted.folder {
            let met = if survey.queue.len() < LOOK { self.list(&tasks, survey)? } else { Vec::new() };
            self.note_heartbeats(&tasks, met)?;
        }
        Ok(())
    }

    /// Lists the next part of the folder. Returns the processes whose signs of life it met.
    fn list(&self, tasks: &Dir, survey: &mut Survey) -> io::Result<Vec<String>> {
        let of = tasks.stamp()?;
        let goes_on = survey.known.listing.take().filter(|listing| listing.is_of(&of));
        let whole = goes_on.is_none();
        let mut listing = if let Some(listing) = goes_on {
            listing
        } else {
            survey.known.begin_pass();
            tasks.list()?
        };
        let mut met = Vec::new();
        let ended = listing.part(LOOK, |name| {
            if let Some(process) = name.strip_prefix(ALIVE).and_then(|name| name.strip_prefix('-')) {
                if met.len() < MOST_HEARTBEATS {
                    met.push(process.to_owned());
                }
            } else if name.starts_with(CLAIMED) || is_json_file(name) {
                // No scanner works here at this moment, so a claimed file was left by a daemon that crashed.
                self.judge(tasks, name, survey)?;
            }
            Ok(())
        })?;
        if ended {
            survey.known.end_pass();
            survey.crowded &= !whole;
        } else {
            survey.known.listing = Some(listing);
            if !std::mem::replace(&mut survey.crowded, true) {
                tracing::warn!(
                    group = %self.group,
                    "tasks/ holds more than {LOOK} names; they are looked at in turns, which takes longer. Remove what does \
                     not belong there"
                );
            }
        }
        Ok(met)
    }

    /// Queues a file if it is a request of ours that can be taken now.
    fn judge(&self, tasks: &Dir, name: &str, survey: &mut Survey) -> io::Result<()> {
        let known = &mut survey.known;
        let Some(stamp) = tasks.stat(name)? else {
            known.forget(name);
            return Ok(());
        };
        let now = self.ctx.clock().monotonic();
        if known.is_held(name, now) {
            return Ok(());
        }
        let before = known.verdict(name, &stamp, now);
        let settled = match before {
            Some((Verdict::NotOurs, _)) => return Ok(()),
            Some((verdict, age)) if age < patience(verdict) => return Ok(()),
            Some(_) => true,
            None => false,
        };
        let crowded = survey.crowded;
        if stamp.bytes() == 0 && stamp.is_plain() {
            self.leave(name, &stamp, &mut survey.known, Verdict::Untyped, settled, crowded);
            return Ok(());
        }
        let (bytes, stamp) = match tasks.read(name, MAX_REQUEST_BYTES) {
            Ok(read) => read,
            Err(ReadError::Gone) => return Ok(()),
            // The reason why it cannot be read may pass (no file handles, a mount that is away): try again.
            Err(ReadError::Io(error)) => {
                let what = "a file in tasks/ cannot be read; trying again";
                if self.warnings.is_first(Some(&self.group), what) {
                    tracing::warn!(group = %self.group, file = name, why = %error, "{what}");
                }
                return Ok(());
            }
            Err(error) => {
                known.remember(name, &stamp, Verdict::NotOurs, now);
                let why = match &error {
                    ReadError::TooLarge { .. } => "it is too large".to_owned(),
                    other => other.to_string(),
                };
                self.say_left(name, crowded, &format!("a file in tasks/ was left alone: {why}"), Some(&error));
                return Ok(());
            }
        };
        let peek = wire::peek(&bytes);
        match &peek.kind {
            Some(kind) if !kind.starts_with(Kinds::PREFIX) => known.remember(name, &stamp, Verdict::NotOurs, now),
            Some(_) if peek.torn && !settled => {
                let verdict = if peek.ends_early { Verdict::CutOff } else { Verdict::Garbled };
                known.remember(name, &stamp, verdict, now);
            }
            Some(kind) => {
                let cancel = kind == Kinds::CANCEL;
                let candidate = Candidate { cancel, modified: stamp.modified(), name: name.to_owned() };
                survey.queue.insert(candidate, peek.request_id.filter(|_| cancel && !peek.torn));
            }
            None => {
                let verdict = if peek.ends_early { Verdict::Untyped } else { Verdict::Garbled };
                self.leave(name, &stamp, known, verdict, settled, crowded);
            }
        }
        Ok(())
    }

    /// Handles a file without a `type`: it may get one while it is being written.
    fn leave(&self, name: &str, stamp: &Stamp, known: &mut Known, verdict: Verdict, settled: bool, crowded: bool) {
        let verdict = if settled { Verdict::NotOurs } else { verdict };
        known.remember(name, stamp, verdict, self.ctx.clock().monotonic());
        if settled {
            self.say_left(name, crowded, "a file in tasks/ has no readable \"type\"; it was left alone", None);
        }
    }

    /// Warns about a file that is left alone. If there are too many, the log has said so once, and that is enough.
    fn say_left(&self, name: &str, crowded: bool, what: &str, why: Option<&ReadError>) {
        if !crowded && self.warnings.is_first(Some(&self.group), what) {
            tracing::warn!(group = %self.group, file = name, why = why.map(tracing::field::display), "{what}");
        }
    }

    /// Hands on the signs of life, and removes those that are long past. Looks up the
    /// processes that are asked about by name, because a partial listing may miss files that are there.
    fn note_heartbeats(&self, tasks: &Dir, met: Vec<String>) -> io::Result<()> {
        let (folder, mut blind) = match tasks.sub(ALIVE) {
            Ok(folder) => (Some(folder), false),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                (None, false)
            }
            Err(error) => {
                let what = "tasks/.alive cannot be read, so that askd takes no waiting process of this group for dead";
                if self.warnings.is_first(Some(&self.group), what) {
                    tracing::warn!(group = %self.group, why = %error, "{what}");
                }
                (None, true)
            }
        };
        let mut processes: HashSet<String> = self.broker.heartbeats().expected(&self.group).into_iter().collect();
        processes.extend(met);
        if let Some(folder) = &folder {
            folder.list()?.part(MOST_HEARTBEATS, |process| {
                processes.insert(process.to_owned());
                Ok(())
            })?;
        }
        let mut signs = Vec::new();
        // A name that no request can have says nothing, and others can make up any number of them.
        for process in processes.into_iter().filter(|process| process.parse::<RequestId>().is_ok()) {
            let inside = folder.as_ref().map(|folder| folder.stat(&process)).transpose();
            blind |= inside.is_err();
            let seen = [inside.ok().flatten().flatten(), tasks.stat(&alive_name(&process))?];
            if seen != [None; 2] {
                signs.push((process, seen));
            }
        }
        self.broker.heartbeats().set_blind(&self.group, blind);
        for process in self.broker.heartbeats().note(&self.group, signs, self.ctx.clock().now()) {
            // It may be a folder of that name, which does no harm.
            let _untidy = tasks.remove(&alive_name(&process));
            let _untidy = folder.as_ref().map(|folder| folder.remove(&process));
        }
        Ok(())
    }

    /// Makes, checks and watches the folders if anything about them is new.
    fn take_up(&self, survey: &mut Survey, make: bool) {
        let now = self.folders.get(&self.group, TASKS).and_then(|tasks| tasks.stamp()).ok();
        let is_watched = |now: &Stamp| survey.watched.is_some_and(|watched| watched.same_file(now));
        if !make && survey.trouble.is_none() && now.as_ref().is_some_and(is_watched) {
            return;
        }
        let served = self.broker.settings().group(&self.group).is_some();
        // A folder that was removed is not made again.
        if served && (make || self.folders.exists(&self.group)) {
            let prepared = self.folders.prepare(&self.group).map_err(|error| error.to_string());
            // The check says more than the error from making them.
            let trouble = self.folders.check(&self.group).map_err(|trouble| trouble.to_string()).and(prepared).err();
            self.say(&mut survey.trouble, trouble);
        } else if !served && !std::mem::replace(&mut survey.unserved, true) {
            tracing::warn!(
                group = %self.group,
                "not served: its requests are rejected (add [groups.{}], or [defaults] with routes)", self.group
            );
        }
        let Ok(now) = self.folders.get(&self.group, TASKS).and_then(|tasks| tasks.stamp()) else { return };
        if survey.watched.is_some_and(|watched| watched.same_file(&now)) {
            return;
        }
        let tasks = self.folders.tasks_path(&self.group);
        let new = survey.watched.is_none();
        let (remove, parent) = if new { (None, tasks.parent()) } else { (Some(tasks.clone()), None) };
        let add = parent.map(std::path::Path::to_owned).into_iter().chain([tasks.clone()]).collect();
        let change = Change { group: Some(self.group.clone()), remove: remove.into_iter().collect(), add };
        if self.watching.change(change) {
            survey.watched = Some(now);
            tracing::info!(group = %self.group, tasks = %tasks.display(), "Group found");
        }
    }

    fn say(&self, said: &mut Option<String>, trouble: Option<String>) {
        match &trouble {
            Some(trouble) if said.as_ref() != Some(trouble) => tracing::error!(group = %self.group, "{trouble}"),
            None if said.is_some() => tracing::info!(group = %self.group, "its folders are in order again"),
            _ => {}
        }
        *said = trouble;
    }
}
