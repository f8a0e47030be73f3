//! The webhook's two doors: the handshake, and what Meta tells. Verification is an extractor: the
//! handler's argument is only built after the MAC over the raw bytes.

use super::{Whatsapp, shapes};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::Sha256;
use shapes::Told;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

/// The largest webhook that is read. Meta sends up to 3 MB.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long a sender may take for its body.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// Webhooks at a time; more are told to come again.
const AT_A_TIME: usize = 64;
/// The header with the MAC.
const SIGNATURE: &str = "x-hub-signature-256";

#[derive(Debug, Clone)]
struct Door {
    channel: Whatsapp,
    free: Arc<Semaphore>,
}

/// The two doors.
pub(super) fn routes(channel: Whatsapp) -> Router {
    let door = Door { channel, free: Arc::new(Semaphore::new(AT_A_TIME)) };
    Router::new().route("/whatsapp/webhook", get(handshake).post(take)).with_state(door)
}

#[derive(Deserialize)]
struct Handshake {
    #[serde(rename = "hub.mode", default)]
    mode: String,
    #[serde(rename = "hub.verify_token", default)]
    verify_token: String,
    #[serde(rename = "hub.challenge", default)]
    challenge: String,
}

async fn handshake(State(door): State<Door>, query: Result<Query<Handshake>, QueryRejection>) -> Response {
    let expected = &door.channel.0.client.settings().verify_token;
    let good = query.ok().filter(|Query(asked)| {
        let same: bool = asked.verify_token.as_bytes().ct_eq(expected.expose_secret().as_bytes()).into();
        asked.mode == "subscribe" && same
    });
    match good {
        Some(Query(asked)) => {
            tracing::info!("the WhatsApp webhook was set up");
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], asked.challenge).into_response()
        }
        None => (StatusCode::FORBIDDEN, "the verify token is another one\n").into_response(),
    }
}

/// What Meta told, and nobody else could have.
struct Verified(Vec<Told>);

impl FromRequest<Door> for Verified {
    type Rejection = Response;

    async fn from_request(request: Request, door: &Door) -> Result<Self, Response> {
        let refused = |status: StatusCode, why: &'static str| (status, why).into_response();
        let Ok(_place) = Arc::clone(&door.free).try_acquire_owned() else {
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "too many at once\n"));
        };
        let (parts, body) = request.into_parts();
        let too_large = || refused(StatusCode::PAYLOAD_TOO_LARGE, "at most 4 MB\n");
        let said =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if said.is_some_and(|bytes| bytes > MAX_BODY) {
            return Err(too_large());
        }
        let settings = door.channel.0.client.settings();
        let signature = signature(&parts.headers).ok_or_else(|| refused(StatusCode::UNAUTHORIZED, "not signed\n"))?;
        let bytes =
            door.channel.0.ctx.clock().timeout(READ_WITHIN, axum::body::to_bytes(Body::new(body), MAX_BODY)).await;
        let bytes = match bytes {
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) => return Err(too_large()),
            None => return Err(refused(StatusCode::REQUEST_TIMEOUT, "too slow\n")),
        };
        if !is_signed(&settings.app_secret, &bytes, &signature) {
            tracing::warn!("a WhatsApp webhook with a wrong signature was refused; is whatsapp.app_secret right?");
            return Err(refused(StatusCode::UNAUTHORIZED, "wrong signature\n"));
        }
        let told = shapes::read(&bytes, &settings.phone_number_id);
        if told.is_none() {
            tracing::warn!(bytes = bytes.len(), "a WhatsApp webhook of another shape was ignored");
        }
        Ok(Self(told.unwrap_or_default()))
    }
}

fn signature(headers: &HeaderMap) -> Option<Vec<u8>> {
    hex::decode(headers.get(SIGNATURE)?.to_str().ok()?.strip_prefix("sha256=")?).ok()
}

/// In constant time.
fn is_signed(secret: &SecretString, bytes: &[u8], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return false };
    mac.update(bytes);
    mac.verify_slice(signature).is_ok()
}

/// 200 for what was stored or needs nothing; 503 for what has to come again.
async fn take(State(door): State<Door>, Verified(told): Verified) -> StatusCode {
    // A task of its own: a sender who hangs up must not stop half-way what an answer sets off.
    let channel = door.channel.clone();
    let taken = door.channel.0.ctx.serve(async move { channel.take(told).await });
    match taken.await {
        Ok(Ok(())) => StatusCode::OK,
        Ok(Err(super::inbound::NotStored)) | Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_bytes_with_this_secret_are_signed() {
        let secret: SecretString = "sim-app-secret".into();
        let body = br#"{"object":"whatsapp_business_account","text":"\u00fcber"}"#;
        let mut mac = Hmac::<Sha256>::new_from_slice(b"sim-app-secret").unwrap();
        mac.update(body);
        let good = mac.finalize().into_bytes().to_vec();
        assert!(is_signed(&secret, body, &good));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!is_signed(&secret, body, &bad));
        }
        assert!(!is_signed(&secret, br#"{"object":"whatsapp_business_account","text":"ueber"}"#, &good));
        assert!(!is_signed(&secret, body, &good[..16]) && !is_signed(&secret, body, &[]));
        assert!(!is_signed(&"other".into(), body, &good));
    }
}
