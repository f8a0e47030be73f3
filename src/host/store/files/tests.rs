//! The store against real folders.

use super::unfiled::Saved;
use super::*;
use crate::host::store::conformance::{self, START, ask, ask_in_slack, scan};
use askd_core::{Event, Outcome, Posted, Responders, SessionRules, WidgetEvent};
use serde_json::{Value, json};

fn open() -> (tempfile::TempDir, Files) {
    let temp = tempfile::tempdir().unwrap();
    let store = Files::open(&temp.path().join("state"), false).unwrap();
    (temp, store)
}

#[test]
fn files_pass_what_every_engine_has_to_pass() {
    let temp = tempfile::tempdir().unwrap();
    conformance::holds(|| Box::new(Files::open(&temp.path().join("state"), false).unwrap()));
}

/// An ask, and the same after a step that promises nothing.
fn ask_and_viewed() -> (Arc<Ask>, Arc<Ask>) {
    let first = Arc::new(ask(1, "g"));
    let viewed = Ask::clone(&first).step(Event::Viewed, first.created_at).unwrap().unwrap().ask;
    (first, Arc::new(viewed))
}

fn load(store: &Files, ask: &Ask) -> Arc<Ask> {
    store.cache.lock().remove(ask.id);
    store.load(&ask.group, ask.id).unwrap().unwrap()
}

/// Lists leave it out: it must not hide all others.
#[test]
fn what_is_no_plain_file_is_a_damaged_record() {
    let (temp, store) = open();
    let first = Arc::new(ask(1, "g"));
    store.save(&first, Save::Now).unwrap();
    store.flush_whole().unwrap();
    let file = temp.path().join("state/pending_questions/g").join(file_name(first.id));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("elsewhere", &file).unwrap();
    store.cache.lock().remove(first.id);
    assert!(matches!(store.load(&first.group, first.id), Err(StoreError::Damaged { .. })));
}

/// The files of the journal that hold something.
fn journal(state: &std::path::Path) -> Vec<PathBuf> {
    let parts = std::fs::read_dir(state.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    parts.filter(|part| std::fs::read(part).unwrap().first().is_some_and(|byte| *byte != 0)).collect()
}

/// A loss of power may tear the end of the journal: then what was promised last holds.
#[test]
fn what_was_saved_soon_survives_a_kill_and_a_torn_end_of_the_journal_hides_no_promise() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let open = || Files::open(&path, false).unwrap();
    let (promised, soon) = ask_and_viewed();
    let store = open();
    store.save(&promised, Save::Now).unwrap();
    store.save(&soon, Save::Soon).unwrap();
    drop(store);
    assert_eq!(load(&open(), &soon), soon, "a kill keeps it");
    let [part] = &journal(&path)[..] else { panic!() };
    let whole = std::fs::read(part).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let last = whole[..end - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let put = |bytes: &[u8]| std::io::Write::write_all(&mut File::create(part).unwrap(), bytes).unwrap();
    for torn in [end - 1, end - 9, last + 20, last] {
        put(&whole[..torn]);
        assert_eq!(load(&open(), &soon), promised, "cut at {torn} of {end}");
    }
    let mut changed = whole.clone();
    changed[end - 9] ^= 1;
    put(&changed);
    assert_eq!(load(&open(), &soon), promised, "its checksum is wrong");
    // Its first page was lost, and an earlier use of the file shows.
    put(&[&whole[..last], &whole[512..last]].concat());
    assert_eq!(load(&open(), &soon), promised, "an entry with another number is an old one");
}

/// A flush may have filed what is newer than the journal.
#[test]
fn an_entry_that_is_older_than_the_file_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let open = || Files::open(&path, false).unwrap();
    let (first, viewed) = ask_and_viewed();
    let store = open();
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Later).unwrap();
    store.flush_whole().unwrap();
    assert_eq!(journal(&path).len(), 1, "the next flush empties it");
    drop(store);
    let store = open();
    assert_eq!((load(&store, &first), store.unfiled.all()), (Arc::clone(&viewed), vec![first.id]));
    store.flush_whole().unwrap();
    assert_eq!((load(&store, &first), store.unfiled.all()), (Arc::clone(&viewed), vec![]));
    assert!(journal(&path).is_empty());
    // The next save of this run is newer than the file, whatever its number.
    store.save(&first, Save::Now).unwrap();
    drop(store);
    let store = open();
    assert_eq!(load(&store, &first), first);
    store.forget(&first.group, first.id).unwrap();
    drop(store);
    assert_eq!(open().load(&first.group, first.id).unwrap(), None, "what is forgotten does not come back");
}

#[test]
fn a_clean_stop_files_everything_and_wipes_the_journal() {
    let (temp, store) = open();
    let path = temp.path().join("state");
    let format = || std::fs::read_to_string(path.join("format.json")).unwrap();
    let (first, viewed) = ask_and_viewed();
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Later).unwrap();
    store.retire(&first.group, first.id).unwrap();
    assert_eq!(format(), "{\"v\":4}\n", "an askd that knows no journal has to keep away");
    store.close().unwrap();
    assert!(store.save(&viewed, Save::Soon).is_err(), "a clean stop is the end");
    assert!(store.forget(&first.group, first.id).is_err());
    let filed = path.join("settled/g").join(file_name(first.id));
    assert_eq!(record::read(&std::fs::read(filed).unwrap()).unwrap().ask, *viewed);
    let left: u64 =
        std::fs::read_dir(path.join("journal")).unwrap().map(|it| it.unwrap().metadata().unwrap().len()).sum();
    assert_eq!((left, format().as_str()), (0, "{\"v\":3}\n"));
    drop(store);
    let again = || Files::open(&path, false).unwrap();
    assert!(again().ended_well(), "nothing is missing");
    assert!(!again().ended_well(), "a run that did not stop cleanly came in between");
    again().close().unwrap();
    assert!(!Files::open(&path, true).unwrap().ended_well(), "the operator says that something was lost");
}

/// One ask whose file cannot be written must not keep the journal growing.
#[test]
fn what_cannot_be_filed_stays_in_the_journal_and_the_rest_leaves_it() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let (first, viewed) = ask_and_viewed();
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    let record = path.join("pending_questions/g").join(file_name(first.id));
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    store.save(&viewed, Save::Now).unwrap();
    for _ in 0..5 {
        assert!(store.flush_whole().is_err());
        assert!(journal(&path).len() <= 2);
    }
    drop(store);
    std::fs::remove_dir(&record).unwrap();
    let store = Files::open(&path, false).unwrap();
    assert_eq!(load(&store, &first), viewed);
    store.flush_whole().unwrap();
    assert_eq!(
        (record::read(&std::fs::read(record).unwrap()).unwrap().ask, journal(&path)),
        (Ask::clone(&viewed), vec![])
    );
}

/// Else a loss of power after a clean stop could bring a forgotten ask back, as if nothing were in doubt.
#[test]
fn a_flush_makes_it_durable_that_an_ask_is_forgotten() {
    let (_temp, store) = open();
    let kept = Arc::new(ask(1, "g"));
    store.save(&kept, Save::Now).unwrap();
    store.flush_whole().unwrap();
    let unsynced = || store.unfiled.folders();
    assert_eq!(unsynced(), []);
    store.forget(&kept.group, kept.id).unwrap();
    assert_eq!(unsynced(), [(Kind::Pending, kept.group.clone())]);
    store.flush_whole().unwrap();
    assert_eq!(unsynced(), []);
    // The journal still has its record, and must not be without the word that it is gone.
    store.save(&kept, Save::Now).unwrap();
    store.forget(&kept.group, kept.id).unwrap();
    let syncs = store.journal.syncs();
    store.flush().unwrap();
    assert_eq!((store.journal.syncs(), store.journal.is_empty()), (syncs + 1, false));
}

/// Changes that askd finds out again after a kill are one write.
#[test]
fn what_may_be_saved_later_is_written_once_by_the_flush_or_with_the_next_save() {
    let (temp, store) = open();
    let (first, viewed) = ask_and_viewed();
    let file = temp.path().join("state/pending_questions/g").join(file_name(first.id));
    let stored = || record::read(&std::fs::read(&file).unwrap()).unwrap().ask;
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Later).unwrap();
    assert_eq!((stored(), load(&store, &first)), (Ask::clone(&first), Arc::clone(&viewed)), "it waits in memory");
    store.flush_whole().unwrap();
    assert_eq!((stored(), load(&store, &first)), (Ask::clone(&viewed), Arc::clone(&viewed)));
    assert_eq!(store.unfiled.all(), [], "nothing is left to flush");
    // A save that does not wait replaces what waits.
    for save in [Save::Now, Save::Soon] {
        store.save(&viewed, Save::Later).unwrap();
        store.save(&first, save).unwrap();
        store.flush_whole().unwrap();
        assert_eq!((stored(), load(&store, &first)), (Ask::clone(&first), Arc::clone(&first)), "{save:?}");
    }
    // What is retired is filed as it is by now.
    store.save(&viewed, Save::Later).unwrap();
    store.retire(&first.group, first.id).unwrap();
    assert_eq!(load(&store, &first), viewed);
    store.flush_whole().unwrap();
    let settled = temp.path().join("state/settled/g").join(file_name(first.id));
    assert_eq!(record::read(&std::fs::read(settled).unwrap()).unwrap().ask, *viewed);
    assert!(!file.exists() && store.unfiled.all().is_empty());
    assert_eq!(load(&store, &first), viewed);
}

/// Whoever flushes next has another temporary name.
#[test]
fn a_flush_that_fails_leaves_no_temporary_file() {
    let (temp, store) = open();
    let (first, viewed) = ask_and_viewed();
    let folder = temp.path().join("state/pending_questions/g");
    let record = folder.join(file_name(first.id));
    let names = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Later).unwrap();
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    assert!(store.flush_whole().is_err());
    assert_eq!(names(), [record.as_path()]);
    std::fs::remove_dir(&record).unwrap();
    store.flush_whole().unwrap();
    assert_eq!(names(), [record.as_path()]);
    // The same among the kept outcomes.
    store.retire(&first.group, first.id).unwrap();
    store.flush_whole().unwrap();
    let folder = temp.path().join("state/settled/g");
    let names = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let record = folder.join(file_name(first.id));
    assert_eq!(names(), [record.as_path()]);
    store.save(&viewed, Save::Later).unwrap();
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    assert!(store.flush_whole().is_err());
    assert_eq!(names(), [record.as_path()]);
}

/// An answer that comes while a flush waits for the disk must not be replaced by what the flush began with.
#[test]
fn a_flush_that_later_saves_overtook_names_nothing() {
    let (temp, store) = open();
    let first = Arc::new(ask(1, "g"));
    let step = |ask: &Ask, event| Arc::new(ask.clone().step(event, first.created_at).unwrap().unwrap().ask);
    let viewed = step(&first, Event::Viewed);
    let newer = step(&viewed, Event::Typing);
    let file = temp.path().join("state/pending_questions/g").join(file_name(first.id));
    let stored = || record::read(&std::fs::read(&file).unwrap()).unwrap().ask;
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Later).unwrap();
    let staged = store.stage_flush(first.id, ".tmp-flush").unwrap().unwrap();
    store.save(&newer, Save::Now).unwrap();
    store.save(&newer, Save::Later).unwrap();
    assert!(!store.finish_flush(first.id, ".tmp-flush", &staged).unwrap());
    assert_eq!(stored(), *first);
    assert_eq!(store.unfiled.all(), [first.id], "the next flush is for the last save");
    store.flush_whole().unwrap();
    assert_eq!((stored(), store.unfiled.all()), (Ask::clone(&newer), vec![]));
    assert!(!file.with_file_name(".tmp-flush").exists());
}

/// While its card is being posted, an ask is in the journal alone. Its first file is that of the next save: a flush only syncs it.
#[test]
fn an_ask_that_is_being_posted_has_no_file_before_the_next_save() {
    use std::os::unix::fs::MetadataExt as _;
    let (temp, store) = open();
    let step = |ask: &Ask, event: WidgetEvent| Arc::new(ask.clone().step(event.on(0), START).unwrap().unwrap().ask);
    let sent = |number| step(&ask_in_slack(number, "g"), WidgetEvent::SlotGranted);
    let posted = |sent: &Ask| step(sent, WidgetEvent::Posted { attempt: 1, posted: Posted::Shown("1.2".to_owned()) });
    let file = |ask: &Ask| temp.path().join("state/pending_questions/g").join(file_name(ask.id));
    let stored = |ask: &Ask| record::read(&std::fs::read(file(ask)).unwrap()).unwrap().ask;
    let [first, second, third] = [1, 2, 3].map(sent);
    for ask in [&first, &second, &third] {
        store.save(ask, Save::Now).unwrap();
        assert!(!file(ask).exists());
    }
    let shown = posted(&first);
    store.save(&shown, Save::Soon).unwrap();
    assert_eq!(stored(&first), *shown);
    let made = std::fs::metadata(file(&first)).unwrap().ino();
    // A flush that began before must not give the file its older record.
    let staged = store.stage_flush(second.id, ".tmp-flush").unwrap().unwrap();
    store.save(&posted(&second), Save::Soon).unwrap();
    assert!(!store.finish_flush(second.id, ".tmp-flush", &staged).unwrap());
    assert_eq!(stored(&second), *posted(&second));
    store.flush_whole().unwrap();
    assert_eq!(std::fs::metadata(file(&first)).unwrap().ino(), made, "it was not written again");
    assert_eq!((stored(&second), stored(&third)), (Ask::clone(&posted(&second)), Ask::clone(&third)));
    assert_eq!(store.unfiled.all(), []);
}

/// To file an ask of which more will be known soon would be to file it twice.
#[test]
fn a_flush_files_what_is_over_and_has_the_rest_in_the_journal_until_the_part_is_closed() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let (first, viewed) = ask_and_viewed();
    let over = Arc::new(conformance::done(2, std::time::Duration::from_secs(3600)));
    let store = Files::open(&path, false).unwrap();
    let file = |kind: &str, ask: &Ask| path.join(kind).join("g").join(file_name(ask.id));
    let stored = |path: PathBuf| record::read(&std::fs::read(path).unwrap()).unwrap().ask;
    for ask in [&first, &Arc::new(ask(2, "g"))] {
        store.save(ask, Save::Now).unwrap();
    }
    store.save(&viewed, Save::Later).unwrap();
    store.save(&over, Save::Later).unwrap();
    store.retire(&over.group, over.id).unwrap();
    let syncs = store.journal.syncs();
    store.flush().unwrap();
    assert_eq!(stored(file("settled", &over)), *over);
    assert_eq!((stored(file("pending_questions", &first)), store.unfiled.all()), (Ask::clone(&first), vec![first.id]));
    assert_eq!(store.journal.syncs(), syncs + 1);
    // A kill finds it in the journal, and so does a loss of power.
    drop(store);
    let store = Files::open(&path, false).unwrap();
    assert_eq!(load(&store, &first), viewed);
    drop(store);
    let store = Files::open(&path, false).unwrap();
    store.flush().unwrap();
    assert_eq!(stored(file("pending_questions", &first)), *viewed, "the part of an earlier run is closed");
    // The next flush but one files it, whatever is saved.
    let typing = Arc::new(Ask::clone(&viewed).step(Event::Typing, START).unwrap().unwrap().ask);
    store.save(&typing, Save::Soon).unwrap();
    store.flush().unwrap();
    assert_eq!(stored(file("pending_questions", &first)), *viewed);
    store.flush().unwrap();
    assert_eq!((stored(file("pending_questions", &first)), store.unfiled.all()), (Ask::clone(&typing), vec![]));
    assert!(store.journal.is_empty());
}

/// The journal must not lose a promise to a newer record that is not synced.
#[test]
fn a_part_of_the_journal_is_emptied_only_once_what_overtook_it_is_synced() {
    let (_temp, store) = open();
    let (first, viewed) = ask_and_viewed();
    store.save(&first, Save::Now).unwrap();
    let (closed, _) = store.journal.close_part(true);
    let staged = store.stage_flush(first.id, ".tmp-flush").unwrap().unwrap();
    store.save(&viewed, Save::Soon).unwrap();
    let before = store.journal.syncs();
    assert!(!store.finish_flush(first.id, ".tmp-flush", &staged).unwrap());
    store.end_flush(closed, Ok(()), Ok(())).unwrap();
    assert_eq!(store.journal.syncs(), before + 1);
    // Otherwise nothing waits for a sync.
    store.flush_whole().unwrap();
    store.flush_whole().unwrap();
    assert_eq!((store.journal.syncs(), store.journal.is_empty()), (before + 1, true));
}

/// The file of a new ask is placed without a sync. It must not stand in for its record until it is synced.
#[test]
fn what_a_killed_run_left_unsynced_is_synced_before_the_journal_is_emptied() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let first = Arc::new(ask(1, "g"));
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    assert!(path.join("pending_questions/g").join(file_name(first.id)).exists());
    drop(store);
    let store = Files::open(&path, false).unwrap();
    assert_eq!(store.unfiled.all(), [first.id]);
    assert_eq!(store.unfiled.folders(), []);
    store.flush_whole().unwrap();
    assert!(store.unfiled.all().is_empty() && store.journal.is_empty());
    assert_eq!(load(&store, &first), first);
}

/// What a step has to take into account is in doubt until one has, however often askd is started before.
#[test]
fn what_the_journal_has_of_another_boot_stays_in_doubt_when_it_is_filed_or_carried_on() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let open = || Files::open(&path, false).unwrap();
    let lost = |store: &Files| scan(store).unwrap().0.iter().filter(|found| found.after_loss).count();
    let (first, viewed) = ask_and_viewed();
    let record = path.join("pending_questions/g").join(file_name(first.id));
    let store = open();
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Soon).unwrap();
    let here = store.boot.id.clone();
    drop(store);
    let [part] = &journal(&path)[..] else { panic!() };
    let other: String = here.chars().map(|it| if it == ' ' { it } else { 'x' }).collect();
    let mut bytes = std::fs::read(part).unwrap();
    let at = bytes.windows(here.len()).position(|it| it == here.as_bytes()).unwrap();
    bytes[at..at + here.len()].copy_from_slice(other.as_bytes());
    std::io::Write::write_all(&mut File::create(part).unwrap(), &bytes).unwrap();
    // It cannot be filed: it goes into this run's part.
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    let store = open();
    for _ in 0..2 {
        store.flush_whole().unwrap_err();
    }
    drop(store);
    std::fs::remove_dir(&record).unwrap();
    let store = open();
    assert_eq!(lost(&store), 1, "carried on");
    for _ in 0..2 {
        store.flush_whole().unwrap();
    }
    assert!(store.journal.is_empty());
    drop(store);
    let store = open();
    assert_eq!(lost(&store), 1, "filed");
    store.save(&first, Save::Now).unwrap();
    store.flush_whole().unwrap();
    drop(store);
    assert_eq!(lost(&open()), 0, "a step has come since");
}

/// A loss of power right after a start must not take what the start has acted on.
#[test]
fn what_a_killed_run_left_in_the_journal_is_synced_before_anything_acts_on_it() {
    let temp = tempfile::tempdir().unwrap();
    let open = || Files::open(&temp.path().join("state"), false).unwrap();
    let store = open();
    assert_eq!(store.journal.syncs(), 0);
    store.save(&Arc::new(ask(1, "g")), Save::Soon).unwrap();
    drop(store);
    assert_eq!(open().journal.syncs(), 1);
}

/// A sync of it may say that all is well after one that said that it is not.
#[test]
fn a_file_that_could_not_be_synced_is_written_anew() {
    let (temp, store) = open();
    let first = Arc::new(ask(1, "g"));
    let file = temp.path().join("state/pending_questions/g").join(file_name(first.id));
    store.save(&first, Save::Now).unwrap();
    // It is not followed, so it cannot be synced.
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("elsewhere", &file).unwrap();
    store.flush_whole().unwrap_err();
    std::fs::remove_file(&file).unwrap();
    std::io::Write::write_all(&mut File::create(&file).unwrap(), b"what the disk has of it").unwrap();
    store.flush_whole().unwrap();
    assert_eq!(record::read(&std::fs::read(&file).unwrap()).unwrap().ask, *first);
}

/// An answer is appended and waits for its sync: what could not be filed must not come after it.
#[test]
fn what_cannot_be_filed_goes_into_the_journal_while_nobody_saves() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let (first, viewed) = ask_and_viewed();
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    let record = path.join("pending_questions/g").join(file_name(first.id));
    std::fs::remove_file(&record).unwrap();
    std::os::unix::fs::symlink("elsewhere", &record).unwrap();
    std::thread::scope(|threads| {
        store.flush_whole().unwrap_err();
        let saving = store.saving().unwrap();
        let bytes = record::entry(&viewed, None).unwrap();
        let place = store.append(Some(Kind::Pending), &bytes).unwrap();
        let carrying = threads.spawn(|| store.carry_on_left(&[first.id]).unwrap());
        // It lets nobody else begin.
        while store.writable.try_read().is_some() {
            assert!(!carrying.is_finished());
            std::thread::yield_now();
        }
        store.unfiled.note(&viewed, Kind::Pending, bytes.len(), Saved::InJournal(place.entry));
        drop(saving);
    });
    drop(store);
    assert_eq!(load(&Files::open(&path, false).unwrap(), &first), viewed);
}

/// A flush of what the journal had may be under way, and would give the file that older record.
#[test]
fn an_ask_that_only_the_journal_had_is_not_new() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let (first, viewed) = ask_and_viewed();
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    drop(store);
    let file = path.join("pending_questions/g").join(file_name(first.id));
    std::fs::remove_file(&file).unwrap();
    let store = Files::open(&path, false).unwrap();
    store.save(&viewed, Save::Now).unwrap();
    assert!(!file.exists());
    store.flush_whole().unwrap();
    assert_eq!(record::read(&std::fs::read(&file).unwrap()).unwrap().ask, *viewed);
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_the_journal_from_being_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let (first, viewed) = ask_and_viewed();
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    store.save(&viewed, Save::Now).unwrap();
    drop(store);
    let record = path.join("pending_questions/g").join(file_name(first.id));
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    assert_eq!(load(&Files::open(&path, false).unwrap(), &first), viewed);
    assert!(!path.join("settled/g").exists(), "a start makes nothing");
}

/// Whether or not the journal has a record of it.
#[test]
fn a_question_that_a_copy_has_both_open_and_closed_is_closed() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let first = Arc::new(ask(1, "g"));
    let answered = Arc::new(conformance::settled(Ask::clone(&first)));
    let store = Files::open(&path, false).unwrap();
    store.save(&first, Save::Now).unwrap();
    let file = path.join("pending_questions/g").join(file_name(first.id));
    let open = std::fs::read(&file).unwrap();
    store.save(&answered, Save::Now).unwrap();
    store.retire(&first.group, first.id).unwrap();
    store.flush_whole().unwrap();
    assert!(!journal(&path).is_empty() && !file.exists());
    drop(store);
    std::io::Write::write_all(&mut File::create(&file).unwrap(), &open).unwrap();
    let store = Files::open(&path, true).unwrap();
    let found = scan(&store).unwrap().0;
    assert!(found.len() == 1 && found[0].settled && found[0].ask == *answered, "{found:?}");
    assert!(!file.exists());
}

#[test]
fn records_of_another_boot_are_in_doubt_unless_it_ended_with_a_clean_stop() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let lost = |store: &Files| scan(store).unwrap().0.iter().filter(|found| found.after_loss).count();
    let store = Files::open(&path, false).unwrap();
    store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    assert_eq!(lost(&store), 0);
    let here = store.boot.id.clone();
    let file = path.join("pending_questions/g").join(file_name(AskId::from_bits(1)));
    let elsewhere = || {
        for file in [&file, &path.join("clean")] {
            let Ok(text) = std::fs::read_to_string(file) else { continue };
            std::io::Write::write_all(&mut File::create(file).unwrap(), text.replace(&here, "x").as_bytes()).unwrap();
        }
    };
    store.close().unwrap();
    drop(store);
    elsewhere();
    let store = Files::open(&path, false).unwrap();
    assert_eq!(lost(&store), 0, "all of it was stored");
    assert!(!store.ended_well(), "audit lines of that boot may be lost");
    assert!(!path.join("clean").exists());
    drop(store);
    let store = Files::open(&path, false).unwrap();
    assert_eq!(lost(&store), 1, "what came after the clean stop may be lost");
    store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    assert_eq!(lost(&store), 0);
    drop(store);
    for after_loss in [true, false] {
        let store = Files::open(&path, after_loss).unwrap();
        assert_eq!(lost(&store), 1, "it stays in doubt until it is saved again");
    }
    let store = Files::open(&path, false).unwrap();
    store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(lost(&Files::open(&path, true).unwrap()), 1, "a copy from a clean stop may be old, too");
}

#[test]
fn the_pending_file_has_the_fields_that_people_look_for() {
    let (temp, store) = open();
    store.save(&Arc::new(ask(1, "research")), Save::Now).unwrap();
    let path = temp.path().join("state/pending_questions/research/00000000000000000000000000000001.json");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for field in [
        "v",
        "id",
        "request_id",
        "short_id",
        "source_group",
        "channel_name",
        "chat",
        "session_id",
        "questions",
        "message_id",
        "timestamp",
        "stage",
        "attempt",
        "shown_at",
        "answer_by",
        "waiters",
        "widgets",
    ] {
        assert!(record.get(field).is_some(), "{field}");
    }
    assert_eq!(record["source_group"], "research");
    assert_eq!(record["answer_by"], "2025-10-09T08:54:20.000Z");
}

#[test]
fn one_damaged_file_stops_nothing_and_a_newer_one_stops_the_start() {
    let (temp, store) = open();
    store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    let folder = temp.path().join("state/pending_questions/g");
    let put = |name: &str, text: &str| {
        std::io::Write::write_all(&mut File::create(folder.join(name)).unwrap(), text.as_bytes()).unwrap();
    };
    put("00000000000000000000000000000002.json", "{\"v\":1,");
    put("00000000000000000000000000000003.json", "{\"v\":1}");
    put(".tmp-litter", "x");
    File::options().write(true).open(folder.join(".tmp-litter")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    put(".tmp-save-under-way", "x");
    let (asks, corrupt) = scan(&store).unwrap();
    assert_eq!((asks.len(), corrupt.len()), (1, 2));
    assert!(folder.join("00000000000000000000000000000002.json.corrupt").exists());
    assert!(!folder.join(".tmp-litter").exists() && folder.join(".tmp-save-under-way").exists());
    assert_eq!(scan(&store).unwrap().1.len(), 0, "reported once");
    put("00000000000000000000000000000004.json", "{\"v\":4}");
    assert!(matches!(scan(&store), Err(StoreError::Newer { .. })));
    drop(store);
    // Where no version has noted that it wrote here, that is found out before the daemon begins.
    let state = temp.path().join("state");
    std::fs::remove_file(state.join("format.json")).unwrap();
    assert!(matches!(Files::open(&state, false), Err(StoreError::Newer { .. })));
}

#[test]
fn only_one_can_have_it() {
    let (temp, store) = open();
    assert!(matches!(Files::open(&temp.path().join("state"), false), Err(StoreError::Held(_))));
    drop(store);
    assert!(Files::open(&temp.path().join("state"), false).is_ok());
}

#[test]
fn rejected_requests_are_kept_within_bounds() {
    let (temp, store) = open();
    let group: Group = "g".parse().unwrap();
    for number in 0..110 {
        store.keep_rejected(&group, &format!("{number:03}.json"), b"{}").unwrap();
    }
    let folder = temp.path().join("state/rejected/g");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 100);
    assert!(folder.join("109.json").exists() && !folder.join("000.json").exists());
    let large = vec![b'x'; 400 * 1024];
    for number in 0..4 {
        store.keep_rejected(&group, &format!("large{number}.json"), &large).unwrap();
    }
    let bytes: u64 = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 1024 * 1024, "{bytes}");
    assert!(folder.join("large3.json").exists());
}

/// What the golden folders do not have: each thing that some version of format 1 wrote otherwise, or not at all.
#[test]
fn records_of_format_1_are_read_whatever_version_wrote_them() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/35ffb63");
    let made: Value = serde_json::from_slice(&std::fs::read(golden.join("made.json")).unwrap()).unwrap();
    let asked = |request: &str| {
        let asks = made["asks"].as_object().unwrap();
        let (id, _) = asks.iter().find(|(_, requests)| requests[0] == request).unwrap();
        let group = request.split_once('-').unwrap().0;
        let files = ["pending_questions", "settled"].map(|kind| golden.join(format!("state/{kind}/{group}/{id}.json")));
        let bytes = files.iter().find_map(|file| std::fs::read(file).ok()).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let read = |record: &Value| record::read(record.to_string().as_bytes()).map(|read| read.ask);
    let with = |record: &Value, at: &str, value: Value| {
        let mut record = record.clone();
        *record.pointer_mut(at).unwrap() = value;
        record
    };
    let open = asked("inbox-open");
    let same = read(&open).unwrap();
    // Fields that the first versions did not have.
    let mut bare = open.clone();
    for (at, field) in
        [("", "reminders"), ("", "escalations"), ("/rules", "remind_after_ms"), ("/waiters/1", "asked_at")]
    {
        bare.pointer_mut(at).unwrap().as_object_mut().unwrap().remove(field);
    }
    let bare = read(&bare).unwrap();
    assert_eq!((bare.rules.remind_after, bare.waiters[1].asked_at), (None, Time::from_millis(0)));
    assert_eq!((&bare.content, &bare.key, bare.id), (&same.content, &same.key, same.id));
    let mut without = open.clone();
    without["rules"].as_object_mut().unwrap().remove("session");
    assert_eq!(read(&without).unwrap().rules.session, SessionRules::default());
    let named = with(&open, "/rules/routes/0/responders", json!(["U1"]));
    assert_eq!(read(&named).unwrap().widgets[0].route.responders, Responders::Only(vec!["U1".to_owned()]));
    let published = with(&open, "/waiters/0/response", json!("published"));
    assert_eq!(read(&published).unwrap().waiters[0].response.published_at(), Some(Time::from_millis(0)));
    // Why it could not be shown: words for the operator at first, then a class.
    let lost = asked("lost-undelivered");
    let cause = |outcome: Value| match read(&with(&lost, "/stage/outcome", outcome)).unwrap().outcome() {
        Some(Outcome::Undelivered { cause }) => (cause.retries, cause.reason.map(|reason| reason.to_string())),
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(json!({"how": "never_shown", "reason": "slack: payment problem"})), (None, None));
    let refused = json!({"how": "never_shown", "reason": "slack: chat not found"});
    assert_eq!(cause(refused), (None, Some("slack: chat not found".to_owned())));
    assert_eq!(cause(json!({"how": "retries_used_up", "retries": 3})), (Some(3), None));
    let known = json!({"how": "retries_used_up", "retries": 0, "reason": "whatsapp: no connection"});
    assert_eq!(cause(known), (Some(0), Some("whatsapp: no connection".to_owned())));
    // What does not fit is damaged, as ever.
    for (record, at, value) in [
        (&open, "/questions/0/question", json!("")),
        (&open, "/questions/0/options/1/label", json!("React")),
        (&open, "/timestamp", json!("yesterday")),
        (&open, "/stage/name", json!("elsewhere")),
        (&open, "/waiters", json!([])),
        (&open, "/waiters/0/response", json!("elsewhere")),
        (&open, "/id", json!("../x")),
        (&asked("team-late"), "/after/wake", json!("elsewhere")),
        (&open, "/block", json!({"times": 1, "told": 1, "telling": false, "lifted": null})),
        (&asked("inbox-answered"), "/stage/outcome/given/1/picks/0", json!(7)),
        (&asked("inbox-answered"), "/stage/outcome/given/2/picks", json!([0, 1])),
    ] {
        assert!(matches!(read(&with(record, at, value)), Err(BadRecord::Json(_))), "{at}");
    }
    assert!(matches!(read(&with(&open, "/v", json!(4))), Err(BadRecord::Newer { found: 4, known: 3 })));
}
