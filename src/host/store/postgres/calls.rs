//! Calls of MCP by URL as rows. None of them waits for the disk: after a crash of the server an outcome is still owed.

use super::InPostgres;
use super::database::{Durable, Work, query, scalar};
use super::failed;
use super::statement::statement;
use crate::host::store::{McpCall, McpCalls, McpMessage, OnItsWay, Shown, StoreError};
use askd_core::{Group, RequestId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;

impl InPostgres {
    /// Runs one of these transactions.
    fn with_calls<T: Default + Send + 'static>(&self, what: &str, work: Work<T>) -> Result<T, StoreError> {
        self.shared.change(Durable::No, work).map_err(failed(what))
    }
}

/// One message or outcome of a taker at a time: a call is cancelled either before or after it was sent something.
const ALONE: &str = "select pg_advisory_xact_lock(hashtextextended($1, 7161076))";

/// Notes the call that a message cancels. Returns what was sent to it before.
async fn cancel(connection: &mut PgConnection, message: &McpMessage, run: &str) -> Result<Vec<RequestId>, sqlx::Error> {
    let Some(call) = &message.cancels else { return Ok(Vec::new()) };
    query(ALONE).bind(&message.taker).execute(&mut *connection).await?;
    let sent = "delete from askd.calls where group_name = $1 and taker = $2 and client = $3 and call = $4
                    and request_id is not null returning request_id";
    let sent = scalar::<String>(sent).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
    let sent: Vec<String> = sent.bind(call).fetch_all(&mut *connection).await?;
    if sent.is_empty() {
        let cancel = "insert into askd.calls (group_name, taker, client, call, run) values ($1, $2, $3, $4, $5::uuid)";
        let cancel = query(cancel).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
        cancel.bind(call).bind(run).execute(connection).await?;
    }
    Ok(sent.iter().filter_map(|id| id.parse().ok()).collect())
}

impl McpCalls for InPostgres {
    fn heard(&self, message: &McpMessage) -> Result<Shown, StoreError> {
        let (message, run) = (message.clone(), self.shared.run.clone());
        let work: Work<Shown> = Arc::new(move |connection| {
            let (message, run) = (message.clone(), run.clone());
            Box::pin(async move {
                let dropped = cancel(connection, &message, &run).await?;
                let again = "with begun as (
                                 delete from askd.calls where group_name = $1 and taker = $2 and client = $3
                                     and request_id is null and call = $4
                             )
                             delete from askd.ended where group_name = $1 and session = $5";
                // A call that begins is not the one of the same number that was cancelled before; nor is a session over that goes on.
                if message.begins.is_some() || message.back.is_some() {
                    let again = query(again).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
                    again.bind(&message.begins).bind(&message.back).execute(&mut *connection).await?;
                }
                let over = "select exists (select from askd.ended where group_name = $1 and session = $2)";
                let over = scalar::<bool>(over).bind(message.group.as_str()).bind(&message.own);
                let is_over = over.fetch_one(&mut *connection).await?;
                // If the daemon that sent it has died, another taker may have been sent it since.
                let sent = "select number, request_id, run = $5::uuid from askd.calls
                            where group_name = $1 and taker = $2 and client = $3 and $4 and request_id is not null
                                and not exists (select from askd.holds as held where until > now() and held.taker <> $2
                                                    and what = 'outcome ' || group_name || ' ' || request_id)";
                let sent = query(sent).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
                let sent = sent.bind(message.shows).bind(&run).fetch_all(connection).await?;
                let read = |row: &PgRow| -> Result<Option<OnItsWay>, sqlx::Error> {
                    let (number, id, is_own): (_, String, _) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                    Ok(id.parse().ok().map(|request_id| OnItsWay { number, request_id, is_own }))
                };
                let sent = sent.iter().filter_map(|row| read(row).transpose()).collect::<Result<_, _>>()?;
                Ok(Shown { is_over, sent, dropped })
            })
        });
        self.with_calls("cannot find out what a client of MCP has read", work)
    }

    fn sent(&self, call: &McpCall, outcome: &RequestId) -> Result<Option<i64>, StoreError> {
        let (call, outcome, run) = (call.clone(), outcome.to_string(), self.shared.run.clone());
        let work: Work<Option<i64>> = Arc::new(move |connection| {
            let (call, outcome, run) = (call.clone(), outcome.clone(), run.clone());
            Box::pin(async move {
                query(ALONE).bind(&call.taker).execute(&mut *connection).await?;
                let sent = "insert into askd.calls (group_name, taker, client, call, request_id, run)
                            select $1, $2, $3, $4, $5, $6::uuid
                            where not exists (select from askd.calls where group_name = $1 and taker = $2 and client = $3
                                                  and call = $4 and request_id is null)
                            returning number";
                let sent = scalar(sent).bind(call.group.as_str()).bind(call.taker).bind(call.client).bind(call.number);
                sent.bind(outcome).bind(run).fetch_optional(connection).await
            })
        });
        self.with_calls("cannot note what a client of MCP is sent", work)
    }

    fn is_on_its_way(&self, number: i64) -> Result<bool, StoreError> {
        let there = statement("select exists (select from askd.calls where number = $1)").bind(number);
        self.shared.read(there.one()).map_err(failed("cannot find out whether a client of MCP has what it was sent"))
    }

    fn has_come(&self, number: i64) -> Result<(), StoreError> {
        let come = statement("delete from askd.calls where number = $1").bind(number);
        self.with_calls("cannot note that a client of MCP has what it was sent", come.execute())
    }

    fn end_session(&self, group: &Group, session: &str, requests: &[RequestId]) -> Result<(), StoreError> {
        let (group, session) = (group.clone(), session.to_owned());
        let requests: Vec<String> = requests.iter().map(RequestId::to_string).collect();
        let work: Work<()> = Arc::new(move |connection| {
            let (group, session, requests) = (group.clone(), session.clone(), requests.clone());
            Box::pin(async move {
                let end = "insert into askd.ended (group_name, session) values ($1, $2)
                           on conflict (group_name, session) do update set at = excluded.at";
                query(end).bind(group.as_str()).bind(session).execute(&mut *connection).await?;
                let waits = "delete from askd.waits where group_name = $1 and request_id = any($2)";
                query(waits).bind(group.as_str()).bind(requests).execute(connection).await.map(drop)
            })
        });
        self.with_calls("cannot note that a session is over", work)
    }

    fn ended_sessions(&self) -> Result<Vec<(Group, String)>, StoreError> {
        // Leases last no longer than that after they were renewed.
        let ended = statement(
            "select group_name, session from askd.ended where at > now() - interval '1 hour' order by at desc limit 1000",
        );
        let ended = ended.rows(|row| Ok((row.try_get::<String, _>(0)?, row.try_get(1)?)));
        let ended = self.shared.read(ended).map_err(failed("cannot read which sessions are over"))?;
        Ok(ended.into_iter().filter_map(|(group, session)| Some((group.parse().ok()?, session))).collect())
    }
}
