//! A flush puts on stable storage all that was saved. It writes the files of asks that are over, and of those whose newest record stands in a
//! part of the journal that is closed, each once, whatever comes meanwhile, and then has those parts emptied. More will happen to
//! the others soon, so their newest records go into the journal, which costs a tenth. A file is replaced only by one that is synced, so a
//! loss of power never tears what was filed before.

use super::journal::Place;
use super::opening::{WITH_JOURNAL, mark_format};
use super::record;
use super::unfiled::{InFile, Saved, Unfiled, is_in};
use super::{Files, Kind, file_name};
use crate::ipc::files::{Access, Dir};
use crate::sabotage::{crash_point, on};
use askd_core::record::EntryId;
use askd_core::{Ask, AskId, Group};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many asks a flush files, or carries on while nobody saves, at a time: promises wait for the disk meanwhile.
const AT_A_TIME: usize = 128;
/// Of so many files at a time the file system is synced as a whole. It may hold much that other programs have written. Tests seldom have many.
const MANY: usize = if cfg!(debug_assertions) { 2 } else { 32 };

/// A record that a flush has written, or found written, and not named yet.
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

impl Files {
    /// Files an ask, if it has to be and the journal has no newer record of it by then.
    pub(super) fn flush_ask(&self, id: AskId, temporary: &str) -> io::Result<()> {
        let staged = self.stage_flush(id, temporary).and_then(|staged| self.sync_staged(id, temporary, staged));
        self.end_staged(id, temporary, staged)
    }

    /// The same of some, at once if they are many. Returns what became of each.
    fn flush_some(&self, ids: &[AskId]) -> Vec<io::Result<()>> {
        let temporary = |id: &AskId| format!(".tmp-flush-{id}");
        if ids.len() < MANY || !self.syncs_as_one.load(Ordering::Relaxed) {
            return ids.iter().map(|id| self.flush_ask(*id, &temporary(id))).collect();
        }
        let staged: Vec<_> = ids.iter().map(|id| self.stage_flush(*id, &temporary(id))).collect();
        let synced = self.sync_file_system();
        if let Err(error) = &synced {
            // It may be about a file of another program, and the kernel tells of it once. So each file is asked from now on.
            tracing::warn!(%error, "the file system cannot be synced as a whole; each file is synced by itself until the next start");
            self.syncs_as_one.store(false, Ordering::Relaxed);
        }
        let end = |(id, staged): (&AskId, io::Result<Option<Staged>>)| {
            let temporary = temporary(id);
            let staged =
                if synced.is_ok() { staged } else { staged.and_then(|it| self.sync_staged(*id, &temporary, it)) };
            self.end_staged(*id, &temporary, staged)
        };
        ids.iter().zip(staged).map(end).collect()
    }

    fn sync_file_system(&self) -> io::Result<()> {
        if on("nofilesync") {
            return Ok(());
        }
        self.root.sync_file_system()?;
        // The device may hold some of it back until a file is synced, whichever that is.
        self.root.sync_file("lock")
    }

    /// Writes it. Saves may come meanwhile.
    pub(super) fn stage_flush(&self, id: AskId, temporary: &str) -> io::Result<Option<Staged>> {
        let (staged, ask, in_doubt) = match self.unfiled.lock(id).get(&id) {
            Some(it) => {
                let (group, entry) = (it.ask.group.clone(), it.entry.clone());
                let Unfiled { kind, moves, save, file, .. } = *it;
                let staged = Staged { kind, group, moves, save, entry, written: file != InFile::Same };
                (staged, Arc::clone(&it.ask), it.in_doubt.clone())
            }
            None => return Ok(None),
        };
        if staged.written {
            // What is in doubt stays so until a step has taken it into account, which may be after the next start.
            let boot = in_doubt.as_ref().unwrap_or(&self.boot.id);
            let bytes = record::write(&ask, boot, Some(&staged.entry))?;
            self.folder_of(&staged)?.stage_unsynced(temporary, &bytes, Access::PRIVATE)?;
        }
        Ok(Some(staged))
    }

    /// Syncs what was staged.
    fn sync_staged(&self, id: AskId, temporary: &str, staged: Option<Staged>) -> io::Result<Option<Staged>> {
        if let Some(staged) = &staged {
            let (name, folder) = (file_name(id), self.folder_of(staged)?);
            if let Err(error) = folder.sync_file(if staged.written { temporary } else { &name }) {
                self.drop_staged(id, temporary, staged);
                return Err(error);
            }
        }
        Ok(staged)
    }

    /// It could not be synced, or not be named.
    fn drop_staged(&self, id: AskId, temporary: &str, staged: &Staged) {
        if staged.written {
            // The next flush may be one with another temporary name, or may have nothing to write.
            let _stays = self.folder_of(staged).and_then(|folder| folder.remove(temporary));
        } else if let Some(it) = self.unfiled.lock(id).get_mut(&id) {
            // The kernel may treat what it could not write as written, so the next flush makes another file.
            it.file = InFile::Older;
        }
    }

    /// Gives what was staged its name.
    fn end_staged(&self, id: AskId, temporary: &str, staged: io::Result<Option<Staged>>) -> io::Result<()> {
        let Some(staged) = staged? else { return Ok(()) };
        let finished = self.finish_flush(id, temporary, &staged);
        if finished.is_err() && staged.written {
            self.drop_staged(id, temporary, &staged);
        }
        finished.map(drop)
    }

    /// Where the file is, or is to be.
    fn folder_of(&self, staged: &Staged) -> io::Result<Arc<Dir>> {
        self.folder(is_in(staged.kind, staged.moves), &staged.group)
    }

    /// Gives what was staged its name, unless the journal has a newer record by now: `false`.
    pub(super) fn finish_flush(&self, id: AskId, temporary: &str, staged: &Staged) -> io::Result<bool> {
        let folder = self.folder_of(staged)?;
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
            now.file = InFile::Older;
        }
        Ok(true)
    }

    /// Files what is due, or `all`. Goes on after a failure, and returns the first one.
    pub(super) fn flush_all(&self, all: bool) -> io::Result<()> {
        let _alone = self.unfiled.flushing.lock();
        let all = all || self.unfiled.are_many();
        let (closed, first) = {
            // Those who save have appended to a part, and may not have noted it yet.
            let _nobody_saves = self.writable.write();
            self.journal.close_part(false)
        };
        let (filed, left) = self.file_those(|it| {
            all || it.ask.is_done_with() && !it.ask.is_untaken() || !self.journal.is_since(&it.entry, first)
        });
        let carried = self.carry_on_left(&left);
        self.end_flush(closed, filed, carried)
    }

    /// The same at the end. From then on nothing can be saved, and the journal holds nothing.
    pub(super) fn flush_and_close(&self) -> io::Result<()> {
        let _alone = self.unfiled.flushing.lock();
        let mut writable = self.writable.write();
        let ((closed, _), (filed, left)) = (self.journal.close_part(true), self.file_those(|_| true));
        let carried = self.carry_on(&left);
        self.end_flush(closed, filed, carried)?;
        *writable = false;
        self.journal.wipe()
    }

    /// Files those that are due. Returns the first failure, and the asks that are not filed although nothing else has their newest record.
    fn file_those(&self, is_due: impl Fn(&Unfiled) -> bool) -> (io::Result<()>, Vec<AskId>) {
        let (mut filed, mut left) = (Ok(()), Vec::new());
        let mut due = self.unfiled.all();
        due.retain(|id| {
            let is_left = self.unfiled.lock(*id).get(id).and_then(|it| (!is_due(it)).then_some(it.only_here));
            left.extend(is_left.unwrap_or(false).then_some(*id));
            is_left.is_none()
        });
        for some in due.chunks(AT_A_TIME) {
            for (id, ended) in some.iter().zip(self.flush_some(some)) {
                left.extend(ended.is_err().then_some(*id));
                filed = filed.and(ended);
            }
        }
        (filed, left)
    }

    /// Syncs what was renamed, and empties the parts of the journal that were closed. Before, another part has what they hold of asks that
    /// are not filed, and is synced: until it is, a loss of power would leave neither.
    pub(super) fn end_flush(&self, closed: usize, filed: io::Result<()>, mut kept: io::Result<()>) -> io::Result<()> {
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
        let synced = self.journal.sync_after(closed);
        kept.and(synced)?;
        crash_point("flush.filed");
        self.journal.empty(closed)?;
        crash_point("flush.ended");
        filed
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

    /// Appends the records of these asks to the journal.
    pub(super) fn carry_on_left(&self, ids: &[AskId]) -> io::Result<()> {
        ids.chunks(AT_A_TIME).try_for_each(|some| {
            // Whoever saves has appended a newer record, and may not have noted it yet.
            let _nobody_saves = self.writable.write();
            self.carry_on(some)
        })
    }

    /// The same while nobody saves.
    fn carry_on(&self, ids: &[AskId]) -> io::Result<()> {
        for id in ids {
            let mut unfiled = self.unfiled.lock(*id);
            let Some(now) = unfiled.get_mut(id) else { continue };
            let place = self.append(Some(now.kind), &record::entry(&now.ask, now.in_doubt.as_deref())?)?;
            (now.entry, now.only_here) = (place.entry, false);
        }
        Ok(())
    }

    /// Keeps in memory what the next flush has to store. `false`: too much is kept already.
    pub(super) fn leave_to_the_flush(&self, ask: &Arc<Ask>) -> bool {
        let Some((kind, bytes, last)) = self.can_wait_in_memory(ask.id) else { return false };
        self.unfiled.note(ask, kind, bytes, Saved::InMemory(last));
        self.cache.lock().put(Arc::clone(ask), kind, bytes);
        true
    }

    /// Where the record of an ask is, how long it is, and after which entry of the journal the ask is in memory, if it may be there alone.
    fn can_wait_in_memory(&self, id: AskId) -> Option<(Kind, usize, EntryId)> {
        let known = self.cache.lock().record_of(id);
        let (kind, bytes) = known.filter(|_| !self.unfiled.are_too_many())?;
        let last = self.unfiled.lock(id).get(&id).map(|it| it.entry.clone());
        Some((kind, bytes, last.unwrap_or_else(|| self.journal.last())))
    }

    /// Notes that an ask belongs to the kept outcomes. The next flush moves its file; after a `kill -9` before that, a start finds that out
    /// again.
    pub(super) fn move_to_settled(&self, ask: &Arc<Ask>) -> io::Result<()> {
        let _saving = self.saving()?;
        let (bytes, saved) = if let Some((_, bytes, last)) = self.can_wait_in_memory(ask.id) {
            (bytes, Saved::InMemory(last))
        } else {
            let bytes = record::entry(ask, None)?;
            (bytes.len(), Saved::InJournal(self.append(Some(Kind::Settled), &bytes)?.entry))
        };
        self.unfiled.note_moved(ask, Kind::Settled, bytes, saved, true);
        self.cache.lock().moved(ask.id, Kind::Settled);
        Ok(())
    }
}
