//! The audit log as rows. Those that tell of a step are stored with it ([`asks`](super::asks)).

use super::Shared;
use super::asks::uuid;
use super::database::{Durable, Failed, Work, query, scalar};
use super::look::from_outside;
use super::statement::statement;
use crate::host::audit::{Noted, SharedLines};
use askd_core::{AskId, Time};
use std::io;
use std::sync::Arc;

/// How many lines are changed or dropped at a time.
const SOME: i64 = 1_000;

/// Reads, from outside the daemon, the lines about the asks whose id begins so. The oldest come first.
pub async fn lines_of(url: &str, begins: &str) -> Result<Vec<String>, String> {
    let [Some(first), Some(last)] = ['0', 'f'].map(|rest| ask_id_from(begins, rest)) else { return Ok(Vec::new()) };
    let read: Work<Vec<String>> = Arc::new(move |connection| {
        Box::pin(async move {
            if !scalar::<bool>("select to_regclass('askd.audit') is not null").fetch_one(&mut *connection).await? {
                return Ok(Vec::new());
            }
            let lines = "select line::text from askd.audit where ask between $1::uuid and $2::uuid order by at, number";
            scalar(lines).bind(uuid(first)).bind(uuid(last)).fetch_all(connection).await
        })
    });
    from_outside(url, |connections| async move { connections.read(true, read).await }).await
}

/// The first or last id that begins so, filled up with this digit.
fn ask_id_from(begins: &str, rest: char) -> Option<AskId> {
    format!("{begins}{}", String::from(rest).repeat(32_usize.checked_sub(begins.len())?)).parse().ok()
}

/// Audit lines in PostgreSQL.
#[derive(Debug)]
pub(super) struct AuditRows(pub(super) Arc<Shared>);

impl SharedLines for AuditRows {
    fn add(&self, noted: &Noted) -> io::Result<()> {
        let add = statement("insert into askd.audit (ask, at, line) values ($1::uuid, $2, $3::json)");
        let add = add.bind(uuid(noted.ask)).bind(noted.at.as_millis()).bind(noted.json.clone());
        self.0.change(Durable::No, add.execute()).map_err(io::Error::other)
    }

    fn about(&self, ask: AskId) -> io::Result<Vec<String>> {
        let lines = statement("select line::text from askd.audit where ask = $1::uuid order by at, number");
        self.0.read(lines.bind(uuid(ask)).all()).map_err(io::Error::other)
    }

    fn leave_unnamed(&self, ask: Option<AskId>, ids: &[String]) -> io::Result<usize> {
        let named = statement(
            "select ctid::text from askd.audit
             where line ->> 'by' is not null and (ask = $1::uuid or line ->> 'by' = any($2))",
        );
        let named = named.bind(ask.map(uuid)).bind(ids.to_vec()).all::<String>();
        let named = self.0.read_long(named).map_err(io::Error::other)?;
        for some in named.chunks(usize::try_from(SOME).unwrap_or(1)) {
            let unnamed = statement(
                "update askd.audit set line = (line::jsonb - 'by')::json where ctid = any($1::text[]::tid[])",
            );
            self.0.change(Durable::Yes, unnamed.bind(some.to_vec()).execute()).map_err(io::Error::other)?;
        }
        Ok(named.len())
    }

    fn drop_before(&self, oldest: Time) {
        let connections = self.0.database.connections().clone();
        self.0.database.spawn(async move {
            let dropped = loop {
                let some: Work<u64> = Arc::new(move |connection| {
                    Box::pin(async move {
                        let some = "delete from askd.audit where ctid = any(array(
                                        select ctid from askd.audit where at < $1 limit $2 for update skip locked))";
                        let some = query(some).bind(oldest.as_millis()).bind(SOME).execute(connection).await?;
                        Ok(some.rows_affected())
                    })
                });
                match connections.transact(Durable::No, "", some).await {
                    Ok(0) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err::<(), Failed>(error),
                }
            };
            if let Err(error) = dropped {
                tracing::warn!(%error, "cannot drop old audit lines; trying again tomorrow");
            }
        });
    }
}
