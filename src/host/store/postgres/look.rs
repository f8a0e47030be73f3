//! A look at the database from outside the daemon, for `askd doctor` and what else an operator does there.

use super::database::{Connections, Database, Failed, query, scalar};
use super::hints;
use super::lease::LEASE;
use super::pins::silent_for;
use crate::host::store::REPORTED;
use askd_core::Time;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    /// The server's version, such as `15.14`.
    pub version: String,
    /// Why a daemon can change nothing there, and how to mend it.
    pub unusable: Option<(&'static str, String)>,
    /// Whether what it acknowledges is on its disk.
    pub fsync: bool,
    /// How many standbys may lack what it has acknowledged.
    pub asynchronous: i64,
    /// The user, if there are standbys of which it may not see that.
    pub kept_from: Option<String>,
    /// Which daemon leads, if one does.
    pub leads: Option<String>,
    /// The daemons that are there, by name.
    pub nodes: Vec<String>,
    /// The hosts that serve folders and were not heard of for a day.
    pub silent: Vec<String>,
    /// Whether a notice is heard at `listen_url`, if there is one; else why that cannot be found out.
    pub hears: Option<Result<bool, String>>,
    /// Its time of day.
    pub now: Time,
}

/// Looks at the database of this URL, and whether a notice is heard at `listen_url`; else why that cannot be done.
pub async fn look(url: &str, listen_url: Option<String>) -> Result<Seen, String> {
    let looks = |connections: Connections| async move {
        let mut seen = see(&connections).await?;
        if let Some(at) = listen_url {
            seen.hears = Some(hints::hears(&connections, &at).await.map_err(|error| error.to_string()));
        }
        Ok(seen)
    };
    from_outside(url, looks).await
}

/// Does something in the database of this URL; else why that cannot be done.
pub(super) async fn from_outside<T: Send + 'static, F>(
    url: &str,
    work: impl FnOnce(Connections) -> F,
) -> Result<T, String>
where
    F: Future<Output = Result<T, Failed>> + Send + 'static,
{
    let database = Database::new(url, "askd-postgres")?;
    let done = database.run(work(database.connections().clone())).await;
    match done {
        Ok(done) => Ok(done),
        Err(error) => {
            let connections = database.connections().clone();
            let cause = database.run(async move { Ok(connections.cause().await) }).await.ok().flatten();
            Err(cause.unwrap_or_else(|| error.to_string()))
        }
    }
}

/// The `sync_state` of a standby of which the user may not see that.
const UNKNOWN: &str = "unknown";

/// How many standbys of the server have each `sync_state`. A base backup that is being taken and a reader of logical changes are none.
pub(super) async fn standbys(connection: &mut PgConnection) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let standbys = "select which, (
                        select count(*) from pg_stat_replication as standby
                        where coalesce(standby.sync_state, $1) = which and standby.state is distinct from 'backup'
                            and standby.application_name is distinct from 'pg_basebackup' and not exists (select from pg_replication_slots as slot
                                            where slot.active_pid = standby.pid and slot.slot_type = 'logical'))
                    from unnest(array['sync', 'quorum', 'potential', 'async', $1]) as states (which)";
    let rows = query(standbys).bind(UNKNOWN).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Why a daemon can change nothing there, and how to mend it.
fn unusable(row: &PgRow, user: &str) -> Result<Option<(&'static str, String)>, sqlx::Error> {
    let (is_standby, is_read_only, may_create) = (row.try_get(6)?, row.try_get(7)?, row.try_get(8)?);
    let unusable = if is_standby {
        ("it is a standby, which takes no changes", "have the URL lead to the primary".to_owned())
    } else if is_read_only {
        let fix = "take default_transaction_read_only from the database or the user".to_owned();
        ("it takes no changes: default_transaction_read_only is on", fix)
    } else if may_create {
        return Ok(None);
    } else {
        let database: String = row.try_get(9)?;
        let fix = format!("GRANT CREATE ON DATABASE {database} TO {user}, or have {user} own the schema askd");
        ("its user may not make askd's tables", fix)
    };
    Ok(Some(unusable))
}

async fn see(connections: &Connections) -> Result<Seen, Failed> {
    connections
        .read(
            false,
            Arc::new(|connection| {
                Box::pin(async move {
                    let server = "select current_setting('server_version'), current_setting('fsync') = 'on',
                                      to_regclass('askd.nodes') is not null, to_regclass('askd.hosts') is not null,
                                      (extract(epoch from clock_timestamp()) * 1000)::bigint, quote_ident(current_user),
                                      pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
                                      coalesce(has_schema_privilege(to_regnamespace('askd'), 'create'),
                                          has_database_privilege(current_database(), 'create')),
                                      quote_ident(current_database())";
                    let row = query(server).fetch_one(&mut *connection).await?;
                    let (leads, nodes) = if row.try_get::<bool, _>(2)? {
                        let leads = "select node from askd.groups where until > now()";
                        let leads = scalar(leads).fetch_optional(&mut *connection).await?;
                        let nodes =
                            "select node from askd.nodes where heard > now() - make_interval(secs => $1) order by 1";
                        (leads, scalar(nodes).bind(LEASE.as_secs_f64()).fetch_all(&mut *connection).await?)
                    } else {
                        (None, Vec::new())
                    };
                    let standbys = standbys(&mut *connection).await?;
                    let count = |state| standbys.iter().filter(|(of, _)| of == state).map(|(_, count)| count).sum();
                    let (asynchronous, unknown): (i64, i64) = (count("async"), count(UNKNOWN));
                    let silent =
                        if row.try_get::<bool, _>(3)? { silent_for(connection, REPORTED).await? } else { Vec::new() };
                    let silent = silent.into_iter().map(|(host, _)| host).collect();
                    let (version, fsync) = (row.try_get(0)?, row.try_get(1)?);
                    let (now, user): (_, String) = (Time::from_millis(row.try_get(4)?), row.try_get(5)?);
                    let unusable = unusable(&row, &user)?;
                    let kept_from = (unknown > 0).then_some(user);
                    Ok(Seen {
                        version,
                        unusable,
                        fsync,
                        asynchronous,
                        kept_from,
                        leads,
                        nodes,
                        silent,
                        hears: None,
                        now,
                    })
                })
            }),
        )
        .await
}
