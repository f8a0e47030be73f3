//! How Slack signs its webhooks: over the time and the raw bytes. A webhook that is too old is refused before its body
//! is read.

use super::desk::Desk;
use crate::host::channel::signed::{Platform, Refused, Signed, Webhooks};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use secrecy::{ExposeSecret as _, SecretString};
use slack_morphism::signature_verifier::SlackEventSignatureVerifier as Verifier;

/// How old, and how far ahead, a webhook may be: as Slack says.
const OLDEST: u64 = 300;

/// Where Slack's webhooks arrive.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) desk: Desk,
    pub(super) secret: SecretString,
    pub(super) webhooks: Webhooks,
}

impl Platform for Door {
    const NAME: &'static str = "Slack";
    /// Far more than a form of ten answers at their limits takes.
    const LARGEST: usize = 256 * 1024;
    /// The time at which the signature was made.
    type Signature = (String, String);

    fn signature(&self, headers: &HeaderMap) -> Result<Self::Signature, &'static str> {
        let (signature, timestamp) = signed(headers).ok_or("not signed")?;
        if recent(&timestamp, self.desk.slack().clock().now().as_millis()) {
            Ok((signature, timestamp))
        } else {
            Err("not of the last five minutes")
        }
    }

    fn is_genuine(&self, (signature, timestamp): &Self::Signature, body: &[u8]) -> bool {
        let verifier = Verifier::new(&self.secret.expose_secret().to_owned().into());
        std::str::from_utf8(body).is_ok_and(|text| verifier.verify(signature, text, timestamp).is_ok())
    }
}

/// The body of a verified webhook.
pub(super) struct Verified(pub(super) Signed);

impl FromRequest<Door> for Verified {
    type Rejection = Refused;

    async fn from_request(request: Request, door: &Door) -> Result<Self, Refused> {
        door.webhooks.verify(door, request).await.map(Self)
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
