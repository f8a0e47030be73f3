//! `askd store copy`: moves all records from one engine to the other while no daemon serves either. A mark in each says how far
//! the copy has got, so that it can be run again after any interruption, and no daemon starts on half a copy or on moved records.

mod error;

pub use error::CopyError;

use super::documents::{AGENT_TOKENS, remembers};
use super::marks::{COPY_ID, MARK, Mark, mark_of};
use super::{Allowed, Loading, Opened, Save, Sharing, StoreError, Stored};
use crate::random;
use crate::sabotage::crash_point;
use askd_core::{Ask, AskId, Digest, Group, Time};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After how many asks the target files what it has.
const FLUSH_EVERY: usize = if cfg!(test) { 2 } else { 4096 };

/// What was copied.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Open questions, and those of which somebody is still owed something.
    pub open: usize,
    /// Kept outcomes.
    pub settled: usize,
    /// What is remembered beside them.
    pub documents: usize,
}

/// How the files make place for a copy.
const OUT: &str = "move pending_questions, settled, groups, journal, channels, push.json, agent_tokens.json and \
                   agent_tokens_used.json out of state/ and leave the rest";

fn mark(of: &Opened) -> Result<Option<Mark>, StoreError> {
    mark_of(&*of.documents).map_err(|source| cannot("read", of, source))
}

fn set_mark(of: &Opened, mark: Mark) -> Result<(), StoreError> {
    of.documents.store(MARK, mark.text().as_bytes()).map_err(|source| cannot("mark", of, source))
}

fn clear_mark(of: &Opened) -> Result<(), StoreError> {
    of.documents.remove(MARK).map_err(|source| cannot("mark", of, source))
}

fn cannot(what: &str, of: &Opened, source: io::Error) -> StoreError {
    StoreError::Io { what: format!("cannot {what} {}", of.store.place()), source }
}

/// Whether the target holds nothing that is not in the source: it is empty, or both are of one copy. Marks alone do not show it:
/// either store may have been lost since then, and another one may have its place.
fn check_replaceable(from: &Opened, to: &Opened) -> Result<(), CopyError> {
    let id = |of: &Opened| of.documents.read(COPY_ID).map_err(|source| cannot("read", of, source));
    let (known, there) = (id(from)?, id(to)?);
    if known.is_some() && known == there || is_empty(to)? {
        return Ok(());
    }
    let free = match to.store.shared() {
        Some(_) => "run `delete from askd.documents where name = 'copy'` there",
        None => "remove state/copy",
    };
    Err(CopyError::Kept { to: to.store.place(), from: from.store.place(), free, away: away(to) })
}

/// How to make place in a store.
fn away(to: &Opened) -> &'static str {
    if to.store.shared().is_some() { "move the database away" } else { OUT }
}

/// Notes in both that they are of one copy.
fn join(from: &Opened, to: &Opened) -> Result<(), CopyError> {
    let id = random::unique();
    for of in [from, to] {
        of.documents.store(COPY_ID, id.as_bytes()).map_err(|source| cannot("mark", of, source))?;
    }
    Ok(())
}

/// All asks of a store. A record that cannot be read ends it.
fn read_all(of: &Opened, each: &(dyn Fn(Stored) + Sync)) -> Result<(), CopyError> {
    let unreadable = of.store.scan(&Loading::default(), each)?;
    match unreadable.into_iter().next() {
        Some((what, why)) => Err(CopyError::Unreadable(what, why.to_string())),
        None => Ok(()),
    }
}

fn read_ids(of: &Opened) -> Result<Vec<(Arc<Ask>, bool)>, CopyError> {
    let found = Mutex::new(Vec::new());
    read_all(of, &|Stored { ask, settled, .. }| found.lock().push((Arc::new(ask), settled)))?;
    Ok(found.into_inner())
}

/// Whether a store has nothing but what a daemon makes by itself.
fn is_empty(of: &Opened) -> Result<bool, CopyError> {
    let remembers = remembers(&*of.documents).map_err(|source| cannot("read", of, source))?;
    Ok(!remembers && read_ids(of)?.is_empty())
}

/// Removes all that a store holds.
fn empty(of: &Opened) -> Result<(), CopyError> {
    let asks = read_ids(of)?;
    match of.store.shared() {
        Some(shared) => shared.clear()?,
        None => asks.iter().try_for_each(|(ask, _)| of.store.forget(&ask.group, ask.id))?,
    }
    for (group, _) in of.store.allowed()? {
        of.store.allow(&group, &[], Time::MAX)?;
    }
    for name in names(of)? {
        of.documents.remove(&name).map_err(|source| cannot("change", of, source))?;
    }
    of.store.flush_whole()?;
    Ok(())
}

fn names(of: &Opened) -> Result<Vec<String>, StoreError> {
    of.documents.names().map_err(|source| cannot("read", of, source))
}

/// Takes back a copy that has not ended: the source is served again, and the target has nothing of it.
pub fn abort(from: &Opened, to: &Opened) -> Result<(), CopyError> {
    match (mark(from)?, mark(to)?) {
        (Some(Mark::Moving), Some(Mark::Coming)) => {}
        (None, Some(Mark::Coming)) => check_replaceable(from, to)?,
        // The target was not marked yet, or another one has its place. Or all is there, and an earlier version was to set the last mark.
        (Some(Mark::Moving), known @ (None | Some(Mark::Moved))) => {
            let there: HashSet<AskId> = read_ids(to)?.iter().map(|(ask, _)| ask.id).collect();
            if known.is_none() && read_ids(from)?.iter().any(|(ask, _)| there.contains(&ask.id)) {
                return Err(CopyError::Whole(to.store.place()));
            }
            return Ok(clear_mark(from)?);
        }
        // Once the source is marked as moved, the copy is all there is: nothing is taken back.
        _ => return Err(CopyError::NotBegun),
    }
    // Whenever it is cut off, it can be run again.
    empty(to)?;
    for of in [from, to] {
        of.documents.remove(COPY_ID).map_err(|source| cannot("mark", of, source))?;
    }
    clear_mark(from)?;
    Ok(clear_mark(to)?)
}

/// Copies everything, compares, and marks the source as moved. When run again after an interruption, it starts over, or sets only the last mark.
/// `host`: what this one is called, which has the folders of the groups.
pub fn copy(from: &Opened, to: &Opened, host: &str) -> Result<Copied, CopyError> {
    let all_is_there = match (mark(from)?, mark(to)?) {
        // All of it was there and the same: only the last mark is left.
        (Some(Mark::Moved), Some(Mark::Coming)) => true,
        // The same, where an earlier version set the source's mark last; or it was not marked yet, or an empty one has its place.
        (Some(Mark::Moving), None) => !read_ids(to)?.is_empty(),
        // The target holds part of this copy.
        (Some(Mark::Moving), Some(Mark::Coming)) => false,
        // The same, or what the target held before its records were moved to the source.
        (None | Some(Mark::Moving), Some(Mark::Coming | Mark::Moved)) => {
            check_replaceable(from, to)?;
            false
        }
        (None, None) => {
            let there = read_ids(to)?.len();
            if there > 0 {
                return Err(CopyError::NotEmpty(to.store.place(), there));
            }
            if !is_empty(to)? || !to.store.allowed()?.is_empty() {
                return Err(CopyError::Remembers(to.store.place(), away(to)));
            }
            false
        }
        (Some(Mark::Moved), None | Some(Mark::Moved)) | (Some(Mark::Coming), _) | (_, Some(Mark::Moving)) => {
            from.check()?;
            to.check()?;
            false
        }
    };
    let called = names_there(from, to, host)?;
    if !all_is_there {
        if from.store.shared().map_or(Ok(false), Sharing::has_unread)? {
            return Err(CopyError::Unread(from.store.place()));
        }
        set_mark(to, Mark::Coming)?;
        set_mark(from, Mark::Moving)?;
        crash_point("copy.marked");
        empty(to)?;
        copy_all(from, to, host, &called)?;
        crash_point("copy.copied");
    }
    let copied = compare(from, to, &called)?;
    join(from, to)?;
    // Whenever it is cut off, no daemon starts on either until it has ended.
    set_mark(from, Mark::Moved)?;
    crash_point("copy.ready");
    clear_mark(to)?;
    Ok(copied)
}

/// What groups are called in the target, as far as that is something else.
#[derive(Debug, Default)]
struct Called(HashMap<Group, Group>);

/// In files no name says which host serves a folder: all of them are this host's, and its agents ask as the groups of their names.
fn names_there(from: &Opened, to: &Opened, host: &str) -> Result<Called, CopyError> {
    let mut called = Called::default();
    let Some(shared) = from.store.shared().filter(|_| to.store.shared().is_none()) else { return Ok(called) };
    // Whether something of it is not over.
    let groups = Mutex::new(BTreeMap::<Group, bool>::new());
    read_all(from, &|Stored { ask, settled, .. }| {
        let goes_on = !settled || !ask.is_done_with();
        *groups.lock().entry(ask.group.clone()).or_default() |= goes_on;
    })?;
    let mut groups = groups.into_inner();
    for (group, _) in from.store.allowed()? {
        groups.entry(group).or_default();
    }
    // A token has the name of its group, of which there may be no question.
    for group in shared.pinned_groups().into_iter().filter(|group| group.folder() != group.as_str()) {
        groups.entry(group).or_default();
    }
    for (group, _) in groups.iter().filter(|(_, goes_on)| **goes_on) {
        match shared.pinned(group) {
            Some(pin) if pin.host != host => {
                return Err(CopyError::Elsewhere { group: group.clone(), at: pin.host, host: host.to_owned() });
            }
            Some(pin) if pin.strange.is_some() => return Err(CopyError::Strange(group.clone(), host.to_owned())),
            Some(_) | None => {}
        }
    }
    for wanted in [true, false] {
        for (group, _) in groups.iter().filter(|(_, goes_on)| **goes_on == wanted) {
            let Ok(folder) = group.folder().parse::<Group>() else { continue };
            if folder == *group || shared.pinned(group).is_none_or(|pin| pin.host != host) {
                continue;
            }
            if !groups.contains_key(&folder) && !called.0.values().any(|taken| *taken == folder) {
                called.0.insert(group.clone(), folder);
            } else if wanted {
                return Err(CopyError::Taken(group.clone(), folder));
            }
        }
    }
    Ok(called)
}

impl Called {
    fn group(&self, group: &Group) -> Group {
        self.0.get(group).unwrap_or(group).clone()
    }

    fn ask(&self, ask: Ask) -> Ask {
        let group = self.group(&ask.group);
        ask.called(group)
    }

    /// What may be asked again in a store. Each engine has an order of its own, and files also name groups of which nothing is left.
    fn allowed(&self, of: &Opened) -> Result<BTreeMap<(Group, Digest), Allowed>, StoreError> {
        let all = of.store.allowed()?.into_iter();
        Ok(all
            .flat_map(|(group, of)| of.into_iter().map(move |one| ((self.group(&group), one.question), one)))
            .collect())
    }

    /// A document of the source, with the groups of agents' tokens as they are called in the target.
    fn document(&self, from: &Opened, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = from.documents.read(name).map_err(|source| cannot("read", from, source))?;
        if name != AGENT_TOKENS || self.0.is_empty() {
            return Ok(bytes);
        }
        let Some(mut value) = bytes.as_ref().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok()) else {
            return Ok(bytes);
        };
        for token in value.get_mut("tokens").and_then(Value::as_array_mut).into_iter().flatten() {
            let group = token.get("group").and_then(Value::as_str).and_then(|group| group.parse::<Group>().ok());
            if let Some(called) = group.and_then(|group| self.0.get(&group)) {
                token["group"] = called.as_str().into();
            }
        }
        Ok(Some(value.to_string().into_bytes()))
    }
}

fn copy_all(from: &Opened, to: &Opened, host: &str, called: &Called) -> Result<(), CopyError> {
    let (failed, copied) = (Mutex::new(None), AtomicUsize::new(0));
    let copy = |ask: Ask, settled| -> Result<(), StoreError> {
        let (group, id) = (ask.group.clone(), ask.id);
        let in_folder = ask.has_briefing() || ask.waiters.iter().any(|waiter| waiter.carrier.is_file());
        // Before the group has an ask: what lies in the folder is known.
        if let Some(shared) = to.store.shared().filter(|_| in_folder) {
            shared.pin(&group, host)?;
        }
        to.store.save(&Arc::new(ask), Save::Now)?;
        if settled {
            to.store.retire(&group, id)?;
        }
        // A journal has no room for very many.
        let is_due = copied.fetch_add(1, Ordering::Relaxed) % FLUSH_EVERY == FLUSH_EVERY - 1;
        if is_due { to.store.flush_whole() } else { Ok(()) }
    };
    read_all(from, &|Stored { ask, settled, after_loss }| {
        if failed.lock().is_some() {
            return;
        }
        // The copy would look as if nothing were missing. A start that has looked at them leaves the others as they are.
        let unclean = (after_loss && ask.is_changed_by_loss()).then_some(CopyError::NotClean(from.store.place()));
        if let Some(error) = unclean.or_else(|| copy(called.ask(ask), settled).err().map(CopyError::from)) {
            failed.lock().get_or_insert(error);
        }
    })?;
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    for (group, allowed) in from.store.allowed()? {
        to.store.allow(&called.group(&group), &allowed, Time::from_millis(0))?;
    }
    for name in names(from)? {
        let stored = called.document(from, &name)?.map_or(Ok(()), |bytes| to.documents.store(&name, &bytes));
        stored.map_err(|source| cannot("write", to, source))?;
    }
    to.store.flush_whole()?;
    Ok(())
}

/// Compares the parsed records. Of each only a hash is kept at hand.
fn compare(from: &Opened, to: &Opened, called: &Called) -> Result<Copied, CopyError> {
    let (hash, known) = (RandomState::new(), Mutex::new(HashMap::<AskId, u64>::new()));
    let of = |ask: &Ask, settled: bool| hash.hash_one((serde_json::to_string(ask).unwrap_or_default(), settled));
    let (copied, differ) = (Mutex::new(Copied::default()), Mutex::new(0));
    read_all(from, &|Stored { ask, settled, .. }| {
        let ask = called.ask(ask);
        known.lock().insert(ask.id, of(&ask, settled));
        let mut copied = copied.lock();
        *if settled { &mut copied.settled } else { &mut copied.open } += 1;
    })?;
    read_all(to, &|Stored { ask, settled, .. }| {
        if known.lock().remove(&ask.id) != Some(of(&ask, settled)) {
            *differ.lock() += 1;
        }
    })?;
    let mut differ = differ.into_inner() + known.into_inner().len();
    let mut copied = copied.into_inner();
    for name in names(from)? {
        let there = to.documents.read(&name).map_err(|source| cannot("read", to, source))?;
        differ += usize::from(called.document(from, &name)? != there);
        copied.documents += 1;
    }
    differ += usize::from(called.allowed(from)? != Called::default().allowed(to)?);
    if differ > 0 { Err(CopyError::Differs(differ, to.store.place())) } else { Ok(copied) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::store::Allowed;
    use crate::host::store::conformance::{ask, ask_in_slack, done, settled};
    use askd_core::{Person, Via};
    use std::time::Duration;

    fn files(at: &std::path::Path) -> Opened {
        Opened::files(at, false).unwrap()
    }

    /// A copy reads what is filed, and what was in the journal when the store was opened.
    fn save(to: &Opened, ask: &Arc<Ask>) {
        to.store.save(ask, Save::Now).unwrap();
        to.store.flush_whole().unwrap();
    }

    #[test]
    fn all_of_it_moves_once_and_back_and_no_daemon_starts_on_what_was_moved() {
        let temp = tempfile::tempdir().unwrap();
        let (here, there) = (temp.path().join("here/state"), temp.path().join("there/state"));
        let (from, to) = (files(&here), files(&there));
        let (open, done) = (Arc::new(ask(1, "g")), Arc::new(settled(ask(2, "g"))));
        save(&from, &open);
        save(&from, &done);
        from.store.retire(&done.group, done.id).unwrap();
        from.store.flush_whole().unwrap();
        let allowed =
            Allowed { question: Digest::from_bytes([1; 32]), at: Time::from_millis(7), by: Person::operator(Via::Cli) };
        from.store.allow(&open.group, &[allowed], Time::from_millis(0)).unwrap();
        from.documents.store("channels/whatsapp.json", b"{}").unwrap();
        from.documents.store("web_token", b"secret").unwrap();
        let all = Copied { open: 1, settled: 1, documents: 2 };
        assert_eq!(copy(&from, &to, "here").unwrap(), all);
        assert!(to.check().is_ok() && matches!(from.check(), Err(StoreError::Moved(_))));
        assert!(copy(&from, &to, "here").is_err(), "it is elsewhere");
        // And back, over what it had before.
        to.store.forget(&open.group, open.id).unwrap();
        assert_eq!(copy(&to, &from, "here").unwrap(), Copied { open: 0, ..all });
        assert!(from.check().is_ok() && to.check().is_err());
        assert_eq!(read_ids(&from).unwrap(), [(done, true)]);
    }

    /// What a loss of power would not change is whole, whenever it was written.
    #[test]
    fn only_what_a_loss_of_power_would_change_is_not_copied_after_one() {
        let temp = tempfile::tempdir().unwrap();
        let (here, there) = (temp.path().join("here/state"), temp.path().join("there/state"));
        let (open, done) = (Arc::new(ask_in_slack(1, "g")), Arc::new(done(2, Duration::from_secs(60))));
        assert!(open.is_changed_by_loss() && !done.is_changed_by_loss());
        let from = files(&here);
        save(&from, &done);
        from.store.retire(&done.group, done.id).unwrap();
        from.store.close().unwrap();
        drop(from);
        let from = Opened::files(&here, true).unwrap();
        let lost = Mutex::new(0);
        read_all(&from, &|stored| *lost.lock() += usize::from(stored.after_loss)).unwrap();
        assert_eq!(lost.into_inner(), 1, "nothing vouches for it");
        let to = files(&there);
        assert_eq!(copy(&from, &to, "here").unwrap().settled, 1);
        assert_eq!(copy(&to, &from, "here").unwrap().settled, 1);
        save(&from, &open);
        from.store.close().unwrap();
        drop(from);
        let from = Opened::files(&here, true).unwrap();
        assert!(matches!(copy(&from, &to, "here"), Err(CopyError::NotClean(_))));
    }

    /// What is in its place may be new, or another store.
    #[test]
    fn records_of_which_nothing_shows_that_the_source_has_them_are_not_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to, other] = ["a", "b", "c"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        copy(&from, &to, "here").unwrap();
        assert!(matches!(copy(&other, &from, "here"), Err(CopyError::Kept { .. })));
        // Cut off before its last mark, all of it is in the target.
        set_mark(&to, Mark::Coming).unwrap();
        assert!(matches!(copy(&other, &to, "here"), Err(CopyError::Kept { .. })));
        assert!(matches!(abort(&other, &to), Err(CopyError::Kept { .. })));
        clear_mark(&to).unwrap();
        // An earlier version noted no id. What it moved comes back once the operator has moved the old records away.
        to.documents.remove(COPY_ID).unwrap();
        assert!(matches!(copy(&to, &from, "here"), Err(CopyError::Kept { .. })));
        assert_eq!((read_ids(&from).unwrap().len(), read_ids(&to).unwrap().len()), (1, 1));
        from.store.forget(&"g".parse().unwrap(), AskId::from_bits(1)).unwrap();
        assert_eq!(copy(&to, &from, "here").unwrap().open, 1);
        assert_eq!(copy(&from, &to, "here").unwrap().open, 1, "and again, as this version copied it");
    }

    #[test]
    fn a_copy_that_was_cut_off_goes_on_or_is_taken_back() {
        let temp = tempfile::tempdir().unwrap();
        let (here, there) = (temp.path().join("here/state"), temp.path().join("there/state"));
        let (from, to) = (files(&here), files(&there));
        save(&from, &Arc::new(ask(1, "g")));
        set_mark(&from, Mark::Moving).unwrap();
        set_mark(&to, Mark::Coming).unwrap();
        save(&to, &Arc::new(settled(ask(1, "g"))));
        assert!(from.check().is_err() && to.check().is_err());
        abort(&from, &to).unwrap();
        assert!(from.check().is_ok() && to.check().is_ok() && read_ids(&to).unwrap().is_empty());
        set_mark(&from, Mark::Moving).unwrap();
        set_mark(&to, Mark::Coming).unwrap();
        assert_eq!(copy(&from, &to, "here").unwrap().open, 1);
        assert!(matches!(abort(&from, &to), Err(CopyError::NotBegun)));
        // Cut off before the last mark.
        set_mark(&to, Mark::Coming).unwrap();
        assert!(from.check().is_err() && to.check().is_err());
        assert!(matches!(abort(&from, &to), Err(CopyError::NotBegun)), "all of it is there, and nowhere else");
        assert_eq!(copy(&from, &to, "here").unwrap().open, 1);
        assert!(from.check().is_err() && to.check().is_ok());
        save(&to, &Arc::new(ask(9, "g")));
        clear_mark(&from).unwrap();
        assert!(matches!(copy(&from, &to, "here"), Err(CopyError::NotEmpty(_, 2))));
    }

    /// A daemon that has the database in its settings writes the token into the files, too.
    #[test]
    fn a_target_with_nothing_but_what_every_daemon_writes_is_empty() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        let push = |devices: &str| {
            let push = format!(r#"{{"v":1,"key":"k","devices":{devices}}}"#);
            to.documents.store("push.json", push.as_bytes()).unwrap();
        };
        let written = |mark| {
            set_mark(&to, mark).unwrap();
            to.documents.store("web_token", b"secret").unwrap();
            push("[]");
        };
        // The records went there by an earlier version, and the old ones were deleted; or a copy was cut off at its first mark.
        for mark in [Mark::Moved, Mark::Coming] {
            written(mark);
            assert_eq!(copy(&from, &to, "here").unwrap().open, 1);
            for of in [&from, &to] {
                clear_mark(of).unwrap();
                of.documents.remove(COPY_ID).unwrap();
            }
            to.store.forget(&"g".parse().unwrap(), AskId::from_bits(1)).unwrap();
        }
        written(Mark::Coming);
        abort(&from, &to).unwrap();
        assert!(from.check().is_ok() && to.check().is_ok());
        written(Mark::Coming);
        push(r#"[{"since":1}]"#);
        let told = copy(&from, &to, "here").unwrap_err().to_string();
        assert!(told.contains("move pending_questions, settled, groups, journal, channels"), "{told}");
    }

    /// Agents, people and browsers would not be known any more.
    #[test]
    fn a_target_that_remembers_something_of_its_own_is_not_emptied() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        to.documents.store("agent_tokens.json", b"{}").unwrap();
        let told = copy(&from, &to, "here").unwrap_err().to_string();
        assert!(told.contains("tokens of agents") && told.contains("move pending_questions"), "{told}");
        assert!(to.documents.read("agent_tokens.json").unwrap().is_some());
        assert!(from.check().is_ok() && to.check().is_ok(), "nothing was marked");
        to.documents.remove("agent_tokens.json").unwrap();
        assert_eq!(copy(&from, &to, "here").unwrap().open, 1);
    }

    /// What has only the target's last mark left, as an earlier version set them, would be served twice.
    #[test]
    fn a_copy_is_not_taken_back_where_askd_starts_on_it() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        save(&to, &Arc::new(ask(1, "g")));
        set_mark(&from, Mark::Moving).unwrap();
        let told = abort(&from, &to).unwrap_err().to_string();
        assert!(told.contains("run the copy again") && from.check().is_err(), "{told}");
        assert_eq!(copy(&from, &to, "here").unwrap().open, 1);
        assert!(from.check().is_err() && to.check().is_ok());
        // Questions that it has of its own are not this copy.
        set_mark(&from, Mark::Moving).unwrap();
        to.store.forget(&"g".parse().unwrap(), AskId::from_bits(1)).unwrap();
        save(&to, &Arc::new(ask(2, "g")));
        abort(&from, &to).unwrap();
        assert!(from.check().is_ok());
    }

    /// The two marks are two writes.
    #[test]
    fn a_copy_that_was_cut_off_between_its_marks_goes_on_or_is_taken_back() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        let begun = || set_mark(&to, Mark::Coming).unwrap();
        begun();
        abort(&from, &to).unwrap();
        assert!(from.check().is_ok() && to.check().is_ok());
        begun();
        assert_eq!(copy(&from, &to, "here").unwrap(), Copied { open: 1, settled: 0, documents: 0 });
        // In this order: no daemon starts on a target that a copy may fill.
        clear_mark(&from).unwrap();
        to.store.forget(&"g".parse().unwrap(), AskId::from_bits(1)).unwrap();
        let documents = Arc::new(Unmarked(Arc::clone(&from.documents)));
        let fails = Opened { documents, ..from };
        assert!(copy(&fails, &to, "here").is_err());
        assert_eq!((mark(&fails).unwrap(), mark(&to).unwrap()), (None, Some(Mark::Coming)));
    }

    /// Which cannot be marked.
    #[derive(Debug)]
    struct Unmarked(Arc<dyn crate::host::store::Documents>);

    impl crate::host::store::Documents for Unmarked {
        fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
            self.0.read(name)
        }

        fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
            if name == MARK { Err(io::ErrorKind::TimedOut.into()) } else { self.0.store(name, bytes) }
        }

        fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
            self.0.place(name, bytes)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }

        fn names(&self) -> io::Result<Vec<String>> {
            self.0.names()
        }

        fn set_aside(&self, name: &str) -> io::Result<()> {
            self.0.set_aside(name)
        }
    }

    #[test]
    fn nothing_says_of_a_copy_that_was_taken_back_that_there_is_one() {
        let temp = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| files(&temp.path().join(name).join("state")));
        save(&from, &Arc::new(ask(1, "g")));
        copy(&from, &to, "here").unwrap();
        // Cut off before the source's last mark.
        set_mark(&from, Mark::Moving).unwrap();
        set_mark(&to, Mark::Coming).unwrap();
        assert!(from.was_copied().unwrap());
        abort(&from, &to).unwrap();
        assert!(!from.was_copied().unwrap() && !to.was_copied().unwrap());
        // Records that were moved from the target before are there still.
        copy(&from, &to, "here").unwrap();
        set_mark(&to, Mark::Moving).unwrap();
        abort(&to, &from).unwrap();
        assert!(to.check().is_ok() && from.was_copied().unwrap() && to.was_copied().unwrap());
    }
}
