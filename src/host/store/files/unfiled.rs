//! Asks whose own files are older than what was saved. The newest record of each stands in the journal, or, if it was saved
//! later, only here. A flush writes the files, each once, whatever came meanwhile, and then has the journal emptied.
//! A file is replaced only by one that is synced, so a loss of power never tears what was filed before.

use super::journal::Place;
use super::opening::{WITH_JOURNAL, mark_format};
use super::record;
use super::{Files, Kind, file_name};
use crate::host::store::Stored;
use crate::ipc::files::Access;
use askd_core::record::EntryId;
use askd_core::{Ask, AskId, Group};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Asks share this many locks.
const SHARDS: usize = 64;
/// The most bytes of records that wait for a flush. Beyond that, a save writes the ask's file itself.
const MOST: usize = 16 * 1024 * 1024;

/// The asks of a store that have to be filed.
#[derive(Debug)]
pub(super) struct AllUnfiled {
    shards: Vec<Mutex<HashMap<AskId, Unfiled>>>,
    /// The groups in whose folders of each kind something was renamed since they were synced.
    folders: Mutex<[HashSet<Group>; 2]>,
    /// The bytes of all of them.
    bytes: Arc<AtomicUsize>,
    /// The number of the last save, of all asks.
    saves: AtomicU64,
    /// Held by the one flush of all of them.
    flushing: Mutex<()>,
}

/// An ask that has to be filed. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Unfiled {
    pub(super) ask: Arc<Ask>,
    /// Where it belongs.
    pub(super) kind: Kind,
    /// All entries about it up to this one are older, or the same.
    pub(super) entry: EntryId,
    /// Its file is still among the open asks.
    moves: bool,
    /// Its file has this content already, and is not synced.
    placed: bool,
    /// An earlier run left it, in this boot, for which nothing vouches.
    in_doubt: Option<String>,
    /// The number of its last save.
    save: u64,
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Unfiled {
    /// A start has found its file there. `filed`: what stands in it, up to which entry, and the boot of it that is in doubt.
    pub(super) fn is_filed(&mut self, kind: Kind, filed: Option<(Ask, EntryId, Option<String>)>) {
        self.moves = self.kind == Kind::Settled && kind == Kind::Pending;
        self.kind = if self.moves { Kind::Settled } else { kind };
        if let Some((ask, has, in_doubt)) = filed
            && self.entry.is_in(&has)
        {
            (self.ask, self.entry, self.in_doubt) = (Arc::new(ask), has, in_doubt);
            // The last run may have been killed before it had synced the file, or its name.
            self.placed = !self.moves;
        }
    }

    /// Where its file is, if it has one.
    pub(super) fn is_in(&self) -> Kind {
        is_in(self.kind, self.moves)
    }
}

/// Where the file of an ask is that belongs there: still among the open asks, if it has to be moved.
fn is_in(kind: Kind, moves: bool) -> Kind {
    if moves { Kind::Pending } else { kind }
}

impl Drop for Unfiled {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How an ask was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Saved {
    /// Its record is this entry of the journal.
    InJournal(EntryId),
    /// The same, and its file has it, too, unsynced.
    Placed(EntryId),
    /// It is nowhere else. No entry about it is later than this one.
    InMemory(EntryId),
}

impl Default for AllUnfiled {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            folders: Mutex::default(),
            bytes: Arc::default(),
            saves: AtomicU64::default(),
            flushing: Mutex::default(),
        }
    }
}

impl AllUnfiled {
    /// Names of this ask's files change only while this is held.
    pub(super) fn lock(&self, id: AskId) -> MutexGuard<'_, HashMap<AskId, Unfiled>> {
        let shard = id.to_bits() as usize % SHARDS;
        self.shards[shard].lock()
    }

    /// The ask and where it belongs, if it has to be filed.
    pub(super) fn get(&self, id: AskId) -> Option<(Arc<Ask>, Kind)> {
        self.lock(id).get(&id).map(|it| (Arc::clone(&it.ask), it.kind))
    }

    /// Where its file is, if the ask has to be filed.
    pub(super) fn lies_in(&self, id: AskId) -> Option<Kind> {
        self.lock(id).get(&id).map(Unfiled::is_in)
    }

    /// The ask as the scan hands it over.
    pub(super) fn stored(&self, id: AskId) -> Option<Stored> {
        self.lock(id).get(&id).map(|it| Stored {
            ask: Ask::clone(&it.ask),
            settled: it.kind == Kind::Settled,
            after_loss: it.in_doubt.is_some(),
        })
    }

    /// Notes that an ask was saved.
    pub(super) fn note(&self, ask: &Arc<Ask>, kind: Kind, bytes: usize, saved: Saved) {
        self.note_moved(ask, kind, bytes, saved, false);
    }

    /// The same for what an earlier run left in the journal, in this boot if that is in doubt.
    pub(super) fn note_left(&self, ask: &Arc<Ask>, kind: Kind, bytes: usize, entry: EntryId, in_doubt: Option<String>) {
        self.note(ask, kind, bytes, Saved::InJournal(entry));
        if let Some(it) = self.lock(ask.id).get_mut(&ask.id) {
            it.in_doubt = in_doubt;
        }
    }

    /// The same; `is_filed`: from now on it belongs to the kept outcomes, and its file is still among the open asks.
    fn note_moved(&self, ask: &Arc<Ask>, kind: Kind, bytes: usize, saved: Saved, is_filed: bool) {
        let save = self.saves.fetch_add(1, Ordering::Relaxed) + 1;
        let placed = matches!(saved, Saved::Placed(_));
        let (Saved::InJournal(entry) | Saved::Placed(entry) | Saved::InMemory(entry)) = saved;
        let mut unfiled = self.lock(ask.id);
        let moves = is_filed || unfiled.get(&ask.id).is_some_and(|before| before.moves);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = Arc::clone(&self.bytes);
        let ask = Arc::clone(ask);
        unfiled.insert(ask.id, Unfiled { ask, kind, moves, placed, in_doubt: None, save, entry, bytes, all });
    }

    /// So many bytes wait that no more should.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MOST
    }

    /// Something was renamed in this folder.
    pub(super) fn touch(&self, kind: Kind, group: &Group) {
        let mut folders = self.folders.lock();
        let known = &mut folders[kind as usize];
        if !known.contains(group) {
            known.insert(group.clone());
        }
    }

    /// The folders that a flush has to sync.
    #[cfg(test)]
    pub(super) fn folders(&self) -> Vec<(Kind, Group)> {
        let folders = self.folders.lock();
        let of = |kind: Kind| folders[kind as usize].iter().map(move |group| (kind, group.clone()));
        of(Kind::Pending).chain(of(Kind::Settled)).collect()
    }

    pub(super) fn all(&self) -> Vec<AskId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

/// A record that a flush has written or synced, and not named yet.
#[derive(Debug)]
pub(super) struct Staged {
    kind: Kind,
    group: Group,
    moves: bool,
    save: u64,
    entry: EntryId,
    /// It has the temporary name.
    written: bool,
}

/// What came of filing all asks.
struct Filed {
    /// The first failure.
    first: io::Result<()>,
    /// The asks that could not be filed.
    failed: Vec<AskId>,
    /// The journal has a newer record of one by now.
    overtaken: bool,
}

impl Files {
    /// Files an ask, if it has to be. `false`: the journal has a newer record of it by now.
    pub(super) fn flush_ask(&self, id: AskId, temporary: &str) -> io::Result<bool> {
        let Some(staged) = self.stage_flush(id, temporary)? else { return Ok(true) };
        let (group, in_folder, written) = (staged.group.clone(), is_in(staged.kind, staged.moves), staged.written);
        let finished = self.finish_flush(id, temporary, &staged);
        if finished.is_err() && written {
            // The next flush may be one with another temporary name, or may have nothing to write.
            let _stays = self.folder(in_folder, &group).and_then(|folder| folder.remove(temporary));
        }
        finished
    }

    /// Writes and syncs it. Saves may come meanwhile.
    pub(super) fn stage_flush(&self, id: AskId, temporary: &str) -> io::Result<Option<Staged>> {
        let (staged, ask, in_doubt) = match self.unfiled.lock(id).get(&id) {
            Some(it) => {
                let (group, entry) = (it.ask.group.clone(), it.entry.clone());
                let Unfiled { kind, moves, save, placed, .. } = *it;
                let staged = Staged { kind, group, moves, save, entry, written: !placed };
                (staged, Arc::clone(&it.ask), it.in_doubt.clone())
            }
            None => return Ok(None),
        };
        let folder = self.folder(is_in(staged.kind, staged.moves), &staged.group)?;
        if staged.written {
            // What is in doubt stays so until a step has taken it into account, which may be after the next start.
            let boot = in_doubt.as_ref().unwrap_or(&self.boot.id);
            let bytes = record::write(&ask, boot, Some(&staged.entry))?;
            folder.stage(temporary, &bytes, Access::PRIVATE)?;
        } else if let Err(error) = folder.sync_file(&file_name(id)) {
            // The kernel may treat what it could not write as written, so the next flush makes another file.
            if let Some(it) = self.unfiled.lock(id).get_mut(&id) {
                it.placed = false;
            }
            return Err(error);
        }
        Ok(Some(staged))
    }

    /// Gives what was staged its name, unless the journal has a newer record by now: `false`.
    pub(super) fn finish_flush(&self, id: AskId, temporary: &str, staged: &Staged) -> io::Result<bool> {
        let folder = self.folder(is_in(staged.kind, staged.moves), &staged.group)?;
        let mut unfiled = self.unfiled.lock(id);
        let overtaken = unfiled.get(&id).is_some_and(|now| now.entry != staged.entry);
        let Some(now) = unfiled.get_mut(&id).filter(|_| !overtaken) else {
            // The next flush is for that one.
            if staged.written {
                folder.remove(temporary)?;
            }
            return Ok(!overtaken);
        };
        if staged.written {
            folder.rename(temporary, &file_name(id))?;
        }
        self.unfiled.touch(is_in(staged.kind, staged.moves), &staged.group);
        if staged.moves {
            folder.rename_to(&file_name(id), &*self.folder(staged.kind, &staged.group)?)?;
            self.unfiled.touch(staged.kind, &staged.group);
            now.moves = false;
        }
        // What was saved later meanwhile waits for the next flush.
        if now.save == staged.save {
            unfiled.remove(&id);
        } else {
            now.placed = false;
        }
        Ok(true)
    }

    /// Files all asks that have to be. Goes on after a failure, and returns the first one.
    pub(super) fn flush_all(&self) -> io::Result<()> {
        let _alone = self.unfiled.flushing.lock();
        let closed = {
            // Those who save have appended to a part, and may not have noted it yet.
            let _nobody_saves = self.writable.write();
            self.journal.close_part(false)
        };
        let filed = self.file_all();
        let carried = self.carry_on_failed(&filed.failed);
        self.end_flush(closed, filed, carried)
    }

    /// The same at the end. From then on nothing can be saved, and the journal holds nothing.
    pub(super) fn flush_and_close(&self) -> io::Result<()> {
        let _alone = self.unfiled.flushing.lock();
        let mut writable = self.writable.write();
        let (closed, filed) = (self.journal.close_part(true), self.file_all());
        let carried = self.carry_on(&filed.failed);
        self.end_flush(closed, filed, carried)?;
        *writable = false;
        self.journal.wipe()
    }

    fn file_all(&self) -> Filed {
        let mut filed = Filed { first: Ok(()), failed: Vec::new(), overtaken: false };
        for id in self.unfiled.all() {
            match self.flush_ask(id, &format!(".tmp-flush-{id}")) {
                Ok(newest) => filed.overtaken |= !newest,
                Err(error) => {
                    filed.failed.push(id);
                    filed.first = filed.first.and(Err(error));
                }
            }
        }
        filed
    }

    /// Syncs what was renamed, and empties the parts of the journal that were closed, if what could not be filed is in
    /// another one by now.
    fn end_flush(&self, closed: usize, filed: Filed, carried: io::Result<Option<Place>>) -> io::Result<()> {
        let mut kept = carried.and_then(|last| last.map_or(Ok(()), |last| self.journal.sync(&last)));
        // In the head of the loop the lock would be held until its end, and a folder that fails could not be noted again.
        let [pending, settled] = std::mem::take(&mut *self.unfiled.folders.lock());
        let of = |kind: Kind| move |group: Group| (kind, group);
        let touched = pending.into_iter().map(of(Kind::Pending)).chain(settled.into_iter().map(of(Kind::Settled)));
        for (kind, group) in touched {
            if let Err(error) = self.folder(kind, &group).and_then(|folder| folder.sync()) {
                self.unfiled.touch(kind, &group);
                kept = kept.and(Err(error));
            }
        }
        kept?;
        self.empty_journal(closed, filed.overtaken)?;
        filed.first
    }

    /// Empties the parts of the journal that were closed. `overtaken`: a record in them was not filed, because a newer one was
    /// appended meanwhile. That one may not be synced, and until it is, a loss of power would leave neither.
    pub(super) fn empty_journal(&self, closed: usize, overtaken: bool) -> io::Result<()> {
        if overtaken && closed > 0 {
            self.journal.sync_after(closed)?;
        }
        self.journal.empty(closed)
    }

    /// Appends an entry to the journal. The first one keeps an askd away that knows no journal.
    pub(super) fn append(&self, kind: Option<Kind>, bytes: &[u8]) -> io::Result<Place> {
        let mut marked = self.marked.lock();
        if !*marked {
            mark_format(&self.path, &self.root, WITH_JOURNAL).map_err(io::Error::other)?;
            *marked = true;
        }
        drop(marked);
        self.journal.append(kind, bytes)
    }

    /// Appends the records of the asks that could not be filed to the journal again, and returns where the last one is.
    pub(super) fn carry_on_failed(&self, ids: &[AskId]) -> io::Result<Option<Place>> {
        if ids.is_empty() {
            return Ok(None);
        }
        // Whoever saves has appended a newer record, and may not have noted it yet.
        let _nobody_saves = self.writable.write();
        self.carry_on(ids)
    }

    /// The same while nobody saves.
    fn carry_on(&self, ids: &[AskId]) -> io::Result<Option<Place>> {
        let mut last = None;
        for id in ids {
            let mut unfiled = self.unfiled.lock(*id);
            let Some(now) = unfiled.get_mut(id) else { continue };
            let place = self.append(Some(now.kind), &record::entry(&now.ask, now.in_doubt.as_deref())?)?;
            now.entry = place.entry.clone();
            last = Some(place);
        }
        Ok(last)
    }

    /// Notes that an ask belongs to the kept outcomes. The next flush moves its file.
    pub(super) fn move_to_settled(&self, ask: &Arc<Ask>) -> io::Result<()> {
        let _saving = self.saving()?;
        let bytes = record::entry(ask, None)?;
        let place = self.append(Some(Kind::Settled), &bytes)?;
        self.unfiled.note_moved(ask, Kind::Settled, bytes.len(), Saved::InJournal(place.entry), true);
        self.cache.lock().moved(ask.id, Kind::Settled);
        Ok(())
    }
}
