//! The Graph API's side: `POST /{version}/{phone_number_id}/messages` and the few lookups a check of the
//! settings makes.
//!
//! Certain (Meta's reference, and client libraries read them): the answer of a send, `success` for
//! marking as read, `id`, `display_phone_number`, `verified_name` and `quality_rating` of a number,
//! `name`, `language`, `status`, `category`, `components` of a template, `debug_token`, `subscribed_apps`.
//! Likely, not checked against Meta: the other fields, and which refusal comes first when several apply
//! (here: token, path, forced fault, body, account, template, recipient, throughput, pair).

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::check::{self, Outgoing, Request};
use super::climb;
use super::error::GraphError;
use super::fault::Fault;
use super::message::Call;
use super::state::{Hub, digits};
use crate::line::Line;

/// Meta's own limit is not published; far above the longest message.
const BODY_LIMIT: usize = 256 * 1024;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/{version}/{id}/messages", post(messages))
        .route("/{version}/{id}", get(object))
        .route("/{version}/{id}/{edge}", get(edge))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_LIMIT))
}

/// Resets the connection of every call while the network is told to be broken.
pub(super) async fn reached(
    State(hub): State<Arc<Hub>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: HttpRequest,
    next: Next,
) -> Response {
    if hub.lock().away {
        line.reset();
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    next.run(request).await
}

/// Says what a clock of the platform shows in every answer, as Meta does.
pub(super) async fn dated(State(hub): State<Arc<Hub>>, request: HttpRequest, next: Next) -> Response {
    let mut response = next.run(request).await;
    let seconds = Timestamp::from_second(hub.clock.now().div_euclid(1000) + hub.config.date_ahead_s)
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&seconds).unwrap_or_default();
    if let Ok(date) = date.parse() {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

async fn messages(
    State(hub): State<Arc<Hub>>,
    ConnectInfo(line): ConnectInfo<Line>,
    Path((version, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A task of its own: a sender who hangs up while the answer stalls must still be in the log.
    let answering = tokio::spawn(async move {
        let mut call = Call {
            at_ms: hub.uptime_ms(),
            clock: hub.clock.now(),
            request: format!("POST /{version}/{id}/messages"),
            to: None,
            status: 0,
            code: None,
            message: None,
            fault: None,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let response = answer(&hub, &line, &version, &id, &headers, &body, &mut call).await;
        let reset = matches!(call.fault, Some(Fault::ResetBefore | Fault::ResetAfter));
        call.status = if reset { 0 } else { response.status().as_u16() };
        hub.lock().calls.push(call);
        hub.bump();
        response
    });
    answering.await.unwrap_or_else(|_| html(500))
}

async fn answer(
    hub: &Arc<Hub>,
    line: &Line,
    version: &str,
    id: &str,
    headers: &HeaderMap,
    body: &[u8],
    call: &mut Call,
) -> Response {
    if let Err(error) = admit(hub, version, headers).and_then(|()| own_number(hub, id)) {
        return refuse(hub, &error, call);
    }
    call.fault = hub.lock().faults.draw();
    if let Some(fault) = call.fault.filter(|f| !f.commits()) {
        return spoil_before(hub, line, fault, call).await;
    }
    let json = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !json.starts_with("application/json") {
        return refuse(hub, &GraphError::parameter("The stand-in wants content-type: application/json"), call);
    }
    let good = match check::request(body).and_then(|request| carry_out(hub, request, call)) {
        Ok(good) => good,
        Err(error) => return refuse(hub, &error, call),
    };
    match call.fault {
        None => Json(good).into_response(),
        Some(fault) => spoil_after(hub, line, fault, &good).await,
    }
}

fn refuse(hub: &Hub, error: &GraphError, call: &mut Call) -> Response {
    call.code = Some(error.code);
    error.respond(&hub.lock().trace())
}

/// The token, and a version that looks like one.
fn admit(hub: &Hub, version: &str, headers: &HeaderMap) -> Result<(), GraphError> {
    admit_with(&hub.config.token, version, headers)
}

fn admit_with(token: &str, version: &str, headers: &HeaderMap) -> Result<(), GraphError> {
    let given = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    if given.and_then(|v| v.strip_prefix("Bearer ")) != Some(token) {
        return Err(GraphError::token());
    }
    let number = version.strip_prefix('v').and_then(|v| v.split_once('.'));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !number.is_some_and(|(major, minor)| all_digits(major) && all_digits(minor)) {
        return Err(GraphError::parameter(format!("Unknown path components: /{version}")));
    }
    Ok(())
}

fn own_number(hub: &Hub, id: &str) -> Result<(), GraphError> {
    if id == hub.config.phone_number_id { Ok(()) } else { Err(GraphError::no_object(id, "post")) }
}

fn carry_out(hub: &Arc<Hub>, request: Request, call: &mut Call) -> Result<Value, GraphError> {
    match request {
        Request::Read { message_id, typing } => {
            if hub.business_reads(&message_id, typing) {
                Ok(json!({"success": true}))
            } else {
                Err(GraphError::new(131_009, "message_id is not a message this number received"))
            }
        }
        Request::Send(out) => deliver(hub, out, call),
    }
}

fn deliver(hub: &Arc<Hub>, out: Outgoing, call: &mut Call) -> Result<Value, GraphError> {
    call.to = Some(hub.lock().key(&out.input).unwrap_or_else(|| digits(&out.input)));
    let (input, by_user_id) = (out.input.clone(), out.by_user_id);
    let (message, late) = hub.accept(out)?;
    climb::start(hub, &message, late);
    call.message = Some(message.id.clone());
    let contact = if by_user_id {
        json!({"input": input, "user_id": input})
    } else {
        json!({"input": input, "wa_id": message.wa_id})
    };
    let mut sent = json!({"id": message.id});
    if message.kind == "template" {
        sent["message_status"] = json!("accepted");
    }
    Ok(json!({"messaging_product": "whatsapp", "contacts": [contact], "messages": [sent]}))
}

/// A fault of which nothing comes.
async fn spoil_before(hub: &Hub, line: &Line, fault: Fault, call: &mut Call) -> Response {
    match fault {
        Fault::Code(code) => {
            let throttling = [4, 80007, 130_429, 131_048, 131_056].contains(&code);
            let mut error = GraphError::new(code, "Forced by the stand-in");
            if throttling {
                error = error.with_status(hub.config.throttle_status);
            }
            refuse(hub, &error, call)
        }
        Fault::Http(status) => html(status),
        Fault::StallBefore => {
            hub.pause(hub.config.stall_ms).await;
            html(503)
        }
        _ => {
            line.reset();
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// A fault that hides a success.
async fn spoil_after(hub: &Hub, line: &Line, fault: Fault, good: &Value) -> Response {
    match fault {
        Fault::ResetAfter => {
            line.reset();
            StatusCode::OK.into_response()
        }
        Fault::StallAfter => {
            hub.pause(hub.config.stall_ms).await;
            Json(good.clone()).into_response()
        }
        Fault::TruncatedBody => {
            let whole = good.to_string();
            let half = whole.as_bytes()[..whole.len() / 2].to_vec();
            let parts = vec![Ok(Bytes::from(half)), Err(std::io::Error::other("cut off by the stand-in"))];
            let headers = [
                (header::CONTENT_TYPE, "application/json".to_owned()),
                (header::CONTENT_LENGTH, whole.len().to_string()),
            ];
            (headers, Body::from_stream(tokio_stream::iter(parts))).into_response()
        }
        _ => Json(json!({"data": [{"ok": 1}]})).into_response(),
    }
}

fn html(status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    (
        status,
        [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
        "<html><body>Sorry, something went wrong.</body></html>",
    )
        .into_response()
}

#[derive(Deserialize)]
struct Wanted {
    fields: Option<String>,
    name: Option<String>,
    input_token: Option<String>,
}

impl Wanted {
    /// Only the fields asked for, plus `id`.
    fn pick(&self, mut object: Value) -> Value {
        let Some(fields) = &self.fields else { return object };
        let wanted: Vec<&str> = fields.split(',').map(str::trim).collect();
        if let Some(map) = object.as_object_mut() {
            map.retain(|key, _| key == "id" || wanted.contains(&key.as_str()));
        }
        object
    }
}

async fn object(
    State(hub): State<Arc<Hub>>,
    Path((version, id)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    let found = admit(&hub, &version, &headers).and_then(|()| {
        if id == "debug_token" && wanted.input_token.as_ref() == Some(&hub.config.token) {
            Ok(token(&hub))
        } else if id == hub.config.phone_number_id {
            Ok(wanted.pick(number(&hub)))
        } else if id == hub.config.waba_id {
            Ok(json!({"id": id, "name": hub.config.verified_name, "timezone_id": "1"}))
        } else {
            Err(GraphError::no_object(&id, "get"))
        }
    });
    lookup(&hub, format!("GET /{version}/{id}"), found)
}

async fn edge(
    State(hub): State<Arc<Hub>>,
    Path((version, id, edge)): Path<(String, String, String)>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    let business = hub.lock().business.clone();
    // The app's own token: its subscriptions are not the user's.
    let admitted = match edge.as_str() {
        "subscriptions" => {
            let token = format!("{}|{}", business.app_id, hub.config.app_secret);
            admit_with(&token, &version, &headers)
        }
        _ => admit(&hub, &version, &headers),
    };
    let found = admitted.and_then(|()| match edge.as_str() {
        "subscriptions" if id == business.app_id => {
            let fields: Vec<Value> =
                business.fields.iter().map(|name| json!({"name": name, "version": version})).collect();
            Ok(json!({"data": [{"object": "whatsapp_business_account", "callback_url": hub.lock().webhook,
                "active": true, "fields": fields}]}))
        }
        "message_templates" if id == hub.config.waba_id => Ok(templates(&hub, &wanted)),
        "phone_numbers" if id == hub.config.waba_id => Ok(json!({"data": [wanted.pick(number(&hub))]})),
        "subscribed_apps" if id == hub.config.waba_id => {
            let link = format!("https://www.facebook.com/games/?app_id={}", business.app_id);
            let app = json!({"id": business.app_id, "name": "askd", "link": link});
            let apps = business.subscribed.then(|| json!({"whatsapp_business_api_data": app}));
            Ok(json!({"data": Vec::from_iter(apps)}))
        }
        _ => Err(GraphError::no_object(&id, "get")),
    });
    lookup(&hub, format!("GET /{version}/{id}/{edge}"), found)
}

fn lookup(hub: &Hub, request: String, found: Result<Value, GraphError>) -> Response {
    let code = found.as_ref().err().map(|e| e.code);
    let response = match found {
        Ok(value) => Json(value).into_response(),
        Err(error) => error.respond(&hub.lock().trace()),
    };
    let (at_ms, clock, status) = (hub.uptime_ms(), hub.clock.now(), response.status().as_u16());
    let call = Call { at_ms, clock, request, to: None, status, code, message: None, fault: None, body: Value::Null };
    hub.lock().calls.push(call);
    response
}

fn token(hub: &Hub) -> Value {
    let business = hub.lock().business.clone();
    let granted: Vec<Value> =
        business.scopes.iter().map(|scope| json!({"scope": scope, "target_ids": [hub.config.waba_id]})).collect();
    json!({"data": {"app_id": business.app_id, "type": "SYSTEM_USER", "application": hub.config.verified_name,
        "data_access_expires_at": 0, "expires_at": business.expires_at, "is_valid": true,
        "scopes": business.scopes, "granular_scopes": granted, "user_id": "10222270944537964"}})
}

fn number(hub: &Hub) -> Value {
    json!({
        "id": hub.config.phone_number_id, "display_phone_number": format!("+{}", hub.config.display_phone_number),
        "verified_name": hub.config.verified_name, "quality_rating": "GREEN", "code_verification_status": "VERIFIED",
        "platform_type": "CLOUD_API", "throughput": {"level": "STANDARD"},
    })
}

fn templates(hub: &Hub, wanted: &Wanted) -> Value {
    let state = hub.lock();
    let listed = state.templates.iter().enumerate().filter(|(_, t)| wanted.name.as_ref().is_none_or(|n| *n == t.name));
    let data: Vec<Value> = listed
        .map(|(i, t)| {
            let mut components = vec![json!({"type": "BODY", "text": t.body})];
            if !t.buttons.is_empty() {
                let buttons: Vec<Value> = t.buttons.iter().map(|b| json!({"type": "QUICK_REPLY", "text": b})).collect();
                components.push(json!({"type": "BUTTONS", "buttons": buttons}));
            }
            wanted.pick(json!({"id": format!("77{i:05}"), "name": t.name, "language": t.language, "status": state.business.template_status,
                "category": "UTILITY", "components": components}))
        })
        .collect();
    json!({"data": data, "paging": {"cursors": {"before": "MAZDZD", "after": "MjQZD"}}})
}
