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

/// Each socket that systemd has passed is one of those on which the daemon listens.
pub(super) fn all_are_used(passed: &[std::net::TcpListener]) -> io::Result<()> {
    let Some(other) = passed.first() else { return Ok(()) };
    let why = "has the port of none of http.listen, http.webhook_listen and agents.listen; make ListenStream the same";
    Err(io::Error::other(format!("{} {why}", other.local_addr()?)))
}

/// Where agents ask over HTTP: an address of its own, so that it can be published without the inbox.
pub(super) struct Door {
    http: Http,
    /// `None`: no address is set, and there is no token yet or another program has the usual address.
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
        let listener = match settings.agents.listen {
            Some(_) => Some(http::bind(http.listen, AGENTS, passed).await?),
            // Nobody chose this address. Whoever has it keeps agents from asking over HTTP, and nothing else.
            None if !tokens.is_empty() => http::bind(http.listen, AGENTS, passed).await.ok(),
            None => None,
        };
        let tls = settings.agents.tls().map(|(cert, key)| Tls::new(cert, key)).transpose().map_err(io::Error::other)?;
        Ok(Self { http, listener, tls, standing: Arc::default() })
    }

    /// Serves these calls, from the first token on if no address is set.
    pub(super) fn serve(self, calls: Router, tokens: Tokens, ctx: &Ctx) -> JoinHandle<io::Result<()>> {
        let own = ctx.clone();
        ctx.finish(async move {
            let listener = async {
                match self.listener {
                    Some(listener) => listener,
                    None => free_and_wanted(&self.http, &tokens, &self.standing, &own).await,
                }
            };
            let listener = tokio::select! {
                listener = listener => listener,
                () = own.stopping() => return Ok(()),
            };
            tracing::info!(listen = %listener.local_addr()?, "agents can ask over HTTP");
            http::serve(listener, &self.http, self.tls, (calls, Router::new()), http::MAX_AGENTS, &own).await
        })
    }
}

/// Where agents ask, as soon as there is a token and the address is free.
async fn free_and_wanted(http: &Http, tokens: &Tokens, standing: &Standing, ctx: &Ctx) -> TcpListener {
    loop {
        if tokens.is_empty() {
            standing.works();
            tokens.made().await;
            continue;
        }
        let error = match http::bind(http.listen, AGENTS, &mut Vec::new()).await {
            Ok(listener) => {
                standing.works();
                return listener;
            }
            Err(error) => error,
        };
        if standing.problem().is_none() {
            tracing::error!(%error, "agents cannot ask over HTTP; askd tries again every few seconds");
        }
        standing.fails(ctx.clock().now(), error.to_string(), "free that address, or change it and restart askd");
        ctx.clock().sleep(AGAIN).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::host::store::InFiles;
    use askd_core::Time;

    fn tokens(folder: &std::path::Path, clock: &Clock) -> Tokens {
        let tokens = Tokens::open(Arc::new(InFiles::open(folder).unwrap()), clock.clone()).unwrap();
        tokens.make("g".parse().unwrap(), None, None).unwrap();
        tokens
    }

    #[tokio::test]
    async fn an_address_that_another_program_has_is_a_problem_until_it_is_free() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = other.local_addr().unwrap();
        let http = Settings::from_toml(&format!("[http]\nlisten = \"{listen}\"")).unwrap().http;
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let state = tempfile::tempdir().unwrap();
        let (tokens, ctx, standing) = (tokens(state.path(), &clock), Ctx::new(clock), Standing::default());
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
        let (listener, ()) = tokio::join!(free_and_wanted(&http, &tokens, &standing, &ctx), frees);
        assert_eq!((listener.local_addr().unwrap(), standing.problem()), (listen, None));
    }

    #[tokio::test]
    async fn a_usual_address_that_is_taken_keeps_askd_neither_from_starting_nor_from_stopping() {
        // Another program may have it already.
        let _other = std::net::TcpListener::bind("127.0.0.1:8486");
        let (clock, _hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let state = tempfile::tempdir().unwrap();
        let (tokens, ctx) = (tokens(state.path(), &clock), Ctx::new(clock));
        let door = Door::open(&Settings::from_toml("").unwrap(), &tokens, &mut Vec::new()).await.unwrap();
        let standing = Arc::clone(&door.standing);
        let serving = door.serve(Router::new(), tokens, &ctx);
        while standing.problem().is_none() {
            tokio::task::yield_now().await;
        }
        ctx.begin_stop();
        serving.await.unwrap().unwrap();
    }
}
