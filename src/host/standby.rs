//! Where the records are, and what this daemon does with them: everything, or, beside a leader that shares them, no more than
//! taking calls. While the database cannot be reached, a daemon that has just started answers with 503 and the reason, so that a
//! proxy sends requests elsewhere.

use super::DaemonError;
use super::ctx::Ctx;
#[cfg(feature = "postgres")]
use super::http;
use super::settings::Settings;
use super::store::{Opened, StoreError};
#[cfg(feature = "postgres")]
use super::{
    settings::Http,
    store::{Turn, Waiting},
};
#[cfg(feature = "postgres")]
use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
#[cfg(feature = "postgres")]
use secrecy::ExposeSecret;
#[cfg(feature = "postgres")]
use std::{io, os::fd::AsFd as _, pin::pin, time::Duration};
use tokio::net::TcpListener;

/// How soon a database that can be reached has answered.
#[cfg(feature = "postgres")]
const SOON: Duration = Duration::from_secs(1);

/// Where the records are, before they can be used.
#[derive(Debug)]
pub(super) enum Place {
    Open(Opened),
    #[cfg(feature = "postgres")]
    InLine(Waiting),
}

/// A daemon's place in the line for the lead.
#[derive(Debug)]
pub(super) struct Line(
    #[cfg(feature = "postgres")] Waiting,
    #[cfg(not(feature = "postgres"))] std::convert::Infallible,
);

impl Line {
    /// Waits until this daemon can lead. Whoever opens the place leads.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_async, reason = "only a database has to be waited for")
    )]
    pub(super) async fn lead(self) -> Result<Place, StoreError> {
        #[cfg(feature = "postgres")]
        return self.0.lead().await.map(Place::InLine);
        #[cfg(not(feature = "postgres"))]
        match self.0 {}
    }
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
            let listen = settings.postgres.listen_url.as_ref().map(ExposeSecret::expose_secret);
            return waiting.map(|waiting| Self::InLine(waiting.listening(listen).setting(ctx.clock())));
        }
        Opened::files(&state, settings.after_loss).map(Self::Open)
    }

    /// The daemon stops before it has used them.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_async, reason = "only a database has to be told"))]
    pub(super) async fn abandon(self) {
        match self {
            Self::Open(_) => {}
            #[cfg(feature = "postgres")]
            Self::InLine(waiting) => waiting.abandon().await,
        }
    }

    /// The records, as soon as they can be used; and the line that this daemon stands in, unless it leads or is alone.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, clippy::unused_async, reason = "only a database has to be waited for")
    )]
    pub(super) async fn opened(
        self,
        settings: &Settings,
        listener: &TcpListener,
        ctx: &Ctx,
    ) -> Result<(Opened, Option<Line>), DaemonError> {
        let (opened, line) = match self {
            Self::Open(opened) => (opened, None),
            #[cfg(feature = "postgres")]
            Self::InLine(waiting) => {
                // Whoever takes the lead has served until now: calls wait for a moment, and none is refused unless that moment is long.
                let turn = stand_by(waiting, &settings.http, listener, ctx).await;
                match turn.map_err(DaemonError::io("http.listen"))?? {
                    Turn::Leads(opened) => (opened, None),
                    Turn::Joins(opened, waiting) => (opened, Some(Line(waiting))),
                }
            }
        };
        opened.check()?;
        Ok((opened, line))
    }
}

/// Waits until the database can be reached. Until then every call but `/healthz` is answered with 503.
#[cfg(feature = "postgres")]
async fn stand_by(
    waiting: Waiting,
    settings: &Http,
    listener: &TcpListener,
    ctx: &Ctx,
) -> io::Result<Result<Turn, StoreError>> {
    let why = waiting.why();
    let mut turn = pin!(waiting.turn());
    // A connection that is answered here ends when this daemon takes calls, so most starts answer none.
    if let Some(turn) = ctx.clock().timeout(SOON, &mut turn).await {
        return Ok(turn);
    }
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
        // Connections that were accepted go on: whoever has opened one gets an answer.
        turn = &mut turn => Ok(turn),
        served = serving => served.and_then(|()| Err(io::Error::other("told to stop"))),
    }
}
