//! Who calls: the operator by the inbox token, a person by a token of their own, or one whom a trusted proxy names. It says
//! which groups they see; each call asks it about each ask.

use super::{Inbox, KeptToken, Problem};
use crate::clock::Clock;
use crate::host::broker::Broker;
use crate::host::settings::{PersonSettings, Settings, WebSettings};
use crate::ipc::wire::digest;
use askd_core::{Digest, Group, Person, Via};
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
use std::time::Duration;
use subtle::ConstantTimeEq as _;

/// How soon a page learns that its daemon is cut off from the others.
const LOOK: Duration = Duration::from_secs(1);

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Everybody who is let in, by the settings as they are now.
#[derive(Debug)]
pub struct People {
    /// The token of the operator in `state/`, which holds while the settings have none.
    operator: KeptToken,
    broker: Broker,
}

/// Who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// `None`: the operator.
    pub(super) name: Option<String>,
    /// All that they see; `None`: every group.
    pub(super) groups: Option<Arc<BTreeSet<Group>>>,
    /// The hash of the token that they gave; `None`: a proxy named them.
    pub(super) token: Option<Digest>,
}

fn hash(token: &str) -> Digest {
    digest([token.as_bytes()])
}

impl Caller {
    fn of(person: &PersonSettings) -> Self {
        Self { name: Some(person.name.clone()), groups: person.groups.clone().map(Arc::new), token: None }
    }

    pub(super) fn sees(&self, group: &Group) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.contains(group)) || crate::sabotage::on("allgroups")
    }

    /// Whether it is the operator, by the inbox token.
    pub(super) fn is_operator(&self) -> bool {
        self.name.is_none()
    }

    /// As who answers are recorded.
    pub(super) fn person(&self, via: Via) -> Person {
        let operator = Person::operator(via);
        Person { id: self.name.clone().unwrap_or(operator.id), ..operator }
    }
}

impl People {
    /// The holder of this token, and the people of the settings.
    pub fn new(operator: KeptToken, broker: Broker) -> Self {
        Self { operator, broker }
    }

    /// The token in `state/`.
    pub(super) fn kept_token(&self) -> &KeptToken {
        &self.operator
    }

    /// Somebody who was let in once: `name` is `None` for the operator, and `token` for those whom a proxy named. Returns
    /// `None` if they are not let in any more, or by another token only.
    pub(super) fn still(&self, name: Option<&str>, token: Option<Digest>) -> Option<Caller> {
        let settings = self.broker.settings();
        let web = &settings.web;
        match token {
            Some(token) => {
                self.holder(web, |known| hash(known.expose_secret()) == token).filter(|who| who.name.as_deref() == name)
            }
            None => by_proxy(web, name?),
        }
    }

    /// Whether the kept token holds, and other daemons can replace it.
    fn shares_token(&self) -> bool {
        self.broker.is_shared() && self.broker.settings().web.token.is_none()
    }

    /// Waits until another daemon may have replaced the token of this caller unnoticed.
    pub(super) async fn unsure(&self, caller: &Caller, clock: &Clock) {
        if !caller.is_operator() || !self.broker.is_shared() {
            return std::future::pending().await;
        }
        while !(self.shares_token() && self.broker.is_blind()) {
            clock.sleep(LOOK).await;
        }
    }

    /// Whose token this is.
    fn holder(&self, web: &WebSettings, is: impl Fn(&SecretString) -> bool) -> Option<Caller> {
        if web.token.as_ref().map_or_else(|| is(&self.operator.now()), &is) {
            return Some(Caller::default());
        }
        web.people.iter().find(|person| person.token.as_ref().is_some_and(&is)).map(Caller::of)
    }

    /// Who sent these headers from that address; `None`: nobody who is let in.
    fn caller(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Option<Caller> {
        let settings: Arc<Settings> = self.broker.settings();
        let WebSettings { proxy_header, trusted_proxies, .. } = &settings.web;
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        if let Some((_, token)) = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
            let token = token.trim();
            let is = |known: &SecretString| bool::from(token.as_bytes().ct_eq(known.expose_secret().as_bytes()));
            let holder = self.holder(&settings.web, is)?;
            return Some(Caller { token: Some(hash(token)), ..holder });
        }
        let from = from.map(|from| from.to_canonical());
        let is_trusted = from.is_some_and(|from| trusted_proxies.iter().any(|network| network.contains(&from)));
        let mut named = headers.get_all(proxy_header.as_ref().filter(|_| is_trusted)?).iter();
        // One that a client sent beside the proxy's own would make two.
        let (Some(name), None) = (named.next(), named.next()) else { return None };
        // In UTF-8 and nothing else, so that one sequence of bytes is one name.
        let name = str::from_utf8(name.as_bytes()).ok()?.trim();
        if name.is_empty() || name == "operator" || name.contains(char::is_control) {
            return None;
        }
        by_proxy(&settings.web, name)
    }
}

/// Whom a proxy names.
fn by_proxy(web: &WebSettings, name: &str) -> Option<Caller> {
    web.proxy_header.as_ref()?;
    if web.people.is_empty() {
        return Some(Caller { name: Some(name.to_owned()), ..Caller::default() });
    }
    web.people.iter().find(|person| person.name == name).map(Caller::of)
}

pub(super) fn caller(inbox: &Inbox, headers: &HeaderMap, from: Option<Peer>) -> Option<Caller> {
    let known = inbox.people.caller(headers, from.map(|peer| peer.0));
    known.or_else(|| crate::sabotage::on("notoken").then(Caller::default))
}

/// Waits until a caller is let in differently, or not at all, or until that is not known.
pub(super) async fn let_out(inbox: &Inbox, mine: &Caller, headers: &HeaderMap, from: Option<Peer>) {
    let (mut settings, mut token) = (inbox.broker.settings_changes(), inbox.people.kept_token().changes());
    let is_still = || caller(inbox, headers, from).as_ref() == Some(mine);
    let changed = async {
        let mut news = async || tokio::select! { it = settings.changed() => it, it = token.changed() => it }.is_ok();
        while is_still() && news().await {}
    };
    tokio::select! {
        () = changed => {}
        () = inbox.people.unsure(mine, inbox.ctx.clock()) => {}
    }
}

/// The same once that is sure: another daemon may just have replaced the kept token.
async fn surely(inbox: &Inbox, headers: &HeaderMap, from: Option<Peer>) -> Result<Option<Caller>, Problem> {
    let known = caller(inbox, headers, from);
    let others = headers.contains_key(header::AUTHORIZATION) && inbox.people.shares_token();
    if !others || known.as_ref().is_some_and(|caller| !caller.is_operator()) {
        return Ok(known);
    }
    if inbox.broker.is_blind() {
        return Err(Problem::cut_off());
    }
    if known.is_some() {
        return Ok(known);
    }
    inbox.people.operator.refresh(inbox.ctx.clock()).await.map_err(|error| {
        tracing::warn!(%error, "cannot read the inbox token, which another daemon may have replaced");
        Problem::cut_off()
    })?;
    Ok(caller(inbox, headers, from))
}

/// No call gets further without a caller who is let in.
pub(super) async fn known_only(State(inbox): State<Inbox>, mut request: Request, next: Next) -> Response {
    let from = request.extensions().get().copied();
    let caller = match surely(&inbox, request.headers(), from).await {
        Ok(Some(caller)) => caller,
        Ok(None) => return Problem::no_token().into_response(),
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Who the page speaks for. Without a token it says that nobody is known, so that the page asks for one. A wrong token is
/// refused: the page keeps a token with which any call succeeded.
pub(super) async fn me(State(inbox): State<Inbox>, request: Request) -> Result<Json<Value>, Problem> {
    let caller = surely(&inbox, request.headers(), request.extensions().get().copied()).await?;
    if caller.is_none() && request.headers().contains_key(header::AUTHORIZATION) {
        return Err(Problem::no_token());
    }
    let name = caller.as_ref().map(|caller| caller.name.as_deref().unwrap_or("operator"));
    let push_key = caller.as_ref().and_then(|_| inbox.push.key());
    Ok(Json(
        json!({"name": name, "groups": caller.as_ref().and_then(|caller| caller.groups.clone()), "push_key": push_key}),
    ))
}
