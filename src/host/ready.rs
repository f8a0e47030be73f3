//! `/healthz` and `/readyz`: whether the process runs, and whether it can take asks and answers. Neither needs a token,
//! so neither names a group, a chat or a person. They answer from the moment the address is taken, while the stored
//! asks are still being read.

use super::broker::Broker;
use super::channel::web::Problem;
use super::ctx::Ctx;
use super::intake::LookRound;
use super::port::Channels;
use super::store::Loading;
use askd_core::ChannelName;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long ago the last round of looks may be.
const LOOKED: Duration = Duration::from_secs(30);

/// The parts of a daemon that has loaded its asks.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) broker: Broker,
    pub(super) round: LookRound,
    pub(super) channels: Channels,
}

/// How far the daemon is. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Readiness {
    ctx: Ctx,
    loading: Arc<Loading>,
    running: Arc<OnceLock<Running>>,
}

impl Readiness {
    pub(super) fn new(ctx: Ctx) -> Self {
        Self { ctx, loading: Arc::default(), running: Arc::default() }
    }

    /// How far reading the stored asks is.
    pub(super) fn loading(&self) -> Arc<Loading> {
        Arc::clone(&self.loading)
    }

    /// Everything is loaded and looked after.
    pub(super) fn runs(&self, running: Running) {
        // It is said once.
        let _known = self.running.set(running);
    }

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
        let Some(Running { broker, round, channels }) = self.running.get() else {
            let (done, of) = self.loading.so_far();
            return Err(if of == 0 { "starting".to_owned() } else { format!("loading {done} of {of}") });
        };
        if broker.last_save_failed() {
            return Err("the last save failed".to_owned());
        }
        if let Err(error) = broker.probe().await {
            tracing::error!(%error, "not ready");
            return Err("the state folder cannot be written".to_owned());
        }
        let looked = self.ctx.clock().monotonic().since(round.came_by());
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

/// Where calls go once everything is loaded; until then they are told to wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<OnceLock<Router>>);

impl Gate {
    /// From now on calls are answered by these.
    pub(super) fn open(&self, routes: Router) {
        // It is opened once.
        let _open = self.0.set(routes);
    }

    /// A router for everything.
    pub(super) fn routes(&self) -> Router {
        let gate = self.clone();
        Router::new().fallback(move |request| gate.pass(request))
    }

    /// A router for what the platforms call.
    pub(super) fn webhooks(&self, channels: impl Iterator<Item = ChannelName>) -> Router {
        channels.fold(Router::new(), |routes, name| {
            let gate = self.clone();
            routes.route(&format!("/{name}/{{*rest}}"), any(move |request| gate.pass(request)))
        })
    }

    async fn pass(self, request: Request) -> Response {
        let Some(routes) = self.0.get() else {
            let detail = "askd is starting, and is reading its stored questions. Try again in a moment.";
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", detail).into_response();
        };
        match TowerToHyperService::new(routes.clone()).call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
