//! Asks whose own files are older than what was saved. The newest record of each stands in the journal, or, if it was saved
//! later, only here, until a flush writes the file or a line of the journal ([`super::flush`]).

use super::Kind;
use crate::host::store::Stored;
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
const MOST: usize = 32 * 1024 * 1024;
/// With so many bytes a flush leaves none of them to the next one, before which more may come.
const MANY: usize = MOST / 4 * 3;

/// The asks of a store that have to be filed.
#[derive(Debug)]
pub(super) struct AllUnfiled {
    shards: Vec<Mutex<HashMap<AskId, Unfiled>>>,
    /// The groups in whose folders of each kind something was renamed since they were synced.
    pub(super) folders: Mutex<[HashSet<Group>; 2]>,
    /// The bytes of all of them.
    bytes: Arc<AtomicUsize>,
    /// The number of the last save, of all asks.
    saves: AtomicU64,
    /// Held by the one flush of all of them.
    pub(super) flushing: Mutex<()>,
}

/// What an ask's file has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFile {
    /// There is none. It is made with the next save, or by a flush.
    Nothing,
    Older,
    /// The same, and it is not synced.
    Same,
}

/// An ask that has to be filed. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Unfiled {
    pub(super) ask: Arc<Ask>,
    /// Where it belongs.
    pub(super) kind: Kind,
    /// All entries about it up to this one are older, or the same.
    pub(super) entry: EntryId,
    /// It was saved after that entry, and is nowhere else.
    pub(super) only_here: bool,
    /// Its file is still among the open asks.
    pub(super) moves: bool,
    pub(super) file: InFile,
    /// An earlier run left it, in this boot, for which nothing vouches.
    pub(super) in_doubt: Option<String>,
    /// The number of its last save.
    pub(super) save: u64,
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
            // The last run may have been killed before it had synced the file, or its name, or may have been told that this failed. So it is
            // written again.
            (self.ask, self.entry, self.in_doubt) = (Arc::new(ask), has, in_doubt);
        }
    }

    /// Where its file is, if it has one.
    pub(super) fn is_in(&self) -> Kind {
        is_in(self.kind, self.moves)
    }
}

/// Where the file of an ask is that belongs there: still among the open asks, if it has to be moved.
pub(super) fn is_in(kind: Kind, moves: bool) -> Kind {
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
    /// The same, and it has no file yet.
    WithoutFile(EntryId),
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
    pub(super) fn note_moved(&self, ask: &Arc<Ask>, kind: Kind, bytes: usize, saved: Saved, is_filed: bool) {
        self.note_in(&mut self.lock(ask.id), ask, kind, bytes, saved, is_filed);
    }

    /// The same for who has locked the ask's files.
    fn note_in(
        &self,
        unfiled: &mut HashMap<AskId, Unfiled>,
        ask: &Arc<Ask>,
        kind: Kind,
        bytes: usize,
        saved: Saved,
        is_filed: bool,
    ) {
        let save = self.saves.fetch_add(1, Ordering::Relaxed) + 1;
        let before = unfiled.get(&ask.id);
        let moves = is_filed || before.is_some_and(|before| before.moves);
        let had_none = before.is_some_and(|before| before.file == InFile::Nothing);
        let file = match &saved {
            Saved::WithoutFile(_) => InFile::Nothing,
            Saved::Placed(_) => InFile::Same,
            Saved::InJournal(_) | Saved::InMemory(_) if had_none => InFile::Nothing,
            Saved::InJournal(_) | Saved::InMemory(_) => InFile::Older,
        };
        let only_here = matches!(saved, Saved::InMemory(_));
        let (Saved::InJournal(entry) | Saved::WithoutFile(entry) | Saved::Placed(entry) | Saved::InMemory(entry)) =
            saved;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (ask, all) = (Arc::clone(ask), Arc::clone(&self.bytes));
        let noted = Unfiled { kind, moves, file, in_doubt: None, save, entry, only_here, bytes, all, ask };
        unfiled.insert(noted.ask.id, noted);
    }

    /// Has `place` make the first file of an ask that has none yet, and notes that it has this record. `false`: it has one, or cannot have
    /// one now.
    pub(super) fn note_first(
        &self,
        ask: &Arc<Ask>,
        bytes: usize,
        entry: &EntryId,
        place: impl FnOnce() -> io::Result<bool>,
    ) -> bool {
        let mut unfiled = self.lock(ask.id);
        let Some(it) = unfiled.get_mut(&ask.id).filter(|it| it.file == InFile::Nothing) else { return false };
        match place() {
            Ok(true) => self.note_in(&mut unfiled, ask, Kind::Pending, bytes, Saved::Placed(entry.clone()), false),
            Ok(false) => it.file = InFile::Older,
            Err(_) => {}
        }
        unfiled.get(&ask.id).is_some_and(|it| it.file == InFile::Same)
    }

    /// So many bytes wait that no more should.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MOST
    }

    /// So many bytes wait that a flush should leave none.
    pub(super) fn are_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MANY
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
