//! Calls of MCP by URL as rows. None of them waits for the disk: after a crash of the server an outcome is still owed.

use super::InPostgres;
use super::database::{Durable, Work, query, scalar};
use super::failed;
use crate::host::store::{McpCall, McpCalls, McpMessage, Shown, StoreError};
use askd_core::{Group, RequestId};
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;

impl InPostgres {
    /// Runs one of these transactions.
    fn with_calls<T: Default + Send + 'static>(&self, what: &str, work: Work<T>) -> Result<T, StoreError> {
        self.shared.change(Durable::No, work).map_err(failed(what))
    }
}

/// Notes the call that a message cancels. Returns the outcome that the call was sent before.
async fn cancel(
    connection: &mut PgConnection,
    message: &McpMessage,
    run: &str,
) -> Result<Option<RequestId>, sqlx::Error> {
    let Some(call) = &message.cancels else { return Ok(None) };
    let cancel = "insert into askd.calls (group_name, taker, client, call, run) values ($1, $2, $3, $4, $5::uuid)
                  on conflict (group_name, taker, client, call) do nothing";
    let cancel = query(cancel).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
    if cancel.bind(call).bind(run).execute(&mut *connection).await?.rows_affected() > 0 {
        return Ok(None);
    }
    let sent = "delete from askd.calls where group_name = $1 and taker = $2 and client = $3 and call = $4
                    and request_id is not null returning request_id";
    let sent = scalar::<String>(sent).bind(message.group.as_str()).bind(&message.taker).bind(&message.client);
    let sent = sent.bind(call).fetch_optional(connection).await?;
    Ok(sent.and_then(|id| id.parse().ok()))
}

impl McpCalls for InPostgres {
    fn heard(&self, message: &McpMessage) -> Result<Shown, StoreError> {
        let (message, run) = (message.clone(), self.shared.run.clone());
        let work: Work<Shown> = Arc::new(move |connection| {
            let (message, run) = (message.clone(), run.clone());
            Box::pin(async move {
                let dropped = cancel(connection, &message, &run).await?;
                // A call that begins is not the one of the same number that was cancelled before.
                let heard = "with read as (
                                 delete from askd.calls where group_name = $1 and taker = $2 and client = $3 and (
                                     $4 and request_id is not null and run <> $5::uuid and at > now() - interval '1 minute'
                                     or request_id is null and call = $6)
                                 returning request_id
                             ), back as (delete from askd.ended where group_name = $1 and session = $7)
                             select exists (select from askd.ended where group_name = $1 and session = $8),
                                 array(select request_id from read where request_id is not null)";
                let heard = query(heard).bind(message.group.as_str()).bind(message.taker).bind(message.client);
                let heard =
                    heard.bind(message.shows).bind(run).bind(message.begins).bind(message.back).bind(message.own);
                let heard = heard.fetch_one(connection).await?;
                let read: Vec<String> = heard.try_get(1)?;
                let read = read.iter().filter_map(|id| id.parse().ok()).collect();
                Ok(Shown { is_over: heard.try_get(0)?, read, dropped })
            })
        });
        self.with_calls("cannot find out what a client of MCP has read", work)
    }

    fn sent(&self, call: &McpCall, outcome: &RequestId) -> Result<bool, StoreError> {
        let (call, outcome, run) = (call.clone(), outcome.to_string(), self.shared.run.clone());
        let work: Work<bool> = Arc::new(move |connection| {
            let (call, outcome, run) = (call.clone(), outcome.clone(), run.clone());
            Box::pin(async move {
                let sent = "insert into askd.calls as calls (group_name, taker, client, call, request_id, run)
                            values ($1, $2, $3, $4, $5, $6::uuid)
                            on conflict (group_name, taker, client, call) do update
                                set request_id = excluded.request_id, run = excluded.run, at = excluded.at
                                where calls.request_id is not null";
                let sent = query(sent).bind(call.group.as_str()).bind(call.taker).bind(call.client).bind(call.number);
                let sent = sent.bind(outcome).bind(run).execute(connection).await?;
                Ok(sent.rows_affected() == 0)
            })
        });
        self.with_calls("cannot note what a client of MCP is sent", work)
    }

    fn dealt_with(&self, call: &McpCall) -> Result<bool, StoreError> {
        let (call, run) = (call.clone(), self.shared.run.clone());
        let work: Work<bool> = Arc::new(move |connection| {
            let (call, run) = (call.clone(), run.clone());
            Box::pin(async move {
                let own = "delete from askd.calls where group_name = $1 and taker = $2 and client = $3 and call = $4
                               and run = $5::uuid and request_id is not null";
                let own = query(own).bind(call.group.as_str()).bind(call.taker).bind(call.client).bind(call.number);
                Ok(own.bind(run).execute(connection).await?.rows_affected() == 0)
            })
        });
        self.with_calls("cannot find out whether a client of MCP has what it was sent", work)
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
        let work: Work<Vec<(String, String)>> = Arc::new(|connection| {
            Box::pin(async move {
                // Leases last no longer than that after they were renewed.
                let ended = "select group_name, session from askd.ended where at > now() - interval '1 hour' order by at desc limit 1000";
                let ended = query(ended).fetch_all(connection).await?;
                ended.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
            })
        });
        let ended = self.shared.read(work).map_err(failed("cannot read which sessions are over"))?;
        Ok(ended.into_iter().filter_map(|(group, session)| Some((group.parse().ok()?, session))).collect())
    }
}
