//! The two addresses that Slack posts to, and how it signs what it posts: over the time and the raw bytes.

use super::inbound::Inbound;
use super::payload::Payload;
use crate::host::channel::signed::{Platform, Signed, Webhooks};
use crate::host::channel::{DOCTORS_CHALLENGE, NotStored};
use crate::host::settings::{Secrets, SlackSettings};
use crate::sabotage::on;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use secrecy::{ExposeSecret as _, SecretString};
use slack_morphism::signature_verifier::{
    SlackEventSignatureVerifier as Verifier, SlackEventSignatureVerifierError as Unverified,
};
use std::sync::Arc;

/// How many seconds a webhook may be old, or ahead of our clock. Slack recommends this.
const MAX_AGE: u64 = 300;

/// What the handlers of Slack's webhooks need.
struct WebhookState {
    inbound: Inbound,
    /// Those that the daemon was started with.
    secrets: Secrets,
    webhooks: Webhooks,
}

/// `POST /slack/interactions` and `POST /slack/events`.
pub(super) fn routes(inbound: Inbound, secrets: Secrets, webhooks: Webhooks) -> Router {
    Router::new()
        .route("/slack/interactions", post(interactions))
        .route("/slack/events", post(events))
        .with_state(Arc::new(WebhookState { inbound, secrets, webhooks }))
}

impl Platform for Arc<WebhookState> {
    const NAME: &'static str = "Slack";
    /// Ten questions and ten answers at their limits are 60,000 characters, and one may take 16 bytes: `%5Cud83d%5Cude00`.
    const MAX_BODY: usize = 2 * 1024 * 1024;
    /// The signature, and the time at which it was made.
    type Signature = (String, String);

    fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    fn signature(&self, headers: &HeaderMap) -> Result<Self::Signature, &'static str> {
        let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let signature = header(Verifier::SLACK_SIGNED_HASH_HEADER).ok_or("not signed")?;
        let timestamp = header(Verifier::SLACK_SIGNED_TIMESTAMP).ok_or("not signed")?;
        if is_recent(&timestamp, self.inbound.slack.clock().now().as_millis()) {
            Ok((signature, timestamp))
        } else {
            Err("not of the last five minutes")
        }
    }

    fn is_genuine(&self, (signature, timestamp): &Self::Signature, body: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(body) else { return false };
        let made = |secret: &SecretString| is_signed(secret, signature, text, timestamp);
        // A reload changes them, so that a secret is replaced without a moment in which clicks are refused.
        let settings = self.inbound.broker.settings();
        let now = settings.slack.as_ref().and_then(SlackSettings::signing_secrets);
        now.unwrap_or(&self.secrets).all().any(made) || on("oldsecret") && self.secrets.all().any(made)
    }
}

/// Whether the secret has made the signature, whenever that was: its age is judged by our clock, which may follow a
/// database's, and not by the computer's.
fn is_signed(secret: &SecretString, signature: &str, body: &str, timestamp: &str) -> bool {
    let verifier = Verifier::new(&secret.expose_secret().to_owned().into());
    // The time is looked at only once the signature is right.
    matches!(verifier.verify(signature, body, timestamp), Ok(()) | Err(Unverified::IncorrectOrExpiredTimestampError(_)))
}

fn is_recent(timestamp: &str, now_millis: i64) -> bool {
    timestamp.parse::<i64>().is_ok_and(|sent| sent.abs_diff(now_millis.div_euclid(1000)) <= MAX_AGE)
}

async fn interactions(State(state): State<Arc<WebhookState>>, signed: Signed) -> Result<Response, NotStored> {
    let payload = url::form_urlencoded::parse(&signed.body).find(|(name, _)| name == "payload");
    acknowledge(&state, payload.and_then(|(_, payload)| serde_json::from_str(&payload).ok())).await
}

async fn events(State(state): State<Arc<WebhookState>>, signed: Signed) -> Result<Response, NotStored> {
    acknowledge(&state, serde_json::from_slice(&signed.body).ok()).await
}

/// Slack sends what is not stored again if it is an event, and else warns the person who clicked.
async fn acknowledge(state: &WebhookState, payload: Option<Payload>) -> Result<Response, NotStored> {
    let Some(mut payload) = payload else {
        // An error status would only show the person a warning, and the person cannot mend this.
        tracing::debug!("ignored a webhook of Slack that askd does not understand");
        return Ok(StatusCode::OK.into_response());
    };
    if let Some(challenge) = payload.challenge.take().filter(|_| payload.kind == "url_verification") {
        if challenge != DOCTORS_CHALLENGE {
            tracing::info!("Slack has checked the address for events");
        }
        return Ok(challenge.into_response());
    }
    let answer = state.inbound.take_in(payload).await?;
    Ok(answer.map_or_else(|| StatusCode::OK.into_response(), |answer| Json(answer).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_right_whatever_the_clock_of_the_computer_says() {
        // Slack's own example (docs: Verifying requests from Slack), of 2018.
        let secret = SecretString::from("8f742231b10e8888abcd99yyyzzz85a5");
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
            channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=\
            https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
            trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        assert!(is_signed(&secret, signature, body, "1531420618"));
        assert!(!is_signed(&secret, signature, body, "1531420619"));
        assert!(!is_signed(&SecretString::from("another"), signature, body, "1531420618"));
    }

    #[test]
    fn five_minutes_either_way() {
        let now = 1_760_000_000_000;
        for (sent, good) in [(-300, true), (-301, false), (0, true), (300, true), (301, false)] {
            assert_eq!(is_recent(&(1_760_000_000 + sent).to_string(), now), good, "{sent}");
        }
        for bad in ["", "soon", "1e9", "-9223372036854775808", "99999999999999999999"] {
            assert!(!is_recent(bad, now), "{bad}");
        }
    }
}
