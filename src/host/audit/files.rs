//! Audit lines in files: `state/audit/<date>.jsonl`, append-only. What a crash kept from being noted is found at the next start.

use super::date;
use crate::ipc::files::{Access, Dir};
use askd_core::{Ask, AskId, Time};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// For how long a trail is followed after the last thing that people or agents do, and how far back from an outcome.
const TRAIL_AFTER: Duration = Duration::from_secs(8 * 24 * 3600);
const TRAIL_BEFORE: Duration = Duration::from_secs(20 * 24 * 3600);

/// No file of a day comes near this.
const MAX_BYTES: usize = 4 << 30;

/// The folder of the files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    day: Mutex<Option<(String, File)>>,
}

/// What stands in the files of some days, read once: hashes of asks and what happened to them.
#[derive(Debug, Default)]
pub struct Lines {
    days: HashSet<String>,
    noted: HashSet<u64>,
    hash: RandomState,
}

impl Files {
    /// Opens `state/audit/`, made if need be.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join("audit");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder, day: Mutex::new(None) })
    }

    /// Whether a line of that time says this of the ask. The file of its day is read once.
    pub(super) fn has(&self, lines: &Mutex<Lines>, ask: AskId, what: &str, at: Time) -> bool {
        let date = date(at);
        let mut lines = lines.lock();
        if !lines.days.contains(&date) {
            self.read(&date, &mut lines);
            lines.days.insert(date);
        }
        lines.noted.contains(&lines.hash.hash_one((ask, what)))
    }

    /// Takes in what stands in a day's file.
    fn read(&self, date: &str, lines: &mut Lines) {
        #[derive(Deserialize)]
        struct Noted<'a> {
            ask: AskId,
            what: &'a str,
        }
        let Ok(file) = File::open(self.folder.join(format!("{date}.jsonl"))) else { return };
        let (mut file, mut line) = (BufReader::new(file), Vec::new());
        while file.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if let Ok(Noted { ask, what }) = serde_json::from_slice(&line) {
                lines.noted.insert(lines.hash.hash_one((ask, what)));
            }
            line.clear();
        }
    }

    /// The lines about an ask, in order: those of the day it was asked and of the days that follow, as far as it is likely to
    /// be in them.
    pub(super) fn trail(&self, ask: &Ask, now: Time) -> Vec<String> {
        let id = ask.id.to_string();
        let lifted = ask.block().and_then(|block| Some(block.lifted.as_ref()?.at));
        let end = ask.outcome_until().max(lifted).map_or(now, |at| now.min(at + TRAIL_AFTER));
        let from = ask.settled_at().unwrap_or(now) - TRAIL_BEFORE;
        let (mut lines, mut day) = (Vec::new(), ask.created_at.max(from));
        loop {
            if let Ok(file) = File::open(self.folder.join(format!("{}.jsonl", date(day)))) {
                let about = BufReader::new(file).lines().map_while(Result::ok).filter(|line| line.contains(&id));
                lines.extend(about);
            }
            if date(day) == date(end) || day > end {
                return lines;
            }
            day = day + DAY;
        }
    }

    pub(super) fn append(&self, json: &str, now: Time, keep: Duration) -> io::Result<()> {
        let date = date(now);
        let mut day = self.day.lock();
        let file = match &mut *day {
            Some((open, file)) if *open == date => file,
            other => {
                self.drop_old(now, keep)?;
                let path = self.folder.join(format!("{date}.jsonl"));
                &mut other.insert((date, open(&path)?)).1
            }
        };
        // One write a line: several lines never mix.
        let written = file.write_all(format!("{json}\n").as_bytes());
        if written.is_err() {
            // Opened again, which ends a line that was cut off.
            *day = None;
        }
        written
    }

    /// Removes the files of days that were kept long enough.
    pub(super) fn drop_old(&self, now: Time, keep: Duration) -> io::Result<()> {
        let oldest = date(now - keep);
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

/// Opens a day's file. A full disk or a crash may have cut its last line off: the next one does not go on in it.
fn open(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
    let mut last = [b'\n'];
    if let Some(at) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Takes who it was out of the lines whose ask and person `about` names; the number of those lines. For a time in which
/// no daemon runs. A line that was cut off may name anybody, so it goes.
pub fn leave_unnamed(state: &Path, about: &dyn Fn(&str, &str) -> bool) -> io::Result<usize> {
    let folder = Dir::open(&state.join("audit"))?;
    let mut changed = 0;
    for name in folder.names()? {
        let (bytes, _) = folder.read_own(&name, MAX_BYTES).map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&bytes);
        let before = changed;
        let mut lines = String::with_capacity(text.len());
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(line) else {
                changed += 1;
                continue;
            };
            let word = |field: &str| fields.get(field)?.as_str();
            if let (Some(ask), Some(by)) = (word("ask"), word("by"))
                && about(ask, by)
            {
                fields.remove("by");
                lines.push_str(&serde_json::to_string(&fields)?);
                changed += 1;
            } else {
                lines.push_str(line);
            }
            lines.push('\n');
        }
        if changed > before {
            folder.replace(".tmp-forget", &name, lines.as_bytes(), Access::PRIVATE)?;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_takes_no_other_with_it_and_is_forgotten_once() {
        let (state, now) = (tempfile::tempdir().unwrap(), Time::from_millis(1_760_000_000_000));
        let files = Files::open(state.path()).unwrap();
        files.append(r#"{"ask":"a","by":"U0ALICE","n":1}"#, now, DAY).unwrap();
        let path = files.folder.join(format!("{}.jsonl", date(now)));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(br#"{"ask":"a","by":"U0AL"#).unwrap();
        // A full disk, or a start after a crash.
        *files.day.lock() = None;
        files.append(r#"{"ask":"b","by":"U0BOB"}"#, now, DAY).unwrap();
        let forget = || leave_unnamed(state.path(), &|ask, _| ask == "a").unwrap();
        assert_eq!(forget(), 2);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"ask\":\"a\",\"n\":1}\n{\"ask\":\"b\",\"by\":\"U0BOB\"}\n"
        );
        assert_eq!(forget(), 0);
    }
}
