//! Briefings over HTTP: the files in a group's `briefings/`, which `askd briefing` reads on a host that has the folder. Where daemons
//! share the records and no host serves a folder of the group, they are the records themselves.

use super::Agents;
use super::door::Caller;
use super::problems::{unavailable, unstored};
use crate::host::channel::web::Problem;
use crate::ipc::files::Dir;
use crate::ipc::wire::BriefingFile;
use crate::ipc::{BRIEFINGS, response_name};
use askd_core::{AskId, Group};
use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How many are told at a time, how large one can be, and how large all are together at most.
const MOST: usize = 100;
/// A container can put any number of names there.
const MOST_NAMES: usize = 20_000;
const LARGEST: usize = 4 * 1024 * 1024;
const LARGEST_REPLY: usize = 16 * 1024 * 1024;
/// When to come again for what another taker is just printing, or what is just put there.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// How long a call waits for the group's disk.
const PATIENCE: Duration = Duration::from_secs(10);

impl Agents {
    /// Holds these briefings for a caller, all or none; `false` if another one has one of them.
    async fn hold_briefings(&self, caller: &Caller, ids: impl Iterator<Item = AskId>) -> Result<bool, Problem> {
        let all: Vec<_> = ids.map(|id| (caller.holder.group.clone(), id)).collect();
        Ok(self.held(self.broker.briefed(), caller, &all).await?.is_none())
    }

    /// Works in the group's folder, where the disk may hang: on one thread for the group, and at most for [`PATIENCE`]. A
    /// folder that is not there is empty. These calls have no place in the line of responses: an agent that repeats them would
    /// hold up those of other groups.
    async fn in_briefings<T: Send + Default + 'static>(
        &self,
        group: &Group,
        work: impl FnOnce(&Dir) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let unreadable = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Not readable", detail);
        if let Some(host) = self.broker.served_elsewhere(group) {
            return Err(unreadable(&format!("The group's briefings are in its folder, which {host} serves.")));
        }
        let (folders, group) = (self.folders.clone(), group.clone());
        let disk = Arc::clone(self.disks.lock().entry(group.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let done = self.ctx.clock().timeout(PATIENCE, async move {
            let place = disk.acquire_owned().await;
            let task = move || {
                // Held until the disk answers, however long the call waits.
                let _place = place;
                match folders.get(&group, BRIEFINGS) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
                    folder => work(&*folder?),
                }
            };
            tokio::task::spawn_blocking(task).await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
        });
        match done.await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => {
                tracing::error!(%error, "cannot use the briefings of a group");
                Err(unreadable("The group's briefings cannot be read; the daemon's log says why."))
            }
            None => Err(unreadable("The disk of the group's briefings does not answer.").retry_after(PATIENCE)),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Take {
    /// The caller takes what it is told: another taker does not get it meanwhile.
    #[serde(default)]
    take: bool,
}

pub(super) async fn list(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Query(Take { take }): Query<Take>,
) -> Result<Json<Value>, Problem> {
    let read = |folder: &Dir| {
        let mut names = Vec::new();
        folder.list()?.part(MOST_NAMES, |name| {
            names.extend(name.strip_suffix(".json").and_then(|id| id.parse::<AskId>().ok()));
            Ok(())
        })?;
        let mut written = Vec::with_capacity(names.len());
        for id in names {
            written.extend(folder.stat(&response_name(&id))?.map(|stamp| (stamp.modified, id)));
        }
        written.sort_unstable();
        let (mut briefings, mut left) = (Vec::new(), LARGEST_REPLY);
        for (_, id) in written.into_iter().take(MOST) {
            let Ok((bytes, _)) = folder.read(&response_name(&id), LARGEST) else { continue };
            let Some(rest) = left.checked_sub(bytes.len()) else { break };
            left = rest;
            let briefing = serde_json::from_slice::<BriefingFile>(&bytes);
            briefings.extend(briefing.ok().map(|briefing| (id, briefing)));
        }
        Ok(briefings)
    };
    let group = &caller.holder.group;
    let briefings = if agents.broker.keeps_briefings(group) {
        agents.broker.briefings_kept(group, MOST).await
    } else {
        agents.in_briefings(group, read).await?
    };
    if take && !agents.hold_briefings(&caller, briefings.iter().map(|(id, _)| *id)).await? {
        let detail = "Another taker was sent these briefings and may still say that it has them.";
        return Err(Problem::new(StatusCode::CONFLICT, "Held for another", detail).retry_after(SOON));
    }
    let told = briefings.into_iter().map(|(id, BriefingFile { text, session_id, result })| {
        json!({"ask_id": id.to_string(), "text": text, "session_id": session_id, "result": result})
    });
    Ok(Json(json!({"briefings": told.collect::<Vec<_>>()})))
}

/// A briefing was read: it is deleted, by one taker.
pub(super) async fn taken(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Path(ask_id): Path<String>,
) -> Result<StatusCode, Problem> {
    let gone = || Problem::new(StatusCode::GONE, "Not there any more", "It was taken, or there was never one.");
    let id: AskId = ask_id.parse().map_err(|_| gone())?;
    let group = &caller.holder.group;
    // What is not there is not held: a caller could name any number.
    let is_there = if agents.broker.keeps_briefings(group) {
        agents.broker.is_briefing_kept(group, id).await
    } else {
        agents.in_briefings(group, move |folder| Ok(folder.stat(&response_name(&id))?.is_some())).await?
    };
    if !is_there {
        return Err(gone());
    }
    // It is held on: who has read the list before would take it for one that is there.
    if !agents.hold_briefings(&caller, [id].into_iter()).await? {
        return Err(Problem::new(StatusCode::GONE, "Not yours", "Another taker has it."));
    }
    let taken = if agents.broker.keeps_briefings(group) {
        let read = agents.broker.briefing_read(group, id).await;
        read.or_else(|failure| unavailable(unstored(&failure)))?
    } else {
        agents.in_briefings(group, move |folder| folder.remove(&response_name(&id))).await?
    };
    if taken { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}

/// A briefing that was sent to this caller was not read after all: another one may have it at once.
pub(super) async fn put_back(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    Path(ask_id): Path<AskId>,
) -> StatusCode {
    agents.broker.release(agents.broker.briefed(), &caller.taker, &(caller.holder.group.clone(), ask_id)).await;
    StatusCode::NO_CONTENT
}
