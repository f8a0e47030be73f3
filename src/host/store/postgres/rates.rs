//! Rates as rows. A turn does not wait for the disk: what a crash of the server takes away, the platform says again.

use super::database::scalar;
use super::{Durable, Shared};
use crate::host::store::Rates;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Rates in PostgreSQL.
#[derive(Debug)]
pub(super) struct InRates(pub(super) Arc<Shared>);

impl InRates {
    /// Runs a statement with a rate and a time. Returns the seconds that it returns.
    fn run(&self, statement: &'static str, what: &str, time: Duration) -> io::Result<f64> {
        let (what, time) = (what.to_owned(), time.as_secs_f64());
        let ran = self.0.change(
            Durable::No,
            Arc::new(move |connection| {
                let what = what.clone();
                Box::pin(async move { scalar(statement).bind(what).bind(time).fetch_one(connection).await })
            }),
        );
        ran.map_err(io::Error::other)
    }
}

impl Rates for InRates {
    fn turn(&self, what: &str, every: Duration) -> io::Result<Duration> {
        let turn = "insert into askd.rates as r (what, next_at)
                    values ($1, clock_timestamp() + make_interval(secs => $2))
                    on conflict (what) do update
                        set next_at = greatest(r.next_at, clock_timestamp()) + make_interval(secs => $2)
                    returning extract(epoch from next_at - clock_timestamp())::float8 - $2";
        Ok(Duration::try_from_secs_f64(self.run(turn, what, every)?).unwrap_or_default())
    }

    fn hold(&self, what: &str, time: Duration) -> io::Result<()> {
        let hold = "insert into askd.rates as r (what, next_at)
                    values ($1, clock_timestamp() + make_interval(secs => $2))
                    on conflict (what) do update set next_at = greatest(r.next_at, excluded.next_at)
                    returning extract(epoch from next_at - clock_timestamp())::float8";
        self.run(hold, what, time).map(drop)
    }
}
