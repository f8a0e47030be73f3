//! What the daemon tells systemd, if systemd has started it: ready, reloading, stopping, and that it is alive; and the
//! sockets that it is passed. Elsewhere nothing is told, and none is passed.

use crate::clock::Clock;
use anyhow::Context as _;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The sockets that systemd holds for the daemon and has passed to it: connections wait in them while it restarts.
pub(super) fn sockets() -> anyhow::Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let take = |place| passed.take_tcp_listener(place).context("systemd passed what is no TCP socket").transpose();
    (0..count).filter_map(take).collect()
}

/// Tells systemd how the daemon is.
pub(super) fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell systemd how askd is");
    }
}

/// A reload begins: `Type=notify-reload` measures it from here until the next READY.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// Says that the daemon is alive as often as the unit's `WatchdogSec` asks for, and when it begins to stop. Never ends.
pub(super) async fn follow(clock: Clock, stop: CancellationToken) {
    let stopping = async {
        stop.cancelled().await;
        tell(&[NotifyState::Stopping]);
        std::future::pending::<()>().await;
    };
    let alive = async {
        let Some(limit) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
        loop {
            tell(&[NotifyState::Watchdog]);
            clock.sleep(limit / 2).await;
        }
    };
    tokio::join!(stopping, alive);
}
