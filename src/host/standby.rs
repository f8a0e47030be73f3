//! Where the records are, and whose turn it is to serve them. While another daemon serves the same records, or the database cannot be
//! reached, a daemon answers with 503 and the reason, so that a proxy sends requests elsewhere.

use super::DaemonError;
use super::ctx::Ctx;
#[cfg(feature = "postgres")]
use super::http;
use super::settings::Settings;
use super::store::{Opened, StoreError};
#[cfg(feature = "postgres")]
use super::{settings::Http, store::Waiting};
#[cfg(feature = "postgres")]
use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
#[cfg(feature = "postgres")]
use secrecy::ExposeSecret as _;
#[cfg(feature = "postgres")]
use std::{io, os::fd::AsFd as _};
use tokio::net::TcpListener;

/// Where the records are, before they can be used.
pub(super) enum Place {
    Open(Opened),
    #[cfg(feature = "postgres")]
    InLine(Waiting),
}

impl Place {
    /// Takes the state folder.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "only a database needs it"))]
    pub(super) fn open(settings: &Settings, ctx: &Ctx) -> Result<Self, StoreError> {
        let state = settings.state_dir();
        #[cfg(feature = "postgres")]
        if let Some(url) = &settings.postgres.url {
            let (node, thread) = (&settings.postgres.node, ctx.thread_name("postgres"));
            let waiting = Waiting::new(url.expose_secret(), node, &state, settings.after_loss, &thread);
            return waiting.map(Self::InLine);
        }
        Opened::files(&state, settings.after_loss).map(Self::Open)
    }

    /// The records, once it is the turn of this daemon.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, clippy::unused_async, reason = "only a database has to be waited for")
    )]
    pub(super) async fn opened(
        self,
        settings: &Settings,
        listener: &TcpListener,
        ctx: &Ctx,
    ) -> Result<Opened, DaemonError> {
        let opened = match self {
            Self::Open(opened) => opened,
            #[cfg(feature = "postgres")]
            Self::InLine(waiting) => {
                let turn = stand_by(waiting, &settings.http, listener, ctx).await;
                turn.map_err(DaemonError::io("http.listen"))??
            }
        };
        opened.check()?;
        Ok(opened)
    }
}

/// Waits until the turn of this daemon has come. Until then every call but `/healthz` is answered with 503.
#[cfg(feature = "postgres")]
async fn stand_by(
    waiting: Waiting,
    settings: &Http,
    listener: &TcpListener,
    ctx: &Ctx,
) -> io::Result<Result<Opened, StoreError>> {
    let why = waiting.why();
    let say = move || {
        let text = format!("{}\n", *why.borrow());
        // Otherwise later requests on this connection would still end up here once this daemon serves.
        async { (StatusCode::SERVICE_UNAVAILABLE, [(header::CONNECTION, "close")], text) }
    };
    let routes = Router::new().route("/healthz", get(|| async { "ok\n" })).fallback(say);
    let same = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    let serving =
        http::serve(TcpListener::from_std(same)?, settings, None, (Router::new(), routes), http::MAX_CONNECTIONS, ctx);
    tokio::select! {
        turn = waiting.turn() => Ok(turn),
        served = serving => served.and_then(|()| Err(io::Error::other("told to stop"))),
    }
}
