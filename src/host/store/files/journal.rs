//! The journal: the newest records of asks whose own files are older, one after the other. A save appends a record here, and
//! a promise syncs it: one sync serves all saves that wait for it at the time, whatever their groups. A flush writes the
//! asks' own files, and then empties the journal.
//!
//! It consists of parts. Saves append to one; the others are spare, or wait until a flush has filed what they hold. A part
//! is a file that is filled with zeros beforehand and used again, so that a sync has only data to write. Its head says
//! with which number it begins, and in which boot of the computer; its entries have numbers without a gap, and a checksum
//! each. So what a loss of power tore, and what an earlier use of the file left, is known for what it is. Knows no asks.

use super::Kind;
use crate::ipc::files::{Access, Dir, InPlace};
use crate::random;
use crate::sabotage::on;
use askd_core::record::EntryId;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

const VERSION: u32 = 1;
/// How long the head of a part is, in bytes. The entries follow.
const HEAD: usize = 512;
/// How long the head of an entry is: its number, its checksum, its length, and its kind.
const ENTRY_HEAD: usize = 16 + 1 + 16 + 1 + 8 + 1 + 1 + 1;
/// How many bytes a part begins with, and grows by at the least.
const GROWS_BY: usize = 128 * 1024;
/// A part that was longer is made as short as this before it is used again.
const KEPT: u64 = 8 * 1024 * 1024;
/// A part takes no more: a flush comes too late, or cannot write.
const FULL: usize = 256 * 1024 * 1024;

/// The letters of what an entry says of an ask: its record, among the open asks or the kept outcomes, or that it is gone.
const LETTERS: [(Option<Kind>, char); 3] = [(Some(Kind::Pending), 'p'), (Some(Kind::Settled), 's'), (None, 'g')];

/// An entry that an earlier run left, with the boot in which it was written.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    /// Where its record belongs; `None` if it is gone.
    pub(super) kind: Option<Kind>,
    pub(super) bytes: Vec<u8>,
    pub(super) boot: String,
}

/// Where an entry was appended.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) entry: EntryId,
    part: u64,
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
    first: u64,
    run: Arc<str>,
    boot: String,
}

#[derive(Debug)]
struct Part {
    /// Its number, which is its name.
    number: u64,
    file: Arc<InPlace>,
    /// Where the next entry goes.
    end: u64,
    /// How far it is filled with zeros, or entries.
    room: u64,
    /// How many flushes have come since its first entry.
    flushes: u32,
}

impl Part {
    fn has_entries(&self) -> bool {
        self.end > HEAD as u64
    }
}

#[derive(Debug)]
struct Parts {
    /// Made by the first save, so that a start needs no room on the disk.
    current: Option<Part>,
    /// What they hold has to be filed, the oldest first.
    closed: VecDeque<Part>,
    spare: Vec<Part>,
    /// The number of the next entry.
    next: u64,
    /// The number with which the current part begins.
    first: u64,
    /// Entries before this one are on stable storage, where no part has failed.
    synced: u64,
    /// The number of the next part.
    next_part: u64,
    /// Parts with numbers up to this one could not be synced. What was appended there since the last sync may be lost,
    /// whatever a later sync says.
    failed: u64,
}

impl Parts {
    /// Whether what was appended after so many parts were closed is on stable storage already.
    fn is_synced_after(&self, closed: usize) -> bool {
        let has_failed = self.current.as_ref().is_some_and(|part| part.number <= self.failed);
        self.synced == self.next && self.closed.len() <= closed && !has_failed
    }
}

/// Syncs by their numbers, from 1 on. One is under way at a time.
#[derive(Debug, Default)]
struct Syncs {
    begun: u64,
    ended: u64,
    /// The last that failed.
    failed: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Journal {
    folder: Dir,
    run: Arc<str>,
    boot: String,
    parts: Mutex<Parts>,
    syncs: Mutex<Syncs>,
    /// Of syncs with even and with odd numbers: the end of one wakes those that took part in it, and one that begins the next.
    ended: [Condvar; 2],
}

impl Journal {
    /// Opens the journal in this folder, and returns what the last run left in it, the oldest first. That stays there until a
    /// flush has filed it.
    pub(super) fn open(folder: Dir, boot: &str) -> io::Result<(Self, Vec<Entry>)> {
        let mut numbers: Vec<u64> = folder.names()?.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let (mut entries, mut closed, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        for &number in &numbers {
            let bytes = folder.read_own(&number.to_string(), 2 * FULL).map_err(io::Error::other)?.0;
            let found = entries_of(&bytes);
            let file = Arc::new(folder.open_in_place(&number.to_string())?);
            let part = Part { number, file, end: HEAD as u64, room: bytes.len() as u64, flushes: 0 };
            match found.first() {
                Some(first) => {
                    // A run that was killed may have written it and not synced it. Others will act on it, and nobody writes it again.
                    part.file.sync()?;
                    closed.push((first.id.number, part));
                }
                None => spare.push(part),
            }
            entries.extend(found);
        }
        entries.sort_by_key(|entry| entry.id.number);
        closed.sort_by_key(|(first, _)| *first);
        let next = entries.last().map_or(1, |entry| entry.id.number + 1);
        let next_part = numbers.last().map_or(1, |number| number + 1);
        let synced = closed.len() as u64;
        let closed = closed.into_iter().map(|(_, part)| part).collect();
        let parts = Parts { current: None, closed, spare, next, first: next, synced: next, next_part, failed: 0 };
        let syncs = Mutex::new(Syncs { begun: synced, ended: synced, failed: 0 });
        let ended = Default::default();
        let (run, boot) = (random::unique().into(), boot.to_owned());
        Ok((Self { folder, run, boot, parts: Mutex::new(parts), syncs, ended }, entries))
    }

    /// Appends an entry. A `kill -9` keeps it; a loss of power does so once it is synced. After an error nothing was appended.
    pub(super) fn append(&self, kind: Option<Kind>, bytes: &[u8]) -> io::Result<Place> {
        let sum = checksum(&self.run, bytes);
        let mut parts = self.parts.lock();
        let (number, failed) = (parts.next, parts.failed);
        if parts.current.as_ref().is_none_or(|part| part.number <= failed) {
            self.change(&mut parts)?;
        }
        let Some(part) = &mut parts.current else { return Err(io::Error::other("the journal has no part")) };
        let mut text = Vec::with_capacity(HEAD + ENTRY_HEAD + bytes.len() + 1);
        let at = if part.has_entries() {
            part.end
        } else {
            let (run, boot) = (Arc::clone(&self.run), self.boot.clone());
            text.extend(serde_json::to_vec(&Head { v: VERSION, first: number, run, boot })?);
            text.resize(HEAD - 1, b' ');
            text.push(b'\n');
            0
        };
        let letter = LETTERS.iter().find(|(known, _)| *known == kind).map_or('g', |(_, letter)| *letter);
        text.extend(format!("{number:016x} {sum} {:08x} {letter} ", bytes.len()).as_bytes());
        text.extend(bytes);
        text.push(b'\n');
        let end = at + text.len() as u64;
        if end > FULL as u64 {
            return Err(io::Error::other("the journal is full, because records cannot be written to their files"));
        }
        if end > part.room {
            let grown = vec![0; usize::try_from(end - part.room).unwrap_or(GROWS_BY).next_multiple_of(GROWS_BY)];
            part.file.write_at(&grown, part.room)?;
            part.room += grown.len() as u64;
        }
        part.file.write_at(&text, at)?;
        part.end = end;
        let place = Place { entry: EntryId { run: Arc::clone(&self.run), number }, part: part.number };
        parts.next += 1;
        Ok(place)
    }

    /// The last entry.
    pub(super) fn last(&self) -> EntryId {
        EntryId { run: Arc::clone(&self.run), number: self.parts.lock().next - 1 }
    }

    /// Puts an entry on stable storage, with the next sync that begins.
    pub(super) fn sync(&self, place: &Place) -> io::Result<()> {
        if on("nojournalsync") {
            return Ok(());
        }
        self.next_sync(|| self.sync_current())?;
        if place.part <= self.parts.lock().failed {
            return Err(shared_failure());
        }
        Ok(())
    }

    /// Puts on stable storage what was appended after so many parts were closed.
    pub(super) fn sync_after(&self, closed: usize) -> io::Result<()> {
        if self.parts.lock().is_synced_after(closed) {
            return Ok(());
        }
        self.next_sync(|| self.sync_current())?;
        // A part that could not be synced was left for another one. What it holds may be lost.
        if self.parts.lock().closed.len() > closed { Err(shared_failure()) } else { Ok(()) }
    }

    /// How often it was synced.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.lock().ended
    }

    fn sync_current(&self) -> io::Result<()> {
        let (current, next) = {
            let parts = self.parts.lock();
            (parts.current.as_ref().map(|part| (Arc::clone(&part.file), part.number)), parts.next)
        };
        let Some((file, number)) = current else { return Ok(()) };
        if number <= self.parts.lock().failed {
            // A sync may say that all is well after one has said that it is not.
            return Err(shared_failure());
        }
        let synced = file.sync();
        let mut parts = self.parts.lock();
        if synced.is_ok() {
            parts.synced = parts.synced.max(next);
        } else {
            // The kernel may treat what it could not write as written, so nothing more is appended to that file.
            parts.failed = parts.failed.max(number);
        }
        synced
    }

    /// Has saves append to another part, if a flush has come since the first entry of this one, or in any case. Returns how many
    /// parts wait to be filed, and the number of the first entry that is in none of them. Nobody may be saving meanwhile.
    pub(super) fn close_part(&self, in_any_case: bool) -> (usize, u64) {
        let mut parts = self.parts.lock();
        let is_due = |part: &mut Part| {
            part.flushes += u32::from(part.has_entries());
            part.has_entries() && (in_any_case || part.flushes > 1)
        };
        let due = parts.current.take_if(is_due);
        parts.closed.extend(due);
        (parts.closed.len(), if parts.current.is_some() { parts.first } else { parts.next })
    }

    /// Whether an entry is this run's, and not before the one with that number.
    pub(super) fn is_since(&self, entry: &EntryId, first: u64) -> bool {
        entry.run == self.run && entry.number >= first
    }

    /// Empties the first parts that were closed, because all that they hold is filed. The oldest goes first: an entry must not
    /// outlive a later one of the same ask.
    pub(super) fn empty(&self, parts: usize) -> io::Result<()> {
        for _ in 0..parts {
            let Some((file, room)) = self.parts.lock().closed.front().map(|part| (Arc::clone(&part.file), part.room))
            else {
                break;
            };
            file.write_at(&[0; HEAD], 0)?;
            if room > KEPT {
                file.cut(KEPT)?;
            }
            file.sync()?;
            let mut parts = self.parts.lock();
            if let Some(part) = parts.closed.pop_front() {
                parts.spare.push(Part { end: HEAD as u64, room: room.min(KEPT), flushes: 0, ..part });
            }
        }
        Ok(())
    }

    /// Whether nothing is left in it.
    pub(super) fn is_empty(&self) -> bool {
        let parts = self.parts.lock();
        parts.closed.is_empty() && !parts.current.as_ref().is_some_and(Part::has_entries)
    }

    /// Leaves nothing of what it once held on the disk. It has to be empty.
    pub(super) fn wipe(&self) -> io::Result<()> {
        let mut parts = self.parts.lock();
        let Parts { current, spare, .. } = &mut *parts;
        for part in spare.iter_mut().chain(current).filter(|part| part.room > 0 && !part.has_entries()) {
            part.file.cut(0)?;
            part.file.sync()?;
            part.room = 0;
        }
        Ok(())
    }

    /// Has saves append to another part.
    fn change(&self, parts: &mut Parts) -> io::Result<()> {
        let usable = parts.spare.iter().position(|part| part.number > parts.failed);
        let next = if let Some(at) = usable {
            parts.spare.swap_remove(at)
        } else {
            parts.next_part += 1;
            begin(&self.folder, parts.next_part - 1)?
        };
        parts.closed.extend(parts.current.replace(next));
        parts.first = parts.next;
        Ok(())
    }

    /// Takes part in the next sync that begins: the one that is under way may have begun before the entry was appended.
    fn next_sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let ended = |sync: u64| &self.ended[usize::from(sync % 2 == 1)];
        let mut syncs = self.syncs.lock();
        let own = syncs.begun + 1;
        ended(own).wait_while(&mut syncs, |syncs| syncs.ended < own && syncs.ended < syncs.begun);
        if syncs.ended >= own {
            return if syncs.failed >= own { Err(shared_failure()) } else { Ok(()) };
        }
        syncs.begun = own;
        drop(syncs);
        let synced = sync();
        let mut syncs = self.syncs.lock();
        syncs.ended = own;
        syncs.failed = if synced.is_err() { own } else { syncs.failed };
        ended(own).notify_all();
        ended(own + 1).notify_one();
        synced
    }
}

fn shared_failure() -> io::Error {
    io::Error::other("a sync that other saves waited for, too, has failed")
}

/// A new part.
fn begin(folder: &Dir, number: u64) -> io::Result<Part> {
    let name = number.to_string();
    let made = || {
        folder.create(&name, &vec![0; GROWS_BY], Access::PRIVATE)?;
        folder.sync()?;
        folder.open_in_place(&name)
    };
    let file = Arc::new(made().inspect_err(|_| {
        // The next save begins another one.
        let _stays = folder.remove(&name);
    })?);
    Ok(Part { number, file, end: HEAD as u64, room: GROWS_BY as u64, flushes: 0 })
}

/// Of a record, and the run in which it was appended: an entry that an earlier run left must not pass for one of this.
fn checksum(run: &str, bytes: &[u8]) -> String {
    hex::encode(&Sha256::new().chain_update(run).chain_update(bytes).finalize()[..8])
}

/// What a part holds, up to what was not written as a whole or belongs to an earlier use of the file.
fn entries_of(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let Some((head, mut rest)) = bytes.split_at_checked(HEAD) else { return entries };
    let Ok(Head { first, run, boot, .. }) = serde_json::from_slice(head) else { return entries };
    while let Some((kind, bytes, after)) = entry_of(rest, &run, first + entries.len() as u64) {
        let id = EntryId { run: Arc::clone(&run), number: first + entries.len() as u64 };
        entries.push(Entry { id, kind, bytes: bytes.to_vec(), boot: boot.clone() });
        rest = after;
    }
    entries
}

/// The entry with this number, if these bytes begin with it, and what follows.
fn entry_of<'a>(bytes: &'a [u8], run: &str, number: u64) -> Option<(Option<Kind>, &'a [u8], &'a [u8])> {
    let (head, rest) = bytes.split_at_checked(ENTRY_HEAD)?;
    let mut fields = std::str::from_utf8(head).ok()?.split(' ');
    let (own, sum, length, kind) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if u64::from_str_radix(own, 16).ok()? != number {
        return None;
    }
    let (kind, _) = LETTERS.iter().find(|(_, letter)| kind.starts_with(*letter))?;
    let (record, rest) = rest.split_at_checked(usize::from_str_radix(length, 16).ok()?)?;
    let rest = rest.strip_prefix(b"\n")?;
    (checksum(run, record) == sum).then_some((*kind, record, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After one that said that it is not, a sync may say that all is well.
    #[test]
    fn a_part_that_could_not_be_synced_is_never_taken_for_synced() {
        let temp = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(Dir::open(temp.path()).unwrap(), "boot").unwrap();
        let lost = journal.append(None, b"{}").unwrap();
        journal.sync(&lost).unwrap();
        journal.parts.lock().failed = lost.part;
        assert!(journal.sync_after(0).is_err() && journal.sync(&lost).is_err());
        let kept = journal.append(None, b"{}").unwrap();
        journal.sync(&kept).unwrap();
        assert!(journal.sync_after(0).is_err(), "what the part that failed holds may be lost");
    }
}
