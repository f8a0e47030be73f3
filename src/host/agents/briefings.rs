//! Briefings over HTTP: the files in a group's `briefings/`, which `askd briefing` reads on a host that has the folder.

use super::Agents;
use super::door::Caller;
use crate::host::channel::web::Problem;
use crate::ipc::files::Dir;
use crate::ipc::wire::BriefingFile;
use crate::ipc::{BRIEFINGS, is_json_file, response_name};
use askd_core::{AskId, Group};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::io;

/// How many are told at a time, and how large one can be.
const MOST: usize = 100;
/// A container can put any number of names there.
const MOST_NAMES: usize = 20_000;
const LARGEST: usize = 4 * 1024 * 1024;

impl Agents {
    /// Works in the group's folder; one that is not there is empty.
    async fn in_briefings<T: Send + Default + 'static>(
        &self,
        group: &Group,
        work: impl FnOnce(&Dir) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let (folders, group) = (self.folders.clone(), group.clone());
        let task = move || match folders.get(&group, BRIEFINGS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            folder => work(&*folder?),
        };
        let done = tokio::task::spawn_blocking(task).await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        done.map_err(|error| {
            tracing::error!(%error, "cannot use the briefings of a group");
            let detail = "The group's briefings cannot be read; the daemon's log says why.";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Not readable", detail)
        })
    }
}

pub(super) async fn list(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    let read = |folder: &Dir| {
        let (mut briefings, mut names) = (Vec::new(), Vec::new());
        folder.list()?.part(MOST_NAMES, |name| {
            names.extend(is_json_file(name).then(|| name.to_owned()));
            Ok(())
        })?;
        for name in names {
            let id = name.strip_suffix(".json").and_then(|id| id.parse::<AskId>().ok());
            let (Some(id), Some(stamp)) = (id, folder.stat(&name)?) else { continue };
            let bytes = folder.read(&name, LARGEST).ok().map(|(bytes, _)| bytes);
            let briefing = bytes.and_then(|bytes| serde_json::from_slice::<BriefingFile>(&bytes).ok());
            briefings.extend(briefing.map(|briefing| (stamp.modified(), id, briefing)));
        }
        briefings.sort_by_key(|(written, id, _)| (*written, *id));
        Ok(briefings)
    };
    let briefings = agents.in_briefings(&caller.holder.group, read).await?;
    let told = briefings.into_iter().take(MOST).map(|(_, id, BriefingFile { text, session_id, result })| {
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
    let taken = agents.in_briefings(&caller.holder.group, move |folder| folder.remove(&response_name(&id))).await?;
    if taken { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}
