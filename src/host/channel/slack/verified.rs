//! A webhook of Slack that is what it says: this type is built only after the signature over the raw bytes was
//! verified. Too old, too large or too slow is refused before anything is hashed or kept.

use super::desk::Desk;
use crate::host::settings::SlackDoor;
use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use secrecy::ExposeSecret as _;
use slack_morphism::signature_verifier::SlackEventSignatureVerifier as Verifier;
use std::time::Duration;

/// Bytes of a body: far more than a form of ten answers at their limits takes.
const LARGEST: usize = 256 * 1024;
/// How long a body may take.
const SLOWEST: Duration = Duration::from_secs(2);
/// How old, and how far ahead, a webhook may be: as Slack says.
const OLDEST: u64 = 300;

/// The body of a verified webhook.
pub(super) struct Verified(pub(super) Bytes);

impl FromRequest<Desk> for Verified {
    type Rejection = StatusCode;

    async fn from_request(request: Request, desk: &Desk) -> Result<Self, StatusCode> {
        let refuse = |why: &'static str, status: StatusCode| {
            tracing::warn!(why, "a webhook of Slack was refused");
            status
        };
        let SlackDoor::Webhooks(secret) = desk.slack().door() else { return Err(StatusCode::NOT_FOUND) };
        let (parts, body) = request.into_parts();
        let (signature, timestamp) =
            signed(&parts.headers).ok_or_else(|| refuse("not signed", StatusCode::UNAUTHORIZED))?;
        if !recent(&timestamp, desk.slack().clock().now().as_millis()) {
            return Err(refuse("not of the last five minutes", StatusCode::UNAUTHORIZED));
        }
        let length =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > LARGEST) {
            return Err(refuse("too large", StatusCode::PAYLOAD_TOO_LARGE));
        }
        let body = match desk.slack().clock().timeout(SLOWEST, to_bytes(body, LARGEST)).await {
            Some(Ok(body)) => body,
            Some(Err(_)) => return Err(refuse("too large, or cut off", StatusCode::PAYLOAD_TOO_LARGE)),
            None => return Err(refuse("too slow", StatusCode::REQUEST_TIMEOUT)),
        };
        let verifier = Verifier::new(&secret.expose_secret().to_owned().into());
        let genuine =
            std::str::from_utf8(&body).is_ok_and(|text| verifier.verify(&signature, text, &timestamp).is_ok());
        if genuine { Ok(Self(body)) } else { Err(refuse("the signature is wrong", StatusCode::UNAUTHORIZED)) }
    }
}

fn signed(headers: &HeaderMap) -> Option<(String, String)> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    Some((text(Verifier::SLACK_SIGNED_HASH_HEADER)?, text(Verifier::SLACK_SIGNED_TIMESTAMP)?))
}

/// Whether it was sent within the last minutes, by a clock that may differ from ours.
fn recent(timestamp: &str, now_millis: i64) -> bool {
    timestamp.parse::<i64>().is_ok_and(|sent| sent.abs_diff(now_millis.div_euclid(1000)) <= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_minutes_either_way() {
        let now = 1_760_000_000_000;
        for (sent, good) in [(-300, true), (-301, false), (0, true), (300, true), (301, false)] {
            assert_eq!(recent(&(1_760_000_000 + sent).to_string(), now), good, "{sent}");
        }
        for bad in ["", "soon", "1e9", "-9223372036854775808", "99999999999999999999"] {
            assert!(!recent(bad, now), "{bad}");
        }
    }
}
