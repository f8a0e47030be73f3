//! Putting responses where their waiters look for them: absent or complete, never torn, and "never
//! written" and "published" told apart after a crash. Section 5 of the specification.
//!
//! What is in a file is synced before it gets a name that is read. The name itself is not synced: after a loss of power
//! each response that is not recorded as taken is written again. Every call blocks on the disk and may be repeated. When
//! and how often is the broker's to say.

use super::folders::Folders;
use crate::ipc::wire::{ResponseFile, StatusFile, file_bytes, response_for};
use crate::ipc::{RESPONSES, response_name, status_name, unpublished_name, withdrawn_name};
use crate::random;
use crate::sabotage::{crash_point, on};
use askd_core::{Ask, Group, RequestId};
use std::io;

/// Writes and syncs a waiter's response under a name that no waiter reads.
pub(super) fn write(folders: &Folders, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
    let Some(response) = ask.waiter(request_id).and_then(|waiter| response_for(ask, waiter)) else { return Ok(()) };
    let dir = folders.ensure(&ask.group, RESPONSES)?;
    let (name, bytes) = (unpublished_name(request_id), file_bytes(&response)?);
    if on("torn") {
        dir.remove(&response_name(request_id))?;
        return dir.create(&response_name(request_id), &bytes[..bytes.len() / 2], folders.access());
    }
    // Of an earlier time: it would look as if this one had been withdrawn.
    dir.remove(&withdrawn_name(request_id))?;
    dir.stage(&name, &bytes, folders.access())?;
    crash_point("deliver.written");
    Ok(())
}

/// Publishes it. A file that is gone was published before.
pub(super) fn publish(folders: &Folders, group: &Group, request_id: &RequestId) -> io::Result<()> {
    let dir = folders.ensure(group, RESPONSES)?;
    match dir.publish(&unpublished_name(request_id), &response_name(request_id)) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            group = %group, request_id = %request_id,
            "a response file of that name was there already; it was replaced"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    crash_point("deliver.published");
    // Published is published: a status that cannot be removed is only untidy.
    if let Err(error) = dir.remove_for_good(&status_name(request_id)) {
        tracing::warn!(group = %group, request_id = %request_id, %error, "a status file cannot be removed");
    }
    Ok(())
}

/// Tells every waiter of an undecided ask where it is.
pub(super) fn status(folders: &Folders, ask: &Ask) -> io::Result<()> {
    let Some(status) = StatusFile::of(ask) else { return Ok(()) };
    let bytes = serde_json::to_vec(&status)?;
    let dir = folders.ensure(&ask.group, RESPONSES)?;
    for waiter in ask.waiters.iter().filter(|waiter| !waiter.withdrawn) {
        let name = status_name(&waiter.request_id);
        let temporary = format!(".tmp-{}", random::unique());
        // A hint, written again at each start.
        dir.place(&temporary, &name, &bytes, folders.access())?;
    }
    Ok(())
}

/// Writes a response that belongs to no open ask: a rejection, or an outcome asked for again.
pub(super) fn write_at_once(folders: &Folders, group: &Group, response: &ResponseFile) -> io::Result<()> {
    let dir = folders.ensure(group, RESPONSES)?;
    let temporary = format!(".tmp-{}", random::unique());
    let name = format!("{}.json", response.result.request_id);
    dir.replace(&temporary, &name, &file_bytes(response)?, folders.access())
}
