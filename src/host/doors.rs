//! Where the daemon listens: the inbox, what platforms call, and agents.

use super::ctx::Ctx;
use super::http;
use super::settings::{Http, Settings};
use super::tls::Tls;
use super::tokens::Tokens;
use axum::Router;
use std::io;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The setting of their address.
pub(super) const AGENTS: &str = "agents.listen";

/// Where agents ask over HTTP: an address of its own, so that it can be published without the inbox.
pub(super) struct Door {
    http: Http,
    /// `None`: no address is set, and there is no token yet.
    pub(super) listener: Option<TcpListener>,
    pub(super) tls: Option<Tls>,
}

impl Door {
    pub(super) async fn open(
        settings: &Settings,
        tokens: &Tokens,
        passed: &mut Vec<std::net::TcpListener>,
    ) -> io::Result<Self> {
        let http = settings.agents.http();
        let wanted = settings.agents.listen.is_some() || !tokens.is_empty();
        let listener = if wanted { Some(http::bind(http.listen, AGENTS, passed).await?) } else { None };
        let tls = settings.agents.tls().map(|(cert, key)| Tls::new(cert, key)).transpose().map_err(io::Error::other)?;
        Ok(Self { http, listener, tls })
    }

    /// Serves these calls, from the first token on if no address is set.
    pub(super) fn serve(self, calls: Router, tokens: Tokens, ctx: &Ctx) -> JoinHandle<io::Result<()>> {
        let own = ctx.clone();
        ctx.finish(async move {
            let listener = if let Some(listener) = self.listener {
                listener
            } else {
                tokio::select! {
                    () = tokens.made() => {}
                    () = own.stopping() => return Ok(()),
                }
                match http::bind(self.http.listen, AGENTS, &mut Vec::new()).await {
                    Ok(listener) => listener,
                    Err(error) => {
                        tracing::error!(%error, "agents cannot ask over HTTP until askd is restarted");
                        return Ok(());
                    }
                }
            };
            tracing::info!(listen = %listener.local_addr()?, "agents can ask over HTTP");
            http::serve(listener, &self.http, self.tls, (calls, Router::new()), http::MAX_AGENTS, &own).await
        })
    }
}

/// Serves the inbox and what others call, on one address or on two.
pub(super) fn serve(
    http: &Http,
    ctx: &Ctx,
    inbox: Router,
    health: &Router,
    called: Router,
    (listener, webhooks): (TcpListener, Option<TcpListener>),
) -> Vec<JoinHandle<io::Result<()>>> {
    let begin = |listener, routes, open| {
        let (http, own) = (http.clone(), ctx.clone());
        ctx.finish(async move { http::serve(listener, &http, None, (routes, open), http::MAX_CONNECTIONS, &own).await })
    };
    let open = health.clone().merge(called);
    match webhooks {
        None => vec![begin(listener, inbox, open)],
        Some(apart) => vec![begin(listener, inbox, health.clone()), begin(apart, Router::new(), open)],
    }
}
