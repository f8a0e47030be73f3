//! One look at a group's folder, on its disk: making, checking and watching it, listing `tasks/` in parts, telling
//! requests from other people's files. Everything here blocks, and may hang for as long as that disk does. Claims nothing;
//! the scanner does.

use super::group_scanner::{CLAIMED, Candidate, GroupScanner};
use super::groups::Wanted;
use super::known::{Known, Verdict};
use super::watching::NewFolders;
use crate::clock::Moment;
use crate::host::backoff::Backoff;
use crate::host::folders::FolderTrouble;
use crate::ipc::files::{Dir, ReadError, Stamp};
use crate::ipc::wire::{self, Kinds};
use crate::ipc::{ALIVE, MAX_REQUEST_BYTES, RESPONSES, TASKS, is_json_file};
use crate::sabotage::on;
use askd_core::RequestId;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A file that ends early is read again until it has not changed for this long.
const HALF_WRITTEN: Duration = Duration::from_secs(60);
/// The same for a file that does not end early but is not a request.
const SETTLE: Duration = Duration::from_secs(5);
/// Names that one look takes.
const LOOK: usize = 20_000;
/// How often signs of life that processes left behind are removed, and how old they have to be.
const TIDY_AFTER: Duration = Duration::from_secs(3600);
/// How many of them are looked at then.
const MOST_SIGNS: usize = 1_000;
/// What an earlier version made in `tasks/` and `responses/` to try whether it may, and left there if it was killed.
const PROBE_FILE: &str = ".askd-probe";
/// The first and the longest pause before folders that cannot be used are tried again, if their stamps do not change.
const PROBE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// What is known of a group's folder.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) known: Known,
    /// Requests that can be taken, in their order.
    pub(super) queue: BTreeMap<Candidate, Option<RequestId>>,
    /// The request that was read last, until the end of the turn: it may be the one that is taken next.
    pub(super) read: Option<(String, Stamp, Vec<u8>)>,
    /// The `tasks` folder that is watched: one that was replaced needs a new watch.
    watched: Option<Stamp>,
    /// What is wrong with the folders.
    trouble: Option<Trouble>,
    /// A file could not be read; the next look tries again.
    unread: bool,
    /// The last such file that its owner lets nobody else read.
    unreadable: Option<FolderTrouble>,
    /// When old signs of life were last removed.
    tidied: Moment,
    /// The log has said that askd does not serve this group.
    unserved: bool,
    /// The log has said that there is more than one look takes.
    crowded: bool,
}

/// Folders that cannot be used.
#[derive(Debug)]
struct Trouble {
    /// As last said: said again when it changes.
    what: FolderTrouble,
    /// When they are tried again, if their stamps do not change.
    again: Backoff,
}

impl Survey {
    /// Whether the last look has ended in the middle of the folder, and there is room for what the next one finds.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.known.listing.is_some() && self.queue.len() < LOOK
    }

    /// Whether another look can show more, although nothing is new.
    fn is_unsettled(&self) -> bool {
        self.unread || self.queue.len() >= LOOK || self.known.is_unsettled()
    }
}

/// Whether the check of the folders has logged this already, and how to mend it.
pub(super) fn is_said_elsewhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotConnected)
}

/// How long a file must stay unchanged before it is judged for good.
fn patience(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::CutOff | Verdict::Untyped => HALF_WRITTEN,
        Verdict::Garbled | Verdict::NotOurs => SETTLE,
    }
}

impl GroupScanner {
    /// Looks, queues what can be taken, and says when to look again although nothing seems to be new.
    pub(super) fn survey(self: &Arc<Self>, wanted: &Wanted) -> io::Result<()> {
        if on("hang") && self.group.as_str() == "hung" {
            crate::sabotage::hang();
        }
        let mut survey = self.survey.lock();
        let before = if wanted.folder { survey.unreadable.take() } else { survey.unreadable.clone() };
        let looked = self.look_into(&mut survey, wanted);
        if looked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            && survey.trouble.is_none()
        {
            // Somebody has taken the folder's rights away since it was checked, and its stamp may not show that.
            let trouble = self.folders.check(&self.group).err();
            self.say(&mut survey, trouble);
        }
        if survey.unreadable != before {
            self.note(&survey);
        }
        let now = self.ctx.clock().monotonic();
        let failed = looked.as_ref().is_err_and(|error| !is_said_elsewhere(error));
        if wanted.folder {
            let soon = survey.is_unsettled() || failed;
            let later = survey.trouble.as_mut().map(|trouble| now + trouble.again.pause());
            let mut glance = self.glance.lock();
            glance.again = if soon { Some(now) } else { later };
            glance.in_trouble = survey.trouble.is_some();
        } else if failed || survey.unread {
            // Nobody names the file once more.
            self.glance.lock().again = Some(now);
        }
        looked
    }

    fn look_into(self: &Arc<Self>, survey: &mut Survey, wanted: &Wanted) -> io::Result<()> {
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
            survey.unread = false;
            if survey.queue.len() < LOOK {
                self.list(&tasks, survey)?;
            }
        }
        Ok(())
    }

    /// Notes for the status report what keeps the agent from asking.
    fn note(&self, survey: &Survey) {
        let now = self.ctx.clock().now();
        let trouble = survey.trouble.as_ref().map(|trouble| &trouble.what).or(survey.unreadable.as_ref());
        self.folders.note_problem(&self.group, trouble.map(|what| what.since(now)));
    }

    /// Lists the next part of the folder.
    fn list(&self, tasks: &Dir, survey: &mut Survey) -> io::Result<()> {
        let of = tasks.stamp()?;
        let goes_on = survey.known.listing.take().filter(|listing| listing.is_of(&of));
        let whole = goes_on.is_none();
        let mut listing = if let Some(listing) = goes_on {
            listing
        } else {
            survey.known.begin_pass();
            tasks.list()?
        };
        let now = self.ctx.clock().monotonic();
        let tidies = now.since(survey.tidied) >= TIDY_AFTER;
        let mut signs = Vec::new();
        let ended = listing.part(LOOK, |name| {
            if tidies && name.starts_with(ALIVE) && signs.len() < MOST_SIGNS {
                signs.push(name.to_owned());
            } else if name.starts_with(CLAIMED) || is_json_file(name) {
                // No scanner works here at this moment, so a claimed file waits, or was left by a daemon that crashed.
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
        if tidies {
            survey.tidied = now;
            self.tidy(tasks, &signs)?;
            tasks.remove(PROBE_FILE)?;
            self.folders.get(&self.group, RESPONSES)?.remove(PROBE_FILE)?;
            if let Ok(alive) = tasks.sub(ALIVE) {
                signs.clear();
                alive.list()?.part(MOST_SIGNS, |name| {
                    signs.push(name.to_owned());
                    Ok(())
                })?;
                self.tidy(&alive, &signs)?;
            }
        }
        Ok(())
    }

    /// Removes the signs of life that no process has renewed for long.
    fn tidy(&self, folder: &Dir, signs: &[String]) -> io::Result<()> {
        let long_ago = (self.ctx.clock().now() - TIDY_AFTER).as_millis() / 1000;
        for name in signs {
            if folder.stat(name)?.is_some_and(|stamp| stamp.plain && stamp.modified.0 < long_ago) {
                folder.remove(name)?;
            }
        }
        Ok(())
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
        if stamp.bytes == 0 && stamp.plain {
            self.leave(name, &stamp, &mut survey.known, Verdict::Untyped, settled, crowded);
            return Ok(());
        }
        let (bytes, stamp) = match tasks.read(name, MAX_REQUEST_BYTES) {
            Ok(read) => read,
            Err(error) => {
                self.leave_unread(name, &stamp, survey, &error);
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
                let (modified, changed) = (stamp.modified, stamp.changed);
                let candidate = Candidate { cancel, modified, name: name.to_owned(), changed };
                survey.queue.insert(candidate, peek.request_id.filter(|_| cancel && !peek.torn));
                survey.read = Some((name.to_owned(), stamp, bytes));
            }
            None => {
                let verdict = if peek.ends_early { Verdict::Untyped } else { Verdict::Garbled };
                self.leave(name, &stamp, known, verdict, settled, crowded);
            }
        }
        Ok(())
    }

    /// Handles a file that cannot be read.
    fn leave_unread(&self, name: &str, stamp: &Stamp, survey: &mut Survey, error: &ReadError) {
        match error {
            ReadError::Gone => {}
            // The reason may pass (no file handles, a mount that is away): try again.
            ReadError::Io(error) => {
                let what = "a file in tasks/ cannot be read; trying again";
                if self.warnings.is_first(Some(&self.group), what) {
                    tracing::warn!(group = %self.group, file = name, why = %error, "{what}");
                }
                survey.unread = true;
                if error.kind() == io::ErrorKind::PermissionDenied {
                    survey.unreadable = Some(self.folders.cannot_read(&self.group, name, error));
                }
            }
            ReadError::TooLarge { .. } | ReadError::NotPlain(_) => {
                survey.known.remember(name, stamp, Verdict::NotOurs, self.ctx.clock().monotonic());
                let why = match error {
                    ReadError::TooLarge { .. } => "it is too large".to_owned(),
                    other => other.to_string(),
                };
                self.say_left(name, survey.crowded, &format!("a file in tasks/ was left alone: {why}"), Some(error));
            }
        }
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

    /// Makes, checks and watches the folders if anything about them is new.
    fn take_up(self: &Arc<Self>, survey: &mut Survey, make: bool) {
        let now = self.folders.get(&self.group, TASKS).and_then(|tasks| tasks.stamp()).ok();
        let is_watched = |now: &Stamp| survey.watched.is_some_and(|watched| watched.same_file(now));
        let settings = self.broker.settings();
        let served = settings.group(&self.group).is_some();
        if !make && served && !survey.unserved && survey.trouble.is_none() && now.as_ref().is_some_and(is_watched) {
            return;
        }
        // A folder that was removed is not made again, but one that askd could not make is made once its place is free.
        let is_configured = || settings.configured().any(|group| group == self.group);
        let make = make || (survey.trouble.is_some() && (!self.folders.is_absent(&self.group) || is_configured()));
        if served && (make || self.folders.exists(&self.group)) {
            let prepared = self.folders.prepare(&self.group);
            let prepared = prepared.map_err(|error| self.folders.cannot_make(&self.group, &error));
            // The check says more than the error from making them.
            let trouble = self.folders.check(&self.group).and(prepared).err();
            self.say(survey, trouble);
        } else {
            // It has no fault that anybody could mend.
            self.say(survey, None);
        }
        if !std::mem::replace(&mut survey.unserved, !served) && !served {
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
        let folders = tasks.ancestors().take(2).map(Path::to_owned).collect();
        if self.watching.watch(NewFolders { folders, scanner: Some(Arc::downgrade(self)) }) {
            survey.watched = Some(now);
            if let Err(error) = self.broker.tidy_folders(&self.group) {
                tracing::warn!(group = %self.group, %error, "what an earlier run was writing cannot be removed");
            }
            tracing::info!(group = %self.group, tasks = %tasks.display(), "Group found");
        }
    }

    pub(super) fn say(&self, survey: &mut Survey, trouble: Option<FolderTrouble>) {
        if survey.trouble.as_ref().map(|known| &known.what) == trouble.as_ref() {
            return;
        }
        if let Some(what) = &trouble {
            tracing::error!(group = %self.group, "{what}");
        } else {
            tracing::info!(group = %self.group, "nothing is wrong with its folders any more");
        }
        survey.trouble = trouble.map(|what| Trouble { what, again: Backoff::new(PROBE.0, PROBE.1) });
        self.note(survey);
    }
}
