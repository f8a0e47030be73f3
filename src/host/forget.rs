//! `askd forget`: takes a question, or a person, out of everything that askd keeps. No daemon may run meanwhile. It can be
//! repeated, and after a crash it has to be.

use super::audit;
use super::settings::Settings;
use super::store::{Erased, Files, InFiles, STATE_FOLDER, Store as _, StoreError, Whom, check};
use crate::ipc::files::Dir;
use crate::ipc::{BRIEFINGS, RESPONSES, response_name, status_name, taken_name, unpublished_name, withdrawn_name};
use crate::sabotage::{crash_point, on};
use askd_core::Ask;
use std::io;
use std::path::Path;

/// What an operator is told whose records are in a database.
const IN_A_DATABASE: &str = "askd forget works on files: stop every daemon, move the records with `askd store copy --to files`, \
                             leave [postgres] url out, run this again, and move them back";

/// What was forgotten.
#[derive(Debug)]
pub struct Forgotten {
    /// From the records.
    pub records: Erased,
    /// Lines of the audit log from which the person was taken.
    pub lines: usize,
    /// Responses and briefings that nobody had collected.
    pub lying: usize,
}

/// Forgets it. The records go last.
pub fn forget(settings: &Settings, mut whom: Whom) -> Result<Forgotten, StoreError> {
    let state = settings.state_dir();
    if settings.postgres.url.is_some() {
        return Err(StoreError::Moved(IN_A_DATABASE.to_owned()));
    }
    let store = Files::open(&state, false)?;
    // What was moved away is not there to be forgotten.
    let unusable = |source| StoreError::Io { what: format!("cannot use {}", state.display()), source };
    check(&InFiles::open(&state).map_err(unusable)?, STATE_FOLDER)?;
    store.learn(&mut whom)?;
    let mut lying = 0;
    let mut first = |ask: &Ask| {
        lying += collect(&settings.ipc_dir(), ask)?;
        crash_point("forget.collected");
        Ok(())
    };
    let failed = |source| StoreError::Io { what: format!("cannot change {}", state.join("audit").display()), source };
    let about = |ask: &str, by: &str| whom.is_person(by) || whom.is_ask(ask);
    let lines = if on("keepname") { 0 } else { audit::leave_unnamed(&state, &about).map_err(failed)? };
    let records = store.erase(&whom, &mut first)?;
    store.close()?;
    Ok(Forgotten { records, lines, lying })
}

/// Removes what lies in the group's folders for its agent.
fn collect(ipc: &Path, ask: &Ask) -> io::Result<usize> {
    let mut removed = 0;
    let mut remove = |folder: &str, names: &[String]| {
        let folder = match Dir::open(ipc).and_then(|root| root.sub(&format!("{}/{folder}", ask.group))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        for name in names {
            removed += usize::from(folder.remove_for_good(name)?);
        }
        Ok::<(), io::Error>(())
    };
    for id in ask.waiters.iter().map(|waiter| &waiter.request_id) {
        let names = [response_name(id), unpublished_name(id), taken_name(id), withdrawn_name(id), status_name(id)];
        remove(RESPONSES, &names)?;
    }
    remove(BRIEFINGS, &[response_name(&ask.id), taken_name(&ask.id), withdrawn_name(&ask.id)])?;
    Ok(removed)
}
