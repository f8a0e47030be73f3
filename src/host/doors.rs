//! Where the daemon listens: the inbox, what platforms call, and agents.

use super::ctx::Ctx;
use super::http;
use super::settings::{Http, Settings};
use super::standing::Standing;
use super::tls::Tls;
use super::tokens::Tokens;
use axum::Router;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The setting of their address.
pub(super) const AGENTS: &str = "agents.listen";

/// How long askd waits before it tries an address again.
const AGAIN: Duration = Duration::from_secs(5);

/// Where agents ask over HTTP: an address of its own, so that it can be published without the inbox.
pub(super) struct Door {
    http: Http,
    /// `None`: no address is set, and there is no token yet.
    pub(super) listener: Option<TcpListener>,
    pub(super) tls: Option<Tls>,
    /// Whether agents that have a token can ask there.
    pub(super) standing: Arc<Standing>,
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
        Ok(Self { http, listener, tls, standing: Arc::default() })
    }

    /// Serves these calls, from the first token on if no address is set.
    pub(super) fn serve(self, calls: Router, tokens: Tokens, ctx: &Ctx) -> JoinHandle<io::Result<()>> {
        let own = ctx.clone();
        ctx.finish(async move {
            let listener = match self.listener {
                Some(listener) => listener,
                None => match first_token(&self.http, &tokens, &self.standing, &own).await {
                    Some(listener) => listener,
                    None => return Ok(()),
                },
            };
            tracing::info!(listen = %listener.local_addr()?, "agents can ask over HTTP");
            http::serve(listener, &self.http, self.tls, (calls, Router::new()), http::MAX_AGENTS, &own).await
        })
    }
}

/// Where agents ask, as soon as there is a token and the address is free; `None` if the daemon stops before.
async fn first_token(http: &Http, tokens: &Tokens, standing: &Standing, ctx: &Ctx) -> Option<TcpListener> {
    loop {
        tokio::select! {
            () = tokens.made() => {}
            () = ctx.stopping() => return None,
        }
        let listener = bind_when_free(http, standing, ctx, || !tokens.is_empty()).await;
        if listener.is_some() || ctx.is_stopping() {
            return listener;
        }
    }
}

/// `None`: it is not wanted any more, or the daemon stops.
async fn bind_when_free(
    http: &Http,
    standing: &Standing,
    ctx: &Ctx,
    is_wanted: impl Fn() -> bool,
) -> Option<TcpListener> {
    while is_wanted() {
        let error = match http::bind(http.listen, AGENTS, &mut Vec::new()).await {
            Ok(listener) => {
                standing.works();
                return Some(listener);
            }
            Err(error) => error,
        };
        if standing.problem().is_none() {
            tracing::error!(%error, "agents cannot ask over HTTP; askd tries again every few seconds");
        }
        standing.fails(ctx.clock().now(), error.to_string(), "free that address, or change it and restart askd");
        if !ctx.pause(AGAIN).await {
            return None;
        }
    }
    standing.works();
    None
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use askd_core::Time;

    #[tokio::test]
    async fn an_address_that_another_program_has_is_a_problem_until_it_is_free() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = other.local_addr().unwrap();
        let http = Settings::from_toml(&format!("[http]\nlisten = \"{listen}\"")).unwrap().http;
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let (ctx, standing) = (Ctx::new(clock), Standing::default());
        let frees = async {
            while standing.problem().is_none() {
                tokio::task::yield_now().await;
            }
            let why = standing.problem().unwrap().why;
            assert!(why.starts_with(&format!("cannot listen on {listen}: ")), "{why}");
            assert!(why.contains("set [agents] listen (environment: ASKD__AGENTS__LISTEN="), "{why}");
            drop(other);
            hand.advance(AGAIN);
        };
        let (listener, ()) = tokio::join!(bind_when_free(&http, &standing, &ctx, || true), frees);
        assert_eq!((listener.unwrap().local_addr().unwrap(), standing.problem()), (listen, None));
    }
}
