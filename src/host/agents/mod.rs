//! Agents over HTTP: one more carrier in front of the broker, for agents that share no folder with the daemon. It turns calls
//! into what the broker knows, and decides nothing about asks. `docs/remote.md` has the calls.
//!
//! An outcome lies in the record alone until its call says that it has it. Who still waits is a lease (`session::leases`).
//! MCP by URL (`mcp`) is one more way to make the same calls.

mod asks;
mod briefings;
mod door;
mod events;
mod holds;
mod mcp;

use super::broker::Broker;
use super::channel::web::Problem;
use super::ctx::Ctx;
use super::folders::Folders;
use super::tokens::Tokens;
use super::warnings::Warnings;
use crate::ipc::MAX_REQUEST_BYTES;
use askd_core::{AskId, Group};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use door::Budgets;
use holds::Holds;
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
    /// The same for briefings.
    briefed: Arc<Holds<AskId>>,
    /// One place on the disk for each group, which may hang.
    disks: Arc<Mutex<BTreeMap<Group, Arc<Semaphore>>>>,
}

impl Agents {
    pub(super) fn new(broker: Broker, folders: Folders, tokens: Tokens, ctx: Ctx, warnings: Warnings) -> Self {
        let (budgets, holds, briefed, disks) = (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        Self { broker, folders, tokens, ctx, warnings, budgets, holds, briefed, disks }
    }

    /// The calls.
    pub(super) fn routes(self) -> Router {
        let calls = Router::new()
            .route("/asks", post(asks::ask))
            .route("/asks/{request_id}", get(asks::outcome).delete(asks::withdraw))
            .route("/asks/{request_id}/taken", post(asks::taken))
            .route("/briefings", get(briefings::list))
            .route("/briefings/{ask_id}/taken", post(briefings::taken).delete(briefings::put_back))
            .route("/events", get(events::events))
            .merge(mcp::route(&self))
            .fallback(|| async {
                Problem::new(StatusCode::NOT_FOUND, "No such call", "docs/remote.md lists the calls.")
            })
            .method_not_allowed_fallback(|| async {
                let detail = "This call does not take that method; docs/remote.md lists the calls.";
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
            })
            .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
            .layer(middleware::from_fn_with_state(self.clone(), door::holders_only))
            .with_state(self);
        Router::new().nest("/agent/v1", calls)
    }
}
