//! Makes the tables, adds what later versions of askd need, and refuses a server that cannot be relied on.

use super::database::{Connections, Durable, Failed, query, scalar};
use super::opening::io_error;
use crate::host::store::{BadRecord, StoreError, record};
use sqlx::{Executor as _, Row as _};
use std::io;
use std::sync::Arc;

/// The tables, what each later version adds, and the newest version.
const SCHEMA: &str = include_str!("schema.sql");
const LATER: [(i32, &str); 5] = [
    (2, include_str!("schema-2.sql")),
    (3, include_str!("schema-3.sql")),
    (4, include_str!("schema-4.sql")),
    (5, include_str!("schema-5.sql")),
    (6, include_str!("schema-6.sql")),
];
const TABLES: i32 = 6;
/// The oldest server whose documentation has all that is used here.
const OLDEST: i32 = 140_000;
/// Keeps two daemons from making the tables at once.
const MAKING_TABLES: i64 = 7_161_073;

/// Looks at the server, and makes the tables if they are missing.
pub(super) async fn prepare(database: &Connections) -> Result<Result<(), StoreError>, Failed> {
    let refused = |what: String| Ok(Err(io_error("[postgres]")(io::Error::other(what))));
    let prepared = database.transact(
        Durable::Yes,
        "",
        Arc::new(|connection| {
            Box::pin(async move {
                let server = "select current_setting('server_version_num')::integer, current_setting('fsync')";
                let server = query(server).fetch_one(&mut *connection).await?;
                let (version, fsync): (i32, String) = (server.try_get(0)?, server.try_get(1)?);
                if version < OLDEST || fsync == "off" {
                    return Ok((version, fsync, TABLES, 0));
                }
                let lock = "select pg_advisory_xact_lock($1)";
                query(lock).bind(MAKING_TABLES).execute(&mut *connection).await?;
                let made = "select to_regclass('askd.format') is not null";
                if !scalar::<bool>(made).fetch_one(&mut *connection).await? {
                    connection.execute(SCHEMA).await?;
                }
                let format = query("select tables, records from askd.format").fetch_one(&mut *connection).await?;
                let (mut tables, records): (i32, i32) = (format.try_get(0)?, format.try_get(1)?);
                for (version, adds) in LATER.into_iter().filter(|(version, _)| *version > tables) {
                    connection.execute(adds).await?;
                    query("update askd.format set tables = $1").bind(version).execute(&mut *connection).await?;
                }
                tables = tables.max(TABLES);
                let written = i32::try_from(record::VERSION).unwrap_or(i32::MAX);
                if tables <= TABLES && records < written {
                    let mark = "update askd.format set records = $1";
                    query(mark).bind(written).execute(connection).await?;
                }
                Ok((version, fsync, tables, records))
            })
        }),
    );
    let (version, fsync, tables, records) = prepared.await?;
    let newer = |what: &str, found: i32, known: u32| {
        let found = u32::try_from(found).unwrap_or_default();
        let source = BadRecord::Newer { found, known };
        Ok(Err(StoreError::Newer { file: what.to_owned(), source }))
    };
    if version < OLDEST {
        return refused(format!("the server is PostgreSQL {}; askd needs 14 or newer", version / 10_000));
    }
    if fsync == "off" {
        return refused(
            "fsync is off, so the server loses answers that it has acknowledged; set fsync = on".to_owned(),
        );
    }
    if tables > TABLES {
        return newer("the tables of the database", tables, TABLES.unsigned_abs());
    }
    if u32::try_from(records).unwrap_or_default() > record::VERSION {
        return newer("the records in the database", records, record::VERSION);
    }
    Ok(Ok(()))
}
