//! `/healthz` and `/readyz`: whether the process runs, and whether it can take asks and answers. Neither needs a token,
//! so neither names a group, a chat or a person.

use super::broker::Broker;
use super::ctx::Ctx;
use super::intake::LookRound;
use super::port::Channels;
use super::store::Loading;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::sync::Arc;
use std::time::Duration;

/// How long ago the last round of looks may be.
const LOOKED: Duration = Duration::from_secs(30);

/// How far the daemon is, and what of it can be in trouble. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Readiness {
    pub(super) ctx: Ctx,
    pub(super) loading: Arc<Loading>,
    pub(super) broker: Broker,
    pub(super) round: LookRound,
    pub(super) channels: Channels,
}

impl Readiness {
    /// The two calls.
    pub(super) fn routes(&self) -> Router {
        let readiness = self.clone();
        let ready = move || async move { readiness.say().await };
        Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
    }

    async fn say(self) -> (StatusCode, String) {
        match self.judge().await {
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            Ok(reasons) if reasons.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
            Ok(reasons) => (StatusCode::OK, format!("degraded: {}\n", reasons.join("\n"))),
        }
    }

    /// What is wrong although the daemon can go on, or else why it cannot go on.
    async fn judge(&self) -> Result<Vec<String>, String> {
        if self.ctx.is_stopping() {
            return Err("stopping".to_owned());
        }
        let Self { ctx, loading, broker, round, channels } = self;
        if !loading.is_over() {
            let (done, of) = loading.so_far();
            return Err(if of == 0 { "starting".to_owned() } else { format!("loading {done} of {of}") });
        }
        if broker.last_save_failed() {
            return Err("the last save failed".to_owned());
        }
        if let Err(error) = broker.probe().await {
            tracing::error!(%error, "not ready");
            return Err("the state folder cannot be written".to_owned());
        }
        let looked = ctx.clock().monotonic().since(round.came_by());
        if looked > LOOKED {
            return Err(format!("the groups' folders were not looked at for {} s", looked.as_secs()));
        }
        let mut reasons: Vec<String> = channels.away().map(|name| format!("{} is away", name.title())).collect();
        match round.hung() {
            0 => {}
            1 => reasons.push("the folder of a group does not answer".to_owned()),
            hung => reasons.push(format!("the folders of {hung} groups do not answer")),
        }
        Ok(reasons)
    }
}
