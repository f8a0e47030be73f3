//! The tokens of agents that ask over HTTP, and another one for the inbox, for the operator alone: `askd token` and
//! `askd link --new` call this.

use super::people::Caller;
use super::token::NotReplaced;
use super::{Inbox, Problem};
use crate::host::tokens::Tokens;
use crate::ipc::wire::Object;
use askd_core::Group;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    group: Group,
    #[serde(default)]
    name: Option<String>,
    /// In seconds.
    #[serde(default)]
    expires_in: Option<u64>,
}

fn operator_only(caller: &Caller) -> Result<(), Problem> {
    let detail = "Only the holder of the inbox token makes and revokes tokens.";
    let refusal = || Problem::new(StatusCode::FORBIDDEN, "Not for you", detail);
    caller.is_operator().then_some(()).ok_or_else(refusal)
}

impl Inbox {
    async fn with_tokens<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tokens) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let tokens = self.tokens.clone();
        let done = tokio::task::spawn_blocking(move || work(&tokens)).await;
        done.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(|error| {
            tracing::error!(%error, "the tokens of agents cannot be stored");
            Problem::not_stored()
        })
    }
}

/// Replaces the inbox token: the one before opens nothing any more.
pub(super) async fn replace(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    operator_only(&caller)?;
    if inbox.broker.settings().web.token.is_some() {
        let detail = "The inbox token is in the settings. Replace [web] token there, and reload askd.";
        return Err(Problem::new(StatusCode::CONFLICT, "In the settings", detail));
    }
    let kept = inbox.people.kept_token().clone();
    let made = tokio::task::spawn_blocking(move || kept.replace()).await;
    let token = made.unwrap_or_else(|panic| Err(NotReplaced::InDoubt(io::Error::other(panic)))).map_err(|why| {
        let (NotReplaced::Unchanged(error) | NotReplaced::InDoubt(error)) = &why;
        tracing::error!(%error, "the inbox token cannot be stored");
        if matches!(why, NotReplaced::Unchanged(_)) { Problem::not_stored() } else { Problem::token_in_doubt() }
    })?;
    tracing::info!("the inbox token was replaced; the one before opens nothing any more");
    Ok((StatusCode::CREATED, Json(json!({ "token": token.expose_secret() }))))
}

pub(super) async fn make(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    body: Result<Json<Object<New>>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    operator_only(&caller)?;
    let Json(Object(New { group, name, expires_in })) = body?;
    if inbox.broker.settings().group(&group).is_none() {
        let detail = format!("askd does not serve the group {group}. Add [groups.{group}] to the settings first.");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not served", detail));
    }
    let expires = expires_in.map(Duration::from_secs);
    let token = inbox.with_tokens(move |tokens| tokens.make(group, name, expires)).await?;
    Ok((StatusCode::CREATED, Json(json!({ "token": token }))))
}

pub(super) async fn list(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    operator_only(&caller)?;
    Ok(Json(json!({"tokens": inbox.tokens.list()})))
}

pub(super) async fn revoke(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    operator_only(&caller)?;
    let unknown = Problem::new(StatusCode::NOT_FOUND, "No such token", format!("There is no token {id:?}."));
    if inbox.with_tokens(move |tokens| tokens.revoke(&id)).await? { Ok(StatusCode::NO_CONTENT) } else { Err(unknown) }
}
