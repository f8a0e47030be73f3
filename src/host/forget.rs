//! `askd forget`: takes a question, or a person, out of everything that askd keeps. No daemon may run meanwhile. It can be
//! repeated, and after a crash it has to be.

use super::audit::{self, Together};
use super::delivery;
use super::settings::Settings;
#[cfg(feature = "postgres")]
use super::store::Waiting;
use super::store::{Erased, InFiles, Opened, StoreError, Whom};
use crate::ipc::files::Dir;
use crate::ipc::{BRIEFINGS, RESPONSES, response_name, status_name, taken_name, unpublished_name, withdrawn_name};
use crate::sabotage::{crash_point, on};
use askd_core::{Ask, AskId};
#[cfg(feature = "postgres")]
use secrecy::ExposeSecret as _;
use std::io;
use std::path::Path;

/// What was forgotten.
#[derive(Debug)]
pub struct Forgotten {
    /// From the records.
    pub records: Erased,
    /// Lines of the audit log from which the person was taken.
    pub lines: usize,
    /// Responses and briefings that nobody had collected.
    pub lying: usize,
    /// A database that the settings do not name has had all of the records.
    pub in_database: bool,
}

impl Forgotten {
    /// Nothing was there about it.
    pub fn is_nothing(&self) -> bool {
        let Erased { asks, unfinished, lists, others } = &self.records;
        asks.is_empty() && unfinished.is_empty() && (lists, others, self.lines, self.lying) == (&0, &0, 0, 0)
    }
}

/// Forgets it. The records go last.
pub fn forget(settings: &Settings, mut whom: Whom) -> Result<Forgotten, StoreError> {
    let state = settings.state_dir();
    let left = left_behind(settings)?;
    let records = opened(settings, left.is_some())?;
    // What was moved away is not there to be forgotten.
    records.check()?;
    let in_database = settings.postgres.url.is_none() && records.was_copied()?;
    for known in [Some(&records), left.as_ref()].into_iter().flatten() {
        known.store.learn(&mut whom)?;
    }
    let (mut lying, mut copies) = (0, 0);
    let mut first = |ask: &Ask| {
        lying += collect(settings, ask)?;
        if let Some(left) = &left {
            copies += drop_from(left, ask.id).map_err(io::Error::other)?;
        }
        crash_point("forget.collected");
        Ok(())
    };
    let failed = |source| StoreError::Io { what: "cannot change the audit log".to_owned(), source };
    let lines = if on("keepname") { 0 } else { leave_unnamed(&state, &records, &whom).map_err(failed)? };
    let mut erased = records.store.erase(&whom, &mut first)?;
    records.store.close()?;
    erased.others += copies;
    if let Some(left) = left {
        erase_left(&left, &whom, &mut erased)?;
    }
    Ok(Forgotten { records: erased, lines, lying, in_database })
}

/// The files from which the records were moved to the database. They still have what they had then, and no daemon starts on them.
fn left_behind(settings: &Settings) -> Result<Option<Opened>, StoreError> {
    let state = settings.state_dir();
    if settings.postgres.url.is_none() || !state.exists() {
        return Ok(None);
    }
    let unreadable = |source| StoreError::Io { what: format!("cannot read {}", state.display()), source };
    let is_moved = InFiles::open(&state).and_then(|documents| documents.is_moved()).map_err(unreadable)?;
    if is_moved { Opened::files(&state, false).map(Some) } else { Ok(None) }
}

/// Takes it out of the files that were left behind. Nobody closes what is open there: it goes, unless it is open in the records too.
fn erase_left(left: &Opened, whom: &Whom, erased: &mut Erased) -> Result<(), StoreError> {
    loop {
        let theirs = left.store.erase(whom, &mut |_| Ok(()))?;
        erased.others += theirs.lists + theirs.others;
        erased.asks.extend(theirs.asks);
        let over = theirs.unfinished.into_iter().filter(|id| !erased.unfinished.contains(id)).collect::<Vec<_>>();
        if over.is_empty() {
            return left.store.close();
        }
        for id in over {
            erased.others += drop_from(left, id)?;
        }
    }
}

fn drop_from(left: &Opened, id: AskId) -> Result<usize, StoreError> {
    let Some(found) = left.store.find(id)? else { return Ok(0) };
    left.store.forget(&found.ask.group, id)?;
    Ok(1)
}

/// The records, while no daemon has them. `held`: the state folder is held already.
#[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "only a database is beside it"))]
fn opened(settings: &Settings, held: bool) -> Result<Opened, StoreError> {
    #[cfg(feature = "postgres")]
    if let Some(url) = &settings.postgres.url {
        let (url, node) = (url.expose_secret(), &settings.postgres.node);
        let wait = if held { Waiting::beside } else { Waiting::new };
        let waiting = wait(url, node, &settings.state_dir(), false, "askd-postgres")?;
        let failed = |source| StoreError::Io { what: "cannot start".to_owned(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        return runtime.block_on(waiting.alone());
    }
    Opened::files(&settings.state_dir(), false)
}

/// Takes them out of the audit log: out of this host's files, and out of the lines that daemons keep together.
fn leave_unnamed(state: &Path, records: &Opened, whom: &Whom) -> io::Result<usize> {
    let in_files = audit::leave_unnamed(state, &|ask, by| whom.is_person(by) || whom.is_ask(ask))?;
    let Some(Together { lines, .. }) = &records.audit else { return Ok(in_files) };
    let shared = match whom {
        Whom::Ask(id) => lines.leave_unnamed(id.parse().ok(), &[]),
        Whom::Person(ids) => lines.leave_unnamed(None, &ids.iter().cloned().collect::<Vec<_>>()),
    };
    Ok(in_files + shared?)
}

/// Removes what lies in the group's folders for its agent.
fn collect(settings: &Settings, ask: &Ask) -> io::Result<usize> {
    let (group, ipc) = (&ask.group, settings.ipc_dir());
    // The folder of that name on another host is another group's.
    if group.as_str() != group.folder() && group.at(&settings.postgres.node).as_ref() != Some(group) {
        return Ok(0);
    }
    let mut removed = 0;
    let mut remove = |folder: &Dir, names: &[String]| {
        for name in names {
            removed += usize::from(folder.remove_for_good(name)?);
        }
        Ok::<(), io::Error>(())
    };
    let folder = |name: &str| match Dir::open(&ipc).and_then(|root| root.sub(&format!("{}/{name}", group.folder()))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        folder => folder.map(Some),
    };
    if let Some(responses) = folder(RESPONSES)? {
        for id in ask.waiters.iter().map(|waiter| &waiter.request_id) {
            let names = [response_name(id), unpublished_name(id), taken_name(id), withdrawn_name(id), status_name(id)];
            remove(&responses, &names)?;
        }
        remove(&responses, &delivery::forgotten(&responses, ask, None)?)?;
    }
    if let Some(briefings) = folder(BRIEFINGS)? {
        remove(&briefings, &[response_name(&ask.id), taken_name(&ask.id), withdrawn_name(&ask.id)])?;
    }
    Ok(removed)
}
