//! Makes system calls on files fail or take long, and writes down which calls there were.
//!
//! - `ASKD_FAIL_CALL=fsync:7:EIO`: the 7th `fsync` of the process fails; `fsync:7-9:EIO`: the 7th to the 9th;
//!   `fsync:7-:EIO`: the 7th and all after it; `fsync@folder:1-:EIO`: all calls about a name with this ending (for an
//!   `fsync`, the name is `file`, `written`, `file system`, `journal` or `folder`; for a rename, it is the new name). A call that fails does nothing.
//! - `ASKD_SLOW_CALL=fsync:900`: every `fsync` takes 900 ms longer; with `fsync@folder:900` those of folders.
//! - `ASKD_CALLS=<file>`: a line for each call, its kind and the name it is about, so that a test can count them.
//!
//! The first two may instead name a file (by its absolute path) that is read at each call, so that a test can begin and
//! end the trouble while the daemon runs. If the file does not exist, there is no trouble.

use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

static COUNTS: Mutex<Option<HashMap<&'static str, u64>>> = Mutex::new(None);

/// Comes before each call that changes files: fails if the call should fail, and returns late if it should be slow.
pub(crate) fn call(kind: &'static str, name: &str) -> Result<(), Errno> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let number = count(kind);
    if let Some(file) = super::chosen("ASKD_CALLS") {
        let written = File::options().create(true).append(true).open(file);
        let written = written.and_then(|mut file| file.write_all(format!("{kind} {number} {name}\n").as_bytes()));
        assert!(written.is_ok(), "ASKD_CALLS cannot be written: {written:?}");
    }
    if let Some(text) = trouble("ASKD_SLOW_CALL") {
        let (which, millis) = text.split_once(':').unwrap_or_default();
        let millis = millis.trim_end_matches("ms").parse();
        let Ok(millis) = millis else { panic!("ASKD_SLOW_CALL={text}: it has to look like fsync:900") };
        if is_about(which, kind, name) {
            sleep(Duration::from_millis(millis));
        }
    }
    match trouble("ASKD_FAIL_CALL") {
        Some(text) => match failing(&text, kind, name, number) {
            Ok(None) => Ok(()),
            Ok(Some(error)) => {
                tracing::warn!(call = kind, number, name, "a call fails on purpose");
                Err(error)
            }
            Err(()) => panic!("ASKD_FAIL_CALL={text}: it has to look like fsync:7:EIO"),
        },
        None => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a slow disk keeps a thread waiting, and so does this")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

fn count(kind: &'static str) -> u64 {
    let mut counts = COUNTS.lock();
    let count = counts.get_or_insert_default().entry(kind).or_default();
    *count += 1;
    *count
}

fn trouble(variable: &str) -> Option<String> {
    let text = super::chosen(variable)?;
    let text = if text.starts_with('/') { std::fs::read_to_string(text).ok()? } else { text };
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn is_about(which: &str, kind: &str, name: &str) -> bool {
    let (wanted, about) = which.split_once('@').unwrap_or((which, ""));
    wanted == kind && name.ends_with(about)
}

fn failing(text: &str, kind: &str, name: &str, number: u64) -> Result<Option<Errno>, ()> {
    let mut parts = text.split(':');
    let (Some(which), Some(range), Some(error), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(());
    };
    let error = match error {
        "EIO" => Errno::IO,
        "ENOSPC" => Errno::NOSPC,
        "EMFILE" => Errno::MFILE,
        _ => return Err(()),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let last = if last.is_empty() { u64::MAX } else { last.parse().map_err(drop)? };
    let first: u64 = first.parse().map_err(drop)?;
    Ok((is_about(which, kind, name) && (first..=last).contains(&number)).then_some(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_is_named_fails_and_no_other() {
        let fails = |text, kind, number| failing(text, kind, "folder", number).unwrap();
        assert_eq!(fails("fsync:7:EIO", "fsync", 7), Some(Errno::IO));
        assert_eq!(fails("fsync:7:EIO", "fsync", 8), None);
        assert_eq!(fails("fsync:7:EIO", "write", 7), None);
        assert_eq!(fails("write:7-:ENOSPC", "write", 900), Some(Errno::NOSPC));
        assert_eq!(fails("write:7-9:ENOSPC", "write", 10), None);
        assert_eq!(fails("fsync@folder:1-:EIO", "fsync", 2), Some(Errno::IO));
        assert_eq!(fails("fsync@file:1-:EIO", "fsync", 2), None);
        assert!(["fsync:7", "fsync:7:E"].iter().all(|text| failing(text, "fsync", "file", 7).is_err()));
    }
}
