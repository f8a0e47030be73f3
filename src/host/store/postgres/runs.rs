//! The lease of a run: a row of `askd.runs`, with which it holds its groups ([`super::holding`] has what follows from it).

use super::database::{Connections, Durable, Failed, Work, query, scalar};
use super::holding::{Holding, Renewed};
use super::lease::{RENEWED_AFTER, lasts};
use super::statement::statement;
use crate::sabotage::on;
use sqlx::PgConnection;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Drops what others have asked for of what a run holds that begins: it finds that out from the asks. Returns the groups that it holds.
pub(super) async fn open(
    connection: &mut PgConnection,
    (run, node): (&str, &str),
    leads: bool,
) -> Result<Vec<String>, sqlx::Error> {
    let known = "delete from askd.owed
                 where folder is null and (group_name is null and $1 or group_name in (select group_name from askd.held where run = $3::uuid))
                     or folder in (select group_name from askd.pins where node = $2)";
    query(known).bind(leads).bind(node).bind(run).execute(&mut *connection).await?;
    scalar("select group_name from askd.held where run = $1::uuid").bind(run).fetch_all(connection).await
}

/// Drops what others have asked for of these groups, with which the run begins, as far as it holds them. Returns those.
pub(super) async fn begin_with(
    connection: &mut PgConnection,
    run: String,
    groups: Vec<String>,
) -> Result<Vec<String>, sqlx::Error> {
    let mine = "select group_name from askd.held where run = $1::uuid and group_name = any($2)";
    let mine: Vec<String> = scalar(mine).bind(run).bind(groups).fetch_all(&mut *connection).await?;
    let known = "delete from askd.owed where folder is null and group_name = any($1)";
    query(known).bind(&mine).execute(connection).await?;
    Ok(mine)
}

impl Holding {
    /// Begins the lease of a run, which has just entered the nodes. The caller has made sure that an earlier one is over.
    pub(super) async fn join(
        connection: &mut PgConnection,
        (run, node): (&str, &str),
        (host, home): (&str, &str),
        alone: &str,
    ) -> Result<(), sqlx::Error> {
        // Who is alone goes on without whoever was silent for so long that its lease is over: that one saves nothing more.
        let over = "delete from askd.runs where home = $1::uuid and node in ($2, $3) or node = $4 or $4 = $3";
        query(over).bind(home).bind(host).bind(alone).bind(node).execute(&mut *connection).await?;
        let begin = "insert into askd.runs (run, node, home, until)
                     values ($1::uuid, $2, $3::uuid, now() + make_interval(secs => $4))";
        query(begin).bind(run).bind(node).bind(home).bind(lasts().as_secs_f64()).execute(connection).await.map(drop)
    }

    /// Renews it as long as the run is there: in a transaction of its own, so that nothing else makes it late.
    pub(super) async fn keep(self, database: Connections, left: CancellationToken) {
        loop {
            tokio::select! {
                () = self.clock().sleep(RENEWED_AFTER) => {}
                () = left.cancelled() => return,
            }
            let (run, sent) = (self.run().to_owned(), self.clock().monotonic());
            let renew: Work<Renewed> = Arc::new(move |connection| {
                let run = run.clone();
                Box::pin(async move { Self::renew(connection, &run).await })
            });
            let renewed = database.transact(Durable::No, "", renew).await;
            if left.is_cancelled() {
                return;
            }
            if let Err(error) = &renewed {
                tracing::debug!(%error, "cannot renew the lease of this run");
            }
            self.renewed(sent, renewed.unwrap_or(Renewed::Unknown));
        }
    }

    /// Renews it.
    async fn renew(connection: &mut PgConnection, run: &str) -> Result<Renewed, sqlx::Error> {
        let renew = "update askd.runs as runs set until = now() + make_interval(secs => $2)
                     from (select run, until < now() as over from askd.runs where run = $1::uuid) as before
                     where runs.run = before.run returning before.over";
        let over = scalar::<bool>(renew).bind(run).bind(lasts().as_secs_f64()).fetch_optional(connection).await?;
        Ok(match over {
            Some(false) => Renewed::InTime,
            Some(true) => Renewed::Late,
            None if on("nofence") => Renewed::Late,
            None => Renewed::Gone,
        })
    }

    /// Whether other runs may give groups to this one.
    pub(super) async fn may_be_given(&self, database: &Connections, check: &str, takes: bool) -> Result<(), Failed> {
        let say = statement("update askd.runs set takes = $2 where run = $1::uuid");
        database.transact(Durable::No, check, say.bind(self.run().to_owned()).bind(takes).execute()).await
    }
}
