//! The webhook: Meta's handshake, and what Meta tells.

use super::Whatsapp;
use super::payload::{self, Notification};
use super::taps::keyed;
use crate::host::channel::signed::{ACKNOWLEDGE_WITHIN, Platform, Signed, Webhooks};
use crate::host::channel::{DOCTORS_CHALLENGE, NotStored};
use crate::sabotage::on;
use askd_core::ChannelName;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hmac::Mac as _;
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The header with the signature.
const SIGNATURE: &str = "x-hub-signature-256";

struct WebhookState {
    channel: Whatsapp,
    webhooks: Webhooks,
}

/// The address of the webhook.
pub(super) fn routes(channel: Whatsapp, webhooks: Webhooks) -> Router {
    let state = Arc::new(WebhookState { channel, webhooks });
    Router::new().route("/whatsapp/webhook", get(handshake).post(take)).with_state(state)
}

async fn handshake(State(state): State<Arc<WebhookState>>, Query(asked): Query<HashMap<String, String>>) -> Response {
    let field = |name| asked.get(name).map_or("", String::as_str);
    let expected = state.channel.0.settings.verify_token.expose_secret();
    let same: bool = field("hub.verify_token").as_bytes().ct_eq(expected.as_bytes()).into();
    if same && field("hub.mode") == "subscribe" {
        let challenge = field("hub.challenge");
        if challenge != DOCTORS_CHALLENGE {
            tracing::info!("the WhatsApp webhook was set up");
        }
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], challenge.to_owned()).into_response()
    } else {
        (StatusCode::FORBIDDEN, "the verify token is another one\n").into_response()
    }
}

impl Platform for Arc<WebhookState> {
    const NAME: &'static str = "WhatsApp";
    /// Meta sends up to 3 MB.
    const MAX_BODY: usize = 4 * 1024 * 1024;
    type Signature = Vec<u8>;

    fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    fn signature(&self, headers: &HeaderMap) -> Result<Vec<u8>, &'static str> {
        signature(headers).ok_or("not signed")
    }

    fn is_genuine(&self, signature: &Vec<u8>, body: &[u8]) -> bool {
        self.channel.app_secrets().all().any(|secret| is_signed(secret, body, signature))
    }
}

fn signature(headers: &HeaderMap) -> Option<Vec<u8>> {
    hex::decode(headers.get(SIGNATURE)?.to_str().ok()?.strip_prefix("sha256=")?).ok()
}

/// In constant time.
fn is_signed(secret: &SecretString, bytes: &[u8], signature: &[u8]) -> bool {
    keyed(secret, bytes).is_some_and(|mac| mac.verify_slice(signature).is_ok())
}

/// 200 for what was stored or needs nothing; 503 for what has to come again.
async fn take(State(state): State<Arc<WebhookState>>, signed: Signed) -> Result<StatusCode, NotStored> {
    let Some(told) = payload::read(&signed.body, &state.channel.0.settings.phone_number_id) else {
        state.webhooks.warn("a WhatsApp webhook of another shape was ignored");
        return Ok(StatusCode::OK);
    };
    let broker = state.channel.broker().ok_or(NotStored)?;
    if on("unkept") && !broker.leads() {
        return Ok(StatusCode::OK);
    }
    if !broker.leads() && !state.channel.0.contacts.is_shared().await? {
        let kept = broker.keep_webhook(ChannelName::WHATSAPP.as_str(), signed.body.to_vec()).await;
        return kept.map(|()| StatusCode::OK).map_err(|error| {
            tracing::error!(%error, "a WhatsApp webhook could not be kept for the leader; Meta sends it again");
            NotStored
        });
    }
    // A task of its own: if the sender hangs up, what an answer sets off must not stop half-way.
    let (channel, ctx) = (state.channel.clone(), &state.channel.0.ctx);
    let taken = ctx.serve(async move { channel.take_when_sure(told).await });
    if !broker.is_shared() || on("inturn") {
        return taken.await.unwrap_or(Err(NotStored)).map(|()| StatusCode::OK);
    }
    // The database may be away or slow. What is stored all the same counts once: Meta sends it again with the same id.
    let taken = ctx.clock().timeout(ACKNOWLEDGE_WITHIN, taken).await.ok_or(NotStored)?;
    taken.unwrap_or(Err(NotStored)).map(|()| StatusCode::OK)
}

/// The same for webhooks that other daemons have verified and kept, the oldest first, and of each lot first the statuses. One with a message
/// that has to wait or to come again stays, and so do those with later messages of the same person. Their statuses are taken, and so is
/// what others wrote.
pub(super) async fn take_kept(channel: &Whatsapp) {
    let Some(broker) = channel.broker().filter(|broker| broker.is_shared() && broker.leads()) else { return };
    let _alone = channel.0.taking_kept.lock().await;
    let (mut last, mut stays) = (0, HashSet::new());
    loop {
        let kept = match broker.kept_webhooks(ChannelName::WHATSAPP.as_str(), last).await {
            Ok(kept) => kept,
            Err(error) => return tracing::debug!(%error, "cannot read kept webhooks"),
        };
        let Some(newest) = kept.last() else { return };
        last = newest.number;
        let mut messages = Vec::new();
        for webhook in kept {
            let told = payload::read(&webhook.body, &channel.0.settings.phone_number_id).unwrap_or_default();
            let (statuses, told): (Vec<_>, Vec<_>) =
                told.into_iter().partition(|told| matches!(told, Notification::Status(_)));
            messages.push((webhook.number, channel.take(statuses).await.is_ok(), told));
        }
        for (number, mut all_taken, told) in messages {
            let writers = |told: &[Notification]| told.iter().flat_map(Notification::writers).collect::<Vec<_>>();
            let stays_too = |told: &Notification| told.writers().iter().any(|id| stays.contains(id));
            let (later, told): (Vec<_>, Vec<_>) = told.into_iter().partition(stays_too);
            let theirs = writers(&told);
            if let Ok(waits) = channel.take(told).await {
                all_taken &= later.is_empty() && waits.is_empty();
            } else {
                all_taken = false;
                stays.extend(theirs);
            }
            if all_taken && let Err(error) = broker.drop_webhook(number).await {
                return tracing::warn!(%error, "a webhook that was dealt with is read once more");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::{Hmac, KeyInit as _};
    use sha2::Sha256;

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
