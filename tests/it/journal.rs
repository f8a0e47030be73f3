//! What the daemon's journal holds, in the format of `store/files/journal.rs`: stories and gates that ask what is stored go by it and
//! by the files together.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How long the head of a part is, in bytes.
const HEAD: usize = 512;

/// An entry: its number, the run that appended it, its letter, and its text.
struct Entry {
    number: u64,
    run: String,
    letter: String,
    record: Value,
}

/// The records that these files hold, with what the journal has that is newer, and without what differs without meaning: in
/// which boot and after which entry a record was written.
pub(crate) fn overlaid(state: &Path, read: impl FnOnce() -> BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    // The journal first: a flush files its entries before it removes the part they are in.
    let mut entries = entries(state);
    entries.sort_by_key(|entry| entry.number);
    let (mut files, mut records) = (BTreeMap::new(), BTreeMap::<PathBuf, Value>::new());
    for (path, text) in read() {
        match serde_json::from_str(&text) {
            Ok(record) => drop(records.insert(path, record)),
            Err(_) => drop(files.insert(path, text)),
        }
    }
    for Entry { number, run, letter, record } in entries {
        let name = format!("{}.json", record["id"].as_str().unwrap().replace('-', ""));
        let found = records.keys().find(|path| path.ends_with(&name)).cloned();
        // Of an entry that is filed the letter still counts: a settled record is filed where it was pending, then moved.
        let is_newer = found.as_ref().and_then(|path| records.get(path)).is_some_and(|filed| {
            filed["entry"]["run"] == *run && filed["entry"]["number"].as_u64().is_some_and(|filed| filed > number)
        });
        if is_newer {
            continue;
        }
        found.map(|path| records.remove(&path));
        let kind = match letter.as_str() {
            "p" => "pending_questions",
            "s" => "settled",
            _ => continue,
        };
        records.insert(state.join(kind).join(record["source_group"].as_str().unwrap()).join(name), record);
    }
    for (path, mut record) in records {
        let fields = record.as_object_mut().unwrap();
        fields.remove("boot");
        fields.remove("entry");
        files.insert(path, serde_json::to_string_pretty(&record).unwrap());
    }
    files
}

/// The whole entries of all parts.
fn entries(state: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for part in fs::read_dir(state.join("journal")).into_iter().flatten().flatten() {
        let bytes = fs::read(part.path()).unwrap_or_default();
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { continue };
        let Ok(head) = serde_json::from_slice::<Value>(head) else { continue };
        let (mut number, run) = (head["first"].as_u64().unwrap(), head["run"].as_str().unwrap());
        for line in rest.split(|byte| *byte == b'\n') {
            let Some(line) = std::str::from_utf8(line).ok() else { break };
            let mut words = line.splitn(5, ' ');
            let (Some(own), Some(_sum), Some(_length), Some(letter), Some(text)) =
                (words.next(), words.next(), words.next(), words.next(), words.next())
            else {
                break;
            };
            let Ok(record) = serde_json::from_str(text) else { break };
            if u64::from_str_radix(own, 16).ok() != Some(number) {
                break;
            }
            entries.push(Entry { number, run: run.to_owned(), letter: letter.to_owned(), record });
            number += 1;
        }
    }
    entries
}
