//! Rates as rows. A turn does not wait for the disk: what a crash of the server takes away, the platform says again.

use super::database::scalar;
use super::lease::LEASE;
use super::statement::statement;
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
    fn run(&self, text: &'static str, what: &str, time: Duration) -> io::Result<f64> {
        let run = statement(text).bind(what.to_owned()).bind(time.as_secs_f64()).one();
        self.0.change(Durable::No, run).map_err(io::Error::other)
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

    fn seat(&self, what: &str, seats: i32) -> io::Result<bool> {
        let (what, run) = (what.to_owned(), self.0.run.clone());
        let taken = self.0.change(
            Durable::No,
            Arc::new(move |connection| {
                let (what, run) = (what.clone(), run.clone());
                Box::pin(async move {
                    let keep = "update askd.seats set until = now() + make_interval(secs => $3)
                                where what = $1 and run = $2::uuid returning seat";
                    let keep = scalar::<i32>(keep).bind(&what).bind(&run).bind(LEASE.as_secs_f64());
                    if keep.fetch_optional(&mut *connection).await?.is_some() {
                        return Ok(true);
                    }
                    let take = "insert into askd.seats as seats (what, seat, run, until)
                                select $1, min(free), $2::uuid, now() + make_interval(secs => $3)
                                    from generate_series(1, $4) free where not exists (
                                        select from askd.seats taken
                                        where taken.what = $1 and taken.seat = free and taken.until >= now()
                                    ) having min(free) is not null
                                on conflict (what, seat) do update set run = excluded.run, until = excluded.until
                                    where seats.until < now()
                                returning seat";
                    let take = scalar::<i32>(take).bind(what).bind(run).bind(LEASE.as_secs_f64()).bind(seats);
                    Ok(take.fetch_optional(connection).await?.is_some())
                })
            }),
        );
        taken.map_err(io::Error::other)
    }

    fn hold(&self, what: &str, time: Duration) -> io::Result<()> {
        let hold = "insert into askd.rates as r (what, next_at)
                    values ($1, clock_timestamp() + make_interval(secs => $2))
                    on conflict (what) do update set next_at = greatest(r.next_at, excluded.next_at)
                    returning extract(epoch from next_at - clock_timestamp())::float8";
        self.run(hold, what, time).map(drop)
    }
}
