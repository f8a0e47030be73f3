//! Rates as rows. A turn does not wait for the disk: what a crash of the server takes away, the platform says again.

use super::database::{query, scalar};
use super::{Durable, Shared};
use crate::host::store::Rates;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Rates in PostgreSQL.
#[derive(Debug)]
pub(super) struct InRates(pub(super) Arc<Shared>);

impl Rates for InRates {
    fn turn(&self, what: &str, every: Duration) -> io::Result<Duration> {
        let (what, every) = (what.to_owned(), every.as_secs_f64());
        let wait = self.0.change(
            Durable::No,
            Arc::new(move |connection| {
                let what = what.clone();
                Box::pin(async move {
                    let turn = "insert into askd.rates as r (what, next_at)
                                values ($1, clock_timestamp() + make_interval(secs => $2))
                                on conflict (what) do update
                                    set next_at = greatest(r.next_at, clock_timestamp()) + make_interval(secs => $2)
                                returning extract(epoch from next_at - clock_timestamp())::float8 - $2";
                    scalar::<f64>(turn).bind(what).bind(every).fetch_one(connection).await
                })
            }),
        );
        wait.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()).map_err(io::Error::other)
    }

    fn hold(&self, what: &str, time: Duration) -> io::Result<()> {
        let (what, time) = (what.to_owned(), time.as_secs_f64());
        let held = self.0.change(
            Durable::No,
            Arc::new(move |connection| {
                let what = what.clone();
                Box::pin(async move {
                    let hold = "insert into askd.rates as r (what, next_at)
                                values ($1, clock_timestamp() + make_interval(secs => $2))
                                on conflict (what) do update set next_at = greatest(r.next_at, excluded.next_at)";
                    query(hold).bind(what).bind(time).execute(connection).await.map(drop)
                })
            }),
        );
        held.map_err(io::Error::other)
    }
}
