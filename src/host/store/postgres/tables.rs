//! Makes the tables, adds what later versions of askd need, and refuses a server that cannot be relied on.

use super::database::{Connections, Durable, Failed, LONG, LONG_STATEMENTS, Work, code, query, scalar};
use super::lease::LEASE;
use super::opening::io_error;
use crate::host::store::{BadRecord, StoreError, record};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use std::io;
use std::sync::Arc;

/// The tables, what each later version adds, and the newest version.
const SCHEMA: &str = include_str!("schema.sql");
const LATER: [(i32, &str); 17] = [
    (2, include_str!("schema-2.sql")),
    (3, include_str!("schema-3.sql")),
    (4, include_str!("schema-4.sql")),
    (5, include_str!("schema-5.sql")),
    (6, include_str!("schema-6.sql")),
    (7, include_str!("schema-7.sql")),
    (8, include_str!("schema-8.sql")),
    (9, include_str!("schema-9.sql")),
    (10, include_str!("schema-10.sql")),
    (11, include_str!("schema-11.sql")),
    (12, include_str!("schema-12.sql")),
    (13, include_str!("schema-13.sql")),
    (14, include_str!("schema-14.sql")),
    (15, include_str!("schema-15.sql")),
    (16, include_str!("schema-16.sql")),
    (17, include_str!("schema-17.sql")),
    (18, include_str!("schema-18.sql")),
];
pub(super) const TABLES: i32 = 18;
/// The newest format of records that this askd reads. It writes no other.
#[expect(clippy::cast_possible_wrap, reason = "it is small")]
pub(super) const READS: i32 = record::VERSION as i32;
/// The oldest server whose documentation has all that is used here.
const OLDEST: i32 = 140_000;
/// A lock was not free in time.
const LOCKED: &str = "55P03";
/// Keeps two daemons from making the tables at once.
const MAKING_TABLES: i64 = 7_161_073;

/// What a server and the tables say about themselves.
#[derive(Default)]
struct Found {
    version: i32,
    fsync: String,
    /// The version of the tables; `0`: there are none.
    tables: i32,
    /// The oldest version of the tables that may be known.
    needs: i32,
    /// The newest format of records that was ever written.
    records: i32,
    /// A live daemon that cannot read what this one would write.
    old: Option<String>,
}

async fn version(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let made = "select to_regclass('askd.format') is not null";
    if !scalar::<bool>(made).fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    scalar("select tables from askd.format").fetch_one(connection).await
}

/// Why such a server cannot be relied on.
fn unreliable(version: i32, fsync: &str) -> Option<String> {
    match fsync {
        _ if version < OLDEST => Some(format!("the server is PostgreSQL {}; askd needs 14 or newer", version / 10_000)),
        "off" => Some("fsync is off, so the server loses answers that it has acknowledged; set fsync = on".to_owned()),
        _ => None,
    }
}

/// Makes the tables, or adds to them what later versions need. Two daemons may begin at once.
async fn make(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let lock = "select pg_advisory_xact_lock($1)";
    query(lock).bind(MAKING_TABLES).execute(&mut *connection).await?;
    connection.execute("set local lock_timeout = 100").await?;
    let tables = version(&mut *connection).await?;
    if tables == 0 {
        connection.execute(SCHEMA).await?;
    }
    for (_, adds) in LATER.into_iter().filter(|(version, _)| *version > tables) {
        connection.execute(adds).await?;
    }
    // Last, because every daemon writes to this row.
    let now = "update askd.format set tables = greatest(tables, $1)";
    query(now).bind(TABLES).execute(connection).await.map(drop)
}

/// Has that done, on a connection of its own, past a pooler if there is a way. It may take long, but waits for a table at most 100 ms:
/// everyone queues behind a lock that waits.
async fn migrate(database: &Connections, direct: Option<&str>) -> Result<(), Failed> {
    let migrate = async {
        let connected = database.connect(direct).await;
        let mut connection =
            if connected.is_err() && direct.is_some() { database.connect(None).await } else { connected }?;
        // A daemon that is paused in the middle keeps the tables from nobody for long.
        let begin = format!(
            "begin; {LONG_STATEMENTS} set local idle_in_transaction_session_timeout = 2500; set local synchronous_commit = on"
        );
        connection.execute(&*begin).await?;
        make(&mut connection).await?;
        connection.execute("commit").await?;
        connection.close().await
    };
    match database.clock().timeout(LONG, migrate).await {
        Some(Err(error)) if code(&error).as_deref() == Some(LOCKED) => {
            let why = "the tables are to be changed for this version of askd, but another session uses them, a backup perhaps";
            Err(Failed::Unchanged(why.to_owned()))
        }
        Some(migrated) => Ok(migrated?),
        None => Err(Failed::Unchanged(format!("the tables could not be changed within {} s", LONG.as_secs()))),
    }
}

/// Looks at all that. Records of this version may be written from now on, if every live daemon reads them.
async fn find(connection: &mut PgConnection) -> Result<Found, sqlx::Error> {
    let server = "select current_setting('server_version_num')::integer, current_setting('fsync')";
    let server = query(server).fetch_one(&mut *connection).await?;
    let found = Found { version: server.try_get(0)?, fsync: server.try_get(1)?, ..Found::default() };
    let tables = version(&mut *connection).await?;
    if unreliable(found.version, &found.fsync).is_some() || tables < TABLES {
        return Ok(Found { tables, ..found });
    }
    let format = query("select needs, records from askd.format").fetch_one(&mut *connection).await?;
    let (needs, records) = (format.try_get(0)?, format.try_get(1)?);
    let old = if needs <= TABLES && records < READS {
        let old = "select node from askd.nodes where reads < $1 and heard > now() - make_interval(secs => $2)";
        let old = scalar(old).bind(READS).bind(LEASE.as_secs_f64());
        let old: Option<String> = old.fetch_optional(&mut *connection).await?;
        if old.is_none() {
            query("update askd.format set records = $1").bind(READS).execute(&mut *connection).await?;
        }
        old
    } else {
        None
    };
    Ok(Found { tables, needs, records, old, ..found })
}

/// Looks at the server, and makes the tables if they are missing. `direct`: an address past a pooler, if there is one.
pub(super) async fn prepare(database: &Connections, direct: Option<&str>) -> Result<Result<(), StoreError>, Failed> {
    let refused = |what: String| Ok(Err(io_error("[postgres]")(io::Error::other(what))));
    let find: Work<Found> = Arc::new(|connection| Box::pin(find(connection)));
    let mut found = database.transact(Durable::Yes, "", Arc::clone(&find)).await?;
    if let Some(why) = unreliable(found.version, &found.fsync) {
        return refused(why);
    }
    if found.tables < TABLES {
        migrate(database, direct).await?;
        found = database.transact(Durable::Yes, "", find).await?;
    }
    let Found { needs, records, old, .. } = found;
    let newer = |what: &str, found: i32, known: u32| {
        let found = u32::try_from(found).unwrap_or_default();
        let source = BadRecord::Newer { found, known };
        Ok(Err(StoreError::Newer { file: what.to_owned(), source }))
    };
    if needs > TABLES {
        return newer("the tables of the database", needs, TABLES.unsigned_abs());
    }
    if u32::try_from(records).unwrap_or_default() > record::VERSION {
        return newer("the records in the database", records, record::VERSION);
    }
    if let Some(node) = old {
        return refused(format!("the daemon on {node} cannot read records of format {READS} yet: update it first"));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_loses_what_it_has_acknowledged_is_refused_and_so_is_an_old_one() {
        assert!(unreliable(150_018, "off").is_some_and(|why| why.contains("set fsync = on")));
        assert!(unreliable(130_002, "on").is_some_and(|why| why.contains("PostgreSQL 13; askd needs 14")));
        assert_eq!(unreliable(140_000, "on"), None);
    }
}
