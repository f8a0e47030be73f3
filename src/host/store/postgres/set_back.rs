//! The server's clock can be set back, by hand or by a failover to a server whose clock is behind. What was written before is then ahead of
//! it, and whoever has died since would count as live for as long as the clock was set back by.

use super::database::{Connections, Durable, Failed, query};
use super::lease::lasts;
use super::statement::statement;
use crate::clock::Moment;
use askd_core::Time;
use sqlx::PgConnection;
use std::time::Duration;

/// No clock runs that much slower between two readings.
const AT_LEAST: Duration = Duration::from_secs(1);

/// What a daemon has heard of the server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    /// In milliseconds since 1970.
    pub(super) told: i64,
    pub(super) asked: Moment,
    pub(super) at: Moment,
}

impl Heard {
    /// Whether the clock was set back since `before`.
    pub(super) fn is_set_back(self, before: Self) -> bool {
        Time::from_millis(self.told) + AT_LEAST < Time::from_millis(before.told) + self.asked.since(before.at)
    }
}

/// Nothing lasts longer than if it had been renewed now: whoever is there renews it before that, and judges its lease by another clock.
/// What others are writing just now is left to them.
pub(super) async fn shorten(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let shorten = "with ends as (
            select clock_timestamp() + make_interval(secs => $1) as most, clock_timestamp() as heard, interval '1 second' as apart
        ), late_runs as (
            update askd.runs set until = most from ends where run in (
                select run from askd.runs, ends where until > most + apart for update of runs skip locked)
        ), late_groups as (
            update askd.groups set until = most from ends where name in (
                select name from askd.groups, ends where until > most + apart for update of groups skip locked)
        ), late_seats as (
            update askd.seats set until = most from ends where (what, seat) in (
                select what, seat from askd.seats, ends where until > most + apart for update of seats skip locked)
        ), late_nodes as (
            update askd.nodes set heard = ends.heard from ends where run in (
                select run from askd.nodes, ends where nodes.heard > ends.heard + apart for update of nodes skip locked)
        ), late_hosts as (
            update askd.hosts set heard = ends.heard from ends where node in (
                select node from askd.hosts, ends where hosts.heard > ends.heard + apart for update of hosts skip locked)
        ) select";
    query(shorten).bind(lasts().as_secs_f64()).execute(connection).await.map(drop)
}

/// Else platforms would not be called until the clock is again where it was. A platform that wants a pause says so again.
pub(super) async fn forget_rates(database: &Connections) -> Result<(), Failed> {
    database.transact(Durable::No, "", statement("delete from askd.rates").execute()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_clock_was_set_back_if_it_says_less_than_has_passed() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(0));
        let hears = |told| {
            let asked = clock.monotonic();
            hand.advance(Duration::from_secs(2));
            Heard { told, asked, at: clock.monotonic() }
        };
        let before = hears(1_000_000);
        hand.advance(Duration::from_secs(3));
        assert!(!hears(1_002_000).is_set_back(before));
        let later = hears(1_003_999);
        assert!(later.is_set_back(before), "5 s have passed");
        assert!(!hears(9_000_000).is_set_back(later));
    }
}
