//! Which daemons hold a connection of Socket Mode: Slack allows ten for an app, and spreads what it sends over them. Of daemons that
//! share their records at most eight have one; the others take one over when it ends.

use super::Slack;
use crate::clock::Clock;
use crate::host::ctx::Ctx;
use crate::host::store::Rates;
use std::sync::Arc;
use std::time::Duration;

/// How many there are. Slack allows ten: a daemon may have lost its own without knowing it yet.
const SEATS: i32 = 8;
/// How often a daemon says that it still has one, or looks for one.
const AGAIN: Duration = Duration::from_secs(3);

/// The seat of this daemon. One that is alone needs none.
pub(super) struct Seat {
    rates: Option<Arc<dyn Rates>>,
    ctx: Ctx,
}

impl Seat {
    pub(super) fn of(slack: &Slack) -> Self {
        Self { rates: slack.0.pace.rates.clone(), ctx: slack.0.ctx.clone() }
    }

    fn clock(&self) -> &Clock {
        self.ctx.clock()
    }

    /// Waits until this daemon has one; `false` if it stops before.
    pub(super) async fn taken(&self) -> bool {
        let mut told = false;
        while self.take().await != Some(true) {
            if !told {
                tracing::info!("other daemons have all connections of Socket Mode; this one takes over when one ends");
                told = true;
            }
            if !self.ctx.pause(AGAIN).await {
                return false;
            }
        }
        true
    }

    /// Keeps it, and ends when another daemon has it.
    pub(super) async fn lost(&self) {
        loop {
            self.clock().sleep(AGAIN).await;
            // While the database is away nobody else can take it, either.
            if self.take().await == Some(false) {
                return;
            }
        }
    }

    /// `None`: it is not known.
    async fn take(&self) -> Option<bool> {
        let Some(rates) = self.rates.clone() else { return Some(true) };
        let taken = tokio::task::spawn_blocking(move || rates.seat("slack socket", SEATS)).await.ok()?;
        taken.inspect_err(|error| tracing::debug!(%error, "cannot take a seat")).ok()
    }
}
