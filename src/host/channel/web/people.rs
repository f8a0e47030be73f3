//! Who calls: the operator by the inbox token, a person by a token of their own, or one whom a trusted proxy names. It says
//! which groups they see; each call asks it about each ask.

use super::{Inbox, Problem};
use crate::host::settings::{PersonSettings, WebSettings};
use askd_core::{Group, Person, Via};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Everybody who is let in.
#[derive(Debug)]
pub struct People {
    operator: SecretString,
    settings: WebSettings,
}

/// Who calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller {
    /// `None`: the operator.
    name: Option<String>,
    /// All that they see; `None`: every group.
    groups: Option<Arc<BTreeSet<Group>>>,
}

impl Caller {
    fn of(person: &PersonSettings) -> Self {
        Self { name: Some(person.name.clone()), groups: person.groups.clone().map(Arc::new) }
    }

    pub(super) fn sees(&self, group: &Group) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.contains(group)) || crate::sabotage::on("allgroups")
    }

    /// The groups that this person is limited to.
    pub(super) fn only(&self) -> Option<Arc<BTreeSet<Group>>> {
        self.groups.clone()
    }

    /// As who answers are recorded.
    pub(super) fn person(&self, via: Via) -> Person {
        let operator = Person::operator(via);
        Person { id: self.name.clone().unwrap_or(operator.id), ..operator }
    }
}

impl People {
    /// The holder of this token, and the people of the settings.
    pub fn new(operator: SecretString, settings: WebSettings) -> Self {
        Self { operator, settings }
    }

    /// Who sent these headers from that address; `None`: nobody who is let in.
    fn caller(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Option<Caller> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        if let Some((_, token)) = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
            let is = |known: &SecretString| bool::from(token.trim().as_bytes().ct_eq(known.expose_secret().as_bytes()));
            let person = self.settings.people.iter().find(|person| person.token.as_ref().is_some_and(is));
            return if is(&self.operator) { Some(Caller::default()) } else { person.map(Caller::of) };
        }
        let WebSettings { people, proxy_header, trusted_proxies, .. } = &self.settings;
        let from = from.map(|from| from.to_canonical());
        let is_trusted = from.is_some_and(|from| trusted_proxies.iter().any(|network| network.contains(&from)));
        let mut named = headers.get_all(proxy_header.as_ref().filter(|_| is_trusted)?).iter();
        // One that a client sent beside the proxy's own would make two.
        let (Some(name), None) = (named.next(), named.next()) else { return None };
        let name = name.to_str().ok().map(str::trim).filter(|name| !name.is_empty() && *name != "operator")?;
        if people.is_empty() {
            return Some(Caller { name: Some(name.to_owned()), groups: None });
        }
        people.iter().find(|person| person.name == name).map(Caller::of)
    }
}

fn caller(inbox: &Inbox, request: &Request) -> Option<Caller> {
    let from = request.extensions().get::<Peer>().map(|peer| peer.0);
    let known = inbox.people.caller(request.headers(), from);
    known.or_else(|| crate::sabotage::on("notoken").then(Caller::default))
}

/// No call gets further without a caller who is let in.
pub(super) async fn known_only(State(inbox): State<Inbox>, mut request: Request, next: Next) -> Response {
    let Some(caller) = caller(&inbox, &request) else { return Problem::no_token().into_response() };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Who the page speaks for. Without a token it says that nobody is known, so that the page asks for one. A wrong token is
/// refused: the page keeps a token with which any call succeeded.
pub(super) async fn me(State(inbox): State<Inbox>, request: Request) -> Result<Json<Value>, Problem> {
    let caller = caller(&inbox, &request);
    if caller.is_none() && request.headers().contains_key(header::AUTHORIZATION) {
        return Err(Problem::no_token());
    }
    let name = caller.as_ref().map(|caller| caller.name.as_deref().unwrap_or("operator"));
    Ok(Json(json!({"name": name, "groups": caller.as_ref().and_then(Caller::only)})))
}
