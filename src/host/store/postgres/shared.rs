//! What the daemons that share the tables tell each other: which rows have changed, what others have to do, and which calls
//! wait.

use super::asks::{Carried, Write, ask_id, uuid};
use super::database::{Durable, Failed, Work, query, scalar};
use super::lease::LEASE;
use super::news::Mark;
use super::saving::Attempt;
use super::statement::statement;
use super::{Cache, InPostgres, failed};
use crate::host::store::{
    Along, Basis, LeftTo, News, Owed, Reached, Save, Sharing, Store as _, StoreError, Wait, Webhook,
};
use askd_core::{Ask, Group, RequestId, Time};
use sqlx::Row as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// How many rows of a list are read at a time.
const SOME: i64 = 500;

/// A row of `askd.owed`: its number, the ask, the effects, and the group whose holder does them.
type OwedRow = (i64, String, String, Option<String>);

impl InPostgres {
    /// Changes something by a statement with these numbers.
    fn drop_numbers(&self, text: &'static str, numbers: &[i64]) -> Result<(), Failed> {
        self.shared.change(Durable::No, statement(text).bind(numbers.to_vec()).execute())
    }
}

impl Sharing for InPostgres {
    fn leads(&self) -> bool {
        self.shared.lease.is_some()
    }

    fn given(&self, group: &Group) -> i64 {
        self.given.lock().get(group).copied().unwrap_or_default()
    }

    fn save(&self, ask: &Arc<Ask>, basis: &Basis, along: Along<'_>, save: Save) -> Result<(), StoreError> {
        let known = |before: &Arc<Ask>| self.cache.lock().get(ask.id).filter(|(known, _)| Arc::ptr_eq(known, before));
        let doubted = self.doubts.lock().get(&ask.id).is_some_and(|doubt| Arc::ptr_eq(&doubt.ask, ask));
        let era = self.era();
        let attempt = match basis {
            // After a save that failed: there is nothing to take back here. But it is over only once the database can be written.
            Basis::Ask(before) if Arc::ptr_eq(before, ask) => {
                self.probe()?;
                self.last_save_failed.store(false, Ordering::Relaxed);
                return Ok(());
            }
            Basis::New(given) => Attempt::new(ask, Write::New(*given), era, None),
            Basis::Ask(before) | Basis::Lost(before) => match known(before) {
                // What is missing from it comes first.
                Some((_, version))
                    if !version.vouched && matches!(basis, Basis::Ask(_)) && before.is_changed_by_loss() =>
                {
                    return Err(StoreError::Stale);
                }
                Some((_, version)) => Attempt::new(ask, Write::Over(version), era, Some(before)),
                // What was tried is known.
                None if doubted => Attempt::new(ask, Write::Any, era, Some(before)),
                None => return Err(StoreError::Stale),
            },
        };
        if !self.write_tracked(attempt, along, save)? {
            return Err(StoreError::Stale);
        }
        if let Basis::New(given) = basis {
            self.learned(vec![(ask.group.clone(), given + 1)]);
        }
        Ok(())
    }

    fn look(&self) -> Result<News, StoreError> {
        self.read_news()
    }

    fn reached(&self) -> Reached {
        let era = self.era.lock();
        Reached { era: era.clone(), seen: self.mark.lock().seen().clone() }
    }

    fn go_on_from(&self, Reached { era, seen }: &Reached) -> bool {
        let known = self.era.lock();
        let goes_on = *known == *era;
        if goes_on {
            *self.mark.lock() = Mark::at(seen.clone());
            self.known_before.store(seen.oldest(), Ordering::Relaxed);
        }
        goes_on
    }

    fn learned(&self, given: Vec<(Group, i64)>) {
        let mut known = self.given.lock();
        for (group, count) in given {
            let known = known.entry(group).or_default();
            *known = (*known).max(count);
        }
    }

    fn hint(&self) -> watch::Receiver<()> {
        self.hints.heard()
    }

    fn owed(&self) -> Result<Vec<Owed>, StoreError> {
        let owed = statement(
            "select number, ask::text, effects::text, case when folder is null then group_name end from askd.owed
             where folder is null and (group_name is null and $2
                                       or group_name in (select group_name from askd.held where run = $4::uuid))
                 or folder in (select group_name from askd.pins where node = $3)
             order by number limit $1",
        );
        let owed = owed.bind(SOME).bind(self.leads()).bind(self.shared.node.clone()).bind(self.shared.run.clone());
        let rows = owed.rows(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)));
        let rows: Vec<OwedRow> = self.shared.read(rows).map_err(failed("cannot read what other daemons ask for"))?;
        // What is asked for in a group that this daemon has not begun with, or is to hand over, is found out then.
        let begun = |group: &Option<String>| {
            group.as_ref().is_none_or(|group| group.parse().is_ok_and(|group| self.shared.holding.holds(&group)))
        };
        let read = |(number, ask, effects, _): OwedRow| {
            // Of a newer daemon. What the ask needs can be told from the ask.
            let effects = serde_json::from_str(&effects).unwrap_or_else(|error| {
                tracing::warn!(ask, %error, "this askd does not understand what another one asks for");
                Vec::new()
            });
            Some(Owed { number, ask: ask_id(&ask)?, effects })
        };
        Ok(rows.into_iter().filter(|(.., group)| begun(group)).filter_map(read).collect())
    }

    fn hand_on(&self, ask: &Ask, left: &LeftTo) -> Result<(), StoreError> {
        let what = || format!("cannot leave to others what ask {} asks for", ask.id);
        let along = Along { left: Some(left), ..Along::default() };
        let along = Carried::of(along, &ask.group).map_err(failed(what()))?;
        let id = uuid(ask.id);
        let handed = self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (id, along) = (id.clone(), along.clone());
                Box::pin(async move { along.store(connection, id).await })
            }),
        );
        handed.map(|()| self.hints.tell()).map_err(failed(what()))
    }

    fn paid(&self, numbers: &[i64]) -> Result<(), StoreError> {
        let paid = self.drop_numbers("delete from askd.owed where number = any($1)", numbers);
        paid.map_err(failed("cannot note what is under way"))
    }

    fn keep_webhook(&self, channel: &str, body: &[u8]) -> Result<(), StoreError> {
        let keep = statement("insert into askd.webhooks (channel, body) values ($1, $2)");
        let kept = self.shared.change(Durable::Yes, keep.bind(channel.to_owned()).bind(body.to_vec()).execute());
        kept.map(|()| self.hints.tell()).map_err(failed("cannot keep a webhook"))
    }

    fn webhooks(&self, channel: &str, after: i64) -> Result<Vec<Webhook>, StoreError> {
        let rows = statement(
            "select number, body from askd.webhooks where channel = $1 and number > $2 order by number limit 50",
        );
        let rows = rows.bind(channel.to_owned()).bind(after);
        let rows = rows.rows(|row| Ok(Webhook { number: row.try_get(0)?, body: row.try_get(1)? }));
        self.shared.read(rows).map_err(failed("cannot read the webhooks that other daemons have kept"))
    }

    fn has_unread(&self) -> Result<bool, StoreError> {
        self.shared
            .read(statement("select exists (select from askd.webhooks)").one())
            .map_err(failed("cannot read the webhooks that other daemons have kept"))
    }

    fn clear(&self) -> Result<(), StoreError> {
        let all = statement(
            "truncate askd.asks, askd.settled, askd.gone, askd.allowed, askd.counts, askd.pins, askd.owed,
                 askd.webhooks, askd.waits, askd.holds, askd.held, askd.calls, askd.ended",
        );
        self.shared.change(Durable::Yes, all.execute()).map_err(failed("cannot empty the tables"))?;
        *self.cache.lock() = Cache::default();
        self.unflushed.lock().clear();
        self.given.lock().clear();
        self.pins.lock().clear();
        Ok(())
    }

    fn drop_webhook(&self, number: i64) -> Result<(), StoreError> {
        let dropped = self.drop_numbers("delete from askd.webhooks where number = any($1)", &[number]);
        dropped.map_err(failed("cannot drop a webhook that was dealt with"))
    }

    fn tell_waits(&self, waits: &[Wait]) -> Result<(), StoreError> {
        let groups: Vec<String> = waits.iter().map(|wait| wait.group.to_string()).collect();
        let requests: Vec<String> = waits.iter().map(|wait| wait.request_id.to_string()).collect();
        let left: Vec<f64> = waits.iter().map(|wait| wait.left.as_secs_f64()).collect();
        let run = self.shared.run.clone();
        let told = self.shared.change(
            Durable::No,
            Arc::new(move |connection| {
                let (run, groups, requests, left) = (run.clone(), groups.clone(), requests.clone(), left.clone());
                Box::pin(async move {
                    let over = "delete from askd.waits where until < now() - interval '1 minute'";
                    query(over).execute(&mut *connection).await?;
                    let tell = "with told as (
                                    insert into askd.waits (run, group_name, request_id, until)
                                    select $1::uuid, of_group, of_request, now() + make_interval(secs => seconds)
                                    from unnest($2::text[], $3::text[], $4::float8[]) as new (of_group, of_request, seconds)
                                    on conflict (run, group_name, request_id) do update set until = excluded.until
                                    returning group_name, request_id)
                                delete from askd.waits where run = $1::uuid
                                    and (group_name, request_id) not in (select group_name, request_id from told)";
                    query(tell).bind(run).bind(groups).bind(requests).bind(left).execute(connection).await.map(drop)
                })
            }),
        );
        told.map_err(failed("cannot tell the other daemons which calls wait"))
    }

    fn waits_for(&self, group: &Group, request_id: &RequestId) -> Result<bool, StoreError> {
        let waits = statement(
            "select exists (select from askd.waits
                 where group_name = $1 and request_id = $2 and until > now() and run <> $3::uuid)",
        );
        let waits = waits.bind(group.to_string()).bind(request_id.to_string()).bind(self.shared.run.clone());
        self.shared.read(waits.one()).map_err(failed("cannot read which calls wait"))
    }

    fn hold(&self, what: &str, time: Duration) -> Result<bool, StoreError> {
        let take = statement("select askd.take_hold($1, $2, $3, $2::uuid, $4)").bind(what.to_owned());
        let take = take.bind(self.shared.run.clone()).bind(time.as_secs_f64()).bind(LEASE.as_secs_f64());
        let held = self.shared.change(Durable::No, take.one::<Option<f64>>());
        held.map(|anothers| anothers.is_none()).map_err(failed("cannot hold something for this daemon"))
    }

    fn hold_for(&self, taker: &str, what: &[String], between: [Time; 2]) -> Result<Option<Time>, StoreError> {
        let (taker, what, between) = (taker.to_owned(), what.to_vec(), between.map(Time::as_millis));
        let held: Work<Option<Time>> = Arc::new(move |connection| {
            let (taker, what, [now, until]) = (taker.clone(), what.clone(), between);
            Box::pin(async move {
                query("savepoint before").execute(&mut *connection).await?;
                // In one order: two takers cannot wait for each other in a circle.
                let hold = "insert into askd.holds as held (what, taker, until)
                            select what, $1, to_timestamp($4 / 1000.0) from unnest($2::text[]) as new (what) order by what
                            on conflict (what) do update set taker = excluded.taker, until = excluded.until, run = null
                                where held.taker = excluded.taker or held.until <= to_timestamp($3 / 1000.0)";
                let hold = query(hold).bind(&taker).bind(&what).bind(now).bind(until);
                if usize::try_from(hold.execute(&mut *connection).await?.rows_affected()) == Ok(what.len()) {
                    return Ok(None);
                }
                let anothers = "select max((extract(epoch from until) * 1000)::bigint) from askd.holds
                                where what = any($1) and taker <> $2";
                let anothers = scalar::<Option<i64>>(anothers).bind(&what).bind(&taker).fetch_one(&mut *connection);
                let anothers = anothers.await?.unwrap_or(now);
                // What it was sent before stays its own.
                query("rollback to savepoint before").execute(connection).await?;
                Ok(Some(Time::from_millis(anothers)))
            })
        });
        self.shared.change(Durable::No, held).map_err(failed("cannot hold something for a taker"))
    }

    fn release(&self, what: &str, taker: Option<&str>) -> Result<(), StoreError> {
        // Unless another call of the same taker was sent the same outcome.
        let release = statement(
            "delete from askd.holds where what = $1 and taker = $2 and not exists (
                 select from askd.calls as calls where calls.taker = $2
                     and what = 'outcome ' || group_name || ' ' || request_id)",
        );
        let release = release.bind(what.to_owned()).bind(taker.unwrap_or(&self.shared.run).to_owned());
        self.shared.change(Durable::No, release.execute()).map_err(failed("cannot let go of what was held for a taker"))
    }
}
