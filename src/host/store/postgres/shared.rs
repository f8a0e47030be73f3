//! What the daemons that share the tables tell each other: which rows have changed, what the leader has to do, and which calls
//! wait.

use super::asks::{Carried, Row, Version, Write, ask_id, row, uuid};
use super::database::{Durable, Failed, Work, query, scalar};
use super::pins::{PinRow, pin_rows, pins};
use super::saving::Attempt;
use super::{InPostgres, failed};
use crate::host::store::{
    Allowed, Along, BadRecord, Basis, LeftTo, News, Owed, Save, Sharing, Store, StoreError, Stored, Wait, Webhook,
    record,
};
use askd_core::{Ask, AskId, Digest, Effect, Group, RequestId, Time};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;
use tokio::sync::watch;

/// How many rows of a list are read at a time.
const SOME: i64 = 500;

/// Where a look begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// The oldest transaction that still ran at the last look: what it or a later one changed was not seen for certain.
    since: u64,
    /// Whatever is open may have become older than it was seen.
    open: bool,
}

impl Mark {
    /// After a crash of the server. Its transactions go on from the last one that is on stable storage, so later numbers come
    /// again.
    pub(super) fn after_crash(self, flushed: u64) -> Self {
        Self { since: self.since.min(flushed), open: true }
    }
}

/// What a look finds, before it is parsed.
#[derive(Debug)]
struct Seen {
    mark: Mark,
    /// The server's era; none after a crash, until a daemon names one.
    era: Option<String>,
    /// Each row that was changed, with its last operation.
    rows: Vec<(String, Option<String>)>,
    gone: Vec<String>,
    allowed: Vec<AllowedRow>,
    documents: Vec<String>,
    given: Vec<(String, i64)>,
    pins: Vec<PinRow>,
}

/// A row of `askd.allowed`: group, question, time, person.
type AllowedRow = (String, String, i64, String);

pub(super) fn allowed_rows(rows: &[PgRow]) -> Result<Vec<AllowedRow>, sqlx::Error> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))).collect()
}

/// The rows by group. They are in the order of their groups.
pub(super) fn allowed_of(rows: Vec<AllowedRow>) -> Vec<(Group, Vec<Allowed>)> {
    let mut all: Vec<(Group, Vec<Allowed>)> = Vec::new();
    for (group, question, at, by) in rows {
        let read = || -> Option<(Group, Allowed)> {
            let question: Digest = question.parse().ok()?;
            let allowed = Allowed { question, at: Time::from_millis(at), by: serde_json::from_str(&by).ok()? };
            Some((group.parse().ok()?, allowed))
        };
        match (read(), all.last_mut()) {
            (None, _) => tracing::error!("a row of askd.allowed is damaged; it counts as missing"),
            (Some((group, allowed)), Some((last, of_last))) if *last == group => of_last.push(allowed),
            (Some((group, allowed)), _) => all.push((group, vec![allowed])),
        }
    }
    all
}

/// Which transaction is the oldest that still runs.
pub(super) async fn mark(connection: &mut PgConnection) -> Result<Mark, sqlx::Error> {
    let since = scalar::<String>("select pg_snapshot_xmin(pg_current_snapshot())::text").fetch_one(connection).await?;
    Ok(Mark { since: since.parse().unwrap_or_default(), open: false })
}

/// All that was changed since `mark`, as it is at one moment.
async fn changed_since(connection: &mut PgConnection, since: Mark) -> Result<Seen, sqlx::Error> {
    let Mark { since, open } = since;
    let since = &since.to_string();
    let mark = mark(&mut *connection).await?;
    let era = scalar("select mark::text from askd.era").fetch_optional(&mut *connection).await?;
    let asks = if open {
        "select id::text, operations[1]::text from askd.asks where changed >= $1::text::xid8 or not settled"
    } else {
        "select id::text, operations[1]::text from askd.asks where changed >= $1::text::xid8"
    };
    let asks = query(asks).bind(since).fetch_all(&mut *connection).await?;
    let rows = asks.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, sqlx::Error>>()?;
    let gone = "select id::text from askd.gone where changed >= $1::text::xid8";
    let gone = scalar(gone).bind(since).fetch_all(&mut *connection).await?;
    let allowed = "select group_name, question, at, by::text from askd.allowed where changed >= $1::text::xid8
                   order by group_name, question";
    let allowed = allowed_rows(&query(allowed).bind(since).fetch_all(&mut *connection).await?)?;
    let documents = "select name from askd.documents where changed >= $1::text::xid8";
    let documents = scalar(documents).bind(since).fetch_all(&mut *connection).await?;
    let pins = query(pins!("where changed >= $1::text::xid8")).bind(since).fetch_all(&mut *connection).await?;
    let pins = pin_rows(&pins)?;
    let given = query("select group_name, accepted from askd.counts").fetch_all(connection).await?;
    let given = given.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, sqlx::Error>>()?;
    Ok(Seen { mark, era, rows, gone, allowed, documents, given, pins })
}

impl InPostgres {
    /// Reads a row anew, and keeps it at hand.
    pub(super) fn read_row(&self, id: AskId) -> Result<Option<Stored>, StoreError> {
        let row = self.row(id)?;
        self.cache.lock().remove(id);
        let stored = row.map(|row| self.keep(&row)).transpose();
        stored.map_err(|source| StoreError::Damaged { id, source })
    }

    /// Keeps a row at hand, unless what is at hand is newer.
    fn keep(&self, row: &Row) -> Result<Stored, BadRecord> {
        let read = row.ask()?;
        // Until it is at hand: a new era takes away all that is.
        let era = self.era.lock();
        let mut stored = self.stored(&era, read, row.settled);
        let id = stored.ask.id;
        let mut version = Version { revision: row.revision, operation: row.operation, vouched: !stored.after_loss };
        let mut unflushed = self.unflushed.lock();
        match unflushed.get(&id).cloned() {
            // The server has lost what this daemon has stored since, and gets it again.
            Some(lost) if lost.steps.lack(version.operation) => {
                (stored.ask, stored.after_loss, version) = (Ask::clone(&lost.ask), false, lost.version);
            }
            Some(old) if old.version != version => drop(unflushed.remove(&id)),
            Some(_) | None => {}
        }
        drop(unflushed);
        let mut cache = self.cache.lock();
        if cache.record_of(id).is_none_or(|(known, _)| known.revision <= version.revision && known != version) {
            cache.put(Arc::new(stored.ask.clone()), version, row.text().len());
        }
        Ok(stored)
    }

    /// The rows of these asks.
    fn rows(&self, ids: &[String]) -> Result<Vec<Row>, Failed> {
        let mut rows = Vec::with_capacity(ids.len());
        for some in ids.chunks(usize::try_from(SOME).unwrap_or(1)) {
            let some = some.to_vec();
            rows.extend(self.shared.read(Arc::new(move |connection| {
                let some = some.clone();
                Box::pin(async move {
                    let rows = query(row!("where id = any($1::uuid[])")).bind(some).fetch_all(connection).await?;
                    rows.iter().map(Row::of).collect::<Result<Vec<Row>, _>>()
                })
            }))?);
        }
        Ok(rows)
    }

    /// What asks were that are gone.
    fn records_of_gone(&self, ids: Vec<String>) -> Result<Vec<String>, Failed> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.shared.read(Arc::new(move |connection| {
            let ids = ids.clone();
            Box::pin(async move {
                let records = "select record::text from askd.gone where id = any($1::uuid[])";
                scalar(records).bind(ids).fetch_all(connection).await
            })
        }))
    }

    /// Changes something by a statement with these numbers.
    fn drop_numbers(&self, statement: &'static str, numbers: &[i64]) -> Result<(), Failed> {
        let numbers = numbers.to_vec();
        self.shared.change(
            Durable::No,
            Arc::new(move |connection| {
                let numbers = numbers.clone();
                Box::pin(async move { query(statement).bind(numbers).execute(connection).await.map(drop) })
            }),
        )
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
            // After a save that failed: there is nothing to take back here.
            Basis::Ask(before) if Arc::ptr_eq(before, ask) => return Ok(()),
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
        let what = "cannot read what other daemons have changed";
        let see = || {
            let since = *self.mark.lock();
            let seen = self
                .shared
                .read(Arc::new(move |connection| Box::pin(async move { changed_since(connection, since).await })));
            seen.map_err(failed(what))
        };
        let mut seen = see()?;
        if seen.era.as_ref() != Some(&self.era()) {
            // The server has crashed.
            Store::flush(self)?;
            seen = see()?;
        }
        let Seen { mark, era, rows, gone, allowed, documents, given, pins } = seen;
        let foreign: Vec<String> = {
            let cache = self.cache.lock();
            let is_known = |(id, operation): &(String, Option<String>)| {
                let known = ask_id(id).and_then(|id| cache.record_of(id));
                known.is_some_and(|(known, _)| operation.as_deref() == Some(&known.operation.to_string()))
            };
            rows.into_iter().filter(|row| !is_known(row)).map(|(id, _)| id).collect()
        };
        let heard = self.gone.lock().clone();
        let unheard = gone.iter().filter(|id| !heard.contains(*id)).cloned().collect();
        let rows = self.rows(&foreign).map_err(failed(what))?;
        let records = self.records_of_gone(unheard).map_err(failed(what))?;
        // Nothing can fail from here on: what counts as seen has to be told.
        self.know_pins(pins);
        *self.gone.lock() = gone.into_iter().collect();
        let mut news = News { allowed: allowed_of(allowed), documents, ..News::default() };
        for row in rows {
            match self.keep(&row) {
                Ok(stored) => news.changed.push(stored),
                Err(why) => tracing::error!(row = row.id, %why, "a row of askd.asks is damaged"),
            }
        }
        news.gone.extend(records.iter().filter_map(|record| record::read(record.as_bytes()).ok()).map(|read| read.ask));
        for ask in &news.gone {
            self.cache.lock().remove(ask.id);
            self.unflushed.lock().remove(&ask.id);
        }
        news.given.extend(given.into_iter().filter_map(|(group, count)| Some((group.parse().ok()?, count))));
        // The server may have crashed meanwhile.
        let now = self.era.lock();
        if era.as_ref() == Some(&*now) {
            *self.mark.lock() = mark;
        }
        drop(now);
        Ok(news)
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
        let (leads, node) = (self.leads(), self.shared.node.clone());
        let rows: Work<Vec<(i64, String, String)>> = Arc::new(move |connection| {
            let node = node.clone();
            Box::pin(async move {
                let owed = "select number, ask::text, effects::text from askd.owed
                            where folder is null and $2 or folder in (select group_name from askd.pins where node = $3)
                            order by number limit $1";
                let rows = query(owed).bind(SOME).bind(leads).bind(node).fetch_all(connection).await?;
                rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
            })
        });
        let rows = self.shared.read(rows).map_err(failed("cannot read what other daemons ask for"))?;
        let read = |(number, ask, effects): (i64, String, String)| {
            let effects = serde_json::from_str(&effects).unwrap_or_else(|error| {
                // A newer daemon wrote it. The next leader finds out what the ask needs.
                tracing::error!(ask, %error, "this askd does not understand what another daemon asks for");
                Vec::new()
            });
            Some(Owed { number, ask: ask_id(&ask)?, effects })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    fn hand_on(&self, ask: &Ask, effects: Vec<Effect>) -> Result<(), StoreError> {
        let what = || format!("cannot leave to its host what ask {} asks for", ask.id);
        let left = LeftTo { host: effects, ..LeftTo::default() };
        let along = Along { left: Some(&left), ..Along::default() };
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
        let (channel, body) = (channel.to_owned(), body.to_vec());
        let kept = self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (channel, body) = (channel.clone(), body.clone());
                Box::pin(async move {
                    let keep = "insert into askd.webhooks (channel, body) values ($1, $2)";
                    query(keep).bind(channel).bind(body).execute(connection).await.map(drop)
                })
            }),
        );
        kept.map(|()| self.hints.tell()).map_err(failed("cannot keep a webhook"))
    }

    fn webhooks(&self, channel: &str) -> Result<Vec<Webhook>, StoreError> {
        let channel = channel.to_owned();
        let rows: Work<Vec<Webhook>> = Arc::new(move |connection| {
            let channel = channel.clone();
            Box::pin(async move {
                let rows = "select number, body from askd.webhooks where channel = $1 order by number limit 50";
                let rows = query(rows).bind(channel).fetch_all(connection).await?;
                rows.iter().map(|row| Ok(Webhook { number: row.try_get(0)?, body: row.try_get(1)? })).collect()
            })
        });
        self.shared.read(rows).map_err(failed("cannot read the webhooks that other daemons have kept"))
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
                    let tell = "insert into askd.waits (run, group_name, request_id, until)
                                select $1::uuid, of_group, of_request, now() + make_interval(secs => seconds)
                                from unnest($2::text[], $3::text[], $4::float8[]) as new (of_group, of_request, seconds)
                                on conflict (run, group_name, request_id) do update set until = excluded.until";
                    query(tell).bind(run).bind(groups).bind(requests).bind(left).execute(connection).await.map(drop)
                })
            }),
        );
        told.map_err(failed("cannot tell the other daemons which calls wait"))
    }

    fn waits_for(&self, group: &Group, request_id: &RequestId) -> Result<bool, StoreError> {
        let (group, request_id, run) = (group.to_string(), request_id.to_string(), self.shared.run.clone());
        let waits = self.shared.read(Arc::new(move |connection| {
            let (group, request_id, run) = (group.clone(), request_id.clone(), run.clone());
            Box::pin(async move {
                let waits = "select exists (select from askd.waits
                                 where group_name = $1 and request_id = $2 and until > now() and run <> $3::uuid)";
                scalar::<bool>(waits).bind(group).bind(request_id).bind(run).fetch_one(connection).await
            })
        }));
        waits.map_err(failed("cannot read which calls wait"))
    }
}
