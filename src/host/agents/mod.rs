//! Agents over HTTP: one more carrier in front of the broker, for agents that share no folder with the daemon. It turns calls
//! into what the broker knows, and decides nothing about asks. `docs/remote.md` has the calls.
//!
//! An outcome lies in the record alone until its call says that it has it. Who still waits is a lease (`session::leases`).
//! MCP by URL (`mcp`) is one more way to make the same calls.

mod asks;
mod briefings;
mod door;
mod events;
mod mcp;
mod problems;

use super::broker::Broker;
use super::channel::web::Problem;
use super::ctx::Ctx;
use super::folders::Folders;
use super::holds::Holds;
use super::tokens::Tokens;
use super::warnings::Warnings;
use crate::ipc::MAX_REQUEST_BYTES;
use askd_core::Group;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use door::Budgets;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What the calls need. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Agents {
    broker: Broker,
    folders: Folders,
    tokens: Tokens,
    ctx: Ctx,
    warnings: Warnings,
    budgets: Arc<Budgets>,
    holds: Arc<Holds>,
    changes: Arc<events::Changes>,
    /// One place on the disk for each group, which may hang.
    disks: Arc<Mutex<BTreeMap<Group, Arc<Semaphore>>>>,
}

impl Agents {
    pub(super) fn new(broker: Broker, folders: Folders, tokens: Tokens, ctx: Ctx, warnings: Warnings) -> Self {
        let (budgets, holds, changes, disks) = (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        Self { broker, folders, tokens, ctx, warnings, budgets, holds, changes, disks }
    }

    /// The calls.
    pub(super) fn routes(self) -> Router {
        let calls = Router::new()
            .route("/asks", post(asks::ask))
            .route("/asks/{request_id}", get(asks::outcome).head(no_such_method).delete(asks::withdraw))
            .route("/asks/{request_id}/taken", post(asks::taken))
            .route("/briefings", get(briefings::list).head(no_such_method))
            .route("/briefings/{ask_id}/taken", post(briefings::taken).delete(briefings::put_back))
            .route("/events", get(events::events).head(no_such_method))
            .merge(mcp::route(&self))
            .fallback(no_such_call)
            .method_not_allowed_fallback(no_such_method)
            .layer(middleware::map_response(problems_only))
            .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
            .layer(middleware::from_fn_with_state(self.clone(), door::holders_only))
            .with_state(self);
        Router::new().nest("/agent/v1", calls).fallback(no_such_call)
    }
}

/// `HEAD` too: what `GET` gives its caller is held for that caller, who would not get it.
async fn no_such_method() -> Problem {
    let detail = "This call does not take that method; docs/remote.md lists the calls.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
}

async fn no_such_call(OriginalUri(uri): OriginalUri) -> Problem {
    let detail = format!("There is no call {:?}; docs/remote.md lists the calls.", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "No such call", detail)
}

/// The longest reason that is repeated, in bytes.
const LONGEST_REASON: usize = 1000;

/// What was refused before a handler of ours saw it (a path or a query that cannot be read, a body that is too large) is told
/// like the rest. The errors of MCP itself are JSON, too.
async fn problems_only(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.is_some_and(|kind| kind.starts_with(b"application/"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("The request is too large. The limit is {MAX_REQUEST_BYTES} bytes; send a smaller one.");
        return Problem::new(status, "Too large", detail).into_response();
    }
    let why = to_bytes(response.into_body(), LONGEST_REASON).await.unwrap_or_default();
    let detail = format!("{} (docs/remote.md lists the calls)", String::from_utf8_lossy(&why));
    Problem::new(status, "Not understood", detail).into_response()
}
