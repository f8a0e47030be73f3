//! Notices between daemons: a daemon that has stored something says so, and the others look at once instead of within a second. A
//! notice says nothing else, is sent after the commit, and stands for all that was stored since the last one. Nothing depends on it.

use super::database::{Connections, Durable, Failed};
use super::statement::statement;
use crate::clock::Clock;
use sqlx::Executor as _;
use sqlx::postgres::PgListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

const CHANNEL: &str = "askd";
/// The shortest pause between two notices: each takes a lock of the whole server for its commit.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the connection is tested, and how soon another one is made.
const TEST: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(1);
/// How long the server may take for either. A network that drops everything says nothing by itself for a quarter of an hour.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a notice may take that is sent to find out whether it is heard.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

fn silent() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server did not answer"))
}

/// What was heard, and what is to be told.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints {
    heard: Arc<watch::Sender<()>>,
    tell: Arc<Notify>,
}

/// Says that there is news.
pub(super) async fn notify(database: &Connections) -> Result<(), Failed> {
    database.transact(Durable::No, "", statement("select pg_notify('askd', '')").execute()).await
}

/// Whether a notice is heard at that address.
pub(super) async fn hears(database: &Connections, url: &str) -> Result<bool, Failed> {
    let hears = async {
        // A listener would try again, and not say what is wrong.
        drop(database.connect(Some(url)).await?);
        let mut listener = PgListener::connect(url).await?;
        listener.listen("askd_doctor").await?;
        database.transact(Durable::No, "", statement("select pg_notify('askd_doctor', '')").execute()).await?;
        let heard = database.clock().timeout(HEARD_WITHIN, listener.try_recv()).await;
        Ok::<_, Failed>(matches!(heard, Some(Ok(Some(_)))))
    };
    database.clock().timeout(PATIENCE, hears).await.ok_or_else(|| Failed::from(silent()))?
}

impl Hints {
    /// Changes when another daemon, or this one, has said that there is news.
    pub(super) fn heard(&self) -> watch::Receiver<()> {
        self.heard.subscribe()
    }

    /// Has the others told.
    pub(super) fn tell(&self) {
        self.tell.notify_one();
    }

    /// Tells the others, until this run has left.
    pub(super) async fn notify(self, database: Connections, left: CancellationToken) {
        while left.run_until_cancelled(self.tell.notified()).await.is_some() {
            if let Err(error) = notify(&database).await {
                tracing::debug!(%error, "cannot tell the other daemons; they look by themselves");
            }
            database.clock().sleep(PAUSE).await;
        }
    }

    /// Listens, until this run has left. After a loss of the connection there may be news that nobody told.
    pub(super) async fn listen(self, url: String, clock: Clock, left: CancellationToken) {
        let mut failing = false;
        loop {
            match left.run_until_cancelled(self.listen_once(&url, &clock)).await {
                Some(Err(error)) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "cannot listen to the other daemons; looking every second meanwhile");
                }
                Some(Err(_)) => {}
                Some(Ok(())) | None => failing = false,
            }
            if left.run_until_cancelled(clock.sleep(AGAIN)).await.is_none() {
                return;
            }
        }
    }

    async fn listen_once(&self, url: &str, clock: &Clock) -> Result<(), sqlx::Error> {
        let connecting = async {
            let mut listener = PgListener::connect(url).await?;
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        let mut listener = clock.timeout(PATIENCE, connecting).await.ok_or_else(silent)??;
        loop {
            self.heard.send_replace(());
            match clock.timeout(TEST, listener.try_recv()).await {
                Some(Ok(Some(_))) => {}
                Some(Ok(None)) => return Ok(()),
                Some(Err(error)) => return Err(error),
                None => {
                    clock.timeout(PATIENCE, listener.execute("select 1")).await.ok_or_else(silent)??;
                }
            }
        }
    }
}
